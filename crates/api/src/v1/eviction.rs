//! Evictions: who had to leave, for whom, by which rule and at what price.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};
use wharf_engine::state::ledger::event::EvictionRule;

use super::ActorView;

/// By which rule something has to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Rule {
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
    /// Its node is drained, or goes out of service.
    Drain,
}

impl Rule {
    /// The word for it, the same everywhere.
    pub fn into_str(self) -> &'static str {
        self.into()
    }
}

impl From<EvictionRule> for Rule {
    fn from(why: EvictionRule) -> Self {
        match why {
            EvictionRule::Guarantee => Self::Guarantee,
            EvictionRule::FairShare => Self::FairShare,
            EvictionRule::Preempt => Self::Preempt,
            EvictionRule::Move => Self::Move,
            EvictionRule::Reservation => Self::Reservation,
            EvictionRule::Order => Self::Order,
            EvictionRule::Booking => Self::Booking,
            EvictionRule::Drain => Self::Drain,
        }
    }
}

/// A job that was, or would be, told to leave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VictimView {
    /// Its name.
    pub job: String,
    /// Its tenant.
    pub tenant: String,
    /// Its identity.
    pub uid: String,
    /// Which of its tasks.
    pub tasks: Vec<u32>,
    /// All of it; else surplus tasks of an elastic job.
    pub whole: bool,
    /// By which rule.
    pub rule: Rule,
    /// Work since the last checkpoint, in GPU-seconds; `null` where it cannot be told.
    pub lost_gpu_s: Option<f64>,
    /// Lost work and restart, in GPU-seconds.
    pub cost_gpu_s: f64,
    /// What the beneficiary gains by not waiting, in GPU-seconds; `null` for a guarantee, which does not ask.
    pub gain_gpu_s: Option<f64>,
}

/// The receipt of an eviction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvictionView {
    /// The journal index of its event.
    pub id: u64,
    /// When.
    pub at_ms: u64,
    /// Who had to leave.
    #[serde(flatten)]
    pub victim: VictimView,
    /// For whom.
    pub beneficiary: BeneficiaryView,
    /// What the rule says, in one sentence.
    pub rule_text: String,
    /// Why this victim, in one sentence, as far as the receipt knows.
    pub victim_text: String,
    /// Whom it carried below its line.
    pub below_line: Option<BelowLineView>,
    /// The policy it was decided by.
    pub policy_version: u32,
    /// The booked window that it left for, or that it ran in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booking: Option<String>,
    /// The node that it left because that is to be empty; then it is its own beneficiary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Who drained that node, where somebody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained_by: Option<String>,
    /// Who decided it; `null` in a receipt of a version that did not keep that.
    #[serde(default)]
    pub actor: Option<ActorView>,
}

/// A job for which another had to leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeneficiaryView {
    /// Its name.
    pub job: String,
    /// Its tenant.
    pub tenant: String,
    /// Its identity.
    pub uid: String,
}

/// A tenant that one indivisible victim carried below its line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BelowLineView {
    /// Whom.
    pub tenant: String,
    /// In what: `gpus`, a model, `cpu` or `memory_gib`; `null` where the receipt does not say.
    pub resource: Option<String>,
    /// By how much of it; `null` where the resource is not known.
    pub by: Option<f64>,
}

/// One eviction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvictionReply {
    /// `wharf.v1.eviction`.
    pub schema: String,
    /// The eviction.
    pub eviction: EvictionView,
    /// True when it was called off before anything of it left.
    #[serde(default)]
    pub withdrawn: bool,
}

/// Evictions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvictionList {
    /// `wharf.v1.evictions`.
    pub schema: String,
    /// Newest first.
    pub evictions: Vec<EvictionView>,
}
