//! Limits at the moment of a start. Who leaves still counts: a limit is not passed while somebody is on the way out.
//!
//! The planner judges limits by what will be held when everybody who was told to leave is gone. That may take a
//! grace: a start that would pass a limit until then is promised instead, and this is what both ask.

use crate::job::Shape;
use crate::policy::Amount;
use crate::state::State;
use crate::tree::{Amounts, Tree};
use crate::units::{PoolId, TenantId};

/// What every tenant holds, with what was admitted since.
pub(crate) struct Limits<'a> {
    tree: &'a Tree,
    held: Amounts,
}

impl<'a> Limits<'a> {
    /// As things are.
    pub(crate) fn of(tree: &'a Tree, state: &State) -> Self {
        Self { tree, held: tree.subtree_use(&tree.own_use(state)) }
    }

    /// As they will be when everybody who leaves is gone and everybody who was promised a place is there.
    pub(crate) fn planned(tree: &'a Tree, state: &State) -> Self {
        Self { tree, held: tree.subtree_use(&tree.own_planned(state)) }
    }

    /// Counts so many tasks in, unless they would pass a limit of the tenant or of anybody above it.
    pub(crate) fn admit(&mut self, tenant: TenantId, shape: &Shape, pool: PoolId, tasks: usize) -> bool {
        let tasks = u64::try_from(tasks).expect("a count of tasks fits");
        let charge = self.tree.charge(shape, pool);
        if !self.allows(tenant, &charge, tasks) {
            return false;
        }
        for tenant in self.tree.lineage(tenant) {
            let held = self.held[tenant.index()].iter_mut();
            held.zip(&charge)
                .for_each(|(held, each)| *held = held.saturating_add(each.saturating_mul(tasks)));
        }
        true
    }

    /// True when a limit of the tenant or of anybody above it is passed, in what the shape asks for.
    pub(crate) fn is_passed(&self, tenant: TenantId, shape: &Shape, pool: PoolId) -> bool {
        !self.allows(tenant, &self.tree.charge(shape, pool), 0)
    }

    fn allows(&self, tenant: TenantId, charge: &[u64], tasks: u64) -> bool {
        self.tree.lineage(tenant).all(|tenant| {
            let quotas = &self.tree.lines[tenant.index()].quotas;
            (0..charge.len()).filter(|&meter| charge[meter] > 0).all(|meter| match quotas[meter].limit {
                Amount::Unlimited => true,
                Amount::Of(limit) => {
                    let more = charge[meter].saturating_mul(tasks);
                    self.held[tenant.index()][meter].saturating_add(more) <= limit
                }
            })
        })
    }
}
