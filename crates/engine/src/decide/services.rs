//! Services: inference jobs of independent replicas whose wanted number changes.
//!
//! What a service lacks it gets as every elastic job grows, but its replicas up to the wanted number are no surplus: they
//! are served, and make room, as minimums are. What it has too much it lets go, the newest replicas first, each after it
//! had its grace. A replica that is over, however it ended, is replaced without the others; only the last one's end is the
//! end of the attempt. A replica that ends by itself soon after its start counts as a failure of the job, so that a service that
//! cannot run ends instead of starting replicas for ever.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::Decision;
use super::conclude::TaskNews;
use crate::model::exit::Exit;
use crate::model::rejection::Rejection;
use crate::state::State;
use crate::state::earmarks::EarmarksEvent;
use crate::state::event::Event;
use crate::state::holding::{HeldTask, Holding, TaskPhase};
use crate::state::jobs::event::{JobsEvent, Next};
use crate::state::jobs::{Job, Phase};
use crate::state::ledger::event::{Asker, LedgerEvent};
use crate::units::{JobId, Timestamp};

/// Another number of replicas is wanted.
pub(super) fn scale(state: &State, id: JobId, tasks: u32, now: Timestamp) -> Result<Decision, Rejection> {
    let job = state.jobs.get(id).ok_or(Rejection::NoSuchJob)?;
    let service = job.spec.service.ok_or(Rejection::NotAService)?;
    if tasks < job.spec.min || tasks > service.max {
        let (min, max) = (job.spec.min, service.max);
        return Err(Rejection::ReplicasOutOfRange { given: tasks, min, max });
    }
    if matches!(job.phase, Phase::Leaving(Next::End(_))) {
        return Err(Rejection::Ending);
    }
    if tasks == job.wanted() {
        return Err(Rejection::NothingToDo);
    }
    let mut events = alloc::vec![Event::Jobs(JobsEvent::Scaled { job: id, tasks, at: now })];
    let more = job.spec.tasks - job.wanted();
    events.extend(let_go(state, id, job, tasks.saturating_add(more), now));
    Ok(Decision { events, job: Some(id) })
}

/// Services that have more replicas than they want, because somebody who had been asked to leave stayed after all.
/// Those that are being replaced and go a step further at this moment are looked at afterwards.
pub(super) fn due(state: &State, stepping: &BTreeSet<JobId>, now: Timestamp) -> Vec<Event> {
    let services = state
        .jobs
        .services()
        .iter()
        .filter(|id| !stepping.contains(id))
        .filter_map(|&id| Some((id, state.jobs.get(id)?)));
    services.flat_map(|(id, job)| let_go(state, id, job, job.spec.tasks, now)).collect()
}

/// What a service has beyond the wanted number: what is promised to it, then its newest replicas.
fn let_go(state: &State, id: JobId, job: &Job, wanted: u32, now: Timestamp) -> Vec<Event> {
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    let promised = state.earmarks.of(id).map_or(0, |earmark| earmark.tasks.len());
    let staying: Vec<&HeldTask> = match job.phase {
        Phase::Waiting => Vec::new(),
        Phase::Leaving(_) => return Vec::new(),
        Phase::Active => state.ledger.holding(id).into_iter().flat_map(Holding::staying).collect(),
    };
    let mut events = Vec::new();
    if promised > 0 && staying.len() + promised > wanted {
        events.push(Event::Earmarks(EarmarksEvent::Released { job: id, at: now }));
    }
    // Numbers count up within an attempt: the last are the newest. But those that are to be replaced go before fresh ones.
    let mut staying = staying;
    staying.sort_by_key(|task| job.rolling.is_some_and(|rolling| rolling.is_old(task)));
    let too_many = staying.get(wanted..).unwrap_or_default();
    events.extend(tell_to_go(state, id, job, too_many, Asker::Scale, now));
    events
}

/// Replicas go, each after it had its grace.
pub(super) fn tell_to_go(
    state: &State,
    id: JobId,
    job: &Job,
    replicas: &[&HeldTask],
    by: Asker,
    now: Timestamp,
) -> Vec<Event> {
    let mut events = Vec::new();
    let saves = |task: &&&HeldTask| job.spec.checkpoint.is_some() && task.phase == TaskPhase::Running;
    let (asked, stopped): (Vec<&HeldTask>, Vec<&HeldTask>) = replicas.iter().partition(|task| saves(task));
    let numbers = |tasks: Vec<&HeldTask>| tasks.into_iter().map(|task| task.place.task).collect::<Vec<u32>>();
    if !asked.is_empty() {
        let (tasks, deadline) = (numbers(asked), now + job.spec.grace());
        events.push(Event::Ledger(LedgerEvent::Asked { job: id, tasks, by, deadline, at: now }));
    }
    if !stopped.is_empty() {
        events.push(state.stop(id, numbers(stopped), now));
    }
    events
}

/// True when a task that is over leaves a service that goes on without it.
pub(super) fn goes_on(job: &Job, holding: &Holding) -> bool {
    job.spec.service.is_some() && job.phase == Phase::Active && holding.holding_tasks().len() > 1
}

/// A replica that ended by itself soon after its start, of a service that goes on.
pub(super) fn failure(
    state: &State,
    id: JobId,
    job: &Job,
    holding: &Holding,
    task: u32,
    learnt: &TaskNews,
) -> Option<Event> {
    // A replica is not meant to end: one that does at once, even well, would be started for ever.
    let TaskNews::Over { exit: Exit::Failed | Exit::Succeeded, at, .. } = *learnt else { return None };
    let held = holding.task(task).filter(|held| held.stays())?;
    let soon = held.since.is_none_or(|since| at < since + state.tenants.policy().retry_backoff_max);
    (soon && goes_on(job, holding)).then_some(Event::Jobs(JobsEvent::ReplicaFailed { job: id, at }))
}

/// True when a service has seen more failures than it survives, with those that were just learnt of.
pub(super) fn failed_too_often(job: &Job, events: &[Event]) -> bool {
    let now = events.iter().filter(|event| matches!(event, Event::Jobs(JobsEvent::ReplicaFailed { .. })));
    let now = u32::try_from(now.count()).unwrap_or(u32::MAX);
    now > 0 && job.past.failures.saturating_add(now) > job.spec.retries
}
