//! What comes in: requests of people and observations of worlds, and how requests are refused.

mod fault;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::answer::Answer;
use crate::bookings::{Booker, BookingFault, NotOfBooking};
use crate::dependency::{After, ArrayRequest};
use crate::fleet::Whom;
use crate::geometry::Slice;
use crate::job::{Class, Spec};
use crate::need::Refused;
use crate::policy::{Mode, Policy};
use crate::prices::Prices;
use crate::units::{GpuMask, GpuUnits, JobId, Millis, Resources, Timestamp, Uid};
use crate::verdict::Shortfall;

pub use fault::{GroupFault, SpecFault};

/// Something that may change the state.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "few are held at a time, and those that are large come seldom")]
pub enum Input {
    /// A job is submitted. The uid makes a repeated request the same request.
    Submit(Box<Submission>),
    /// The owner no longer wants it.
    Cancel {
        /// Which job.
        job: JobId,
        /// Who says so, as the caller names itself.
        by: Option<String>,
    },
    /// The owner no longer wants any member of an array.
    CancelArray {
        /// Which array.
        array: Uid,
        /// Who says so, as the caller names itself.
        by: Option<String>,
    },
    /// Somebody says that a held job may be started.
    Release {
        /// Which job.
        job: JobId,
    },
    /// Somebody asks it to save its work, leave and wait again.
    Evict {
        /// Which job.
        job: JobId,
        /// On whose behalf, for the receipt.
        by: String,
    },
    /// The owner wants it to run longer than it was submitted for.
    Extend {
        /// Which job.
        job: JobId,
        /// How long.
        to: Extension,
    },
    /// The owner wants another number of replicas of a service.
    Scale {
        /// Which job.
        job: JobId,
        /// So many.
        tasks: u32,
    },
    /// A tenant or an operator books a window.
    Book(Box<BookingRequest>),
    /// The window of that name is not wanted any more.
    Unbook {
        /// Its name.
        name: String,
    },
    /// The owner wants every replica of a service replaced by a fresh one; `None`: no longer.
    Replace {
        /// Which job.
        job: JobId,
        /// How.
        how: Option<Replacement>,
    },
    /// Nothing new is placed on the node; what runs there goes on.
    Cordon {
        /// Name of the node.
        node: String,
        /// `false` takes it back.
        on: bool,
        /// Why, as its operator says.
        reason: String,
    },
    /// Nodes are to be empty; `None` takes it back.
    Drain {
        /// Names of the nodes.
        nodes: Vec<String>,
        /// How.
        how: Option<DrainRequest>,
    },
    /// Nodes are to be out of service for a while.
    PlanDowntime(Box<DowntimeRequest>),
    /// The downtime of that name is not wanted any more.
    CallOff {
        /// Its name.
        name: String,
    },
    /// The policy directory changed.
    ApplyPolicy(Policy),
    /// The edge compiled a selector.
    DefineSets(Vec<SetDefinition>),
    /// A world reports.
    Observe(Report),
    /// A world that is ahead of the journal tells everything it knows, with what ended and was acknowledged.
    Restore(Report),
    /// The world names a job that it owns, for the first time or again.
    Own(Box<Submission>),
    /// The world no longer has a job that it owned.
    Disown {
        /// Its identity.
        uid: Uid,
    },
    /// The edge worked out what places are worth.
    Prices(Prices),
    /// Time passed.
    Tick,
}

/// How a node is emptied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainRequest {
    /// It is to be empty after so long.
    pub within: Millis,
    /// Who wants it.
    pub by: String,
    /// What for.
    pub reason: String,
    /// Who has to leave.
    pub whom: Whom,
}

/// Nodes that are to be out of service for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DowntimeRequest {
    /// Unique among downtimes that are to come or last.
    pub name: String,
    /// The nodes, by name.
    pub nodes: Vec<String>,
    /// When it begins.
    pub from: Timestamp,
    /// How long it lasts.
    pub span: Millis,
    /// Who plans it.
    pub by: String,
    /// What for.
    pub reason: String,
    /// Who has to leave before.
    pub whom: Whom,
}

/// Why a downtime cannot be planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DowntimeFault {
    /// It names no nodes.
    NoNodes,
    /// It lasts no time, or is over already.
    Over,
}

/// How replicas are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// So many more than are wanted may run for the time.
    pub surge: u32,
    /// So many fewer may run for the time, where there is no room for more.
    pub unavailable: u32,
}

/// How long a job is to run, all of its attempts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// So long in all.
    To(Millis),
    /// So much longer than it may now.
    By(Millis),
}

