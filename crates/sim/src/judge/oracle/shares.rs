//! Fair shares as rule 2 says them, in whole GPUs.

use super::Instance;

/// One tenant's part in the division.
struct Claim {
    tenant: usize,
    weight: u64,
    priority: i32,
    /// What it still wants.
    wants: u64,
    share: u64,
}

/// Every tenant's fair share. `parents` is the tree, `demand` what runs and waits of each tenant itself.
pub(super) fn fair_shares(instance: &Instance, parents: &[Option<usize>], demand: &[u64]) -> Vec<u64> {
    let total = subtree_demand(instance, parents, demand);
    let mut shares = vec![0; parents.len()];
    let gpus = instance.nodes.iter().map(|node| node.gpus).sum();
    share_out(instance, parents, &total, None, gpus, &mut shares);
    shares
}

/// Demand summed up the tree and cut at each limit. Paths are in order, so children stand after their parents.
fn subtree_demand(instance: &Instance, parents: &[Option<usize>], demand: &[u64]) -> Vec<u64> {
    let mut total = demand.to_vec();
    for tenant in (0..parents.len()).rev() {
        if let Some(limit) = instance.tenants[tenant].limit_gpus {
            total[tenant] = total[tenant].min(limit);
        }
        if let Some(parent) = parents[tenant] {
            total[parent] += total[tenant];
        }
    }
    total
}

fn share_out(
    instance: &Instance,
    parents: &[Option<usize>],
    demand: &[u64],
    parent: Option<usize>,
    gpus: u64,
    shares: &mut [u64],
) {
    let siblings: Vec<usize> = (0..parents.len()).filter(|&tenant| parents[tenant] == parent).collect();
    let mut claims: Vec<Claim> = Vec::new();
    let mut left = gpus;
    for &tenant in &siblings {
        let lines = &instance.tenants[tenant];
        let share = lines.guaranteed_gpus.min(demand[tenant]);
        left = left.checked_sub(share).expect("guarantees fit what there is");
        let (weight, priority) = (u64::from(lines.weight), lines.priority);
        claims.push(Claim { tenant, weight, priority, wants: demand[tenant] - share, share });
    }
    let mut tiers: Vec<i32> = claims.iter().map(|claim| claim.priority).collect();
    tiers.sort_unstable();
    tiers.dedup();
    for tier in tiers.into_iter().rev() {
        let mut open: Vec<&mut Claim> =
            claims.iter_mut().filter(|claim| claim.priority == tier && claim.weight > 0).collect();
        left = divide(left, &mut open);
    }
    for Claim { tenant, share, .. } in claims {
        shares[tenant] = share;
        if siblings.contains(&tenant) {
            share_out(instance, parents, demand, Some(tenant), share, shares);
        }
    }
}

/// Weighted max-min among equals: whoever wants no more than its part has what it wants, and the rest is divided again;
/// at last everybody gets the whole GPUs of its part, and single ones go to the largest remainders.
fn divide(mut left: u64, open: &mut Vec<&mut Claim>) -> u64 {
    loop {
        open.retain(|claim| claim.wants > 0);
        let weights: u64 = open.iter().map(|claim| claim.weight).sum();
        let before = left;
        for claim in open.iter_mut() {
            if claim.wants * weights <= before * claim.weight {
                claim.share += claim.wants;
                left -= claim.wants;
                claim.wants = 0;
            }
        }
        if left != before {
            continue;
        }
        for claim in open.iter_mut() {
            let part = before * claim.weight / weights;
            claim.share += part;
            left -= part;
        }
        open.sort_by_key(|claim| (std::cmp::Reverse(before * claim.weight % weights), claim.tenant));
        for claim in open.iter_mut() {
            let one = left.min(1);
            claim.share += one;
            left -= one;
        }
        return left;
    }
}
