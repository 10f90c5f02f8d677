//! What a candidate was given, and who has to leave for it, written down on the draft.

use alloc::vec::Vec;

use super::{Cycle, Grant, JudgedByIdle, PlannedEviction, Purpose};
use crate::plan::evict::search::gain;
use crate::plan::evict::victims::Unit;
use crate::plan::order::Candidate;
use crate::state::jobs::More;
use crate::state::ledger::Step;
use crate::state::ledger::event::{Eviction, EvictionRule, Straddle};
use crate::units::{JobId, TenantId};

impl<'a> Cycle<'a> {
    /// Writes down what a candidate was given; returns the tenants whose use changed because of it.
    pub(super) fn record(&mut self, at: usize, grant: Grant<'a>) -> Vec<TenantId> {
        let candidate = self.queue.get(at);
        let (key, grows, (age, job)) = (candidate.key, candidate.more.is_some(), candidate.first);
        let touched = self.record_leaving(job, &grant);
        let first = *grant.tasks.first().expect("an ask has tasks");
        let purpose = if grows { Purpose::Growth } else { Purpose::Start };
        self.allocations.add(job, grant.tasks, purpose, grant.chosen);
        self.commitments.given.insert(job);
        self.queue.served(at);
        // A job of which tasks have finished is repaired, but not grown any more.
        let holding = self.draft.state.ledger.holding(job).filter(|_| grows);
        if holding.is_some_and(|holding| holding.done().next().is_some()) {
            return touched;
        }
        let given = &self.allocations.by_job[&job].tasks;
        let domain =
            key.topology.gang_within.and_then(|level| self.draft.state.fleet.domain_of(first.node, level));
        let more =
            More { tasks: 1, repair: false, pool: first.pool, need: grant.ask.way.need, domain, of: None };
        let rest = if key.groups.is_empty() {
            let has = holding.map_or(0, |holding| holding.staying().count()) + given.len();
            let lacks = u32::try_from(has).is_ok_and(|has| has < key.tasks);
            if lacks { Candidate::of_job(&self.draft, key, Some(more), (age, job)) } else { None }
        } else {
            let more = More { of: Some(job), ..more };
            Candidate::of_groups(&self.draft, key, more, (age, job), given)
        };
        if let Some(rest) = rest {
            self.queue.add(self.draft.state, rest);
        }
        touched
    }

    /// Writes down who leaves or moves for a grant; returns their tenants.
    fn record_leaving(&mut self, job: JobId, grant: &Grant<'_>) -> Vec<TenantId> {
        let units: Vec<Unit> =
            grant.evicted.iter().map(|evicted| self.victims.get(evicted.unit).clone()).collect();
        let evicted_by = |counts: fn(EvictionRule) -> bool| {
            let evicted = grant.evicted.iter().zip(&units).filter(move |(evicted, _)| counts(evicted.why()));
            evicted.map(|(_, unit)| unit)
        };
        let reclaimed = evicted_by(EvictionRule::is_judged_by_idle);
        let freed: Vec<Step> = reclaimed.flat_map(|unit| unit.steps.iter().copied()).collect();
        if !freed.is_empty() {
            self.judged_by_idle.push(JudgedByIdle { job, started: grant.ask.units().parts(), freed });
        }
        let bound: Vec<&Unit> = evicted_by(|why| why != EvictionRule::Guarantee).collect();
        let gain_of_evicting = gain(&self.draft, &grant.ask, &bound);
        let moving: Vec<&Unit> = grant.moved.iter().map(|moved| &moved.unit).collect();
        let gain_of_moving = gain(&self.draft, &grant.ask, &moving);
        let mut touched = Vec::new();
        for (evicted, unit) in grant.evicted.iter().zip(units) {
            touched.push(unit.group.tenant);
            let gain = (evicted.why() != EvictionRule::Guarantee).then_some(gain_of_evicting);
            self.plan_eviction(unit, evicted.why(), job, gain, evicted.straddles);
        }
        for moved in &grant.moved {
            let unit = moved.unit.clone();
            touched.push(unit.group.tenant);
            self.allocations.add(unit.job, moved.tasks.clone(), Purpose::Move, None);
            self.commitments.given.insert(unit.job);
            self.plan_eviction(unit, EvictionRule::Move, job, Some(gain_of_moving), None);
        }
        touched
    }

    /// All of a job has to leave for a beneficiary, by a rule that asks neither for a price nor for lines.
    pub(super) fn evict_job(&mut self, unit: Unit, why: EvictionRule, beneficiary: JobId) {
        let tenant = unit.group.tenant;
        self.draft.evict(&unit);
        self.victims.evict_job(&self.draft, tenant, unit.job);
        self.plan_eviction(unit, why, beneficiary, None, None);
        self.queue.touch(&mut self.draft, tenant);
    }

    fn plan_eviction(
        &mut self,
        unit: Unit,
        why: EvictionRule,
        beneficiary: JobId,
        gain: Option<u64>,
        straddles: Option<Straddle>,
    ) {
        let state = self.draft.state;
        let (whole, lost, cost) = (!unit.surplus, unit.lost, unit.cost);
        // A job that has to leave is neither grown nor repaired; another place is all it may be given.
        if whole && state.jobs.get(unit.job).is_some_and(|job| job.more.is_some()) {
            self.queue.remove_job(unit.job);
        }
        let for_window = state.jobs.get(beneficiary).filter(|_| why == EvictionRule::Booking);
        let booking = for_window.and_then(|job| job.spec.booking);
        let policy = state.tenants.version();
        let receipt =
            Eviction { why, beneficiary, whole, lost, cost, gain, straddles, policy, booking, node: None };
        self.commitments.leaving.insert(unit.job);
        self.reservations.with_room = None;
        self.evictions.push(PlannedEviction { unit, receipt });
    }
}
