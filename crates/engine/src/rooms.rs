//! Free room on nodes, with the index that finds the tightest fit without looking at every node.
//!
//! The ledger keeps one [`Rooms`] for the fleet; a draft keeps a second, small one for the nodes it has
//! touched, so that trying something costs what it touches and not what the fleet has.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::event::Placement;
use crate::fleet::Node;
use crate::units::{GpuMask, GpuUnits, NodeId, PoolId, Resources, TrustId};

/// What one node has and what is held of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// The pool of its GPUs.
    pub pool: PoolId,
    /// Whether new work may come.
    pub open: bool,
    /// Beside GPUs, without what others use.
    pub capacity: Resources,
    /// Of that, held by our tasks.
    pub held: Resources,
    /// Its GPUs.
    pub gpus: Vec<GpuRoom>,
}

/// What is held of one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuRoom {
    /// Healthy and not used by others.
    pub usable: bool,
    /// NVLink domain.
    pub island: u32,
    /// Held by our tasks.
    pub held: GpuUnits,
    /// How many tasks hold it.
    pub holders: u32,
    /// Whose trust domain they are of, while there are any.
    pub trust: Option<TrustId>,
}

impl GpuRoom {
    /// What a task of `trust` could still get of it.
    pub fn free_for(&self, trust: TrustId) -> GpuUnits {
        let strangers = self.trust.is_some_and(|holder| holder != trust);
        if !self.usable || strangers {
            return GpuUnits::ZERO;
        }
        GpuUnits::WHOLE.checked_sub(self.held).unwrap_or_default()
    }

    /// True when nobody holds any of it.
    pub fn is_free(&self) -> bool {
        self.usable && self.holders == 0
    }
}

impl Room {
    /// The empty room of a node.
    pub fn of(node: &Node) -> Self {
        let facts = &node.facts;
        let gpu = |(index, gpu): (usize, &crate::input::ObservedGpu)| GpuRoom {
            usable: facts.up && gpu.healthy && !facts.others_gpus.contains(index),
            island: gpu.island,
            ..GpuRoom::default()
        };
        Self {
            pool: facts.pool,
            open: node.is_open(),
            capacity: facts.capacity.saturating_sub(facts.others),
            held: Resources::default(),
            gpus: facts.gpus.iter().enumerate().map(gpu).collect(),
        }
    }

    /// What is left beside GPUs. Others may have taken more than we left them, hence never below zero.
    pub fn free(&self) -> Resources {
        self.capacity.saturating_sub(self.held)
    }

    /// How many GPUs are healthy and not used by others.
    pub fn usable_gpus(&self) -> u64 {
        u64::try_from(self.gpus.iter().filter(|gpu| gpu.usable).count()).expect("at most 16")
    }

    /// How many GPUs nobody holds.
    pub fn whole_free(&self) -> usize {
        self.gpus.iter().filter(|gpu| gpu.is_free()).count()
    }

    fn take(&mut self, place: &Placement, resources: Resources, trust: TrustId) {
        self.held = self.held + resources;
        // A device may have vanished under a task; what runs on it is on its way out.
        for index in place.gpus.indexes() {
            let Some(gpu) = self.gpus.get_mut(index) else { continue };
            gpu.held += place.units_each;
            gpu.holders += 1;
            gpu.trust = Some(trust);
        }
    }

    fn give_back(&mut self, place: &Placement, resources: Resources) {
        self.held = self.held.checked_sub(resources).expect("only what is held is given back");
        for index in place.gpus.indexes() {
            let Some(gpu) = self.gpus.get_mut(index) else { continue };
            gpu.held = gpu.held.checked_sub(place.units_each).expect("only what is held is given back");
            gpu.holders -= 1;
            if gpu.holders == 0 {
                gpu.trust = None;
            }
        }
    }
}

/// Rooms by node, and open nodes by how much of them is free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rooms {
    by_node: BTreeMap<NodeId, Room>,
    by_whole_free: BTreeMap<(PoolId, u8), BTreeSet<NodeId>>,
    partly_free: BTreeMap<PoolId, BTreeSet<(GpuUnits, NodeId, u8)>>,
    capacity: BTreeMap<PoolId, Capacity>,
}

/// What the nodes of a pool have, used or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// How many nodes.
    pub nodes: u64,
    /// Healthy GPUs that others do not use.
    pub gpus: u64,
    /// Beside GPUs, without what others use.
    pub resources: Resources,
}

impl Rooms {
    /// The room of a node.
    pub fn get(&self, node: NodeId) -> Option<&Room> {
        self.by_node.get(&node)
    }

