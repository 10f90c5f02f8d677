//! The maintenance section: downtimes, which are spans of time in which nodes are out of service by plan.
//!
//! Worked example: `n1` is to be out from 8 to 12 o'clock. Until 8 it takes work that is over by then or can be gone: a job
//! with a limit of an hour until shortly before 7, a job that saves its work until its grace before 8. What is there is asked at
//! 8 minus its time to leave. From 8 on nothing is placed there; at 12 the node takes work again by itself.
//!
//! What is on the nodes when a downtime begins is the business of `decide`: see the module about nodes that are to be empty.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::model::is_default;
use crate::state::event::Event;
use crate::state::fleet::Whom;
use crate::units::{NodeId, Timestamp};

/// The downtimes that are to come or last, by name.
#[derive(Clone, Debug, Default)]
pub struct Maintenance {
    by_name: BTreeMap<String, Downtime>,
    version: u64,
}

/// A planned span of time in which nodes are out of service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Downtime {
    pub nodes: Vec<NodeId>,
    pub from: Timestamp,
    pub until: Timestamp,
    #[serde(default, skip_serializing_if = "is_default")]
    pub reason: String,
    pub by: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub whom: Whom,
    #[serde(default, skip_serializing_if = "is_default")]
    pub began: bool,
    pub at: Timestamp,
}

/// What happens to downtimes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MaintenanceEvent {
    Planned {
        /// Its name, unique among those that are to come or last.
        name: String,
        downtime: Downtime,
    },
    Began {
        name: String,
        at: Timestamp,
    },
    Ended {
        name: String,
        /// Whether somebody called it off before its time was up.
        #[serde(default, skip_serializing_if = "is_default")]
        cancelled: bool,
        at: Timestamp,
    },
}

impl MaintenanceEvent {
    /// Which downtime it is about.
    pub fn name(&self) -> &str {
        match self {
            Self::Planned { name, .. } | Self::Began { name, .. } | Self::Ended { name, .. } => name,
        }
    }
}

impl Maintenance {
    /// The downtime of that name.
    pub fn get(&self, name: &str) -> Option<&Downtime> {
        self.by_name.get(name)
    }

    /// Every one of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Downtime)> {
        self.by_name.iter().map(|(name, downtime)| (name.as_str(), downtime))
    }

    /// Those of a node, by name.
    pub fn of(&self, node: NodeId) -> impl Iterator<Item = (&str, &Downtime)> {
        self.iter().filter(move |(_, downtime)| downtime.nodes.contains(&node))
    }

    /// True when none is planned.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Changes with every event.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// True while a downtime that has begun keeps a node out of service.
    pub(crate) fn is_out(&self, node: NodeId) -> bool {
        self.of(node).any(|(_, downtime)| downtime.began)
    }

    pub(crate) fn apply(&mut self, event: &MaintenanceEvent) {
        self.version += 1;
        match event {
            MaintenanceEvent::Planned { name, downtime } => {
                let before = self.by_name.insert(name.clone(), downtime.clone());
                assert!(before.is_none(), "a downtime is planned once");
            }
            MaintenanceEvent::Began { name, at: _ } => {
                let known = self.by_name.get_mut(name);
                known.expect("an event names a downtime that is to come").began = true;
            }
            MaintenanceEvent::Ended { name, .. } => {
                let ended = self.by_name.remove(name);
                assert!(ended.is_some(), "a downtime ends once");
            }
        }
    }

    /// A node left the world: nobody waits for it.
    pub(crate) fn forget(&mut self, node: NodeId) {
        for downtime in self.by_name.values_mut() {
            downtime.nodes.retain(|known| *known != node);
        }
    }

    pub(crate) fn snapshot(&self, into: &mut Vec<Event>) {
        for (name, downtime) in &self.by_name {
            let (name, downtime) = (name.clone(), downtime.clone());
            into.push(Event::Maintenance(MaintenanceEvent::Planned { name, downtime }));
        }
    }
}
