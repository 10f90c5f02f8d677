//! What a guarantee owes: how long jobs that fit into their tenant's guarantee wait although others hold more than theirs.
//!
//! A job is owed its places from the moment at which its tenant, with it, would be within its guarantee while another
//! tenant holds more than its own, until it is promised places, starts, or one of the two no longer holds. Jobs for which
//! somebody was asked to leave are promised their places and no longer wait. Only what passes [`DEBT_AFTER`] is debt.
//! Nothing changes between two turns, so looking after every turn misses nothing.

use std::collections::BTreeMap;

use serde::Serialize;
use wharf_engine::model::policy::{Amount, GpuQuota};
use wharf_engine::quota::amount::Use;
use wharf_engine::state::State;
use wharf_engine::units::{JobId, Millis, TenantId, Timestamp};

use super::report::{rounded, secs};

/// How long a guarantee may take to come back: a grace of a minute, and a second to decide.
pub const DEBT_AFTER: Millis = Millis::from_secs(61);

/// What one tenant was owed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Debt {
    /// The longest that one job was owed its places without a break.
    pub max: f64,
    /// Over all its jobs.
    pub total: f64,
    /// How many of its jobs.
    pub jobs: usize,
}

/// Keeps account over a replay.
#[derive(Debug, Default)]
pub(super) struct Debts {
    /// Since when a job is owed its places without a break.
    owed: BTreeMap<JobId, (TenantId, Timestamp)>,
    /// What was beyond what may be, in milliseconds: the longest, and all of it.
    by_job: BTreeMap<(TenantId, JobId), (u64, u64)>,
}

impl Debts {
    /// Looks at what a turn left behind.
    pub(super) fn look(&mut self, state: &State, now: Timestamp) {
        let owed = owed(state);
        let kept: BTreeMap<JobId, (TenantId, Timestamp)> = owed
            .into_iter()
            .map(|(job, tenant)| (job, self.owed.remove(&job).unwrap_or((tenant, now))))
            .collect();
        for (job, (tenant, since)) in std::mem::replace(&mut self.owed, kept) {
            self.count(job, tenant, now - since);
        }
    }

    fn count(&mut self, job: JobId, tenant: TenantId, waited: Millis) {
        let beyond = waited.0.saturating_sub(DEBT_AFTER.0);
        if beyond > 0 {
            let (longest, total) = self.by_job.entry((tenant, job)).or_default();
            *longest = beyond.max(*longest);
            *total += beyond;
        }
    }

    /// By tenant path, with what is still owed now.
    pub(super) fn into_report(mut self, state: &State, now: Timestamp) -> BTreeMap<String, Debt> {
        for (job, (tenant, since)) in std::mem::take(&mut self.owed) {
            self.count(job, tenant, now - since);
        }
        let mut debts: BTreeMap<String, Debt> = BTreeMap::new();
        for ((tenant, _), (longest, total)) in self.by_job {
            let debt = debts.entry(state.tenants.path(tenant).to_owned()).or_default();
            debt.max = debt.max.max(secs(longest));
            debt.total = rounded(debt.total + secs(total));
            debt.jobs += 1;
        }
        debts
    }
}

/// Jobs that wait within their tenant's guarantee while another tenant holds more than its own.
fn owed(state: &State) -> Vec<(JobId, TenantId)> {
    let mut found = Vec::new();
    if state.jobs.waiting().is_empty() {
        return found;
    }
    let above: Vec<TenantId> = state.tenants.ids().filter(|&tenant| is_above(state, tenant)).collect();
    for kind in state.jobs.waiting().values() {
        let tenant = kind.key.tenant;
        if !above.iter().any(|&other| other != tenant) {
            continue;
        }
        // What leaves no longer counts, what was promised does: both are decided.
        let planned: u64 = state.ledger.planned(tenant).map(|(_, used)| parts(used)).sum();
        let asked: u64 = kind.key.alike().map(|key| key.shape.gpus.units().times(key.min).parts()).sum();
        if asked > 0 && planned + asked <= guaranteed(state, tenant) {
            found.extend(kind.jobs.iter().map(|&(_, job)| (job, tenant)));
        }
    }
    found
}

fn is_above(state: &State, tenant: TenantId) -> bool {
    state.ledger.used(tenant).is_some_and(|used| parts(used) > guaranteed(state, tenant))
}

fn parts(used: &Use) -> u64 {
    used.gpus.values().map(|units| units.parts()).sum()
}

/// The guarantee of a tenant in parts of a GPU, over all models.
fn guaranteed(state: &State, tenant: TenantId) -> u64 {
    let Some(lines) = state.tenants.in_policy(state.tenants.path(tenant)) else { return 0 };
    let of = |amount: Amount| amount.cap(u64::MAX / 4);
    match &lines.gpus {
        GpuQuota::Any(quota) => of(quota.guaranteed),
        GpuQuota::PerPool(pools) => pools.iter().map(|(_, quota)| of(quota.guaranteed)).sum(),
    }
}
