//! Policy: typed data that the engine reads in one visible pass.
//!
//! It is written in files, checked and compiled at the edge, and enters the journal as `PolicyApplied`, so
//! that a replay decides by the policy of the day. Planning takes it as an argument: a canary or a what-if
//! passes another one.

mod order;
pub mod trust;

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use self::trust::TrustClaim;
use crate::model::is_default;
use crate::model::job::Class;
use crate::units::{GpuUnits, Millis};

pub use order::{Order, OrderRules, Orders};

/// The longest that one decision may take to begin and to be carried out, from the change that calls for it. The
/// engine decides in milliseconds (`wharf bench`); a second leaves room for a slow disk and a node that answers late.
pub(crate) const DECISION_MAX: Millis = Millis::from_secs(1);

/// An amount that may be without bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Amount {
    /// So much: 1/3000 of a GPU, thousandths of a core, or bytes.
    Of(u64),
    Unlimited,
}

impl Amount {
    /// The smaller of this and `other`.
    pub fn cap(self, other: u64) -> u64 {
        match self {
            Self::Of(amount) => amount.min(other),
            Self::Unlimited => other,
        }
    }
}

/// What a tenant is promised and what it may never pass, in one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    pub guaranteed: Amount,
    pub limit: Amount,
}

impl Quota {
    /// No promise and no limit.
    pub const NONE: Self = Self { guaranteed: Amount::Of(0), limit: Amount::Unlimited };
    /// Not metered at all.
    pub const UNMETERED: Self = Self { guaranteed: Amount::Unlimited, limit: Amount::Unlimited };
}

/// How a tenant's GPUs are counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GpuQuota {
    /// Over all pools, in normalised GPUs.
    Any(Quota),
    /// Per pool, by model name; a pool that is not listed has no promise and no limit.
    PerPool(Vec<(String, Quota)>),
}

/// One node of the tenant tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// `org/team/project`.
    pub path: String,
    pub gpus: GpuQuota,
    /// Thousandths of a core.
    pub cpu: Quota,
    /// Bytes.
    pub memory: Quota,
    /// Claim on what is left, relative to its siblings; 0 is none.
    pub weight: u32,
    /// Higher is served first from what is left.
    pub priority: i32,
}

impl Tenant {
    /// A tenant without promise and limit, with an even claim on what is left.
    pub fn without_lines(path: &str) -> Self {
        Self {
            path: String::from(path),
            gpus: GpuQuota::Any(Quota::NONE),
            cpu: Quota::UNMETERED,
            memory: Quota::UNMETERED,
            weight: 1,
            priority: 0,
        }
    }
}

/// Everything the engine decides by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Hash of the files it was compiled from.
    pub digest: String,
    /// The tree, every parent before its children. All tenants count GPUs in the same way.
    pub tenants: Vec<Tenant>,
    /// Worth of one GPU of a model in normalised GPUs, in thousandths; 1000 where a model is not listed.
    #[serde(default)]
    pub normal_milli: Vec<(String, u32)>,
    /// What surplus is rounded to for tenants that want more than they get.
    pub quantum: GpuUnits,
    pub queue_len_max: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub bytes_max: BytesMax,
    /// The first wait after a task failure; it doubles with every further one.
    pub retry_backoff: Millis,
    pub retry_backoff_max: Millis,
    /// How long a task without a checkpoint contract has between the signal and the kill.
    pub stop_grace: Millis,
    /// How long finished jobs and receipts are kept.
    pub history_keep: Millis,
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: Limits,
    #[serde(default, skip_serializing_if = "is_default")]
    pub gangs: Gangs,
    #[serde(default, skip_serializing_if = "is_default")]
    pub preemption: Preemption,
    #[serde(default, skip_serializing_if = "is_default")]
    pub sharing: Sharing,
    /// The most starts of one pool that are promised to jobs that wait; none where it is 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reservations_max: u32,
    /// Promised places stand empty until the start: nobody may fill them, however short.
    #[serde(default, skip_serializing_if = "is_default")]
    pub no_backfill: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub orders: Orders,
    #[serde(default, skip_serializing_if = "is_default")]
    pub windows: Windows,
    /// After so long what a tenant borrowed counts half as much when what is left is divided; `None` where it does not count.
    #[serde(default, skip_serializing_if = "is_default")]
    pub half_life: Option<Millis>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub estimates: Estimates,
}

/// Whether jobs that say nothing of how long they take are taken to last as long as others did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimates {
    pub learned: bool,
    /// Work that carries this label is taken to last as long as other work with the same value of it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub label: Option<String>,
}

