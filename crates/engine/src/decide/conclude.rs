//! What follows for a job when tasks of it have changed: the gang rules in one place.

use alloc::vec::Vec;

use super::refused::{self, RefusedSoFar};
use super::{limits, services};
use crate::model::exit::{Exit, ExitCause, ExitDetail, Outcome};
use crate::model::outcome::Denial;
use crate::state::State;
use crate::state::event::Event;
use crate::state::holding::{Holding, Presence, TaskPhase};
use crate::state::jobs::event::{HeldWhy, JobsEvent, Next, RequeueWhy};
use crate::state::jobs::{Job, Phase, START_TRIES_MAX};
use crate::state::ledger::event::LedgerEvent;
use crate::units::{JobId, Millis, Timestamp};

/// What was learnt of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TaskNews {
    /// It runs.
    Runs { since: Timestamp },
    /// It saved its work.
    Saved { at: Timestamp },
    /// It could not.
    SaveFailed,
    /// It is over.
    Over { exit: Exit, at: Timestamp, detail: ExitDetail },
    /// Its node refused to start it.
    Refused { why: Denial, at: Timestamp },
    /// The world refused to let it leave.
    LeaveRefused { why: Denial, at: Timestamp },
}

/// The events that follow for one job from what was learnt of its tasks.
pub(super) fn conclude(state: &State, id: JobId, learnt: &[(u32, TaskNews)], now: Timestamp) -> Vec<Event> {
    let job = state.jobs.get(id).expect("something is learnt of a live job");
    let mut holding = state.ledger.holding(id).expect("something is learnt of what it holds").clone();
    let mut events: Vec<Event> = refused::starts(state, id, job, &holding, learnt, now).into_iter().collect();
    for (task, what) in learnt.iter().map(|(task, what)| (*task, what)) {
        if let Some(event) = fact(id, job, &holding, task, what) {
            events.extend(services::failure(state, id, job, &holding, task, what));
            holding.apply(&event);
            events.push(Event::Ledger(event));
        }
    }
    stop_if_saved(state, id, &mut holding, &mut events, now);
    follow(state, id, job, &holding, &mut events, now);
    events
}

/// The fact that is new in what was learnt, if it is.
fn fact(id: JobId, live: &Job, holding: &Holding, task: u32, learnt: &TaskNews) -> Option<LedgerEvent> {
    let (job, phase) = (id, live.phase);
    let held = holding.task(task)?;
    // Of a job that goes on, tasks leave one by one and speak for themselves.
    let shrinks = phase == Phase::Active && held.presence() == Presence::Leaves;
    let spoken_for = |holding| if shrinks { alloc::vec![task] } else { asked(holding) };
    let over = |exit, at, detail| {
        let exits = exit != Exit::Succeeded;
        // The other replicas of a service go on, and it is replaced.
        if (shrinks && exits) || (held.holds() && services::goes_on(live, holding)) {
            Some(LedgerEvent::Shed { job, task, at, exit: Some(exit), detail })
        } else {
            held.holds().then_some(LedgerEvent::Gone { job, task, exit, at, detail })
        }
    };
    match *learnt {
        TaskNews::Runs { since } if held.holds() && held.since.is_none() => {
            Some(LedgerEvent::Running { job, task, since })
        }
        // What it saved before it was asked is old news.
        TaskNews::Saved { at } if matches!(held.phase, TaskPhase::Asked { at: asked, .. } if asked <= at) => {
            // The coordinator speaks for all ranks.
            Some(LedgerEvent::Acked { job, tasks: spoken_for(holding), checkpoint_at: at })
        }
        TaskNews::SaveFailed if matches!(held.phase, TaskPhase::Asked { failed: false, .. }) => {
            Some(LedgerEvent::AskFailed { job, tasks: spoken_for(holding) })
        }
        TaskNews::Over { exit, at, detail } => over(exit, at, detail),
        TaskNews::Refused { at, .. } if held.since.is_none() => {
            over(Exit::Lost, at, ExitCause::StartRefused.into())
        }
        TaskNews::LeaveRefused { ref why, at } if refused::is_news(held, why) => {
            Some(LedgerEvent::LeaveRefused { job, tasks: alloc::vec![task], why: why.clone(), at })
        }
        TaskNews::Runs { .. }
        | TaskNews::Saved { .. }
        | TaskNews::SaveFailed
        | TaskNews::Refused { .. }
        | TaskNews::LeaveRefused { .. } => None,
    }
}

fn asked(holding: &Holding) -> Vec<u32> {
    let asked = holding.tasks.iter().filter(|task| matches!(task.phase, TaskPhase::Asked { .. }));
    asked.map(|task| task.place.task).collect()
}

/// Work that is saved has no reason to stay.
fn stop_if_saved(state: &State, job: JobId, holding: &mut Holding, events: &mut Vec<Event>, now: Timestamp) {
    let saved = holding.tasks.iter().filter(|task| matches!(task.phase, TaskPhase::Acked { .. }));
    let tasks: Vec<u32> = saved.map(|task| task.place.task).collect();
    if !tasks.is_empty() {
        let deadline = now + state.tenants.policy().stop_grace;
        let stopping = LedgerEvent::Stopping { job, tasks, deadline, at: now };
        holding.apply(&stopping);
        events.push(Event::Ledger(stopping));
    }
}

