//! Tenants and their lines as the API shows them: promised, used, borrowed, lent.
//!
//! *Borrowed* is what a tenant uses above its guarantee. *Lent* is the part of its guarantee that it does not use and
//! others do: what it could not have back without somebody leaving. Worked example: 32 GPUs, `a` and `b` are promised 8
//! each and use none, `c` is promised nothing and uses 24. Sixteen promised GPUs are unused and 8 are free, so 8 of
//! them are in use by `c`: `a` and `b` have lent 4 each. Were another 8 free, they would have lent nothing, although
//! `c` borrows 16 even then.

use std::collections::BTreeMap;

use wharf_api::v1::{LineView, TenantView, gpus, thousandths};
use wharf_engine::model::policy::{Amount, Quota};
use wharf_engine::quota::meters::Amounts;
use wharf_engine::quota::tree::{Meter, Tree};
use wharf_engine::state::State;
use wharf_engine::state::jobs::Phase;
use wharf_engine::units::{GpuUnits, TenantId};

/// Every tenant of the policy, with everyone below it counted in.
pub(crate) fn all(state: &State) -> Vec<TenantView> {
    let policy = state.tenants.policy();
    let tree = state.tree(policy);
    let figures = Figures::of(state, &tree);
    let counts = job_counts(state);
    let shown = policy.tenants.iter().filter_map(|tenant| state.tenants.named(&tenant.path));
    let view = |id: TenantId| {
        let line = &tree.lines[id.index()];
        // CPU and memory that nobody meters are no line of a tenant's.
        let told = |meter: &usize| {
            tree.meters[*meter].per_gpu().is_some() || line.quotas[*meter] != Quota::UNMETERED
        };
        let lines = (0..tree.meters.len()).filter(told);
        let (waiting, running) = counts.get(&id).copied().unwrap_or_default();
        TenantView {
            path: state.tenants.path(id).to_owned(),
            lines: lines.map(|meter| figures.line(state, &tree, id, meter)).collect(),
            weight: line.weight,
            priority: line.priority,
            waiting,
            running,
        }
    };
    shown.map(view).collect()
}

/// The lines of a tenant that are about GPUs.
pub(crate) fn gpu_lines(tenant: &TenantView) -> impl Iterator<Item = &LineView> {
    tenant.lines.iter().filter(|line| ![CPU, MEMORY].contains(&line.resource.as_str()))
}

/// The name of CPU among resources.
pub(crate) const CPU: &str = "cpu";
/// The name of memory among resources.
pub(crate) const MEMORY: &str = "memory_gib";
/// The name of GPUs of any model among resources.
pub(crate) const ANY_GPU: &str = "gpus";

/// Amounts per tenant and meter.
struct Figures {
    used: Amounts,
    demand: Amounts,
    shares: Amounts,
    /// By meter, then tenant.
    lent: Vec<Vec<u64>>,
}

impl Figures {
    fn of(state: &State, tree: &Tree) -> Self {
        let used = tree.subtree_use(&state.own_use(tree));
        let demand = tree.subtree_demand(&state.own_demand(tree));
        let capacity = state.capacity(tree);
        let lent = (0..tree.meters.len()).map(|meter| lent(tree, &used, meter, capacity[meter])).collect();
        Self { shares: state.fair_shares(tree), used, demand, lent }
    }

    fn line(&self, state: &State, tree: &Tree, tenant: TenantId, meter: usize) -> LineView {
        let quota = tree.lines[tenant.index()].quotas[meter];
        let shown = |amount: u64| metered(tree.meters[meter], amount);
        let limited = |amount: Amount| match amount {
            Amount::Unlimited => None,
            Amount::Of(amount) => Some(shown(amount)),
        };
        let used = self.used[tenant.index()][meter];
        let counts = state.tenants.policy().half_life.is_some();
        let past = counts && tree.meters[meter].per_gpu().is_some();
        LineView {
            resource: resource(state, tree.meters[meter]),
            guaranteed: limited(quota.guaranteed),
            limit: limited(quota.limit),
            fair_share: shown(self.shares[tenant.index()][meter]),
            used: shown(used),
            borrowed: shown(above(quota.guaranteed, used)),
            lent: shown(self.lent[meter][tenant.index()]),
            demand: shown(self.demand[tenant.index()][meter]),
            past: past.then(|| shown(state.past.borrowed(tenant, tree.meters[meter]))),
        }
    }
}

