//! Random small lives: a fleet of a few nodes, a tenant tree, and what happens to them. So small that rare meetings of
//! rules are common.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use wharf_engine::model::dependency::{After, Condition};
use wharf_engine::model::exit::Exit;
use wharf_engine::model::job::{Checkpoint, Class, GpuAsk, Service, Shape, Spec, Topology};
use wharf_engine::model::observed::{ObservedGpu, ObservedNode};
use wharf_engine::model::policy::{Amount, GpuQuota, Policy, Preemption, Quota, Tenant, Within};
use wharf_engine::model::submission::Submission;
use wharf_engine::units::{GpuMask, GpuUnits, Millis, Resources, Uid};

use super::life::{Life, Step};

const MODELS: [&str; 2] = ["h100", "l4"];
const GIB: u64 = 1 << 30;

/// The life of a seed.
pub(super) fn life(seed: u64) -> Life {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    // Half of the lives are plain: little binds there, so that much happens.
    let plain = seed.is_multiple_of(2);
    let nodes: Vec<ObservedNode> = (0..rng.random_range(1..=4)).map(|at| node(&mut rng, at)).collect();
    let policy = policy(&mut rng, plain, 0);
    let mut life = Life { nodes, policy, steps: Vec::new() };
    let jobs = rng.random_range(3..=11);
    let tenants = leaves(&life.policy);
    for number in 0..jobs {
        let tenant = pick(&mut rng, &tenants).clone();
        let job = job(&mut rng, plain, tenant, number);
        life.steps.push(Step::Submit(Box::new(job)));
        // Some come together, some after a while.
        for _ in 0..rng.random_range(0..4) {
            let step = step(&mut rng, plain, &life);
            life.steps.push(step);
        }
    }
    for _ in 0..rng.random_range(8..24) {
        let step = step(&mut rng, plain, &life);
        life.steps.push(step);
    }
    life.steps.push(Step::Plan);
    // Every second pair of lives has prices, which change halfway.
    if seed / 2 % 2 == 1 {
        life.steps.insert(life.steps.len() / 2, Step::Price { seed: seed + 1 });
        life.steps.insert(0, Step::Price { seed });
    }
    life
}

/// A crowd that wants something from a large tree, before anything was planned.
pub(super) fn crowd(seed: u64) -> Life {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let nodes: Vec<ObservedNode> = (0..rng.random_range(1..=6)).map(|at| node(&mut rng, at)).collect();
    let policy = policy(&mut rng, false, 0);
    let tenants = leaves(&policy);
    let submit = |number| {
        let (plain, tenant) = (rng.random(), pick(&mut rng, &tenants).clone());
        Step::Submit(Box::new(job(&mut rng, plain, tenant, number)))
    };
    let steps = (0..24).map(submit).collect();
    Life { nodes, policy, steps }
}

/// The same under a policy by which the past counts; every second one without tenants that have no claim, so that all there is
/// is divided.
pub(super) fn crowd_with_a_past(seed: u64) -> Life {
    let mut crowd = crowd(seed);
    crowd.policy.half_life = Some(Millis(3_600_000));
    if seed.is_multiple_of(2) {
        crowd.policy.tenants.iter_mut().for_each(|tenant| tenant.weight = tenant.weight.max(1));
    }
    crowd
}

/// What each of the first tenants borrowed on average, in 1/3000 of a GPU.
pub(super) fn past(seed: u64) -> Vec<u64> {
    let mut rng = ChaCha8Rng::seed_from_u64(!seed);
    (0..16).map(|_| *pick(&mut rng, &[0, 1, 1000, 3000, 4500, 9000, 30_000, 10_000_000])).collect()
}

fn pick<'a, T>(rng: &mut ChaCha8Rng, from: &'a [T]) -> &'a T {
    &from[rng.random_range(0..from.len())]
}

/// Something that happens.
fn step(rng: &mut ChaCha8Rng, plain: bool, life: &Life) -> Step {
    let node = rng.random_range(0..life.nodes.len());
    match rng.random_range(0..100) {
        0..40 => Step::Plan,
        40..58 => Step::Run,
        58..70 => Step::Pass(Millis(*pick(rng, &[1_000, 30_000, 61_000, 200_000, 4_000_000]))),
        70..76 => Step::Leave { every: rng.random_range(1..=2) },
        76..80 => Step::Save,
        80..88 => {
            let exit = *pick(rng, &[Exit::Succeeded, Exit::Succeeded, Exit::Failed, Exit::Lost]);
            Step::Finish { job: rng.random_range(0..10), exit }
        }
        88..91 => Step::NodeUp { node, up: rng.random_ratio(2, 3) },
        91..93 => Step::GpuHealthy { node, gpu: rng.random_range(0..4), healthy: rng.random_ratio(2, 3) },
        93..95 => Step::Cordon { node, on: rng.random_ratio(1, 3) },
        95..97 => Step::Cancel { job: rng.random_range(0..10) },
        97 => Step::Policy(Box::new(policy(rng, plain, life.steps.len()))),
        _ => Step::Policy(Box::new(other_lines(rng, plain, life))),
    }
}

