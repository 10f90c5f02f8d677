//! The follower: a thread that keeps a second state up to date, from which everything that is read is answered.
//!
//! After each commit the desk hands over the turn's events and goes on; it waits only when [`TURNS_MAX`] turns are not published yet. The follower applies them to its
//! own copy of the state and publishes the result as a [`Replica`]. Replies to the callers of the turn leave from here,
//! each with the replica of its own turn, so that whoever wrote something reads what it wrote.
//!
//! Worked example. Nobody reads: the published state is changed in place, behind a lock that is held for some
//! microseconds. A reader holds it: it stays as it is, and the events go to a copy, which is published; the old one is
//! spare. When the reader has finished, the spare learns the events that it missed and takes its turn. So readers of a
//! busy control plane cost two states, not one copy for each commit. A reader that takes seconds pins one state; there
//! are at most [`STATES_MAX`](states::STATES_MAX).

mod states;
#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tracing::warn;
use wharf_api::v1::Change;
use wharf_controller::selectors::Strings;
use wharf_engine::state::State;
use wharf_engine::state::event::Event;
use wharf_engine::units::Timestamp;

use self::states::States;
use crate::feed::{self, Feed, FeedWriter};
use crate::pricing::{Prices, Pricing};
use crate::replica::{Progress, Replica, Vitals};

/// The most events that are applied in place, while readers who come wait: about a millisecond.
const IN_PLACE_MAX: usize = 1000;
/// A follower that lacks so many events is said to be behind: seconds of work of a busy desk.
pub(crate) const BEHIND_MAX: u64 = 20_000;
/// The most turns that wait for the follower: seconds of a busy desk. With more, the desk waits, too: decisions that
/// nobody is told of would only fill the memory.
const TURNS_MAX: usize = 1024;
/// The most turns that nobody waits for that are published as one.
const TOGETHER_MAX: usize = 64;

/// Runs when the turn that it belongs to is published, with its replica.
pub(crate) type Delivery = Box<dyn FnOnce(&Arc<Replica>) + Send>;

/// What one turn left behind.
pub(crate) struct CommittedTurn {
    events: Vec<Event>,
    /// How many of them were written at which time of the world, where turns were put together.
    times: Vec<(Timestamp, usize)>,
    /// What selectors see of the nodes, where that changed.
    strings: Option<Strings>,
    vitals: Vitals,
    deliveries: Vec<Delivery>,
}

/// The newest replica.
#[derive(Clone)]
pub(crate) struct Latest(Arc<Mutex<Arc<Replica>>>);

