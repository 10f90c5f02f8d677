//! Booked windows on a draft: where their jobs start, and what counts as used while those are not there.

pub(crate) mod choose;

use crate::quota::meters::Meters;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::model::job::Class;
use crate::model::need::PoolOption;
use crate::model::placement::Placement;
use crate::plan::draft::Draft;
use crate::plan::later::held_amount;
use crate::plan::later::kept::{self, KeptPlaces, bar_any};
use crate::plan::lines;
use crate::plan::place::{Ask, tasks_beside_gpus};
use crate::state::State;
use crate::state::bookings::Booking;
use crate::state::ends::latest_if_placed;
use crate::state::holding::Holding;
use crate::state::jobs::KindKey;
use crate::state::ledger::WorkGroup;
use crate::state::rooms::Room;
use crate::units::{BookingId, GpuMask, GpuUnits, JobId, Millis, NodeId, Resources, TenantId};

/// What is booked of one moment for a tenant and everyone below it, at most, from when work of a kind would not be over: work
/// that no guarantee could get back fits the guarantee beside it. By meter; a window's own jobs are what it is booked for.
pub(in crate::plan) fn to_come(draft: &Draft<'_>, tenant: TenantId, key: &KindKey) -> Meters {
    let mut most = draft.tree.zero();
    if key.booking.is_some() || draft.state.bookings.is_empty() {
        return most;
    }
    let over = key.ends_within.map(|within| latest_if_placed(draft.policy, within, draft.now));
    let below = |booking: &&Booking| draft.tree.lineage(booking.spec.tenant).any(|above| above == tenant);
    let bookings = draft.state.bookings.iter().map(|(_, booking)| booking);
    let counted: Vec<&Booking> =
        bookings.filter(below).filter(|booking| over.is_none_or(|over| over > booking.from)).collect();
    for begin in &counted {
        let mut sum = draft.tree.zero();
        for booking in counted.iter().filter(|other| other.from <= begin.from && begin.from < other.until) {
            sum.add(&charge(draft, booking));
        }
        most.iter_mut().zip(sum.iter()).for_each(|(most, sum)| *most = (*sum).max(*most));
    }
    most
}

/// What jobs of a tenant hold in their windows, by meter, beside inference and what no guarantee could get back anyway.
pub(in crate::plan) fn sheltered(draft: &Draft<'_>, tenant: TenantId) -> Meters {
    let mut total = draft.tree.zero();
    for &id in draft.state.jobs.booked() {
        let Some(group) = draft.state.ledger.charge(id).map(|charge| charge.group) else { continue };
        let counted = group.class == Class::Inference || lines::is_fixed(&group, draft.policy);
        if group.tenant == tenant && !counted {
            total.add(&held_amount(draft, id));
        }
    }
    total
}

/// The ways to meet a whole window: in the pool of its places, once it has some.
pub(crate) fn ways_of_window(draft: &Draft<'_>, places: &[Placement], key: &KindKey) -> Vec<PoolOption> {
    let pool = places.first().map(|place| place.pool);
    let ways = draft.asks().options(key);
    ways.filter(|way| pool.is_none_or(|pool| pool == way.pool)).collect()
}

/// What a whole window is charged, by meter: where its places are, or in the first pool that has such.
pub(crate) fn charge(draft: &Draft<'_>, booking: &Booking) -> Meters {
    let key = KindKey::of(&booking.spec);
    let ways = ways_of_window(draft, &booking.places, &key);
    let ask = ways.first().map(|&way| Ask::new(draft.tree, &key, way, key.tasks));
    ask.map_or_else(|| draft.tree.zero(), |ask| ask.total())
}

/// How a booked GPU that nobody of its window uses counts: as work of its tenant that nobody of it takes, so that the rest of the
/// tenant's work has the less of the guarantee.
fn idle_group(tenant: TenantId) -> WorkGroup {
    let (class, priority) = (Class::Inference, i32::MAX);
    WorkGroup { tenant, class, priority, preemptible: true, grace: Millis(0) }
}

/// Counts what windows that have begun keep for jobs that are not there.
pub(in crate::plan) fn count_idle(draft: &mut Draft<'_>) -> BTreeMap<BookingId, GpuUnits> {
    let state = draft.state;
    let mut idle = BTreeMap::new();
    for (id, booking) in state.bookings.iter().filter(|(_, booking)| booking.began) {
        let units = idle_units(state, id, booking);
        let Some(place) = booking.places.first().filter(|_| units > GpuUnits::ZERO) else { continue };
        let amount = draft.tree.charge(units, Resources::default(), place.pool);
        draft.count(idle_group(booking.spec.tenant), amount, true);
        idle.insert(id, units);
    }
    idle
}

/// Lets an ask into its window, if that has begun, the job could be gone by its end, and no line is in the way: what it takes is no
/// longer kept for it. Returns what still is.
pub(in crate::plan) fn admit(
    draft: &mut Draft<'_>,
    booking: &Booking,
    ask: &Ask<'_>,
    idle: GpuUnits,
) -> Option<GpuUnits> {
    if !booking.began || !kept::is_gone_by(draft, ask.key, booking.until, true) {
        return None;
    }
    let mark = draft.mark();
    let mut left = idle;
    // What is kept was counted in the pool of the places.
    if booking.places.first().is_some_and(|place| place.pool == ask.pool()) {
        let taken = GpuUnits::from_parts(idle.parts().min(ask.units().parts()));
        let amount = draft.tree.charge(taken, Resources::default(), ask.pool());
        draft.count(idle_group(booking.spec.tenant), amount, false);
        left = GpuUnits::from_parts(idle.parts() - taken.parts());
    }
    if lines::barred_by(draft, ask).is_some() {
        draft.roll_back(mark);
        return None;
    }
    Some(left)
}

