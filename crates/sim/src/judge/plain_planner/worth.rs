//! The place that is missed least, where places have prices: every node and every GPU is tried, and what a node is worth
//! before and after is worked out from the prices alone.

use std::collections::BTreeMap;

use wharf_engine::model::job::{GpuAsk, Spec};
use wharf_engine::model::placement::Placement;
use wharf_engine::price::prices::Prices;
use wharf_engine::units::{GpuMask, NodeId, PoolId, Resources};

use super::lines::Ask;
use super::place::pick;
use super::world::{How, WHOLE, World};

/// Costs that differ by less than this many millionths of a GPU are taken for equal.
const BUCKET: i64 = 3000;
const GIB: u64 = 1 << 30;

/// How good a place is, fields in the order in which they decide; less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Score {
    among_gpus: bool,
    drains: bool,
    lost: i64,
    scarce: bool,
    pub(super) node: NodeId,
}

/// What a node has left, as far as its worth goes.
#[derive(Clone)]
struct Rest {
    pool: PoolId,
    cpu_milli: u64,
    memory: u64,
    /// Of each GPU that works.
    gpus: Vec<u64>,
    idle: u64,
}

/// True when places have prices.
pub(super) fn is_priced(world: &World<'_>) -> bool {
    !world.facts.state.demand.prices().is_empty()
}

/// The best of these nodes for one task, with the GPUs that it takes there.
pub(super) fn find(world: &World<'_>, spec: &Spec, nodes: &[NodeId]) -> Option<(Score, GpuMask)> {
    let on = |&node: &NodeId| {
        let (lost, gpus) = cheapest(world, spec, node)?;
        Some((score(world, spec, node, lost), gpus))
    };
    nodes.iter().filter_map(on).min_by_key(|&(score, _)| score)
}

/// How good places are together, to be compared with another pool: less is better.
pub(super) fn total(world: &World<'_>, ask: &Ask<'_>, places: &[Placement]) -> (bool, bool, i64) {
    let (mut world, mut total) = (world.clone(), (false, false, 0));
    for place in places {
        let (lost, _) = cheapest(&world, ask.spec, place.node).expect("a place was found there");
        let score = score(&world, ask.spec, place.node, lost);
        total = (total.0 | score.among_gpus, total.1 | score.drains, total.2 + score.lost);
        world.add(ask.job, ask.spec, *place, How::Given);
    }
    total
}

fn score(world: &World<'_>, spec: &Spec, node: NodeId, lost: i64) -> Score {
    let fleet = &world.facts.state.fleet;
    let pool = world.node(node).expect("a node that is asked about is there").facts.pool;
    let works = |of: Option<PoolId>| {
        let nodes = fleet.nodes().filter(|(_, node)| of.is_none_or(|pool| node.facts.pool == pool));
        nodes.map(|(id, _)| (0..world.gpu_count(id)).filter(|&gpu| world.is_usable(id, gpu)).count()).sum()
    };
    let (here, all): (usize, usize) = (works(Some(pool)), works(None));
    Score {
        among_gpus: spec.shape.gpus == GpuAsk::Whole(0) && !fleet.model(pool).is_empty(),
        drains: world.drains(node),
        lost: lost.div_euclid(BUCKET),
        scarce: here * 10 < all,
        node,
    }
}

