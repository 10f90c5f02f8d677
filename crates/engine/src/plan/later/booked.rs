//! Booked windows on a draft: who may come to booked places, and where the jobs of a window start.
//!
//! From the moment at which its places are chosen until it begins, a window lets in whoever is over or can be gone by then. Once
//! it has begun it keeps its places clear for its own jobs; as soon as one of them has come, what they leave idle is lent
//! to work that can be told to leave at any moment.

pub(crate) mod choose;

use crate::quota::meters::Meters;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::model::job::Class;
use crate::model::placement::Placement;
use crate::plan::draft::Draft;
use crate::plan::later::{downtimes, reserve};
use crate::plan::lines;
use crate::plan::place::{Ask, Fit, tasks_beside_gpus};
use crate::state::State;
use crate::state::bookings::Booking;
use crate::state::ends::latest_if_placed;
use crate::state::holding::Holding;
use crate::state::jobs::KindKey;
use crate::state::ledger::{Step, WorkGroup};
use crate::state::rooms::Room;
use crate::units::{BookingId, GpuMask, GpuUnits, JobId, Millis, Resources, TenantId, Timestamp, TrustId};

/// Booked GPUs that work of a kind may not have, as somebody would take them; or all that are not its own window's.
pub(in crate::plan) fn kept_from(draft: &Draft<'_>, key: &KindKey, all: bool) -> Vec<Step> {
    let bookings = draft.state.bookings.iter();
    let closed = bookings.filter(|(id, booking)| {
        key.booking != Some(*id) && !booking.places.is_empty() && (all || !lets_in(draft, booking, key))
    });
    let booked = closed.flat_map(|(_, booking)| steps(draft, &booking.spec, &booking.places));
    booked.chain(downtimes::kept_from(draft, key)).collect()
}

/// All booked places, and the nodes that will soon be out of service.
pub(in crate::plan) fn all_steps(draft: &Draft<'_>) -> Vec<Step> {
    let bookings = draft.state.bookings.iter();
    let booked = bookings.flat_map(|(_, booking)| steps(draft, &booking.spec, &booking.places));
    booked.chain(downtimes::all_steps(draft)).collect()
}

/// True when a window lets work of a kind have its places for now.
fn lets_in(draft: &Draft<'_>, booking: &Booking, key: &KindKey) -> bool {
    if draft.now < booking.from {
        return reserve::may_fill(draft, key, booking.from);
    }
    let leaves_at_once = key.preemptible
        && key.class != Class::Inference
        && !lines::is_fixed(&lines::work_group(key), draft.policy);
    booking.used && draft.policy.windows.fill && leaves_at_once
}

/// True while a window has begun and a job of it that starts now could be gone by its end.
pub(in crate::plan) fn is_open_to(draft: &Draft<'_>, booking: &Booking, key: &KindKey) -> bool {
    let over = key
        .ends_within
        .is_some_and(|within| latest_if_placed(draft.policy, within, draft.now) <= booking.until);
    let leave = Millis(key.grace.0.saturating_add(draft.policy.stop_grace.0));
    booking.began && (over || draft.now + reserve::FILL_MIN + leave <= booking.until)
}

/// True when a window or a downtime keeps work of a kind from one of these places.
pub(in crate::plan) fn bars(draft: &Draft<'_>, key: &KindKey, tasks: &[Placement]) -> bool {
    let mut bookings = draft.state.bookings.iter();
    downtimes::bars(draft, key, tasks)
        || bookings.any(|(_, booking)| {
            tasks.iter().any(|place| booking.meets(place)) && !lets_in(draft, booking, key)
        })
}

/// Booked places as somebody would take them. What is held there is taken too, or it would be free for others when its
/// holder leaves on the draft; such GPUs keep the trust domain of who is there.
fn steps(draft: &Draft<'_>, spec: &crate::model::job::Spec, places: &[Placement]) -> Vec<Step> {
    steps_at(draft, spec.shape.resources, spec.trust, places)
}