/// What of a window's places its own jobs neither hold nor were promised.
fn idle_units(state: &State, id: BookingId, booking: &Booking) -> GpuUnits {
    let mut own: Vec<Placement> = Vec::new();
    for job in state.jobs_of_booking(id) {
        let held = state.ledger.holding(job).into_iter().flat_map(Holding::staying);
        own.extend(held.map(|task| task.place));
        own.extend(state.earmarks.of(job).into_iter().flat_map(|earmark| &earmark.tasks));
    }
    let idle = |place: &Placement| {
        let taken = |gpu: &usize| own.iter().any(|own| own.node == place.node && own.gpus.contains(*gpu));
        place.gpus.indexes().filter(|gpu| !taken(gpu)).count()
    };
    let gpus: usize = booking.places.iter().map(idle).sum();
    GpuUnits::whole(u32::try_from(gpus).unwrap_or(u32::MAX))
}

/// Where all that is asked for goes inside a window, from what is free there; the draft stays as it is.
pub(in crate::plan) fn place_in(
    draft: &Draft<'_>,
    ask: &Ask<'_>,
    booking: &Booking,
) -> Option<Vec<Placement>> {
    let domain = |place: &Placement| match ask.key.topology.gang_within {
        None => Some(None),
        Some(level) => draft.state.fleet.domain_of(place.node, level).map(Some),
    };
    let mut domains: BTreeSet<Option<u32>> = booking.places.iter().filter_map(domain).collect();
    domains.retain(|&domain| ask.domain.is_none() || ask.domain == domain);
    domains.into_iter().find_map(|of| place_all(draft, ask, booking, |place| domain(place) == Some(of)))
}

fn place_all(
    draft: &Draft<'_>,
    ask: &Ask<'_>,
    booking: &Booking,
    within: impl Fn(&Placement) -> bool,
) -> Option<Vec<Placement>> {
    let each = ask.way.need.units().parts() / GpuUnits::WHOLE.parts();
    let each = usize::try_from(each).ok().filter(|&each| each > 0)?;
    let allowed = |place: &&Placement| {
        let in_set = ask.key.may_go_to(&draft.state.fleet, place.node);
        let open = draft.room(place.node).is_some_and(|room| room.open);
        // A job that could not be gone when its node goes out of service would be asked to leave as soon as it came.
        let downtimes = KeptPlaces::downtimes(draft.state);
        let barred = bar_any(downtimes, draft, ask.key, core::slice::from_ref(place));
        place.pool == ask.pool() && in_set && within(place) && open && !barred
    };
    let mut tasks = Vec::new();
    let mut beside: BTreeMap<NodeId, u32> = BTreeMap::new();
    for place in booking.places.iter().filter(allowed) {
        let Some(room) = draft.room(place.node) else { continue };
        let fitting = tasks_beside_gpus(room.free(), ask.key.shape.resources);
        let left = beside.entry(place.node).or_insert(fitting);
        for gpus in groups(room, place, each, ask.key.topology.task_on_island) {
            let task = ask.first_task + u32::try_from(tasks.len()).ok()?;
            if task < ask.first_task + ask.tasks && *left > 0 {
                *left -= 1;
                tasks.push(Placement { task, gpus, tax: ask.way.tax, ..*place });
            }
        }
    }
    (u32::try_from(tasks.len()) == Ok(ask.tasks)).then_some(tasks)
}

/// Free GPUs of a place, so many together; on one island where that is asked.
fn groups(room: &Room, place: &Placement, each: usize, on_island: bool) -> Vec<GpuMask> {
    let mut by_island: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for at in place.gpus.indexes() {
        if let Some(gpu) = room.gpus.get(at).filter(|gpu| gpu.is_free()) {
            by_island.entry(if on_island { gpu.island } else { 0 }).or_default().push(at);
        }
    }
    by_island
        .values()
        .flat_map(|gpus| gpus.chunks_exact(each))
        .map(|gpus| gpus.iter().copied().collect())
        .collect()
}

/// True when a job of a window that has begun could start there now.
pub(crate) fn may_start_in(draft: &mut Draft<'_>, id: JobId, booking: &Booking) -> bool {
    let Some(job) = draft.state.jobs.get(id) else { return false };
    let (key, idle) = (job.key(), count_idle(draft));
    let idle = job.spec.booking.and_then(|id| idle.get(&id)).copied().unwrap_or_default();
    let ways: Vec<_> = draft.asks().options(&key).collect();
    ways.into_iter().any(|way| {
        let (ask, mark) = (Ask::new(draft.tree, &key, way, key.min), draft.mark());
        let fits = admit(draft, booking, &ask, idle).is_some() && place_in(draft, &ask, booking).is_some();
        draft.roll_back(mark);
        fits
    })
}
