//! The maintenance section: downtimes, which are spans of time in which nodes are out of service by plan.
//!
//! Worked example: `n1` is to be out from 8 to 12 o'clock. Until 8 it takes work that is over by then or can be gone: a job
//! with a limit of an hour until shortly before 7, a job that saves its work until its grace before 8. What is there is asked at
//! 8 minus its time to leave. From 8 on nothing is placed there; at 12 the node takes work again by itself.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::model::is_default;
use crate::state::State;
use crate::state::event::Event;
use crate::state::fleet::Whom;
use crate::state::holding::HeldTask;
use crate::state::jobs::{Job, Phase};
use crate::units::{JobId, Millis, NodeId, Timestamp};

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
    /// No other of its name is to come or lasts.
    Planned { name: String, downtime: Downtime },
    /// Its nodes are out of service from now on.
    Began { name: String, at: Timestamp },
    /// Its nodes are back in service.
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
    /// The earliest moment after `now` at which a downtime begins or ends, or a job is asked to leave a node that is to be empty.
    pub(super) fn next_deadline(&self, state: &State, now: Timestamp) -> Option<Timestamp> {
        let edges = self.iter().flat_map(|(_, downtime)| [downtime.from, downtime.until]);
        let on = state
            .nodes_to_be_empty()
            .into_iter()
            .flat_map(|node| state.active_on(node).into_iter().map(move |id| (node, id)));
        let asks = on.flat_map(|(node, id)| {
            // A job that could not be asked because its places were changing is asked as soon as they do not.
            let late = state.has_to_go(node, id, now).then(|| now + Millis(1));
            let leave = state.jobs.get(id).map(|job| state.time_to_leave(&job.spec)).unwrap_or_default();
            let limits =
                state.to_be_empty(node).map(move |limit| Timestamp(limit.at.0.saturating_sub(leave.0)));
            limits.chain(late)
        });
        edges.chain(asks).filter(|&at| at > now).min()
    }

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

/// When a node is to be empty, and which jobs have to leave for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToBeEmpty {
    pub at: Timestamp,
    pub whom: Whom,
}

impl ToBeEmpty {
    /// True when a job has to leave for it, and is not waited for.
    pub fn asks(&self, job: &Job) -> bool {
        self.whom == Whom::Everything || job.spec.preemptible
    }
}

impl State {
    /// When a node is to be empty: by a lever, and by each of its downtimes.
    pub fn to_be_empty(&self, node: NodeId) -> impl Iterator<Item = ToBeEmpty> {
        let drain = self.fleet.node(node).and_then(|known| known.drain.as_ref()).into_iter();
        let drain = drain.map(|drain| ToBeEmpty { at: drain.deadline, whom: drain.whom });
        let downtimes = self.maintenance.of(node);
        drain.chain(downtimes.map(|(_, downtime)| ToBeEmpty { at: downtime.from, whom: downtime.whom }))
    }

    pub(crate) fn nodes_to_be_empty(&self) -> BTreeSet<NodeId> {
        let downtimes = self.maintenance.iter().flat_map(|(_, downtime)| downtime.nodes.iter().copied());
        self.fleet.draining().iter().copied().chain(downtimes).collect()
    }

    pub(crate) fn staying_on(&self, node: NodeId) -> impl Iterator<Item = (JobId, &HeldTask)> {
        let held = |(job, task)| Some((job, self.ledger.holding(job)?.task(task)?));
        self.ledger.tasks_on(node).filter_map(held).filter(|(_, held)| held.stays())
    }

    pub(crate) fn active_on(&self, node: NodeId) -> BTreeSet<JobId> {
        let active = |job: &JobId| self.jobs.get(*job).is_some_and(|job| job.phase == Phase::Active);
        self.staying_on(node).map(|(job, _)| job).filter(active).collect()
    }

    /// True when a job on a node has to be told now: it is neither over in time nor waited for.
    pub(crate) fn has_to_go(&self, node: NodeId, id: JobId, now: Timestamp) -> bool {
        let Some(job) = self.jobs.get(id) else { return false };
        let leave = self.time_to_leave(&job.spec);
        let ends = self.end_of(id, self.tenants.policy(), now).latest;
        self.to_be_empty(node).any(|limit| {
            let over = ends.is_some_and(|end| end <= limit.at.max(now));
            limit.asks(job) && !over && now + leave >= limit.at
        })
    }
}
