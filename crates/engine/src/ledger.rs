//! The ledger section: who holds what, task by task, and what is therefore free.
//!
//! A gang gets its places in one event. A task gives its place back in one event. Everything else in here is
//! an index over those two facts, recomputed the slow way by `check`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::event::{Event, HeldTask, Holding, LedgerEvent, Placement, TaskPhase};
use crate::fleet::Node;
use crate::input::TaskRef;
use crate::job::Spec;
use crate::rooms::{Room, Rooms};
use crate::units::{GpuUnits, JobId, NodeId, PoolId, Resources, TenantId, Timestamp, TrustId};

/// Who holds what.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    held: BTreeMap<JobId, Held>,
    orphans: BTreeMap<TaskRef, Orphan>,
    rooms: Rooms,
    by_node: BTreeMap<NodeId, BTreeSet<Holder>>,
    used: BTreeMap<TenantId, Use>,
    unsettled: BTreeSet<JobId>,
    deadlines: BTreeSet<(Timestamp, JobId)>,
    freed: BTreeMap<PoolId, u64>,
    freed_of: BTreeMap<TenantId, u64>,
}

#[derive(Clone, Debug)]
struct Held {
    holding: Holding,
    charge: Charge,
    /// Its entry in `deadlines`.
    deadline: Option<Timestamp>,
}

/// What the ledger needs to know of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Who pays.
    pub tenant: TenantId,
    /// Whose neighbours it may have.
    pub trust: TrustId,
    /// Per task, beside GPUs.
    pub resources: Resources,
}

impl Charge {
    /// What the ledger needs to know of a spec.
    pub fn of(spec: &Spec) -> Self {
        Self { tenant: spec.tenant, trust: spec.trust, resources: spec.shape.resources }
    }
}

/// Something that runs and should not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// Where, and what it takes.
    pub place: Placement,
    /// Beside GPUs.
    pub resources: Resources,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    Task(JobId, u32),
    Orphan(TaskRef),
}

/// What a tenant's own jobs hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// GPUs, by pool.
    pub gpus: BTreeMap<PoolId, GpuUnits>,
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// Bytes.
    pub memory: u64,
}

/// Orphans belong to nobody we know, so nobody shares a GPU with them.
const NOBODY: TrustId = TrustId(u32::MAX);

impl Ledger {
    /// What a job holds.
    pub fn holding(&self, job: JobId) -> Option<&Holding> {
        self.held.get(&job).map(|held| &held.holding)
    }

    /// Every holding, in job order.
    pub fn holdings(&self) -> impl Iterator<Item = (JobId, &Holding)> {
        self.held.iter().map(|(&job, held)| (job, &held.holding))
    }

    /// What runs and should not.
    pub fn orphans(&self) -> &BTreeMap<TaskRef, Orphan> {
        &self.orphans
    }

    /// What is free.
    pub fn rooms(&self) -> &Rooms {
        &self.rooms
    }

    /// What a tenant's own jobs hold.
    pub fn used(&self, tenant: TenantId) -> Option<&Use> {
        self.used.get(&tenant)
    }

    /// Jobs for which the world has something to do.
    pub fn unsettled(&self) -> &BTreeSet<JobId> {
        &self.unsettled
    }

    /// Jobs that were asked to leave, by the moment at which asking is over.
    pub fn deadlines(&self) -> &BTreeSet<(Timestamp, JobId)> {
        &self.deadlines
    }

    /// Changes whenever room in the pool may have grown.
    pub fn freed(&self, pool: PoolId) -> u64 {
        self.freed.get(&pool).copied().unwrap_or_default()
    }

    /// Changes whenever the tenant's use, with everyone below it, may have shrunk.
    pub fn freed_of(&self, tenant: TenantId) -> u64 {
        self.freed_of.get(&tenant).copied().unwrap_or_default()
    }

    /// Tasks on a node.
    pub fn tasks_on(&self, node: NodeId) -> impl Iterator<Item = (JobId, u32)> {
        self.by_node.get(&node).into_iter().flatten().filter_map(|holder| match holder {
            Holder::Task(job, task) => Some((*job, *task)),
            Holder::Orphan(_) => None,
        })
    }

    /// Orphans on a node.
    pub fn orphans_on(&self, node: NodeId) -> impl Iterator<Item = TaskRef> {
        self.by_node.get(&node).into_iter().flatten().filter_map(|holder| match holder {
            Holder::Task(..) => None,
            Holder::Orphan(task) => Some(*task),
        })
    }

    /// A node appeared, changed or left: its room is worked out again from what is held there.
    pub(crate) fn node_changed(&mut self, node: NodeId, known: Option<&Node>) {
        let pool = known.map(|known| known.facts.pool).or_else(|| self.rooms.get(node).map(|room| room.pool));
        self.rooms.remove(node);
        if let Some(known) = known {
            self.rooms.put(node, Room::of(known));
            let holders: Vec<_> = self.by_node.get(&node).into_iter().flatten().copied().collect();
            for holder in holders {
                let (place, resources, trust) = self.held_by(holder);
                self.rooms.take(&place, resources, trust);
            }
        }
        if let Some(pool) = pool {
            *self.freed.entry(pool).or_default() += 1;
        }
    }

