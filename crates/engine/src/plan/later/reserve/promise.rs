//! Which jobs are promised a start, which an earlier one, and why one is promised none.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::borrowed::{self, Askable};
use super::holders::{fillers, on_gpus_of};
use super::horizon::{HeldPlace, Horizon, Slot, is_near};
use super::{EarlierStarts, ReservationReview, ask_of};
use crate::model::placement::Placement;
use crate::model::policy::{Amount, Policy};
use crate::plan::cycle::Commitments;
use crate::plan::draft::Draft;
use crate::plan::evict::victims::Unit;
use crate::plan::later::kept::{self, KeptPlaces};
use crate::plan::lines::{self, Line};
use crate::plan::memory::{fingerprint, of_all};
use crate::plan::place::Ask;
use crate::state::State;
use crate::state::jobs::Job;
use crate::state::reservations::Reservation;
use crate::units::{JobId, Millis, NodeId, PoolId, TenantId, Timestamp};

/// A start that is earlier by less is not worth an event.
const EARLIER_MIN: Millis = Millis::from_secs(60);
/// Whose time is over already is about to leave: no start is promised sooner.
const SOON: Millis = Millis::from_secs(1);
/// So many ends of a tenant's own work are looked at until it is within its fair share.
const ENDS_MAX: usize = 64;
/// For so many jobs of a plan it is worked out which others could be asked to leave.
const BORROWED_MAX: usize = 8;

/// What earlier plans found out about promised starts. Losing it costs time, never an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartSearches {
    /// What the answers depend on, as it was.
    stamp: u64,
    /// Jobs that could be promised nothing.
    in_vain: BTreeSet<JobId>,
    /// Pools in which nothing more is promised until this job is: what it needs is promised to others.
    next: BTreeMap<PoolId, JobId>,
}

/// Why no start is promised to a job that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreserved {
    /// No end is known of these, in job order, and they are in the way.
    NoKnownEnd { holders: Vec<JobId> },
    /// Its tenant would be above its fair share.
    AboveShare,
    /// The policy promises no starts.
    Off,
    /// As many starts are promised in its pools as the policy allows, or on the places that it needs.
    OthersFirst,
}

/// Promises while they are made: places of all of them are taken on the draft.
pub(super) struct StartPromiser<'m, 'a> {
    pub(super) draft: &'m mut Draft<'a>,
    pub(super) horizon: &'m mut Horizon,
    kept: &'m [&'a Reservation],
    pub(super) commitments: &'m Commitments,
    made: Vec<Reservation>,
    borrowed_tries: usize,
}

impl State {
    /// Why no start is promised to a job that waits; `None` where one is, or none ever is.
    pub fn unpromised(&self, id: JobId, policy: &Policy, now: Timestamp) -> Option<Unreserved> {
        let job = self.jobs.get(id).filter(|job| job.spec.booking.is_none() && is_open(self, id))?;
        if policy.reservations_max == 0 {
            return Some(Unreserved::Off);
        }
        Draft::trial(self, policy, now, |mut draft| {
            let mut horizon = Horizon::default();
            let review = ReservationReview::of(&mut draft, &mut horizon);
            let commitments = Commitments::default();
            kept::withhold_all(&mut draft, &review.kept, &commitments);
            StartPromiser::new(&mut draft, &mut horizon, &review.kept, &commitments).why_not(id, job)
        })
    }
}

/// The starts that are promised now, some of them earlier than before. The draft stays as it is.
pub(in crate::plan) fn make<'a>(
    draft: &mut Draft<'a>,
    horizon: &mut Horizon,
    review: &ReservationReview<'a>,
    commitments: &Commitments,
    earlier: &StartSearches,
) -> (Vec<Reservation>, StartSearches) {
    let stamp = stamp(draft);
    let known = earlier.stamp == stamp;
    let mut searches =
        if known { earlier.clone() } else { StartSearches { stamp, ..StartSearches::default() } };
    searches.next.retain(|_, job| is_open(draft.state, *job) && !commitments.given.contains(job));
    let mut promiser = StartPromiser::new(draft, horizon, &review.kept, commitments);
    let (next, mark) = (promiser.next_in_line(&searches), promiser.draft.mark());
    if !next.is_empty() || (!known && !review.kept.is_empty()) {
        kept::withhold_all(promiser.draft, promiser.kept, commitments);
        if !known {
            promiser.promise_earlier();
        }
        promiser.promise_more(next, &mut searches);
    }
    promiser.draft.roll_back(mark);
    (promiser.made, searches)
}

