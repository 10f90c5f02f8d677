//! Promises that can be kept now, promises that cannot be kept any more, and asks that serve nobody.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::conclude::repair_deadline;
use super::{bookings, emptied};
use crate::device::catalogue::Mig;
use crate::device::geometry::Slice;
use crate::model::job::Spec;
use crate::model::placement::Placement;
use crate::plan::draft::Draft;
use crate::plan::lines;
use crate::plan::place::groups;
use crate::quota::meters::Amounts;
use crate::quota::tree::Tree;
use crate::state::State;
use crate::state::earmarks::{Earmark, EarmarksEvent};
use crate::state::event::Event;
use crate::state::holding::{HeldTask, TaskPhase};
use crate::state::jobs::event::JobsEvent;
use crate::state::jobs::{KindKey, Phase};
use crate::state::ledger::event::{Asker, EvictionRule, LedgerEvent};
use crate::state::rooms::GpuRoom;
use crate::units::{JobId, Resources, Timestamp, TrustId};

/// Who was promised places and can have them starts there; who cannot have them waits as before.
pub(super) fn due(state: &State, told: &BTreeSet<JobId>, now: Timestamp) -> Vec<Event> {
    if state.earmarks.iter().next().is_none() {
        return Vec::new();
    }
    let tree = state.tree(state.tenants.policy());
    let mut used = tree.subtree_use(&state.own_use(&tree));
    let planned = tree.subtree_use(&state.own_planned(&tree));
    let mut broken: BTreeSet<JobId> = BTreeSet::new();
    for (job, _) in
        state.earmarks.iter().filter(|&(job, earmark)| is_broken(state, job, earmark, &tree, &planned))
    {
        broken.insert(job);
        broken.extend(moved_for(state, job));
    }
    let due = |(job, earmark)| {
        if broken.contains(&job) {
            return Some(Event::Earmarks(EarmarksEvent::Released { job, at: now }));
        }
        one_due(state, job, earmark, &tree, &mut used, now)
    };
    state.earmarks.iter().filter(|(job, _)| !told.contains(job)).filter_map(due).collect()
}

/// For whom a job is to be moved, while it has not saved its work: without its new place it keeps the old one.
fn moved_for(state: &State, job: JobId) -> Option<JobId> {
    let holding = state.ledger.holding(job)?;
    let Some(Asker::Rules { why: EvictionRule::Move, beneficiary }) = holding.asked_by else { return None };
    holding.asked_until().map(|_| beneficiary)
}

/// True when a place is gone, or a limit was lowered below what is promised.
fn is_broken(state: &State, id: JobId, earmark: &Earmark, tree: &Tree, planned: &Amounts) -> bool {
    let spec = &state.jobs.get(id).expect("an earmark belongs to a live job").spec;
    let amount = tree.charge_of(|task| spec.resources_of(task), earmark.tasks.iter());
    let mut lineage = tree.lineage(spec.tenant);
    let beyond = lineage.any(|tenant| {
        let quotas = tree.lines[tenant.index()].quotas.iter().enumerate();
        let mut asked = quotas.filter(|&(meter, _)| amount[meter] > 0);
        asked.any(|(meter, quota)| {
            let planned = planned[tenant.index()][meter];
            quota.limit.cap(planned) < planned
        })
    });
    beyond
        || repairs_too_little(state, id, earmark)
        || !earmark.tasks.iter().all(|place| state.ledger.rooms().is_open_at(place))
}

/// True when a gang lost more since it was promised places: with them it would still be below its minimum.
fn repairs_too_little(state: &State, id: JobId, earmark: &Earmark) -> bool {
    let job = state.jobs.get(id).filter(|job| job.phase == Phase::Active);
    let (Some(job), Some(holding)) = (job, state.ledger.holding(id)) else { return false };
    let promised: Vec<u32> = earmark.tasks.iter().map(|place| place.task).collect();
    let with: Vec<u32> = holding.alive().chain(promised.iter().copied()).collect();
    // Of a job with groups, the copy that was to grow may have lost what it had.
    let too_late =
        job.spec.has_groups() && job.spec.of_broken_copies(&with).iter().any(|task| promised.contains(task));
    too_late || !job.spec.is_met_by(with.into_iter())
}

fn one_due(
    state: &State,
    id: JobId,
    earmark: &Earmark,
    tree: &Tree,
    used: &mut Amounts,
    now: Timestamp,
) -> Option<Event> {
    let job = state.jobs.get(id).expect("an earmark belongs to a live job");
    let (tasks, policy) = (earmark.tasks.clone(), earmark.policy);
    let clear =
        |place: &Placement| state.ledger.rooms().get(place.node).is_some_and(|room| room.is_clear(place));
    // Who leaves still counts towards a limit until it is gone.
    let amount = tree.charge_of(|task| job.spec.resources_of(task), earmark.tasks.iter());
    let moving = matches!(job.phase, Phase::Leaving(_));
    if moving || !earmark.tasks.iter().all(clear) || !tree.count_within_limits(used, job.spec.tenant, &amount)
    {
        return None;
    }
    match job.phase {
        Phase::Waiting => {
            let attempt = job.past.attempts + 1;
            let chosen = earmark.chosen;
            Some(Event::Ledger(LedgerEvent::Started { job: id, attempt, tasks, policy, at: now, chosen }))
        }
        Phase::Active => Some(Event::Ledger(LedgerEvent::Grown { job: id, tasks, policy, at: now })),
        // It is moved and has not let go of its old places.
        Phase::Leaving(_) => None,
    }
}

