//! Whether the world answers, and when it is tried again.
//!
//! A world that does not answer costs the world's part of a turn and nothing else. It is left alone for a while, each
//! time longer, up to a bound: trying at every turn would make every request wait for whatever the world waits for.

use std::time::Duration;
use strum::{IntoStaticStr, VariantArray};

use wharf_engine::units::Timestamp;

use crate::world::{World, WorldFault};

/// The pause after a first fault, by the wall. A lock that somebody holds for a moment is over by then.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest pause: an operator who has mended the cause does not wait longer than this for the effect.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// What the world was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Operation {
    List,
    Changes,
    Act,
}

impl Operation {
    /// The word for it, the same everywhere.
    pub fn into_str(self) -> &'static str {
        self.into()
    }
}

/// How often the world did not answer, by operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorldFaults {
    list: u64,
    changes: u64,
    act: u64,
}

impl WorldFaults {
    /// How often an operation failed.
    pub fn of(&self, operation: Operation) -> u64 {
        match operation {
            Operation::List => self.list,
            Operation::Changes => self.changes,
            Operation::Act => self.act,
        }
    }

    fn count(&mut self, operation: Operation) {
        match operation {
            Operation::List => self.list += 1,
            Operation::Changes => self.changes += 1,
            Operation::Act => self.act += 1,
        }
    }
}

/// A world that does not answer. Times are the world's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    /// What failed last, and why.
    pub what: String,
    /// Since when nothing gets through.
    pub since: Timestamp,
    pub tries: u32,
    pub retry_at: Timestamp,
}

/// How the world is reached.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    pub(crate) faults: WorldFaults,
    pub(crate) outage: Option<Outage>,
    /// News may have been lost on the way: only a full list tells what is true.
    must_list: bool,
}

impl Reach {
    /// Whether the world is worth trying.
    pub(crate) fn is_open(&self, now: Timestamp) -> bool {
        self.outage.as_ref().is_none_or(|outage| outage.retry_at <= now)
    }

    pub(crate) fn must_list(&self) -> bool {
        self.must_list
    }

    pub(crate) fn listed(&mut self) {
        self.must_list = false;
    }

    /// Everything that was asked of the world in this turn was answered.
    pub(crate) fn answered(&mut self) {
        self.outage = None;
    }

    pub(crate) fn failed(
        &mut self,
        operation: Operation,
        fault: &WorldFault,
        now: Timestamp,
        world: &impl World,
    ) {
        self.faults.count(operation);
        // An action that was lost is simply sent again; lost news is told by nobody.
        self.must_list |= operation != Operation::Act;
        let (since, tries) = self.outage.as_ref().map_or((now, 1), |known| (known.since, known.tries + 1));
        let pause = PAUSE_MIN.saturating_mul(1 << (tries - 1).min(16)).min(PAUSE_MAX);
        let retry_at = world.at_wall(pause).max(Timestamp(now.0 + 1));
        self.outage = Some(Outage { what: fault.to_string(), since, tries, retry_at });
    }
}
