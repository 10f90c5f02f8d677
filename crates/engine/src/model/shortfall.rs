//! What there is too little of, and at which question that showed.

use crate::units::{GpuUnits, TenantId};

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

/// A question a job puts to the fleet. Each narrows what the one before left.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr, VariantArray,
)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum Stage {
    /// Is there such a thing at all?
    Fleet,
    Healthy,
    #[strum(serialize = "right model")]
    Model,
    /// May the job be there: selectors, tolerations, cordons?
    Allowed,
    Free,
    /// Is it free together: enough on one node, island or domain, with CPU and memory beside it?
    #[strum(serialize = "free together")]
    Together,
    /// Do the limits leave room?
    #[strum(serialize = "within quota")]
    Quota,
}

/// The first stage that leaves too little.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortfall {
    pub stage: Stage,
    /// What the minimum of the job takes.
    pub need: Quantity,
    /// What is left after the stage.
    pub have: Quantity,
    /// Whose limit, at the last stage.
    pub tenant: Option<TenantId>,
    /// Which group of the job is short, by its place in the list; none where tasks are alike, or all groups together are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<usize>,
    /// What it lacks beside GPUs, where that alone keeps it from enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Beside>,
}

/// An amount as the job counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Quantity {
    Gpus(GpuUnits),
    Tasks(u64),
}

/// Something beside GPUs that each task asks for and of which there is too little.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beside {
    pub what: BesideGpus,
    /// What one task asks for: thousandths of a core, bytes, or interfaces.
    pub each: u64,
    /// The most that one node has for it, or that a limit leaves.
    pub most: u64,
}

/// What a node has beside GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum BesideGpus {
    Cpu,
    Memory,
    Storage,
    Nics,
}
