//! I8 of the ledger section: who holds what on which node, and what it comes to, counted again from holdings, promises and orphans.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::{Charge, Holder, Ledger, Use, WantedTotal, WorkGroup};
use crate::model::exit::Exit;
use crate::model::group::Group;
use crate::model::job::Spec;
use crate::model::placement::Placement;
use crate::state::State;
use crate::state::holding::{HeldTask, TaskPhase};
use crate::state::jobs::{Job, Phase};
use crate::units::{GpuUnits, JobId, NodeId, PoolId, Resources, TenantId, Timestamp};

/// What is held, as plain sums.
#[derive(Default, PartialEq, Eq)]
struct HeldSum {
    gpus: BTreeMap<PoolId, u64>,
    cpu_milli: u64,
    memory: u64,
}

impl HeldSum {
    fn add(&mut self, pool: PoolId, units: u64, resources: Resources) {
        if units > 0 {
            *self.gpus.entry(pool).or_default() += units;
        }
        self.cpu_milli += resources.cpu_milli;
        self.memory += resources.memory;
    }

    fn of(used: &Use) -> Self {
        let gpus = used.gpus.iter().map(|(&pool, units)| (pool, units.parts())).collect();
        Self { gpus, cpu_milli: used.cpu_milli, memory: used.memory }
    }
}

/// True when a recorded map has these sums and no others.
fn is_same<K: Ord + Copy>(recorded: &BTreeMap<K, Use>, sums: BTreeMap<K, HeldSum>) -> bool {
    let sums: BTreeMap<K, HeldSum> = sums.into_iter().filter(|(_, sum)| *sum != HeldSum::default()).collect();
    recorded.len() == sums.len()
        && recorded.iter().all(|(key, used)| sums.get(key) == Some(&HeldSum::of(used)))
}

/// What a task takes beside GPUs, found by walking through the groups.
pub(crate) fn resources_of(spec: &Spec, task: u32) -> Resources {
    let slots: u32 = spec.groups.iter().map(|group| group.tasks * group.copies).sum();
    let mut left = if slots == 0 { 0 } else { task % slots };
    for group in &spec.groups {
        if left < group.tasks * group.copies {
            return group.shape.resources;
        }
        left -= group.tasks * group.copies;
    }
    spec.shape.resources
}

/// Where a task is, as far as room is concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckedPlace {
    Stays,
    Leaves,
    Gone,
}

pub(crate) fn place_of(task: &HeldTask) -> CheckedPlace {
    match task.phase {
        TaskPhase::Bound | TaskPhase::Running => CheckedPlace::Stays,
        TaskPhase::Asked { .. } | TaskPhase::Acked { .. } | TaskPhase::Stopping { .. } => {
            CheckedPlace::Leaves
        }
        TaskPhase::Gone { .. } => CheckedPlace::Gone,
    }
}

fn work_group(job: &Job) -> WorkGroup {
    let Spec { tenant, class, priority, preemptible, checkpoint, .. } = job.spec;
    let grace = checkpoint.map(|checkpoint| checkpoint.grace).unwrap_or_default();
    WorkGroup { tenant, class, priority, preemptible, grace }
}

/// Jobs by a moment of theirs.
type Moments = BTreeSet<(Timestamp, JobId)>;

