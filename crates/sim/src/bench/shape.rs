//! Benchmark shapes: a fleet, a tenant tree and jobs by the thousand, written in groups of equals.
//!
//! A shape is what `wharf bench engine` measures a decision on. Where a behaviour case names every node and task, a
//! shape counts them; [`Shape::build`] makes the state of it through the engine's own door, so that nothing is
//! measured that could not happen. What a shape promises in milliseconds is not said here but beside the benchmark.

mod build;
mod nodes;

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use wharf_engine::model::job::{Class, GPUS_PER_TASK_MAX, GpuAsk, TASKS_MAX};
use wharf_engine::model::policy::{Amount, GpuQuota, Policy, Quota, Tenant};
use wharf_engine::units::{GpuMask, GpuUnits, Resources};

pub use build::Built;

/// The most nodes of a shape: a million GPUs and more.
pub const NODES_MAX: u64 = 200_000;
/// The most tasks of all jobs of a shape together: what a few gigabytes hold.
pub const SHAPE_TASKS_MAX: u64 = 2_000_000;
/// Tenant priority where a shape gives none, as in the behaviour cases.
const PRIORITY_DEFAULT: i32 = 100;

/// A fleet, its tenants and what they ask for.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// The fleet.
    pub nodes: Vec<NodeGroup>,
    /// The tree; a parent that is not listed has no lines of its own.
    pub tenants: Vec<TenantLines>,
    /// What runs, oldest first; laid on the nodes in order, each task on the first that has room.
    #[serde(default)]
    pub running: Vec<JobGroup>,
    /// What waits for the first plan, oldest first.
    #[serde(default)]
    pub pending: Vec<JobGroup>,
    /// What comes when the first plan was applied.
    #[serde(default)]
    pub late: Vec<JobGroup>,
    /// So many running jobs, the oldest, end when the first plan was applied.
    #[serde(default)]
    pub ends: u32,
    /// The most starts that are promised to jobs that wait.
    #[serde(default)]
    pub reservations: u32,
    /// So many replicas every service wants when the first plan was applied.
    #[serde(default)]
    pub scale: Option<u32>,
}

/// Nodes alike.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeGroup {
    /// How many.
    pub count: u32,
    /// GPUs of each, all on one island.
    pub gpus: u32,
    /// Their model.
    pub model: String,
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// Bytes.
    pub memory: u64,
    /// Labels, for jobs that ask for some.
    pub labels: BTreeMap<String, String>,
}

impl Default for NodeGroup {
    fn default() -> Self {
        Self {
            count: 1,
            gpus: 8,
            model: "h100".to_owned(),
            cpu_milli: 128_000,
            memory: 2 << 40,
            labels: BTreeMap::new(),
        }
    }
}

/// A tenant, as in the behaviour cases.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantLines {
    /// `org/team/project`.
    pub path: String,
    /// Nothing where absent.
    pub guaranteed_gpus: Option<Line>,
    /// None where absent.
    pub limit_gpus: Option<Line>,
    /// Claim on surplus; 1 where absent.
    pub weight: Option<f64>,
    /// Higher is served first from surplus; 100 where absent.
    pub priority: Option<i32>,
    /// Unlimited where absent, as are the next three.
    pub guaranteed_cpu_milli: Option<Line>,
    /// None where absent.
    pub limit_cpu_milli: Option<Line>,
    /// Bytes.
    pub guaranteed_memory: Option<Line>,
    /// Bytes.
    pub limit_memory: Option<Line>,
}

/// A number or the word `unlimited`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "an amount is a number or \"unlimited\"")]
pub enum Line {
    /// So much.
    Number(f64),
    /// `unlimited`.
    Word(Unlimited),
}

/// The word `unlimited`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unlimited {
    /// Not metered.
    Unlimited,
}

/// Jobs alike.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobGroup {
    /// How many.
    pub count: u32,
    /// Whose: a path that `tenants` lists.
    pub tenant: String,
    /// How they relate to latency.
    pub class: Class,
    /// GPUs of each task: a whole number, or a part of one.
    pub gpus: f64,
    /// Tasks of each.
    pub tasks: u32,
    /// The gang; all tasks where absent.
    pub min: Option<u32>,
    /// Higher first, inside the tenant.
    pub priority: i32,
    /// Whether they may be evicted.
    pub preemptible: bool,
    /// Services of inference: `tasks` are replicas, and may become so many.
    pub replicas_max: Option<u32>,
    /// The longest that each may run, in seconds; no limit where absent.
    pub limit_s: Option<u64>,
    /// Thousandths of a core of each task.
    pub cpu_milli: u64,
    /// Bytes of each task.
    pub memory: u64,
    /// Only on this model; any where absent.
    pub model: Option<String>,
    /// Only on nodes with these labels.
    pub labels: BTreeMap<String, String>,
}

impl Default for JobGroup {
    fn default() -> Self {
        Self {
            count: 1,
            tenant: String::new(),
            class: Class::Batch,
            gpus: 1.0,
            tasks: 1,
            min: None,
            priority: 0,
            preemptible: true,
            replicas_max: None,
            limit_s: None,
            cpu_milli: 0,
            memory: 0,
            model: None,
            labels: BTreeMap::new(),
        }
    }
}

