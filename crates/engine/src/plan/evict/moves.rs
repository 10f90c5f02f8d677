//! Moving: room in one piece for an ask, by giving jobs that may be moved another place (rule 13).
//!
//! Worked example: two nodes of 2 GPUs, each with one job of one GPU; a job asks for 2 on one node. Two GPUs are free, but
//! apart. One job moves beside the other, and the ask has its node. Nobody loses a place, nobody's use changes.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::model::job::Class;
use crate::model::need::Need;
use crate::model::placement::Placement;
use crate::plan::cycle::Commitments;
use crate::plan::draft::Draft;
use crate::plan::evict::search::{Claimant, check_evictable};
use crate::plan::evict::victims::{Unit, whole_job};
use crate::plan::later::kept;
use crate::plan::lines::{Pass, is_fixed, work_group};
use crate::plan::memory::earlier;
use crate::plan::place::{Ask, Fit, place, tasks_that_fit};
use crate::price::node_classes::Drains;
use crate::state::ledger::Step;
use crate::state::ledger::event::EvictionRule;
use crate::state::rooms::{GpuRoom, Room};
use crate::units::{GpuMask, GpuUnits, JobId, NodeId, Timestamp};

/// The most nodes of each part of an ask that are considered as a target.
const TARGETS_MAX: usize = 32;
/// How many of them are tried as the first.
const TRIES_MAX: usize = 8;

/// A job that gets another place.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    pub unit: Unit,
    pub tasks: Vec<Placement>,
}

/// Where the tasks of an ask go, and the jobs that move for it.
type PlacedByMoving = (Vec<Placement>, Vec<Move>);

/// The places of an ask, and the jobs that move for it; or everything as it was.
pub(in crate::plan) fn place_by_moving(
    draft: &mut Draft<'_>,
    ask: &Ask<'_>,
    claimant: Claimant,
    commitments: &Commitments,
    retry_at: &mut Option<Timestamp>,
) -> Option<PlacedByMoving> {
    let moves_max = usize::try_from(draft.policy.preemption.moves_max).unwrap_or(usize::MAX);
    if moves_max == 0 || !enough_in_pieces(draft, ask) {
        return None;
    }
    let start = draft.mark();
    let mut search = MoveSearch { draft, ask, claimant, commitments, retry_at };
    let targets = search.targets();
    (0..targets.len().min(TRIES_MAX)).find_map(|first| {
        let found = search.try_targets(&targets[first..], moves_max);
        if found.is_none() {
            search.draft.roll_back(start);
        }
        found
    })
}

struct MoveSearch<'s, 'd, 'k> {
    draft: &'s mut Draft<'d>,
    ask: &'s Ask<'k>,
    claimant: Claimant,
    commitments: &'s Commitments,
    retry_at: &'s mut Option<Timestamp>,
}

impl MoveSearch<'_, '_, '_> {
    /// What to move away from each node that could take more of the ask then, the least to move first.
    fn targets(&mut self) -> Vec<Vec<Unit>> {
        let mut targets = Vec::new();
        for part in self.ask.parts() {
            for node in nodes_with_room(self.draft, part).into_iter().take(TARGETS_MAX) {
                if !part.key.may_go_to(&self.draft.state.fleet, node) {
                    continue;
                }
                if let Some(units) = self.jobs_to_move_from(node, part) {
                    let cost = units.iter().map(|unit| unit.cost).fold(0, u64::saturating_add);
                    let tasks: usize = units.iter().map(|unit| unit.steps.len()).sum();
                    targets.push(((units.len(), tasks, cost, node), units));
                }
            }
        }
        targets.sort_by_key(|(rank, _)| *rank);
        targets.into_iter().map(|(_, units)| units).collect()
    }

    /// The fewest jobs of a node, the smallest first, without which one more task would fit there.
    fn jobs_to_move_from(&mut self, node: NodeId, ask: &Ask<'_>) -> Option<Vec<Unit>> {
        let fits = |room: Option<&Room>| room.map_or(0, |room| tasks_that_fit(room, ask.way.need, ask.key));
        let before = fits(self.draft.room(node));
        let mut units = self.movable_on(node);
        let here = |unit: &Unit| unit.steps.iter().filter(|step| step.place.node == node).count();
        units.sort_by_key(|unit| (unit.steps.len(), unit.amount.clone(), here(unit), unit.cost, unit.job));
        let mark = self.draft.mark();
        let enough = units.iter().position(|unit| {
            let on_node = unit.steps.iter().filter(|step| step.place.node == node);
            on_node.for_each(|&step| self.draft.drain(step));
            fits(self.draft.room(node)) > before
        });
        self.draft.roll_back(mark);
        units.truncate(enough? + 1);
        Some(units)
    }

    fn movable_on(&mut self, node: NodeId) -> Vec<Unit> {
        let (draft, policy) = (&*self.draft, self.draft.policy);
        let jobs: BTreeSet<JobId> = draft.state.ledger.tasks_on(node).map(|(job, _)| job).collect();
        let movable =
            jobs.into_iter().filter(|&job| self.commitments.may_move(job) && job != self.claimant.job);
        // A move stops a job for a while: latency is not spent on that, nor a longer time to save than a guarantee waits.
        let units = movable
            .filter_map(|job| whole_job(draft, job))
            .filter(|unit| unit.group.class != Class::Inference && !is_fixed(&unit.group, policy));
        let evictable = |unit: &Unit| {
            let checked = check_evictable(draft, unit, self.claimant, EvictionRule::Move);
            *self.retry_at = earlier(*self.retry_at, checked.err().flatten());
            checked.is_ok()
        };
        units.filter(evictable).collect()
    }

    /// Moves jobs away from one target after the other until the ask fits.
    fn try_targets(&mut self, targets: &[Vec<Unit>], moves_max: usize) -> Option<PlacedByMoving> {
        let mut moving: Vec<Unit> = Vec::new();
        for units in targets {
            for unit in units {
                if moving.iter().all(|other| other.job != unit.job) {
                    self.draft.evict(unit);
                    moving.push(unit.clone());
                }
            }
            if moving.len() > moves_max {
                return None;
            }
            if Fit::of(self.draft, self.ask).is_enough(self.draft, self.ask) {
                return self.place_all(moving);
            }
        }
        None
    }

    /// The ask first, then every job that makes way for it, the largest first. Those do not go where a start is promised or a
    /// window is booked, because there they might have to leave again, unless a guarantee would wait for that.
    fn place_all(&mut self, mut moving: Vec<Unit>) -> Option<PlacedByMoving> {
        let own = place(self.draft, self.ask)?.tasks;
        moving.sort_by_key(|unit| core::cmp::Reverse(unit.amount.clone()));
        let reserved = self.draft.state.reservations.iter();
        let waiting =
            reserved.filter(|of| of.job != self.claimant.job && self.commitments.awaits(self.draft, of));
        let kept = kept::all_steps(self.draft, waiting);
        let anywhere = !kept.is_empty() && self.claimant.pass == Pass::WithinGuarantee;
        let moved = place_movers(self.draft, &moving, &kept)
            .or_else(|| if anywhere { place_movers(self.draft, &moving, &[]) } else { None });
        Some((own, moved?))
    }
}

