//! Jobs that hold places, in short: who is there now.

use std::cmp::Reverse;

use wharf_api::v1::{ActiveRow, gpus};
use wharf_controller::world::Samples;
use wharf_engine::model::observed::TaskRef;
use wharf_engine::state::State;
use wharf_engine::state::holding::{HeldTask, Holding};
use wharf_engine::state::jobs::Job;
use wharf_engine::units::{GpuUnits, JobId};

use crate::replica::Replica;
use crate::view;

/// Jobs on the page; the list has them all.
const ROWS_MAX: usize = 500;
/// Nodes of a job that are named; a gang may be on thousands.
const NODES_MAX: usize = 4;

/// The jobs that hold the most, largest first; among equals those that came first.
pub(crate) fn rows(replica: &Replica, samples: &Samples) -> Vec<ActiveRow> {
    let (state, now) = (&*replica.state, replica.now());
    let mut held: Vec<(Reverse<GpuUnits>, JobId)> = state
        .ledger
        .holdings()
        .filter(|(_, holding)| holding.tasks.iter().any(HeldTask::holds))
        .map(|(id, holding)| (Reverse(units(holding)), id))
        .collect();
    held.sort_unstable();
    let known = |&(Reverse(units), id): &(Reverse<GpuUnits>, JobId)| {
        Some((id, units, state.jobs.get(id)?, state.ledger.holding(id)?))
    };
    let shown = held.iter().take(ROWS_MAX).filter_map(known);
    shown
        .map(|(id, units, job, holding)| {
            let verdict = replica.verdict(id).expect("a live job has a verdict");
            let text = view::verdict_view(state, id, &verdict, now).text;
            row(state, job, holding, samples, (units, text))
        })
        .collect()
}

fn row(
    state: &State,
    job: &Job,
    holding: &Holding,
    samples: &Samples,
    (units, text): (GpuUnits, String),
) -> ActiveRow {
    let mut nodes: Vec<_> =
        holding.tasks.iter().filter(|task| task.holds()).map(|task| task.place.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let names = nodes.iter().take(NODES_MAX).filter_map(|&node| state.fleet.node(node));
    ActiveRow {
        uid: format!("{:032x}", job.uid.0),
        name: job.spec.name.clone(),
        tenant: state.tenants.path(job.spec.tenant).to_owned(),
        class: job.spec.class,
        state: view::job_state(job, Some(holding)),
        gpus: gpus(units),
        sm_active: busy(job, holding, samples),
        since_ms: holding.since().map(|since| since.0),
        nodes: names.map(|node| node.facts.name.clone()).collect(),
        node_count: view::count(nodes.len()),
        text,
    }
}

fn units(holding: &Holding) -> GpuUnits {
    let of_task = |task: &HeldTask| task.place.units_each.times(task.place.gpus.count()).parts();
    let parts: u64 = holding.tasks.iter().filter(|task| task.holds()).map(of_task).sum();
    GpuUnits::from_parts(parts)
}

/// The mean over its tasks; unknown where one of them is.
fn busy(job: &Job, holding: &Holding, samples: &Samples) -> Option<f64> {
    let of_task = |task: &HeldTask| {
        let named = TaskRef { uid: job.uid, task: task.place.task, attempt: holding.attempt };
        samples.tasks.get(&named)?.sm_active_milli
    };
    let running = holding.tasks.iter().filter(|task| task.holds() && task.place.gpus.count() > 0);
    let active: Option<Vec<u32>> = running.map(of_task).collect();
    view::mean(&active?)
}
