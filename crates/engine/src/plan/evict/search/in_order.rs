//! Units that give way because they were served for longer (rule 3): in the own tenant, or for a fair share in whatever is
//! above its own.

use super::price::check_evictable;
use super::{Claimant, Right, VictimSearch};
use crate::plan::draft::Draft;
use crate::plan::evict::victims::{Unit, UnitRef};
use crate::plan::lines::{self, Line};
use crate::plan::memory::earlier;
use crate::plan::place::Ask;
use crate::state::ledger::event::EvictionRule;
use crate::units::{TenantId, Timestamp};

impl VictimSearch<'_, '_, '_> {
    /// True when only longer-served units are evicted by that right: always by the order of a class, and for the fair share
    /// of a job that waits where both are of one class that has an order beyond age.
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

    /// True when the claimant may evict a unit by the order of the class.
    pub(super) fn is_behind(&mut self, at: UnitRef, right: Right) -> bool {
        let checked = check_behind(self.draft, self.ask, self.claimant, self.victims.get(at), right.why());
        self.note_retry(checked.err().flatten());
        checked.is_ok()
    }

    /// True when some unit of the tenant might have to leave by the order of the class. It costs a fraction of listing
    /// all that the tenant runs, and on a full fleet the answer is no most of the time.
    pub(super) fn any_behind(&mut self, tenant: TenantId) -> bool {
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
