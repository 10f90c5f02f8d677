//! The earmarks section: places that are set aside for jobs until their victims are gone.
//!
//! A beneficiary gets its earmark in the same commit in which its victims are told to leave. The ledger counts the places as
//! held, so no other job is given them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::model::is_default;
use crate::model::placement::{ChosenPlace, Placement};
use crate::state::event::Event;
use crate::state::ledger::Charge;
use crate::units::{JobId, Timestamp};

/// Earmarks by job.
#[derive(Clone, Debug, Default)]
pub struct Earmarks {
    by_job: BTreeMap<JobId, (Earmark, Charge)>,
}

/// Places set aside for one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earmark {
    pub tasks: Vec<Placement>,
    pub policy: u32,
    pub at: Timestamp,
    pub chosen: Option<ChosenPlace>,
}

/// What happens to earmarks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EarmarksEvent {
    /// Places are set aside for a job, which starts there when its victims are gone. No other job gets them.
    #[serde(rename = "Promised")]
    Earmarked {
        job: JobId,
        tasks: Vec<Placement>,
        policy: u32,
        at: Timestamp,
        #[serde(default, skip_serializing_if = "is_default")]
        chosen: Option<ChosenPlace>,
    },
    /// The earmark cannot be kept, or is not needed.
    Released { job: JobId, at: Timestamp },
}

impl Earmarks {
    /// The earmark of a job.
    pub fn of(&self, job: JobId) -> Option<&Earmark> {
        self.by_job.get(&job).map(|(earmark, _)| earmark)
    }

    /// Every earmark, in job order.
    pub fn iter(&self) -> impl Iterator<Item = (JobId, &Earmark)> {
        self.by_job.iter().map(|(&job, (earmark, _))| (job, earmark))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_job.len()
    }

    /// True when no job has an earmark.
    pub fn is_empty(&self) -> bool {
        self.by_job.is_empty()
    }

    pub(crate) fn get(&self, job: JobId) -> Option<&(Earmark, Charge)> {
        self.by_job.get(&job)
    }

    pub(crate) fn insert(&mut self, job: JobId, earmark: Earmark, charge: Charge) {
        let replaced = self.by_job.insert(job, (earmark, charge));
        assert!(replaced.is_none(), "a job has one earmark at a time");
    }

    pub(crate) fn remove(&mut self, job: JobId) -> Option<(Earmark, Charge)> {
        self.by_job.remove(&job)
    }

    pub(crate) fn snapshot(&self, into: &mut Vec<Event>) {
        for (&job, (earmark, _)) in &self.by_job {
            let Earmark { tasks, policy, at, chosen } = earmark.clone();
            into.push(Event::Earmarks(EarmarksEvent::Earmarked { job, tasks, policy, at, chosen }));
        }
    }
}
