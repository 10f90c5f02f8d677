//! Moving: room in one piece for an ask, by giving jobs that may be moved another place (rule 13).
//!
//! Worked example: two nodes of 2 GPUs with one job of one GPU on each; somebody asks for 2 on one node. Two GPUs
//! are free, but apart. One job moves beside the other, and the ask has its node. Nobody loses a place, nobody's use
//! changes.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::model::job::Class;
use crate::model::need::Need;
use crate::model::placement::Placement;
use crate::plan::cycle::Commitments;
use crate::plan::draft::{Draft, Mark};
use crate::plan::evict::search::{Claimant, evictable_at, is_evictable};
use crate::plan::evict::victims::{Unit, whole_job};
use crate::plan::later::kept;
use crate::plan::lines::{Pass, is_fixed, work_group};
use crate::plan::memory::earlier;
use crate::plan::place::{Ask, Fit, groups, place, tasks_that_fit};
use crate::price::node_classes::Drains;
use crate::state::ledger::Step;
use crate::state::ledger::event::EvictionRule;
use crate::state::rooms::{GpuRoom, Room};
use crate::units::{GpuMask, GpuUnits, JobId, NodeId, Timestamp};

/// The most nodes that are looked at as a target.
const TARGETS_MAX: usize = 32;
/// How many of them are tried as the first.
const TRIES_MAX: usize = 8;

/// A job that gets another place.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    /// What it gives up.
    pub unit: Unit,
    /// Where it goes.
    pub tasks: Vec<Placement>,
}

/// The places of an ask, and who moves for it; or everything as it was.
pub(in crate::plan) fn place_by_moving(
    draft: &mut Draft<'_>,
    ask: &Ask<'_>,
    claimant: Claimant,
    commitments: &Commitments,
    retry_at: &mut Option<Timestamp>,
) -> Option<(Vec<Placement>, Vec<Move>)> {
    let moves_max = usize::try_from(draft.policy.preemption.moves_max).unwrap_or(usize::MAX);
    if moves_max == 0 || !enough_in_pieces(draft, ask) {
        return None;
    }
    let targets = targets(draft, ask, claimant, commitments, retry_at);
    let start = draft.mark();
    for first in 0..targets.len().min(TRIES_MAX) {
        let found = try_targets(draft, ask, (claimant, commitments), &targets[first..], moves_max);
        if found.is_some() {
            return found;
        }
        draft.roll_back(start);
    }
    None
}

/// A node that could take more of the ask if these jobs were elsewhere.
struct Target {
    units: Vec<Unit>,
}

fn try_targets(
    draft: &mut Draft<'_>,
    ask: &Ask<'_>,
    (claimant, commitments): (Claimant, &Commitments),
    targets: &[Target],
    moves_max: usize,
) -> Option<(Vec<Placement>, Vec<Move>)> {
    let mut moving: Vec<Unit> = Vec::new();
    for target in targets {
        for unit in &target.units {
            if moving.iter().all(|other| other.job != unit.job) {
                draft.evict(unit);
                moving.push(unit.clone());
            }
        }
        if moving.len() > moves_max {
            return None;
        }
        if Fit::of(draft, ask).is_enough(draft, ask) {
            return place_everybody(draft, ask, (claimant, commitments), moving);
        }
    }
    None
}

/// The ask first, then everybody who made way for it, the largest first. Those do not go where a start is promised or a
/// window is booked, because there they might have to leave again, unless a guarantee would wait for that.
fn place_everybody(
    draft: &mut Draft<'_>,
    ask: &Ask<'_>,
    (claimant, commitments): (Claimant, &Commitments),
    mut moving: Vec<Unit>,
) -> Option<(Vec<Placement>, Vec<Move>)> {
    let before: Mark = draft.mark();
    let own = place(draft, ask)?.tasks;
    moving.sort_by_key(|unit| core::cmp::Reverse(unit.amount.clone()));
    let kept = kept_for_others(draft, claimant.job, commitments);
    let anywhere = !kept.is_empty() && claimant.pass == Pass::WithinGuarantee;
    let moved = place_movers(draft, &moving, &kept)
        .or_else(|| if anywhere { place_movers(draft, &moving, &[]) } else { None });
    if moved.is_none() {
        draft.roll_back(before);
    }
    Some((own, moved?))
}

