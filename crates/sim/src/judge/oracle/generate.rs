//! Instances by seed: small fleets, full or nearly so, with one job that has a right to what others hold.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use wharf_engine::model::job::Class;

use super::facts::{Facts, Reclaim, Set, gpus_of};
use super::{Checkpoint, Instance, Node, Pending, Place, Running, Tenant, UNITS_MAX};

const RESTART_S: u64 = 30;
const BORROW_GRACE_MAX_S: u64 = 300;
/// Tenant priority of most.
const PRIORITY_USUAL: i32 = 100;
const JOBS_MIN: usize = 4;
const JOBS_MAX: usize = 10;

/// Instance `number` of a seed. Half of them ask for a guarantee, half for a fair share.
pub(super) fn instance(seed: u64, number: u64) -> Instance {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(number);
    let wanted = if rng.random_bool(0.5) { Reclaim::Guarantee } else { Reclaim::FairShare };
    loop {
        let made = any(&mut rng);
        let facts = Facts::of(&made);
        let enough = made.running.len() >= JOBS_MIN && !facts.units.is_empty();
        let few = facts.units.len() <= UNITS_MAX && enough;
        let entitled = facts.rights().first() == Some(&wanted);
        if few && entitled && could_ever_run(&made) && !facts.starts_without(Set::default()) {
            return made;
        }
    }
}

/// On the whole fleet, empty.
fn could_ever_run(made: &Instance) -> bool {
    let fit: u64 = made.nodes.iter().map(|node| node.gpus / made.pending.gpus).sum();
    fit >= made.pending.tasks
}

/// An instance that may make no sense as one.
fn any(rng: &mut ChaCha8Rng) -> Instance {
    let nodes: Vec<Node> = (1..=rng.random_range(2..=4u32))
        .map(|number| Node { name: format!("n{number}"), gpus: rng.random_range(2..=8) })
        .collect();
    let capacity = nodes.iter().map(|node| node.gpus).sum();
    let tenants = tree(rng, capacity);
    let leaves: Vec<String> = leaves(&tenants);
    let mut running = Vec::new();
    let mut rooms: Vec<Vec<usize>> = nodes.iter().map(|node| (0..capped(node.gpus)).collect()).collect();
    // A few jobs may not find room any more; then a GPU or two stay free.
    for _ in 0..3 * JOBS_MAX {
        if running.len() < JOBS_MAX {
            let job = job(rng, &nodes, &mut rooms, &leaves, running.len());
            running.extend(job.map(|job| within_guarantee(&tenants, &running, job)));
        }
    }
    let tenant = leaves[rng.random_range(0..leaves.len())].clone();
    let own = running.iter().filter(|job| job.tenant == tenant && job.class == Class::Batch);
    // Nothing of its own tenant gives way to it: what is judged is who pays for whom.
    let priority = own.map(|job| job.priority).min().unwrap_or(0);
    let pending = Pending {
        name: "waits".to_owned(),
        tenant,
        class: Class::Batch,
        priority,
        gpus: [1, 1, 2, 2, 3, 4][rng.random_range(0..6)],
        tasks: [1, 1, 1, 2, 2, 3, 4][rng.random_range(0..7)],
    };
    let mut made = Instance {
        restart_s: RESTART_S,
        borrow_grace_max_s: BORROW_GRACE_MAX_S,
        nodes,
        tenants,
        running,
        pending,
    };
    limits(rng, &mut made);
    made
}

/// One or two levels; children's guarantees fit in the parent's, and all in the fleet.
fn tree(rng: &mut ChaCha8Rng, capacity: u64) -> Vec<Tenant> {
    let leaves = rng.random_range(2..=5usize);
    let teams = if rng.random_bool(0.5) { rng.random_range(1..=2usize) } else { 0 };
    let mut tenants = Vec::new();
    let mut left = capacity;
    let parents: Vec<Option<usize>> = match teams {
        0 => vec![None; leaves],
        _ => (0..leaves).map(|leaf| Some(leaf % teams)).collect(),
    };
    for team in 0..teams {
        let members = parents.iter().filter(|parent| **parent == Some(team)).count();
        let guaranteed = rng.random_range(0..=left);
        left -= guaranteed;
        tenants.push(tenant(rng, format!("team{}", team + 1), guaranteed));
        let mut inside = guaranteed;
        for member in 0..members {
            let guaranteed = rng.random_range(0..=inside.min(1 + guaranteed / 2));
            inside -= guaranteed;
            let path = format!("team{}/p{}", team + 1, member + 1);
            tenants.push(tenant(rng, path, guaranteed));
        }
    }
    for leaf in 0..if teams == 0 { leaves } else { 0 } {
        let guaranteed = rng.random_range(0..=left.min(1 + capacity / 2));
        left -= guaranteed;
        tenants.push(tenant(rng, format!("p{}", leaf + 1), guaranteed));
    }
    tenants.sort_by(|a, b| a.path.cmp(&b.path));
    tenants
}

