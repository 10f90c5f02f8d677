//! Free room on nodes, with the index that finds the tightest fit without looking at every node.
//!
//! A room is counted as it will be: a task that was told to leave no longer *holds* its place, it is *leaving*; a place that is
//! earmarked is held already. A task that is given a place which another is still leaving starts when that is gone.
//!
//! The ledger keeps one [`Rooms`] for the fleet, a draft a second, small one for the nodes that it has touched.

pub(crate) mod check;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::{AddAssign, SubAssign};

use crate::device::catalogue::mig::AXIS_MAX;
use crate::device::catalogue::{Media, Mig};
use crate::device::geometry::{Layout, Slice, Slots, slots_of};
use crate::model::placement::Placement;
use crate::price::node_classes::{Drains, GpuLeft, NodeClass, NodeClasses};
use crate::state::fleet::Node;
use crate::state::holding::Presence;
use crate::state::index::set_listed;
use crate::state::ledger::Step;
use crate::units::{GpuMask, GpuUnits, NodeId, PoolId, Resources, TrustId};

/// What one node has and what is held of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    pub pool: PoolId,
    pub open: bool,
    /// Beside GPUs, without what others use.
    pub capacity: Resources,
    /// Of that, held by tasks that stay, or earmarked.
    pub held: Resources,
    /// Still taken by tasks that leave.
    pub held_by_leaving: Resources,
    pub leaving: u32,
    pub gpus: Vec<GpuRoom>,
    pub mig: Option<&'static Mig>,
}

/// What is held of one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuRoom {
    /// Healthy and not used by others.
    pub usable: bool,
    pub island: u32,
    /// Held by tasks that stay, or earmarked.
    pub held: GpuUnits,
    pub holders: u32,
    pub leaving: u32,
    /// How many of the holders are orphans.
    pub strangers: u32,
    /// The trust domain of the other holders that have no slice, while there are any.
    pub trust: Option<TrustId>,
    pub time_sliced: bool,
    pub layout: Layout,
    pub leaving_slots: [u8; AXIS_MAX],
    /// How many of those that leave have no slice, or one with more than the usual media engines.
    pub leaving_undivided: u32,
}

/// The most tasks that MPS lets share one GPU on every driver we know.
const MPS_CLIENTS_MAX: u32 = 48;

impl GpuRoom {
    /// What nobody holds of it, whoever could have that.
    pub(crate) fn not_held(&self) -> GpuUnits {
        GpuUnits::WHOLE.checked_sub(self.held).filter(|_| self.usable).unwrap_or_default()
    }

    /// What is left beside tasks that hold it undivided, whatever their trust domain.
    fn left(&self) -> GpuUnits {
        if self.strangers > 0 || !self.layout.is_empty() { GpuUnits::ZERO } else { self.not_held() }
    }

    /// What a task of `trust` could still get of it.
    pub fn free_for(&self, trust: TrustId) -> GpuUnits {
        if self.trust.is_some_and(|holder| holder != trust) { GpuUnits::ZERO } else { self.left() }
    }

    /// What a share of `trust` could still get of it. Shares that take turns and shares that do not cannot be on one GPU.
    pub(crate) fn free_for_share(&self, trust: TrustId, time_sliced: bool) -> GpuUnits {
        let another_mode = self.holders > 0 && self.time_sliced != time_sliced;
        let full = !time_sliced && self.holders >= MPS_CLIENTS_MAX;
        if another_mode || full { GpuUnits::ZERO } else { self.free_for(trust) }
    }

    /// What is left of it for its own trust domain and mode, or for anybody where nobody holds it undivided.
    pub fn left_undivided(&self) -> GpuUnits {
        let full = self.holders >= MPS_CLIENTS_MAX && !self.time_sliced;
        if full { GpuUnits::ZERO } else { self.left() }
    }

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

