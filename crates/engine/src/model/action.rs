//! What the world must do, always derived from state: after a restart the same actions are due again, and every
//! action may be repeated without harm.

use crate::model::rejection::Rejection;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use serde::Deserialize;
use serde::Serialize;

use crate::device::geometry::Slice;
use crate::model::exit::Outcome;
use crate::model::observed::TaskRef;
use crate::model::policy::Mode;
use crate::model::submission::Submission;
use crate::units::{GpuMask, GpuUnits, Timestamp, Uid};

/// What the world must do. The controller sends it with its term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Run these tasks of one attempt.
    Start {
        /// Which try.
        attempt: u32,
        /// The job, whole, so that the world can tell a control plane that lost its journal.
        job: Box<Submission>,
        /// Where each task goes.
        tasks: Vec<StartTask>,
    },
    /// Ask the job to save its work; the coordinator answers for all ranks.
    AskCheckpoint {
        /// Which job.
        uid: Uid,
        /// Which try.
        attempt: u32,
        /// All of its tasks, or those that an elastic job gives up.
        tasks: Vec<u32>,
        /// It is stopped then at the latest.
        deadline: Timestamp,
    },
    /// Stop these tasks. A world that does not know one says that it ended, and never starts it later.
    Stop {
        /// Which.
        tasks: Vec<TaskRef>,
        /// They are killed then.
        deadline: Timestamp,
    },
    /// Tell the owner of a job that the world owns why it is not taken, or a change of it is not.
    Reject {
        /// Which job.
        uid: Uid,
        /// What to tell.
        notice: Notice,
    },
    /// A job that the world owns is over, or about to be: the world tells its owner how, starts nothing more of it and
    /// no longer names it.
    Close {
        /// Which job.
        uid: Uid,
        /// How it ends.
        outcome: Outcome,
    },
    /// Everything reported up to here is durable: what ended by then may be forgotten.
    Acknowledge {
        /// The generation.
        generation: u64,
    },
}

/// Where one task goes, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartTask {
    /// Which task.
    pub task: u32,
    /// Which node.
    pub node: String,
    /// Which of its GPUs.
    pub gpus: GpuMask,
    /// How much of each of them.
    pub units_each: GpuUnits,
    /// How it is kept apart from what else is on them.
    pub enforced: Mode,
    /// The slice of the one GPU it is given, where it is given one: cut out before it starts.
    pub slice: Option<Slice>,
    /// The most memory of each GPU that it may use, in MiB, where the model is known.
    pub memory_mib: Option<u32>,
}

/// What the owner of a job is to be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Notice {
    /// The job was not taken.
    Rejected {
        /// Why.
        why: Box<Rejection>,
    },
    /// The job is as it was before it was changed.
    ChangeRefused {
        /// Why; `None`: it has its places, and changes only while it waits.
        why: Option<Box<Rejection>>,
    },
    /// The job is over.
    Ended {
        /// How.
        outcome: Outcome,
    },
}
