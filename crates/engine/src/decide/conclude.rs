//! What follows for a job when tasks of it have changed: the gang rules in one place.
//!
//! A job of which a start was refused is tried again after a pause that doubles, elsewhere if it can be: it avoids the nodes that
//! refused it four times as long as it pauses. A try is everything that was given places before the refusal was learnt of, so
//! that a gang which sixty nodes refuse at once was refused once. After [`START_TRIES_MAX`] tries in a row a job that holds
//! nothing is held until somebody says that it may be tried again; one that runs goes on as it is and is tried with the longest
//! pause.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::live::{LiveJob, numbers};
use crate::model::exit::{Exit, ExitCause, ExitDetail, Outcome};
use crate::model::outcome::Denial;
use crate::state::State;
use crate::state::event::Event;
use crate::state::holding::{HeldTask, Holding, Presence, TaskPhase};
use crate::state::jobs::event::{HeldWhy, JobsEvent, Next, NodeRefusal, RequeueWhy};
use crate::state::jobs::{Job, Phase, START_TRIES_MAX};
use crate::state::ledger::event::LedgerEvent;
use crate::units::{Millis, NodeId, Timestamp};

/// Nodes are avoided for so many pauses: once the pause is over there is time to start elsewhere.
const AVOIDED_PAUSES: u64 = 4;

/// The shortest pause, whatever the policy says: a service that is refused and tried again at once would do nothing else.
const PAUSE_MIN: Millis = Millis::from_secs(1);

/// What was learnt of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TaskNews {
    Runs { since: Timestamp },
    Saved { at: Timestamp },
    SaveFailed,
    Over { exit: Exit, at: Timestamp, detail: ExitDetail },
    StartRefused { why: Denial, at: Timestamp },
    LeaveRefused { why: Denial, at: Timestamp },
}

/// The events that follow for one job from what was learnt of its tasks.
pub(super) fn conclude(live: LiveJob<'_>, learnt: &[(u32, TaskNews)]) -> Vec<Event> {
    let holding = live.holding().expect("something is learnt of what it holds").clone();
    let (refused, events) = refused_starts(live, learnt).unzip();
    let mut conclusion =
        Conclusion { live, holding, events: events.into_iter().collect(), refused, replicas_failed: 0 };
    for (task, news) in learnt {
        conclusion.learn(*task, news);
    }
    conclusion.stop_what_is_saved();
    conclusion.follow();
    conclusion.events
}

/// What is concluded of one job, and its holding as the events so far leave it.
struct Conclusion<'a> {
    live: LiveJob<'a>,
    holding: Holding,
    events: Vec<Event>,
    refused: Option<RefusedTry>,
    replicas_failed: u32,
}

