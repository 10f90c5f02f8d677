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
    /// Starts that were promised to it before and given up, oldest first.
    pub missed: Vec<MissedView>,
}

/// Who holds a place that is promised to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HolderView {
    /// Name of the job.
    pub job: String,
    /// Its tenant.
    pub tenant: String,
    /// When it is over at the latest; `null` where nobody knows: it is asked to leave in time.
    pub ends_ms: Option<u64>,
    /// True when that was learned from finished jobs: nobody said so of this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub learned: bool,
}

/// A promised start that was given up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MissedView {
    /// What was promised.
    pub start_ms: u64,
    /// Why not: `place_gone`, `policy`, `guarantee`, `overrun`, `above_share`, `overtaken` or
    /// `booked`.
    pub why: String,
    /// When it was given up.
    pub at_ms: u64,
}
