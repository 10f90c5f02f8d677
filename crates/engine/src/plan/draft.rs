//! A draft: the state with some starts tried on it.
//!
//! It keeps its own rooms for the nodes it touched and its own sums of use; the state stays as it is. One undo
//! list, one kind of mark.

use alloc::vec::Vec;

use crate::event::Placement;
use crate::rooms::{Room, Rooms};
use crate::state::State;
use crate::tree::{Amounts, Tree};
use crate::units::{GpuUnits, NodeId, PoolId, Resources, TenantId, TrustId};

/// The state with some starts tried on it.
pub struct Draft<'a> {
    /// What it is a draft on.
    pub state: &'a State,
    /// The tenant tree it counts in.
    pub tree: &'a Tree,
    touched: Rooms,
    used: Amounts,
    shares: Amounts,
    undo: Vec<Undo>,
}

enum Undo {
    Room { node: NodeId, before: Option<Room> },
    Used { tenant: TenantId, charge: Vec<u64> },
}

/// A point to roll back to.
#[derive(Clone, Copy, Debug)]
pub struct Mark(usize);

impl<'a> Draft<'a> {
    /// A draft with nothing tried yet.
    pub fn on(state: &'a State, tree: &'a Tree) -> Self {
        let used = tree.subtree_use(&tree.own_use(state));
        let demand = tree.subtree_demand(&tree.own_demand(state));
        let shares = tree.fair_shares(&demand, &tree.capacity(state));
        Self { state, tree, touched: Rooms::default(), used, shares, undo: Vec::new() }
    }

    /// What a tenant holds with everyone below it, by meter.
    pub fn used(&self, tenant: TenantId) -> &[u64] {
        &self.used[tenant.index()]
    }

    /// A tenant's fair share, by meter. It does not change with what is tried: starting turns waiting demand
    /// into running demand.
    pub fn share(&self, tenant: TenantId) -> &[u64] {
        &self.shares[tenant.index()]
    }

    /// The room of a node as it would be.
    pub fn room(&self, node: NodeId) -> Option<&Room> {
        self.touched.get(node).or_else(|| self.state.ledger.rooms().get(node))
    }

    /// Open nodes of a pool with exactly so many GPUs free: touched ones first, so that what was begun is filled.
    pub fn with_whole_free(&self, pool: PoolId, count: u8) -> impl Iterator<Item = NodeId> {
        let rest = self.state.ledger.rooms().with_whole_free(pool, count);
        self.touched.with_whole_free(pool, count).chain(rest.filter(|&node| self.touched.get(node).is_none()))
    }

    /// GPUs that are held in part and have at least `least` left, tightest first.
    pub fn partly_free(&self, pool: PoolId, least: GpuUnits) -> impl Iterator<Item = (GpuUnits, NodeId, u8)> {
        let rest = self.state.ledger.rooms().partly_free(pool, least);
        merge(
            self.touched.partly_free(pool, least),
            rest.filter(|&(_, node, _)| self.touched.get(node).is_none()),
        )
    }

    /// A point to roll back to.
    pub fn mark(&self) -> Mark {
        Mark(self.undo.len())
    }

    /// A task takes a place.
    pub fn take(&mut self, place: &Placement, resources: Resources, trust: TrustId) {
        let before = self.touched.get(place.node).cloned();
        if before.is_none() {
            let room = self.state.ledger.rooms().get(place.node).expect("a place is on a node that is there");
            self.touched.put(place.node, room.clone());
        }
        self.undo.push(Undo::Room { node: place.node, before });
        self.touched.take(place, resources, trust);
    }

    /// A tenant, and everyone above it, is charged.
    pub fn charge(&mut self, tenant: TenantId, charge: Vec<u64>) {
        self.change_use(tenant, &charge, |used, amount| used + amount);
        self.undo.push(Undo::Used { tenant, charge });
    }

    /// As it was at the mark.
    pub fn roll_back(&mut self, mark: Mark) {
        assert!(mark.0 <= self.undo.len(), "a mark lies behind");
        for step in self.undo.split_off(mark.0).into_iter().rev() {
            match step {
                Undo::Room { node, before: Some(room) } => self.touched.put(node, room),
                Undo::Room { node, before: None } => self.touched.remove(node),
                Undo::Used { tenant, charge } => {
                    self.change_use(tenant, &charge, |used, amount| used - amount);
                }
            }
        }
    }

    fn change_use(&mut self, tenant: TenantId, charge: &[u64], how: impl Fn(u64, u64) -> u64) {
        let tree = self.tree;
        for above in tree.lineage(tenant) {
            for (used, amount) in self.used[above.index()].iter_mut().zip(charge) {
                *used = how(*used, *amount);
            }
        }
    }
}

/// Two ascending streams as one.
fn merge<T: Ord + Copy>(a: impl Iterator<Item = T>, b: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    let (mut a, mut b) = (a.peekable(), b.peekable());
    core::iter::from_fn(move || match (a.peek(), b.peek()) {
        (Some(x), Some(y)) if x <= y => a.next(),
        (_, Some(_)) => b.next(),
        (_, None) => a.next(),
    })
}