/// A job with its identity; names still stand where ids will.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// Chosen at the edge.
    pub uid: Uid,
    /// Path of the tenant.
    pub tenant: String,
    /// Name of the trust domain; the team of the tenant where absent.
    pub trust: Option<String>,
    /// Source text of the node selector; empty for every node that is open to all.
    pub nodes: String,
    /// Source text of the device selector; empty for every device.
    pub devices: String,
    /// The same of each alternative, in order.
    #[serde(default)]
    pub any_of_devices: Vec<String>,
    /// The three above of each group, in order, where it has any.
    #[serde(default, skip_serializing_if = "crate::event::is_default")]
    pub groups: Vec<GroupSelectors>,
    /// Name of the level that holds the whole gang.
    pub gang_within: Option<String>,
    /// Name of the booked window whose places it uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booking: Option<String>,
    /// Jobs that have to be over before it may start.
    #[serde(default, skip_serializing_if = "crate::event::is_default")]
    pub after: Vec<After>,
    /// As many jobs alike, of which so many run at a time.
    #[serde(default, skip_serializing_if = "crate::event::is_default")]
    pub array: Option<ArrayRequest>,
    /// The rest, with ids that `decide` fills in.
    pub spec: Spec,
}

impl Submission {
    /// A job that may go anywhere.
    pub fn of(uid: Uid, tenant: impl Into<String>, spec: Spec) -> Self {
        Self {
            uid,
            tenant: tenant.into(),
            trust: None,
            nodes: String::new(),
            devices: String::new(),
            any_of_devices: Vec::new(),
            groups: Vec::new(),
            gang_within: None,
            booking: None,
            after: Vec::new(),
            array: None,
            spec,
        }
    }
}

impl Submission {
    /// Bytes of everything in it whose length its owner chooses, with the selectors.
    pub fn bytes(&self) -> u64 {
        let own = [&self.nodes, &self.devices].into_iter().chain(&self.any_of_devices);
        let of_groups = self.groups.iter().flat_map(|group| {
            let GroupSelectors { nodes, devices, any_of_devices } = group;
            [nodes, devices].into_iter().chain(any_of_devices)
        });
        let selectors = own.chain(of_groups).map(String::len).sum::<usize>();
        self.spec.bytes().saturating_add(u64::try_from(selectors).unwrap_or(u64::MAX))
    }
}

/// Source texts of the selectors of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSelectors {
    /// Nodes; empty for every node that is open to all.
    pub nodes: String,
    /// Devices; empty for every device.
    pub devices: String,
    /// Devices of each alternative, in order.
    #[serde(default, skip_serializing_if = "crate::event::is_default")]
    pub any_of_devices: Vec<String>,
}

/// A window to be booked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BookingRequest {
    /// Name, tenant and shape, as of a job that takes all of it.
    pub job: Submission,
    /// Who books.
    pub by: Booker,
    /// When it begins.
    pub from: Timestamp,
    /// How long it lasts.
    pub span: Millis,
}

/// A selector and what it matches now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetDefinition {
    /// Canonical source text, the identity of the set.
    pub source: String,
    /// What matches.
    pub members: SetMembers,
}

/// The members of a set, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetMembers {
    /// Nodes, by name.
    Nodes(Vec<String>),
    /// Devices, by model name.
    Models(Vec<String>),
}

/// What a world says, as a change or as a full list.
///
/// A world numbers its changes. A change report tells everything after `since`; the engine takes it only
/// when it knows everything up to there. A full list needs no such knowledge, and what it does not name is
/// gone. Start, watch gap, restart and adoption are therefore one path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What it is about.
    pub scope: Scope,
    /// Which world; a new one starts counting again.
    pub world: u64,
    /// `None` for a full list, else the generation this change builds on.
    pub since: Option<u64>,
    /// The generation after it.
    pub generation: u64,
    /// Nodes, by name.
    pub nodes: Vec<ObservedNode>,
    /// Nodes that no longer exist; a full list needs none.
    pub nodes_gone: Vec<String>,
    /// Tasks that run, or ended since the last acknowledgement.
    pub tasks: Vec<ObservedTask>,
    /// What became of actions; a full list tells it again until it is acknowledged.
    pub answers: Vec<Answer>,
}

/// What a report is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    #[default]
    All,
    /// Nodes alone: what comes first when a world is met, so that selectors can be compiled before the work
    /// that uses them is adopted. It does not move the generation that is known.
    Nodes,
}

