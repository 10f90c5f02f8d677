//! The reservations section: starts that were promised to jobs that wait (rule 5).
//!
//! Worked example: two nodes of 8 GPUs, each with a job that ends within an hour. A gang of both waits; it is within its
//! tenant's fair share, so it is promised both nodes in an hour. When one job ends early, its node stands empty: whoever
//! ends before the hour is over may fill it, and so may work that can be asked to leave in time. Nobody else may, or small
//! jobs would hold the gang up for ever.
//!
//! A reservation is not use: it takes no room in the ledger and counts towards no quota. Who takes a place that is promised,
//! or something of its node, is noted with the promise: it *fills* it, and is asked to leave in time where it is in the way.

use crate::state::State;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::model::placement::Placement;
use crate::state::event::Event;
use crate::units::{JobId, NodeId, Timestamp};

/// Of what became of earlier promises to a job, so much is kept: whoever asks why looks at the last of them.
const HISTORY_MAX: usize = 16;

/// Who was promised which start.
#[derive(Clone, Debug, Default)]
pub struct Reservations {
    by_job: BTreeMap<JobId, Reservation>,
    /// To whom places of a node are promised.
    by_node: BTreeMap<NodeId, BTreeSet<JobId>>,
    missed: BTreeMap<JobId, Vec<MissedStart>>,
    version: u64,
    news: u64,
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
    /// Who came to its nodes since.
    pub fillers: BTreeSet<JobId>,
    /// Who was there before, borrows, and is asked to leave in time.
    pub borrowers: BTreeSet<JobId>,
}

/// A promised start that no longer is: it was given up, or an earlier one took its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissedStart {
    /// What was promised.
    pub start: Timestamp,
    /// Why not.
    pub why: DropReason,
    /// When it was given up.
    pub at: Timestamp,
}

/// Why a promised start was given up: a closed list, so that no start moves without a name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(const_into_str, serialize_all = "snake_case")]
pub enum DropReason {
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
    /// An older job that is just like it waits again and comes first. Only older versions gave a start up for that.
    Overtaken,
    /// A booked window has the place.
    Booked,
    /// Work of its own tenant with a higher class or priority has the place.
    Priority,
    /// Who was to be asked to leave is within its tenant's line now.
    WithinShare,
    /// Somebody who was to be over by then may run longer.
    Extended,
    /// It was not given up: an earlier start is promised.
    Earlier,
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
        /// Who came to its nodes since the start was first promised.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fillers: Vec<JobId>,
        /// Who was there before, borrows, and is asked to leave in time.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        borrowers: Vec<JobId>,
    },
    /// The start cannot be promised any more.
    Dropped {
        /// Whose.
        job: JobId,
        /// Why not.
        why: DropReason,
        /// When.
        at: Timestamp,
    },
    /// In a snapshot: starts that were promised to a job and given up.
    Carried {
        /// Which job.
        job: JobId,
        /// Oldest first.
        missed: Vec<MissedStart>,
    },
}

impl Reservations {
    /// The earliest moment after `now` at which a promised start is due, or somebody who is in its places is asked.
    pub(crate) fn next_deadline(&self, state: &State, now: Timestamp) -> Option<Timestamp> {
        let moments = self.iter().flat_map(|(_, reservation)| {
            let start = reservation.start;
            let there = reservation.fillers.iter().chain(&reservation.borrowers);
            let asked = there.filter_map(|&job| state.jobs.get(job)).map(move |job| {
                let grace = state.time_to_leave(&job.spec);
                Timestamp(start.0.saturating_sub(grace.0))
            });
            // An estimate that has passed is believed no longer.
            let nodes = reservation.tasks.iter().map(|place| place.node);
            let there = nodes.flat_map(|node| state.ledger.tasks_on(node));
            let guessed =
                there.filter(|&(job, _)| state.jobs.get(job).is_some_and(|job| job.time_limit().is_none()));
            let guessed =
                guessed.filter_map(move |(job, _)| state.end_of(job, state.tenants.policy(), now).known());
            asked.chain(guessed).chain(core::iter::once(start))
        });
        moments.filter(|&at| at > now).min()
    }

