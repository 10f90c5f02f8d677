//! Prices beside the desk: when enough work has come since the last time, what the market needs is copied out of the
//! follower's state and solved on a thread of its own; what comes of it is an input like any other, in the journal with
//! the rest. No decision waits for it: until then the prices of before hold.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use wharf_controller::market::{Pricer, Summary};
use wharf_engine::decide::input::Input;
use wharf_engine::price::prices;
use wharf_engine::state::State;

/// Prices are solved at most this often: a solve takes up to about twenty milliseconds of a core.
const EVERY: Duration = Duration::from_secs(1);

/// Prices that are found and that no turn has taken yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prices(Arc<Mutex<Option<prices::Prices>>>);

impl Prices {
    /// What a turn is to learn. The first ones are empty: counting begins with them.
    pub(crate) fn ready(&self, state: &State) -> Option<Input> {
        if !state.demand.is_counting() {
            return Some(Input::Prices(prices::Prices::default()));
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().map(Input::Prices)
    }

    fn put(&self, found: prices::Prices) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    }
}

/// Solves prices beside the follower.
pub(crate) struct Pricing {
    work: Work,
    last: Option<Instant>,
    found: Prices,
}

enum Work {
    /// Nothing is being solved.
    Idle(Pricer),
    /// A solve is under way.
    Solving(JoinHandle<Pricer>),
}

impl Pricing {
    /// Nothing is priced yet.
    pub(crate) fn new(found: Prices) -> Self {
        Self { work: Work::Idle(Pricer::default()), last: None, found }
    }

    /// Starts a solve if one is due.
    pub(crate) fn look(&mut self, state: &Arc<State>) {
        let rested = self.last.is_none_or(|last| last.elapsed() >= EVERY);
        if !rested || !state.demand.is_counting() {
            return;
        }
        let mut pricer = match std::mem::replace(&mut self.work, Work::Idle(Pricer::default())) {
            Work::Idle(pricer) => pricer,
            // A solve that panicked leaves the prices of before in force, and the next one starts afresh.
            Work::Solving(thread) if thread.is_finished() => thread.join().unwrap_or_default(),
            Work::Solving(thread) => {
                self.work = Work::Solving(thread);
                return;
            }
        };
        if !pricer.is_due(state.demand.arrived()) {
            self.work = Work::Idle(pricer);
            return;
        }
        let (state, found) = (Arc::clone(state), self.found.clone());
        let solve = move || {
            let summary = Summary::of(&state);
            drop(state);
            found.put(pricer.solve(&summary));
            pricer
        };
        self.last = Some(Instant::now());
        // Without a thread there are no new prices, which costs quality and nothing else.
        if let Ok(thread) = std::thread::Builder::new().name("prices".to_owned()).spawn(solve) {
            self.work = Work::Solving(thread);
        }
    }
}