/// Another place for each, beside what is kept for others; or the draft as it was.
fn place_movers(draft: &mut Draft<'_>, moving: &[Unit], kept: &[Step]) -> Option<Vec<Move>> {
    let before = draft.mark();
    draft.occupy_all(kept);
    let move_away = |unit: &Unit| Some(Move { unit: unit.clone(), tasks: place_again(draft, unit)? });
    let moved: Option<Vec<Move>> = moving.iter().map(move_away).collect();
    if moved.is_some() {
        draft.vacate_all(kept);
    } else {
        draft.roll_back(before);
    }
    moved
}

/// Another place for a job that moves, if the policy still allows what it holds.
fn place_again(draft: &mut Draft<'_>, unit: &Unit) -> Option<Vec<Placement>> {
    let job = draft.state.jobs.get(unit.job).expect("a job that moves is live");
    let key = job.key();
    let old: Vec<Placement> = unit.steps.iter().map(|step| step.place).collect();
    let again = draft.asks().of_places(&key, &job.spec, &old)?;
    let placed = place(draft, &again)?;
    draft.count(work_group(&key), again.total(), true);
    Some(placed.tasks)
}

/// True when the pools have as much free as is asked for, in whatever pieces.
pub(in crate::plan) fn enough_in_pieces(draft: &Draft<'_>, ask: &Ask<'_>) -> bool {
    ask.parts().all(|part| {
        let wanted = part.way.need.units().times(part.tasks).parts();
        let nodes = nodes_with_room(draft, part);
        let mut free = nodes.iter().filter_map(|&node| draft.room(node)).scan(0u64, |free, room| {
            *free = room.gpus.iter().map(|gpu| free_of(gpu, part)).fold(*free, u64::saturating_add);
            Some(*free)
        });
        wanted == 0 || free.any(|free| free >= wanted)
    })
}

fn free_of(gpu: &GpuRoom, ask: &Ask<'_>) -> u64 {
    let free_in_pieces = match ask.way.need {
        Need::Slice { .. } => gpu.open_layout().is_some(),
        // What is free between slices is free in pieces.
        Need::Whole(_) if !gpu.layout.is_empty() && gpu.usable => true,
        Need::Whole(_) | Need::Share { .. } => return gpu.free_for(ask.key.trust).parts(),
    };
    if free_in_pieces { GpuUnits::WHOLE.checked_sub(gpu.held).unwrap_or_default().parts() } else { 0 }
}

/// Open nodes of the pool on which something is free, those with most first.
fn nodes_with_room(draft: &Draft<'_>, ask: &Ask<'_>) -> Vec<NodeId> {
    let most = u8::try_from(GpuMask::MAX).expect("16 fits");
    let least = u8::from(ask.way.need != Need::Whole(0));
    let mut nodes: Vec<NodeId> = Vec::new();
    for free in (least..=most).rev() {
        nodes.extend(draft.with_whole_free(ask.pool(), Drains::No, free));
        nodes.extend(draft.with_whole_free(ask.pool(), Drains::Yes, free));
    }
    let mut known: BTreeSet<NodeId> = nodes.iter().copied().collect();
    let mut add = |more: BTreeSet<NodeId>| nodes.extend(more.into_iter().filter(|&node| known.insert(node)));
    add(draft.partly_free(ask.pool(), GpuUnits::from_parts(1)).map(|(_, node, _)| node).collect());
    if matches!(ask.way.need, Need::Slice { .. } | Need::Whole(1..)) {
        add(draft.nodes_partly_cut(ask.pool()).collect());
    }
    nodes
}
