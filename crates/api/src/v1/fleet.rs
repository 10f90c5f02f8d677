//! Nodes and GPUs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wharf_engine::model::policy::Mode;

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
    /// Tasks that are on it, those that leave included.
    #[serde(default)]
    pub tasks: u32,
    /// Why it is cordoned, as its operator says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon_reason: Option<String>,
    /// Who cordoned it, as the client said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordoned_by: Option<String>,
    /// How it is emptied, while it drains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainView>,
    /// Its downtimes that are to come or last, the earliest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub maintenance: Vec<DowntimeView>,
    /// Jobs on it that a drain or a downtime waits for, because they may not be evicted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
}

/// How a node is emptied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainView {
    /// Who wants it.
    pub by: String,
    /// What for; empty where nothing is said.
    pub reason: String,
    /// Since when.
    pub since_ms: u64,
    /// It is to be empty then.
    pub deadline_ms: u64,
    /// Whether work that may not be evicted has to leave too.
    pub everything: bool,
}

/// A planned span of time in which nodes are out of service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DowntimeView {
    /// Its name.
    pub name: String,
    /// The nodes.
    pub nodes: Vec<String>,
    /// When it begins.
    pub from_ms: u64,
    /// When it is over.
    pub until_ms: u64,
    /// Whether it has begun.
    pub began: bool,
    /// Who planned it.
    pub by: String,
    /// What for; empty where nothing is said.
    pub reason: String,
    /// Whether work that may not be evicted has to leave too.
    pub everything: bool,
}

/// Why new work is to stay away from a node: the body of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CordonRequest {
    /// As its operator says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How nodes are to be emptied: the body of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainBody {
    /// Which, where several are named at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// It is to be empty after so long; at once where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// What for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether work that may not be evicted has to leave too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub everything: bool,
}

/// A downtime to be planned: the body of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DowntimeBody {
    /// Unique among downtimes; made of the begin where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The nodes.
    pub nodes: Vec<String>,
    /// When it begins.
    pub from: String,
    /// How long it lasts.
    #[serde(rename = "for")]
    pub lasts: String,
    /// What for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether work that may not be evicted has to leave too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub everything: bool,
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
    /// The node refuses to start anything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refuse_starts: bool,
    /// It does so for this long, like `5m`; until it is healed where nothing is said.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub span: Option<String>,
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
    /// Journal index at which it was made; of the first page where pages were put together. Give it as `since` to
    /// follow what changes from there.
    #[serde(default)]
    pub index: u64,
    /// What to give as `term` beside it.
    #[serde(default)]
    pub term: u64,
    /// What to give as `continue` for the next page; absent where this is the last one.
    #[serde(default, rename = "continue", skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// One downtime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DowntimeReply {
    /// `wharf.v1.downtime`.
    pub schema: String,
    /// The downtime.
    pub downtime: DowntimeView,
}

/// Downtimes that are to come or last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DowntimeList {
    /// `wharf.v1.maintenance`.
    pub schema: String,
    /// The earliest first.
    pub downtimes: Vec<DowntimeView>,
}

/// The GPUs of the fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuList {
    /// `wharf.v1.gpus`.
    pub schema: String,
    /// By node and index.
    pub gpus: Vec<GpuView>,
    /// Journal index at which it was made; of the first page where pages were put together. Give it as `since` to
    /// follow what changes from there.
    #[serde(default)]
    pub index: u64,
    /// What to give as `term` beside it.
    #[serde(default)]
    pub term: u64,
    /// What to give as `continue` for the next page; absent where this is the last one.
    #[serde(default, rename = "continue", skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
