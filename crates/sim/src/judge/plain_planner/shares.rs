//! Lines and fair shares (rules 1 and 2), worked out from the policy, the nodes and the jobs.
//!
//! Surplus is divided by looking for the water level. Everybody stands in a glass as wide as its weight, which is filled with what it
//! borrowed in the past already and ends where it has all it wants. The level is tried at every bottom and every rim.

use wharf_engine::model::exit::Exit;
use wharf_engine::model::policy::{Amount, GpuQuota, Policy, Quota, Tenant};
use wharf_engine::quota::tree;
use wharf_engine::state::State;
use wharf_engine::state::jobs::event::Next;
use wharf_engine::state::jobs::{Job, Phase};
use wharf_engine::units::{JobId, PoolId, TenantId, Timestamp};

use super::world::{Facts, Meter, WHOLE};

impl<'a> Facts<'a> {
    /// The facts of a state, with every tenant's fair share.
    pub(super) fn of(state: &'a State, policy: &'a Policy, now: Timestamp) -> Self {
        let meters = meters(state, policy);
        let quotas = state.tenants.ids().map(|tenant| {
            let quota = |meter: &Meter| quota(state, policy, tenant, *meter);
            meters.iter().map(quota).collect()
        });
        let quotas = quotas.collect();
        let shares = vec![vec![0; meters.len()]; state.tenants.len()];
        let mut facts = Self { state, policy, now, meters, quotas, shares };
        for meter in 0..facts.meters.len() {
            let capacity = facts.capacity(facts.meters[meter]);
            facts.share_out(meter, capacity, None);
        }
        facts
    }

    /// Divides what a tenant has among those right below it, and so on down.
    fn share_out(&mut self, meter: usize, amount: u64, parent: Option<TenantId>) {
        let claims: Vec<Claim> =
            self.children(parent).into_iter().map(|tenant| self.claim(tenant, meter)).collect();
        let quantum = match self.meters[meter] {
            Meter::AnyGpu => self.policy.quantum.parts() * 1000,
            Meter::Gpu(_) => self.policy.quantum.parts(),
            Meter::Cpu | Meter::Memory => 1,
        };
        for (claim, share) in claims.iter().zip(divide(amount, &claims, quantum)) {
            self.shares[claim.tenant.index()][meter] = share;
            self.share_out(meter, share, Some(claim.tenant));
        }
    }

    fn claim(&self, tenant: TenantId, meter: usize) -> Claim {
        let path = self.state.tenants.path(tenant);
        let known = self.policy.tenants.iter().find(|known| known.path == path);
        let gpus = matches!(self.meters[meter], Meter::AnyGpu | Meter::Gpu(_));
        Claim {
            tenant,
            demand: self.demand(tenant, meter),
            guaranteed: self.quotas[tenant.index()][meter].guaranteed,
            // Surplus of CPU and memory is divided equally: weights are about GPUs.
            weight: if gpus { known.map_or(0, |known| known.weight) } else { 1 },
            priority: self.tenant_priority(tenant),
            past: self.past(tenant, meter),
        }
    }

    /// What was borrowed on average counts four times.
    fn past(&self, tenant: TenantId, meter: usize) -> u64 {
        let past = &self.state.past;
        match self.meters[meter] {
            _ if self.policy.half_life.is_none() => 0,
            Meter::AnyGpu => 4 * past.borrowed(tenant, tree::Meter::AnyGpu),
            Meter::Gpu(pool) => 4 * past.borrowed(tenant, tree::Meter::Gpu(pool)),
            Meter::Cpu | Meter::Memory => 0,
        }
    }

    /// What runs, is promised or waits, of the tenant and of everyone below it, cut at each limit.
    fn demand(&self, tenant: TenantId, meter: usize) -> u64 {
        let of_tenant = self.state.jobs.iter().filter(|(_, job)| job.spec.tenant == tenant);
        let own: u64 = of_tenant.map(|(id, job)| self.demand_of(id, job, meter)).sum();
        let below: u64 = self.children(Some(tenant)).iter().map(|&child| self.demand(child, meter)).sum();
        self.quotas[tenant.index()][meter].limit.cap(own + below)
    }

