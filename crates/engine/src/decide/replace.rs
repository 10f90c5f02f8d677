//! Rolling replacement: every replica of a service makes way for a fresh one, and the service never notices.
//!
//! Worked example: three replicas are wanted, one more may run for the time. A fourth is asked for; when it runs, the oldest goes;
//! its place, or another, is for the next fresh one, and so on until all three are fresh. Where no fourth finds room within
//! the time in which a gang is repaired, the service does with one less, if that may be: the oldest goes first then, and a fresh
//! one takes its place. Running replicas are counted, never those that are only placed, so that the number that serves does not fall
//! below the wanted one, or below it less what may be missing, and never below the minimum.

use alloc::vec::Vec;

use super::Decision;
use super::live::LiveJob;
use crate::decide::input::Replacement;
use crate::model::rejection::Rejection;
use crate::state::State;
use crate::state::event::Event;
use crate::state::holding::{HeldTask, Holding, TaskPhase};
use crate::state::jobs::event::{JobsEvent, Next};
use crate::state::jobs::{Phase, Rolling};
use crate::state::ledger::event::Asker;
use crate::units::{JobId, Timestamp};

/// Every replica is to be replaced by a fresh one.
pub(super) fn replace(live: LiveJob<'_>, how: Replacement) -> Result<Decision, Rejection> {
    check_service(live)?;
    let (job, Replacement { surge, unavailable }) = (live.job, how);
    let holding = live.holding().filter(|_| live.is_active()).ok_or(Rejection::NotRunning)?;
    let (wanted, min) = (job.wanted(), job.spec.min);
    if surge == 0 && wanted.saturating_sub(min).min(unavailable) == 0 {
        return Err(Rejection::NoneToSpare { min });
    }
    let last = holding.tasks.iter().map(|task| task.place.task).max().unwrap_or_default();
    let rolling = Rolling { below: last + 1, wanted, surge, unavailable, since: live.now };
    let old = count(holding.staying().count());
    Ok(Decision { events: alloc::vec![rolled(live, rolling, old)], job: Some(live.id) })
}

/// Replicas that were not replaced yet stay.
pub(super) fn stop(live: LiveJob<'_>) -> Result<Decision, Rejection> {
    check_service(live)?;
    let rolling = live.job.rolling.ok_or(Rejection::NothingToDo)?;
    Ok(Decision { events: alloc::vec![done(live, rolling)], job: Some(live.id) })
}

fn check_service(live: LiveJob<'_>) -> Result<(), Rejection> {
    if !live.is_service() {
        return Err(Rejection::NotAService);
    }
    if matches!(live.job.phase, Phase::Leaving(Next::End(_))) {
        return Err(Rejection::Ending);
    }
    Ok(())
}

/// The next step of every replacement that can make one.
pub(super) fn due(state: &State, now: Timestamp) -> impl Iterator<Item = (JobId, Vec<Event>)> {
    let services = state.jobs.services().iter();
    services.filter_map(move |&id| Some((id, step(LiveJob::of(state, id, now))?)))
}

fn step(live: LiveJob<'_>) -> Option<Vec<Event>> {
    let LiveJob { state, id, job, now } = live;
    let mut rolling = job.rolling.filter(|_| live.is_active())?;
    let staying: Vec<&HeldTask> = live.holding().into_iter().flat_map(Holding::staying).collect();
    let old: Vec<&HeldTask> = staying.iter().copied().filter(|task| rolling.is_old(task)).collect();
    if old.is_empty() {
        return Some(alloc::vec![done(live, rolling)]);
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
        return None;
    }
    let rest = count(old.len() - go.len());
    let mut events = alloc::vec![rolled(live, Rolling { since: now, ..rolling }, rest)];
    events.extend(live.lets_go_of(&go, Asker::Replace));
    Some(events)
}

/// A step further: as many more tasks than wanted as may be, but no more than there are old ones to replace.
fn rolled(live: LiveJob<'_>, rolling: Rolling, old: u32) -> Event {
    let tasks = rolling.wanted + rolling.surge.min(old);
    Event::Jobs(JobsEvent::Rolled { job: live.id, tasks, rolling: Some(rolling), at: live.now })
}

/// Nothing is replaced any more.
fn done(live: LiveJob<'_>, rolling: Rolling) -> Event {
    Event::Jobs(JobsEvent::Rolled { job: live.id, tasks: rolling.wanted, rolling: None, at: live.now })
}

fn count(tasks: usize) -> u32 {
    u32::try_from(tasks).unwrap_or(u32::MAX)
}
