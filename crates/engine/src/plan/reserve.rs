//! Promised starts (rule 5): which still hold, whom they bind, and who is promised one.
//!
//! Jobs that wait within their fair share are promised the earliest start at which those who are in their way are over by
//! their own time limits and estimates, or gone because they borrow and were asked. Until then their places may be filled
//! by whoever is over, or can be gone, in time. No promise is made on places that are promised to somebody else, so a later
//! one never delays an earlier one.

mod borrowed;
mod horizon;
mod promise;
mod unpromised;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::event::Placement;
use crate::job::{Class, Spec};
use crate::jobs::{Job, KindKey};
use crate::need::{Need, Way};
use crate::plan::booked;
use crate::plan::draft::{Draft, Step};
use crate::plan::groups;
use crate::plan::lines::{self, Line, Pass};
use crate::plan::place::{Ask, Fit, ways_of};
use crate::policy::Amount;
use crate::reservations::{Dropped, Reservation};
use crate::rooms::Room;
use crate::state::State;
use crate::units::{GpuUnits, JobId, Millis, NodeId, Timestamp};

pub(super) use horizon::Horizon;
pub use horizon::ends_at;
pub use promise::Looked;
pub(super) use promise::{Others, make};
pub use unpromised::Unpromised;

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
#[derive(Default)]
pub(super) struct InTheWay {
    /// They came to its places, and may be asked to leave for it.
    pub(super) fillers: BTreeSet<JobId>,
    /// They were there before, borrow, and are asked in time.
    pub(super) borrowers: BTreeSet<JobId>,
    /// They may not be asked; they are to be over in time.
    pub(super) others: BTreeSet<JobId>,
}

/// Which promised starts still hold.
pub(super) fn review<'a>(draft: &mut Draft<'a>, horizon: &mut Horizon) -> Reserved<'a> {
    let mut reserved = Reserved { kept: Vec::new(), dropped: Vec::new() };
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
    reserved: &Reserved<'_>,
    id: JobId,
    reservation: &Reservation,
) -> Option<Dropped> {
    let state = draft.state;
    if draft.policy.reservations_max == 0 {
        return Some(Dropped::Policy);
    }
    // Its places are set aside already; who leaves them may be late all the same.
    if state.promises.of(id).is_some() {
        return (draft.now >= reservation.start).then_some(Dropped::Overrun);
    }
    let job = state.jobs.get(id).expect("a promised start belongs to a live job");
    if !reservation.tasks.iter().all(|place| is_there(state, place, &job.spec)) {
        return Some(Dropped::PlaceGone);
    }
    if booked::bars(draft, &KindKey::of(&job.spec), &reservation.tasks) {
        return Some(Dropped::Booked);
    }
    if let Some(other) = set_aside_for(state, reservation) {
        return Some(if other.tenant == job.spec.tenant { Dropped::Priority } else { Dropped::Guarantee });
    }
    let key = KindKey::of(&job.spec);
    let Some(way) = way_of(draft, &key, reservation) else { return Some(Dropped::Policy) };
    let ask = Ask::new(draft.tree, &key, way, key.min);
    let way = in_the_way(draft, &ask, &job.spec, reservation);
    let late = way.others.iter().find_map(|other| why_late(draft, *other, &job.spec, reservation));
    if late.is_some() {
        return late;
    }
    let mut before = before(draft, &reserved.kept, &job.spec, reservation.start);
    // It was reckoned with them when it was made; it is given up for what is used, not for what is promised.
    before.beside.fill(0);
    let aside = state.promises.iter().map(|(job, _)| job);
    before.leaving.extend(aside.filter(|job| !reservation.fillers.contains(job)));
    before.leaving.extend(way.fillers.iter().chain(&way.borrowers));
    (!is_entitled(draft, horizon, &ask, reservation.start, &before)).then_some(Dropped::AboveShare)
}

/// For whom a place that was promised is set aside, if it is: that job was served before, whatever was promised.
fn set_aside_for<'a>(state: &'a State, reservation: &Reservation) -> Option<&'a Spec> {
    let here = |place: &Placement| {
        let overlaps = |of: &Placement| of.node == place.node && of.gpus.overlaps(place.gpus);
        let shared =
            |of: &Placement| of.units_each.parts() + place.units_each.parts() <= GpuUnits::WHOLE.parts();
        reservation.tasks.iter().any(|of| overlaps(of) && !shared(of))
    };
    // Whose places were set aside before was reckoned with.
    let mut later = state.promises.iter().filter(|(job, _)| reservation.fillers.contains(job));
    let (job, _) = later.find(|(_, promise)| promise.tasks.iter().any(here))?;
    state.jobs.get(job).map(|job| &job.spec)
}

