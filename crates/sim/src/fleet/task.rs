//! One simulated task, and how far its job's work is.

use serde::{Deserialize, Serialize};
use wharf_engine::geometry::Slice;
use wharf_engine::input::{Exit, Submission, TaskStatus};
use wharf_engine::policy::Mode;
use wharf_engine::units::{GpuMask, GpuUnits, Timestamp};

use crate::behaviour::Behaviour;

/// A task that runs, or ended and was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimTask {
    pub(super) node: String,
    pub(super) gpus: GpuMask,
    pub(super) units_each: GpuUnits,
    #[serde(default)]
    pub(super) slice: Option<Slice>,
    #[serde(default = "whole")]
    pub(super) enforced: Mode,
    pub(super) since: Option<Timestamp>,
    pub(super) status: TaskStatus,
    /// When it ends by itself, and how.
    pub(super) ends: Option<(Timestamp, Exit)>,
    /// When it answers that it saved its work, or that it could not.
    pub(super) answers: Option<(Timestamp, bool)>,
    /// The generation of the report that last told of it.
    pub(super) reported_in: u64,
    /// Work that was safe when it started.
    pub(super) base_ms: u64,
    pub(super) behaviour: Behaviour,
    /// `None` for a task that was stopped before it was started.
    pub(super) job: Option<Submission>,
}

fn whole() -> Mode {
    Mode::Whole
}

impl SimTask {
    pub(super) fn is_over(&self) -> bool {
        matches!(self.status, TaskStatus::Ended { .. })
    }

    /// Work done by then, with what was safe when it started.
    pub(super) fn work_at(&self, at: Timestamp) -> u64 {
        self.base_ms.saturating_add(self.since.map_or(0, |since| (at - since).0))
    }

    pub(super) fn next_timer(&self) -> Option<Timestamp> {
        if self.is_over() {
            return None;
        }
        [self.ends.map(|(at, _)| at), self.answers.map(|(at, _)| at)].into_iter().flatten().min()
    }
}

/// How far a job's work is, over all attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Work that survives a stop, in milliseconds.
    pub saved_ms: u64,
    /// Work that was done and had to be done again.
    pub lost_ms: u64,
    /// The last attempt whose loss is counted.
    pub(super) counted: u32,
}
