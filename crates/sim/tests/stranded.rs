//! What is free but of no use, against brute force: on small random fleets every way to add a task is tried.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use wharf_engine::answer::stranded::{StrandedAsk, StrandedPool, StrandedWhy, stranded};
use wharf_engine::decide::input::Input;
use wharf_engine::device::catalogue;
use wharf_engine::device::catalogue::mig::ProfileName;
use wharf_engine::model::job::{GpuAsk, Least, Shape, Spec};
use wharf_engine::model::observed::{ObservedGpu, ObservedNode, Report};
use wharf_engine::model::placement::Placement;
use wharf_engine::model::policy::{GpuQuota, Policy, Preemption, Quota, Tenant};
use wharf_engine::model::submission::Submission;
use wharf_engine::plan::{Memory, plan};
use wharf_engine::price::prices::Prices;
use wharf_engine::state::State;
use wharf_engine::units::{GpuUnits, NodeId, PoolId, Resources, Timestamp, Uid};

/// A part of a GPU that a task takes: how much, whose, and where on the axis where it is a slice.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    units: u64,
    trust: Option<u32>,
    slice: Option<(u8, u8)>,
}

/// A node as lists of what is on it.
#[derive(Clone, Debug)]
struct Bench {
    model: String,
    usable: Vec<bool>,
    parts: Vec<Vec<Part>>,
    cpu: u64,
    memory: u64,
}

fn benches(state: &State, pool: PoolId) -> BTreeMap<NodeId, Bench> {
    let mut benches = BTreeMap::new();
    for (id, node) in state.fleet.nodes().filter(|(_, node)| node.facts.pool == pool && node.is_open()) {
        let facts = &node.facts;
        let bench = Bench {
            model: state.fleet.model(pool).to_owned(),
            usable: facts.gpus.iter().map(|gpu| gpu.healthy).collect(),
            parts: vec![Vec::new(); facts.gpus.len()],
            cpu: facts.capacity.cpu_milli,
            memory: facts.capacity.memory,
        };
        benches.insert(id, bench);
    }
    for (job, holding) in state.ledger.holdings() {
        let spec = &state.jobs.get(job).unwrap().spec;
        for Placement { node, gpus, units_each, slice, .. } in holding.tasks.iter().map(|task| task.place) {
            let Some(bench) = benches.get_mut(&node) else { continue };
            bench.cpu -= spec.shape.resources.cpu_milli;
            bench.memory -= spec.shape.resources.memory;
            for gpu in gpus.indexes() {
                let slice = slice.map(|slice| (slice.profile, slice.start));
                let part = Part { units: units_each.parts(), trust: Some(spec.trust.0), slice };
                bench.parts[gpu].push(part);
            }
        }
    }
    benches
}

/// True when these parts can be on one GPU together.
fn is_legal(model: &str, parts: &[Part]) -> bool {
    let slices: Vec<(u8, u8)> = parts.iter().filter_map(|part| part.slice).collect();
    if slices.len() != parts.len() {
        let strangers = parts
            .iter()
            .filter_map(|part| part.trust)
            .any(|trust| Some(trust) != parts[0].trust.or(Some(trust)));
        return slices.is_empty() && !strangers && parts.iter().map(|part| part.units).sum::<u64>() <= 3000;
    }
    let Some(mig) = catalogue::mig(model) else { return slices.is_empty() };
    let mut slots = [false; 16];
    slices.iter().all(|&(number, start)| {
        let profile = &mig.profiles[usize::from(number)];
        let mut taken = start..start + profile.slots;
        let apart = taken.all(|slot| !std::mem::replace(&mut slots[usize::from(slot)], true));
        let same = slices.iter().filter(|(other, _)| *other == number).count();
        apart && profile.starts.contains(&start) && same <= usize::from(profile.max)
    })
}

