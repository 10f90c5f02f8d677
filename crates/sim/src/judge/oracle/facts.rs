//! What an instance is once paths are numbers: who holds what, where, and what could leave in one piece.

use std::collections::BTreeMap;

use serde::Serialize;

use super::shares::fair_shares;
use super::{Instance, Running, UNITS_MAX};

/// Why room may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reclaim {
    /// The job stays within its tenant's guarantee.
    Guarantee,
    /// It stays within its tenant's fair share.
    FairShare,
}

/// An instance in numbers. Tenants and nodes are places in the instance's lists.
#[derive(Clone, Debug)]
pub(super) struct Facts<'a> {
    /// Of this.
    pub(super) instance: &'a Instance,
    /// By tenant.
    pub(super) parents: Vec<Option<usize>>,
    /// GPUs held by a tenant and everyone below it.
    pub(super) used: Vec<u64>,
    /// Fair shares.
    pub(super) shares: Vec<u64>,
    /// GPUs that nobody holds, by node.
    pub(super) free: Vec<u64>,
    /// Whose job waits.
    pub(super) own: usize,
    /// What could leave.
    pub(super) units: Vec<Unit>,
}

/// What leaves in one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// The job, by its place in the instance.
    pub(super) job: usize,
    /// One task beyond the minimum; `None` for the rest of the job.
    pub(super) task: Option<usize>,
    /// Whose.
    pub(super) tenant: usize,
    /// GPUs.
    pub(super) gpus: u64,
    /// GPUs by node.
    pub(super) on: Vec<u64>,
    /// In GPU-seconds.
    pub(super) cost: u64,
}

/// A set of units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Set(pub(super) u32);

impl Set {
    /// Whether a unit is in it.
    pub(super) fn has(self, unit: usize) -> bool {
        self.0 & (1 << unit) != 0
    }

    /// With one more.
    #[must_use]
    pub(super) fn with(self, unit: usize) -> Self {
        Self(self.0 | (1 << unit))
    }

    /// With one less.
    #[must_use]
    pub(super) fn without(self, unit: usize) -> Self {
        Self(self.0 & !(1 << unit))
    }

    /// Its units.
    pub(super) fn units(self) -> impl Iterator<Item = usize> {
        (0..UNITS_MAX).filter(move |&unit| self.has(unit))
    }
}

impl<'a> Facts<'a> {
    /// The facts of an instance.
    pub(super) fn of(instance: &'a Instance) -> Self {
        let by_path: BTreeMap<&str, usize> =
            instance.tenants.iter().zip(0..).map(|(tenant, at)| (tenant.path.as_str(), at)).collect();
        let parent = |path: &str| path.rsplit_once('/').map(|(above, _)| by_path[above]);
        let parents: Vec<Option<usize>> =
            instance.tenants.iter().map(|tenant| parent(&tenant.path)).collect();
        let own = by_path[instance.pending.tenant.as_str()];
        let mut held = vec![0; parents.len()];
        for job in &instance.running {
            held[by_path[job.tenant.as_str()]] += job.gpus * gpus_of(job.tasks.len());
        }
        let mut demand = held.clone();
        demand[own] += instance.pending.total();
        let shares = fair_shares(instance, &parents, &demand);
        let mut facts =
            Self { instance, parents, used: held, shares, free: Vec::new(), own, units: Vec::new() };
        for tenant in (0..facts.parents.len()).rev() {
            if let Some(parent) = facts.parents[tenant] {
                facts.used[parent] += facts.used[tenant];
            }
        }
        facts.free = instance.nodes.iter().map(|node| node.gpus).collect();
        for job in &instance.running {
            let on = facts.on_nodes(job, 0..job.tasks.len());
            facts.free.iter_mut().zip(on).for_each(|(free, held)| *free -= held);
        }
        for (at, job) in instance.running.iter().enumerate() {
            facts.add_units(at, job, by_path[job.tenant.as_str()]);
        }
        facts
    }

    fn on_nodes(&self, job: &Running, tasks: std::ops::Range<usize>) -> Vec<u64> {
        let here = |name: &str| job.tasks[tasks.clone()].iter().filter(|task| task.node == name).count();
        self.instance.nodes.iter().map(|node| gpus_of(here(&node.name)) * job.gpus).collect()
    }

    /// Work that may be taken back at all: of other tenants, evictable, and gone in time.
    fn add_units(&mut self, at: usize, job: &Running, tenant: usize) {
        if tenant == self.own || job.is_fixed(self.instance.borrow_grace_max_s) {
            return;
        }
        let each = job.task_cost(self.instance.restart_s);
        for task in (job.min..job.tasks.len()).rev() {
            let on = self.on_nodes(job, task..task + 1);
            self.units.push(Unit { job: at, task: Some(task), tenant, gpus: job.gpus, on, cost: each });
        }
        let on = self.on_nodes(job, 0..job.min);
        let rest = gpus_of(job.min);
        let (gpus, cost) = (job.gpus * rest, each * rest);
        self.units.push(Unit { job: at, task: None, tenant, gpus, on, cost });
    }