    /// The index that does not say what the promised starts do.
    pub(crate) fn wrong_indexes(&self) -> Option<&'static str> {
        let mut by_node: BTreeMap<NodeId, BTreeSet<JobId>> = BTreeMap::new();
        for (&job, reservation) in &self.by_job {
            for place in &reservation.tasks {
                by_node.entry(place.node).or_default().insert(job);
            }
        }
        (by_node != self.by_node).then_some("promised starts by node")
    }

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
    pub fn missed(&self, job: JobId) -> &[MissedStart] {
        self.missed.get(&job).map_or(&[], Vec::as_slice)
    }

    /// Changes whenever somebody is promised a start or loses one.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Changes whenever it becomes known that somebody is over earlier.
    pub fn news(&self) -> u64 {
        self.news
    }

    /// To whom places of a node are promised, in job order.
    pub fn on(&self, node: NodeId) -> impl Iterator<Item = (JobId, &Reservation)> {
        let jobs = self.by_node.get(&node).into_iter().flatten();
        jobs.map(|&job| (job, &self.by_job[&job]))
    }

    pub(crate) fn apply(&mut self, event: &ReservationsEvent) {
        self.version += 1;
        match event {
            ReservationsEvent::Reserved { job, tasks, start, policy, at, fillers, borrowers } => {
                if let Some(before) = self.remove(*job) {
                    self.note_missed(
                        *job,
                        MissedStart { start: before.start, why: DropReason::Earlier, at: *at },
                    );
                }
                for place in tasks {
                    self.by_node.entry(place.node).or_default().insert(*job);
                }
                let made = Reservation {
                    tasks: tasks.clone(),
                    start: *start,
                    policy: *policy,
                    at: *at,
                    fillers: fillers.iter().copied().collect(),
                    borrowers: borrowers.iter().copied().collect(),
                };
                self.by_job.insert(*job, made);
            }
            ReservationsEvent::Dropped { job, why, at } => {
                let dropped = self.remove(*job).expect("only what was promised is given up");
                self.note_missed(*job, MissedStart { start: dropped.start, why: *why, at: *at });
            }
            ReservationsEvent::Carried { job, missed } => {
                self.missed.insert(*job, missed.clone());
            }
        }
    }

    fn remove(&mut self, job: JobId) -> Option<Reservation> {
        let removed = self.by_job.remove(&job)?;
        for place in &removed.tasks {
            if let Some(jobs) = self.by_node.get_mut(&place.node) {
                jobs.remove(&job);
                if jobs.is_empty() {
                    self.by_node.remove(&place.node);
                }
            }
        }
        Some(removed)
    }

    fn note_missed(&mut self, job: JobId, missed: MissedStart) {
        let history = self.missed.entry(job).or_default();
        if history.len() == HISTORY_MAX {
            history.remove(0);
        }
        history.push(missed);
    }

    /// A job has places, or they are set aside for it: who was promised something of a node before has it filled. It need not
    /// be a GPU that both have: cores and memory run out too.
    pub(crate) fn filled(&mut self, by: JobId, tasks: &[Placement]) {
        for place in tasks {
            for &job in self.by_node.get(&place.node).into_iter().flatten().filter(|&&job| job != by) {
                let reservation = self.by_job.get_mut(&job).expect("the index names promises that stand");
                reservation.fillers.insert(by);
            }
        }
    }

    /// Places are earmarked for a job, perhaps others than those that are reserved for it, which it no longer needs.
    pub(crate) fn earmarked(&mut self, job: JobId, tasks: &[Placement]) {
        if self.by_job.get(&job).is_none_or(|of| of.tasks == tasks) {
            return;
        }
        let Some(mut of) = self.remove(job) else { return };
        self.version += 1;
        for place in tasks {
            self.by_node.entry(place.node).or_default().insert(job);
        }
        of.tasks = tasks.to_vec();
        (of.fillers, of.borrowers) = (BTreeSet::new(), BTreeSet::new());
        self.by_job.insert(job, of);
    }

    /// Somebody is over, or is known to be over earlier.
    pub(crate) fn note_news(&mut self) {
        self.news += 1;
    }

    /// A job no longer holds anything: it fills nothing.
    pub(crate) fn left(&mut self, job: JobId, tasks: impl Iterator<Item = NodeId>) {
        self.note_news();
        for node in tasks {
            for of in self.by_node.get(&node).into_iter().flatten() {
                let reservation = self.by_job.get_mut(of).expect("the index names promises that stand");
                reservation.fillers.remove(&job);
                reservation.borrowers.remove(&job);
            }
        }
    }

    /// It starts, or is over: nothing is promised any more.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.version += u64::from(self.remove(job).is_some());
        self.missed.remove(&job);
    }

    pub(crate) fn snapshot(&self, into: &mut Vec<Event>) {
        for (&job, reservation) in &self.by_job {
            into.push(Event::Reservations(reservation.event(job)));
        }
        for (&job, missed) in &self.missed {
            let missed = missed.clone();
            into.push(Event::Reservations(ReservationsEvent::Carried { job, missed }));
        }
    }
}

impl Reservation {
    /// The fact that makes it so.
    pub(crate) fn event(&self, job: JobId) -> ReservationsEvent {
        let Self { tasks, start, policy, at, fillers, borrowers } = self.clone();
        let (fillers, borrowers) = (fillers.into_iter().collect(), borrowers.into_iter().collect());
        ReservationsEvent::Reserved { job, tasks, start, policy, at, fillers, borrowers }
    }
}
