//! What tenants hold, will hold and want, counted in the meters of a tenant tree; and their fair shares.

use crate::model::policy::Policy;
use crate::quota::meters::{Amounts, Meters};
use crate::quota::tree::{Named, Tree};
use crate::state::State;
use crate::state::ways::first_way;
use crate::units::{GpuUnits, TenantId};
use alloc::vec::Vec;

impl State {
    /// The tenant tree of a policy, which need not be the one in force.
    pub fn tree(&self, policy: &Policy) -> Tree {
        let named = |tenant| Named { path: self.tenants.path(tenant), parent: self.tenants.parent(tenant) };
        let tenants: Vec<Named<'_>> = self.tenants.ids().map(named).collect();
        Tree::resolve(policy, &tenants, self.fleet.pools())
    }

    /// What each tenant's own jobs hold, by meter.
    pub fn own_use(&self, tree: &Tree) -> Amounts {
        self.tenants.ids().map(|tenant| self.own_use_of(tenant, tree)).collect()
    }

    pub(super) fn own_use_of(&self, tenant: TenantId, tree: &Tree) -> Meters {
        self.ledger.used(tenant).map_or_else(|| tree.zero(), |used| tree.metered(used))
    }

    /// What each tenant's own jobs will hold, by meter: without tasks that leave, with earmarks.
    pub(crate) fn own_use_after_leaving(&self, tree: &Tree) -> Amounts {
        let own = |tenant| {
            let mut total = tree.zero();
            self.ledger.planned(tenant).for_each(|(_, used)| total.add(&tree.metered(used)));
            total
        };
        self.tenants.ids().map(own).collect()
    }

    /// What each tenant's own jobs want, by meter, also those that wait. A shape with several pools is demand in the first.
    pub fn own_demand(&self, tree: &Tree) -> Amounts {
        let waiting = self.jobs.demand();
        let own = |tenant| {
            let mut demand =
                self.ledger.wanted(tenant).map_or_else(|| tree.zero(), |want| tree.metered(want));
            for (&shape, &tasks) in waiting.get(&tenant).into_iter().flatten() {
                let Some((pool, need)) = first_way(&self.fleet, shape) else { continue };
                let charge = tree.charge(need.units(), shape.resources, pool);
                demand.add(&charge.iter().map(|each| each.saturating_mul(tasks)).collect::<Meters>());
            }
            demand
        };
        self.tenants.ids().map(own).collect()
    }

    /// What the healthy fleet has, by meter, without what others use.
    pub fn capacity(&self, tree: &Tree) -> Meters {
        let mut capacity = tree.zero();
        for (pool, has) in self.ledger.rooms().capacity() {
            let units = GpuUnits::from_parts(has.gpus * GpuUnits::WHOLE.parts());
            capacity.add(&tree.charge(units, has.resources, pool));
        }
        capacity
    }

    /// Every tenant's fair share of the fleet as it is.
    pub fn fair_shares(&self, tree: &Tree) -> Amounts {
        let demand = tree.subtree_demand(&self.own_demand(tree));
        tree.fair_shares(&demand, &|tenant, meter| self.past.counts(tenant, meter), &self.capacity(tree))
    }
}
