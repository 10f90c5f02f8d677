//! Places that are set aside for a job, and who still has to leave them.

use std::collections::BTreeSet;

use wharf_api::v1::{EarmarkView, LeavingStep, LeavingView};
use wharf_engine::model::placement::Placement;
use wharf_engine::state::State;
use wharf_engine::state::holding::{HeldTask, Presence, TaskPhase};
use wharf_engine::units::{JobId, Timestamp};

use crate::view::placement;

/// What a job was promised; which eviction told whom to leave is for history to say.
pub(crate) fn earmark(state: &State, id: JobId) -> Option<EarmarkView> {
    let (job, promise) = (state.jobs.get(id)?, state.earmarks.of(id)?);
    let leaving = in_the_way(state, id).into_iter().filter_map(|(job, task)| leaving(state, job, task));
    Some(EarmarkView {
        since_ms: promise.at.0,
        places: promise.tasks.iter().map(|place| placement(state, &job.spec, place)).collect(),
        leaving: leaving.collect(),
    })
}

/// Tasks that still have to leave the places that a job was promised, in job order.
pub(crate) fn in_the_way(state: &State, job: JobId) -> BTreeSet<(JobId, u32)> {
    let places = state.earmarks.of(job).into_iter().flat_map(|promise| &promise.tasks);
    places.flat_map(|place| on_their_way(state, place)).collect()
}

/// Who leaves the GPUs of a place; where none of them is in the way, who leaves CPU and memory of its node.
fn on_their_way(state: &State, place: &Placement) -> Vec<(JobId, u32)> {
    let is_clear = state.ledger.rooms().get(place.node).is_none_or(|room| room.is_clear(place));
    if is_clear {
        return Vec::new();
    }
    let leaves = |&(job, task): &(JobId, u32)| {
        held(state, job, task).is_some_and(|held| held.presence() == Presence::Leaves)
    };
    let on_gpus = |&(job, task): &(JobId, u32)| {
        held(state, job, task)
            .is_some_and(|held| held.place.gpus.indexes().any(|gpu| place.gpus.contains(gpu)))
    };
    let on_node: Vec<(JobId, u32)> = state.ledger.tasks_on(place.node).filter(leaves).collect();
    let in_the_way: Vec<(JobId, u32)> = on_node.iter().copied().filter(on_gpus).collect();
    if in_the_way.is_empty() { on_node } else { in_the_way }
}

fn held(state: &State, job: JobId, task: u32) -> Option<&HeldTask> {
    state.ledger.holding(job)?.task(task)
}

fn leaving(state: &State, id: JobId, task: u32) -> Option<LeavingView> {
    let job = state.jobs.get(id)?;
    let held = held(state, id, task)?;
    let (step, deadline) = step(held.phase)?;
    Some(LeavingView {
        job: job.spec.name.clone(),
        tenant: state.tenants.path(job.spec.tenant).to_owned(),
        place: placement(state, &job.spec, &held.place),
        step,
        deadline_ms: deadline.map(|deadline| deadline.0),
        eviction: None,
    })
}

fn step(phase: TaskPhase) -> Option<(LeavingStep, Option<Timestamp>)> {
    match phase {
        TaskPhase::Asked { deadline, .. } => Some((LeavingStep::Asked, Some(deadline))),
        TaskPhase::Acked { .. } => Some((LeavingStep::Saved, None)),
        TaskPhase::Stopping { deadline } => Some((LeavingStep::Stopping, Some(deadline))),
        TaskPhase::Bound | TaskPhase::Running | TaskPhase::Gone { .. } => None,
    }
}
