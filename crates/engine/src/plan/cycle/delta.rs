//! The plan that comes of a cycle: the difference between the state and the end of the draft.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Allocation, Cycle, PlannedEviction, Purpose};
use crate::model::placement::Placement;
use crate::plan::{EvictedJob, Plan, Start};
use crate::quota::meters::Amounts;
use crate::state::ledger::event::Eviction;
use crate::units::JobId;

impl Cycle<'_> {
    fn passes_no_limit(&self, job: JobId, tasks: &[Placement], used: &mut Amounts) -> bool {
        let spec = &self.draft.state.jobs.get(job).expect("a plan starts live jobs").spec;
        let amount = self.draft.tree.charge_of(|task| spec.resources_of(task), tasks.iter());
        self.draft.tree.count_within_limits(used, spec.tenant, &amount)
    }

    /// Pieces of groups that can start with the minimum. What comes after one that cannot may need it.
    fn first_pieces(
        &self,
        job: JobId,
        given: &Allocation,
        clear: &dyn Fn(&Placement) -> bool,
        used: &mut Amounts,
    ) -> Vec<Placement> {
        let mut started = Vec::new();
        let mut rest = &given.tasks[given.together..];
        for &count in &given.pieces {
            let (piece, after) = rest.split_at(count);
            if !piece.iter().all(clear) || !self.passes_no_limit(job, piece, used) {
                break;
            }
            started.extend_from_slice(piece);
            rest = after;
        }
        started
    }

    /// The difference between the state and the end of the draft.
    pub(in crate::plan) fn into_plan(self) -> Plan {
        let state = self.draft.state;
        let mut plan = Plan { basis: state.index(), ..Plan::default() };
        let tree = self.draft.tree;
        // Who leaves still counts towards a limit until it is gone.
        let mut used_now = tree.subtree_use(&state.own_use(tree));
        for (job, given) in self.allocations.iter() {
            let clear =
                |place: &Placement| self.draft.room(place.node).is_some_and(|room| room.is_clear(place));
            let (together, rest) = given.tasks.split_at(given.together);
            let (mut tasks, chosen) = (given.tasks.clone(), given.chosen);
            if given.purpose != Purpose::Move
                && together.iter().all(clear)
                && self.passes_no_limit(job, together, &mut used_now)
            {
                // Tasks beyond the minimum that cannot start yet come with the next plan.
                tasks.truncate(given.together);
                if given.pieces.is_empty() {
                    let startable = |place: &&Placement| {
                        clear(place) && self.passes_no_limit(job, &[**place], &mut used_now)
                    };
                    tasks.extend(rest.iter().filter(startable));
                } else {
                    tasks.extend(self.first_pieces(job, given, &clear, &mut used_now));
                }
                let list = if given.purpose == Purpose::Start { &mut plan.starts } else { &mut plan.grown };
                list.push(Start { job, tasks: in_order(given, tasks), chosen });
                continue;
            }
            plan.earmarks.push(Start { job, tasks: in_order(given, tasks), chosen });
        }
        let (promised, held): (Vec<PlannedEviction>, Vec<PlannedEviction>) =
            self.evictions.into_iter().partition(|leaving| leaving.unit.earmarked);
        plan.released = promised.into_iter().map(|leaving| leaving.unit.job).collect();
        plan.evictions = evicted(held);
        plan.refusals = self.refusals.into_iter().collect();
        plan.dropped = self.reservations.review.dropped;
        plan.reserved = self.reservations.made;
        plan.searches = self.reservations.searches;
        plan
    }
}

/// Tasks by number: groups grow one after the other.
fn in_order(given: &Allocation, mut tasks: Vec<Placement>) -> Vec<Placement> {
    if !given.pieces.is_empty() {
        tasks.sort_unstable_by_key(|place| place.task);
    }
    tasks
}

/// One entry per job: its surplus tasks, or all of it.
fn evicted(leaving: Vec<PlannedEviction>) -> Vec<EvictedJob> {
    let mut evicted: Vec<EvictedJob> = Vec::new();
    let mut listed: BTreeMap<JobId, usize> = BTreeMap::new();
    for PlannedEviction { unit, receipt } in leaving {
        let tasks = unit.steps.iter().map(|step| step.place.task);
        if let Some(&at) = listed.get(&unit.job) {
            let known: &mut EvictedJob = &mut evicted[at];
            known.tasks.extend(tasks);
            let cost = known.receipt.cost.saturating_add(receipt.cost);
            let whole = known.receipt.whole || receipt.whole;
            known.receipt = Eviction { whole, cost, ..receipt };
        } else {
            listed.insert(unit.job, evicted.len());
            evicted.push(EvictedJob { job: unit.job, tasks: tasks.collect(), receipt });
        }
    }
    for evicted in &mut evicted {
        evicted.tasks.sort_unstable();
    }
    evicted
}
