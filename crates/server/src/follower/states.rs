//! The states of the follower: one is published, others are held by readers or spare.
//!
//! A spare state is not thrown away: it learns the events that it missed, which costs as much as they are, where a copy
//! costs as much as the whole state.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wharf_engine::state::State;
use wharf_engine::state::event::Event;

use super::News;

/// The most states at a time, with the published one: more than readers are let in at a time, so that readers who take
/// seconds, each with another state, do not keep the next one from being published.
pub(super) const STATES_MAX: usize = 8;
/// The most events that are kept for spare states. One that lacks more is given up: a copy is then as good.
const KEPT_MAX: usize = 20_000;
/// How long a state that nobody reads is kept for the next reader who holds the published one.
const SPARE_FOR: Duration = Duration::from_mins(1);
/// How often is looked whether a reader has finished, where all states are held.
const LOOK_EVERY: Duration = Duration::from_millis(1);

#[derive(Default)]
pub(super) struct States {
    /// Published before, and perhaps still read.
    spare: Vec<Arc<State>>,
    /// The last events, oldest first: what spare states may lack.
    kept: VecDeque<Event>,
    /// When the published state was last held by a reader and another one had to take its place.
    needed: Option<Instant>,
}

impl States {
    /// Events were applied to the published state, in its place.
    pub(super) fn passed(&mut self, events: Vec<Event>) {
        if !self.spare.is_empty() {
            self.keep(events);
        }
    }

    /// The state after `current` and these events, in another place; and whether it had to be copied. `current`
    /// becomes spare.
    pub(super) fn next(
        &mut self,
        current: &Arc<State>,
        events: Vec<Event>,
        news: &mut News,
    ) -> (Arc<State>, bool) {
        self.needed = Some(Instant::now());
        let (mut next, copied) = self.free(current);
        let state = Arc::get_mut(&mut next).expect("nobody holds a state that is free");
        news.apply(state, &events);
        self.spare.push(Arc::clone(current));
        self.keep(events);
        (next, copied)
    }

    /// A state that is as `current` and that nobody holds.
    fn free(&mut self, current: &Arc<State>) -> (Arc<State>, bool) {
        loop {
            if let Some(caught_up) = self.take_spare(current.index()) {
                return (caught_up, false);
            }
            // The published one, those that are held, and the copy.
            if self.spare.len() + 2 <= STATES_MAX {
                return (Arc::new(State::clone(current)), true);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// The spare state that lacks the least, brought up to `index`. Those that lack too much are given up.
    fn take_spare(&mut self, index: u64) -> Option<Arc<State>> {
        self.spare
            .retain_mut(|state| lacks(state, index) <= self.kept.len() || Arc::get_mut(state).is_none());
        // One that a reader lets go of between the two looks may lack more than is kept.
        let free = (0..self.spare.len()).filter(|&at| {
            lacks(&self.spare[at], index) <= self.kept.len() && Arc::get_mut(&mut self.spare[at]).is_some()
        });
        let newest = free.collect::<Vec<_>>().into_iter().max_by_key(|&at| self.spare[at].index())?;
        let mut taken = self.spare.swap_remove(newest);
        let missed = self.kept.len() - lacks(&taken, index);
        let state = Arc::get_mut(&mut taken).expect("it was just found to be free");
        for event in self.kept.range(missed..) {
            state.apply(event);
        }
        Some(taken)
    }

    /// After a turn was published: a state that is not read any more learns what it missed, so that it can be published at
    /// once. One such state is enough, and none where it has not been needed for long.
    pub(super) fn tidy(&mut self, index: u64) {
        if self.spare.is_empty() {
            return;
        }
        let free = self.take_spare(index);
        self.spare.retain_mut(|state| Arc::get_mut(state).is_none());
        let is_needed = self.needed.is_some_and(|last| last.elapsed() < SPARE_FOR);
        self.spare.extend(free.filter(|_| is_needed));
        let missed = self.spare.iter().map(|state| lacks(state, index));
        let missed = missed.filter(|&missed| missed <= self.kept.len()).max().unwrap_or_default();
        self.kept.drain(..self.kept.len() - missed);
    }

    fn keep(&mut self, events: Vec<Event>) {
        self.kept.extend(events);
        let beyond = self.kept.len().saturating_sub(KEPT_MAX);
        self.kept.drain(..beyond);
    }
}

/// How many events a state lacks of those before an index.
fn lacks(state: &State, index: u64) -> usize {
    usize::try_from(index - state.index()).unwrap_or(usize::MAX)
}
