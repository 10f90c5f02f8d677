//! Who pulled a lever that is about no job: on nodes, on downtimes, on the policy. The row has the actor.

use serde::{Deserialize, Serialize};
use wharf_engine::state::State;
use wharf_engine::state::fleet::FleetEvent;
use wharf_engine::state::maintenance::{Downtime, MaintenanceEvent};
use wharf_engine::state::tenants::TenantsEvent;

use super::node_name;

/// The body of a row about a lever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Audit {
    /// New work stays away from a node.
    Cordoned {
        /// Why; may be empty.
        reason: String,
    },
    /// A node takes work again.
    Uncordoned,
    /// A node is to be empty.
    Drained {
        /// By then; world time in milliseconds.
        deadline_ms: u64,
        /// What for; may be empty.
        reason: String,
    },
    /// A node need not be empty any more.
    Undrained,
    /// Nodes are to be out of service for a while.
    DowntimePlanned {
        nodes: Vec<String>,
        from_ms: u64,
        until_ms: u64,
        /// What for; may be empty.
        reason: String,
    },
    /// A downtime was called off.
    DowntimeCalledOff,
    /// Another policy is in force.
    PolicyApplied { version: u32, digest: String },
}

/// What a lever is about, as `node/n1`, and what was done; seen from the state before it.
pub(super) fn of_fleet(state: &State, event: &FleetEvent) -> Option<(String, Audit)> {
    let (node, audit) = match event {
        FleetEvent::Cordoned { node, on: true, reason, .. } => {
            (node, Audit::Cordoned { reason: reason.clone() })
        }
        FleetEvent::Cordoned { node, on: false, .. } => (node, Audit::Uncordoned),
        FleetEvent::Draining { node, drain: Some(drain) } => {
            let (deadline_ms, reason) = (drain.deadline.0, drain.reason.clone());
            (node, Audit::Drained { deadline_ms, reason })
        }
        FleetEvent::Draining { node, drain: None } => (node, Audit::Undrained),
        FleetEvent::PoolNamed { .. }
        | FleetEvent::LevelNamed { .. }
        | FleetEvent::NodeSeen { .. }
        | FleetEvent::NodeRemoved { .. }
        | FleetEvent::NodeSetDefined { .. }
        | FleetEvent::DeviceSetDefined { .. }
        | FleetEvent::WorldSeen { .. } => return None,
    };
    Some((format!("node/{}", node_name(state, *node)), audit))
}

pub(super) fn of_maintenance(state: &State, event: &MaintenanceEvent) -> Option<(String, Audit)> {
    let (name, audit) = match event {
        MaintenanceEvent::Planned { name, downtime } => (name, planned(state, downtime)),
        MaintenanceEvent::Ended { name, cancelled: true, .. } => (name, Audit::DowntimeCalledOff),
        MaintenanceEvent::Began { .. } | MaintenanceEvent::Ended { .. } => return None,
    };
    Some((format!("maintenance/{name}"), audit))
}

pub(super) fn of_tenants(event: &TenantsEvent) -> Option<(String, Audit)> {
    let TenantsEvent::PolicyApplied { version, policy } = event else { return None };
    let applied = Audit::PolicyApplied { version: *version, digest: policy.digest.clone() };
    Some(("policy".to_owned(), applied))
}

fn planned(state: &State, downtime: &Downtime) -> Audit {
    let Downtime { nodes, from, until, reason, .. } = downtime;
    Audit::DowntimePlanned {
        nodes: nodes.iter().map(|&node| node_name(state, node)).collect(),
        from_ms: from.0,
        until_ms: until.0,
        reason: reason.clone(),
    }
}
