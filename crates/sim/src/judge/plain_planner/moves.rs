//! Moving: room in one piece, by giving jobs that may be moved another place (rule 13).

use std::cmp::Reverse;

use wharf_engine::model::job::GpuAsk;
use wharf_engine::model::placement::Placement;
use wharf_engine::state::ledger::event::EvictionRule;
use wharf_engine::units::{JobId, NodeId};

use super::lines::Ask;
use super::place::{may_use, place, tasks_that_fit};
use super::units::{Unit, is_ripe, movable};
use super::world::World;

/// The most nodes that are looked at as a target.
const TARGETS_MAX: usize = 32;
/// How many of them are tried as the first.
const TRIES_MAX: usize = 8;

/// A job that gets another place.
#[derive(Clone)]
pub(super) struct Moved<'a> {
    pub(super) unit: Unit<'a>,
    pub(super) tasks: Vec<Placement>,
}

/// The world in which the ask is met because others moved.
pub(super) struct MetByMoving<'a> {
    pub(super) world: World<'a>,
    pub(super) tasks: Vec<Placement>,
    pub(super) moved: Vec<Moved<'a>>,
}

pub(super) fn place_by_moving<'a>(world: &World<'a>, ask: &Ask<'a>) -> Option<MetByMoving<'a>> {
    let moves_max = usize::try_from(world.facts.policy.preemption.moves_max).unwrap_or(usize::MAX);
    if moves_max == 0 || !enough_in_pieces(world, ask) {
        return None;
    }
    let targets = targets(world, ask);
    (0..targets.len().min(TRIES_MAX)).find_map(|first| try_targets(world, ask, &targets[first..], moves_max))
}

/// True when the pool has as much free as is asked for, in whatever pieces.
fn enough_in_pieces(world: &World<'_>, ask: &Ask<'_>) -> bool {
    let wanted = ask.spec.shape.gpus.units().parts() * u64::from(ask.tasks);
    let mut free = 0;
    for node in world.open_nodes(ask.pool) {
        for gpu in 0..world.gpu_count(node) {
            free += world.free_for(node, gpu, ask.spec.trust);
        }
    }
    free >= wanted
}

/// For each node that could take more of the ask if some jobs were elsewhere, those jobs; the least to move first.
fn targets<'a>(world: &World<'a>, ask: &Ask<'a>) -> Vec<Vec<Unit<'a>>> {
    let mut targets = Vec::new();
    for node in nodes_with_room(world, ask).into_iter().take(TARGETS_MAX) {
        if !may_use(world, ask, node) {
            continue;
        }
        if let Some(units) = target(world, ask, node) {
            let tasks: usize = units.iter().map(|unit| unit.tasks.len()).sum();
            let cost = units.iter().map(|unit| unit.cost).fold(0, u64::saturating_add);
            targets.push(((units.len(), tasks, cost, node), units));
        }
    }
    targets.sort_by_key(|(rank, _)| *rank);
    targets.into_iter().map(|(_, units)| units).collect()
}

/// Nodes with anything free: those with most free GPUs first, then those that nobody leaves; at last those of which
/// only parts of GPUs are free.
fn nodes_with_room(world: &World<'_>, ask: &Ask<'_>) -> Vec<NodeId> {
    let without_gpus = ask.spec.shape.gpus == GpuAsk::Whole(0);
    let (mut whole, mut partly) = (Vec::new(), Vec::new());
    for node in world.open_nodes(ask.pool) {
        let free = world.free_gpus(node).len();
        if free > 0 || without_gpus {
            whole.push((Reverse(free), world.drains(node), node));
        } else if (0..world.gpu_count(node)).any(|gpu| world.is_partly_free(node, gpu)) {
            partly.push(node);
        }
    }
    whole.sort_unstable();
    whole.into_iter().map(|(_, _, node)| node).chain(partly).collect()
}

/// The fewest jobs of a node, the smallest first, without which one more task would fit there.
fn target<'a>(world: &World<'a>, ask: &Ask<'a>, node: NodeId) -> Option<Vec<Unit<'a>>> {
    let before = tasks_that_fit(world, ask.spec, node);
    let mut jobs: Vec<JobId> = world
        .tasks
        .iter()
        .filter(|task| task.place.node == node)
        .filter_map(|task| task.owner.map(|(job, _)| job))
        .collect();
    jobs.sort_unstable();
    jobs.dedup();
    jobs.retain(|&job| job != ask.job);
    let mut units: Vec<Unit<'a>> = jobs.into_iter().filter_map(|job| movable(world, job)).collect();
    let here = |unit: &Unit<'_>| unit.tasks.iter().filter(|place| place.node == node).count();
    units.retain(|unit| here(unit) > 0 && is_ripe(world.facts, unit, ask, EvictionRule::Move));
    units.sort_by_key(|unit| (unit.tasks.len(), unit.amount.clone(), here(unit), unit.cost, unit.job));
    let mut without = world.clone();
    let mut chosen = Vec::new();
    for unit in units {
        without.take_away(unit.job, &unit.tasks);
        chosen.push(unit);
        if tasks_that_fit(&without, ask.spec, node) > before {
            return Some(chosen);
        }
    }
    None
}

/// Moves the jobs of one target after another until the ask fits.
fn try_targets<'a>(
    world: &World<'a>,
    ask: &Ask<'a>,
    targets: &[Vec<Unit<'a>>],
    moves_max: usize,
) -> Option<MetByMoving<'a>> {
    let mut without = world.clone();
    let mut moving: Vec<Unit<'a>> = Vec::new();
    for units in targets {
        for unit in units {
            if !moving.contains(unit) {
                without.take_away(unit.job, &unit.tasks);
                moving.push(unit.clone());
            }
        }
        if moving.len() > moves_max {
            return None;
        }
        if let Some((world, tasks)) = place(&without, ask) {
            return place_movers(world, tasks, moving);
        }
    }
    None
}

/// Everybody who made way gets another place, the largest first.
fn place_movers<'a>(
    mut world: World<'a>,
    tasks: Vec<Placement>,
    mut moving: Vec<Unit<'a>>,
) -> Option<MetByMoving<'a>> {
    moving.sort_by_key(|unit| Reverse(unit.amount.clone()));
    let mut moved = Vec::new();
    for unit in moving {
        let count = u32::try_from(unit.tasks.len()).expect("a count of tasks fits");
        let again = Ask::plain(world.facts, unit.job, unit.spec, unit.tasks[0].pool, count);
        let (after, tasks) = place(&world, &again)?;
        world = after;
        moved.push(Moved { unit, tasks });
    }
    Some(MetByMoving { world, tasks, moved })
}
