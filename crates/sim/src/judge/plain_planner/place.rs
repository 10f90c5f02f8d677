//! Where tasks go: one after another to the tightest place that fits, or where places have prices to the one that is missed
//! least; all or none.

use std::collections::BTreeMap;

use wharf_engine::model::job::{GpuAsk, Spec};
use wharf_engine::model::placement::Placement;
use wharf_engine::units::{GpuMask, GpuUnits, NodeId, Resources};

use super::lines::Ask;
use super::world::{How, World};
use super::worth;

/// The world with everything that is asked for in its places.
pub(super) fn place<'a>(world: &World<'a>, ask: &Ask<'a>) -> Option<(World<'a>, Vec<Placement>)> {
    if ask.spec.topology.gang_within.is_none() {
        return place_on(world, ask, &world.open_nodes(ask.pool));
    }
    let mut domains: Vec<(u64, u32)> = Vec::new();
    for (domain, nodes) in by_domain(world, ask) {
        let fits: u64 = nodes.iter().map(|&node| tasks_that_fit(world, ask.spec, node)).sum();
        if fits >= u64::from(ask.tasks) && ask.domain.is_none_or(|required| required == domain) {
            domains.push((fits, domain));
        }
    }
    // The tightest first.
    domains.sort_unstable();
    let nodes = by_domain(world, ask);
    domains.into_iter().find_map(|(_, domain)| place_on(world, ask, &nodes[&domain]))
}

/// Nodes that the ask may use, by domain of the level its gang stays within.
fn by_domain(world: &World<'_>, ask: &Ask<'_>) -> BTreeMap<u32, Vec<NodeId>> {
    let mut nodes: BTreeMap<u32, Vec<NodeId>> = BTreeMap::new();
    for node in world.open_nodes(ask.pool) {
        if let Some(domain) = world.facts.domain_of(ask.spec, node).filter(|_| may_use(world, ask, node)) {
            nodes.entry(domain).or_default().push(node);
        }
    }
    nodes
}

/// A node that the job allows, and that has not refused to start it of late.
pub(super) fn may_use(world: &World<'_>, ask: &Ask<'_>, node: NodeId) -> bool {
    let job = world.facts.state.jobs.get(ask.job);
    let refused = job.is_some_and(|job| job.past.refused.iter().any(|refusal| refusal.node == node));
    world.facts.state.fleet.set_has_node(ask.spec.shape.nodes, node) && !refused
}

fn place_on<'a>(world: &World<'a>, ask: &Ask<'a>, nodes: &[NodeId]) -> Option<(World<'a>, Vec<Placement>)> {
    let mut world = world.clone();
    let mut places = Vec::new();
    for task in ask.first_task..ask.first_task + ask.tasks {
        let (node, gpus) = find(&world, ask, nodes)?;
        let (units_each, tax) = match ask.spec.shape.gpus {
            GpuAsk::Share(units) => (units, world.facts.policy.sharing.mps_tax),
            _ => (GpuUnits::WHOLE, 0),
        };
        let (pool, slice, time_sliced) = (ask.pool, None, false);
        let place = Placement { task, node, pool, gpus, units_each, slice, time_sliced, tax };
        world.add(ask.job, ask.spec, place, How::Given);
        places.push(place);
    }
    Some((world, places))
}

/// How good the best place for one task of an ask is, where places have prices.
pub(super) fn best_score(world: &World<'_>, ask: &Ask<'_>) -> Option<worth::Score> {
    let mut nodes = world.open_nodes(ask.pool);
    nodes.retain(|&node| {
        may_use(world, ask, node) && world.free_beside(node).covers(&ask.spec.shape.resources)
    });
    worth::find(world, ask.spec, &nodes).map(|(score, _)| score)
}

/// The tightest place for one task, on nodes that nobody leaves if there is one.
fn find(world: &World<'_>, ask: &Ask<'_>, nodes: &[NodeId]) -> Option<(NodeId, GpuMask)> {
    let spec = ask.spec;
    let allowed =
        |node: &NodeId| may_use(world, ask, *node) && world.free_beside(*node).covers(&spec.shape.resources);
    let allowed: Vec<NodeId> = nodes.iter().copied().filter(allowed).collect();
    if worth::is_priced(world) {
        return worth::find(world, spec, &allowed).map(|(score, gpus)| (score.node, gpus));
    }
    let (drained, settled): (Vec<NodeId>, Vec<NodeId>) =
        allowed.into_iter().partition(|&node| world.drains(node));
    [settled, drained].iter().find_map(|nodes| match spec.shape.gpus {
        GpuAsk::Whole(count) => find_whole(world, spec, nodes, count),
        GpuAsk::Share(units) => {
            find_shared(world, spec, nodes, units.parts()).or_else(|| find_whole(world, spec, nodes, 1))
        }
        // Slices have an oracle of their own.
        GpuAsk::Slice(_) | GpuAsk::AtLeast(_) => None,
    })
}

