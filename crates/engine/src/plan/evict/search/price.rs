//! What leaving costs and what it brings: minimum runtime, budgets, gain (rules 7 and 8).

use alloc::vec::Vec;

use super::Claimant;
use crate::model::job::Class;
use crate::plan::draft::Draft;
use crate::plan::evict::victims::Unit;
use crate::plan::lines::Pass;
use crate::plan::place::Ask;
use crate::state::ledger::event::EvictionRule;
use crate::units::{Millis, Timestamp};

fn runtime_min(draft: &Draft<'_>, unit: &Unit, claimant: Option<Claimant>, why: EvictionRule) -> Millis {
    let rules = &draft.policy.preemption;
    match why {
        EvictionRule::Guarantee | EvictionRule::Reservation | EvictionRule::Booking | EvictionRule::Drain => {
            Millis(0)
        }
        EvictionRule::FairShare => rules.min_runtime_reclaim,
        // A guarantee does not wait for somebody to have run for long enough to be moved.
        EvictionRule::Move if claimant.is_some_and(|claimant| claimant.pass == Pass::WithinGuarantee) => {
            Millis(0)
        }
        EvictionRule::Preempt | EvictionRule::Move => rules.min_runtime_preempt,
        EvictionRule::Order => unit.order.map_or(rules.min_runtime_preempt, |order| order.min_run),
    }
}

/// What binds everything but guarantees: minimum runtime, budget, and not twice for the same.
pub(crate) fn is_evictable(draft: &Draft<'_>, unit: &Unit, claimant: Claimant, why: EvictionRule) -> bool {
    let ran = draft.now - unit.started_at;
    ran >= runtime_min(draft, unit, Some(claimant), why)
        && !unit.spent
        && !unit.evicted_for.contains(&claimant.job)
}

/// When time alone next changes what it costs or brings that these leave: one of them saves its work, and less is lost
/// just after that; or an estimate of one has passed, and nobody knows any more when it would leave by itself.
pub(crate) fn price_changes_at(draft: &Draft<'_>, units: &[&Unit]) -> Option<Timestamp> {
    let next = units.iter().flat_map(|unit| [unit.checkpoint_at, unit.ends_at]).flatten();
    next.filter(|&at| at > draft.now).min()
}

/// When work that may not be taken yet may be.
pub(crate) fn evictable_at(
    draft: &Draft<'_>,
    unit: &Unit,
    claimant: impl Into<Option<Claimant>>,
    why: EvictionRule,
) -> Option<Timestamp> {
    let long_enough = unit.started_at + runtime_min(draft, unit, claimant.into(), why);
    let at = if long_enough > draft.now { Some(long_enough) } else { unit.window_ends };
    at.filter(|&at| at > draft.now)
}

/// What the claimant gains by starting when its victims have left, in GPU-milliseconds.
pub(crate) fn gain(draft: &Draft<'_>, ask: &Ask<'_>, units: &[&Unit]) -> u64 {
    let rules = &draft.policy.preemption;
    // Both ways its tasks have so long to stop, whether they are asked to leave or their time is up.
    let stop = draft.policy.stop_grace;
    let horizon = draft.now + rules.wait_horizon + stop;
    // Places that were only set aside hold nobody up; they are let go of with the rest of their gang.
    let units: Vec<&&Unit> = units.iter().filter(|unit| !unit.earmarked).collect();
    // They would be gone by then without being told.
    let without = units.iter().map(|unit| unit.ends_at.unwrap_or(horizon)).max().unwrap_or(draft.now);
    let with = units.iter().map(|unit| unit.grace.0.saturating_add(stop.0)).max().unwrap_or_default();
    let saved = (without.min(horizon) - draft.now).0.saturating_sub(with);
    let class = Class::ALL.iter().position(|&class| class == ask.key.class).expect("every class is listed");
    let parts = ask.units().parts().max(1);
    let worth = u128::from(saved) * u128::from(rules.value[class]) * u128::from(parts) / 3000;
    u64::try_from(worth).unwrap_or(u64::MAX)
}
