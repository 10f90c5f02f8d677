//! What comes in: requests of people and observations of worlds, and how requests are refused.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::model::actor::Actor;
use crate::model::observed::Report;
use crate::model::policy::Policy;
use crate::model::submission::Submission;
use crate::price::prices::Prices;
use crate::state::bookings::Booker;
use crate::state::fleet::Whom;
use crate::units::{JobId, Millis, Timestamp, Uid};

/// Something that may change the state.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "few are held at a time, and those that are large come seldom")]
pub enum Input {
    /// A job is submitted. The uid makes a repeated request the same request.
    Submit(Box<Submission>),
    /// The owner no longer wants it.
    Cancel { job: JobId },
    /// The owner no longer wants any member of an array.
    CancelArray { array: Uid },
    /// Somebody says that a held job may be started.
    Release { job: JobId },
    /// Somebody asks it to save its work, leave and wait again.
    Evict { job: JobId },
    /// The owner wants it to run longer than it was submitted for.
    Extend { job: JobId, to: Extension },
    /// The owner wants another number of replicas of a service.
    Scale { job: JobId, tasks: u32 },
    /// A tenant or an operator books a window.
    Book(Box<BookingRequest>),
    /// The window of that name is not wanted any more.
    Unbook { name: String },
    /// The owner wants every replica of a service replaced by a fresh one; `None`: no longer.
    Replace { job: JobId, how: Option<Replacement> },
    /// Nothing new is placed on the node, and what runs there goes on; `on: false` takes it back.
    Cordon { node: String, on: bool, reason: String },
    /// Nodes are to be empty; `None` takes it back.
    Drain { nodes: Vec<String>, how: Option<DrainRequest> },
    /// Nodes are to be out of service for a while.
    PlanDowntime(Box<DowntimeRequest>),
    /// The downtime of that name is not wanted any more.
    CallOff { name: String },
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
    Disown { uid: Uid },
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
    pub reason: String,
    pub whom: Whom,
}

/// Nodes that are to be out of service for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DowntimeRequest {
    /// Unique among downtimes that are to come or last.
    pub name: String,
    pub nodes: Vec<String>,
    pub from: Timestamp,
    pub span: Millis,
    pub reason: String,
    pub whom: Whom,
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
    To(Millis),
    By(Millis),
}

/// A window to be booked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BookingRequest {
    /// Name, tenant and shape, as of a job that takes all of it.
    pub job: Submission,
    /// In which capacity; [`Booker::Operator`] is for actors with that role.
    pub by: Booker,
    pub from: Timestamp,
    pub span: Millis,
}

/// A selector and what it matches now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetDefinition {
    /// Canonical source text, the identity of the set.
    pub source: String,
    pub members: SetMembers,
}

/// The members of a set, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetMembers {
    Nodes(Vec<String>),
    Models(Vec<String>),
}

/// An input, and who gives it.
#[derive(Clone, Debug)]
pub struct Request {
    pub actor: Actor,
    pub input: Input,
}
