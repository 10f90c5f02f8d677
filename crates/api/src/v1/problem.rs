//! How the API says no: `application/problem+json` with a stable code.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A refusal or fault, with what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// A name for the kind of problem, as a URI.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind of problem in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened this time.
    pub detail: String,
    /// The kind of problem as a stable word.
    pub code: Code,
    /// What to try next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<Box<str>>,
    /// When to try again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The nearest moment at which a booking could begin, where one was refused and there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nearest_ms: Option<Box<u64>>,
}

impl Problem {
    /// A problem of that kind.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:wharf:problem:{}", code.word()),
            title: code.title().to_owned(),
            status: code.status(),
            detail: detail.into(),
            code,
            hint: None,
            retry_after_ms: None,
            nearest_ms: None,
        }
    }

    /// With what to try next.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into().into_boxed_str()), ..self }
    }

    /// With the time after which another try makes sense.
    #[must_use]
    pub fn retry_after_ms(self, millis: u64) -> Self {
        Self { retry_after_ms: Some(millis), ..self }
    }

    /// With the nearest moment at which a booking could begin.
    #[must_use]
    pub fn nearest_ms(self, at: Option<u64>) -> Self {
        Self { nearest_ms: at.map(Box::new), ..self }
    }
}

impl fmt::Display for Problem {
    /// `no job lab/x (no_such_job); list them with: wharf get jobs`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.detail, self.code.word())?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Problem {}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $status:literal, $exit:literal, $title:literal;)*) => {
        /// The kinds of problems. Words are stable; a reader that meets a new one sees [`Code::Unknown`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Code {
            $($(#[$doc])* #[serde(rename = $word)] $name,)*
            /// A code of a later version.
            #[serde(other, rename = "unknown")]
            Unknown,
        }

        impl Code {
            /// Every code of this version.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The stable word.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                    Self::Unknown => "unknown",
                }
            }

            /// The HTTP status.
            pub fn status(self) -> u16 {
                match self {
                    $(Self::$name => $status,)*
                    Self::Unknown => 500,
                }
            }

            /// What the command line exits with: 2 never, 3 refused by policy, 4 not found, 5 conflict, 64 usage,
            /// 69 no answer to be had.
            pub fn exit_code(self) -> u8 {
                match self {
                    $(Self::$name => $exit,)*
                    Self::Unknown => 69,
                }
            }

            /// The kind of problem in words.
            pub fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title,)*
                    Self::Unknown => "A problem this version does not know",
                }
            }
        }
    };
}

