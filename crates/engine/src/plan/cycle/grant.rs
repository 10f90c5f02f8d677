//! What a candidate was given, and who has to leave for it, written down on the draft.

use alloc::vec::Vec;

use super::{Cycle, Grant, PlannedEviction, Purpose, Reclaim};
use crate::model::need::Need;
use crate::plan::evict::search::gain;
use crate::plan::evict::victims::Unit;
use crate::plan::order::Candidate;
use crate::state::jobs::{KindKey, More};
use crate::state::ledger::Step;
use crate::state::ledger::event::{Eviction, EvictionRule};
use crate::units::{JobId, NodeId, TenantId, Timestamp};

impl<'a> Cycle<'a> {
    /// Writes down what a candidate was given; returns the tenants whose use changed because of it.
    pub(super) fn record(&mut self, at: usize, grant: Grant<'a>) -> Vec<TenantId> {
        let candidate = self.queue.get(at);
        let (key, more, (age, job)) = (candidate.key, candidate.more, candidate.first);
        let need = grant.ask.way.need;
        let pool = grant.tasks.first().map(|place| place.pool).expect("an ask has tasks");
        let touched = self.record_leaving(job, &grant);
        let purpose = if more.is_some() { Purpose::Growth } else { Purpose::Start };
        let node = grant.tasks.first().map(|place| place.node).expect("an ask has tasks");
        self.allocations.add(job, grant.tasks, purpose, grant.chosen, !key.groups.is_empty());
        self.commitments.given.insert(job);
        self.queue.served(at);
        let state = self.draft.state;
        let holding = state.ledger.holding(job).filter(|_| more.is_some());
        let done = holding.map_or(0, |holding| holding.exits(crate::model::exit::Exit::Succeeded));
        let staying = holding.map_or(0, |holding| holding.staying().count());
        if !key.groups.is_empty() {
            self.grow_groups(key, (age, job), node);
            return touched;
        }
        let has = u32::try_from(staying + self.allocations.by_job[&job].tasks.len()).unwrap_or(u32::MAX);
        // A job of which tasks have finished is repaired, but not grown any more.
        if done == 0 && has < key.tasks {
            let domain = key.topology.gang_within.and_then(|level| state.fleet.domain_of(node, level));
            let more = Some(More { tasks: 1, repair: false, pool, need, domain, of: None });
            let candidate = Candidate::of_job(&self.draft, key, more, (age, job));
            if let Some(candidate) = candidate {
                self.queue.add(state, candidate);
            }
        }
        touched
    }

    /// A job with groups was given something; what else it lacks it may have in this plan too.
    fn grow_groups(&mut self, key: &'a KindKey, job: (Timestamp, JobId), node: NodeId) {
        let state = self.draft.state;
        let holding = state.ledger.holding(job.1);
        if holding.is_some_and(|holding| holding.done().next().is_some()) {
            return;
        }
        let given = &self.allocations.by_job[&job.1];
        let Some(first) = given.tasks.first() else { return };
        let domain = key.topology.gang_within.and_then(|level| state.fleet.domain_of(node, level));
        let (pool, need, of) = (first.pool, Need::held(first), Some(job.1));
        let more = More { tasks: 1, repair: false, pool, need, domain, of };
        let candidate = Candidate::of_groups(&self.draft, None, key, more, job, &given.tasks);
        if let Some(candidate) = candidate {
            self.queue.add(state, candidate);
        }
    }

    fn record_leaving(&mut self, job: JobId, grant: &Grant<'_>) -> Vec<TenantId> {
        let units: Vec<Unit> = grant.taken.iter().map(|taken| self.victims.get(taken.unit).clone()).collect();
        let ask = &grant.ask;
        let bound = |why: EvictionRule, unit: &Unit| (why != EvictionRule::Guarantee).then(|| unit.clone());
        let bound: Vec<Unit> =
            grant.taken.iter().zip(&units).filter_map(|(taken, unit)| bound(taken.why, unit)).collect();
        let gained = gain(&self.draft, ask, &bound.iter().collect::<Vec<_>>());
        let started = ask.units().parts();
        let for_share = grant.taken.iter().zip(&units).filter(|(taken, _)| taken.why.is_judged_by_idle());
        let freed: Vec<Step> = for_share.flat_map(|(_, unit)| unit.steps.iter().copied()).collect();
        if !freed.is_empty() {
            self.reclaims.push(Reclaim { job, started, freed });
        }
        let mut touched = Vec::new();
        for (taken, unit) in grant.taken.iter().zip(units) {
            touched.push(unit.group.tenant);
            if !unit.surplus {
                self.withdraw(unit.job);
            }
            let gain = (taken.why != EvictionRule::Guarantee).then_some(gained);
            self.leaves(unit, taken.why, job, gain, taken.straddles);
        }
        let moving: Vec<&Unit> = grant.moved.iter().map(|moved| &moved.unit).collect();
        let gained = gain(&self.draft, ask, &moving);
        for moved in &grant.moved {
            let unit = moved.unit.clone();
            touched.push(unit.group.tenant);
            self.withdraw(unit.job);
            self.allocations.move_to(unit.job, moved.tasks.clone(), None);
            self.commitments.given.insert(unit.job);
            self.leaves(unit, EvictionRule::Move, job, Some(gained), None);
        }
        touched
    }

    /// All of a job has to leave for a beneficiary, by a rule that asks neither for a price nor for lines.
    pub(super) fn evict_job(&mut self, unit: Unit, why: EvictionRule, beneficiary: JobId) {
        let tenant = unit.group.tenant;
        self.draft.evict(&unit);
        self.victims.take_job(&self.draft, tenant, unit.job);
        self.withdraw(unit.job);
        self.leaves(unit, why, beneficiary, None, None);
        self.queue.touch(&mut self.draft, tenant);
    }

    /// A job that has to leave is neither grown nor repaired; another place is all it may be given.
    fn withdraw(&mut self, job: JobId) {
        if self.draft.state.jobs.get(job).is_some_and(|job| job.more.is_some()) {
            self.queue.withdraw(job);
        }
    }

    fn leaves(
        &mut self,
        unit: Unit,
        why: EvictionRule,
        beneficiary: JobId,
        gain: Option<u64>,
        straddles: Option<crate::state::ledger::event::Straddle>,
    ) {
        let (lost, cost) = (unit.lost, unit.cost);
        let policy = self.draft.state.tenants.version();
        let claimant = self.draft.state.jobs.get(beneficiary).filter(|_| why == EvictionRule::Booking);
        let booking = claimant.and_then(|job| job.spec.booking);
        let (whole, node) = (!unit.surplus, None);
        let receipt =
            Eviction { why, beneficiary, whole, lost, cost, gain, straddles, policy, booking, node };
        self.commitments.leaving.insert(unit.job);
        self.reservations.room_changed();
        self.evictions.push(PlannedEviction { unit, receipt });
    }
}
