//! GPU time of a window: what was handed out, what of it the hardware really did, and what was lost.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The GPU time of a window, in groups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageReport {
    /// `wharf.v1.usage`.
    pub schema: String,
    /// When the window begins.
    pub since_ms: u64,
    /// When it ends.
    pub until_ms: u64,
    /// What the groups are told apart by, in the order that was asked for.
    pub by: Vec<String>,
    /// The groups: those that held the most first, then by their keys.
    pub rows: Vec<UsageRow>,
    /// All of them together.
    pub total: UsageSums,
    /// Set where the window begins earlier than history is kept: what ended before this moment may be missing.
    pub kept_since_ms: Option<u64>,
}

/// The GPU time of one group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageRow {
    /// What it has for each of `by`; `null` for a label or a user that its jobs do not have.
    pub key: BTreeMap<String, Option<String>>,
    /// How much.
    #[serde(flatten)]
    pub sums: UsageSums,
}

/// Amounts of GPU time, in GPU-hours with at most six decimals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageSums {
    /// How many jobs held GPUs.
    pub jobs: u64,
    /// What was held.
    pub allocated_gpu_h: f64,
    /// What of it the hardware was really busy, by the mean of SM_ACTIVE; at least so much where `unknown_gpu_h` is not 0,
    /// and `null` where nothing is known.
    pub used_gpu_h: Option<f64>,
    /// What of it nobody knows the use of.
    pub unknown_gpu_h: f64,
    /// Used of allocated, as a share of 1; at least so much where `unknown_gpu_h` is not 0.
    pub utilisation: Option<f64>,
    /// Work since the last checkpoint that an eviction, a loss or a failure threw away.
    pub lost_gpu_h: f64,
}
