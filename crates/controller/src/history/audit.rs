//! Who pulled a lever that is about no job: on nodes, on downtimes, on the policy. The row has the actor.

use serde::{Deserialize, Serialize};
use wharf_engine::state::State;
use wharf_engine::state::event::Event;
use wharf_engine::state::fleet::FleetEvent;
use wharf_engine::state::maintenance::{Downtime, MaintenanceEvent};
use wharf_engine::state::tenants::TenantsEvent;
use wharf_engine::units::NodeId;

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
        /// Their names.
        nodes: Vec<String>,
        /// World time in milliseconds.
        from_ms: u64,
        /// World time in milliseconds.
        until_ms: u64,
        /// What for; may be empty.
        reason: String,
    },
    /// A downtime was called off.
    DowntimeCalledOff,
    /// Another policy is in force.
    PolicyApplied {
        /// Which.
        version: u32,
        /// The digest of its files.
        digest: String,
    },
}

/// What an event is about, as `node/n1`, and what was done; seen from the state before it.
pub(super) fn of(state: &State, event: &Event) -> Option<(String, Audit)> {
    let node = |id: NodeId| format!("node/{}", node_name(state, id));
    Some(match event {
        Event::Fleet(FleetEvent::Cordoned { node: id, on: true, reason, .. }) => {
            (node(*id), Audit::Cordoned { reason: reason.clone() })
        }
        Event::Fleet(FleetEvent::Cordoned { node: id, on: false, .. }) => (node(*id), Audit::Uncordoned),
        Event::Fleet(FleetEvent::Draining { node: id, drain: Some(drain) }) => {
            let (deadline_ms, reason) = (drain.deadline.0, drain.reason.clone());
            (node(*id), Audit::Drained { deadline_ms, reason })
        }
        Event::Fleet(FleetEvent::Draining { node: id, drain: None }) => (node(*id), Audit::Undrained),
        Event::Maintenance(MaintenanceEvent::Planned { name, downtime }) => {
            (format!("maintenance/{name}"), planned(state, downtime))
        }
        Event::Maintenance(MaintenanceEvent::Ended { name, cancelled: true, .. }) => {
            (format!("maintenance/{name}"), Audit::DowntimeCalledOff)
        }
        Event::Tenants(TenantsEvent::PolicyApplied { version, policy }) => {
            ("policy".to_owned(), Audit::PolicyApplied { version: *version, digest: policy.digest.clone() })
        }
        Event::Fleet(
            FleetEvent::PoolNamed { .. }
            | FleetEvent::LevelNamed { .. }
            | FleetEvent::NodeSeen { .. }
            | FleetEvent::NodeRemoved { .. }
            | FleetEvent::NodeSetDefined { .. }
            | FleetEvent::DeviceSetDefined { .. }
            | FleetEvent::WorldSeen { .. },
        )
        | Event::Maintenance(MaintenanceEvent::Began { .. } | MaintenanceEvent::Ended { .. })
        | Event::Tenants(TenantsEvent::TenantNamed { .. } | TenantsEvent::TrustNamed { .. })
        | Event::Jobs(_)
        | Event::Ledger(_)
        | Event::Earmarks(_)
        | Event::Demand(_)
        | Event::Reservations(_)
        | Event::Attained(_)
        | Event::Bookings(_)
        | Event::Past(_)
        | Event::Owned(_) => return None,
    })
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
