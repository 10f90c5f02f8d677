//! What one job holds: its tasks and how far each of them is.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::model::exit::Exit;
use crate::model::is_default;
use crate::model::outcome::Denial;
use crate::model::placement::{ChosenPlace, Placement};
use crate::state::ledger::event::{Asker, LedgerEvent};
use crate::units::{GpuUnits, JobId, Timestamp};

/// Whether a task takes its place, in the eyes of the planner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Stays,
    /// It was told to leave and is still there.
    Leaves,
    Gone,
}

impl LedgerEvent {
    /// The job whose places it is about; none for an orphan.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Self::Started { job, .. }
            | Self::Running { job, .. }
            | Self::Grown { job, .. }
            | Self::Broken { job, .. }
            | Self::Evicted { job, .. }
            | Self::Withdrawn { job, .. }
            | Self::Shed { job, .. }
            | Self::Asked { job, .. }
            | Self::Acked { job, .. }
            | Self::AskFailed { job, .. }
            | Self::Stopping { job, .. }
            | Self::LeaveRefused { job, .. }
            | Self::Gone { job, .. }
            | Self::Carried { job, .. } => Some(*job),
            Self::OrphanSeen { .. } | Self::OrphanGone { .. } => None,
        }
    }
}

impl Holding {
    /// A task by its number.
    pub fn task(&self, task: u32) -> Option<&HeldTask> {
        let at = self.tasks.binary_search_by_key(&task, |held| held.place.task).ok()?;
        Some(&self.tasks[at])
    }

    fn task_mut(&mut self, task: u32) -> &mut HeldTask {
        let at = self.tasks.binary_search_by_key(&task, |held| held.place.task);
        &mut self.tasks[at.expect("an event names a task that was started")]
    }

    /// The number that the next task gets. None is used twice in one attempt, so that a stop never meets another task.
    pub fn next_task(&self) -> u32 {
        let last = self.tasks.last().map_or(0, |task| task.place.task + 1);
        self.next_task.max(last)
    }

    pub(crate) fn apply(&mut self, event: &LedgerEvent) {
        match event {
            LedgerEvent::Running { task, since, .. } => {
                let task = self.task_mut(*task);
                task.since = Some(*since);
                if task.phase == TaskPhase::Bound {
                    task.phase = TaskPhase::Running;
                }
            }
            LedgerEvent::Asked { tasks, by, deadline, at, .. } => {
                self.asked_by = Some(by.clone());
                self.set_phase(tasks, TaskPhase::Asked { deadline: *deadline, failed: false, at: *at });
            }
            LedgerEvent::Acked { tasks, checkpoint_at, .. } => {
                self.set_phase(tasks, TaskPhase::Acked { checkpoint_at: *checkpoint_at });
                // A task that leaves alone speaks for itself.
                if self.staying().next().is_none() {
                    self.saved_at = Some(*checkpoint_at);
                }
            }
            LedgerEvent::AskFailed { tasks, .. } => {
                for &task in tasks {
                    if let TaskPhase::Asked { failed, .. } = &mut self.task_mut(task).phase {
                        *failed = true;
                    }
                }
            }
            LedgerEvent::Stopping { tasks, deadline, .. } => {
                self.set_phase(tasks, TaskPhase::Stopping { deadline: *deadline });
            }
            LedgerEvent::LeaveRefused { tasks, why, at, .. } => {
                for &task in tasks {
                    self.task_mut(task).leave_refused = Some((why.clone(), *at));
                }
            }
            LedgerEvent::Withdrawn { tasks, .. } => {
                self.set_phase(tasks, TaskPhase::Running);
                self.repair_by = None;
            }
            LedgerEvent::Gone { task, exit, at, detail, .. } => {
                let task = self.task_mut(*task);
                task.phase = TaskPhase::Gone { exit: *exit, at: *at };
                task.sm_active_milli = detail.sm_active_milli;
            }
            LedgerEvent::Shed { task, .. } => {
                self.next_task = self.next_task();
                self.drop_tasks(|held| held.place.task == *task);
            }
            LedgerEvent::Grown { tasks, at, .. } => {
                self.next_task = self.next_task();
                self.repair_by = None;
                // New tasks take the place of those that were lost.
                let is_lost =
                    |phase| matches!(phase, TaskPhase::Gone { exit: Exit::Lost | Exit::Stopped, .. });
                self.drop_tasks(|task| is_lost(task.phase));
                self.tasks.extend(tasks.iter().map(|&place| HeldTask::bound(place, *at)));
            }
            LedgerEvent::Broken { deadline, .. } => self.repair_by = Some(*deadline),
            LedgerEvent::Evicted { .. } => {}
            LedgerEvent::Started { .. }
            | LedgerEvent::Carried { .. }
            | LedgerEvent::OrphanSeen { .. }
            | LedgerEvent::OrphanGone { .. } => unreachable!("these do not change a holding"),
        }
        // Nothing is left to be repaired.
        if self.repair_by.is_some() && self.staying().next().is_none() {
            self.repair_by = None;
        }
    }

