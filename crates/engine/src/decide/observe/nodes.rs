//! What a report changes of nodes, and the names and ids that it brings.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use crate::decide::names::position_of;
use crate::model::observed::{ObservedGpu, ObservedNode, Report, Scope};
use crate::state::event::Event;
use crate::state::fleet::{Fleet, FleetEvent, NodeFacts};
use crate::units::{GpuMask, LevelId, NodeId, PoolId};

/// What is new of nodes.
pub(super) struct NodeChanges<'a> {
    fleet: &'a Fleet,
    /// Models by pool, after this report.
    pub(super) pools: Vec<String>,
    levels: Vec<String>,
    next_node: NodeId,
    /// Where each reported node is.
    pub(super) places: BTreeMap<String, (NodeId, PoolId)>,
    /// The GPUs of each reported node.
    pub(super) gpus: BTreeMap<NodeId, &'a [ObservedGpu]>,
    /// Nodes whose tasks are lost.
    pub(super) lost: BTreeSet<NodeId>,
    pub(super) events: Vec<Event>,
}

impl<'a> NodeChanges<'a> {
    pub(super) fn of(fleet: &'a Fleet, report: &'a Report) -> Self {
        let mut changes = Self {
            fleet,
            pools: fleet.pools().to_vec(),
            levels: fleet.levels().to_vec(),
            next_node: fleet.next_node(),
            places: BTreeMap::new(),
            gpus: BTreeMap::new(),
            lost: BTreeSet::new(),
            events: Vec::new(),
        };
        for observed in &report.nodes {
            changes.see(observed);
        }
        let gone = changes.gone(report);
        changes.events.extend(gone.iter().map(|&node| Event::Fleet(FleetEvent::NodeRemoved { node })));
        changes.lost.extend(gone);
        // Names come before the nodes that use them.
        changes.events.sort_by_key(|event| {
            !matches!(event, Event::Fleet(FleetEvent::PoolNamed { .. } | FleetEvent::LevelNamed { .. }))
        });
        changes
    }

    fn gone(&self, report: &Report) -> Vec<NodeId> {
        match (report.scope, report.since) {
            // The list that follows tells what is gone, and with it what became of the tasks there.
            (Scope::Nodes, _) => Vec::new(),
            (Scope::All, None) => {
                let nodes = self.fleet.nodes();
                nodes
                    .filter(|(_, node)| !self.places.contains_key(&node.facts.name))
                    .map(|(id, _)| id)
                    .collect()
            }
            (Scope::All, Some(_)) => {
                report.nodes_gone.iter().filter_map(|name| self.fleet.node_named(name)).collect()
            }
        }
    }

    fn see(&mut self, observed: &'a ObservedNode) {
        let Some(pool) = self.pool(&observed.model) else { return };
        let facts = self.facts(observed, pool);
        let known = self.fleet.node_named(&observed.name);
        let node = known.unwrap_or(self.next_node);
        self.next_node.0 += u32::from(known.is_none());
        self.places.insert(observed.name.clone(), (node, pool));
        self.gpus.insert(node, &observed.gpus);
        if !facts.up {
            self.lost.insert(node);
        }
        if self.fleet.node(node).is_none_or(|known| known.facts != facts) {
            self.events.push(Event::Fleet(FleetEvent::NodeSeen { node, facts }));
        }
    }

    fn facts(&mut self, observed: &ObservedNode, pool: PoolId) -> NodeFacts {
        let ObservedNode { name, up, model: _, gpus, capacity, others, others_gpus, domains } = observed;
        let domains = domains.iter().filter_map(|(level, domain)| Some((self.level(level)?, *domain)));
        NodeFacts {
            name: name.clone(),
            up: *up,
            pool,
            gpus: gpus.iter().take(GpuMask::MAX).copied().collect(),
            capacity: *capacity,
            others: *others,
            others_gpus: *others_gpus,
            domains: domains.collect(),
        }
    }

    /// A fleet with more models than ids is beyond anything real: what is too much is not used.
    fn pool(&mut self, model: &str) -> Option<PoolId> {
        let (at, is_new) = position_of(&mut self.pools, model);
        let pool = u16::try_from(at).ok().filter(|&id| id < u16::MAX).map(PoolId)?;
        if is_new {
            self.events.push(Event::Fleet(FleetEvent::PoolNamed { pool, model: String::from(model) }));
        }
        Some(pool)
    }

    fn level(&mut self, name: &str) -> Option<LevelId> {
        let (at, is_new) = position_of(&mut self.levels, name);
        let level = u8::try_from(at).ok().filter(|&id| id < u8::MAX).map(LevelId)?;
        if is_new {
            self.events.push(Event::Fleet(FleetEvent::LevelNamed { level, name: String::from(name) }));
        }
        Some(level)
    }
}
