//! Starts and stops that a world refuses.
//!
//! A job of which a start was refused is tried again after a pause that doubles, elsewhere if it can be: it avoids the nodes that
//! refused it four times as long as it pauses. A try is everything that was given places before the refusal was learnt of, so
//! that a gang which sixty nodes refuse at once was refused once. After [`START_TRIES_MAX`](crate::state::jobs::START_TRIES_MAX) tries in a row a job
//! that holds nothing is held until somebody says that it may be tried again; one that runs goes on as it is and is tried
//! with the longest pause.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::conclude::TaskNews;
use crate::model::exit::Exit;
use crate::model::outcome::Denial;
use crate::state::State;
use crate::state::event::Event;
use crate::state::holding::{HeldTask, Holding, TaskPhase};
use crate::state::jobs::event::{JobsEvent, Next, NodeRefusal};
use crate::state::jobs::{Job, Phase};
use crate::units::{JobId, Millis, NodeId, Timestamp};

/// Nodes are avoided for so many pauses: once the pause is over there is time to start elsewhere.
const AVOIDED_PAUSES: u64 = 4;

/// The shortest pause, whatever the policy says of retries: a service that is refused and tried again at once would do
/// nothing else.
const PAUSE_MIN: Millis = Millis::from_secs(1);

/// What is to be remembered of the starts that were refused, if any were.
pub(super) fn starts(
    state: &State,
    id: JobId,
    job: &Job,
    holding: &Holding,
    learnt: &[(u32, TaskNews)],
    now: Timestamp,
) -> Option<Event> {
    match job.phase {
        Phase::Waiting | Phase::Leaving(Next::End(_)) => return None,
        Phase::Active | Phase::Leaving(Next::Requeue(_)) => {}
    }
    let refused = learnt.iter().filter_map(|(task, what)| match what {
        TaskNews::Refused { why, .. } => {
            let held = holding.task(*task).filter(|held| held.holds() && held.since.is_none())?;
            Some((held, why))
        }
        TaskNews::Runs { .. }
        | TaskNews::Saved { .. }
        | TaskNews::SaveFailed
        | TaskNews::Over { .. }
        | TaskNews::LeaveRefused { .. } => None,
    });
    let refused: Vec<(&HeldTask, &Denial)> = refused.collect();
    let given_at = |held: &HeldTask| if held.bound_at.0 == 0 { holding.at } else { held.bound_at };
    let tried_at = refused.iter().map(|(held, _)| given_at(held)).max()?;
    let known = job.past.refused.last().map(|refusal| refusal.at);
    let is_new = job.past.refused_tries == 0 || known.is_none_or(|known| known < tried_at);
    let tries = job.past.refused_tries.saturating_add(u32::from(is_new));
    let by: BTreeMap<NodeId, &Denial> = refused.iter().map(|(held, why)| (held.place.node, *why)).collect();
    let by = by.into_iter().map(|(node, why)| NodeRefusal { node, why: why.clone() }).collect();
    let pause = state.tenants.policy().backoff(tries).max(PAUSE_MIN);
    let (not_before, until) = (now + pause, now + Millis(pause.0.saturating_mul(AVOIDED_PAUSES)));
    Some(Event::Jobs(JobsEvent::StartRefused { job: id, tries, by, not_before, until, at: now }))
}

/// What is known of the refusals of a job, with what was just learnt.
#[derive(Clone, Copy)]
pub(super) struct RefusedSoFar {
    /// How many tries in a row were refused.
    pub(super) tries: u32,
    /// It pauses until then because of that, for whatever else it waits again; 0 where it does not.
    pub(super) pause_until: Timestamp,
}

pub(super) fn so_far(job: &Job, events: &[Event], now: Timestamp) -> RefusedSoFar {
    let just_now = events.iter().find_map(|event| match event {
        Event::Jobs(JobsEvent::StartRefused { tries, not_before, .. }) => Some((*tries, *not_before)),
        _ => None,
    });
    let (tries, until) = just_now.unwrap_or((job.past.refused_tries, job.not_before));
    let pauses = tries > 0 && until > now;
    RefusedSoFar { tries, pause_until: if pauses { until } else { Timestamp(0) } }
}

/// True when one of these starts was just refused.
pub(super) fn was_refused(events: &[Event]) -> bool {
    events.iter().any(|event| matches!(event, Event::Jobs(JobsEvent::StartRefused { .. })))
}

/// True when a task is lost that the attempt began with and that never ran.
pub(super) fn is_first_start(holding: &Holding) -> bool {
    let never_ran = |task: &HeldTask| {
        matches!(task.phase, TaskPhase::Gone { exit: Exit::Lost, .. }) && task.since.is_none()
    };
    holding.tasks.iter().any(|task| never_ran(task) && task.bound_at.0 == 0)
}

/// True when a task that was told to leave is not yet known to be kept for that reason.
pub(super) fn is_news(held: &HeldTask, why: &Denial) -> bool {
    let told = match held.phase {
        TaskPhase::Asked { .. } | TaskPhase::Stopping { .. } => true,
        TaskPhase::Bound | TaskPhase::Running | TaskPhase::Acked { .. } | TaskPhase::Gone { .. } => false,
    };
    told && held.leave_refused.as_ref().is_none_or(|(known, _)| known != why)
}

/// Nodes that were to be avoided until now are tried again.
pub(super) fn due(state: &State, now: Timestamp) -> Vec<Event> {
    let is_due = |job: &Job| job.past.refused.iter().any(|refusal| refusal.until <= now);
    let due = state.jobs.refused().filter(|(_, job)| is_due(job));
    due.map(|(job, _)| Event::Jobs(JobsEvent::RefusalsForgotten { job, at: now })).collect()
}