impl Latest {
    pub(crate) fn get(&self) -> Arc<Replica> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes what is published; `change` is short.
    fn with<T>(&self, change: impl FnOnce(&mut Arc<Replica>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The desk's end.
pub(crate) struct FollowerHandle {
    turns: SyncSender<CommittedTurn>,
    progress: Arc<Progress>,
    thread: JoinHandle<()>,
    is_behind: bool,
}

/// The follower is gone, by a bug.
#[derive(Debug)]
pub(crate) struct Lost;

impl FollowerHandle {
    /// Hands over a turn that is committed. Waits only where more turns than [`TURNS_MAX`] are not published yet.
    pub(crate) fn hand_over(&mut self, turn: CommittedTurn) -> Result<(), Lost> {
        let count = u64::try_from(turn.events.len()).unwrap_or(u64::MAX);
        self.progress.committed.fetch_add(count, Ordering::Relaxed);
        self.turns.send(turn).map_err(|_| Lost)?;
        let behind = self.progress.behind();
        // Told when it begins, not with every turn.
        if behind > BEHIND_MAX && !self.is_behind {
            warn!("what is read is {behind} events behind the journal");
        }
        self.is_behind = behind > BEHIND_MAX;
        Ok(())
    }

    /// Waits until everything that was handed over is published and delivered.
    pub(crate) fn finish(self) {
        drop(self.turns);
        let _ = self.thread.join();
    }
}

/// Starts a follower from a first replica.
pub(crate) fn start(first: Replica, prices: Prices) -> (FollowerHandle, Latest, Feed) {
    start_with(first, prices, TURNS_MAX)
}

fn start_with(first: Replica, prices: Prices, turns_max: usize) -> (FollowerHandle, Latest, Feed) {
    let (turns, handed_over) = sync_channel(turns_max);
    let progress = Arc::clone(&first.progress);
    let Vitals { term, figures, .. } = &first.vitals;
    let origin = feed::Origin { term: *term, restored: figures.restored };
    let (teller, feed) = feed::begin(first.index(), origin);
    let latest = Latest(Arc::new(Mutex::new(Arc::new(first))));
    let (states, pricing) = (States::default(), Pricing::new(prices));
    let follower = Follower { latest: latest.clone(), states, pricing, teller };
    let thread = std::thread::Builder::new().name("follower".to_owned());
    let thread = thread.spawn(move || follower.follow(&handed_over)).expect("a thread can be started");
    (FollowerHandle { turns, progress, thread, is_behind: false }, latest, feed)
}

struct Follower {
    latest: Latest,
    states: States,
    pricing: Pricing,
    teller: FeedWriter,
}

impl Follower {
    fn follow(mut self, turns: &Receiver<CommittedTurn>) {
        while let Ok(mut turn) = turns.recv() {
            // Each caller gets the state of its own turn; turns without callers are published together.
            for _ in 1..TOGETHER_MAX {
                if !turn.deliveries.is_empty() {
                    break;
                }
                let Ok(next) = turns.try_recv() else { break };
                turn.append(next);
            }
            self.publish(turn);
        }
    }

    /// Makes a turn readable and lets its replies go, back to the handlers that wait in
    /// [`Desk::decide`](crate::desk::Desk::decide).
    fn publish(&mut self, turn: CommittedTurn) {
        let CommittedTurn { events, times, strings, vitals, deliveries } = turn;
        let strings = strings.map(Arc::new);
        let mut news = News { times, changes: Vec::new() };
        let short = events.len() <= IN_PLACE_MAX;
        if short && self.publish_in_place(&events, &mut news, strings.as_ref(), &vitals) {
            self.states.passed(events);
        } else {
            self.publish_beside(events, &mut news, strings, vitals);
        }
        let published = self.latest.get();
        self.teller.tell(news.changes, published.index());
        published.progress.published.store(published.index(), Ordering::Relaxed);
        for deliver in deliveries {
            // It only hands over. One that panics costs its caller an answer and nobody else anything.
            let _ = catch_unwind(AssertUnwindSafe(|| deliver(&published)));
        }
        // No caller of this turn waits for the rest.
        self.pricing.look(&published.state);
        self.states.tidy(published.index());
    }

    /// Changes the published replica, unless somebody reads it.
    fn publish_in_place(
        &self,
        events: &[Event],
        news: &mut News,
        strings: Option<&Arc<Strings>>,
        vitals: &Vitals,
    ) -> bool {
        self.latest.with(|latest| {
            let Some(replica) = Arc::get_mut(latest) else { return false };
            let Some(state) = Arc::get_mut(&mut replica.state) else { return false };
            news.apply(state, events);
            if let Some(strings) = strings {
                replica.strings = Arc::clone(strings);
            }
            replica.vitals = vitals.clone();
            true
        })
    }

    /// Publishes another replica; whoever reads the one before keeps it.
    fn publish_beside(
        &mut self,
        events: Vec<Event>,
        news: &mut News,
        strings: Option<Arc<Strings>>,
        vitals: Vitals,
    ) {
        let before = self.latest.get();
        let strings = strings.unwrap_or_else(|| Arc::clone(&before.strings));
        // Where only time has passed the state is the same.
        let state: Arc<State> = if events.is_empty() {
            Arc::clone(&before.state)
        } else {
            let (next, copied) = self.states.next(&before.state, events, news);
            before.progress.copies.fetch_add(copied.into(), Ordering::Relaxed);
            next
        };
        let next = Arc::new(before.next(state, strings, vitals));
        // The old one is dropped outside of the lock.
        let old = self.latest.with(|latest| std::mem::replace(latest, next));
        drop(old);
    }
}

/// What watchers learn of a turn, found out while its events are first applied.
struct News {
    times: Vec<(Timestamp, usize)>,
    changes: Vec<Change>,
}

impl News {
    fn apply(&mut self, state: &mut State, events: &[Event]) {
        let times = self.times.iter().flat_map(|&(at, count)| std::iter::repeat_n(at, count));
        for (event, at) in events.iter().zip(times) {
            self.changes.extend(feed::project(state, event, at));
            state.apply(event);
        }
    }
}

impl CommittedTurn {
    /// A turn that was just committed.
    pub(crate) fn new(
        events: Vec<Event>,
        strings: Option<Strings>,
        vitals: Vitals,
        deliveries: Vec<Delivery>,
    ) -> Self {
        Self { times: vec![(vitals.now, events.len())], events, strings, vitals, deliveries }
    }

    fn append(&mut self, next: Self) {
        self.events.extend(next.events);
        self.times.extend(next.times);
        self.strings = next.strings.or_else(|| self.strings.take());
        self.vitals = next.vitals;
        self.deliveries = next.deliveries;
    }
}
