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
        /// Its id.
        job: JobId,
        /// Its identity outside.
        uid: Uid,
        /// What it asks for.
        spec: Spec,
        /// When.
        at: Timestamp,
        /// Whether the world owns it.
        #[serde(default, skip_serializing_if = "is_default")]
        owned: bool,
    },
    /// Its owner made something else of it while it waits.
    Changed {
        /// Which.
        job: JobId,
        /// What it asks for from now on; its tenant and name are the same.
        spec: Spec,
        /// When.
        at: Timestamp,
    },
    /// It has to let go of what it holds, and then `next`.
    Leaving {
        /// Which.
        job: JobId,
        /// What follows when the last task is gone.
        next: Next,
        /// When.
        at: Timestamp,
        /// Who cancelled it, where somebody did and is known.
        #[serde(default, skip_serializing_if = "is_default")]
        by: Option<Canceller>,
    },
    /// It need not leave after all.
    Stays {
        /// Which.
        job: JobId,
        /// When.
        at: Timestamp,
    },
    /// It holds nothing and waits again.
    Requeued {
        /// Which.
        job: JobId,
        /// Not to be started before.
        not_before: Timestamp,
        /// When.
        at: Timestamp,
    },
    /// It may run longer than it was submitted for.
    Extended {
        /// Which.
        job: JobId,
        /// All of its attempts together, from now on.
        limit: Millis,
        /// When.
        at: Timestamp,
    },
    /// Another number of replicas of a service is wanted.
    Scaled {
        /// Which.
        job: JobId,
        /// So many.
        tasks: u32,
        /// When.
        at: Timestamp,
    },
    /// Replicas of a service are being replaced by fresh ones, a step further; or no longer are.
    Rolled {
        /// Which.
        job: JobId,
        /// How many tasks it has now, with those that are there for the time.
        tasks: u32,
        /// How, while it goes on.
        rolling: Option<Rolling>,
        /// When.
        at: Timestamp,
    },
    /// A replica of a service ended by itself soon after its start; the others go on.
    ReplicaFailed {
        /// Which.
        job: JobId,
        /// When.
        at: Timestamp,
    },
    /// Nodes refused to start tasks of it. They are avoided for a while.
    StartRefused {
        /// Which.
        job: JobId,
        /// How many tries in a row were refused, with this one.
        tries: u32,
        /// Who refused it, and why.
        by: Vec<NodeRefusal>,
        /// Nothing of it is started before.
        not_before: Timestamp,
        /// They are avoided until then.
        until: Timestamp,
        /// When.
        at: Timestamp,
    },
    /// Nodes that refused it are tried again.
    RefusalsForgotten {
        /// Which.
        job: JobId,
        /// Those that were to be avoided until then, at the latest.
        at: Timestamp,
    },
    /// It is not to be started until somebody says so. It holds nothing.
    Held {
        /// Which.
        job: JobId,
        /// Why.
        why: HeldWhy,
        /// When.
        at: Timestamp,
    },
    /// Somebody said so: it waits like any other.
    Released {
        /// Which.
        job: JobId,
        /// When.
        at: Timestamp,
    },
    /// It is over and leaves the state.
    Ended {
        /// Which.
        job: JobId,
        /// How.
        outcome: Outcome,
        /// When.
        at: Timestamp,
        /// Who cancelled it while it waited, where somebody did and is known.
        #[serde(default, skip_serializing_if = "is_default")]
        by: Option<Canceller>,
    },
    /// What history left behind, in a snapshot: the next id and a job's past.
    Carried {
        /// The id the next job gets.
        next_job: JobId,
    },
    /// A job that ended a short while ago, in a snapshot: its identity is not used again.
    CarriedEnded {
        /// Its identity outside.
        uid: Uid,
        /// When.
        at: Timestamp,
    },
    /// A live job's past, in a snapshot.
    CarriedJob {
        /// Which.
        job: JobId,
        /// Its past.
        past: JobPast,
        /// Not to be started before.
        not_before: Timestamp,
    },
}

/// What a live job has behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPast {
    /// How often it was started.
    pub attempts: u32,
    /// How often a task of it failed.
    pub failures: u32,
    /// How often it was evicted.
    pub evictions: u32,
    /// When it first started.
    pub first_start: Option<Timestamp>,
    /// How long earlier attempts ran, in milliseconds.
    pub ran_ms: u64,
    /// When and for whom the rules took it of late, guarantees apart: what budgets count.
    #[serde(default, skip_serializing_if = "is_default")]
    pub evicted: Vec<(Timestamp, JobId)>,
    /// The longest it may run, where that was extended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub extended: Option<Millis>,
    /// How often a task of it was killed because it used more memory than it may.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ooms: u32,
    /// The most memory of one GPU that a task of it used, in MiB, where that is known.
    #[serde(default, skip_serializing_if = "is_default")]
    pub memory_peak_mib: Option<u32>,
    /// The last of its tasks that failed.
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
    /// Which task.
    pub task: u32,
    /// Where it ran.
    pub node: NodeId,
    /// What is known of its end.
    #[serde(default, skip_serializing_if = "is_default")]
    pub detail: ExitDetail,
    /// When.
    pub at: Timestamp,
}

/// Who cancelled a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Canceller {
    /// A person, as the client named them.
    Person {
        /// The name.
        who: String,
    },
    /// Nobody: a job that it waited for did not succeed.
    Dependency {
        /// That job's name.
        name: String,
    },
    /// Its owner in the world, which no longer has it.
    World,
}

/// What follows when a leaving job has let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Next {
    /// It waits again.
    Requeue(RequeueWhy),
    /// It is over.
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
    /// It was asked to leave.
    Evicted,
    /// Not every task ran in time.
    StartStuck,
    /// A node refused to start a task of it.
    StartRefused,
}

/// Why a job is not to be started until somebody says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldWhy {
    /// The journal was restored from an older one, and nobody knows what became of the job meanwhile: it may have
    /// run, ended, or been cancelled.
    Restored,
    /// Nodes refused to start it, as often in a row as it is tried.
    StartRefused,
}

impl Next {
    /// How the job ends, if it does.
    pub fn outcome(self) -> Option<Outcome> {
        match self {
            Self::Requeue(_) => None,
            Self::End(outcome) => Some(outcome),
        }
    }
}

/// A node that did not start a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRefusal {
    /// Which node.
    pub node: NodeId,
    /// Why.
    pub why: Denial,
}

/// A node that a job avoids because it did not start a task of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRefusal {
    /// Which node.
    pub node: NodeId,
    /// Why.
    pub why: Denial,
    /// When.
    pub at: Timestamp,
    /// It is avoided until then.
    pub until: Timestamp,
}