/// Another place for each, beside what is kept for others; or the draft as it was.
fn place_movers(draft: &mut Draft<'_>, moving: &[Unit], kept: &[Step]) -> Option<Vec<Move>> {
    let before = draft.mark();
    draft.occupy_all(kept);
    let mut moved = Vec::new();
    for unit in moving {
        let Some(tasks) = place_again(draft, unit) else {
            draft.roll_back(before);
            return None;
        };
        moved.push(Move { unit: unit.clone(), tasks });
    }
    draft.vacate_all(kept);
    Some(moved)
}

/// Another place for a job that moves, if the policy still allows what it holds.
fn place_again(draft: &mut Draft<'_>, unit: &Unit) -> Option<Vec<Placement>> {
    let job = draft.state.jobs.get(unit.job).expect("who moves is a live job");
    let key = job.key();
    let old: Vec<Placement> = unit.steps.iter().map(|step| step.place).collect();
    let again = groups::of_places(draft.desk(), &key, &job.spec, &old)?;
    let placed = place(draft, &again)?;
    draft.count(work_group(&key), again.total(), true);
    Some(placed.tasks)
}

/// Places of promised starts and booked windows that are not on their way yet.
fn kept_for_others(draft: &Draft<'_>, own: JobId, commitments: &Commitments) -> Vec<Step> {
    let reserved = draft.state.reservations.iter();
    let waiting = reserved.filter(|of| of.job != own && commitments.awaits(draft, of));
    kept::all_steps(draft, waiting)
}

/// True when the pool has as much free as is asked for, in whatever pieces.
pub(in crate::plan) fn enough_in_pieces(draft: &Draft<'_>, ask: &Ask<'_>) -> bool {
    ask.parts().all(|part| is_enough_in_pieces(draft, part))
}

fn is_enough_in_pieces(draft: &Draft<'_>, ask: &Ask<'_>) -> bool {
    let wanted = ask.way.need.units().times(ask.tasks).parts();
    let mut free = 0u64;
    for room in rooms_with_room(draft, ask).into_iter().filter_map(|node| draft.room(node)) {
        let left = room.gpus.iter().map(|gpu| free_of(gpu, ask));
        free = free.saturating_add(left.sum());
        if free >= wanted {
            return true;
        }
    }
    free >= wanted
}

fn free_of(gpu: &GpuRoom, ask: &Ask<'_>) -> u64 {
    match ask.way.need {
        Need::Slice { .. } if gpu.open_layout().is_some() => {
            GpuUnits::WHOLE.checked_sub(gpu.held).unwrap_or_default().parts()
        }
        Need::Slice { .. } => 0,
        // What is free between slices is free in pieces.
        Need::Whole(_) if !gpu.layout.is_empty() && gpu.usable => {
            GpuUnits::WHOLE.checked_sub(gpu.held).unwrap_or_default().parts()
        }
        Need::Whole(_) | Need::Share { .. } => gpu.free_for(ask.key.trust).parts(),
    }
}

/// Open nodes of the pool on which something is free, those with most first.
fn rooms_with_room(draft: &Draft<'_>, ask: &Ask<'_>) -> Vec<NodeId> {
    let most = u8::try_from(GpuMask::MAX).expect("16 fits");
    let least = u8::from(ask.way.need != Need::Whole(0));
    let mut nodes: Vec<NodeId> = Vec::new();
    for free in (least..=most).rev() {
        nodes.extend(draft.with_whole_free(ask.pool(), Drains::No, free));
        nodes.extend(draft.with_whole_free(ask.pool(), Drains::Yes, free));
    }
    let known: BTreeSet<NodeId> = nodes.iter().copied().collect();
    let partly = draft.partly_free(ask.pool(), GpuUnits::from_parts(1)).map(|(_, node, _)| node);
    let partly: BTreeSet<NodeId> = partly.filter(|node| !known.contains(node)).collect();
    nodes.extend(partly);
    if matches!(ask.way.need, Need::Slice { .. } | Need::Whole(1..)) {
        let known: BTreeSet<NodeId> = nodes.iter().copied().collect();
        let sliced: BTreeSet<NodeId> = draft.nodes_partly_cut(ask.pool()).collect();
        nodes.extend(sliced.difference(&known));
    }
    nodes
}

