//! Jobs that are in the way of a promised start: holders of its GPUs, and of the cores and memory that go with them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::{borrowed, held_steps, is_above_guarantee, is_behind, is_over_by, steps};
use crate::model::job::Class;
use crate::model::placement::Placement;
use crate::model::policy::Policy;
use crate::plan::draft::Draft;
use crate::plan::evict::victims::{Unit, rest_of_job};
use crate::plan::place::Ask;
use crate::state::State;
use crate::state::ledger::{Charge, Step};
use crate::state::reservations::Reservation;
use crate::state::rooms::{GpuRoom, Room};
use crate::units::{GpuMask, GpuUnits, JobId, NodeId, Resources, Timestamp};

/// Jobs that hold places that were promised, and were not told to leave.
pub(in crate::plan) struct InTheWay {
    /// They came to its nodes, and may be asked to leave for it.
    pub(in crate::plan) fillers: BTreeSet<JobId>,
    /// They were there before, borrow, and are asked in time.
    pub(in crate::plan) borrowers: BTreeSet<JobId>,
    /// They may not be asked; they are to be over in time.
    pub(in crate::plan) others: BTreeSet<JobId>,
}

pub(in crate::plan) fn in_the_way(
    draft: &mut Draft<'_>,
    ask: &Ask<'_>,
    reservation: &Reservation,
) -> InTheWay {
    let may_be_asked = fillers(draft, reservation);
    let all = holders(draft, reservation, &may_be_asked);
    let (fillers, rest) = (&all & &may_be_asked, &all - &may_be_asked);
    // A job that borrowed when the start was promised may no longer do so.
    let borrowed_then = rest.intersection(&reservation.borrowers);
    let units: Vec<Unit> = borrowed_then.filter_map(|&job| rest_of_job(draft, job)).collect();
    let borrowers = borrowed::together(draft, ask, units.iter());
    InTheWay { fillers, others: &rest - &borrowers, borrowers }
}

/// Jobs that have to be gone before all reserved places are free: holders of a GPU of which all is promised, and of the others
/// on the node as many as it takes: first those that are over in time, then those that may be asked, then those that came
/// later. The rest was there when the start was promised, which was reckoned with them.
pub(super) fn holders(
    draft: &Draft<'_>,
    reservation: &Reservation,
    fillers: &BTreeSet<JobId>,
) -> BTreeSet<JobId> {
    let state = draft.state;
    let order = |job: JobId| {
        let over = is_over_by(draft, job, reservation.start);
        let (asked, borrows) = (fillers.contains(&job), reservation.borrowers.contains(&job));
        (!over, !asked, !borrows, !reservation.fillers.contains(&job))
    };
    let steps: Vec<Step> = steps(state, reservation).collect();
    let mut rooms = rooms_of(state, &steps);
    let mut holders = BTreeSet::new();
    for step in steps.iter().filter(|step| is_whole(&step.place)) {
        for (job, held) in state.staying_on(step.place.node) {
            if held.place.gpus.overlaps(step.place.gpus) && holders.insert(job) {
                give_back(&mut rooms, held_steps(state, job));
            }
        }
    }
    for step in &steps {
        let place = &step.place;
        // A job that had one of its GPUs, where all of it is promised, is gone by now.
        let has_gpus = |room: &Room| is_whole(place) || has_gpus(room, step);
        let Some(room) = rooms.get(&place.node) else { continue };
        if !has_gpus(room) || !has_rest(room, step) {
            let apart = |held: &Placement| !held.gpus.overlaps(place.gpus);
            let here = state.staying_on(place.node).map(|(job, held)| (order(job), apart(&held.place), job));
            let here: BTreeSet<_> = here.collect();
            for (_, apart, job) in here {
                let room = &rooms[&place.node];
                let in_the_way = has_what_lacks(state, job, room, step) || (!apart && !has_gpus(room));
                if in_the_way && holders.insert(job) {
                    give_back(&mut rooms, held_steps(state, job));
                }
            }
        }
        if let Some(room) = rooms.get_mut(&place.node) {
            room.occupy(step);
        }
    }
    holders
}

