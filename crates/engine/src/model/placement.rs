//! Where a task goes, and why there.

use crate::device::geometry::Slice;
use crate::model::is_default;
use crate::model::policy::Mode;
use crate::units::{GpuMask, GpuUnits, NodeId, PoolId};

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// Where one task goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    pub task: u32,
    pub node: NodeId,
    /// The pool it is charged in.
    pub pool: PoolId,
    pub gpus: GpuMask,
    pub units_each: GpuUnits,
    #[serde(default, skip_serializing_if = "is_default")]
    pub slice: Option<Slice>,
    /// Whether its share is enforced by turns on the whole device.
    #[serde(default, skip_serializing_if = "is_default")]
    pub time_sliced: bool,
    /// Expected loss of throughput by sharing, in thousandths, as it was known when it was placed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tax: u16,
}

impl Placement {
    /// True when both are on one GPU.
    pub fn meets(&self, other: &Self) -> bool {
        self.node == other.node && self.gpus.overlaps(other.gpus)
    }

    /// What it takes of all its GPUs.
    pub fn units(&self) -> GpuUnits {
        self.units_each.times(self.gpus.count())
    }

    /// How it is kept apart from what else is on its GPU.
    pub fn enforced(&self) -> Mode {
        if self.slice.is_some() {
            Mode::Mig
        } else if self.units_each >= GpuUnits::WHOLE {
            Mode::Whole
        } else if self.time_sliced {
            Mode::TimeSlicing
        } else {
            Mode::Mps
        }
    }
}

/// Why the first task of a start went where it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChosenPlace {
    pub by: Field,
    /// What the place costs of what the fleet is worth, in millionths of a GPU.
    pub cost: i64,
    /// The next best node and what it would have cost.
    #[serde(default, skip_serializing_if = "is_default")]
    pub runner_up: Option<(NodeId, i64)>,
}

/// What decided between two places, in the order in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(const_into_str, serialize_all = "snake_case")]
pub enum Field {
    Only,
    /// The other has GPUs, which it does not need.
    WithoutGpus,
    /// Somebody leaves the other first.
    Drains,
    /// The other is missed more.
    Worth,
    /// More of what could still be cut out of it would be lost there.
    Cut,
    /// The fleet has few of the other's model.
    Scarce,
    Node,
}
