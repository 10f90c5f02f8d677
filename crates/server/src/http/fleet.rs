//! Nodes, GPUs, tenants and the page that shows them all.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use axum::Json;
use axum::extract::State;
use wharf_api::v1::{
    DecisionTimes, GpuList, JobCount, JournalView, ModeCounts, NodeList, PoolView, QueueRow, ReservationList,
    StrandedList, Summary, TenantList, gpus as gpu_number, schema_of, thousandths,
};
use wharf_controller::world::Samples;
use wharf_engine::device::catalogue;
use wharf_engine::model::policy::Mode;
use wharf_engine::state::State as Engine;
use wharf_engine::state::jobs::Phase;
use wharf_engine::units::{GpuUnits, NodeId, PoolId};

use super::params::{PAGE_DEFAULT, PAGE_MAX, Params, token};
use super::{Refused, Shared};
use crate::desk::Desk;
use crate::rejection::closed;
use crate::replica::Replica;
use crate::{active, reservation, stranded, tenants, view};

type Answer<T> = Result<Json<T>, Refused>;

/// Waiting jobs on the page; the list has them all.
const QUEUE_ROWS_MAX: usize = 500;

pub(super) async fn nodes(State(shared): State<Shared>, params: Params) -> Answer<NodeList> {
    let limit = params.limit(PAGE_DEFAULT, 1..=PAGE_MAX)?;
    let [from] = params.continued()?.unwrap_or([0]);
    let asked = shared.desk.read(move |replica| {
        let (state, samples) = (&replica.state, replica.samples());
        let mut rest = state.fleet.nodes().skip_while(|(id, _)| u64::from(id.0) < from);
        let page = rest.by_ref().take(limit);
        let nodes = page.map(|(id, node)| view::node(state, id, node, &samples)).collect();
        let next = rest.next().map(|(id, _)| token([id.0.into()]));
        NodeList {
            schema: schema_of::<NodeList>(),
            nodes,
            index: replica.index(),
            term: replica.vitals.term,
            next,
        }
    });
    Ok(Json(asked.await.map_err(closed)?))
}

pub(super) async fn gpus(State(shared): State<Shared>, params: Params) -> Answer<GpuList> {
    let limit = params.limit(PAGE_DEFAULT, 1..=PAGE_MAX)?;
    let from = params.continued()?.unwrap_or([0, 0]);
    let asked = shared.desk.read(move |replica| {
        let at = |node: NodeId, gpu: usize| [node.0.into(), u64::try_from(gpu).unwrap_or(u64::MAX)];
        let nodes = replica.state.fleet.nodes();
        let places = nodes.flat_map(|(id, node)| (0..node.facts.gpus.len()).map(move |gpu| (id, gpu)));
        let mut rest = places.skip_while(|&(node, gpu)| at(node, gpu) < from);
        let page: Vec<(NodeId, usize)> = rest.by_ref().take(limit).collect();
        let gpus = view::gpu::each(&replica.state, &page, &replica.samples());
        let next = rest.next().map(|(node, gpu)| token(at(node, gpu)));
        GpuList {
            schema: schema_of::<GpuList>(),
            gpus,
            index: replica.index(),
            term: replica.vitals.term,
            next,
        }
    });
    Ok(Json(asked.await.map_err(closed)?))
}

pub(super) async fn stranded(State(shared): State<Shared>) -> Answer<StrandedList> {
    let asked = shared.desk.read(|replica| stranded::all(&replica.state));
    Ok(Json(StrandedList { schema: schema_of::<StrandedList>(), pools: asked.await.map_err(closed)? }))
}

pub(super) async fn reservations(State(shared): State<Shared>) -> Answer<ReservationList> {
    let asked = shared.desk.read(|replica| reservation::all(&replica.state, replica.now()));
    let reservations = asked.await.map_err(closed)?;
    Ok(Json(ReservationList { schema: schema_of::<ReservationList>(), reservations }))
}

pub(super) async fn tenant_list(State(shared): State<Shared>) -> Answer<TenantList> {
    let asked = shared.desk.read(|replica| {
        let half_life = replica.state.tenants.policy().half_life;
        (tenants::all(&replica.state), half_life.map(|half_life| half_life.0))
    });
    let (tenants, half_life_ms) = asked.await.map_err(closed)?;
    Ok(Json(TenantList { schema: schema_of::<TenantList>(), tenants, half_life_ms }))
}

pub(super) async fn summary(State(shared): State<Shared>) -> Answer<Summary> {
    let decision_ms = decision_times(&shared.desk);
    let asked = shared.desk.read(move |replica| {
        let samples = replica.samples();
        summarise(replica, &samples, decision_ms)
    });
    Ok(Json(asked.await.map_err(closed)?))
}

fn decision_times(desk: &Desk) -> Option<DecisionTimes> {
    let times = desk.decisions().lock().unwrap_or_else(PoisonError::into_inner);
    let at = |quantile| thousandths(times.value_at_quantile(quantile));
    (!times.is_empty()).then(|| DecisionTimes { p50: at(0.5), p99: at(0.99) })
}

