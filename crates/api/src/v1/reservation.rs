//! Starts that are promised to jobs that wait.

use serde::{Deserialize, Serialize};

use super::PlacementView;

/// Promised starts, the earliest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReservationList {
    /// `wharf.v1.reservations`.
    pub schema: String,
    /// The earliest first.
    pub reservations: Vec<ReservationView>,
}

/// A start that is promised to a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReservationView {
    /// Name of the job.
    pub job: String,
    /// Its tenant.
    pub tenant: String,
    /// Its GPUs, of all tasks together.
    pub gpus: f64,
    /// It starts no later than then.
    pub start_ms: u64,
    /// Since when that is promised.
    pub since_ms: u64,
    /// Where its tasks will go.
    pub places: Vec<PlacementView>,
    /// Who holds those places now.
    pub waits_for: Vec<HolderView>,
    /// Starts that were promised to it before and given up, or made earlier, oldest first.
    pub missed: Vec<MissedView>,
}

/// Who holds a place that is promised to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HolderView {
    /// Name of the job.
    pub job: String,
    /// Its tenant.
    pub tenant: String,
    /// When it is over by itself at the latest; `null` where nobody knows.
    pub ends_ms: Option<u64>,
    /// True when that was learned from finished jobs: nobody said so of this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub learned: bool,
    /// When it is asked to leave for the promised start; `null` where it is over by then, or may not be asked.
    #[serde(default)]
    pub asked_ms: Option<u64>,
}

/// A promised start that was given up, or made earlier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MissedView {
    /// What was promised.
    pub start_ms: u64,
    /// Why not: `earlier` where an earlier one was promised; else `place_gone`, `policy`, `guarantee`, `priority`,
    /// `overrun`, `extended`, `above_share`, `within_share`, `booked` or
    /// `overtaken`.
    pub why: String,
    /// When.
    pub at_ms: u64,
}

/// Why no start is promised to a job that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnpromisedView {
    /// `no_known_end`, `above_share` or `others_first`.
    pub why: String,
    /// Of whom no end is known, where that is why.
    pub holders: Vec<HolderView>,
}
