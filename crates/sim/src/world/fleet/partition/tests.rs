//! A fleet with a model of devices, told what to do by hand.

use wharf_controller::disk::Standing;
use wharf_controller::world::NodeReport;
use wharf_engine::device::geometry::Slice;
use wharf_engine::model::action::{Action, StartTask};
use wharf_engine::model::job::{GpuAsk, Shape, Spec};
use wharf_engine::model::observed::{ObservedGpu, ObservedNode, ObservedTask, TaskStatus};
use wharf_engine::model::outcome::{ActionOutcome, ActionRef};
use wharf_engine::model::submission::Submission;
use wharf_engine::units::{GpuMask, GpuUnits, Resources, Uid};

use super::super::Saved;
use super::super::device::Step;
use super::*;

const H100_MIB: u32 = 76_293;

fn node(name: &str, model: &str) -> NodeReport {
    let gpu = ObservedGpu { healthy: true, ..ObservedGpu::default() };
    let (name, model) = (name.to_owned(), model.to_owned());
    let node = ObservedNode { name, up: true, model, gpus: vec![gpu; 2], ..ObservedNode::default() };
    NodeReport { node, labels: BTreeMap::new(), taints: Vec::new() }
}

fn fleet(seed: u64) -> SimFleet {
    let mut fleet = SimFleet::new(1, vec![node("n1", "h100")], Timestamp(1_000)).with_devices(seed);
    fleet.list();
    fleet
}

fn job(number: u128, payload: &str) -> Submission {
    let spec = Spec {
        payload: payload.to_owned(),
        ..Spec::of(format!("j{number}"), Shape::of(GpuAsk::Whole(1), Resources::default()))
    };
    let (nodes, devices) = (String::new(), String::new());
    let tenant = "lab".to_owned();
    Submission { nodes, devices, ..Submission::of(Uid(number), tenant, spec) }
}

fn place(gpu: usize, enforced: Mode, parts: u64, slice: Option<(u8, u8)>) -> StartTask {
    let mut gpus = GpuMask::default();
    gpus.insert(gpu);
    let slice = slice.map(|(profile, start)| Slice { profile, start });
    StartTask {
        task: 0,
        node: "n1".into(),
        gpus,
        units_each: GpuUnits::from_parts(parts),
        enforced,
        slice,
        memory_mib: Some(H100_MIB),
    }
}

const HOUR: &str = r#"{"duration_ms":3600000}"#;

fn start(fleet: &mut SimFleet, number: u128, place: StartTask) {
    start_with(fleet, number, place, HOUR);
}

fn start_with(fleet: &mut SimFleet, number: u128, place: StartTask, payload: &str) {
    let job = Box::new(job(number, payload));
    assert!(fleet.act(Standing { term: 1, next: 0 }, &Action::Start { attempt: 1, job, tasks: vec![place] }));
}

fn stop(fleet: &mut SimFleet, number: u128) {
    let task = TaskRef { uid: Uid(number), task: 0, attempt: 1 };
    fleet.act(Standing { term: 1, next: 0 }, &Action::Stop { tasks: vec![task], deadline: Timestamp(0) });
}

fn seen(fleet: &mut SimFleet, number: u128) -> ObservedTask {
    let listed = fleet.list().report.tasks;
    listed.into_iter().find(|task| task.task.uid == Uid(number)).expect("it is known")
}

fn runs(fleet: &mut SimFleet, number: u128) -> bool {
    let seen = seen(fleet, number);
    seen.status == TaskStatus::Running && seen.since.is_some()
}

fn exit(fleet: &mut SimFleet, number: u128) -> Option<Exit> {
    match seen(fleet, number).status {
        TaskStatus::Ended { exit, .. } => Some(exit),
        TaskStatus::Running | TaskStatus::Saved { .. } | TaskStatus::SaveFailed => None,
    }
}

/// True when the world answered that it does not start the task.
fn is_refused(fleet: &mut SimFleet, number: u128) -> bool {
    let task = TaskRef { uid: Uid(number), task: 0, attempt: 1 };
    let answers = fleet.list().report.answers;
    let own = answers.into_iter().filter(|answer| answer.about == ActionRef::Start(task));
    own.into_iter().any(|answer| matches!(answer.outcome, ActionOutcome::Refused { .. }))
}

fn pass(fleet: &mut SimFleet, millis: u64) {
    fleet.advance(Timestamp(fleet.now().0 + millis));
}

