//! Groups: parts of one job, each with its own number of tasks, its own minimum and its own shape.
//!
//! Worked example: a coordinator, and workers in three *copies* of two tasks, of which two copies are enough and one
//! task each:
//!
//! ```text
//! slot         0            1  2     3  4     5  6
//! copy         coordinator  worker   worker   worker
//! ```
//!
//! Every wanted task has a *slot*, counted through the groups and their copies. The number of a task modulo the number of
//! slots is its slot: a task that takes the place of a lost one gets a number that was not used in this attempt and
//! still tells what it is. A copy *stands* while it has its minimum; it is *broken* while it has some of it. The job has its
//! minimum while enough copies of every group stand. Copies of one group are alike: which of them stand does not matter.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use serde::{Deserialize, Serialize};

use crate::model::job::{Shape, Spec};
use crate::units::{GpuUnits, Resources};

/// The most groups of one job: roles, not replicas, which are copies.
pub const GROUPS_MAX: usize = 16;

/// A part of a job with a shape of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Unique in the job.
    pub name: String,
    /// Wanted tasks of one copy.
    pub tasks: u32,
    /// So many tasks, or the copy has none.
    pub min: u32,
    pub copies: u32,
    /// So many copies, or the job has none.
    pub min_copies: u32,
    pub shape: Shape,
}

impl Group {
    pub(crate) fn tasks_in_all(&self) -> u32 {
        self.tasks.saturating_mul(self.copies)
    }

    pub(crate) fn min_in_all(&self) -> u32 {
        self.min.saturating_mul(self.min_copies)
    }
}

/// One copy of a group, with what there is of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupCopy {
    /// Of which group, by its place in the list.
    pub group: usize,
    /// Which of the group's copies, from 0.
    pub number: u32,
    pub slots: Range<u32>,
    pub min: u32,
    /// Its slots that a task holds or has finished.
    pub alive: Vec<u32>,
}

impl GroupCopy {
    fn alive_len(&self) -> u32 {
        u32::try_from(self.alive.len()).unwrap_or(u32::MAX)
    }

    /// True when it has its minimum.
    pub fn stands(&self) -> bool {
        self.alive_len() >= self.min
    }

    pub(crate) fn is_broken(&self) -> bool {
        !self.alive.is_empty() && !self.stands()
    }

    fn free(&self, count: u32) -> Vec<u32> {
        let free = self.slots.clone().filter(|slot| !self.alive.contains(slot));
        free.take(usize::try_from(count).unwrap_or(usize::MAX)).collect()
    }

    fn missing(&self) -> Vec<u32> {
        self.free(self.min.saturating_sub(self.alive_len()))
    }
}

/// Tasks that a group lacks, all or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    pub group: usize,
    pub slots: Vec<u32>,
}

/// What a job with groups lacks while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lacks {
    /// The rest of its minimum, all or none.
    Repair(Vec<Lack>),
    /// More than its minimum: any of these, the first first.
    Growth(Vec<Lack>),
}

impl Spec {
    /// True when it consists of groups.
    pub fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Takes from its groups what is said once for every job: the number of tasks, the minimum, and the shape of the largest
    /// task, which stands for the job where there is room for one shape only.
    pub fn derive_from_groups(&mut self) {
        let largest = |group: &&Group| {
            let shape = &group.shape;
            (shape.gpus.units(), shape.resources.cpu_milli, shape.resources.memory)
        };
        // Of those alike the first: `max_by_key` would take the last.
        let Some(first) = self.groups.iter().rev().max_by_key(largest) else { return };
        self.shape = first.shape.clone();
        self.tasks = self.groups.iter().map(Group::tasks_in_all).fold(0, u32::saturating_add);
        self.min = self.groups.iter().map(Group::min_in_all).fold(0, u32::saturating_add);
    }

    pub(crate) fn slot_of(&self, task: u32) -> u32 {
        task.checked_rem(self.tasks).unwrap_or(task)
    }

