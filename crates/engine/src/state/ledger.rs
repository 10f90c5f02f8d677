//! The ledger section: who holds what, task by task, and what is therefore free.
//!
//! A gang gets its places in one event, and a task gives its place back in one. All else is an index over those two facts.
//!
//! Use is counted twice: what is *used* now, and what is *planned*, without tasks that were told to leave and with earmarks.
//! The planner goes by the second.

pub(crate) mod check;
pub mod event;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

use crate::model::group::Group;
use crate::model::job::{Checkpoint, Class};
use crate::model::observed::TaskRef;
use crate::model::placement::Placement;
use crate::model::policy::Policy;
use crate::quota::amount::Use;
use crate::state::earmarks::{Earmark, Earmarks};
use crate::state::event::Event;
use crate::state::fleet::Fleet;
use crate::state::holding::{HeldTask, Holding, Presence, TaskPhase};
use crate::state::index::{list, unlist};
use crate::state::jobs::Job;
use crate::state::ledger::event::LedgerEvent;
use crate::state::rooms::{Room, Rooms};
use crate::units::{GpuUnits, JobId, Millis, NodeId, PoolId, Resources, TenantId, Timestamp, TrustId};

/// Jobs by a moment of theirs.
type Moments = BTreeSet<(Timestamp, JobId)>;

/// Who holds what.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    held: BTreeMap<JobId, JobHold>,
    orphans: BTreeMap<TaskRef, Orphan>,
    rooms: Rooms,
    by_node: BTreeMap<NodeId, BTreeSet<Occupant>>,
    used: BTreeMap<TenantId, Use>,
    planned: BTreeMap<WorkGroup, Use>,
    work_groups: BTreeMap<WorkGroup, Moments>,
    wanted: BTreeMap<TenantId, Use>,
    /// One for each group of a job that has any.
    wants: BTreeMap<JobId, Vec<WantedTotal>>,
    unsettled: BTreeSet<JobId>,
    deadlines: Moments,
    bound: Moments,
    freed: BTreeMap<PoolId, u64>,
    changed: BTreeMap<PoolId, u64>,
    changed_of: BTreeMap<TenantId, u64>,
}

#[derive(Clone, Debug)]
struct JobHold {
    holding: Holding,
    charge: Charge,
    /// Its entries in `deadlines` and `bound`.
    deadline: Option<Timestamp>,
    bound: Option<Timestamp>,
    staying: usize,
}

/// What the ledger needs to know of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Who pays, and how it stands among the tenant's work.
    pub group: WorkGroup,
    pub trust: TrustId,
    /// Per task, beside GPUs, where all tasks are alike.
    resources: Resources,
    /// The same of each group, up to its last slot, where it has groups.
    by_group: Option<Arc<[(u32, Resources)]>>,
    pub checkpoint: Option<Checkpoint>,
    pub submitted_at: Timestamp,
}

/// What decides which work leaves for which inside a tenant. Work of one group is counted and listed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkGroup {
    pub tenant: TenantId,
    pub class: Class,
    /// Higher stays longer.
    pub priority: i32,
    pub preemptible: bool,
    /// How long it needs to save its work when asked.
    pub grace: Millis,
}

impl Charge {
    /// What the ledger needs to know of a job.
    pub fn of(job: &Job) -> Self {
        let spec = &job.spec;
        let of_group = |end: &mut u32, group: &Group| {
            *end += group.tasks_in_all();
            Some((*end, group.shape.resources))
        };
        Self {
            group: WorkGroup {
                tenant: spec.tenant,
                class: spec.class,
                priority: spec.priority,
                preemptible: spec.preemptible,
                grace: spec.grace(),
            },
            trust: spec.trust,
            resources: spec.shape.resources,
            by_group: spec.has_groups().then(|| spec.groups.iter().scan(0, of_group).collect()),
            checkpoint: spec.checkpoint,
            submitted_at: job.submitted_at,
        }
    }

    /// A task of it at a place.
    pub fn step(&self, place: Placement) -> Step {
        Step { place, resources: self.resources_of(place.task), trust: Some(self.trust) }
    }

