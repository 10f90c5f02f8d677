//! Room on as few nodes as will do, where taking in order used up what may be taken without emptying any.
//!
//! Worked example: `a` within its guarantee asks for 8 GPUs on one node; `b` is 20 above its line, with one job of one
//! GPU on each of 30 nodes and one job of 8 GPUs. In order the small ones come first: 20 of them are taken, no node is
//! empty, and `b` has nothing above its line any more. Node by node the job of 8 GPUs is found.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Terms, VictimSearch};
use crate::model::need::Need;
use crate::plan::evict::victims::UnitRef;
use crate::units::{GpuUnits, NodeId};

/// So many nodes are tried as the first, the cheapest first.
const FIRST_MAX: usize = 8;

/// A node that has room for the ask without some of those who are there.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EvictableNode {
    /// GPUs that are held by those who stay: they would have to be moved.
    to_move: usize,
    cost: u64,
    node: NodeId,
    units: Vec<UnitRef>,
}

impl VictimSearch<'_, '_, '_> {
    /// Takes what may be taken on as few nodes as it needs, the cheapest first, and moves the rest elsewhere where that
    /// is needed.
    pub(super) fn take_node_by_node(&mut self, terms: Terms) -> bool {
        let Need::Whole(count @ 1..) = self.ask.way.need else { return false };
        if self.ask.beside.is_some() {
            return false;
        }
        let count = usize::try_from(count).expect("a task asks for at most 16 GPUs");
        let mut candidates = self.nodes_with(terms, count);
        candidates.sort_unstable();
        (0..candidates.len().min(FIRST_MAX)).any(|first| self.take_from(terms, &candidates[first..]))
    }

    /// Takes one node after the other until the ask is met.
    fn take_from(&mut self, terms: Terms, candidates: &[EvictableNode]) -> bool {
        self.spare_all();
        let tasks = usize::try_from(self.ask.tasks).unwrap_or(usize::MAX);
        let (mut nodes, mut moving) = (0, false);
        for candidate in candidates {
            if !candidate.units.iter().all(|&unit| self.take_if_allowed(terms, unit)) {
                continue;
            }
            nodes += 1;
            moving |= candidate.to_move > 0;
            // Whether the rest can be moved is worth a look once there are as many nodes as tasks.
            let few = self.taken.len() <= super::MOVE_INTO_MAX;
            let moves = moving && few && nodes >= tasks && !self.claimant.surplus;
            let terms = Terms { moves, ..terms };
            if self.is_met(terms) {
                return self.spare_and_accept(terms);
            }
            if nodes >= tasks {
                break;
            }
        }
        false
    }

    /// Nodes on which the ask would have room.
    fn nodes_with(&mut self, terms: Terms, count: usize) -> Vec<EvictableNode> {
        let mut candidates = Vec::new();
        for (node, mut units) in self.takeable_by_node(terms) {
            let Some(room) = self.draft.room(node) else { continue };
            let (usable, free) = (room.gpus.iter().filter(|gpu| gpu.usable).count(), room.whole_free());
            let allowed = room.open
                && room.pool == self.ask.pool()
                && self.ask.key.may_go_to(&self.draft.state.fleet, node);
            if !allowed || usable < count {
                continue;
            }
            units.sort_unstable();
            let (mut freed, mut cost, mut chosen) = (free, 0u64, Vec::new());
            for (unit_cost, unit, gpus) in units {
                if freed >= count {
                    break;
                }
                freed += gpus;
                cost = cost.saturating_add(unit_cost);
                chosen.push(unit);
            }
            let to_move = count.saturating_sub(freed);
            candidates.push(EvictableNode { to_move, cost, node, units: chosen });
        }
        candidates
    }

    /// What might be taken on each node: what it costs, and how many GPUs of the node it holds.
    fn takeable_by_node(&mut self, terms: Terms) -> BTreeMap<NodeId, Vec<(u64, UnitRef, usize)>> {
        let mut by_node: BTreeMap<NodeId, Vec<(u64, UnitRef, usize)>> = BTreeMap::new();
        let tenants: Vec<_> = self.draft.state.tenants.ids().collect();
        for tenant in tenants {
            if !self.might_give_any(tenant) {
                continue;
            }
            let units: Vec<UnitRef> = self.victims.untaken(self.draft, tenant).map(|(at, _)| at).collect();
            for at in units {
                if !self.might_take(terms, at) {
                    continue;
                }
                let unit = self.victims.get(at);
                let mut held: BTreeMap<NodeId, usize> = BTreeMap::new();
                // Of a GPU that is shared nobody frees more than a part.
                for step in unit.steps.iter().filter(|step| step.place.units_each == GpuUnits::WHOLE) {
                    *held.entry(step.place.node).or_default() += step.place.gpus.indexes().count();
                }
                for (node, gpus) in held {
                    by_node.entry(node).or_default().push((unit.cost, at, gpus));
                }
            }
        }
        by_node
    }
}
