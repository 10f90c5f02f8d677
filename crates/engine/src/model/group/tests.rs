//! Copies, slots and numbers of jobs with groups, by small examples.

use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::model::job::GpuAsk;

fn group(name: &str, (min, tasks): (u32, u32), (min_copies, copies): (u32, u32), gpus: u32) -> Group {
    let shape = Shape::of(GpuAsk::Whole(gpus), Resources { cpu_milli: 1000, ..Resources::default() });
    Group { name: name.into(), tasks, min, copies, min_copies, shape }
}

/// A head, and two of three copies of two tasks, of which one each is enough: slots 0, 1-2, 3-4, 5-6.
fn job() -> Spec {
    let groups = vec![group("head", (1, 1), (1, 1), 0), group("worker", (1, 2), (2, 3), 8)];
    let mut spec =
        Spec { tasks: 0, min: 0, groups, ..Spec::of("j", Shape::of(GpuAsk::Whole(0), Resources::default())) };
    spec.derive_from_groups();
    spec
}

fn met(tasks: &[u32]) -> bool {
    job().is_met_by(tasks.iter().copied())
}

#[test]
fn what_is_said_once_follows_from_the_groups() {
    let job = job();
    assert_eq!((job.tasks, job.min), (7, 3));
    assert_eq!(job.shape.gpus, GpuAsk::Whole(8), "the largest task stands for the job");
    assert_eq!((job.units_min(), job.units_wanted()), (GpuUnits::whole(16), GpuUnits::whole(48)));
}

#[test]
fn a_number_tells_its_group_in_every_round() {
    let job = job();
    let groups: Vec<usize> = (0..14).map(|task| job.group_of(task).unwrap()).collect();
    assert_eq!(groups, [0, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1]);
    assert_eq!(job.resources_of(7), job.groups[0].shape.resources);
}

#[test]
fn any_copies_will_do_but_of_every_group() {
    assert!(met(&[0, 1, 3]));
    assert!(met(&[7, 8, 5]), "numbers of a later round count");
    assert!(!met(&[1, 3, 5]), "there is no head");
    assert!(!met(&[0, 1, 2]), "two tasks of one copy are one copy");
    assert!(!met(&[0, 1, 8]), "a slot counts once");
}

#[test]
fn the_cheapest_copies_are_repaired() {
    let mut job = job();
    job.groups[1].min = 2;
    // Slots 1 and 2 stand, 3 is half a copy, 5 and 6 are nothing: one task makes the second copy.
    let lacks = job.lacks([0, 1, 2, 3].into_iter());
    assert_eq!(lacks, Lacks::Repair(vec![Lack { group: 1, slots: vec![4] }]));
    let lacks = job.lacks([1, 2].into_iter());
    let (head, worker) = (Lack { group: 0, slots: vec![0] }, Lack { group: 1, slots: vec![3, 4] });
    assert_eq!(lacks, Lacks::Repair(vec![head, worker]), "both groups at once");
}

#[test]
fn a_broken_copy_grows_before_one_that_stands_and_that_before_a_new_one() {
    let mut job = job();
    job.groups[1].min = 2;
    let grows = |job: &Spec, alive: &[u32]| match job.lacks(alive.iter().copied()) {
        Lacks::Growth(lacks) => lacks.into_iter().map(|lack| lack.slots).collect::<Vec<_>>(),
        Lacks::Repair(_) => panic!("it has its minimum"),
    };
    assert_eq!(grows(&job, &[0, 1, 2, 3, 4, 6]), [[5]], "a copy that lost a task");
    job.groups[1].min = 1;
    assert_eq!(grows(&job, &[0, 1, 3]), [[2]], "one more task of a copy that stands");
    assert_eq!(grows(&job, &[0, 1, 2, 3, 4]), [[5]], "the least of another copy");
    assert!(grows(&job, &[0, 1, 2, 3, 4, 5, 6]).is_empty());
}

#[test]
fn beyond_the_minimum_single_tasks_leave_and_whole_copies() {
    let job = job();
    let (pieces, rest) = job.surplus(&[0, 1, 2, 3, 4, 5, 6], &[]);
    assert_eq!(pieces, [vec![2], vec![4], vec![5, 6]]);
    assert_eq!(rest, [0, 1, 3]);
    let (pieces, rest) = job.surplus(&[1, 2, 3], &[0]);
    assert_eq!((pieces, rest), (vec![vec![2]], vec![1, 3]), "what has finished is not surplus");
    let (pieces, rest) = job.surplus(&[0, 1], &[]);
    assert_eq!((pieces, rest), (vec![], vec![0, 1]), "who waits for repair has nothing to spare");
}

#[test]
fn numbers_are_not_used_twice() {
    let job = job();
    assert_eq!(job.numbers_for(&[3, 1], 0), [1, 3]);
    assert_eq!(job.numbers_for(&[1, 3], 3), [3, 8], "1 was used; 8 is the same slot");
    assert_eq!(job.numbers_for(&[0], 15), [21]);
}

#[test]
fn what_is_left_of_a_broken_copy_is_found() {
    let mut job = job();
    job.groups[1].min = 2;
    assert_eq!(job.of_broken_copies(&[0, 1, 2, 3, 4, 12]), [12], "12 is slot 5");
    assert!(job.is_broken_with([0, 1, 2, 3, 4, 5].into_iter()));
    assert!(job.is_met_by([0, 1, 2, 3, 4, 5].into_iter()));
}
