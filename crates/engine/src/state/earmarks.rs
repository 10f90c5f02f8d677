//! The earmarks section: places that are set aside for jobs until their victims are gone.
//!
//! A beneficiary gets its earmark in the commit in which its victims are told to leave. The ledger counts the places as held.

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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Earmark {
    pub job: JobId,
    pub tasks: Vec<Placement>,
    pub policy: u32,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "is_default")]
    pub chosen: Option<ChosenPlace>,
}

/// What happens to earmarks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EarmarksEvent {
    /// Places are set aside for a job, which starts there when its victims are gone. No other job gets them.
    #[serde(rename = "Promised")]
    Earmarked(Earmark),
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

    pub(crate) fn get(&self, job: JobId) -> Option<&(Earmark, Charge)> {
        self.by_job.get(&job)
    }

    pub(crate) fn insert(&mut self, charged: (Earmark, Charge)) {
        let replaced = self.by_job.insert(charged.0.job, charged);
        assert!(replaced.is_none(), "a job has one earmark at a time");
    }

    pub(crate) fn remove(&mut self, job: JobId) -> Option<(Earmark, Charge)> {
        self.by_job.remove(&job)
    }

    pub(crate) fn snapshot(&self, into: &mut Vec<Event>) {
        let earmarks = self.iter().map(|(_, earmark)| EarmarksEvent::Earmarked(earmark.clone()));
        into.extend(earmarks.map(Event::Earmarks));
    }
}
