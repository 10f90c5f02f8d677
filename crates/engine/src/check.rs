//! Invariants, recomputed the slow way from first facts. Shares no helper with the planner or the indexes:
//! what it finds is a bug, and which invariant it breaks is listed in ARCHITECTURE.md.

mod devices;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::Serialize;

use crate::model::exit::Exit;
use crate::model::group::Group;
use crate::model::placement::Placement;
use crate::model::policy::{Amount, GpuQuota, Policy};
use crate::quota::meters::Meters;
use crate::quota::tree::Meter;
use crate::state::State;
use crate::state::bookings::Booking;
use crate::state::holding::{HeldTask, TaskPhase};
use crate::state::jobs::{Job, Phase};
use crate::state::recount::{held, parts, shape_of, stays};
use crate::state::reservations::{MissedStart, Reservation};
use crate::units::{BookingId, JobId, NodeId, PoolId, TenantId};

/// A broken invariant. Amounts of GPUs are in 1/3000.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub enum Finding {
    /// I1: a GPU is given out more than once.
    GpuOversubscribed { node: String, gpu: usize, held: u64 },
    /// I2: a node is given out beyond what it has.
    NodeOversubscribed { node: String },
    /// I3: a gang has less than its minimum. Tasks that hold a place or are done are alive.
    GangSplit { job: u64, alive: usize, min: u32 },
    /// I4: a task is held on a node that is gone or down.
    HeldOnLostNode { job: u64, task: u32 },
    /// I4: a task is held on a GPU that is gone or has failed.
    HeldOnLostGpu { job: u64, task: u32, gpu: usize },
    /// I5: a tenant passed a limit by a start under the policy in force.
    LimitExceeded { tenant: String, resource: String, used: u64, limit: u64 },
    /// I6: strangers share a GPU.
    TrustMixed { node: String, gpu: usize },
    /// I7: a job's phase and what it holds contradict each other.
    PhaseMismatch { job: u64, what: String },
    /// I8: an index is not what the facts say.
    IndexWrong { index: String },
    /// I9: a job is placed where it may not be.
    NotAllowed { job: u64, task: u32 },
    /// I10: a state rebuilt from its snapshot is another state.
    SnapshotDiffers,
    /// I11: what is earmarked of a GPU and what stays on it is more than the GPU.
    EarmarkedTwice { node: String, gpu: usize, planned: u64 },
    /// I12: work that may not borrow was started beyond a guarantee, counted alone.
    FixedBeyondGuarantee { tenant: String, held: u64, guaranteed: u64 },
    /// I13: slices that cannot be together on one GPU.
    LayoutIllegal { node: String, gpu: usize },
    /// I14: tasks on one GPU are kept apart in different ways.
    ModesMixed { node: String, gpu: usize },
    /// I15: reservations need more of a GPU than there is.
    ReservedTwice { node: String, gpu: usize },
    /// I16: two windows that share a moment have one GPU.
    BookedTwice { node: String, gpu: usize },
    /// I17: work that may not be evicted is in a window of others.
    StuckInWindow { job: u64, booking: String },
    /// I18: work that may be evicted stays on a node that is out of service.
    LeftOnClosedNode { job: u64, downtime: String },
}

impl State {
    /// Everything that is wrong with the state.
    pub fn check(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        devices::check_devices(self, &mut findings);
        check_jobs(self, &mut findings);
        check_topology(self, &mut findings);
        check_limits(self, self.tenants.policy(), &mut findings);
        devices::check_earmarks(self, &mut findings);
        devices::check_reservations(self, &mut findings);
        check_windows(self, &mut findings);
        check_downtimes(self, &mut findings);
        check_fixed(self, self.tenants.policy(), &mut findings);
        check_indexes(self, &mut findings);
        check_bytes(self, &mut findings);
        findings
    }

    /// What [`State::check`] finds, and whether the snapshot rebuilds the state. Costs a copy of everything.
    pub fn check_deep(&self) -> Vec<Finding> {
        let mut findings = self.check();
        let rebuilt = Self::resume(&self.snapshot(), self.index());
        if !same_facts(self, &rebuilt) {
            findings.push(Finding::SnapshotDiffers);
        }
        findings
    }
}

