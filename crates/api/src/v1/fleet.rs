//! Nodes and GPUs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wharf_engine::policy::Mode;

use super::SliceView;

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeView {
    /// Unique in the world.
    pub name: String,
    /// Model of its GPUs; empty where there are none.
    pub model: String,
    /// How many GPUs it has.
    pub gpus: u32,
    /// GPUs handed out.
    pub gpus_allocated: f64,
    /// GPUs that others use.
    pub gpus_others: u32,
    /// Whether it can be spoken to.
    pub up: bool,
    /// Whether new work stays away.
    pub cordoned: bool,
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// Thousandths of a core that nobody uses.
    pub cpu_free_milli: u64,
    /// Bytes.
    pub memory: u64,
    /// Bytes that nobody uses.
    pub memory_free: u64,
    /// How busy its GPUs really are, from 0 to 1; `null` where that is not known.
    pub sm_active: Option<f64>,
    /// Its domain in each level.
    #[serde(default)]
    pub levels: BTreeMap<String, u32>,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuView {
    /// Name of the node.
    pub node: String,
    /// Its index there.
    pub index: u32,
    /// Its model.
    pub model: String,
    /// Its memory as the vendor counts it; `null` for a model that is not in the catalogue.
    pub memory_gb: Option<u32>,
    /// Its island.
    pub island: u32,
    /// Whether it can be used.
    pub health: Health,
    /// The error that it failed by, where one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureView>,
    /// How much of it is handed out, from 0 to 1.
    pub allocated: f64,
    /// Names of the jobs on it, as `tenant/name`.
    pub jobs: Vec<String>,
    /// How busy it really is, from 0 to 1; `null` where that is not known.
    pub sm_active: Option<f64>,
    /// How it is divided now.
    #[serde(default)]
    pub mode: Mode,
    /// The slices that are handed out of it, by start.
    #[serde(default)]
    pub slices: Vec<HeldSliceView>,
    /// How much of it could still be handed out, to whoever may share it, from 0 to 1.
    #[serde(default)]
    pub free: f64,
    /// The trust domain that alone may have more of it, while somebody uses it undivided.
    #[serde(default)]
    pub trust: Option<String>,
    /// Tenants of the jobs on it.
    #[serde(default)]
    pub tenants: Vec<String>,
    /// Memory in use, in MiB; `null` where that is not known.
    #[serde(default)]
    pub memory_used_mib: Option<u32>,
    /// Its memory, in MiB; `null` for a model that is not in the catalogue.
    #[serde(default)]
    pub memory_mib: Option<u32>,
}

/// An error that a GPU failed by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureView {
    /// Its number.
    pub xid: u16,
    /// What it means, and when the GPU can be used again.
    pub text: String,
}

/// What is to happen to a simulated fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultRequest {
    /// `gpu/NODE:INDEX` or `node/NODE`.
    pub target: String,
    /// The GPU reports this error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xid: Option<u16>,
    /// The node fails, with everything on it.
    #[serde(default)]
    pub down: bool,
    /// It can be used again.
    #[serde(default)]
    pub heal: bool,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultReply {
    /// `wharf.v1.fault`.
    pub schema: String,
    /// What happened, in a sentence.
    pub text: String,
    /// Jobs that lost tasks by it, as `tenant/name`.
    pub jobs: Vec<String>,
}

/// A slice that is handed out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldSliceView {
    /// Which.
    #[serde(flatten)]
    pub slice: SliceView,
    /// Name of the job that has it, or gets it, as `tenant/name`; `null` for what nobody answers for.
    pub job: Option<String>,
}

/// Whether a GPU can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It can.
    Healthy,
    /// It cannot.
    Failed,
    /// Nothing can be said: its node is down.
    Unknown,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeReply {
    /// `wharf.v1.node`.
    pub schema: String,
    /// The node.
    pub node: NodeView,
}

/// The nodes of the fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeList {
    /// `wharf.v1.nodes`.
    pub schema: String,
    /// In the order in which they were first seen.
    pub nodes: Vec<NodeView>,
}

/// The GPUs of the fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuList {
    /// `wharf.v1.gpus`.
    pub schema: String,
    /// By node and index.
    pub gpus: Vec<GpuView>,
}
