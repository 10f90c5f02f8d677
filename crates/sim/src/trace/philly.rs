//! The Philly trace as jobs, fleet and policy: two months of a training cluster shared by virtual clusters.
//!
//! Each virtual cluster is a tenant, each job a batch job. A job of at most eight GPUs is one task; a larger one is a gang of
//! whole nodes of eight, rounded up: in October and November 2017 that concerns 12 jobs of 12 GPUs and one of 20, of
//! 89,347. The fleet is made of alike nodes of eight, and what a tenant is promised is its published share of them.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use wharf_controller::world::NodeReport;
use wharf_engine::model::job::{Class, GpuAsk};
use wharf_engine::model::observed::{ObservedGpu, ObservedNode};
use wharf_engine::model::policy::{
    Amount, GpuQuota, Order, OrderRules, Orders, Policy, Preemption, Quota, Tenant,
};
use wharf_engine::units::{GpuMask, GpuUnits, Millis, Resources};

use crate::trace::replay::{Contract, TraceJob};

/// The virtual cluster that is left out: when its jobs came is not known reliably.
pub const LEFT_OUT: &str = "51b7ef";
/// GPUs of a node.
pub const NODE_GPUS: u32 = 8;
/// How far a submission is moved at most: the clocks of two virtual clusters differ by about a minute.
const JITTER_MAX_MS: u64 = 30_000;

/// One job as the trace has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Unique in the trace.
    pub id: String,
    /// Its virtual cluster.
    pub vc: String,
    /// When it was submitted.
    pub submit: Millis,
    /// How many GPUs it had.
    pub gpus: u32,
    /// How long it ran.
    pub duration: Millis,
}

/// What is known of how long a job runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Estimates {
    /// Nothing.
    None,
    /// What finished jobs of the same tenant and size tell.
    Learned,
    /// The truth.
    Oracle,
    /// The truth times `exp(sigma x)` with `x` from a normal distribution.
    Noisy(f64),
}

/// What is not in the trace.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What owners say of how long their jobs run.
    pub estimates: Estimates,
    /// How jobs save their work.
    pub contract: Contract,
    /// Moves every submission a little, seeded.
    pub jitter: Option<u64>,
    /// Seed of everything else that is drawn.
    pub seed: u64,
}

/// Rows as jobs.
pub fn jobs(rows: &[Row], settings: &Settings) -> Vec<TraceJob> {
    let mut jitter = settings.jitter.map(ChaCha8Rng::seed_from_u64);
    let mut noise = ChaCha8Rng::seed_from_u64(settings.seed);
    let mut job = |row: &Row| {
        let tasks = row.gpus.div_ceil(NODE_GPUS).max(1);
        TraceJob {
            id: row.id.clone(),
            tenant: row.vc.clone(),
            class: Class::Batch,
            priority: 0,
            tasks,
            min: tasks,
            gpus: GpuAsk::Whole(row.gpus.min(NODE_GPUS)),
            model: String::new(),
            submit: jitter.as_mut().map_or(row.submit, |draw| moved(row.submit, draw)),
            duration: row.duration,
            limit: None,
            estimate: estimate(row.duration, settings.estimates, &mut noise),
            contract: Some(settings.contract),
        }
    };
    rows.iter().map(&mut job).collect()
}

fn moved(submit: Millis, draw: &mut ChaCha8Rng) -> Millis {
    let by = draw.random_range(0..=2 * JITTER_MAX_MS);
    Millis((submit.0 + by).saturating_sub(JITTER_MAX_MS))
}

fn estimate(truth: Millis, estimates: Estimates, draw: &mut ChaCha8Rng) -> Option<Millis> {
    match estimates {
        Estimates::None | Estimates::Learned => None,
        Estimates::Oracle => Some(truth),
        Estimates::Noisy(sigma) => {
            // Box and Muller: two even draws make one from a normal distribution.
            let (one, two): (f64, f64) = (draw.random(), draw.random());
            let normal = (-2.0 * (1.0 - one).ln()).sqrt() * (std::f64::consts::TAU * two).cos();
            let seconds = std::time::Duration::from_millis(truth.0).as_secs_f64() * (sigma * normal).exp();
            let wrong =
                std::time::Duration::try_from_secs_f64(seconds.max(1.0)).unwrap_or(std::time::Duration::MAX);
            // Beyond any limit that a job may have nobody says more than that.
            Some(Millis(u64::try_from(wrong.as_millis()).unwrap_or(u64::MAX).min(ESTIMATE_MAX_MS)))
        }
    }
}

