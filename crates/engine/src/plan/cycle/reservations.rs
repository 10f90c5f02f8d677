//! Reservations while the queue is served: whom they bind, and when they are kept.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{Allocation, Cycle, Grant, Purpose};
use crate::model::placement::Placement;
use crate::plan::evict::victims::{Unit, rest_of_job};
use crate::plan::later::booked;
use crate::plan::later::reserve::{self, Horizon, InTheWay, ReviewedStarts, StartSearches};
use crate::plan::lines::{self, Pass};
use crate::plan::place::Ask;
use crate::state::jobs::KindKey;
use crate::state::ledger::Step;
use crate::state::ledger::event::EvictionRule;
use crate::state::reservations::{DropReason, Reservation};
use crate::units::{JobId, Timestamp};

/// The reservations of a cycle.
#[derive(Default)]
pub(super) struct HeldStarts<'a> {
    pub(super) horizon: Horizon,
    pub(super) reserved: ReviewedStarts<'a>,
    /// Reserved places on nodes that have room, until somebody has to leave.
    with_room: Option<Vec<(usize, Vec<Step>)>>,
    /// Starts that are promised in this cycle.
    pub(super) made: Vec<(JobId, Reservation)>,
    /// For whom a start was looked for.
    pub(super) looked: StartSearches,
}

impl HeldStarts<'_> {
    /// True when nothing is reserved for anybody.
    pub(super) fn is_empty(&self) -> bool {
        self.reserved.kept.is_empty()
    }

    /// Somebody has to leave: there may be more room on nodes with reserved places.
    pub(super) fn room_changed(&mut self) {
        self.with_room = None;
    }
}

/// What of the reserved places a candidate may not have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Withheld {
    /// Where something is free, and it could not be gone in time.
    Free,
    /// All of them: whoever is moved, or takes what others leave, may stay for long.
    All,
}

impl<'a> Cycle<'a> {
    /// Drops the reservations that cannot be kept any more.
    pub(in crate::plan) fn review_reservations(&mut self) {
        self.reservations.reserved = reserve::review(&mut self.draft, &mut self.reservations.horizon);
    }

