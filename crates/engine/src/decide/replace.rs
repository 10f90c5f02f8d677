//! Rolling replacement: every replica of a service makes way for a fresh one, and the service never notices.
//!
//! Worked example: three replicas are wanted, one more may run for the time. A fourth is asked for; when it runs, the oldest goes;
//! its place, or another, is for the next fresh one, and so on until all three are fresh. Where no fourth finds room within
//! the time in which a gang is repaired, the service does with one less, if that may be: the oldest goes first then, and a fresh
//! one takes its place. Running replicas are counted, never those that are only placed, so that the number that serves does not fall
//! below the wanted one, or below it less what may be missing, and never below the minimum.

use alloc::vec::Vec;

use super::Decision;
use super::services::tell_to_go;
use crate::decide::input::Replacement;
use crate::model::rejection::Rejection;
use crate::state::State;
use crate::state::event::Event;
use crate::state::holding::{HeldTask, Holding, TaskPhase};
use crate::state::jobs::event::{JobsEvent, Next};
use crate::state::jobs::{Job, Phase, Rolling};
use crate::state::ledger::event::Asker;
use crate::units::{JobId, Timestamp};

/// Every replica is to be replaced by a fresh one.
pub(super) fn replace(
    state: &State,
    id: JobId,
    how: Replacement,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let job = live_service(state, id)?;
    let holding = state.ledger.holding(id).filter(|_| job.phase == Phase::Active);
    let holding = holding.ok_or(Rejection::NotRunning)?;
    let spare = job.wanted().saturating_sub(job.spec.min).min(how.unavailable);
    if how.surge == 0 && spare == 0 {
        return Err(Rejection::NoneToSpare { min: job.spec.min });
    }
    let last = holding.tasks.iter().map(|task| task.place.task).max().unwrap_or_default();
    let rolling = Rolling {
        below: last + 1,
        wanted: job.wanted(),
        surge: how.surge,
        unavailable: how.unavailable,
        since: now,
    };
    let old = count(holding.staying().count());
    Ok(Decision { events: alloc::vec![rolled(id, Some(rolling), old, now)], job: Some(id) })
}

/// Those that were not replaced yet stay.
pub(super) fn stop(state: &State, id: JobId, now: Timestamp) -> Result<Decision, Rejection> {
    let job = live_service(state, id)?;
    let wanted = job.rolling.map(|rolling| rolling.wanted).ok_or(Rejection::NothingToDo)?;
    let event = JobsEvent::Rolled { job: id, tasks: wanted, rolling: None, at: now };
    Ok(Decision { events: alloc::vec![Event::Jobs(event)], job: Some(id) })
}

fn live_service(state: &State, id: JobId) -> Result<&Job, Rejection> {
    let job = state.jobs.get(id).ok_or(Rejection::NoSuchJob)?;
    if job.spec.service.is_none() {
        return Err(Rejection::NotAService);
    }
    if matches!(job.phase, Phase::Leaving(Next::End(_))) {
        return Err(Rejection::Ending);
    }
    Ok(job)
}

/// The next step of every replacement that can make one.
pub(super) fn due(state: &State, now: Timestamp) -> Vec<Event> {
    let services = state.jobs.services().iter().filter_map(|&id| Some((id, state.jobs.get(id)?)));
    services.flat_map(|(id, job)| step(state, id, job, now)).collect()
}

fn step(state: &State, id: JobId, job: &Job, now: Timestamp) -> Vec<Event> {
    let Some(mut rolling) = job.rolling.filter(|_| job.phase == Phase::Active) else { return Vec::new() };
    let staying: Vec<&HeldTask> = state.ledger.holding(id).into_iter().flat_map(Holding::staying).collect();
    let old: Vec<&HeldTask> = staying.iter().copied().filter(|task| rolling.is_old(task)).collect();
    if old.is_empty() {
        let event = JobsEvent::Rolled { job: id, tasks: rolling.wanted, rolling: None, at: now };
        return alloc::vec![Event::Jobs(event)];
    }
    let waited = now >= rolling.since + state.tenants.policy().gangs.repair_within;
    let no_more = count(staying.len()) <= rolling.wanted && state.earmarks.of(id).is_none();
    let less = job.replaces_with_less() && waited && no_more;
    if less {
        rolling.surge = 0;
    }
    let runs = |task: &&HeldTask| task.phase == TaskPhase::Running;
    let running = count(staying.iter().filter(|task| runs(task)).count());
    let floor =
        if rolling.surge > 0 { rolling.wanted.max(job.spec.min) } else { rolling.floor(job.spec.min) };
    // An old one that does not run yet serves nobody: it goes at once, where enough run without it.
    let (old_running, mut go): (Vec<&HeldTask>, Vec<&HeldTask>) = old.iter().copied().partition(runs);
    let may_go = usize::try_from(running.saturating_sub(floor)).unwrap_or(usize::MAX);
    go.extend(old_running.into_iter().take(may_go));
    if running < floor {
        go.clear();
    }
    if go.is_empty() && !less {
        return Vec::new();
    }
    let rest = count(old.len() - go.len());
    let mut events = alloc::vec![rolled(id, Some(Rolling { since: now, ..rolling }), rest, now)];
    events.extend(tell_to_go(state, id, job, &go, Asker::Replace, now));
    events
}

/// As many more than wanted as may be, but no more than there are old ones to replace.
fn rolled(job: JobId, rolling: Option<Rolling>, old: u32, at: Timestamp) -> Event {
    let tasks = rolling.map_or(0, |rolling| rolling.wanted + rolling.surge.min(old));
    Event::Jobs(JobsEvent::Rolled { job, tasks, rolling, at })
}

fn count(tasks: usize) -> u32 {
    u32::try_from(tasks).unwrap_or(u32::MAX)
}