/// Why somebody who may not be asked is still there at a promised start, if it is.
fn why_late(draft: &Draft<'_>, id: JobId, promised: &Spec, reservation: &Reservation) -> Option<Dropped> {
    let job = draft.state.jobs.get(id)?;
    if ends_at(draft.state, id, draft.now).is_some_and(|end| end <= reservation.start) {
        return None;
    }
    let came_later = reservation.fillers.contains(&id);
    let own = job.spec.tenant == promised.tenant;
    let before = own && !is_behind(&KindKey::of(&job.spec), promised);
    Some(if reservation.borrowers.contains(&id) {
        Dropped::WithinShare
    } else if came_later && before {
        Dropped::Priority
    } else if came_later && !own {
        Dropped::Guarantee
    } else if job.past.extended.is_some() {
        Dropped::Extended
    } else {
        Dropped::Overrun
    })
}

/// How a job is met at its promised places, if the policy still allows that.
pub(super) fn way_of(draft: &Draft<'_>, key: &KindKey, reservation: &Reservation) -> Option<Way> {
    let place = reservation.tasks.first()?;
    let need = Need::held(place);
    ways_of(draft.state, draft.policy, key).find(|way| way.pool == place.pool && way.need == need)
}

fn is_there(state: &State, place: &Placement, spec: &Spec) -> bool {
    let Some(room) = state.ledger.rooms().get(place.node) else { return false };
    let usable = |gpu: usize| room.gpus.get(gpu).is_some_and(|gpu| gpu.usable);
    let allowed = state.fleet.set_has_node(spec.shape_of(place.task).nodes, place.node);
    room.open && room.pool == place.pool && allowed && place.gpus.indexes().all(usable)
}

/// What other promises change until a start.
pub(super) struct Before {
    /// What the tenant's jobs that are promised a start by then hold from then on, by meter.
    beside: Vec<u64>,
    /// Who has to leave by then.
    leaving: BTreeSet<JobId>,
}