fn tenant(rng: &mut ChaCha8Rng, path: String, guaranteed_gpus: u64) -> Tenant {
    let weight = [0, 1, 1, 1, 1, 2, 3][rng.random_range(0..7)];
    let priority = if rng.random_bool(0.2) { 0 } else { PRIORITY_USUAL };
    Tenant { path, guaranteed_gpus, limit_gpus: None, weight, priority }
}

fn leaves(tenants: &[Tenant]) -> Vec<String> {
    let has_children = |path: &str| tenants.iter().any(|other| other.path.starts_with(&format!("{path}/")));
    let paths = tenants.iter().map(|tenant| tenant.path.clone());
    paths.filter(|path| !has_children(path)).collect()
}

/// A job where there is room for all its tasks.
fn job(
    rng: &mut ChaCha8Rng,
    nodes: &[Node],
    rooms: &mut [Vec<usize>],
    leaves: &[String],
    number: usize,
) -> Option<Running> {
    let gpus = [1, 1, 1, 2, 2, 3, 4][rng.random_range(0..7)];
    let tasks = [1, 1, 1, 2, 2, 3, 4][rng.random_range(0..7)];
    let min = if rng.random_bool(0.3) { rng.random_range(1..=tasks) } else { tasks };
    let before = rooms.to_vec();
    let mut places = Vec::new();
    for _ in 0..tasks {
        let fitting: Vec<usize> = (0..rooms.len()).filter(|&node| rooms[node].len() >= gpus).collect();
        if fitting.is_empty() {
            rooms.clone_from_slice(&before);
            return None;
        }
        let node = fitting[rng.random_range(0..fitting.len())];
        let taken = rooms[node].drain(..gpus).collect();
        places.push(Place { node: nodes[node].name.clone(), gpus: taken });
    }
    let class = match rng.random_range(0..10u32) {
        0 => Class::Inference,
        1 | 2 => Class::Interactive,
        _ => Class::Batch,
    };
    let checkpoint = rng.random_bool(0.8).then(|| Checkpoint {
        every_s: [300, 900, 1800, 3600, 14_400][rng.random_range(0..5)],
        grace_s: [0, 30, 30, 120, 120, 300, 300, 600][rng.random_range(0..8)],
    });
    Some(Running {
        name: format!("j{}", number + 1),
        tenant: leaves[rng.random_range(0..leaves.len())].clone(),
        class,
        priority: [0, 0, 0, 50][rng.random_range(0..4)],
        preemptible: !rng.random_bool(0.07),
        gpus: gpus_of(gpus),
        min,
        running_s: rng.random_range(60..=24 * 3600),
        checkpoint,
        tasks: places,
    })
}

/// Work that no guarantee could get back in time may not borrow: where it would, it is like any other.
fn within_guarantee(tenants: &[Tenant], running: &[Running], job: Running) -> Running {
    let below = |path: &str, tenant: &str| tenant == path || tenant.starts_with(&format!("{path}/"));
    let fits = |tenant: &Tenant| {
        let beside = running
            .iter()
            .filter(|other| other.is_fixed(BORROW_GRACE_MAX_S) && below(&tenant.path, &other.tenant));
        let fixed: u64 = beside.chain([&job]).map(|job| job.gpus * gpus_of(job.tasks.len())).sum();
        fixed <= tenant.guaranteed_gpus
    };
    if !job.is_fixed(BORROW_GRACE_MAX_S)
        || tenants.iter().filter(|tenant| below(&tenant.path, &job.tenant)).all(fits)
    {
        return job;
    }
    let shorter = |checkpoint: Checkpoint| Checkpoint {
        grace_s: checkpoint.grace_s.min(BORROW_GRACE_MAX_S),
        ..checkpoint
    };
    Running { preemptible: true, checkpoint: job.checkpoint.map(shorter), ..job }
}

/// Some tenants have a limit: not below what they are promised, nor below what they hold.
fn limits(rng: &mut ChaCha8Rng, made: &mut Instance) {
    let used = Facts::of(made).used;
    for (tenant, used) in made.tenants.iter_mut().zip(used) {
        if rng.random_bool(0.1) {
            tenant.limit_gpus = Some(tenant.guaranteed_gpus.max(used) + rng.random_range(0..=2));
        }
    }
}

fn capped(gpus: u64) -> usize {
    usize::try_from(gpus).expect("a node is small")
}
