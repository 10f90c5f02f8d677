//! Who gives way because it was served for longer (rule 3): in the own tenant, or for a fair share in whatever is above its own.

use super::price::{evictable_at, is_evictable};
use super::{Right, VictimSearch};
use crate::plan::evict::victims::{Unit, UnitRef};
use crate::plan::lines::{self, Line};
use crate::plan::memory::earlier;
use crate::state::ledger::event::EvictionRule;
use crate::units::{TenantId, Timestamp};

impl VictimSearch<'_, '_, '_> {
    /// True when what is taken by that right is taken from those who were served for longer alone: always by the order of a
    /// class, and for the fair share of a job that waits where both are of one class that has an order beyond age.
    pub(super) fn goes_by_order(&self, unit: &Unit, right: Right) -> bool {
        match right {
            Right::LongerServed => true,
            Right::Above(Line::FairShare) => {
                let waits = !self.claimant.grows;
                waits && unit.order.is_some() && unit.group.class == self.ask.key.class
            }
            Right::Above(Line::Entitled | Line::Guarantee) | Right::Lower => false,
        }
    }

    /// True when the claimant may make a unit leave by the order of the class. Whatever only time stands in the way of is
    /// a moment to look again.
    pub(super) fn stands_behind(&mut self, at: UnitRef, right: Right) -> bool {
        let found = self.behind(self.victims.get(at), right.why());
        if let Err(when) = found {
            self.retry_at = earlier(self.retry_at, when);
        }
        found.is_ok()
    }

    /// True when somebody of the tenant might have to leave by the order of the class. It costs a fraction of listing
    /// all that the tenant runs, and on a full fleet the answer is no most of the time.
    pub(super) fn anybody_behind(&mut self, tenant: TenantId) -> bool {
        if self.claimant.claim.is_none() {
            return false;
        }
        self.victims.list_in_order(self.draft, tenant, self.ask.key.class);
        let why = if tenant == self.ask.key.tenant { EvictionRule::Order } else { EvictionRule::FairShare };
        let mut retry_at = None;
        let any = self.victims.in_order(tenant, self.ask.key.class).iter().any(|unit| {
            let found = self.behind(unit, why);
            retry_at = earlier(retry_at, found.err().flatten());
            found.is_ok()
        });
        self.retry_at = earlier(self.retry_at, retry_at);
        any
    }

    /// Whether a unit stands behind the claimant; if not, when it may by time alone.
    fn behind(&self, unit: &Unit, why: EvictionRule) -> Result<(), Option<Timestamp>> {
        let (policy, now) = (self.draft.policy, self.draft.now);
        let (Some(claim), Some(order)) = (self.claimant.claim, unit.order) else { return Err(None) };
        let (own, its) = (lines::work_group(self.ask.key), unit.group);
        // Inside a tenant priorities come first.
        let peers = its.class == own.class && (its.tenant != own.tenant || its.priority == own.priority);
        // A job of many nodes is not broken for one that fits a corner of one.
        let broken = order.gang && !claim.gang;
        if !peers || broken || unit.job == self.claimant.job || lines::is_fixed(&its, policy) {
            return Err(None);
        }
        if order.step < claim.above {
            Err(order.next_step_at)
        } else if !is_evictable(self.draft, unit, self.claimant, EvictionRule::Order) {
            Err(evictable_at(self.draft, unit, self.claimant, EvictionRule::Order))
        } else if !is_evictable(self.draft, unit, self.claimant, why) {
            Err(evictable_at(self.draft, unit, self.claimant, why))
        } else if order.safe_until.is_some_and(|until| until > now) {
            Err(order.safe_until)
        } else {
            Ok(())
        }
    }
}
