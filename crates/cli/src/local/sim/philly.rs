//! Replay of the Philly trace: which jobs, on which fleet, promised what, and by whose decision.

mod files;
mod table;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use sha2::{Digest, Sha256};
use wharf_controller::world::NodeReport;
use wharf_engine::model::policy::{Amount, GpuQuota, Policy};
use wharf_engine::units::{GpuUnits, Millis};
use wharf_sim::trace::first_come::{Order, Reference};
use wharf_sim::trace::philly::{self, Estimates, NODE_GPUS, Settings};
use wharf_sim::trace::replay::{Contract, JobRow, Replay, ReplayReport, TraceJob};

use super::trace;
use crate::args::{PhillyArgs, SimArgs, TraceOrder};
use crate::input::files::combined;
use crate::local::process::cpu_seconds;
use crate::render::problem::Usage;

/// What is taken of jobs that nobody says anything about: they save every half hour and when asked, are gone within a
/// minute, and take a minute to get going again.
const CONTRACT: Contract = Contract {
    every: Millis::from_secs(30 * 60),
    grace: Millis::from_secs(60),
    restart: Millis::from_secs(60),
    on_request: true,
};

/// Everything that is replayed, the same for every order.
struct Given {
    jobs: Vec<TraceJob>,
    nodes: Vec<NodeReport>,
    policy: Policy,
    inputs_sha256: String,
}

pub(super) fn run(file: &Path, args: &SimArgs) -> anyhow::Result<ExitCode> {
    let order = args.philly.order.unwrap_or(TraceOrder::Wharf);
    let orders: &[TraceOrder] = match order {
        TraceOrder::All => &[TraceOrder::Static, TraceOrder::Fifo, TraceOrder::FifoSkip, TraceOrder::Wharf],
        TraceOrder::Wharf => &[TraceOrder::Wharf],
        TraceOrder::Fifo => &[TraceOrder::Fifo],
        TraceOrder::FifoSkip => &[TraceOrder::FifoSkip],
        TraceOrder::Static => &[TraceOrder::Static],
    };
    if args.jobs.is_some() && orders.len() > 1 {
        return Err(usage("--jobs writes the rows of one replay", "choose one --order").into());
    }
    let given = read(file, args)?;
    let mut reports = Vec::new();
    for &order in orders {
        let before = if orders.len() > 1 { cpu_seconds() } else { Some(0.0) };
        let (mut report, rows) = play(&given, order, args)?;
        report.inputs_sha256.clone_from(&given.inputs_sha256);
        report.cpu_s = cpu_seconds().zip(before).map(|(after, before)| after - before);
        if let Some(path) = &args.jobs {
            trace::write_rows(path, &rows)?;
        }
        reports.push(report);
    }
    table::show(&reports, args.output)?;
    let clean = reports.iter().all(|report| report.findings.is_empty());
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn usage(what: impl Into<String>, next: &str) -> Usage {
    Usage { what: what.into(), next: next.to_owned() }
}

fn read(file: &Path, args: &SimArgs) -> anyhow::Result<Given> {
    let PhillyArgs { from, to, gpus, order: _, estimates, checkpoint, jitter } = args.philly;
    let given = files::read(file)?;
    let window = from.unwrap_or(0)..to.unwrap_or(u64::MAX / 1000);
    let rows = files::select(&file.display().to_string(), &given.text, &window)
        .map_err(|error| trace::wrong_trace(&error))?;
    let contract = checkpoint.unwrap_or(CONTRACT);
    let estimates = estimates.unwrap_or(Estimates::None);
    let settings = Settings { estimates, contract, jitter, seed: args.seed };
    let jobs = philly::jobs(&rows, &settings);
    let (nodes, fleet_hash) = match (&args.fleet, gpus) {
        (Some(name), _) => trace::fleet_of(name)?,
        (None, Some(gpus)) => {
            let hash = Sha256::digest(format!("{gpus} GPUs on nodes of {NODE_GPUS}")).into();
            (philly::fleet(gpus / NODE_GPUS), hash)
        }
        (None, None) => {
            let next = "add --gpus N for nodes of eight, as in --gpus 1840, or --fleet NAME|FILE";
            return Err(usage("a trace needs a fleet", next).into());
        }
    };
    let policy = if let Some(dir) = &args.policy {
        trace::policy(Some(dir), &jobs)?
    } else {
        let published = files::published(file)?;
        let all: usize = nodes.iter().map(|node| node.node.gpus.len()).sum();
        let own = philly::own_nodes(&published, u32::try_from(all)? / NODE_GPUS);
        known_tenants(&jobs, &own)?;
        philly::policy(&own, &settings)
    };
    let hashes = [given.sha256, fleet_hash, trace::policy_hash(&policy)];
    Ok(Given { jobs, nodes, policy, inputs_sha256: combined(&hashes) })
}

/// Whose size is not published has no guarantee that could be scaled.
fn known_tenants(jobs: &[TraceJob], own: &[(String, u32)]) -> Result<(), Usage> {
    let unknown = |job: &&TraceJob| !own.iter().any(|(vc, _)| *vc == job.tenant);
    match jobs.iter().find(unknown) {
        None => Ok(()),
        Some(job) => {
            let what = format!("job {} is of {}, which {} does not name", job.id, job.tenant, files::SIZES);
            Err(usage(what, "add it there, or give --policy DIR"))
        }
    }
}

fn play(given: &Given, order: TraceOrder, args: &SimArgs) -> anyhow::Result<(ReplayReport, Vec<JobRow>)> {
    let order = match order {
        TraceOrder::Wharf | TraceOrder::All => {
            let Given { jobs, nodes, policy, inputs_sha256: _ } = given;
            let (jobs, nodes, policy) = (jobs.clone(), nodes.clone(), policy.clone());
            return trace::play(Replay { jobs, nodes, policy, seed: args.seed }, args);
        }
        TraceOrder::Fifo => Order::Fifo,
        TraceOrder::FifoSkip => Order::FifoSkip,
        TraceOrder::Static => Order::Static,
    };
    if given.nodes.iter().any(|node| node.node.gpus.len() != 8) {
        let next = "give a fleet of such nodes, or --gpus N";
        return Err(usage(format!("{} is for nodes of eight GPUs", order.into_str()), next).into());
    }
    let reference = Reference { order, nodes: given.nodes.len(), own: own_nodes(&given.policy) };
    let mut jobs = given.jobs.clone();
    Ok(reference
        .run(&mut jobs)
        .map_err(|unfit| usage(unfit.to_string(), "choose another --order or --policy"))?)
}

/// What guarantees are in whole nodes.
fn own_nodes(policy: &Policy) -> BTreeMap<String, usize> {
    let of = |amount: Amount| amount.cap(u64::MAX / 4);
    let nodes = |quota: &GpuQuota| {
        let parts: u64 = match quota {
            GpuQuota::Any(quota) => of(quota.guaranteed),
            GpuQuota::PerPool(pools) => pools.iter().map(|(_, quota)| of(quota.guaranteed)).sum(),
        };
        usize::try_from(parts / GpuUnits::whole(NODE_GPUS).parts()).unwrap_or(usize::MAX)
    };
    policy.tenants.iter().map(|tenant| (tenant.path.clone(), nodes(&tenant.gpus))).collect()
}
