//! Fair shares (rule 2): weighted max-min down the tenant tree, in exact integers.
//!
//! Worked example: 10 GPUs, tenants a (guaranteed 2, weight 1, wants 9) and b (guaranteed 4, weight 3, wants 5).
//! First each gets the least of guarantee and demand: a 2, b 4. Four are left; by weight a would get 1 and b 3,
//! but b wants only one more. So b has its exact demand, 5, and the rest flows on: a gets 5.
//!
//! What counts of the past counts as if they had it already: 8 GPUs without guarantees, two tenants of equal weight that want 8 each;
//! for one 6 count, for the other nothing. Together with the past there are 14, 7 for each: the one gets 1 now, the other 7. Did
//! more than 8 count it would get nothing, and would not have to pay more back.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::model::policy::Amount;

/// What one sibling brings to the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShareClaim {
    /// What runs plus what waits, cut at the limit.
    pub demand: u64,
    pub guaranteed: Amount,
    pub weight: u64,
    /// Higher is served first from what is left.
    pub priority: i32,
    /// What counts of what it borrowed before.
    pub past: u64,
}

/// Divides `amount` among siblings in path order. What nobody may have stays undivided.
///
/// A satisfied sibling has its exact demand; only the unsatisfied are rounded to `quantum`, and pieces below it
/// go to the largest remainder, then to the first in path order.
pub(super) fn divide(amount: u64, claims: &[ShareClaim], quantum: u64) -> Vec<u64> {
    let owed: Vec<u64> = claims.iter().map(|claim| claim.guaranteed.cap(claim.demand)).collect();
    let owed_total: u64 = owed.iter().sum();
    let wanted_total = claims.iter().fold(0u64, |total, claim| total.saturating_add(claim.demand));
    if wanted_total <= amount && claims.iter().all(|claim| claim.weight > 0) {
        // There is enough for everybody: the usual case needs no division.
        return claims.iter().map(|claim| claim.demand).collect();
    }
    if owed_total <= amount {
        return by_tier(amount - owed_total, claims, owed, quantum);
    }
    // Healthy capacity is below the guarantees: what there is goes max-min with the guarantees as weights. A sibling that is
    // not metered is guaranteed what it wants. The past does not count: a guarantee is kept whatever was borrowed.
    let short = |(claim, &owed): (&ShareClaim, &u64)| {
        let weight = match claim.guaranteed {
            Amount::Of(guaranteed) => guaranteed,
            Amount::Unlimited => claim.demand,
        };
        ShareClaim { demand: owed, weight, past: 0, ..*claim }
    };
    let short: Vec<ShareClaim> = claims.iter().zip(&owed).map(short).collect();
    by_tier(amount, &short, alloc::vec![0; claims.len()], quantum)
}

/// Fills tiers of equal tenant priority, highest first, above the shares that siblings have already.
fn by_tier(mut left: u64, claims: &[ShareClaim], mut shares: Vec<u64>, quantum: u64) -> Vec<u64> {
    let tiers: BTreeSet<i32> = claims.iter().map(|claim| claim.priority).collect();
    for tier in tiers.into_iter().rev() {
        let wants_more = |&at: &usize| {
            let claim = &claims[at];
            claim.priority == tier && claim.weight > 0 && claim.demand > shares[at]
        };
        let members = (0..claims.len()).filter(wants_more).collect();
        left = fill(left, members, claims, quantum, &mut shares);
    }
    shares
}

/// Weighted max-min among `members`, of what each had and gets; returns what is left over.
fn fill(left: u64, mut members: Vec<usize>, claims: &[ShareClaim], quantum: u64, shares: &mut [u64]) -> u64 {
    loop {
        let level = WaterLevel::of(left, &members, claims, shares);
        // A sibling that had more than the level gets nothing; without it, the level for the rest is lower. The first level is
        // too high if anything, so that no sibling is left out that should not be.
        let before = members.len();
        members.retain(|at| level.full.contains(at) || level.part(&claims[*at]) > 0);
        if members.len() < before {
            continue;
        }
        let mut left = left;
        for at in level.full.iter().copied() {
            left -= claims[at].demand - shares[at];
            shares[at] = claims[at].demand;
        }
        return round(left, &level, claims, quantum, shares);
    }
}

/// How high what there is rises, if all had their past parts already: to `has / weight` for a weight of one.
struct WaterLevel {
    /// Members that have all they want below that.
    full: Vec<usize>,
    open: Vec<usize>,
    /// What is left for those, with what they had.
    has: u128,
    /// Their weights together.
    weight: u128,
}

impl WaterLevel {
    fn of(left: u64, members: &[usize], claims: &[ShareClaim], shares: &[u64]) -> Self {
        let weight = |at: &usize| u128::from(claims[*at].weight);
        let top = |at: &usize| u128::from(claims[*at].demand - shares[*at]) + u128::from(claims[*at].past);
        let past: u128 = members.iter().map(|&at| u128::from(claims[at].past)).sum();
        let mut level = Self {
            full: Vec::new(),
            open: members.to_vec(),
            has: u128::from(left) + past,
            weight: members.iter().map(weight).sum(),
        };
        loop {
            // Satisfied when the wish is at most the exact proportional part.
            let satisfied = |at: &usize| top(at) * level.weight <= level.has * weight(at);
            let (full, open): (Vec<usize>, Vec<usize>) = level.open.iter().partition(|at| satisfied(at));
            if full.is_empty() {
                return level;
            }
            level.has -= full.iter().map(top).sum::<u128>();
            level.weight -= full.iter().map(weight).sum::<u128>();
            level.full.extend(full);
            level.open = open;
        }
    }

