//! Reservations while the queue is served: from whom their places are withheld, and when they are kept.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{Allocation, Cycle, Grant, Purpose};
use crate::model::placement::Placement;
use crate::plan::evict::victims::{Unit, rest_of_job};
use crate::plan::later::is_over_by;
use crate::plan::later::kept::{Filler, KeptPlaces, Withheld};
use crate::plan::later::reserve::{self, Horizon, InTheWay, ReservationReview, StartSearches};
use crate::plan::lines::{self, Pass};
use crate::plan::place::Ask;
use crate::state::jobs::Job;
use crate::state::ledger::Step;
use crate::state::ledger::event::EvictionRule;
use crate::state::reservations::{DropReason, Reservation};
use crate::units::{JobId, Timestamp};

#[derive(Default)]
pub(super) struct CycleReservations<'a> {
    pub(super) horizon: Horizon,
    pub(super) review: ReservationReview<'a>,
    /// Reserved places on nodes that have room, until a job has to leave.
    pub(super) with_room: Option<Vec<(&'a Reservation, Vec<Step>)>>,
    pub(super) made: Vec<Reservation>,
    pub(super) searches: StartSearches,
}

impl<'a> Cycle<'a> {
    /// Drops the reservations that cannot be kept any more.
    pub(in crate::plan) fn review_reservations(&mut self) {
        self.reservations.review = ReservationReview::of(&mut self.draft, &mut self.reservations.horizon);
    }

