//! Policy: typed data that the engine reads in one visible pass.
//!
//! It is written in files, checked and compiled at the edge, and enters the journal as `PolicyApplied`, so
//! that a replay decides by the policy of the day. Planning takes it as an argument: a canary or a what-if
//! passes another one.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::units::{GpuUnits, Millis};

/// An amount that may be without bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Amount {
    /// So much: 1/3000 of a GPU, thousandths of a core, or bytes.
    Of(u64),
    /// Not metered.
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
    /// Always recoverable.
    pub guaranteed: Amount,
    /// Never passed.
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
    /// GPUs.
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
    /// The most jobs that may wait.
    pub queue_len_max: u32,
    /// The first wait after a task failure; it doubles with every further one.
    pub retry_backoff: Millis,
    /// The longest wait after a task failure.
    pub retry_backoff_max: Millis,
    /// How long a task without a checkpoint contract has between the signal and the kill.
    pub stop_grace: Millis,
    /// How long finished jobs and receipts are kept.
    pub history_keep: Millis,
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
            retry_backoff: Millis::from_secs(10),
            retry_backoff_max: Millis::from_secs(600),
            stop_grace: Millis::from_secs(10),
            history_keep: Millis::from_secs(30 * 24 * 3600),
        }
    }
}

impl Policy {
    /// How long a job waits before its next try after `failures` task failures.
    pub fn backoff(&self, failures: u32) -> Millis {
        let doubled = self.retry_backoff.0.saturating_mul(1 << failures.saturating_sub(1).min(20));
        Millis(doubled.min(self.retry_backoff_max.0))
    }

    /// Worth of one GPU of that model, in thousandths of a normalised GPU.
    pub fn normal_of(&self, model: &str) -> u32 {
        self.normal_milli.iter().find(|(name, _)| name == model).map_or(1000, |&(_, milli)| milli)
    }
}
