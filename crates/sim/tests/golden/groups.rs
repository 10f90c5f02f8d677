//! A job with groups starts, loses a node, is repaired in part and lets go of the rest, gives up copies and leaves whole; a snapshot
//! in the middle.

use wharf_controller::codec;
use wharf_controller::disk::Disk;
use wharf_controller::memory::MemoryDisk;
use wharf_controller::turn::{Controller, Settings};
use wharf_engine::event::Event;
use wharf_engine::group::Group;
use wharf_engine::input::{GroupSelectors, Input};
use wharf_engine::job::{GpuAsk, Shape, Topology};
use wharf_engine::units::{Resources, Timestamp};
use wharf_sim::direct::DirectWorld;
use wharf_sim::fleet::SimFleet;

use super::{node, rules_job, rules_policy};

pub(super) fn story() -> Vec<Event> {
    let nodes = ["n1", "n2", "n3"].map(node);
    let world = DirectWorld::new(SimFleet::new(83, nodes.into(), Timestamp(1_000_000)));
    let mut disk = MemoryDisk::new();
    let mut leader = Controller::open(disk.clone(), world.clone(), Settings::default()).unwrap();
    let mut play = |inputs: &[Input], wait_s: u64| {
        for reply in leader.turn(inputs).unwrap() {
            reply.unwrap();
        }
        for _ in 0..wait_s {
            world.with(|fleet| fleet.advance(Timestamp(fleet.now().0 + 1000)));
            leader.turn(&[]).unwrap();
        }
        (leader.state().snapshot(), leader.state().index())
    };
    let forever = r#"{"duration_ms":360000000,"checkpoint_ms":5000}"#;
    play(&[Input::ApplyPolicy(rules_policy())], 1);
    play(&[with_groups(rules_job(1, "rl", "org/a", (1, 1), forever))], 30);
    world.with(|fleet| fleet.fail_node("n2", true));
    let (mut events, first_life) = play(&[], 60);
    // One broken copy was repaired on the third node; the other is not, and lets go.
    play(&[], 100);
    world.with(|fleet| fleet.heal_node("n2"));
    play(&[], 200);
    // A gang of the other tenant takes its guarantee back: a copy leaves.
    play(&[rules_job(2, "owner", "org/b", (4, 4), forever)], 400);
    let rl = leader_job(&events);
    play(&[Input::Evict { job: rl, by: "golden".into() }], 100);
    disk.read(0, &mut |index, record| {
        if index >= first_life {
            events.push(codec::decode(&record, "story")?);
        }
        Ok(())
    })
    .unwrap();
    events
}

fn leader_job(events: &[Event]) -> wharf_engine::units::JobId {
    use wharf_engine::event::JobsEvent;
    let queued = events.iter().find_map(|event| match event {
        Event::Jobs(JobsEvent::Queued { job, .. }) => Some(*job),
        _ => None,
    });
    queued.unwrap()
}

fn with_groups(input: Input) -> Input {
    let Input::Submit(mut submission) = input else { unreachable!("a job is submitted") };
    let group = |name: &str, (min, tasks), (min_copies, copies), gpus| {
        let resources = Resources { cpu_milli: 2000, pods: 1, ..Resources::default() };
        Group {
            name: String::from(name),
            tasks,
            min,
            copies,
            min_copies,
            shape: Shape::of(GpuAsk::Whole(gpus), resources),
        }
    };
    submission.spec.topology = Topology::default();
    submission.gang_within = None;
    submission.spec.groups = vec![group("head", (1, 1), (1, 1), 0), group("worker", (3, 3), (1, 3), 1)];
    submission.spec.derive_from_groups();
    let (nodes, devices) = (submission.nodes.clone(), submission.devices.clone());
    let open = GroupSelectors { nodes: nodes.clone(), ..GroupSelectors::default() };
    submission.groups = vec![open, GroupSelectors { nodes, devices, any_of_devices: Vec::new() }];
    Input::Submit(submission)
}
