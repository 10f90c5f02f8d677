//! Services: inference jobs of independent replicas whose wanted number changes.
//!
//! What a service lacks it gets as every elastic job grows, but its replicas up to the wanted number are no surplus: they
//! are served, and make room, as minimums are. What it has too much it lets go, the newest replicas first, each after it
//! had its grace. A replica that is over, however it ended, is replaced without the others; only the last one's end is the
//! end of the attempt. A replica that ends by itself soon after its start counts as a failure of the job, so that a service that
//! cannot run ends instead of starting replicas for ever.

use alloc::vec::Vec;

use super::Decision;
use super::conclude::TaskNews;
use super::live::LiveJob;
use crate::model::exit::Exit;
use crate::model::rejection::Rejection;
use crate::state::State;
use crate::state::event::Event;
use crate::state::holding::{HeldTask, Holding};
use crate::state::jobs::Phase;
use crate::state::jobs::event::{JobsEvent, Next};
use crate::state::ledger::event::Asker;
use crate::units::{JobId, Timestamp};

/// Another number of replicas is wanted.
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
    let mut events = alloc::vec![Event::Jobs(JobsEvent::Scaled { job: live.id, tasks, at: live.now })];
    let more = job.spec.tasks - job.wanted();
    events.extend(shrink(live, tasks.saturating_add(more)));
    Ok(Decision { events, job: Some(live.id) })
}

/// Services that have more replicas than they want, because one that had been asked to leave stayed after all. Those that
/// are busy at this moment come down to their number later.
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
    let mut staying: Vec<&HeldTask> = match job.phase {
        Phase::Waiting => Vec::new(),
        Phase::Leaving(_) => return Vec::new(),
        Phase::Active => live.holding().into_iter().flat_map(Holding::staying).collect(),
    };
    let too_many = earmarked > 0 && staying.len() + earmarked > wanted;
    let released = too_many.then(|| live.without_earmark());
    // Numbers count up within an attempt: the last are the newest. But those that are to be replaced go before fresh ones.
    staying.sort_by_key(|task| job.rolling.is_some_and(|rolling| rolling.is_old(task)));
    let too_many = staying.get(wanted..).unwrap_or_default();
    released.into_iter().chain(live.lets_go_of(too_many, Asker::Scale)).collect()
}

/// True when a task that is over leaves a service that goes on without it.
pub(super) fn goes_on(live: LiveJob<'_>, holding: &Holding) -> bool {
    live.is_service() && live.is_active() && holding.holding_tasks().len() > 1
}

/// When a replica ended by itself soon after its start, of a service that goes on.
pub(super) fn failed_at(
    live: LiveJob<'_>,
    holding: &Holding,
    task: u32,
    news: &TaskNews,
) -> Option<Timestamp> {
    // A replica is not meant to end: one that does at once, even well, would be started for ever.
    let TaskNews::Over { exit: Exit::Failed | Exit::Succeeded, at, .. } = *news else { return None };
    let held = holding.task(task).filter(|held| held.stays())?;
    let soon = held.since.is_none_or(|since| at < since + live.state.tenants.policy().retry_backoff_max);
    (soon && goes_on(live, holding)).then_some(at)
}
