//! What ended and was acknowledged, remembered for a control plane whose journal goes back.
//!
//! An acknowledged end is forgotten everywhere but in the journal. When an older journal is put back, this is all that
//! is left to say that a job has run and must not run again. The memory is bounded; what it has lost is for a person to decide.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use wharf_controller::world::WorldReport;
use wharf_engine::model::exit::{Exit, ExitDetail};
use wharf_engine::model::observed::{ObservedTask, TaskRef, TaskStatus};
use wharf_engine::units::{GpuMask, GpuUnits, Timestamp};

use super::SimFleet;

/// Days of a busy fleet, in about ten megabytes.
const REMEMBERED_MAX: usize = 65_536;

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End {
    exit: Exit,
    at: Timestamp,
    detail: ExitDetail,
}

/// How tasks ended that everybody else has forgotten.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ended {
    ends: BTreeMap<TaskRef, End>,
    by_time: BTreeSet<(Timestamp, TaskRef)>,
}

impl Ended {
    pub(crate) fn of(ends: BTreeMap<TaskRef, End>) -> Self {
        let by_time = ends.iter().map(|(&task, end)| (end.at, task)).collect();
        Self { ends, by_time }
    }

    /// Remembers one; returns those that are forgotten for it.
    fn remember(&mut self, task: TaskRef, end: End) -> Vec<TaskRef> {
        if let Some(before) = self.ends.insert(task, end) {
            self.by_time.remove(&(before.at, task));
        }
        self.by_time.insert((end.at, task));
        let mut forgotten = Vec::new();
        while self.ends.len() > REMEMBERED_MAX {
            let Some((_, oldest)) = self.by_time.pop_first() else { break };
            self.ends.remove(&oldest);
            forgotten.push(oldest);
        }
        forgotten
    }
}

impl SimFleet {
    /// An end that was acknowledged.
    pub(super) fn remember(&mut self, task: TaskRef) {
        let Some(known) = self.tasks.get(&task).filter(|known| known.job.is_some()) else { return };
        if let TaskStatus::Ended { exit, at, detail } = known.status {
            let forgotten = self.remembered.remember(task, End { exit, at, detail });
            self.unsaved.remembered.insert(task);
            self.unsaved.remembered.extend(forgotten);
        }
    }

    /// How a task ended, for saving.
    pub(crate) fn remembered(&self, task: TaskRef) -> Option<&End> {
        self.remembered.ends.get(&task)
    }

    /// Everything there is, and everything that ended and is remembered.
    pub fn recall(&mut self) -> WorldReport {
        let mut report = self.list();
        let told: BTreeSet<TaskRef> = report.report.tasks.iter().map(|task| task.task).collect();
        let past = self.remembered.ends.iter().filter(|(task, _)| !told.contains(task));
        report.report.tasks.extend(past.map(|(&task, &End { exit, at, detail })| ObservedTask {
            task,
            node: String::new(),
            gpus: GpuMask::default(),
            units_each: GpuUnits::ZERO,
            slice: None,
            time_sliced: false,
            since: None,
            status: TaskStatus::Ended { exit, at, detail },
            job: None,
        }));
        report
    }
}
