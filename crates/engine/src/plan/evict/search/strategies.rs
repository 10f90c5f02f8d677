//! Strategies that find victims: in order, by moving others, with seeds, node by node, and on small fleets every set.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{EXHAUSTIVE_MAX, MOVE_INTO_MAX, SEEDS_MAX, SETS_MAX, Terms, VictimSearch};
use crate::model::need::Need;
use crate::plan::evict::victims::UnitRef;
use crate::units::{GpuUnits, NodeId, TenantId};

/// So many nodes are tried as the first, the cheapest first.
const FIRST_MAX: usize = 8;

/// A node that has room for a task of the ask without some of the units there.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EvictableNode {
    /// GPUs that are held by work that stays: it would have to be moved.
    to_move: usize,
    cost: u64,
    node: NodeId,
    units: Vec<UnitRef>,
}

impl VictimSearch<'_, '_, '_> {
    /// Evicts in order until the ask is met, then spares what is not needed.
    pub(super) fn evict_in_order(&mut self) -> bool {
        for &right in self.rights {
            while !self.is_met(Terms::STRICT) {
                let Some(unit) = self.next_victim(right) else { break };
                self.evict(unit, right);
            }
        }
        self.is_met(Terms::STRICT) && self.spare_and_accept(Terms::STRICT)
    }

    /// What was evicted in order is enough, but in pieces: others may be moved into it.
    pub(super) fn evict_in_order_and_move(&mut self) -> bool {
        let few = self.evicted.len() <= MOVE_INTO_MAX;
        if self.evicted.is_empty() || !few || self.claimant.surplus {
            return false;
        }
        let terms = Terms { moves: true, ..Terms::STRICT };
        self.is_met(terms) && self.spare_and_accept(terms)
    }

    /// Small victims may use up what a tenant has above its line: each is tried first, at last two of different branches.
    pub(super) fn evict_with_seed(&mut self, terms: Terms) -> bool {
        let mut seeds = self.evictable_units(terms, SEEDS_MAX);
        if terms.straddle {
            seeds.retain(|&unit| self.right_to_evict(unit).is_none());
        }
        seeds.iter().any(|&seed| self.evict_seeds(terms, &[seed]))
            || (terms.straddle && self.evict_two_seeds(terms, &seeds))
    }

    fn evict_two_seeds(&mut self, terms: Terms, seeds: &[UnitRef]) -> bool {
        seeds.iter().enumerate().any(|(at, &first)| {
            seeds[at + 1..].iter().any(|&second| {
                let apart = self.branch(first.tenant) != self.branch(second.tenant);
                apart && self.evict_seeds(terms, &[first, second])
            })
        })
    }

    fn evict_seeds(&mut self, terms: Terms, seeds: &[UnitRef]) -> bool {
        self.spare_all();
        seeds.iter().all(|&unit| self.evict_if_allowed(terms, unit)) && self.evict_in_order()
    }

    /// On a small fleet nothing that is allowed is missed.
    pub(super) fn evict_any_set(&mut self, terms: Terms) -> bool {
        let units = self.evictable_units(terms, SEEDS_MAX);
        if units.len() > EXHAUSTIVE_MAX {
            return false;
        }
        for &unit in &units {
            self.evict_unit(unit);
        }
        let mut sets = Vec::new();
        self.add_sets(&units, units.len(), 0, &mut sets);
        for &unit in &units {
            self.victims.spare(unit);
        }
        sets.into_iter().any(|set| {
            self.spare_all();
            let chosen = units.iter().enumerate().filter(|(at, _)| set & (1 << at) != 0);
            self.evict_all(terms, chosen.map(|(_, &unit)| unit).collect())
                && self.is_met(terms)
                && self.spare_and_accept(terms)
        })
    }

    /// Adds the sets that make room, whether they may be evicted or not: those of the first `open` units, which are all
    /// evicted, beside what is in `set`. Counting up, a unit comes into play after all sets of those before it.
    fn add_sets(&mut self, units: &[UnitRef], open: usize, set: u32, sets: &mut Vec<u32>) {
        if sets.len() == SETS_MAX || !self.fit.is_enough(self.draft, self.ask) {
            return;
        }
        let Some(last) = open.checked_sub(1) else { return sets.push(set) };
        let (mark, fit) = (self.draft.mark(), self.fit.clone());
        let job_of = |at: usize| self.victims.get(units[at]).job;
        // With a gang, which stands after its surplus in the list, its surplus leaves anyway.
        let mut chosen = (open..units.len()).filter(|&at| set & (1 << at) != 0);
        if !chosen.any(|at| job_of(at) == job_of(last)) {
            self.spare_unit(units[last]);
        }
        self.add_sets(units, last, set, sets);
        self.draft.roll_back(mark);
        self.victims.evict(units[last]);
        self.fit = fit;
        self.add_sets(units, last, set | 1 << last, sets);
    }

    /// Evicts all of these, the smallest first and those that straddle last; false where that is not allowed.
    fn evict_all(&mut self, terms: Terms, mut units: Vec<UnitRef>) -> bool {
        units.sort_by_cached_key(|&unit| self.amount_leaving_with(unit));
        for straddle in [false, terms.straddle] {
            let mut left = usize::MAX;
            while units.len() < left {
                left = units.len();
                units.retain(|&unit| !self.evict_if_allowed(Terms { straddle, ..terms }, unit));
            }
        }
        units.is_empty()
    }

    /// Units that might be evicted as things are, each by itself, in the order of rule 8.
    pub(super) fn evictable_units(&mut self, terms: Terms, most: usize) -> Vec<UnitRef> {
        let mut units = Vec::new();
        for tenant in self.by_rank(&self.draft.tree.roots) {
            if !self.might_have_victims(tenant) {
                continue;
            }
            let mut from = 0;
            while let Some(unit) = self.victims.next_staying(self.draft, tenant, from) {
                if units.len() == most {
                    return units;
                }
                from = unit.at + 1;
                if self.might_evict(terms, unit) && self.is_useful(unit) {
                    units.push(unit);
                }
            }
        }
        units
    }

    /// Tenants that might have victims, there or below, in the order of rule 8.
    fn by_rank(&mut self, siblings: &[TenantId]) -> Vec<TenantId> {
        let (tree, ranked) = (self.draft.tree, self.ranked(siblings.to_vec()));
        let with_below = |tenant: TenantId| {
            let below = self.by_rank(&tree.lines[tenant.index()].children);
            core::iter::once(tenant).chain(below)
        };
        ranked.into_iter().flat_map(with_below).collect()
    }

    /// Evicts what may be evicted on as few nodes as it needs, the cheapest first, and moves the rest elsewhere.
    ///
    /// Worked example: `a` within its guarantee asks for 8 GPUs on one node; `b` is 20 above its line, with one job of one
    /// GPU on each of 30 nodes and one job of 8 GPUs. In order the small ones come first: 20 of them are evicted, no node is
    /// empty, and `b` has nothing above its line any more. Node by node the job of 8 GPUs is found.
    pub(super) fn evict_node_by_node(&mut self, terms: Terms) -> bool {
        let Need::Whole(count @ 1..) = self.ask.way.need else { return false };
        if self.ask.beside.is_some() {
            return false;
        }
        let count = usize::try_from(count).expect("a task asks for at most 16 GPUs");
        let mut nodes = self.evictable_nodes(terms, count);
        nodes.sort_unstable();
        (0..nodes.len().min(FIRST_MAX)).any(|first| self.evict_on(terms, &nodes[first..]))
    }

    /// Empties one node after the other until the ask is met.
    fn evict_on(&mut self, terms: Terms, nodes: &[EvictableNode]) -> bool {
        self.spare_all();
        let tasks = usize::try_from(self.ask.tasks).unwrap_or(usize::MAX);
        let (mut emptied, mut moving) = (0, false);
        for node in nodes {
            if !node.units.iter().all(|&unit| self.evict_if_allowed(terms, unit)) {
                continue;
            }
            emptied += 1;
            moving |= node.to_move > 0;
            // Whether the rest can be moved is worth a look once there are as many nodes as tasks.
            let few = self.evicted.len() <= MOVE_INTO_MAX;
            let moves = moving && few && emptied >= tasks && !self.claimant.surplus;
            let terms = Terms { moves, ..terms };
            if self.is_met(terms) {
                return self.spare_and_accept(terms);
            }
            if emptied >= tasks {
                break;
            }
        }
        false
    }

    /// Nodes on which a task of the ask, of so many GPUs, would have room.
    fn evictable_nodes(&mut self, terms: Terms, count: usize) -> Vec<EvictableNode> {
        let mut nodes = Vec::new();
        for (node, units) in self.evictable_by_node(terms) {
            let Some(room) = self.ask.room_on(self.draft, node) else { continue };
            if room.gpus.iter().filter(|gpu| gpu.usable).count() < count {
                continue;
            }
            let (mut freed, mut cost, mut chosen) = (room.whole_free(), 0u64, Vec::new());
            for ((unit_cost, unit), gpus) in units {
                if freed >= count {
                    break;
                }
                freed += gpus;
                cost = cost.saturating_add(unit_cost);
                chosen.push(unit);
            }
            nodes.push(EvictableNode { to_move: count.saturating_sub(freed), cost, node, units: chosen });
        }
        nodes
    }

    /// What might be evicted on each node, the cheapest first, with how many GPUs of the node it holds.
    fn evictable_by_node(&mut self, terms: Terms) -> BTreeMap<NodeId, BTreeMap<(u64, UnitRef), usize>> {
        let mut by_node: BTreeMap<NodeId, BTreeMap<(u64, UnitRef), usize>> = BTreeMap::new();
        for at in self.evictable_units(terms, usize::MAX) {
            let unit = self.victims.get(at);
            // Evicting a unit that shares a GPU frees no more than a part of it.
            for step in unit.steps.iter().filter(|step| step.place.units_each == GpuUnits::WHOLE) {
                let held = by_node.entry(step.place.node).or_default().entry((unit.cost, at)).or_default();
                *held += step.place.gpus.indexes().count();
            }
        }
        by_node
    }
}