    /// The group of a task, by its place in the list, where the job has groups.
    pub fn group_of(&self, task: u32) -> Option<usize> {
        let slot = self.slot_of(task);
        let mut end = 0;
        self.groups.iter().position(|group| {
            end += group.tasks_in_all();
            slot < end
        })
    }

    /// What a task asks for.
    pub fn shape_of(&self, task: u32) -> &Shape {
        self.group_of(task).map_or(&self.shape, |group| &self.groups[group].shape)
    }

    pub(crate) fn resources_of(&self, task: u32) -> Resources {
        self.shape_of(task).resources
    }

    /// The charge of its minimum, as far as that is known before it has a place.
    pub fn units_min(&self) -> GpuUnits {
        self.parts().map(|(shape, _, min)| shape.gpus.units().times(min.max(1))).sum()
    }

    /// The charge of all that it wants.
    pub fn units_wanted(&self) -> GpuUnits {
        self.parts().map(|(shape, tasks, _)| shape.gpus.units().times(tasks)).sum()
    }

    /// Its tasks by what they ask for: so many are wanted, and so many are the least.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&Shape, u32, u32)> {
        let all_alike = (!self.has_groups()).then_some((&self.shape, self.tasks, self.min));
        let groups = self.groups.iter();
        let of_groups = groups.map(|group| (&group.shape, group.tasks_in_all(), group.min_in_all()));
        all_alike.into_iter().chain(of_groups)
    }

    /// Its copies with what these tasks, by number, make of them.
    pub fn copies(&self, alive: impl Iterator<Item = u32>) -> Vec<GroupCopy> {
        let mut copies = Vec::new();
        let mut first = 0;
        for (at, group) in self.groups.iter().enumerate() {
            for number in 0..group.copies {
                let slots = first..first + group.tasks;
                first = slots.end;
                copies.push(GroupCopy { group: at, number, slots, min: group.min, alive: Vec::new() });
            }
        }
        for slot in alive.map(|task| self.slot_of(task)) {
            let at = copies.partition_point(|copy| copy.slots.end <= slot);
            if let Some(copy) = copies.get_mut(at).filter(|copy| !copy.alive.contains(&slot)) {
                copy.alive.push(slot);
            }
        }
        copies
    }

    /// True when these tasks, by number, are at least its minimum.
    pub fn is_met_by(&self, alive: impl Iterator<Item = u32>) -> bool {
        if !self.has_groups() {
            return alive.count() >= usize::try_from(self.min).unwrap_or(usize::MAX);
        }
        let copies = self.copies(alive);
        (0..self.groups.len()).all(|group| self.short_by(&copies, group) == 0)
    }

    /// True when with these tasks it is below its minimum, or one of its copies is.
    pub(crate) fn is_broken_with(&self, alive: impl Iterator<Item = u32>) -> bool {
        if !self.has_groups() {
            return !self.is_met_by(alive);
        }
        let copies = self.copies(alive);
        let short = (0..self.groups.len()).any(|group| self.short_by(&copies, group) > 0);
        short || copies.iter().any(GroupCopy::is_broken)
    }

    fn short_by(&self, copies: &[GroupCopy], group: usize) -> usize {
        let standing = copies.iter().filter(|copy| copy.group == group && copy.stands()).count();
        usize::try_from(self.groups[group].min_copies).unwrap_or(usize::MAX).saturating_sub(standing)
    }

    /// Tasks of copies that these tasks leave broken: alone they are of no use.
    pub(crate) fn of_broken_copies(&self, alive: &[u32]) -> Vec<u32> {
        let copies = self.copies(alive.iter().copied());
        let broken = |task: &u32| {
            let slot = self.slot_of(*task);
            copies.iter().any(|copy| copy.is_broken() && copy.slots.contains(&slot))
        };
        alive.iter().copied().filter(broken).collect()
    }

    /// What it lacks with these tasks.
    pub fn lacks(&self, alive: impl Iterator<Item = u32>) -> Lacks {
        let copies = self.copies(alive);
        let groups = 0..self.groups.len();
        let repair: Vec<Lack> = groups.filter_map(|group| self.to_repair(&copies, group)).collect();
        if repair.is_empty() { Lacks::Growth(self.to_grow(&copies)) } else { Lacks::Repair(repair) }
    }

    /// The fewest tasks with which enough copies of a group stand again.
    fn to_repair(&self, copies: &[GroupCopy], group: usize) -> Option<Lack> {
        let short = self.short_by(copies, group);
        let mut fallen: Vec<&GroupCopy> =
            copies.iter().filter(|copy| copy.group == group && !copy.stands()).collect();
        fallen.sort_by_key(|copy| (copy.missing().len(), copy.number));
        let slots: Vec<u32> = fallen.into_iter().take(short).flat_map(GroupCopy::missing).collect();
        (!slots.is_empty()).then_some(Lack { group, slots })
    }

    /// One piece of growth for each group: a broken copy made whole, then one more task of a copy that stands, then one
    /// more copy.
    fn to_grow(&self, copies: &[GroupCopy]) -> Vec<Lack> {
        let of_group = |group: usize| {
            let own = || copies.iter().filter(move |copy| copy.group == group);
            let broken = own().find(|copy| copy.is_broken()).map(GroupCopy::missing);
            let standing = || own().filter(|copy| copy.stands());
            let taller = || standing().map(|copy| copy.free(1)).find(|free| !free.is_empty());
            let another = || own().find(|copy| copy.alive.is_empty()).map(GroupCopy::missing);
            let slots = broken.or_else(taller).or_else(another)?;
            Some(Lack { group, slots })
        };
        let mut growth: Vec<Lack> = (0..self.groups.len()).filter_map(of_group).collect();
        // What is broken and not made whole in time lets go of what it has, so it comes first.
        growth.sort_by_key(|lack| !copies.iter().any(|copy| copy.group == lack.group && copy.is_broken()));
        growth
    }

    /// What leaves in one piece beyond its minimum, and what only leaves with all of it. A copy beyond those that must
    /// stand goes whole; of the others single tasks go, the last first.
    pub fn surplus(&self, staying: &[u32], done: &[u32]) -> (Vec<Vec<u32>>, Vec<u32>) {
        let copies = self.copies(staying.iter().chain(done).copied());
        let in_copy = |copy: &GroupCopy| -> Vec<u32> {
            staying.iter().copied().filter(|&task| copy.slots.contains(&self.slot_of(task))).collect()
        };
        let (mut pieces, mut rest) = (Vec::new(), Vec::new());
        for (group, of) in self.groups.iter().enumerate() {
            let mut must_stand = of.min_copies;
            let short = self.short_by(&copies, group) > 0;
            for copy in copies.iter().filter(|copy| copy.group == group) {
                let mut tasks = in_copy(copy);
                // Who waits for repair needs what its broken copies have.
                if (copy.stands() || short) && must_stand > 0 {
                    must_stand -= u32::from(copy.stands());
                    for _ in copy.min..copy.alive_len() {
                        pieces.extend(tasks.pop().map(|task| alloc::vec![task]));
                    }
                    rest.extend(tasks);
                } else if !tasks.is_empty() {
                    pieces.push(tasks);
                }
            }
        }
        rest.sort_unstable();
        (pieces, rest)
    }

    /// Numbers for tasks that take these slots, from `next` on, in order.
    pub(crate) fn numbers_for(&self, slots: &[u32], next: u32) -> Vec<u32> {
        let number = |&slot: &u32| {
            let rounds = next.saturating_sub(slot).div_ceil(self.tasks.max(1));
            slot + rounds * self.tasks
        };
        let mut numbers: Vec<u32> = slots.iter().map(number).collect();
        numbers.sort_unstable();
        numbers
    }
}

#[cfg(test)]
mod tests;
