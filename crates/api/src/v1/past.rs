//! What is over, and by which rules it was decided.

use serde::{Deserialize, Serialize};
pub use wharf_controller::disk::HistoryKind;

use super::ActorView;

/// A fact about the past.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryView {
    /// When.
    pub at_ms: u64,
    /// What it tells of.
    pub kind: HistoryKind,
    /// Tenant of the job.
    pub tenant: String,
    /// Name of the job, or what a lever is about, as `node/n1`.
    pub name: String,
    /// Who did it; `null` in rows of a version that did not keep that.
    #[serde(default)]
    pub actor: Option<ActorView>,
    /// The rest.
    pub body: serde_json::Value,
}

/// History, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryList {
    /// `wharf.v1.history`.
    pub schema: String,
    /// Newest first.
    pub rows: Vec<HistoryView>,
}

/// The policy in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyView {
    /// `wharf.v1.policy`.
    pub schema: String,
    /// Counts up with every policy that was applied.
    pub version: u32,
    /// Hash of the files it was compiled from.
    pub digest: String,
    /// Why the files as they are now cannot be applied.
    pub error: Option<String>,
    /// What is doubtful in the files as they are now, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
