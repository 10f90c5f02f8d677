//! Who may have what: passes, gates and lines (rules 1 to 3 and 6), each summed up anew from the list of tasks.

use std::cmp::Ordering;

use wharf_engine::model::job::{Class, Spec};
use wharf_engine::model::policy::Amount;
use wharf_engine::units::{JobId, PoolId, TenantId};

use super::world::{Facts, How, Task, World};

/// What a job may take, by how entitled its tenant is to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pass {
    /// The tenant stays within its guarantee.
    WithinGuarantee,
    /// The tenant stays within its fair share.
    WithinFairShare,
    /// Whatever is free.
    Surplus,
}

/// The line above which work of others may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The larger of fair share and guarantee.
    Entitled,
    /// What was promised.
    Guarantee,
    /// The fair share.
    FairShare,
}

/// What a job asks for in one pool, all or nothing.
#[derive(Clone, Debug)]
pub(super) struct Ask<'a> {
    pub(super) job: JobId,
    pub(super) spec: &'a Spec,
    pub(super) tasks: u32,
    pub(super) first_task: u32,
    pub(super) pool: PoolId,
    /// The domain that the rest of the gang is in.
    pub(super) domain: Option<u32>,
    /// What all of it is charged, by meter.
    pub(super) charge: Vec<u64>,
    /// It asks for more than a minimum.
    pub(super) surplus: bool,
    pub(super) pass: Pass,
    /// How far it may take for its fair share in this plan.
    pub(super) fair_share: Allowance,
}

impl<'a> Ask<'a> {
    /// Places for so many tasks, from what is free.
    pub(super) fn plain(facts: &Facts<'_>, job: JobId, spec: &'a Spec, pool: PoolId, tasks: u32) -> Self {
        Self {
            job,
            spec,
            tasks,
            first_task: 0,
            pool,
            domain: None,
            charge: facts.charge(&spec.shape, pool, u64::from(tasks)),
            surplus: false,
            pass: Pass::Surplus,
            fair_share: Allowance::InOrder,
        }
    }

    pub(super) fn tenant(&self) -> TenantId {
        self.spec.tenant
    }

    /// The meters it is charged in.
    pub(super) fn meters(&self) -> Vec<usize> {
        (0..self.charge.len()).filter(|&meter| self.charge[meter] > 0).collect()
    }
}

/// How far a job may take for its fair share in this plan (rule 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowance {
    /// In the order of rule 8.
    InOrder,
    /// That left more idle than it started: only so that no more does.
    Sparingly,
    /// Not at all.
    Nothing,
}

impl Facts<'_> {
    /// True when work like `lower` may be taken for work like `higher`: a lower class, or a lower priority in the same
    /// class. Equals never; nor work that needs longer to save than anybody should wait for it.
    pub(super) fn gives_way(&self, lower: &Spec, higher: &Spec) -> bool {
        let less = match lower.class.cmp(&higher.class) {
            Ordering::Greater => true,
            Ordering::Equal => lower.priority < higher.priority,
            Ordering::Less => false,
        };
        less && !self.is_fixed(lower)
    }

    /// True for work that no guarantee could get back in time: it may not borrow.
    pub(super) fn is_fixed(&self, spec: &Spec) -> bool {
        !spec.preemptible || spec.grace() > self.policy.preemption.borrow_grace_max
    }

    /// What a tenant may call its own in one meter.
    pub(super) fn line(&self, tenant: TenantId, meter: usize, line: Line) -> Amount {
        let share = self.shares[tenant.index()][meter];
        match self.quotas[tenant.index()][meter].guaranteed {
            Amount::Unlimited => Amount::Unlimited,
            Amount::Of(guaranteed) => Amount::Of(match line {
                Line::Entitled => guaranteed.max(share),
                Line::Guarantee => guaranteed,
                Line::FairShare => share,
            }),
        }
    }
}

fn exceeds(amount: u64, line: Amount) -> bool {
    match line {
        Amount::Unlimited => false,
        Amount::Of(line) => amount > line,
    }
}

