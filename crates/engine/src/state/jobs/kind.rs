//! Kinds: jobs alike in everything the planner looks at.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::More;
use crate::model::group::Group;
use crate::model::job::{Class, GpuAsk, Shape, Spec, Topology};
use crate::state::fleet::Fleet;
use crate::units::{BookingId, JobId, Millis, NodeId, TenantId, Timestamp, TrustId};

/// What the planner looks at in a job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KindKey {
    pub tenant: TenantId,
    pub class: Class,
    pub priority: i32,
    pub tasks: u32,
    pub min: u32,
    pub shape: Shape,
    pub groups: Vec<GroupKey>,
    pub topology: Topology,
    pub preemptible: bool,
    pub trust: TrustId,
    /// Whether its tasks up to the wanted number are no surplus.
    pub service: bool,
    pub grace: Millis,
    /// It is over within so long, rounded up to twice, four times, … a minute: jobs alike but for a minute are one kind.
    pub ends_within: Option<Millis>,
    pub booking: Option<BookingId>,
    /// Nodes that refused to start it of late, in id order.
    pub avoids: Vec<NodeId>,
}

/// What the planner looks at in a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupKey {
    /// A kind of its tasks alone, of all copies together.
    pub key: KindKey,
    pub min: u32,
    pub copies: u32,
}

impl KindKey {
    /// The kind of a spec.
    pub fn of(spec: &Spec) -> Self {
        Self::within(spec, spec.time_limit, Vec::new())
    }

    /// The same of a job that has so much time left and avoids these nodes.
    pub(super) fn within(spec: &Spec, left: Option<Millis>, avoids: Vec<NodeId>) -> Self {
        let Spec {
            name: _,
            tenant,
            class,
            priority,
            tasks,
            min,
            shape,
            groups,
            topology,
            preemptible,
            trust,
            time_limit: _,
            estimate: _,
            service,
            checkpoint,
            booking,
            retries: _,
            labels: _,
            payload: _,
            after: _,
            array: _,
            submitted_by: _,
        } = spec;
        let alike = Self {
            tenant: *tenant,
            class: *class,
            priority: *priority,
            tasks: *tasks,
            min: *min,
            shape: shape.clone(),
            groups: Vec::new(),
            topology: *topology,
            preemptible: *preemptible,
            trust: *trust,
            service: service.is_some(),
            grace: checkpoint.map_or(Millis(0), |checkpoint| checkpoint.grace),
            ends_within: left.map(rounded_up),
            booking: *booking,
            avoids,
        };
        let groups = groups.iter().map(|group| GroupKey::of(group, &alike)).collect();
        Self { groups, ..alike }
    }

    /// True for a node that the job allows and that did not refuse it of late.
    pub(crate) fn may_go_to(&self, fleet: &Fleet, node: NodeId) -> bool {
        fleet.set_has_node(self.shape.nodes, node) && !self.avoids.contains(&node)
    }

    /// Kinds of tasks that are alike: of each group, or itself where all are.
    pub fn alike(&self) -> impl Iterator<Item = &Self> {
        let own = self.groups.is_empty().then_some(self);
        own.into_iter().chain(self.groups.iter().map(|group| &group.key))
    }
}

impl GroupKey {
    fn of(group: &Group, job: &KindKey) -> Self {
        // Who has no GPU has none that could be apart.
        let task_on_island = job.topology.task_on_island && group.shape.gpus != GpuAsk::Whole(0);
        let key = KindKey {
            tasks: group.tasks_in_all(),
            min: group.min_in_all(),
            shape: group.shape.clone(),
            topology: Topology { task_on_island, ..job.topology },
            ..job.clone()
        };
        Self { key, min: group.min, copies: group.copies }
    }

    /// The slots with which it starts, counted in the group: the first copies with the first tasks of each.
    pub(crate) fn first_slots(&self) -> impl Iterator<Item = u32> {
        let (min, tasks) = (self.min, self.key.tasks / self.copies.max(1));
        let copies = self.key.min / min.max(1);
        (0..copies).flat_map(move |copy| copy * tasks..copy * tasks + min)
    }
}

fn rounded_up(limit: Millis) -> Millis {
    let minutes = limit.0.div_ceil(60_000).max(1);
    Millis(minutes.checked_next_power_of_two().unwrap_or(u64::MAX).saturating_mul(60_000))
}

/// The jobs of one kind that want something.
#[derive(Clone, Debug)]
pub struct Kind {
    pub key: KindKey,
    pub more: Option<More>,
    /// Oldest first.
    pub jobs: BTreeSet<(Timestamp, JobId)>,
}
