//! Passes, gates and lines (rules 1 to 3 and 6), each as one question to the draft.

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
    WithinGuarantee,
    WithinFairShare,
    /// Whatever is free.
    Surplus,
}

/// The line above which work of others may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The larger of fair share and guarantee: a guarantee evicts work above it first.
    Entitled,
    Guarantee,
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

/// True when work of one group may be evicted for work of another by class or priority: it has a lower class, or a lower
/// priority in the same class. Fixed work never may.
pub(crate) fn gives_way(policy: &Policy, group: &WorkGroup, other: &WorkGroup) -> bool {
    let lower = group.class > other.class || (group.class == other.class && group.priority < other.priority);
    lower && !is_fixed(group, policy)
}

/// True for work that no guarantee could get back in time, because it may not be evicted or needs too long to save: it may
/// not borrow.
pub(crate) fn is_fixed(group: &WorkGroup, policy: &Policy) -> bool {
    !group.preemptible || group.grace > policy.preemption.borrow_grace_max
}

/// The meters an ask is charged in.
pub(crate) fn meters_of(ask: &Ask<'_>) -> impl Iterator<Item = usize> {
    (0..ask.charge.len()).filter(|&meter| ask.parts().any(|part| part.charge[meter] > 0))
}

/// Where a line of a tenant lies in one meter.
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

/// How much a tenant uses above its line in one meter; `None` where it has no line.
pub(crate) fn excess(draft: &Draft<'_>, tenant: TenantId, meter: usize, at: Line) -> Option<u64> {
    match line(draft, tenant, meter, at) {
        Amount::Unlimited => None,
        Amount::Of(line) => Some(draft.used(tenant)[meter].saturating_sub(line)),
    }
}

/// True when a tenant that uses what an ask is for as well stays within its line in every meter of the ask.
pub(crate) fn stays_within(draft: &Draft<'_>, tenant: TenantId, ask: &Ask<'_>, at: Line) -> bool {
    stays_within_without(draft, tenant, ask, at, &[])
}

/// The same when so much of its use is gone, by meter.
fn stays_within_without(draft: &Draft<'_>, tenant: TenantId, ask: &Ask<'_>, at: Line, gone: &[u64]) -> bool {
    meters_of(ask).all(|meter| {
        let gone = gone.get(meter).copied().unwrap_or_default();
        let used = draft.used(tenant)[meter].saturating_sub(gone);
        Amount::Of(used.saturating_add(ask.amount(meter))) <= line(draft, tenant, meter, at)
    })
}

/// The pass that an ask is in, judged as if its tenant's own [`lower_work`] were gone.
pub(crate) fn pass(draft: &Draft<'_>, ask: &Ask<'_>, lower_work: &[u64]) -> Pass {
    let within = |at: Line| stays_within_without(draft, ask.key.tenant, ask, at, lower_work);
    if within(Line::Guarantee) {
        Pass::WithinGuarantee
    } else if within(Line::FairShare) {
        Pass::WithinFairShare
    } else {
        Pass::Surplus
    }
}

/// What the tenant of a work group holds in groups that give way to it, by meter.
pub(crate) fn lower_work(draft: &mut Draft<'_>, group: &WorkGroup) -> Meters {
    let policy = draft.policy;
    held_by_groups(draft, group.tenant, |lower| gives_way(policy, lower, group))
}

/// The same in one meter.
pub(crate) fn lower_work_in(draft: &mut Draft<'_>, group: &WorkGroup, meter: usize) -> u64 {
    let policy = draft.policy;
    let held = draft.work_groups(group.tenant).iter();
    held.filter(|(lower, _)| gives_way(policy, lower, group)).map(|(_, held)| held[meter]).sum()
}

/// What a tenant's own work of some groups holds, by meter.
fn held_by_groups(draft: &mut Draft<'_>, tenant: TenantId, counts: impl Fn(&WorkGroup) -> bool) -> Meters {
    let mut total = draft.tree.zero();
    let groups = draft.work_groups(tenant).iter();
    groups.filter(|(group, _)| counts(group)).for_each(|(_, held)| total.add(held));
    total
}