fn slice(number: u128, profile: u8, start_at: u8, fleet: &mut SimFleet) {
    start(fleet, number, place(0, Mode::Mig, 375, Some((profile, start_at))));
}

#[test]
fn a_whole_gpu_in_whole_mode_runs_at_once() {
    let mut fleet = fleet(1);
    start(&mut fleet, 1, place(0, Mode::Whole, 3000, None));
    assert_eq!(seen(&mut fleet, 1).since, Some(Timestamp(1_000)));
    assert_eq!(fleet.devices("n1")[0].change(), None);
}

#[test]
fn a_slice_waits_for_the_mode_and_for_itself_and_is_cleared_away() {
    let mut fleet = fleet(1);
    slice(1, 0, 0, &mut fleet);
    assert!(!runs(&mut fleet, 1));
    assert!(fleet.changes().is_none(), "while it is made ready there is nothing to tell");
    pass(&mut fleet, 1_900);
    assert!(!runs(&mut fleet, 1), "a mode takes at least two seconds");
    pass(&mut fleet, 10_000);
    assert!(runs(&mut fleet, 1));
    let since = seen(&mut fleet, 1).since.unwrap();
    assert!((since - Timestamp(1_000)).0 >= 2_400, "mode and slice: {since:?}");
    assert_eq!(
        fleet.devices("n1")[0].layout(),
        wharf_engine::device::geometry::Layout::default().with(Slice { profile: 0, start: 0 })
    );
    stop(&mut fleet, 1);
    pass(&mut fleet, 700);
    let device = &fleet.devices("n1")[0];
    assert!(device.layout().is_empty());
    assert_eq!(device.mode(), Mode::Mig, "the mode stays until somebody needs another");
}

#[test]
fn the_world_refuses_what_no_driver_would_do() {
    let mut fleet = fleet(1);
    slice(1, 4, 4, &mut fleet);
    for (number, profile, start_at, why) in [
        (2, 0, 5, "it overlaps"),
        (3, 0, 7, "1g may not begin there"),
        (4, 9, 0, "no such profile"),
        (5, 3, 1, "2g begins at even slots"),
    ] {
        slice(number, profile, start_at, &mut fleet);
        assert!(is_refused(&mut fleet, number), "{why}");
    }
    start(&mut fleet, 6, place(0, Mode::Mps, 300, None));
    assert!(is_refused(&mut fleet, 6), "undivided beside a slice");
    start(&mut fleet, 7, place(1, Mode::Mps, 300, None));
    start(&mut fleet, 8, place(1, Mode::TimeSlicing, 300, None));
    assert!(is_refused(&mut fleet, 8), "turns beside MPS");
    start(&mut fleet, 9, place(1, Mode::Mig, 375, Some((0, 0))));
    assert!(is_refused(&mut fleet, 9), "a slice beside undivided use");
    start(&mut fleet, 10, place(1, Mode::Mps, 2_700, None));
    assert!(!is_refused(&mut fleet, 10), "what is left of it");
}

#[test]
fn without_a_model_of_devices_nothing_takes_time_and_the_same_is_refused() {
    let mut fleet = SimFleet::new(1, vec![node("n1", "h100")], Timestamp(1_000));
    slice(1, 4, 4, &mut fleet);
    slice(2, 0, 5, &mut fleet);
    assert!(runs(&mut fleet, 1));
    assert!(is_refused(&mut fleet, 2));
    assert!(fleet.list().nodes.iter().all(|node| node.node.gpus.iter().all(|gpu| gpu.mode == Mode::Whole)));
}

#[test]
fn shares_that_come_and_go_make_one_report_of_the_mode() {
    let mut fleet = fleet(1);
    let mut told = 0;
    for number in 1..20 {
        start(&mut fleet, number, place(0, Mode::Mps, 300, None));
        pass(&mut fleet, 2_000);
        stop(&mut fleet, number);
        told += fleet.changes().map_or(0, |report| report.nodes.len());
    }
    assert_eq!(told, 1);
    assert_eq!(fleet.devices("n1")[0].mode(), Mode::Mps);
}

#[test]
fn whoever_is_stopped_while_it_waits_leaves_nothing_behind() {
    for after in (0..9_000).step_by(150) {
        let mut fleet = fleet(1);
        slice(1, 0, 0, &mut fleet);
        pass(&mut fleet, after);
        stop(&mut fleet, 1);
        assert_eq!(exit(&mut fleet, 1), Some(Exit::Stopped));
        pass(&mut fleet, 20_000);
        let device = &fleet.devices("n1")[0];
        assert!(device.layout().is_empty() && device.queue().is_empty() && !device.is_changing());
    }
}

