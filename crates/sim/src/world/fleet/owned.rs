//! Jobs that the fleet owns: somebody made them here, changes them and deletes them, and looks here for what became of them.

use std::collections::BTreeMap;

use wharf_engine::model::action::Notice;
use wharf_engine::model::exit::Outcome;
use wharf_engine::model::outcome::{ActionOutcome, ActionRef};
use wharf_engine::model::submission::Submission;
use wharf_engine::units::Uid;

use super::SimFleet;

/// The jobs, and what their owners were told.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnedJobs {
    jobs: BTreeMap<Uid, Submission>,
    rejected: BTreeMap<Uid, Notice>,
    closed: BTreeMap<Uid, Outcome>,
}

impl SimFleet {
    /// Somebody makes a job here, or something else of one that is here; or it is named again. What its owner was told
    /// stands until something else is.
    pub fn own(&mut self, job: Submission) {
        self.unreported.jobs.insert(job.uid);
        self.owned.jobs.insert(job.uid, job);
    }

    /// Its owner deletes it. Tasks that run are the control plane's to stop.
    pub fn disown(&mut self, uid: Uid) {
        self.owned.rejected.remove(&uid);
        if self.owned.jobs.remove(&uid).is_some() {
            self.unreported.jobs.insert(uid);
        }
    }

    /// The jobs that it owns.
    pub fn owned(&self) -> impl Iterator<Item = &Submission> {
        self.owned.jobs.values()
    }

    /// What the owner of a job was told when it, or a change of it, was not taken.
    pub fn rejected(&self, uid: Uid) -> Option<&Notice> {
        self.owned.rejected.get(&uid)
    }

    /// How a job ended, as its owner was told.
    pub fn closed(&self, uid: Uid) -> Option<Outcome> {
        self.owned.closed.get(&uid).copied()
    }

    pub(super) fn owned_job(&self, uid: Uid) -> Option<&Submission> {
        self.owned.jobs.get(&uid)
    }

    pub(super) fn reject(&mut self, uid: Uid, notice: &Notice) {
        let outcome = if self.owned.jobs.contains_key(&uid) {
            self.owned.rejected.insert(uid, notice.clone());
            ActionOutcome::Done
        } else {
            self.unreported.jobs.insert(uid);
            ActionOutcome::Gone
        };
        self.answer(ActionRef::Reject(uid), outcome);
    }

    pub(super) fn close(&mut self, uid: Uid, outcome: Outcome) {
        let is_here = self.owned.jobs.remove(&uid).is_some();
        if is_here {
            self.owned.closed.insert(uid, outcome);
        }
        // That it is not here any more is told, and told again to whoever has not heard it.
        self.unreported.jobs.insert(uid);
        self.answer(ActionRef::Close(uid), if is_here { ActionOutcome::Done } else { ActionOutcome::Gone });
    }
}