/// True while a job waits and nothing is promised to it.
fn is_open(state: &State, id: JobId) -> bool {
    let waits = state.jobs.get(id).is_some_and(Job::waits_for_places);
    waits && state.earmarks.of(id).is_none() && state.reservations.of(id).is_none()
}

/// What decides whether a job can be promised a start, or an earlier one.
fn stamp(draft: &Draft<'_>) -> u64 {
    let state = draft.state;
    let (reservations, policy) = (&state.reservations, u64::from(state.tenants.version()));
    let mut parts = alloc::vec![reservations.version(), reservations.news(), policy, of_all(draft.shares)];
    parts.extend(state.fleet.pool_ids().map(|pool| state.ledger.freed(pool)));
    fingerprint(&parts)
}

impl<'m, 'a> StartPromiser<'m, 'a> {
    fn new(
        draft: &'m mut Draft<'a>,
        horizon: &'m mut Horizon,
        kept: &'m [&'a Reservation],
        commitments: &'m Commitments,
    ) -> Self {
        Self { draft, horizon, kept, commitments, made: Vec::new(), borrowed_tries: 0 }
    }

    /// The first waiting jobs of every kind that were given nothing and promised nothing, where another promise may be made:
    /// one of each tenant before the next of any, gangs before single tasks, because small jobs would hold those up for
    /// ever, and the oldest first. Few are tried: a job that is not reached now is next when these have started.
    fn next_in_line(&self, searches: &StartSearches) -> Vec<(JobId, &'a Job)> {
        let (state, now, given) = (self.draft.state, self.draft.now, &self.commitments.given);
        let full = self.full_pools();
        if state.fleet.pool_ids().all(|pool| full.contains(&pool) || searches.next.contains_key(&pool)) {
            return Vec::new();
        }
        let promised: BTreeSet<JobId> = self.kept.iter().map(|of| of.job).collect();
        // A window has its own time.
        let kinds = state.jobs.waiting().values().filter(|kind| kind.key.booking.is_none());
        let first = kinds.filter_map(|kind| {
            let open = |&&(_, job): &&(Timestamp, JobId)| !promised.contains(&job) && !given.contains(&job);
            let &(at, job) = kind.jobs.iter().find(open)?;
            (!searches.in_vain.contains(&job)).then_some((kind.key.min <= 1, at, job))
        });
        let mut jobs: Vec<(bool, Timestamp, JobId)> = first.collect();
        jobs.sort_unstable();
        let live = jobs.into_iter().filter_map(|(_, _, id)| Some((id, state.jobs.get(id)?)));
        let ready = live.filter(|(_, job)| job.not_before <= now);
        let mut tenants: BTreeSet<TenantId> = self.kept.iter().map(|of| of.spec(state).tenant).collect();
        let (first, rest): (Vec<_>, Vec<_>) = ready.partition(|(_, job)| tenants.insert(job.spec.tenant));
        first.into_iter().chain(rest).take(self.per_pool_max().saturating_mul(2)).collect()
    }

    fn per_pool_max(&self) -> usize {
        usize::try_from(self.draft.policy.reservations_max).unwrap_or(usize::MAX)
    }

    /// Pools in which as many starts are promised as the policy allows.
    fn full_pools(&self) -> BTreeSet<PoolId> {
        let mut starts: BTreeMap<PoolId, usize> = BTreeMap::new();
        let pools = |of: &Reservation| of.tasks.iter().map(|place| place.pool).collect::<BTreeSet<PoolId>>();
        for pool in self.current().flat_map(pools) {
            *starts.entry(pool).or_default() += 1;
        }
        starts.retain(|_, count| *count >= self.per_pool_max());
        starts.into_keys().collect()
    }

    /// Promises as they stand, the improved ones improved.
    pub(super) fn current(&self) -> impl Iterator<Item = &Reservation> {
        let improved = |job: JobId| self.made.iter().any(|made| made.job == job);
        self.kept.iter().copied().filter(move |of| !improved(of.job)).chain(&self.made)
    }

    fn withhold(&mut self, reservation: &Reservation) {
        let steps = KeptPlaces::Start(reservation).steps(self.draft);
        self.draft.occupy_all(&steps);
    }

    /// A promised start moves to where places are free earlier than was known; the first to start has the first choice.
    fn promise_earlier(&mut self) {
        let kept = self.kept;
        for &reservation in kept {
            let too_soon = reservation.start <= self.draft.now + EARLIER_MIN;
            let without_gpus = reservation.tasks.iter().all(|place| place.gpus.count() == 0);
            if too_soon || without_gpus || !self.commitments.awaits(self.draft, reservation) {
                continue;
            }
            let Some(key) = self.draft.state.jobs.get(reservation.job).map(Job::key) else { continue };
            let Some(ask) = ask_of(self.draft, &key, reservation) else { continue };
            let beside = self.slots(&ask);
            let own = KeptPlaces::Start(reservation).steps(self.draft);
            self.draft.vacate_all(&own);
            let better = self.earlier(&ask, reservation, &beside);
            self.withhold(better.as_ref().unwrap_or(reservation));
            if let Some(better) = better {
                self.horizon.forget_slots();
                self.made.push(better);
            }
        }
    }

    /// An earlier start on its own places and on those that are promised to nobody, if there is one.
    fn earlier(&mut self, ask: &Ask<'_>, known: &Reservation, beside: &[Slot]) -> Option<Reservation> {
        let (state, now) = (self.draft.state, self.draft.now);
        let fillers = fillers(self.draft, known);
        let may_be_asked: BTreeSet<JobId> = on_gpus_of(state, &fillers, &known.tasks).collect();
        let ends = |held: &HeldPlace| {
            if may_be_asked.contains(&held.job) {
                let leave = now + state.time_to_leave(&state.jobs.get(held.job)?.spec);
                return Some(held.end.map_or(leave, |end| end.min(leave)));
            }
            held.end.or(known.borrowers.contains(&held.job).then_some(known.start))
        };
        let own: BTreeSet<NodeId> = known.tasks.iter().map(|place| place.node).collect();
        let mut slots = Vec::new();
        for &node in &own {
            self.slots_on(ask, node, &ends, &mut slots);
        }
        let useful = |slot: &Slot| slot.at + EARLIER_MIN <= known.start;
        slots.retain(useful);
        let elsewhere = beside.iter().filter(|slot| !own.contains(&slot.node));
        slots.extend(elsewhere.copied().take_while(useful));
        slots.sort_unstable();
        let (start, nodes) = self.first_fit(ask, &slots, &ends)?;
        let start = start.max(now + SOON);
        let tasks = self.places_at(ask, start, &nodes, &ends)?;
        // A filler that has a GPU that was not promised before was there first.
        let filled: BTreeSet<JobId> = on_gpus_of(state, &known.fillers, &known.tasks).collect();
        let new: BTreeSet<JobId> = on_gpus_of(state, &known.fillers, &tasks).collect();
        let mut better = self.promise(known.job, tasks, start, known.borrowers.clone());
        let near = |job: &JobId| is_near(state, *job, &better.tasks);
        let fills = |job: &JobId| near(job) && (filled.contains(job) || !new.contains(job));
        better.fillers = known.fillers.iter().copied().filter(fills).collect();
        better.borrowers = known.borrowers.iter().copied().filter(near).collect();
        let late = self.late_for(&better);
        better.borrowers.retain(|job| late.contains(job));
        let all_leave = late.iter().all(|job| better.borrowers.contains(job) || better.fillers.contains(job));
        (all_leave && self.is_entitled(ask, known.job, start, late)).then_some(better)
    }

    fn promise_more(&mut self, next: Vec<(JobId, &'a Job)>, searches: &mut StartSearches) {
        for (id, job) in next {
            let (key, full) = (job.key(), self.full_pools());
            let open = |pool| !searches.next.contains_key(&pool) && !full.contains(&pool);
            let mut asks = self.draft.asks().minimum(&key);
            asks.retain(|ask| ask.parts().all(|part| open(part.pool())));
            let Some(found) = self.earliest(id, &asks) else {
                // A later job is not promised what an older one waits for, or that would wait for ever.
                for ask in asks.iter().filter(|ask| self.is_held_up(ask)) {
                    searches.next.extend(ask.parts().map(|part| (part.pool(), id)));
                }
                searches.in_vain.insert(id);
                continue;
            };
            self.withhold(&found);
            self.horizon.forget_slots();
            self.made.push(found);
        }
    }

    /// The earliest start of a job by any of its asks; `None` where none can be promised, or it could start at once.
    fn earliest(&mut self, job: JobId, asks: &[Ask<'_>]) -> Option<Reservation> {
        let mut best: Option<Reservation> = None;
        for ask in asks {
            if lines::fixed_beyond(self.draft, ask).is_some() {
                continue;
            }
            let slots = self.slots(ask);
            let known = self.first_fit(ask, &slots, &|held| held.end);
            if known.as_ref().is_some_and(|(start, _)| *start <= self.draft.now) {
                return None;
            }
            let by_themselves =
                known.and_then(|(start, nodes)| self.when_all_are_over(ask, job, start, &nodes));
            let bar = by_themselves.as_ref().map(|found| found.start);
            let found = self.by_asking(ask, job, bar).or(by_themselves);
            // The first of those that start at the same time.
            best = best.into_iter().chain(found).min_by_key(|found| found.start);
        }
        best
    }

    /// True when an ask could be promised a start but for what is promised to others, set aside for them or given to them in
    /// this plan: it fits when everybody whose end is known is gone, and its tenant's share is large enough for it.
    fn is_held_up(&mut self, ask: &Ask<'_>) -> bool {
        self.is_entitled_at_last(ask) && self.fits_at_last(ask)
    }

    /// True when the share of its tenant is large enough for an ask beside work without a known end.
    fn is_entitled_at_last(&mut self, ask: &Ask<'_>) -> bool {
        let tenant = ask.key.tenant;
        let endless = self.horizon.endless(self.draft, tenant);
        lines::meters_of(ask).all(|meter| {
            let used = Amount::Of(endless[meter] + ask.amount(meter));
            used <= lines::line(self.draft, tenant, meter, Line::Entitled)
        })
    }

    /// True when the tenant of a job is within its fair share with the ask from a moment on, when these have left.
    fn is_entitled(
        &mut self,
        ask: &Ask<'_>,
        job: JobId,
        start: Timestamp,
        leaving: impl IntoIterator<Item = JobId>,
    ) -> bool {
        let others = self.current().filter(|of| of.job != job);
        let mut before = EarlierStarts::until(self.draft, others, ask.key.tenant, start);
        before.leaving.extend(leaving);
        before.leave_entitled(self.draft, self.horizon, ask, start)
    }

    fn when_all_are_over(
        &mut self,
        ask: &Ask<'_>,
        job: JobId,
        start: Timestamp,
        nodes: &BTreeSet<NodeId>,
    ) -> Option<Reservation> {
        let start = start.max(self.draft.now + SOON);
        let later = self.horizon.ends_of(self.draft, ask.key.tenant).into_iter().filter(|end| *end > start);
        // Its tenant is within its fair share with it then, or when more of its own work is over.
        let mut moments = core::iter::once(start).chain(later).take(ENDS_MAX);
        let start = moments.find(|&start| self.is_entitled(ask, job, start, []))?;
        let tasks = self.places_at(ask, start, nodes, &|held| held.end)?;
        let found = self.promise(job, tasks, start, BTreeSet::new());
        self.late_for(&found).is_empty().then_some(found)
    }

    /// A start before `bar` for which others are asked to leave in time, where they may be.
    fn by_asking(&mut self, ask: &Ask<'_>, job: JobId, bar: Option<Timestamp>) -> Option<Reservation> {
        if self.borrowed_tries == BORROWED_MAX {
            return None;
        }
        let askable = borrowed::askable(self.draft, ask);
        if askable.is_empty() {
            return None;
        }
        self.borrowed_tries += 1;
        let given = &self.commitments.given;
        let mut some: Vec<&Askable> = askable.iter().filter(|one| !given.contains(&one.unit.job)).collect();
        // What they hold above their line may be used up by some who are in nobody's way, so first it is not counted.
        self.asking(ask, job, bar, &some).or_else(|| {
            let together = borrowed::together(self.draft, ask, askable.iter().map(|one| &one.unit));
            some.retain(|one| together.contains(&one.unit.job));
            self.asking(ask, job, bar, &some)
        })
    }

    fn asking(
        &mut self,
        ask: &Ask<'_>,
        job: JobId,
        bar: Option<Timestamp>,
        askable: &[&Askable],
    ) -> Option<Reservation> {
        let gone_at: BTreeMap<JobId, Timestamp> =
            askable.iter().map(|one| (one.unit.job, one.gone_at)).collect();
        let ends = |held: &HeldPlace| held.end.into_iter().chain(gone_at.get(&held.job).copied()).min();
        let slots = self.slots_if(ask, &ends);
        let (start, nodes) = self.first_fit(ask, &slots, &ends)?;
        let start = start.max(self.draft.now + SOON);
        if bar.is_some_and(|bar| start + EARLIER_MIN > bar) {
            return None;
        }
        let tasks = self.places_at(ask, start, &nodes, &ends)?;
        let mut found = self.promise(job, tasks, start, gone_at.keys().copied().collect());
        let late = self.late_for(&found);
        let units = askable.iter().map(|one| &one.unit).filter(|unit| late.contains(&unit.job));
        let units: Vec<&Unit> = units.collect();
        found.borrowers = units.iter().map(|unit| unit.job).collect();
        let allowed = borrowed::together(self.draft, ask, units.iter().copied()) == found.borrowers;
        let accepted = late == found.borrowers && allowed && borrowed::is_worth_it(self.draft, ask, &units);
        (accepted && self.is_entitled(ask, job, start, late)).then_some(found)
    }

    /// A promise, beside which nobody has come to its nodes.
    fn promise(
        &self,
        job: JobId,
        tasks: Vec<Placement>,
        start: Timestamp,
        borrowers: BTreeSet<JobId>,
    ) -> Reservation {
        let (policy, at) = (self.draft.state.tenants.version(), self.draft.now);
        Reservation { job, tasks, start, policy, at, fillers: BTreeSet::new(), borrowers }
    }

    fn why_not(&mut self, id: JobId, job: &Job) -> Option<Unreserved> {
        let key = job.key();
        let mut unknown: BTreeSet<JobId> = BTreeSet::new();
        let mut why = None;
        for ask in self.draft.asks().minimum(&key) {
            let slots = self.slots(&ask);
            if let Some((start, _)) = self.first_fit(&ask, &slots, &|held| held.end) {
                let entitled = self.is_entitled(&ask, id, start, []);
                return Some(if entitled { Unreserved::OthersFirst } else { Unreserved::AboveShare });
            }
            let at_last = |held: &HeldPlace| Some(held.end.unwrap_or(Timestamp(u64::MAX)));
            let slots = self.slots_if(&ask, &at_last);
            match self.first_fit(&ask, &slots, &at_last) {
                Some((_, nodes)) => {
                    for node in nodes {
                        let held = self.horizon.held_on(self.draft, node).iter();
                        unknown.extend(held.filter(|held| held.end.is_none()).map(|held| held.job));
                    }
                }
                // What is left of the fleet may be too little for it; the verdict says so.
                None if self.kept.is_empty() => {}
                None if self.is_entitled_at_last(&ask) => why = Some(Unreserved::OthersFirst),
                None => why = why.or(Some(Unreserved::AboveShare)),
            }
        }
        if unknown.is_empty() {
            return why;
        }
        Some(Unreserved::NoKnownEnd { holders: unknown.into_iter().collect() })
    }
}
