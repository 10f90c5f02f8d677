//! How far work is: what a task resumes, what is saved, what is lost, and how often memory was not enough.

use wharf_engine::model::observed::TaskRef;
use wharf_engine::units::{Timestamp, Uid};

use super::{SimFleet, all_of};

impl SimFleet {
    /// A task that joins others of its attempt goes on where they are; else the job resumes what was saved.
    pub(super) fn work_to_resume(&self, task: TaskRef, at: Timestamp) -> u64 {
        let of_job = self.tasks.range(all_of(task.uid));
        let beside = of_job.filter(|(other, known)| other.attempt == task.attempt && !known.is_over());
        let furthest = beside.map(|(_, known)| known.work_at(at)).max().unwrap_or_default();
        self.progress(task.uid).saved_ms.max(furthest)
    }

    /// A job that was stopped before does not go on at once; every rank of the attempt loses the same time.
    pub(super) fn time_to_restart(&mut self, task: TaskRef) -> u64 {
        let restart_ms = self.tasks[&task].behaviour.restart_ms;
        let Some(progress) = self.progress.get_mut(&task.uid) else { return 0 };
        let stopped_before = progress.counted > 0 && progress.counted < task.attempt;
        if restart_ms == 0 || !stopped_before {
            return 0;
        }
        if progress.restarted < task.attempt {
            progress.restarted = task.attempt;
            progress.lost_ms += restart_ms;
            self.unsaved.progress.insert(task.uid);
        }
        restart_ms
    }

    pub(super) fn count_oom(&mut self, uid: Uid) {
        let progress = self.progress.entry(uid).or_default();
        progress.ooms += 1;
        self.ooms.insert(uid, progress.ooms);
        self.unsaved.progress.insert(uid);
    }

    pub(super) fn save(&mut self, task: TaskRef, at: Timestamp) {
        let known = &self.tasks[&task];
        let behaviour = known.behaviour;
        let writing = if behaviour.saves_as_of_ask { behaviour.checkpoint_ms } else { 0 };
        let work = known.work_at(Timestamp(at.0.saturating_sub(writing)));
        let progress = self.progress.entry(task.uid).or_default();
        progress.saved_ms = progress.saved_ms.max(work);
        self.unsaved.progress.insert(task.uid);
    }

    /// All ranks of an attempt are equally far, so one of them tells what the job loses.
    pub(super) fn lose_unsaved(&mut self, task: TaskRef, at: Timestamp) {
        let known = &self.tasks[&task];
        let (work, base) = (known.work_at(at), known.base_ms);
        let every =
            known.job.as_ref().and_then(|job| job.spec.checkpoint).map_or(0, |contract| contract.every.0);
        let progress = self.progress.entry(task.uid).or_default();
        if progress.counted >= task.attempt {
            return;
        }
        progress.counted = task.attempt;
        let kept_by_itself = base + (work - base).checked_div(every).unwrap_or(0) * every;
        progress.saved_ms = progress.saved_ms.max(kept_by_itself);
        progress.lost_ms += work.saturating_sub(progress.saved_ms);
        self.unsaved.progress.insert(task.uid);
    }
}
