//! Who is promised a start, and who an earlier one.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::borrowed::{self, Askable};
use super::holders::{self, on_gpus_of};
use super::horizon::{HeldPlace, Horizon, Slot, by_itself, ends_if_started};
use super::places::is_near;
use super::{ReviewedStarts, ask_of, before, blocks, is_entitled};
use crate::model::job::Spec;
use crate::model::placement::Placement;
use crate::model::policy::Amount;
use crate::plan::cycle::Commitments;
use crate::plan::draft::Draft;
use crate::plan::evict::victims::Unit;
use crate::plan::later::booked;
use crate::plan::lines::{self, Line};
use crate::plan::memory::{fingerprint, of_all};
use crate::plan::place::Ask;
use crate::quota::meters::Amounts;
use crate::state::State;
use crate::state::jobs::{Job, KindKey, Phase};
use crate::state::ledger::Charge;
use crate::state::reservations::Reservation;
use crate::units::{JobId, Millis, NodeId, PoolId, TenantId, Timestamp};

/// A start that is earlier by less is not worth an event.
const EARLIER_MIN: Millis = Millis::from_secs(60);
/// Whose time is over already is about to leave: no start is promised sooner.
const SOON: Millis = Millis::from_secs(1);
/// So many ends of a tenant's own work are looked at until it is within its fair share.
const ENDS_MAX: usize = 64;
/// For so many jobs of a plan it is worked out whom they could ask to leave.
const BORROWED_MAX: usize = 8;

/// What earlier plans found out about promised starts. Losing it costs time, never an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartSearches {
    /// What the answers depend on, as it was.
    stamp: u64,
    /// Who could be promised nothing.
    in_vain: BTreeSet<JobId>,
    /// Pools in which nothing more is promised until this job is: what it needs is promised to others.
    next: BTreeMap<PoolId, JobId>,
}

/// What else a plan has decided.
#[derive(Clone, Copy)]
pub(in crate::plan) struct PlanContext<'s> {
    pub(in crate::plan) commitments: &'s Commitments,
    pub(in crate::plan) shares: &'s Amounts,
    pub(in crate::plan) looked: &'s StartSearches,
}

/// Promises while they are made: places of all of them are taken on the draft.
pub(super) struct StartPromiser<'m, 'a> {
    pub(super) draft: &'m mut Draft<'a>,
    pub(super) horizon: &'m mut Horizon,
    pub(super) reserved: &'m ReviewedStarts<'a>,
    pub(super) commitments: &'m Commitments,
    made: Vec<(JobId, Reservation)>,
    borrowed_tries: usize,
}

/// A start that could be promised.
struct FoundStart {
    start: Timestamp,
    tasks: Vec<Placement>,
    borrowers: BTreeSet<JobId>,
}

/// Who is promised a start now, and who an earlier one than before. The draft stays as it is.
pub(in crate::plan) fn make<'a>(
    draft: &mut Draft<'a>,
    horizon: &mut Horizon,
    reserved: &ReviewedStarts<'a>,
    others: PlanContext<'_>,
) -> (Vec<(JobId, Reservation)>, StartSearches) {
    let stamp = stamp(draft, others.shares);
    let known = others.looked.stamp == stamp;
    let mut looked =
        if known { others.looked.clone() } else { StartSearches { stamp, ..StartSearches::default() } };
    looked.next.retain(|_, job| is_open(draft.state, *job) && !others.commitments.given.contains(job));
    let next = next_in_line(draft, reserved, others.commitments, &looked);
    let mark = draft.mark();
    let mut making = StartPromiser::new(draft, horizon, reserved, others.commitments);
    if !next.is_empty() || (!known && !reserved.kept.is_empty()) {
        making.hold_all();
        if !known {
            making.promise_earlier();
        }
        making.promise_more(next, &mut looked);
    }
    let made = making.made;
    draft.roll_back(mark);
    (made, looked)
}

/// True while a job waits and nothing is promised to it.
fn is_open(state: &State, id: JobId) -> bool {
    let waits = state.jobs.get(id).is_some_and(Job::waits_for_places);
    waits && state.earmarks.of(id).is_none() && state.reservations.of(id).is_none()
}

