//! Places by worth against the plainest code: every node, every GPU, values worked out from the prices alone, on random
//! fleets that fill up and empty again.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use wharf_engine::decide::input::Input;
use wharf_engine::model::job::{GpuAsk, Shape, Spec};
use wharf_engine::model::observed::{ObservedGpu, ObservedNode, Report};
use wharf_engine::model::placement::Placement;
use wharf_engine::model::policy::{GpuQuota, Policy, Preemption, Quota, Tenant};
use wharf_engine::model::submission::Submission;
use wharf_engine::plan::{Memory, plan};
use wharf_engine::price::node_classes::Drains;
use wharf_engine::price::prices::Prices;
use wharf_engine::state::State;
use wharf_engine::state::event::Event;
use wharf_engine::state::rooms::Room;
use wharf_engine::units::{GpuUnits, JobId, NodeId, PoolId, Resources, Timestamp, Uid};
use wharf_sim::testing::pricing::draw;

const BUCKET: i64 = 3000;

/// What a node is worth: the least over all prices of a core.
fn value(prices: &Prices, room: &Room) -> i64 {
    let Resources { cpu_milli, memory, .. } = room.free();
    // A GiB goes with so many thousandths of a core. Everything here is counted in whole GiB.
    let of_gib = 1_024_000u64.checked_div(u64::from(prices.memory_mib_per_core));
    let by_memory = of_gib.map_or(u64::MAX, |of_gib| (memory >> 30) * of_gib);
    let cpu = i64::try_from(cpu_milli.min(by_memory)).unwrap();
    let left =
        |gpu: &wharf_engine::state::rooms::GpuRoom| if gpu.usable { 3000 - gpu.held.parts() } else { 0 };
    let at_price = |&price: &u16| {
        let mut known = BTreeMap::new();
        let gpus: i64 =
            room.gpus.iter().map(|gpu| best(prices, room.pool, price, left(gpu), &mut known)).sum();
        i64::from(price) * cpu + gpus
    };
    let idle = u32::try_from(room.whole_free()).unwrap();
    let here = prices.blocks.iter().filter(|block| block.pools.contains(&room.pool));
    let blocks = here.map(|block| {
        let by_cores = u64::try_from(cpu).unwrap().checked_div(block.cpu_milli).unwrap_or(u64::MAX);
        i64::from(block.worth) * i64::try_from(by_cores.min(u64::from(idle / block.gpus))).unwrap()
    });
    prices.core_prices.iter().map(at_price).min().unwrap() + blocks.sum::<i64>()
}

/// The best use of what is left of one GPU.
fn best(prices: &Prices, pool: PoolId, price: u16, left: u64, known: &mut BTreeMap<u64, i64>) -> i64 {
    if let Some(&worth) = known.get(&left) {
        return worth;
    }
    let mut most = 0;
    for piece in prices.pieces.iter().filter(|piece| piece.pools.contains(&pool)) {
        if let Some(rest) = left.checked_sub(piece.size.parts()) {
            let net = i64::from(piece.worth) - i64::from(price) * i64::from(piece.cpu_milli);
            most = most.max(net + best(prices, pool, price, rest, known));
        }
    }
    known.insert(left, most);
    most
}

/// The room with a task of a spec on these GPUs.
fn with_task(room: &Room, spec: &Spec, gpus: &[usize]) -> Room {
    let mut after = room.clone();
    after.held = after.held + spec.shape.resources;
    for &gpu in gpus {
        let units = match spec.shape.gpus {
            GpuAsk::Whole(_) => GpuUnits::WHOLE,
            GpuAsk::Share(_) | GpuAsk::Slice(_) | GpuAsk::AtLeast(_) => spec.shape.gpus.units(),
        };
        after.gpus[gpu].held += units;
        after.gpus[gpu].holders += 1;
        after.gpus[gpu].trust = Some(spec.trust);
    }
    after
}

