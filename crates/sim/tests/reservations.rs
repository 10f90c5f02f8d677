//! Promised starts: a gang of the whole fleet under an endless stream of small jobs starts within a bound, and never
//! without a promise; no promised start moves later unless a name is given for it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use wharf_controller::memory::MemoryDisk;
use wharf_controller::turn::{Controller, Settings};
use wharf_controller::world::NodeReport;
use wharf_engine::input::{Input, ObservedGpu, ObservedNode, Submission};
use wharf_engine::job::{Checkpoint, Class, GpuAsk, Shape, Spec, Topology};
use wharf_engine::policy::{Amount, GpuQuota, Policy, Quota, Tenant};
use wharf_engine::units::{JobId, Millis, Resources, TenantId, Timestamp, TrustId, Uid};
use wharf_sim::direct::DirectWorld;
use wharf_sim::fleet::SimFleet;

const NODES: u32 = 64;
const BEGIN: Timestamp = Timestamp(1_000_000);
/// No small job runs longer.
const LIMIT_MAX_MIN: u64 = 60;
/// The longest that a small job takes to leave: a minute to save, and ten seconds.
const LEAVE: Millis = Millis::from_secs(70);

type Leader = Controller<MemoryDisk, DirectWorld>;

fn node(at: u32) -> NodeReport {
    let gpu = ObservedGpu { island: at, healthy: true, ..ObservedGpu::default() };
    let node = ObservedNode {
        name: format!("n{at}"),
        up: true,
        model: "h100".into(),
        gpus: vec![gpu; 8],
        capacity: Resources { cpu_milli: 128_000, memory: 1 << 40, pods: 100, ..Resources::default() },
        ..ObservedNode::default()
    };
    NodeReport { node, labels: BTreeMap::new(), taints: Vec::new() }
}

fn policy(reservations_max: u32) -> Policy {
    let all = Amount::Of(u64::from(NODES) * 8 * 3000);
    let tenant = Tenant {
        gpus: GpuQuota::Any(Quota { guaranteed: all, limit: Amount::Unlimited }),
        ..Tenant::without_lines("lab")
    };
    let tenants = vec![tenant];
    Policy { digest: format!("k{reservations_max}"), tenants, reservations_max, ..Policy::default() }
}

struct Wanted {
    number: u128,
    gpus: u32,
    tasks: u32,
    limit: Option<Millis>,
    runs: Millis,
    checkpoint: Option<Checkpoint>,
    preemptible: bool,
}