/// True when two states agree in every first fact, compared one by one and not through what they would be saved as.
fn same_facts(a: &State, b: &State) -> bool {
    fn paths(state: &State) -> impl Iterator<Item = &str> {
        state.tenants.ids().map(|tenant| state.tenants.path(tenant))
    }
    fn starts(state: &State) -> impl Iterator<Item = (Option<&Reservation>, &[MissedStart])> {
        let jobs = state.jobs.iter().map(|(job, _)| job);
        jobs.map(|job| (state.reservations.of(job), state.reservations.missed(job)))
    }
    a.fleet.nodes().eq(b.fleet.nodes())
        && a.maintenance.iter().eq(b.maintenance.iter())
        && a.bookings.iter().eq(b.bookings.iter())
        && a.bookings.next() == b.bookings.next()
        && a.jobs.iter().eq(b.jobs.iter())
        && a.ledger.holdings().eq(b.ledger.holdings())
        && a.earmarks.iter().eq(b.earmarks.iter())
        && starts(a).eq(starts(b))
        && paths(a).eq(paths(b))
        && a.ledger.orphans() == b.ledger.orphans()
        && a.jobs.next() == b.jobs.next()
        && a.fleet.world() == b.fleet.world()
        && a.fleet.pools() == b.fleet.pools()
        && a.fleet.levels() == b.fleet.levels()
        && a.fleet.set_sources().eq(b.fleet.set_sources())
        && a.tenants.version() == b.tenants.version()
        && a.tenants.policy() == b.tenants.policy()
        && a.demand.arrived() == b.demand.arrived()
        && a.demand.shapes().eq(b.demand.shapes())
        && a.demand.prices() == b.demand.prices()
        && a.past.carried() == b.past.carried()
}

fn name_of(state: &State, node: NodeId) -> String {
    state.fleet.node(node).map_or_else(|| "?".to_string(), |node| node.facts.name.clone())
}

fn check_jobs(state: &State, findings: &mut Vec<Finding>) {
    for (id, job) in state.jobs.iter() {
        let mut mismatch = |what: &str| {
            findings.push(Finding::PhaseMismatch { job: id.0, what: what.to_string() });
        };
        let holding = state.ledger.holding(id);
        match (job.phase, holding) {
            (Phase::Waiting, Some(_)) => mismatch("waits and holds places"),
            (Phase::Active | Phase::Leaving(_), None) => mismatch("is active and holds nothing"),
            (Phase::Waiting, None) | (Phase::Active | Phase::Leaving(_), Some(_)) => {}
        }
        let Some(holding) = holding else { continue };
        if holding.attempt != job.past.attempts {
            mismatch("holds places of another attempt");
        }
        let counts = |task: &&HeldTask| {
            stays(task) || matches!(task.phase, TaskPhase::Gone { exit: Exit::Succeeded, .. })
        };
        let alive = holding.tasks.iter().filter(counts).count();
        let short = match job.spec.groups.as_slice() {
            [] => alive < usize::try_from(job.spec.min).unwrap_or(usize::MAX),
            groups => groups_are_split(groups, holding.tasks.iter().filter(counts)),
        };
        // A job that lost a task is below its minimum until it is repaired or lets go.
        if job.phase == Phase::Active && short && holding.repair_by.is_none() {
            findings.push(Finding::GangSplit { job: id.0, alive, min: job.spec.min });
        }
    }
    for (JobId(job), _, HeldTask { place, .. }) in held(state) {
        let task = place.task;
        let Some(node) = state.fleet.node(place.node).filter(|node| node.facts.up) else {
            findings.push(Finding::HeldOnLostNode { job, task });
            continue;
        };
        let is_lost = |gpu: &usize| !node.facts.gpus.get(*gpu).is_some_and(|gpu| gpu.healthy);
        if let Some(gpu) = place.gpus.indexes().find(is_lost) {
            findings.push(Finding::HeldOnLostGpu { job, task, gpu });
        }
    }
}

/// True when a copy of a group has only some of its minimum, or too few copies have it. Numbers go round through the groups.
fn groups_are_split<'a>(groups: &[Group], alive: impl Iterator<Item = &'a HeldTask>) -> bool {
    let wanted: u32 = groups.iter().map(|group| group.tasks * group.copies).sum();
    let slots: BTreeSet<u32> = alive.map(|task| task.place.task % wanted).collect();
    let mut first = 0;
    let mut split = false;
    for group in groups {
        let mut standing = 0;
        for _ in 0..group.copies {
            let here = slots.range(first..first + group.tasks).count();
            let min = usize::try_from(group.min).unwrap_or(usize::MAX);
            standing += u32::from(here >= min);
            split |= here > 0 && here < min;
            first += group.tasks;
        }
        split |= standing < group.min_copies;
    }
    split
}