/// A node as a world sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedNode {
    /// Unique in the world.
    pub name: String,
    /// `false`: nothing can be said to it, and what ran there is lost.
    pub up: bool,
    /// Model of its GPUs; empty where there are none.
    pub model: String,
    /// Its GPUs, in index order.
    pub gpus: Vec<ObservedGpu>,
    /// What it has beside GPUs.
    pub capacity: Resources,
    /// What others use of it.
    pub others: Resources,
    /// GPUs that others use.
    pub others_gpus: GpuMask,
    /// Level name and domain number, from the nearest level outwards.
    pub domains: Vec<(String, u32)>,
}

/// A GPU as a world sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedGpu {
    /// NVLink domain, unique in the world.
    pub island: u32,
    /// NUMA node.
    pub numa: u8,
    /// PCIe root complex.
    pub pcie_root: u8,
    /// Network rail.
    pub rail: u8,
    /// `false`: not to be used.
    pub healthy: bool,
    /// How it is divided now. It stays so when nobody is on it, until work comes that needs it otherwise.
    #[serde(default, skip_serializing_if = "crate::event::is_default")]
    pub mode: Mode,
    /// Number of the error that it is not healthy by, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xid: Option<u16>,
}

/// One attempt at one task of one job: what actions and observations are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TaskRef {
    /// The job.
    pub uid: Uid,
    /// Which of its tasks.
    pub task: u32,
    /// Which try.
    pub attempt: u32,
}

/// A task as a world sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedTask {
    /// Which.
    pub task: TaskRef,
    /// Where, by name.
    pub node: String,
    /// On which GPUs.
    pub gpus: GpuMask,
    /// How much of each of them.
    pub units_each: GpuUnits,
    /// The slice of the one GPU it is on, where it has one.
    pub slice: Option<Slice>,
    /// Whether it takes turns on the whole device.
    pub time_sliced: bool,
    /// Since when it runs; `None` when it never did.
    pub since: Option<Timestamp>,
    /// How it does.
    pub status: TaskStatus,
    /// The job it belongs to, in a full list, for a control plane that meets this world for the first time.
    pub job: Option<Submission>,
}

/// How a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskStatus {
    /// It runs.
    Running,
    /// It saved its work because it was asked to; the coordinator speaks for all ranks.
    Saved {
        /// When.
        at: Timestamp,
    },
    /// It was asked to save its work and could not.
    SaveFailed,
    /// It is over.
    Ended {
        /// How.
        exit: Exit,
        /// When.
        at: Timestamp,
        /// What else is known of its end.
        #[serde(default, skip_serializing_if = "crate::event::is_default")]
        detail: ExitDetail,
    },
}

/// What is known of a task's end beyond its [`Exit`]. A world that knows nothing says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ExitDetail {
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<ExitCause>,
    /// The most memory of one GPU that it used, in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_peak_mib: Option<u32>,
    /// How busy it kept what it was given while it ran: the mean of SM_ACTIVE, in thousandths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_active_milli: Option<u16>,
}

impl From<ExitCause> for ExitDetail {
    fn from(cause: ExitCause) -> Self {
        Self { cause: Some(cause), ..Self::default() }
    }
}

/// Why a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitCause {
    /// Its process exited with this code.
    Code(i32),
    /// A signal ended its process.
    Signal(u8),
    /// It was killed because it used more memory than it may.
    OutOfMemory,
    /// Its node went away.
    NodeLost,
    /// One of its GPUs went away or failed.
    DeviceLost,
    /// Its node did not start it.
    StartRefused,
    /// The world no longer knows it.
    Missing,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// Its work is done.
    Succeeded,
    /// It gave up by itself.
    Failed,
    /// We stopped it.
    Stopped,
    /// Its node or device went away, or the world no longer knows it.
    Lost,
}

