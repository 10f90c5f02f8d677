//! Open nodes grouped by what their worth depends on: a search looks at profiles, whose nodes are equally good.
//!
//! Each profile has a slot in its pool, dense, with a stamp: what a planner remembers of a slot holds while the stamp is
//! the same. A stamp comes again after 2^32 changes, long after prices changed and everything was forgotten. Slots
//! depend on the order of events and are no part of what makes two indexes equal.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::units::{GpuMask, GpuUnits, NodeId, PoolId, Resources, TrustId};

/// What a room's worth depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeClass {
    pub pool: PoolId,
    pub drains: Drains,
    /// Free thousandths of a core.
    pub cpu_milli: u64,
    /// Memory that is free, in whole GiB: finer differences are worth nothing and would tell alike nodes apart.
    pub memory_gib: u64,
    /// What is left of its GPUs, most first; nothing at the end.
    gpus: [GpuLeft; GpuMask::MAX],
}

/// What is left of one GPU, and who may have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GpuLeft {
    pub units: GpuUnits,
    /// None where no task holds any of it.
    pub trust: Option<TrustId>,
    pub time_sliced: bool,
}

impl GpuLeft {
    /// True when a task of this trust domain, which takes turns or does not, could have so much of it.
    pub fn has(&self, units: GpuUnits, trust: TrustId, time_sliced: bool) -> bool {
        let ours = |holder: TrustId| holder == trust && self.time_sliced == time_sliced;
        self.units >= units && self.trust.is_none_or(ours)
    }
}

impl NodeClass {
    /// What is left of the GPUs may come in any order.
    pub(crate) fn new(
        pool: PoolId,
        drains: Drains,
        free: Resources,
        left: impl Iterator<Item = GpuLeft>,
    ) -> Self {
        let mut gpus = [GpuLeft::default(); GpuMask::MAX];
        let mut count = 0;
        for left in left.filter(|left| left.units > GpuUnits::ZERO) {
            gpus[count] = left;
            count += 1;
        }
        gpus[..count].sort_unstable_by(|a, b| b.cmp(a));
        Self { pool, drains, cpu_milli: free.cpu_milli, memory_gib: free.memory >> 30, gpus }
    }

    /// What is left of its GPUs, most first.
    pub fn gpus(&self) -> impl Iterator<Item = &GpuLeft> {
        self.gpus.iter().take_while(|left| left.units > GpuUnits::ZERO)
    }

    /// How many GPUs nobody holds.
    pub fn idle(&self) -> u32 {
        let idle = self.gpus().filter(|left| left.trust.is_none()).count();
        u32::try_from(idle).expect("a node has at most 16 GPUs")
    }
}

/// What a search needs of a slot at first.
#[derive(Clone, Copy, Debug)]
pub struct ClassHead {
    /// Of this profile alone; 0 while the slot is empty.
    pub stamp: u32,
    pub first: NodeId,
    pub drains: Drains,
    pub idle: u32,
    pub left_most: GpuUnits,
    pub cpu_milli: u64,
}

/// The slots of one pool.
#[derive(Clone, Debug, Default)]
pub struct ClassSlots {
    heads: Vec<ClassHead>,
    members: Vec<Option<(NodeClass, BTreeSet<NodeId>)>>,
    empty: Vec<usize>,
}

impl ClassSlots {
    /// Every slot, also empty ones.
    pub fn heads(&self) -> &[ClassHead] {
        &self.heads
    }

    /// The profile of a slot that is not empty.
    pub fn profile(&self, slot: usize) -> &NodeClass {
        &self.members[slot].as_ref().expect("a slot with a stamp has a profile").0
    }

    /// The nodes of a slot from `first` on, in order.
    pub fn nodes(&self, slot: usize, first: NodeId) -> impl Iterator<Item = NodeId> {
        self.members[slot].iter().flat_map(move |(_, nodes)| nodes.range(first..)).copied()
    }
}

/// The profiles of a fleet.
#[derive(Clone, Debug, Default)]
pub struct NodeClasses {
    slot_of: BTreeMap<NodeClass, usize>,
    pools: Vec<ClassSlots>,
    stamps: u32,
}

impl PartialEq for NodeClasses {
    fn eq(&self, other: &Self) -> bool {
        let contents = |profiles: &Self| -> Vec<(NodeClass, Vec<NodeId>)> {
            let nodes = |(profile, &slot): (&NodeClass, &usize)| {
                (*profile, profiles.pools[profile.pool.index()].nodes(slot, NodeId(0)).collect())
            };
            profiles.slot_of.iter().map(nodes).collect()
        };
        contents(self) == contents(other)
    }
}

impl Eq for NodeClasses {}

impl NodeClasses {
    /// Every pool with its slots.
    pub fn pools(&self) -> impl Iterator<Item = (PoolId, &ClassSlots)> {
        (0..).map(PoolId).zip(&self.pools)
    }

    /// The slots of a pool, if it has any.
    pub fn pool(&self, pool: PoolId) -> Option<&ClassSlots> {
        self.pools.get(pool.index())
    }

    pub(crate) fn insert(&mut self, profile: &NodeClass, node: NodeId) {
        if self.pools.len() <= profile.pool.index() {
            self.pools.resize_with(profile.pool.index() + 1, ClassSlots::default);
        }
        let slots = &mut self.pools[profile.pool.index()];
        if let Some(&slot) = self.slot_of.get(profile) {
            let (_, nodes) = slots.members[slot].as_mut().expect("a profile has members");
            nodes.insert(node);
            slots.heads[slot].first = slots.heads[slot].first.min(node);
            return;
        }
        self.stamps = self.stamps.checked_add(1).unwrap_or(1);
        let head = ClassHead {
            stamp: self.stamps,
            first: node,
            drains: profile.drains,
            idle: profile.idle(),
            left_most: profile.gpus[0].units,
            cpu_milli: profile.cpu_milli,
        };
        let members = Some((*profile, BTreeSet::from([node])));
        let slot = slots.empty.pop().unwrap_or_else(|| {
            slots.heads.push(head);
            slots.members.push(None);
            slots.heads.len() - 1
        });
        (slots.heads[slot], slots.members[slot]) = (head, members);
        self.slot_of.insert(*profile, slot);
    }

    pub(crate) fn remove(&mut self, profile: &NodeClass, node: NodeId) {
        let slot = *self.slot_of.get(profile).expect("an open node has a profile");
        let slots = &mut self.pools[profile.pool.index()];
        let (_, nodes) = slots.members[slot].as_mut().expect("a profile has members");
        assert!(nodes.remove(&node), "a node is listed with its profile");
        if let Some(&first) = nodes.first() {
            slots.heads[slot].first = first;
            return;
        }
        slots.heads[slot].stamp = 0;
        slots.members[slot] = None;
        slots.empty.push(slot);
        self.slot_of.remove(profile);
    }
}

/// Whether tasks leave a node: what is free there may not be free yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Drains {
    No,
    Yes,
}
