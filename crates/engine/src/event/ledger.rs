//! What happens to what jobs hold, and the facts it is told in: places, tasks, who asked whom to leave and why.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::is_default;
use crate::answer::Denial;
use crate::geometry::Slice;
use crate::input::{Exit, ExitDetail, TaskRef};
use crate::policy::Mode;
use crate::units::{
    BookingId, GpuMask, GpuUnits, JobId, Millis, NodeId, PoolId, Resources, TenantId, Timestamp,
};

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
        chosen: Option<Chosen>,
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
        why: Why,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// It was borrowed, and a guarantee wants it back.
    Guarantee,
    /// It was above the fair share of its tenant.
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

impl Why {
    /// The word used in receipts and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Guarantee | Self::FairShare => "reclaim",
            Self::Preempt => "preempt",
            Self::Move => "move",
            Self::Reservation => "reservation",
            Self::Order => "order",
            Self::Booking => "booking",
            Self::Drain => "drain",
        }
    }

    /// True when it is refused if more of what it frees stands idle than it starts (rule 7).
    pub(crate) fn is_judged_by_idle(self) -> bool {
        matches!(self, Self::FairShare | Self::Order)
    }
}

/// Why something has to leave, for whom, and at what price.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    /// By which rule.
    pub why: Why,
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

/// Where one task goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Which task.
    pub task: u32,
    /// Which node.
    pub node: NodeId,
    /// The pool it is charged in.
    pub pool: PoolId,
    /// Which of its GPUs.
    pub gpus: GpuMask,
    /// How much of each of them.
    pub units_each: GpuUnits,
    /// The slice of the one GPU it is given, where it is given one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub slice: Option<Slice>,
    /// Whether its share is enforced by turns on the whole device.
    #[serde(default, skip_serializing_if = "is_default")]
    pub time_sliced: bool,
    /// Expected loss of throughput by sharing, in thousandths, as it was known when it was placed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tax: u16,
}

impl Placement {
    /// How it is kept apart from what else is on its GPU.
    pub fn enforced(&self) -> Mode {
        if self.slice.is_some() {
            Mode::Mig
        } else if self.units_each >= GpuUnits::WHOLE {
            Mode::Whole
        } else if self.time_sliced {
            Mode::TimeSlicing
        } else {
            Mode::Mps
        }
    }
}

/// Why the first task of a start went where it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// What decided.
    pub by: Field,
    /// What the place costs of what the fleet is worth, in millionths of a GPU.
    pub cost: i64,
    /// The next best node and what it would have cost.
    #[serde(default, skip_serializing_if = "is_default")]
    pub runner_up: Option<(NodeId, i64)>,
}

/// What decided between two places, in the order in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    /// There was no other.
    Only,
    /// The other has GPUs, which it does not need.
    WithoutGpus,
    /// Somebody leaves the other first.
    Drains,
    /// The other is missed more.
    Worth,
    /// More of what could still be cut out of it would be lost there.
    Cut,
    /// The fleet has few of the other's model.
    Scarce,
    /// Nothing but the order of nodes.
    Node,
}

impl Field {
    /// The word used in receipts.
    pub fn word(self) -> &'static str {
        match self {
            Self::Only => "only",
            Self::WithoutGpus => "without_gpus",
            Self::Drains => "drains",
            Self::Worth => "worth",
            Self::Cut => "cut",
            Self::Scarce => "scarce",
            Self::Node => "node",
        }
    }
}

/// What one job holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// Which try.
    pub attempt: u32,
    /// The policy it was decided by; 0 when it was adopted.
    pub policy: u32,
    /// When it was decided.
    pub at: Timestamp,
    /// On whose behalf it was last asked to leave.
    #[serde(default)]
    pub asked_by: Option<Asker>,
    /// Below its minimum; it ends then and waits whole.
    #[serde(default, skip_serializing_if = "is_default")]
    pub repair_by: Option<Timestamp>,
    /// The number that the next task gets; 0 where only the first tasks were started.
    #[serde(default, skip_serializing_if = "is_default")]
    pub next_task: u32,
    /// Since when the attempt runs, where the task that ran first is not among the tasks any more.
    #[serde(default, skip_serializing_if = "is_default")]
    pub first_since: Option<Timestamp>,
    /// Why its first task is where it is, where places had prices.
    #[serde(default, skip_serializing_if = "is_default")]
    pub chosen: Option<Chosen>,
    /// When all of it last saved its work because it was asked to.
    #[serde(default, skip_serializing_if = "is_default")]
    pub saved_at: Option<Timestamp>,
    /// Its tasks.
    pub tasks: Vec<HeldTask>,
}

/// One task of a holding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldTask {
    /// Where it is.
    pub place: Placement,
    /// Since when it runs, once it does.
    pub since: Option<Timestamp>,
    /// How far it is.
    pub phase: TaskPhase,
    /// When it was given its place; 0 where that was when the attempt began.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bound_at: Timestamp,
    /// The mean of SM_ACTIVE over its run, in thousandths, once it is over and where that is known.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sm_active_milli: Option<u16>,
    /// Why the world did not let it leave when it was last told to, and since when it says so.
    #[serde(default, skip_serializing_if = "is_default")]
    pub leave_refused: Option<(Denial, Timestamp)>,
}

impl HeldTask {
    /// True until it is over: it takes its place.
    pub fn holds(&self) -> bool {
        !matches!(self.phase, TaskPhase::Gone { .. })
    }

    /// True while it holds its place and nobody told it to leave.
    pub fn stays(&self) -> bool {
        matches!(self.phase, TaskPhase::Bound | TaskPhase::Running)
    }
}

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskPhase {
    /// Its place is decided; the world has not said that it runs.
    Bound,
    /// It runs.
    Running,
    /// It was asked to save its work.
    Asked {
        /// It is stopped then at the latest.
        deadline: Timestamp,
        /// It said that it cannot.
        failed: bool,
        /// When it was asked.
        #[serde(default, skip_serializing_if = "is_default")]
        at: Timestamp,
    },
    /// It saved its work and is about to be stopped.
    Acked {
        /// When the work was saved.
        checkpoint_at: Timestamp,
    },
    /// It is told to stop.
    Stopping {
        /// It is killed then.
        deadline: Timestamp,
    },
    /// It is over; it holds nothing.
    Gone {
        /// How it ended.
        exit: Exit,
        /// When.
        at: Timestamp,
    },
}
