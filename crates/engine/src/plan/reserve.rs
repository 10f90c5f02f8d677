//! Promised starts (rule 5): which still hold, whom they bind, and who is promised one.
//!
//! The oldest waiting jobs within their fair share are promised the earliest start at which those who are in their way
//! are over by their own time limits. Until then their places may be filled by whoever is over, or can be gone, in time.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::event::Placement;
use crate::job::{Class, Spec};
use crate::jobs::{Job, KindKey};
use crate::plan::booked;
use crate::plan::draft::{Draft, Step};
use crate::plan::groups;
use crate::plan::lines::{self, Pass};
use crate::plan::place::{Ask, Fit, place};
use crate::plan::serve::Settled;
use crate::policy::Amount;
use crate::reservations::{Dropped, Reservation};
use crate::state::State;
use crate::units::{JobId, Millis, NodeId, PoolId, TenantId, Timestamp};

/// Whoever fills a place that is promised has at least so long there: less is not worth a start.
pub(super) const FILL_MIN: Millis = Millis::from_secs(60);

/// The promised starts of a plan.
pub(super) struct Reserved<'a> {
    /// Those that hold, the earliest first.
    pub(super) kept: Vec<(JobId, &'a Reservation)>,
    /// Those that do not.
    pub(super) dropped: Vec<(JobId, Dropped)>,
}

/// Who is in the way of a promised start.
pub(super) struct InTheWay {
    /// They may be asked to leave for it.
    pub(super) fillers: Vec<JobId>,
    /// They may not; they are to be over in time.
    pub(super) others: Vec<JobId>,
}

/// Which promised starts still hold.
pub(super) fn review<'a>(draft: &mut Draft<'a>) -> Reserved<'a> {
    let mut reserved = Reserved { kept: Vec::new(), dropped: Vec::new() };
    for (job, reservation) in draft.state.reservations.iter() {
        match broken(draft, job, reservation) {
            Some(why) => reserved.dropped.push((job, why)),
            None => reserved.kept.push((job, reservation)),
        }
    }
    reserved.kept.sort_by_key(|(job, reservation)| (reservation.start, *job));
    reserved
}

fn broken(draft: &mut Draft<'_>, id: JobId, reservation: &Reservation) -> Option<Dropped> {
    let state = draft.state;
    if draft.policy.reservations_max == 0 {
        return Some(Dropped::Policy);
    }
    // Its places are set aside already.
    if state.promises.of(id).is_some() {
        return None;
    }
    let job = state.jobs.get(id).expect("a promised start belongs to a live job");
    if !reservation.tasks.iter().all(|place| is_there(state, place, &job.spec)) {
        return Some(Dropped::PlaceGone);
    }
    if booked::bars(draft, &KindKey::of(&job.spec), &reservation.tasks) {
        return Some(Dropped::Booked);
    }
    if state.jobs.first_like(&job.spec) != Some(id) {
        return Some(Dropped::Overtaken);
    }
    let key = KindKey::of(&job.spec);
    let pool = reservation.tasks.first().map(|place| place.pool);
    let ask = if job.spec.has_groups() {
        groups::of_places(draft.desk(), &key, &job.spec, &reservation.tasks)
    } else {
        groups::minimum(draft.desk(), &key).into_iter().find(|ask| Some(ask.pool()) == pool)
    };
    let Some(ask) = ask else { return Some(Dropped::Policy) };
    let fillers = in_the_way(draft, &job.spec, reservation).fillers;
    if !is_entitled(draft, &ask, reservation.start, &fillers) {
        return Some(Dropped::AboveShare);
    }
    in_the_way(draft, &job.spec, reservation).others.into_iter().find_map(|other| {
        let late = ends_at(state, other, draft.now).is_none_or(|end| end > reservation.start);
        let holding = state.ledger.holding(other).expect("who is in the way holds something");
        let after = holding.at > reservation.at;
        let over = draft.now >= reservation.start + state.time_to_leave(&state.jobs.get(other)?.spec);
        match (late, after, over) {
            (true, true, _) => Some(Dropped::Guarantee),
            (true, false, _) | (_, _, true) => Some(Dropped::Overrun),
            (false, _, false) => None,
        }
    })
}