    /// The exact part of a member that cannot have all it wants, times the weights together.
    fn part(&self, claim: &ShareClaim) -> u128 {
        let up_to = self.has * u128::from(claim.weight);
        up_to.saturating_sub(u128::from(claim.past) * self.weight)
    }
}

/// Proportional parts of the unsatisfied in whole quanta, then the pieces by largest remainder.
fn round(left: u64, level: &WaterLevel, claims: &[ShareClaim], quantum: u64, shares: &mut [u64]) -> u64 {
    if level.open.is_empty() {
        return left;
    }
    let unit = u128::from(quantum) * level.weight;
    let mut rest = left;
    let mut remainders: Vec<(u128, usize)> = Vec::new();
    for &at in &level.open {
        let exact = level.part(&claims[at]);
        let part = u64::try_from(exact / unit).expect("a part is at most the whole") * quantum;
        shares[at] += part;
        rest -= part;
        remainders.push((exact % unit, at));
    }
    remainders.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    while rest > 0 {
        let before = rest;
        for &(_, at) in &remainders {
            let piece = rest.min(quantum).min(claims[at].demand - shares[at]);
            shares[at] += piece;
            rest -= piece;
        }
        if rest == before {
            break;
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(demand: u64, guaranteed: u64, weight: u64, priority: i32) -> ShareClaim {
        ShareClaim { demand, guaranteed: Amount::Of(guaranteed), weight, priority, past: 0 }
    }

    #[test]
    fn the_example_above_comes_out() {
        assert_eq!(divide(10, &[claim(9, 2, 1, 0), claim(5, 4, 3, 0)], 1), [5, 5]);
    }

    #[test]
    fn who_borrowed_more_gets_less() {
        let past = |demand, weight, past| ShareClaim { past, ..claim(demand, 0, weight, 0) };
        assert_eq!(divide(8, &[past(8, 1, 6), past(8, 1, 0)], 1), [1, 7]);
        assert_eq!(divide(8, &[past(8, 1, 60), past(8, 1, 0)], 1), [0, 8]);
        assert_eq!(divide(8, &[past(8, 1, 60), past(3, 1, 0)], 1), [5, 3], "nobody else wants it");
        assert_eq!(divide(8, &[past(8, 2, 6), past(8, 1, 3)], 1), [5, 3], "both had their parts");
        // The guarantee comes first, whatever was borrowed.
        let owner = ShareClaim { past: 100, ..claim(8, 3, 1, 0) };
        assert_eq!(divide(8, &[owner, past(8, 1, 0)], 1), [3, 5]);
    }

    #[test]
    fn a_higher_tier_is_served_first() {
        assert_eq!(divide(10, &[claim(9, 0, 1, 0), claim(8, 0, 1, 5)], 1), [2, 8]);
    }

    #[test]
    fn weight_zero_has_no_claim_on_surplus() {
        assert_eq!(divide(10, &[claim(9, 1, 0, 0), claim(3, 0, 1, 0)], 1), [1, 3]);
    }

    #[test]
    fn a_piece_goes_to_the_largest_remainder() {
        assert_eq!(divide(10, &[claim(20, 0, 1, 0), claim(20, 0, 2, 0)], 1), [3, 7]);
        let alike = [claim(9, 0, 1, 0); 2];
        assert_eq!(divide(3, &alike, 1), [2, 1], "then the first in path order");
    }

    #[test]
    fn a_shortage_is_divided_by_the_guarantees() {
        assert_eq!(divide(6, &[claim(8, 8, 1, 0), claim(4, 4, 1, 0)], 1), [4, 2]);
    }

    #[test]
    fn shares_never_pass_demand_and_never_add_up_to_more() {
        let mut seed = 7u64;
        let mut next = |bound: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % bound
        };
        for _ in 0..20_000 {
            let claims: Vec<ShareClaim> = (0..=next(4))
                .map(|_| {
                    let weight = next(4);
                    let past = next(2) * next(60);
                    ShareClaim { past, ..claim(next(30), next(10), weight, i32::try_from(next(2)).unwrap()) }
                })
                .collect();
            let amount = next(40);
            let quantum = 1 + next(3);
            let shares = divide(amount, &claims, quantum);
            let total: u64 = shares.iter().sum();
            assert!(total <= amount, "{claims:?} share {shares:?} of {amount}");
            for (share, claim) in shares.iter().zip(&claims) {
                assert!(*share <= claim.demand, "{claims:?} share {shares:?} of {amount}");
            }
            let wanted: u64 = claims.iter().map(|claim| claim.demand).sum();
            if claims.iter().all(|claim| claim.weight > 0) {
                assert_eq!(total, amount.min(wanted), "{claims:?} share {shares:?} of {amount}");
            }
        }
    }
}
