//! GPU time, row by row: what a job held and for how long, written when it lets go.
//!
//! Each row tells of tasks whose record leaves the ledger with the event it is projected from: a task that an elastic
//! job or a service gave up, tasks that were lost and replaced, or all tasks of an attempt that is over. Every task is
//! therefore told of once, and the rows together with what is held now are all that was ever held. Tasks with the
//! same span are added up, so that a gang is one segment.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wharf_engine::model::exit::{Exit, Outcome};
use wharf_engine::model::observed::TaskRef;
use wharf_engine::model::placement::Placement;
use wharf_engine::state::State;
use wharf_engine::state::holding::{HeldTask, Holding, TaskPhase};
use wharf_engine::state::jobs::event::Next;
use wharf_engine::state::jobs::{Job, Phase};
use wharf_engine::units::{GpuUnits, JobId, Timestamp};

use super::uid;
use crate::world::Samples;

/// The body of a row about GPU time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub uid: String,
    pub class: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<(String, String)>,
    /// Who submitted it, as the client said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub submitted_by: String,
    pub attempt: u32,
    pub segments: Vec<Segment>,
    /// GPU time in which the tasks ran, in milliseconds of one GPU: without the time from the decision to the start.
    pub ran_gpu_ms: u64,
    /// The same weighted by how busy the tasks kept their GPUs, the mean of SM_ACTIVE; `None` where that is not known of
    /// one of them.
    #[serde(default)]
    pub used_gpu_ms: Option<u64>,
    /// The part of it that was thrown away by an eviction, a loss or a failure: work since the last checkpoint.
    #[serde(default)]
    pub lost_gpu_ms: u64,
}

/// GPUs that were held for a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    pub from_ms: u64,
    pub to_ms: u64,
    /// In 1/3000 of a GPU.
    pub gpu_parts: u64,
}

impl Segment {
    /// GPU time between two moments, in milliseconds of 1/3000 of a GPU.
    pub fn part_ms_within(&self, from_ms: u64, to_ms: u64) -> u128 {
        let span = self.to_ms.min(to_ms).saturating_sub(self.from_ms.max(from_ms));
        u128::from(span) * u128::from(self.gpu_parts)
    }
}

/// Part-milliseconds as milliseconds of one GPU.
pub fn gpu_ms(part_ms: u128) -> u64 {
    u64::try_from(part_ms / u128::from(GpuUnits::WHOLE.parts())).unwrap_or(u64::MAX)
}

/// What a job holds now, as if it let go at `now`; `samples` tell how busy its tasks were so far.
pub fn held_now(state: &State, id: JobId, samples: &Samples, now: Timestamp) -> Option<Usage> {
    let job = state.jobs.get(id)?;
    let holding = state.ledger.holding(id)?;
    let busy = |task: &HeldTask| {
        let named = TaskRef { uid: job.uid, task: task.place.task, attempt: holding.attempt };
        if task.holds() { samples.tasks.get(&named)?.sm_active_mean_milli } else { task.sm_active_milli }
    };
    Some(of_tasks(job, holding, holding.tasks.iter(), busy, now))
}

/// All tasks of an attempt that is over.
pub(super) fn of_attempt(
    state: &State,
    id: JobId,
    outcome: Option<Outcome>,
    now: Timestamp,
) -> Option<Usage> {
    let job = state.jobs.get(id)?;
    let holding = state.ledger.holding(id)?;
    let mut usage = of_tasks(job, holding, holding.tasks.iter(), busy_at_end, now);
    let thrown_away = match outcome {
        // A job that waits again starts from its last checkpoint.
        None => matches!(job.phase, Phase::Leaving(Next::Requeue(_))),
        Some(Outcome::Failed) => true,
        // What its owner or its limit ends is not lost to anybody's decision.
        Some(Outcome::Succeeded | Outcome::Cancelled | Outcome::TimedOut) => false,
    };
    if thrown_away {
        usage.lost_gpu_ms = lost(job, holding, holding.tasks.iter(), now);
    }
    Some(usage)
}

/// How a task that its job goes on without ended.
pub(super) struct TaskEnd {
    pub(super) task: u32,
    pub(super) exit: Option<Exit>,
    /// How busy it was.
    pub(super) sm_active_milli: Option<u16>,
    pub(super) at: Timestamp,
}

/// One task that the job goes on without.
pub(super) fn of_task(state: &State, id: JobId, end: &TaskEnd) -> Option<Usage> {
    let (job, holding) = (state.jobs.get(id)?, state.ledger.holding(id)?);
    let held = holding.task(end.task)?;
    let mut usage = of_tasks(job, holding, core::iter::once(held), |_| end.sm_active_milli, end.at);
    if end.exit != Some(Exit::Succeeded) {
        usage.lost_gpu_ms = lost(job, holding, core::iter::once(held), end.at);
    }
    Some(usage)
}

