//! Promised starts (rule 5): which still hold, whom they bind, and who is promised one.
//!
//! Jobs that wait within their fair share are promised the earliest start at which those who are in their way are over by
//! their own time limits and estimates, or gone because they borrow and were asked. Until then their places may be filled
//! by whoever is over, or can be gone, in time. No promise is made on places that are promised to somebody else, so a later
//! one never delays an earlier one.

mod borrowed;
mod holders;
mod horizon;
mod places;
mod promise;
mod unpromised;

use crate::quota::meters::Meters;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::model::job::{Class, Spec};
use crate::model::placement::Placement;
use crate::model::policy::Amount;
use crate::plan::draft::Draft;
use crate::plan::later::booked;
use crate::plan::lines::{self, Line, Pass};
use crate::plan::place::{Ask, Fit};
use crate::state::State;
use crate::state::ends::latest_if_placed;
use crate::state::holding::Holding;
use crate::state::jobs::{Job, KindKey};
use crate::state::ledger::Step;
use crate::state::reservations::{DropReason, Reservation};
use crate::units::{GpuUnits, JobId, Millis, Timestamp};

pub(in crate::plan) use holders::{InTheWay, in_the_way, is_free};
pub(in crate::plan) use horizon::Horizon;
pub use promise::StartSearches;
pub(in crate::plan) use promise::{PlanContext, make};
pub use unpromised::Unreserved;

/// Whoever fills a place that is promised has at least so long there: less is not worth a start.
pub(in crate::plan) const FILL_MIN: Millis = Millis::from_secs(60);

/// The promised starts of a plan.
#[derive(Default)]
pub(in crate::plan) struct ReviewedStarts<'a> {
    /// Those that hold, the earliest first.
    pub(in crate::plan) kept: Vec<(JobId, &'a Reservation)>,
    /// Those that do not.
    pub(in crate::plan) dropped: Vec<(JobId, DropReason)>,
}

/// Which promised starts still hold.
pub(in crate::plan) fn review<'a>(draft: &mut Draft<'a>, horizon: &mut Horizon) -> ReviewedStarts<'a> {
    let mut reserved = ReviewedStarts::default();
    let mut all: Vec<(JobId, &Reservation)> = draft.state.reservations.iter().collect();
    all.sort_by_key(|(job, reservation)| (reservation.start, *job));
    for (job, reservation) in all {
        match broken(draft, horizon, &reserved, job, reservation) {
            Some(why) => reserved.dropped.push((job, why)),
            None => reserved.kept.push((job, reservation)),
        }
    }
    reserved
}

fn broken(
    draft: &mut Draft<'_>,
    horizon: &mut Horizon,
    reserved: &ReviewedStarts<'_>,
    id: JobId,
    reservation: &Reservation,
) -> Option<DropReason> {
    let state = draft.state;
    if draft.policy.reservations_max == 0 {
        return Some(DropReason::Policy);
    }
    // Its places are set aside already; who leaves them may be late all the same.
    if state.earmarks.of(id).is_some() {
        return (draft.now >= reservation.start).then_some(DropReason::Overrun);
    }
    let job = state.jobs.get(id).expect("a promised start belongs to a live job");
    if !reservation.tasks.iter().all(|place| is_there(state, place, &job.spec)) {
        return Some(DropReason::PlaceGone);
    }
    if booked::bars(draft, &job.key(), &reservation.tasks) {
        return Some(DropReason::Booked);
    }
    if let Some(other) = set_aside_for(state, reservation) {
        return Some(if other.tenant == job.spec.tenant {
            DropReason::Priority
        } else {
            DropReason::Guarantee
        });
    }
    let key = job.key();
    let Some(ask) = ask_of(draft, &key, &job.spec, reservation) else { return Some(DropReason::Policy) };
    let way = in_the_way(draft, &ask, &job.spec, reservation);
    let late = way.others.iter().find_map(|other| why_late(draft, *other, &job.spec, reservation));
    if late.is_some() {
        return late;
    }
    let mut before = before(draft, &reserved.kept, &job.spec, reservation.start);
    // It was reckoned with them when it was made; it is given up for what is used, not for what is promised.
    before.beside.fill(0);
    let aside = state.earmarks.iter().map(|(job, _)| job);
    before.leaving.extend(aside.filter(|job| !reservation.fillers.contains(job)));
    before.leaving.extend(way.fillers.iter().chain(&way.borrowers));
    (!is_entitled(draft, horizon, &ask, reservation.start, &before)).then_some(DropReason::AboveShare)
}

