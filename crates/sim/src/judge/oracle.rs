//! The oracle: every set of victims of a small fleet, judged by rules 6 to 8 in the plainest code.
//!
//! An [`Instance`] is a full fleet on which one job waits that is within its tenant's guarantee or fair share. Its running
//! work is cut into units: one task beyond the minimum of an elastic job, or the rest of a job in one piece. With at
//! most [`UNITS_MAX`] of them every set can be looked at: does the job start without these, and do the rules allow to
//! take them? The planner's choice is then held against all there is. Nothing of the planner is used here, not even
//! its fair shares; `planner` alone talks to it.
//!
//! Left out on purpose: parts of a GPU, several models, topology, moves, budgets, minimum runtimes, and work of the
//! job's own tenant that would give way to it. `generate` makes no such instance.

mod facts;
mod generate;
mod judgement;
mod order;
mod planner;
mod report;
mod rules;
mod shares;

use serde::Serialize;
use wharf_engine::model::job::Class;

pub use report::{Line, Report, Run};

/// The most units of an instance: 16,384 sets.
pub const UNITS_MAX: usize = 14;

/// A full fleet and one job that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Instance {
    /// What a restart costs beside lost work.
    pub restart_s: u64,
    /// The longest grace of work that may be taken back.
    pub borrow_grace_max_s: u64,
    /// The fleet.
    pub nodes: Vec<Node>,
    /// The tree in path order, parents included.
    pub tenants: Vec<Tenant>,
    /// What runs.
    pub running: Vec<Running>,
    /// What waits.
    pub pending: Pending,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its GPUs, all of one model.
    pub gpus: u64,
}

/// A tenant; all amounts are whole GPUs, of it and everyone below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tenant {
    /// `team` or `team/project`.
    pub path: String,
    /// What it is promised.
    pub guaranteed_gpus: u64,
    /// What it may never pass.
    pub limit_gpus: Option<u64>,
    /// Claim on what is left.
    pub weight: u32,
    /// Higher is served first from what is left, and pays last.
    pub priority: i32,
}

/// A job that runs with all its tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Running {
    /// Its name.
    pub name: String,
    /// Whose: a path without tenants below it.
    pub tenant: String,
    /// Its class.
    pub class: Class,
    /// Higher leaves later, inside the class.
    pub priority: i32,
    /// Whether it may be evicted.
    pub preemptible: bool,
    /// GPUs of each task.
    pub gpus: u64,
    /// The gang: what is beyond may leave task by task.
    pub min: usize,
    /// For how long it has been running.
    pub running_s: u64,
    /// What it promises about saving its work.
    pub checkpoint: Option<Checkpoint>,
    /// Where each task is.
    pub tasks: Vec<Place>,
}

/// How a job saves its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Checkpoint {
    /// How often, by itself.
    pub every_s: u64,
    /// How long it takes when asked.
    pub grace_s: u64,
}

/// Where a task is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The node's name.
    pub node: String,
    /// Its GPUs there.
    pub gpus: Vec<usize>,
}

/// The job that waits: a gang, all or nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pending {
    /// Its name.
    pub name: String,
    /// Whose.
    pub tenant: String,
    /// Its class.
    pub class: Class,
    /// Its priority.
    pub priority: i32,
    /// GPUs of each task.
    pub gpus: u64,
    /// Tasks.
    pub tasks: u64,
}

impl Running {
    /// Work that no guarantee could get back in time: it may not borrow, and is never taken.
    fn is_fixed(&self, borrow_grace_max_s: u64) -> bool {
        !self.preemptible || self.checkpoint.is_some_and(|checkpoint| checkpoint.grace_s > borrow_grace_max_s)
    }

    /// What leaving now costs one task, in GPU-seconds: work since the last checkpoint and the restart.
    fn task_cost(&self, restart_s: u64) -> u64 {
        let lost = match self.checkpoint {
            None => self.running_s,
            Some(Checkpoint { every_s: 0, .. }) => 0,
            Some(checkpoint) => self.running_s % checkpoint.every_s,
        };
        (lost + restart_s) * self.gpus
    }
}

impl Pending {
    /// All it asks for.
    fn total(&self) -> u64 {
        self.gpus * self.tasks
    }
}

#[cfg(test)]
mod tests;