impl Ledger {
    /// The indexes that do not say what holdings, promises and orphans do.
    pub(crate) fn wrong_indexes(&self, state: &State) -> Vec<&'static str> {
        let mut wrong = Vec::new();
        let mut expect = |holds: bool, index| {
            if !holds {
                wrong.push(index);
            }
        };
        expect(self.by_node == self.holders(state), "who is on which node");
        let (used, planned) = self.uses(state);
        expect(is_same(&self.used, used), "use by tenant");
        expect(is_same(&self.planned, planned), "planned use by tenant");
        expect(self.group == self.standing_again(state), "who stands where");
        expect(self.charges_are_right(state), "what jobs are charged");
        expect(self.wants_are_right(state), "what jobs want");
        let mut wanted: BTreeMap<TenantId, HeldSum> = BTreeMap::new();
        for want in self.wants.values().chain(self.wants_of_groups.values().flatten()) {
            wanted.entry(want.tenant).or_default().add(want.pool, want.units.parts(), want.resources);
        }
        expect(is_same(&self.wanted, wanted), "demand by tenant");
        let (unsettled, deadlines, bound) = self.moments();
        expect(unsettled == self.unsettled, "unsettled");
        expect(deadlines == self.deadlines, "deadlines");
        expect(bound == self.bound, "bound");
        wrong
    }

    fn holders(&self, state: &State) -> BTreeMap<NodeId, BTreeSet<Holder>> {
        let mut by_node: BTreeMap<NodeId, BTreeSet<Holder>> = BTreeMap::new();
        let mut add = |node: NodeId, holder: Holder| {
            by_node.entry(node).or_default().insert(holder);
        };
        for (&job, held) in &self.held {
            for task in held.holding.tasks.iter().filter(|task| place_of(task) != CheckedPlace::Gone) {
                add(task.place.node, Holder::Task(job, task.place.task));
            }
        }
        for (job, earmark) in state.earmarks.iter() {
            earmark.tasks.iter().for_each(|place| add(place.node, Holder::Earmark(job, place.task)));
        }
        for (&task, orphan) in &self.orphans {
            add(orphan.place.node, Holder::Orphan(task));
        }
        by_node
    }

    /// What is used by tenant, and what stays or is promised by group.
    fn uses(&self, state: &State) -> (BTreeMap<TenantId, HeldSum>, BTreeMap<WorkGroup, HeldSum>) {
        let (mut used, mut planned) = (BTreeMap::new(), BTreeMap::new());
        for (id, job) in state.jobs.iter() {
            let units = |place: &Placement| place.units_each.parts() * u64::from(place.gpus.count());
            let mut plan = |place: &Placement| {
                let sum: &mut HeldSum = planned.entry(work_group(job)).or_default();
                sum.add(place.pool, units(place), resources_of(&job.spec, place.task));
            };
            for task in self.held.get(&id).into_iter().flat_map(|held| &held.holding.tasks) {
                let place = &task.place;
                if place_of(task) != CheckedPlace::Gone {
                    let sum: &mut HeldSum = used.entry(job.spec.tenant).or_default();
                    sum.add(place.pool, units(place), resources_of(&job.spec, place.task));
                }
                if place_of(task) == CheckedPlace::Stays {
                    plan(place);
                }
            }
            state.earmarks.of(id).into_iter().flat_map(|earmark| &earmark.tasks).for_each(plan);
        }
        (used, planned)
    }

    fn standing_again(&self, state: &State) -> BTreeMap<WorkGroup, BTreeSet<(Timestamp, JobId)>> {
        let mut group: BTreeMap<WorkGroup, BTreeSet<(Timestamp, JobId)>> = BTreeMap::new();
        for (id, job) in state.jobs.iter() {
            let held = self.held.get(&id).into_iter().flat_map(|held| &held.holding.tasks);
            if held.into_iter().any(|task| place_of(task) == CheckedPlace::Stays) {
                group.entry(work_group(job)).or_default().insert((job.submitted_at, id));
            }
        }
        group
    }

    fn charges_are_right(&self, state: &State) -> bool {
        let is_right = |id: JobId, charge: &Charge, tasks: Vec<u32>| {
            state.jobs.get(id).is_some_and(|job| {
                charge.group == work_group(job)
                    && charge.trust == job.spec.trust
                    && charge.checkpoint == job.spec.checkpoint
                    && charge.submitted_at == job.submitted_at
                    && tasks.iter().all(|&task| charge.resources_of(task) == resources_of(&job.spec, task))
            })
        };
        let held = |(&id, held): (&JobId, &super::JobHold)| {
            let staying =
                held.holding.tasks.iter().filter(|task| place_of(task) == CheckedPlace::Stays).count();
            let tasks = held.holding.tasks.iter().map(|task| task.place.task).collect();
            held.staying == staying && is_right(id, &held.charge, tasks)
        };
        let promised = |(id, earmark): (JobId, &crate::state::earmarks::Earmark)| {
            let charge = state.earmarks.get(id).map(|(_, charge)| charge);
            charge.is_some_and(|charge| {
                is_right(id, charge, earmark.tasks.iter().map(|place| place.task).collect())
            })
        };
        self.held.iter().all(held) && state.earmarks.iter().all(promised)
    }

    /// True when every job that holds or was promised places, and no other, wants what its spec says.
    fn wants_are_right(&self, state: &State) -> bool {
        let known = |job: &JobId| state.jobs.get(*job).is_some();
        let live = self.wants.keys().chain(self.wants_of_groups.keys()).all(known);
        live && state.jobs.iter().all(|(id, job)| self.want_is_right(state, id, job))
    }

    fn want_is_right(&self, state: &State, id: JobId, job: &Job) -> bool {
        let held = || self.held.get(&id).into_iter().flat_map(|held| &held.holding.tasks);
        let promised = || state.earmarks.of(id).into_iter().flat_map(|earmark| &earmark.tasks);
        let places: Vec<Placement> = held().map(|task| task.place).chain(promised().copied()).collect();
        let done = |task: &&HeldTask| matches!(task.phase, TaskPhase::Gone { exit: Exit::Succeeded, .. });
        let done: Vec<u32> = held().filter(done).map(|task| task.place.task).collect();
        let wants = !places.is_empty()
            && !matches!(job.phase, Phase::Leaving(crate::state::jobs::event::Next::End(_)));
        if job.spec.groups.is_empty() {
            let expected = places.first().filter(|_| wants).map(|place| {
                let tasks = job.spec.tasks.saturating_sub(u32::try_from(done.len()).unwrap_or(u32::MAX));
                (place.pool, whole(place) * u64::from(tasks), job.spec.shape.resources.times(tasks))
            });
            let known = self.wants.get(&id);
            let of_tenant = known.is_none_or(|want| want.tenant == job.spec.tenant);
            return !self.wants_of_groups.contains_key(&id) && of_tenant && known.map(amount) == expected;
        }
        let known = self.wants_of_groups.get(&id).map(Vec::as_slice).unwrap_or_default();
        let none = !self.wants.contains_key(&id);
        if !wants {
            return none && known.is_empty();
        }
        none && of_groups_is_right(job, known, &places, &done)
    }

    /// Jobs the world has something to do for, and moments at which an ask, a repair or a start is overdue.
    fn moments(&self) -> (BTreeSet<JobId>, Moments, Moments) {
        let (mut unsettled, mut deadlines, mut bound) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (&job, held) in &self.held {
            let mut first_deadline = held.holding.repair_by;
            let mut first_bound = None;
            for task in &held.holding.tasks {
                match task.phase {
                    TaskPhase::Running | TaskPhase::Gone { .. } => continue,
                    TaskPhase::Acked { .. } | TaskPhase::Stopping { .. } => {}
                    TaskPhase::Asked { deadline, .. } => {
                        first_deadline = first_deadline.into_iter().chain([deadline]).min();
                    }
                    TaskPhase::Bound => {
                        let since = if task.bound_at.0 > 0 { task.bound_at } else { held.holding.at };
                        first_bound = first_bound.into_iter().chain([since]).min();
                    }
                }
                unsettled.insert(job);
            }
            deadlines.extend(first_deadline.map(|at| (at, job)));
            bound.extend(first_bound.map(|at| (at, job)));
        }
        (unsettled, deadlines, bound)
    }
}

