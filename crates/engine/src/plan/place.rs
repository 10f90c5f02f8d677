//! Where a gang goes: all of its minimum or nothing, on GPUs of one model, within its limits and its domain.
//!
//! Each task takes the tightest node that fits, so that large holes stay whole. Ties go to nodes this draft has
//! already begun to fill, then to the lower id.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::event::Placement;
use crate::job::GpuAsk;
use crate::jobs::KindKey;
use crate::plan::Obstacles;
use crate::plan::draft::Draft;
use crate::policy::Amount;
use crate::rooms::{Room, pick_gpus};
use crate::state::State;
use crate::units::{GpuMask, GpuUnits, LevelId, NodeId, PoolId, Resources, TenantId};

/// Places the minimum of one job of a kind on the draft, or leaves the draft as it was.
pub fn start(draft: &mut Draft<'_>, key: &KindKey) -> Result<Vec<Placement>, Obstacles> {
    let mut obstacles = Obstacles::default();
    for pool in pools(draft.state, key) {
        let charge = draft.tree.charge(&key.shape, pool);
        let (fits, tightest) = tasks_within_limits(draft, key, &charge);
        if let Some(tenant) = tightest.filter(|_| fits < key.min) {
            obstacles.limits.push(tenant);
            continue;
        }
        if let Some(tasks) = place_gang(draft, key, pool) {
            draft.charge(key.tenant, charge.iter().map(|each| each * u64::from(key.min)).collect());
            return Ok(tasks);
        }
        obstacles.room = true;
    }
    Err(obstacles)
}

/// Adds tasks to a gang that has its minimum, up to the wanted number, as far as room and limits go.
pub fn grow(draft: &mut Draft<'_>, key: &KindKey, tasks: &mut Vec<Placement>) {
    let Some(&first) = tasks.first() else { return };
    let charge = draft.tree.charge(&key.shape, first.pool);
    let (fits, _) = tasks_within_limits(draft, key, &charge);
    let state = draft.state;
    let domain = key.topology.gang_within.map(|level| (level, domain_of(state, first.node, level)));
    let within = |node| domain.is_none_or(|(level, domain)| domain_of(state, node, level) == domain);
    for task in key.min..key.tasks.min(key.min.saturating_add(fits)) {
        let Some(place) = place_task(draft, key, first.pool, task, &within) else { return };
        draft.charge(key.tenant, charge.clone());
        tasks.push(place);
    }
}

/// True when a job of this kind may be charged in the pool.
pub fn may_use(state: &State, key: &KindKey, pool: PoolId) -> bool {
    let has_gpus = !state.fleet.model(pool).is_empty();
    match key.shape.gpus {
        GpuAsk::Whole(0) => state.fleet.set_has_pool(key.shape.devices, pool),
        _ => has_gpus && state.fleet.set_has_pool(key.shape.devices, pool),
    }
}

/// The pools to try, in order: work without GPUs goes to nodes without GPUs first.
fn pools(state: &State, key: &KindKey) -> Vec<PoolId> {
    let mut pools: Vec<PoolId> = state.fleet.pool_ids().filter(|&pool| may_use(state, key, pool)).collect();
    pools.sort_by_key(|&pool| !state.fleet.model(pool).is_empty());
    pools
}

/// How many more tasks every limit leaves room for, and whose limit is the tightest.
fn tasks_within_limits(draft: &Draft<'_>, key: &KindKey, charge: &[u64]) -> (u32, Option<TenantId>) {
    let mut tightest = (u32::MAX, None);
    for tenant in draft.tree.lineage(key.tenant) {
        let quotas = &draft.tree.lines[tenant.index()].quotas;
        for ((quota, &used), &each) in quotas.iter().zip(draft.used(tenant)).zip(charge) {
            let Amount::Of(limit) = quota.limit else { continue };
            let fits = limit.saturating_sub(used).checked_div(each);
            let fits = fits.and_then(|fits| u32::try_from(fits).ok()).unwrap_or(u32::MAX);
            if fits < tightest.0 {
                tightest = (fits, Some(tenant));
            }
        }
    }
    tightest
}

fn place_gang(draft: &mut Draft<'_>, key: &KindKey, pool: PoolId) -> Option<Vec<Placement>> {
    let Some(level) = key.topology.gang_within else {
        return place_minimum(draft, key, pool, &|_| true);
    };
    let state = draft.state;
    let domains = domains_by_room(draft, key, pool, level);
    domains.into_iter().find_map(|domain| {
        place_minimum(draft, key, pool, &|node| domain_of(state, node, level) == Some(domain))
    })
}

/// The domain of a level that a node is in.
pub fn domain_of(state: &State, node: NodeId, level: LevelId) -> Option<u32> {
    let domains = &state.fleet.node(node)?.facts.domains;
    domains.iter().find(|(known, _)| *known == level).map(|&(_, domain)| domain)
}

