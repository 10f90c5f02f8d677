//! Services: inference jobs of independent replicas whose wanted number changes, and that are replaced one after another.
//!
//! What a service lacks it gets as every elastic job grows, but its replicas up to the wanted number are no surplus: they
//! are served, and make room, as minimums are. What it has too much it lets go, the newest replicas first, each after it
//! had its grace. A replica that is over, however it ended, is replaced without the others; only the last one's end is the
//! end of the attempt. A replica that ends by itself soon after its start counts as a failure of the job, so that a service that
//! cannot run ends instead of starting replicas for ever.
//!
//! Worked example of a rolling replacement: three replicas are wanted, one more may run for the time. A fourth is asked for; when
//! it runs, the oldest goes; its place, or another, is for the next fresh one, and so on until all three are fresh. Where no
//! fourth finds room within the time in which a gang is repaired, the service does with one less, if that may be: the oldest
//! goes first then, and a fresh one takes its place. Running replicas are counted, never those that are only placed, so that the
//! number that serves does not fall below the wanted one, or below it less what may be missing, and never below the minimum.

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

pub(super) fn scale(live: LiveJob<'_>, tasks: u32) -> Result<Decision, Rejection> {
    let job = live.job;
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
    let scaled = Event::Jobs(JobsEvent::Scaled { job: live.id, tasks, at: live.now });
    let more = job.spec.tasks - job.wanted();
    live.decision([scaled].into_iter().chain(shrink(live, tasks.saturating_add(more))))
}

/// Services with too many replicas, because one that was asked to leave stayed after all. Busy ones shrink later.
pub(super) fn due(state: &State, is_busy: impl Fn(&JobId) -> bool, now: Timestamp) -> Vec<Event> {
    let services = state.jobs.services().iter().filter(|&id| !is_busy(id));
    let services = services.map(|&id| LiveJob::of(state, id, now));
    services.flat_map(|live| shrink(live, live.job.spec.tasks)).collect()
}

/// What a service has beyond the wanted number goes: what is earmarked for it, then its newest replicas.
fn shrink(live: LiveJob<'_>, wanted: u32) -> Vec<Event> {
    let job = live.job;
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    let earmarked = live.state.earmarks.of(live.id).map_or(0, |earmark| earmark.tasks.len());
    if matches!(job.phase, Phase::Leaving(_)) {
        return Vec::new();
    }
    let mut staying: Vec<&HeldTask> = live.holding().into_iter().flat_map(Holding::staying).collect();
    let too_many = earmarked > 0 && staying.len() + earmarked > wanted;
    let released = too_many.then(|| live.without_earmark());
    // Numbers count up within an attempt: the last are the newest. But those that are to be replaced go before fresh ones.
    staying.sort_by_key(|task| job.rolling.is_some_and(|rolling| rolling.is_old(task)));
    let too_many = staying.get(wanted..).unwrap_or_default();
    released.into_iter().chain(live.lets_go_of(too_many, Asker::Scale)).collect()
}

/// Every replica is to be replaced by a fresh one; `None`: those that were not replaced yet stay.
pub(super) fn replace(live: LiveJob<'_>, how: Option<Replacement>) -> Result<Decision, Rejection> {
    let job = live.job;
    if !live.is_service() {
        return Err(Rejection::NotAService);
    }
    if matches!(job.phase, Phase::Leaving(Next::End(_))) {
        return Err(Rejection::Ending);
    }
    let Some(Replacement { surge, unavailable }) = how else {
        return live.decision(job.rolling.map(|rolling| replaced(live, rolling)));
    };
    let holding = live.holding().filter(|_| live.is_active()).ok_or(Rejection::NotRunning)?;
    let (wanted, min) = (job.wanted(), job.spec.min);
    if surge == 0 && wanted.saturating_sub(min).min(unavailable) == 0 {
        return Err(Rejection::NoneToSpare { min });
    }
    let last = holding.tasks.iter().map(|task| task.place.task).max().unwrap_or_default();
    let rolling = Rolling { below: last + 1, wanted, surge, unavailable, since: live.now };
    let old = count(holding.staying().count());
    live.decision([rolled(live, rolling, old)])
}

/// The next step of every replacement that can make one.
pub(super) fn replacing(state: &State, now: Timestamp) -> impl Iterator<Item = (JobId, Vec<Event>)> {
    let services = state.jobs.services().iter();
    services.filter_map(move |&id| Some((id, step(LiveJob::of(state, id, now))?)))
}

fn step(live: LiveJob<'_>) -> Option<Vec<Event>> {
    let LiveJob { state, id, job, now } = live;
    let mut rolling = job.rolling.filter(|_| live.is_active())?;
    let staying: Vec<&HeldTask> = live.holding().into_iter().flat_map(Holding::staying).collect();
    let old: Vec<&HeldTask> = staying.iter().copied().filter(|task| rolling.is_old(task)).collect();
    if old.is_empty() {
        return Some(alloc::vec![replaced(live, rolling)]);
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
    let rolled = rolled(live, Rolling { since: now, ..rolling }, rest);
    Some([rolled].into_iter().chain(live.lets_go_of(&go, Asker::Replace)).collect())
}

/// A step further: as many more tasks than wanted as may be, but no more than there are old ones to replace.
fn rolled(live: LiveJob<'_>, rolling: Rolling, old: u32) -> Event {
    let tasks = rolling.wanted + rolling.surge.min(old);
    Event::Jobs(JobsEvent::Rolled { job: live.id, tasks, rolling: Some(rolling), at: live.now })
}

fn replaced(live: LiveJob<'_>, rolling: Rolling) -> Event {
    Event::Jobs(JobsEvent::Rolled { job: live.id, tasks: rolling.wanted, rolling: None, at: live.now })
}

fn count(tasks: usize) -> u32 {
    u32::try_from(tasks).unwrap_or(u32::MAX)
}