/// Every way to place a task on a node that differs in worth.
fn ways(room: &Room, spec: &Spec) -> Vec<Vec<usize>> {
    if !room.open || !room.free().covers(&spec.shape.resources) {
        return Vec::new();
    }
    let free: Vec<usize> = (0..room.gpus.len()).filter(|&gpu| room.gpus[gpu].is_free()).collect();
    match spec.shape.gpus {
        GpuAsk::Whole(count) => {
            let count = usize::try_from(count).unwrap();
            if free.len() >= count { vec![free[..count].to_vec()] } else { Vec::new() }
        }
        GpuAsk::Share(units) => {
            let fits = |&gpu: &usize| room.gpus[gpu].free_for(spec.trust) >= units;
            (0..room.gpus.len()).filter(fits).map(|gpu| vec![gpu]).collect()
        }
        GpuAsk::Slice(_) | GpuAsk::AtLeast(_) => Vec::new(),
    }
}

/// Fields in the order in which they decide.
type Score = (bool, Drains, i64, bool, NodeId);

/// True when fewer than a tenth of all GPUs are of a room's model.
fn is_scarce(state: &State, room: &Room) -> bool {
    let usable = |room: &Room| room.gpus.iter().filter(|gpu| gpu.usable).count();
    let all: usize = state.ledger.rooms().iter().map(|(_, room)| usable(room)).sum();
    let alike = state.ledger.rooms().iter().filter(|(_, other)| other.pool == room.pool);
    alike.map(|(_, room)| usable(room)).sum::<usize>() * 10 < all
}

/// The least score over all nodes, with the cost.
fn least(state: &State, spec: &Spec) -> Option<Score> {
    let prices = state.demand.prices();
    let mut best = None;
    for (node, room) in state.ledger.rooms().iter() {
        let has_gpus = !state.fleet.model(room.pool).is_empty();
        if spec.shape.gpus != GpuAsk::Whole(0) && !has_gpus {
            continue;
        }
        let before = value(prices, room);
        for gpus in ways(room, spec) {
            let cost = before - value(prices, &with_task(room, spec, &gpus));
            let among = spec.shape.gpus == GpuAsk::Whole(0) && has_gpus;
            let score = (among, room.drains(), cost.div_euclid(BUCKET), is_scarce(state, room), node);
            best = Some(best.map_or(score, |best: Score| best.min(score)));
        }
    }
    best
}

/// What a placement scores.
fn score_of(state: &State, spec: &Spec, place: &Placement) -> Score {
    let room = state.ledger.rooms().get(place.node).unwrap();
    let gpus: Vec<usize> = place.gpus.indexes().collect();
    let cost =
        value(state.demand.prices(), room) - value(state.demand.prices(), &with_task(room, spec, &gpus));
    let among = spec.shape.gpus == GpuAsk::Whole(0) && !state.fleet.model(room.pool).is_empty();
    (among, room.drains(), cost.div_euclid(BUCKET), is_scarce(state, room), place.node)
}

fn policy() -> Policy {
    let tenant = Tenant { gpus: GpuQuota::Any(Quota::UNMETERED), ..Tenant::without_lines("all") };
    let preemption = Preemption { moves_max: 0, fixed_may_borrow: true, ..Preemption::default() };
    let policy = Policy { digest: "worth".into(), tenants: vec![tenant], preemption, ..Policy::default() };
    ["x", "y"].into_iter().fold(policy, wharf_sim::world::with_domain_of_all)
}

fn nodes(random: &mut ChaCha8Rng) -> Vec<ObservedNode> {
    let node = |at: u32, random: &mut dyn FnMut(u64) -> u64| {
        let gpu = ObservedGpu { island: at, healthy: true, ..ObservedGpu::default() };
        let count = usize::try_from([0, 1, 2, 4, 8][usize::try_from(random(5)).unwrap()]).unwrap();
        let model = if count == 0 {
            ""
        } else {
            ["a100", "a100", "a100", "a100", "t4", "l4"][usize::try_from(random(6)).unwrap()]
        };
        let cpu_milli = 4000 * (1 + random(12));
        let capacity = Resources { cpu_milli, memory: (16 + random(100)) << 30, ..Resources::default() };
        let (name, gpus) = (format!("n{at}"), vec![gpu; count]);
        ObservedNode { name, up: true, model: model.into(), gpus, capacity, ..ObservedNode::default() }
    };
    (0..14).map(|at| node(at, &mut |below| random.random_range(0..below))).collect()
}

