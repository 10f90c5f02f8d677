//! The reservations section: starts that were promised to jobs that wait (rule 5).
//!
//! Worked example: two nodes, each with a job that ends within an hour. A gang of both waits within its tenant's fair share, so
//! it is promised both in an hour. When one job ends early, its node stands empty: only work that ends before the hour is over,
//! or can be asked to leave in time, may fill it, or small jobs would hold the gang up for ever.
//!
//! A reservation is not use: it takes no room in the ledger and counts towards no quota. A job that takes a promised place, or
//! something of its node, is noted with the promise: it *fills* it, and is asked to leave in time where it is in the way.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::model::job::Spec;
use crate::model::placement::Placement;
use crate::state::State;
use crate::state::event::Event;
use crate::state::index::{list, unlist};
use crate::state::recount::grouped;
use crate::units::{JobId, NodeId, Timestamp};

/// So many of the earlier promises to a job are kept: a reader who asks why looks at the last of them.
const HISTORY_MAX: usize = 16;

/// The starts that are promised.
#[derive(Clone, Debug, Default)]
pub struct Reservations {
    by_job: BTreeMap<JobId, Reservation>,
    by_node: BTreeMap<NodeId, BTreeSet<JobId>>,
    missed: BTreeMap<JobId, Vec<MissedStart>>,
    version: u64,
    news: u64,
}

/// A start that was promised to a job that waits: it starts there, no later than then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    pub job: JobId,
    pub tasks: Vec<Placement>,
    pub start: Timestamp,
    /// The policy it was decided by.
    pub policy: u32,
    pub at: Timestamp,
    /// Jobs that came to its nodes since the start was first promised.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub fillers: BTreeSet<JobId>,
    /// Jobs that were there before, borrow, and are asked to leave in time.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub borrowers: BTreeSet<JobId>,
}

/// A promised start that no longer is: it was given up, or an earlier one took its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissedStart {
    pub start: Timestamp,
    pub why: DropReason,
    pub at: Timestamp,
}

/// Why a promised start was given up: a closed list, so that no start moves without a name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(const_into_str, serialize_all = "snake_case")]
pub enum DropReason {
    PlaceGone,
    Policy,
    /// Work within its tenant's guarantee has the place.
    Guarantee,
    /// A job is still there that was to be gone by then.
    Overrun,
    AboveShare,
    /// An older job that is just like it waits again and comes first. Only older versions gave a start up for that.
    Overtaken,
    Booked,
    /// Work of its own tenant with a higher class or priority has the place.
    Priority,
    /// A job that was to be asked to leave is within its tenant's line now.
    WithinShare,
    Extended,
    /// It was not given up: an earlier start is promised.
    Earlier,
}

/// What happens to promised starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReservationsEvent {
    /// A start is promised, perhaps in place of a later one.
    Reserved(Reservation),
    /// The start cannot be promised any more.
    Dropped { job: JobId, why: DropReason, at: Timestamp },
    /// In a snapshot: starts that were promised to a job and given up, oldest first.
    Carried { job: JobId, missed: Vec<MissedStart> },
}

impl Reservations {
    /// The earliest moment after `now` at which a promised start is due, or a job in its places is asked.
    pub(crate) fn next_deadline(&self, state: &State, now: Timestamp) -> Option<Timestamp> {
        let moments = self.iter().flat_map(|Reservation { tasks, start, fillers, borrowers, .. }| {
            let live = fillers.iter().chain(borrowers).filter_map(|&job| state.jobs.get(job));
            let asked = live.map(|job| Timestamp(start.0.saturating_sub(state.time_to_leave(&job.spec).0)));
            // An estimate that has passed is believed no longer.
            let there = tasks.iter().flat_map(|place| state.ledger.tasks_on(place.node));
            let estimated =
                there.filter(|&(job, _)| state.jobs.get(job).is_some_and(|job| job.time_limit().is_none()));
            let ends =
                estimated.filter_map(move |(job, _)| state.end_of(job, state.tenants.policy(), now).known());
            asked.chain(ends).chain(core::iter::once(*start))
        });
        moments.filter(|&at| at > now).min()
    }

