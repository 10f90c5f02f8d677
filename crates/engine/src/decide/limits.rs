//! Time limits: a job is asked to save its work before its time is over, is stopped when it is, and does not come back.
//!
//! A limit counts the running time of all attempts together, each from its first task's start to its last one's end:
//! who is evicted does not get its time anew. Everything is derived from the state, so that a restart, an eviction
//! and the loss of a node change nothing about it. What a job did not use of its limit is not kept for anybody.

use alloc::vec::Vec;

use super::live::{LiveJob, numbers};
use super::{Decision, earmarks, submit};
use crate::decide::input::Extension;
use crate::model::exit::Outcome;
use crate::model::rejection::Rejection;
use crate::state::State;
use crate::state::event::Event;
use crate::state::holding::{HeldTask, TaskPhase};
use crate::state::jobs::Phase;
use crate::state::jobs::event::{JobsEvent, Next};
use crate::state::ledger::event::Asker;
use crate::units::{Millis, Timestamp};

const OVER: Next = Next::End(Outcome::TimedOut);

pub(super) fn due(state: &State, now: Timestamp) -> Vec<Event> {
    let due = state.jobs.wrapping_up().iter().take_while(|&&(at, _)| at <= now);
    due.flat_map(|&(_, job)| wrap_up(LiveJob::of(state, job, now))).collect()
}

fn wrap_up(live: LiveJob<'_>) -> Vec<Event> {
    let (job, now) = (live.job, live.now);
    let holding = live.holding().expect("a job that runs holds something");
    let limit_at = live.state.limit_at(live.id).expect("a job that wraps up has a limit");
    let may_save = live.is_active() && job.spec.checkpoint.is_some() && now < limit_at;
    // A task that was asked to leave for another reason keeps that deadline, unless its time is over before.
    let is_later =
        |task: &HeldTask| matches!(task.phase, TaskPhase::Asked { deadline, .. } if deadline > limit_at);
    let to_ask = |task: &&HeldTask| may_save && (task.phase == TaskPhase::Running || is_later(task));
    // Tasks that were told to stop already keep their deadline.
    let to_stop = |task: &&HeldTask| match task.phase {
        // What does not run yet has nothing to save.
        TaskPhase::Bound => true,
        TaskPhase::Asked { deadline, .. } => !may_save || deadline <= now,
        TaskPhase::Running | TaskPhase::Acked { .. } => !may_save,
        TaskPhase::Stopping { .. } | TaskPhase::Gone { .. } => false,
    };
    let asked = live.asked(numbers(holding.tasks.iter().filter(to_ask)), Asker::Limit, limit_at);
    let stopped = live.stopped(numbers(holding.tasks.iter().filter(to_stop)));
    [Some(live.leaving(OVER, None)), asked, stopped].into_iter().flatten().collect()
}

/// A job may run longer, as far as the policy lets its class.
pub(super) fn extend(live: LiveJob<'_>, to: Extension) -> Result<Decision, Rejection> {
    let job = live.job;
    let limit = job.time_limit().ok_or(Rejection::NoTimeLimit)?;
    let given = match to {
        Extension::To(given) => given,
        Extension::By(more) => Millis(limit.0.saturating_add(more.0)),
    };
    if given <= limit {
        return Err(Rejection::LimitNotLonger { given, limit });
    }
    submit::check_limit(live.state.tenants.policy(), job.spec.class, Some(given))?;
    let extended = JobsEvent::Extended { job: live.id, limit: given, at: live.now };
    let mut events = alloc::vec![Event::Jobs(extended)];
    match job.phase {
        Phase::Waiting | Phase::Active | Phase::Leaving(Next::Requeue(_)) => {}
        // It goes on, if all of it may.
        Phase::Leaving(OVER) => events.extend(earmarks::take_back(live).ok_or(Rejection::Ending)?),
        Phase::Leaving(Next::End(_)) => return Err(Rejection::Ending),
    }
    live.decision(events)
}