codes! {
    /// The body or a parameter cannot be read.
    BadRequest = "bad_request", 400, 64, "The request cannot be read";
    /// The job contradicts itself.
    BadSpec = "bad_spec", 422, 64, "The job contradicts itself";
    /// More than the API takes in one request.
    TooLarge = "too_large", 413, 64, "The request is too large";
    /// The request took too long to arrive or to answer.
    RequestTimeout = "request_timeout", 408, 69, "The request took too long";
    /// The URL is longer than it may be.
    UriTooLong = "uri_too_long", 414, 64, "The URL is too long";
    /// The header fields are more or longer than they may be.
    HeadTooLarge = "head_too_large", 431, 64, "The head of the request is too large";
    /// A body of another type, or a change without one.
    UnsupportedMediaType = "unsupported_media_type", 415, 64, "The request has the wrong Content-Type";
    /// The request calls the control plane by a name that is not its own.
    ForeignHost = "foreign_host", 421, 4, "The control plane does not answer to this name";
    /// A page of another site made a browser send it.
    ForeignOrigin = "foreign_origin", 403, 4, "A page of another site may not use this API";
    /// The path is there, but not for this method.
    MethodNotAllowed = "method_not_allowed", 405, 64, "The path does not take this method";
    /// No such path.
    NotFound = "not_found", 404, 4, "There is nothing at this path";
    /// What is asked for was there and is no longer kept.
    Gone = "gone", 410, 5, "It is no longer kept";
    /// No such live job.
    NoSuchJob = "no_such_job", 404, 4, "No such job";
    /// No such node.
    NoSuchNode = "no_such_node", 404, 4, "No such node";
    /// No such GPU.
    NoSuchGpu = "no_such_gpu", 404, 4, "No such GPU";
    /// Faults are made in a simulated fleet only.
    NotSimulated = "not_simulated", 409, 5, "The fleet is not simulated";
    /// No eviction with that id in history.
    NoSuchEviction = "no_such_eviction", 404, 4, "No such eviction";
    /// No model of that name in the catalogue.
    UnknownModel = "unknown_model", 404, 4, "No such model";
    /// No tenant of that path in the policy.
    UnknownTenant = "unknown_tenant", 404, 4, "No such tenant";
    /// A job that it is to wait for ended without success.
    DependencyFailed = "dependency_failed", 409, 3, "The job it waits for did not succeed";
    /// A bare name that more than one tenant uses.
    AmbiguousJob = "ambiguous_job", 409, 5, "More than one job has this name";
    /// The tenant has a live job of that name.
    NameInUse = "name_in_use", 409, 5, "The name is in use";
    /// The key was used for another job.
    KeyInUse = "key_in_use", 409, 5, "The idempotency key was used for another job";
    /// It has nothing to give back.
    NotRunning = "not_running", 409, 5, "The job is not running";
    /// Its owner wants it to run longer, and it has no limit.
    NoTimeLimit = "no_time_limit", 409, 5, "The job has no time limit";
    /// It may run that long already.
    LimitNotLonger = "limit_not_longer", 409, 5, "The new limit is not longer";
    /// It is on its way out for good.
    JobEnding = "job_ending", 409, 5, "The job is ending";
    /// Its number of tasks does not change.
    NotAService = "not_a_service", 409, 5, "The job is no service";
    /// No replica may be missing, and none may run beside the others for the time.
    NoneToSpare = "none_to_spare", 409, 5, "No replica of the service can be spared";
    /// A service has a least and a most number of replicas.
    ReplicasOutOfRange = "replicas_out_of_range", 422, 64, "The service may not have so many replicas";
    /// No window of that name is booked.
    NoSuchBooking = "no_such_booking", 404, 4, "No such booking";
    /// Another booking has that name.
    BookingNameInUse = "booking_name_in_use", 409, 5, "The name is in use";
    /// The job cannot use the booking.
    NotOfBooking = "not_of_booking", 422, 3, "The job cannot use this booking";
    /// The policy lets only operators book.
    BookingDenied = "booking_denied", 403, 3, "The policy lets only operators book";
    /// Only whole GPUs are booked.
    BookingWholeGpus = "booking_whole_gpus", 422, 64, "Only whole GPUs are booked";
    /// It begins sooner than the lead time.
    BookingTooLate = "booking_too_late", 422, 3, "It is too late to book this";
    /// It lasts longer than the policy allows.
    BookingTooLong = "booking_too_long", 403, 3, "The window is too long";
    /// It begins later than the policy allows.
    BookingTooFarAhead = "booking_too_far_ahead", 403, 3, "The window is too far ahead";
    /// The tenant has as many bookings as it may have.
    BookingsFull = "bookings_full", 403, 3, "The tenant has as many bookings as it may have";
    /// The tenant would book more than it is guaranteed.
    BookingBeyondGuarantee = "booking_beyond_guarantee", 403, 3, "The tenant is not guaranteed that much";
    /// Somebody would pass a limit.
    BookingBeyondLimit = "booking_beyond_limit", 403, 3, "The booking would pass a limit";
    /// Guarantees of others would not be kept.
    BookingTakesFromOthers = "booking_takes_from_others", 409, 5, "The booking would take from guarantees of others";
    /// There are no such places beside the other bookings of that time.
    BookingNoRoom = "booking_no_room", 409, 5, "There is no room beside other bookings";
    /// The downtime names no node, or no time that is to come.
    BadDowntime = "bad_downtime", 422, 64, "The maintenance makes no sense";
    /// Another downtime has that name.
    DowntimeNameInUse = "downtime_name_in_use", 409, 5, "The name is in use";
    /// No downtime of that name is planned.
    NoSuchDowntime = "no_such_downtime", 404, 4, "No such maintenance";
    /// The disk, a data directory or a file in it.
    Storage = "storage", 500, 1, "The data directory cannot be used as it is";
    /// Everything is already as asked.
    NothingToDo = "nothing_to_do", 409, 5, "Nothing would change";
    /// Jobs go to the leaves of the tenant tree.
    TenantHasChildren = "tenant_has_children", 422, 3, "The tenant takes no jobs itself";
    /// Its spec says that it may not be evicted.
    NotPreemptible = "not_preemptible", 409, 3, "The job may not be evicted";
    /// Too many jobs wait.
    QueueFull = "queue_full", 429, 3, "Too many jobs wait";
    /// Live jobs have as much text as they may have together.
    QueueBytesFull = "queue_bytes_full", 429, 3, "Jobs have too much text together";
    /// Refused by policy.
    Denied = "denied", 403, 3, "Refused by policy";
    /// The trust domain that the job names is neither of its own team nor one that its tenant may claim.
    TrustNotAllowed = "trust_not_allowed", 403, 3, "The tenant may not claim this trust domain";
    /// The policy lets its class lose less throughput than sharing a GPU would cost it.
    SharingRefused = "sharing_refused", 403, 3, "The policy lets it share no GPU";
    /// The policy lets no job of its class run that long.
    LimitAboveMax = "limit_above_max", 403, 3, "The time limit is above what the policy allows";
    /// It could not run on the whole fleet, healthy and empty.
    Never = "never", 422, 2, "The job can never be placed";
    /// The fleet has no level of that name.
    UnknownLevel = "unknown_level", 422, 2, "No such level in this fleet";
    /// It cannot have its address or its data directory.
    CannotStart = "cannot_start", 500, 1, "The control plane cannot start";
    /// The control plane is starting, stopping or has lost its term.
    Unavailable = "unavailable", 503, 69, "The control plane cannot answer now";
    /// There are as many connections as there may be.
    TooManyConnections = "too_many_connections", 503, 69, "There are too many connections";
    /// The control plane did not come to the request in time, and it did not take effect.
    Withdrawn = "withdrawn", 503, 69, "The request was not decided in time and did not take effect";
    /// The control plane took the request and did not say what came of it.
    OutcomeUnknown = "outcome_unknown", 504, 69, "The request may have taken effect";
    /// A bug or a fault of ours.
    Internal = "internal", 500, 69, "The control plane failed";
}