/// Every way to put one task of a shape on a node, as the node after it with the GPUs it took.
fn ways(bench: &Bench, asked: &StrandedAsk) -> Vec<(Bench, Vec<usize>)> {
    let (cpu, memory) = (asked.resources.cpu_milli, asked.resources.memory);
    if bench.cpu < cpu || bench.memory < memory {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut add = |gpus: Vec<usize>, part: Part| {
        let mut after = bench.clone();
        for &gpu in &gpus {
            after.parts[gpu].push(part);
        }
        let legal = |&gpu: &usize| bench.usable[gpu] && is_legal(&bench.model, &after.parts[gpu]);
        if gpus.iter().all(legal) {
            (after.cpu, after.memory) = (bench.cpu - cpu, bench.memory - memory);
            found.push((after, gpus));
        }
    };
    let count = bench.parts.len();
    let trust = asked.trust.map(|trust| trust.0);
    match asked.gpus {
        GpuAsk::Whole(wanted) => {
            for set in 0u32..1 << count {
                let gpus: Vec<usize> = (0..count).filter(|gpu| set & (1 << gpu) != 0).collect();
                if gpus.len() == usize::try_from(wanted).unwrap() {
                    add(gpus, Part { units: 3000, trust, slice: None });
                }
            }
        }
        GpuAsk::Share(units) => {
            (0..count).for_each(|gpu| add(vec![gpu], Part { units: units.parts(), trust, slice: None }));
        }
        GpuAsk::Slice(_) | GpuAsk::AtLeast(_) => {
            let Some(mig) = catalogue::mig(&bench.model) else { return found };
            let Some(number) = asked.gpus.profile_on(mig) else { return found };
            let profile = &mig.profiles[usize::from(number)];
            let units = u64::from(profile.slots) * 3000 / u64::from(mig.axis);
            for gpu in 0..count {
                for &start in profile.starts {
                    add(vec![gpu], Part { units, trust, slice: Some((number, start)) });
                }
            }
        }
    }
    found
}

/// The most tasks that fit. Tasks are alike, so each comes after the one before it, by GPU and by slot.
fn most(bench: &Bench, asked: &StrandedAsk, from: (usize, u8)) -> u64 {
    let after = |(after, gpus): (Bench, Vec<usize>)| {
        let slice = after.parts[gpus[0]].last().and_then(|part| part.slice);
        let at = (gpus[0], slice.map_or(0, |(_, start)| start));
        (at >= from).then(|| 1 + most(&after, asked, at))
    };
    ways(bench, asked).into_iter().filter_map(after).max().unwrap_or(0)
}

fn free(bench: &Bench, gpu: usize) -> u64 {
    let held: u64 = bench.parts[gpu].iter().map(|part| part.units).sum();
    if bench.usable[gpu] { 3000 - held } else { 0 }
}

fn compare(state: &State, found: &StrandedPool, seed: u64) {
    let benches = benches(state, found.pool);
    let all: u64 =
        benches.values().map(|bench| (0..bench.parts.len()).map(|gpu| free(bench, gpu)).sum::<u64>()).sum();
    assert_eq!(found.free.parts(), all, "seed {seed}: what is free");
    // Where a gang fits whole: every domain is tried.
    let open = |shape: &StrandedAsk, of: NodeId| {
        let domain = |node: NodeId| {
            let domains = &state.fleet.node(node).unwrap().facts.domains;
            let own = |level| domains.iter().find(|(known, _)| *known == level).map(|&(_, domain)| domain);
            shape.within.map_or(Some(0), own)
        };
        let beside = benches.iter().filter(|(node, _)| domain(of).is_some() && domain(**node) == domain(of));
        beside.map(|(_, bench)| most(bench, shape, (0, 0))).sum::<u64>() >= u64::from(shape.together)
    };
    for shape in &found.shapes {
        let room = benches.iter().filter(|(node, _)| open(&shape.asked, **node));
        let fits: u64 = room.map(|(_, bench)| most(bench, &shape.asked, (0, 0))).sum();
        assert_eq!(shape.fits, fits, "seed {seed}: {:?}", shape.asked);
        let why: u64 = shape.why.values().map(|units| units.parts()).sum();
        assert_eq!(shape.usable.parts() + why, all, "seed {seed}: {:?} {:?}", shape.asked, shape.why);
    }
    let mut stranded = 0;
    for (&node, bench) in &benches {
        let used = |gpu: usize| {
            let uses = |asked: &StrandedAsk| {
                open(asked, node) && ways(bench, asked).iter().any(|(_, gpus)| gpus.contains(&gpu))
            };
            found.shapes.iter().any(|shape| uses(&shape.asked))
        };
        stranded += (0..bench.parts.len()).filter(|&gpu| !used(gpu)).map(|gpu| free(bench, gpu)).sum::<u64>();
    }
    assert_eq!(found.stranded_units().parts(), stranded, "seed {seed}: {:?}", found.stranded);
}

fn node(random: &mut ChaCha8Rng, at: u32) -> ObservedNode {
    let gpu = ObservedGpu { island: at, healthy: true, ..ObservedGpu::default() };
    let mut gpus = vec![gpu; random.random_range(1..3)];
    gpus[0].healthy = random.random_ratio(9, 10);
    let model = ["a100", "a30", "t4"][random.random_range(0..3)];
    let capacity = Resources {
        cpu_milli: 1000 * random.random_range(1..8),
        memory: random.random_range(4..20),
        pods: 100,
        ..Resources::default()
    };
    ObservedNode {
        name: format!("n{at}"),
        up: true,
        model: model.into(),
        gpus,
        capacity,
        domains: vec![("leaf".to_owned(), at % 2)],
        ..ObservedNode::default()
    }
}

fn ask(random: &mut ChaCha8Rng) -> GpuAsk {
    let profile = ["1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "1g.6gb"][random.random_range(0..5)];
    match random.random_range(0..4) {
        0 => GpuAsk::Whole(random.random_range(1..3)),
        1 => GpuAsk::Share(GpuUnits::from_parts(300 * random.random_range(2..10))),
        2 => GpuAsk::Slice(ProfileName::parse(profile).unwrap()),
        _ => {
            let memory_mib = 1000 * random.random_range(1..40);
            GpuAsk::AtLeast(Least { memory_mib, compute: 0, compute_of: 0 })
        }
    }
}

fn job(random: &mut ChaCha8Rng, number: u128) -> Submission {
    let resources = Resources {
        cpu_milli: 500 * random.random_range(1..4),
        memory: random.random_range(1..4),
        pods: 1,
        ..Resources::default()
    };
    let tasks = [1, 1, 2, 3][random.random_range(0..4)];
    let shape = Shape::of(ask(random), resources);
    let spec = Spec { preemptible: false, tasks, min: tasks, ..Spec::of(format!("j{number}"), shape) };
    let trust = Some(["x", "y"][random.random_range(0..2)].to_owned());
    let gang_within = random.random_ratio(1, 3).then(|| "leaf".to_owned());
    Submission { trust, gang_within, ..Submission::of(Uid(number), "all", spec) }
}

fn live(seed: u64) -> bool {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut state, now) = (State::default(), Timestamp(1_000_000));
    let tenant = Tenant { gpus: GpuQuota::Any(Quota::UNMETERED), ..Tenant::without_lines("all") };
    let preemption = Preemption { moves_max: 0, fixed_may_borrow: true, ..Preemption::default() };
    let policy = Policy { digest: "s".into(), tenants: vec![tenant], preemption, ..Policy::default() };
    let policy = ["x", "y"].into_iter().fold(policy, wharf_sim::world::with_domain_of_all);
    let nodes = (0..3).map(|at| node(&mut random, at)).collect();
    let report = Report { world: 1, generation: 1, nodes, ..Report::default() };
    // Empty prices begin the counting of what usually comes.
    let begin = [Input::ApplyPolicy(policy), Input::Observe(report), Input::Prices(Prices::default())];
    for input in begin {
        let events = state.decide(&input, now).unwrap().events;
        state.apply_all(&events);
    }
    for number in 1..14 {
        let submitted = state.decide(&Input::Submit(Box::new(job(&mut random, number))), now);
        let Ok(decision) = submitted else { continue };
        state.apply_all(&decision.events);
        let made = plan(&state, state.tenants.policy(), &Memory::default(), now);
        let events = made.events(&state, now);
        state.apply_all(&events);
        for found in stranded(&state) {
            compare(&state, &found, seed);
        }
    }
    assert_eq!(state.check_deep(), [], "seed {seed}");
    stranded(&state).iter().any(|pool| pool.stranded_units() > GpuUnits::ZERO)
}

/// Four GPUs are free, two on each of two leaves, and a gang of four waits that stays within one.
#[test]
fn a_gang_that_lacks_room_together_makes_free_gpus_stranded() {
    let (mut state, now) = (State::default(), Timestamp(1_000_000));
    let gpus = vec![ObservedGpu { healthy: true, ..ObservedGpu::default() }; 2];
    let node = |at: u32| ObservedNode {
        name: format!("n{at}"),
        up: true,
        model: "h100".into(),
        gpus: gpus.clone(),
        capacity: Resources { pods: 10, ..Resources::default() },
        domains: vec![("leaf".to_owned(), at)],
        ..ObservedNode::default()
    };
    let tenant = Tenant { gpus: GpuQuota::Any(Quota::UNMETERED), ..Tenant::without_lines("all") };
    let policy = Policy { digest: "s".into(), tenants: vec![tenant], ..Policy::default() };
    let give = |state: &mut State, input: &Input| {
        let events = state.decide(input, now).unwrap().events;
        state.apply_all(&events);
    };
    give(&mut state, &Input::ApplyPolicy(policy));
    let mut nodes: Vec<ObservedNode> = (0..2).map(node).collect();
    // Both leaves have room for the gang when it comes, and then one node of each is gone.
    nodes.extend((2..4).map(|at| ObservedNode { domains: vec![("leaf".to_owned(), at - 2)], ..node(at) }));
    let report = Report { world: 1, generation: 1, nodes, ..Report::default() };
    give(&mut state, &Input::Observe(report));
    give(&mut state, &Input::Prices(Prices::default()));
    let resources = Resources { pods: 1, ..Resources::default() };
    let spec = Spec { tasks: 4, min: 4, ..Spec::of("gang", Shape::of(GpuAsk::Whole(1), resources)) };
    let gang = Submission { gang_within: Some("leaf".into()), ..Submission::of(Uid(1), "all", spec) };
    give(&mut state, &Input::Submit(Box::new(gang)));
    for node in ["n2", "n3"] {
        give(&mut state, &Input::Cordon { node: node.to_owned(), on: true, reason: String::new() });
    }
    let found = &stranded(&state)[0];
    assert_eq!(found.free, GpuUnits::whole(4));
    let waiting = found.shapes.iter().find(|shape| shape.source.pending > 0).unwrap();
    assert_eq!((waiting.fits, waiting.usable), (0, GpuUnits::ZERO));
    assert_eq!(waiting.why, [(StrandedWhy::NotTogether, GpuUnits::whole(4))].into());
    // A gang of four without a level is what usually comes, and it would fit.
    assert_eq!(found.stranded_units(), GpuUnits::ZERO);
    give(&mut state, &Input::Cordon { node: "n1".to_owned(), on: true, reason: String::new() });
    let found = &stranded(&state)[0];
    assert_eq!((found.free, found.stranded_units()), (GpuUnits::whole(2), GpuUnits::whole(2)));
    assert_eq!(found.stranded, [(StrandedWhy::NotTogether, GpuUnits::whole(2))].into());
}

#[test]
fn every_free_part_is_counted_once_and_exactly() {
    let some = (0..40).filter(|&seed| live(seed)).count();
    assert!(some > 4, "in {some} of 40 fleets something was stranded: that says little");
}