/// How many bytes of payload, labels, names and selectors jobs may have: all of it is in memory and in every snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BytesMax {
    pub job: u64,
    /// The live jobs of one tenant.
    pub tenant: u64,
    pub all: u64,
}

impl Default for BytesMax {
    /// A quarter of a MiB is a long script. A thousandth of that is usual, so that these let 10,000 jobs wait many times over.
    fn default() -> Self {
        Self { job: 256 << 10, tenant: 64 << 20, all: 256 << 20 }
    }
}

/// How long jobs may run, by class as in [`Class::ALL`](crate::model::job::Class::ALL); nothing is said where it is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub max: [Option<Millis>; 3],
    pub default: [Option<Millis>; 3],
}

impl Limits {
    /// The longest limit that a job of the class may have.
    pub fn max_of(&self, class: Class) -> Option<Millis> {
        self.max[class.index()]
    }

    /// The limit of a job of the class that was submitted without one: a job without any would pass the longest.
    pub(crate) fn default_of(&self, class: Class) -> Option<Millis> {
        self.default[class.index()].or(self.max_of(class))
    }
}

/// When a gang lets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gangs {
    /// A gang of which not every task runs by then lets go and waits again.
    pub start_within: Millis,
    /// A gang below its minimum that was not repaired by then ends and waits whole.
    pub repair_within: Millis,
}

impl Default for Gangs {
    fn default() -> Self {
        Self { start_within: Millis::from_secs(15 * 60), repair_within: Millis::from_secs(2 * 60) }
    }
}

/// Who has to leave for whom, and when that is worth it (rules 6 to 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preemption {
    pub within: Within,
    /// The longest grace of a job that may borrow, and so the longest wait for a guarantee.
    pub borrow_grace_max: Millis,
    /// How long work runs before it is taken for a fair share.
    pub min_runtime_reclaim: Millis,
    /// How long work runs before it is taken for a higher class or priority, or moved.
    pub min_runtime_preempt: Millis,
    /// How often one job may be evicted within the window, guarantees apart.
    pub evictions_max: u32,
    pub eviction_window: Millis,
    /// The most jobs that have to leave for one beneficiary, guarantees apart: the blast radius.
    pub victims_max: u32,
    /// The most jobs that are moved for one beneficiary; 0 moves none.
    pub moves_max: u32,
    /// What a restart costs beside lost work.
    pub restart: Millis,
    /// What a second of waiting is worth, in GPU-seconds a GPU, by class as in [`Class::ALL`](crate::model::job::Class::ALL).
    pub value: [u32; 3],
    /// How long a job is taken to wait where no end of the work in its way is known.
    pub wait_horizon: Millis,
    /// Whether work that may not be evicted may hold more than the guarantee.
    pub fixed_may_borrow: bool,
}

/// How far lower class or priority makes a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Within {
    /// In the own tenant.
    Project,
    /// In every tenant with the same parent.
    Team,
    /// In every tenant with the same top.
    Org,
}

impl Default for Preemption {
    fn default() -> Self {
        Self {
            within: Within::Project,
            borrow_grace_max: Millis::from_secs(5 * 60),
            min_runtime_reclaim: Millis::from_secs(2 * 60),
            min_runtime_preempt: Millis::from_secs(2 * 60),
            evictions_max: 3,
            eviction_window: Millis::from_secs(3600),
            victims_max: 64,
            moves_max: 8,
            restart: Millis::from_secs(30),
            value: [20, 8, 2],
            wait_horizon: Millis::from_secs(2 * 3600),
            fixed_may_borrow: false,
        }
    }
}

/// How tasks that share a GPU are kept apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(const_into_str, serialize_all = "kebab-case")]
pub enum Mode {
    /// They do not share: each has GPUs of its own.
    #[default]
    Whole,
    /// Each has a slice with its own memory and compute.
    Mig,
    /// Side by side, with memory limits; a fault of one reaches all.
    Mps,
    /// By turns on the whole device.
    TimeSlicing,
}

/// Who shares a GPU with whom, how, and at what price (rule 10).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sharing {
    /// By class as in [`Class::ALL`](crate::model::job::Class::ALL).
    pub classes: [SharingRules; 3],
    /// Trust domains whose shares may be met only in these ways, in order.
    pub domains: Vec<(String, Vec<Mode>)>,
    /// Expected loss of throughput of a share under MPS, in thousandths.
    pub mps_tax: u16,
    pub time_slicing_tax: u16,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<TrustClaim>,
}

