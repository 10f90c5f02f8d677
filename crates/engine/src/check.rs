//! Invariants, recomputed the slow way from first facts. Shares no helper with the planner or the indexes:
//! what it finds is a bug, and which invariant it breaks is listed in ARCHITECTURE.md.

mod devices;
#[cfg(test)]
mod tests;
mod windows;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::Serialize;

use crate::model::group::Group;
use crate::model::job::{Shape, Spec};
use crate::model::policy::{Amount, GpuQuota, Policy};
use crate::quota::meters::Meters;
use crate::quota::tree::Meter;
use crate::state::State;
use crate::state::holding::{HeldTask, TaskPhase};
use crate::state::jobs::Phase;
use crate::units::{GpuUnits, JobId, NodeId, PoolId, Resources, TenantId};

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub enum Finding {
    /// I1: a GPU is given out more than once.
    GpuOversubscribed {
        /// On which node.
        node: String,
        /// Which GPU.
        gpu: usize,
        /// What is held of it, in 1/3000.
        held: u64,
    },
    /// I2: a node is given out beyond what it has.
    NodeOversubscribed {
        /// Which.
        node: String,
    },
    /// I3: a gang has some of its places.
    GangSplit {
        /// Which job.
        job: u64,
        /// How many tasks hold a place or are done.
        alive: usize,
        /// Its minimum.
        min: u32,
    },
    /// I4: a task is held on a node that is gone or down.
    HeldOnLostNode {
        /// Which job.
        job: u64,
        /// Which task.
        task: u32,
    },
    /// I4: a task is held on a GPU that is gone or has failed.
    HeldOnLostGpu {
        /// Which job.
        job: u64,
        /// Which task.
        task: u32,
        /// Which GPU of its node.
        gpu: usize,
    },
    /// I5: a tenant passed a limit by a start under the policy in force.
    LimitExceeded {
        /// Which tenant.
        tenant: String,
        /// In what.
        resource: String,
        /// What is held.
        used: u64,
        /// What may be.
        limit: u64,
    },
    /// I6: strangers share a GPU.
    TrustMixed {
        /// On which node.
        node: String,
        /// Which GPU.
        gpu: usize,
    },
    /// I7: a job's phase and what it holds contradict each other.
    PhaseMismatch {
        /// Which job.
        job: u64,
        /// How.
        what: String,
    },
    /// I8: an index is not what the facts say.
    IndexWrong {
        /// Which.
        index: String,
    },
    /// I9: a job is placed where it may not be.
    NotAllowed {
        /// Which job.
        job: u64,
        /// Which task.
        task: u32,
    },
    /// I10: a state rebuilt from its snapshot is another state.
    SnapshotDiffers,
    /// I11: what is promised of a GPU and what stays on it is more than the GPU.
    EarmarkedTwice {
        /// On which node.
        node: String,
        /// Which GPU.
        gpu: usize,
        /// What stays and what is promised, in 1/3000.
        planned: u64,
    },
    /// I12: work that may not borrow was started beyond a guarantee, counted alone.
    FixedBeyondGuarantee {
        /// Whose.
        tenant: String,
        /// What such work holds, in 1/3000.
        held: u64,
        /// What was promised, in 1/3000.
        guaranteed: u64,
    },
    /// I13: slices that cannot be together on one GPU.
    LayoutIllegal {
        /// On which node.
        node: String,
        /// Which GPU.
        gpu: usize,
    },
    /// I14: tasks on one GPU are kept apart in different ways.
    ModesMixed {
        /// On which node.
        node: String,
        /// Which GPU.
        gpu: usize,
    },
    /// I15: promised starts need more of a GPU than there is.
    ReservedTwice {
        /// On which node.
        node: String,
        /// Which GPU.
        gpu: usize,
    },
    /// I16: two windows that share a moment have one GPU.
    BookedTwice {
        /// On which node.
        node: String,
        /// Which GPU.
        gpu: usize,
    },
    /// I17: work that may not be evicted is in a window of others.
    StuckInWindow {
        /// Which job.
        job: u64,
        /// The name of the booking.
        booking: String,
    },
    /// I18: work that may be evicted stays on a node that is out of service.
    LeftOnClosedNode {
        /// Which job.
        job: u64,
        /// The name of the downtime.
        downtime: String,
    },
}