    /// Something changed that may lift any refusal.
    pub(crate) fn anything_may_fit(&mut self, pools: impl Iterator<Item = PoolId>) {
        for pool in pools {
            *self.freed.entry(pool).or_default() += 1;
        }
    }

    /// The tenant and everyone above it may have more room below their limits.
    pub(crate) fn note_freed_of(&mut self, lineage: impl Iterator<Item = TenantId>) {
        for tenant in lineage {
            *self.freed_of.entry(tenant).or_default() += 1;
        }
    }

    fn held_by(&self, holder: Holder) -> (Placement, Resources, TrustId) {
        match holder {
            Holder::Task(job, task) => {
                let held = &self.held[&job];
                let task = held.holding.task(task).expect("the node index names a held task");
                (task.place, held.charge.resources, held.charge.trust)
            }
            Holder::Orphan(task) => {
                let orphan = &self.orphans[&task];
                (orphan.place, orphan.resources, NOBODY)
            }
        }
    }

    pub(crate) fn start(&mut self, job: JobId, holding: Holding, charge: Charge) {
        for task in holding.tasks.iter().filter(|task| task.holds()) {
            self.take(Holder::Task(job, task.place.task), &task.place, charge.resources, charge.trust);
            self.use_of(charge.tenant, &task.place, charge.resources, true);
        }
        let replaced = self.held.insert(job, Held { holding, charge, deadline: None });
        assert!(replaced.is_none(), "a job holds one set of places at a time");
        self.settle(job);
    }

    /// Lets go of the record of a job whose tasks are all gone.
    pub(crate) fn forget(&mut self, job: JobId) {
        if let Some(held) = self.held.remove(&job) {
            held.deadline.map(|deadline| self.deadlines.remove(&(deadline, job)));
            assert!(held.holding.tasks.iter().all(|task| !task.holds()), "nothing is held any more");
        }
        self.unsettled.remove(&job);
    }

    pub(crate) fn apply(&mut self, event: &LedgerEvent) {
        match event {
            LedgerEvent::Started { .. } | LedgerEvent::Carried { .. } => {
                unreachable!("the state starts a job, because that takes the job's spec")
            }
            LedgerEvent::Running { job, .. }
            | LedgerEvent::Asked { job, .. }
            | LedgerEvent::Acked { job, .. }
            | LedgerEvent::AskFailed { job, .. }
            | LedgerEvent::Stopping { job, .. } => self.change(*job, event),
            LedgerEvent::Gone { job, task, .. } => {
                self.release(*job, *task);
                self.change(*job, event);
            }
            LedgerEvent::OrphanSeen { task, place, resources } => {
                self.orphans.insert(*task, Orphan { place: *place, resources: *resources });
                self.take(Holder::Orphan(*task), place, *resources, NOBODY);
            }
            LedgerEvent::OrphanGone { task } => {
                let orphan = self.orphans.remove(task).expect("an orphan goes once");
                self.give_back(Holder::Orphan(*task), &orphan.place, orphan.resources);
            }
        }
    }

    fn release(&mut self, job: JobId, task: u32) {
        let held = &self.held[&job];
        let charge = held.charge;
        let task = held.holding.task(task).expect("a task that goes was held");
        assert!(task.holds(), "a task goes once");
        let place = task.place;
        self.give_back(Holder::Task(job, place.task), &place, charge.resources);
        self.use_of(charge.tenant, &place, charge.resources, false);
    }

    fn take(&mut self, holder: Holder, place: &Placement, resources: Resources, trust: TrustId) {
        self.by_node.entry(place.node).or_default().insert(holder);
        if self.rooms.get(place.node).is_some() {
            self.rooms.take(place, resources, trust);
        }
    }

    fn give_back(&mut self, holder: Holder, place: &Placement, resources: Resources) {
        self.rooms.give_back(place, resources);
        if let Some(room) = self.rooms.get(place.node) {
            *self.freed.entry(room.pool).or_default() += 1;
        }
        let holders = self.by_node.get_mut(&place.node).expect("the node index names every holder");
        assert!(holders.remove(&holder), "the node index names every holder");
        if holders.is_empty() {
            self.by_node.remove(&place.node);
        }
    }

    fn use_of(&mut self, tenant: TenantId, place: &Placement, resources: Resources, more: bool) {
        let used = self.used.entry(tenant).or_default();
        let units = place.units_each.times(place.gpus.count());
        let count = |total: u64, part: u64| if more { total + part } else { total - part };
        used.cpu_milli = count(used.cpu_milli, resources.cpu_milli);
        used.memory = count(used.memory, resources.memory);
        if units > GpuUnits::ZERO {
            let pool = place.pool;
            let total = used.gpus.entry(pool).or_default();
            *total = GpuUnits::from_parts(count(total.parts(), units.parts()));
            if *total == GpuUnits::ZERO {
                used.gpus.remove(&pool);
            }
        }
        if *used == Use::default() {
            self.used.remove(&tenant);
        }
    }