fn is_there(state: &State, place: &Placement, spec: &Spec) -> bool {
    let Some(room) = state.ledger.rooms().get(place.node) else { return false };
    let usable = |gpu: usize| room.gpus.get(gpu).is_some_and(|gpu| gpu.usable);
    let allowed = state.fleet.set_has_node(spec.shape_of(place.task).nodes, place.node);
    room.open && room.pool == place.pool && allowed && place.gpus.indexes().all(usable)
}

/// True when a tenant with the ask, and without what of its own work is over by then or leaves for it, is within its fair
/// share.
fn is_entitled(draft: &mut Draft<'_>, ask: &Ask<'_>, start: Timestamp, leaving: &[JobId]) -> bool {
    let (state, tenant) = (draft.state, ask.key.tenant);
    let mut over = lines::below(draft, &lines::standing_of(ask.key));
    let own = state.ledger.standing(tenant).flat_map(|(_, jobs)| jobs);
    for &(_, job) in own {
        let ends = ends_at(state, job, draft.now).is_some_and(|end| end <= start);
        let held = state.ledger.holding(job).filter(|_| ends || leaving.contains(&job));
        let (Some(holding), Some(charge)) = (held, state.ledger.charge(job)) else { continue };
        let places = holding.staying().map(|task| &task.place);
        let amount = draft.tree.charge_of(|task| charge.resources_of(task), places);
        over.iter_mut().zip(amount).for_each(|(total, part)| *total += part);
    }
    lines::pass(draft, ask, &over) <= Pass::WithinFairShare
}

/// Who holds places that were promised, and was not told to leave.
pub(super) fn in_the_way(draft: &mut Draft<'_>, spec: &Spec, reservation: &Reservation) -> InTheWay {
    let state = draft.state;
    let mut jobs: BTreeSet<JobId> = BTreeSet::new();
    for place in &reservation.tasks {
        let here = state.ledger.tasks_on(place.node).filter(|&(job, task)| {
            let held = state.ledger.holding(job).and_then(|holding| holding.task(task));
            held.is_some_and(|held| {
                held.stays() && held.place.gpus.indexes().any(|gpu| place.gpus.contains(gpu))
            })
        });
        jobs.extend(here.map(|(job, _)| job));
    }
    let (fillers, others) = jobs.into_iter().partition(|&job| fills(draft, job, spec, reservation));
    InTheWay { fillers, others }
}

/// True when a job came to a place that was promised and may be asked to leave it again.
fn fills(draft: &mut Draft<'_>, id: JobId, promised: &Spec, reservation: &Reservation) -> bool {
    let state = draft.state;
    let (Some(job), Some(holding)) = (state.jobs.get(id), state.ledger.holding(id)) else { return false };
    let came_later = holding.at > reservation.at;
    let may_leave = job.spec.preemptible && job.spec.class != Class::Inference;
    let gives_way = if job.spec.tenant == promised.tenant {
        is_behind(&KindKey::of(&job.spec), promised)
    } else {
        is_above_guarantee(draft, job)
    };
    came_later && may_leave && gives_way
}

/// True when a job of the same tenant is not served before another by class or priority.
fn is_behind(key: &KindKey, promised: &Spec) -> bool {
    (key.class, Reverse(key.priority)) >= (promised.class, Reverse(promised.priority))
}

pub(super) fn is_above_guarantee(draft: &Draft<'_>, job: &Job) -> bool {
    let quotas = &draft.tree.lines[job.spec.tenant.index()].quotas;
    quotas.iter().zip(draft.used(job.spec.tenant)).any(|(quota, &used)| match quota.guaranteed {
        Amount::Unlimited => false,
        Amount::Of(guaranteed) => used > guaranteed,
    })
}

/// True when work in that pass is served regardless of what was promised to a job.
pub(super) fn is_bound(key: &KindKey, pass: Pass, promised: &Spec) -> bool {
    if key.tenant == promised.tenant {
        return is_behind(key, promised);
    }
    // A reservation never delays work within a guarantee.
    pass != Pass::WithinGuarantee
}

/// True when work would be over by then, or could be gone.
pub(super) fn may_fill(draft: &Draft<'_>, key: &KindKey, start: Timestamp) -> bool {
    let over = key.ends_within.is_some_and(|within| draft.now + within <= start);
    let leave = Millis(key.grace.0.saturating_add(draft.policy.stop_grace.0));
    let in_time = draft.now + FILL_MIN + leave <= start;
    over || (key.preemptible && key.class != Class::Inference && in_time)
}