/// What becomes of the job as a whole.
fn follow(state: &State, id: JobId, job: &Job, holding: &Holding, events: &mut Vec<Event>, now: Timestamp) {
    let left = holding.holding_tasks();
    let finished = left.is_empty()
        && holding.exits(Exit::Failed) + holding.exits(Exit::Stopped) == 0
        && job.spec.is_met_by(holding.done());
    let next = match job.phase {
        Phase::Waiting => return,
        // Who was to leave and finished its work first has finished.
        Phase::Leaving(Next::Requeue(_) | Next::End(Outcome::TimedOut)) if finished => {
            Next::End(Outcome::Succeeded)
        }
        Phase::Leaving(next) => next,
        Phase::Active => {
            let failed = holding.exits(Exit::Failed) > 0;
            let is_service = job.spec.service.is_some();
            let too_often = services::failed_too_often(job, events);
            let lost = holding.exits(Exit::Lost) + holding.exits(Exit::Stopped) > 0 || is_service;
            let staying = holding.staying().count();
            let below_min = lost && !job.spec.is_met_by(holding.alive());
            // A copy of a group that is below its own minimum is repaired too, though the job could do without it.
            let broken = below_min || (job.spec.has_groups() && job.spec.is_broken_with(holding.alive()));
            // A gang that was not let start has no work to lose: it lets go at once, whole.
            let refused =
                below_min && !is_service && refused::was_refused(events) && refused::is_first_start(holding);
            if broken && !failed && !too_often && !refused && staying > 0 {
                wait_for_repair(state, id, holding, events, now);
                return;
            }
            let next = if too_often || failed && job.past.failures >= job.spec.retries {
                Next::End(Outcome::Failed)
            } else if failed {
                Next::Requeue(RequeueWhy::TaskFailed)
            } else if below_min && refused::was_refused(events) {
                Next::Requeue(RequeueWhy::StartRefused)
            } else if below_min {
                Next::Requeue(RequeueWhy::NodeLost)
            } else if left.is_empty() {
                Next::End(Outcome::Succeeded)
            } else {
                return;
            };
            start_leaving(state, id, next, &left, events, now);
            next
        }
    };
    if left.is_empty() {
        let refused = refused::so_far(job, events, now);
        events.push(finish(state, id, job, holding, next, now, refused));
        let waits = matches!(events.last(), Some(Event::Jobs(JobsEvent::Requeued { .. })));
        if waits && next == Next::Requeue(RequeueWhy::StartRefused) && refused.tries >= START_TRIES_MAX {
            events.push(Event::Jobs(JobsEvent::Held { job: id, why: HeldWhy::StartRefused, at: now }));
        }
    }
}

/// The rest of a gang runs on for a while: a spare place may be found at once, and its work is not lost.
fn wait_for_repair(state: &State, job: JobId, holding: &Holding, events: &mut Vec<Event>, now: Timestamp) {
    if holding.repair_by.is_none() {
        let deadline = repair_deadline(state, now);
        events.push(Event::Ledger(LedgerEvent::Broken { job, deadline, at: now }));
    }
}

/// The next plan tries at least once.
pub(super) fn repair_deadline(state: &State, now: Timestamp) -> Timestamp {
    now + state.tenants.policy().gangs.repair_within.max(Millis(1))
}

fn start_leaving(
    state: &State,
    job: JobId,
    next: Next,
    left: &[u32],
    events: &mut Vec<Event>,
    now: Timestamp,
) {
    events.push(Event::Jobs(JobsEvent::Leaving { job, next, at: now, by: None }));
    if !left.is_empty() {
        let deadline = now + state.tenants.policy().stop_grace;
        let tasks = left.to_vec();
        events.push(Event::Ledger(LedgerEvent::Stopping { job, tasks, deadline, at: now }));
    }
}

fn finish(
    state: &State,
    id: JobId,
    job: &Job,
    holding: &Holding,
    next: Next,
    now: Timestamp,
    refused: RefusedSoFar,
) -> Event {
    let policy = state.tenants.policy();
    let ran = holding.tasks.iter().any(|task| task.since.is_some());
    Event::Jobs(match next {
        // Without time left it would wait for a start that it cannot use.
        Next::Requeue(_) if limits::is_used_up(job, holding.ran(now)) => {
            JobsEvent::Ended { job: id, outcome: Outcome::TimedOut, at: holding.ended_at(now), by: None }
        }
        Next::End(outcome) => JobsEvent::Ended { job: id, outcome, at: holding.ended_at(now), by: None },
        Next::Requeue(RequeueWhy::TaskFailed) => {
            let wait = policy.backoff(job.past.failures + 1);
            JobsEvent::Requeued { job: id, not_before: now + wait, at: now }
        }
        Next::Requeue(RequeueWhy::StartRefused) => {
            JobsEvent::Requeued { job: id, not_before: now + policy.backoff(refused.tries), at: now }
        }
        // The world would not start it: without a pause it would be asked again at once, for ever.
        Next::Requeue(RequeueWhy::NodeLost) if !ran => {
            JobsEvent::Requeued { job: id, not_before: now + policy.retry_backoff, at: now }
        }
        Next::Requeue(RequeueWhy::StartStuck) => {
            JobsEvent::Requeued { job: id, not_before: now + policy.retry_backoff, at: now }
        }
        Next::Requeue(RequeueWhy::NodeLost | RequeueWhy::Evicted) => {
            JobsEvent::Requeued { job: id, not_before: refused.pause_until, at: now }
        }
    })
}
