//! What a job finds too little of beside GPUs: a verdict that speaks of GPUs alone sends its reader to the wrong shelf.

use strum::VariantArray;

use crate::model::shortfall::{Beside, BesideGpus};

use super::{FleetScope, Funnel, FunnelCount, Quantity, Stage};
use crate::model::need::Need;
use crate::plan::place::tasks_that_fit;
use crate::state::State;
use crate::state::fleet::Node;
use crate::state::jobs::KindKey;
use crate::units::{NodeId, PoolId, Resources};

impl BesideGpus {
    fn of(self, resources: &mut Resources) -> &mut u64 {
        match self {
            Self::Cpu => &mut resources.cpu_milli,
            Self::Memory => &mut resources.memory,
            Self::Storage => &mut resources.storage,
            Self::Nics => &mut resources.nics,
        }
    }
}

impl State {
    /// What keeps a kind from the room that it would have if it asked for none of it; `None` where that is no single thing.
    pub(super) fn short_beside(
        &self,
        key: &KindKey,
        needs: &[(Option<PoolId>, Need)],
        fleet: FleetScope,
        short: &Funnel,
    ) -> Option<Beside> {
        let stage = short.shortfall()?.stage;
        let counts_tasks = matches!(short.need, Quantity::Tasks(_));
        if stage != Stage::Together && !(counts_tasks && stage < Stage::Quota) {
            return None;
        }
        BesideGpus::VARIANTS.iter().find_map(|&what| {
            let mut without = key.clone();
            let each = core::mem::take(what.of(&mut without.shape.resources));
            let min = u64::from(key.min);
            let enough = |(&(_, need), count): (&(Option<PoolId>, Need), &FunnelCount)| {
                count.free >= super::amount_of(need, min) && count.together.most() >= min
            };
            let fits = each > 0 && needs.iter().zip(&self.count(&without, needs, fleet)).any(enough);
            fits.then(|| Beside { what, each, most: self.most_of(what, &without, needs, fleet) })
        })
    }

    /// The most of it that a node has that could otherwise take a task.
    fn most_of(
        &self,
        what: BesideGpus,
        without: &KindKey,
        needs: &[(Option<PoolId>, Need)],
        fleet: FleetScope,
    ) -> u64 {
        let of_node = |(id, node): (NodeId, &Node)| {
            let usable = fleet == FleetScope::Declared || node.is_open();
            let room = self.ledger.rooms().get(id).filter(|_| usable)?;
            let allowed = without.may_go_to(&self.fleet, id);
            let here = |&&(pool, need): &&(Option<PoolId>, Need)| {
                let fits = fleet == FleetScope::Declared || tasks_that_fit(room, need, without) > 0;
                pool == Some(node.facts.pool) && fits
            };
            needs.iter().find(here).filter(|_| allowed)?;
            let mut has = if fleet == FleetScope::Declared { node.facts.capacity } else { room.free() };
            Some(*what.of(&mut has))
        };
        self.fleet.nodes().filter_map(of_node).max().unwrap_or_default()
    }
}
