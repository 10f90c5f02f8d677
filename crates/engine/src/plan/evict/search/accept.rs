//! Whether a set of victims is accepted: nobody is taken in vain, nobody comes back at once, and the gain is worth the cost
//! (rules 6 to 8).

use super::{Allowance, Right, TakenUnit, Terms, VictimSearch};
use crate::model::policy::Amount;
use crate::plan::cycle::idle;
use crate::plan::evict::search::price::{gain, price_changes_at};
use crate::plan::evict::victims::{Unit, UnitRef};
use crate::plan::lines::{self, Line};
use crate::plan::memory::earlier;
use crate::plan::place::place;
use crate::state::ledger::Step;
use crate::state::ledger::event::{EvictionRule, Straddle};
use crate::units::{JobId, TenantId};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

impl VictimSearch<'_, '_, '_> {
    /// From the last taken back, whoever is not needed is spared; then the price is judged.
    pub(super) fn spare_and_accept(&mut self, terms: Terms) -> bool {
        // Of a gang that has to leave, no task stays.
        let mut gangs: BTreeSet<JobId> = BTreeSet::new();
        let mut needed = Vec::new();
        while let Some(taken) = self.taken.pop() {
            let unit = self.victims.get(taken.unit);
            let (job, surplus) = (unit.job, unit.surplus);
            if surplus && gangs.contains(&job) {
                needed.push(taken);
                continue;
            }
            self.put_back(taken.unit);
            self.count_above(taken.right, false);
            if self.is_met_with(terms, &needed) {
                continue;
            }
            self.drain(taken.unit);
            self.count_above(taken.right, true);
            if !surplus {
                gangs.insert(job);
            }
            needed.push(taken);
        }
        needed.reverse();
        self.taken = needed;
        self.note_straddles();
        self.all_stay_away(&gangs) && self.leaves_little_idle() && self.is_worth_it(terms)
    }

    /// True when nobody who was taken for a fair share, or from another tenant by class or priority, could at once be
    /// reclaimed back, now that it is known who else leaves. Tasks beyond the minimum of a gang that leaves do not come
    /// back without it.
    fn all_stay_away(&mut self, gangs: &BTreeSet<JobId>) -> bool {
        let own = self.ask.key.tenant;
        let judged: Vec<(UnitRef, &[Line])> = self
            .taken
            .iter()
            .filter_map(|taken| {
                let lines: &[Line] = match taken.right {
                    Right::Above(Line::FairShare) => &[Line::Guarantee],
                    Right::Lower if taken.unit.tenant != own => &[Line::Guarantee, Line::FairShare],
                    Right::Above(_) | Right::Lower | Right::LongerServed => return None,
                };
                Some((taken.unit, lines))
            })
            .collect();
        judged.into_iter().all(|(at, lines)| {
            let unit = self.victims.get(at);
            let (group, amount) = (unit.group, unit.amount.clone());
            if unit.surplus && gangs.contains(&unit.job) {
                return true;
            }
            self.draft.count(group, amount.clone(), true);
            let comes_back = lines.iter().any(|&line| self.comes_back(at, line));
            self.draft.count(group, amount, false);
            !comes_back
        })
    }

    /// True when no more of what was taken for a fair share or by order stands idle than starts, where that is asked for: whoever
    /// comes after can only use more of it.
    fn leaves_little_idle(&mut self) -> bool {
        if self.claimant.fair_share != Allowance::Sparingly {
            return true;
        }
        let for_share = self.taken.iter().filter(|taken| taken.why.is_judged_by_idle());
        let freed: Vec<Step> =
            for_share.flat_map(|taken| &self.victims.get(taken.unit).steps).copied().collect();
        let started = self.ask.units().parts();
        let mark = self.draft.mark();
        let placed = place(self.draft, self.ask).is_some();
        let idle = idle(self.draft, &freed);
        self.draft.roll_back(mark);
        !placed || idle <= started
    }

    /// What binds everything but guarantees: the blast radius, and a gain above the cost. Who is moved on top costs too.
    fn is_worth_it(&mut self, terms: Terms) -> bool {
        let rules = &self.draft.policy.preemption;
        let by_moving = terms.moves && !self.fit.is_enough(self.draft, self.ask);
        let moved = if by_moving { self.would_move(&[]).unwrap_or_default() } else { Vec::new() };
        let bound = self.taken.iter().filter(|taken| taken.why != EvictionRule::Guarantee);
        let mut bound: Vec<&Unit> = bound.map(|taken| self.victims.get(taken.unit)).collect();
        let mut jobs: Vec<JobId> = bound.iter().map(|unit| unit.job).collect();
        jobs.sort_unstable();
        jobs.dedup();
        let few = jobs.len() <= usize::try_from(rules.victims_max).unwrap_or(usize::MAX);
        bound.extend(&moved);
        let cost: u64 = bound.iter().map(|unit| unit.cost).fold(0, u64::saturating_add);
        if few && (bound.is_empty() || gain(self.draft, self.ask, &bound) > cost) {
            return true;
        }
        if few {
            self.retry_at = earlier(self.retry_at, price_changes_at(self.draft, &bound));
        }
        false
    }

    fn note_straddles(&mut self) {
        let mut known: Vec<(TenantId, Line, Option<Straddle>)> = Vec::new();
        for at in 0..self.taken.len() {
            let (tenant, Right::Above(line)) = (self.taken[at].unit.tenant, self.taken[at].right) else {
                continue;
            };
            let found = known.iter().find(|&&(other, other_line, _)| (other, other_line) == (tenant, line));
            let straddles = if let Some(&(.., straddles)) = found {
                straddles
            } else {
                let straddles = self.shortfall(tenant, line);
                known.push((tenant, line, straddles));
                straddles
            };
            self.taken[at].straddles = straddles;
        }
    }

    /// Whom what was taken leaves below its line, and by how much.
    fn shortfall(&self, tenant: TenantId, line: Line) -> Option<Straddle> {
        self.path(tenant).find_map(|tenant| {
            self.meters.iter().find_map(|&meter| match lines::line(self.draft, tenant, meter, line) {
                Amount::Unlimited => None,
                Amount::Of(line) => {
                    let short = line.saturating_sub(self.draft.used(tenant)[meter]);
                    let of_taken = self.taken.iter().any(|taken| {
                        let unit = self.victims.get(taken.unit);
                        unit.amount[meter] > 0
                            && self.draft.tree.lineage(taken.unit.tenant).any(|x| x == tenant)
                    });
                    let falls = short > 0 && of_taken && self.was_above(tenant, meter, line);
                    falls.then(|| Straddle { tenant, short: self.in_receipt(meter, short) })
                }
            })
        })
    }

    /// An amount of a meter as a receipt tells it: GPUs in 1/3000, whether normalised or not.
    fn in_receipt(&self, meter: usize, amount: u64) -> u64 {
        let per_gpu = self.draft.tree.meters[meter].per_gpu().unwrap_or(3000);
        amount.div_ceil(per_gpu / 3000)
    }

    /// True when the tenant was above its line before anything was taken for this ask.
    fn was_above(&self, tenant: TenantId, meter: usize, line: u64) -> bool {
        let of_tenant =
            |taken: &&TakenUnit| self.draft.tree.lineage(taken.unit.tenant).any(|above| above == tenant);
        let gone =
            self.taken.iter().filter(of_tenant).map(|taken| self.victims.get(taken.unit).amount[meter]);
        self.draft.used(tenant)[meter] + gone.sum::<u64>() > line
    }
}