fn check_topology(state: &State, findings: &mut Vec<Finding>) {
    for (id, holding) in state.ledger.holdings().filter(|(_, holding)| holding.policy > 0) {
        let topology = state.jobs.get(id).expect("what is held belongs to a live job").spec.topology;
        let mut domains = Vec::new();
        for task in holding.tasks.iter().filter(|task| !matches!(task.phase, TaskPhase::Gone { .. })) {
            let Some(node) = state.fleet.node(task.place.node) else { continue };
            let gpus = task.place.gpus.indexes().filter_map(|gpu| node.facts.gpus.get(gpu));
            let islands: BTreeSet<u32> = gpus.map(|gpu| gpu.island).collect();
            if let Some(level) = topology.gang_within {
                let known = node.facts.domains.iter().find(|(known, _)| *known == level);
                domains.push(known.map(|(_, domain)| *domain));
            }
            let apart = topology.task_on_island && islands.len() > 1;
            if apart || domains.iter().any(|domain| domain.is_none() || *domain != domains[0]) {
                findings.push(Finding::NotAllowed { job: id.0, task: task.place.task });
            }
        }
    }
}

/// The tasks that count below a tenant, if all were started under the policy in force: what was there before may pass its limits.
fn held_below<'a>(
    state: &'a State,
    tenant: &str,
    counts: impl Fn(&Job, &HeldTask) -> bool,
) -> Option<Vec<(&'a Job, &'a HeldTask)>> {
    let is_below = |job: &Job| {
        let rest = state.tenants.path(job.spec.tenant).strip_prefix(tenant);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let of_tenant = held(state).filter(|(_, job, task)| is_below(job) && counts(job, task));
    let under_it = of_tenant.map(|(id, job, task)| {
        let holding = state.ledger.holding(id).expect("what is held has a holding");
        (holding.policy == state.tenants.version()).then_some((job, task))
    });
    under_it.collect()
}

fn check_limits(state: &State, policy: &Policy, findings: &mut Vec<Finding>) {
    for tenant in &policy.tenants {
        let Some(held) = held_below(state, &tenant.path, |_, _| true) else { continue };
        let mut gpus: BTreeMap<&str, u64> = BTreeMap::new();
        let (mut cpu, mut memory) = (0, 0);
        for (job, task) in held {
            *gpus.entry(state.fleet.model(task.place.pool)).or_default() += parts(&task.place);
            let resources = shape_of(&job.spec, task.place.task).resources;
            cpu += resources.cpu_milli;
            memory += resources.memory;
        }
        let mut metered =
            alloc::vec![("cpu", cpu, tenant.cpu.limit), ("memory", memory, tenant.memory.limit)];
        match &tenant.gpus {
            GpuQuota::Any(quota) => {
                let used = gpus.iter().map(|(model, units)| units * u64::from(policy.normal_of(model)));
                metered.push(("gpus", used.sum::<u64>().div_ceil(1000), quota.limit));
            }
            GpuQuota::PerPool(quotas) => {
                let of_pool = |model: &str| gpus.get(model).copied().unwrap_or_default();
                metered.extend(
                    quotas.iter().map(|(model, quota)| (model.as_str(), of_pool(model), quota.limit)),
                );
            }
        }
        for (resource, used, limit) in metered {
            let Amount::Of(limit) = limit else { continue };
            if used > limit {
                let (tenant, resource) = (tenant.path.clone(), resource.to_string());
                findings.push(Finding::LimitExceeded { tenant, resource, used, limit });
            }
        }
    }
}

fn check_windows(state: &State, findings: &mut Vec<Finding>) {
    let all: Vec<_> = state.bookings.iter().collect();
    for (at, (id, one)) in all.iter().enumerate() {
        for (_, other) in &all[at + 1..] {
            if one.until <= other.from || other.until <= one.from {
                continue;
            }
            for place in &one.places {
                let theirs = other.places.iter().filter(|theirs| theirs.node == place.node);
                let shared = theirs.flat_map(|theirs| theirs.gpus.indexes());
                for gpu in shared.filter(|&gpu| place.gpus.contains(gpu)) {
                    findings.push(Finding::BookedTwice { node: name_of(state, place.node), gpu });
                }
            }
        }
        if one.began {
            check_inside(state, *id, one, findings);
        }
    }
    for (id, job) in state.jobs.iter() {
        if job.spec.booking.is_some_and(|booking| state.bookings.get(booking).is_none()) {
            let what = "names a window that is over".to_string();
            findings.push(Finding::PhaseMismatch { job: id.0, what });
        }
    }
}

/// Whatever may be evicted has been told to leave a node that is out of service.
fn check_downtimes(state: &State, findings: &mut Vec<Finding>) {
    for (id, _, task) in held(state).filter(|(_, job, task)| stays(task) && job.spec.preemptible) {
        let node = task.place.node;
        let mut begun = state.maintenance.iter().filter(|(_, downtime)| downtime.began);
        if let Some((name, _)) = begun.find(|(_, downtime)| downtime.nodes.contains(&node)) {
            findings.push(Finding::LeftOnClosedNode { job: id.0, downtime: name.to_string() });
        }
    }
}

/// No task of others that may not be evicted is in the places of a window that has begun.
fn check_inside(state: &State, id: BookingId, window: &Booking, findings: &mut Vec<Finding>) {
    let is_stuck = |job: &Job, task: &HeldTask| {
        let inside = window.places.iter().any(|place| {
            place.node == task.place.node && task.place.gpus.indexes().any(|gpu| place.gpus.contains(gpu))
        });
        inside && stays(task) && job.spec.booking != Some(id) && !job.spec.preemptible
    };
    for (job, _, _) in held(state).filter(|(_, job, task)| is_stuck(job, task)) {
        findings.push(Finding::StuckInWindow { job: job.0, booking: window.spec.name.clone() });
    }
}

/// Work that may not be evicted, counted alone, fits the guarantee it was started under.
fn check_fixed(state: &State, policy: &Policy, findings: &mut Vec<Finding>) {
    for tenant in policy.tenants.iter().filter(|_| !policy.preemption.fixed_may_borrow) {
        let GpuQuota::Any(quota) = &tenant.gpus else { continue };
        let Amount::Of(guaranteed) = quota.guaranteed else { continue };
        let is_fixed = |job: &Job, task: &HeldTask| stays(task) && !job.spec.preemptible;
        let Some(fixed) = held_below(state, &tenant.path, is_fixed) else { continue };
        let normal = |place: &Placement| u64::from(policy.normal_of(state.fleet.model(place.pool)));
        let held: u64 = fixed.iter().map(|(_, task)| parts(&task.place) * normal(&task.place)).sum();
        let held = held.div_ceil(1000);
        if held > guaranteed {
            findings.push(Finding::FixedBeyondGuarantee { tenant: tenant.path.clone(), held, guaranteed });
        }
    }
}

fn check_bytes(state: &State, findings: &mut Vec<Finding>) {
    for tenant in state.tenants.ids() {
        let mut bytes = 0;
        for (_, job) in state.jobs.iter().filter(|(_, job)| job.spec.tenant == tenant) {
            let mut texts = alloc::vec![&job.spec.name, &job.spec.payload];
            texts.extend(job.spec.groups.iter().map(|group| &group.name));
            texts.extend(job.spec.labels.iter().flat_map(|(key, value)| [key, value]));
            bytes += texts.into_iter().map(String::len).sum::<usize>();
        }
        if u64::try_from(bytes) != Ok(state.jobs.bytes_of(tenant)) {
            findings.push(Finding::IndexWrong { index: "bytes by tenant".to_string() });
        }
    }
}

fn check_indexes(state: &State, findings: &mut Vec<Finding>) {
    let mut wrong = state.jobs.wrong_indexes(state);
    wrong.extend(state.ledger.wrong_indexes(state));
    wrong.extend(state.ledger.rooms().wrong_indexes(state));
    wrong.extend(state.reservations.wrong_indexes());
    wrong.extend(state.fleet.wrong_indexes());
    wrong.extend(state.tenants.wrong_indexes());
    if past_is_wrong(state) {
        wrong.push("use that is counted as borrowed");
    }
    findings.extend(wrong.into_iter().map(|index| Finding::IndexWrong { index: index.to_string() }));
}

/// True when what tenants are taken to hold while their past is counted is not what their jobs hold, with everybody below them.
fn past_is_wrong(state: &State) -> bool {
    let (Some(used), Some(tree)) = (state.past.used(), state.past.tree()) else { return false };
    let mut gpus: BTreeMap<(TenantId, PoolId), u64> = BTreeMap::new();
    for (_, job, task) in held(state) {
        let mut above = Some(job.spec.tenant);
        while let Some(tenant) = above {
            *gpus.entry((tenant, task.place.pool)).or_default() += parts(&task.place);
            above = state.tenants.parent(tenant);
        }
    }
    let policy = state.tenants.policy();
    let is_wrong = |(tenant, amounts): (TenantId, &Meters)| {
        tree.meters.iter().zip(amounts.iter()).any(|(meter, &amount)| {
            let own = gpus.iter().filter(|((of, _), _)| *of == tenant);
            let expected: u64 = match meter {
                Meter::Gpu(pool) => own.filter(|((_, known), _)| known == pool).map(|(_, units)| units).sum(),
                Meter::AnyGpu => own
                    .map(|((_, pool), units)| units * u64::from(policy.normal_of(state.fleet.model(*pool))))
                    .sum(),
                Meter::Cpu | Meter::Memory => return false,
            };
            amount != expected
        })
    };
    state.tenants.ids().zip(used).any(is_wrong)
}
