//! Who may have what: passes, gates and lines (rules 1 to 3 and 6), each as one question to the draft.

use crate::quota::meters::Meters;
use alloc::vec::Vec;

use crate::model::job::Class;
use crate::model::policy::{Amount, Policy};
use crate::plan::draft::Draft;
use crate::plan::later::booked;
use crate::plan::place::Ask;
use crate::state::jobs::KindKey;
use crate::state::ledger::WorkGroup;
use crate::units::TenantId;

/// What a job may take, by how entitled its tenant is to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// The tenant stays within its guarantee.
    WithinGuarantee,
    /// The tenant stays within its fair share.
    WithinFairShare,
    /// Whatever is free.
    Surplus,
}

/// The line above which work of others may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The larger of fair share and guarantee: whom a guarantee takes from first.
    Entitled,
    /// What was promised.
    Guarantee,
    /// The fair share.
    FairShare,
}

/// How a job of this kind stands among the work of its tenant.
pub(crate) fn work_group(key: &KindKey) -> WorkGroup {
    WorkGroup {
        tenant: key.tenant,
        class: key.class,
        priority: key.priority,
        preemptible: key.preemptible,
        grace: key.grace,
    }
}

/// True when work that stands so may be taken for work that stands like `other`: a lower class, or a lower priority
/// in the same class. Equals never; nor work that needs longer to save than anybody should wait for it.
pub(crate) fn gives_way(policy: &Policy, group: &WorkGroup, other: &WorkGroup) -> bool {
    let lower = group.class > other.class || (group.class == other.class && group.priority < other.priority);
    lower && !is_fixed(group, policy)
}

/// True for work that no guarantee could get back in time: it may not borrow.
pub(crate) fn is_fixed(group: &WorkGroup, policy: &Policy) -> bool {
    !group.preemptible || group.grace > policy.preemption.borrow_grace_max
}

/// The meters an ask is charged in.
pub(crate) fn meters_of(ask: &Ask<'_>) -> impl Iterator<Item = usize> {
    (0..ask.charge.len()).filter(|&meter| ask.parts().any(|part| part.charge[meter] > 0))
}

/// What a tenant is promised or may call its own, in one meter.
pub(crate) fn line(draft: &Draft<'_>, tenant: TenantId, meter: usize, line: Line) -> Amount {
    let guaranteed = draft.tree.lines[tenant.index()].quotas[meter].guaranteed;
    let share = draft.share(tenant)[meter];
    match (guaranteed, line) {
        (Amount::Unlimited, _) => Amount::Unlimited,
        (Amount::Of(guaranteed), Line::Guarantee) => Amount::Of(guaranteed),
        (Amount::Of(guaranteed), Line::Entitled) => Amount::Of(guaranteed.max(share)),
        (Amount::Of(_), Line::FairShare) => Amount::Of(share),
    }
}

/// True when a tenant with so much more stays within its line in everything that is asked for.
pub(crate) fn stays_within(draft: &Draft<'_>, tenant: TenantId, ask: &Ask<'_>, at: Line) -> bool {
    meters_of(ask).all(|meter| {
        let after = draft.used(tenant)[meter].saturating_add(ask.amount(meter));
        match line(draft, tenant, meter, at) {
            Amount::Unlimited => true,
            Amount::Of(line) => after <= line,
        }
    })
}

