//! Earmarks, and the asks to leave that serve them and others.
//!
//! A job starts or grows on the places that are set aside for it, or they are released. An ask that serves nobody any more is
//! taken back: the work stays, unless it has saved its state or its places are spoken for.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::conclude::repair_deadline;
use super::live::{LiveJob, numbers};
use crate::device::catalogue::Mig;
use crate::device::geometry::Slice;
use crate::model::placement::Placement;
use crate::plan::draft::Draft;
use crate::plan::lines;
use crate::quota::meters::Amounts;
use crate::quota::tree::Tree;
use crate::state::State;
use crate::state::earmarks::Earmark;
use crate::state::event::Event;
use crate::state::holding::{HeldTask, TaskPhase};
use crate::state::jobs::{KindKey, Phase};
use crate::state::ledger::event::{Asker, EvictionRule, LedgerEvent};
use crate::state::rooms::GpuRoom;
use crate::units::{JobId, Resources, Timestamp, TrustId};

/// Clear places go to their job; an earmark that cannot be kept is released. Jobs in `leaving` are told to go at this moment.
pub(super) fn due(state: &State, leaving: &BTreeSet<JobId>, now: Timestamp) -> Vec<Event> {
    if state.earmarks.iter().next().is_none() {
        return Vec::new();
    }
    let tree = state.tree(state.tenants.policy());
    let mut used = tree.subtree_use(&state.own_use(&tree));
    let planned = tree.subtree_use(&state.own_use_after_leaving(&tree));
    let live = |(job, earmark)| (LiveJob::of(state, job, now), earmark);
    let earmarks = || state.earmarks.iter().map(live);
    let lost = earmarks().filter(|&(live, earmark)| is_lost(live, earmark, &tree, &planned));
    let lost: BTreeSet<JobId> = lost.flat_map(|(live, _)| [Some(live.id), mover(live)]).flatten().collect();
    let due = |(live, earmark): (LiveJob<'_>, &Earmark)| {
        if lost.contains(&live.id) {
            return Some(live.without_earmark());
        }
        honoured(live, earmark, &tree, &mut used)
    };
    earmarks().filter(|(live, _)| !leaving.contains(&live.id)).filter_map(due).collect()
}

/// The job that this one is moved for, until its work is saved: if it loses its new place it keeps the old one.
fn mover(live: LiveJob<'_>) -> Option<JobId> {
    let holding = live.holding()?;
    let Some(Asker::Rules { why: EvictionRule::Move, beneficiary }) = holding.asked_by else { return None };
    holding.asked_until().map(|_| beneficiary)
}

/// True when a place is gone, a limit was lowered below what is planned, or the places no longer repair the gang.
fn is_lost(live: LiveJob<'_>, earmark: &Earmark, tree: &Tree, planned: &Amounts) -> bool {
    let spec = &live.job.spec;
    let amount = tree.charge_of(|task| spec.resources_of(task), earmark.tasks.iter());
    let beyond = tree.lineage(spec.tenant).any(|tenant| {
        let (quotas, planned) = (&tree.lines[tenant.index()].quotas, &planned[tenant.index()]);
        let is_beyond = |meter: usize| quotas[meter].limit.cap(planned[meter]) < planned[meter];
        (0..amount.len()).any(|meter| amount[meter] > 0 && is_beyond(meter))
    });
    beyond
        || repairs_too_little(live, earmark)
        || !earmark.tasks.iter().all(|place| live.state.ledger.rooms().is_open_at(place))
}

/// True when a gang lost more since its places were earmarked: with them it would still be below its minimum.
fn repairs_too_little(live: LiveJob<'_>, earmark: &Earmark) -> bool {
    let spec = &live.job.spec;
    let Some(holding) = live.holding().filter(|_| live.is_active()) else { return false };
    let earmarked: Vec<u32> = earmark.tasks.iter().map(|place| place.task).collect();
    let with: Vec<u32> = holding.alive().chain(earmarked.iter().copied()).collect();
    // Of a job with groups, the copy that was to grow may have lost what it had.
    let too_late =
        spec.has_groups() && spec.of_broken_copies(&with).iter().any(|task| earmarked.contains(task));
    too_late || !spec.is_met_by(with.into_iter())
}

