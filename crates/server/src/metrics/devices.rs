//! Series of single GPUs and tasks. A fleet may have more of both than a monitoring system likes: the first so many
//! have series of their own, and one series says how many were left out.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use wharf_api::v1::thousandths;
use wharf_controller::world::{Samples, TaskSample};
use wharf_engine::model::observed::TaskRef;
use wharf_engine::model::placement::Placement;

use super::{Floats, Metric};
use crate::replica::Replica;

/// The most GPUs, and the most tasks, that have series of their own: more would be a
/// burden for whoever collects them.
const SERIES_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfGpu {
    node: String,
    gpu: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InMode {
    node: String,
    gpu: u64,
    mode: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfTask {
    tenant: String,
    job: String,
    task: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfJob {
    tenant: String,
    job: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeftOut {
    of: &'static str,
}

fn bytes(mib: u32) -> f64 {
    f64::from(mib) * 1_048_576.0
}

/// What each GPU does and how it is divided; and, for all series of this kind, how many are left out.
pub(super) fn gpus(registry: &mut Registry, replica: &Replica, samples: &Samples) {
    let (active, memory) = (Floats::<OfGpu>::default(), Floats::<OfGpu>::default());
    let mode = Family::<InMode, Gauge>::default();
    let nodes = replica.state.fleet.nodes();
    let all =
        nodes.flat_map(|(_, node)| (0u64..).zip(&node.facts.gpus).map(move |(at, gpu)| (node, at, gpu)));
    let mut count = 0;
    for (node, gpu, observed) in all {
        count += 1;
        if count > SERIES_MAX {
            continue;
        }
        let name = &node.facts.name;
        mode.get_or_create(&InMode { node: name.clone(), gpu, mode: observed.mode.into_str() }).set(1);
        let of_node = samples.gpus.get(name).filter(|_| node.facts.up);
        let Some(sample) = of_node.and_then(|gpus| gpus.get(usize::try_from(gpu).ok()?)) else { continue };
        let label = OfGpu { node: name.clone(), gpu };
        if let Some(milli) = sample.sm_active_milli {
            active.get_or_create(&label).set(thousandths(milli.into()));
        }
        if let Some(mib) = sample.memory_used_mib {
            memory.get_or_create(&label).set(bytes(mib));
        }
    }
    let left_out = Family::<LeftOut, Gauge>::default();
    for (of, count) in [("gpu", count), ("task", held(replica).count())] {
        let missing = i64::try_from(count.saturating_sub(SERIES_MAX)).unwrap_or(i64::MAX);
        left_out.get_or_create(&LeftOut { of }).set(missing);
    }
    registry.register(Metric::GpuSmActive.name(), Metric::GpuSmActive.help(), active);
    registry.register(Metric::GpuMemoryUsed.name(), Metric::GpuMemoryUsed.help(), memory);
    registry.register(Metric::GpuMode.name(), Metric::GpuMode.help(), mode);
    registry.register(Metric::SeriesLeftOut.name(), Metric::SeriesLeftOut.help(), left_out);
}

/// Tasks that hold GPUs, in the order of their jobs.
fn held(replica: &Replica) -> impl Iterator<Item = (OfTask, TaskRef, &Placement)> {
    let state = &*replica.state;
    state.ledger.holdings().flat_map(move |(id, holding)| {
        let job = state.jobs.get(id).expect("what is held belongs to a live job");
        let with_gpus = holding.tasks.iter().filter(|task| task.holds() && task.place.gpus.count() > 0);
        with_gpus.map(move |held| {
            let task = held.place.task;
            let tenant = state.tenants.path(job.spec.tenant).to_owned();
            let label = OfTask { tenant, job: job.spec.name.clone(), task };
            (label, TaskRef { uid: job.uid, task, attempt: holding.attempt }, &held.place)
        })
    })
}

/// What each task does, may and loses.
pub(super) fn tasks(registry: &mut Registry, replica: &Replica, samples: &Samples) {
    let metrics = [Metric::TaskSmActive, Metric::TaskMemoryUsed, Metric::TaskMemoryLimit, Metric::TaskTax];
    let families = metrics.map(|metric| {
        let family = Floats::<OfTask>::default();
        registry.register(metric.name(), metric.help(), family.clone());
        family
    });
    for (label, task, place) in held(replica).take(SERIES_MAX) {
        let TaskSample { sm_active_milli, sm_active_mean_milli: _, memory_used_mib, memory_limit_mib } =
            samples.tasks.get(&task).copied().unwrap_or_default();
        let limit = memory_limit_mib.or_else(|| replica.state.memory_mib(place));
        let values = [
            sm_active_milli.map(|milli| thousandths(milli.into())),
            memory_used_mib.map(bytes),
            limit.map(bytes),
            Some(thousandths(place.tax.into())),
        ];
        for (family, value) in families.iter().zip(values) {
            if let Some(value) = value {
                family.get_or_create(&label).set(value);
            }
        }
    }
}

/// Who ran out of memory.
pub(super) fn ooms(registry: &mut Registry, replica: &Replica, samples: &Samples) {
    let Some(ooms) = &samples.ooms else { return };
    let by_job = Family::<OfJob, Counter>::default();
    let state = &*replica.state;
    let live =
        ooms.iter().filter_map(|(&uid, &count)| Some((state.jobs.get(state.jobs.with_uid(uid)?)?, count)));
    for (job, count) in live.take(SERIES_MAX) {
        let tenant = state.tenants.path(job.spec.tenant).to_owned();
        by_job.get_or_create(&OfJob { tenant, job: job.spec.name.clone() }).inc_by(count.into());
    }
    let all: u64 = ooms.values().copied().map(u64::from).sum();
    registry.register(Metric::JobOoms.name(), Metric::JobOoms.help(), by_job);
    registry.register(Metric::Ooms.name(), Metric::Ooms.help(), ConstCounter::new(all));
}