/// The first promised start that keeps a job from what is free, if one does.
pub fn held_back(draft: &mut Draft<'_>, id: JobId) -> Option<(JobId, Timestamp)> {
    let state = draft.state;
    let key = KindKey::of(&state.jobs.get(id)?.spec);
    let below = lines::below(draft, &lines::standing_of(&key));
    let mut first = None;
    for ask in groups::minimum(draft.desk(), &key) {
        let (pass, mark) = (lines::pass(draft, &ask, &below), draft.mark());
        for (job, reservation) in state.reservations.iter().filter(|&(job, _)| job != id) {
            let spec = &state.jobs.get(job)?.spec;
            let set_aside = state.promises.of(job).is_some();
            if !set_aside && is_bound(&key, pass, spec) && !may_fill(draft, &key, reservation.start) {
                steps(spec, reservation).for_each(|step| draft.take(step));
                first = first.or(Some((job, reservation.start)));
            }
        }
        let fits = Fit::of(draft, &ask).is_enough(draft, &ask);
        draft.roll_back(mark);
        if fits {
            return None;
        }
    }
    first
}

/// The places of a promised start as somebody would take them.
pub(super) fn steps<'a>(spec: &'a Spec, reservation: &'a Reservation) -> impl Iterator<Item = Step> + 'a {
    let step =
        |&place: &Placement| Step { place, resources: spec.resources_of(place.task), trust: spec.trust };
    reservation.tasks.iter().map(step)
}

/// When what a job holds is over at the latest, where that is known.
pub fn ends_at(state: &State, id: JobId, now: Timestamp) -> Option<Timestamp> {
    let (job, holding) = (state.jobs.get(id)?, state.ledger.holding(id)?);
    let since = holding.since().unwrap_or(now);
    if let Some(limit) = job.spec.time_limit {
        return Some(
            since + Millis(limit.0.saturating_sub(job.past.ran_ms)) + state.time_to_leave(&job.spec),
        );
    }
    let estimate = state.estimate(&job.spec)?.millis();
    let end = since + Millis(estimate.0.saturating_sub(job.past.ran_ms));
    // Who is not over when its owner thought, or others like it were, says nothing about its end any more.
    (end > now).then_some(end)
}

/// Who is promised a start now, within their fair share: one of each tenant first, then whoever is next in line.
pub(super) fn make(
    draft: &mut Draft<'_>,
    reserved: &Reserved<'_>,
    settled: &Settled,
) -> Vec<(JobId, Reservation)> {
    let most = usize::try_from(draft.policy.reservations_max).unwrap_or(usize::MAX);
    let state = draft.state;
    let mut made: Vec<(JobId, Reservation)> = Vec::new();
    if most == 0 {
        return made;
    }
    let mut tenants: BTreeSet<TenantId> = BTreeSet::new();
    let mut counts: BTreeMap<PoolId, usize> = BTreeMap::new();
    for (job, reservation) in &reserved.kept {
        tenants.insert(state.jobs.get(*job).expect("a promised start belongs to a live job").spec.tenant);
        if let Some(place) = reservation.tasks.first() {
            *counts.entry(place.pool).or_default() += 1;
        }
    }
    let waiting = next_in_line(draft, reserved, settled);
    let (mut first, mut rest): (Vec<_>, Vec<_>) = (Vec::new(), Vec::new());
    for (id, job) in waiting {
        if tenants.insert(job.spec.tenant) {
            first.push((id, job));
        } else {
            rest.push((id, job));
        }
    }
    // Each try costs a look at all that runs, so few are made: who is not reached now is next when these have started.
    for (id, job) in first.into_iter().chain(rest).take(2 * most) {
        let open = |pool: PoolId| counts.get(&pool).is_none_or(|&count| count < most);
        let Some(reservation) = earliest_of_all(draft, job, (reserved, &made), settled, &open) else {
            continue;
        };
        if let Some(place) = reservation.tasks.first() {
            *counts.entry(place.pool).or_default() += 1;
        }
        made.push((id, reservation));
    }
    made
}