/// What is used above a guarantee.
fn above(guaranteed: Amount, used: u64) -> u64 {
    match guaranteed {
        Amount::Unlimited => 0,
        Amount::Of(guaranteed) => used.saturating_sub(guaranteed),
    }
}

/// What of a guarantee is not used.
fn idle(guaranteed: Amount, used: u64) -> u64 {
    match guaranteed {
        Amount::Unlimited => 0,
        Amount::Of(guaranteed) => guaranteed.saturating_sub(used),
    }
}

/// What each tenant has lent, in one meter.
fn lent(tree: &Tree, used: &Amounts, meter: usize, capacity: u64) -> Vec<u64> {
    let in_use: u64 = tree.roots.iter().map(|root| used[root.index()][meter]).sum();
    let mut lending = Lending { tree, used, meter, lent: vec![0; tree.lines.len()] };
    lending.divide(&tree.roots, capacity.saturating_sub(in_use), 0);
    lending.lent
}

struct Lending<'a> {
    tree: &'a Tree,
    used: &'a Amounts,
    meter: usize,
    lent: Vec<u64>,
}

impl Lending<'_> {
    /// Siblings have lent what they are promised together, do not use, and could not have at once: at most what
    /// they borrow together and what the tenant above has lent. Each has lent in proportion to what it does not use.
    fn divide(&mut self, siblings: &[TenantId], available: u64, lent_above: u64) {
        let mut members = Vec::new();
        self.with_lines(siblings, &mut members);
        let of = |tenant: &TenantId, count: fn(Amount, u64) -> u64| {
            let guaranteed = self.tree.lines[tenant.index()].quotas[self.meter].guaranteed;
            count(guaranteed, self.used[tenant.index()][self.meter])
        };
        let unused: Vec<u64> = members.iter().map(|tenant| of(tenant, idle)).collect();
        let borrowed: u64 = members.iter().map(|tenant| of(tenant, above)).sum();
        let total: u64 = unused.iter().sum();
        let short = total.saturating_sub(available).min(borrowed.saturating_add(lent_above));
        let spare = available.saturating_sub(total);
        for (tenant, unused) in members.into_iter().zip(unused) {
            let part = u128::from(unused) * u128::from(short) / u128::from(total.max(1));
            let lent = u64::try_from(part).expect("a part is at most the whole");
            self.lent[tenant.index()] = lent;
            self.divide(&self.tree.lines[tenant.index()].children, unused - lent + spare, lent);
        }
    }

    /// In place of a tenant that is not metered stand those below it.
    fn with_lines(&self, siblings: &[TenantId], members: &mut Vec<TenantId>) {
        for &tenant in siblings {
            let line = &self.tree.lines[tenant.index()];
            match line.quotas[self.meter].guaranteed {
                Amount::Unlimited => self.with_lines(&line.children, members),
                Amount::Of(_) => members.push(tenant),
            }
        }
    }
}

fn job_counts(state: &State) -> BTreeMap<TenantId, (u32, u32)> {
    let mut counts: BTreeMap<TenantId, (u32, u32)> = BTreeMap::new();
    for (_, job) in state.jobs.iter() {
        for tenant in state.tenants.lineage(job.spec.tenant) {
            let (waiting, running) = counts.entry(tenant).or_default();
            if job.phase == Phase::Waiting {
                *waiting += 1;
            } else {
                *running += 1;
            }
        }
    }
    counts
}

fn resource(state: &State, meter: Meter) -> String {
    match meter {
        Meter::AnyGpu => ANY_GPU.to_owned(),
        Meter::Gpu(pool) => state.fleet.model(pool).to_owned(),
        Meter::Cpu => CPU.to_owned(),
        Meter::Memory => MEMORY.to_owned(),
    }
}

/// An amount of a resource as the wire counts it.
pub(crate) fn metered(meter: Meter, amount: u64) -> f64 {
    match meter {
        Meter::AnyGpu => gpus(GpuUnits::from_parts(amount / 1000)),
        Meter::Gpu(_) => gpus(GpuUnits::from_parts(amount)),
        Meter::Cpu => thousandths(amount),
        Meter::Memory => thousandths((amount / (1 << 20)).saturating_mul(1000) / 1024),
    }
}

#[cfg(test)]
mod tests;
