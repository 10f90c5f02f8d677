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
    pub(in crate::plan) fn into_plan(self) -> Plan {
        let (state, tree) = (self.draft.state, self.draft.tree);
        let mut plan = Plan { basis: state.index(), ..Plan::default() };
        // A job that leaves counts towards a limit until it is gone.
        let mut used_now = tree.subtree_use(&state.own_use(tree));
        for (job, given) in self.allocations.iter() {
            let now = self.startable_now(job, given, &mut used_now);
            let (list, mut tasks) = match given.purpose {
                Purpose::Start if !now.is_empty() => (&mut plan.starts, now),
                Purpose::Growth if !now.is_empty() => (&mut plan.grown, now),
                Purpose::Start | Purpose::Growth | Purpose::Move => (&mut plan.earmarks, given.tasks.clone()),
            };
            // Groups grow one after the other.
            tasks.sort_unstable_by_key(|place| place.task);
            list.push(Start { job, tasks, chosen: given.chosen });
        }
        let (earmarked, held): (Vec<PlannedEviction>, Vec<PlannedEviction>) =
            self.evictions.into_iter().partition(|leaving| leaving.unit.earmarked);
        plan.released = earmarked.into_iter().map(|leaving| leaving.unit.job).collect();
        plan.evictions = by_job(held);
        plan.refusals = self.refusals.into_iter().collect();
        plan.dropped = self.reservations.review.dropped;
        plan.reserved = self.reservations.made;
        plan.start_searches = self.reservations.searches;
        plan
    }

    /// What of an allocation can start now: nothing where its first grant cannot. What else cannot comes with the next plan.
    fn startable_now(&self, job: JobId, given: &Allocation, used: &mut Amounts) -> Vec<Placement> {
        let mut startable = Vec::new();
        if given.purpose == Purpose::Move {
            return startable;
        }
        let spec = &self.draft.state.jobs.get(job).expect("a plan starts live jobs").spec;
        let mut rest = &given.tasks[..];
        for &len in &given.grants {
            let (tasks, after) = rest.split_at(len);
            rest = after;
            let amount = self.draft.tree.charge_of(|task| spec.resources_of(task), tasks.iter());
            if tasks.iter().all(|place| self.draft.is_clear(place))
                && self.draft.tree.count_within_limits(used, spec.tenant, &amount)
            {
                startable.extend_from_slice(tasks);
            } else if startable.is_empty() || spec.has_groups() {
                // What comes after a piece of a group may need it.
                break;
            }
        }
        startable
    }
}

/// One entry per job: its surplus tasks, or all of it.
fn by_job(leaving: Vec<PlannedEviction>) -> Vec<EvictedJob> {
    let mut evicted: Vec<EvictedJob> = Vec::new();
    let mut listed: BTreeMap<JobId, usize> = BTreeMap::new();
    for PlannedEviction { unit, receipt } in leaving {
        let tasks = unit.steps.iter().map(|step| step.place.task);
        let at = *listed.entry(unit.job).or_insert(evicted.len());
        if let Some(known) = evicted.get_mut(at) {
            known.tasks.extend(tasks);
            let cost = known.receipt.cost.saturating_add(receipt.cost);
            let whole = known.receipt.whole || receipt.whole;
            known.receipt = Eviction { whole, cost, ..receipt };
        } else {
            evicted.push(EvictedJob { job: unit.job, tasks: tasks.collect(), receipt });
        }
    }
    for evicted in &mut evicted {
        evicted.tasks.sort_unstable();
    }
    evicted
}
