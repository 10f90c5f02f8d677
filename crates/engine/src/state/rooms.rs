//! Free room on nodes, with the index that finds the tightest fit without looking at every node.
//!
//! A room is counted as it will be: a task that was told to leave no longer *holds* its place, it is *draining*.
//! What was promised to somebody is held already. So nobody plans with what is spoken for, and who is given a place
//! that still drains starts when that is over.
//!
//! The ledger keeps one [`Rooms`] for the fleet; a draft keeps a second, small one for the nodes it has
//! touched, so that trying something costs what it touches and not what the fleet has.

pub(crate) mod check;

use crate::price::node_classes::{Drains, GpuLeft};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::device::catalogue::mig::AXIS_MAX;
use crate::device::catalogue::{Media, Mig};
use crate::device::geometry::{Layout, Slots, slots_of};
use crate::model::placement::Placement;
use crate::price::node_classes::{NodeClass, NodeClasses};
use crate::state::fleet::Node;
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
    /// How they can be cut, if they can.
    pub mig: Option<&'static Mig>,
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
    /// How many of them run and should not.
    pub strangers: u32,
    /// Whose trust domain the others are of who hold it undivided, while there are any.
    pub trust: Option<TrustId>,
    /// Whether they take turns.
    pub time_sliced: bool,
    /// The slices that are held of it.
    pub layout: Layout,
    /// Slots that tasks leave, and how many leave each.
    pub leaving_slots: [u8; AXIS_MAX],
    /// How many of those who leave hold it undivided, or with more than the usual media engines.
    pub leaving_undivided: u32,
}

/// The most tasks that MPS lets share one GPU on every driver we know.
const MPS_CLIENTS_MAX: u32 = 48;

impl GpuRoom {
    /// What a task of `trust` could still get of it.
    pub fn free_for(&self, trust: TrustId) -> GpuUnits {
        let strangers = self.strangers > 0 || self.trust.is_some_and(|holder| holder != trust);
        if !self.usable || strangers || !self.layout.is_empty() {
            return GpuUnits::ZERO;
        }
        GpuUnits::WHOLE.checked_sub(self.held).unwrap_or_default()
    }

    /// What a share of `trust` that takes turns, or does not, could still get of it: the two cannot be on one GPU.
    pub(crate) fn free_for_share(&self, trust: TrustId, time_sliced: bool) -> GpuUnits {
        let another_mode = self.holders > 0 && self.time_sliced != time_sliced;
        let full = !time_sliced && self.holders >= MPS_CLIENTS_MAX;
        if another_mode || full { GpuUnits::ZERO } else { self.free_for(trust) }
    }

    /// What is left of it for whoever holds it undivided, or for anybody where nobody does.
    pub fn left_undivided(&self) -> GpuUnits {
        let full = self.holders >= MPS_CLIENTS_MAX && !self.time_sliced;
        if !self.usable || !self.layout.is_empty() || full || self.strangers > 0 {
            return GpuUnits::ZERO;
        }
        GpuUnits::WHOLE.checked_sub(self.held).unwrap_or_default()
    }

    /// How many more shares of that size it could take.
    pub(crate) fn shares_that_fit(&self, trust: TrustId, units: GpuUnits, time_sliced: bool) -> u32 {
        let fits = self.free_for_share(trust, time_sliced).parts() / units.parts();
        let clients = if time_sliced { u32::MAX } else { MPS_CLIENTS_MAX.saturating_sub(self.holders) };
        u32::try_from(fits).unwrap_or(u32::MAX).min(clients)
    }

    /// The slices of it, where more can be cut out: nobody holds it undivided.
    pub(crate) fn open_layout(&self) -> Option<Layout> {
        let undivided = u32::try_from(self.layout.slices().count()) != Ok(self.holders);
        (self.usable && !undivided).then_some(self.layout)
    }