    /// The record of tasks that are over is dropped; how long the attempt runs is not forgotten with them.
    fn drop_tasks(&mut self, dropped: impl Fn(&HeldTask) -> bool) {
        let since = self.since();
        self.tasks.retain(|task| !dropped(task));
        if self.since() != since {
            self.first_since = since;
        }
    }

    fn set_phase(&mut self, tasks: &[u32], phase: TaskPhase) {
        for &task in tasks {
            let task = self.task_mut(task);
            (task.phase, task.leave_refused) = (phase, None);
        }
    }

    /// Tasks that take their place, by number.
    pub fn holding_tasks(&self) -> Vec<u32> {
        self.tasks.iter().filter(|task| task.holds()).map(|task| task.place.task).collect()
    }

    /// Tasks that nobody told to leave.
    pub fn staying(&self) -> impl Iterator<Item = &HeldTask> {
        self.tasks.iter().filter(|task| task.stays())
    }

    /// Tasks that have finished their work, by number.
    pub fn done(&self) -> impl Iterator<Item = u32> + '_ {
        let done = |task: &&HeldTask| matches!(task.phase, TaskPhase::Gone { exit: Exit::Succeeded, .. });
        self.tasks.iter().filter(done).map(|task| task.place.task)
    }

    /// Tasks that count towards its minimum, by number: those that stay, and those that have finished.
    pub fn alive(&self) -> impl Iterator<Item = u32> + '_ {
        self.staying().map(|task| task.place.task).chain(self.done())
    }

    /// How many tasks are over in that way.
    pub fn exits(&self, exit: Exit) -> usize {
        let gone = |task: &&HeldTask| matches!(task.phase, TaskPhase::Gone { exit: how, .. } if how == exit);
        self.tasks.iter().filter(gone).count()
    }

    /// Since when the attempt runs: the first task's start.
    pub fn since(&self) -> Option<Timestamp> {
        self.tasks.iter().filter_map(|task| task.since).chain(self.first_since).min()
    }

    /// How long the attempt ran: from the first task's start to the last one's end, or to `now`.
    pub fn ran(&self, now: Timestamp) -> u64 {
        let Some(since) = self.since() else { return 0 };
        let until = self.tasks.iter().map(|task| task.until(now));
        until.max().map_or(0, |until| (until - since).0)
    }

    /// GPU time that its tasks were served until `now`, in milliseconds of one GPU.
    pub fn served(&self, now: Timestamp) -> u64 {
        let of_task = |task: &HeldTask| {
            let ran = task.since.map_or(0, |since| (task.until(now) - since).0);
            u128::from(ran) * u128::from(task.place.units().parts())
        };
        let parts: u128 = self.tasks.iter().map(of_task).sum();
        u64::try_from(parts / u128::from(GpuUnits::WHOLE.parts())).unwrap_or(u64::MAX)
    }

    /// When the last of its tasks ended; `now` while one has not.
    pub fn ended_at(&self, now: Timestamp) -> Timestamp {
        self.tasks.iter().map(|task| task.until(now).min(now)).max().unwrap_or(now)
    }

    pub(crate) fn asked_until(&self) -> Option<Timestamp> {
        let until = self.tasks.iter().filter_map(|task| match task.phase {
            TaskPhase::Asked { deadline, .. } => Some(deadline),
            _ => None,
        });
        until.min()
    }

    /// Since when the first of its tasks that do not run yet was given its place.
    pub(crate) fn bound_since(&self) -> Option<Timestamp> {
        let bound = self.tasks.iter().filter(|task| task.phase == TaskPhase::Bound);
        bound.map(|task| if task.bound_at.0 == 0 { self.at } else { task.bound_at }).min()
    }
}