    pub(crate) fn resources_of(&self, task: u32) -> Resources {
        let Some(groups) = &self.by_group else { return self.resources };
        let slots = groups.last().map_or(1, |&(end, _)| end.max(1));
        let of_task = groups.iter().find(|&&(end, _)| task % slots < end);
        of_task.map_or(self.resources, |&(_, resources)| resources)
    }
}

/// What a job that holds places or has an earmark would hold if it had all it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WantedTotal {
    pub tenant: TenantId,
    pub pool: PoolId,
    pub units: GpuUnits,
    pub resources: Resources,
}

/// Something that runs and should not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    pub place: Placement,
    pub resources: Resources,
    /// It is left alone.
    pub kept: bool,
}

impl Orphan {
    fn step(&self) -> Step {
        Step { place: self.place, resources: self.resources, trust: None }
    }
}

/// What takes a place on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Occupant {
    Task(JobId, u32),
    Earmark(JobId, u32),
    Orphan(TaskRef),
}

/// Counts in an entry of a map that has none where there is nothing to count.
fn count_in<K: Ord + Copy>(
    uses: &mut BTreeMap<K, Use>,
    key: K,
    (pool, units, resources): (PoolId, GpuUnits, Resources),
    more: bool,
) {
    let total = uses.entry(key).or_default();
    total.count(pool, units, resources, more);
    if *total == Use::default() {
        uses.remove(&key);
    }
}

fn of_tenant<V>(index: &BTreeMap<WorkGroup, V>, tenant: TenantId) -> impl Iterator<Item = (WorkGroup, &V)> {
    let (class, priority) = (Class::Inference, i32::MIN);
    let first = WorkGroup { tenant, class, priority, preemptible: false, grace: Millis(0) };
    let from = index.range(first..);
    from.take_while(move |(group, _)| group.tenant == tenant).map(|(&group, value)| (group, value))
}

impl Ledger {
    /// The earliest moment after `now` at which a task that was asked to leave is stopped, or a stuck attempt is given up.
    pub(super) fn next_deadline(&self, policy: &Policy, now: Timestamp) -> Option<Timestamp> {
        let asked = self.deadlines.first().map(|&(at, _)| at);
        let stuck = self.bound.first().map(|&(at, _)| at + policy.gangs.start_within);
        [asked, stuck].into_iter().flatten().filter(|&at| at > now).min()
    }

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

    pub(crate) fn keep_profiles(&mut self, keep: bool) {
        self.rooms.keep_profiles(keep);
    }

    /// What a tenant's own jobs hold.
    pub fn used(&self, tenant: TenantId) -> Option<&Use> {
        self.used.get(&tenant)
    }

    /// What stays and what is earmarked, by the work groups of a tenant.
    pub fn planned(&self, tenant: TenantId) -> impl Iterator<Item = (WorkGroup, &Use)> {
        of_tenant(&self.planned, tenant)
    }

    /// Jobs that hold something and were not told to leave, by the work groups of a tenant; oldest first.
    pub(crate) fn work_groups(&self, tenant: TenantId) -> impl Iterator<Item = (WorkGroup, &Moments)> {
        of_tenant(&self.work_groups, tenant)
    }

    /// What a tenant's own jobs that hold places or have an earmark want, with what they hold.
    pub fn wanted(&self, tenant: TenantId) -> Option<&Use> {
        self.wanted.get(&tenant)
    }

    /// What the ledger knows of a job that holds something.
    pub fn charge(&self, job: JobId) -> Option<&Charge> {
        self.held.get(&job).map(|held| &held.charge)
    }

    /// Jobs with tasks that do not run yet, by when those were given their places.
    pub fn bound(&self) -> &Moments {
        &self.bound
    }

    /// Changes whenever something starts, leaves or changes in the pool.
    pub fn changed(&self, pool: PoolId) -> u64 {
        self.changed.get(&pool).copied().unwrap_or_default()
    }

    /// Jobs for which the world has something to do.
    pub(crate) fn unsettled(&self) -> &BTreeSet<JobId> {
        &self.unsettled
    }

    /// Jobs that were asked to leave or wait to be repaired, by the moment at which that is over.
    pub(crate) fn deadlines(&self) -> &Moments {
        &self.deadlines
    }

