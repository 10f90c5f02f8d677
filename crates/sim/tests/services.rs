//! How soon a service has what it wants: a burst of replicas on a full fleet is one decision.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use wharf_controller::memory::MemoryDisk;
use wharf_controller::turn::{Controller, Settings};
use wharf_controller::world::NodeReport;
use wharf_engine::decide::input::{Input, Replacement};
use wharf_engine::model::job::{Checkpoint, Class, GpuAsk, Service, Shape, Spec};
use wharf_engine::model::observed::{ObservedGpu, ObservedNode};
use wharf_engine::model::policy::{Amount, GpuQuota, Policy, Quota, Tenant};
use wharf_engine::model::submission::Submission;
use wharf_engine::state::State;
use wharf_engine::state::holding::TaskPhase;
use wharf_engine::units::{GpuUnits, JobId, Millis, Resources, Timestamp, Uid};
use wharf_sim::world::direct::DirectWorld;
use wharf_sim::world::fleet::SimFleet;

const NODES: u32 = 8;
const GPUS: u32 = 8;
/// What the service is promised; it begins with one replica.
const PROMISED: u32 = 48;

fn node(at: u32) -> NodeReport {
    let gpu = ObservedGpu { healthy: true, island: at, ..ObservedGpu::default() };
    let node = ObservedNode {
        name: format!("n{at}"),
        up: true,
        model: "h100".into(),
        gpus: (0..GPUS).map(|_| gpu).collect(),
        capacity: Resources { cpu_milli: 64_000, memory: 1 << 40, pods: 100, ..Resources::default() },
        ..ObservedNode::default()
    };
    NodeReport { node, labels: std::collections::BTreeMap::default(), taints: Vec::new() }
}

fn job(uid: u128, tenant: &str, class: Class) -> Submission {
    let service = (class == Class::Inference).then_some(Service { max: PROMISED, replicas: 1 });
    let resources = Resources { cpu_milli: 500, pods: 1, ..Resources::default() };
    let spec = Spec {
        class,
        service,
        checkpoint: Some(Checkpoint {
            every: Millis::from_secs(600),
            grace: Millis::from_secs(30),
            on_request: false,
        }),
        payload: r#"{"duration_ms":360000000,"checkpoint_ms":1000}"#.into(),
        ..Spec::of(format!("j{uid}"), Shape::of(GpuAsk::Whole(1), resources))
    };
    Submission::of(Uid(uid), tenant, spec)
}

fn policy() -> Policy {
    let tenant = |path: &str, gpus: u32| {
        let guaranteed = Amount::Of(GpuUnits::WHOLE.times(gpus).parts());
        let gpus = GpuQuota::Any(Quota { guaranteed, limit: Amount::Unlimited });
        Tenant { gpus, ..Tenant::without_lines(path) }
    };
    Policy { tenants: vec![tenant("serving", PROMISED), tenant("train", 0)], ..Policy::default() }
}

fn running(state: &State, job: JobId) -> usize {
    let tasks = state.ledger.holding(job).into_iter().flat_map(|holding| &holding.tasks);
    tasks.filter(|task| task.phase == TaskPhase::Running).count()
}

