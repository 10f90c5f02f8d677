//! What checks count again: everything that takes a place, in the plainest code. Nothing that keeps an index uses it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::model::job::{Shape, Spec};
use crate::model::placement::Placement;
use crate::state::State;
use crate::state::holding::{HeldTask, TaskPhase};
use crate::state::jobs::Job;
use crate::state::ledger::{Occupant, Orphan};
use crate::units::{JobId, Resources};

pub(crate) struct Present<'a> {
    pub(crate) occupant: Occupant,
    /// Nobody knows whose an orphan is.
    pub(crate) job: Option<&'a Job>,
    pub(crate) place: Placement,
    pub(crate) resources: Resources,
    pub(crate) leaves: bool,
}

impl<'a> Present<'a> {
    fn of(job: &'a Job, occupant: Occupant, place: Placement, leaves: bool) -> Self {
        let resources = shape_of(&job.spec, place.task).resources;
        Self { occupant, job: Some(job), place, resources, leaves }
    }
}

/// Everything that takes a place: tasks until they are gone, earmarks and orphans.
pub(crate) fn present(state: &State) -> impl Iterator<Item = Present<'_>> {
    let tasks = held(state).map(|(id, job, task)| {
        Present::of(job, Occupant::Task(id, task.place.task), task.place, !stays(task))
    });
    let earmarks = state.earmarks.iter().filter_map(|(id, earmark)| Some((id, state.jobs.get(id)?, earmark)));
    let earmarked = earmarks.flat_map(|(id, job, earmark)| {
        let places = earmark.tasks.iter();
        places.map(move |&place| Present::of(job, Occupant::Earmark(id, place.task), place, false))
    });
    let orphans = state.ledger.orphans().iter().map(|(&task, orphan)| {
        let Orphan { place, resources, .. } = *orphan;
        Present { occupant: Occupant::Orphan(task), job: None, place, resources, leaves: false }
    });
    tasks.chain(earmarked).chain(orphans)
}

/// What a place takes of all its GPUs, in 1/3000.
pub(crate) fn parts(place: &Placement) -> u64 {
    place.units_each.parts() * u64::from(place.gpus.count())
}

pub(crate) fn held(state: &State) -> impl Iterator<Item = (JobId, &Job, &HeldTask)> {
    state.ledger.holdings().flat_map(|(id, holding)| {
        let job = state.jobs.get(id).expect("what is held belongs to a live job");
        let tasks = holding.tasks.iter().filter(|task| !matches!(task.phase, TaskPhase::Gone { .. }));
        tasks.map(move |task| (id, job, task))
    })
}

pub(crate) fn stays(task: &HeldTask) -> bool {
    matches!(task.phase, TaskPhase::Bound | TaskPhase::Running)
}

/// The shape of a task, found by walking through the groups.
pub(crate) fn shape_of(spec: &Spec, task: u32) -> &Shape {
    let slots: u32 = spec.groups.iter().map(|group| group.tasks * group.copies).sum();
    let mut left = task.checked_rem(slots).unwrap_or(0);
    for group in &spec.groups {
        if left < group.tasks * group.copies {
            return &group.shape;
        }
        left -= group.tasks * group.copies;
    }
    &spec.shape
}

pub(crate) fn grouped<K: Ord, V: Ord>(all: impl Iterator<Item = (K, V)>) -> BTreeMap<K, BTreeSet<V>> {
    let mut groups: BTreeMap<K, BTreeSet<V>> = BTreeMap::new();
    for (key, value) in all {
        groups.entry(key).or_default().insert(value);
    }
    groups
}

pub(crate) fn wrong(indexes: &[(&'static str, bool)]) -> Vec<&'static str> {
    indexes.iter().filter(|(_, right)| !right).map(|&(index, _)| index).collect()
}