/// What one job holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    pub attempt: u32,
    /// The policy it was decided by; 0 when it was adopted.
    pub policy: u32,
    pub at: Timestamp,
    /// On whose behalf it was last asked to leave.
    #[serde(default)]
    pub asked_by: Option<Asker>,
    /// Until when it may be repaired, while it is below its minimum. After that the whole job waits again.
    #[serde(default, skip_serializing_if = "is_default")]
    pub repair_by: Option<Timestamp>,
    /// The number that the next task gets; 0 before the first growth.
    #[serde(default, skip_serializing_if = "is_default")]
    pub next_task: u32,
    /// Since when the attempt runs, where the record of the task that ran first was dropped.
    #[serde(default, skip_serializing_if = "is_default")]
    pub first_since: Option<Timestamp>,
    /// Why its first task is where it is, where places had prices.
    #[serde(default, skip_serializing_if = "is_default")]
    pub chosen: Option<ChosenPlace>,
    /// When the whole job last saved its work on request.
    #[serde(default, skip_serializing_if = "is_default")]
    pub saved_at: Option<Timestamp>,
    pub tasks: Vec<HeldTask>,
}

/// One task of a holding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldTask {
    pub place: Placement,
    pub since: Option<Timestamp>,
    pub phase: TaskPhase,
    /// When it was given its place; 0 where that was when the attempt began.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bound_at: Timestamp,
    /// The mean of SM_ACTIVE over its run, in thousandths; known after its end, if at all.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sm_active_milli: Option<u16>,
    /// Why the world did not stop it when last told to, and since when.
    #[serde(default, skip_serializing_if = "is_default")]
    pub leave_refused: Option<(Denial, Timestamp)>,
}

impl HeldTask {
    /// A task whose place was just decided; the time is 0 for the first tasks of an attempt.
    pub(crate) fn bound(place: Placement, bound_at: Timestamp) -> Self {
        let phase = TaskPhase::Bound;
        Self { place, since: None, phase, bound_at, sm_active_milli: None, leave_refused: None }
    }

    /// Whether it takes its place.
    pub fn presence(&self) -> Presence {
        match self.phase {
            TaskPhase::Bound | TaskPhase::Running => Presence::Stays,
            TaskPhase::Asked { .. } | TaskPhase::Acked { .. } | TaskPhase::Stopping { .. } => {
                Presence::Leaves
            }
            TaskPhase::Gone { .. } => Presence::Gone,
        }
    }

    /// True until it is over: it takes its place.
    pub fn holds(&self) -> bool {
        self.presence() != Presence::Gone
    }

    /// True while it holds its place and nobody told it to leave.
    pub fn stays(&self) -> bool {
        self.presence() == Presence::Stays
    }

    fn until(&self, now: Timestamp) -> Timestamp {
        if let TaskPhase::Gone { at, .. } = self.phase { at } else { now }
    }
}

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskPhase {
    /// Its place is decided; the world has not said that it runs.
    Bound,
    /// The world says that it runs.
    Running,
    /// It was asked to save its work, and is stopped at the deadline.
    Asked {
        deadline: Timestamp,
        failed: bool,
        #[serde(default, skip_serializing_if = "is_default")]
        at: Timestamp,
    },
    /// It saved its work and is about to be stopped.
    Acked { checkpoint_at: Timestamp },
    /// It is told to stop, and is killed at the deadline.
    Stopping { deadline: Timestamp },
    /// It is over; it holds nothing.
    Gone { exit: Exit, at: Timestamp },
}