/// The start on earmarked places, or the growth, once they are clear and within the limits.
fn honoured(live: LiveJob<'_>, earmark: &Earmark, tree: &Tree, used: &mut Amounts) -> Option<Event> {
    let LiveJob { state, id, job, now } = live;
    let clear =
        |place: &Placement| state.ledger.rooms().get(place.node).is_some_and(|room| room.is_clear(place));
    // Tasks that leave still count towards a limit until they are gone.
    let amount = tree.charge_of(|task| job.spec.resources_of(task), earmark.tasks.iter());
    // A job that is moved has to let go of its old places first.
    let moving = matches!(job.phase, Phase::Leaving(_));
    if moving || !earmark.tasks.iter().all(clear) || !tree.count_within_limits(used, job.spec.tenant, &amount)
    {
        return None;
    }
    let (tasks, policy) = (earmark.tasks.clone(), earmark.policy);
    Some(Event::Ledger(if live.is_active() {
        LedgerEvent::Grown { job: id, tasks, policy, at: now }
    } else {
        let (attempt, chosen) = (job.past.attempts + 1, earmark.chosen);
        LedgerEvent::Started { job: id, attempt, tasks, policy, at: now, chosen }
    }))
}

/// Takes back every ask whose reason is gone. Jobs in `leaving` are told to go at this moment.
pub(super) fn asks_no_longer_needed(state: &State, leaving: &BTreeSet<JobId>, now: Timestamp) -> Vec<Event> {
    let asked = state.ledger.deadlines().iter().filter(|(_, job)| !leaving.contains(job));
    let asked = asked.map(|&(_, job)| LiveJob::of(state, job, now));
    asked
        .filter(|&live| !is_needed(live) && !has_to_go_anyway(live))
        .filter_map(take_back)
        .flatten()
        .collect()
}

/// A node of it has to be empty: it would be asked again at once.
fn has_to_go_anyway(live: LiveJob<'_>) -> bool {
    let mut held = live.holding().into_iter().flat_map(|holding| &holding.tasks).filter(|task| task.holds());
    held.any(|task| live.state.has_to_go(task.place.node, live.id, live.now))
}

fn is_needed(live: LiveJob<'_>) -> bool {
    let state = live.state;
    let holding = live.holding().expect("a deadline belongs to a holding");
    match holding.asked_by {
        Some(Asker::Rules { beneficiary, .. }) => {
            state.earmarks.of(beneficiary).is_some() || state.reservations.of(beneficiary).is_some()
        }
        // It is in the way of the window, or runs in it and has to leave at its end.
        Some(Asker::Booking { booking }) => state.bookings.get(booking).is_some_and(|known| {
            live.job.spec.booking == Some(booking)
                || holding.tasks.iter().any(|task| known.meets(&task.place))
        }),
        Some(Asker::Drain { node }) => state.to_be_empty(node).any(|limit| limit.asks(live.job)),
        Some(Asker::Lever { .. } | Asker::Limit | Asker::Scale | Asker::Replace) | None => true,
    }
}

/// The ask is taken back, if everything that was asked may stay.
pub(super) fn take_back(live: LiveJob<'_>) -> Option<Vec<Event>> {
    let (job, holding) = (live.job, live.holding()?);
    let in_time =
        |task: &&HeldTask| matches!(task.phase, TaskPhase::Asked { deadline, .. } if deadline > live.now);
    let asked: Vec<&HeldTask> = holding.tasks.iter().filter(in_time).collect();
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

/// True when the places, and the guarantee of work that may not borrow, are free still. A whole job also needs its minimum.
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
