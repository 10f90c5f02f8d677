//! The earliest moment at which time alone changes a plan or an action, asked of each section.

use crate::state::State;
use crate::units::Timestamp;

impl State {
    /// The earliest moment after `now` at which time alone changes a plan or an action.
    pub fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        // Every section is named, so that a new one does not compile until its deadlines were thought of.
        let Self {
            fleet: _, // a node that drains is emptied like one with a downtime: see `Maintenance`
            tenants,
            jobs,
            ledger,
            earmarks: _, // due when their victims are gone
            demand: _,   // changes with what is submitted
            reservations,
            attained: _, // a plan that depends on service says when it changes: see `Memory::wake`
            bookings,
            past,
            maintenance,
            owned: _, // what owners are told is due at once, as an action
            index: _,
        } = self;
        let policy = tenants.policy();
        let deadlines = [
            jobs.next_deadline(policy, now),
            ledger.next_deadline(policy, now),
            reservations.next_deadline(self, now),
            bookings.next_deadline(self, now),
            policy.half_life.and_then(|half_life| past.next_step(half_life)),
            maintenance.next_deadline(self, now),
        ];
        deadlines.into_iter().flatten().filter(|&at| at > now).min()
    }
}