/// The tenant whose limit an ask would pass, or whose guarantee fixed work would.
pub(crate) fn barred_by(draft: &mut Draft<'_>, ask: &Ask<'_>) -> Option<TenantId> {
    limit_exceeded(draft, ask).or_else(|| fixed_beyond(draft, ask))
}

pub(crate) fn limit_exceeded(draft: &Draft<'_>, ask: &Ask<'_>) -> Option<TenantId> {
    let passes = |tenant: &TenantId| {
        let quotas = &draft.tree.lines[tenant.index()].quotas;
        meters_of(ask).any(|meter| {
            let after = draft.used(*tenant)[meter].saturating_add(ask.amount(meter));
            Amount::Of(after) > quotas[meter].limit
        })
    };
    draft.tree.lineage(ask.key.tenant).find(passes)
}

/// The tenant whose guarantee an ask for fixed work would pass: fixed work, counted alone, fits the guarantee of its tenant
/// and of everyone above it.
pub(crate) fn fixed_beyond(draft: &mut Draft<'_>, ask: &Ask<'_>) -> Option<TenantId> {
    let (policy, tree) = (draft.policy, draft.tree);
    if policy.preemption.fixed_may_borrow || !is_fixed(&work_group(ask.key), policy) {
        return None;
    }
    let meters: Vec<usize> = meters_of(ask).collect();
    tree.lineage(ask.key.tenant).find(|&tenant| {
        let mut fixed = fixed_below(draft, tenant);
        fixed.add(&booked::to_come(draft, tenant, ask.key));
        fixed.add(&ask.total());
        is_beyond_guarantee(draft, tenant, &meters, &fixed)
    })
}

/// True when fixed work alone, of a tenant and everyone below it, is above its guarantee in one of the meters: it was
/// placed by another policy.
pub(crate) fn fixed_alone_beyond(draft: &mut Draft<'_>, tenant: TenantId, meters: &[usize]) -> bool {
    let fixed = fixed_below(draft, tenant);
    is_beyond_guarantee(draft, tenant, meters, &fixed)
}

/// What fixed work of a tenant and everyone below it holds.
fn fixed_below(draft: &mut Draft<'_>, tenant: TenantId) -> Meters {
    let (policy, tree) = (draft.policy, draft.tree);
    let mut total = held_by_groups(draft, tenant, |group| is_fixed(group, policy));
    for &child in &tree.lines[tenant.index()].children {
        total.add(&fixed_below(draft, child));
    }
    total
}

/// True when a tenant's inference, with its fixed work, is above its guarantee in one of the meters. Both are protected
/// within the guarantee; were each counted alone, a tenant could keep twice what it is guaranteed.
pub(crate) fn inference_beyond(draft: &mut Draft<'_>, tenant: TenantId, meters: &[usize]) -> bool {
    // Nobody evicts jobs of a booked window either.
    let sheltered = booked::sheltered(draft, tenant);
    protected_beyond(draft, tenant, meters, &sheltered)
}

/// The same beside so much that is protected, too.
pub(crate) fn protected_beyond(
    draft: &mut Draft<'_>,
    tenant: TenantId,
    meters: &[usize],
    beside: &[u64],
) -> bool {
    let policy = draft.policy;
    let is_protected = |group: &WorkGroup| group.class == Class::Inference || is_fixed(group, policy);
    let mut total = held_by_groups(draft, tenant, is_protected);
    total.add(beside);
    is_beyond_guarantee(draft, tenant, meters, &total)
}

fn is_beyond_guarantee(draft: &Draft<'_>, tenant: TenantId, meters: &[usize], held: &[u64]) -> bool {
    let quotas = &draft.tree.lines[tenant.index()].quotas;
    meters.iter().any(|&meter| Amount::Of(held[meter]) > quotas[meter].guaranteed)
}