/// Nodes that could take more of the ask if some of their jobs were elsewhere, the least to move first.
fn targets(
    draft: &mut Draft<'_>,
    ask: &Ask<'_>,
    claimant: Claimant,
    commitments: &Commitments,
    retry_at: &mut Option<Timestamp>,
) -> Vec<Target> {
    let state = draft.state;
    let mut targets = Vec::new();
    let nodes_of =
        |ask: &Ask<'_>| rooms_with_room(draft, ask).into_iter().take(TARGETS_MAX).collect::<Vec<_>>();
    let nodes: Vec<(usize, NodeId)> = ask
        .parts()
        .enumerate()
        .flat_map(|(at, part)| nodes_of(part).into_iter().map(move |node| (at, node)))
        .collect();
    for (at, node) in nodes {
        let part = ask.parts().nth(at).expect("it was counted a moment ago");
        if !part.key.may_go_to(&state.fleet, node) {
            continue;
        }
        if let Some(target) = target(draft, part, claimant, node, commitments, retry_at) {
            let to_move: u64 = target.units.iter().map(|unit| unit.cost).fold(0, u64::saturating_add);
            let tasks: usize = target.units.iter().map(|unit| unit.steps.len()).sum();
            targets.push(((target.units.len(), tasks, to_move, node), target));
        }
    }
    targets.sort_by_key(|(rank, _)| *rank);
    targets.into_iter().map(|(_, target)| target).collect()
}

/// The fewest jobs of a node, the smallest first, without which one more task would fit there.
fn target(
    draft: &mut Draft<'_>,
    ask: &Ask<'_>,
    claimant: Claimant,
    node: NodeId,
    commitments: &Commitments,
    retry_at: &mut Option<Timestamp>,
) -> Option<Target> {
    let fits = |room: Option<&Room>| room.map_or(0, |room| tasks_that_fit(room, ask.way.need, ask.key));
    let before = fits(draft.room(node));
    let jobs: BTreeSet<JobId> = draft.state.ledger.tasks_on(node).map(|(job, _)| job).collect();
    let movable = jobs.into_iter().filter(|job| commitments.may_move(*job) && *job != claimant.job);
    let mut units: Vec<Unit> = movable.filter_map(|job| whole_job(draft, job)).collect();
    // A move stops a job for a while: no latency is spent on tidying up. Nor is anybody moved who needs longer to save
    // than a guarantee waits for.
    let policy = draft.policy;
    units.retain(|unit| unit.group.class != Class::Inference && !is_fixed(&unit.group, policy));
    units.retain(|unit| {
        let evictable = is_evictable(draft, unit, claimant, EvictionRule::Move);
        if !evictable {
            *retry_at = earlier(*retry_at, evictable_at(draft, unit, claimant, EvictionRule::Move));
        }
        evictable
    });
    let here = |unit: &Unit| unit.steps.iter().filter(|step| step.place.node == node).count();
    units.sort_by_key(|unit| (unit.steps.len(), unit.amount.clone(), here(unit), unit.cost, unit.job));
    let mark = draft.mark();
    let mut chosen = Vec::new();
    for unit in units {
        let on_node: Vec<Step> = unit.steps.iter().filter(|step| step.place.node == node).copied().collect();
        for step in on_node {
            draft.drain(step);
        }
        chosen.push(unit);
        if fits(draft.room(node)) > before {
            draft.roll_back(mark);
            return Some(Target { units: chosen });
        }
    }
    draft.roll_back(mark);
    None
}