    /// True when no task that leaves is in the way of a slice in those slots; without slots, of anything.
    fn is_clear_at(&self, slots: Option<Slots>) -> bool {
        let Some(slots) = slots else { return self.leaving == 0 };
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
        let gpus = facts.gpus.iter().enumerate().map(|(index, gpu)| GpuRoom {
            usable: facts.up && gpu.healthy && !facts.others_gpus.contains(index),
            island: gpu.island,
            ..GpuRoom::default()
        });
        // What cannot be spoken to has nothing to divide, neither GPUs nor anything beside them.
        let capacity =
            if facts.up { facts.capacity.saturating_sub(facts.others) } else { Resources::default() };
        Self {
            pool: facts.pool,
            open: node.is_open(),
            capacity,
            gpus: gpus.collect(),
            mig,
            ..Self::default()
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

    pub(crate) fn usable_gpus(&self) -> u64 {
        u64::try_from(self.gpus.iter().filter(|gpu| gpu.usable).count()).expect("at most 16")
    }

    /// How many GPUs nobody holds.
    pub fn whole_free(&self) -> usize {
        self.gpus.iter().filter(|gpu| gpu.is_free()).count()
    }

    /// True when a task could run at a place it was given: no task that leaves is in the way.
    pub fn is_clear(&self, place: &Placement) -> bool {
        let slots = self.only_slots(place);
        let is_clear = |at: usize| self.gpus.get(at).is_some_and(|gpu| gpu.is_clear_at(slots));
        let gpus_clear = place.gpus.indexes().all(is_clear);
        gpus_clear && (self.leaving == 0 || self.capacity.covers(&(self.held + self.held_by_leaving)))
    }

    /// The slots that a place takes, where it is a slice that this node can have: a device may have vanished under a task.
    fn slots(&self, place: &Placement) -> Option<Slots> {
        let slots = slots_of(self.mig?, place.slice?);
        (slots != 0).then_some(slots)
    }

    /// The same where slots are all that it takes: media engines are given out once for the whole device.
    fn only_slots(&self, place: &Placement) -> Option<Slots> {
        let profile = self.mig?.profile(place.slice?.profile)?;
        self.slots(place).filter(|_| profile.media == Media::Usual)
    }

    /// The slice that a task takes of the layout. An orphan has none: it may be in a slice that a task of ours has too.
    fn slice(&self, step: &Step) -> Option<Slice> {
        step.place.slice.filter(|_| step.trust.is_some() && self.slots(&step.place).is_some())
    }

    fn gpus_of(&mut self, place: &Placement) -> impl Iterator<Item = &mut GpuRoom> {
        let gpus = place.gpus;
        self.gpus.iter_mut().enumerate().filter(move |&(at, _)| gpus.contains(at)).map(|(_, gpu)| gpu)
    }

    pub(crate) fn occupy(&mut self, step: &Step) {
        let slice = self.slice(step);
        self.held = self.held + step.resources;
        for gpu in self.gpus_of(&step.place) {
            gpu.held += step.place.units_each;
            gpu.holders += 1;
            match (slice, step.trust) {
                (Some(slice), _) => gpu.layout = gpu.layout.with(slice),
                // Nobody knows whose an orphan is, so nobody may come beside it.
                (None, None) => gpu.strangers += 1,
                // A later task is of the same domain, or only keeps the rest of the GPU from being given away.
                (None, Some(_)) if gpu.trust.is_some() => {}
                (None, trust) => (gpu.trust, gpu.time_sliced) = (trust, step.place.time_sliced),
            }
        }
    }

    pub(crate) fn vacate(&mut self, step: &Step) {
        let slice = self.slice(step);
        self.held = self.held.checked_sub(step.resources).expect("only what is held is given back");
        for gpu in self.gpus_of(&step.place) {
            gpu.held = gpu.held.checked_sub(step.place.units_each).expect("only what is held is given back");
            gpu.holders -= 1;
            gpu.strangers -= u32::from(step.trust.is_none());
            gpu.layout = slice.map_or(gpu.layout, |slice| gpu.layout.without(slice));
            if gpu.holders == gpu.strangers {
                (gpu.trust, gpu.time_sliced) = (None, false);
            }
        }
    }

    fn count_leaving(&mut self, step: &Step, more: bool) {
        self.held_by_leaving = if more {
            self.held_by_leaving + step.resources
        } else {
            self.held_by_leaving.checked_sub(step.resources).expect("only a task that leaves is gone")
        };
        count(&mut self.leaving, more);
        let slots = self.only_slots(&step.place);
        for gpu in self.gpus_of(&step.place) {
            count(&mut gpu.leaving, more);
            match slots {
                Some(slots) => (0..AXIS_MAX)
                    .filter(|slot| slots & (1 << slot) != 0)
                    .for_each(|slot| count(&mut gpu.leaving_slots[slot], more)),
                None => count(&mut gpu.leaving_undivided, more),
            }
        }
    }
}

fn count<T: AddAssign + SubAssign + From<u8>>(total: &mut T, more: bool) {
    if more {
        *total += T::from(1);
    } else {
        *total -= T::from(1);
    }
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

    /// True when no node was put in.
    pub fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }

    /// What each pool has, used or not.
    pub fn capacity(&self) -> impl Iterator<Item = (PoolId, Capacity)> {
        self.capacity.iter().map(|(&pool, &capacity)| (pool, capacity))
    }

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
        self.profiles = keep.then(NodeClasses::default);
        if let Some(profiles) = &mut self.profiles {
            let open = self.by_node.iter().filter_map(|(&node, room)| Some((node, room.profile()?)));
            open.for_each(|(node, profile)| profiles.insert(&profile, node));
        }
    }

    /// Puts a room in place of what was known of the node.
    pub fn put(&mut self, node: NodeId, room: Room) {
        self.remove(node);
        self.list(node, Marks::of(&room).as_ref(), true);
        self.list_profile(node, self.profile_of(&room).as_ref(), true);
        let capacity = self.capacity.entry(room.pool).or_default();
        capacity.nodes += 1;
        capacity.gpus += room.usable_gpus();
        capacity.resources = capacity.resources + room.capacity;
        self.by_node.insert(node, room);
    }