fn summarise(replica: &Replica, samples: &Samples, decision_ms: Option<DecisionTimes>) -> Summary {
    let state = &*replica.state;
    let mut jobs = BTreeMap::new();
    let mut queue = Vec::new();
    for (id, job) in state.jobs.iter() {
        *jobs.entry((job.spec.class, view::job_state(job, state.ledger.holding(id)))).or_insert(0) += 1;
        if job.phase == Phase::Waiting && queue.len() < QUEUE_ROWS_MAX {
            let shown = view::job(replica, id, job);
            queue.push(QueueRow {
                uid: shown.uid,
                name: shown.name,
                tenant: shown.tenant,
                class: job.spec.class,
                gpus: view::wanted_gpus(job),
                since_ms: job.submitted_at.0,
                verdict: shown.verdict.verdict,
                reason: shown.verdict.reason,
                text: shown.verdict.text,
            });
        }
    }
    Summary {
        schema: schema_of::<Summary>(),
        now_ms: replica.now().0,
        pools: pools(state, samples),
        tenants: tenants::all(state),
        queue,
        active: active::rows(replica, samples),
        jobs: jobs.into_iter().map(|((class, state), count)| JobCount { class, state, count }).collect(),
        journal: JournalView { index: state.index(), term: replica.vitals.term },
        decision_ms,
    }
}

/// Per model: what there is, what is handed out, and what it really does.
pub(crate) fn pools(state: &Engine, samples: &Samples) -> Vec<PoolView> {
    let pools = state.fleet.pool_ids().filter(|&pool| !state.fleet.model(pool).is_empty());
    pools.map(|pool| pool_view(state, pool, samples)).collect()
}

fn pool_view(state: &Engine, pool: PoolId, samples: &Samples) -> PoolView {
    let mut sums = Sums::default();
    let model = catalogue::model(state.fleet.model(pool));
    let memory_mib = model.and_then(view::gpu::memory_mib);
    for (id, node) in state.fleet.nodes().filter(|(_, node)| node.facts.pool == pool) {
        sums.gpus += u32::try_from(node.facts.gpus.len()).unwrap_or_default();
        sums.held += state.ledger.occupied(id).iter().map(|units| units.parts()).sum::<u64>();
        let rooms = state.ledger.rooms().get(id).into_iter().flat_map(|room| &room.gpus);
        for (room, gpu) in rooms.zip(&node.facts.gpus) {
            sums.healthy += u32::from(node.facts.up && gpu.healthy);
            sums.slices += u32::try_from(room.layout.slices().count()).unwrap_or_default();
            *sums.of_mode(gpu.mode) += 1;
        }
        // Nodes that are down say nothing; the sum is over those that do.
        let of_node = samples.gpus.get(&node.facts.name).filter(|_| node.facts.up);
        for sample in of_node.into_iter().flatten() {
            add(&mut sums.active, sample.sm_active_milli);
            if sample.memory_used_mib.is_some() {
                add(&mut sums.memory_used, sample.memory_used_mib);
                add(&mut sums.memory, memory_mib);
            }
        }
    }
    PoolView {
        model: state.fleet.model(pool).to_owned(),
        gpus: sums.gpus,
        healthy: sums.healthy,
        allocated: gpu_number(GpuUnits::from_parts(sums.held)),
        used_sm: sums.active.map(thousandths),
        modes: sums.modes,
        slices: sums.slices,
        tax: mean_tax(state, pool),
        memory_used_mib: sums.memory_used,
        memory_mib: sums.memory,
    }
}

/// What the GPUs of a pool come to.
#[derive(Default)]
struct Sums {
    gpus: u32,
    healthy: u32,
    held: u64,
    slices: u32,
    modes: ModeCounts,
    active: Option<u64>,
    memory_used: Option<u64>,
    memory: Option<u64>,
}

impl Sums {
    fn of_mode(&mut self, mode: Mode) -> &mut u32 {
        match mode {
            Mode::Whole => &mut self.modes.whole,
            Mode::Mig => &mut self.modes.mig,
            Mode::Mps => &mut self.modes.mps,
            Mode::TimeSlicing => &mut self.modes.time_slicing,
        }
    }
}

fn add(sum: &mut Option<u64>, more: Option<u32>) {
    *sum = more.map_or(*sum, |more| Some(sum.unwrap_or(0) + u64::from(more)));
}

/// What those who share GPUs of a pool are expected to lose by it, by how much each holds.
fn mean_tax(state: &Engine, pool: PoolId) -> Option<f64> {
    let tasks = state.ledger.holdings().flat_map(|(_, holding)| &holding.tasks);
    let shares = tasks.filter(|task| task.holds() && task.place.pool == pool);
    let shares = shares.filter(|task| task.place.enforced() != Mode::Whole);
    let (lost, held) = shares.fold((0, 0), |(lost, held), task| {
        let parts = task.place.units_each.parts();
        (lost + parts * u64::from(task.place.tax), held + parts)
    });
    lost.checked_div(held).map(thousandths)
}
