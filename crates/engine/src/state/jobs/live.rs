//! A live job, and what is kept of it and of arrays beside its spec.

use crate::model::job::Spec;
use crate::model::need::Need;
use crate::state::holding::HeldTask;
use crate::state::jobs::event::{Canceller, HeldWhy, JobPast, Next};
use crate::state::jobs::kind::KindKey;
use crate::units::{JobId, Millis, PoolId, TenantId, Timestamp, Uid};
use alloc::collections::BTreeSet;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// An array of which members live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    pub tenant: TenantId,
    pub name: String,
    pub at_most: u32,
    /// Those that live, in the order in which they take their turns.
    pub members: BTreeSet<JobId>,
}

impl Array {
    /// The last member that may run.
    pub(super) fn last(&self) -> Option<JobId> {
        let last = usize::try_from(self.at_most).unwrap_or(usize::MAX).saturating_sub(1);
        self.members.iter().nth(last).copied()
    }
}

/// A live job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    pub uid: Uid,
    pub spec: Spec,
    pub submitted_at: Timestamp,
    pub phase: Phase,
    pub not_before: Timestamp,
    pub past: JobPast,
    pub more: Option<More>,
    /// When its time limit asks something of it, while it runs: to save its work, or to stop.
    pub wrap_up_at: Option<Timestamp>,
    pub rolling: Option<Rolling>,
    /// Who cancelled it, while it leaves because of that.
    pub cancelled_by: Option<Canceller>,
    /// Why it is not to be started until somebody says so, and since when.
    pub held: Option<(HeldWhy, Timestamp)>,
    /// Its array runs as many members as it may before this one.
    pub throttled: bool,
    pub owned: bool,
}

/// How replicas of a service are being replaced by fresh ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rolling {
    /// Replicas with a lower number are to go.
    pub below: u32,
    pub wanted: u32,
    /// So many more may run for the time.
    pub surge: u32,
    /// So many fewer may run for the time, where there is no room for more.
    pub unavailable: u32,
    /// The last step.
    pub since: Timestamp,
}

impl Rolling {
    /// True for a replica that is to go.
    pub fn is_old(&self, task: &HeldTask) -> bool {
        task.place.task < self.below
    }

    /// The fewest that may run.
    pub fn floor(&self, min: u32) -> u32 {
        self.wanted.saturating_sub(self.unavailable).max(min)
    }
}

impl Job {
    /// True while it is no candidate: it waits for other jobs, for its turn in its array, or for somebody to release it.
    pub fn is_held_back(&self) -> bool {
        let held = self.throttled || self.held.is_some() || !self.spec.after.is_empty();
        self.phase == Phase::Waiting && held
    }

    /// True while it waits for places.
    pub fn waits_for_places(&self) -> bool {
        self.phase == Phase::Waiting && !self.is_held_back()
    }

    /// How many tasks are wanted; more may run while they are being replaced.
    pub fn wanted(&self) -> u32 {
        self.rolling.map_or(self.spec.tasks, |rolling| rolling.wanted)
    }

    /// The longest that all of its attempts together may run.
    pub fn time_limit(&self) -> Option<Millis> {
        self.past.extended.or(self.spec.time_limit)
    }

    /// Its kind. Earlier attempts and extensions count: it is over when the rest of its limit is up.
    pub fn key(&self) -> KindKey {
        KindKey::within(&self.spec, self.time_left(), self.avoided())
    }

    /// What earlier attempts left of that.
    pub(crate) fn time_left(&self) -> Option<Millis> {
        self.time_limit().map(|limit| Millis(limit.0.saturating_sub(self.past.ran_ms)))
    }

    /// True for a rolling replacement that could go on with fewer replicas where there is no room for more.
    pub(crate) fn replaces_with_less(&self) -> bool {
        self.rolling.is_some_and(|rolling| rolling.surge > 0 && rolling.floor(self.spec.min) < rolling.wanted)
    }
}

/// What a job that runs lacks: the rest of its minimum after a loss, or one more task of an elastic gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct More {
    /// So many tasks, all or none.
    pub tasks: u32,
    /// Without them it is below its minimum.
    pub repair: bool,
    /// Where the others are.
    pub pool: PoolId,
    /// What each of the others was given: tasks of one job are met in one way.
    pub need: Need,
    /// The domain the others share, where the gang asks for one.
    pub domain: Option<u32>,
    /// Which job, where it has groups: each lacks in its own way, and what it lacks is worked out when it is planned.
    pub of: Option<JobId>,
}

/// How far a job's life is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    #[default]
    Waiting,
    Active,
    Leaving(Next),
}
