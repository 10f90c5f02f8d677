//! Why a request is refused, with the numbers of the answer. Text is made at the edge.

use crate::model::job::{Class, GpuAsk, Topology};
use crate::model::need::SharingRefusal;
use crate::model::shortfall::Shortfall;
use crate::units::{GpuUnits, JobId, Millis, TenantId, Timestamp, Uid};
use alloc::string::String;
use alloc::vec::Vec;
use serde::Deserialize;
use serde::Serialize;

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
    SharingRefused(SharingRefusal),
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

/// What is wrong with a spec in itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpecFault {
    /// Between 1 and `max`.
    Tasks {
        /// What was given.
        given: u32,
        /// The most.
        max: u32,
    },
    /// Between 1 and the number of tasks.
    Min {
        /// What was given.
        given: u32,
        /// The number of tasks.
        tasks: u32,
    },
    /// At most so many on one node, and a share is less than one.
    Gpus {
        /// What was given.
        given: GpuAsk,
        /// The most.
        max: u32,
    },
    /// At most so many.
    Alternatives {
        /// How many were given.
        given: usize,
        /// The most.
        max: usize,
    },
    /// Only whole GPUs have an island to share.
    IslandNeedsGpus {
        /// What was asked.
        topology: Topology,
    },
    /// Only inference jobs are services.
    ServiceClass,
    /// A service wants at most as many replicas as it may have.
    ServiceMax {
        /// How many it wants.
        replicas: u32,
        /// The most.
        max: u32,
    },
    /// It asks for nothing at all.
    Empty,
    /// At most so many groups.
    Groups {
        /// How many were given.
        given: usize,
        /// The most.
        max: usize,
    },
    /// Replicas of a service are all alike.
    GroupsOfService,
    /// A group contradicts itself or another.
    Group {
        /// Which, from 0.
        at: usize,
        /// How.
        fault: GroupFault,
    },
}

/// What is wrong with a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupFault {
    /// It has none, or that of a group before it.
    Name,
    /// Between 1 and the number of tasks.
    Min {
        /// What was given.
        given: u32,
        /// Tasks of one copy.
        tasks: u32,
    },
    /// Between 1 and the number of copies.
    MinCopies {
        /// What was given.
        given: u32,
        /// The number of copies.
        copies: u32,
    },
    /// At most so many on one node, and a share is less than one.
    Gpus {
        /// What was given.
        given: GpuAsk,
        /// The most.
        max: u32,
    },
    /// At most so many alternatives.
    Alternatives {
        /// How many were given.
        given: usize,
        /// The most.
        max: usize,
    },
    /// A part of a GPU has no island.
    Island,
    /// It asks for nothing at all.
    Empty,
}

/// Why a downtime cannot be planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DowntimeFault {
    /// It names no nodes.
    NoNodes,
    /// It lasts no time, or is over already.
    Over,
}

/// Why a window cannot be booked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BookingFault {
    /// The policy lets only operators book.
    OperatorsOnly,
    /// It is to be booked as an operator does, and whoever asks is none.
    NotAnOperator,
    /// Only whole GPUs are booked.
    WholeGpusOnly,
    /// It begins sooner than the policy's lead time.
    TooLate {
        /// The lead time.
        lead: Millis,
    },
    /// It lasts longer than the policy allows, or no time at all.
    Span {
        /// The longest.
        max: Millis,
    },
    /// It begins later than anybody may book ahead.
    TooFarAhead {
        /// How far ahead.
        max: Millis,
    },
    /// The tenant has as many bookings as it may have.
    TooMany {
        /// So many.
        max: u32,
    },
    /// With its other bookings of that time its tenant would pass its guarantee.
    BeyondGuarantee {
        /// Whose.
        tenant: TenantId,
        /// What it would have booked then.
        need: GpuUnits,
        /// What it is guaranteed.
        have: GpuUnits,
    },
    /// With the other bookings of that time somebody would pass its limit.
    BeyondLimit {
        /// Whose.
        tenant: TenantId,
    },
    /// It would take from guarantees of others.
    TakesFromGuarantees {
        /// What is booked then beyond guarantees, with it.
        need: GpuUnits,
        /// What the fleet has beside all guarantees.
        have: GpuUnits,
    },
    /// The fleet does not have such places beside the other bookings of that time.
    NoRoom,
}

/// Why a job cannot use a booking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotOfBooking {
    /// It is another tenant's.
    OtherTenant,
    /// It has less than the job's minimum.
    TooSmall,
    /// Its jobs ask for whole GPUs.
    WholeGpusOnly,
    /// Its jobs have no groups: a window is of one shape.
    Groups,
}