/// The same, each with so much beside GPUs and of that trust domain.
pub(in crate::plan) fn steps_at(
    draft: &Draft<'_>,
    each: Resources,
    own: TrustId,
    places: &[Placement],
) -> Vec<Step> {
    let mut steps = Vec::new();
    for place in places {
        let Some(room) = draft.room(place.node) else { continue };
        let (mut free, mut resources) = (GpuMask::default(), each);
        for at in place.gpus.indexes() {
            let Some(gpu) = room.gpus.get(at) else { continue };
            if gpu.holders == 0 {
                free.insert(at);
                continue;
            }
            let mut one = GpuMask::default();
            one.insert(at);
            let trust = gpu.trust.or(Some(own));
            let place = Placement { gpus: one, ..*place };
            steps.push(Step { place, resources: Resources::default(), trust });
        }
        // Who is in a part of the place has its own cores and memory.
        if free != place.gpus {
            resources = Resources::default();
        }
        if free.count() > 0 {
            steps.push(Step { place: Placement { gpus: free, ..*place }, resources, trust: Some(own) });
        }
    }
    steps
}

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
    let state = draft.state;
    let mut total = draft.tree.zero();
    for &id in state.jobs.booked() {
        let (Some(charge), Some(holding)) = (state.ledger.charge(id), state.ledger.holding(id)) else {
            continue;
        };
        let counted = charge.group.class == Class::Inference || lines::is_fixed(&charge.group, draft.policy);
        if charge.group.tenant == tenant && !counted {
            let held = holding.staying().map(|task| &task.place);
            total.add(&draft.tree.charge_of(|task| charge.resources_of(task), held));
        }
    }
    total
}

/// What a whole window is charged, by meter: where its places are, or in the first pool that has such.
fn charge(draft: &Draft<'_>, booking: &Booking) -> Meters {
    let key = KindKey::of(&booking.spec);
    let pool = booking.places.first().map(|place| place.pool);
    let way = draft.asks().options(&key).find(|way| pool.is_none_or(|pool| pool == way.pool));
    let ask = way.map(|way| Ask::new(draft.tree, &key, way, key.tasks));
    ask.map_or_else(|| draft.tree.zero(), |ask| ask.total())
}