/// A shape that makes no sense: what is wrong, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {next}")]
pub struct BadShape {
    /// The line, where the text itself is wrong.
    pub line: Option<usize>,
    /// What is wrong.
    pub what: String,
    /// What to write instead.
    pub next: String,
}

impl BadShape {
    fn new(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self { line: None, what: what.into(), next: next.into() }
    }

    /// The same, with its place in front.
    fn at(self, list: &str, index: usize) -> Self {
        Self { what: format!("{list}[{index}]: {}", self.what), ..self }
    }

    fn of_json(error: &serde_json::Error) -> Self {
        let text = error.to_string();
        let said = text.split(" at line ").next().unwrap_or_default();
        let (what, next) = match said.split_once(", expected ") {
            Some((what, expected)) => (what, format!("expected {expected}")),
            None => (said, "see docs/reference/bench-shape.md for the keys of a shape".to_owned()),
        };
        let line = Some(error.line()).filter(|&line| line > 0);
        Self { line, ..Self::new(what, next) }
    }
}

impl Shape {
    /// Reads a shape. Whether it makes sense is judged when it is built.
    pub fn parse(text: &str) -> Result<Self, BadShape> {
        serde_json::from_str(text).map_err(|error| BadShape::of_json(&error))
    }

    /// How many nodes.
    pub fn nodes_len(&self) -> u64 {
        self.nodes.iter().map(|group| u64::from(group.count)).sum()
    }

    /// How many GPUs.
    pub fn gpus_len(&self) -> u64 {
        self.nodes.iter().map(|group| u64::from(group.count) * u64::from(group.gpus)).sum()
    }

    /// Its three lists of jobs, with their names.
    fn lists(&self) -> [(&'static str, &[JobGroup]); 3] {
        [("running", &self.running), ("pending", &self.pending), ("late", &self.late)]
    }

    fn judge(&self) -> Result<(), BadShape> {
        let nodes = self.nodes_len();
        if nodes == 0 || nodes > NODES_MAX {
            let what = format!("nodes: there are {nodes}");
            return Err(BadShape::new(what, format!("a shape has 1 to {NODES_MAX} nodes")));
        }
        for (at, group) in self.nodes.iter().enumerate() {
            group.judge().map_err(|why| why.at("nodes", at))?;
        }
        self.judge_tenants()?;
        for (list, groups) in self.lists() {
            for (at, group) in groups.iter().enumerate() {
                group.judge(self).map_err(|why| why.at(list, at))?;
            }
        }
        let each = |group: &JobGroup| u64::from(group.count) * u64::from(group.tasks);
        let tasks: u64 = self.lists().iter().flat_map(|(_, groups)| groups.iter()).map(each).sum();
        if tasks > SHAPE_TASKS_MAX {
            let what = format!("all jobs together have {tasks} tasks");
            return Err(BadShape::new(what, format!("a shape has at most {SHAPE_TASKS_MAX}")));
        }
        Ok(())
    }

    fn judge_tenants(&self) -> Result<(), BadShape> {
        let mut paths = BTreeSet::new();
        for (at, lines) in self.tenants.iter().enumerate() {
            if lines.path.split('/').any(str::is_empty) {
                let what = format!("path {:?} is no path", lines.path);
                return Err(BadShape::new(what, "write it like team/project").at("tenants", at));
            }
            if !paths.insert(lines.path.as_str()) {
                let what = format!("path {:?} stands twice", lines.path);
                return Err(BadShape::new(what, "keep one of them").at("tenants", at));
            }
            lines.tenant().map_err(|why| why.at("tenants", at))?;
        }
        Ok(())
    }

    /// The policy in force: the tenants of the shape and everything else by default, with a queue that takes all.
    fn policy(&self) -> Result<Policy, BadShape> {
        let mut tenants: Vec<Tenant> =
            self.tenants.iter().map(TenantLines::tenant).collect::<Result<_, _>>()?;
        tenants.sort_by_key(|tenant| tenant.path.matches('/').count());
        let (digest, queue_len_max, reservations_max) = ("shape".to_owned(), u32::MAX, self.reservations);
        let policy = Policy { digest, tenants, queue_len_max, reservations_max, ..Policy::default() };
        Ok(crate::world::with_domain_of_all(policy, build::TRUST))
    }
}

impl NodeGroup {
    fn judge(&self) -> Result<(), BadShape> {
        let most = u32::try_from(GpuMask::MAX).unwrap_or(u32::MAX);
        if self.gpus > most {
            let what = format!("gpus {} is too many", self.gpus);
            return Err(BadShape::new(what, format!("a node has at most {most}")));
        }
        if self.gpus > 0 && self.model.is_empty() {
            return Err(BadShape::new("model is empty", "name the model of the GPUs, for example h100"));
        }
        Ok(())
    }