#[test]
fn a_failed_operation_loses_the_task_and_leaves_the_device_as_it_was() {
    let mut lost = 0;
    for seed in 0..1_500 {
        let mut fleet = fleet(seed);
        start(&mut fleet, 1, place(0, Mode::Mps, 300, None));
        pass(&mut fleet, 2_000);
        if exit(&mut fleet, 1) == Some(Exit::Lost) {
            lost += 1;
            let device = &fleet.devices("n1")[0];
            assert_eq!(device.mode(), Mode::Whole);
            assert!(matches!(device.change().unwrap().step, Step::Failed { .. }));
            start(&mut fleet, 2, place(0, Mode::Whole, 3000, None));
            assert!(runs(&mut fleet, 2));
        }
    }
    assert!((1..15).contains(&lost), "{lost} of 1500");
}

fn saved(fleet: &SimFleet) -> Saved {
    let json = serde_json::to_string(&fleet.partition.devices).unwrap();
    Saved {
        id: fleet.id,
        generation: fleet.generation,
        obeyed: fleet.obeyed,
        remembered: BTreeMap::new(),
        now: fleet.now,
        nodes: fleet.nodes.values().cloned().collect(),
        tasks: fleet.tasks.clone(),
        progress: fleet.progress.clone(),
        devices: serde_json::from_str(&json).unwrap(),
        devices_seed: fleet.partition.seed,
    }
}

#[test]
fn a_process_that_dies_in_the_middle_of_an_operation_changes_nothing() {
    let undisturbed = |restart_at: Option<u64>| {
        let mut fleet = fleet(3);
        slice(1, 0, 0, &mut fleet);
        slice(2, 4, 4, &mut fleet);
        let at = restart_at.unwrap_or(0);
        pass(&mut fleet, at);
        if restart_at.is_some() {
            fleet = SimFleet::restore(saved(&fleet));
        }
        pass(&mut fleet, 30_000 - at);
        let since = [1, 2].map(|number| seen(&mut fleet, number).since);
        (since, fleet.devices("n1").to_vec())
    };
    let expected = undisturbed(None);
    assert!(expected.0.iter().all(Option::is_some));
    for at in (0..9_000).step_by(250) {
        assert_eq!(undisturbed(Some(at)), expected, "restarted after {at} ms");
    }
}

#[test]
fn a_file_without_devices_has_them_as_what_runs_needs_them() {
    let mut fleet = SimFleet::new(1, vec![node("n1", "h100")], Timestamp(1_000));
    slice(1, 4, 4, &mut fleet);
    start(&mut fleet, 2, place(1, Mode::Mps, 300, None));
    let old = Saved { devices: BTreeMap::new(), devices_seed: Some(9), ..saved(&fleet) };
    let mut fleet = SimFleet::restore(old);
    let [first, second] = fleet.devices("n1") else { panic!("two") };
    assert_eq!((first.mode(), second.mode()), (Mode::Mig, Mode::Mps));
    assert_eq!(first.layout().slices().count(), 1);
    start(&mut fleet, 3, place(1, Mode::Mps, 300, None));
    assert!(runs(&mut fleet, 3), "the daemon is there");
}

#[test]
fn a_node_that_dies_comes_back_undivided() {
    let mut fleet = fleet(1);
    slice(1, 0, 0, &mut fleet);
    pass(&mut fleet, 10_000);
    slice(2, 0, 1, &mut fleet);
    fleet.fail_node("n1", true);
    pass(&mut fleet, 10_000);
    assert_eq!((exit(&mut fleet, 1), exit(&mut fleet, 2)), (Some(Exit::Lost), Some(Exit::Lost)));
    fleet.heal_node("n1");
    let device = &fleet.devices("n1")[0];
    assert!(device.layout().is_empty() && device.mode() == Mode::Whole && !device.is_changing());
    start(&mut fleet, 3, place(0, Mode::Whole, 3000, None));
    assert!(runs(&mut fleet, 3));
}

