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
    pub scope: Scope,
    /// Which world; a new one starts counting again.
    pub world: u64,
    /// `None` for a full list, else the generation this change builds on.
    pub since: Option<u64>,
    /// The generation after it.
    pub generation: u64,
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
    #[default]
    All,
    /// Nodes alone: what comes first when a world is met, so that selectors can be compiled before the work
    /// that uses them is adopted. It does not move the generation that is known.
    Nodes,
}

/// A node as a world sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedNode {
    pub name: String,
    /// `false`: nothing can be said to it, and what ran there is lost.
    pub up: bool,
    /// Model of its GPUs; empty where there are none.
    pub model: String,
    /// Its GPUs, in index order.
    pub gpus: Vec<ObservedGpu>,
    pub capacity: Resources,
    /// What others use of it.
    pub others: Resources,
    pub others_gpus: GpuMask,
    /// Level name and domain number, from the nearest level outwards.
    pub domains: Vec<(String, u32)>,
}

/// A GPU as a world sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedGpu {
    /// NVLink domain, unique in the world.
    pub island: u32,
    pub numa: u8,
    pub pcie_root: u8,
    pub rail: u8,
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
    pub uid: Uid,
    pub task: u32,
    pub attempt: u32,
}

/// A task as a world sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedTask {
    pub task: TaskRef,
    pub node: String,
    pub gpus: GpuMask,
    pub units_each: GpuUnits,
    pub slice: Option<Slice>,
    pub time_sliced: bool,
    /// Since when it runs; `None` when it never did.
    pub since: Option<Timestamp>,
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
    Saved { at: Timestamp },
    /// It was asked to save its work and could not.
    SaveFailed,
    /// It is over.
    Ended {
        exit: Exit,
        at: Timestamp,
        #[serde(default, skip_serializing_if = "crate::model::is_default")]
        detail: ExitDetail,
    },
}
