//! Free room on nodes, with the index that finds the tightest fit without looking at every node.
//!
//! A room is counted as it will be: a task that was told to leave no longer *holds* its place, it is *draining*.
//! What was promised to somebody is held already. So nobody plans with what is spoken for, and who is given a place
//! that still drains starts when that is over.
//!
//! The ledger keeps one [`Rooms`] for the fleet; a draft keeps a second, small one for the nodes it has
//! touched, so that trying something costs what it touches and not what the fleet has.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::event::Placement;
use crate::fleet::Node;
use crate::profiles::{Profile, Profiles};
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
    /// Of that, held by tasks that stay, or promised.
    pub held: Resources,
    /// Still taken by tasks that leave.
    pub draining: Resources,
    /// How many tasks leave.
    pub leaving: u32,
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
    /// Held by tasks that stay, or promised.
    pub held: GpuUnits,
    /// How many tasks hold it.
    pub holders: u32,
    /// How many tasks on it leave.
    pub leaving: u32,
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
            // What cannot be spoken to has nothing to divide, neither GPUs nor anything beside them.
            capacity: if facts.up {
                facts.capacity.saturating_sub(facts.others)
            } else {
                Resources::default()
            },
            held: Resources::default(),
            draining: Resources::default(),
            leaving: 0,
            gpus: facts.gpus.iter().enumerate().map(gpu).collect(),
        }
    }

    /// What is left beside GPUs. Others may have taken more than we left them, hence never below zero.
    pub fn free(&self) -> Resources {
        self.capacity.saturating_sub(self.held)
    }

    /// Whether tasks leave.
    pub fn drains(&self) -> Drains {
        if self.leaving > 0 { Drains::Yes } else { Drains::No }
    }

    /// How many GPUs are healthy and not used by others.
    pub fn usable_gpus(&self) -> u64 {
        u64::try_from(self.gpus.iter().filter(|gpu| gpu.usable).count()).expect("at most 16")
    }

    /// How many GPUs nobody holds.
    pub fn whole_free(&self) -> usize {
        self.gpus.iter().filter(|gpu| gpu.is_free()).count()
    }

    /// True when a task could run at a place it was given: nobody who leaves is in the way.
    pub fn is_clear(&self, place: &Placement) -> bool {
        let gpus_clear = place.gpus.indexes().all(|at| self.gpus.get(at).is_some_and(|gpu| gpu.leaving == 0));
        gpus_clear && (self.leaving == 0 || self.capacity.covers(&(self.held + self.draining)))
    }

    fn leave(&mut self, place: &Placement, resources: Resources) {
        self.draining = self.draining + resources;
        self.leaving += 1;
        for index in place.gpus.indexes() {
            let Some(gpu) = self.gpus.get_mut(index) else { continue };
            gpu.leaving += 1;
        }
    }

    fn left(&mut self, place: &Placement, resources: Resources) {
        self.draining = self.draining.checked_sub(resources).expect("only what drains is over");
        self.leaving -= 1;
        for index in place.gpus.indexes() {
            let Some(gpu) = self.gpus.get_mut(index) else { continue };
            gpu.leaving -= 1;
        }
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
    by_whole_free: BTreeMap<(PoolId, Drains, u8), BTreeSet<NodeId>>,
    partly_free: BTreeMap<PoolId, BTreeSet<(GpuUnits, NodeId, u8)>>,
    capacity: BTreeMap<PoolId, Capacity>,
    /// Kept while places are compared by worth.
    profiles: Option<Profiles>,
}