    /// True when nobody who leaves is in the way of a slice there.
    pub(crate) fn is_clear_at(&self, slots: Slots) -> bool {
        let taken = |(slot, &leaving): (usize, &u8)| leaving > 0 && slots & (1 << slot) != 0;
        self.leaving_undivided == 0 && !self.leaving_slots.iter().enumerate().any(taken)
    }

    /// True when nobody holds any of it.
    pub fn is_free(&self) -> bool {
        self.usable && self.holders == 0
    }
}

impl Room {
    /// True when every GPU of a place is here, of its pool, and works.
    pub(crate) fn has_place(&self, place: &Placement) -> bool {
        let usable = |gpu: usize| self.gpus.get(gpu).is_some_and(|gpu| gpu.usable);
        self.pool == place.pool && place.gpus.indexes().all(usable)
    }

    /// What its worth depends on; nothing where no new work may come.
    pub(crate) fn profile(&self) -> Option<NodeClass> {
        let left = self.gpus.iter().map(|gpu| GpuLeft {
            units: gpu.left_undivided(),
            trust: gpu.trust,
            time_sliced: gpu.time_sliced,
        });
        self.open.then(|| NodeClass::new(self.pool, self.drains(), self.free(), left))
    }

    /// The empty room of a node.
    pub fn of(node: &Node, mig: Option<&'static Mig>) -> Self {
        let facts = &node.facts;
        let gpu = |(index, gpu): (usize, &crate::model::observed::ObservedGpu)| GpuRoom {
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
            mig,
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
    pub(crate) fn usable_gpus(&self) -> u64 {
        u64::try_from(self.gpus.iter().filter(|gpu| gpu.usable).count()).expect("at most 16")
    }

    /// How many GPUs nobody holds.
    pub fn whole_free(&self) -> usize {
        self.gpus.iter().filter(|gpu| gpu.is_free()).count()
    }

    /// True when a task could run at a place it was given: nobody who leaves is in the way.
    pub fn is_clear(&self, place: &Placement) -> bool {
        let slots = self.only_slots(place);
        let is_clear = |gpu: &GpuRoom| match slots {
            Some(slots) => gpu.is_clear_at(slots),
            None => gpu.leaving == 0,
        };
        let gpus_clear = place.gpus.indexes().all(|at| self.gpus.get(at).is_some_and(is_clear));
        gpus_clear && (self.leaving == 0 || self.capacity.covers(&(self.held + self.draining)))
    }

    /// The slots that a place takes, where it is a slice that this node can have.
    fn slots(&self, place: &Placement) -> Option<Slots> {
        let slots = slots_of(self.mig?, place.slice?);
        (slots != 0).then_some(slots)
    }

    /// The same where slots are all that it takes: media engines are given out once for the whole device.
    fn only_slots(&self, place: &Placement) -> Option<Slots> {
        let profile = self.mig?.profile(place.slice?.profile)?;
        self.slots(place).filter(|_| profile.media == Media::Usual)
    }

    fn leave(&mut self, place: &Placement, resources: Resources) {
        self.draining = self.draining + resources;
        self.leaving += 1;
        let slots = self.only_slots(place);
        for index in place.gpus.indexes() {
            let Some(gpu) = self.gpus.get_mut(index) else { continue };
            gpu.leaving += 1;
            match slots {
                Some(slots) => each_slot(&mut gpu.leaving_slots, slots, |leaving| *leaving += 1),
                None => gpu.leaving_undivided += 1,
            }
        }
    }

    fn left(&mut self, place: &Placement, resources: Resources) {
        self.draining = self.draining.checked_sub(resources).expect("only what drains is over");
        self.leaving -= 1;
        let slots = self.only_slots(place);
        for index in place.gpus.indexes() {
            let Some(gpu) = self.gpus.get_mut(index) else { continue };
            gpu.leaving -= 1;
            match slots {
                Some(slots) => each_slot(&mut gpu.leaving_slots, slots, |leaving| *leaving -= 1),
                None => gpu.leaving_undivided -= 1,
            }
        }
    }

    pub(crate) fn occupy(&mut self, place: &Placement, resources: Resources, trust: TrustId) {
        // A device may have vanished under a task; what runs on it is on its way out.
        let slice = place.slice.filter(|_| self.slots(place).is_some());
        self.occupy_as(place, resources, |gpu| match slice {
            Some(slice) => gpu.layout = gpu.layout.with(slice),
            // Who comes beside others is of their domain, or only keeps the rest of the GPU from being given away.
            None if gpu.trust.is_none() => (gpu.trust, gpu.time_sliced) = (Some(trust), place.time_sliced),
            None => {}
        });
    }

    pub(crate) fn vacate(&mut self, place: &Placement, resources: Resources) {
        let slice = place.slice.filter(|_| self.slots(place).is_some());
        self.vacate_as(place, resources, |gpu| {
            gpu.layout = slice.map_or(gpu.layout, |slice| gpu.layout.without(slice));
        });
    }

    /// Something runs there that should not. Nobody knows whose it is, so nobody may come beside it; and it may be in a slice
    /// that a task of ours has too, whose record it was, so it is none of the slices.
    fn occupy_for_orphan(&mut self, place: &Placement, resources: Resources) {
        self.occupy_as(place, resources, |gpu| gpu.strangers += 1);
    }

    fn vacate_of_orphan(&mut self, place: &Placement, resources: Resources) {
        self.vacate_as(place, resources, |gpu| gpu.strangers -= 1);
    }

    fn occupy_as(&mut self, place: &Placement, resources: Resources, how: impl Fn(&mut GpuRoom)) {
        self.held = self.held + resources;
        for index in place.gpus.indexes() {
            let Some(gpu) = self.gpus.get_mut(index) else { continue };
            gpu.held += place.units_each;
            gpu.holders += 1;
            how(gpu);
        }
    }

    fn vacate_as(&mut self, place: &Placement, resources: Resources, how: impl Fn(&mut GpuRoom)) {
        self.held = self.held.checked_sub(resources).expect("only what is held is given back");
        for index in place.gpus.indexes() {
            let Some(gpu) = self.gpus.get_mut(index) else { continue };
            gpu.held = gpu.held.checked_sub(place.units_each).expect("only what is held is given back");
            gpu.holders -= 1;
            how(gpu);
            if gpu.holders == gpu.strangers {
                (gpu.trust, gpu.time_sliced) = (None, false);
            }
        }
    }
}

fn each_slot(counts: &mut [u8; AXIS_MAX], slots: Slots, how: impl Fn(&mut u8)) {
    counts
        .iter_mut()
        .enumerate()
        .filter(|(slot, _)| slots & (1 << slot) != 0)
        .for_each(|(_, count)| how(count));
}

/// Rooms by node, and open nodes by how much of them is free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rooms {
    by_node: BTreeMap<NodeId, Room>,
    by_whole_free: BTreeMap<(PoolId, Drains, u8), BTreeSet<NodeId>>,
    partly_free: BTreeMap<PoolId, BTreeSet<(GpuUnits, NodeId, u8)>>,
    by_layout: BTreeMap<(PoolId, Layout), BTreeSet<(NodeId, u8)>>,
    capacity: BTreeMap<PoolId, Capacity>,
    /// Kept while places are compared by worth.
    profiles: Option<NodeClasses>,
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

    /// True when new work may come to a place, and its GPUs work.
    pub(crate) fn is_open_at(&self, place: &Placement) -> bool {
        self.get(place.node).is_some_and(|room| room.open && room.has_place(place))
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

    /// What a pool has, used or not.
    pub(crate) fn capacity_of(&self, pool: PoolId) -> Capacity {
        self.capacity.get(&pool).copied().unwrap_or_default()
    }

    /// Open nodes of a pool with exactly so many GPUs free, in node order.
    pub(crate) fn with_whole_free(
        &self,
        pool: PoolId,
        drains: Drains,
        count: u8,
    ) -> impl Iterator<Item = NodeId> {
        self.by_whole_free.get(&(pool, drains, count)).into_iter().flatten().copied()
    }

    /// GPUs on open nodes of a pool that are held in part and have at least `least` left, tightest first.
    pub(crate) fn partly_free(
        &self,
        pool: PoolId,
        least: GpuUnits,
    ) -> impl Iterator<Item = (GpuUnits, NodeId, u8)> {
        let from = (least, NodeId(0), 0);
        self.partly_free.get(&pool).into_iter().flat_map(move |gpus| gpus.range(from..)).copied()
    }

    /// The layouts of GPUs on open nodes of a pool that more can be cut out of, with those GPUs in node order.
    pub(crate) fn by_layout(&self, pool: PoolId) -> impl Iterator<Item = (Layout, &BTreeSet<(NodeId, u8)>)> {
        let of_pool = self.by_layout.range((pool, Layout::default())..);
        of_pool.take_while(move |((known, _), _)| *known == pool).map(|(&(_, layout), gpus)| (layout, gpus))
    }

    /// GPUs on open nodes of a pool with exactly these slices that more can be cut out of, in node order.
    pub(crate) fn with_layout(&self, pool: PoolId, layout: Layout) -> impl Iterator<Item = (NodeId, u8)> {
        self.by_layout.get(&(pool, layout)).into_iter().flatten().copied()
    }

    /// Open nodes by profile, while places are compared by worth.
    pub fn profiles(&self) -> Option<&NodeClasses> {
        self.profiles.as_ref()
    }

    /// Places are compared by worth from now on, or no longer.
    pub(crate) fn keep_profiles(&mut self, keep: bool) {
        if keep == self.profiles.is_some() {
            return;
        }
        self.profiles = keep.then(|| {
            let mut profiles = NodeClasses::default();
            for (&node, room) in &self.by_node {
                if let Some(profile) = room.profile() {
                    profiles.insert(&profile, node);
                }
            }
            profiles
        });
    }

    /// Puts a room in place of what was known of the node.
    pub fn put(&mut self, node: NodeId, room: Room) {
        self.remove(node);
        if let (Some(profiles), Some(profile)) = (&mut self.profiles, room.profile()) {
            profiles.insert(&profile, node);
        }
        self.index(node, Marks::of(&room).as_ref());
        let capacity = self.capacity.entry(room.pool).or_default();
        capacity.nodes += 1;
        capacity.gpus += room.usable_gpus();
        capacity.resources = capacity.resources + room.capacity;
        self.by_node.insert(node, room);
    }

    /// Forgets a node.
    pub fn remove(&mut self, node: NodeId) {
        let Some(room) = self.by_node.remove(&node) else { return };
        self.unindex(node, Marks::of(&room).as_ref());
        if let (Some(profiles), Some(profile)) = (&mut self.profiles, room.profile()) {
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
    pub fn occupy(&mut self, place: &Placement, resources: Resources, trust: TrustId) {
        self.change(place.node, |room| room.occupy(place, resources, trust));
    }

    /// Something that should not runs at a place.
    pub(crate) fn occupy_for_orphan(&mut self, place: &Placement, resources: Resources) {
        self.change(place.node, |room| room.occupy_for_orphan(place, resources));
    }

    /// It no longer does. The node may be gone meanwhile.
    pub(crate) fn vacate_of_orphan(&mut self, place: &Placement, resources: Resources) {
        self.change(place.node, |room| room.vacate_of_orphan(place, resources));
    }

    /// A place is free again. The node may be gone meanwhile.
    pub fn vacate(&mut self, place: &Placement, resources: Resources) {
        self.change(place.node, |room| room.vacate(place, resources));
    }

    /// A task that held its place is told to leave: it drains.
    pub fn drain(&mut self, place: &Placement, resources: Resources) {
        self.change(place.node, |room| {
            room.vacate(place, resources);
            room.leave(place, resources);
        });
    }

    /// A task that was told to leave stays after all.
    pub fn undrain(&mut self, place: &Placement, resources: Resources, trust: TrustId) {
        self.change(place.node, |room| {
            room.left(place, resources);
            room.occupy(place, resources, trust);
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
        let profile = self.profiles.as_ref().and_then(|_| room.profile());
        how(room);
        let after = Marks::of(room);
        if let Some(profiles) = &mut self.profiles {
            let now = room.profile();
            if profile != now {
                if let Some(profile) = &profile {
                    profiles.remove(profile, node);
                }
                if let Some(now) = &now {
                    profiles.insert(now, node);
                }
            }
        }
        if before != after {
            self.unindex(node, before.as_ref());
            self.index(node, after.as_ref());
        }
    }

    fn index(&mut self, node: NodeId, marks: Option<&Marks>) {
        let Some(marks) = marks else { return };
        self.by_whole_free.entry(marks.whole).or_default().insert(node);
        for (left, at) in marks.partly() {
            self.partly_free.entry(marks.whole.0).or_default().insert((left, node, at));
        }
        for (layout, at) in marks.open_layouts() {
            self.by_layout.entry((marks.whole.0, layout)).or_default().insert((node, at));
        }
    }

    fn unindex(&mut self, node: NodeId, marks: Option<&Marks>) {
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
        for (layout, at) in marks.open_layouts() {
            let key = (marks.whole.0, layout);
            let gpus = self.by_layout.get_mut(&key).expect("a GPU that can be cut is in the index");
            gpus.remove(&(node, at));
            if gpus.is_empty() {
                self.by_layout.remove(&key);
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
    /// The slices of each GPU that more can be cut out of.
    layouts: [Option<Layout>; GpuMask::MAX],
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
            if gpu.usable && gpu.holders > 0 && gpu.layout.is_empty() {
                *left = GpuUnits::WHOLE.checked_sub(gpu.held).unwrap_or_default();
            }
        }
        let mut layouts = [None; GpuMask::MAX];
        if room.mig.is_some() {
            for (layout, gpu) in layouts.iter_mut().zip(&room.gpus) {
                *layout = gpu.open_layout();
            }
        }
        Some(Self { whole: (room.pool, drains, free), left, layouts })
    }

    fn partly(&self) -> impl Iterator<Item = (GpuUnits, u8)> {
        self.left.into_iter().zip(0u8..).filter(|&(left, _)| left > GpuUnits::ZERO)
    }

    fn open_layouts(&self) -> impl Iterator<Item = (Layout, u8)> {
        self.layouts.into_iter().zip(0u8..).filter_map(|(layout, at)| Some((layout?, at)))
    }
}

/// So many free GPUs of a room, on as few islands as can be: the smallest island that holds them all, or,
/// unless one is required, the fullest islands first so that large free islands stay whole.
pub(crate) fn pick_gpus(room: &Room, count: u32, one_island: bool) -> Option<GpuMask> {
    let wanted = usize::try_from(count).expect("a u32 fits a usize");
    let mut free = [(0, 0, 0); GpuMask::MAX];
    let mut len = 0;
    for (index, gpu) in room.gpus.iter().enumerate().filter(|(_, gpu)| gpu.is_free()) {
        free[len] = (gpu.island, gpu.leaving, index);
        len += 1;
    }
    let free = &mut free[..len];
    free.sort_unstable();
    let islands = || free.chunk_by(|a, b| a.0 == b.0);
    let mut mask = GpuMask::default();
    if let Some(tightest) =
        islands().filter(|island| island.len() >= wanted).min_by_key(|island| island.len())
    {
        tightest.iter().take(wanted).for_each(|&(_, _, index)| mask.insert(index));
        return Some(mask);
    }
    if one_island || len < wanted {
        return None;
    }
    let fullest_first =
        (1..=GpuMask::MAX).flat_map(|size| islands().filter(move |island| island.len() == size));
    fullest_first.flatten().take(wanted).for_each(|&(_, _, index)| mask.insert(index));
    Some(mask)
}