/// True when a job holds something of a node beside GPUs of which too little is free.
fn has_what_lacks(state: &State, job: JobId, room: &Room, step: &Step) -> bool {
    let here = held_steps(state, job).filter(|held| held.place.node == step.place.node);
    let held = here.fold(Resources::default(), |sum, held| sum + held.resources);
    let lacks = |free: Resources| step.resources.saturating_sub(free);
    lacks(room.free() + held) != lacks(room.free())
}

fn is_whole(place: &Placement) -> bool {
    place.slice.is_none() && place.units_each == GpuUnits::WHOLE
}

/// The nodes of these places without what is earmarked there: that was reckoned with when the promise was made.
fn rooms_of(state: &State, steps: &[Step]) -> BTreeMap<NodeId, Room> {
    let room = |step: &Step| Some((step.place.node, state.ledger.rooms().get(step.place.node)?.clone()));
    let mut rooms: BTreeMap<NodeId, Room> = steps.iter().filter_map(room).collect();
    for (job, earmark) in state.earmarks.iter() {
        let Some(charge) = state.jobs.get(job).map(Charge::of) else { continue };
        give_back(&mut rooms, earmark.tasks.iter().map(|&place| charge.step(place)));
    }
    rooms
}

/// Of these places, those on these nodes are no longer held.
fn give_back(rooms: &mut BTreeMap<NodeId, Room>, steps: impl Iterator<Item = Step>) {
    for step in steps {
        if let Some(room) = rooms.get_mut(&step.place.node) {
            room.vacate(&step);
        }
    }
}

/// Of these jobs, those that hold one of these GPUs.
pub(super) fn on_gpus_of<'a>(
    state: &'a State,
    jobs: &'a BTreeSet<JobId>,
    places: &[Placement],
) -> impl Iterator<Item = JobId> + use<'a> {
    let mut gpus: BTreeMap<NodeId, GpuMask> = BTreeMap::new();
    for place in places {
        place.gpus.indexes().for_each(|gpu| gpus.entry(place.node).or_default().insert(gpu));
    }
    let is_promised =
        move |Step { place, .. }| gpus.get(&place.node).is_some_and(|gpus| gpus.overlaps(place.gpus));
    jobs.iter().copied().filter(move |&job| held_steps(state, job).any(&is_promised))
}

pub(in crate::plan) fn is_free(room: &Room, step: &Step) -> bool {
    has_gpus(room, step) && has_rest(room, step)
}

fn has_rest(room: &Room, step: &Step) -> bool {
    room.free().covers(&step.resources)
}

fn has_gpus(room: &Room, step: &Step) -> bool {
    let place = &step.place;
    let has = |gpu: &GpuRoom| match place.slice {
        Some(slice) => room.mig.zip(gpu.open_layout()).is_some_and(|(mig, layout)| layout.allows(mig, slice)),
        None => step.trust.is_some_and(|own| gpu.free_for_share(own, place.time_sliced) >= place.units_each),
    };
    place.gpus.indexes().all(|at| room.gpus.get(at).is_some_and(has))
}

/// Jobs that came to a node of which something was promised and may be asked to leave it again.
pub(super) fn fillers(draft: &mut Draft<'_>, reservation: &Reservation) -> BTreeSet<JobId> {
    let promised = reservation.spec(draft.state);
    let gives_way = |id: &JobId| {
        let Some(job) = draft.state.jobs.get(*id) else { return false };
        let own = job.spec.tenant == promised.tenant;
        let interruptible = job.spec.preemptible && job.spec.class != Class::Inference;
        interruptible && (if own { is_behind(&job.key(), promised) } else { is_above_guarantee(draft, *id) })
    };
    reservation.fillers.iter().copied().filter(gives_way).collect()
}

impl State {
    /// Jobs that have to be gone before a job starts that was promised a start.
    pub fn in_the_way_of(&self, id: JobId, policy: &Policy, now: Timestamp) -> BTreeSet<JobId> {
        let Some(reservation) = self.reservations.of(id) else { return BTreeSet::new() };
        Draft::trial(self, policy, now, |mut draft| {
            let fillers = fillers(&mut draft, reservation);
            holders(&draft, reservation, &fillers)
        })
    }
}