/// Whether tasks leave a node: what is free there may not be free yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Drains {
    /// Nobody leaves.
    No,
    /// Somebody does.
    Yes,
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
    pub fn with_whole_free(&self, pool: PoolId, drains: Drains, count: u8) -> impl Iterator<Item = NodeId> {
        self.by_whole_free.get(&(pool, drains, count)).into_iter().flatten().copied()
    }

    /// GPUs on open nodes of a pool that are held in part and have at least `least` left, tightest first.
    pub fn partly_free(&self, pool: PoolId, least: GpuUnits) -> impl Iterator<Item = (GpuUnits, NodeId, u8)> {
        let from = (least, NodeId(0), 0);
        self.partly_free.get(&pool).into_iter().flat_map(move |gpus| gpus.range(from..)).copied()
    }

    /// Open nodes by profile, while places are compared by worth.
    pub fn profiles(&self) -> Option<&Profiles> {
        self.profiles.as_ref()
    }

    /// Places are compared by worth from now on, or no longer.
    pub(crate) fn keep_profiles(&mut self, keep: bool) {
        if keep == self.profiles.is_some() {
            return;
        }
        self.profiles = keep.then(|| {
            let mut profiles = Profiles::default();
            for (&node, room) in &self.by_node {
                if let Some(profile) = Profile::of(room) {
                    profiles.insert(profile, node);
                }
            }
            profiles
        });
    }

    /// Puts a room in place of what was known of the node.
    pub fn put(&mut self, node: NodeId, room: Room) {
        self.remove(node);
        if let (Some(profiles), Some(profile)) = (&mut self.profiles, Profile::of(&room)) {
            profiles.insert(profile, node);
        }
        self.index(node, Marks::of(&room));
        let capacity = self.capacity.entry(room.pool).or_default();
        capacity.nodes += 1;
        capacity.gpus += room.usable_gpus();
        capacity.resources = capacity.resources + room.capacity;
        self.by_node.insert(node, room);
    }

    /// Forgets a node.
    pub fn remove(&mut self, node: NodeId) {
        let Some(room) = self.by_node.remove(&node) else { return };
        self.unindex(node, Marks::of(&room));
        if let (Some(profiles), Some(profile)) = (&mut self.profiles, Profile::of(&room)) {
            profiles.remove(&profile, node);
        }
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

    /// A place is free again. The node may be gone meanwhile.
    pub fn give_back(&mut self, place: &Placement, resources: Resources) {
        self.change(place.node, |room| room.give_back(place, resources));
    }

    /// A task that held its place is told to leave: it drains.
    pub fn drain(&mut self, place: &Placement, resources: Resources) {
        self.change(place.node, |room| {
            room.give_back(place, resources);
            room.leave(place, resources);
        });
    }

    /// A task that was told to leave stays after all.
    pub fn undrain(&mut self, place: &Placement, resources: Resources, trust: TrustId) {
        self.change(place.node, |room| {
            room.left(place, resources);
            room.take(place, resources, trust);
        });
    }

    /// A task that leaves is on a node whose room is worked out again.
    pub fn leave(&mut self, place: &Placement, resources: Resources) {
        self.change(place.node, |room| room.leave(place, resources));
    }

    /// A task that was told to leave is gone.
    pub fn left(&mut self, place: &Placement, resources: Resources) {
        self.change(place.node, |room| room.left(place, resources));
    }

    fn change(&mut self, node: NodeId, how: impl FnOnce(&mut Room)) {
        let Some(room) = self.by_node.get_mut(&node) else { return };
        let before = Marks::of(room);
        let profile = self.profiles.as_ref().and_then(|_| Profile::of(room));
        how(room);
        let after = Marks::of(room);
        if let Some(profiles) = &mut self.profiles {
            let now = Profile::of(room);
            if profile != now {
                profile.iter().for_each(|profile| profiles.remove(profile, node));
                now.into_iter().for_each(|profile| profiles.insert(profile, node));
            }
        }
        if before != after {
            self.unindex(node, before);
            self.index(node, after);
        }
    }

    fn index(&mut self, node: NodeId, marks: Option<Marks>) {
        let Some(marks) = marks else { return };
        self.by_whole_free.entry(marks.whole).or_default().insert(node);
        for (left, at) in marks.partly() {
            self.partly_free.entry(marks.whole.0).or_default().insert((left, node, at));
        }
    }

    fn unindex(&mut self, node: NodeId, marks: Option<Marks>) {
        let Some(marks) = marks else { return };
        let nodes = self.by_whole_free.get_mut(&marks.whole).expect("an open node is in the index");
        nodes.remove(&node);
        if nodes.is_empty() {
            self.by_whole_free.remove(&marks.whole);
        }
        for (left, at) in marks.partly() {
            let gpus = self.partly_free.get_mut(&marks.whole.0).expect("a GPU in part is in the index");
            gpus.remove(&(left, node, at));
            if gpus.is_empty() {
                self.partly_free.remove(&marks.whole.0);
            }
        }
    }
}

/// Where an open room stands in the index.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Marks {
    whole: (PoolId, Drains, u8),
    /// What is left of each GPU that is held in part; zero for the others.
    left: [GpuUnits; GpuMask::MAX],
}

impl Marks {
    fn of(room: &Room) -> Option<Self> {
        if !room.open {
            return None;
        }
        let free = u8::try_from(room.whole_free()).expect("a node has at most 16 GPUs");
        let drains = room.drains();
        let mut left = [GpuUnits::ZERO; GpuMask::MAX];
        for (left, gpu) in left.iter_mut().zip(&room.gpus) {
            if gpu.usable && gpu.holders > 0 {
                *left = GpuUnits::WHOLE.checked_sub(gpu.held).unwrap_or_default();
            }
        }
        Some(Self { whole: (room.pool, drains, free), left })
    }

    fn partly(&self) -> impl Iterator<Item = (GpuUnits, u8)> {
        self.left.into_iter().zip(0u8..).filter(|&(left, _)| left > GpuUnits::ZERO)
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
    for free in islands.values_mut() {
        free.sort_by_key(|&index| room.gpus[index].leaving);
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
