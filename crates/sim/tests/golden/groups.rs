//! A job with groups starts, loses a node, is repaired in part and lets go of the rest, gives up copies and leaves whole; a snapshot
//! in the middle.

use wharf_engine::decide::input::Input;
use wharf_engine::model::group::Group;
use wharf_engine::model::job::{GpuAsk, Shape};
use wharf_engine::model::submission::{GroupSelectors, Submission};
use wharf_engine::state::event::Event;
use wharf_engine::units::Resources;

use super::parts::{FOREVER, anywhere, rules_job, rules_policy, rules_submission, submit};
use super::play::Play;

pub(super) fn story() -> Vec<Event> {
    let mut play = Play::on(83, &["n1", "n2", "n3"], 1);
    play.go(&[Input::ApplyPolicy(rules_policy())], 1);
    let jobs = play.go(&[with_groups(rules_submission(1, "rl", "org/a", (1, 1), FOREVER))], 30);
    play.world.with(|fleet| fleet.fail_node("n2", true));
    play.go(&[], 60);
    play.snapshot();
    // One broken copy was repaired on the third node; the other is not, and lets go.
    play.go(&[], 100);
    play.world.with(|fleet| fleet.heal_node("n2"));
    play.go(&[], 200);
    // A gang of the other tenant takes its guarantee back: a copy leaves.
    play.go(&[rules_job(2, "owner", "org/b", (4, 4), FOREVER)], 400);
    play.go(&[Input::Evict { job: jobs["rl"] }], 100);
    play.written()
}

fn with_groups(mut submission: Submission) -> Input {
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
    anywhere(&mut submission);
    submission.spec.groups = vec![group("head", (1, 1), (1, 1), 0), group("worker", (3, 3), (1, 3), 1)];
    submission.spec.derive_from_groups();
    let (nodes, devices) = (submission.nodes.clone(), submission.devices.clone());
    let open = GroupSelectors { nodes: nodes.clone(), ..GroupSelectors::default() };
    submission.groups = vec![open, GroupSelectors { nodes, devices, any_of_devices: Vec::new() }];
    submit(submission)
}
