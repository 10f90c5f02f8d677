//! I8 of the ledger section: who holds what on which node, and what it comes to, counted again from holdings, earmarks and orphans.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::{Ledger, Moments, Occupant, Use, WorkGroup};
use crate::model::exit::Exit;
use crate::model::job::Spec;
use crate::model::placement::Placement;
use crate::state::State;
use crate::state::holding::{HeldTask, Holding, TaskPhase};
use crate::state::jobs::event::Next;
use crate::state::jobs::{Job, Phase};
use crate::state::recount::{self, Present, grouped, parts, shape_of, stays};
use crate::units::{GpuUnits, JobId, PoolId, Resources, Timestamp};

/// Sums by key, without those that are nothing.
fn sums<K: Ord>(all: impl Iterator<Item = (K, PoolId, GpuUnits, Resources)>) -> BTreeMap<K, Use> {
    let mut sums: BTreeMap<K, Use> = BTreeMap::new();
    for (key, pool, units, resources) in all {
        let sum = sums.entry(key).or_default();
        if units > GpuUnits::ZERO {
            *sum.gpus.entry(pool).or_default() += units;
        }
        sum.cpu_milli += resources.cpu_milli;
        sum.memory += resources.memory;
    }
    sums.retain(|_, sum| *sum != Use::default());
    sums
}

/// What is taken, by a key of the job that takes it.
fn amount<K>(it: &Present<'_>, key: impl Fn(&Job) -> K) -> Option<(K, PoolId, GpuUnits, Resources)> {
    Some((key(it.job?), it.place.pool, GpuUnits::from_parts(parts(&it.place)), it.resources))
}

fn work_group(job: &Job) -> WorkGroup {
    let Spec { tenant, class, priority, preemptible, checkpoint, .. } = job.spec;
    let grace = checkpoint.map(|checkpoint| checkpoint.grace).unwrap_or_default();
    WorkGroup { tenant, class, priority, preemptible, grace }
}

