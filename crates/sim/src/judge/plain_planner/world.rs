//! The world as a list of tasks, and what is free in it. Nothing is kept: every answer goes through the list.

use wharf_engine::model::job::{GpuAsk, Shape, Spec};
use wharf_engine::model::placement::Placement;
use wharf_engine::model::policy::{Policy, Quota};
use wharf_engine::state::State;
use wharf_engine::state::fleet::Node;
use wharf_engine::units::{JobId, NodeId, PoolId, Resources, TenantId, Timestamp, TrustId};

/// One GPU in the units it is counted in.
pub(super) const WHOLE: u64 = 3000;

/// One resource that quota is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meter {
    /// GPUs of any pool, in thousandths of 1/3000 of a normalised GPU.
    AnyGpu,
    /// GPUs of one pool, in 1/3000.
    Gpu(PoolId),
    /// Thousandths of a core.
    Cpu,
    /// Bytes.
    Memory,
}

/// What does not change while a plan is made.
pub(super) struct Facts<'a> {
    pub(super) state: &'a State,
    pub(super) policy: &'a Policy,
    pub(super) now: Timestamp,
    /// What quota is counted in.
    pub(super) meters: Vec<Meter>,
    /// Promise and limit, by tenant and meter.
    pub(super) quotas: Vec<Vec<Quota>>,
    /// Fair shares, by tenant and meter.
    pub(super) shares: Vec<Vec<u64>>,
}

impl Facts<'_> {
    pub(super) fn parent(&self, tenant: TenantId) -> Option<TenantId> {
        self.state.tenants.parent(tenant)
    }

    /// The tenant and everyone above it, nearest first.
    pub(super) fn lineage(&self, tenant: TenantId) -> Vec<TenantId> {
        let mut lineage = vec![tenant];
        while let Some(above) = self.parent(lineage[lineage.len() - 1]) {
            lineage.push(above);
        }
        lineage
    }

    /// True when `tenant` is `above` or below it.
    pub(super) fn is_below(&self, tenant: TenantId, above: TenantId) -> bool {
        self.lineage(tenant).contains(&above)
    }

    /// Tenants right below, or at the top, in the order of their paths.
    pub(super) fn children(&self, parent: Option<TenantId>) -> Vec<TenantId> {
        let mut children: Vec<TenantId> =
            self.state.tenants.ids().filter(|&tenant| self.parent(tenant) == parent).collect();
        children.sort_by_key(|&tenant| self.state.tenants.path(tenant));
        children
    }

    pub(super) fn tenant_priority(&self, tenant: TenantId) -> i32 {
        let path = self.state.tenants.path(tenant);
        self.policy.tenants.iter().find(|known| known.path == path).map_or(0, |known| known.priority)
    }

    /// What so many tasks of a shape are charged in a pool, by meter.
    pub(super) fn charge(&self, shape: &Shape, pool: PoolId, tasks: u64) -> Vec<u64> {
        let units = shape.gpus.units().parts();
        self.meters.iter().map(|meter| self.amount(*meter, pool, units, shape.resources) * tasks).collect()
    }

    /// So many units of a pool and so much beside them, in one meter.
    pub(super) fn amount(&self, meter: Meter, pool: PoolId, units: u64, resources: Resources) -> u64 {
        match meter {
            Meter::AnyGpu => units * u64::from(self.policy.normal_of(self.state.fleet.model(pool))),
            Meter::Gpu(metered) if metered == pool => units,
            Meter::Gpu(_) => 0,
            Meter::Cpu => resources.cpu_milli,
            Meter::Memory => resources.memory,
        }
    }

    /// The pools that a shape may use: work without GPUs goes to nodes without GPUs first.
    pub(super) fn pools(&self, shape: &Shape) -> Vec<PoolId> {
        let fleet = &self.state.fleet;
        let has_gpus = |pool: PoolId| !fleet.model(pool).is_empty();
        let usable = |pool: &PoolId| {
            (has_gpus(*pool) || shape.gpus == GpuAsk::Whole(0)) && fleet.set_has_pool(shape.devices, *pool)
        };
        let (with, without): (Vec<PoolId>, Vec<PoolId>) =
            fleet.pool_ids().filter(usable).partition(|&pool| has_gpus(pool));
        without.into_iter().chain(with).collect()
    }

    /// The domain of the level that a spec's gang stays within, where it does.
    pub(super) fn domain_of(&self, spec: &Spec, node: NodeId) -> Option<u32> {
        let level = spec.topology.gang_within?;
        let domains = &self.state.fleet.node(node)?.facts.domains;
        domains.iter().find(|(known, _)| *known == level).map(|&(_, domain)| domain)
    }
}