/// For whom a place that was promised is set aside, if it is: that job was served before, whatever was promised.
fn set_aside_for<'a>(state: &'a State, reservation: &Reservation) -> Option<&'a Spec> {
    let here = |place: &Placement| {
        let overlaps = |of: &Placement| of.meets(place);
        let shared =
            |of: &Placement| of.units_each.parts() + place.units_each.parts() <= GpuUnits::WHOLE.parts();
        reservation.tasks.iter().any(|of| overlaps(of) && !shared(of))
    };
    // Whose places were set aside before was reckoned with.
    let mut later = state.earmarks.iter().filter(|(job, _)| reservation.fillers.contains(job));
    let (job, _) = later.find(|(_, earmark)| earmark.tasks.iter().any(here))?;
    state.jobs.get(job).map(|job| &job.spec)
}

/// Why somebody who may not be asked is still there at a promised start, if it is.
fn why_late(draft: &Draft<'_>, id: JobId, promised: &Spec, reservation: &Reservation) -> Option<DropReason> {
    let job = draft.state.jobs.get(id)?;
    if draft.state.end_of(id, draft.policy, draft.now).known().is_some_and(|end| end <= reservation.start) {
        return None;
    }
    let came_later = reservation.fillers.contains(&id);
    let own = job.spec.tenant == promised.tenant;
    let before = own && !is_behind(&job.key(), promised);
    Some(if reservation.borrowers.contains(&id) {
        DropReason::WithinShare
    } else if came_later && before {
        DropReason::Priority
    } else if came_later && !own {
        DropReason::Guarantee
    } else if job.past.extended.is_some() {
        DropReason::Extended
    } else {
        DropReason::Overrun
    })
}

/// What a job asks for at its promised places, if the policy still allows that.
pub(in crate::plan) fn ask_of<'k>(
    draft: &Draft<'_>,
    key: &'k KindKey,
    spec: &Spec,
    reservation: &Reservation,
) -> Option<Ask<'k>> {
    draft.asks().of_places(key, spec, &reservation.tasks)
}

fn is_there(state: &State, place: &Placement, spec: &Spec) -> bool {
    let room = state.ledger.rooms().get(place.node);
    let allowed = state.fleet.set_has_node(spec.shape_of(place.task).nodes, place.node);
    allowed && room.is_some_and(|room| room.open && room.has_place(place))
}

/// What other promises change until a start.
pub(in crate::plan) struct EarlierStarts {
    /// What the tenant's jobs that are promised a start by then hold from then on, by meter.
    beside: Meters,
    /// Who has to leave by then.
    leaving: BTreeSet<JobId>,
}

/// What these promises change until the start of a job.
fn before(draft: &Draft<'_>, all: &[(JobId, &Reservation)], spec: &Spec, start: Timestamp) -> EarlierStarts {
    let mut before = EarlierStarts { beside: draft.tree.zero(), leaving: BTreeSet::new() };
    for &(job, of) in all.iter().filter(|(_, of)| of.start <= start) {
        let state = draft.state;
        // What is set aside counts already.
        if state.earmarks.of(job).is_some() {
            continue;
        }
        before
            .leaving
            .extend(holders::on_gpus_of(state, &of.fillers, &of.tasks).chain(of.borrowers.iter().copied()));
        let other = &state.jobs.get(job).expect("a promised start belongs to a live job").spec;
        if other.tenant == spec.tenant {
            let amount = draft.tree.charge_of(|task| other.resources_of(task), of.tasks.iter());
            before.beside.add(&amount);
        }
    }
    before
}

/// True when a tenant with the ask and with what is promised to it before, and without what of its own work is over by
/// then or leaves for it, is within its fair share.
fn is_entitled(
    draft: &mut Draft<'_>,
    horizon: &mut Horizon,
    ask: &Ask<'_>,
    start: Timestamp,
    before: &EarlierStarts,
) -> bool {
    let own = lines::work_group(ask.key);
    let below = lines::lower_work(draft, &own);
    let over = horizon.over_by(draft, &own, start, &before.leaving);
    let total = ask.total();
    lines::meters_of(ask).all(|meter| {
        let line = lines::line(draft, own.tenant, meter, Line::Entitled);
        let used = draft.used(own.tenant)[meter] + before.beside[meter] + total[meter];
        match line {
            Amount::Unlimited => true,
            Amount::Of(line) => used.saturating_sub(below[meter] + over[meter]) <= line,
        }
    })
}