impl Conclusion<'_> {
    fn learn(&mut self, task: u32, news: &TaskNews) {
        let Some(event) = self.fact(task, news) else { return };
        if let Some(at) = self.replica_failed_at(task, news) {
            self.replicas_failed += 1;
            self.events.push(Event::Jobs(JobsEvent::ReplicaFailed { job: self.live.id, at }));
        }
        self.happens(event);
    }

    fn happens(&mut self, event: LedgerEvent) {
        self.holding.apply(&event);
        self.events.push(Event::Ledger(event));
    }

    /// When a replica ended by itself soon after its start, of a service that goes on.
    fn replica_failed_at(&self, task: u32, news: &TaskNews) -> Option<Timestamp> {
        // A replica is not meant to end: one that does at once, even well, would be started for ever.
        let TaskNews::Over { exit: Exit::Failed | Exit::Succeeded, at, .. } = *news else { return None };
        let held = self.holding.task(task).filter(|held| held.stays())?;
        let soon = self.live.state.tenants.policy().retry_backoff_max;
        (held.since.is_none_or(|since| at < since + soon) && self.service_goes_on()).then_some(at)
    }

    /// True when a task that is over leaves a service that goes on without it.
    fn service_goes_on(&self) -> bool {
        self.live.is_service() && self.live.is_active() && self.holding.holding_tasks().len() > 1
    }

    /// The fact that is new in what was learnt, if one is.
    fn fact(&self, task: u32, news: &TaskNews) -> Option<LedgerEvent> {
        let (job, holding) = (self.live.id, &self.holding);
        let held = holding.task(task)?;
        // Of a job that goes on, tasks leave one by one and speak for themselves.
        let shrinks = self.live.is_active() && held.presence() == Presence::Leaves;
        // Otherwise the coordinator speaks for all ranks.
        let spoken_for = || if shrinks { alloc::vec![task] } else { asked(holding) };
        let over = |exit, at, detail| {
            // The other replicas of a service go on, and it is replaced.
            if (held.holds() && self.service_goes_on()) || (shrinks && exit != Exit::Succeeded) {
                Some(LedgerEvent::Shed { job, task, at, exit: Some(exit), detail })
            } else {
                held.holds().then_some(LedgerEvent::Gone { job, task, exit, at, detail })
            }
        };
        match *news {
            TaskNews::Runs { since } => {
                (held.holds() && held.since.is_none()).then_some(LedgerEvent::Running { job, task, since })
            }
            TaskNews::Saved { at } => {
                // What it saved before it was asked is old news.
                let is_answer = matches!(held.phase, TaskPhase::Asked { at: asked, .. } if asked <= at);
                is_answer.then(|| LedgerEvent::Acked { job, tasks: spoken_for(), checkpoint_at: at })
            }
            TaskNews::SaveFailed => matches!(held.phase, TaskPhase::Asked { failed: false, .. })
                .then(|| LedgerEvent::AskFailed { job, tasks: spoken_for() }),
            TaskNews::Over { exit, at, detail } => over(exit, at, detail),
            TaskNews::StartRefused { at, .. } if held.since.is_none() => {
                over(Exit::Lost, at, ExitCause::StartRefused.into())
            }
            TaskNews::StartRefused { .. } => None,
            TaskNews::LeaveRefused { ref why, at } => {
                let was_told = matches!(held.phase, TaskPhase::Asked { .. } | TaskPhase::Stopping { .. });
                let is_new = held.leave_refused.as_ref().is_none_or(|(known, _)| known != why);
                let tasks = alloc::vec![task];
                (was_told && is_new).then(|| LedgerEvent::LeaveRefused { job, tasks, why: why.clone(), at })
            }
        }
    }

    /// Work that is saved has no reason to stay.
    fn stop_what_is_saved(&mut self) {
        let saved = self.holding.tasks.iter().filter(|task| matches!(task.phase, TaskPhase::Acked { .. }));
        if let Some(Event::Ledger(stopping)) = self.live.stopped(numbers(saved)) {
            self.happens(stopping);
        }
    }

    fn follow(&mut self) {
        let (job, holding) = (self.live.job, &self.holding);
        let left = holding.holding_tasks();
        let finished = left.is_empty()
            && holding.exits(Exit::Failed) + holding.exits(Exit::Stopped) == 0
            && job.spec.is_met_by(holding.done());
        let next = match job.phase {
            Phase::Waiting => return,
            // A job that was to leave and finished its work first has finished.
            Phase::Leaving(Next::Requeue(_) | Next::End(Outcome::TimedOut)) if finished => {
                Next::End(Outcome::Succeeded)
            }
            Phase::Leaving(next) => next,
            Phase::Active => {
                let Some(next) = self.after_losses(left.is_empty()) else { return };
                self.events.push(self.live.leaving(next, None));
                self.events.extend(self.live.stopped(left.clone()));
                next
            }
        };
        if left.is_empty() {
            self.finish(next);
        }
    }

    /// Why an active job leaves or ends. What stays of a gang runs on for a while: a spare place may be found, and no work is lost.
    fn after_losses(&mut self, nothing_left: bool) -> Option<Next> {
        let (job, holding) = (self.live.job, &self.holding);
        let failed = holding.exits(Exit::Failed) > 0;
        let is_service = self.live.is_service();
        let too_often = self.replicas_failed > 0
            && job.past.failures.saturating_add(self.replicas_failed) > job.spec.retries;
        let lost = holding.exits(Exit::Lost) + holding.exits(Exit::Stopped) > 0 || is_service;
        let below_min = lost && !job.spec.is_met_by(holding.alive());
        // A copy of a group that is below its own minimum is repaired too, though the job could do without it.
        let broken = below_min || (job.spec.has_groups() && job.spec.is_broken_with(holding.alive()));
        let was_refused = self.refused.is_some();
        // A gang that was not let start has no work to lose: it lets go at once, whole.
        let never_ran = |task: &HeldTask| {
            let is_lost = matches!(task.phase, TaskPhase::Gone { exit: Exit::Lost, .. });
            is_lost && task.since.is_none() && task.bound_at.0 == 0
        };
        let lets_go = below_min && !is_service && was_refused && holding.tasks.iter().any(never_ran);
        if broken && !failed && !too_often && !lets_go && holding.staying().next().is_some() {
            if holding.repair_by.is_none() {
                self.events.push(self.live.broken(repair_deadline(self.live.state, self.live.now)));
            }
            return None;
        }
        if too_often || failed && job.past.failures >= job.spec.retries {
            return Some(Next::End(Outcome::Failed));
        }
        match (failed, below_min) {
            (true, _) => Some(Next::Requeue(RequeueWhy::TaskFailed)),
            (false, true) if was_refused => Some(Next::Requeue(RequeueWhy::StartRefused)),
            (false, true) => Some(Next::Requeue(RequeueWhy::NodeLost)),
            (false, false) => nothing_left.then_some(Next::End(Outcome::Succeeded)),
        }
    }

    /// Its last task is gone: the job ends, or waits again.
    fn finish(&mut self, next: Next) {
        let LiveJob { state, job, now, .. } = self.live;
        let (holding, policy) = (&self.holding, state.tenants.policy());
        let used_up = job.time_left().is_some_and(|left| left.0 <= holding.ran(now));
        let ended = |outcome| self.live.ended(outcome, holding.ended_at(now), None);
        let why = match next {
            Next::End(outcome) => return self.events.push(ended(outcome)),
            Next::Requeue(why) if !used_up => why,
            // Without time left it would wait for a start that it cannot use.
            Next::Requeue(_) => return self.events.push(ended(Outcome::TimedOut)),
        };
        let last = RefusedTry { tries: job.past.refused_tries, not_before: job.not_before };
        let refused = self.refused.unwrap_or(last);
        let pauses = refused.tries > 0 && refused.not_before > now;
        let ran = holding.tasks.iter().any(|task| task.since.is_some());
        let not_before = match why {
            RequeueWhy::TaskFailed => now + policy.backoff(job.past.failures + 1),
            RequeueWhy::StartRefused => now + policy.backoff(refused.tries),
            RequeueWhy::StartStuck => now + policy.retry_backoff,
            // The world would not start it: without a pause it would be asked again at once, for ever.
            RequeueWhy::NodeLost if !ran => now + policy.retry_backoff,
            // For whatever else it waits again, it pauses as long as nodes refuse it.
            RequeueWhy::NodeLost | RequeueWhy::Evicted if pauses => refused.not_before,
            RequeueWhy::NodeLost | RequeueWhy::Evicted => Timestamp(0),
        };
        self.events.push(self.live.requeued(not_before));
        if why == RequeueWhy::StartRefused && refused.tries >= START_TRIES_MAX {
            self.events.push(self.live.held(HeldWhy::StartRefused));
        }
    }
}