impl State {
    /// Everything that is wrong with the state.
    pub fn check(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        devices::check_devices(self, &mut findings);
        check_jobs(self, &mut findings);
        check_limits(self, self.tenants.policy(), &mut findings);
        check_earmarks(self, &mut findings);
        check_reservations(self, &mut findings);
        windows::check_windows(self, &mut findings);
        windows::check_downtimes(self, &mut findings);
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
    let nodes =
        |state: &State| -> Vec<_> { state.fleet.nodes().map(|(id, node)| (id, node.clone())).collect() };
    let jobs = |state: &State| -> Vec<_> { state.jobs.iter().map(|(id, job)| (id, job.clone())).collect() };
    let holdings = |state: &State| -> Vec<_> {
        state.ledger.holdings().map(|(job, holding)| (job, holding.clone())).collect()
    };
    let promises = |state: &State| -> Vec<_> {
        state.earmarks.iter().map(|(job, earmark)| (job, earmark.clone())).collect()
    };
    let reservations = |state: &State| -> Vec<_> {
        let all = state.jobs.iter().map(|(job, _)| job);
        all.map(|job| (state.reservations.of(job).cloned(), state.reservations.missed(job).to_vec()))
            .collect()
    };
    let paths = |state: &State| -> Vec<String> {
        state.tenants.ids().map(|tenant| state.tenants.path(tenant).to_string()).collect()
    };
    let bookings = |state: &State| -> Vec<_> {
        state.bookings.iter().map(|(id, booking)| (id, booking.clone())).collect()
    };
    let downtimes = |state: &State| -> Vec<_> {
        state.maintenance.iter().map(|(name, downtime)| (name.to_string(), downtime.clone())).collect()
    };
    nodes(a) == nodes(b)
        && downtimes(a) == downtimes(b)
        && bookings(a) == bookings(b)
        && a.bookings.next() == b.bookings.next()
        && jobs(a) == jobs(b)
        && holdings(a) == holdings(b)
        && promises(a) == promises(b)
        && reservations(a) == reservations(b)
        && paths(a) == paths(b)
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

struct Tasks<'a> {
    state: &'a State,
}

impl<'a> Tasks<'a> {
    /// Every task that takes a place, with its job.
    fn held(&self) -> impl Iterator<Item = (JobId, &'a HeldTask)> {
        let holdings = self.state.ledger.holdings();
        let tasks = holdings.flat_map(|(job, holding)| holding.tasks.iter().map(move |task| (job, task)));
        tasks.filter(|(_, task)| !matches!(task.phase, TaskPhase::Gone { .. }))
    }
}

fn name_of(state: &State, node: NodeId) -> String {
    state.fleet.node(node).map_or_else(|| "?".to_string(), |node| node.facts.name.clone())
}

fn check_jobs(state: &State, findings: &mut Vec<Finding>) {
    for (id, job) in state.jobs.iter() {
        let holding = state.ledger.holding(id);
        let mismatch = match (job.phase, holding) {
            (Phase::Waiting, Some(_)) => Some("waits and holds places"),
            (Phase::Active | Phase::Leaving(_), None) => Some("is active and holds nothing"),
            (Phase::Waiting, None) | (Phase::Active | Phase::Leaving(_), Some(_)) => None,
        };
        if let Some(what) = mismatch {
            findings.push(Finding::PhaseMismatch { job: id.0, what: what.to_string() });
        }
        let Some(holding) = holding else { continue };
        let counts = |task: &&HeldTask| {
            use crate::model::exit::Exit;
            let done = matches!(task.phase, TaskPhase::Gone { exit: Exit::Succeeded, .. });
            done || matches!(task.phase, TaskPhase::Bound | TaskPhase::Running)
        };
        let alive = holding.tasks.iter().filter(counts).count();
        let short = match job.spec.groups.as_slice() {
            [] => alive < usize::try_from(job.spec.min).unwrap_or(usize::MAX),
            groups => groups_are_split(groups, holding.tasks.iter().filter(counts)),
        };
        // Who lost a task is below its minimum until it is repaired or lets go.
        if job.phase == Phase::Active && short && holding.repair_by.is_none() {
            findings.push(Finding::GangSplit { job: id.0, alive, min: job.spec.min });
        }
        if holding.attempt != job.past.attempts {
            findings.push(Finding::PhaseMismatch {
                job: id.0,
                what: "holds places of another attempt".to_string(),
            });
        }
    }
    check_topology(state, findings);
    for (job, task) in (Tasks { state }).held() {
        let node = state.fleet.node(task.place.node);
        let (job, number) = (job.0, task.place.task);
        let Some(node) = node.filter(|node| node.facts.up) else {
            findings.push(Finding::HeldOnLostNode { job, task: number });
            continue;
        };
        let is_lost = |gpu: &usize| !node.facts.gpus.get(*gpu).is_some_and(|gpu| gpu.healthy);
        if let Some(gpu) = task.place.gpus.indexes().find(is_lost) {
            findings.push(Finding::HeldOnLostGpu { job, task: number, gpu });
        }
    }
}

/// True when a copy of a group has some of its minimum, or fewer copies than must stand have it. Tasks are numbered through
/// the groups, round after round.
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

/// What a task takes beside GPUs, found by walking through the groups.
fn resources_of(spec: &Spec, task: u32) -> Resources {
    shape_of(spec, task).resources
}

fn shape_of(spec: &Spec, task: u32) -> &Shape {
    let wanted: u32 = spec.groups.iter().map(|group| group.tasks * group.copies).sum();
    let mut left = if wanted == 0 { 0 } else { task % wanted };
    for group in &spec.groups {
        if left < group.tasks * group.copies {
            return &group.shape;
        }
        left -= group.tasks * group.copies;
    }
    &spec.shape
}

/// A gang that asked for closeness has it.
fn check_topology(state: &State, findings: &mut Vec<Finding>) {
    for (id, holding) in state.ledger.holdings().filter(|(_, holding)| holding.policy > 0) {
        let topology = state.jobs.get(id).expect("what is held belongs to a live job").spec.topology;
        let mut domains = Vec::new();
        for task in holding.tasks.iter().filter(|task| !matches!(task.phase, TaskPhase::Gone { .. })) {
            let Some(node) = state.fleet.node(task.place.node) else { continue };
            let islands: Vec<u32> =
                task.place.gpus.indexes().filter_map(|gpu| Some(node.facts.gpus.get(gpu)?.island)).collect();
            let apart = topology.task_on_island && islands.iter().any(|island| *island != islands[0]);
            if let Some(level) = topology.gang_within {
                domains.push(
                    node.facts.domains.iter().find(|(known, _)| *known == level).map(|(_, domain)| *domain),
                );
            }
            if apart || domains.iter().any(|domain| domain.is_none() || *domain != domains[0]) {
                findings.push(Finding::NotAllowed { job: id.0, task: task.place.task });
            }
        }
    }
}

/// A limit may be passed by what was there before the policy; never by a start under it.
fn check_limits(state: &State, policy: &Policy, findings: &mut Vec<Finding>) {
    for tenant in &policy.tenants {
        let below = |path: &str| {
            path.strip_prefix(tenant.path.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let mut parts: BTreeMap<&str, u64> = BTreeMap::new();
        let (mut cpu, mut memory, mut all_under_it) = (0u64, 0u64, true);
        for (job, task) in (Tasks { state }).held() {
            let spec = &state.jobs.get(job).expect("what is held belongs to a live job").spec;
            if !below(state.tenants.path(spec.tenant)) {
                continue;
            }
            all_under_it &=
                state.ledger.holding(job).is_some_and(|held| held.policy == state.tenants.version());
            let units = task.place.units_each.parts() * u64::from(task.place.gpus.count());
            *parts.entry(state.fleet.model(task.place.pool)).or_default() += units;
            let resources = resources_of(spec, task.place.task);
            cpu += resources.cpu_milli;
            memory += resources.memory;
        }
        let mut metered =
            alloc::vec![("cpu", cpu, tenant.cpu.limit), ("memory", memory, tenant.memory.limit)];
        match &tenant.gpus {
            GpuQuota::Any(quota) => {
                let used = parts
                    .iter()
                    .map(|(model, units)| units * u64::from(policy.normal_of(model)))
                    .sum::<u64>();
                metered.push(("gpus", used.div_ceil(1000), quota.limit));
            }
            GpuQuota::PerPool(quotas) => {
                for (model, quota) in quotas {
                    metered.push((
                        model,
                        parts.get(model.as_str()).copied().unwrap_or_default(),
                        quota.limit,
                    ));
                }
            }
        }
        for (resource, used, limit) in metered {
            let Amount::Of(limit) = limit else { continue };
            // Being over is no proof while something of the tenant's was started under another policy.
            if all_under_it && used > limit {
                let (tenant, resource) = (tenant.path.clone(), resource.to_string());
                findings.push(Finding::LimitExceeded { tenant, resource, used, limit });
            }
        }
    }
}

/// What is set aside for one is held by nobody who stays.
fn check_earmarks(state: &State, findings: &mut Vec<Finding>) {
    let mut gpus: BTreeMap<(NodeId, usize), u64> = BTreeMap::new();
    let mut slices: BTreeMap<(NodeId, usize), Vec<(u8, u8)>> = BTreeMap::new();
    let tasks = Tasks { state };
    let stays = |task: &HeldTask| matches!(task.phase, TaskPhase::Bound | TaskPhase::Running);
    let staying = tasks.held().filter(|(_, task)| stays(task));
    let promised = state.earmarks.iter().flat_map(|(_, earmark)| earmark.tasks.iter().copied());
    for place in staying.map(|(_, task)| task.place).chain(promised) {
        for gpu in place.gpus.indexes() {
            *gpus.entry((place.node, gpu)).or_default() += place.units_each.parts();
            if let Some(slice) = place.slice {
                slices.entry((place.node, gpu)).or_default().push((slice.profile, slice.start));
            }
        }
    }
    for ((node, gpu), slices) in slices {
        if !devices::fit_together(state, node, &slices) {
            findings.push(Finding::LayoutIllegal { node: name_of(state, node), gpu });
        }
    }
    for ((node, gpu), planned) in gpus {
        if planned > GpuUnits::WHOLE.parts() {
            findings.push(Finding::EarmarkedTwice { node: name_of(state, node), gpu, planned });
        }
    }
}

/// What is promised to one is promised to nobody else.
fn check_reservations(state: &State, findings: &mut Vec<Finding>) {
    let mut gpus: BTreeMap<(NodeId, usize), u64> = BTreeMap::new();
    // What is set aside is in the ledger; who was promised it before is told so by the next plan.
    let waiting = state.reservations.iter().filter(|of| state.earmarks.of(of.job).is_none());
    for place in waiting.flat_map(|reservation| &reservation.tasks) {
        for gpu in place.gpus.indexes() {
            *gpus.entry((place.node, gpu)).or_default() += place.units_each.parts();
        }
    }
    for ((node, gpu), _) in gpus.into_iter().filter(|&(_, parts)| parts > GpuUnits::WHOLE.parts()) {
        findings.push(Finding::ReservedTwice { node: name_of(state, node), gpu });
    }
}

/// Work that may not be evicted, counted alone, fits the guarantee it was started under. What an older policy started
/// is no proof.
fn check_fixed(state: &State, policy: &Policy, findings: &mut Vec<Finding>) {
    if policy.preemption.fixed_may_borrow {
        return;
    }
    for tenant in &policy.tenants {
        let GpuQuota::Any(quota) = &tenant.gpus else { continue };
        let Amount::Of(guaranteed) = quota.guaranteed else { continue };
        let (mut held, mut all_under_it) = (0u64, true);
        for (job, task) in (Tasks { state }).held() {
            let spec = &state.jobs.get(job).expect("what is held belongs to a live job").spec;
            let path = state.tenants.path(spec.tenant);
            let below = path.strip_prefix(tenant.path.as_str());
            let leaves = !matches!(task.phase, TaskPhase::Bound | TaskPhase::Running);
            if leaves
                || spec.preemptible
                || !below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            {
                continue;
            }
            let holding = state.ledger.holding(job).expect("what is held has a holding");
            all_under_it &= holding.policy == state.tenants.version();
            let worth = u64::from(policy.normal_of(state.fleet.model(task.place.pool)));
            held += task.place.units_each.parts() * u64::from(task.place.gpus.count()) * worth;
        }
        let held = held.div_ceil(1000);
        if all_under_it && held > guaranteed {
            findings.push(Finding::FixedBeyondGuarantee { tenant: tenant.path.clone(), held, guaranteed });
        }
    }
}

/// Counts the text of live jobs anew, letter by letter.
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

/// Every index, counted again section by section.
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
    for (job, task) in (Tasks { state }).held() {
        let mut above = state.jobs.get(job).map(|job| job.spec.tenant);
        let units = task.place.units_each.parts() * u64::from(task.place.gpus.count());
        while let Some(tenant) = above {
            *gpus.entry((tenant, task.place.pool)).or_default() += units;
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
