//! Which units may be evicted by which right, and which of them is next (rules 3, 6 and 8).

use crate::quota::meters::Meters;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::price::check_evictable;
use super::{Claimant, Right, Terms, VictimSearch};
use crate::model::job::Class;
use crate::model::policy::Within;
use crate::plan::draft::Draft;
use crate::plan::evict::victims::{Unit, UnitRef};
use crate::plan::lines::{self, Line};
use crate::plan::memory::earlier;
use crate::plan::order::{Ratio, neediness};
use crate::plan::place::Ask;
use crate::state::ledger::event::EvictionRule;
use crate::units::{TenantId, Timestamp};

impl VictimSearch<'_, '_, '_> {
    /// The next unit in the order of rule 8; one that would straddle is passed over.
    pub(super) fn next_victim(&mut self, right: Right) -> Option<UnitRef> {
        match right {
            Right::Above(_) => self.next_among(&self.draft.tree.roots, right),
            Right::Lower => self.next_among(&[self.scope()], right),
            Right::LongerServed => self.next_of(self.ask.key.tenant, right),
        }
    }

    /// The uppermost tenant in which the claimant may evict by class or priority.
    fn scope(&self) -> TenantId {
        let own = self.ask.key.tenant;
        let mut lineage = self.draft.tree.lineage(own);
        match self.draft.policy.preemption.within {
            Within::Project => own,
            Within::Team => lineage.nth(1).unwrap_or(own),
            Within::Org => lineage.last().unwrap_or(own),
        }
    }

    fn next_among(&mut self, siblings: &[TenantId], right: Right) -> Option<UnitRef> {
        let open = siblings.iter().copied().filter(|&tenant| self.is_open(tenant, right)).collect();
        self.ranked(open).into_iter().find_map(|tenant| {
            let own = self.next_of(tenant, right);
            own.or_else(|| self.next_among(&self.draft.tree.lines[tenant.index()].children, right))
        })
    }

    /// False when nothing of the tenant or of any below it may be evicted.
    fn is_open(&self, tenant: TenantId, right: Right) -> bool {
        let Right::Above(line) = right else { return true };
        self.draft.tree.is_in_branch(self.ask.key.tenant, tenant) || self.is_above(tenant, line, None)
    }

    /// Those of some tenants with work that might leave, there or below, in the order of rule 8.
    pub(super) fn ranked(&mut self, mut tenants: Vec<TenantId>) -> Vec<TenantId> {
        tenants.retain(|&tenant| self.victims.any_below(self.draft, tenant));
        if tenants.len() > 1 {
            tenants.sort_by_cached_key(|&tenant| self.rank(tenant));
        }
        tenants
    }

    fn rank(&self, tenant: TenantId) -> (i32, Reverse<Ratio>, u64, Reverse<u32>) {
        let line = &self.draft.tree.lines[tenant.index()];
        let above = neediness(self.draft, tenant, &self.ask.charge, Line::FairShare);
        (line.priority, Reverse(above), above.line, Reverse(line.path_rank))
    }

    fn next_of(&mut self, tenant: TenantId, right: Right) -> Option<UnitRef> {
        if !self.might_have_victims_by(tenant, right) {
            return None;
        }
        if self.ordered && right == Right::LongerServed {
            return self.next_by_service(tenant, right);
        }
        let by_service = self.ordered && right == Right::Above(Line::FairShare);
        let mut from = 0;
        while let Some(unit) = self.victims.next_staying(self.draft, tenant, from) {
            from = unit.at + 1;
            // In the claimant's own class the longest served is next; lower classes come before it in the list.
            if by_service && self.goes_by_order(self.victims.get(unit), right) {
                return self.next_by_service(tenant, right);
            }
            if self.may_evict_without_straddling(unit, right) {
                return Some(unit);
            }
        }
        None
    }

    /// The next unit of a tenant that gives way by the order of its class, the highest level and then the widest first.
    fn next_by_service(&mut self, tenant: TenantId, right: Right) -> Option<UnitRef> {
        let by_service = self.victims.by_service(self.draft, tenant);
        by_service.iter().map(|&at| UnitRef { tenant, at }).find(|&unit| {
            !self.victims.is_evicted(unit)
                && self.goes_by_order(self.victims.get(unit), right)
                && self.may_evict_without_straddling(unit, right)
        })
    }

    /// True when some tenant is above a line from which the ask may evict.
    pub(super) fn any_tenant_is_above(&mut self) -> bool {
        let mut tenants = self.draft.state.tenants.ids();
        tenants.any(|tenant| {
            let mut above = self.rights.iter().filter(|right| matches!(right, Right::Above(_)));
            above.any(|&right| self.might_have_victims_by(tenant, right))
        })
    }

    pub(super) fn might_have_victims(&mut self, tenant: TenantId) -> bool {
        self.rights.iter().any(|&right| self.might_have_victims_by(tenant, right))
    }

    /// False when no unit of the tenant's own may be evicted by that right: then hundreds need not be looked at one by one.
    fn might_have_victims_by(&mut self, tenant: TenantId, right: Right) -> bool {
        match right {
            Right::Above(line) => {
                let above = |tenant| self.is_above(tenant, line, None);
                if tenant == self.ask.key.tenant || !self.path(tenant).all(above) {
                    return false;
                }
                // The order of the claimant's class says nothing of work of other classes.
                let class = self.ask.key.class;
                let mut groups = self.draft.state.ledger.work_groups(tenant);
                line != Line::FairShare
                    || !self.ordered
                    || groups.any(|(group, _)| group.class != class)
                    || self.any_behind(tenant)
            }
            Right::LongerServed => tenant == self.ask.key.tenant && self.any_behind(tenant),
            Right::Lower => {
                // An earmark is released for a guarantee alone.
                let claimant = lines::work_group(self.ask.key);
                let mut groups = self.draft.state.ledger.work_groups(tenant);
                groups.any(|(group, _)| lines::gives_way(self.draft.policy, &group, &claimant))
            }
        }
    }

    /// Tenants from the victim's up to, and without, the first that it shares with the claimant.
    pub(super) fn path(&self, tenant: TenantId) -> impl Iterator<Item = TenantId> {
        self.draft.tree.lineage_apart_from(tenant, self.ask.key.tenant)
    }

    /// The uppermost tenant that a victim does not share with the claimant.
    pub(super) fn branch(&self, tenant: TenantId) -> Option<TenantId> {
        self.path(tenant).last()
    }

    /// True when a tenant is above its line in something that the claimant asks for and the victim holds, and no victim was
    /// allowed to carry it below.
    fn is_above(&self, tenant: TenantId, line: Line, unit: Option<&Unit>) -> bool {
        self.straddled.iter().all(|&(branch, _)| branch != tenant)
            && self.meters.iter().any(|&meter| {
                let held = unit.is_none_or(|unit| unit.amount[meter] > 0);
                held && lines::excess(self.draft, tenant, meter, line).is_some_and(|excess| excess > 0)
            })
    }

    pub(super) fn amount_leaving_with(&self, unit: UnitRef) -> Meters {
        (0..self.draft.tree.meters.len()).map(|meter| self.amount_leaving_in(unit, meter)).collect()
    }

    fn amount_leaving_in(&self, unit: UnitRef, meter: usize) -> u64 {
        self.victims.leaving_with(unit).map(|unit| self.victims.get(unit).amount[meter]).sum()
    }

    fn would_straddle(&self, unit: UnitRef, right: Right) -> bool {
        let Right::Above(line) = right else { return false };
        self.path(unit.tenant).any(|tenant| {
            self.meters.iter().any(|&meter| {
                let excess = lines::excess(self.draft, tenant, meter, line).unwrap_or(0);
                excess > 0 && self.amount_leaving_in(unit, meter) > excess
            })
        })
    }

    /// One job per branch may straddle, unless the claimant's own branch would end above its line.
    pub(super) fn own_branch_stays_within(&self, victim: TenantId, right: Right) -> bool {
        let Right::Above(line) = right else { return true };
        let own_branch = self.draft.tree.lineage_apart_from(self.ask.key.tenant, victim).last();
        own_branch.is_none_or(|branch| lines::stays_within(self.draft, branch, self.ask, line))
    }

    /// True when a unit may be evicted by some right; where the terms do not let it straddle, without that.
    pub(super) fn might_evict(&mut self, terms: Terms, unit: UnitRef) -> bool {
        self.rights.iter().any(|&right| {
            self.may_evict(unit, right) && (terms.straddle || !self.would_straddle(unit, right))
        })
    }

    /// By what right the unit may be evicted so that no tenant ends below its line.
    pub(super) fn right_to_evict(&mut self, unit: UnitRef) -> Option<Right> {
        self.rights.iter().copied().find(|&right| self.may_evict_without_straddling(unit, right))
    }

    /// By what right the unit may carry its branch below its line; never [`Line::Entitled`], which only gives an order.
    pub(super) fn right_to_straddle(&mut self, unit: UnitRef, branch: TenantId) -> Option<Right> {
        self.rights.iter().copied().find(|&right| {
            right != Right::Above(Line::Entitled)
                && self.may_evict(unit, right)
                && self.own_branch_stays_within(branch, right)
        })
    }

    /// True when the unit is where the ask could go, or counts towards a limit that is in its way.
    pub(super) fn is_useful(&self, unit: UnitRef) -> bool {
        let in_limit = |tenant| self.draft.tree.is_in_branch(unit.tenant, tenant);
        self.victims.get(unit).steps.iter().any(|step| self.ask.goes_to(step.place.pool))
            || lines::limit_exceeded(self.draft, self.ask).is_some_and(in_limit)
    }

    fn may_evict_without_straddling(&mut self, unit: UnitRef, right: Right) -> bool {
        self.may_evict(unit, right) && !self.would_straddle(unit, right)
    }

    fn may_evict(&mut self, at: UnitRef, right: Right) -> bool {
        let (unit, why) = (self.victims.get(at), right.why());
        let given = unit.job == self.claimant.job || self.commitments.given.contains(&unit.job);
        // An earmark is released for another job only by a guarantee, which waits for nobody's grace twice.
        let kept = unit.earmarked && why != EvictionRule::Guarantee;
        if given || kept || (self.claimant.surplus && !unit.surplus) {
            return false;
        }
        let (class, by_order) = (unit.group.class, self.goes_by_order(unit, right));
        if !by_order
            && why != EvictionRule::Guarantee
            && let Err(later) = check_evictable(self.draft, unit, self.claimant, why)
        {
            self.note_retry(later);
            return false;
        }
        let allowed = match right {
            Right::Lower => self.is_lower(at),
            Right::Above(line) => self.is_borrowed(at, line),
            Right::LongerServed => at.tenant == self.ask.key.tenant,
        };
        allowed
            && (!by_order || self.is_behind(at, right))
            && (class != Class::Inference || lines::inference_beyond(self.draft, at.tenant, self.meters))
    }

    /// True when the unit gives way by class or priority, and does not come back at once, to and fro for ever.
    fn is_lower(&mut self, at: UnitRef) -> bool {
        let (group, claimant) = (self.victims.get(at).group, lines::work_group(self.ask.key));
        self.draft.tree.is_in_branch(at.tenant, self.scope())
            && lines::gives_way(self.draft.policy, &group, &claimant)
            && (at.tenant == claimant.tenant
                || !(self.comes_back(at, Line::Guarantee) || self.comes_back(at, Line::FairShare)))
    }

    fn is_borrowed(&mut self, at: UnitRef, line: Line) -> bool {
        if at.tenant == self.ask.key.tenant || self.is_kept(at) {
            return false;
        }
        let unit = self.victims.get(at);
        self.path(at.tenant).all(|tenant| self.is_above(tenant, line, Some(unit)))
            && (line != Line::FairShare || !self.comes_back(at, Line::Guarantee))
    }

    /// Work that needs longer to save than a guarantee waits is its tenant's own, as work that may not be evicted is;
    /// unless it has borrowed all the same, by a policy that was in force before.
    fn is_kept(&mut self, at: UnitRef) -> bool {
        let (policy, group) = (self.draft.policy, self.victims.get(at).group);
        let may_borrow = policy.preemption.fixed_may_borrow;
        lines::is_fixed(&group, policy)
            && (may_borrow || !lines::fixed_alone_beyond(self.draft, at.tenant, self.meters))
    }

    /// True when the unit could at once be reclaimed for its own tenant, which stays within that line with it.
    pub(super) fn comes_back(&mut self, at: UnitRef, line: Line) -> bool {
        if lines::stays_within(self.draft, self.ask.key.tenant, self.ask, line) {
            return false;
        }
        // Asked of every unit that might be evicted, so nothing is copied for it.
        let (draft, unit) = (&mut *self.draft, self.victims.get(at));
        (0..unit.amount.len()).filter(|&meter| unit.amount[meter] > 0).all(|meter| {
            let excess = lines::excess(draft, at.tenant, meter, line).unwrap_or(0);
            excess == 0 || lines::lower_work_in(draft, &unit.group, meter) >= excess
        })
    }

    /// True when only longer-served units are evicted by that right. For a fair share they are where both are of one class.
    fn goes_by_order(&self, unit: &Unit, right: Right) -> bool {
        match right {
            Right::LongerServed => true,
            Right::Above(Line::FairShare) => {
                !self.claimant.grows && unit.order.is_some() && unit.group.class == self.ask.key.class
            }
            Right::Above(Line::Entitled | Line::Guarantee) | Right::Lower => false,
        }
    }

    /// True when the claimant may evict a unit by the order of the class.
    fn is_behind(&mut self, at: UnitRef, right: Right) -> bool {
        let checked = check_behind(self.draft, self.ask, self.claimant, self.victims.get(at), right.why());
        self.note_retry(checked.err().flatten());
        checked.is_ok()
    }

    /// True when some unit of the tenant might have to leave by the order of the class: a fraction of listing all it runs.
    fn any_behind(&mut self, tenant: TenantId) -> bool {
        if self.claimant.order_claim.is_none() {
            return false;
        }
        let why = if tenant == self.ask.key.tenant { EvictionRule::Order } else { EvictionRule::FairShare };
        let mut units = self.victims.in_order(self.draft, tenant, self.ask.key.class).iter();
        units.any(|unit| {
            let checked = check_behind(self.draft, self.ask, self.claimant, unit, why);
            *self.retry_at = earlier(*self.retry_at, checked.err().flatten());
            checked.is_ok()
        })
    }
}

/// Whether a unit stands behind the claimant in the order of the class. An error says when time alone may change that.
fn check_behind(
    draft: &Draft<'_>,
    ask: &Ask<'_>,
    claimant: Claimant,
    unit: &Unit,
    why: EvictionRule,
) -> Result<(), Option<Timestamp>> {
    let (Some(claim), Some(order)) = (claimant.order_claim, unit.order) else { return Err(None) };
    let (own, its) = (lines::work_group(ask.key), unit.group);
    // Inside a tenant priorities come first.
    let peers = its.class == own.class && (its.tenant != own.tenant || its.priority == own.priority);
    // A job of many nodes is not broken for one that fits a corner of one.
    let broken = order.gang && !claim.gang;
    if !peers || broken || unit.job == claimant.job || lines::is_fixed(&its, draft.policy) {
        return Err(None);
    }
    if order.step < claim.above {
        return Err(order.next_step_at);
    }
    check_evictable(draft, unit, claimant, EvictionRule::Order)?;
    check_evictable(draft, unit, claimant, why)?;
    match order.safe_until {
        Some(until) if until > draft.now => Err(Some(until)),
        _ => Ok(()),
    }
}