fn node(rng: &mut ChaCha8Rng, at: u32) -> ObservedNode {
    let gpus = *pick(rng, &[0u32, 1, 2, 2, 2, 3, 4, 4]);
    let islands = rng.random_range(1..=2);
    let gpu = |index: u32| ObservedGpu {
        island: at * 2 + index % islands,
        healthy: true,
        ..ObservedGpu::default()
    };
    let model = if gpus == 0 { "" } else { MODELS[usize::from(rng.random_ratio(1, 4))] };
    let mut others_gpus = GpuMask::default();
    if gpus > 1 && rng.random_ratio(1, 12) {
        others_gpus.insert(0);
    }
    let (cpu_milli, memory) = (rng.random_range(2..=12) * 1000, rng.random_range(2..=12) * GIB);
    let others = Resources { cpu_milli: *pick(rng, &[0, 0, 0, 700]), ..Resources::default() };
    ObservedNode {
        name: format!("n{at}"),
        up: true,
        model: model.to_owned(),
        gpus: (0..gpus).map(gpu).collect(),
        capacity: Resources { cpu_milli, memory, pods: 6, ..Resources::default() },
        others,
        others_gpus,
        domains: if rng.random_ratio(7, 8) { vec![("leaf".to_owned(), at / 2)] } else { vec![] },
    }
}

/// A trust domain that everybody may claim.
const SHARED: &str = "shared";

/// A tree of one to three levels with every kind of line.
pub(super) fn policy(rng: &mut ChaCha8Rng, plain: bool, edition: usize) -> Policy {
    let mut tenants = Vec::new();
    let per_pool = rng.random_ratio(1, 3);
    for org in 0..rng.random_range(1..=3) {
        let org = format!("o{org}");
        tenants.push(tenant(rng, org.clone(), per_pool));
        for team in 0..rng.random_range(0..=2) {
            let team = format!("{org}/t{team}");
            tenants.push(tenant(rng, team.clone(), per_pool));
            for project in 0..*pick(rng, &[0, 0, 1, 2]) {
                tenants.push(tenant(rng, format!("{team}/p{project}"), per_pool));
            }
        }
    }
    let worth = if rng.random_ratio(1, 4) { vec![("l4".to_owned(), 400)] } else { vec![] };
    let policy = Policy {
        digest: format!("edition {edition}"),
        tenants,
        normal_milli: worth,
        quantum: if rng.random_ratio(1, 4) { GpuUnits::from_parts(1500) } else { GpuUnits::WHOLE },
        stop_grace: Millis(*pick(rng, &[0, 10_000])),
        preemption: preemption(rng, plain),
        // Shorter than anybody would choose, so that a short life has a past.
        half_life: *pick(rng, &[None, None, Some(Millis(160_000)), Some(Millis(1_600_000))]),
        ..Policy::default()
    };
    wharf_sim::world::with_domain_of_all(policy, SHARED)
}

/// The same tenants with other lines.
fn other_lines(rng: &mut ChaCha8Rng, plain: bool, life: &Life) -> Policy {
    let per_pool = matches!(life.policy.tenants[0].gpus, GpuQuota::PerPool(_));
    let paths = life.policy.tenants.iter().map(|tenant| tenant.path.clone());
    let tenants = paths.map(|path| tenant(rng, path, per_pool)).collect();
    Policy { tenants, preemption: preemption(rng, plain), ..life.policy.clone() }
}

fn preemption(rng: &mut ChaCha8Rng, plain: bool) -> Preemption {
    if plain {
        return Preemption {
            min_runtime_reclaim: Millis(0),
            min_runtime_preempt: Millis(0),
            evictions_max: u32::MAX,
            restart: Millis(0),
            ..Preemption::default()
        };
    }
    let runtime = [0, 0, 0, 60_000];
    Preemption {
        within: *pick(rng, &[Within::Project, Within::Project, Within::Team, Within::Org]),
        borrow_grace_max: Millis(*pick(rng, &[0, 60_000, 300_000, 300_000, 300_000])),
        min_runtime_reclaim: Millis(*pick(rng, &runtime)),
        min_runtime_preempt: Millis(*pick(rng, &runtime)),
        evictions_max: *pick(rng, &[0, 1, 2, u32::MAX, u32::MAX]),
        eviction_window: Millis(*pick(rng, &[0, 100_000, 3_600_000])),
        victims_max: *pick(rng, &[1, 2, 64, 64]),
        moves_max: *pick(rng, &[0, 1, 2, 8, 8]),
        restart: Millis(*pick(rng, &[0, 0, 30_000])),
        value: *pick(rng, &[[20, 8, 2], [1, 1, 1], [20, 8, 2], [3, 0, 0]]),
        wait_horizon: Millis(*pick(rng, &[60_000, 7_200_000, 7_200_000])),
        fixed_may_borrow: rng.random_ratio(1, 8),
    }
}

