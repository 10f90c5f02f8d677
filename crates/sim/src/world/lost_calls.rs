//! Faults on the way to a world, by seed: a call is lost before it gets there, or its answer is lost on the way back,
//! or only the first of several actions arrive.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use wharf_controller::world::WorldFault;
use wharf_engine::model::action::Action;

/// One call in so many fails: often enough that faults meet each other within one outage.
const ONE_IN: u32 = 12;

/// A way that fails now and then, or never.
#[derive(Clone, Debug)]
pub(crate) struct LostCalls {
    rng: ChaCha8Rng,
    on: bool,
    faults: u64,
}

impl LostCalls {
    pub(crate) fn new(rng: ChaCha8Rng, on: bool) -> Self {
        Self { rng, on, faults: 0 }
    }

    pub(crate) fn never() -> Self {
        Self::new(ChaCha8Rng::seed_from_u64(0), false)
    }

    pub(crate) fn repair(&mut self) {
        self.on = false;
    }

    pub(crate) fn faults(&self) -> u64 {
        self.faults
    }

    fn strikes(&mut self) -> bool {
        let strikes = self.on && self.rng.random_ratio(1, ONE_IN);
        self.faults += u64::from(strikes);
        strikes
    }

    /// A call that is answered, or not. Whether it was carried out the caller cannot know.
    pub(crate) fn call<T>(&mut self, attempted: &str, work: impl FnOnce() -> T) -> Result<T, WorldFault> {
        if !self.strikes() {
            return Ok(work());
        }
        if self.rng.random() {
            work();
        }
        Err(lost(attempted))
    }

    /// Actions of which all arrive, or only the first few; in either case the answer may be lost.
    pub(crate) fn send(
        &mut self,
        actions: &[Action],
        mut each: impl FnMut(&Action),
    ) -> Result<(), WorldFault> {
        let strikes = self.strikes();
        let arrive = if strikes { self.rng.random_range(0..=actions.len()) } else { actions.len() };
        actions[..arrive].iter().for_each(&mut each);
        if strikes { Err(lost("acting on the fleet")) } else { Ok(()) }
    }
}

fn lost(attempted: &str) -> WorldFault {
    WorldFault { attempted: attempted.to_owned(), source: "the simulated connection was lost".into() }
}