/// How shares of a class are met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharingRules {
    pub modes: Vec<Mode>,
    /// The most throughput that it may be expected to lose, in thousandths.
    pub tax_max: u16,
}

impl Sharing {
    /// How shares of a class and a trust domain may be met, in order. What is said of a domain holds for those below it,
    /// unless more is said of them.
    pub fn modes(&self, class: Class, domain: &str) -> &[Mode] {
        let above = self.domains.iter().filter(|(name, _)| trust::is_within(domain, name));
        let own = above.max_by_key(|(name, _)| name.len());
        own.map_or(&self.classes[class.index()].modes, |(_, modes)| modes)
    }
}

impl Default for Sharing {
    /// Published figures, until somebody has measured: up to 30 % of throughput lost with MPS, 24 % by turns.
    fn default() -> Self {
        let rules = || SharingRules { modes: Vec::from([Mode::Mps, Mode::TimeSlicing]), tax_max: 300 };
        Self {
            classes: [rules(), rules(), rules()],
            domains: Vec::new(),
            mps_tax: 300,
            time_slicing_tax: 240,
            claims: Vec::new(),
        }
    }
}

/// Which windows may be booked, and what holds in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Windows {
    /// A window is booked so long before it begins, at the latest; then its places are chosen.
    pub lead: Millis,
    pub span_max: Millis,
    pub ahead_max: Millis,
    pub bookings_max: u32,
    /// Whether tenants may book themselves, or operators alone.
    pub tenants_may_book: bool,
    /// Whether what the jobs of a booking leave idle is lent.
    pub fill: bool,
    /// A window that no job has used so long after it began is given up.
    pub no_show: Millis,
}

impl Default for Windows {
    fn default() -> Self {
        Self {
            lead: Millis::from_secs(3600),
            span_max: Millis::from_secs(24 * 3600),
            ahead_max: Millis::from_secs(14 * 24 * 3600),
            bookings_max: 4,
            tenants_may_book: true,
            fill: true,
            no_show: Millis::from_secs(15 * 60),
        }
    }
}

impl Default for Policy {
    /// No tenant at all: nothing can be submitted until a policy is applied.
    fn default() -> Self {
        Self {
            digest: String::new(),
            tenants: Vec::new(),
            normal_milli: Vec::new(),
            quantum: GpuUnits::WHOLE,
            queue_len_max: 10_000,
            bytes_max: BytesMax::default(),
            retry_backoff: Millis::from_secs(10),
            retry_backoff_max: Millis::from_secs(600),
            stop_grace: Millis::from_secs(10),
            history_keep: Millis::from_secs(30 * 24 * 3600),
            limits: Limits::default(),
            gangs: Gangs::default(),
            preemption: Preemption::default(),
            sharing: Sharing::default(),
            reservations_max: 0,
            no_backfill: false,
            orders: Orders::default(),
            windows: Windows::default(),
            half_life: None,
            estimates: Estimates::default(),
        }
    }
}

impl Policy {
    /// How long a job waits before its next try after `failures` task failures.
    pub(crate) fn backoff(&self, failures: u32) -> Millis {
        let doubled = self.retry_backoff.0.saturating_mul(1 << failures.saturating_sub(1).min(20));
        Millis(doubled.min(self.retry_backoff_max.0))
    }

    /// The longest until a lent guarantee is back (rule 1): one decision asks the borrower to leave, it has its grace
    /// to save its work, and then what every task has between the signal and the kill.
    ///
    /// It does not hold where [`Preemption::fixed_may_borrow`] lets work borrow that may not be evicted, nor while
    /// healthy nodes have less than the sum of all guarantees.
    pub fn recovery_bound(&self) -> Millis {
        let parts = [DECISION_MAX, self.preemption.borrow_grace_max, self.stop_grace];
        Millis(parts.iter().fold(0, |sum, part| sum.saturating_add(part.0)))
    }

    /// Worth of one GPU of that model, in thousandths of a normalised GPU.
    pub fn normal_of(&self, model: &str) -> u32 {
        self.normal_milli.iter().find(|(name, _)| name == model).map_or(1000, |&(_, milli)| milli)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guarantee_is_back_after_decision_grace_and_stop() {
        assert_eq!(Policy::default().recovery_bound(), Millis::from_secs(1 + 5 * 60 + 10));
        let slow = Policy { stop_grace: Millis(u64::MAX), ..Policy::default() };
        assert_eq!(slow.recovery_bound(), Millis(u64::MAX));
    }
}
