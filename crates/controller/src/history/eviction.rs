//! The receipt of an eviction: what the event says, and what only the state of that moment knows.
//!
//! It is written in the turn that evicts, so it is kept cheap: who stood how is copied, fair shares are not worked out
//! again.

use serde::{Deserialize, Serialize};
use wharf_engine::model::policy::{Amount, GpuQuota, Quota};
use wharf_engine::quota::tree::Meter;
use wharf_engine::state::State;
use wharf_engine::state::jobs::Job;
use wharf_engine::state::ledger::event::{Eviction, EvictionRule, Straddle};
use wharf_engine::units::{JobId, PoolId, TenantId};

use super::{promised_parts, uid};

/// Why something had to leave, for whom, and at what price.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvictionReceipt {
    /// Identity of who had to leave, in hexadecimal.
    pub uid: String,
    pub tasks: Vec<u32>,
    /// All of it, or surplus tasks of an elastic job.
    pub whole: bool,
    pub why: EvictionRule,
    /// Identity of who benefits, in hexadecimal.
    pub beneficiary_uid: String,
    pub beneficiary_tenant: String,
    pub beneficiary: String,
    /// Work of each task since its last checkpoint.
    pub lost_ms: u64,
    /// Lost work and restart.
    pub cost_gpu_ms: u64,
    /// What the beneficiary gains by not waiting; a guarantee does not ask.
    pub gain_gpu_ms: Option<u64>,
    /// The tenant that this carries below its line, where one job could not be divided.
    pub below_line: Option<String>,
    /// By so much of what is short: 1/3000 of a GPU, thousandths of a core, or bytes.
    pub below_line_by: Option<u64>,
    /// Which resource that is, where it can be told.
    #[serde(default)]
    pub below_line_in: Option<Resource>,
    #[serde(default)]
    pub stood: Option<Stood>,
    pub policy: u32,
    /// The booked window that it left for, or that it ran in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booking: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Who wanted that and what for, where it was drained; a downtime is named in the plan of maintenance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lever: Option<Lever>,
}

/// Who moved a lever, and what for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lever {
    pub by: String,
    /// As they say; may be empty.
    pub reason: String,
}

impl Lever {
    fn of(by: &str, reason: &str) -> Self {
        Self { by: by.to_owned(), reason: reason.to_owned() }
    }
}

/// How victim and beneficiary stood when it was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stood {
    /// GPUs of the tasks that had to leave, in 1/3000.
    pub gpu_parts: u64,
    pub class: String,
    pub priority: i32,
    pub beneficiary_class: String,
    pub beneficiary_priority: i32,
    /// GPUs that the victim's tenant held, in 1/3000 and as its guarantee counts them.
    pub tenant_used_parts: u64,
    /// GPUs that it was promised; `None` where that is not metered.
    pub tenant_guaranteed_parts: Option<u64>,
}

/// What a line is drawn in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// GPUs over all models, by their worth.
    AnyGpu,
    Gpu(String),
    Cpu,
    Memory,
}

/// The receipt of an eviction, seen from the state before it.
pub(super) fn receipt(
    state: &State,
    job: JobId,
    tasks: &[u32],
    receipt: &Eviction,
) -> Option<EvictionReceipt> {
    let Eviction { why, beneficiary, whole, lost, cost, gain, straddles, policy, booking, node } = receipt;
    let node = node.and_then(|node| state.fleet.node(node));
    let (victim, winner) = (state.jobs.get(job)?, state.jobs.get(*beneficiary)?);
    let tasks_held = state.ledger.holding(job).map(|holding| holding.tasks.as_slice()).unwrap_or_default();
    // A coordinator without GPUs tells nothing about the GPUs of its job.
    let with_gpus = tasks_held.iter().find(|task| task.place.gpus.count() > 0).or(tasks_held.first());
    let pool = with_gpus.map(|task| task.place.pool);
    Some(EvictionReceipt {
        uid: uid(victim),
        tasks: tasks.to_vec(),
        whole: *whole,
        why: *why,
        beneficiary_uid: uid(winner),
        beneficiary_tenant: state.tenants.path(winner.spec.tenant).to_owned(),
        beneficiary: winner.spec.name.clone(),
        lost_ms: lost.0,
        cost_gpu_ms: *cost,
        gain_gpu_ms: *gain,
        below_line: straddles.map(|straddle| state.tenants.path(straddle.tenant).to_owned()),
        below_line_by: straddles.map(|straddle| straddle.short),
        below_line_in: straddles
            .zip(pool)
            .and_then(|(straddle, pool)| short_in(state, straddle, pool, victim, winner)),
        stood: pool.map(|pool| stood(state, victim, winner, tasks, pool)),
        policy: *policy,
        booking: booking
            .and_then(|booking| state.bookings.get(booking))
            .map(|booking| booking.spec.name.clone()),
        node: node.map(|node| node.facts.name.clone()),
        lever: node.and_then(|node| node.drain.as_ref()).map(|drain| Lever::of(&drain.by, &drain.reason)),
    })
}

