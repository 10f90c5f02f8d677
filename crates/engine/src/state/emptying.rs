//! Nodes that are to be empty: by a drain, or by a downtime that is to come or lasts.

use crate::state::State;
use crate::state::fleet::Whom;
use crate::state::holding::HeldTask;
use crate::state::jobs::{Job, Phase};
use crate::state::maintenance::Maintenance;
use crate::units::{JobId, Millis, NodeId, Timestamp};
use alloc::collections::BTreeSet;

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
        let drain = self.fleet.node(node).and_then(|known| known.drain.as_ref());
        let drain = drain.map(|drain| ToBeEmpty { at: drain.deadline, whom: drain.whom });
        let downtimes = self.maintenance.of(node);
        drain
            .into_iter()
            .chain(downtimes.map(|(_, downtime)| ToBeEmpty { at: downtime.from, whom: downtime.whom }))
    }

    /// Nodes that are to be empty, now or later.
    pub(crate) fn nodes_to_be_empty(&self) -> BTreeSet<NodeId> {
        let downtimes = self.maintenance.iter().flat_map(|(_, downtime)| downtime.nodes.iter().copied());
        self.fleet.draining().iter().copied().chain(downtimes).collect()
    }

    /// Tasks on a node that nobody told to leave.
    pub(crate) fn staying_on(&self, node: NodeId) -> impl Iterator<Item = (JobId, &HeldTask)> {
        let held = |(job, task)| Some((job, self.ledger.holding(job)?.task(task)?));
        self.ledger.tasks_on(node).filter_map(held).filter(|(_, held)| held.stays())
    }

    /// Active jobs with such a task.
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
}
