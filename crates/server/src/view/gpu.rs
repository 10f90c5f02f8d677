//! GPUs as the API shows them: how each is divided, who has what of it, and what it really does.

use std::collections::{BTreeMap, BTreeSet};

use wharf_api::v1::{FailureView, GpuView, Health, HeldSliceView, SliceView, TaskUseView, gpus, thousandths};
use wharf_controller::world::Samples;
use wharf_engine::device::catalogue::{self, Model};
use wharf_engine::device::geometry::Slice;
use wharf_engine::model::observed::TaskRef;
use wharf_engine::state::State;
use wharf_engine::state::fleet::Node;
use wharf_engine::state::holding::Holding;
use wharf_engine::state::jobs::Job;
use wharf_engine::state::rooms::GpuRoom;
use wharf_engine::units::{GpuUnits, NodeId, PoolId};

use super::count;
use crate::text;

/// Who is on one GPU.
#[derive(Default)]
struct Users {
    held: GpuUnits,
    jobs: Vec<String>,
    tenants: BTreeSet<String>,
    slices: BTreeMap<Slice, String>,
}

/// GPUs as the API shows them, those of one node side by side.
pub(crate) fn each(state: &State, gpus: &[(NodeId, usize)], samples: &Samples) -> Vec<GpuView> {
    let mut all = Vec::with_capacity(gpus.len());
    for of_node in gpus.chunk_by(|(one, _), (other, _)| one == other) {
        let node = of_node[0].0;
        let Some(known) = state.fleet.node(node) else { continue };
        let mut users = users(state, node);
        let occupied = state.ledger.occupied(node);
        for &(_, index) in of_node {
            let mut users = users.remove(&index).unwrap_or_default();
            users.held = occupied.get(index).copied().unwrap_or_default();
            all.push(view(state, (node, known), index, users, samples));
        }
    }
    all
}

/// Who is on the GPUs of a node, by index.
fn users(state: &State, node: NodeId) -> BTreeMap<usize, Users> {
    let mut all: BTreeMap<usize, Users> = BTreeMap::new();
    for (id, number) in state.ledger.tasks_on(node) {
        let Some(job) = state.jobs.get(id) else { continue };
        let tenant = state.tenants.path(job.spec.tenant);
        let name = format!("{tenant}/{}", job.spec.name);
        let held = state.ledger.holding(id).and_then(|holding| holding.task(number));
        for task in held.into_iter().filter(|task| task.holds()) {
            for gpu in task.place.gpus.indexes() {
                let users = all.entry(gpu).or_default();
                users.jobs.push(name.clone());
                users.tenants.insert(tenant.to_owned());
                users.slices.extend(task.place.slice.map(|slice| (slice, name.clone())));
            }
        }
    }
    all
}

fn view(
    state: &State,
    (id, node): (NodeId, &Node),
    index: usize,
    users: Users,
    samples: &Samples,
) -> GpuView {
    let gpu = &node.facts.gpus[index];
    let name = state.fleet.model(node.facts.pool);
    let model = catalogue::model(name);
    let room = state.ledger.rooms().get(id).and_then(|room| room.gpus.get(index));
    let sample = samples.gpus.get(&node.facts.name).and_then(|gpus| gpus.get(index));
    let slices = room.into_iter().flat_map(|room| room.layout.slices());
    let held_slice = |held: Slice| {
        let job = users.slices.get(&held).cloned();
        Some(HeldSliceView { slice: slice(state, node.facts.pool, held)?, job })
    };
    GpuView {
        node: node.facts.name.clone(),
        index: count(index),
        model: name.to_owned(),
        memory_gb: model.map(|model| model.memory_gb),
        island: gpu.island,
        health: health(node, gpu.healthy),
        failure: gpu.xid.filter(|_| !gpu.healthy).map(failure),
        allocated: gpus(users.held),
        sm_active: sample.and_then(|sample| sample.sm_active_milli).map(|milli| thousandths(milli.into())),
        mode: gpu.mode,
        slices: slices.filter_map(held_slice).collect(),
        free: room.map_or(0.0, |room| gpus(free(room, users.held))),
        trust: room.and_then(|room| room.trust).map(|trust| state.tenants.trust(trust).to_owned()),
        memory_used_mib: sample.and_then(|sample| sample.memory_used_mib),
        memory_mib: model.and_then(memory_mib),
        jobs: users.jobs,
        tenants: users.tenants.into_iter().collect(),
    }
}

fn free(room: &GpuRoom, held: GpuUnits) -> GpuUnits {
    let left = GpuUnits::WHOLE.checked_sub(held).unwrap_or_default();
    if room.usable { left } else { GpuUnits::ZERO }
}

fn health(node: &Node, healthy: bool) -> Health {
    match (node.facts.up, healthy) {
        (false, _) => Health::Unknown,
        (true, true) => Health::Healthy,
        (true, false) => Health::Failed,
    }
}

fn failure(number: u16) -> FailureView {
    let text = catalogue::xid(number).map_or_else(|| format!("XID {number}"), text::failure);
    FailureView { xid: number, text }
}

/// The memory of a GPU: as the vendor counts it, or what its largest slice has where that is more.
pub(crate) fn memory_mib(model: &Model) -> Option<u32> {
    let nominal = u32::try_from(u64::from(model.memory_gb) * 1_000_000_000 / (1 << 20)).ok();
    let largest = model.mig.into_iter().flat_map(|mig| mig.profiles).map(|profile| profile.memory_mib).max();
    nominal.max(largest)
}

/// A slice by the names of its model.
pub(crate) fn slice(state: &State, pool: PoolId, slice: Slice) -> Option<SliceView> {
    let profile = state.fleet.mig(pool)?.profile(slice.profile)?;
    Some(SliceView { profile: profile.name.to_owned(), start: slice.start })
}

/// What the tasks of a job that run really do.
pub(crate) fn task_use(job: &Job, holding: Option<&Holding>, samples: &Samples) -> Vec<TaskUseView> {
    let one = |holding: &Holding, task: u32| {
        let sample = samples.tasks.get(&TaskRef { uid: job.uid, task, attempt: holding.attempt })?;
        Some(TaskUseView {
            task,
            sm_active: sample.sm_active_milli.map(|milli| thousandths(milli.into())),
            memory_used_mib: sample.memory_used_mib,
            memory_limit_mib: sample.memory_limit_mib,
        })
    };
    let holding = holding.into_iter();
    holding.flat_map(|held| held.tasks.iter().filter_map(move |task| one(held, task.place.task))).collect()
}