#[test]
fn a_burst_of_replicas_asks_everybody_in_its_way_in_one_decision() {
    let world = DirectWorld::new(SimFleet::new(7, (0..NODES).map(node).collect(), Timestamp(1_000_000)));
    let mut leader = Controller::open(MemoryDisk::new(), world.clone(), Settings::default()).expect("opens");
    leader.turn(&[Input::ApplyPolicy(policy())]).expect("a turn");
    leader.turn(&[Input::Submit(Box::new(job(0, "serving", Class::Inference)))]).expect("a turn");
    let fill =
        (1..u128::from(NODES * GPUS)).map(|uid| Input::Submit(Box::new(job(uid, "train", Class::Batch))));
    leader.turn(&fill.collect::<Vec<Input>>()).expect("a turn");
    world.with(|fleet| fleet.advance(Timestamp(fleet.now().0 + 600_000)));
    leader.turn(&[]).expect("a turn");
    let service = leader.state().jobs.with_uid(Uid(0)).expect("it lives");
    assert_eq!(running(leader.state(), service), 1);

    let replies = leader.turn(&[Input::Scale { job: service, tasks: PROMISED }]).expect("a turn");
    assert!(replies.iter().all(Result::is_ok), "{replies:?}");
    let missing = usize::try_from(PROMISED - 1).expect("a count fits");
    let asked = |state: &State| {
        let tasks = state.ledger.holdings().flat_map(|(_, holding)| &holding.tasks);
        tasks.filter(|task| matches!(task.phase, TaskPhase::Asked { .. })).count()
    };
    assert_eq!(asked(leader.state()), missing, "all of them in the turn that scales");
    let promised = leader.state().earmarks.of(service).map_or(0, |promise| promise.tasks.len());
    assert_eq!(promised, missing, "and all their places are set aside");

    // A second for the checkpoints, then the turns until every replica runs.
    world.with(|fleet| fleet.advance(Timestamp(fleet.now().0 + 1000)));
    let mut turns = 0;
    while running(leader.state(), service) <= missing {
        turns += 1;
        assert!(turns <= 4, "saved and stopped, gone and started, running: {turns} turns");
        leader.turn(&[]).expect("a turn");
        world.with(|fleet| fleet.advance(Timestamp(fleet.now().0 + 100)));
    }
}

/// Random lives without faults on a full fleet: whatever is scaled or replaced, and whoever wants its places, a service that
/// has had its minimum never runs fewer replicas, within its guarantee.
#[test]
fn a_service_within_its_guarantee_never_runs_fewer_than_its_minimum() {
    let mut replaced = 0;
    for seed in 0..40 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let world = DirectWorld::new(SimFleet::new(seed, (0..2).map(node).collect(), Timestamp(1_000_000)));
        let mut leader =
            Controller::open(MemoryDisk::new(), world.clone(), Settings::default()).expect("opens");
        let mut policy = policy();
        for (tenant, gpus) in policy.tenants.iter_mut().zip([8, 4]) {
            let guaranteed = Amount::Of(GpuUnits::WHOLE.times(gpus).parts());
            tenant.gpus = GpuQuota::Any(Quota { guaranteed, limit: Amount::Unlimited });
        }
        leader.turn(&[Input::ApplyPolicy(policy)]).expect("a turn");
        let mut service = job(0, "serving", Class::Inference);
        (service.spec.tasks, service.spec.min) = (4, random.random_range(1..=4));
        service.spec.service = Some(Service { max: 8, replicas: 4 });
        let min = usize::try_from(service.spec.min).expect("a count fits");
        leader.turn(&[Input::Submit(Box::new(service))]).expect("a turn");
        let id = leader.state().jobs.with_uid(Uid(0)).expect("it lives");
        let mut had = false;
        for step in 1..200u128 {
            let input = match random.random_range(0..10) {
                0..2 => Some(Input::Scale { job: id, tasks: random.random_range(1..=8) }),
                2 => {
                    let how = Replacement {
                        surge: random.random_range(0..3),
                        unavailable: random.random_range(0..3),
                    };
                    Some(Input::Replace { job: id, how: random.random_bool(0.9).then_some(how) })
                }
                3..7 => Some(Input::Submit(Box::new(job(step, "train", Class::Batch)))),
                _ => None,
            };
            leader.turn(input.as_slice()).expect("a turn");
            replaced += u32::from(leader.state().jobs.get(id).is_some_and(|job| job.rolling.is_some()));
            let now = world.with(|fleet| fleet.now());
            let until = Timestamp(now.0 + random.random_range(500..60_000));
            loop {
                let run = running(leader.state(), id);
                had |= run >= min;
                assert!(!had || run >= min, "seed {seed}, step {step}: {run} of at least {min} run");
                let Some(wake) = leader.next_wake().filter(|&wake| wake < until) else { break };
                world.with(|fleet| fleet.advance(wake));
                leader.turn(&[]).expect("a turn");
            }
            world.with(|fleet| fleet.advance(until));
        }
        assert!(had, "seed {seed}: it never ran");
        assert_eq!(leader.state().check_deep(), []);
    }
    assert!(replaced > 100, "replaced in {replaced} turns only");
}
