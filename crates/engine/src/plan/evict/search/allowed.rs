//! Who may be taken by which right, and who of them is next (rules 6 and 8).

use crate::quota::meters::Meters;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::price::{evictable_at, is_evictable};
use super::{Right, VictimSearch};
use crate::model::job::Class;
use crate::model::policy::{Amount, Within};
use crate::plan::evict::victims::{Unit, UnitRef};
use crate::plan::lines::{self, Line};
use crate::plan::memory::earlier;
use crate::plan::order::{Ratio, neediness};
use crate::state::ledger::WorkGroup;
use crate::state::ledger::event::EvictionRule;
use crate::units::TenantId;

impl VictimSearch<'_, '_, '_> {
    /// The next unit in the order of rule 8; who would straddle is passed over.
    pub(super) fn next_victim(&mut self, right: Right) -> Option<UnitRef> {
        let tree = self.draft.tree;
        match right {
            Right::Above(_) => self.next_among(tree.roots(), right),
            Right::Lower => self.next_among(&[self.scope()], right),
            Right::LongerServed => self.next_of(self.ask.key.tenant, right),
        }
    }

    pub(super) fn scope(&self) -> TenantId {
        let mut lineage = self.draft.tree.lineage(self.ask.key.tenant);
        let own = self.ask.key.tenant;
        match self.draft.policy.preemption.within {
            Within::Project => own,
            Within::Team => lineage.nth(1).unwrap_or(own),
            Within::Org => lineage.last().unwrap_or(own),
        }
    }

    pub(super) fn next_among(&mut self, siblings: &[TenantId], right: Right) -> Option<UnitRef> {
        let open = siblings.iter().copied().filter(|&tenant| self.is_open(tenant, right));
        let mut open: Vec<TenantId> = open.collect();
        open.retain(|&tenant| self.victims.any_below(self.draft, tenant));
        if open.len() > 1 {
            open.sort_by_cached_key(|&tenant| self.rank(tenant));
        }
        let tree = self.draft.tree;
        open.into_iter().find_map(|tenant| {
            let own = self.next_of(tenant, right);
            own.or_else(|| self.next_among(&tree.lines[tenant.index()].children, right))
        })
    }

    /// False when nothing of the tenant or of anybody below it may be taken.
    pub(super) fn is_open(&self, tenant: TenantId, right: Right) -> bool {
        let Right::Above(line) = right else { return true };
        let shared = self.draft.tree.lineage(self.ask.key.tenant).any(|above| above == tenant);
        shared || (!self.is_straddled(tenant) && self.is_above(tenant, line, None))
    }

    pub(super) fn rank(&self, tenant: TenantId) -> (i32, Reverse<Ratio>, u64, Reverse<u32>) {
        let line = &self.draft.tree.lines[tenant.index()];
        let above = neediness(self.draft, tenant, &self.ask.charge, Line::FairShare);
        (line.priority, Reverse(above), above.line, Reverse(line.path_rank))
    }

    pub(super) fn next_of(&mut self, tenant: TenantId, right: Right) -> Option<UnitRef> {
        if !self.might_give(tenant, right) {
            return None;
        }
        if self.ordered && right == Right::LongerServed {
            return self.next_by_service(tenant, right);
        }
        let by_service = self.ordered && right == Right::Above(Line::FairShare);
        let mut from = 0;
        while let Some(unit) = self.victims.next_untaken(self.draft, tenant, from) {
            from = unit.at + 1;
            // Of the claimant's own class who was served longest; lower classes come before it in the list.
            if by_service && self.goes_by_order(self.victims.get(unit), right) {
                return self.next_by_service(tenant, right);
            }
            if self.may_take(unit, right) && !self.would_straddle(unit, right) {
                return Some(unit);
            }
        }
        None
    }

    /// The next unit of a tenant that gives way by the order of its class, the highest level and then the widest first.
    fn next_by_service(&mut self, tenant: TenantId, right: Right) -> Option<UnitRef> {
        (0..self.victims.ordered_len(self.draft, tenant)).find_map(|number| {
            let unit = self.victims.untaken_by_service(tenant, number)?;
            let may_take = self.goes_by_order(self.victims.get(unit), right) && self.may_take(unit, right);
            (may_take && !self.would_straddle(unit, right)).then_some(unit)
        })
    }

    /// False when no unit of the tenant's own may be taken by that right, whichever it is. On a full fleet that is most
    /// tenants, each with hundreds of units that then need not be looked at one by one.
    pub(super) fn might_give(&mut self, tenant: TenantId, right: Right) -> bool {
        match right {
            Right::Above(line) => {
                let closed = |tenant| self.is_straddled(tenant) || !self.is_above(tenant, line, None);
                if tenant == self.ask.key.tenant || self.path(tenant).any(closed) {
                    return false;
                }
                line != Line::FairShare
                    || !self.ordered
                    || self.others_beside_order(tenant)
                    || self.anybody_behind(tenant)
            }
            Right::LongerServed => tenant == self.ask.key.tenant && self.anybody_behind(tenant),
            Right::Lower => {
                let (state, policy) = (self.draft.state, self.draft.policy);
                let claimant = lines::work_group(self.ask.key);
                // What was only promised to somebody is taken by a guarantee alone.
                let lower = |group: &WorkGroup| lines::gives_way(policy, group, &claimant);
                state.ledger.work_groups(tenant).any(|(group, _)| lower(&group))
            }
        }
    }

    /// True when a tenant runs work of another class than the claimant's, which the order of that class says nothing about.
    fn others_beside_order(&self, tenant: TenantId) -> bool {
        let class = self.ask.key.class;
        self.draft.state.ledger.work_groups(tenant).any(|(group, _)| group.class != class)
    }

    /// Tenants from the victim's up to, and without, the first that it shares with the claimant.
    pub(super) fn path(&self, tenant: TenantId) -> impl Iterator<Item = TenantId> {
        let tree = self.draft.tree;
        let own = self.ask.key.tenant;
        let shared = move |tenant: &TenantId| tree.lineage(own).any(|above| above == *tenant);
        tree.lineage(tenant).take_while(move |tenant| !shared(tenant))
    }

    /// The uppermost tenant that a victim does not share with the claimant.
    pub(super) fn branch(&self, tenant: TenantId) -> Option<TenantId> {
        self.path(tenant).last()
    }

    /// True when a tenant is above its line in something that the claimant asks for and the victim holds.
    pub(super) fn is_above(&self, tenant: TenantId, line: Line, unit: Option<&Unit>) -> bool {
        self.meters.iter().any(|&meter| {
            let held = unit.is_none_or(|unit| unit.amount[meter] > 0);
            held && self.excess(tenant, meter, line).is_some_and(|excess| excess > 0)
        })
    }

    pub(super) fn excess(&self, tenant: TenantId, meter: usize, line: Line) -> Option<u64> {
        match lines::line(self.draft, tenant, meter, line) {
            Amount::Unlimited => None,
            Amount::Of(line) => Some(self.draft.used(tenant)[meter].saturating_sub(line)),
        }
    }

    pub(super) fn is_straddled(&self, tenant: TenantId) -> bool {
        self.straddled.iter().any(|&(branch, _)| branch == tenant)
    }

    /// What leaves with a unit, by meter: of a gang, its surplus too.
    pub(super) fn leaves_with(&self, unit: UnitRef) -> Meters {
        let held = self.victims.get(unit);
        let mut leaves = held.amount.clone();
        if !held.surplus {
            for beside in self.victims.surplus_of(unit) {
                leaves.add(&self.victims.get(beside).amount);
            }
        }
        leaves
    }

    /// The same in one meter.
    fn leaves_in(&self, unit: UnitRef, meter: usize) -> u64 {
        let held = self.victims.get(unit);
        let beside = if held.surplus { Vec::new() } else { self.victims.surplus_of(unit) };
        let beside: u64 = beside.into_iter().map(|unit| self.victims.get(unit).amount[meter]).sum();
        held.amount[meter] + beside
    }

    /// True when taking the unit would carry somebody below their line.
    pub(super) fn would_straddle(&self, unit: UnitRef, right: Right) -> bool {
        let Right::Above(line) = right else { return false };
        self.path(unit.tenant).any(|tenant| {
            self.meters.iter().any(|&meter| {
                let excess = self.excess(tenant, meter, line).unwrap_or(0);
                excess > 0 && self.leaves_in(unit, meter) > excess
            })
        })
    }

    /// One job per branch may, unless the claimant's own branch would end above its line.
    pub(super) fn own_branch_stays_within(&self, victim: TenantId, right: Right) -> bool {
        let Right::Above(line) = right else { return true };
        let tree = self.draft.tree;
        let shared = |tenant: &TenantId| tree.lineage(victim).any(|above| above == *tenant);
        let own_branch = tree.lineage(self.ask.key.tenant).take_while(|tenant| !shared(tenant)).last();
        own_branch.is_none_or(|branch| lines::stays_within(self.draft, branch, self.ask, line))
    }

    /// True when the unit may be taken by that right as things are on the draft.
    pub(super) fn may_take(&mut self, at: UnitRef, right: Right) -> bool {
        let unit = self.victims.get(at);
        let given = unit.job == self.claimant.job || self.commitments.given.contains(&unit.job);
        if given || (self.claimant.surplus && !unit.surplus) {
            return false;
        }
        // What was set aside for one is taken for another only by a guarantee, which waits for nobody's grace twice.
        if unit.earmarked && right.why() != EvictionRule::Guarantee {
            return false;
        }
        let unit = self.victims.get(at);
        if self.goes_by_order(unit, right) {
            let own = at.tenant == self.ask.key.tenant;
            let allowed = match right {
                Right::LongerServed => own,
                Right::Above(line) => !own && self.is_borrowed(at, line),
                Right::Lower => false,
            };
            let inference = self.victims.get(at).group.class == Class::Inference;
            return allowed
                && self.stands_behind(at, right)
                && (!inference || self.inference_may_go(at.tenant));
        }
        let (group, bound) = (unit.group, right.why() != EvictionRule::Guarantee);
        if bound && !is_evictable(self.draft, unit, self.claimant, right.why()) {
            self.retry_at =
                earlier(self.retry_at, evictable_at(self.draft, unit, self.claimant, right.why()));
            return false;
        }
        let allowed = match right {
            Right::Lower => {
                let scope = self.scope();
                let within = self.draft.tree.lineage(at.tenant).any(|above| above == scope);
                let lower =
                    within && lines::gives_way(self.draft.policy, &group, &lines::work_group(self.ask.key));
                // By class or priority alone it would go to and fro between two tenants for ever.
                let comes_back = at.tenant != self.ask.key.tenant
                    && (self.comes_back(at, Line::Guarantee) || self.comes_back(at, Line::FairShare));
                lower && !comes_back
            }
            Right::Above(line) => self.is_borrowed(at, line),
            Right::LongerServed => false,
        };
        allowed && (group.class != Class::Inference || self.inference_may_go(at.tenant))
    }

    pub(super) fn inference_may_go(&mut self, tenant: TenantId) -> bool {
        let asked: Vec<usize> = lines::meters_of(self.ask).collect();
        lines::inference_beyond(self.draft, tenant, &asked)
    }

    pub(super) fn is_borrowed(&mut self, at: UnitRef, line: Line) -> bool {
        if at.tenant == self.ask.key.tenant || self.is_kept(at) {
            return false;
        }
        let unit = self.victims.get(at);
        let open = |tenant| !self.is_straddled(tenant) && self.is_above(tenant, line, Some(unit));
        if !self.path(at.tenant).all(open) {
            return false;
        }
        line != Line::FairShare || !self.comes_back(at, Line::Guarantee)
    }

    /// Work that needs longer to save than a guarantee waits is its tenant's own, as work that may not be evicted is;
    /// unless it has borrowed all the same, by a policy that was in force before.
    pub(super) fn is_kept(&mut self, at: UnitRef) -> bool {
        let (policy, group) = (self.draft.policy, self.victims.get(at).group);
        let may_borrow = policy.preemption.fixed_may_borrow;
        lines::is_fixed(&group, policy)
            && (may_borrow || !lines::fixed_alone_beyond(self.draft, at.tenant, &self.meters))
    }

    /// True when the unit could at once be reclaimed back for its own tenant, which stays within that line with it.
    pub(super) fn comes_back(&mut self, at: UnitRef, line: Line) -> bool {
        if lines::stays_within(self.draft, self.ask.key.tenant, self.ask, line) {
            return false;
        }
        // Asked of every unit that might be taken, so nothing is copied for it.
        let (draft, unit) = (&mut *self.draft, self.victims.get(at));
        (0..unit.amount.len()).filter(|&meter| unit.amount[meter] > 0).all(|meter| {
            let Amount::Of(line) = lines::line(draft, at.tenant, meter, line) else { return true };
            let used = draft.used(at.tenant)[meter];
            used <= line || used.saturating_sub(lines::below_in(draft, &unit.group, meter)) <= line
        })
    }
}