/// What these promises change until the start of a job.
fn before(draft: &Draft<'_>, all: &[(JobId, &Reservation)], spec: &Spec, start: Timestamp) -> Before {
    let mut before = Before { beside: alloc::vec![0; draft.tree.meters.len()], leaving: BTreeSet::new() };
    for &(job, of) in all.iter().filter(|(_, of)| of.start <= start) {
        let state = draft.state;
        // What is set aside counts already.
        if state.promises.of(job).is_some() {
            continue;
        }
        before.leaving.extend(of.fillers.iter().chain(&of.borrowers));
        let other = &state.jobs.get(job).expect("a promised start belongs to a live job").spec;
        if other.tenant == spec.tenant {
            let amount = draft.tree.charge_of(|task| other.resources_of(task), of.tasks.iter());
            before.beside.iter_mut().zip(amount).for_each(|(total, part)| *total += part);
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
    before: &Before,
) -> bool {
    let own = lines::standing_of(ask.key);
    let below = lines::below(draft, &own);
    let over = horizon.over_by(draft, &own, start, &before.leaving);
    let total = ask.total();
    lines::asked(ask).all(|meter| {
        let line = lines::line(draft, own.tenant, meter, Line::Entitled);
        let used = draft.used(own.tenant)[meter] + before.beside[meter] + total[meter];
        match line {
            Amount::Unlimited => true,
            Amount::Of(line) => used.saturating_sub(below[meter] + over[meter]) <= line,
        }
    })
}

/// Who holds places that were promised, and was not told to leave.
pub(super) fn in_the_way(
    draft: &mut Draft<'_>,
    ask: &Ask<'_>,
    spec: &Spec,
    reservation: &Reservation,
) -> InTheWay {
    let mut way = InTheWay::default();
    for id in holders(draft, ask, spec, reservation) {
        if fills(draft, id, spec, reservation) {
            way.fillers.insert(id);
        } else if reservation.borrowers.contains(&id) {
            way.borrowers.insert(id);
        } else {
            way.others.insert(id);
        }
    }
    // Who borrowed when the start was promised may no longer do so.
    for id in borrowed::no_longer(draft, ask, &way.borrowers) {
        way.borrowers.remove(&id);
        way.others.insert(id);
    }
    way
}

/// Who has to be gone before all of a job's places are free. Of a GPU that is shared not everybody has to: first those who are
/// over in time, then those who may be asked.
fn holders(draft: &Draft<'_>, ask: &Ask<'_>, spec: &Spec, reservation: &Reservation) -> BTreeSet<JobId> {
    let state = draft.state;
    let order = |job: JobId| {
        let over = ends_at(state, job, draft.now).is_some_and(|end| end <= reservation.start);
        (!over, !fills(draft, job, spec, reservation), !reservation.borrowers.contains(&job))
    };
    let mut holders = BTreeSet::new();
    let mut rooms: BTreeMap<NodeId, Room> = BTreeMap::new();
    for place in &reservation.tasks {
        let here = state.ledger.tasks_on(place.node).filter_map(|(job, task)| {
            let held = state.ledger.holding(job)?.task(task)?;
            (held.stays() && held.place.gpus.overlaps(place.gpus)).then_some((job, held.place))
        });
        if place.slice.is_none() && place.units_each == GpuUnits::WHOLE {
            holders.extend(here.map(|(job, _)| job));
            continue;
        }
        let Some(known) = state.ledger.rooms().get(place.node) else { continue };
        let room = rooms.entry(place.node).or_insert_with(|| known.clone());
        let mut here: Vec<_> = here.map(|(job, _)| (order(job), job)).collect();
        here.retain(|(_, job)| !holders.contains(job));
        here.sort_unstable();
        for (_, job) in here {
            if is_free(room, place, ask.key) {
                break;
            }
            if holders.insert(job) {
                leave_node(state, job, place.node, room);
            }
        }
        room.take(place, ask.key.shape.resources, ask.key.trust);
    }
    holders
}

/// A job gives back all that it holds of a node.
fn leave_node(state: &State, job: JobId, node: NodeId, room: &mut Room) {
    let (Some(holding), Some(charge)) = (state.ledger.holding(job), state.ledger.charge(job)) else { return };
    for task in holding.staying().filter(|task| task.place.node == node) {
        room.give_back(&task.place, charge.resources_of(task.place.task));
    }
}

/// True when all of a place is free.
pub(super) fn is_free(room: &Room, place: &Placement, key: &KindKey) -> bool {
    let has = |at: usize| {
        let gpu = room.gpus.get(at);
        gpu.is_some_and(|gpu| match place.slice {
            Some(slice) => {
                let layout = gpu.open_layout();
                room.mig.is_some_and(|mig| layout.is_some_and(|layout| layout.allows(mig, slice)))
            }
            None => gpu.free_for_share(key.trust, place.time_sliced) >= place.units_each,
        })
    };
    place.gpus.indexes().all(has) && room.free().covers(&key.shape.resources)
}

/// True when a job came to a place that was promised and may be asked to leave it again.
fn fills(draft: &Draft<'_>, id: JobId, promised: &Spec, reservation: &Reservation) -> bool {
    let Some(job) = draft.state.jobs.get(id).filter(|_| reservation.fillers.contains(&id)) else {
        return false;
    };
    let may_leave = job.spec.preemptible && job.spec.class != Class::Inference;
    let gives_way = if job.spec.tenant == promised.tenant {
        is_behind(&KindKey::of(&job.spec), promised)
    } else {
        is_above_guarantee(draft, job)
    };
    may_leave && gives_way
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

/// True when work in that pass may not have what was promised to a job.
pub(super) fn is_bound(key: &KindKey, pass: Pass, promised: &Spec) -> bool {
    if key.tenant == promised.tenant {
        return is_behind(key, promised);
    }
    // A reservation never delays work within a guarantee.
    pass != Pass::WithinGuarantee
}

/// True when work would be over by then whatever happens, or can be asked to be gone.
pub(super) fn may_fill(draft: &Draft<'_>, key: &KindKey, start: Timestamp) -> bool {
    let (policy, now) = (draft.policy, draft.now);
    // Its time begins when it runs, which may be late.
    let (begin, stop) = (policy.gangs.start_within, policy.stop_grace);
    let over = key.ends_within.is_some_and(|within| now + begin + within + stop <= start);
    let leave = Millis(key.grace.0.saturating_add(policy.stop_grace.0));
    let in_time = now + FILL_MIN + leave <= start;
    !policy.no_backfill && (over || (key.preemptible && key.class != Class::Inference && in_time))
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
                blocks(spec, reservation).for_each(|step| draft.take(step));
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

/// The places of a promised start as its job takes them.
pub(super) fn steps<'a>(spec: &'a Spec, reservation: &'a Reservation) -> impl Iterator<Item = Step> + 'a {
    let step =
        |&place: &Placement| Step { place, resources: spec.resources_of(place.task), trust: spec.trust };
    reservation.tasks.iter().map(step)
}

/// The same as they are kept from others, whoever holds them meanwhile: a GPU of which a part is promised is kept whole,
/// because a slice cannot be cut where another one still is.
pub(super) fn blocks<'a>(spec: &'a Spec, reservation: &'a Reservation) -> impl Iterator<Item = Step> + 'a {
    steps(spec, reservation).map(|step| {
        let place = Placement { units_each: GpuUnits::WHOLE, slice: None, time_sliced: false, ..step.place };
        Step { place, ..step }
    })
}