/// What decides whether somebody can be promised a start, or an earlier one.
fn stamp(draft: &Draft<'_>, shares: &Amounts) -> u64 {
    let state = draft.state;
    let (reservations, policy) = (&state.reservations, u64::from(state.tenants.version()));
    let mut parts = alloc::vec![reservations.version(), reservations.news(), policy, of_all(shares)];
    parts.extend(state.fleet.pool_ids().map(|pool| state.ledger.freed(pool)));
    fingerprint(&parts)
}

/// The first waiting jobs of every kind that were given nothing and promised nothing, where another promise may be made:
/// one of each tenant before the next of any, gangs before single tasks, because it is they whom small jobs would hold up
/// for ever, and the oldest first. Few are tried: who is not reached now is next when these have started.
fn next_in_line<'a>(
    draft: &Draft<'a>,
    reserved: &ReviewedStarts<'a>,
    commitments: &Commitments,
    looked: &StartSearches,
) -> Vec<(JobId, &'a Job)> {
    let state = draft.state;
    let most = usize::try_from(draft.policy.reservations_max).unwrap_or(usize::MAX);
    let counts = counts(reserved.kept.iter().map(|&(_, of)| of));
    let full = |pool: PoolId| counts.get(&pool).is_some_and(|&count| count >= most);
    if state.fleet.pool_ids().all(|pool| full(pool) || looked.next.contains_key(&pool)) {
        return Vec::new();
    }
    let promised: BTreeSet<JobId> = reserved.kept.iter().map(|&(job, _)| job).collect();
    let open = |job: &JobId| !promised.contains(job) && !commitments.given.contains(job);
    let mut jobs: Vec<(bool, Timestamp, JobId)> = Vec::new();
    for kind in state.jobs.waiting().values() {
        // A window has its own time.
        if kind.key.booking.is_some() {
            continue;
        }
        let next = kind.jobs.iter().find(|(_, job)| open(job));
        jobs.extend(next.map(|&(at, job)| (kind.key.min <= 1, at, job)));
    }
    jobs.retain(|(_, _, job)| !looked.in_vain.contains(job));
    jobs.sort_unstable();
    let live = |(_, _, id): (bool, Timestamp, JobId)| state.jobs.get(id).map(|job| (id, job));
    let ready = jobs.into_iter().filter_map(live).filter(|(_, job)| job.not_before <= draft.now);
    let mut tenants: BTreeSet<TenantId> =
        reserved.kept.iter().filter_map(|(job, _)| state.jobs.get(*job)).map(|job| job.spec.tenant).collect();
    let (first, rest): (Vec<_>, Vec<_>) = ready.partition(|(_, job)| tenants.insert(job.spec.tenant));
    first.into_iter().chain(rest).take(most.saturating_mul(2)).collect()
}

/// How many starts are promised in each pool.
fn counts<'r>(all: impl Iterator<Item = &'r Reservation>) -> BTreeMap<PoolId, usize> {
    let mut counts = BTreeMap::new();
    for of in all {
        for pool in pools(&of.tasks) {
            *counts.entry(pool).or_default() += 1;
        }
    }
    counts
}

fn pools(tasks: &[Placement]) -> BTreeSet<PoolId> {
    tasks.iter().map(|place| place.pool).collect()
}

impl<'m, 'a> StartPromiser<'m, 'a> {
    /// Nothing is made yet, and nothing taken.
    pub(super) fn new(
        draft: &'m mut Draft<'a>,
        horizon: &'m mut Horizon,
        reserved: &'m ReviewedStarts<'a>,
        commitments: &'m Commitments,
    ) -> Self {
        Self { draft, horizon, reserved, commitments, made: Vec::new(), borrowed_tries: 0 }
    }

    /// True while a promise is neither kept on this draft nor on its way.
    pub(super) fn stands(&self, job: JobId) -> bool {
        !self.commitments.given.contains(&job) && self.draft.state.earmarks.of(job).is_none()
    }

    /// Promises as they stand, the improved ones improved.
    pub(super) fn current(&self) -> Vec<(JobId, &Reservation)> {
        let improved = |job: JobId| self.made.iter().any(|(made, _)| *made == job);
        let kept = self.reserved.kept.iter().copied().filter(|&(job, _)| !improved(job));
        kept.chain(self.made.iter().map(|(job, of)| (*job, of))).collect()
    }

