//! The answer about a job with groups: which group is short, or that all of them together are.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{Funnel, Quantity, Shortfall, Stage, amount_of, parts, quantity};
use crate::model::policy::Amount;
use crate::plan::draft::Draft;
use crate::plan::lines;
use crate::plan::place::asks::Asks;
use crate::plan::place::{Ask, place};
use crate::quota::meters::Amounts;
use crate::quota::tree::Tree;
use crate::state::State;
use crate::state::jobs::KindKey;
use crate::units::{GpuUnits, PoolId, TenantId, Timestamp};

impl State {
    /// What is left for the group that comes least far; if each has enough, for all of them together.
    pub(super) fn funnel_of_groups(&self, key: &KindKey) -> Funnel {
        let mut all = Vec::new();
        for (at, group) in key.groups.iter().enumerate() {
            let funnel = Funnel { group: Some(at), ..self.funnel(&group.key) };
            if funnel.shortfall().is_some() {
                return funnel;
            }
            all.push(funnel);
        }
        let policy = self.tenants.policy();
        let tree = self.tree(policy);
        let none = Amounts::new();
        let mut draft = Draft::on(self, policy, &tree, &none, Timestamp(0));
        let used = tree.subtree_use(&self.own_use_after_leaving(&tree));
        let mut short = None;
        for ask in self.open_asks(&tree, key) {
            let limited = lines::limit_exceeded(&draft, &ask).and_then(|_| over_limit(&tree, &ask, &used));
            let found = limited.or_else(|| apart(&mut draft, key, &ask));
            match found {
                None => {
                    // Each group has enough, and so have all: the largest speaks for the job.
                    let largest = group_of(key, &ask);
                    return all.swap_remove(largest.unwrap_or(0));
                }
                Some(found) => short = short.or(Some(found)),
            }
        }
        short.unwrap_or_else(|| all.swap_remove(0))
    }

    /// What keeps the groups of a kind from ever running, each alone or all together; pieces are not searched for.
    pub(super) fn never_in_groups(&self, key: &KindKey, domain: &str) -> Option<Shortfall> {
        let alone = key.groups.iter().enumerate().find_map(|(at, group)| {
            let short = self.never(&group.key, domain)?;
            Some(Shortfall { group: Some(at), ..short })
        });
        if alone.is_some() {
            return alone;
        }
        let policy = self.tenants.policy();
        let tree = self.tree(policy);
        let asks = Asks { domain: Some(domain), ..Asks::new(self, policy, &tree) };
        let asks = asks.minimum(key);
        let never: Option<Vec<Funnel>> = asks.iter().map(|ask| self.never_together(&tree, ask)).collect();
        never?.iter().find_map(Funnel::shortfall)
    }

    fn never_together(&self, tree: &Tree, ask: &Ask<'_>) -> Option<Funnel> {
        let fleet_too_small = |pool: PoolId| {
            let here = ask.parts().filter(|part| part.pool() == pool);
            let need: GpuUnits = here.map(|part| part.way.need.units().times(part.tasks)).sum();
            let nodes = self.fleet.nodes().filter(|(_, node)| node.facts.pool == pool);
            let gpus: usize = nodes.map(|(_, node)| node.facts.gpus.len()).sum();
            let have = Quantity::Gpus(GpuUnits::from_parts(parts(gpus)));
            let funnel = Funnel::new(Quantity::Gpus(need), alloc::vec![(Stage::Fleet, have)]);
            funnel.shortfall().map(|_| funnel)
        };
        let pools: BTreeSet<PoolId> = ask.parts().map(Ask::pool).collect();
        over_limit(tree, ask, &tree.zero_each()).or_else(|| pools.into_iter().find_map(fleet_too_small))
    }
}

/// The funnel that ends at the tightest limit, if one leaves too little. Cores and memory count as the part that they suffice for.
fn over_limit(tree: &Tree, ask: &Ask<'_>, used: &Amounts) -> Option<Funnel> {
    let mut least: Option<(Quantity, TenantId)> = None;
    for tenant in tree.lineage(ask.key.tenant) {
        for meter in lines::meters_of(ask) {
            let Amount::Of(limit) = tree.lines[tenant.index()].quotas[meter].limit else { continue };
            let (asked, left) = (ask.amount(meter), limit.saturating_sub(used[tenant.index()][meter]));
            if asked <= left {
                continue;
            }
            let part = |all: u64| {
                let part = u128::from(all) * u128::from(left) / u128::from(asked);
                u64::try_from(part).unwrap_or(u64::MAX)
            };
            let part = match all_of(ask) {
                Quantity::Gpus(units) => Quantity::Gpus(GpuUnits::from_parts(part(units.parts()))),
                Quantity::Tasks(tasks) => Quantity::Tasks(part(tasks)),
            };
            if least.is_none_or(|(known, _)| part < known) {
                least = Some((part, tenant));
            }
        }
    }
    let (part, tenant) = least?;
    let funnel = Funnel::new(all_of(ask), alloc::vec![(Stage::Quota, part)]);
    Some(Funnel { tenant: Some(tenant), ..funnel })
}

/// The group that a part of an ask for a minimum is about: its first task tells.
fn group_of(key: &KindKey, part: &Ask<'_>) -> Option<usize> {
    let slot = part.numbers.as_ref().and_then(|numbers| numbers.first().copied())?;
    let mut end = 0;
    key.groups.iter().position(|group| {
        end += group.key.tasks;
        slot < end
    })
}

/// All that the groups ask for: GPUs, or tasks where none of them asks for any.
fn all_of(ask: &Ask<'_>) -> Quantity {
    match ask.units() {
        GpuUnits::ZERO => Quantity::Tasks(ask.parts().map(|part| u64::from(part.tasks)).sum()),
        units => Quantity::Gpus(units),
    }
}

/// The funnel that ends at the first group that finds no place when those before it have theirs. The draft stays as it is.
fn apart(draft: &mut Draft<'_>, key: &KindKey, ask: &Ask<'_>) -> Option<Funnel> {
    let mark = draft.mark();
    let whole = place(draft, ask).is_some();
    draft.roll_back(mark);
    if whole {
        return None;
    }
    let mut found = None;
    let mut domain = ask.domain;
    for part in ask.parts() {
        let alone = Ask { beside: None, domain, ..part.clone() };
        if let Some(placed) = place(draft, &alone) {
            // Where the first goes the others have to be too.
            let level = key.topology.gang_within;
            let node = placed.tasks.first().map(|place| place.node);
            domain =
                level.zip(node).and_then(|(level, node)| draft.state.fleet.domain_of(node, level)).or(domain);
            continue;
        }
        let fewer = (0..part.tasks).rev().find(|&tasks| {
            let mark = draft.mark();
            let fits = tasks == 0 || place(draft, &Ask { tasks, ..alone.clone() }).is_some();
            draft.roll_back(mark);
            fits
        });
        let amount = |tasks: u32| quantity(part.way.need, amount_of(part.way.need, u64::from(tasks)));
        let stages = alloc::vec![(Stage::Together, amount(fewer.unwrap_or(0)))];
        found = Some(Funnel { group: group_of(key, part), ..Funnel::new(amount(part.tasks), stages) });
        break;
    }
    draft.roll_back(mark);
    // In one domain each of them fits, but not all in the same one.
    found.or_else(|| {
        let need = all_of(ask);
        let none = match need {
            Quantity::Gpus(_) => Quantity::Gpus(GpuUnits::ZERO),
            Quantity::Tasks(_) => Quantity::Tasks(0),
        };
        Some(Funnel::new(need, alloc::vec![(Stage::Together, none)]))
    })
}
