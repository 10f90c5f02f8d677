//! The fleet section: nodes, pools, levels and interned sets. What is placed on them is the ledger's business.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::device::catalogue::{self, Mig};
use crate::model::is_default;
use crate::model::observed::ObservedGpu;
use crate::state::event::Event;
use crate::state::recount;
use crate::units::{DeviceSetId, GpuMask, LevelId, NodeId, NodeSetId, PoolId, Resources, Timestamp};

/// The nodes there are and what is known of them.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    pools: Vec<String>,
    migs: Vec<Option<&'static Mig>>,
    levels: Vec<String>,
    nodes: Vec<Option<Node>>,
    by_name: BTreeMap<String, NodeId>,
    draining: BTreeSet<NodeId>,
    node_sets: Sets<NodeId>,
    device_sets: Sets<PoolId>,
    world: Option<WorldMark>,
}

/// A node: what the world says of it, and what our levers do to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub facts: NodeFacts,
    pub cordoned: bool,
    pub cordon_reason: String,
    pub cordoned_by: String,
    pub drain: Option<Drain>,
    pub out_of_service: bool,
}

impl Node {
    /// True when new work may be placed on it.
    pub fn is_open(&self) -> bool {
        self.facts.up && !self.cordoned && self.drain.is_none() && !self.out_of_service
    }
}

/// A node that is to be empty by a time: nothing new comes, and what is there leaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    pub by: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub reason: String,
    pub deadline: Timestamp,
    #[serde(default, skip_serializing_if = "is_default")]
    pub whom: Whom,
    pub at: Timestamp,
}

/// Who has to leave a node that is to be empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whom {
    /// Jobs that may be evicted. The others are waited for.
    #[default]
    Preemptible,
    Everything,
}

/// Up to which generation the reports of a world are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorldMark {
    pub world: u64,
    pub generation: u64,
}

/// What a selector matches, with its text.
#[derive(Clone, Debug)]
struct Set<T> {
    source: String,
    members: Vec<T>,
    /// A bit for each member. Placement asks for them all the time.
    bits: Vec<u64>,
}

impl<T> Set<T> {
    fn new(source: String, members: Vec<T>, index: impl Fn(&T) -> usize) -> Self {
        let words = members.iter().map(|member| index(member) / 64 + 1).max().unwrap_or_default();
        let mut bits = alloc::vec![0; words];
        for member in &members {
            bits[index(member) / 64] |= 1 << (index(member) % 64);
        }
        Self { source, members, bits }
    }
}

/// Sets by their ids, which start at 1: set 0 is everything.
#[derive(Clone, Debug, Default)]
struct Sets<T>(Vec<Set<T>>);

impl<T> Sets<T> {
    fn iter(&self) -> impl Iterator<Item = (u32, &Set<T>)> {
        (1..).zip(&self.0)
    }

    fn get(&self, id: u32) -> Option<&Set<T>> {
        self.0.get(usize::try_from(id).ok()?.checked_sub(1)?)
    }

    fn has(&self, id: u32, member: usize) -> bool {
        let word = || self.get(id)?.bits.get(member / 64);
        id == 0 || word().is_some_and(|word| word & (1 << (member % 64)) != 0)
    }

    fn named(&self, source: &str) -> Option<(u32, &[T])> {
        let (id, set) = self.iter().find(|(_, set)| set.source == source)?;
        Some((id, &set.members))
    }

    fn next(&self) -> u32 {
        u32::try_from(self.0.len() + 1).expect("fewer than 2^32 sets")
    }

    fn define(&mut self, id: u32, set: Set<T>) {
        assert!(id > 0 && id <= self.next(), "set ids are dense and begin with 1");
        match usize::try_from(id).ok().and_then(|id| self.0.get_mut(id - 1)) {
            Some(known) => *known = set,
            None => self.0.push(set),
        }
    }
}

impl Fleet {
    /// The domain of a level that a node is in.
    pub fn domain_of(&self, node: NodeId, level: LevelId) -> Option<u32> {
        let domains = &self.node(node)?.facts.domains;
        domains.iter().find(|(known, _)| *known == level).map(|&(_, domain)| domain)
    }