/// The pass that an ask is in: judged without the own tenant's work that would give way to it, which is [`below`].
pub(crate) fn pass(draft: &Draft<'_>, ask: &Ask<'_>, below: &[u64]) -> Pass {
    let within = |at: Line| {
        meters_of(ask).all(|meter| {
            let used = draft.used(ask.key.tenant)[meter].saturating_sub(below[meter]);
            match line(draft, ask.key.tenant, meter, at) {
                Amount::Unlimited => true,
                Amount::Of(line) => used.saturating_add(ask.amount(meter)) <= line,
            }
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

/// What the own tenant's work that would give way to work that stands so holds.
pub(crate) fn below(draft: &mut Draft<'_>, own: &WorkGroup) -> Meters {
    let policy = draft.policy;
    let mut below = draft.tree.zero();
    for (group, held) in draft.work_groups(own.tenant) {
        if gives_way(policy, group, own) {
            below.add(held);
        }
    }
    below
}

/// The same in one meter.
pub(crate) fn below_in(draft: &mut Draft<'_>, own: &WorkGroup, meter: usize) -> u64 {
    let policy = draft.policy;
    let held = draft.work_groups(own.tenant).iter();
    held.filter(|(group, _)| gives_way(policy, group, own)).map(|(_, held)| held[meter]).sum()
}

/// Whose limit an ask would pass, if it does.
pub(crate) fn limit_exceeded(draft: &Draft<'_>, ask: &Ask<'_>) -> Option<TenantId> {
    let passes = |tenant: &TenantId| {
        let quotas = &draft.tree.lines[tenant.index()].quotas;
        meters_of(ask).any(|meter| match quotas[meter].limit {
            Amount::Unlimited => false,
            Amount::Of(limit) => draft.used(*tenant)[meter].saturating_add(ask.amount(meter)) > limit,
        })
    };
    draft.tree.lineage(ask.key.tenant).find(passes)
}

/// Whose guarantee an ask for fixed work would pass: counted alone, it fits the guarantee of its tenant and of
/// everyone above it.
pub(crate) fn fixed_beyond(draft: &mut Draft<'_>, ask: &Ask<'_>) -> Option<TenantId> {
    let policy = draft.policy;
    if policy.preemption.fixed_may_borrow || !is_fixed(&work_group(ask.key), policy) {
        return None;
    }
    let lineage: Vec<TenantId> = draft.tree.lineage(ask.key.tenant).collect();
    lineage.into_iter().find(|&tenant| {
        let mut fixed = fixed_below(draft, tenant);
        fixed.add(&booked::to_come(draft, tenant, ask.key));
        let quotas = &draft.tree.lines[tenant.index()].quotas;
        meters_of(ask).any(|meter| match quotas[meter].guaranteed {
            Amount::Unlimited => false,
            Amount::Of(guaranteed) => fixed[meter].saturating_add(ask.amount(meter)) > guaranteed,
        })
    })
}

/// True when fixed work alone, of a tenant and everyone below it, is above its guarantee in one of the meters: it was
/// placed by another policy.
pub(crate) fn fixed_alone_beyond(draft: &mut Draft<'_>, tenant: TenantId, meters: &[usize]) -> bool {
    let fixed = fixed_below(draft, tenant);
    meters.iter().any(|&meter| match line(draft, tenant, meter, Line::Guarantee) {
        Amount::Unlimited => false,
        Amount::Of(guaranteed) => fixed[meter] > guaranteed,
    })
}

/// What fixed work of a tenant and everyone below it holds.
fn fixed_below(draft: &mut Draft<'_>, tenant: TenantId) -> Meters {
    let (policy, tree) = (draft.policy, draft.tree);
    let mut total = tree.zero();
    for (group, held) in draft.work_groups(tenant) {
        if is_fixed(group, policy) {
            total.add(held);
        }
    }
    for &child in &tree.lines[tenant.index()].children {
        total.add(&fixed_below(draft, child));
    }
    total
}

/// True when a tenant's inference, with its work that may not borrow, is above its guarantee in one of the meters. Both
/// are protected within the guarantee; were each counted alone, a tenant could keep twice what it was promised.
pub(crate) fn inference_beyond(draft: &mut Draft<'_>, tenant: TenantId, meters: &[usize]) -> bool {
    // Nobody takes from a booked window either.
    let sheltered = booked::sheltered(draft, tenant);
    protected_beyond(draft, tenant, meters, &sheltered)
}

/// The same without what the tenant's booked windows have: for those, inference within its guarantee never leaves.
pub(crate) fn inference_alone_beyond(draft: &mut Draft<'_>, tenant: TenantId, meters: &[usize]) -> bool {
    protected_beyond(draft, tenant, meters, &[])
}

fn protected_beyond(draft: &mut Draft<'_>, tenant: TenantId, meters: &[usize], beside: &[u64]) -> bool {
    let policy = draft.policy;
    let mut total = draft.tree.zero();
    for (group, held) in draft.work_groups(tenant) {
        if group.class == Class::Inference || is_fixed(group, policy) {
            total.add(held);
        }
    }
    total.add(beside);
    meters.iter().any(|&meter| match line(draft, tenant, meter, Line::Guarantee) {
        Amount::Unlimited => false,
        Amount::Of(guaranteed) => total[meter] > guaranteed,
    })
}