/// How a booked GPU that nobody of its window uses counts: as work of its tenant that nobody of it takes, so that the rest of the
/// tenant's work has the less of the guarantee.
pub(in crate::plan) fn idle_group(tenant: TenantId) -> WorkGroup {
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

/// What is asked for of a window is no longer kept for it; returns what still is.
pub(in crate::plan) fn count_in_use(
    draft: &mut Draft<'_>,
    booking: &Booking,
    ask: &Ask<'_>,
    idle: GpuUnits,
) -> GpuUnits {
    // What is kept was counted in the pool of the places.
    if booking.places.first().is_none_or(|place| place.pool != ask.pool()) {
        return idle;
    }
    let taken = GpuUnits::from_parts(idle.parts().min(ask.units().parts()));
    let amount = draft.tree.charge(taken, Resources::default(), ask.pool());
    draft.count(idle_group(booking.spec.tenant), amount, false);
    GpuUnits::from_parts(idle.parts() - taken.parts())
}

/// What of a window's places its own jobs neither hold nor were promised.
pub(crate) fn idle_units(state: &State, id: BookingId, booking: &Booking) -> GpuUnits {
    let mut own: Vec<Placement> = Vec::new();
    for job in state.jobs_of_booking(id) {
        let held = state.ledger.holding(job).into_iter().flat_map(Holding::staying);
        own.extend(held.map(|task| task.place));
        own.extend(state.earmarks.of(job).into_iter().flat_map(|earmark| earmark.tasks.iter().copied()));
    }
    let taken = |place: &Placement, gpu: usize| {
        own.iter().any(|own| own.node == place.node && own.gpus.contains(gpu))
    };
    let idle = |place: &Placement| place.gpus.indexes().filter(|&gpu| !taken(place, gpu)).count();
    let gpus: usize = booking.places.iter().map(idle).sum();
    GpuUnits::whole(u32::try_from(gpus).unwrap_or(u32::MAX))
}

/// Where all that is asked for goes inside a window, from what is free there; the draft stays as it is.
pub(in crate::plan) fn place_in(
    draft: &Draft<'_>,
    ask: &Ask<'_>,
    booking: &Booking,
) -> Option<Vec<Placement>> {
    let Some(level) = ask.key.topology.gang_within else {
        return place_all(draft, ask, booking, &|_| true);
    };
    let domain = |place: &Placement| draft.state.fleet.domain_of(place.node, level);
    let mut domains: Vec<u32> = booking.places.iter().filter_map(domain).collect();
    domains.sort_unstable();
    domains.dedup();
    domains.retain(|&domain| ask.domain.is_none_or(|asked| asked == domain));
    domains
        .into_iter()
        .find_map(|wanted| place_all(draft, ask, booking, &|place| domain(place) == Some(wanted)))
}

fn place_all(
    draft: &Draft<'_>,
    ask: &Ask<'_>,
    booking: &Booking,
    within: &dyn Fn(&Placement) -> bool,
) -> Option<Vec<Placement>> {
    let each = ask.way.need.units().parts() / GpuUnits::WHOLE.parts();
    let each = usize::try_from(each).ok().filter(|&each| each > 0)?;
    let allowed = |place: &&Placement| {
        let in_set = ask.key.may_go_to(&draft.state.fleet, place.node);
        let open = draft.room(place.node).is_some_and(|room| room.open);
        // Who could not be gone when its node goes out of service would be asked to leave as soon as it came.
        let barred = downtimes::bars(draft, ask.key, core::slice::from_ref(place));
        place.pool == ask.pool() && in_set && within(place) && open && !barred
    };
    let mut tasks = Vec::new();
    let mut beside: BTreeMap<crate::units::NodeId, u32> = BTreeMap::new();
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
    let mask = |gpus: &[usize]| {
        let mut mask = GpuMask::default();
        for &gpu in gpus {
            mask.insert(gpu);
        }
        mask
    };
    by_island.values().flat_map(|gpus| gpus.chunks_exact(each)).map(mask).collect()
}

/// The window that keeps a job from what is free, if one does, and when that begins. What is promised to others is not free.
pub(crate) fn held_back(draft: &mut Draft<'_>, id: JobId) -> Option<(BookingId, Timestamp)> {
    let state = draft.state;
    let key = state.jobs.get(id)?.key();
    count_idle(draft);
    let first = state.bookings.iter().find(|(_, booking)| !booking.places.is_empty())?;
    let first = (first.0, first.1.from);
    let below = lines::lower_work(draft, &lines::work_group(&key));
    for ask in draft.asks().minimum(&key) {
        let (pass, mark) = (lines::pass(draft, &ask, &below), draft.mark());
        for (job, reservation) in state.reservations.iter().filter(|&(job, _)| job != id) {
            let spec = &state.jobs.get(job)?.spec;
            let set_aside = state.earmarks.of(job).is_some();
            if !set_aside
                && reserve::is_bound(&key, pass, spec)
                && !reserve::may_fill(draft, &key, reservation.start)
            {
                reserve::steps(state, spec, reservation).for_each(|step| draft.occupy(step));
            }
        }
        for step in kept_from(draft, &key, false) {
            draft.occupy(step);
        }
        let fits = Fit::of(draft, &ask).is_enough(draft, &ask);
        let beyond = lines::limit_exceeded(draft, &ask).or_else(|| lines::fixed_beyond(draft, &ask));
        draft.roll_back(mark);
        if fits && beyond.is_none() {
            return None;
        }
    }
    Some(first)
}

/// True when a job of a window that has begun could start there now.
pub(crate) fn may_start_in(draft: &mut Draft<'_>, id: JobId, booking: &Booking) -> bool {
    let Some(job) = draft.state.jobs.get(id) else { return false };
    let key = job.key();
    let idle = count_idle(draft);
    let idle = job.spec.booking.and_then(|id| idle.get(&id)).copied().unwrap_or_default();
    let ways: Vec<_> = draft.asks().options(&key).collect();
    is_open_to(draft, booking, &key)
        && ways.into_iter().any(|way| {
            let ask = Ask::new(draft.tree, &key, way, key.min);
            let mark = draft.mark();
            count_in_use(draft, booking, &ask, idle);
            let beyond = lines::limit_exceeded(draft, &ask).or_else(|| lines::fixed_beyond(draft, &ask));
            draft.roll_back(mark);
            beyond.is_none() && place_in(draft, &ask, booking).is_some()
        })
}
