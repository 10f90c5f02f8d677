//! What happens to what jobs hold, and the facts it is told in: places, tasks, who asked whom to leave and why.

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
        /// Which job.
        job: JobId,
        /// Which try.
        attempt: u32,
        /// Where each task goes.
        tasks: Vec<Placement>,
        /// The policy it was decided by.
        policy: u32,
        /// When.
        at: Timestamp,
        /// Why the first of them goes there, where places have prices.
        #[serde(default, skip_serializing_if = "is_default")]
        chosen: Option<ChosenPlace>,
    },
    /// A task runs.
    Running {
        /// Which job.
        job: JobId,
        /// Which task.
        task: u32,
        /// Since when.
        since: Timestamp,
    },
    /// More tasks of a job that runs get their places: it grows, or is repaired after a loss.
    Grown {
        /// Which job.
        job: JobId,
        /// Where each new task goes.
        tasks: Vec<Placement>,
        /// The policy it was decided by.
        policy: u32,
        /// When.
        at: Timestamp,
    },
    /// A gang fell below its minimum; the rest runs on and waits to be repaired.
    Broken {
        /// Which job.
        job: JobId,
        /// It ends then and waits whole.
        deadline: Timestamp,
        /// When.
        at: Timestamp,
    },
    /// The rules take tasks from a job; what follows is an ask, or a stop.
    Evicted {
        /// Which job.
        job: JobId,
        /// Which tasks.
        tasks: Vec<u32>,
        /// Why, for whom, and at what price.
        receipt: Eviction,
        /// When.
        at: Timestamp,
    },
    /// Tasks that were asked may stay after all.
    Withdrawn {
        /// Which job.
        job: JobId,
        /// Which tasks.
        tasks: Vec<u32>,
        /// When.
        at: Timestamp,
    },
    /// A task that an elastic job had to give up is over; the job goes on without it.
    Shed {
        /// Which job.
        job: JobId,
        /// Which task.
        task: u32,
        /// When.
        at: Timestamp,
        /// How it ended; older journals do not say.
        #[serde(default, skip_serializing_if = "is_default")]
        exit: Option<Exit>,
        /// What else is known of its end.
        #[serde(default, skip_serializing_if = "is_default")]
        detail: ExitDetail,
    },
    /// Tasks are asked to save their work and leave.
    Asked {
        /// Which job.
        job: JobId,
        /// Which tasks.
        tasks: Vec<u32>,
        /// On whose behalf.
        by: Asker,
        /// They are stopped then at the latest.
        deadline: Timestamp,
        /// When.
        at: Timestamp,
    },
    /// Tasks saved their work; a coordinator speaks for all ranks.
    Acked {
        /// Which job.
        job: JobId,
        /// Which tasks.
        tasks: Vec<u32>,
        /// When the work was saved.
        checkpoint_at: Timestamp,
    },
    /// Tasks could not save their work; they stay until the deadline.
    AskFailed {
        /// Which job.
        job: JobId,
        /// Which tasks.
        tasks: Vec<u32>,
    },
    /// Tasks are told to stop.
    Stopping {
        /// Which job.
        job: JobId,
        /// Which tasks.
        tasks: Vec<u32>,
        /// They are killed then.
        deadline: Timestamp,
        /// When.
        at: Timestamp,
    },
    /// The world refused to ask tasks to leave, or to stop them. They have their places still and are told again.
    LeaveRefused {
        /// Which job.
        job: JobId,
        /// Which tasks.
        tasks: Vec<u32>,
        /// Why.
        why: Denial,
        /// When.
        at: Timestamp,
    },
    /// A task is over and what it held is free.
    Gone {
        /// Which job.
        job: JobId,
        /// Which task.
        task: u32,
        /// How it ended.
        exit: Exit,
        /// When.
        at: Timestamp,
        /// What else is known of its end.
        #[serde(default, skip_serializing_if = "is_default")]
        detail: ExitDetail,
    },
    /// Something runs that should not: an old attempt, or a job we let go.
    OrphanSeen {
        /// What.
        task: TaskRef,
        /// Where, and what it takes.
        place: Placement,
        /// Beside GPUs.
        resources: Resources,
        /// Found by a restore and not understood: it is left alone, because nobody can say that it should not run.
        #[serde(default, skip_serializing_if = "is_default")]
        kept: bool,
    },
    /// It no longer runs.
    OrphanGone {
        /// What.
        task: TaskRef,
    },
    /// What a live job holds, in a snapshot.
    Carried {
        /// Which job.
        job: JobId,
        /// Its holding.
        holding: Holding,
    },
}

/// Who asks a job to leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Asker {
    /// A person, by a lever.
    Lever {
        /// As they are called.
        who: String,
    },
    /// The rules, for another job.
    Rules {
        /// By which of them.
        why: EvictionRule,
        /// Who benefits.
        beneficiary: JobId,
    },
    /// The clock: it has run as long as it may.
    Limit,
    /// Its owner, who wants fewer replicas.
    Scale,
    /// A booked window that begins, or its own that is over.
    Booking {
        /// Which.
        booking: BookingId,
    },
    /// Its owner, who wants fresh replicas.
    Replace,
    /// A node that is to be empty.
    Drain {
        /// Which.
        node: NodeId,
    },
}

/// By which rule something has to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(const_into_str, serialize_all = "snake_case")]
pub enum EvictionRule {
    /// It was borrowed, and a guarantee wants it back.
    #[strum(serialize = "reclaim")]
    Guarantee,
    /// It was above the fair share of its tenant.
    #[strum(serialize = "reclaim")]
    FairShare,
    /// Its class or priority is lower.
    Preempt,
    /// It is moved, so that the room left over is in one piece.
    Move,
    /// It filled a place that somebody was promised.
    Reservation,
    /// It was served for longer than a job of its own tenant that waits.
    Order,
    /// Its place is booked, or the window that it ran in is over.
    Booking,
    /// Its node is to be empty.
    Drain,
}

impl EvictionRule {
    /// True when it is refused if more of what it frees stands idle than it starts (rule 7).
    pub(crate) fn is_judged_by_idle(self) -> bool {
        matches!(self, Self::FairShare | Self::Order)
    }
}

/// Why something has to leave, for whom, and at what price.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    /// By which rule.
    pub why: EvictionRule,
    /// Who benefits.
    pub beneficiary: JobId,
    /// All of the job, or surplus tasks of an elastic one.
    pub whole: bool,
    /// Work since the last checkpoint, of each task.
    pub lost: Millis,
    /// Lost work and restart, in GPU-milliseconds.
    pub cost: u64,
    /// What the beneficiary gains by not waiting, in GPU-milliseconds; a guarantee does not ask.
    #[serde(default)]
    pub gain: Option<u64>,
    /// Whom it carries below its line, in which share of it and by how much: the job could not be divided.
    #[serde(default)]
    pub straddles: Option<Straddle>,
    /// The policy it was decided by.
    pub policy: u32,
    /// The booked window that it leaves for, or that it ran in; then it is its own beneficiary unless a job of the window is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub booking: Option<BookingId>,
    /// The node that it leaves because that is to be empty; then it is its own beneficiary.
    #[serde(default, skip_serializing_if = "is_default")]
    pub node: Option<NodeId>,
}

/// A tenant that one indivisible victim carries below its line. It has first claim on what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Straddle {
    /// Whom.
    pub tenant: TenantId,
    /// By so much of the resource that is short: 1/3000 of a GPU, thousandths of a core, or bytes.
    pub short: u64,
}
