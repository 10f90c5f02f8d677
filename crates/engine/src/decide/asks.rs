//! Asks to leave that serve nobody any more: the work stays, unless it has saved its state or its places are spoken for.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::conclude::repair_deadline;
use super::live::{LiveJob, asked_until_later, numbers};
use super::{bookings, emptied};
use crate::device::catalogue::Mig;
use crate::device::geometry::Slice;
use crate::model::placement::Placement;
use crate::plan::draft::Draft;
use crate::plan::lines;
use crate::quota::meters::Amounts;
use crate::state::State;
use crate::state::event::Event;
use crate::state::holding::HeldTask;
use crate::state::jobs::KindKey;
use crate::state::ledger::event::Asker;
use crate::state::rooms::GpuRoom;
use crate::units::{JobId, Resources, Timestamp, TrustId};

/// Takes back every ask whose reason is gone. Jobs in `leaving` are told to go at this moment.
pub(super) fn no_longer_needed(state: &State, leaving: &BTreeSet<JobId>, now: Timestamp) -> Vec<Event> {
    let asked = state.ledger.deadlines().iter().filter(|(_, job)| !leaving.contains(job));
    let asked = asked.map(|&(_, job)| LiveJob::of(state, job, now));
    asked.filter(|live| !is_needed(*live)).filter_map(take_back).flatten().collect()
}

fn is_needed(live: LiveJob<'_>) -> bool {
    let LiveJob { state, id, .. } = live;
    let holding = live.holding().expect("a deadline belongs to a holding");
    match holding.asked_by {
        Some(Asker::Rules { beneficiary, .. }) => {
            state.earmarks.of(beneficiary).is_some() || state.reservations.of(beneficiary).is_some()
        }
        Some(Asker::Booking { booking }) => bookings::needs(state, booking, id, holding),
        Some(Asker::Drain { node }) => emptied::needs(state, node, id),
        Some(Asker::Lever { .. } | Asker::Limit | Asker::Scale | Asker::Replace) | None => true,
    }
}

/// The ask is taken back, if everything that was asked may stay.
pub(super) fn take_back(live: LiveJob<'_>) -> Option<Vec<Event>> {
    let (job, holding) = (live.job, live.holding()?);
    let asked = asked_until_later(holding, live.now);
    if asked.is_empty() || !may_stay(live, &asked) {
        return None;
    }
    let tasks = numbers(asked);
    let broken = job.spec.is_broken_with(holding.alive().chain(tasks.iter().copied()));
    // A job with groups that was to leave whole waited for no repair meanwhile.
    let since = job.spec.has_groups().then(|| repair_deadline(live.state, live.now));
    let deadline = holding.repair_by.or(since).filter(|_| broken);
    let stays = (!live.is_active()).then(|| live.stays());
    let broken = deadline.map(|deadline| live.broken(deadline));
    Some(stays.into_iter().chain([live.withdrawn(tasks)]).chain(broken).collect())
}

/// True when the places are free still, and so is the guarantee that work needs which may not borrow. A whole job also needs
/// its minimum, with no task further on its way out.
fn may_stay(live: LiveJob<'_>, asked: &[&HeldTask]) -> bool {
    let spec = &live.job.spec;
    let holding = live.holding().expect("what was asked is held");
    let below_min = !spec.is_met_by(asked.iter().map(|task| task.place.task).chain(holding.done()));
    if !live.is_active() && (below_min || asked.len() < holding.holding_tasks().len()) {
        return false;
    }
    let rooms = live.state.ledger.rooms();
    let fits_beside = |task: &&HeldTask| {
        let here = asked.iter().filter(|other| other.place.node == task.place.node);
        let needed = here.map(|other| spec.resources_of(other.place.task));
        let needed = needed.fold(Resources::default(), |sum, each| sum + each);
        rooms.get(task.place.node).is_some_and(|room| room.free().covers(&needed))
    };
    !is_fixed_beyond(live, asked)
        && asked.iter().all(|task| is_free(live.state, &task.place, asked, spec.trust))
        && asked.iter().all(fits_beside)
}

/// True when these tasks may not borrow, and would pass a guarantee together with what does not leave.
fn is_fixed_beyond(live: LiveJob<'_>, asked: &[&HeldTask]) -> bool {
    let (state, spec) = (live.state, &live.job.spec);
    let (policy, key) = (state.tenants.policy(), KindKey::of(spec));
    if !lines::is_fixed(&lines::work_group(&key), policy) {
        return false;
    }
    let tree = state.tree(policy);
    let none = Amounts::new();
    let mut draft = Draft::on(state, policy, &tree, &none, live.now);
    let places: Vec<Placement> = asked.iter().map(|task| task.place).collect();
    let ask = draft.asks().of_places(&key, spec, &places);
    ask.is_some_and(|ask| lines::fixed_beyond(&mut draft, &ask).is_some())
}

/// True when the planned room on the GPUs of a place is free for all of the tasks that are on them.
fn is_free(state: &State, place: &Placement, tasks: &[&HeldTask], trust: TrustId) -> bool {
    let Some(room) = state.ledger.rooms().get(place.node) else { return false };
    place.gpus.indexes().all(|at| {
        let Some(gpu) = room.gpus.get(at) else { return false };
        let on_it = tasks.iter().filter(|task| task.place.node == place.node && task.place.gpus.contains(at));
        if place.slice.is_some() {
            return are_free(gpu, room.mig, on_it.filter_map(|task| task.place.slice));
        }
        let free = gpu.free_for_share(trust, place.time_sliced);
        free.parts() >= on_it.map(|task| task.place.units_each.parts()).sum()
    })
}

/// True when these slices could be cut out of a GPU together, beside what is planned there.
fn are_free(gpu: &GpuRoom, mig: Option<&Mig>, mut slices: impl Iterator<Item = Slice>) -> bool {
    let (Some(mig), Some(mut layout)) = (mig, gpu.open_layout()) else { return false };
    slices.all(|slice| {
        let allowed = layout.allows(mig, slice);
        layout = layout.with(slice);
        allowed
    })
}
