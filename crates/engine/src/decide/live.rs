//! A live job in a decision: what is known of it, and the events that are about it.

use alloc::vec::Vec;

use super::Decision;
use crate::model::exit::Outcome;
use crate::model::rejection::Rejection;
use crate::state::State;
use crate::state::earmarks::EarmarksEvent;
use crate::state::event::Event;
use crate::state::holding::{HeldTask, Holding, TaskPhase};
use crate::state::jobs::event::{Canceller, HeldWhy, JobsEvent, Next};
use crate::state::jobs::{Job, Phase};
use crate::state::ledger::event::{Asker, LedgerEvent};
use crate::units::{JobId, Timestamp};

/// A live job at the moment of a decision.
#[derive(Clone, Copy)]
pub(super) struct LiveJob<'a> {
    pub(super) state: &'a State,
    pub(super) id: JobId,
    pub(super) job: &'a Job,
    pub(super) now: Timestamp,
}

impl<'a> LiveJob<'a> {
    /// A job that something is known of: what holds places, has a deadline or is in an index lives.
    pub(super) fn of(state: &'a State, id: JobId, now: Timestamp) -> Self {
        Self::named(state, id, now).expect("sections and indexes name live jobs only")
    }

    /// The job that a request names.
    pub(super) fn named(state: &'a State, id: JobId, now: Timestamp) -> Result<Self, Rejection> {
        let job = state.jobs.get(id).ok_or(Rejection::NoSuchJob)?;
        Ok(Self { state, id, job, now })
    }

    pub(super) fn decision(self, events: impl IntoIterator<Item = Event>) -> Result<Decision, Rejection> {
        Decision::about(Some(self.id), events)
    }

    pub(super) fn holding(self) -> Option<&'a Holding> {
        self.state.ledger.holding(self.id)
    }

    pub(super) fn is_service(self) -> bool {
        self.job.spec.service.is_some()
    }

    pub(super) fn is_active(self) -> bool {
        self.job.phase == Phase::Active
    }

    pub(super) fn leaving(self, next: Next, by: Option<Canceller>) -> Event {
        Event::Jobs(JobsEvent::Leaving { job: self.id, next, at: self.now, by })
    }

    pub(super) fn stays(self) -> Event {
        Event::Jobs(JobsEvent::Stays { job: self.id, at: self.now })
    }

    pub(super) fn requeued(self, not_before: Timestamp) -> Event {
        Event::Jobs(JobsEvent::Requeued { job: self.id, not_before, at: self.now })
    }

    pub(super) fn held(self, why: HeldWhy) -> Event {
        Event::Jobs(JobsEvent::Held { job: self.id, why, at: self.now })
    }

    pub(super) fn released(self) -> Event {
        Event::Jobs(JobsEvent::Released { job: self.id, at: self.now })
    }

    pub(super) fn ended(self, outcome: Outcome, at: Timestamp, by: Option<Canceller>) -> Event {
        Event::Jobs(JobsEvent::Ended { job: self.id, outcome, at, by })
    }

    pub(super) fn without_earmark(self) -> Event {
        Event::Earmarks(EarmarksEvent::Released { job: self.id, at: self.now })
    }

    pub(super) fn broken(self, deadline: Timestamp) -> Event {
        Event::Ledger(LedgerEvent::Broken { job: self.id, deadline, at: self.now })
    }

    pub(super) fn withdrawn(self, tasks: Vec<u32>) -> Event {
        Event::Ledger(LedgerEvent::Withdrawn { job: self.id, tasks, at: self.now })
    }

    pub(super) fn asked(self, tasks: Vec<u32>, by: Asker, deadline: Timestamp) -> Option<Event> {
        let (job, at, is_any) = (self.id, self.now, !tasks.is_empty());
        is_any.then_some(Event::Ledger(LedgerEvent::Asked { job, tasks, by, deadline, at }))
    }

    pub(super) fn stopped(self, tasks: Vec<u32>) -> Option<Event> {
        let (job, at, is_any) = (self.id, self.now, !tasks.is_empty());
        let deadline = at + self.state.tenants.policy().stop_grace;
        is_any.then_some(Event::Ledger(LedgerEvent::Stopping { job, tasks, deadline, at }))
    }

    pub(super) fn leaves_at_once(self, next: Next, by: Option<Canceller>) -> Vec<Event> {
        let tasks = self.holding().map(Holding::holding_tasks).unwrap_or_default();
        core::iter::once(self.leaving(next, by)).chain(self.stopped(tasks)).collect()
    }

    /// What its cancellation leads to: nothing, where it is ending already.
    pub(super) fn cancelled(self, by: Option<Canceller>) -> Vec<Event> {
        match self.job.phase {
            Phase::Waiting => alloc::vec![self.ended(Outcome::Cancelled, self.now, by)],
            Phase::Active | Phase::Leaving(Next::Requeue(_)) => {
                self.leaves_at_once(Next::End(Outcome::Cancelled), by)
            }
            Phase::Leaving(Next::End(_)) => Vec::new(),
        }
    }

    /// These tasks go: those that can save their work are asked to, and have their grace for that.
    pub(super) fn lets_go_of(self, tasks: &[&HeldTask], by: Asker) -> Vec<Event> {
        let spec = &self.job.spec;
        let saves = |task: &&&HeldTask| spec.checkpoint.is_some() && task.phase == TaskPhase::Running;
        let (asked, stopped): (Vec<&HeldTask>, Vec<&HeldTask>) = tasks.iter().partition(saves);
        let asked = self.asked(numbers(asked), by, self.now + spec.grace());
        asked.into_iter().chain(self.stopped(numbers(stopped))).collect()
    }
}

pub(super) fn numbers<'t>(tasks: impl IntoIterator<Item = &'t HeldTask>) -> Vec<u32> {
    tasks.into_iter().map(|task| task.place.task).collect()
}
