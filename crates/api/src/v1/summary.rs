//! The whole fleet on one page, for `wharf top` and the dashboard.

use serde::{Deserialize, Serialize};
use wharf_engine::model::job::Class;

use super::{JobState, TenantView, VerdictWord};

/// The state of everything, in short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// `wharf.v1.summary`.
    pub schema: String,
    /// The world's clock.
    pub now_ms: u64,
    /// The fleet by model.
    pub pools: Vec<PoolView>,
    /// The tenant tree.
    pub tenants: Vec<TenantView>,
    /// The jobs that wait, oldest first; a long queue is cut.
    pub queue: Vec<QueueRow>,
    /// The jobs that hold places, the largest first; a long list is cut.
    #[serde(default)]
    pub active: Vec<ActiveRow>,
    /// Live jobs by class and state; pairs without jobs are left out.
    pub jobs: Vec<JobCount>,
    /// Where the journal stands.
    pub journal: JournalView,
    /// How long decisions take; `null` before the first.
    pub decision_ms: Option<DecisionTimes>,
}

/// The GPUs of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolView {
    /// The model; empty for nodes without GPUs.
    pub model: String,
    /// How many there are.
    pub gpus: u32,
    /// How many of them can be used.
    pub healthy: u32,
    /// How many are handed out.
    pub allocated: f64,
    /// How many are really computing: the sum over GPUs of how busy each is; `null` where that is not known.
    pub used_sm: Option<f64>,
    /// How many are divided in which way.
    #[serde(default)]
    pub modes: ModeCounts,
    /// Slices that are handed out.
    #[serde(default)]
    pub slices: u32,
    /// Throughput that those who share are expected to lose by it, from 0 to 1, on average over what they hold;
    /// `null` where nobody shares.
    #[serde(default)]
    pub tax: Option<f64>,
    /// Memory in use on GPUs that report it, in MiB; `null` where none does.
    #[serde(default)]
    pub memory_used_mib: Option<u64>,
    /// Memory of the GPUs that report it, in MiB; `null` where that is not known.
    #[serde(default)]
    pub memory_mib: Option<u64>,
}

/// GPUs by the way in which they are divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeCounts {
    /// Not at all.
    pub whole: u32,
    /// In slices.
    pub mig: u32,
    /// Side by side.
    pub mps: u32,
    /// By turns.
    pub time_slicing: u32,
}

/// A job that waits, in short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueRow {
    /// Its identity.
    pub uid: String,
    /// Its name.
    pub name: String,
    /// Its tenant.
    pub tenant: String,
    /// Its class.
    pub class: Class,
    /// GPUs of all its tasks.
    pub gpus: f64,
    /// Since when it waits.
    pub since_ms: u64,
    /// The answer about it.
    pub verdict: VerdictWord,
    /// Why, as a token.
    pub reason: Option<String>,
    /// Why, in one sentence.
    pub text: String,
}

/// A job that holds places, in short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActiveRow {
    /// Its identity.
    pub uid: String,
    /// Its name.
    pub name: String,
    /// Its tenant.
    pub tenant: String,
    /// Its class.
    pub class: Class,
    /// Whether it starts, runs or leaves.
    pub state: JobState,
    /// GPUs that it holds.
    pub gpus: f64,
    /// How busy what it holds really is, from 0 to 1; `null` where that is not known.
    pub sm_active: Option<f64>,
    /// Since when this attempt runs; `null` until it does.
    pub since_ms: Option<u64>,
    /// The nodes that it is on: the first few.
    pub nodes: Vec<String>,
    /// How many nodes it is on.
    pub node_count: u32,
    /// How it does, in one sentence.
    pub text: String,
}

/// How many jobs are alike in class and state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCount {
    /// The class.
    pub class: Class,
    /// The state.
    pub state: JobState,
    /// How many.
    pub count: u32,
}

/// Where the journal stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalView {
    /// The next index.
    pub index: u64,
    /// The leader's term.
    pub term: u64,
}

/// How long recent decisions took, in milliseconds of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionTimes {
    /// Half of them took no longer.
    pub p50: f64,
    /// All but one in a hundred took no longer.
    pub p99: f64,
}