/// The node with the fewest free GPUs that are enough.
fn find_whole(world: &World<'_>, spec: &Spec, nodes: &[NodeId], count: u32) -> Option<(NodeId, GpuMask)> {
    let mut by_free: Vec<(usize, NodeId)> =
        nodes.iter().map(|&node| (world.free_gpus(node).len(), node)).collect();
    by_free.sort_unstable();
    by_free.into_iter().find_map(|(_, node)| Some((node, pick(world, spec, node, count)?)))
}

/// The GPU with the least left that is enough, among those that its trust domain holds in part.
fn find_shared(world: &World<'_>, spec: &Spec, nodes: &[NodeId], units: u64) -> Option<(NodeId, GpuMask)> {
    let mut fitting = Vec::new();
    for &node in nodes {
        for gpu in (0..world.gpu_count(node)).filter(|&gpu| world.is_partly_free(node, gpu)) {
            let left = world.free_for(node, gpu, spec.trust);
            if left >= units {
                fitting.push((left, node, gpu));
            }
        }
    }
    let (_, node, gpu) = fitting.into_iter().min()?;
    let mut mask = GpuMask::default();
    mask.insert(gpu);
    Some((node, mask))
}

/// So many free GPUs of a node: of the smallest island that has them all, else of the fullest islands first.
pub(super) fn pick(world: &World<'_>, spec: &Spec, node: NodeId, count: u32) -> Option<GpuMask> {
    let wanted = usize::try_from(count).expect("a u32 fits a usize");
    let mut islands = free_by_island(world, node);
    for gpus in &mut islands {
        gpus.sort_by_key(|&gpu| (world.leaving_on(node, gpu), gpu));
    }
    islands.sort_by_key(Vec::len);
    let chosen: Vec<usize> = match islands.iter().find(|gpus| gpus.len() >= wanted) {
        Some(island) => island.iter().copied().take(wanted).collect(),
        None if spec.topology.task_on_island => return None,
        None => islands.into_iter().flatten().take(wanted).collect(),
    };
    let mut mask = GpuMask::default();
    for &gpu in &chosen {
        mask.insert(gpu);
    }
    (chosen.len() == wanted).then_some(mask)
}

fn free_by_island(world: &World<'_>, node: NodeId) -> Vec<Vec<usize>> {
    let known = world.node(node).expect("tasks are placed on nodes that are there");
    let mut islands: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for gpu in world.free_gpus(node) {
        islands.entry(known.facts.gpus[gpu].island).or_default().push(gpu);
    }
    islands.into_values().collect()
}

/// How many tasks of a spec a node could take.
pub(super) fn tasks_that_fit(world: &World<'_>, spec: &Spec, node: NodeId) -> u64 {
    let small = |count: usize| u64::try_from(count).expect("at most 16");
    let by_gpu = match spec.shape.gpus {
        GpuAsk::Whole(0) => u64::from(u32::MAX),
        GpuAsk::Whole(count) if spec.topology.task_on_island => {
            let islands = free_by_island(world, node);
            islands.iter().map(|free| small(free.len()) / u64::from(count)).sum()
        }
        GpuAsk::Whole(count) => small(world.free_gpus(node).len()) / u64::from(count),
        GpuAsk::Share(units) => {
            let gpus = 0..world.gpu_count(node);
            gpus.map(|gpu| world.free_for(node, gpu, spec.trust) / units.parts()).sum()
        }
        GpuAsk::Slice(_) | GpuAsk::AtLeast(_) => 0,
    };
    by_gpu.min(tasks_beside_gpus(world.free_beside(node), spec.shape.resources))
}

fn tasks_beside_gpus(free: Resources, asked: Resources) -> u64 {
    let Resources { cpu_milli, memory, storage, pods, nics } = asked;
    let parts = [
        (free.cpu_milli, cpu_milli),
        (free.memory, memory),
        (free.storage, storage),
        (free.pods, pods),
        (free.nics, nics),
    ];
    let fits = parts.into_iter().filter(|&(_, asked)| asked > 0).map(|(free, asked)| free / asked);
    fits.min().unwrap_or(u64::MAX).min(u64::from(u32::MAX))
}