#[test]
fn a_gpu_in_another_mode_is_given_back_before_whole_work_runs() {
    let mut fleet = fleet(1);
    slice(1, 0, 0, &mut fleet);
    pass(&mut fleet, 10_000);
    stop(&mut fleet, 1);
    let mut both = place(0, Mode::Whole, 3000, None);
    both.gpus.insert(1);
    start(&mut fleet, 2, both);
    assert!(!runs(&mut fleet, 2));
    pass(&mut fleet, 10_000);
    assert!(runs(&mut fleet, 2));
    let listed = fleet.list();
    assert!(listed.nodes[0].node.gpus.iter().all(|gpu| gpu.mode == Mode::Whole));
}

#[test]
fn who_uses_more_memory_than_it_may_is_killed_and_counted() {
    let mut fleet = fleet(1);
    let greedy = r#"{"duration_ms":3600000,"memory_mib":90000}"#;
    start_with(&mut fleet, 1, place(0, Mode::Whole, 3000, None), greedy);
    let modest = r#"{"duration_ms":3600000,"memory_mib":5000}"#;
    start_with(&mut fleet, 2, place(1, Mode::Whole, 3000, None), modest);
    let samples = fleet.samples();
    let used: Vec<_> = samples.gpus["n1"].iter().map(|gpu| gpu.memory_used_mib.unwrap()).collect();
    assert_eq!(used, [H100_MIB, 5_000]);
    pass(&mut fleet, 1_900);
    assert!(runs(&mut fleet, 1));
    pass(&mut fleet, 5_000);
    assert_eq!(exit(&mut fleet, 1), Some(Exit::Failed));
    assert!(runs(&mut fleet, 2));
    assert_eq!(fleet.samples().ooms.unwrap(), BTreeMap::from([(Uid(1), 1)]));
    assert_eq!(SimFleet::restore(saved(&fleet)).samples().ooms.unwrap()[&Uid(1)], 1);
}

#[test]
fn what_cannot_be_told_apart_is_unknown_and_not_zero() {
    let mut fleet = fleet(1);
    start(&mut fleet, 1, place(0, Mode::Mps, 900, None));
    pass(&mut fleet, 2_000);
    let task = |number| TaskRef { uid: Uid(number), task: 0, attempt: 1 };
    assert!(fleet.samples().tasks[&task(1)].sm_active_milli.is_some(), "alone on its GPU");
    start(&mut fleet, 2, place(0, Mode::Mps, 900, None));
    let samples = fleet.samples();
    assert_eq!(samples.tasks[&task(1)].sm_active_milli, None);
    assert!(samples.tasks[&task(1)].memory_used_mib.unwrap() > 0);
    assert!(samples.gpus["n1"][0].sm_active_milli.unwrap() > 0);
    fleet.fail_node("n1", false);
    let samples = fleet.samples();
    assert!(samples.tasks.is_empty());
    assert_eq!(samples.gpus["n1"][0], wharf_controller::world::Sample::default());
}

/// What telemetry is taken of: a second fleet that only learns what changed.
#[test]
fn a_mirror_that_learns_what_changed_shows_what_the_fleet_does() {
    let mut fleet = fleet(1);
    let mut mirror = fleet.clone();
    let mut agree = |fleet: &mut SimFleet| {
        let changed = fleet.take_unsaved();
        mirror.mirror(fleet.show(&changed));
        assert_eq!(mirror.samples(), fleet.samples());
    };
    start(&mut fleet, 1, place(0, Mode::Mps, 900, None));
    agree(&mut fleet);
    pass(&mut fleet, 2_000);
    agree(&mut fleet);
    start(&mut fleet, 2, place(0, Mode::Mps, 900, None));
    agree(&mut fleet);
    let greedy = r#"{"duration_ms":3600000,"memory_mib":90000}"#;
    start_with(&mut fleet, 3, place(1, Mode::Whole, 3000, None), greedy);
    pass(&mut fleet, 60_000);
    assert_eq!(fleet.samples().ooms.unwrap().len(), 1, "one is killed, and that is seen");
    agree(&mut fleet);
    stop(&mut fleet, 1);
    agree(&mut fleet);
    fleet.change_node("n1", |node| node.node.gpus.truncate(1));
    fleet.add_node(node("n2", "h100"));
    agree(&mut fleet);
    fleet.fail_node("n1", true);
    agree(&mut fleet);
    fleet.remove_node("n1");
    agree(&mut fleet);
    assert_eq!(fleet.samples().gpus.keys().collect::<Vec<_>>(), ["n2"]);
}