/// A request that is refused, with the numbers of the answer. Text is made at the edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rejection {
    /// No tenant of that path.
    UnknownTenant {
        /// What was given.
        path: String,
    },
    /// Jobs go to the leaves of the tree.
    TenantHasChildren {
        /// What was given.
        path: String,
        /// Some of its children.
        children: Vec<String>,
    },
    /// The tenant has a live job of that name.
    NameInUse {
        /// That job.
        job: JobId,
    },
    /// A live array of the tenant has that name.
    ArrayNameInUse {
        /// The name.
        name: String,
    },
    /// The same identity was used for another job.
    UidInUse {
        /// That job.
        job: JobId,
    },
    /// The job of this identity has ended.
    UidEnded,
    /// The spec contradicts itself.
    BadSpec(SpecFault),
    /// The policy lets the class lose less throughput than sharing a GPU would cost it.
    SharingRefused(Refused),
    /// The tenant may not be in the trust domain that the job names.
    TrustNotAllowed {
        /// Who asks.
        tenant: String,
        /// What it names.
        domain: String,
        /// Domains that the policy lets it claim.
        claims: Vec<String>,
    },
    /// No such level in this fleet.
    UnknownLevel {
        /// What was given.
        level: String,
        /// The levels there are.
        known: Vec<String>,
    },
    /// The edge has not compiled this selector.
    UnknownSelector {
        /// Its text.
        source: String,
    },
    /// It could not run on the whole fleet, healthy and empty.
    Never {
        /// What is too little.
        shortfall: Shortfall,
        /// Name of the group that is short, where one is.
        group: Option<String>,
    },
    /// The job has more text than one may have.
    JobTooLarge {
        /// So many bytes.
        bytes: u64,
        /// The most.
        limit: u64,
    },
    /// The live jobs of a tenant, or of all, would have more text than they may have together.
    BytesFull {
        /// Whose bound it is; `None` for the bound of all tenants together.
        tenant: Option<String>,
        /// What they have.
        used: u64,
        /// What the job would add.
        bytes: u64,
        /// The most.
        limit: u64,
        /// When it is worth another try.
        retry_after_ms: u64,
    },
    /// Too many jobs wait.
    QueueFull {
        /// The most that may wait.
        limit: u32,
        /// When to try again.
        retry_after_ms: u64,
    },
    /// A job that it is to wait for is not live: it has ended meanwhile, or never was.
    DependencyNotLive {
        /// Its identity.
        uid: Uid,
    },
    /// It is to wait for more jobs than one job may.
    TooManyDependencies {
        /// How many were given.
        given: usize,
        /// The most.
        max: usize,
    },
    /// The members of an array are to wait for more jobs than all of them together may.
    TooManyLinks {
        /// How many members there are.
        members: usize,
        /// For how many jobs each is to wait.
        each: usize,
        /// The most of all members together.
        max: usize,
    },
    /// The array has no member, or more than one array may have, or runs none at a time.
    BadArray {
        /// How many members were asked for.
        given: usize,
        /// The most.
        max: usize,
    },
    /// No such live job.
    NoSuchJob,
    /// It has nothing to give back.
    NotRunning,
    /// Its spec says that it may not be evicted.
    NotPreemptible,
    /// The policy lets no job of its class run that long.
    LimitAboveMax {
        /// Its class.
        class: Class,
        /// What was asked for.
        given: Millis,
        /// The longest.
        max: Millis,
    },
    /// It has no time limit that could be extended.
    NoTimeLimit,
    /// It may run that long already.
    LimitNotLonger {
        /// What was asked for.
        given: Millis,
        /// How long it may run now.
        limit: Millis,
    },
    /// It is on its way out for good.
    Ending,
    /// Its number of tasks does not change.
    NotAService,
    /// No replica may be missing, and none may run beside the others for the time.
    NoneToSpare {
        /// The least that may run.
        min: u32,
    },
    /// A service has at least and at most so many replicas.
    ReplicasOutOfRange {
        /// What was asked for.
        given: u32,
        /// The least.
        min: u32,
        /// The most.
        max: u32,
    },
    /// No such node.
    NoSuchNode {
        /// What was given.
        name: String,
    },
    /// The report builds on something we do not know; a full list is needed.
    Gap {
        /// The generation we know.
        known: u64,
    },
    /// The report is older than what we know.
    Stale,
    /// The window cannot be booked.
    BookingRefused {
        /// Why.
        fault: BookingFault,
        /// The nearest moment at which it could begin, if there is one.
        nearest: Option<Timestamp>,
    },
    /// Another booking has that name.
    BookingNameInUse {
        /// The name.
        name: String,
    },
    /// The downtime makes no sense.
    BadDowntime {
        /// Why.
        fault: DowntimeFault,
    },
    /// Another downtime has that name.
    DowntimeNameInUse {
        /// The name.
        name: String,
    },
    /// No downtime of that name is planned.
    NoSuchDowntime {
        /// What was given.
        name: String,
    },
    /// No window of that name is booked.
    NoSuchBooking {
        /// What was given.
        name: String,
    },
    /// The job cannot use the booking.
    NotOfBooking {
        /// The booking's name.
        name: String,
        /// Why not.
        why: NotOfBooking,
    },
    /// The prices name pools that are not there, or numbers beyond their bounds.
    BadPrices,
    /// Nothing would change.
    NothingToDo,
}
