//! Wire types of `/v1`: what the API answers, as stable JSON.
//!
//! Every answer has a `schema` that names its form; new fields may appear in it, and a reader skips those it does
//! not know. Times are integers: milliseconds on the world's clock. GPUs are numbers with at most three decimals.
//! What is not known is `null`, never 0. Nothing here computes a decision: the server fills these from the state.

mod actor;
mod booking;
mod change;
mod ended;
mod eviction;
mod fleet;
mod job;
mod past;
mod problem;
mod reservation;
mod stranded;
mod summary;
mod tenant;
mod usage;

use serde::de::DeserializeOwned;
use wharf_engine::units::GpuUnits;

pub use actor::ActorView;
pub use booking::{Booked, BookingList, BookingReply, BookingState, BookingView, LostPlacesView};
pub use change::{Change, ChangeKind, ChangeList, Resume};
pub use ended::{EndedAs, EndedJobView, EndedList, EndedReply, EndedState, TimelineView};
pub use eviction::{
    BelowLineView, BeneficiaryView, EvictionList, EvictionReply, EvictionView, Rule, VictimView,
};
pub use fleet::{
    CordonRequest, DowntimeBody, DowntimeList, DowntimeReply, DowntimeView, DrainBody, DrainView,
    FailureView, FaultReply, FaultRequest, GpuList, GpuView, Health, HeldSliceView, NodeList, NodeReply,
    NodeView,
};
pub use job::{
    ArrayReply, ArrayView, BlockerView, ChosenView, DependencyView, EarmarkView, EstimateView, Explanation,
    ExtendRequest, FunnelStage, GroupView, JobList, JobReply, JobState, JobView, LearnedView, LeavingStep,
    LeavingView, MemberView, OrderView, PlacementView, PlanView, ReplaceRequest, ReplacingView, ScaleRequest,
    SliceView, Submitted, TaskFailureView, TaskUseView, VerdictView, VerdictWord,
};
pub use past::{HistoryKind, HistoryList, HistoryView, PolicyView};
pub use problem::{Code, Problem};
pub use reservation::{HolderView, MissedView, ReservationList, ReservationView, UnpromisedView};
pub use stranded::{StrandedList, StrandedShapeView, StrandedView};
pub use summary::{ActiveRow, DecisionTimes, JobCount, JournalView, ModeCounts, PoolView, QueueRow, Summary};
pub use tenant::{LineView, TenantList, TenantView};
pub use usage::{UsageReport, UsageRow, UsageSums};

/// A whole answer of the API.
pub trait Answer: DeserializeOwned {
    /// The name of its form.
    const SCHEMA: &'static str;

    /// The name that it came with.
    fn schema(&self) -> &str;
}

macro_rules! answers {
    ($($answer:ty = $schema:literal;)*) => {$(
        impl Answer for $answer {
            const SCHEMA: &'static str = $schema;

            fn schema(&self) -> &str {
                &self.schema
            }
        }
    )*};
}

answers! {
    Submitted = "wharf.v1.submitted";
    JobReply = "wharf.v1.job";
    JobList = "wharf.v1.jobs";
    ArrayReply = "wharf.v1.array";
    Explanation = "wharf.v1.explanation";
    PlanView = "wharf.v1.plan";
    NodeReply = "wharf.v1.node";
    NodeList = "wharf.v1.nodes";
    DowntimeReply = "wharf.v1.downtime";
    DowntimeList = "wharf.v1.maintenance";
    GpuList = "wharf.v1.gpus";
    FaultReply = "wharf.v1.fault";
    StrandedList = "wharf.v1.stranded";
    TenantList = "wharf.v1.tenants";
    ReservationList = "wharf.v1.reservations";
    Booked = "wharf.v1.booked";
    BookingReply = "wharf.v1.booking";
    BookingList = "wharf.v1.bookings";
    Summary = "wharf.v1.summary";
    HistoryList = "wharf.v1.history";
    EndedList = "wharf.v1.ended";
    EndedReply = "wharf.v1.ended-job";
    UsageReport = "wharf.v1.usage";
    EvictionReply = "wharf.v1.eviction";
    EvictionList = "wharf.v1.evictions";
    PolicyView = "wharf.v1.policy";
    ChangeList = "wharf.v1.changes";
}

/// The value of the `schema` field of an answer.
pub fn schema_of<A: Answer>() -> String {
    A::SCHEMA.to_owned()
}

/// GPUs as the wire shows them: rounded to thousandths, so that `1/3` is `0.333`.
pub fn gpus(units: GpuUnits) -> f64 {
    thousandths((units.parts() + 1) / 3)
}

/// A count of thousandths as a number. Beyond four million the wire shows that many: no fleet is that large.
pub fn thousandths(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / 1000.0
}

/// GPU-milliseconds as GPU-seconds. A large gang soon has more of them than [`thousandths`] can count.
pub fn gpu_seconds(gpu_millis: u64) -> f64 {
    whole(gpu_millis / 1000) + whole(gpu_millis % 1000) / 1000.0
}

/// Millionths of a GPU-hour as GPU-hours.
pub fn gpu_hours(millionths: u64) -> f64 {
    whole(millionths) / 1_000_000.0
}

/// A count as a number, exact up to 2^53.
fn whole(count: u64) -> f64 {
    let low = |count: u64| f64::from(u32::try_from(count & u64::from(u32::MAX)).unwrap_or(u32::MAX));
    low(count >> 32) * 4_294_967_296.0 + low(count)
}

#[cfg(test)]
mod tests;
