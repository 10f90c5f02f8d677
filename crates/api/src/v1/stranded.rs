//! What is free of GPUs and of no use to whoever waits or usually comes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What is free and of no use, pool by pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StrandedList {
    /// `wharf.v1.stranded`.
    pub schema: String,
    /// By model.
    pub pools: Vec<StrandedView>,
}

/// What a pool has free, and how much of that is of no use to anybody.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StrandedView {
    /// The model of its GPUs.
    pub model: String,
    /// Healthy GPUs on open nodes.
    pub gpus: u64,
    /// What is free of them.
    pub free: f64,
    /// What of that no shape can use any part of.
    pub stranded: f64,
    /// The same by what keeps the nearest shape from it.
    pub why: BTreeMap<String, f64>,
    /// Shape by shape, who waits first.
    pub shapes: Vec<StrandedShapeView>,
}

/// What one shape can use of what is free.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StrandedShapeView {
    /// What a task asks for: `8 GPUs`, `0.25 GPU`, `slice 1g.10gb`, `slice 20GiB`; of a gang also how many tasks start together
    /// and where: `8 GPUs, 4 together in one leaf`.
    pub shape: String,
    /// Thousandths of a core that it asks for beside that.
    pub cpu_milli: u64,
    /// Its trust domain; `null` where nobody in particular asks.
    pub trust: Option<String>,
    /// Tasks that wait.
    pub pending: u64,
    /// Its part of the tasks that came of late, from 0 to 1.
    pub typical: f64,
    /// How many tasks would fit now.
    pub fits: u64,
    /// What they would take.
    pub usable: f64,
    /// Why it can use no more: GPUs by reason. With `usable` they add up to what is free.
    pub why: BTreeMap<String, f64>,
}
