//! A draft: the state with some starts and evictions tried on it.
//!
//! It keeps its own rooms for the nodes it touched and its own sums of use; the state stays as it is. Everything
//! that is tried is an operation with an inverse: one undo list, one kind of mark.

use crate::plan::evict::victims::Unit;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cell::RefCell;

use crate::device::catalogue::Mig;
use crate::device::catalogue::mig::PROFILES_MAX;
use crate::device::cut::Weights;
use crate::device::geometry::Layout;
use crate::model::job::GpuAsk;
use crate::model::placement::Placement;
use crate::model::policy::Policy;
use crate::plan::place::asks::Asks;
use crate::plan::place::best::Worths;
use crate::price::node_classes::{Drains, NodeClasses};
use crate::quota::meters::{Amounts, Meters};
use crate::quota::tree::Tree;
use crate::state::State;
use crate::state::holding::Presence;
use crate::state::ledger::{Step, WorkGroup};
use crate::state::rooms::{Room, Rooms};
use crate::units::{GpuUnits, NodeId, PoolId, TenantId, Timestamp};

pub(crate) struct Draft<'a> {
    pub state: &'a State,
    pub policy: &'a Policy,
    pub tree: &'a Tree,
    pub now: Timestamp,
    touched: Rooms,
    used: Amounts,
    pub shares: &'a Amounts,
    work_groups: BTreeMap<TenantId, BTreeMap<WorkGroup, Meters>>,
    done: Vec<Op>,
    /// What earlier plans worked out of the worth of places.
    pub worths: Option<&'a RefCell<Worths>>,
    /// The same of the nodes that are not as in the state.
    pub touched_worths: RefCell<Worths>,
    passed: RefCell<BTreeMap<(PoolId, usize), NodeId>>,
    weights: RefCell<BTreeMap<PoolId, Weights>>,
}

enum Op {
    Shift { step: Step, before: Presence, after: Presence },
    Count { group: WorkGroup, amount: Meters, more: bool },
}

impl Op {
    fn inverse(self) -> Self {
        match self {
            Self::Shift { step, before, after } => Self::Shift { step, before: after, after: before },
            Self::Count { group, amount, more } => Self::Count { group, amount, more: !more },
        }
    }
}

/// A point to roll back to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark(usize);

impl<'a> Draft<'a> {
    pub(crate) fn on(
        state: &'a State,
        policy: &'a Policy,
        tree: &'a Tree,
        shares: &'a Amounts,
        now: Timestamp,
    ) -> Self {
        let used = tree.subtree_use(&state.own_use_after_leaving(tree));
        Self {
            state,
            policy,
            tree,
            now,
            touched: Rooms::default(),
            used,
            shares,
            work_groups: BTreeMap::new(),
            done: Vec::new(),
            worths: None,
            touched_worths: RefCell::default(),
            passed: RefCell::default(),
            weights: RefCell::default(),
        }
    }

    /// Tries something on the state as it is.
    pub(crate) fn trial<T>(
        state: &State,
        policy: &Policy,
        now: Timestamp,
        attempt: impl FnOnce(Draft<'_>) -> T,
    ) -> T {
        let tree = state.tree(policy);
        let shares = state.fair_shares(&tree);
        attempt(Draft::on(state, policy, &tree, &shares, now))
    }

    /// The asks by which kinds can be met.
    pub(crate) fn asks(&self) -> Asks<'a> {
        Asks::new(self.state, self.policy, self.tree)
    }

    /// From now on the nodes that are not as in the state are kept by profile. A plan that looks for one place never needs it.
    pub(crate) fn keep_touched_profiles(&mut self) {
        if !self.touched.is_empty() {
            self.touched.keep_profiles(true);
        }
    }

    /// The nodes that are not as in the state, by profile, if there are any and they are kept.
    pub(crate) fn touched_profiles(&self) -> Option<&NodeClasses> {
        self.touched.profiles()
    }

    /// The first node of a profile of the state that may be as it is there: all before it are touched.
    pub(crate) fn first_untouched(&self, pool: PoolId, slot: usize) -> NodeId {
        self.passed.borrow().get(&(pool, slot)).copied().unwrap_or_default()
    }

    /// This node of a profile of the state, and all before it, are touched; once touched they stay so.
    pub(crate) fn pass_touched(&self, pool: PoolId, slot: usize, node: NodeId) {
        self.passed.borrow_mut().insert((pool, slot), NodeId(node.0 + 1));
    }

    /// The room of a node, if it is as in the state.
    pub(crate) fn untouched_room(&self, node: NodeId) -> Option<&Room> {
        let untouched = self.touched.is_empty() || self.touched.get(node).is_none();
        self.state.ledger.rooms().get(node).filter(|_| untouched)
    }

