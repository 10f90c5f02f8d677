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
use super::live::LiveJob;
use crate::model::exit::Exit;
use crate::model::outcome::Denial;
use crate::state::State;
use crate::state::event::Event;
use crate::state::holding::{HeldTask, Holding, TaskPhase};
use crate::state::jobs::event::{JobsEvent, Next, NodeRefusal};
use crate::state::jobs::{Job, Phase};
use crate::units::{Millis, NodeId, Timestamp};

/// Nodes are avoided for so many pauses: once the pause is over there is time to start elsewhere.
const AVOIDED_PAUSES: u64 = 4;

/// The shortest pause, whatever the policy says of retries: a service that is refused and tried again at once would do
/// nothing else.
const PAUSE_MIN: Millis = Millis::from_secs(1);

/// A try that was refused, with those before it.
#[derive(Clone, Copy)]
pub(super) struct RefusedTry {
    /// How many tries in a row were refused.
    pub(super) tries: u32,
    not_before: Timestamp,
}

impl RefusedTry {
    pub(super) fn last_of(job: &Job) -> Self {
        Self { tries: job.past.refused_tries, not_before: job.not_before }
    }

    /// Until when a job pauses because of it, for whatever else it waits again; 0 where it does not.
    pub(super) fn pause_at(self, now: Timestamp) -> Timestamp {
        if self.tries > 0 && self.not_before > now { self.not_before } else { Timestamp(0) }
    }
}

/// What is to be remembered of the starts that were refused, if any were.
pub(super) fn starts(live: LiveJob<'_>, learnt: &[(u32, TaskNews)]) -> Option<(RefusedTry, Event)> {
    let LiveJob { state, id, job, now } = live;
    match job.phase {
        Phase::Waiting | Phase::Leaving(Next::End(_)) => return None,
        Phase::Active | Phase::Leaving(Next::Requeue(_)) => {}
    }
    let holding = live.holding()?;
    let refused = |(task, news): &'_ (u32, TaskNews)| {
        let TaskNews::StartRefused { why, .. } = news else { return None };
        let held = holding.task(*task).filter(|held| held.holds() && held.since.is_none())?;
        Some((held, why.clone()))
    };
    let refused: Vec<(&HeldTask, Denial)> = learnt.iter().filter_map(refused).collect();
    let given_at = |held: &HeldTask| if held.bound_at.0 == 0 { holding.at } else { held.bound_at };
    let tried_at = refused.iter().map(|(held, _)| given_at(held)).max()?;
    let known = job.past.refused.last().map(|refusal| refusal.at);
    let is_new = job.past.refused_tries == 0 || known.is_none_or(|known| known < tried_at);
    let tries = job.past.refused_tries.saturating_add(u32::from(is_new));
    let by: BTreeMap<NodeId, Denial> =
        refused.into_iter().map(|(held, why)| (held.place.node, why)).collect();
    let by = by.into_iter().map(|(node, why)| NodeRefusal { node, why }).collect();
    let pause = state.tenants.policy().backoff(tries).max(PAUSE_MIN);
    let (not_before, until) = (now + pause, now + Millis(pause.0.saturating_mul(AVOIDED_PAUSES)));
    let event = JobsEvent::StartRefused { job: id, tries, by, not_before, until, at: now };
    Some((RefusedTry { tries, not_before }, Event::Jobs(event)))
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
    matches!(held.phase, TaskPhase::Asked { .. } | TaskPhase::Stopping { .. })
        && held.leave_refused.as_ref().is_none_or(|(known, _)| known != why)
}

/// Nodes that were to be avoided until now are tried again.
pub(super) fn due(state: &State, now: Timestamp) -> Vec<Event> {
    let is_due = |job: &Job| job.past.refused.iter().any(|refusal| refusal.until <= now);
    let due = state.jobs.refused().filter(|(_, job)| is_due(job));
    due.map(|(job, _)| Event::Jobs(JobsEvent::RefusalsForgotten { job, at: now })).collect()
}