impl Ledger {
    pub(crate) fn wrong_indexes(&self, state: &State) -> Vec<&'static str> {
        let present = || recount::present(state);
        let held = present().filter(|it| matches!(it.occupant, Occupant::Task(..)));
        let used = sums(held.filter_map(|it| amount(&it, |job| job.spec.tenant)));
        let planned = sums(present().filter(|it| !it.leaves).filter_map(|it| amount(&it, work_group)));
        let staying = recount::held(state).filter(|(_, _, task)| stays(task));
        let work_groups = grouped(staying.map(|(id, job, _)| (work_group(job), (job.submitted_at, id))));
        let wants = self.wants.values().flatten();
        let wanted = sums(wants.map(|want| (want.tenant, want.pool, want.units, want.resources)));
        let (unsettled, deadlines, bound) = self.moments();
        recount::wrong(&[
            (
                "who is on which node",
                self.by_node == grouped(present().map(|it| (it.place.node, it.occupant))),
            ),
            ("use by tenant", self.used == used),
            ("planned use by tenant", self.planned == planned),
            ("who stands where", self.work_groups == work_groups),
            ("what jobs are charged", self.charges_are_right(state)),
            ("what jobs want", self.wants_are_right(state)),
            ("demand by tenant", self.wanted == wanted),
            ("unsettled", self.unsettled == unsettled),
            ("deadlines", self.deadlines == deadlines),
            ("bound", self.bound == bound),
        ])
    }

    fn charges_are_right(&self, state: &State) -> bool {
        let held = self.held.iter().map(|(&id, held)| {
            let places: Vec<Placement> = held.holding.tasks.iter().map(|task| task.place).collect();
            (id, &held.charge, places)
        });
        let earmarks = state.earmarks.iter().filter_map(|(id, _)| Some((id, state.earmarks.get(id)?)));
        let earmarked = earmarks.map(|(id, (earmark, charge))| (id, charge, earmark.tasks.clone()));
        let are_right = held.chain(earmarked).all(|(id, charge, places)| {
            state.jobs.get(id).is_some_and(|job| {
                charge.group == work_group(job)
                    && charge.trust == job.spec.trust
                    && charge.checkpoint == job.spec.checkpoint
                    && charge.submitted_at == job.submitted_at
                    && places.iter().all(|&Placement { task, .. }| {
                        charge.resources_of(task) == shape_of(&job.spec, task).resources
                    })
            })
        });
        let staying = |held: &super::JobHold| held.holding.tasks.iter().filter(|task| stays(task)).count();
        are_right && self.held.values().all(|held| held.staying == staying(held))
    }

    /// True when every job that has places, and no other, wants what its spec says.
    fn wants_are_right(&self, state: &State) -> bool {
        let live = self.wants.keys().all(|&job| state.jobs.get(job).is_some());
        live && state.jobs.iter().all(|(id, job)| self.want_is_right(state, id, job))
    }

    /// True when a job, or each group of it, wants all of its tasks that are not done, where its first place is. Of a group that
    /// has no place the pool is a guess that is not judged.
    fn want_is_right(&self, state: &State, id: JobId, job: &Job) -> bool {
        let held = || self.held.get(&id).into_iter().flat_map(|held| &held.holding.tasks);
        let earmarked = state.earmarks.of(id).into_iter().flat_map(|earmark| &earmark.tasks);
        let places: Vec<Placement> = held().map(|task| task.place).chain(earmarked.copied()).collect();
        let is_done = |task: &&HeldTask| matches!(task.phase, TaskPhase::Gone { exit: Exit::Succeeded, .. });
        let done: Vec<u32> = held().filter(is_done).map(|task| task.place.task).collect();
        if places.is_empty() || matches!(job.phase, Phase::Leaving(Next::End(_))) {
            return !self.wants.contains_key(&id);
        }
        let Spec { groups, tenant, .. } = &job.spec;
        let of_group = groups.iter().map(|group| (group.tasks * group.copies, group.shape.resources));
        let mut all: Vec<(u32, Resources)> = of_group.collect();
        let slots: u32 = all.iter().map(|&(in_all, _)| in_all).sum();
        if groups.is_empty() {
            all.push((job.spec.tasks, job.spec.shape.resources));
        }
        let mut wants = self.wants.get(&id).into_iter().flatten();
        let mut first = 0;
        for (in_all, each) in all {
            let slot = |task: u32| task.checked_rem(slots).unwrap_or(0);
            let own = |task: u32| groups.is_empty() || (first..first + in_all).contains(&slot(task));
            let done = done.iter().filter(|&&task| own(task)).count();
            let tasks = in_all.saturating_sub(u32::try_from(done).unwrap_or(u32::MAX));
            let place = places.iter().find(|place| own(place.task));
            first += in_all;
            let Some(want) = wants.next() else { return place.is_none() };
            let amount = |place: &Placement| (place.pool, parts(place) * u64::from(tasks));
            let is_there = place.is_none_or(|place| amount(place) == (want.pool, want.units.parts()));
            if want.tenant != *tenant || want.resources != each.times(tasks) || !is_there {
                return false;
            }
        }
        wants.next().is_none()
    }

    /// Jobs the world has something to do for, and moments at which an ask, a repair or a start is overdue.
    fn moments(&self) -> (BTreeSet<JobId>, Moments, Moments) {
        let of = |moment: fn(&Holding) -> Option<Timestamp>| -> Moments {
            self.held.iter().filter_map(|(&job, held)| Some((moment(&held.holding)?, job))).collect()
        };
        let is_settled = |task: &HeldTask| matches!(task.phase, TaskPhase::Running | TaskPhase::Gone { .. });
        let unsettled = self.held.iter().filter(|(_, held)| !held.holding.tasks.iter().all(is_settled));
        let deadlines = of(|holding| {
            let asked = holding.tasks.iter().filter_map(|task| match task.phase {
                TaskPhase::Asked { deadline, .. } => Some(deadline),
                _ => None,
            });
            asked.chain(holding.repair_by).min()
        });
        let bound = of(|holding| {
            let bound = holding.tasks.iter().filter(|task| task.phase == TaskPhase::Bound);
            bound.map(|task| if task.bound_at.0 > 0 { task.bound_at } else { holding.at }).min()
        });
        (unsettled.map(|(&job, _)| job).collect(), deadlines, bound)
    }
}

#[cfg(test)]
pub(crate) fn corruptions() -> Vec<crate::state::Corruption<Ledger>> {
    alloc::vec![
        ("who is on which node", |ledger| _ = ledger.by_node.pop_first()),
        ("use by tenant", |ledger| _ = ledger.used.pop_first()),
        ("use by tenant", |ledger| ledger.used.values_mut().for_each(|used| used.memory += 1)),
        ("planned use by tenant", |ledger| _ = ledger.planned.pop_last()),
        ("who stands where", |ledger| _ = ledger.work_groups.pop_first()),
        ("what jobs are charged", |ledger| {
            ledger.held.values_mut().for_each(|held| held.charge.trust = crate::units::TrustId(7));
        }),
        ("what jobs are charged", |ledger| ledger.held.values_mut().for_each(|held| held.staying += 1)),
        ("what jobs want", |ledger| _ = ledger.wants.pop_first()),
        ("what jobs want", |ledger| _ =
            ledger.wants.remove(&JobId(6)).expect("a job with a group has places")),
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