    /// What a tenant would hold with everyone below it, by meter.
    pub(crate) fn used(&self, tenant: TenantId) -> &[u64] {
        &self.used[tenant.index()]
    }

    /// A tenant's fair share, by meter. It does not change with what is tried: starting turns waiting demand
    /// into running demand, and evicting turns it back.
    pub(crate) fn share(&self, tenant: TenantId) -> &[u64] {
        &self.shares[tenant.index()]
    }

    /// What a tenant's own work would hold, by how it stands.
    pub(crate) fn work_groups(&mut self, tenant: TenantId) -> &mut BTreeMap<WorkGroup, Meters> {
        let (state, tree) = (self.state, self.tree);
        self.work_groups.entry(tenant).or_insert_with(|| {
            let metered = |(group, used)| (group, tree.metered(used));
            state.ledger.planned(tenant).map(metered).collect()
        })
    }

    /// The room of a node as it would be.
    pub(crate) fn room(&self, node: NodeId) -> Option<&Room> {
        self.touched.get(node).or_else(|| self.state.ledger.rooms().get(node))
    }

    /// True when nobody has to leave a place before it can be taken.
    pub(crate) fn is_clear(&self, place: &Placement) -> bool {
        self.room(place.node).is_some_and(|room| room.is_clear(place))
    }

    /// Open nodes of a pool with exactly so many GPUs free, in node order.
    pub(crate) fn with_whole_free(
        &self,
        pool: PoolId,
        drains: Drains,
        count: u8,
    ) -> impl Iterator<Item = NodeId> {
        self.over_rooms(move |rooms| rooms.with_whole_free(pool, drains, count), |&node| node)
    }

    /// GPUs that are held in part and have at least `least` left, tightest first.
    pub(crate) fn partly_free(
        &self,
        pool: PoolId,
        least: GpuUnits,
    ) -> impl Iterator<Item = (GpuUnits, NodeId, u8)> {
        self.over_rooms(move |rooms| rooms.partly_free(pool, least), |&(_, node, _)| node)
    }

    /// The layouts of GPUs of a pool that more can be cut out of.
    pub(crate) fn layouts(&self, pool: PoolId) -> impl Iterator<Item = Layout> {
        let rooms = [&self.touched, self.state.ledger.rooms()];
        let layouts = rooms.into_iter().flat_map(|rooms| rooms.by_layout(pool)).map(|(layout, _)| layout);
        layouts.collect::<BTreeSet<Layout>>().into_iter()
    }

    /// GPUs with exactly these slices that more can be cut out of, in node order.
    pub(crate) fn with_layout(&self, pool: PoolId, layout: Layout) -> impl Iterator<Item = (NodeId, u8)> {
        self.over_rooms(move |rooms| rooms.with_layout(pool, layout), |&(node, _)| node)
    }

    /// A sorted list over all nodes: the touched ones as they would be, the others as they are in the state.
    fn over_rooms<'s, T: Ord + Copy, I: Iterator<Item = T>>(
        &'s self,
        list: impl Fn(&'s Rooms) -> I,
        node_of: impl Fn(&T) -> NodeId,
    ) -> impl Iterator<Item = T> {
        let untouched = move |item: &T| self.touched.get(node_of(item)).is_none();
        merge(list(&self.touched), list(self.state.ledger.rooms()).filter(untouched))
    }

    /// What each profile of a pool is worth keeping possible, as things were before anything was tried.
    pub(crate) fn slice_weights(&self, pool: PoolId, mig: &Mig) -> Weights {
        *self.weights.borrow_mut().entry(pool).or_insert_with(|| {
            let mut left = [0u64; PROFILES_MAX];
            let mut gpus = 0;
            for (layout, with_it) in self.state.ledger.rooms().by_layout(pool) {
                let count = u64::try_from(with_it.len()).expect("a count of GPUs fits");
                gpus += count;
                for (total, copies) in left.iter_mut().zip(layout.copies_left_of_each(mig)) {
                    *total += u64::from(copies) * count;
                }
            }
            Weights::new(mig, &self.slice_demand(pool, mig), &left, gpus)
        })
    }