fn quota(rng: &mut ChaCha8Rng, steps: u64, step: u64) -> Quota {
    let guaranteed = rng.random_range(0..=steps) * step;
    let limit = if rng.random_ratio(1, 5) {
        Amount::Of(guaranteed + rng.random_range(1..=steps) * step)
    } else {
        Amount::Unlimited
    };
    let unmetered = rng.random_ratio(1, 10);
    Quota { guaranteed: if unmetered { Amount::Unlimited } else { Amount::Of(guaranteed) }, limit }
}

fn tenant(rng: &mut ChaCha8Rng, path: String, per_pool: bool) -> Tenant {
    let half = rng.random_ratio(1, 6);
    let step = if half { 1500 } else { 3000 };
    let gpus = if per_pool {
        let models: Vec<&str> = MODELS.iter().copied().filter(|_| rng.random_ratio(4, 5)).collect();
        GpuQuota::PerPool(models.into_iter().map(|model| (model.to_owned(), quota(rng, 3, step))).collect())
    } else {
        GpuQuota::Any(quota(rng, 4, step))
    };
    let metered = rng.random_ratio(1, 3);
    let mut beside = |step| if metered { quota(rng, 4, step) } else { Quota::UNMETERED };
    let (cpu, memory) = (beside(1000), beside(GIB));
    let (weight, priority) = (rng.random_range(0..4), *pick(rng, &[0, 0, 0, 1]));
    Tenant { path, gpus, cpu, memory, weight, priority }
}

/// Paths of the tenants that take jobs.
fn leaves(policy: &Policy) -> Vec<String> {
    let all = policy.tenants.iter().map(|tenant| tenant.path.as_str());
    let above = |path: &str| policy.tenants.iter().any(|other| other.path.starts_with(&format!("{path}/")));
    all.filter(|path| !above(path)).map(str::to_owned).collect()
}

/// A job of any shape.
fn job(rng: &mut ChaCha8Rng, plain: bool, tenant: String, number: u64) -> Submission {
    let gpus = match rng.random_range(0..12) {
        0 => GpuAsk::Whole(0),
        1..=3 => GpuAsk::Share(GpuUnits::from_parts(*pick(rng, &[600, 1000, 1500, 2000, 2400]))),
        _ => GpuAsk::Whole(*pick(rng, &[1, 1, 1, 1, 2, 2, 3, 4])),
    };
    let tasks = *pick(rng, &[1, 1, 1, 1, 2, 2, 3, 4]);
    let checkpoint = rng.random_ratio(2, 3).then(|| Checkpoint {
        every: Millis(*pick(rng, &[0, 60_000, 300_000])),
        grace: Millis(*pick(rng, &[0, 0, 20_000, 20_000, 20_000, 600_000])),
        on_request: false,
    });
    let whole = matches!(gpus, GpuAsk::Whole(1..));
    let resources = Resources {
        cpu_milli: if plain { 10 } else { *pick(rng, &[0, 0, 500, 500, 1000, 2000]) },
        memory: if plain { 0 } else { *pick(rng, &[0, 0, GIB / 2, GIB]) },
        pods: 1,
        ..Resources::default()
    };
    let class = *pick(rng, &[Class::Inference, Class::Interactive, Class::Batch, Class::Batch]);
    let is_service = class == Class::Inference && rng.random();
    let spec = Spec {
        class,
        priority: rng.random_range(0..3),
        tasks,
        min: rng.random_range(1..=tasks),
        topology: Topology { task_on_island: whole && rng.random_ratio(1, 6), gang_within: None },
        preemptible: rng.random_ratio(7, 8),
        time_limit: rng.random_ratio(1, 4).then_some(Millis(600_000)),
        estimate: rng.random_ratio(1, 4).then_some(Millis(90_000)),
        service: is_service.then_some(Service { max: tasks + 2, replicas: tasks }),
        checkpoint,
        retries: 2,
        ..Spec::of(format!("j{number}"), Shape::of(gpus, resources))
    };
    let (trust, nodes) = ((plain || rng.random()).then(|| SHARED.to_owned()), rng.random_ratio(1, 8));
    let devices = rng.random_ratio(1, 8);
    let gang_within = rng.random_ratio(1, 6).then(|| "leaf".to_owned());
    // One that is over, or never was, is refused.
    let after = rng.random_ratio(1, 10).then(|| After {
        uid: Uid(u128::from(rng.random_range(0..=number))),
        when: if rng.random() { Condition::Ok } else { Condition::Any },
    });
    Submission {
        trust,
        nodes: if nodes { "even".to_owned() } else { String::new() },
        devices: if devices { "h100".to_owned() } else { String::new() },
        gang_within,
        after: after.into_iter().collect(),
        ..Submission::of(Uid(u128::from(number)), tenant, spec)
    }
}