    pub(super) fn hold_all(&mut self) {
        // Nor is anything promised where somebody has booked.
        for step in booked::all_steps(self.draft) {
            self.draft.occupy(step);
        }
        let reserved = self.reserved;
        for &(job, reservation) in &reserved.kept {
            if self.stands(job) {
                self.hold(&job_of(self.draft.state, job).spec, reservation, true);
            }
        }
    }

    pub(super) fn hold(&mut self, spec: &Spec, reservation: &Reservation, more: bool) {
        for step in blocks(self.draft.state, spec, reservation) {
            if more { self.draft.occupy(step) } else { self.draft.vacate(step) }
        }
    }

    /// Whose places, or others, are free earlier than was known starts earlier; the first to start has the first choice.
    fn promise_earlier(&mut self) {
        for &(job, reservation) in &self.reserved.kept {
            let too_soon = reservation.start <= self.draft.now + EARLIER_MIN;
            if too_soon || !self.stands(job) || reservation.tasks.iter().all(|place| place.gpus.count() == 0)
            {
                continue;
            }
            let live = job_of(self.draft.state, job);
            let (spec, key) = (&live.spec, live.key());
            let Some(ask) = ask_of(self.draft, &key, spec, reservation) else { continue };
            let beside = self.horizon.slots(self.draft, &ask, &self.commitments.leaving);
            self.hold(spec, reservation, false);
            match self.earlier(&ask, spec, reservation, &beside) {
                Some(better) => {
                    self.hold(spec, &better, true);
                    self.horizon.forget_slots();
                    self.made.push((job, better));
                }
                None => self.hold(spec, reservation, true),
            }
        }
    }

    /// An earlier start on its own places and on those that are promised to nobody, if there is one.
    fn earlier(
        &mut self,
        ask: &Ask<'_>,
        spec: &Spec,
        known: &Reservation,
        beside: &[Slot],
    ) -> Option<Reservation> {
        let (state, now) = (self.draft.state, self.draft.now);
        let fillers = holders::fillers(self.draft, spec, known);
        let may_be_asked: BTreeSet<JobId> = on_gpus_of(state, &fillers, &known.tasks).collect();
        let ends = |held: &HeldPlace| {
            if may_be_asked.contains(&held.job) {
                let leave = now + state.time_to_leave(&state.jobs.get(held.job)?.spec);
                return Some(held.end.map_or(leave, |end| end.min(leave)));
            }
            held.end.or(known.borrowers.contains(&held.job).then_some(known.start))
        };
        let gone = &self.commitments.leaving;
        let own: BTreeSet<NodeId> = known.tasks.iter().map(|place| place.node).collect();
        let mut slots = Vec::new();
        for &node in &own {
            self.horizon.slots_on(self.draft, ask, node, (gone, &ends), &mut slots);
        }
        let useful = |slot: &Slot| slot.at + EARLIER_MIN <= known.start;
        slots.retain(useful);
        let elsewhere = beside.iter().filter(|slot| !own.contains(&slot.node));
        slots.extend(elsewhere.copied().take_while(useful));
        slots.sort_unstable();
        let (start, nodes) = self.first_fit(ask, &slots, &ends)?;
        let start = start.max(now + SOON);
        let tasks = self.places_at(ask, start, &nodes, &ends)?;
        // Who has a GPU that was not promised before was there first.
        let filled: BTreeSet<JobId> = on_gpus_of(state, &known.fillers, &known.tasks).collect();
        let new: BTreeSet<JobId> = on_gpus_of(state, &known.fillers, &tasks).collect();
        let fills =
            |job: &JobId| is_near(state, *job, &tasks) && (filled.contains(job) || !new.contains(job));
        let fillers: BTreeSet<JobId> = known.fillers.iter().copied().filter(fills).collect();
        let borrowers = known.borrowers.iter().copied().filter(|&job| is_near(state, job, &tasks)).collect();
        let mut better =
            Reservation { tasks, start, policy: state.tenants.version(), at: now, fillers, borrowers };
        let late = self.late_for(spec, &better);
        better.borrowers.retain(|job| late.contains(job));
        if !late.iter().all(|job| better.borrowers.contains(job) || better.fillers.contains(job)) {
            return None;
        }
        let others: Vec<(JobId, &Reservation)> =
            self.current().into_iter().filter(|(_, of)| !core::ptr::eq(*of, known)).collect();
        let mut before = before(self.draft, &others, spec, start);
        before.leaving.extend(late);
        is_entitled(self.draft, self.horizon, ask, start, &before).then_some(better)
    }

