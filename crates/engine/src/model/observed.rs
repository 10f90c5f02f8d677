//! What a world reports of its nodes and tasks.

use crate::device::geometry::Slice;
use crate::model::exit::{Exit, ExitDetail};
use crate::model::outcome::Answer;
use crate::model::policy::Mode;
use crate::model::submission::Submission;
use crate::units::{GpuMask, GpuUnits, Resources, Timestamp, Uid};
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// What a world says, as a change or as a full list.
///
/// A world numbers its changes. A change report tells everything after `since`; the engine takes it only
/// when it knows everything up to there. A full list needs no such knowledge, and what it does not name is
/// gone. Start, watch gap, restart and adoption are therefore one path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What it is about.
    pub scope: Scope,
    /// Which world; a new one starts counting again.
    pub world: u64,
    /// `None` for a full list, else the generation this change builds on.
    pub since: Option<u64>,
    /// The generation after it.
    pub generation: u64,
    /// Nodes, by name.
    pub nodes: Vec<ObservedNode>,
    /// Nodes that no longer exist; a full list needs none.
    pub nodes_gone: Vec<String>,
    /// Tasks that run, or ended since the last acknowledgement.
    pub tasks: Vec<ObservedTask>,
    /// What became of actions; a full list tells it again until it is acknowledged.
    pub answers: Vec<Answer>,
}

/// What a report is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    #[default]
    All,
    /// Nodes alone: what comes first when a world is met, so that selectors can be compiled before the work
    /// that uses them is adopted. It does not move the generation that is known.
    Nodes,
}

/// A node as a world sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedNode {
    /// Unique in the world.
    pub name: String,
    /// `false`: nothing can be said to it, and what ran there is lost.
    pub up: bool,
    /// Model of its GPUs; empty where there are none.
    pub model: String,
    /// Its GPUs, in index order.
    pub gpus: Vec<ObservedGpu>,
    /// What it has beside GPUs.
    pub capacity: Resources,
    /// What others use of it.
    pub others: Resources,
    /// GPUs that others use.
    pub others_gpus: GpuMask,
    /// Level name and domain number, from the nearest level outwards.
    pub domains: Vec<(String, u32)>,
}

/// A GPU as a world sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedGpu {
    /// NVLink domain, unique in the world.
    pub island: u32,
    /// NUMA node.
    pub numa: u8,
    /// PCIe root complex.
    pub pcie_root: u8,
    /// Network rail.
    pub rail: u8,
    /// `false`: not to be used.
    pub healthy: bool,
    /// How it is divided now. It stays so when nobody is on it, until work comes that needs it otherwise.
    #[serde(default, skip_serializing_if = "crate::model::is_default")]
    pub mode: Mode,
    /// Number of the error that it is not healthy by, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xid: Option<u16>,
}

/// One attempt at one task of one job: what actions and observations are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TaskRef {
    /// The job.
    pub uid: Uid,
    /// Which of its tasks.
    pub task: u32,
    /// Which try.
    pub attempt: u32,
}

/// A task as a world sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedTask {
    /// Which.
    pub task: TaskRef,
    /// Where, by name.
    pub node: String,
    /// On which GPUs.
    pub gpus: GpuMask,
    /// How much of each of them.
    pub units_each: GpuUnits,
    /// The slice of the one GPU it is on, where it has one.
    pub slice: Option<Slice>,
    /// Whether it takes turns on the whole device.
    pub time_sliced: bool,
    /// Since when it runs; `None` when it never did.
    pub since: Option<Timestamp>,
    /// How it does.
    pub status: TaskStatus,
    /// The job it belongs to, in a full list, for a control plane that meets this world for the first time.
    pub job: Option<Submission>,
}

/// How a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskStatus {
    /// It runs.
    Running,
    /// It saved its work because it was asked to; the coordinator speaks for all ranks.
    Saved {
        /// When.
        at: Timestamp,
    },
    /// It was asked to save its work and could not.
    SaveFailed,
    /// It is over.
    Ended {
        /// How.
        exit: Exit,
        /// When.
        at: Timestamp,
        /// What else is known of its end.
        #[serde(default, skip_serializing_if = "crate::model::is_default")]
        detail: ExitDetail,
    },
}
