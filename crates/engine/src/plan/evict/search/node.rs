//! Room on as few nodes as will do, where evicting in order used up what may be evicted without emptying any.
//!
//! Worked example: `a` within its guarantee asks for 8 GPUs on one node; `b` is 20 above its line, with one job of one
//! GPU on each of 30 nodes and one job of 8 GPUs. In order the small ones come first: 20 of them are evicted, no node is
//! empty, and `b` has nothing above its line any more. Node by node the job of 8 GPUs is found.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Terms, VictimSearch};
use crate::model::need::Need;
use crate::plan::evict::victims::UnitRef;
use crate::units::{GpuUnits, NodeId};

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
    /// Evicts what may be evicted on as few nodes as it needs, the cheapest first, and moves the rest elsewhere.
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
            let few = self.evicted.len() <= super::MOVE_INTO_MAX;
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