    fn resources(&self) -> Resources {
        Resources { cpu_milli: self.cpu_milli, memory: self.memory, ..Resources::default() }
    }
}

impl TenantLines {
    fn tenant(&self) -> Result<Tenant, BadShape> {
        let weight = self.weight.unwrap_or(1.0);
        // Thousandths, so that a weight may be a fraction.
        let milli = parts(weight, 1000).and_then(|milli| u32::try_from(milli).ok());
        let milli = milli.ok_or_else(|| {
            BadShape::new(format!("weight {weight} is no weight"), "write a number from 0 to 1000000")
        })?;
        let gpu = u32::try_from(GpuUnits::WHOLE.parts()).expect("3000 fits");
        let none = Amount::Of(0);
        Ok(Tenant {
            path: self.path.clone(),
            gpus: GpuQuota::Any(quota(self.guaranteed_gpus.as_ref(), self.limit_gpus.as_ref(), none, gpu)?),
            cpu: unmetered(self.guaranteed_cpu_milli.as_ref(), self.limit_cpu_milli.as_ref())?,
            memory: unmetered(self.guaranteed_memory.as_ref(), self.limit_memory.as_ref())?,
            weight: milli,
            priority: self.priority.unwrap_or(PRIORITY_DEFAULT),
        })
    }
}

fn unmetered(guaranteed: Option<&Line>, limit: Option<&Line>) -> Result<Quota, BadShape> {
    quota(guaranteed, limit, Amount::Unlimited, 1)
}

fn quota(
    guaranteed: Option<&Line>,
    limit: Option<&Line>,
    absent: Amount,
    unit: u32,
) -> Result<Quota, BadShape> {
    Ok(Quota {
        guaranteed: guaranteed.map_or(Ok(absent), |line| line.amount(unit))?,
        limit: limit.map_or(Ok(Amount::Unlimited), |line| line.amount(unit))?,
    })
}

impl Line {
    fn amount(&self, unit: u32) -> Result<Amount, BadShape> {
        match self {
            Self::Word(Unlimited::Unlimited) => Ok(Amount::Unlimited),
            Self::Number(number) => parts(*number, unit).map(Amount::Of).ok_or_else(|| {
                BadShape::new(format!("{number} is no amount"), "write a number from 0 on, or \"unlimited\"")
            }),
        }
    }
}

impl JobGroup {
    /// The gang.
    fn min(&self) -> u32 {
        self.min.unwrap_or(self.tasks)
    }

    fn ask(&self) -> Result<GpuAsk, BadShape> {
        let whole = GpuUnits::WHOLE.parts();
        let most = u64::from(GPUS_PER_TASK_MAX) * whole;
        match parts(self.gpus, 3000) {
            Some(units) if units.is_multiple_of(whole) && units <= most => {
                Ok(GpuAsk::Whole(u32::try_from(units / whole).expect("at most 16")))
            }
            Some(units) if units < whole => Ok(GpuAsk::Share(GpuUnits::from_parts(units))),
            Some(_) | None => {
                let next = format!("write a whole number up to {GPUS_PER_TASK_MAX}, or a part of one GPU");
                Err(BadShape::new(format!("gpus {} of one task", self.gpus), next))
            }
        }
    }

    fn resources(&self) -> Resources {
        Resources { cpu_milli: self.cpu_milli, memory: self.memory, ..Resources::default() }
    }

    fn judge(&self, shape: &Shape) -> Result<(), BadShape> {
        let Self { tenant, tasks, .. } = self;
        let paths = || shape.tenants.iter().map(|lines| lines.path.as_str());
        if !paths().any(|path| path == tenant) {
            let known: Vec<&str> = paths().collect();
            let next = format!("name one of tenants: {}", known.join(", "));
            return Err(BadShape::new(format!("tenant {tenant:?} is not listed"), next));
        }
        let below = |path: &str| path.strip_prefix(tenant.as_str()).is_some_and(|rest| rest.starts_with('/'));
        if let Some(child) = paths().find(|path| below(path)) {
            let what = format!("tenant {tenant:?} has children");
            return Err(BadShape::new(what, format!("jobs go to the leaves, for example {child}")));
        }
        if *tasks == 0 || *tasks > TASKS_MAX {
            return Err(BadShape::new(format!("tasks {tasks}"), format!("write 1 to {TASKS_MAX}")));
        }
        if self.min() == 0 || self.min() > *tasks {
            let what = format!("min {} of {tasks} tasks", self.min());
            return Err(BadShape::new(what, "write 1 to the number of tasks"));
        }
        if self.ask()? == GpuAsk::Whole(0) && self.resources() == Resources::default() {
            return Err(BadShape::new("it asks for nothing", "give it gpus, cpu_milli or memory"));
        }
        Ok(())
    }
}

/// A number of a file in whole parts of a unit; `None` for one that is no amount.
fn parts(number: f64, unit: u32) -> Option<u64> {
    // A sign in front of nothing, `-0`, does not parse, which is as well.
    let most = 1e15;
    let sensible = (0.0..=most).contains(&number);
    sensible.then(|| format!("{:.0}", number * f64::from(unit)).parse().ok()).flatten()
}

#[cfg(test)]
mod tests;