impl<'a> World<'a> {
    /// What some tasks that stay are charged in one meter.
    fn sum(&self, meter: usize, counts: impl Fn(&Task<'a>, &Spec) -> bool) -> u64 {
        let mut total = 0;
        for task in self.tasks.iter().filter(|task| task.how != How::Leaves) {
            let Some((_, spec)) = task.owner else { continue };
            if counts(task, spec) {
                let units = task.place.units_each.parts() * u64::from(task.place.gpus.count());
                total += self.facts.amount(self.facts.meters[meter], task.place.pool, units, task.resources);
            }
        }
        total
    }

    /// Everybody who takes a place at this moment, also who leaves, and nobody who is only promised one.
    pub(super) fn as_it_stands(facts: &'a Facts<'a>) -> Self {
        let mut world = Self::of(facts);
        world.tasks.retain(|task| task.how != How::Promised);
        world.tasks.iter_mut().for_each(|task| task.how = How::Holds);
        world
    }

    /// What a tenant holds with everyone below it.
    pub(super) fn used(&self, tenant: TenantId, meter: usize) -> u64 {
        self.sum(meter, |_, spec| self.facts.is_below(spec.tenant, tenant))
    }

    /// What the tenant's own work that would give way to `spec` holds.
    pub(super) fn gives_way_to(&self, spec: &Spec, meter: usize) -> u64 {
        self.sum(meter, |_, other| other.tenant == spec.tenant && self.facts.gives_way(other, spec))
    }

    /// True when a tenant with so much more stays within its line in everything that is asked for.
    pub(super) fn stays_within(&self, tenant: TenantId, ask: &Ask<'_>, line: Line) -> bool {
        let passes = |&meter: &usize| {
            let after = self.used(tenant, meter) + ask.charge[meter];
            exceeds(after, self.facts.line(tenant, meter, line))
        };
        !ask.meters().iter().any(passes)
    }

    /// The pass that an ask is in: judged without the own tenant's work that would give way to it.
    pub(super) fn pass(&self, ask: &Ask<'_>) -> Pass {
        let tenant = ask.tenant();
        let within = |line: Line| {
            ask.meters().iter().all(|&meter| {
                let kept = self.used(tenant, meter) - self.gives_way_to(ask.spec, meter);
                !exceeds(kept + ask.charge[meter], self.facts.line(tenant, meter, line))
            })
        };
        if within(Line::Guarantee) {
            Pass::WithinGuarantee
        } else if within(Line::FairShare) {
            Pass::WithinFairShare
        } else {
            Pass::Surplus
        }
    }

    /// The nearest tenant whose limit an ask would pass.
    pub(super) fn limit_exceeded(&self, ask: &Ask<'_>) -> Option<TenantId> {
        self.facts.lineage(ask.tenant()).into_iter().find(|&tenant| {
            ask.meters().iter().any(|&meter| {
                let limit = self.facts.quotas[tenant.index()][meter].limit;
                exceeds(self.used(tenant, meter) + ask.charge[meter], limit)
            })
        })
    }

    /// True when an ask of work that may not borrow would pass a guarantee with what is there of such work.
    pub(super) fn would_borrow_for_good(&self, ask: &Ask<'_>) -> bool {
        let facts = self.facts;
        if facts.policy.preemption.fixed_may_borrow || !facts.is_fixed(ask.spec) {
            return false;
        }
        facts.lineage(ask.tenant()).into_iter().any(|tenant| {
            ask.meters().iter().any(|&meter| {
                let after = self.fixed(tenant, meter) + ask.charge[meter];
                exceeds(after, facts.line(tenant, meter, Line::Guarantee))
            })
        })
    }

    /// True when work that may not borrow is alone above a tenant's guarantee in something that is asked for: it was
    /// placed by another policy.
    pub(super) fn fixed_exceeds_guarantee(&self, tenant: TenantId, ask: &Ask<'_>) -> bool {
        ask.meters()
            .iter()
            .any(|&meter| exceeds(self.fixed(tenant, meter), self.facts.line(tenant, meter, Line::Guarantee)))
    }

    /// What work that may not borrow holds, of a tenant and everyone below it.
    fn fixed(&self, tenant: TenantId, meter: usize) -> u64 {
        let facts = self.facts;
        self.sum(meter, |_, spec| facts.is_below(spec.tenant, tenant) && facts.is_fixed(spec))
    }

    /// True when a tenant's inference, with its work that may not borrow, is above its guarantee in something that is
    /// asked for.
    pub(super) fn inference_exceeds_guarantee(&self, tenant: TenantId, ask: &Ask<'_>) -> bool {
        ask.meters().iter().any(|&meter| {
            let protected = self.sum(meter, |_, spec| {
                spec.tenant == tenant && (spec.class == Class::Inference || self.facts.is_fixed(spec))
            });
            exceeds(protected, self.facts.line(tenant, meter, Line::Guarantee))
        })
    }

    /// What is used of a tenant's line, the largest over what is asked for.
    pub(super) fn neediness(&self, tenant: TenantId, charge: &[u64], line: Line) -> Ratio {
        let asked = (0..charge.len()).filter(|&meter| charge[meter] > 0);
        let ratios = asked.map(|meter| match self.facts.line(tenant, meter, line) {
            Amount::Unlimited => Ratio { used: 0, line: u64::MAX },
            Amount::Of(line) => Ratio { used: self.used(tenant, meter), line },
        });
        ratios.max().unwrap_or(Ratio { used: 0, line: 0 })
    }
}

/// What is used of a line; the smaller the needier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratio {
    pub(super) used: u64,
    pub(super) line: u64,
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> Ordering {
        // Whoever has no line is least needy; among those, who has less is needier.
        match (self.line == 0, other.line == 0) {
            (true, true) => self.used.cmp(&other.used),
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => {
                let (ours, theirs) = (u128::from(self.used), u128::from(other.used));
                (ours * u128::from(other.line)).cmp(&(theirs * u128::from(self.line)))
            }
        }
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ratio {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ratio {}
