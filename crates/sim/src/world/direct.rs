//! A simulated fleet that a controller is wired to directly: no file, no wall clock.
//!
//! A [`DirectWorld`] is a handle; its clones are one world. So a test can let time pass, fail a node, or give the
//! world to the next controller, while the present one holds it. Time stands still until somebody advances it.

use std::cell::RefCell;
use std::rc::Rc;

use rand_chacha::ChaCha8Rng;
use wharf_controller::disk::Standing;
use wharf_controller::world::{World, WorldFault, WorldReport};
use wharf_engine::model::action::Action;
use wharf_engine::units::Timestamp;

use crate::world::fleet::SimFleet;
use crate::world::lost_calls::LostCalls;

/// A [`World`] in memory.
#[derive(Clone, Debug)]
pub struct DirectWorld {
    fleet: Rc<RefCell<SimFleet>>,
    calls: Rc<RefCell<LostCalls>>,
}

impl DirectWorld {
    /// The world of a fleet.
    pub fn new(fleet: SimFleet) -> Self {
        Self { fleet: Rc::new(RefCell::new(fleet)), calls: Rc::new(RefCell::new(LostCalls::never())) }
    }

    /// From now on some calls are lost, or their answers.
    pub fn lose_calls(&self, rng: ChaCha8Rng) {
        *self.calls.borrow_mut() = LostCalls::new(rng, true);
    }

    /// How many calls were lost so far; from now on every call is answered.
    pub fn repair(&self) -> u64 {
        let mut calls = self.calls.borrow_mut();
        calls.repair();
        calls.faults()
    }

    /// Looks at the fleet, or lets something happen to it.
    pub fn with<T>(&self, look: impl FnOnce(&mut SimFleet) -> T) -> T {
        look(&mut self.fleet.borrow_mut())
    }
}

impl World for DirectWorld {
    fn now(&self) -> Timestamp {
        self.with(|fleet| fleet.now())
    }

    fn obeyed(&self) -> Standing {
        self.with(|fleet| fleet.obeyed())
    }

    fn list(&mut self) -> Result<WorldReport, WorldFault> {
        self.calls.borrow_mut().call("listing the fleet", || self.with(SimFleet::list))
    }

    fn recall(&mut self) -> Result<WorldReport, WorldFault> {
        Ok(self.with(SimFleet::recall))
    }

    fn changes(&mut self) -> Result<Vec<WorldReport>, WorldFault> {
        let looked = || self.with(SimFleet::changes).into_iter().collect();
        self.calls.borrow_mut().call("looking at the fleet", looked)
    }

    fn act(&mut self, by: Standing, actions: &[Action]) -> Result<(), WorldFault> {
        self.calls.borrow_mut().send(actions, |action| {
            // A leader that is over is not told so by the world: its next append tells it.
            self.with(|fleet| fleet.act(by, action));
        })
    }

    fn next_change(&self) -> Option<Timestamp> {
        self.with(|fleet| fleet.next_change())
    }
}