/// Domains that might hold the gang, the tightest first.
fn domains_by_room(draft: &Draft<'_>, key: &KindKey, pool: PoolId, level: LevelId) -> Vec<u32> {
    let mut room_in: BTreeMap<u32, u64> = BTreeMap::new();
    for (node, _) in draft.state.ledger.rooms().iter() {
        let Some(room) = draft.room(node).filter(|room| room.open && room.pool == pool) else { continue };
        if let Some(domain) = domain_of(draft.state, node, level) {
            *room_in.entry(domain).or_default() += u64::from(tasks_that_fit(room, key));
        }
    }
    let mut fitting: Vec<(u64, u32)> = room_in
        .into_iter()
        .filter(|&(_, fits)| fits >= u64::from(key.min))
        .map(|(domain, fits)| (fits, domain))
        .collect();
    fitting.sort_unstable();
    fitting.into_iter().map(|(_, domain)| domain).collect()
}

/// All of the minimum, or the draft as it was.
fn place_minimum(
    draft: &mut Draft<'_>,
    key: &KindKey,
    pool: PoolId,
    within: &dyn Fn(NodeId) -> bool,
) -> Option<Vec<Placement>> {
    let mark = draft.mark();
    let placed: Option<Vec<Placement>> =
        (0..key.min).map(|task| place_task(draft, key, pool, task, within)).collect();
    if placed.is_none() {
        draft.roll_back(mark);
    }
    placed
}

fn place_task(
    draft: &mut Draft<'_>,
    key: &KindKey,
    pool: PoolId,
    task: u32,
    within: &dyn Fn(NodeId) -> bool,
) -> Option<Placement> {
    let (node, gpus) = find_place(draft, key, pool, within)?;
    let units_each = match key.shape.gpus {
        GpuAsk::Whole(_) => GpuUnits::WHOLE,
        GpuAsk::Share(units) => units,
    };
    let place = Placement { task, node, pool, gpus, units_each };
    draft.take(&place, key.shape.resources, key.trust);
    Some(place)
}

/// The tightest place for one task.
fn find_place(
    draft: &Draft<'_>,
    key: &KindKey,
    pool: PoolId,
    within: &dyn Fn(NodeId) -> bool,
) -> Option<(NodeId, GpuMask)> {
    let allowed = |node: NodeId| {
        within(node)
            && draft.state.fleet.set_has_node(key.shape.nodes, node)
            && draft.room(node).is_some_and(|room| room.free().covers(&key.shape.resources))
    };
    let least = match key.shape.gpus {
        GpuAsk::Whole(count) => count,
        GpuAsk::Share(units) => {
            if let Some(found) = find_shared(draft, key, pool, units, &allowed) {
                return Some(found);
            }
            1
        }
    };
    let from = u8::try_from(least).expect("a task asks for at most 16 GPUs");
    let levels = from..=u8::try_from(GpuMask::MAX).expect("16 fits");
    let mut nodes = levels.flat_map(|free| draft.with_whole_free(pool, free)).filter(|&node| allowed(node));
    nodes.find_map(|node| {
        let room = draft.room(node)?;
        Some((node, pick_gpus(room, least, key.topology.task_on_island)?))
    })
}

/// The GPU with the least left that still has enough, among those this trust domain already holds in part.
fn find_shared(
    draft: &Draft<'_>,
    key: &KindKey,
    pool: PoolId,
    units: GpuUnits,
    allowed: &dyn Fn(NodeId) -> bool,
) -> Option<(NodeId, GpuMask)> {
    let ours = |node: NodeId, at: u8| {
        let gpu = draft.room(node).and_then(|room| room.gpus.get(usize::from(at)));
        gpu.is_some_and(|gpu| gpu.free_for(key.trust) >= units)
    };
    let mut gpus = draft.partly_free(pool, units);
    let (_, node, at) = gpus.find(|&(_, node, at)| ours(node, at) && allowed(node))?;
    let mut mask = GpuMask::default();
    mask.insert(usize::from(at));
    Some((node, mask))
}

/// How many tasks of a kind a room could take.
pub fn tasks_that_fit(room: &Room, key: &KindKey) -> u32 {
    let by_gpu = match key.shape.gpus {
        GpuAsk::Whole(0) => u32::MAX,
        GpuAsk::Whole(count) if key.topology.task_on_island => {
            let islands = room.gpus.iter().filter(|gpu| gpu.is_free()).map(|gpu| gpu.island);
            let mut free_on: BTreeMap<u32, u32> = BTreeMap::new();
            islands.for_each(|island| *free_on.entry(island).or_default() += 1);
            free_on.values().map(|free| free / count).sum()
        }
        GpuAsk::Whole(count) => u32::try_from(room.whole_free()).expect("at most 16") / count,
        GpuAsk::Share(units) => {
            let fits = |gpu: &crate::rooms::GpuRoom| gpu.free_for(key.trust).parts() / units.parts();
            u32::try_from(room.gpus.iter().map(fits).sum::<u64>()).unwrap_or(u32::MAX)
        }
    };
    by_gpu.min(tasks_beside_gpus(room.free(), key.shape.resources))
}

/// How many tasks the rest of a node leaves room for.
pub fn tasks_beside_gpus(free: Resources, asked: Resources) -> u32 {
    let parts = [
        (free.cpu_milli, asked.cpu_milli),
        (free.memory, asked.memory),
        (free.storage, asked.storage),
        (free.pods, asked.pods),
        (free.nics, asked.nics),
    ];
    let fits = parts.into_iter().filter(|&(_, asked)| asked > 0).map(|(free, asked)| free / asked);
    u32::try_from(fits.min().unwrap_or(u64::from(u32::MAX))).unwrap_or(u32::MAX)
}
