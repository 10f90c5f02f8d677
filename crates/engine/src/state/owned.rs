//! The owned section: what the owners of jobs that a world owns are still to be told.
//!
//! A world may own jobs: somebody made them there, and whoever wants to know what became of them looks there. Such a job is
//! queued, planned and run as any other; that it is owned is a fact of the job. This section keeps what the world has to
//! tell about a job that it still names: that it was not taken, that a change of it was not, or how it ended. A notice is
//! due as an action until the world no longer names the job; an ended job that is still named is therefore never run again.

use crate::model::action::Notice;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::state::event::Event;
use crate::units::{Timestamp, Uid};

/// So many jobs that were not taken are remembered. Others are judged again whenever the world names them.
pub(crate) const REJECTED_MAX: usize = 4096;

/// What happens between a world and the jobs that it owns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnedEvent {
    /// The world names a live job as its own.
    Claimed { uid: Uid, at: Timestamp },
    /// The owner is to be told something.
    Noted { uid: Uid, notice: Notice, at: Timestamp },
    /// There is nothing to tell any more.
    #[serde(rename = "Settled")]
    Withdrawn { uid: Uid, at: Timestamp },
    /// The world no longer has the job.
    Gone { uid: Uid, at: Timestamp },
}

/// The notices, by the identities of the jobs.
#[derive(Clone, Debug, Default)]
pub struct Owned {
    notices: BTreeMap<Uid, (Notice, Timestamp)>,
}

impl Owned {
    /// What the owner of a job is to be told.
    pub fn notice(&self, uid: Uid) -> Option<&Notice> {
        self.notices.get(&uid).map(|(notice, _)| notice)
    }

    /// Every notice, with the moment since when it is to be told.
    pub fn notices(&self) -> impl Iterator<Item = (Uid, &Notice, Timestamp)> {
        self.notices.iter().map(|(&uid, (notice, at))| (uid, notice, *at))
    }

    /// How many jobs were not taken and are still named by the world.
    pub(crate) fn rejected_len(&self) -> usize {
        let rejected = |(notice, _): &&(Notice, Timestamp)| matches!(notice, Notice::Rejected { .. });
        self.notices.values().filter(rejected).count()
    }

    pub(crate) fn apply(&mut self, event: &OwnedEvent) {
        match event {
            OwnedEvent::Noted { uid, notice, at } => self.note(*uid, notice.clone(), *at),
            // A job that is claimed was taken after all.
            OwnedEvent::Claimed { uid, .. }
            | OwnedEvent::Withdrawn { uid, .. }
            | OwnedEvent::Gone { uid, .. } => self.forget(*uid),
        }
    }

    pub(crate) fn note(&mut self, uid: Uid, notice: Notice, at: Timestamp) {
        self.notices.insert(uid, (notice, at));
    }

    pub(crate) fn forget(&mut self, uid: Uid) {
        self.notices.remove(&uid);
    }

    /// Comes after the jobs: a job that is queued has no notice.
    pub(crate) fn snapshot(&self, into: &mut Vec<Event>) {
        for (&uid, (notice, at)) in &self.notices {
            into.push(Event::Owned(OwnedEvent::Noted { uid, notice: notice.clone(), at: *at }));
        }
    }
}