/// How a task is in the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// It has its place.
    Holds,
    /// Its place was set aside before this plan.
    Promised,
    /// It was given its place in this plan.
    Given,
    /// It was told to leave and is still there.
    Leaves,
}

/// One task and its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task<'a> {
    /// Nobody's where something runs that should not.
    pub(super) owner: Option<(JobId, &'a Spec)>,
    pub(super) place: Placement,
    pub(super) resources: Resources,
    pub(super) trust: TrustId,
    pub(super) how: How,
}

/// Every task that takes a place or will.
#[derive(Clone)]
pub(super) struct World<'a> {
    pub(super) facts: &'a Facts<'a>,
    pub(super) tasks: Vec<Task<'a>>,
    /// Jobs that have to give something up in this plan.
    pub(super) giving_up: Vec<JobId>,
}

impl<'a> World<'a> {
    /// As the state is.
    pub(super) fn of(facts: &'a Facts<'a>) -> Self {
        let state = facts.state;
        let mut world = Self { facts, tasks: Vec::new(), giving_up: Vec::new() };
        for (id, job) in state.jobs.iter() {
            for task in state.ledger.holding(id).into_iter().flat_map(|holding| &holding.tasks) {
                if task.holds() {
                    let how = if task.stays() { How::Holds } else { How::Leaves };
                    world.add(id, &job.spec, task.place, how);
                }
            }
            for &place in state.earmarks.of(id).into_iter().flat_map(|promise| &promise.tasks) {
                world.add(id, &job.spec, place, How::Promised);
            }
        }
        for orphan in state.ledger.orphans().values() {
            let (place, resources) = (orphan.place, orphan.resources);
            // It belongs to nobody we know, so nobody shares a GPU with it.
            let trust = TrustId(u32::MAX);
            world.tasks.push(Task { owner: None, place, resources, trust, how: How::Holds });
        }
        world
    }

    pub(super) fn add(&mut self, job: JobId, spec: &'a Spec, place: Placement, how: How) {
        let (owner, resources, trust) = (Some((job, spec)), spec.shape.resources, spec.trust);
        self.tasks.push(Task { owner, place, resources, trust, how });
    }

