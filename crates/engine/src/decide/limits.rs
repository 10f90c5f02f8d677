//! Time limits: a job is asked to save its work before its time is over, is stopped when it is, and does not come back.
//!
//! A limit counts the running time of all attempts together, each from its first task's start to its last one's end:
//! who is evicted does not get its time anew. Everything is derived from the state, so that a restart, an eviction
//! and the loss of a node change nothing about it. What a job did not use of its limit is not kept for anybody.

use alloc::vec::Vec;

use super::conclude::repair_deadline;
use super::earmarks::all_may_stay;
use super::{Decision, submit};
use crate::decide::input::Extension;
use crate::model::exit::Outcome;
use crate::model::rejection::Rejection;
use crate::state::State;
use crate::state::event::Event;
use crate::state::holding::{HeldTask, Holding, TaskPhase};
use crate::state::jobs::event::{JobsEvent, Next, RequeueWhy};
use crate::state::jobs::{Job, Phase};
use crate::state::ledger::event::{Asker, LedgerEvent};
use crate::units::{JobId, Millis, Timestamp};

const OVER: Next = Next::End(Outcome::TimedOut);

/// True when the attempts of a job, with one that just ended after `ran`, have used up its limit.
pub(super) fn is_used_up(job: &Job, ran: u64) -> bool {
    job.time_left().is_some_and(|left| left.0 <= ran)
}

/// Who has to save its work or to stop because of its limit.
pub(super) fn due(state: &State, now: Timestamp) -> Vec<Event> {
    let due = state.jobs.wrapping_up().iter().take_while(|&&(at, _)| at <= now);
    due.flat_map(|&(_, job)| wrap_up(state, job, now)).collect()
}

fn wrap_up(state: &State, id: JobId, now: Timestamp) -> Vec<Event> {
    let job = state.jobs.get(id).expect("a limit belongs to a live job");
    let holding = state.ledger.holding(id).expect("who runs holds something");
    let limit_at = state.limit_at(id).expect("who wraps up has a limit");
    if job.phase != Phase::Active || job.spec.checkpoint.is_none() || now >= limit_at {
        return stop_rest(state, id, holding, now);
    }
    // Who was asked to leave for somebody else keeps that deadline, unless its time is over before.
    let to_ask = numbers(holding, |task| match task.phase {
        TaskPhase::Running => true,
        TaskPhase::Asked { deadline, .. } => deadline > limit_at,
        TaskPhase::Bound | TaskPhase::Acked { .. } | TaskPhase::Stopping { .. } | TaskPhase::Gone { .. } => {
            false
        }
    });
    // What does not run yet has nothing to save.
    let to_stop = numbers(holding, |task| match task.phase {
        TaskPhase::Bound => true,
        TaskPhase::Asked { deadline, .. } => deadline <= now,
        TaskPhase::Running
        | TaskPhase::Acked { .. }
        | TaskPhase::Stopping { .. }
        | TaskPhase::Gone { .. } => false,
    });
    let mut events = alloc::vec![Event::Jobs(JobsEvent::Leaving { job: id, next: OVER, at: now, by: None })];
    if !to_ask.is_empty() {
        let (by, deadline) = (Asker::Limit, limit_at);
        events.push(Event::Ledger(LedgerEvent::Asked { job: id, tasks: to_ask, by, deadline, at: now }));
    }
    if !to_stop.is_empty() {
        events.push(state.stop(id, to_stop, now));
    }
    events
}

/// It ends when its tasks do; those that were told to stop already keep their deadline.
fn stop_rest(state: &State, id: JobId, holding: &Holding, now: Timestamp) -> Vec<Event> {
    let rest = numbers(holding, |task| match task.phase {
        TaskPhase::Bound | TaskPhase::Running | TaskPhase::Asked { .. } | TaskPhase::Acked { .. } => true,
        TaskPhase::Stopping { .. } | TaskPhase::Gone { .. } => false,
    });
    let mut events = alloc::vec![Event::Jobs(JobsEvent::Leaving { job: id, next: OVER, at: now, by: None })];
    if !rest.is_empty() {
        events.push(state.stop(id, rest, now));
    }
    events
}

fn numbers(holding: &Holding, which: impl Fn(&HeldTask) -> bool) -> Vec<u32> {
    holding.tasks.iter().filter(|task| which(task)).map(|task| task.place.task).collect()
}

/// A job may run longer, as far as the policy lets its class.
pub(super) fn extend(state: &State, id: JobId, to: Extension, now: Timestamp) -> Result<Decision, Rejection> {
    let job = state.jobs.get(id).ok_or(Rejection::NoSuchJob)?;
    let limit = job.time_limit().ok_or(Rejection::NoTimeLimit)?;
    let given = match to {
        Extension::To(given) => given,
        Extension::By(more) => Millis(limit.0.saturating_add(more.0)),
    };
    if given <= limit {
        return Err(Rejection::LimitNotLonger { given, limit });
    }
    submit::check_limit(state.tenants.policy(), job.spec.class, Some(given))?;
    let mut events = alloc::vec![Event::Jobs(JobsEvent::Extended { job: id, limit: given, at: now })];
    match job.phase {
        Phase::Waiting
        | Phase::Active
        | Phase::Leaving(Next::Requeue(
            RequeueWhy::Evicted
            | RequeueWhy::NodeLost
            | RequeueWhy::TaskFailed
            | RequeueWhy::StartStuck
            | RequeueWhy::StartRefused,
        )) => {}
        Phase::Leaving(OVER) => events.extend(stay_after_all(state, id, now).ok_or(Rejection::Ending)?),
        Phase::Leaving(Next::End(_)) => return Err(Rejection::Ending),
    }
    Ok(Decision { events, job: Some(id) })
}

/// A job that was asked to save its work because of its limit goes on, if none of its tasks is further than that and
/// nobody was given its places.
fn stay_after_all(state: &State, id: JobId, now: Timestamp) -> Option<Vec<Event>> {
    let holding = state.ledger.holding(id)?;
    let asked = |task: &&HeldTask| matches!(task.phase, TaskPhase::Asked { deadline, .. } if deadline > now);
    let asked: Vec<&HeldTask> = holding.tasks.iter().filter(asked).collect();
    if asked.is_empty() || !all_may_stay(state, id, &asked, now) {
        return None;
    }
    let tasks: Vec<u32> = asked.iter().map(|task| task.place.task).collect();
    let job = state.jobs.get(id)?;
    let broken = job.spec.has_groups() && job.spec.is_broken_with(holding.alive().chain(tasks.clone()));
    let mut events = alloc::vec![
        Event::Jobs(JobsEvent::Stays { job: id, at: now }),
        Event::Ledger(LedgerEvent::Withdrawn { job: id, tasks, at: now }),
    ];
    if broken {
        let deadline = repair_deadline(state, now);
        events.push(Event::Ledger(LedgerEvent::Broken { job: id, deadline, at: now }));
    }
    Some(events)
}