    pub(crate) fn wrong_indexes(&self) -> Vec<&'static str> {
        let by_name = self.nodes().map(|(id, node)| (node.facts.name.clone(), id)).collect();
        let draining = self.nodes().filter(|(_, node)| node.drain.is_some()).map(|(id, _)| id).collect();
        recount::wrong(&[
            ("nodes by name", self.by_name == by_name),
            ("nodes that drain", self.draining == draining),
        ])
    }

    /// A node that is there.
    pub fn node(&self, node: NodeId) -> Option<&Node> {
        self.nodes.get(node.index())?.as_ref()
    }

    /// Every node, in id order.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        (0u32..).map(NodeId).zip(&self.nodes).filter_map(|(id, node)| Some((id, node.as_ref()?)))
    }

    /// The node of that name.
    pub fn node_named(&self, name: &str) -> Option<NodeId> {
        self.by_name.get(name).copied()
    }

    /// Nodes that a lever wants empty.
    pub fn draining(&self) -> &BTreeSet<NodeId> {
        &self.draining
    }

    /// The id that the next new node gets.
    pub fn next_node(&self) -> NodeId {
        NodeId(u32::try_from(self.nodes.len()).expect("a fleet has fewer than 2^32 nodes"))
    }

    /// Model names, by pool.
    pub fn pools(&self) -> &[String] {
        &self.pools
    }

    /// The model of a pool.
    pub fn model(&self, pool: PoolId) -> &str {
        &self.pools[pool.index()]
    }

    /// How the GPUs of a pool can be cut, if they can.
    pub fn mig(&self, pool: PoolId) -> Option<&'static Mig> {
        self.migs.get(pool.index()).copied().flatten()
    }

    /// Every pool id.
    pub fn pool_ids(&self) -> impl Iterator<Item = PoolId> + use<> {
        (0..u16::try_from(self.pools.len()).expect("a fleet has fewer than 2^16 models")).map(PoolId)
    }

    /// Level names, by level.
    pub fn levels(&self) -> &[String] {
        &self.levels
    }

    /// True when `node` is in `set`; set 0 is every node.
    pub fn set_has_node(&self, set: NodeSetId, node: NodeId) -> bool {
        self.node_sets.has(set.0, node.index())
    }

    /// True when GPUs of `pool` are in `set`; set 0 is every device.
    pub fn set_has_pool(&self, set: DeviceSetId, pool: PoolId) -> bool {
        self.device_sets.has(set.0, pool.index())
    }

    /// The members of a node set that was defined with that text.
    pub fn node_set(&self, source: &str) -> Option<(NodeSetId, &[NodeId])> {
        self.node_sets.named(source).map(|(id, members)| (NodeSetId(id), members))
    }

    /// The members of a device set that was defined with that text.
    pub fn device_set(&self, source: &str) -> Option<(DeviceSetId, &[PoolId])> {
        self.device_sets.named(source).map(|(id, members)| (DeviceSetId(id), members))
    }

    /// The text a node set was defined with; empty for every node.
    pub(crate) fn node_set_source(&self, set: NodeSetId) -> &str {
        self.node_sets.get(set.0).map_or("", |set| &set.source)
    }

    /// The text a device set was defined with; empty for every device.
    pub(crate) fn device_set_source(&self, set: DeviceSetId) -> &str {
        self.device_sets.get(set.0).map_or("", |set| &set.source)
    }

    /// The texts of all sets, which the edge compiles again when nodes change.
    pub fn set_sources(&self) -> impl Iterator<Item = &str> {
        let nodes = self.node_sets.iter().map(|(_, set)| set.source.as_str());
        nodes.chain(self.device_sets.iter().map(|(_, set)| set.source.as_str()))
    }

    pub(crate) fn next_node_set(&self) -> NodeSetId {
        NodeSetId(self.node_sets.next())
    }

    pub(crate) fn next_device_set(&self) -> DeviceSetId {
        DeviceSetId(self.device_sets.next())
    }

    /// How far we know the world, if we have met one.
    pub fn world(&self) -> Option<WorldMark> {
        self.world
    }

    pub(crate) fn apply(&mut self, event: &FleetEvent) {
        match event {
            FleetEvent::PoolNamed { pool, model } => {
                assert!(pool.index() == self.pools.len(), "pool ids are dense");
                self.pools.push(model.clone());
                self.migs.push(catalogue::mig(model));
            }
            FleetEvent::LevelNamed { level, name } => {
                assert!(usize::from(level.0) == self.levels.len(), "level ids are dense");
                self.levels.push(name.clone());
            }
            FleetEvent::NodeSeen { node, facts } => self.see(*node, facts),
            FleetEvent::NodeRemoved { node } => self.remove(*node),
            FleetEvent::Cordoned { node, on, reason, by } => {
                let known = self.live(*node);
                known.cordoned = *on;
                known.cordon_reason.clone_from(reason);
                known.cordoned_by.clone_from(by);
            }
            FleetEvent::Draining { node, drain } => {
                self.live(*node).drain.clone_from(drain);
                match drain {
                    Some(_) => self.draining.insert(*node),
                    None => self.draining.remove(node),
                };
            }
            FleetEvent::NodeSetDefined { set, source, members } => {
                let members = Set::new(source.clone(), members.clone(), |node| node.index());
                self.node_sets.define(set.0, members);
            }
            FleetEvent::DeviceSetDefined { set, source, pools } => {
                let members = Set::new(source.clone(), pools.clone(), |pool| pool.index());
                self.device_sets.define(set.0, members);
            }
            FleetEvent::WorldSeen { world, generation } => {
                self.world = Some(WorldMark { world: *world, generation: *generation });
            }
        }
    }

    fn live(&mut self, node: NodeId) -> &mut Node {
        self.nodes[node.index()].as_mut().expect("a lever names a node that is there")
    }

    pub(crate) fn set_out_of_service(&mut self, node: NodeId, out: bool) {
        if let Some(Some(known)) = self.nodes.get_mut(node.index()) {
            known.out_of_service = out;
        }
    }

    fn see(&mut self, node: NodeId, facts: &NodeFacts) {
        // Ids in a snapshot may have holes where nodes were removed.
        if self.nodes.len() <= node.index() {
            self.nodes.resize(node.index() + 1, None);
        }
        self.nodes[node.index()].get_or_insert_default().facts = facts.clone();
        self.by_name.insert(facts.name.clone(), node);
    }

    fn remove(&mut self, node: NodeId) {
        let removed = self.nodes[node.index()].take().expect("a node is removed once");
        self.by_name.remove(&removed.facts.name);
        self.draining.remove(&node);
        // Holes at the end are cut, so that a state rebuilt from a snapshot hands out the same ids.
        while matches!(self.nodes.last(), Some(None)) {
            self.nodes.pop();
        }
    }

    pub(crate) fn snapshot(&self, into: &mut Vec<Event>) {
        let mut push = |event| into.push(Event::Fleet(event));
        for (pool, model) in self.pool_ids().zip(&self.pools) {
            push(FleetEvent::PoolNamed { pool, model: model.clone() });
        }
        for (level, name) in (0u8..).map(LevelId).zip(&self.levels) {
            push(FleetEvent::LevelNamed { level, name: name.clone() });
        }
        for (node, known) in self.nodes() {
            push(FleetEvent::NodeSeen { node, facts: known.facts.clone() });
            if known.cordoned {
                let (reason, by) = (known.cordon_reason.clone(), known.cordoned_by.clone());
                push(FleetEvent::Cordoned { node, on: true, reason, by });
            }
            if known.drain.is_some() {
                push(FleetEvent::Draining { node, drain: known.drain.clone() });
            }
        }
        for (id, set) in self.node_sets.iter() {
            let (source, members) = (set.source.clone(), set.members.clone());
            push(FleetEvent::NodeSetDefined { set: NodeSetId(id), source, members });
        }
        for (id, set) in self.device_sets.iter() {
            let (source, pools) = (set.source.clone(), set.members.clone());
            push(FleetEvent::DeviceSetDefined { set: DeviceSetId(id), source, pools });
        }
        if let Some(WorldMark { world, generation }) = self.world {
            push(FleetEvent::WorldSeen { world, generation });
        }
    }
}