    fn change(&mut self, job: JobId, event: &LedgerEvent) {
        let held = self.held.get_mut(&job).expect("an event names a job that holds something");
        held.holding.apply(event);
        self.settle(job);
    }

    /// Keeps the lists of jobs that the world or the clock has business with.
    fn settle(&mut self, job: JobId) {
        let held = self.held.get_mut(&job).expect("a job that holds something settles");
        let holding = &held.holding;
        let due = holding.tasks.iter().any(|task| match task.phase {
            TaskPhase::Bound
            | TaskPhase::Asked { .. }
            | TaskPhase::Acked { .. }
            | TaskPhase::Stopping { .. } => true,
            TaskPhase::Running | TaskPhase::Gone { .. } => false,
        });
        let deadline = holding.asked_until();
        let before = core::mem::replace(&mut held.deadline, deadline);
        if due {
            self.unsettled.insert(job);
        } else {
            self.unsettled.remove(&job);
        }
        if before != deadline {
            before.map(|before| self.deadlines.remove(&(before, job)));
            deadline.map(|deadline| self.deadlines.insert((deadline, job)));
        }
    }

    pub(crate) fn snapshot(&self, into: &mut Vec<Event>) {
        for (&job, held) in &self.held {
            let holding = held.holding.clone();
            into.push(Event::Ledger(LedgerEvent::Carried { job, holding }));
        }
        for (&task, orphan) in &self.orphans {
            let (place, resources) = (orphan.place, orphan.resources);
            into.push(Event::Ledger(LedgerEvent::OrphanSeen { task, place, resources }));
        }
    }
}

impl Holding {
    /// A task by its number.
    pub fn task(&self, task: u32) -> Option<&HeldTask> {
        let at = self.tasks.binary_search_by_key(&task, |held| held.place.task).ok()?;
        Some(&self.tasks[at])
    }

    fn task_mut(&mut self, task: u32) -> &mut HeldTask {
        let at = self.tasks.binary_search_by_key(&task, |held| held.place.task);
        &mut self.tasks[at.expect("an event names a task that was started")]
    }

    /// What an event of this job changes in it.
    pub(crate) fn apply(&mut self, event: &LedgerEvent) {
        match event {
            LedgerEvent::Running { task, since, .. } => {
                let task = self.task_mut(*task);
                task.since = Some(*since);
                if task.phase == TaskPhase::Bound {
                    task.phase = TaskPhase::Running;
                }
            }
            LedgerEvent::Asked { tasks, by, deadline, .. } => {
                self.asked_by = Some(by.clone());
                self.set_phase(tasks, TaskPhase::Asked { deadline: *deadline, failed: false });
            }
            LedgerEvent::Acked { tasks, checkpoint_at, .. } => {
                self.set_phase(tasks, TaskPhase::Acked { checkpoint_at: *checkpoint_at });
            }
            LedgerEvent::AskFailed { tasks, .. } => {
                for &task in tasks {
                    if let TaskPhase::Asked { failed, .. } = &mut self.task_mut(task).phase {
                        *failed = true;
                    }
                }
            }
            LedgerEvent::Stopping { tasks, deadline, .. } => {
                self.set_phase(tasks, TaskPhase::Stopping { deadline: *deadline });
            }
            LedgerEvent::Gone { task, exit, at, .. } => {
                self.set_phase(&[*task], TaskPhase::Gone { exit: *exit, at: *at });
            }
            LedgerEvent::Started { .. }
            | LedgerEvent::Carried { .. }
            | LedgerEvent::OrphanSeen { .. }
            | LedgerEvent::OrphanGone { .. } => unreachable!("these do not change a holding"),
        }
    }

    fn set_phase(&mut self, tasks: &[u32], phase: TaskPhase) {
        for &task in tasks {
            self.task_mut(task).phase = phase;
        }
    }

    /// Tasks that take their place, by number.
    pub fn holding_tasks(&self) -> Vec<u32> {
        self.tasks.iter().filter(|task| task.holds()).map(|task| task.place.task).collect()
    }

    /// How long the attempt ran: from the first task's start to the last one's end, or to `now`.
    pub fn ran(&self, now: Timestamp) -> u64 {
        let Some(since) = self.tasks.iter().filter_map(|task| task.since).min() else { return 0 };
        let until = self.tasks.iter().map(|task| match task.phase {
            TaskPhase::Gone { at, .. } => at,
            _ => now,
        });
        until.max().map_or(0, |until| (until - since).0)
    }

    /// When the last of its tasks ended; `now` while one has not.
    pub fn ended_at(&self, now: Timestamp) -> Timestamp {
        let ends = self.tasks.iter().map(|task| match task.phase {
            TaskPhase::Gone { at, .. } => at.min(now),
            _ => now,
        });
        ends.max().unwrap_or(now)
    }

    /// Until when it was asked to save its work, if it was.
    pub fn asked_until(&self) -> Option<Timestamp> {
        let until = self.tasks.iter().filter_map(|task| match task.phase {
            TaskPhase::Asked { deadline, .. } => Some(deadline),
            _ => None,
        });
        until.min()
    }
}
