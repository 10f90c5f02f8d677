//! The reservations section: starts that were promised to jobs that wait (rule 5).
//!
//! Worked example: two nodes of 8 GPUs, each with a job that ends within an hour. A gang of both waits; it is within its
//! tenant's fair share, so it is promised both nodes in an hour. When one job ends early, its node stands empty: whoever
//! ends before the hour is over may fill it, and so may work that can be asked to leave in time. Nobody else may, or small
//! jobs would hold the gang up for ever.
//!
//! A reservation is not use: it takes no room in the ledger and counts towards no quota.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::event::{Event, Placement};
use crate::units::{JobId, Timestamp};

/// Who was promised which start.
#[derive(Clone, Debug, Default)]
pub struct Reservations {
    by_job: BTreeMap<JobId, Reservation>,
    missed: BTreeMap<JobId, Vec<Missed>>,
    version: u64,
}

/// A start that was promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Where each task goes.
    pub tasks: Vec<Placement>,
    /// No later than then.
    pub start: Timestamp,
    /// The policy it was decided by.
    pub policy: u32,
    /// When it was made.
    pub at: Timestamp,
}

/// A promised start that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    /// What was promised.
    pub start: Timestamp,
    /// Why not.
    pub why: Dropped,
    /// When it was given up.
    pub at: Timestamp,
}

/// Why a promised start was given up: a closed list, so that no start moves without a name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dropped {
    /// A place is gone: its node or GPU failed, left or was cordoned.
    PlaceGone,
    /// The policy no longer allows it.
    Policy,
    /// Work within its tenant's guarantee has the place.
    Guarantee,
    /// Somebody is still there who was to be gone by then.
    Overrun,
    /// Its tenant is above its fair share now.
    AboveShare,
    /// An older job that is just like it waits again and comes first.
    Overtaken,
    /// A booked window has the place.
    Booked,
}

/// What happens to promised starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReservationsEvent {
    /// A job that waits starts there, no later than then.
    Reserved {
        /// Which job.
        job: JobId,
        /// Where each task goes.
        tasks: Vec<Placement>,
        /// No later than then.
        start: Timestamp,
        /// The policy it was decided by.
        policy: u32,
        /// When.
        at: Timestamp,
    },
    /// The start cannot be promised any more.
    Dropped {
        /// Whose.
        job: JobId,
        /// Why not.
        why: Dropped,
        /// When.
        at: Timestamp,
    },
    /// In a snapshot: starts that were promised to a job and given up.
    Carried {
        /// Which job.
        job: JobId,
        /// Oldest first.
        missed: Vec<Missed>,
    },
}

impl Dropped {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::PlaceGone,
        Self::Policy,
        Self::Guarantee,
        Self::Overrun,
        Self::AboveShare,
        Self::Overtaken,
        Self::Booked,
    ];

    /// The word used in API and receipts.
    pub fn word(self) -> &'static str {
        match self {
            Self::PlaceGone => "place_gone",
            Self::Policy => "policy",
            Self::Guarantee => "guarantee",
            Self::Overrun => "overrun",
            Self::AboveShare => "above_share",
            Self::Overtaken => "overtaken",
            Self::Booked => "booked",
        }
    }
}

impl Reservations {
    /// What a job was promised.
    pub fn of(&self, job: JobId) -> Option<&Reservation> {
        self.by_job.get(&job)
    }

    /// Every promised start, in job order.
    pub fn iter(&self) -> impl Iterator<Item = (JobId, &Reservation)> {
        self.by_job.iter().map(|(&job, reservation)| (job, reservation))
    }

    /// True when nobody was promised a start.
    pub fn is_empty(&self) -> bool {
        self.by_job.is_empty()
    }

    /// Promised starts of a job that were given up, oldest first.
    pub fn missed(&self, job: JobId) -> &[Missed] {
        self.missed.get(&job).map_or(&[], Vec::as_slice)
    }

    /// Changes whenever somebody is promised a start or loses one.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn apply(&mut self, event: &ReservationsEvent) {
        self.version += 1;
        match event {
            ReservationsEvent::Reserved { job, tasks, start, policy, at } => {
                let made = Reservation { tasks: tasks.clone(), start: *start, policy: *policy, at: *at };
                self.by_job.insert(*job, made);
            }
            ReservationsEvent::Dropped { job, why, at } => {
                let dropped = self.by_job.remove(job).expect("only what was promised is given up");
                let missed = Missed { start: dropped.start, why: *why, at: *at };
                self.missed.entry(*job).or_default().push(missed);
            }
            ReservationsEvent::Carried { job, missed } => {
                self.missed.insert(*job, missed.clone());
            }
        }
    }

    /// It starts, or is over: nothing is promised any more.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.version += u64::from(self.by_job.remove(&job).is_some());
        self.missed.remove(&job);
    }

    pub(crate) fn snapshot(&self, into: &mut Vec<Event>) {
        for (&job, reservation) in &self.by_job {
            let Reservation { tasks, start, policy, at } = reservation.clone();
            let event = ReservationsEvent::Reserved { job, tasks, start, policy, at };
            into.push(Event::Reservations(event));
        }
        for (&job, missed) in &self.missed {
            let missed = missed.clone();
            into.push(Event::Reservations(ReservationsEvent::Carried { job, missed }));
        }
    }
}