    /// Takes the places that are kept for others and that a candidate may not have.
    pub(super) fn withhold(&mut self, at: usize, open: &[(Ask<'a>, Pass)], withheld: Withheld) -> Vec<Step> {
        let Some(filler) = self.filler(at, open) else { return Vec::new() };
        // Where no GPU is free, nothing has to be kept from a candidate that asks for one.
        let with_gpus =
            |(ask, _): &(Ask<'a>, Pass)| ask.parts().all(|part| part.way.need.units().parts() > 0);
        let only_free = withheld == Withheld::Overstayed && open.iter().all(with_gpus);
        if only_free && self.reservations.with_room.is_none() {
            self.reservations.with_room = Some(self.reserved_with_room());
        }
        let bars = |kept: KeptPlaces<'_>| kept.bars(&self.draft, filler, withheld);
        let ordered = KeptPlaces::ordered(self.draft.state).filter(|kept| bars(*kept));
        let mut steps: Vec<Step> = ordered.flat_map(|kept| kept.steps(&self.draft)).collect();
        let start_bars = |of| self.commitments.awaits(&self.draft, of) && bars(KeptPlaces::Start(of));
        if only_free {
            let barred = self.reservations.with_room.iter().flatten().filter(|(of, _)| start_bars(of));
            steps.extend(barred.flat_map(|(_, steps)| steps));
        } else {
            let barred = self.reservations.review.kept.iter().filter(|of| start_bars(of));
            steps.extend(barred.flat_map(|of| KeptPlaces::Start(of).steps(&self.draft)));
        }
        self.draft.occupy_all(&steps);
        steps
    }

    fn filler(&self, at: usize, open: &[(Ask<'a>, Pass)]) -> Option<Filler<'a>> {
        let candidate = self.queue.get(at);
        let pass = open.iter().map(|(_, pass)| *pass).min()?;
        Some(Filler { job: candidate.first.1, key: candidate.key, pass })
    }

    /// True when a candidate would fill promised places, but not at once: what is only earmarked for it could not be asked to
    /// leave.
    pub(super) fn fills_later(&self, at: usize, open: &[(Ask<'a>, Pass)], tasks: &[Placement]) -> bool {
        let Some(filler) = self.filler(at, open) else { return false };
        tasks.iter().any(|place| !self.draft.is_clear(place))
            && self.reservations.review.kept.iter().any(|of| {
                let kept = KeptPlaces::Start(of);
                kept.binds(self.draft.state, filler)
                    && self.commitments.awaits(&self.draft, of)
                    && tasks.iter().any(|place| kept.meets(place))
            })
    }

    /// Promised places on nodes that have a part of a GPU left. Starts make it less, departures make it more.
    fn reserved_with_room(&self) -> Vec<(&'a Reservation, Vec<Step>)> {
        let has_room = |step: &Step| {
            let room = self.draft.room(step.place.node);
            room.is_some_and(|room| {
                room.gpus.iter().any(|gpu| gpu.left_undivided().parts() > 0 || !gpu.layout.is_empty())
            })
        };
        let steps = |of: &&'a Reservation| {
            let mut steps = KeptPlaces::Start(of).steps(&self.draft);
            steps.retain(has_room);
            (!steps.is_empty()).then_some((*of, steps))
        };
        self.reservations.review.kept.iter().filter_map(steps).collect()
    }

    /// Jobs that are in promised places and may be asked are asked in time; a job whose places nobody else holds has them now.
    pub(in crate::plan) fn keep_reservations(&mut self) {
        for reservation in self.reservations.review.kept.clone() {
            if !self.commitments.awaits(&self.draft, reservation) {
                continue;
            }
            let (state, job) = (self.draft.state, reservation.job);
            let kind = state.jobs.get(job).and_then(|live| state.jobs.kind_of(live));
            let Some(kind) = kind.and_then(|kind| state.jobs.waiting().get(&kind)) else { continue };
            let Some(ask) = reserve::ask_of(&self.draft, &kind.key, reservation) else { continue };
            let InTheWay { mut fillers, mut borrowers, mut others } =
                reserve::in_the_way(&mut self.draft, &ask, reservation);
            for jobs in [&mut fillers, &mut borrowers, &mut others] {
                jobs.retain(|other| !self.commitments.leaving.contains(other));
            }
            if others.is_empty() && borrowers.is_empty() {
                self.claim(&ask, reservation, &fillers);
                continue;
            }
            let in_time =
                (&fillers | &borrowers).into_iter().filter(|&id| self.is_due(id, reservation.start));
            let due: Vec<Unit> = in_time.filter_map(|id| rest_of_job(&self.draft, id)).collect();
            self.ask_to_leave(job, due);
        }
    }

    /// True when a job that would stay longer has to be asked now to be gone by then.
    fn is_due(&self, id: JobId, start: Timestamp) -> bool {
        let (state, now) = (self.draft.state, self.draft.now);
        let leave = state.jobs.get(id).map(|job| state.time_to_leave(&job.spec));
        !is_over_by(&self.draft, id, start) && leave.is_some_and(|leave| now + leave >= start)
    }

    fn ask_to_leave(&mut self, beneficiary: JobId, units: Vec<Unit>) {
        for unit in units {
            // Nobody takes it a second time.
            self.commitments.given.insert(unit.job);
            self.evict_job(unit, EvictionRule::Reservation, beneficiary);
        }
    }

    /// Gives a job the places that it was promised, if they are free without the jobs that fill them.
    fn claim(&mut self, ask: &Ask<'a>, reservation: &Reservation, fillers: &BTreeSet<JobId>) {
        let (key, job) = (ask.key, reservation.job);
        let units: Vec<Unit> =
            fillers.iter().filter_map(|&filler| rest_of_job(&self.draft, filler)).collect();
        if units.len() < fillers.len() || lines::barred_by(&mut self.draft, ask).is_some() {
            return;
        }
        let mark = self.draft.mark();
        units.iter().flat_map(|unit| &unit.steps).for_each(|&step| self.draft.drain(step));
        let steps: Vec<Step> = reserve::steps(self.draft.state, reservation).collect();
        let free = steps.iter().all(|&step| {
            let room = self.draft.room(step.place.node);
            let free = room.is_some_and(|room| reserve::is_free(room, &step));
            if free {
                self.draft.occupy(step);
            }
            free
        });
        self.draft.roll_back(mark);
        if !free {
            return;
        }
        let Some(at) = self.queue.bring_first(&self.draft, key, job) else { return };
        self.ask_to_leave(job, units);
        self.draft.occupy_all(&steps);
        self.draft.count(lines::work_group(key), ask.total(), true);
        self.record(at, Grant::new(ask, reservation.tasks.clone()));
        self.queue.touch(&mut self.draft, key.tenant);
    }

    /// A promised start that has come and could not be kept is let go of: nobody waits behind what does not happen.
    pub(in crate::plan) fn drop_late_reservations(&mut self) {
        for reservation in self.reservations.review.kept.clone() {
            if reservation.start <= self.draft.now && self.commitments.awaits(&self.draft, reservation) {
                let why = self.why_not_kept(reservation);
                let review = &mut self.reservations.review;
                review.dropped.push((reservation.job, why));
                review.kept.retain(|kept| kept.job != reservation.job);
            }
        }
    }

    /// A job that was served before took the places in this plan, or another is still there.
    fn why_not_kept(&mut self, reservation: &Reservation) -> DropReason {
        let state = self.draft.state;
        let takes = |given: &Allocation| {
            let met = |taken| reservation.tasks.iter().any(|place| place.meets(taken));
            given.purpose != Purpose::Move && given.tasks.iter().any(met)
        };
        let tenant = |job: JobId| state.jobs.get(job).map(|job| job.spec.tenant);
        if let Some((first, _)) = self.allocations.iter().find(|(_, given)| takes(given)) {
            let own = tenant(first) == tenant(reservation.job);
            return if own { DropReason::Priority } else { DropReason::Guarantee };
        }
        // Work that may not borrow would pass its guarantee now.
        let key = state.jobs.get(reservation.job).map(Job::key);
        let ask = key.as_ref().and_then(|key| reserve::ask_of(&self.draft, key, reservation));
        let beyond = ask.and_then(|ask| lines::fixed_beyond(&mut self.draft, &ask));
        if beyond.is_some() { DropReason::AboveShare } else { DropReason::Overrun }
    }
}
