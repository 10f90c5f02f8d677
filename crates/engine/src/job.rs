//! What a job asks for, as the engine sees it: parsed, bounded and free of strings that decide anything.
//!
//! Selectors, tolerations and model lists have become set ids at the edge; the payload is carried to the
//! world and never read here.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::units::{DeviceSetId, GpuUnits, LevelId, Millis, NodeSetId, Resources, TenantId, TrustId};

/// The most tasks one job may have: a gang of 16,384 eight-GPU nodes is beyond any fleet we plan for.
pub const TASKS_MAX: u32 = 16_384;
/// The most whole GPUs one task may ask for: the largest node we know has 16.
pub const GPUS_PER_TASK_MAX: u32 = 16;

/// How a job relates to latency, which decides who is asked to leave for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Has an SLO; within its guarantee it is never a victim.
    Inference,
    /// Notebooks and evaluations: queues, but a person is waiting.
    Interactive,
    /// Checkpointable work, first to be asked to leave.
    Batch,
}

impl Class {
    /// Every class, in the order in which they are served.
    pub const ALL: [Self; 3] = [Self::Inference, Self::Interactive, Self::Batch];

    /// The word used in files, API and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Inference => "inference",
            Self::Interactive => "interactive",
            Self::Batch => "batch",
        }
    }
}

/// The GPU part of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum GpuAsk {
    /// Whole GPUs of one node; 0 for work that needs none.
    Whole(u32),
    /// A part of one GPU, which may be shared inside one trust domain.
    Share(GpuUnits),
}

impl GpuAsk {
    /// What one task is charged.
    pub fn units(self) -> GpuUnits {
        match self {
            Self::Whole(count) => GpuUnits::whole(count),
            Self::Share(units) => units,
        }
    }
}

/// What one task asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shape {
    /// GPUs.
    pub gpus: GpuAsk,
    /// CPU, memory and the rest.
    pub resources: Resources,
    /// Nodes it may run on.
    pub nodes: NodeSetId,
    /// Devices it may run on.
    pub devices: DeviceSetId,
}

/// Required closeness. Wishes come with the placement score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Topology {
    /// The GPUs of one task share an NVLink island.
    #[serde(default)]
    pub task_on_island: bool,
    /// All tasks share one domain of this level.
    #[serde(default)]
    pub gang_within: Option<LevelId>,
}

/// What a job promises about saving its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Checkpoint {
    /// How often it saves by itself.
    pub every: Millis,
    /// How long it needs to save when asked.
    pub grace: Millis,
}

/// A job as submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Unique among the tenant's live jobs.
    pub name: String,
    /// Who pays.
    pub tenant: TenantId,
    /// How it relates to latency.
    pub class: Class,
    /// Higher first, inside the tenant.
    pub priority: i32,
    /// Wanted tasks.
    pub tasks: u32,
    /// The gang: so many tasks or none.
    pub min: u32,
    /// What each task asks for.
    pub shape: Shape,
    /// Required closeness.
    #[serde(default)]
    pub topology: Topology,
    /// Whether it may be evicted or moved.
    pub preemptible: bool,
    /// Its trust domain.
    pub trust: TrustId,
    /// The longest it may run.
    #[serde(default)]
    pub time_limit: Option<Millis>,
    /// How long its owner thinks it runs.
    #[serde(default)]
    pub estimate: Option<Millis>,
    /// What it promises about saving its work.
    #[serde(default)]
    pub checkpoint: Option<Checkpoint>,
    /// How many task failures it survives by starting again.
    pub retries: u32,
    /// Trace labels, carried to receipts.
    #[serde(default)]
    pub labels: Vec<(String, String)>,
    /// What the world runs; opaque here.
    #[serde(default)]
    pub payload: String,
}

impl Spec {
    /// How long it needs to save its work when asked.
    pub fn grace(&self) -> Millis {
        self.checkpoint.map_or(Millis(0), |checkpoint| checkpoint.grace)
    }

    /// The charge of `tasks` of its tasks.
    pub fn units(&self, tasks: u32) -> GpuUnits {
        self.shape.gpus.units().times(tasks)
    }
}