    /// Every room, in node order.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Room)> {
        self.by_node.iter().map(|(&node, room)| (node, room))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_node.len()
    }

    /// True when no node was put in.
    pub fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }

    /// What each pool has, used or not.
    pub fn capacity(&self) -> impl Iterator<Item = (PoolId, Capacity)> {
        self.capacity.iter().map(|(&pool, &capacity)| (pool, capacity))
    }

    /// Open nodes of a pool with exactly so many GPUs free, in node order.
    pub fn with_whole_free(&self, pool: PoolId, count: u8) -> impl Iterator<Item = NodeId> {
        self.by_whole_free.get(&(pool, count)).into_iter().flatten().copied()
    }

    /// GPUs on open nodes of a pool that are held in part and have at least `least` left, tightest first.
    pub fn partly_free(&self, pool: PoolId, least: GpuUnits) -> impl Iterator<Item = (GpuUnits, NodeId, u8)> {
        let from = (least, NodeId(0), 0);
        self.partly_free.get(&pool).into_iter().flat_map(move |gpus| gpus.range(from..)).copied()
    }

    /// Puts a room in place of what was known of the node.
    pub fn put(&mut self, node: NodeId, room: Room) {
        self.remove(node);
        self.index(node, &room, true);
        let capacity = self.capacity.entry(room.pool).or_default();
        capacity.nodes += 1;
        capacity.gpus += room.usable_gpus();
        capacity.resources = capacity.resources + room.capacity;
        self.by_node.insert(node, room);
    }

    /// Forgets a node.
    pub fn remove(&mut self, node: NodeId) {
        let Some(room) = self.by_node.remove(&node) else { return };
        self.index(node, &room, false);
        let capacity = self.capacity.get_mut(&room.pool).expect("a room's pool has a capacity");
        capacity.nodes -= 1;
        capacity.gpus -= room.usable_gpus();
        let left = capacity.resources.checked_sub(room.capacity);
        capacity.resources = left.expect("a pool has what its nodes have");
        if capacity.nodes == 0 {
            self.capacity.remove(&room.pool);
        }
    }

    /// A task takes its place.
    pub fn take(&mut self, place: &Placement, resources: Resources, trust: TrustId) {
        self.change(place.node, |room| room.take(place, resources, trust));
    }

    /// A task's place is free again. The node may be gone meanwhile.
    pub fn give_back(&mut self, place: &Placement, resources: Resources) {
        if self.by_node.contains_key(&place.node) {
            self.change(place.node, |room| room.give_back(place, resources));
        }
    }

    fn change(&mut self, node: NodeId, how: impl FnOnce(&mut Room)) {
        let mut room = self.by_node.remove(&node).expect("a place is on a node that is there");
        self.index(node, &room, false);
        how(&mut room);
        self.index(node, &room, true);
        self.by_node.insert(node, room);
    }

    fn index(&mut self, node: NodeId, room: &Room, present: bool) {
        if !room.open {
            return;
        }
        let free = u8::try_from(room.whole_free()).expect("a node has at most 16 GPUs");
        let nodes = self.by_whole_free.entry((room.pool, free)).or_default();
        if present {
            nodes.insert(node);
        } else {
            nodes.remove(&node);
            if nodes.is_empty() {
                self.by_whole_free.remove(&(room.pool, free));
            }
        }
        for (at, gpu) in (0u8..).zip(&room.gpus) {
            if !gpu.usable || gpu.holders == 0 || gpu.held >= GpuUnits::WHOLE {
                continue;
            }
            let left = GpuUnits::WHOLE.checked_sub(gpu.held).unwrap_or_default();
            let gpus = self.partly_free.entry(room.pool).or_default();
            if present {
                gpus.insert((left, node, at));
            } else {
                gpus.remove(&(left, node, at));
                if gpus.is_empty() {
                    self.partly_free.remove(&room.pool);
                }
            }
        }
    }
}

/// So many free GPUs of a room, on as few islands as can be: the smallest island that holds them all, or,
/// unless one is required, the fullest islands first so that large free islands stay whole.
pub fn pick_gpus(room: &Room, count: u32, one_island: bool) -> Option<GpuMask> {
    let wanted = usize::try_from(count).expect("a u32 fits a usize");
    let mut islands: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (index, gpu) in room.gpus.iter().enumerate().filter(|(_, gpu)| gpu.is_free()) {
        islands.entry(gpu.island).or_default().push(index);
    }
    let mut by_size: Vec<_> = islands.into_values().collect();
    by_size.sort_by_key(Vec::len);
    let mut mask = GpuMask::default();
    if let Some(tightest) = by_size.iter().find(|free| free.len() >= wanted) {
        tightest.iter().take(wanted).for_each(|&index| mask.insert(index));
        return Some(mask);
    }
    if one_island {
        return None;
    }
    by_size.iter().flatten().take(wanted).for_each(|&index| mask.insert(index));
    (mask.count() == count).then_some(mask)
}
