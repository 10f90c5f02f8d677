//! Prices beside the desk: when enough work has come since the last time, what the market needs is copied out of the
//! state and solved on a thread of its own; what comes of it is an input like any other, in the journal with the rest.
//! No decision waits for it: until then the prices of before hold.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use wharf_controller::market::{Pricer, Summary};
use wharf_engine::decide::input::Input;
use wharf_engine::price::prices::Prices;
use wharf_engine::state::State;

/// Prices are solved at most this often: a solve takes up to about twenty milliseconds of a core.
const EVERY: Duration = Duration::from_secs(1);

/// Prices beside the desk.
pub(crate) struct Pricing {
    work: Work,
    last: Option<Instant>,
}

enum Work {
    /// Nothing is being solved.
    Idle(Pricer),
    /// A solve is under way.
    Solving(JoinHandle<(Pricer, Prices)>),
}

impl Pricing {
    /// Nothing is priced yet.
    pub(crate) fn new() -> Self {
        Self { work: Work::Idle(Pricer::default()), last: None }
    }

    /// Prices that are ready for this turn. The first ones are empty: counting begins with them.
    pub(crate) fn ready(&mut self, state: &State) -> Option<Input> {
        if !state.demand.is_counting() {
            return Some(Input::Prices(Prices::default()));
        }
        let Work::Solving(thread) = &self.work else { return None };
        if !thread.is_finished() {
            return None;
        }
        let idle = Work::Idle(Pricer::default());
        let Work::Solving(thread) = std::mem::replace(&mut self.work, idle) else { return None };
        // A solve that panicked leaves the prices of before in force, and the next one starts afresh.
        let (pricer, found) = thread.join().ok()?;
        self.work = Work::Idle(pricer);
        Some(Input::Prices(found))
    }

    /// Starts a solve if one is due.
    pub(crate) fn begin(&mut self, state: &State) {
        let rested = self.last.is_none_or(|last| last.elapsed() >= EVERY);
        let Work::Idle(pricer) = &mut self.work else { return };
        if !rested || !state.demand.is_counting() || !pricer.is_due(state.demand.arrived()) {
            return;
        }
        let (mut pricer, summary) = (std::mem::take(pricer), Summary::of(state));
        let solve = move || {
            let found = pricer.solve(&summary);
            (pricer, found)
        };
        self.last = Some(Instant::now());
        // Without a thread there are no new prices, which costs quality and nothing else.
        if let Ok(thread) = std::thread::Builder::new().name("prices".to_owned()).spawn(solve) {
            self.work = Work::Solving(thread);
        }
    }
}
