//! Fair shares (rule 2): weighted max-min down the tenant tree, in exact integers.
//!
//! Worked example: 10 GPUs, tenants a (guaranteed 2, weight 1, wants 9) and b (guaranteed 4, weight 3, wants 5).
//! First each gets the least of guarantee and demand: a 2, b 4. Four are left; by weight a would get 1 and b 3,
//! but b wants only one more. So b has its exact demand, 5, and the rest flows on: a gets 5.

use alloc::vec::Vec;

use crate::policy::Amount;

/// What one sibling brings to the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What runs plus what waits, cut at the limit.
    pub demand: u64,
    /// What it is promised.
    pub guaranteed: Amount,
    /// Claim on what is left.
    pub weight: u32,
    /// Higher is served first from what is left.
    pub priority: i32,
}

/// Divides `amount` among siblings in path order. What nobody may have stays undivided.
///
/// A satisfied sibling has its exact demand; only the unsatisfied are rounded to `quantum`, and pieces below it
/// go to the largest remainder, then to the first in path order.
pub fn divide(amount: u64, claims: &[Claim], quantum: u64) -> Vec<u64> {
    let owed: Vec<u64> = claims.iter().map(|claim| claim.guaranteed.cap(claim.demand)).collect();
    let owed_total: u64 = owed.iter().sum();
    let wanted_total = claims.iter().fold(0u64, |total, claim| total.saturating_add(claim.demand));
    if wanted_total <= amount && claims.iter().all(|claim| claim.weight > 0) {
        // There is enough for everybody: the usual case needs no division.
        return claims.iter().map(|claim| claim.demand).collect();
    }
    let mut shares = alloc::vec![0; claims.len()];
    if owed_total > amount {
        // Healthy capacity is below the promises: what there is goes max-min with the promises as weights. Who is
        // not metered was promised what it wants.
        let promised = |claim: &Claim| match claim.guaranteed {
            Amount::Of(guaranteed) => guaranteed,
            Amount::Unlimited => claim.demand,
        };
        let weights: Vec<u64> = claims.iter().map(promised).collect();
        by_tier(amount, claims, &owed, &weights, quantum, &mut shares);
        return shares;
    }
    shares.copy_from_slice(&owed);
    let wanted: Vec<u64> = claims.iter().map(|claim| claim.demand).collect();
    let weights: Vec<u64> = claims.iter().map(|claim| u64::from(claim.weight)).collect();
    by_tier(amount - owed_total, claims, &wanted, &weights, quantum, &mut shares);
    shares
}

/// Fills tiers of equal tenant priority, highest first.
fn by_tier(
    mut left: u64,
    claims: &[Claim],
    wanted: &[u64],
    weights: &[u64],
    quantum: u64,
    shares: &mut [u64],
) {
    let mut tiers: Vec<i32> = claims.iter().map(|claim| claim.priority).collect();
    tiers.sort_unstable_by(|a, b| b.cmp(a));
    tiers.dedup();
    for tier in tiers {
        let members: Vec<usize> = (0..claims.len())
            .filter(|&at| claims[at].priority == tier && weights[at] > 0 && wanted[at] > shares[at])
            .collect();
        left = fill(left, &members, wanted, weights, quantum, shares);
    }
}

/// Weighted max-min among `members`; returns what is left over.
fn fill(
    mut left: u64,
    members: &[usize],
    wanted: &[u64],
    weights: &[u64],
    quantum: u64,
    shares: &mut [u64],
) -> u64 {
    let mut open: Vec<usize> = members.to_vec();
    loop {
        let total: u128 = open.iter().map(|&at| u128::from(weights[at])).sum();
        // Satisfied when the wish is at most the exact proportional part: wish × total ≤ left × weight.
        let satisfied = |at: usize| {
            u128::from(wanted[at] - shares[at]) * total <= u128::from(left) * u128::from(weights[at])
        };
        let (full, rest): (Vec<usize>, Vec<usize>) = open.iter().partition(|&&at| satisfied(at));
        if full.is_empty() {
            return round(left, &rest, total, wanted, weights, quantum, shares);
        }
        for at in full {
            left -= wanted[at] - shares[at];
            shares[at] = wanted[at];
        }
        open = rest;
    }
}

/// Proportional parts of the unsatisfied in whole quanta, then the pieces by largest remainder.
fn round(
    left: u64,
    open: &[usize],
    total: u128,
    wanted: &[u64],
    weights: &[u64],
    quantum: u64,
    shares: &mut [u64],
) -> u64 {
    if open.is_empty() || total == 0 {
        return left;
    }
    let exact = |at: usize| u128::from(left) * u128::from(weights[at]);
    let mut rest = left;
    let mut remainders: Vec<(u128, usize)> = Vec::new();
    for &at in open {
        let unit = u128::from(quantum) * total;
        let quanta = exact(at) / unit;
        let part = u64::try_from(quanta).expect("a part is at most the whole") * quantum;
        shares[at] += part;
        rest -= part;
        remainders.push((exact(at) % unit, at));
    }
    remainders.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    while rest > 0 {
        let before = rest;
        for &(_, at) in &remainders {
            let piece = rest.min(quantum).min(wanted[at] - shares[at]);
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

    fn claim(demand: u64, guaranteed: u64, weight: u32, priority: i32) -> Claim {
        Claim { demand, guaranteed: Amount::Of(guaranteed), weight, priority }
    }

    #[test]
    fn the_example_above_comes_out() {
        assert_eq!(divide(10, &[claim(9, 2, 1, 0), claim(5, 4, 3, 0)], 1), [5, 5]);
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
        assert_eq!(
            divide(3, &[claim(9, 0, 1, 0), claim(9, 0, 1, 0)], 1),
            [2, 1],
            "then the first in path order"
        );
    }

    #[test]
    fn a_shortage_is_divided_by_the_promises() {
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
            let claims: Vec<Claim> = (0..=next(4))
                .map(|_| {
                    let weight = u32::try_from(next(4)).unwrap();
                    claim(next(30), next(10), weight, i32::try_from(next(2)).unwrap())
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