/// The first waiting job of every kind that was given nothing and promised nothing: gangs before single tasks, because it is
/// they whom small jobs would hold up for ever, and the oldest first.
fn next_in_line<'a>(draft: &Draft<'a>, reserved: &Reserved<'_>, settled: &Settled) -> Vec<(JobId, &'a Job)> {
    let state = draft.state;
    let mut jobs: Vec<(bool, Timestamp, JobId)> = Vec::new();
    for kind in state.jobs.waiting().values() {
        let Some(&(at, job)) = kind.jobs.first() else { continue };
        let promised = reserved.kept.iter().any(|(known, _)| *known == job) || kind.key.booking.is_some();
        if !promised && !settled.given.contains(&job) {
            jobs.push((kind.key.min <= 1, at, job));
        }
    }
    jobs.sort_unstable();
    let live = |(_, _, id): (bool, Timestamp, JobId)| state.jobs.get(id).map(|job| (id, job));
    jobs.into_iter().filter_map(live).filter(|(_, job)| job.not_before <= draft.now).collect()
}

fn earliest_of_all(
    draft: &mut Draft<'_>,
    job: &Job,
    others: (&Reserved<'_>, &[(JobId, Reservation)]),
    settled: &Settled,
    open: &dyn Fn(PoolId) -> bool,
) -> Option<Reservation> {
    let state = draft.state;
    let key = KindKey::of(&job.spec);
    let mut best: Option<(Timestamp, Vec<Placement>)> = None;
    for ask in groups::minimum(draft.desk(), &key).into_iter().filter(|ask| open(ask.pool())) {
        if lines::fixed_beyond(draft, &ask).is_some() {
            continue;
        }
        let found = earliest(draft, &ask, others, settled);
        if let Some(found) = found.filter(|&(start, _)| is_entitled(draft, &ask, start, &[])) {
            best = Some(match best {
                Some(known) if known.0 <= found.0 => known,
                Some(_) | None => found,
            });
        }
    }
    let (start, tasks) = best?;
    Some(Reservation { tasks, start, policy: state.tenants.version(), at: draft.now })
}

/// When and where an ask could be met if everybody left when their time is over. The draft stays as it is.
fn earliest(
    draft: &mut Draft<'_>,
    ask: &Ask<'_>,
    (reserved, made): (&Reserved<'_>, &[(JobId, Reservation)]),
    settled: &Settled,
) -> Option<(Timestamp, Vec<Placement>)> {
    let (state, mark) = (draft.state, draft.mark());
    for step in booked::kept_from(draft, ask.key, true) {
        draft.take(step);
    }
    let known = reserved.kept.iter().map(|&(job, reservation)| (job, reservation));
    for (job, reservation) in known.chain(made.iter().map(|(job, reservation)| (*job, reservation))) {
        if state.promises.of(job).is_none() {
            let spec = &state.jobs.get(job).expect("a promised start belongs to a live job").spec;
            steps(spec, reservation).for_each(|step| draft.take(step));
        }
    }
    let mut fit = Fit::of(draft, ask);
    let mut free_at: BTreeMap<NodeId, Timestamp> = BTreeMap::new();
    // Whose time is over already is about to leave.
    let soon = draft.now + Millis::from_secs(1);
    for (end, held) in ends_in(draft, ask, settled) {
        if fit.is_enough(draft, ask) {
            break;
        }
        for step in held {
            let node = step.place.node;
            fit.add(draft, ask, node, false);
            draft.drain(step);
            fit.add(draft, ask, node, true);
            free_at.insert(node, end.max(soon));
        }
    }
    let placed = if fit.is_enough(draft, ask) { place(draft, ask) } else { None };
    draft.roll_back(mark);
    let tasks = placed?.tasks;
    let start = tasks.iter().filter_map(|place| free_at.get(&place.node)).max().copied()?;
    (start > draft.now).then_some((start, tasks))
}

/// What is held where an ask could go, by when it is over; without what never is.
fn ends_in(draft: &Draft<'_>, ask: &Ask<'_>, settled: &Settled) -> Vec<(Timestamp, Vec<Step>)> {
    let state = draft.state;
    let mut ends = Vec::new();
    for (job, holding) in state.ledger.holdings() {
        if settled.leaving.contains(&job) || settled.given.contains(&job) {
            continue;
        }
        let (Some(end), Some(charge)) = (ends_at(state, job, draft.now), state.ledger.charge(job)) else {
            continue;
        };
        let here = holding.staying().filter(|task| ask.goes_to(task.place.pool));
        let steps: Vec<Step> = here.map(|task| charge.step(task.place)).collect();
        if !steps.is_empty() {
            ends.push((end, job, steps));
        }
    }
    ends.sort_by_key(|(end, job, _)| (*end, *job));
    ends.into_iter().map(|(end, _, steps)| (end, steps)).collect()
}