    pub(crate) fn wrong_indexes(&self) -> Option<&'static str> {
        let places = self.iter().flat_map(|of| of.tasks.iter().map(|place| (place.node, of.job)));
        (grouped(places) != self.by_node).then_some("promised starts by node")
    }

    /// What a job was promised.
    pub fn of(&self, job: JobId) -> Option<&Reservation> {
        self.by_job.get(&job)
    }

    /// Every promised start, in job order.
    pub fn iter(&self) -> impl Iterator<Item = &Reservation> {
        self.by_job.values()
    }

    /// True when nobody was promised a start.
    pub fn is_empty(&self) -> bool {
        self.by_job.is_empty()
    }

    /// Promised starts of a job that were given up, oldest first.
    pub fn missed(&self, job: JobId) -> &[MissedStart] {
        self.missed.get(&job).map_or(&[], Vec::as_slice)
    }

    /// Changes whenever a job is promised a start or loses one.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Changes whenever it becomes known that a job is over earlier.
    pub fn news(&self) -> u64 {
        self.news
    }

    pub(crate) fn apply(&mut self, event: &ReservationsEvent) {
        self.version += 1;
        match event {
            ReservationsEvent::Reserved(reservation) => {
                self.miss(reservation.job, DropReason::Earlier, reservation.at);
                self.insert(reservation.clone());
            }
            ReservationsEvent::Dropped { job, why, at } => {
                assert!(self.miss(*job, *why, *at), "only what was promised is given up");
            }
            ReservationsEvent::Carried { job, missed } => {
                self.missed.insert(*job, missed.clone());
            }
        }
    }

    fn insert(&mut self, reservation: Reservation) {
        for place in &reservation.tasks {
            list(&mut self.by_node, place.node, reservation.job);
        }
        self.by_job.insert(reservation.job, reservation);
    }

    fn remove(&mut self, job: JobId) -> Option<Reservation> {
        let removed = self.by_job.remove(&job)?;
        let nodes: BTreeSet<NodeId> = removed.tasks.iter().map(|place| place.node).collect();
        for node in nodes {
            unlist(&mut self.by_node, &node, &job);
        }
        Some(removed)
    }

    fn miss(&mut self, job: JobId, why: DropReason, at: Timestamp) -> bool {
        let Some(Reservation { start, .. }) = self.remove(job) else { return false };
        let history = self.missed.entry(job).or_default();
        history.drain(..(history.len() + 1).saturating_sub(HISTORY_MAX));
        history.push(MissedStart { start, why, at });
        true
    }

    /// A job has places or an earmark: what was promised of those nodes is filled, because cores and memory run out too.
    pub(crate) fn filled(&mut self, by: JobId, tasks: &[Placement]) {
        self.change_on(tasks.iter().map(|place| place.node), |reservation| {
            if reservation.job != by {
                reservation.fillers.insert(by);
            }
        });
    }

    fn change_on(&mut self, nodes: impl Iterator<Item = NodeId>, change: impl Fn(&mut Reservation)) {
        for job in nodes.filter_map(|node| self.by_node.get(&node)).flatten() {
            change(self.by_job.get_mut(job).expect("the index names promises that stand"));
        }
    }

    /// Places are earmarked for a job, perhaps others than those that are reserved for it, which it no longer needs.
    pub(crate) fn earmarked(&mut self, job: JobId, tasks: &[Placement]) {
        if self.of(job).is_some_and(|of| of.tasks != tasks)
            && let Some(of) = self.remove(job)
        {
            self.version += 1;
            let (fillers, borrowers) = (BTreeSet::new(), BTreeSet::new());
            self.insert(Reservation { tasks: tasks.to_vec(), fillers, borrowers, ..of });
        }
    }

    pub(crate) fn note_news(&mut self) {
        self.news += 1;
    }

    /// A job no longer holds anything: it fills nothing.
    pub(crate) fn left(&mut self, job: JobId, nodes: impl Iterator<Item = NodeId>) {
        self.note_news();
        self.change_on(nodes, |reservation| {
            reservation.fillers.remove(&job);
            reservation.borrowers.remove(&job);
        });
    }

    /// It starts, or is over: nothing is promised any more.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.version += u64::from(self.remove(job).is_some());
        self.missed.remove(&job);
    }

    pub(crate) fn snapshot(&self, into: &mut Vec<Event>) {
        let reserved = self.by_job.values().cloned().map(ReservationsEvent::Reserved);
        into.extend(reserved.map(Event::Reservations));
        for (&job, missed) in &self.missed {
            let missed = missed.clone();
            into.push(Event::Reservations(ReservationsEvent::Carried { job, missed }));
        }
    }
}

impl Reservation {
    pub(crate) fn spec<'s>(&self, state: &'s State) -> &'s Spec {
        &state.jobs.get(self.job).expect("a start is promised to a live job").spec
    }
}
