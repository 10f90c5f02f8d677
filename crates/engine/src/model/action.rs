//! What the world must do, always derived from state: after a restart the same actions are due again, and every
//! action may be repeated without harm.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::device::geometry::Slice;
use crate::model::exit::Outcome;
use crate::model::observed::TaskRef;
use crate::model::policy::Mode;
use crate::model::rejection::Rejection;
use crate::model::submission::Submission;
use crate::units::{GpuMask, GpuUnits, Timestamp, Uid};

/// What the world must do. The controller sends it with its term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Run these tasks of one attempt. The job is whole, so that the world can tell a control plane that lost its journal.
    Start { attempt: u32, job: Box<Submission>, tasks: Vec<StartTask> },
    /// Ask the job to save the work of all of its tasks, or of those that an elastic job gives up; the coordinator answers
    /// for all ranks. They are stopped at the deadline at the latest.
    AskCheckpoint { uid: Uid, attempt: u32, tasks: Vec<u32>, deadline: Timestamp },
    /// Stop these tasks, and kill them at the deadline. A world that does not know one says that it ended, and never
    /// starts it later.
    Stop { tasks: Vec<TaskRef>, deadline: Timestamp },
    /// Tell the owner of a job that the world owns why it is not taken, or a change of it is not.
    Reject { uid: Uid, notice: Notice },
    /// A job that the world owns is over, or about to be: the world tells its owner how, starts nothing more of it and
    /// no longer names it.
    Close { uid: Uid, outcome: Outcome },
    /// Everything reported up to here is durable: what ended by then may be forgotten.
    Acknowledge { generation: u64 },
}

/// Where one task goes, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartTask {
    pub task: u32,
    pub node: String,
    pub gpus: GpuMask,
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
    Rejected { why: Box<Rejection> },
    /// The job is as it was before it was changed. `None`: it has its places, and changes only while it waits.
    ChangeRefused { why: Option<Box<Rejection>> },
    /// The job is over.
    Ended { outcome: Outcome },
}
