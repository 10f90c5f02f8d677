//! What leaving costs and what it brings: minimum runtime, budgets, gain (rules 7 and 8).

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
    let guarantee = claimant.is_some_and(|claimant| claimant.pass == Pass::WithinGuarantee);
    match why {
        EvictionRule::Guarantee | EvictionRule::Reservation | EvictionRule::Booking | EvictionRule::Drain => {
            Millis(0)
        }
        // A guarantee does not wait for somebody to have run for long enough to be moved.
        EvictionRule::Move if guarantee => Millis(0),
        EvictionRule::FairShare => rules.min_runtime_reclaim,
        EvictionRule::Preempt | EvictionRule::Move => rules.min_runtime_preempt,
        EvictionRule::Order => unit.order.map_or(rules.min_runtime_preempt, |order| order.min_run),
    }
}

/// What binds all but guarantees: minimum runtime, budget, not twice for one job. An error says when time may lift that.
pub(crate) fn check_evictable(
    draft: &Draft<'_>,
    unit: &Unit,
    claimant: Claimant,
    why: EvictionRule,
) -> Result<(), Option<Timestamp>> {
    let ran = draft.now - unit.started_at;
    let evictable = ran >= runtime_min(draft, unit, Some(claimant), why)
        && !unit.spent
        && !unit.evicted_for.contains(&claimant.job);
    if evictable { Ok(()) } else { Err(evictable_at(draft, unit, Some(claimant), why)) }
}

/// When work that may not be evicted yet may be, for a claimant where there is one already.
pub(crate) fn evictable_at(
    draft: &Draft<'_>,
    unit: &Unit,
    claimant: Option<Claimant>,
    why: EvictionRule,
) -> Option<Timestamp> {
    let long_enough = unit.started_at + runtime_min(draft, unit, claimant, why);
    let at = if long_enough > draft.now { Some(long_enough) } else { unit.window_ends };
    at.filter(|&at| at > draft.now)
}

/// Whether more is gained than lost when these leave for an ask. An error says when time alone may change that.
pub(crate) fn check_worth(
    draft: &Draft<'_>,
    ask: &Ask<'_>,
    units: &[&Unit],
) -> Result<(), Option<Timestamp>> {
    let cost = units.iter().map(|unit| unit.cost).fold(0, u64::saturating_add);
    if units.is_empty() || gain(draft, ask, units) > cost {
        return Ok(());
    }
    // One of them saves its work, and less is lost just after that; or the estimate of one has passed, and nobody knows any
    // more when it would leave by itself.
    let next = units.iter().flat_map(|unit| [unit.next_checkpoint_at, unit.ends_at]).flatten();
    Err(next.filter(|&at| at > draft.now).min())
}

/// What the claimant gains by starting when its victims have left, in GPU-milliseconds.
pub(crate) fn gain(draft: &Draft<'_>, ask: &Ask<'_>, units: &[&Unit]) -> u64 {
    let rules = &draft.policy.preemption;
    // Both ways its tasks have so long to stop, whether they are asked to leave or their time is up.
    let stop = draft.policy.stop_grace;
    let horizon = draft.now + rules.wait_horizon + stop;
    // An earmark holds nobody up; it is let go of with the rest of its gang.
    let units = units.iter().filter(|unit| !unit.earmarked);
    // They would be gone by then without being told.
    let without = units.clone().map(|unit| unit.ends_at.unwrap_or(horizon)).max().unwrap_or(draft.now);
    let with = units.map(|unit| unit.group.grace.0.saturating_add(stop.0)).max().unwrap_or_default();
    let saved = (without.min(horizon) - draft.now).0.saturating_sub(with);
    let class = Class::ALL.iter().position(|&class| class == ask.key.class).expect("every class is listed");
    let parts = ask.units().parts().max(1);
    let worth = u128::from(saved) * u128::from(rules.value[class]) * u128::from(parts) / 3000;
    u64::try_from(worth).unwrap_or(u64::MAX)
}
