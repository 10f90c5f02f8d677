//! Whether victims are accepted: nobody leaves in vain or comes back at once, and the gain is worth the cost (rules 6 to 8).

use super::{Allowance, EvictedUnit, Right, Terms, VictimSearch};
use crate::model::policy::Amount;
use crate::plan::cycle::idle_of;
use crate::plan::evict::search::price::check_worth;
use crate::plan::evict::victims::{Unit, UnitRef};
use crate::plan::lines::{self, Line};
use crate::plan::place::place;
use crate::state::ledger::Step;
use crate::state::ledger::event::{EvictionRule, Straddle};
use crate::units::{JobId, TenantId};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

impl VictimSearch<'_, '_, '_> {
    /// From the last evicted back, each unit that is not needed is spared; then the price is judged.
    pub(super) fn spare_and_accept(&mut self, terms: Terms) -> bool {
        // Of a gang that has to leave, no task stays.
        let mut gangs: BTreeSet<JobId> = BTreeSet::new();
        for _ in 0..self.evicted.len() {
            let Some(evicted) = self.evicted.pop_back() else { break };
            *self.rules.entry(evicted.why()).or_default() -= 1;
            let Unit { job, surplus, .. } = *self.victims.get(evicted.unit);
            if !surplus || !gangs.contains(&job) {
                self.spare_unit(evicted.unit);
                if self.is_met(terms) {
                    continue;
                }
                self.evict_unit(evicted.unit);
            }
            if !surplus {
                gangs.insert(job);
            }
            // Once all had their turn, those that are needed stand in the list as they did before.
            *self.rules.entry(evicted.why()).or_default() += 1;
            self.evicted.push_front(evicted);
        }
        self.note_straddles();
        self.all_stay_away(&gangs) && self.leaves_little_idle() && self.is_worth_it(terms)
    }

    /// True when no unit that was evicted for a fair share, or from another tenant by class or priority, could at once be
    /// reclaimed back, now that it is known what else leaves. The surplus of a gang does not come back without it.
    fn all_stay_away(&mut self, gangs: &BTreeSet<JobId>) -> bool {
        (0..self.evicted.len()).all(|number| {
            let EvictedUnit { unit: at, right, .. } = self.evicted[number];
            let lines: &[Line] = match right {
                Right::Above(Line::FairShare) => &[Line::Guarantee],
                Right::Lower if at.tenant != self.ask.key.tenant => &[Line::Guarantee, Line::FairShare],
                Right::Above(_) | Right::Lower | Right::LongerServed => return true,
            };
            let unit = self.victims.get(at);
            if unit.surplus && gangs.contains(&unit.job) {
                return true;
            }
            let mark = self.draft.mark();
            self.draft.count(unit.group, unit.amount.clone(), true);
            let comes_back = lines.iter().any(|&line| self.comes_back(at, line));
            self.draft.roll_back(mark);
            !comes_back
        })
    }

    /// True unless it evicts sparingly, and more of that would stand idle than starts. Later candidates only use more of it.
    fn leaves_little_idle(&mut self) -> bool {
        if self.claimant.allowance != Allowance::Sparingly {
            return true;
        }
        let judged = self.evicted.iter().filter(|evicted| evicted.why().is_judged_by_idle());
        let freed: Vec<Step> =
            judged.flat_map(|evicted| &self.victims.get(evicted.unit).steps).copied().collect();
        let started = self.ask.units().parts();
        let mark = self.draft.mark();
        let placed = place(self.draft, self.ask).is_some();
        let idle = idle_of(self.draft, &freed);
        self.draft.roll_back(mark);
        !placed || idle <= started
    }

    /// What binds everything but guarantees: the blast radius, and a gain above the cost. Jobs that are moved cost too.
    fn is_worth_it(&mut self, terms: Terms) -> bool {
        let victims_max = self.draft.policy.preemption.victims_max;
        let by_moving = terms.moves && !self.fit.is_enough(self.draft, self.ask);
        let moved = if by_moving { self.would_move().unwrap_or_default() } else { Vec::new() };
        let bound = self.evicted.iter().filter(|evicted| evicted.why() != EvictionRule::Guarantee);
        let mut bound: Vec<&Unit> = bound.map(|evicted| self.victims.get(evicted.unit)).collect();
        let jobs: BTreeSet<JobId> = bound.iter().map(|unit| unit.job).collect();
        if jobs.len() > usize::try_from(victims_max).unwrap_or(usize::MAX) {
            return false;
        }
        bound.extend(&moved);
        let worth = check_worth(self.draft, self.ask, &bound);
        self.note_retry(worth.err().flatten());
        worth.is_ok()
    }

    fn note_straddles(&mut self) {
        for at in 0..self.evicted.len() {
            let EvictedUnit { unit: UnitRef { tenant, .. }, right, .. } = self.evicted[at];
            let Right::Above(line) = right else { continue };
            let mut before = self.evicted.iter().take(at);
            let alike = before.find(|other| (other.unit.tenant, other.right) == (tenant, right));
            self.evicted[at].straddles = match alike {
                Some(other) => other.straddles,
                None => self.straddle(tenant, line),
            };
        }
    }

    /// The first tenant of a branch that ends below its line because of what was evicted, and by how much.
    fn straddle(&self, tenant: TenantId, line: Line) -> Option<Straddle> {
        let tree = self.draft.tree;
        self.path(tenant).find_map(|tenant| {
            self.meters.iter().find_map(|&meter| {
                let Amount::Of(line) = lines::line(self.draft, tenant, meter, line) else { return None };
                let used = self.draft.used(tenant)[meter];
                let evicted = self.evicted.iter().map(|evicted| evicted.unit);
                let evicted = evicted.filter(|unit| tree.is_in_branch(unit.tenant, tenant));
                let before = used + evicted.map(|unit| self.victims.get(unit).amount[meter]).sum::<u64>();
                // A receipt counts GPUs in 1/3000, whether normalised or not.
                let per_unit = tree.meters[meter].per_gpu().unwrap_or(3000) / 3000;
                let short = (used < line && line < before).then(|| (line - used).div_ceil(per_unit));
                short.map(|short| Straddle { tenant, short })
            })
        })
    }
}
