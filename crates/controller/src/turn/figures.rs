//! What a controller counts while it lives.

use wharf_engine::state::ledger::event::EvictionRule;

use crate::outage::WorldFaults;

/// Figures of a controller's life, for `/metrics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Whether it began with a restore.
    pub restored: bool,
    /// Turns taken.
    pub turns: u64,
    /// Plans that panicked and were skipped.
    pub plan_panics: u64,
    /// Reports that built on something unknown, answered by a full list.
    pub gaps: u64,
    pub snapshots: u64,
    /// Snapshots that could not be written.
    pub snapshot_faults: u64,
    pub evictions: Evictions,
    pub world_faults: WorldFaults,
}

/// How often the rules evicted, by rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evictions {
    pub guarantee: u64,
    pub fair_share: u64,
    pub preempt: u64,
    /// To make room in one piece.
    pub moved: u64,
    pub reservation: u64,
    /// For a job of the same tenant that was served less.
    pub order: u64,
    /// For a booked window, or at the end of one.
    pub booking: u64,
    /// Because a node is to be empty.
    pub drain: u64,
}

impl Evictions {
    pub(super) fn count(&mut self, why: EvictionRule) {
        match why {
            EvictionRule::Guarantee => self.guarantee += 1,
            EvictionRule::FairShare => self.fair_share += 1,
            EvictionRule::Preempt => self.preempt += 1,
            EvictionRule::Move => self.moved += 1,
            EvictionRule::Reservation => self.reservation += 1,
            EvictionRule::Order => self.order += 1,
            EvictionRule::Booking => self.booking += 1,
            EvictionRule::Drain => self.drain += 1,
        }
    }
}