    /// The job of a unit.
    pub(super) fn job(&self, unit: usize) -> &'a Running {
        &self.instance.running[self.units[unit].job]
    }

    /// By what rights the job that waits may take from others; none where it is above its lines.
    pub(super) fn rights(&self) -> Vec<Reclaim> {
        let after = self.used[self.own] + self.instance.pending.total();
        let guarantee = after <= self.instance.tenants[self.own].guaranteed_gpus;
        let fair_share = after <= self.shares[self.own];
        let rights = [(guarantee, Reclaim::Guarantee), (fair_share, Reclaim::FairShare)];
        rights.into_iter().filter(|(has, _)| *has).map(|(_, right)| right).collect()
    }

    /// The tenant and everyone above it, nearest first.
    pub(super) fn lineage(&self, tenant: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(tenant), |&below| self.parents[below])
    }

    /// The tenant and everyone above it that the job's tenant does not share.
    pub(super) fn path(&self, tenant: usize) -> Vec<usize> {
        let shared = |above: &usize| self.lineage(self.own).any(|own| own == *above);
        self.lineage(tenant).take_while(|above| !shared(above)).collect()
    }

    /// What every tenant holds without a set.
    pub(super) fn used_without(&self, set: Set) -> Vec<u64> {
        let mut used = self.used.clone();
        for unit in set.units() {
            for tenant in self.lineage(self.units[unit].tenant) {
                used[tenant] -= self.units[unit].gpus;
            }
        }
        used
    }

    /// True when a job that leaves whole leaves with all its tasks.
    pub(super) fn is_closed(&self, set: Set) -> bool {
        let broken = |unit: usize| {
            let rest_leaves = |other: &Unit| other.job == self.units[unit].job && other.task.is_none();
            !set.has(unit)
                && self.units[unit].task.is_some()
                && set.units().any(|other| rest_leaves(&self.units[other]))
        };
        !(0..self.units.len()).any(broken)
    }

    /// True when the job that waits has room without a set and passes no limit. Tasks alike fit if the sum over nodes of
    /// how many fit there is large enough: what one takes on a node never changes what fits on another.
    pub(super) fn starts_without(&self, set: Set) -> bool {
        let pending = &self.instance.pending;
        let mut free = self.free.clone();
        for unit in set.units() {
            free.iter_mut().zip(&self.units[unit].on).for_each(|(free, held)| *free += held);
        }
        let fit: u64 = free.iter().map(|free| free / pending.gpus).sum();
        let used = self.used_without(set);
        let within = |tenant: usize| {
            let limit = self.instance.tenants[tenant].limit_gpus;
            limit.is_none_or(|limit| used[tenant] + pending.total() <= limit)
        };
        fit >= pending.tasks && self.lineage(self.own).all(within)
    }

    /// What a set costs, in GPU-seconds.
    pub(super) fn cost(&self, set: Set) -> u64 {
        set.units().map(|unit| self.units[unit].cost).sum()
    }

    /// What work stays beside a set: its job, and its GPUs.
    pub(super) fn staying(&self, set: Set, tenant: usize) -> Vec<(&'a Running, u64)> {
        let jobs = self.instance.running.iter().enumerate();
        let of_tenant = jobs.filter(|(_, job)| job.tenant == self.instance.tenants[tenant].path);
        let left = |(at, job): (usize, &'a Running)| {
            let leaves: u64 = set
                .units()
                .map(|unit| &self.units[unit])
                .filter(|unit| unit.job == at)
                .map(|unit| unit.gpus)
                .sum();
            (job, job.gpus * gpus_of(job.tasks.len()) - leaves)
        };
        of_tenant.map(left).collect()
    }

    /// The victims of a set as jobs with their tasks, in the order of the instance.
    pub(super) fn victims(&self, set: Set) -> Vec<(usize, Vec<usize>)> {
        let mut victims: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for unit in set.units() {
            let tasks = match self.units[unit].task {
                Some(task) => task..task + 1,
                None => 0..self.job(unit).min,
            };
            victims.entry(self.units[unit].job).or_default().extend(tasks);
        }
        let sorted = |(job, mut tasks): (usize, Vec<usize>)| {
            tasks.sort_unstable();
            (job, tasks)
        };
        victims.into_iter().map(sorted).collect()
    }
}

/// Counts are small.
pub(super) fn gpus_of(count: usize) -> u64 {
    u64::try_from(count).expect("a count fits")
}