/// Tasks that were lost and whose record new tasks replace; `None` where there are none.
pub(super) fn of_replaced(state: &State, id: JobId, now: Timestamp) -> Option<Usage> {
    let (job, holding) = (state.jobs.get(id)?, state.ledger.holding(id)?);
    let replaced = holding
        .tasks
        .iter()
        .filter(|task| matches!(task.phase, TaskPhase::Gone { exit: Exit::Lost | Exit::Stopped, .. }));
    let mut usage = of_tasks(job, holding, replaced.clone(), busy_at_end, now);
    usage.lost_gpu_ms = lost(job, holding, replaced, now);
    (!usage.segments.is_empty()).then_some(usage)
}

fn busy_at_end(task: &HeldTask) -> Option<u16> {
    task.sm_active_milli
}

fn of_tasks<'a>(
    job: &Job,
    holding: &Holding,
    tasks: impl Iterator<Item = &'a HeldTask>,
    busy: impl Fn(&HeldTask) -> Option<u16>,
    now: Timestamp,
) -> Usage {
    let mut spans: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    let (mut ran, mut used) = (0, Some(0));
    for task in tasks {
        let (parts, to) = (parts_of(&task.place), until(task, now));
        let of_task = part_ms(parts, task.since, to);
        ran += of_task;
        if of_task > 0 {
            let busy = busy(task).map(|milli| of_task * u128::from(milli) / 1000);
            used = used.zip(busy).map(|(used, busy)| used + busy);
        }
        let from = bound_at(holding, task);
        if parts > 0 {
            *spans.entry((from.0, to.0.max(from.0))).or_default() += parts;
        }
    }
    let segment = |((from_ms, to_ms), gpu_parts)| Segment { from_ms, to_ms, gpu_parts };
    Usage {
        uid: uid(job),
        class: job.spec.class.into_str().to_owned(),
        labels: job.spec.labels.clone(),
        submitted_by: job.spec.submitted_by.clone(),
        attempt: holding.attempt,
        segments: spans.into_iter().map(segment).collect(),
        ran_gpu_ms: gpu_ms(ran),
        used_gpu_ms: used.map(gpu_ms),
        lost_gpu_ms: 0,
    }
}

/// Work of tasks since their last checkpoint. What a service has served is not lost with a replica.
fn lost<'a>(job: &Job, holding: &Holding, tasks: impl Iterator<Item = &'a HeldTask>, now: Timestamp) -> u64 {
    if job.spec.service.is_some() {
        return 0;
    }
    gpu_ms(tasks.map(|task| lost_part_ms(job, holding, task, now)).sum())
}

/// Work of a task since its last checkpoint.
fn lost_part_ms(job: &Job, holding: &Holding, task: &HeldTask, now: Timestamp) -> u128 {
    let (Some(since), to) = (task.since, until(task, now)) else { return 0 };
    if matches!(task.phase, TaskPhase::Gone { exit: Exit::Succeeded, .. }) {
        return 0;
    }
    let by_itself = job.spec.checkpoint.and_then(|checkpoint| {
        let periods = (to - since).0.checked_div(checkpoint.every.0)?;
        Some(Timestamp(since.0.saturating_add(periods * checkpoint.every.0)))
    });
    let saved = [Some(since), by_itself, holding.saved_at].into_iter().flatten().max();
    part_ms(parts_of(&task.place), saved, to)
}

/// What a task holds in its place, in 1/3000 of a GPU.
pub(super) fn parts_of(place: &Placement) -> u64 {
    place.units_each.times(place.gpus.count()).parts()
}

/// When a task was given its place.
pub(super) fn bound_at(holding: &Holding, task: &HeldTask) -> Timestamp {
    if task.bound_at.0 == 0 { holding.at } else { task.bound_at }
}

fn until(task: &HeldTask, now: Timestamp) -> Timestamp {
    match task.phase {
        TaskPhase::Gone { at, .. } => at,
        TaskPhase::Bound
        | TaskPhase::Running
        | TaskPhase::Asked { .. }
        | TaskPhase::Acked { .. }
        | TaskPhase::Stopping { .. } => now,
    }
}

fn part_ms(parts: u64, from: Option<Timestamp>, to: Timestamp) -> u128 {
    let ran = from.map_or(0, |from| to.0.saturating_sub(from.0));
    u128::from(ran) * u128::from(parts)
}