    /// Changes whenever room in the pool may have grown.
    pub fn freed(&self, pool: PoolId) -> u64 {
        self.freed.get(&pool).copied().unwrap_or_default()
    }

    /// Changes whenever the tenant's use, with everyone below it, does.
    pub(crate) fn changed_of(&self, tenant: TenantId) -> u64 {
        self.changed_of.get(&tenant).copied().unwrap_or_default()
    }

    /// What is taken of each GPU of a node, as an observer sees it: also by tasks that were told to leave and are still there.
    pub fn occupied(&self, node: NodeId) -> Vec<GpuUnits> {
        let Some(room) = self.rooms.get(node) else { return Vec::new() };
        let tasks = self.tasks_on(node).filter(|_| room.leaving > 0);
        let tasks = tasks.filter_map(|(job, task)| self.holding(job)?.task(task));
        let leaving: Vec<&HeldTask> = tasks.filter(|task| task.presence() == Presence::Leaves).collect();
        let occupied = room.gpus.iter().enumerate().map(|(at, gpu)| {
            let leaving = leaving.iter().filter(|task| task.place.gpus.contains(at));
            let parts = gpu.held.parts() + leaving.map(|task| task.place.units_each.parts()).sum::<u64>();
            // An earmarked place may still be taken by its victim, too.
            GpuUnits::from_parts(parts.min(GpuUnits::WHOLE.parts()))
        });
        occupied.collect()
    }

    fn occupants(&self, node: NodeId) -> impl Iterator<Item = Occupant> {
        self.by_node.get(&node).into_iter().flatten().copied()
    }

    /// Orphans on a node.
    pub(crate) fn orphans_on(&self, node: NodeId) -> impl Iterator<Item = TaskRef> {
        self.occupants(node).filter_map(|occupant| match occupant {
            Occupant::Orphan(task) => Some(task),
            Occupant::Task(..) | Occupant::Earmark(..) => None,
        })
    }

    /// Tasks on a node.
    pub fn tasks_on(&self, node: NodeId) -> impl Iterator<Item = (JobId, u32)> {
        self.occupants(node).filter_map(|occupant| match occupant {
            Occupant::Task(job, task) => Some((job, task)),
            Occupant::Earmark(..) | Occupant::Orphan(_) => None,
        })
    }

    /// A node appeared, changed or left: its room is worked out again from what is held there.
    pub(crate) fn node_changed(&mut self, node: NodeId, fleet: &Fleet, earmarks: &Earmarks) {
        let pool_before = self.rooms.get(node).map(|room| room.pool);
        self.rooms.remove(node);
        let known = fleet.node(node);
        if let Some(known) = known {
            self.rooms.put(node, Room::of(known, fleet.mig(known.facts.pool)));
            let occupants: Vec<Occupant> = self.occupants(node).collect();
            for occupant in occupants {
                let (step, presence) = self.there(occupant, earmarks);
                self.rooms.shift(&step, Presence::Gone, presence);
            }
        }
        if let Some(pool) = known.map(|known| known.facts.pool).or(pool_before) {
            self.note_freed(pool);
        }
    }

    fn there(&self, occupant: Occupant, earmarks: &Earmarks) -> (Step, Presence) {
        match occupant {
            Occupant::Task(job, task) => {
                let held = &self.held[&job];
                let task = held.holding.task(task).expect("the node index names a held task");
                (held.charge.step(task.place), task.presence())
            }
            Occupant::Earmark(job, task) => {
                let (earmark, charge) = earmarks.get(job).expect("the node index names an earmark");
                let mut places = earmark.tasks.iter().filter(|place| place.task == task);
                let place = places.next().expect("the node index names an earmarked task");
                (charge.step(*place), Presence::Stays)
            }
            Occupant::Orphan(task) => (self.orphans[&task].step(), Presence::Stays),
        }
    }

    /// Something changed that may lift a refusal.
    pub(super) fn note_freed(&mut self, pool: PoolId) {
        *self.freed.entry(pool).or_default() += 1;
        *self.changed.entry(pool).or_default() += 1;
    }

    pub(crate) fn note_changed_of(&mut self, lineage: impl Iterator<Item = TenantId>) {
        for tenant in lineage {
            *self.changed_of.entry(tenant).or_default() += 1;
        }
    }

