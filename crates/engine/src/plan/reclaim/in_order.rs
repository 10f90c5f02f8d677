//! Who gives way because it was served for longer (rule 3).

use super::Search;
use super::price::{is_ripe, when_ripe};
use crate::event::Why;
use crate::plan::lines;
use crate::plan::memory::earlier;
use crate::plan::victims::UnitRef;

impl Search<'_, '_, '_> {
    /// True when a unit of the own tenant, of the same class and priority, gives way to the asker by the order of
    /// the class. Whatever only time stands in the way of is a moment to look again.
    pub(super) fn gives_way_in_order(&mut self, at: UnitRef) -> bool {
        let (policy, now) = (self.draft.policy, self.draft.now);
        let unit = self.victims.get(at);
        let (Some(claim), Some(order)) = (self.asker.claim, unit.order) else { return false };
        let (own, its) = (lines::standing_of(self.ask.key), unit.standing);
        let peers = at.tenant == own.tenant && (its.class, its.priority) == (own.class, own.priority);
        // A job of many nodes is not broken for one that fits a corner of one.
        let broken = order.gang && !claim.gang;
        if !peers || broken || lines::is_fixed(&its, policy) {
            return false;
        }
        let when = if order.step < claim.above {
            order.next_step_at
        } else if !is_ripe(self.draft, unit, self.asker, Why::Order) {
            when_ripe(self.draft, unit, Why::Order)
        } else if order.safe_until.is_some_and(|until| until > now) {
            order.safe_until
        } else {
            return true;
        };
        self.ripens_at = earlier(self.ripens_at, when);
        false
    }
}