/// Work that was asked to leave for somebody who no longer needs it stays, unless it has saved its work or its
/// place is spoken for.
pub(super) fn withdrawals(state: &State, told: &BTreeSet<JobId>, now: Timestamp) -> Vec<Event> {
    let asked = state.ledger.deadlines().iter().filter(|(_, job)| !told.contains(job));
    asked.flat_map(|&(_, job)| withdrawal(state, job, now)).collect()
}

fn withdrawal(state: &State, id: JobId, now: Timestamp) -> Vec<Event> {
    let holding = state.ledger.holding(id).expect("a deadline belongs to a holding");
    let needed = match holding.asked_by {
        Some(Asker::Rules { beneficiary, .. }) => {
            state.earmarks.of(beneficiary).is_some() || state.reservations.of(beneficiary).is_some()
        }
        Some(Asker::Booking { booking }) => bookings::needs(state, booking, id, holding),
        Some(Asker::Drain { node }) => emptied::needs(state, node, id),
        Some(Asker::Lever { .. } | Asker::Limit | Asker::Scale | Asker::Replace) | None => true,
    };
    let asked = |task: &&HeldTask| matches!(task.phase, TaskPhase::Asked { deadline, .. } if deadline > now);
    let asked: Vec<&HeldTask> = holding.tasks.iter().filter(asked).collect();
    if asked.is_empty() || needed || !all_may_stay(state, id, &asked, now) {
        return Vec::new();
    }
    let tasks: Vec<u32> = asked.iter().map(|task| task.place.task).collect();
    let job = state.jobs.get(id).expect("what is held belongs to a live job");
    let broken = job.spec.is_broken_with(holding.alive().chain(tasks.iter().copied()));
    // A job with groups that was to leave whole waited for no repair meanwhile.
    let since = job.spec.has_groups().then(|| repair_deadline(state, now));
    let mut events = Vec::new();
    if job.phase != Phase::Active {
        events.push(Event::Jobs(JobsEvent::Stays { job: id, at: now }));
    }
    events.push(Event::Ledger(LedgerEvent::Withdrawn { job: id, tasks, at: now }));
    if let Some(deadline) = holding.repair_by.or(since).filter(|_| broken) {
        events.push(Event::Ledger(LedgerEvent::Broken { job: id, deadline, at: now }));
    }
    events
}

/// True when nobody was given the places meanwhile, nor the guarantee that work needs which may not borrow, and, for a whole
/// job, no task of it is further on its way out and its minimum is still there.
pub(super) fn all_may_stay(state: &State, id: JobId, asked: &[&HeldTask], now: Timestamp) -> bool {
    let holding = state.ledger.holding(id).expect("who was asked holds something");
    let job = state.jobs.get(id).expect("what is held belongs to a live job");
    let whole = job.phase != Phase::Active;
    let below_min = !job.spec.is_met_by(asked.iter().map(|task| task.place.task).chain(holding.done()));
    if whole && (below_min || asked.len() < holding.holding_tasks().len()) {
        return false;
    }
    !is_fixed_beyond(state, &job.spec, asked, now)
        && asked.iter().all(|task| is_free(state, &task.place, asked, job.spec.trust))
        && asked.iter().all(|task| {
            let room = state.ledger.rooms().get(task.place.node);
            let here = asked.iter().filter(|other| other.place.node == task.place.node);
            let needed = here.map(|other| job.spec.resources_of(other.place.task));
            let needed = needed.fold(Resources::default(), |sum, each| sum + each);
            room.is_some_and(|room| room.free().covers(&needed))
        })
}

/// True when these tasks may not borrow, and would pass a guarantee together with what does not leave.
fn is_fixed_beyond(state: &State, spec: &Spec, asked: &[&HeldTask], now: Timestamp) -> bool {
    let (policy, key) = (state.tenants.policy(), KindKey::of(spec));
    if !lines::is_fixed(&lines::work_group(&key), policy) {
        return false;
    }
    let tree = state.tree(policy);
    let none = Amounts::new();
    let mut draft = Draft::on(state, policy, &tree, &none, now);
    let places: Vec<Placement> = asked.iter().map(|task| task.place).collect();
    let ask = groups::of_places(draft.desk(), &key, spec, &places);
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
fn are_free(gpu: &GpuRoom, mig: Option<&Mig>, slices: impl Iterator<Item = Slice>) -> bool {
    let (Some(mig), Some(mut layout)) = (mig, gpu.open_layout()) else { return false };
    for slice in slices {
        if !layout.allows(mig, slice) {
            return false;
        }
        layout = layout.with(slice);
    }
    true
}
