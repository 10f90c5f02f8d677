//! Why a request is refused, with the numbers of the answer. Text is made at the edge.

use crate::model::job::{Class, GpuAsk, Topology};
use crate::model::need::SharingRefusal;
use crate::model::shortfall::Shortfall;
use crate::units::{GpuUnits, JobId, Millis, TenantId, Timestamp, Uid};
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// A request that is refused, with the numbers of the answer. Text is made at the edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rejection {
    /// No tenant of that path.
    UnknownTenant { path: String },
    /// Jobs go to the leaves of the tree.
    TenantHasChildren { path: String, children: Vec<String> },
    /// The tenant has a live job of that name.
    NameInUse { job: JobId },
    /// A live array of the tenant has that name.
    ArrayNameInUse { name: String },
    /// The same identity was used for another job.
    UidInUse { job: JobId },
    /// The job of this identity has ended.
    UidEnded,
    /// The spec contradicts itself.
    BadSpec(SpecFault),
    /// The policy lets the class lose less throughput than sharing a GPU would cost it.
    SharingRefused(SharingRefusal),
    /// The tenant may not be in the trust domain that the job names; the policy lets it claim others.
    TrustNotAllowed { tenant: String, domain: String, claims: Vec<String> },
    /// No such level in this fleet.
    UnknownLevel { level: String, known: Vec<String> },
    /// The edge has not compiled this selector.
    UnknownSelector { source: String },
    /// It, or the group that is named, could not run on the whole fleet, healthy and empty.
    Never { shortfall: Shortfall, group: Option<String> },
    /// The job has more text than one may have.
    JobTooLarge { bytes: u64, limit: u64 },
    /// With the bytes of this job the live jobs of a tenant, or of all where none is named, would have too much text.
    BytesFull { tenant: Option<String>, used: u64, bytes: u64, limit: u64, retry_after_ms: u64 },
    /// Too many jobs wait.
    QueueFull { limit: u32, retry_after_ms: u64 },
    /// A job that it is to wait for is not live: it has ended meanwhile, or never was.
    DependencyNotLive { uid: Uid },
    /// It is to wait for more jobs than one job may.
    TooManyDependencies { given: usize, max: usize },
    /// The members of an array are to wait for more jobs than all of them together may.
    TooManyLinks { members: usize, each: usize, max: usize },
    /// The array has no member, or more than one array may have, or runs none at a time.
    BadArray { given: usize, max: usize },
    /// No such live job.
    NoSuchJob,
    /// It has nothing to give back.
    NotRunning,
    /// Its spec says that it may not be evicted.
    NotPreemptible,
    /// The policy lets no job of its class run that long.
    LimitAboveMax { class: Class, given: Millis, max: Millis },
    /// It has no time limit that could be extended.
    NoTimeLimit,
    /// It may run that long already.
    LimitNotLonger { given: Millis, limit: Millis },
    /// It is on its way out for good.
    Ending,
    /// Its number of tasks does not change.
    NotAService,
    /// No replica may be missing, and none may run beside the others for the time.
    NoneToSpare { min: u32 },
    /// A service has at least and at most so many replicas.
    ReplicasOutOfRange { given: u32, min: u32, max: u32 },
    /// No such node.
    NoSuchNode { name: String },
    /// The report builds on something we do not know; a full list is needed.
    Gap { known: u64 },
    /// The report is older than what we know.
    Stale,
    /// The window cannot be booked then; the nearest moment at which it could begin, if there is one.
    BookingRefused { fault: BookingFault, nearest: Option<Timestamp> },
    /// Another booking has that name.
    BookingNameInUse { name: String },
    /// The downtime makes no sense.
    BadDowntime { fault: DowntimeFault },
    /// Another downtime has that name.
    DowntimeNameInUse { name: String },
    /// No downtime of that name is planned.
    NoSuchDowntime { name: String },
    /// No window of that name is booked.
    NoSuchBooking { name: String },
    /// The job cannot use the booking.
    NotOfBooking { name: String, why: NotOfBooking },
    /// The prices name pools that are not there, or numbers beyond their bounds.
    BadPrices,
    /// Nothing would change.
    NothingToDo,
}

/// What is wrong with a spec in itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpecFault {
    /// Between 1 and `max`.
    Tasks { given: u32, max: u32 },
    /// Between 1 and the number of tasks.
    Min { given: u32, tasks: u32 },
    /// At most so many on one node, and a share is less than one.
    Gpus { given: GpuAsk, max: u32 },
    /// At most so many.
    Alternatives { given: usize, max: usize },
    /// Only whole GPUs have an island to share.
    IslandNeedsGpus { topology: Topology },
    /// Only inference jobs are services.
    ServiceClass,
    /// A service wants at most as many replicas as it may have.
    ServiceMax { replicas: u32, max: u32 },
    /// It asks for nothing at all.
    Empty,
    /// At most so many groups.
    Groups { given: usize, max: usize },
    /// Replicas of a service are all alike.
    GroupsOfService,
    /// A group contradicts itself or another.
    Group { at: usize, fault: GroupFault },
}

/// What is wrong with a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupFault {
    /// It has none, or that of a group before it.
    Name,
    /// Between 1 and the number of tasks.
    Min { given: u32, tasks: u32 },
    /// Between 1 and the number of copies.
    MinCopies { given: u32, copies: u32 },
    /// At most so many on one node, and a share is less than one.
    Gpus { given: GpuAsk, max: u32 },
    /// At most so many alternatives.
    Alternatives { given: usize, max: usize },
    /// A part of a GPU has no island.
    Island,
    /// It asks for nothing at all.
    Empty,
}

/// Why a downtime cannot be planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DowntimeFault {
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
    TooLate { lead: Millis },
    /// It lasts longer than the policy allows, or no time at all.
    Span { max: Millis },
    /// It begins later than anybody may book ahead.
    TooFarAhead { max: Millis },
    /// The tenant has as many bookings as it may have.
    TooMany { max: u32 },
    /// With its other bookings of that time its tenant would pass its guarantee.
    BeyondGuarantee { tenant: TenantId, need: GpuUnits, have: GpuUnits },
    /// With the other bookings of that time somebody would pass its limit.
    BeyondLimit { tenant: TenantId },
    /// It would take from guarantees of others: more is booked then beyond guarantees than the fleet has beside them.
    TakesFromGuarantees { need: GpuUnits, have: GpuUnits },
    /// The fleet does not have such places beside the other bookings of that time.
    NoRoom,
}

/// Why a job cannot use a booking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotOfBooking {
    OtherTenant,
    /// It has less than the job's minimum.
    TooSmall,
    /// Its jobs ask for whole GPUs.
    WholeGpusOnly,
    /// Its jobs have no groups: a window is of one shape.
    Groups,
}
