//! When a job is over: one answer for promised starts, booked windows, the gain of an eviction, and what a reader is told.
//!
//! Worked example: a job with a limit of 1h ran for 20m before it was evicted, and for 10m since. Its limit is up in 30m; it is
//! gone at the latest `stop_grace` later. With an estimate of 1h instead it would be expected to be over in 30m; in 40m that
//! has passed, and nothing is known any more.
//!
//! A limit is enforced, so it bounds the end. An estimate is believed where there is no limit, until it has passed. The end of
//! a booked window binds only in favour of another window: a job may outstay its own while nobody has booked its places.

use crate::model::policy::Policy;
use crate::state::State;
use crate::state::holding::{Holding, TaskPhase};
use crate::state::jobs::Phase;
use crate::state::jobs::event::Next;
use crate::state::ledger::event::Asker;
use crate::units::{JobId, Millis, Timestamp};

/// What is known of the moment at which a job has given back all that it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// It is gone by then: its time limit is up, or it was told to leave for good.
    pub latest: Option<Timestamp>,
    /// It is expected to be over by then; `None` once that has passed.
    pub expected: Option<Timestamp>,
    pub window: Option<Timestamp>,
}

impl End {
    /// What promised starts and gains go by: the latest moment or, where there is none, the expected one.
    pub fn known(self) -> Option<Timestamp> {
        self.latest.or(self.expected)
    }

    /// What another window that wants the places goes by. A window is ordered for a moment, so it does not rely on estimates.
    pub(crate) fn before_window(self) -> Option<Timestamp> {
        self.latest.into_iter().chain(self.window).min()
    }
}

/// How a task that was told to leave does so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Departure {
    /// It is gone by then, if it leaves.
    pub(crate) gone_at: Timestamp,
    /// It stays if the job it leaves for finds another place.
    pub(crate) may_stay: bool,
}

impl State {
    /// When what a job holds is given back under a policy, as far as that is known.
    pub fn end_of(&self, id: JobId, policy: &Policy, now: Timestamp) -> End {
        let (Some(job), Some(holding)) = (self.jobs.get(id), self.ledger.holding(id)) else {
            return End::default();
        };
        if let Some(gone_at) = leaves_for_good(holding, policy, now) {
            return End { latest: Some(gone_at), ..End::default() };
        }
        // An attempt that does not run yet begins by the moment at which it would be given up.
        let began = holding.since().unwrap_or_else(|| (holding.at + policy.gangs.start_within).max(now));
        let estimate = self.estimate(&job.spec).map(|estimate| estimate.millis());
        let rest = |millis: Millis| Millis(millis.0.saturating_sub(job.past.ran_ms));
        let window = job.spec.booking.and_then(|booking| self.bookings.get(booking));
        End {
            latest: job.time_left().map(|left| began + left + policy.stop_grace),
            expected: estimate.map(|estimate| began + rest(estimate)).filter(|&end| end > now),
            window: window.map(|window| window.until),
        }
    }

    /// When the time limit of a job is up, while it runs.
    pub fn limit_at(&self, id: JobId) -> Option<Timestamp> {
        let since = self.ledger.holding(id)?.since()?;
        Some(since + self.jobs.get(id)?.time_left()?)
    }

    /// When its time limit asks something of a job: to save its work, or to stop.
    pub(crate) fn wrap_up_at(&self, id: JobId) -> Option<Timestamp> {
        let (job, limit_at) = (self.jobs.get(id)?, self.limit_at(id)?);
        match job.phase {
            // Its grace before the limit, but never more than half of what is left, or it is asked before it has done anything.
            Phase::Active => {
                let notice = job.time_left().map_or(0, |left| left.0 / 2).min(job.spec.grace().0);
                Some(Timestamp(limit_at.0.saturating_sub(notice)))
            }
            // A job that has to leave anyway saves its work for that, and has until the limit.
            Phase::Leaving(Next::Requeue(_)) => Some(limit_at),
            Phase::Waiting | Phase::Leaving(Next::End(_)) => None,
        }
    }
}

/// When a job that gets its places at that moment and may run for so long is gone at the latest.
pub(crate) fn latest_if_placed(policy: &Policy, within: Millis, placed: Timestamp) -> Timestamp {
    placed + policy.gangs.start_within + within + policy.stop_grace
}

/// When a job of which every task was told to leave, and none may stay after all, is gone.
fn leaves_for_good(holding: &Holding, policy: &Policy, now: Timestamp) -> Option<Timestamp> {
    let there = holding.tasks.iter().filter(|task| task.holds());
    let gone = there.map(|task| {
        let departure = departure(holding, task.phase, policy, now);
        departure.filter(|departure| !departure.may_stay).map(|departure| departure.gone_at)
    });
    gone.collect::<Option<alloc::vec::Vec<_>>>()?.into_iter().max()
}

/// How a task of a holding leaves; `None` for one that nobody told to, or that is gone.
pub(crate) fn departure(
    holding: &Holding,
    phase: TaskPhase,
    policy: &Policy,
    now: Timestamp,
) -> Option<Departure> {
    // A job that was asked to leave for another one stays if that finds another place.
    let for_others = matches!(holding.asked_by, Some(Asker::Rules { .. } | Asker::Booking { .. }));
    let (gone_at, may_stay) = match phase {
        TaskPhase::Bound | TaskPhase::Running | TaskPhase::Gone { .. } => return None,
        TaskPhase::Asked { deadline, .. } => (deadline + policy.stop_grace, for_others),
        TaskPhase::Acked { .. } => (now + policy.stop_grace, false),
        TaskPhase::Stopping { deadline } => (deadline, false),
    };
    Some(Departure { gone_at, may_stay })
}