    /// How many tasks asked of late for each profile of a pool; a whole GPU is the profile that takes all of it.
    fn slice_demand(&self, pool: PoolId, mig: &Mig) -> [u64; PROFILES_MAX] {
        let whole = mig.profiles.iter().position(|profile| profile.slots == mig.axis);
        let mut demand = [0; PROFILES_MAX];
        for (typical, tasks) in self.state.demand.shapes() {
            if !self.state.fleet.set_has_pool(typical.devices, pool) {
                continue;
            }
            let (profile, count) = match typical.gpus {
                GpuAsk::Whole(count) => (whole, u64::from(count)),
                GpuAsk::Share(_) => (None, 0),
                GpuAsk::Slice(_) | GpuAsk::AtLeast(_) => (typical.gpus.profile_on(mig).map(usize::from), 1),
            };
            if let Some(asked) = profile.and_then(|profile| demand.get_mut(profile)) {
                *asked += u64::from(tasks) * count;
            }
        }
        demand
    }

    /// Nodes of a pool with GPUs that are cut, but not wholly, in no order.
    pub(crate) fn nodes_partly_cut(&self, pool: PoolId) -> impl Iterator<Item = NodeId> {
        let mig = self.state.fleet.mig(pool);
        let in_part = move |layout: &Layout| {
            mig.is_some_and(|mig| (1..u32::from(mig.axis)).contains(&layout.taken(mig).count_ones()))
        };
        let cut = self.layouts(pool).filter(in_part);
        cut.flat_map(move |layout| self.with_layout(pool, layout)).map(|(node, _)| node)
    }

    /// Nodes of a pool with GPUs that slices can be cut out of, in no order.
    pub(crate) fn nodes_with_slices(&self, pool: PoolId) -> impl Iterator<Item = NodeId> {
        self.layouts(pool).flat_map(move |layout| self.with_layout(pool, layout)).map(|(node, _)| node)
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark(self.done.len())
    }

    fn shift(&mut self, steps: &[Step], before: Presence, after: Presence) {
        for &step in steps {
            let node = step.place.node;
            if self.touched.get(node).is_none() {
                let room = self.state.ledger.rooms().get(node).expect("a place is on a node that is there");
                self.touched.put(node, room.clone());
            }
            self.perform(Op::Shift { step, before, after });
        }
    }

    pub(crate) fn occupy(&mut self, step: Step) {
        self.shift(&[step], Presence::Gone, Presence::Stays);
    }

    pub(crate) fn occupy_all(&mut self, steps: &[Step]) {
        self.shift(steps, Presence::Gone, Presence::Stays);
    }

    /// Places that were set aside no longer are.
    pub(crate) fn vacate_all(&mut self, steps: &[Step]) {
        self.shift(steps, Presence::Stays, Presence::Gone);
    }

    /// A task that holds a place is told to leave.
    pub(crate) fn drain(&mut self, step: Step) {
        self.shift(&[step], Presence::Stays, Presence::Leaves);
    }

    /// A unit leaves: its tasks are told to, or its earmark is given back, and its tenant uses so much less.
    pub(super) fn evict(&mut self, unit: &Unit) {
        let left = if unit.earmarked { Presence::Gone } else { Presence::Leaves };
        self.shift(&unit.steps, Presence::Stays, left);
        self.count(unit.group, unit.amount.clone(), false);
    }

    /// A unit that was evicted on this draft stays after all.
    pub(super) fn spare(&mut self, unit: &Unit) {
        let left = if unit.earmarked { Presence::Gone } else { Presence::Leaves };
        self.shift(&unit.steps, left, Presence::Stays);
        self.count(unit.group, unit.amount.clone(), true);
    }

    /// A tenant, and everyone above it, uses so much more or less.
    pub(crate) fn count(&mut self, group: WorkGroup, amount: Meters, more: bool) {
        self.perform(Op::Count { group, amount, more });
    }

    pub(crate) fn roll_back(&mut self, mark: Mark) {
        assert!(mark.0 <= self.done.len(), "a mark lies behind");
        for op in self.done.split_off(mark.0).into_iter().rev() {
            self.apply(&op.inverse());
        }
    }

    fn perform(&mut self, op: Op) {
        self.apply(&op);
        self.done.push(op);
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Shift { step, before, after } => self.touched.shift(step, *before, *after),
            Op::Count { group, amount, more } => {
                let tree = self.tree;
                for tenant in tree.lineage(group.tenant) {
                    self.used[tenant.index()].count(amount, *more);
                }
                let groups = self.work_groups(group.tenant);
                groups.entry(*group).or_insert_with(|| tree.zero()).count(amount, *more);
            }
        }
    }
}

fn merge<T: Ord + Copy>(a: impl Iterator<Item = T>, b: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    let (mut a, mut b) = (a.peekable(), b.peekable());
    core::iter::from_fn(move || match (a.peek(), b.peek()) {
        (Some(x), Some(y)) if x <= y => a.next(),
        (_, Some(_)) => b.next(),
        (_, None) => a.next(),
    })
}