fn job(random: &mut ChaCha8Rng, number: u128) -> Submission {
    let gpus = match random.random_range(0..8) {
        0 => GpuAsk::Whole(0),
        1..=2 => GpuAsk::Whole(random.random_range(1..5)),
        _ => GpuAsk::Share(GpuUnits::from_parts(150 * random.random_range(1..20))),
    };
    let resources = Resources {
        cpu_milli: 500 * random.random_range(1..16),
        memory: random.random_range(1..12) << 30,
        ..Resources::default()
    };
    let spec = Spec { preemptible: false, ..Spec::of(format!("j{number}"), Shape::of(gpus, resources)) };
    let trust = Some(["x", "y"][random.random_range(0..2)].to_owned());
    Submission { trust, ..Submission::of(Uid(number), "all", spec) }
}

fn give(state: &mut State, input: &Input, now: Timestamp) -> Option<JobId> {
    let decision = state.decide(input, now).ok()?;
    state.apply_all(&decision.events);
    decision.job
}

/// One life: jobs come one by one, some leave, prices change; every place is compared.
fn live(seed: u64) -> (u32, u32) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut state, mut memory, mut now) = (State::default(), Memory::default(), Timestamp(1_000_000));
    give(&mut state, &Input::ApplyPolicy(policy()), now);
    let report = Report { world: 1, generation: 1, nodes: nodes(&mut random), ..Report::default() };
    give(&mut state, &Input::Observe(report), now);
    let pools: Vec<PoolId> = state.fleet.pool_ids().collect();
    let gpus: Vec<PoolId> = pools.into_iter().filter(|&pool| !state.fleet.model(pool).is_empty()).collect();
    let (mut placed, mut refused) = (0, 0);
    for number in 1..160u128 {
        now.0 += 1000;
        if number % 20 == 1 {
            give(&mut state, &Input::Prices(draw(&mut random, &gpus)), now);
        }
        if number % 7 == 0 {
            let node = format!("n{}", random.random_range(0..14));
            give(
                &mut state,
                &Input::Cordon { node, on: random.random_bool(0.5), reason: String::new() },
                now,
            );
        }
        if number % 5 == 0 {
            let live: Vec<JobId> = state.jobs.iter().map(|(job, _)| job).collect();
            if let Some(&job) = live.get(random.random_range(0..40)) {
                give(&mut state, &Input::Cancel { job }, now);
            }
        }
        let Some(job) = give(&mut state, &Input::Submit(Box::new(job(&mut random, number))), now) else {
            continue;
        };
        let spec = state.jobs.get(job).unwrap().spec.clone();
        let wanted = least(&state, &spec);
        let made = plan(&state, state.tenants.policy(), &memory, now);
        let fresh = plan(&state, state.tenants.policy(), &Memory::default(), now);
        assert_eq!(
            made.starts, fresh.starts,
            "seed {seed} job {number}: what is remembered changes an answer"
        );
        let given = made.starts.iter().chain(&made.earmarks).find(|start| start.job == job);
        let given = given.map(|start| score_of(&state, &spec, &start.tasks[0]));
        assert_eq!(given, wanted, "seed {seed} job {number} {:?}", spec.shape);
        if let Some(chosen) = made.starts.iter().find(|start| start.job == job).and_then(|start| start.chosen)
        {
            assert_eq!(Some(chosen.cost.div_euclid(BUCKET)), wanted.map(|best| best.2), "the receipt's cost");
        }
        (placed, refused) = if given.is_some() { (placed + 1, refused) } else { (placed, refused + 1) };
        let events: Vec<Event> = made.events(&state, now);
        memory.remember(&made, &state, now);
        state.apply_all(&events);
        if given.is_none() {
            give(&mut state, &Input::Cancel { job }, now);
        }
    }
    assert_eq!(state.check_deep(), [], "seed {seed}");
    (placed, refused)
}

#[test]
fn every_place_is_the_least_missed_of_all() {
    let lives = (0..25).map(live);
    let (placed, refused) = lives.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    assert!(placed > 1000 && refused > 20, "{placed} placed and {refused} refused say little");
}