    pub(crate) fn start(&mut self, job: JobId, holding: Holding, charge: Charge) {
        for task in &holding.tasks {
            let (occupant, step) = (Occupant::Task(job, task.place.task), charge.step(task.place));
            self.shift(occupant, Some(charge.group), &step, Presence::Gone, task.presence());
        }
        let held = JobHold { holding, charge, deadline: None, bound: None, staying: 0 };
        let replaced = self.held.insert(job, held);
        assert!(replaced.is_none(), "a job holds one set of places at a time");
        self.settle(job);
    }

    /// Lets go of the record of a job whose tasks are all gone.
    pub(crate) fn forget(&mut self, job: JobId) {
        if let Some(held) = self.held.remove(&job) {
            keep(&mut self.deadlines, job, held.deadline, None);
            keep(&mut self.bound, job, held.bound, None);
            assert!(held.holding.tasks.iter().all(|task| !task.holds()), "nothing is held any more");
        }
        self.unsettled.remove(&job);
    }

    pub(crate) fn shift_earmark(&mut self, charged: &(Earmark, Charge), before: Presence, after: Presence) {
        let (earmark, charge) = charged;
        for &place in &earmark.tasks {
            let occupant = Occupant::Earmark(earmark.job, place.task);
            self.shift(occupant, Some(charge.group), &charge.step(place), before, after);
        }
    }

    pub(crate) fn set_wants(&mut self, job: JobId, wants: Vec<WantedTotal>) {
        if self.wants.get(&job).map_or(wants.is_empty(), |known| *known == wants) {
            return;
        }
        let before = self.wants.remove(&job).into_iter().flatten().map(|want| (want, false));
        for (want, more) in before.chain(wants.iter().map(|&want| (want, true))) {
            count_in(&mut self.wanted, want.tenant, (want.pool, want.units, want.resources), more);
        }
        if !wants.is_empty() {
            self.wants.insert(job, wants);
        }
    }

    pub(crate) fn set_repair_by(&mut self, job: JobId, deadline: Option<Timestamp>) {
        let held = self.held.get_mut(&job).expect("a job that is repaired holds something");
        held.holding.repair_by = deadline;
        self.settle(job);
    }

    pub(crate) fn apply(&mut self, event: &LedgerEvent) {
        match event {
            LedgerEvent::Started { .. } | LedgerEvent::Carried { .. } => {
                unreachable!("the state starts a job, because that takes the job's spec")
            }
            LedgerEvent::Running { job, task, .. }
            | LedgerEvent::Gone { job, task, .. }
            | LedgerEvent::Shed { job, task, .. } => self.change(*job, &[*task], event),
            LedgerEvent::Asked { job, tasks, .. }
            | LedgerEvent::Acked { job, tasks, .. }
            | LedgerEvent::AskFailed { job, tasks, .. }
            | LedgerEvent::LeaveRefused { job, tasks, .. }
            | LedgerEvent::Withdrawn { job, tasks, .. }
            | LedgerEvent::Stopping { job, tasks, .. } => self.change(*job, tasks, event),
            LedgerEvent::Grown { job, tasks, .. } => {
                let new: Vec<u32> = tasks.iter().map(|place| place.task).collect();
                self.change(*job, &new, event);
            }
            LedgerEvent::Broken { job, .. } => self.change(*job, &[], event),
            LedgerEvent::Evicted { .. } => {}
            LedgerEvent::OrphanSeen { task, place, resources, kept } => {
                let orphan = Orphan { place: *place, resources: *resources, kept: *kept };
                self.shift(Occupant::Orphan(*task), None, &orphan.step(), Presence::Gone, Presence::Stays);
                self.orphans.insert(*task, orphan);
            }
            LedgerEvent::OrphanGone { task } => {
                let orphan = self.orphans.remove(task).expect("an orphan goes once");
                self.shift(Occupant::Orphan(*task), None, &orphan.step(), Presence::Stays, Presence::Gone);
            }
        }
    }

