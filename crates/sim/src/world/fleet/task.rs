//! One simulated task, and how far its job's work is.

use serde::{Deserialize, Serialize};
use wharf_engine::device::geometry::Slice;
use wharf_engine::model::exit::{Exit, ExitCause};
use wharf_engine::model::observed::{TaskRef, TaskStatus};
use wharf_engine::model::policy::Mode;
use wharf_engine::model::submission::Submission;
use wharf_engine::units::{GpuMask, GpuUnits, Millis, Timestamp};

use crate::world::behaviour::Behaviour;

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
    /// The most memory of each GPU that it may use, in MiB; `None` when that is not known.
    #[serde(default)]
    pub(super) memory_mib: Option<u32>,
    /// Since when it runs; `None` while its devices are made ready.
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
    /// How long after its start it only gets going again, because its job was stopped before.
    #[serde(default)]
    pub(super) restart_ms: u64,
    /// Whether it ends because it uses more memory than it may.
    #[serde(default)]
    pub(super) runs_out: bool,
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

    /// The same without what its job asked for, which may be long and is not seen from outside.
    pub(super) fn without_job(&self) -> Self {
        Self {
            node: self.node.clone(),
            gpus: self.gpus,
            units_each: self.units_each,
            slice: self.slice,
            enforced: self.enforced,
            memory_mib: self.memory_mib,
            since: self.since,
            status: self.status,
            ends: self.ends,
            answers: self.answers,
            reported_in: self.reported_in,
            base_ms: self.base_ms,
            restart_ms: self.restart_ms,
            runs_out: self.runs_out,
            behaviour: self.behaviour,
            job: None,
        }
    }

    /// Work done by then, with what was safe when it started.
    pub(super) fn work_at(&self, at: Timestamp) -> u64 {
        let ran = self.since.map_or(0, |since| (at - since).0);
        self.base_ms.saturating_add(ran.saturating_sub(self.restart_ms))
    }

    /// When it will end by itself, now that it runs: done, failed, or out of memory.
    pub(super) fn set_end(&mut self, task: TaskRef, since: Timestamp) {
        self.ends = self.behaviour.true_end(since + Millis(self.restart_ms), self.base_ms);
        let dies = self.behaviour.out_of_memory(task, self.memory_mib).map(|after| since + after);
        if let Some(at) = dies.filter(|&at| self.ends.is_none_or(|(ends, _)| at < ends)) {
            (self.ends, self.runs_out) = (Some((at, Exit::Failed)), true);
        }
    }

    /// Why it ends by itself in that way.
    pub(super) fn cause_of(&self, exit: Exit) -> Option<ExitCause> {
        match exit {
            Exit::Failed if self.runs_out => Some(ExitCause::OutOfMemory),
            Exit::Failed => Some(ExitCause::Code(1)),
            Exit::Succeeded | Exit::Stopped | Exit::Lost => None,
        }
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
    /// Time that did not count: work that had to be done again, and getting going again.
    pub lost_ms: u64,
    /// The last attempt whose loss is counted.
    pub(super) counted: u32,
    /// The last attempt whose getting going again is counted.
    #[serde(default)]
    pub(super) restarted: u32,
    /// How often a task of it was killed because it used more memory than it may.
    #[serde(default)]
    pub ooms: u32,
}