fn submission(wanted: &Wanted) -> Input {
    let Wanted { number, gpus, tasks, limit, runs, checkpoint, preemptible } = *wanted;
    let spec = Spec {
        name: format!("j{number}"),
        tenant: TenantId(0),
        class: Class::Batch,
        priority: 0,
        tasks,
        min: tasks,
        shape: Shape::of(GpuAsk::Whole(gpus), Resources { pods: 1, ..Resources::default() }),
        groups: Vec::new(),
        topology: Topology::default(),
        preemptible,
        trust: TrustId(0),
        time_limit: limit,
        estimate: None,
        service: None,
        checkpoint,
        booking: None,
        retries: 0,
        labels: Vec::new(),
        payload: format!(r#"{{"duration_ms":{}}}"#, runs.0),
    };
    Input::Submit(Box::new(Submission {
        uid: Uid(number),
        tenant: "lab".into(),
        trust: None,
        nodes: String::new(),
        devices: String::new(),
        any_of_devices: Vec::new(),
        groups: Vec::new(),
        gang_within: None,
        booking: None,
        spec,
    }))
}

/// A small job: most say how long they run at most, some that come later do not, but may be asked to leave.
fn small(random: &mut ChaCha8Rng, number: u128, all_limited: bool) -> Wanted {
    let limit_min = random.random_range(5..=LIMIT_MAX_MIN);
    let limited = all_limited || random.random_bool(0.7);
    let preemptible = !limited || random.random_bool(0.5);
    Wanted {
        number,
        gpus: random.random_range(1..=8),
        tasks: 1,
        limit: limited.then(|| Millis::from_secs(limit_min * 60)),
        runs: Millis::from_secs(random.random_range(60..=limit_min * 60)),
        checkpoint: preemptible.then_some(Checkpoint {
            every: Millis::from_secs(600),
            grace: Millis::from_secs(60),
            on_request: false,
        }),
        preemptible,
    }
}

/// Plays a fleet full of small jobs, with more at every turn, until the gang starts or the time is over. Returns when it
/// started after its submission.
fn play(seed: u64, reservations_max: u32, patience: Millis) -> Option<Millis> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let world = DirectWorld::new(SimFleet::new(seed, (0..NODES).map(node).collect(), BEGIN));
    let mut leader = Controller::open(MemoryDisk::new(), world.clone(), Settings::default()).unwrap();
    leader.turn(&[Input::ApplyPolicy(policy(reservations_max))]).unwrap();
    let mut number = 0u128;
    let mut fill = |leader: &mut Leader, all_limited: bool| {
        let mut inputs = Vec::new();
        while leader.state().jobs.waiting_len() + u32::try_from(inputs.len()).unwrap() < 24 {
            number += 1;
            inputs.push(submission(&small(&mut random, number, all_limited)));
        }
        inputs
    };
    // The fleet is full, of jobs in the middle of their lives.
    for _ in 0..30 {
        let inputs = fill(&mut leader, true);
        world.with(|fleet| fleet.advance(Timestamp(fleet.now().0 + 60_000)));
        leader.turn(&inputs).unwrap();
    }
    let gang = Wanted {
        number: 1_000_000,
        gpus: 8,
        tasks: NODES,
        limit: Some(Millis::from_secs(600)),
        runs: Millis::from_secs(300),
        checkpoint: None,
        preemptible: true,
    };
    leader.turn(&[submission(&gang)]).unwrap();
    let gang = leader.state().jobs.with_uid(Uid(1_000_000)).unwrap();
    let asked_at = world.with(|fleet| fleet.now());
    wait_for(&mut leader, &world, gang, asked_at, patience, &mut |leader| fill(leader, false))
}

fn wait_for(
    leader: &mut Leader,
    world: &DirectWorld,
    gang: JobId,
    asked_at: Timestamp,
    patience: Millis,
    fill: &mut dyn FnMut(&mut Leader) -> Vec<Input>,
) -> Option<Millis> {
    let mut promised: Option<Timestamp> = None;
    let mut missed = 0;
    loop {
        let now = world.with(|fleet| fleet.now());
        if leader.state().ledger.holding(gang).is_some() {
            assert!(promised.is_none_or(|start| now <= start), "it started later than was promised");
            return Some(now - asked_at);
        }
        if now > asked_at + patience {
            return None;
        }
        let next = leader.next_wake().map_or(now.0 + 60_000, |at| at.0.min(now.0 + 60_000));
        world.with(|fleet| fleet.advance(Timestamp(next.max(now.0 + 1))));
        let inputs = fill(leader);
        leader.turn(&inputs).unwrap();
        let reservations = &leader.state().reservations;
        let given_up = reservations.missed(gang).len();
        if let Some(start) = reservations.of(gang).map(|of| of.start) {
            let later = promised.is_some_and(|before| start > before);
            assert!(!later || given_up > missed, "a promised start moved later without a name for it");
            promised = Some(start);
        }
        missed = given_up;
    }
}

fn seeds() -> u64 {
    std::env::var("WHARF_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}

#[test]
fn a_gang_of_the_whole_fleet_starts_within_the_bound() {
    let bound = Millis(LIMIT_MAX_MIN * 60_000 + LEAVE.0 + 2_000);
    for seed in 0..seeds() {
        let waited = play(seed, 4, Millis(3 * bound.0));
        assert!(waited.is_some_and(|waited| waited <= bound), "seed {seed}: {waited:?}, bound {bound:?}");
    }
}

#[test]
fn without_promises_it_starves() {
    for seed in 0..seeds().min(3) {
        assert_eq!(
            play(seed, 0, Millis(6 * 3_600_000)),
            None,
            "seed {seed}: the stream is too thin to show anything"
        );
    }
}