    /// Tasks of a job that hold their places are told to leave; places that were only set aside for it no longer are.
    pub(super) fn take_away(&mut self, job: JobId, places: &[Placement]) {
        let taken = |task: &Task<'_>, how: How| {
            let of_job = task.owner.is_some_and(|(owner, _)| owner == job);
            of_job && task.how == how && places.contains(&task.place)
        };
        self.tasks.retain(|task| !taken(task, How::Promised));
        for task in self.tasks.iter_mut().filter(|task| taken(task, How::Holds)) {
            task.how = How::Leaves;
        }
        self.giving_up.push(job);
    }

    /// The tasks of a job that are there in one way.
    pub(super) fn tasks_of(&self, job: JobId, how: How) -> Vec<Placement> {
        let of_job = |task: &&Task<'_>| task.how == how && task.owner.is_some_and(|(owner, _)| owner == job);
        self.tasks.iter().filter(of_job).map(|task| task.place).collect()
    }

    pub(super) fn node(&self, node: NodeId) -> Option<&'a Node> {
        self.facts.state.fleet.node(node)
    }

    /// Nodes of a pool that new work may come to, in order.
    pub(super) fn open_nodes(&self, pool: PoolId) -> Vec<NodeId> {
        let nodes = self.facts.state.fleet.nodes();
        nodes.filter(|(_, node)| node.is_open() && node.facts.pool == pool).map(|(id, _)| id).collect()
    }

    fn on(&self, node: NodeId) -> impl Iterator<Item = &Task<'a>> {
        self.tasks.iter().filter(move |task| task.place.node == node)
    }

    /// True when somebody on the node leaves.
    pub(super) fn drains(&self, node: NodeId) -> bool {
        self.on(node).any(|task| task.how == How::Leaves)
    }

    /// How many tasks on a GPU leave.
    pub(super) fn leaving_on(&self, node: NodeId, gpu: usize) -> usize {
        self.on(node).filter(|task| task.how == How::Leaves && task.place.gpus.contains(gpu)).count()
    }

    fn holders(&self, node: NodeId, gpu: usize) -> impl Iterator<Item = &Task<'a>> {
        self.on(node).filter(move |task| task.how != How::Leaves && task.place.gpus.contains(gpu))
    }

    pub(super) fn gpu_count(&self, node: NodeId) -> usize {
        self.node(node).map_or(0, |node| node.facts.gpus.len())
    }

    pub(super) fn is_usable(&self, node: NodeId, gpu: usize) -> bool {
        self.node(node).is_some_and(|node| {
            let facts = &node.facts;
            facts.up && facts.gpus[gpu].healthy && !facts.others_gpus.contains(gpu)
        })
    }

    /// What is held of a GPU by those who stay.
    pub(super) fn held_of(&self, node: NodeId, gpu: usize) -> u64 {
        self.holders(node, gpu).map(|task| task.place.units_each.parts()).sum()
    }

    /// True when a GPU works and nobody holds any of it.
    pub(super) fn is_free(&self, node: NodeId, gpu: usize) -> bool {
        self.is_usable(node, gpu) && self.holders(node, gpu).next().is_none()
    }

    /// True when a GPU works, somebody holds some of it, and some is left.
    pub(super) fn is_partly_free(&self, node: NodeId, gpu: usize) -> bool {
        let held = self.holders(node, gpu).next().is_some();
        self.is_usable(node, gpu) && held && self.held_of(node, gpu) < WHOLE
    }

    /// What a task of a trust domain could still get of a GPU.
    pub(super) fn free_for(&self, node: NodeId, gpu: usize, trust: TrustId) -> u64 {
        let strangers = self.holders(node, gpu).any(|task| task.trust != trust);
        if strangers || !self.is_usable(node, gpu) {
            return 0;
        }
        WHOLE.saturating_sub(self.held_of(node, gpu))
    }

    pub(super) fn free_gpus(&self, node: NodeId) -> Vec<usize> {
        (0..self.gpu_count(node)).filter(|&gpu| self.is_free(node, gpu)).collect()
    }

    /// What the node has for us beside GPUs.
    fn capacity(&self, node: NodeId) -> Resources {
        self.node(node)
            .map_or(Resources::default(), |node| node.facts.capacity.saturating_sub(node.facts.others))
    }

    fn taken_by(&self, node: NodeId, leaving: bool) -> Resources {
        let tasks = self.on(node).filter(|task| (task.how == How::Leaves) == leaving);
        tasks.fold(Resources::default(), |sum, task| sum + task.resources)
    }

    /// What is left of a node beside GPUs.
    pub(super) fn free_beside(&self, node: NodeId) -> Resources {
        self.capacity(node).saturating_sub(self.taken_by(node, false))
    }

    /// True when a task could run at its place now: nobody who leaves is in the way.
    pub(super) fn is_clear(&self, place: &Placement) -> bool {
        let node = place.node;
        let gpus_clear = place.gpus.indexes().all(|gpu| self.leaving_on(node, gpu) == 0);
        let all = self.taken_by(node, false) + self.taken_by(node, true);
        gpus_clear && (!self.drains(node) || self.capacity(node).covers(&all))
    }
}
