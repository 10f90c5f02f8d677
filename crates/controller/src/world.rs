//! The living edge: what a control plane needs of a world.
//!
//! A world has nodes and runs tasks. It reports changes with a generation, or everything as a full list; it
//! takes actions, refusing those of an older term, and answers each with a later report; it keeps what ended, and what it
//! answered, until that is acknowledged. It may own jobs, which it names beside nodes and tasks. Its
//! clock is the only one: a simulated world may run faster than the wall.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wharf_engine::model::action::Action;
use wharf_engine::model::observed::{ObservedNode, Report, TaskRef};
use wharf_engine::model::submission::Submission;
use wharf_engine::units::{Millis, Timestamp, Uid};

use crate::disk::Standing;
use crate::telemetry::Telemetry;

/// A node with the strings that stop at the edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// What the engine learns.
    pub node: ObservedNode,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Taints: a task without a matching toleration stays away.
    #[serde(default)]
    pub taints: Vec<Taint>,
}

/// Keeps tasks away that do not tolerate it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Taint {
    pub key: String,
    /// Its value; may be empty.
    #[serde(default)]
    pub value: String,
}

/// What a world says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorldReport {
    /// Everything but the nodes.
    pub report: Report,
    pub nodes: Vec<NodeReport>,
    /// Jobs that the world owns and that appeared or changed; in a full list all of them.
    pub jobs: Vec<Submission>,
    /// Jobs that it owned and no longer has; a full list needs none.
    pub jobs_gone: Vec<Uid>,
}

impl WorldReport {
    /// The nodes without their strings, as the engine learns of them.
    pub(crate) fn observed_nodes(&self) -> Vec<ObservedNode> {
        self.nodes.iter().map(|node| node.node.clone()).collect()
    }

    pub(crate) fn has_failed_gpus(&self) -> bool {
        self.nodes.iter().flat_map(|node| &node.node.gpus).any(|gpu| !gpu.healthy)
    }
}

/// What a device really does, beside what it is handed out for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Share of time in which at least one warp was active on an SM, in thousandths; `None` when unknown.
    pub sm_active_milli: Option<u32>,
    /// Memory in use, in MiB; `None` when unknown.
    pub memory_used_mib: Option<u32>,
}

/// What a task that runs really does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskSample {
    /// SM_ACTIVE of what it was given, in thousandths; `None` when unknown, as on a GPU that others use undivided too.
    pub sm_active_milli: Option<u32>,
    /// The mean of it over the run so far, in thousandths; `None` when unknown.
    pub sm_active_mean_milli: Option<u16>,
    /// Memory of each of its GPUs that it uses, in MiB; `None` when unknown.
    pub memory_used_mib: Option<u32>,
    /// The most that it may use, in MiB; `None` when unknown.
    pub memory_limit_mib: Option<u32>,
}

/// What devices and tasks really do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// World time at which they were taken.
    pub at: Timestamp,
    /// By node name, one per GPU in index order.
    pub gpus: BTreeMap<String, Vec<Sample>>,
    /// Of tasks that run.
    pub tasks: BTreeMap<TaskRef, TaskSample>,
    /// How often tasks of a job were killed because they used more memory than they may, where they were; `None` for
    /// a world that does not count.
    pub ooms: Option<BTreeMap<Uid, u32>>,
}

/// How often the wall clock was found to be set. A world's own clock goes on as before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockSteps {
    pub count: u64,
    pub last: Option<String>,
}

/// A world that did not answer. Whatever was asked of it may have happened or not, and news may be lost: the caller
/// repeats its actions and asks for a full list.
#[derive(Debug, thiserror::Error)]
#[error("{attempted}: {source}")]
pub struct WorldFault {
    pub attempted: String,
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// What somebody lets happen to a simulated world, to see what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A GPU reports an error.
    GpuError { node: String, gpu: usize, xid: u16 },
    /// A GPU can be used again.
    GpuHealed { node: String, gpu: usize },
    /// A node fails, with everything on it.
    NodeDown(String),
    /// A node is up and refuses to start anything.
    StartsRefused {
        node: String,
        /// For so long; until it is healed where nothing is said.
        span: Option<Millis>,
    },
    /// A node is there again.
    NodeHealed(String),
    /// From now on these are the nodes that there are.
    Fleet(Vec<NodeReport>),
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Happened {
    /// Jobs that lost tasks by it, as `tenant/name`, each once.
    pub jobs: Vec<String>,
    pub joined: Vec<String>,
    pub left: Vec<String>,
    /// Nodes that are not as they were.
    pub changed: Vec<String>,
}

/// Why something cannot happen.
#[derive(Debug, thiserror::Error)]
pub enum Impossible {
    /// The world is a real one.
    #[error("this fleet is not simulated: faults are made in a simulated fleet only")]
    NotSimulated,
    #[error("there is no node {0}")]
    NoSuchNode(String),
    /// The node has no such GPU.
    #[error("{node} has {gpus} GPUs, counted from 0: there is no GPU {gpu}")]
    NoSuchGpu { node: String, gpu: usize, gpus: usize },
    /// No driver reports such an error.
    #[error("no driver reports an XID {0}")]
    NoSuchXid(u16),
    #[error(transparent)]
    Fault(#[from] WorldFault),
}

/// Where jobs run.
pub trait World {
    /// The world's clock.
    fn now(&self) -> Timestamp;

    /// Which world it is and the generation of its last report, where it can tell without being asked for a list.
    fn heard(&self) -> Option<(u64, u64)> {
        None
    }

    /// The furthest standing of a journal whose orders it has obeyed. A journal that has not come so far has gone back.
    fn obeyed(&self) -> Standing;

    /// Everything there is.
    fn list(&mut self) -> Result<WorldReport, WorldFault>;

    /// Everything there is, and what ended and was acknowledged since, for as far back as it remembers. For a control
    /// plane whose journal has gone back.
    fn recall(&mut self) -> Result<WorldReport, WorldFault> {
        self.list()
    }

    /// What changed since the last report, in the order in which it arrived here.
    fn changes(&mut self) -> Result<Vec<WorldReport>, WorldFault>;

    /// Takes actions of a leader whose journal has come so far, and returns without waiting for what they lead to. What
    /// became of each comes back with [`changes`](Self::changes), and with [`list`](Self::list) until it is
    /// acknowledged; that something is done may wait for other news. An error means that some may not have arrived. Repeating one is harmless and is answered again; one
    /// that was refused is not carried out later. Those of an older term are refused.
    fn act(&mut self, by: Standing, actions: &[Action]) -> Result<(), WorldFault>;

    /// When it will next have something to say by itself, if it knows.
    fn next_change(&self) -> Option<Timestamp>;

    /// How long by the wall until its clock shows `at`; nothing for a world whose clock is moved by hand.
    fn wall_until(&self, at: Timestamp) -> Duration {
        let _ = at;
        Duration::ZERO
    }

    /// What its clock will show after so long by the wall.
    fn at_wall(&self, after: Duration) -> Timestamp {
        self.now() + Millis(u64::try_from(after.as_millis()).unwrap_or(u64::MAX))
    }

    /// How often the wall clock was found to be set, for a world whose clock does not follow it.
    fn clock_steps(&self) -> ClockSteps {
        ClockSteps::default()
    }

    /// Lets something happen, in a simulated world.
    fn happen(&mut self, what: &Happening) -> Result<Happened, Impossible> {
        let _ = what;
        Err(Impossible::NotSimulated)
    }

    /// What devices and tasks really do, for readers on any thread. Nothing is known of a world that does not tell.
    fn telemetry(&self) -> Telemetry {
        Telemetry::default()
    }
}