    fn change(&mut self, job: JobId, tasks: &[u32], event: &LedgerEvent) {
        let held = self.held.get_mut(&job).expect("an event names a job that holds something");
        let charge = held.charge.clone();
        let there = |holding: &Holding| -> Vec<Option<(Placement, Presence)>> {
            let tasks = tasks.iter().map(|&task| holding.task(task));
            tasks.map(|task| task.map(|task| (task.place, task.presence()))).collect()
        };
        let before = there(&held.holding);
        held.holding.apply(event);
        let after = there(&held.holding);
        for (old, new) in before.into_iter().zip(after) {
            if let Some((place, _)) = old.or(new) {
                let [before, after] = [old, new].map(|there| there.map_or(Presence::Gone, |(_, how)| how));
                let occupant = Occupant::Task(job, place.task);
                self.shift(occupant, Some(charge.group), &charge.step(place), before, after);
            }
        }
        self.settle(job);
    }

    /// Something is present at its place in another way than before; an orphan is of no work group.
    fn shift(
        &mut self,
        occupant: Occupant,
        group: Option<WorkGroup>,
        step: &Step,
        before: Presence,
        after: Presence,
    ) {
        if before == after {
            return;
        }
        let Placement { node, pool, .. } = step.place;
        self.rooms.shift(step, before, after);
        if before == Presence::Gone {
            list(&mut self.by_node, node, occupant);
        }
        if after == Presence::Gone {
            unlist(&mut self.by_node, &node, &occupant);
        }
        if before == Presence::Stays {
            self.note_freed(pool);
        } else if group.is_some() {
            // An orphan that appears lifts no refusal.
            *self.changed.entry(pool).or_default() += 1;
        }
        let Some(group) = group else { return };
        let amount = (pool, step.place.units(), step.resources);
        let is_task = matches!(occupant, Occupant::Task(..));
        if is_task && (before == Presence::Gone || after == Presence::Gone) {
            count_in(&mut self.used, group.tenant, amount, before == Presence::Gone);
        }
        if before == Presence::Stays || after == Presence::Stays {
            count_in(&mut self.planned, group, amount, after == Presence::Stays);
        }
    }

    /// Keeps the lists of jobs that the world, the clock or the planner has business with.
    fn settle(&mut self, job: JobId) {
        let held = self.held.get_mut(&job).expect("a job that holds something settles");
        let holding = &held.holding;
        let settled = |task: &HeldTask| match task.phase {
            TaskPhase::Running | TaskPhase::Gone { .. } => true,
            TaskPhase::Bound
            | TaskPhase::Asked { .. }
            | TaskPhase::Acked { .. }
            | TaskPhase::Stopping { .. } => false,
        };
        if holding.tasks.iter().all(settled) {
            self.unsettled.remove(&job);
        } else {
            self.unsettled.insert(job);
        }
        let deadline = [holding.asked_until(), holding.repair_by].into_iter().flatten().min();
        let bound = holding.bound_since();
        let staying = holding.staying().count();
        keep(&mut self.deadlines, job, mem::replace(&mut held.deadline, deadline), deadline);
        keep(&mut self.bound, job, mem::replace(&mut held.bound, bound), bound);
        let stayed = mem::replace(&mut held.staying, staying) > 0;
        let (group, entry) = (held.charge.group, (held.charge.submitted_at, job));
        match (stayed, staying > 0) {
            (false, true) => list(&mut self.work_groups, group, entry),
            (true, false) => unlist(&mut self.work_groups, &group, &entry),
            (false, false) | (true, true) => {}
        }
    }

    pub(crate) fn snapshot(&self, into: &mut Vec<Event>) {
        for (&job, held) in &self.held {
            let holding = held.holding.clone();
            into.push(Event::Ledger(LedgerEvent::Carried { job, holding }));
        }
        for (&task, orphan) in &self.orphans {
            let Orphan { place, resources, kept } = *orphan;
            into.push(Event::Ledger(LedgerEvent::OrphanSeen { task, place, resources, kept }));
        }
    }
}

fn keep(list: &mut Moments, job: JobId, before: Option<Timestamp>, now: Option<Timestamp>) {
    if before != now {
        before.map(|at| list.remove(&(at, job)));
        now.map(|at| list.insert((at, job)));
    }
}

/// What one task takes and where.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub place: Placement,
    pub resources: Resources,
    /// Nobody knows the trust domain of an orphan.
    pub trust: Option<TrustId>,
}