pub(super) fn asked(holding: &Holding) -> Vec<u32> {
    numbers(holding.tasks.iter().filter(|task| matches!(task.phase, TaskPhase::Asked { .. })))
}

/// The next plan tries at least once.
pub(super) fn repair_deadline(state: &State, now: Timestamp) -> Timestamp {
    now + state.tenants.policy().gangs.repair_within.max(Millis(1))
}

/// A try that was refused, with those before it.
#[derive(Clone, Copy)]
struct RefusedTry {
    tries: u32,
    not_before: Timestamp,
}

/// What is to be remembered of the starts that were refused, if any were.
fn refused_starts(live: LiveJob<'_>, learnt: &[(u32, TaskNews)]) -> Option<(RefusedTry, Event)> {
    let LiveJob { state, id, job, now } = live;
    if matches!(job.phase, Phase::Waiting | Phase::Leaving(Next::End(_))) {
        return None;
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

/// Nodes that were to be avoided until now are tried again.
pub(super) fn forgotten_refusals(state: &State, now: Timestamp) -> Vec<Event> {
    let is_due = |job: &Job| job.past.refused.iter().any(|refusal| refusal.until <= now);
    let due = state.jobs.refused().filter(|(_, job)| is_due(job));
    due.map(|(job, _)| Event::Jobs(JobsEvent::RefusalsForgotten { job, at: now })).collect()
}