/// What a task costs on a node at least, and on which of its GPUs.
fn cheapest(world: &World<'_>, spec: &Spec, node: NodeId) -> Option<(i64, GpuMask)> {
    let (prices, before) = (world.facts.state.demand.prices(), rest(world, node));
    let worth = value(prices, &before);
    let mut after = before.clone();
    let Resources { cpu_milli, memory, .. } = spec.shape.resources;
    after.cpu_milli = after.cpu_milli.checked_sub(cpu_milli)?;
    after.memory = after.memory.saturating_sub(memory);
    match spec.shape.gpus {
        GpuAsk::Whole(count) => {
            let gpus = pick(world, spec, node, count)?;
            for _ in 0..count {
                let whole = after.gpus.iter().position(|&left| left == WHOLE)?;
                after.gpus.remove(whole);
            }
            after.idle -= u64::from(count);
            Some((worth - value(prices, &after), gpus))
        }
        GpuAsk::Share(units) => {
            let units = units.parts();
            let on = |gpu: usize| {
                let left = world.free_for(node, gpu, spec.trust);
                if left < units {
                    return None;
                }
                let mut after = after.clone();
                let at = after.gpus.iter().position(|&known| known == left)?;
                after.gpus[at] = left - units;
                after.idle -= u64::from(world.is_free(node, gpu));
                Some((worth - value(prices, &after), left, gpu))
            };
            let (cost, left, gpu) = (0..world.gpu_count(node)).filter_map(on).min()?;
            let mut mask = GpuMask::default();
            mask.insert(gpu);
            // Of idle GPUs the one that keeps islands whole.
            let mask = if left == WHOLE { pick(world, spec, node, 1)? } else { mask };
            Some((cost, mask))
        }
        GpuAsk::Slice(_) | GpuAsk::AtLeast(_) => None,
    }
}

fn rest(world: &World<'_>, node: NodeId) -> Rest {
    let free = world.free_beside(node);
    let works = |gpu: &usize| world.is_usable(node, *gpu);
    let left = |gpu: usize| WHOLE.saturating_sub(world.held_of(node, gpu));
    let gpus = (0..world.gpu_count(node)).filter(works).map(left).filter(|&left| left > 0).collect();
    let idle = u64::try_from(world.free_gpus(node).len()).expect("a count of GPUs fits");
    let pool = world.node(node).expect("a node that is asked about is there").facts.pool;
    // Of memory whole GiB count: finer differences are worth nothing.
    Rest { pool, cpu_milli: free.cpu_milli, memory: free.memory / GIB * GIB, gpus, idle }
}

/// The least over all prices of a core, and what room for several whole GPUs is worth beside that.
fn value(prices: &Prices, rest: &Rest) -> i64 {
    let small = |number: u64| i64::try_from(number).expect("small");
    // Cores without memory are of no use; memory is counted in sixteenths of a GiB.
    let per_gib = 1_024_000u64.checked_div(u64::from(prices.memory_mib_per_core));
    let by_memory = per_gib.map_or(u64::MAX, |per_gib| rest.memory / (GIB / 16) * per_gib / 16);
    let cpu = rest.cpu_milli.min(by_memory);
    let at_price = |&price: &u16| {
        let mut known = BTreeMap::new();
        let gpus = rest.gpus.iter().map(|&left| best_use(prices, rest.pool, price, left, &mut known));
        gpus.sum::<i64>() + i64::from(price) * small(cpu)
    };
    let here = prices.blocks.iter().filter(|block| block.pools.contains(&rest.pool));
    let blocks = here.map(|block| {
        let by_cores = cpu.checked_div(block.cpu_milli).unwrap_or(u64::MAX);
        i64::from(block.worth) * small(by_cores.min(rest.idle / u64::from(block.gpus)))
    });
    prices.core_prices.iter().map(at_price).min().unwrap_or(0) + blocks.sum::<i64>()
}

/// The best use of what is left of one GPU: every sequence of pieces is tried.
fn best_use(prices: &Prices, pool: PoolId, price: u16, left: u64, known: &mut BTreeMap<u64, i64>) -> i64 {
    if let Some(&worth) = known.get(&left) {
        return worth;
    }
    let mut most = 0;
    for piece in prices.pieces.iter().filter(|piece| piece.pools.contains(&pool)) {
        if let Some(rest) = left.checked_sub(piece.size.parts()) {
            let net = i64::from(piece.worth) - i64::from(price) * i64::from(piece.cpu_milli);
            most = most.max(net + best_use(prices, pool, price, rest, known));
        }
    }
    known.insert(left, most);
    most
}
