//! The tenant tree with its numbers: policy resolved to ids, per meter.
//!
//! A *meter* is one resource that quota is counted in: GPUs of a pool (or of any pool, normalised), CPU, memory.
//! The tree is built from a policy, which need not be the one in force: a canary passes another.

use crate::quota::meters::{Amounts, Meters};
use alloc::string::String;
use alloc::vec::Vec;

use crate::model::placement::Placement;
use crate::model::policy::{Amount, GpuQuota, Policy, Quota};
use crate::quota::amount::Use;
use crate::quota::share::{ShareClaim, divide};
use crate::units::{GpuUnits, PoolId, Resources, TenantId};

/// One resource that quota is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meter {
    /// GPUs of any pool, in thousandths of 1/3000 of a normalised GPU.
    AnyGpu,
    /// GPUs of one pool, in 1/3000.
    Gpu(PoolId),
    /// Thousandths of a core.
    Cpu,
    /// Bytes.
    Memory,
}

impl Meter {
    /// How many of its units one GPU is; `None` for what is not GPUs.
    pub fn per_gpu(self) -> Option<u64> {
        match self {
            Self::AnyGpu => Some(3_000_000),
            Self::Gpu(_) => Some(3_000),
            Self::Cpu | Self::Memory => None,
        }
    }
}

/// One tenant's place and lines.
#[derive(Clone, Debug)]
pub struct TreeTenant {
    pub parent: Option<TenantId>,
    /// Its place among all tenants in path order, the last tie-break.
    pub path_rank: u32,
    /// In path order.
    pub children: Vec<TenantId>,
    pub weight: u32,
    pub priority: i32,
    /// By meter.
    pub quotas: Vec<Quota>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Named<'a> {
    pub(crate) path: &'a str,
    pub(crate) parent: Option<TenantId>,
}

/// The resolved tree.
#[derive(Clone, Debug)]
pub struct Tree {
    pub meters: Vec<Meter>,
    /// By tenant id.
    pub lines: Vec<TreeTenant>,
    /// In path order.
    pub roots: Vec<TenantId>,
    normal_milli: Vec<u64>,
    quantum: u64,
    past_counts: bool,
}

