//! Promised starts while the queue is served: whom they bind, and when they are kept.

use alloc::vec::Vec;

use super::{Met, Served};
use crate::event::{Placement, Why};
use crate::job::Spec;
use crate::plan::booked;
use crate::plan::draft::Step;
use crate::plan::groups;
use crate::plan::lines::{self, Pass};
use crate::plan::place::Ask;
use crate::plan::reserve;
use crate::plan::victims::{Unit, whole_job};
use crate::reservations::Reservation;
use crate::units::JobId;

impl<'a> Served<'a> {
    /// Takes the places that were promised to others and that a candidate may not have; all of those, or only where it
    /// could not be gone in time.
    pub(super) fn hold_reserved(&mut self, at: usize, open: &[(Ask<'a>, Pass)], all: bool) -> Vec<Step> {
        let candidate = self.queue.get(at);
        let (key, own) = (candidate.key, candidate.first.1);
        let Some(pass) = open.iter().map(|(_, pass)| *pass).min() else { return Vec::new() };
        let mut held = self.promised_steps(|job, reservation| {
            let spec = &self.draft.state.jobs.get(job).expect("a promised start is a live job's").spec;
            let fills = !all && reserve::may_fill(&self.draft, key, reservation.start);
            job != own && reserve::is_bound(key, pass, spec) && !fills
        });
        held.extend(booked::kept_from(&self.draft, key, all));
        for &step in &held {
            self.draft.take(step);
        }
        held
    }

    /// The places of promised starts that are not kept yet, of those that are asked for.
    pub(super) fn promised_steps(&self, which: impl Fn(JobId, &Reservation) -> bool) -> Vec<Step> {
        let state = self.draft.state;
        let waits = |job: JobId| !self.settled.given.contains(&job) && state.promises.of(job).is_none();
        let wanted = self.reserved.kept.iter().filter(|&&(job, of)| waits(job) && which(job, of));
        let steps = wanted.flat_map(|&(job, of)| {
            let spec = &state.jobs.get(job).expect("a promised start is a live job's").spec;
            reserve::steps(spec, of)
        });
        steps.collect()
    }

    pub(super) fn let_go_of(&mut self, held: Vec<Step>) {
        for step in held {
            self.draft.give_back(step);
        }
    }

    /// Who fills promised places is asked to leave in time; whose places nobody else holds any more has them now.
    pub(super) fn keep_reserved(&mut self) {
        for (job, reservation) in self.reserved.kept.clone() {
            let state = self.draft.state;
            if self.settled.given.contains(&job) || state.promises.of(job).is_some() {
                continue;
            }
            let spec = &state.jobs.get(job).expect("a promised start belongs to a live job").spec;
            let mut way = reserve::in_the_way(&mut self.draft, spec, reservation);
            way.fillers.retain(|filler| !self.settled.leaving.contains(filler));
            way.others.retain(|other| !self.settled.leaving.contains(other));
            let all = way.others.is_empty();
            if !all {
                let now = self.draft.now;
                let due = |filler: &JobId| {
                    let leave = state.jobs.get(*filler).map(|job| state.time_to_leave(&job.spec));
                    leave.is_some_and(|leave| now + leave >= reservation.start)
                };
                way.fillers.retain(due);
            }
            if !all {
                self.ask_fillers(job, &way.fillers);
            } else if let Some(at) = self.queue.at_first(job) {
                self.claim(at, reservation, &way.fillers);
            }
        }
    }

    fn ask_fillers(&mut self, beneficiary: JobId, fillers: &[JobId]) {
        for &filler in fillers {
            let Some(unit) = whole_job(&self.draft, filler) else { continue };
            for &step in &unit.steps {
                self.draft.drain(step);
            }
            self.draft.count(unit.standing, unit.amount.clone(), false);
            let tenant = unit.standing.tenant;
            self.victims.take_job(&self.draft, tenant, filler);
            self.withdraw(filler);
            self.leaves(unit, Why::Reservation, beneficiary, None, None);
            self.queue.touch(&mut self.draft, tenant);
        }
    }

    /// Gives a job the places that it was promised, if they are free without those who fill them.
    fn claim(&mut self, at: usize, reservation: &Reservation, fillers: &[JobId]) {
        let candidate = self.queue.get(at);
        let (key, job) = (candidate.key, candidate.first.1);
        let spec = &self.draft.state.jobs.get(job).expect("who waits is a live job").spec;
        let Some(ask) = groups::of_places(self.draft.desk(), key, spec, &reservation.tasks) else { return };
        let units: Vec<Unit> = fillers.iter().filter_map(|&filler| whole_job(&self.draft, filler)).collect();
        if units.len() < fillers.len() || lines::limit_passed(&self.draft, &ask).is_some() {
            return;
        }
        let mark = self.draft.mark();
        units.iter().flat_map(|unit| &unit.steps).for_each(|&step| self.draft.drain(step));
        // Several of its tasks may share a node: each has to fit beside those before it.
        let free = reserve::steps(spec, reservation).all(|step| {
            let free = self.is_free(&step.place, spec);
            if free {
                self.draft.take(step);
            }
            free
        });
        self.draft.roll_back(mark);
        if !free {
            return;
        }
        self.ask_fillers(job, fillers);
        for step in reserve::steps(spec, reservation).collect::<Vec<_>>() {
            self.draft.take(step);
        }
        self.draft.count(lines::standing_of(key), ask.total(), true);
        let tasks = reservation.tasks.clone();
        let met = Met { ask, tasks, chosen: None, taken: Vec::new(), moved: Vec::new() };
        let tenant = key.tenant;
        self.record(at, met);
        self.queue.touch(&mut self.draft, tenant);
    }

    /// True when a whole place is free on the draft.
    fn is_free(&self, place: &Placement, spec: &Spec) -> bool {
        let Some(room) = self.draft.room(place.node) else { return false };
        let has = |at: usize| {
            let gpu = room.gpus.get(at);
            gpu.is_some_and(|gpu| match place.slice {
                Some(slice) => room
                    .mig
                    .is_some_and(|mig| gpu.open_layout().is_some_and(|layout| layout.allows(mig, slice))),
                None => gpu.free_for_share(spec.trust, place.time_sliced) >= place.units_each,
            })
        };
        place.gpus.indexes().all(has) && room.free().covers(&spec.resources_of(place.task))
    }
}
