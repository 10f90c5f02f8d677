//! Telemetry of a fleet with a file: a mirror of the fleet is sampled by whoever looks, on its own thread.
//!
//! The world's thread teaches the mirror what changed, with each thing that it saves. It never waits: while somebody
//! takes samples, what changed is kept and taught later.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use wharf_controller::telemetry::Telemetry;

use crate::world::fleet::{Shown, SimFleet};

/// A fleet's mirror, from the side of the world.
pub(super) struct Mirror {
    fleet: Arc<Mutex<SimFleet>>,
    telemetry: Telemetry,
    untaught: Vec<Shown>,
}

impl Mirror {
    pub(super) fn of(fleet: &SimFleet) -> Self {
        let fleet = Arc::new(Mutex::new(fleet.clone()));
        let sampled = Arc::clone(&fleet);
        let take = move || sampled.lock().unwrap_or_else(PoisonError::into_inner).samples();
        Self { fleet, telemetry: Telemetry::new(take), untaught: Vec::new() }
    }

    pub(super) fn telemetry(&self) -> Telemetry {
        self.telemetry.clone()
    }

    /// Teaches what changed, now or with what comes next.
    pub(super) fn teach(&mut self, shown: Shown) {
        self.untaught.push(shown);
        let mut fleet = match self.fleet.try_lock() {
            Ok(fleet) => fleet,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        for shown in self.untaught.drain(..) {
            fleet.mirror(shown);
        }
    }
}
