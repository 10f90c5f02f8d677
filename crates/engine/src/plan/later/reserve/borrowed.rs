//! Work that may be asked to leave for a promised start: work of others above their line, and own work that gives way.
//!
//! What rule 6 allows at once is taken at once, when the queue is served. This is about the rest of it: one node is free in
//! an hour by a limit, on the other a job borrows. Neither alone helps; together they are a start in an hour, for which
//! the borrower is asked in time.

use crate::quota::meters::Meters;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::model::job::Class;
use crate::plan::draft::Draft;
use crate::plan::evict::search::{evictable_at, gain};
use crate::plan::evict::victims::{Unit, rest_of_job};
use crate::plan::lines::{self, Line};
use crate::plan::place::Ask;
use crate::state::ledger::event::EvictionRule;
use crate::units::{JobId, Millis, TenantId, Timestamp};

/// The most jobs that are looked at for one start: each costs some microseconds.
const LOOKED_AT_MAX: usize = 512;

pub(super) struct Askable {
    pub(super) unit: Unit,
    /// When it is gone if it is asked as soon as it may be.
    pub(super) gone_at: Timestamp,
}

/// The jobs that could be asked to leave for the ask, each by itself, in the order of rule 8.
pub(super) fn askable(draft: &Draft<'_>, ask: &Ask<'_>) -> Vec<Askable> {
    let (policy, own) = (draft.policy, lines::work_group(ask.key));
    let mut found: Vec<Askable> = Vec::new();
    for tenant in draft.state.tenants.ids() {
        let mut branch = draft.tree.lineage_apart_from(tenant, own.tenant);
        if branch.any(|above| excess(draft, ask, above).is_empty()) {
            continue;
        }
        for (group, jobs) in draft.state.ledger.work_groups(tenant) {
            let fixed = lines::is_fixed(&group, policy) || group.class == Class::Inference;
            if fixed || (tenant == own.tenant && !lines::gives_way(policy, &group, &own)) {
                continue;
            }
            let askable = jobs.iter().rev().filter_map(|&(_, job)| one(draft, ask, rest_of_job(draft, job)?));
            found.extend(askable.take(LOOKED_AT_MAX - found.len()));
        }
    }
    found.sort_by_cached_key(|askable| {
        let Unit { group, cost, job, .. } = askable.unit;
        (Reverse(group.class), group.priority, cost, Reverse(job))
    });
    found
}

fn one(draft: &Draft<'_>, ask: &Ask<'_>, unit: Unit) -> Option<Askable> {
    let here = unit.steps.iter().any(|step| ask.goes_to(step.place.pool));
    if !here || unit.spent || !leaves_all_above(draft, ask, &unit, &BTreeMap::new()) {
        return None;
    }
    let own = unit.group.tenant == ask.key.tenant;
    let why = if own { EvictionRule::Preempt } else { EvictionRule::FairShare };
    let evictable = evictable_at(draft, &unit, None, why).unwrap_or(draft.now);
    let leave = Millis(unit.group.grace.0.saturating_add(draft.policy.stop_grace.0));
    Some(Askable { unit, gone_at: evictable + leave })
}

/// Of these, taken in order, the jobs that may be asked together: no tenant ends below its line.
pub(super) fn together<'u>(
    draft: &Draft<'_>,
    ask: &Ask<'_>,
    units: impl Iterator<Item = &'u Unit>,
) -> BTreeSet<JobId> {
    let mut taken: BTreeMap<TenantId, Meters> = BTreeMap::new();
    let mut jobs = BTreeSet::new();
    for unit in units {
        if leaves_all_above(draft, ask, unit, &taken) {
            for tenant in draft.tree.lineage_apart_from(unit.group.tenant, ask.key.tenant) {
                taken.entry(tenant).or_insert_with(|| draft.tree.zero()).add(&unit.amount);
            }
            jobs.insert(unit.job);
        }
    }
    jobs
}

/// True when what is gained by asking these is above what it costs, and they are not too many (rule 7).
pub(super) fn is_worth_it(draft: &Draft<'_>, ask: &Ask<'_>, units: &[&Unit]) -> bool {
    let few = units.len() <= usize::try_from(draft.policy.preemption.victims_max).unwrap_or(usize::MAX);
    let cost = units.iter().map(|unit| unit.cost).fold(0, u64::saturating_add);
    few && gain(draft, ask, units) > cost
}

/// What a tenant holds above its fair share of what is asked for, by meter, where that is something.
fn excess(draft: &Draft<'_>, ask: &Ask<'_>, tenant: TenantId) -> Vec<(usize, u64)> {
    let above = |meter: usize| Some((meter, lines::excess(draft, tenant, meter, Line::Entitled)?));
    lines::meters_of(ask).filter_map(above).filter(|&(_, excess)| excess > 0).collect()
}

/// True when its tenant, and every tenant above it, keeps its line without the unit and without what is taken already, and
/// the unit holds something of what they have too much of.
fn leaves_all_above(
    draft: &Draft<'_>,
    ask: &Ask<'_>,
    unit: &Unit,
    taken: &BTreeMap<TenantId, Meters>,
) -> bool {
    draft.tree.lineage_apart_from(unit.group.tenant, ask.key.tenant).all(|tenant| {
        let excess = excess(draft, ask, tenant);
        let gone = |meter: usize| taken.get(&tenant).map_or(0, |taken| taken[meter]);
        let holds = excess.iter().any(|&(meter, _)| unit.amount[meter] > 0);
        holds && excess.iter().all(|&(meter, excess)| gone(meter) + unit.amount[meter] <= excess)
    })
}
