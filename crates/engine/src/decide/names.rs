//! Ids for names: of tenants, trust domains, pools, levels and sets.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use crate::decide::input::{SetDefinition, SetMembers};
use crate::state::State;
use crate::state::event::Event;
use crate::state::fleet::{Fleet, FleetEvent};
use crate::state::tenants::TenantsEvent;
use crate::units::{DeviceSetId, NodeId, NodeSetId, PoolId, TenantId, TrustId};

/// Ids for paths and trust domains that are new, and the events that name them.
pub(super) struct Names<'a> {
    pub(super) state: &'a State,
    new_tenants: Vec<String>,
    new_trusts: Vec<String>,
    pub(super) events: Vec<Event>,
}

impl<'a> Names<'a> {
    pub(super) fn new(state: &'a State) -> Self {
        Self { state, new_tenants: Vec::new(), new_trusts: Vec::new(), events: Vec::new() }
    }

    /// The tenant of that path. It and every tenant above it is named if it is new.
    pub(super) fn tenant(&mut self, path: &str) -> TenantId {
        if let Some((above, _)) = path.rsplit_once('/') {
            self.tenant(above);
        }
        if let Some(known) = self.state.tenants.named(path) {
            return known;
        }
        let (at, is_new) = position_of(&mut self.new_tenants, path);
        let tenant = TenantId(small(self.state.tenants.len() + at));
        if is_new {
            let path = String::from(path);
            self.events.push(Event::Tenants(TenantsEvent::TenantNamed { tenant, path }));
        }
        tenant
    }

    /// The trust domain of that name, named if it is new.
    pub(super) fn trust(&mut self, name: &str) -> TrustId {
        if let Some(known) = self.state.tenants.trust_named(name) {
            return known;
        }
        let (at, is_new) = position_of(&mut self.new_trusts, name);
        let trust = TrustId(self.state.tenants.next_trust().0 + small(at));
        if is_new {
            let name = String::from(name);
            self.events.push(Event::Tenants(TenantsEvent::TrustNamed { trust, name }));
        }
        trust
    }
}

/// Where a name is among others, and whether it was put there just now.
pub(super) fn position_of(names: &mut Vec<String>, name: &str) -> (usize, bool) {
    let known = names.iter().position(|known| known == name);
    let at = known.unwrap_or(names.len());
    if known.is_none() {
        names.push(String::from(name));
    }
    (at, known.is_none())
}

fn small(count: usize) -> u32 {
    u32::try_from(count).expect("fewer than 2^32 names")
}

/// The sets that are new, or have other members than before.
pub(super) fn define_sets(fleet: &Fleet, sets: &[SetDefinition]) -> Vec<Event> {
    let mut new_nodes = (fleet.next_node_set().0..).map(NodeSetId);
    let mut new_devices = (fleet.next_device_set().0..).map(DeviceSetId);
    let define = |SetDefinition { source, members }: &SetDefinition| {
        let event = match members {
            SetMembers::Nodes(names) => {
                let members: BTreeSet<NodeId> =
                    names.iter().filter_map(|name| fleet.node_named(name)).collect();
                let members: Vec<NodeId> = members.into_iter().collect();
                let known = fleet.node_set(source);
                if known.is_some_and(|(_, before)| before == members) {
                    return None;
                }
                let set = known.map(|(set, _)| set).or_else(|| new_nodes.next())?;
                FleetEvent::NodeSetDefined { set, source: source.clone(), members }
            }
            SetMembers::Models(models) => {
                let is_member = |pool: &PoolId| models.iter().any(|model| model == fleet.model(*pool));
                let pools: Vec<PoolId> = fleet.pool_ids().filter(is_member).collect();
                let known = fleet.device_set(source);
                if known.is_some_and(|(_, before)| before == pools) {
                    return None;
                }
                let set = known.map(|(set, _)| set).or_else(|| new_devices.next())?;
                FleetEvent::DeviceSetDefined { set, source: source.clone(), pools }
            }
        };
        Some(Event::Fleet(event))
    };
    sets.iter().filter_map(define).collect()
}