    /// Takes the places that were promised to others and that a candidate may not have.
    pub(super) fn hold_reserved(
        &mut self,
        at: usize,
        open: &[(Ask<'a>, Pass)],
        which: Withheld,
    ) -> Vec<Step> {
        let Some(pass) = open.iter().map(|(_, pass)| *pass).min() else { return Vec::new() };
        let candidate = self.queue.get(at);
        let (key, own) = (candidate.key, candidate.first.1);
        let mut held: Vec<Step> = booked::kept_from(&self.draft, key, which == Withheld::All);
        held.extend(self.kept_from(key, own, pass, (which, open)));
        for &step in &held {
            self.draft.occupy(step);
        }
        held
    }

    /// Places of promised starts that somebody of a kind may not have.
    fn kept_from(
        &mut self,
        key: &KindKey,
        own: JobId,
        pass: Pass,
        (which, open): (Withheld, &[(Ask<'a>, Pass)]),
    ) -> Vec<Step> {
        if self.reservations.reserved.kept.is_empty() {
            return Vec::new();
        }
        // Where no GPU is free, nothing has to be kept from somebody who asks for one.
        let only_free = which == Withheld::Free
            && open.iter().all(|(ask, _)| ask.parts().all(|part| part.way.need.units().parts() > 0));
        if only_free && self.reservations.with_room.is_none() {
            self.reservations.with_room = Some(self.reserved_with_room());
        }
        let places = match &self.reservations.with_room {
            Some(places) if only_free => places.clone(),
            _ => (0..self.reservations.reserved.kept.len()).map(|of| (of, self.blocks_of(of))).collect(),
        };
        let mut held: Vec<Step> = Vec::new();
        for (of, mut steps) in places {
            let (job, reservation) = self.reservations.reserved.kept[of];
            let spec = &self.draft.state.jobs.get(job).expect("a promised start is a live job's").spec;
            if job == own || !self.waits(job) || !reserve::is_bound(key, pass, spec) {
                continue;
            }
            if which == Withheld::All || !reserve::may_fill(&self.draft, key, reservation.start) {
                held.append(&mut steps);
            }
        }
        held
    }

    /// True when a candidate would fill promised places, but not at once: what is only set aside for it could not be asked to
    /// leave.
    pub(super) fn fills_later(&self, at: usize, open: &[(Ask<'a>, Pass)], tasks: &[Placement]) -> bool {
        let clear = |place: &Placement| self.draft.room(place.node).is_some_and(|room| room.is_clear(place));
        let Some(pass) = open.iter().map(|(_, pass)| *pass).min() else { return false };
        if self.reservations.reserved.kept.is_empty() || tasks.iter().all(clear) {
            return false;
        }
        let candidate = self.queue.get(at);
        self.reservations.reserved.kept.iter().any(|&(job, reservation)| {
            let spec = &self.draft.state.jobs.get(job).expect("a promised start is a live job's").spec;
            let bound = job != candidate.first.1 && reserve::is_bound(candidate.key, pass, spec);
            let here = |of: &Placement| tasks.iter().any(|place| place.meets(of));
            bound && self.waits(job) && reservation.tasks.iter().any(here)
        })
    }

    /// True while a promise is neither kept on this draft nor on its way.
    fn waits(&self, job: JobId) -> bool {
        !self.commitments.given.contains(&job) && self.draft.state.earmarks.of(job).is_none()
    }

    fn blocks_of(&self, at: usize) -> Vec<Step> {
        let (job, reservation) = self.reservations.reserved.kept[at];
        let spec = &self.draft.state.jobs.get(job).expect("a promised start is a live job's").spec;
        reserve::blocks(self.draft.state, spec, reservation).collect()
    }

    /// Promised places on nodes that have a part of a GPU left. Who starts makes it less, who leaves makes it more.
    fn reserved_with_room(&self) -> Vec<(usize, Vec<Step>)> {
        let has_room = |step: &Step| {
            let room = self.draft.room(step.place.node);
            room.is_some_and(|room| {
                room.gpus.iter().any(|gpu| gpu.left_undivided().parts() > 0 || !gpu.layout.is_empty())
            })
        };
        let mut places = Vec::new();
        for at in 0..self.reservations.reserved.kept.len() {
            let mut steps = self.blocks_of(at);
            steps.retain(has_room);
            if !steps.is_empty() {
                places.push((at, steps));
            }
        }
        places
    }

    /// Takes the places of all promises that are not kept yet.
    pub(super) fn hold_all_reserved(&mut self) -> Vec<Step> {
        let waiting = (0..self.reservations.reserved.kept.len())
            .filter(|&of| self.waits(self.reservations.reserved.kept[of].0));
        let mut held: Vec<Step> = waiting.flat_map(|of| self.blocks_of(of)).collect();
        held.extend(booked::all_steps(&self.draft));
        for &step in &held {
            self.draft.occupy(step);
        }
        held
    }

    pub(super) fn let_go_of(&mut self, held: Vec<Step>) {
        for step in held {
            self.draft.vacate(step);
        }
    }

    /// Who is in promised places and may be asked is asked in time; whose places nobody else holds has them now.
    pub(in crate::plan) fn keep_reservations(&mut self) {
        for (job, reservation) in self.reservations.reserved.kept.clone() {
            if !self.waits(job) {
                continue;
            }
            let state = self.draft.state;
            let live = state.jobs.get(job).expect("a promised start belongs to a live job");
            let kind = state.jobs.kind_of(live).and_then(|kind| state.jobs.waiting().get(&kind));
            let spec = &live.spec;
            let Some(key) = kind.map(|kind| &kind.key) else { continue };
            let Some(ask) = reserve::ask_of(&self.draft, key, spec, reservation) else { continue };
            let InTheWay { mut fillers, mut borrowers, mut others } =
                reserve::in_the_way(&mut self.draft, &ask, spec, reservation);
            for jobs in [&mut fillers, &mut borrowers, &mut others] {
                jobs.retain(|other| !self.commitments.leaving.contains(other));
            }
            if others.is_empty() && borrowers.is_empty() {
                self.claim(job, (key, &ask), reservation, &fillers);
                continue;
            }
            let in_time = fillers.iter().chain(&borrowers).copied();
            let due: BTreeSet<JobId> = in_time.filter(|&id| self.is_due(id, reservation.start)).collect();
            self.ask_to_leave(job, &due);
        }
    }

    /// True when a job that would stay longer has to be asked now to be gone by then.
    fn is_due(&self, id: JobId, start: Timestamp) -> bool {
        let (state, now) = (self.draft.state, self.draft.now);
        let over = state.end_of(id, self.draft.policy, now).known().is_some_and(|end| end <= start);
        let leave = state.jobs.get(id).map(|job| state.time_to_leave(&job.spec));
        !over && leave.is_some_and(|leave| now + leave >= start)
    }

    fn ask_to_leave(&mut self, beneficiary: JobId, jobs: &BTreeSet<JobId>) {
        for &job in jobs {
            let Some(unit) = rest_of_job(&self.draft, job) else { continue };
            self.evict_job(unit, EvictionRule::Reservation, beneficiary);
            // Nobody takes it a second time.
            self.commitments.given.insert(job);
        }
    }

    /// Gives a job the places that it was promised, if they are free without those who fill them.
    fn claim(
        &mut self,
        job: JobId,
        (key, ask): (&'a KindKey, &Ask<'a>),
        reservation: &Reservation,
        fillers: &BTreeSet<JobId>,
    ) {
        let units: Vec<Unit> =
            fillers.iter().filter_map(|&filler| rest_of_job(&self.draft, filler)).collect();
        let beyond = lines::limit_exceeded(&self.draft, ask).or(lines::fixed_beyond(&mut self.draft, ask));
        if units.len() < fillers.len() || beyond.is_some() {
            return;
        }
        let mark = self.draft.mark();
        units.iter().flat_map(|unit| &unit.steps).for_each(|&step| self.draft.drain(step));
        let spec = &self.draft.state.jobs.get(job).expect("who waits is a live job").spec;
        let steps: Vec<Step> = reserve::steps(self.draft.state, spec, reservation).collect();
        let free = steps.iter().all(|&step| {
            let room = self.draft.room(step.place.node);
            let free = room.is_some_and(|room| reserve::is_free(room, &step));
            if free {
                self.draft.occupy(step);
            }
            free
        });
        self.draft.roll_back(mark);
        let Some(at) =
            Some(()).filter(|()| free).and_then(|()| self.queue.bring_first(&self.draft, key, job))
        else {
            return;
        };
        self.ask_to_leave(job, fillers);
        for step in steps {
            self.draft.occupy(step);
        }
        self.draft.count(lines::work_group(key), ask.total(), true);
        self.record(at, Grant::new(ask, reservation.tasks.clone()));
        self.queue.touch(&mut self.draft, key.tenant);
    }

    /// A promised start that has come and could not be kept is let go of: nobody waits behind what does not happen.
    pub(in crate::plan) fn drop_late_reservations(&mut self) {
        let now = self.draft.now;
        let late = |job: JobId, of: &Reservation| of.start <= now && self.waits(job);
        let late: Vec<(JobId, &Reservation)> =
            self.reservations.reserved.kept.iter().copied().filter(|&(job, of)| late(job, of)).collect();
        for (job, reservation) in late {
            let why = self.why_late(job, reservation);
            self.reservations.reserved.dropped.push((job, why));
            self.reservations.reserved.kept.retain(|(kept, _)| *kept != job);
        }
    }

    /// Somebody who was served before took the places in this plan, or somebody is still there.
    fn why_late(&mut self, id: JobId, reservation: &Reservation) -> DropReason {
        let takes = |given: &Allocation| {
            let taken = given.tasks.iter().filter(|_| given.purpose != Purpose::Move);
            taken.into_iter().any(|taken| reservation.tasks.iter().any(|place| place.meets(taken)))
        };
        let tenant = |job: JobId| self.draft.state.jobs.get(job).map(|job| job.spec.tenant);
        let first = self.allocations.iter().find(|(_, given)| takes(given)).map(|(job, _)| job);
        match first {
            Some(other) if tenant(other) == tenant(id) => DropReason::Priority,
            Some(_) => DropReason::Guarantee,
            None if self.is_fixed_beyond(id, reservation) => DropReason::AboveShare,
            None => DropReason::Overrun,
        }
    }

    /// True when work that may not borrow would pass its guarantee now.
    fn is_fixed_beyond(&mut self, id: JobId, reservation: &Reservation) -> bool {
        let Some(job) = self.draft.state.jobs.get(id) else { return false };
        let key = job.key();
        let ask = reserve::ask_of(&self.draft, &key, &job.spec, reservation);
        ask.is_some_and(|ask| lines::fixed_beyond(&mut self.draft, &ask).is_some())
    }
}