    /// A job is demand where it is or was promised to be; while it waits, in the first pool it may use. A job that waits
    /// for others, or for its turn in an array, is none.
    fn demand_of(&self, id: JobId, job: &Job, meter: usize) -> u64 {
        if matches!(job.phase, Phase::Leaving(Next::End(_))) || job.is_held_back() {
            return 0;
        }
        let holding = self.state.ledger.holding(id);
        let held = holding.and_then(|holding| holding.tasks.first()).map(|task| task.place.pool);
        let promised = self.state.earmarks.of(id).and_then(|promise| promise.tasks.first());
        let waits = || self.pools(&job.spec.shape).first().copied();
        let pool: Option<PoolId> = held.or(promised.map(|place| place.pool)).or_else(waits);
        let done = holding.map_or(0, |holding| holding.exits(Exit::Succeeded));
        let tasks = u64::from(job.spec.tasks).saturating_sub(u64::try_from(done).expect("a count fits"));
        pool.map_or(0, |pool| self.charge(&job.spec.shape, pool, tasks)[meter])
    }

    /// What the nodes that are up have, without what others use.
    fn capacity(&self, meter: Meter) -> u64 {
        let up = self.state.fleet.nodes().map(|(_, node)| &node.facts).filter(|facts| facts.up);
        let of_node = up.map(|facts| {
            let gpus = facts.gpus.iter().enumerate();
            let ours = gpus.filter(|(at, gpu)| gpu.healthy && !facts.others_gpus.contains(*at)).count();
            let units = u64::try_from(ours).expect("at most 16") * WHOLE;
            self.amount(meter, facts.pool, units, facts.capacity.saturating_sub(facts.others))
        });
        of_node.sum()
    }
}

/// GPUs are counted over all pools, or per pool; all tenants in the same way.
fn meters(state: &State, policy: &Policy) -> Vec<Meter> {
    let any = policy.tenants.iter().any(|tenant| matches!(tenant.gpus, GpuQuota::Any(_)));
    let pools = state.fleet.pool_ids().filter(|&pool| !state.fleet.model(pool).is_empty());
    let mut meters = if any { vec![Meter::AnyGpu] } else { pools.map(Meter::Gpu).collect() };
    meters.extend([Meter::Cpu, Meter::Memory]);
    meters
}

fn quota(state: &State, policy: &Policy, tenant: TenantId, meter: Meter) -> Quota {
    let path = state.tenants.path(tenant);
    let Some(known) = policy.tenants.iter().find(|known| known.path == path) else {
        let above = policy.tenants.iter().any(|other| other.path.starts_with(&format!("{path}/")));
        // Who is no longer named starts nothing new; a mere beginning of paths has no line of its own.
        let nothing = Quota { guaranteed: Amount::Of(0), limit: Amount::Of(0) };
        return if above { Quota::NONE } else { nothing };
    };
    match meter {
        Meter::AnyGpu | Meter::Gpu(_) => gpu_quota(state, known, meter),
        Meter::Cpu => known.cpu,
        Meter::Memory => known.memory,
    }
}

fn gpu_quota(state: &State, known: &Tenant, meter: Meter) -> Quota {
    match (meter, &known.gpus) {
        (Meter::AnyGpu, GpuQuota::Any(quota)) => {
            let finer = |amount| match amount {
                Amount::Of(parts) => Amount::Of(parts * 1000),
                Amount::Unlimited => Amount::Unlimited,
            };
            Quota { guaranteed: finer(quota.guaranteed), limit: finer(quota.limit) }
        }
        (Meter::Gpu(pool), GpuQuota::PerPool(quotas)) => {
            let of_pool = quotas.iter().find(|(model, _)| model == state.fleet.model(pool));
            of_pool.map_or(Quota::NONE, |(_, quota)| *quota)
        }
        _ => Quota::NONE,
    }
}

/// What one of several siblings wants and is promised.
struct Claim {
    tenant: TenantId,
    demand: u64,
    guaranteed: Amount,
    weight: u32,
    priority: i32,
    past: u64,
}

/// One sibling on its way to its share.
#[derive(Clone, Copy)]
struct Filling {
    share: u64,
    wanted: u64,
    weight: u64,
    priority: i32,
    past: u64,
}

impl Filling {
    fn missing(&self) -> u128 {
        u128::from(self.wanted - self.share)
    }

    fn weighs(&self) -> u128 {
        u128::from(self.weight)
    }

    /// The level of its bottom is this over its weight.
    fn bottom(&self) -> u128 {
        u128::from(self.past)
    }

    /// The level of its rim is this over its weight.
    fn rim(&self) -> u128 {
        self.bottom() + self.missing()
    }

    /// What is in it at a level of `height / width`, times the width.
    fn at(&self, height: u128, width: u128) -> u128 {
        (height * self.weighs()).saturating_sub(self.bottom() * width).min(self.missing() * width)
    }
}