/// True when a job of the same tenant is not served before another by class or priority.
fn is_behind(key: &KindKey, promised: &Spec) -> bool {
    (key.class, Reverse(key.priority)) >= (promised.class, Reverse(promised.priority))
}

/// True when what a job holds is borrowed. Counted as when it started (rule 3), without own work that gives way to it: what
/// would start within its guarantee must not be asked to leave because it is above it.
pub(in crate::plan) fn is_above_guarantee(draft: &mut Draft<'_>, id: JobId, job: &Job) -> bool {
    let state = draft.state;
    let Some(charge) = state.ledger.charge(id) else { return false };
    let held = state.ledger.holding(id).into_iter().flat_map(Holding::staying);
    let places: Vec<Placement> = held.map(|task| task.place).collect();
    let amount = draft.tree.charge_of(|task| charge.resources_of(task), places.iter());
    let below = lines::lower_work(draft, &charge.group);
    let tenant = job.spec.tenant;
    let is_beyond = |meter: usize| match lines::line(draft, tenant, meter, Line::Guarantee) {
        Amount::Unlimited => false,
        Amount::Of(guaranteed) => draft.used(tenant)[meter].saturating_sub(below[meter]) > guaranteed,
    };
    (0..amount.len()).filter(|&meter| amount[meter] > 0).any(is_beyond)
}

/// True when work in that pass may not have what was promised to a job.
pub(in crate::plan) fn is_bound(key: &KindKey, pass: Pass, promised: &Spec) -> bool {
    if key.tenant == promised.tenant {
        return is_behind(key, promised);
    }
    // A reservation never delays work within a guarantee.
    pass != Pass::WithinGuarantee
}

/// True when work would be over by then whatever happens, or can be asked to be gone.
pub(in crate::plan) fn may_fill(draft: &Draft<'_>, key: &KindKey, start: Timestamp) -> bool {
    let (policy, now) = (draft.policy, draft.now);
    // Its time begins when it runs, which may be late.
    let over = key.ends_within.is_some_and(|within| latest_if_placed(policy, within, now) <= start);
    let leave = Millis(key.grace.0.saturating_add(policy.stop_grace.0));
    let in_time = now + FILL_MIN + leave <= start;
    !policy.no_backfill && (over || (key.preemptible && key.class != Class::Inference && in_time))
}

/// The first promised start that keeps a job from what is free, if one does.
pub(crate) fn held_back(draft: &mut Draft<'_>, id: JobId) -> Option<(JobId, Timestamp)> {
    let state = draft.state;
    let key = state.jobs.get(id)?.key();
    let below = lines::lower_work(draft, &lines::work_group(&key));
    let mut first = None;
    for ask in draft.asks().minimum(&key) {
        let (pass, mark) = (lines::pass(draft, &ask, &below), draft.mark());
        for (job, reservation) in state.reservations.iter().filter(|&(job, _)| job != id) {
            let spec = &state.jobs.get(job)?.spec;
            let set_aside = state.earmarks.of(job).is_some();
            if !set_aside && is_bound(&key, pass, spec) && !may_fill(draft, &key, reservation.start) {
                blocks(state, spec, reservation).for_each(|step| draft.occupy(step));
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

/// The places of a promised start as its job takes them. Who asks between two plans may find one of them gone.
pub(in crate::plan) fn steps<'a>(
    state: &'a State,
    spec: &'a Spec,
    reservation: &'a Reservation,
) -> impl Iterator<Item = Step> + 'a {
    let is_there = |place: &&Placement| {
        let room = state.ledger.rooms().get(place.node);
        room.is_some_and(|room| place.gpus.indexes().all(|gpu| gpu < room.gpus.len()))
    };
    let step = |&place: &Placement| Step {
        place,
        resources: spec.resources_of(place.task),
        trust: Some(spec.trust),
    };
    reservation.tasks.iter().filter(is_there).map(step)
}

/// The same as they are kept from others, whoever holds them meanwhile: a GPU of which a part is promised is kept whole,
/// because a slice cannot be cut where another one still is.
pub(in crate::plan) fn blocks<'a>(
    state: &'a State,
    spec: &'a Spec,
    reservation: &'a Reservation,
) -> impl Iterator<Item = Step> + 'a {
    steps(state, spec, reservation).map(|step| {
        let place = Placement { units_each: GpuUnits::WHOLE, slice: None, time_sliced: false, ..step.place };
        Step { place, ..step }
    })
}