    fn promise_more(&mut self, next: Vec<(JobId, &'a Job)>, looked: &mut StartSearches) {
        let most = usize::try_from(self.draft.policy.reservations_max).unwrap_or(usize::MAX);
        let mut counts = counts(self.reserved.kept.iter().map(|&(_, of)| of));
        for (id, job) in next {
            let open = |pool: PoolId| {
                !looked.next.contains_key(&pool) && counts.get(&pool).is_none_or(|&count| count < most)
            };
            let Some(found) = self.earliest(job, &open) else {
                // Who comes later is not promised what an older one waits for, or it would wait for ever.
                let pools = self.held_up_in(job, &open);
                looked.next.extend(pools.into_iter().map(|pool| (pool, id)));
                looked.in_vain.insert(id);
                continue;
            };
            let FoundStart { start, tasks, borrowers } = found;
            for pool in pools(&tasks) {
                *counts.entry(pool).or_default() += 1;
            }
            let (policy, at) = (self.draft.state.tenants.version(), self.draft.now);
            let reservation = Reservation { tasks, start, policy, at, fillers: BTreeSet::new(), borrowers };
            self.hold(&job.spec, &reservation, true);
            self.horizon.forget_slots();
            self.made.push((id, reservation));
        }
    }

    /// The earliest start of a job in any of its ways; `None` where none can be promised, or it could start at once.
    fn earliest(&mut self, job: &Job, open: &dyn Fn(PoolId) -> bool) -> Option<FoundStart> {
        let key = job.key();
        let mut best: Option<FoundStart> = None;
        for ask in asks(self.draft, &key, open) {
            if lines::fixed_beyond(self.draft, &ask).is_some() {
                continue;
            }
            let slots = self.horizon.slots(self.draft, &ask, &self.commitments.leaving);
            let known = self.first_fit(&ask, &slots, &by_itself);
            if known.as_ref().is_some_and(|(start, _)| *start <= self.draft.now) {
                return None;
            }
            let by_themselves =
                known.and_then(|(start, nodes)| self.when_all_are_over(&ask, job, start, &nodes));
            let bar = by_themselves.as_ref().map(|found| found.start);
            let found = self.by_asking(&ask, job, bar).or(by_themselves);
            best = match (best, found) {
                (Some(best), Some(found)) if found.start < best.start => Some(found),
                (None, found) => found,
                (best, _) => best,
            };
        }
        best
    }

    /// Pools in which a job could be promised a start but for what is promised to others, set aside for them or given to them
    /// in this plan: it fits when everybody whose end is known is gone, and its tenant's share is large enough for it.
    fn held_up_in(&mut self, job: &Job, open: &dyn Fn(PoolId) -> bool) -> Vec<PoolId> {
        let key = job.key();
        let mut pools = Vec::new();
        for ask in asks(self.draft, &key, open) {
            if self.is_entitled_at_last(&ask) && self.fits_at_last(&ask) {
                pools.extend(ask.parts().map(Ask::pool));
            }
        }
        pools
    }

    /// True when the share of its tenant is large enough for an ask beside work without a known end.
    pub(super) fn is_entitled_at_last(&mut self, ask: &Ask<'_>) -> bool {
        let tenant = ask.key.tenant;
        let endless = self.horizon.endless(self.draft, tenant);
        lines::meters_of(ask).all(|meter| match lines::line(self.draft, tenant, meter, Line::Entitled) {
            Amount::Unlimited => true,
            Amount::Of(line) => endless[meter] + ask.amount(meter) <= line,
        })
    }

    fn when_all_are_over(
        &mut self,
        ask: &Ask<'_>,
        job: &Job,
        start: Timestamp,
        nodes: &BTreeSet<NodeId>,
    ) -> Option<FoundStart> {
        let start = start.max(self.draft.now + SOON);
        let start = self.entitled_from(ask, &job.spec, start)?;
        let tasks = self.places_at(ask, start, nodes, &by_itself)?;
        let late = self.late_for(&job.spec, &self.trial(&tasks, start, core::iter::empty()));
        late.is_empty().then_some(FoundStart { start, tasks, borrowers: BTreeSet::new() })
    }

    /// The first moment from `start` on at which the tenant is within its fair share with the ask: then, or when more of its
    /// own work is over.
    fn entitled_from(&mut self, ask: &Ask<'_>, spec: &Spec, start: Timestamp) -> Option<Timestamp> {
        let later = self.horizon.ends_of(self.draft, ask.key.tenant).into_iter().filter(|end| *end > start);
        core::iter::once(start).chain(later).take(ENDS_MAX).find(|&start| {
            let before = before(self.draft, &self.current(), spec, start);
            is_entitled(self.draft, self.horizon, ask, start, &before)
        })
    }

    /// A start before `bar` for which others are asked to leave in time, where they may be.
    fn by_asking(&mut self, ask: &Ask<'_>, job: &Job, bar: Option<Timestamp>) -> Option<FoundStart> {
        if self.borrowed_tries == BORROWED_MAX {
            return None;
        }
        let askable = borrowed::askable(self.draft, ask);
        if askable.is_empty() {
            return None;
        }
        self.borrowed_tries += 1;
        let everybody = askable.iter().map(|one| one.unit.job).collect();
        // What they hold above their line may be used up by some who are in nobody's way, so first it is not counted.
        self.asking(ask, job, bar, (&askable, &everybody)).or_else(|| {
            let together = borrowed::together(self.draft, ask, askable.iter().map(|one| &one.unit));
            self.asking(ask, job, bar, (&askable, &together))
        })
    }

    fn asking(
        &mut self,
        ask: &Ask<'_>,
        job: &Job,
        bar: Option<Timestamp>,
        (askable, of): (&[Askable], &BTreeSet<JobId>),
    ) -> Option<FoundStart> {
        let gone_at: BTreeMap<JobId, Timestamp> = askable
            .iter()
            .filter(|one| of.contains(&one.unit.job) && !self.commitments.given.contains(&one.unit.job))
            .map(|one| (one.unit.job, one.gone_at))
            .collect();
        let ends = |held: &HeldPlace| match (held.end, gone_at.get(&held.job)) {
            (Some(end), Some(&gone)) => Some(end.min(gone)),
            (end, gone) => end.or(gone.copied()),
        };
        let slots = self.horizon.slots_if(self.draft, ask, &self.commitments.leaving, &ends);
        let (start, nodes) = self.first_fit(ask, &slots, &ends)?;
        let start = start.max(self.draft.now + SOON);
        if bar.is_some_and(|bar| start + EARLIER_MIN > bar) {
            return None;
        }
        let tasks = self.places_at(ask, start, &nodes, &ends)?;
        let late = self.late_for(&job.spec, &self.trial(&tasks, start, gone_at.keys().copied()));
        let is_needed = |one: &&Askable| gone_at.contains_key(&one.unit.job) && late.contains(&one.unit.job);
        let units: Vec<&Unit> = askable.iter().filter(is_needed).map(|one| &one.unit).collect();
        let borrowers: BTreeSet<JobId> = units.iter().map(|unit| unit.job).collect();
        let allowed = borrowed::together(self.draft, ask, units.iter().copied()) == borrowers;
        if late != borrowers || !allowed || !borrowed::is_worth_it(self.draft, ask, &units) {
            return None;
        }
        let mut before = before(self.draft, &self.current(), &job.spec, start);
        before.leaving.extend(&borrowers);
        let entitled = is_entitled(self.draft, self.horizon, ask, start, &before);
        entitled.then_some(FoundStart { start, tasks, borrowers })
    }
}

/// The minimum of a kind, in each way in which it could be met in these pools.
fn asks<'k>(draft: &Draft<'_>, key: &'k KindKey, open: &dyn Fn(PoolId) -> bool) -> Vec<Ask<'k>> {
    let mut asks = draft.asks().minimum(key);
    asks.retain(|ask| ask.parts().all(|part| open(part.pool())));
    asks
}

fn job_of(state: &State, job: JobId) -> &Job {
    state.jobs.get(job).expect("a promised start belongs to a live job")
}

impl Horizon {
    /// Places that are taken in this plan.
    pub(in crate::plan) fn starts(&mut self, draft: &Draft<'_>, job: JobId, tasks: &[Placement]) {
        let Some(known) = draft.state.jobs.get(job).filter(|job| job.phase == Phase::Waiting) else { return };
        let charge = Charge::of(known);
        let end = ends_if_started(draft, job);
        for &place in tasks {
            self.add(draft, HeldPlace { job, step: charge.step(place), end });
        }
    }
}
