//! What a candidate was given, and who has to leave for it, written down on the draft.

use alloc::vec::Vec;

use super::{Begun, How, Leaving, Met, Reclaim, Served};
use crate::model::need::Need;
use crate::plan::evict::reclaim::gain;
use crate::plan::evict::victims::Unit;
use crate::plan::order::Candidate;
use crate::state::jobs::{KindKey, More};
use crate::state::ledger::Step;
use crate::state::ledger::event::{Eviction, Why};
use crate::units::{JobId, NodeId, TenantId, Timestamp};

impl<'a> Served<'a> {
    /// Writes down what a candidate was given; returns the tenants whose use changed because of it.
    pub(super) fn record(&mut self, at: usize, met: Met<'a>) -> Vec<TenantId> {
        let candidate = self.queue.get(at);
        let (key, more, (age, job)) = (candidate.key, candidate.more, candidate.first);
        let need = met.ask.way.need;
        let pool = met.tasks.first().map(|place| place.pool).expect("an ask has tasks");
        let touched = self.record_leaving(job, &met);
        let how = if more.is_some() { How::Grows } else { How::Starts };
        let node = met.tasks.first().map(|place| place.node).expect("an ask has tasks");
        if !self.begun.contains_key(&job) {
            self.order.push(job);
        }
        let begun = self.begun.entry(job).or_insert_with(|| Begun {
            tasks: Vec::new(),
            together: met.tasks.len(),
            pieces: Vec::new(),
            how,
            chosen: met.chosen,
        });
        if !key.groups.is_empty() && !begun.tasks.is_empty() {
            begun.pieces.push(met.tasks.len());
        }
        begun.tasks.extend(met.tasks);
        self.settled.given.insert(job);
        self.queue.served(at);
        let state = self.draft.state;
        let holding = state.ledger.holding(job).filter(|_| more.is_some());
        let done = holding.map_or(0, |holding| holding.exits(crate::model::exit::Exit::Succeeded));
        let staying = holding.map_or(0, |holding| holding.staying().count());
        if !key.groups.is_empty() {
            self.grow_groups(key, (age, job), node);
            return touched;
        }
        let has = u32::try_from(staying + self.begun[&job].tasks.len()).unwrap_or(u32::MAX);
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
        let begun = &self.begun[&job.1];
        let Some(first) = begun.tasks.first() else { return };
        let domain = key.topology.gang_within.and_then(|level| state.fleet.domain_of(node, level));
        let (pool, need, of) = (first.pool, Need::held(first), Some(job.1));
        let more = More { tasks: 1, repair: false, pool, need, domain, of };
        let candidate = Candidate::of_groups(&self.draft, None, key, more, job, &begun.tasks);
        if let Some(candidate) = candidate {
            self.queue.add(state, candidate);
        }
    }

    fn record_leaving(&mut self, job: JobId, met: &Met<'_>) -> Vec<TenantId> {
        let units: Vec<Unit> = met.taken.iter().map(|taken| self.victims.get(taken.unit).clone()).collect();
        let ask = &met.ask;
        let bound = |why: Why, unit: &Unit| (why != Why::Guarantee).then(|| unit.clone());
        let bound: Vec<Unit> =
            met.taken.iter().zip(&units).filter_map(|(taken, unit)| bound(taken.why, unit)).collect();
        let gained = gain(&self.draft, ask, &bound.iter().collect::<Vec<_>>());
        let started = ask.units().parts();
        let for_share = met.taken.iter().zip(&units).filter(|(taken, _)| taken.why.is_judged_by_idle());
        let freed: Vec<Step> = for_share.flat_map(|(_, unit)| unit.steps.iter().copied()).collect();
        if !freed.is_empty() {
            self.reclaims.push(Reclaim { job, started, freed });
        }
        let mut touched = Vec::new();
        for (taken, unit) in met.taken.iter().zip(units) {
            touched.push(unit.standing.tenant);
            if !unit.surplus {
                self.withdraw(unit.job);
            }
            let gain = (taken.why != Why::Guarantee).then_some(gained);
            self.leaves(unit, taken.why, job, gain, taken.straddles);
        }
        let moving: Vec<&Unit> = met.moved.iter().map(|moved| &moved.unit).collect();
        let gained = gain(&self.draft, ask, &moving);
        for moved in &met.moved {
            let unit = moved.unit.clone();
            touched.push(unit.standing.tenant);
            self.withdraw(unit.job);
            let begun = Begun {
                tasks: moved.tasks.clone(),
                together: moved.tasks.len(),
                pieces: Vec::new(),
                how: How::Moves,
                chosen: None,
            };
            self.begun.insert(unit.job, begun);
            self.settled.given.insert(unit.job);
            self.order.push(unit.job);
            self.leaves(unit, Why::Move, job, Some(gained), None);
        }
        touched
    }

    /// Who has to leave is neither grown nor repaired; another place is all it may be given.
    pub(super) fn withdraw(&mut self, job: JobId) {
        if self.draft.state.jobs.get(job).is_some_and(|job| job.more.is_some()) {
            self.queue.withdraw(job);
        }
    }

    pub(super) fn leaves(
        &mut self,
        unit: Unit,
        why: Why,
        beneficiary: JobId,
        gain: Option<u64>,
        straddles: Option<crate::state::ledger::event::Straddle>,
    ) {
        let (lost, cost) = (unit.lost, unit.cost);
        let policy = self.draft.state.tenants.version();
        let asker = self.draft.state.jobs.get(beneficiary).filter(|_| why == Why::Booking);
        let booking = asker.and_then(|job| job.spec.booking);
        let (whole, node) = (!unit.surplus, None);
        let receipt =
            Eviction { why, beneficiary, whole, lost, cost, gain, straddles, policy, booking, node };
        self.settled.leaving.insert(unit.job);
        self.free_promised = None;
        self.evictions.push(Leaving { unit, receipt });
    }
}