    /// The profile of a room, where profiles are listed at all.
    fn profile_of(&self, room: &Room) -> Option<NodeClass> {
        self.profiles.as_ref().and_then(|_| room.profile())
    }

    /// Forgets a node.
    pub fn remove(&mut self, node: NodeId) {
        let Some(room) = self.by_node.remove(&node) else { return };
        self.list(node, Marks::of(&room).as_ref(), false);
        self.list_profile(node, self.profile_of(&room).as_ref(), false);
        let capacity = self.capacity.get_mut(&room.pool).expect("a room's pool has a capacity");
        capacity.nodes -= 1;
        capacity.gpus -= room.usable_gpus();
        let left = capacity.resources.checked_sub(room.capacity);
        capacity.resources = left.expect("a pool has what its nodes have");
        if capacity.nodes == 0 {
            self.capacity.remove(&room.pool);
        }
    }

    /// A task is present at its place in another way than before. The node may be gone meanwhile.
    pub fn shift(&mut self, step: &Step, before: Presence, after: Presence) {
        self.change(step.place.node, |room| {
            match before {
                Presence::Stays => room.vacate(step),
                Presence::Leaves => room.count_leaving(step, false),
                Presence::Gone => {}
            }
            match after {
                Presence::Stays => room.occupy(step),
                Presence::Leaves => room.count_leaving(step, true),
                Presence::Gone => {}
            }
        });
    }

    fn change(&mut self, node: NodeId, how: impl FnOnce(&mut Room)) {
        let Some(room) = self.by_node.get_mut(&node) else { return };
        let has_profiles = self.profiles.is_some();
        let found = |room: &Room| (Marks::of(room), has_profiles.then(|| room.profile()).flatten());
        let (marks, profile) = found(room);
        how(room);
        let (marks_now, profile_now) = found(room);
        if marks != marks_now {
            self.list(node, marks.as_ref(), false);
            self.list(node, marks_now.as_ref(), true);
        }
        if profile != profile_now {
            self.list_profile(node, profile.as_ref(), false);
            self.list_profile(node, profile_now.as_ref(), true);
        }
    }

    fn list(&mut self, node: NodeId, marks: Option<&Marks>, listed: bool) {
        let Some(marks) = marks else { return };
        let pool = marks.whole.0;
        set_listed(&mut self.by_whole_free, marks.whole, node, listed);
        for (left, at) in marks.partly() {
            set_listed(&mut self.partly_free, pool, (left, node, at), listed);
        }
        for (layout, at) in marks.layouts() {
            set_listed(&mut self.by_layout, (pool, layout), (node, at), listed);
        }
    }

    fn list_profile(&mut self, node: NodeId, profile: Option<&NodeClass>, listed: bool) {
        if let (Some(profiles), Some(profile)) = (&mut self.profiles, profile) {
            if listed { profiles.insert(profile, node) } else { profiles.remove(profile, node) }
        }
    }
}

/// Where an open room stands in the index.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Marks {
    whole: (PoolId, Drains, u8),
    /// What is left of each GPU that is held in part; zero for the others.
    left: [GpuUnits; GpuMask::MAX],
    layouts: [Option<Layout>; GpuMask::MAX],
}

impl Marks {
    fn of(room: &Room) -> Option<Self> {
        if !room.open {
            return None;
        }
        let free = u8::try_from(room.whole_free()).expect("a node has at most 16 GPUs");
        let (left, layouts) = ([GpuUnits::ZERO; GpuMask::MAX], [None; GpuMask::MAX]);
        let mut marks = Self { whole: (room.pool, room.drains(), free), left, layouts };
        for (at, gpu) in room.gpus.iter().enumerate() {
            if gpu.usable && gpu.holders > 0 && gpu.layout.is_empty() {
                marks.left[at] = gpu.not_held();
            }
            if room.mig.is_some() {
                marks.layouts[at] = gpu.open_layout();
            }
        }
        Some(marks)
    }

    fn partly(&self) -> impl Iterator<Item = (GpuUnits, u8)> {
        self.left.into_iter().zip(0u8..).filter(|&(left, _)| left > GpuUnits::ZERO)
    }

    fn layouts(&self) -> impl Iterator<Item = (Layout, u8)> {
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
    let tightest = islands().filter(|island| island.len() >= wanted).min_by_key(|island| island.len());
    if tightest.is_none() && (one_island || len < wanted) {
        return None;
    }
    let of_len = |len: usize| islands().filter(move |island| island.len() == len);
    let fullest_first = (1..=GpuMask::MAX).filter(|_| tightest.is_none()).flat_map(of_len);
    let mut mask = GpuMask::default();
    let gpus = tightest.into_iter().chain(fullest_first).flatten();
    gpus.take(wanted).for_each(|&(_, _, index)| mask.insert(index));
    Some(mask)
}