fn stood(state: &State, victim: &Job, winner: &Job, tasks: &[u32], pool: PoolId) -> Stood {
    let parts = tasks.iter().map(|&task| victim.spec.shape_of(task).gpus.units().parts());
    let (tenant_used_parts, tenant_guaranteed_parts) = gpus_of(state, victim.spec.tenant, pool);
    Stood {
        gpu_parts: parts.fold(0, u64::saturating_add),
        class: victim.spec.class.into_str().to_owned(),
        priority: victim.spec.priority,
        beneficiary_class: winner.spec.class.into_str().to_owned(),
        beneficiary_priority: winner.spec.priority,
        tenant_used_parts,
        tenant_guaranteed_parts,
    }
}

/// What a tenant's own jobs hold and what it was promised, counted as its guarantee counts.
fn gpus_of(state: &State, tenant: TenantId, pool: PoolId) -> (u64, Option<u64>) {
    let policy = state.tenants.policy();
    let path = state.tenants.path(tenant);
    let quota = policy.tenants.iter().find(|known| known.path == path).map(|known| &known.gpus);
    let held = state.ledger.used(tenant).map(|used| &used.gpus);
    let in_pool = || held.and_then(|gpus| gpus.get(&pool)).map_or(0, |units| units.parts());
    match quota {
        None => (in_pool(), Some(0)),
        Some(GpuQuota::PerPool(quotas)) => {
            let model = state.fleet.model(pool);
            let quota =
                quotas.iter().find(|(name, _)| name == model).map_or(Quota::NONE, |(_, quota)| *quota);
            (in_pool(), promised_parts(quota.guaranteed))
        }
        Some(GpuQuota::Any(quota)) => {
            let worth = |pool: &PoolId| u64::from(policy.normal_of(state.fleet.model(*pool)));
            let parts = held.into_iter().flatten().map(|(pool, units)| units.parts() * worth(pool) / 1000);
            (parts.sum(), promised_parts(quota.guaranteed))
        }
    }
}

/// The event does not say in which resource a tenant is short: it is one that the beneficiary asks for, the victim
/// held and the tenant has a line in. Told only where there is one such.
fn short_in(state: &State, straddle: Straddle, pool: PoolId, victim: &Job, winner: &Job) -> Option<Resource> {
    let tree = state.tree(state.tenants.policy());
    let charge = |job: &Job| tree.charge(job.spec.shape.gpus.units(), job.spec.shape.resources, pool);
    let (asked, held) = (charge(winner), charge(victim));
    let quotas = &tree.lines.get(straddle.tenant.index())?.quotas;
    let may_be =
        |&meter: &usize| asked[meter] > 0 && held[meter] > 0 && quotas[meter].guaranteed != Amount::Unlimited;
    let mut meters = (0..tree.meters.len()).filter(may_be);
    let meter = meters.next().filter(|_| meters.next().is_none())?;
    Some(match tree.meters[meter] {
        Meter::AnyGpu => Resource::AnyGpu,
        Meter::Gpu(pool) => Resource::Gpu(state.fleet.model(pool).to_owned()),
        Meter::Cpu => Resource::Cpu,
        Meter::Memory => Resource::Memory,
    })
}
