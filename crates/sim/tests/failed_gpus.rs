//! GPUs that fail while what runs on them goes on: the engine lets go of the work, and what still runs is stopped.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "shared/node.rs"]
mod node;

use wharf_controller::memory::MemoryDisk;
use wharf_controller::turn::{Controller, Recovered, Settings};
use wharf_engine::decide::input::Input;
use wharf_engine::model::job::{GpuAsk, Shape, Spec};
use wharf_engine::model::policy::{Policy, Tenant};
use wharf_engine::model::submission::Submission;
use wharf_engine::state::State;
use wharf_engine::units::{Resources, Timestamp, Uid};
use wharf_sim::world::direct::DirectWorld;
use wharf_sim::world::fleet::SimFleet;

use node::node;

fn policy() -> Input {
    Input::ApplyPolicy(Policy { tenants: vec![Tenant::without_lines("lab")], ..Policy::default() })
}

/// A control plane with one job on all GPUs of `n1`, and the world it is in.
fn running() -> (Controller<MemoryDisk, DirectWorld>, DirectWorld) {
    let nodes = vec![node("n1", 4), node("n2", 4)];
    let world = DirectWorld::new(SimFleet::new(5, nodes, Timestamp(1_000_000)));
    let mut leader = Controller::open(MemoryDisk::new(), world.clone(), Settings::default()).unwrap();
    let spec = Spec {
        payload: r#"{"duration_ms":3600000}"#.into(),
        ..Spec::of("a".to_owned(), Shape::of(GpuAsk::Whole(4), Resources::default()))
    };
    leader.turn(&[policy(), Input::Submit(Box::new(Submission::of(Uid(1), "lab", spec)))]).unwrap();
    leader.turn(&[]).unwrap();
    assert_eq!(places(leader.state()), ["n1"]);
    (leader, world)
}

/// The nodes on which something is held.
fn places(state: &State) -> Vec<String> {
    let tasks = state.ledger.holdings().flat_map(|(_, holding)| &holding.tasks);
    let held = tasks.filter(|task| task.holds());
    held.map(|task| state.fleet.node(task.place.node).unwrap().facts.name.clone()).collect()
}

fn fail(world: &DirectWorld) {
    world.with(|fleet| fleet.change_node("n1", |node| node.node.gpus[2].healthy = false));
}

fn nodes_in_use(world: &DirectWorld) -> Vec<String> {
    world.with(|fleet| fleet.running().map(|(_, node, ..)| node.to_owned()).collect())
}

#[test]
fn a_task_that_runs_on_is_stopped_and_its_job_starts_elsewhere() {
    let (mut leader, world) = running();
    fail(&world);
    for _ in 0..3 {
        leader.turn(&[]).unwrap();
        assert_eq!(leader.state().check_deep(), []);
    }
    assert_eq!(places(leader.state()), ["n2"]);
    assert_eq!(nodes_in_use(&world), ["n2"], "nothing runs on the GPU that has failed");
    assert!(leader.state().ledger.orphans().is_empty());
    let (_, job) = leader.state().jobs.iter().next().unwrap();
    assert_eq!(job.past.failures, 0, "it was not its own failure");
}

#[test]
fn work_that_is_adopted_on_a_failed_gpu_is_lost_like_any_other() {
    let (leader, world) = running();
    drop(leader);
    fail(&world);
    let mut leader =
        Recovered::read(MemoryDisk::new()).unwrap().restore(world.clone(), Settings::default()).unwrap();
    assert_eq!(leader.state().check_deep(), []);
    leader.turn(&[policy()]).unwrap();
    for _ in 0..3 {
        leader.turn(&[]).unwrap();
        assert_eq!(leader.state().check_deep(), []);
    }
    assert_eq!(
        (places(leader.state()), nodes_in_use(&world)),
        (vec!["n2".to_owned()], vec!["n2".to_owned()])
    );
}
