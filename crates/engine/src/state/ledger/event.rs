//! The events of the ledger: jobs get places, their tasks run, are asked to leave, and are gone.

use crate::model::placement::{ChosenPlace, Placement};
use crate::state::holding::Holding;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::model::exit::{Exit, ExitDetail};
use crate::model::is_default;
use crate::model::observed::TaskRef;
use crate::model::outcome::Denial;
use crate::units::{BookingId, JobId, Millis, NodeId, Resources, TenantId, Timestamp};

/// What happens to what is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LedgerEvent {
    /// A gang gets its places, whole.
    Started {
        job: JobId,
        attempt: u32,
        tasks: Vec<Placement>,
        policy: u32,
        at: Timestamp,
        #[serde(default, skip_serializing_if = "is_default")]
        chosen: Option<ChosenPlace>,
    },
    /// A task runs.
    Running { job: JobId, task: u32, since: Timestamp },
    /// More tasks of a job that runs get their places: it grows, or is repaired after a loss.
    Grown { job: JobId, tasks: Vec<Placement>, policy: u32, at: Timestamp },
    /// A gang fell below its minimum. The rest runs on; unless it is repaired before the deadline, the whole job waits again.
    Broken { job: JobId, deadline: Timestamp, at: Timestamp },
    /// The rules take tasks from a job. They are then asked to leave, or stopped.
    Evicted { job: JobId, tasks: Vec<u32>, receipt: Eviction, at: Timestamp },
    /// Tasks that were asked to leave may stay after all.
    Withdrawn { job: JobId, tasks: Vec<u32>, at: Timestamp },
    /// A task that an elastic job had to give up is over; the job goes on without it. Older journals do not say how it ended.
    Shed {
        job: JobId,
        task: u32,
        at: Timestamp,
        #[serde(default, skip_serializing_if = "is_default")]
        exit: Option<Exit>,
        #[serde(default, skip_serializing_if = "is_default")]
        detail: ExitDetail,
    },
    /// Tasks are asked to save their work and leave. They are stopped at the deadline.
    Asked { job: JobId, tasks: Vec<u32>, by: Asker, deadline: Timestamp, at: Timestamp },
    /// Tasks saved their work. A coordinator speaks for all ranks.
    Acked { job: JobId, tasks: Vec<u32>, checkpoint_at: Timestamp },
    /// Tasks could not save their work; they stay until the deadline.
    AskFailed { job: JobId, tasks: Vec<u32> },
    /// Tasks are told to stop. They are killed at the deadline.
    Stopping { job: JobId, tasks: Vec<u32>, deadline: Timestamp, at: Timestamp },
    /// The world refused to ask tasks to leave, or to stop them. They still have their places and are told again.
    LeaveRefused { job: JobId, tasks: Vec<u32>, why: Denial, at: Timestamp },
    /// A task is over; its place is free.
    Gone {
        job: JobId,
        task: u32,
        exit: Exit,
        at: Timestamp,
        #[serde(default, skip_serializing_if = "is_default")]
        detail: ExitDetail,
    },
    /// Something runs that should not: an old attempt, or a job that we let go.
    OrphanSeen {
        task: TaskRef,
        place: Placement,
        resources: Resources,
        /// Found by a restore and not understood: it is left alone, because nobody can say that it should not run.
        #[serde(default, skip_serializing_if = "is_default")]
        kept: bool,
    },
    /// An orphan no longer runs.
    OrphanGone { task: TaskRef },
    /// What a live job holds, in a snapshot.
    Carried { job: JobId, holding: Holding },
}

/// Who asks a job to leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Asker {
    /// A person, by a lever.
    Lever { who: String },
    /// The rules, for another job.
    Rules { why: EvictionRule, beneficiary: JobId },
    /// The clock: the job has run as long as it may.
    Limit,
    /// The owner of the job, who wants fewer replicas.
    Scale,
    /// A booked window that begins, or the job's own window, which is over.
    Booking { booking: BookingId },
    /// The owner of the job, who wants fresh replicas.
    Replace,
    /// A node that is to be empty.
    Drain { node: NodeId },
}

/// By which rule something has to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(const_into_str, serialize_all = "snake_case")]
pub enum EvictionRule {
    /// The victim was borrowed capacity, and a guarantee wants it back.
    #[strum(serialize = "reclaim")]
    Guarantee,
    /// The victim was above the fair share of its tenant.
    #[strum(serialize = "reclaim")]
    FairShare,
    /// The victim's class or priority is lower.
    Preempt,
    /// The victim is moved, so that the room left over is in one piece.
    Move,
    /// The victim filled a reserved place.
    Reservation,
    /// The victim was served for longer than a job of its own tenant that waits.
    Order,
    /// The victim's place is booked, or the window that it ran in is over.
    Booking,
    /// The victim's node is to be empty.
    Drain,
}

impl EvictionRule {
    /// True when an eviction is refused that leaves more idle than it starts (rule 7).
    pub(crate) fn is_judged_by_idle(self) -> bool {
        matches!(self, Self::FairShare | Self::Order)
    }
}

/// Why something has to leave, for whom, and at what price.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    pub why: EvictionRule,
    pub beneficiary: JobId,
    /// All of the job, or surplus tasks of an elastic one.
    pub whole: bool,
    /// Work since the last checkpoint, of each task.
    pub lost: Millis,
    /// Lost work and restart, in GPU-milliseconds.
    pub cost: u64,
    /// What the beneficiary gains by not waiting, in GPU-milliseconds. Not asked for a guarantee.
    #[serde(default)]
    pub gain: Option<u64>,
    #[serde(default)]
    pub straddles: Option<Straddle>,
    pub policy: u32,
    /// The window that it leaves for, or that it ran in. Unless a job of the window benefits, the victim is its own beneficiary.
    #[serde(default, skip_serializing_if = "is_default")]
    pub booking: Option<BookingId>,
    /// The node that is to be empty, where that is why. The victim is its own beneficiary then.
    #[serde(default, skip_serializing_if = "is_default")]
    pub node: Option<NodeId>,
}

/// A tenant that an indivisible victim carries below its line. It has first claim on what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Straddle {
    pub tenant: TenantId,
    /// In the unit of the resource that is short: 1/3000 of a GPU, thousandths of a core, or bytes.
    pub short: u64,
}