/// The longest that anybody thinks a job runs: a year.
const ESTIMATE_MAX_MS: u64 = 365 * 24 * 3_600_000;

/// So many nodes of the fleet for each of those who published a size, in whole nodes by largest remainder.
///
/// Worked example: sizes 3, 2 and 2 on 5 nodes are 2.14, 1.43 and 1.43; whole nodes are 2, 1 and 1, and the one that is left goes
/// to the second, whose remainder is the largest and which stands first.
pub fn own_nodes(published: &[(String, u32)], nodes: u32) -> Vec<(String, u32)> {
    let sum: u64 = published.iter().map(|&(_, size)| u64::from(size)).sum();
    if sum == 0 {
        return published.iter().map(|(vc, _)| (vc.clone(), 0)).collect();
    }
    let exact = |size: u32| u64::from(size) * u64::from(nodes);
    let whole =
        |size: u32| u32::try_from(exact(size) / sum).expect("a part of the nodes is not more than all");
    let mut shares: Vec<(String, u32)> =
        published.iter().map(|(vc, size)| (vc.clone(), whole(*size))).collect();
    let given: u32 = shares.iter().map(|&(_, nodes)| nodes).sum();
    let mut by_remainder: Vec<usize> = (0..published.len()).collect();
    by_remainder.sort_by_key(|&at| std::cmp::Reverse(exact(published[at].1) % sum));
    for at in by_remainder.into_iter().take(usize::try_from(nodes - given).unwrap_or(usize::MAX)) {
        shares[at].1 += 1;
    }
    shares
}

/// Alike nodes of eight.
pub fn fleet(nodes: u32) -> Vec<NodeReport> {
    let node = |number: u32| {
        let gpu = ObservedGpu { island: number, healthy: true, ..ObservedGpu::default() };
        let capacity = Resources { cpu_milli: 128_000, memory: 2 << 40, pods: 1000, ..Resources::default() };
        NodeReport {
            node: ObservedNode {
                name: format!("n{number:05}"),
                up: true,
                model: "h100".to_owned(),
                gpus: vec![gpu; 8],
                capacity,
                others: Resources::default(),
                others_gpus: GpuMask::default(),
                domains: Vec::new(),
            },
            labels: std::collections::BTreeMap::new(),
            taints: Vec::new(),
        }
    };
    (0..nodes).map(node).collect()
}

/// Guarantees in whole nodes, and a claim on what is left in the same proportion; a restart costs what it costs the jobs.
/// Where nothing is known of how long jobs run, who was served least is first; else who has least left.
pub fn policy(own: &[(String, u32)], settings: &Settings) -> Policy {
    let Settings { estimates, contract, .. } = settings;
    let tenant = |(vc, nodes): &(String, u32)| {
        let guaranteed = Amount::Of(GpuUnits::whole(nodes * NODE_GPUS).parts());
        Tenant {
            gpus: GpuQuota::Any(Quota { guaranteed, limit: Amount::Unlimited }),
            // Whose size is rounded to nothing has a claim on what is left all the same.
            weight: (*nodes).max(1),
            ..Tenant::without_lines(vc)
        }
    };
    let order = match estimates {
        Estimates::None => Order::Attained,
        Estimates::Learned | Estimates::Oracle | Estimates::Noisy(_) => Order::Learned,
    };
    let mut orders = Orders::default();
    orders.0[Class::Batch.index()] = OrderRules { order, ..OrderRules::default() };
    Policy {
        digest: format!("philly {own:?} {order:?} {contract:?}"),
        tenants: own.iter().map(tenant).collect(),
        preemption: Preemption { restart: contract.restart, ..Preemption::default() },
        orders,
        ..Policy::default()
    }
}
