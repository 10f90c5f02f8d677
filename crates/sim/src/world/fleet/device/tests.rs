//! One device alone: how long operations take, which fail, and what they leave.

use wharf_engine::device::catalogue::mig;
use wharf_engine::units::Uid;

use super::*;

const TASK: TaskRef = TaskRef { uid: Uid(7), task: 0, attempt: 1 };
const SLICE: Slice = Slice { profile: 0, start: 2 };

fn key(seed: u64, mig: &'static Mig) -> Key<'static> {
    Key { seed, node: "n1", gpu: 3, mig: Some(mig) }
}

/// Carries an operation out and says how long it took and whether it came to anything.
fn carried_out(device: &mut Device, key: Key<'_>, operation: Operation) -> (u64, bool) {
    let start = Timestamp(1_000);
    device.begin(operation, Some(TASK));
    device.set_off(key, true, start);
    let at = device.next_timer().unwrap();
    let Some(Progressed::Verifies(until)) = device.go_on(key, at) else { panic!("it is verified") };
    assert_eq!(device.go_on(key, Timestamp(until.0 - 1)), None, "not before its time");
    let done = matches!(device.go_on(key, until).unwrap(), Progressed::Done(_));
    ((until - start).0, done)
}

#[test]
fn every_operation_takes_its_time() {
    let cases = [
        (Operation::Create(SLICE), &mig::H100_SXM, 400..=1_500),
        (Operation::Enter(Mode::Mig), &mig::H100_SXM, 2_000..=6_000),
        (Operation::Enter(Mode::Mig), &mig::A100_80, 8_000..=25_000),
        (Operation::Enter(Mode::Mps), &mig::H100_SXM, 300..=1_000),
        (Operation::Enter(Mode::TimeSlicing), &mig::H100_SXM, 100..=300),
    ];
    for (operation, mig, span) in cases {
        for seed in 0..50 {
            let (took, _) = carried_out(&mut Device::default(), key(seed, mig), operation);
            assert!(span.contains(&took), "{operation:?} took {took}");
        }
    }
    let mut back = Device { mode: Mode::Mig, slices: vec![SLICE], ..Device::default() };
    let (took, _) = carried_out(&mut back, key(1, &mig::H100_SXM), Operation::Destroy(SLICE));
    assert!((200..=600).contains(&took), "{took}");
    let (took, _) = carried_out(&mut back, key(1, &mig::A100_80), Operation::Enter(Mode::Whole));
    assert!((8_000..=25_000).contains(&took), "leaving costs what entering does: {took}");
}

#[test]
fn delays_and_failures_depend_on_seed_device_and_number_alone() {
    let life = |seed| {
        let mut device = Device::default();
        let once = |_| carried_out(&mut device, key(seed, &mig::H100_SXM), Operation::Enter(Mode::Mps));
        (0..2_000).map(once).collect::<Vec<_>>()
    };
    let (one, again, other) = (life(1), life(1), life(2));
    assert_eq!(one, again);
    assert_ne!(one, other);
    let failed = one.iter().filter(|(_, done)| !done).count();
    assert!((1..=12).contains(&failed), "about one in {FAILS_ONE_IN}: {failed} of 2000");
}

#[test]
fn a_failure_leaves_the_device_as_it_was_and_whole_gpus_never_fail() {
    let mut failed = 0;
    for seed in 0..3_000 {
        let mut device = Device::default();
        if !carried_out(&mut device, key(seed, &mig::H100_SXM), Operation::Enter(Mode::Mig)).1 {
            failed += 1;
            assert_eq!(device.mode(), Mode::Whole);
            assert!(matches!(device.change().unwrap().step, Step::Failed { .. }));
        }
        let mut back = Device { mode: Mode::Mps, ..Device::default() };
        assert!(carried_out(&mut back, key(seed, &mig::H100_SXM), Operation::Enter(Mode::Whole)).1);
        assert_eq!(back.mode(), Mode::Whole);
    }
    assert!(failed > 0, "some of 3000 fail");
}

#[test]
fn a_mode_is_changed_only_on_an_empty_gpu_and_by_way_of_the_undivided_one() {
    let key = key(1, &mig::H100_SXM);
    let mut device = Device { mode: Mode::Mig, slices: vec![SLICE], ..Device::default() };
    let mps = Want { mode: Mode::Mps, slice: None };
    assert_eq!(device.next_operation(mps), Some(Operation::Enter(Mode::Whole)));
    device.begin(Operation::Enter(Mode::Whole), Some(TASK));
    device.set_off(key, true, Timestamp(1));
    assert_eq!(device.change().unwrap().step, Step::Waiting, "a slice is still there");
    device.slices.clear();
    device.set_off(key, false, Timestamp(1));
    assert_eq!(device.change().unwrap().step, Step::Waiting, "somebody is still there");
    device.set_off(key, true, Timestamp(1));
    assert!(matches!(device.change().unwrap().step, Step::Changing { .. }));
    assert!(!device.is_ready_for(mps));
}

#[test]
fn a_restart_of_the_machine_keeps_only_the_mode_that_needs_a_reset() {
    for (mig, kept) in [(&mig::A100_80, Mode::Mig), (&mig::H100_SXM, Mode::Whole)] {
        let mut device = Device { mode: Mode::Mig, slices: vec![SLICE], ..Device::default() };
        device.enqueue(TASK);
        device.restart(Some(mig));
        assert_eq!((device.mode(), device.layout().is_empty(), device.queue().len()), (kept, true, 0));
    }
}