/// Divides an amount among siblings in the order of their paths.
fn divide(amount: u64, claims: &[Claim], quantum: u64) -> Vec<u64> {
    let owed = |claim: &Claim| claim.guaranteed.cap(claim.demand);
    let owed_total: u64 = claims.iter().map(owed).sum();
    let enough = owed_total <= amount;
    let mut siblings: Vec<Filling> = Vec::new();
    for claim in claims {
        siblings.push(if enough {
            let (share, wanted) = (owed(claim), claim.demand);
            Filling {
                share,
                wanted,
                weight: u64::from(claim.weight),
                priority: claim.priority,
                past: claim.past,
            }
        } else {
            // Less than was promised: by the promises.
            let wanted = owed(claim);
            Filling { share: 0, wanted, weight: promised(claim), priority: claim.priority, past: 0 }
        });
    }
    let mut left = if enough { amount - owed_total } else { amount };
    let mut tiers: Vec<i32> = claims.iter().map(|claim| claim.priority).collect();
    tiers.sort_unstable();
    tiers.dedup();
    for tier in tiers.into_iter().rev() {
        let open: Vec<usize> = (0..siblings.len()).filter(|&at| siblings[at].priority == tier).collect();
        left = fill(left, &open, quantum, &mut siblings);
    }
    siblings.iter().map(|sibling| sibling.share).collect()
}

/// Who is not metered was promised what it wants.
fn promised(claim: &Claim) -> u64 {
    match claim.guaranteed {
        Amount::Of(guaranteed) => guaranteed,
        Amount::Unlimited => claim.demand,
    }
}

/// Fills up siblings of one tier; returns what is left.
fn fill(mut left: u64, tier: &[usize], quantum: u64, siblings: &mut [Filling]) -> u64 {
    let open: Vec<usize> =
        tier.iter().copied().filter(|&at| siblings[at].weight > 0 && siblings[at].missing() > 0).collect();
    let of = |at: usize| siblings[at];
    // The highest bottom or rim for which there is enough, as a fraction; what there is ends between it and the next.
    let known = open.iter().map(|&at| of(at));
    let known = known.flat_map(|one| [(one.bottom(), one.weighs()), (one.rim(), one.weighs())]);
    let enough = |&(height, width): &(u128, u128)| {
        open.iter().map(|&at| of(at).at(height, width)).sum::<u128>() <= u128::from(left) * width
    };
    let reached = known.filter(enough).max_by(|a, b| (a.0 * b.1).cmp(&(b.0 * a.1)));
    let Some((height, width)) = reached else { return left };
    let below = |level: u128, weight: u128| level * width <= height * weight;
    let full: Vec<usize> = open.iter().copied().filter(|&at| below(of(at).rim(), of(at).weighs())).collect();
    let filling: Vec<usize> = open
        .iter()
        .copied()
        .filter(|&at| !full.contains(&at) && below(of(at).bottom(), of(at).weighs()))
        .collect();
    for at in full {
        left -= siblings[at].wanted - siblings[at].share;
        siblings[at].share = siblings[at].wanted;
    }
    round(left, &filling, quantum, siblings)
}

/// Those who cannot be satisfied get their exact parts in whole quanta; pieces go to the largest remainder, then to
/// the first by path.
fn round(left: u64, open: &[usize], quantum: u64, siblings: &mut [Filling]) -> u64 {
    let weights: u128 = open.iter().map(|&at| siblings[at].weighs()).sum();
    let filled: u128 = open.iter().map(|&at| siblings[at].bottom()).sum::<u128>() + u128::from(left);
    let mut rest = left;
    let mut remainders: Vec<(u128, usize)> = Vec::new();
    for &at in open {
        let exact = filled * siblings[at].weighs() - siblings[at].bottom() * weights;
        let unit = u128::from(quantum) * weights;
        let part = u64::try_from(exact / unit).expect("a part of what is left") * quantum;
        siblings[at].share += part;
        rest -= part;
        remainders.push((exact % unit, at));
    }
    remainders.sort_by_key(|&(remainder, at)| (std::cmp::Reverse(remainder), at));
    while rest > 0 && open.iter().any(|&at| siblings[at].missing() > 0) {
        for &(_, at) in &remainders {
            let piece = rest.min(quantum).min(siblings[at].wanted - siblings[at].share);
            siblings[at].share += piece;
            rest -= piece;
        }
    }
    rest
}
