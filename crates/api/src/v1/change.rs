//! What changed: a feed with a place to resume from.

use serde::{Deserialize, Serialize};

/// One thing that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Journal index of what happened.
    pub index: u64,
    /// World time of the turn that wrote it.
    pub at_ms: u64,
    /// What happened.
    pub kind: ChangeKind,
    /// Tenant path of the job or booking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Name of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Identity of the job. Of an orphan that of the job which it says it is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Name of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Name of the booking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booking: Option<String>,
    /// Name of the downtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub downtime: Option<String>,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// A job was submitted.
    JobQueued,
    /// A job has places.
    JobStarted,
    /// A task of a job runs.
    TaskRunning,
    /// A job has more places.
    JobGrown,
    /// A task of a job is over.
    TaskEnded,
    /// Something else of a job is not as it was, such as its limit or its number of replicas.
    JobChanged,
    /// A job was chosen to leave for another.
    JobEvicted,
    /// A job is on its way out.
    JobLeaving,
    /// A job that was on its way out stays.
    JobStays,
    /// A job that left waits again.
    JobRequeued,
    /// A job is held.
    JobHeld,
    /// A job is no longer held.
    JobReleased,
    /// A job is over.
    JobEnded,
    /// A node appeared or is not what it was.
    NodeChanged,
    /// A node is gone.
    NodeGone,
    /// Another policy is in force.
    PolicyApplied,
    /// A booking was made or is not what it was.
    BookingChanged,
    /// A booking is over.
    BookingEnded,
    /// A downtime was planned or has begun.
    DowntimeChanged,
    /// A downtime is over.
    DowntimeEnded,
    /// A start is promised to a job that waits, or another one than before.
    ReservationChanged,
    /// The start of a job is no longer promised.
    ReservationDropped,
    /// Something runs on a node that should not.
    OrphanSeen,
    /// It no longer runs.
    OrphanGone,
    /// Something that this version does not know.
    #[serde(other)]
    Unknown,
}

/// A page of what changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeList {
    /// `wharf.v1.changes`.
    pub schema: String,
    /// In the order in which it happened.
    pub changes: Vec<Change>,
    /// What to give as `since` for what comes next.
    pub index: u64,
    /// What to give as `term` beside it.
    pub term: u64,
}

/// Where to go on with the feed: an index, and the term without which it means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume {
    /// Journal index.
    pub index: u64,
    /// The reign under which it was told.
    pub term: u64,
}

impl ChangeList {
    /// Where what comes next begins.
    pub fn resume(&self) -> Resume {
        Resume { index: self.index, term: self.term }
    }
}