fn whole(place: &Placement) -> u64 {
    place.units_each.parts() * u64::from(place.gpus.count())
}

fn amount(want: &WantedTotal) -> (PoolId, u64, Resources) {
    (want.pool, want.units.parts(), want.resources)
}

/// True when every group wants all of its tasks that are not done, where its first place is. Of a group that has no place the
/// pool is a guess that is not judged.
fn of_groups_is_right(job: &Job, known: &[WantedTotal], places: &[Placement], done: &[u32]) -> bool {
    let slots: u32 = job.spec.groups.iter().map(|group| group.tasks * group.copies).sum();
    let (mut first, mut left) = (0, known);
    for group in &job.spec.groups {
        let in_all = group.tasks * group.copies;
        let own = |task: u32| (first..first + in_all).contains(&(task % slots.max(1)));
        let done = done.iter().filter(|&&task| own(task)).count();
        let tasks = in_all.saturating_sub(u32::try_from(done).unwrap_or(u32::MAX));
        let place = places.iter().find(|place| own(place.task));
        first += in_all;
        let Some((want, rest)) = left.split_first() else { return place.is_none() };
        let right = want.tenant == job.spec.tenant && want.resources == beside(group, tasks);
        let there = place.is_none_or(|place| {
            want.pool == place.pool && want.units == GpuUnits::from_parts(whole(place) * u64::from(tasks))
        });
        if !right || !there {
            return false;
        }
        left = rest;
    }
    left.is_empty()
}

fn beside(group: &Group, tasks: u32) -> Resources {
    group.shape.resources.times(tasks)
}

/// An index and what would be wrong with it.
#[cfg(test)]
pub(crate) fn corruptions() -> Vec<crate::state::Corruption<Ledger>> {
    alloc::vec![
        ("who is on which node", |ledger| _ = ledger.by_node.pop_first()),
        ("use by tenant", |ledger| _ = ledger.used.pop_first()),
        ("use by tenant", |ledger| {
            ledger.used.values_mut().for_each(|used| used.memory += 1);
        }),
        ("planned use by tenant", |ledger| _ = ledger.planned.pop_last()),
        ("who stands where", |ledger| _ = ledger.group.pop_first()),
        ("what jobs are charged", |ledger| {
            ledger.held.values_mut().for_each(|held| held.charge.trust = crate::units::TrustId(7));
        }),
        ("what jobs are charged", |ledger| ledger.held.values_mut().for_each(|held| held.staying += 1)),
        ("what jobs want", |ledger| _ = ledger.wants.pop_first()),
        ("what jobs want", |ledger| _ = ledger.wants_of_groups.pop_first()),
        ("demand by tenant", |ledger| _ = ledger.wanted.pop_first()),
        ("unsettled", |ledger| _ = ledger.unsettled.pop_first()),
        ("deadlines", |ledger| _ = ledger.deadlines.insert((Timestamp(1), JobId(0)))),
        ("bound", |ledger| _ = ledger.bound.insert((Timestamp(1), JobId(0)))),
    ]
}

#[cfg(test)]
impl Ledger {
    pub(crate) fn rooms_mut(&mut self) -> &mut crate::state::rooms::Rooms {
        &mut self.rooms
    }
}