impl Tree {
    /// The tree of a policy over the tenants and the models of a fleet's pools, each in the order of their ids.
    pub(crate) fn resolve(policy: &Policy, tenants: &[Named<'_>], models: &[String]) -> Self {
        let any = policy.tenants.iter().any(|tenant| matches!(tenant.gpus, GpuQuota::Any(_)));
        let gpus = (0..).map(PoolId).zip(models).filter(|(_, model)| !model.is_empty()).map(|(pool, _)| pool);
        let mut meters: Vec<Meter> =
            if any { alloc::vec![Meter::AnyGpu] } else { gpus.map(Meter::Gpu).collect() };
        meters.extend([Meter::Cpu, Meter::Memory]);
        let normal = |model| u64::from(policy.normal_of(model));
        let mut tree = Self {
            lines: tenants.iter().map(|tenant| line(policy, tenant, models, &meters)).collect(),
            meters,
            roots: Vec::new(),
            normal_milli: models.iter().map(|model| normal(model)).collect(),
            quantum: policy.quantum.parts(),
            past_counts: policy.half_life.is_some(),
        };
        tree.link(tenants);
        tree
    }

    fn link(&mut self, tenants: &[Named<'_>]) {
        let mut by_path: Vec<TenantId> = (0..).map(TenantId).take(tenants.len()).collect();
        by_path.sort_by_key(|&tenant| tenants[tenant.index()].path);
        for (rank, tenant) in (0u32..).zip(by_path) {
            self.lines[tenant.index()].path_rank = rank;
            match self.lines[tenant.index()].parent {
                Some(parent) => self.lines[parent.index()].children.push(tenant),
                None => self.roots.push(tenant),
            }
        }
    }

    /// Nothing of anything.
    pub fn zero(&self) -> Meters {
        Meters::zero(self.meters.len())
    }

    /// Nothing of anything, for each tenant.
    pub fn zero_each(&self) -> Amounts {
        alloc::vec![self.zero(); self.lines.len()]
    }

    /// The tenant and everyone above it, nearest first.
    pub fn lineage(&self, tenant: TenantId) -> impl Iterator<Item = TenantId> {
        core::iter::successors(Some(tenant), |&below| self.lines[below.index()].parent)
    }

    /// True when a tenant is `above`, or somewhere below it.
    pub(crate) fn is_in_branch(&self, tenant: TenantId, above: TenantId) -> bool {
        self.lineage(tenant).any(|own| own == above)
    }

    /// The tenant and those above it, without those that another tenant has above it too, nearest first.
    pub(crate) fn lineage_apart_from(
        &self,
        tenant: TenantId,
        other: TenantId,
    ) -> impl Iterator<Item = TenantId> {
        self.lineage(tenant).take_while(move |&above| !self.is_in_branch(other, above))
    }

    /// What one task that takes so much is charged in a pool, by meter; zero where it takes nothing.
    pub fn charge(&self, units: GpuUnits, resources: Resources, pool: PoolId) -> Meters {
        self.by_meter(&core::iter::once((pool, units)), resources.cpu_milli, resources.memory)
    }

    /// An amount of everything, by meter.
    pub fn metered(&self, used: &Use) -> Meters {
        let gpus = used.gpus.iter().map(|(&pool, &units)| (pool, units));
        self.by_meter(&gpus, used.cpu_milli, used.memory)
    }

    fn by_meter(
        &self,
        gpus: &(impl Iterator<Item = (PoolId, GpuUnits)> + Clone),
        cpu_milli: u64,
        memory: u64,
    ) -> Meters {
        let normal =
            |(pool, units): (PoolId, GpuUnits)| units.parts().saturating_mul(self.normal_milli[pool.index()]);
        let amount = |meter: &Meter| match *meter {
            Meter::AnyGpu => gpus.clone().map(normal).sum(),
            Meter::Gpu(metered) => {
                gpus.clone().filter(|&(pool, _)| pool == metered).map(|(_, units)| units.parts()).sum()
            }
            Meter::Cpu => cpu_milli,
            Meter::Memory => memory,
        };
        self.meters.iter().map(amount).collect()
    }

    /// What tasks are charged where they are, by meter; what each takes beside GPUs is told by its number.
    pub(crate) fn charge_of<'p>(
        &self,
        resources: impl Fn(u32) -> Resources,
        tasks: impl Iterator<Item = &'p Placement>,
    ) -> Meters {
        let mut tasks = tasks.peekable();
        let mut charged: Option<Meters> = None;
        // Tasks that are alike are in one pool, one after the other.
        while let Some(pool) = tasks.peek().map(|place| place.pool) {
            let mut total = (GpuUnits::ZERO, Resources::default());
            while let Some(place) = tasks.next_if(|place| place.pool == pool) {
                total.0 += place.units();
                total.1 = total.1 + resources(place.task);
            }
            let part = self.charge(total.0, total.1, pool);
            match &mut charged {
                None => charged = Some(part),
                Some(sum) => sum.add(&part),
            }
        }
        charged.unwrap_or_else(|| self.zero())
    }

    /// Counts more use of a tenant in, if it passes nobody's limit.
    pub(crate) fn count_within_limits(&self, used: &mut Amounts, tenant: TenantId, amount: &[u64]) -> bool {
        let after =
            |tenant: TenantId, meter: usize| used[tenant.index()][meter].saturating_add(amount[meter]);
        let fits = self.lineage(tenant).all(|tenant| {
            let quotas = self.lines[tenant.index()].quotas.iter().enumerate();
            let mut asked = quotas.filter(|&(meter, _)| amount[meter] > 0);
            asked.all(|(meter, quota)| quota.limit.cap(after(tenant, meter)) == after(tenant, meter))
        });
        if fits {
            for tenant in self.lineage(tenant) {
                used[tenant.index()].add(amount);
            }
        }
        fits
    }

    /// What each tenant holds with everyone below it.
    pub fn subtree_use(&self, own: &Amounts) -> Amounts {
        self.subtree_sums(own, &|_, _, amount| amount)
    }

    /// Own demand summed up the tree and cut at each limit.
    pub fn subtree_demand(&self, own: &Amounts) -> Amounts {
        self.subtree_sums(own, &|tenant, meter, amount| {
            self.lines[tenant.index()].quotas[meter].limit.cap(amount)
        })
    }

    fn subtree_sums(&self, own: &Amounts, cut: &impl Fn(TenantId, usize, u64) -> u64) -> Amounts {
        let mut total = own.clone();
        self.roots.iter().for_each(|&root| self.sum_up(root, &mut total, cut));
        total
    }

    fn sum_up(&self, tenant: TenantId, total: &mut Amounts, cut: &impl Fn(TenantId, usize, u64) -> u64) {
        let mut sums = core::mem::take(&mut total[tenant.index()]);
        for &child in &self.lines[tenant.index()].children {
            self.sum_up(child, total, cut);
            sums.add(&total[child.index()]);
        }
        for (meter, sum) in sums.iter_mut().enumerate() {
            *sum = cut(tenant, meter, *sum);
        }
        total[tenant.index()] = sums;
    }

    /// Fair shares of every tenant by meter: from demand summed up the tree, what was borrowed before, and the capacity.
    pub fn fair_shares(
        &self,
        demand: &Amounts,
        past: &impl Fn(TenantId, Meter) -> u64,
        capacity: &[u64],
    ) -> Amounts {
        let mut shares = self.zero_each();
        for (meter, &amount) in capacity.iter().enumerate() {
            self.share_out(meter, amount, &self.roots, (demand, past), &mut shares);
        }
        shares
    }

    fn share_out(
        &self,
        meter: usize,
        amount: u64,
        siblings: &[TenantId],
        claimed: (&Amounts, &impl Fn(TenantId, Meter) -> u64),
        shares: &mut Amounts,
    ) {
        let (demand, past) = claimed;
        let claim = |tenant: &TenantId| {
            let line = &self.lines[tenant.index()];
            // Surplus of CPU and memory is divided equally: weights are about GPUs.
            let weight = if self.meters[meter].per_gpu().is_some() { line.weight } else { 1 };
            ShareClaim {
                demand: demand[tenant.index()][meter],
                guaranteed: line.quotas[meter].guaranteed,
                weight: u64::from(weight),
                priority: line.priority,
                past: if self.past_counts { past(*tenant, self.meters[meter]) } else { 0 },
            }
        };
        let claims: Vec<ShareClaim> = siblings.iter().map(claim).collect();
        let quantum = self.meters[meter].per_gpu().map_or(1, |per_gpu| self.quantum * (per_gpu / 3000));
        for (tenant, share) in siblings.iter().zip(divide(amount, &claims, quantum)) {
            shares[tenant.index()][meter] = share;
            self.share_out(meter, share, &self.lines[tenant.index()].children, claimed, shares);
        }
    }
}

fn line(policy: &Policy, tenant: &Named<'_>, models: &[String], meters: &[Meter]) -> TreeTenant {
    let path = tenant.path;
    let known = policy.tenants.iter().find(|known| known.path == path);
    // A tenant that the policy no longer names starts nothing new; what it runs goes on. A path that is only the
    // beginning of others has no line of its own.
    let is_below = |other: &str| other.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
    let above_others = policy.tenants.iter().any(|other| is_below(&other.path));
    let limit = if above_others { Amount::Unlimited } else { Amount::Of(0) };
    let unknown = Quota { guaranteed: Amount::Of(0), limit };
    let quota = |meter: &Meter| {
        let Some(known) = known else { return unknown };
        match (meter, &known.gpus) {
            (Meter::AnyGpu, GpuQuota::Any(quota)) => scaled(*quota),
            (Meter::Gpu(pool), GpuQuota::PerPool(quotas)) => {
                let model = &models[pool.index()];
                quotas.iter().find(|(name, _)| name == model).map_or(Quota::NONE, |(_, quota)| *quota)
            }
            (Meter::AnyGpu | Meter::Gpu(_), _) => Quota::NONE,
            (Meter::Cpu, _) => known.cpu,
            (Meter::Memory, _) => known.memory,
        }
    };
    TreeTenant {
        parent: tenant.parent,
        path_rank: 0,
        children: Vec::new(),
        weight: known.map_or(0, |known| known.weight),
        priority: known.map_or(0, |known| known.priority),
        quotas: meters.iter().map(quota).collect(),
    }
}

/// Normalised GPUs are counted a thousand times finer, so that a model's worth is exact.
fn scaled(quota: Quota) -> Quota {
    let scale = |amount| match amount {
        Amount::Of(parts) => Amount::Of(parts * 1000),
        Amount::Unlimited => Amount::Unlimited,
    };
    Quota { guaranteed: scale(quota.guaranteed), limit: scale(quota.limit) }
}
