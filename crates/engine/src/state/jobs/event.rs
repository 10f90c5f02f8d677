//! What happens to jobs.

use crate::model::exit::{ExitDetail, Outcome};
use crate::model::is_default;
use crate::model::job::Spec;
use crate::model::outcome::Denial;
use crate::state::jobs::Rolling;
use crate::units::{JobId, Millis, NodeId, Timestamp, Uid};
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// What happens to jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobsEvent {
    /// It waits for the first time.
    Queued {
        job: JobId,
        uid: Uid,
        spec: Spec,
        at: Timestamp,
        #[serde(default, skip_serializing_if = "is_default")]
        owned: bool,
    },
    /// Its owner made something else of it while it waits; its tenant and name are the same.
    Changed { job: JobId, spec: Spec, at: Timestamp },
    /// It has to let go of what it holds, and then `next`.
    Leaving {
        job: JobId,
        next: Next,
        at: Timestamp,
        /// Who cancelled it, where somebody did and is known.
        #[serde(default, skip_serializing_if = "is_default")]
        by: Option<Canceller>,
    },
    /// It need not leave after all.
    Stays { job: JobId, at: Timestamp },
    /// It holds nothing and waits again.
    Requeued { job: JobId, not_before: Timestamp, at: Timestamp },
    /// It may run longer than it was submitted for: all of its attempts together, from now on.
    Extended { job: JobId, limit: Millis, at: Timestamp },
    /// Another number of replicas of a service is wanted.
    Scaled { job: JobId, tasks: u32, at: Timestamp },
    /// Replicas of a service are being replaced, a step further, or no longer are; `tasks` counts all that are there.
    Rolled { job: JobId, tasks: u32, rolling: Option<Rolling>, at: Timestamp },
    /// A replica of a service ended by itself soon after its start; the others go on.
    ReplicaFailed { job: JobId, at: Timestamp },
    /// Nodes refused to start tasks of it, for so many tries in a row. They are avoided until then.
    StartRefused {
        job: JobId,
        tries: u32,
        by: Vec<NodeRefusal>,
        not_before: Timestamp,
        until: Timestamp,
        at: Timestamp,
    },
    /// Nodes that it was to avoid until then, at the latest, are tried again.
    RefusalsForgotten { job: JobId, at: Timestamp },
    /// It is not to be started until somebody says so. It holds nothing.
    Held { job: JobId, why: HeldWhy, at: Timestamp },
    /// Somebody said so: it waits like any other.
    Released { job: JobId, at: Timestamp },
    /// It is over and leaves the state.
    Ended {
        job: JobId,
        outcome: Outcome,
        at: Timestamp,
        /// Who cancelled it while it waited, where somebody did and is known.
        #[serde(default, skip_serializing_if = "is_default")]
        by: Option<Canceller>,
    },
    /// What history left behind, in a snapshot: the next id and a job's past.
    Carried { next_job: JobId },
    /// A job that ended a short while ago, in a snapshot: its identity is not used again.
    CarriedEnded { uid: Uid, at: Timestamp },
    /// A live job's past, in a snapshot.
    CarriedJob { job: JobId, past: JobPast, not_before: Timestamp },
}

/// What a live job has behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPast {
    pub attempts: u32,
    pub failures: u32,
    pub evictions: u32,
    pub first_start: Option<Timestamp>,
    /// How long earlier attempts ran, in milliseconds.
    pub ran_ms: u64,
    /// When and for whom the rules took it of late, guarantees apart: what budgets count.
    #[serde(default, skip_serializing_if = "is_default")]
    pub evicted: Vec<(Timestamp, JobId)>,
    /// The longest it may run, where that was extended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub extended: Option<Millis>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub ooms: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub memory_peak_mib: Option<u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub last_failure: Option<Failure>,
    /// How many tries in a row were refused by nodes, since all that it was given last ran.
    #[serde(default, skip_serializing_if = "is_default")]
    pub refused_tries: u32,
    /// The last nodes that refused to start a task of it and are avoided, the latest last.
    #[serde(default, skip_serializing_if = "is_default")]
    pub refused: Vec<StartRefusal>,
}

/// A task that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub task: u32,
    pub node: NodeId,
    #[serde(default, skip_serializing_if = "is_default")]
    pub detail: ExitDetail,
    pub at: Timestamp,
}

/// Who cancelled a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Canceller {
    /// A person, as the client named them.
    Person { who: String },
    /// Nobody: a job that it waited for did not succeed.
    Dependency { name: String },
    /// Its owner in the world, which no longer has it.
    World,
}

/// What follows when a leaving job has let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Next {
    Requeue(RequeueWhy),
    End(Outcome),
}

/// Why a job waits again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequeueWhy {
    /// A task of it failed and it has retries left.
    TaskFailed,
    /// A node went away and the gang fell below its minimum.
    NodeLost,
    Evicted,
    /// Not every task ran in time.
    StartStuck,
    StartRefused,
}

/// Why a job is not to be started until somebody says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldWhy {
    /// The journal was restored from an older one, and nobody knows what became of the job meanwhile.
    Restored,
    /// Nodes refused to start it, as often in a row as it is tried.
    StartRefused,
}

/// A node that did not start a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRefusal {
    pub node: NodeId,
    pub why: Denial,
}

/// A node that a job avoids because it did not start a task of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRefusal {
    pub node: NodeId,
    pub why: Denial,
    pub at: Timestamp,
    /// It is avoided until then.
    pub until: Timestamp,
}