/// What happens to the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FleetEvent {
    /// A model was seen for the first time.
    PoolNamed { pool: PoolId, model: String },
    /// A level was seen for the first time.
    LevelNamed { level: LevelId, name: String },
    /// A node appeared or is not what it was.
    NodeSeen { node: NodeId, facts: NodeFacts },
    /// A node left the world.
    NodeRemoved { node: NodeId },
    /// A node was cordoned, or no longer is.
    Cordoned {
        node: NodeId,
        on: bool,
        #[serde(default, skip_serializing_if = "is_default")]
        reason: String,
        #[serde(default, skip_serializing_if = "is_default")]
        by: String,
    },
    /// A node is to be empty, or no longer is.
    Draining { node: NodeId, drain: Option<Drain> },
    /// A set of nodes was compiled.
    NodeSetDefined { set: NodeSetId, source: String, members: Vec<NodeId> },
    /// A set of devices was compiled.
    DeviceSetDefined { set: DeviceSetId, source: String, pools: Vec<PoolId> },
    /// Everything a world reported up to here is known.
    WorldSeen { world: u64, generation: u64 },
}

/// What is known of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// Unique in the world.
    pub name: String,
    /// Whether it can be spoken to.
    pub up: bool,
    pub pool: PoolId,
    pub gpus: Vec<ObservedGpu>,
    pub capacity: Resources,
    #[serde(default)]
    pub others: Resources,
    #[serde(default)]
    pub others_gpus: GpuMask,
    #[serde(default)]
    pub domains: Vec<(LevelId, u32)>,
}
