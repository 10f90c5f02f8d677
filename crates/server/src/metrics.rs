//! What `/metrics` shows, in the OpenMetrics text format.
//!
//! Gauges are read off the committed state when somebody looks, so they can never disagree with it. A device whose
//! use is not known has no `used` series: absent is not zero.

mod devices;

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use strum::VariantArray;
use wharf_api::v1::Rule;
use wharf_controller::outage::Operation;
use wharf_controller::turn::Evictions;
use wharf_controller::world::Samples;
use wharf_engine::model::job::Class;
use wharf_engine::state::jobs::Phase;

use crate::desk::Decisions;
use crate::http::pools;
use crate::replica::Replica;
use crate::tenants;

/// Every metric, by the name it has in `/metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// GPUs of the fleet.
    GpusTotal,
    /// Of these, healthy.
    GpusHealthy,
    /// Handed out.
    GpusAllocated,
    /// Sum of SM_ACTIVE.
    GpusUsed,
    /// Waiting jobs.
    JobsPending,
    /// Jobs that hold places.
    JobsActive,
    /// Nodes.
    Nodes,
    /// Decision latency.
    DecisionSeconds,
    /// Decisions.
    Decisions,
    /// Journal index.
    JournalIndex,
    /// Leader term.
    JournalTerm,
    /// Snapshots.
    Snapshots,
    /// Snapshots that failed.
    SnapshotFaults,
    /// Turns.
    Turns,
    /// Committed events that readers do not see yet.
    ReplicaBehind,
    /// Copies of the state for the sake of readers.
    ReplicaCopies,
    /// Gaps in the world's reports.
    WorldGaps,
    /// Calls that the world did not answer.
    WorldFaults,
    /// How long the world has not answered.
    WorldUnreachable,
    /// Times that the wall clock was set.
    ClockSteps,
    /// Plans that panicked.
    PlanPanics,
    /// Policy version.
    PolicyVersion,
    /// Policy directory in error.
    PolicyError,
    /// Fleet file in error.
    FleetFileError,
    /// Tasks that run and should not.
    Orphans,
    /// Evictions by the rules.
    Evictions,
    /// Jobs whose places are set aside.
    Promises,
    /// Lines of tenants in GPUs.
    TenantGpus,
    /// SM_ACTIVE of one GPU.
    GpuSmActive,
    /// Memory of one GPU in use.
    GpuMemoryUsed,
    /// How one GPU is divided.
    GpuMode,
    /// SM_ACTIVE of one task.
    TaskSmActive,
    /// Memory that one task uses.
    TaskMemoryUsed,
    /// The most memory that one task may use.
    TaskMemoryLimit,
    /// What one task loses by sharing.
    TaskTax,
    /// Out-of-memory kills of one job.
    JobOoms,
    /// Out-of-memory kills.
    Ooms,
    /// Series that are left out.
    SeriesLeftOut,
}

impl Metric {
    /// Every metric.
    pub const ALL: [Self; 38] = [
        Self::GpusTotal,
        Self::GpusHealthy,
        Self::GpusAllocated,
        Self::GpusUsed,
        Self::JobsPending,
        Self::JobsActive,
        Self::Nodes,
        Self::DecisionSeconds,
        Self::Decisions,
        Self::JournalIndex,
        Self::JournalTerm,
        Self::Snapshots,
        Self::SnapshotFaults,
        Self::Turns,
        Self::ReplicaBehind,
        Self::ReplicaCopies,
        Self::WorldGaps,
        Self::WorldFaults,
        Self::WorldUnreachable,
        Self::ClockSteps,
        Self::PlanPanics,
        Self::PolicyVersion,
        Self::PolicyError,
        Self::FleetFileError,
        Self::Orphans,
        Self::Evictions,
        Self::Promises,
        Self::TenantGpus,
        Self::GpuSmActive,
        Self::GpuMemoryUsed,
        Self::GpuMode,
        Self::TaskSmActive,
        Self::TaskMemoryUsed,
        Self::TaskMemoryLimit,
        Self::TaskTax,
        Self::JobOoms,
        Self::Ooms,
        Self::SeriesLeftOut,
    ];

    /// Its name, as it is registered; counters get `_total` when they are shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::GpusTotal => "wharf_gpus",
            Self::GpusHealthy => "wharf_gpus_healthy",
            Self::GpusAllocated => "wharf_gpus_allocated",
            Self::GpusUsed => "wharf_gpus_used",
            Self::JobsPending => "wharf_jobs_pending",
            Self::JobsActive => "wharf_jobs_active",
            Self::Nodes => "wharf_nodes",
            Self::DecisionSeconds => "wharf_decision_seconds",
            Self::Decisions => "wharf_decisions",
            Self::JournalIndex => "wharf_journal_index",
            Self::JournalTerm => "wharf_journal_term",
            Self::Snapshots => "wharf_journal_snapshots",
            Self::SnapshotFaults => "wharf_journal_snapshot_faults",
            Self::Turns => "wharf_turns",
            Self::ReplicaBehind => "wharf_replica_behind_events",
            Self::ReplicaCopies => "wharf_replica_copies",
            Self::WorldGaps => "wharf_world_gaps",
            Self::WorldFaults => "wharf_world_faults",
            Self::WorldUnreachable => "wharf_world_unreachable_seconds",
            Self::ClockSteps => "wharf_clock_steps",
            Self::PlanPanics => "wharf_plan_panics",
            Self::PolicyVersion => "wharf_policy_version",
            Self::PolicyError => "wharf_policy_error",
            Self::FleetFileError => "wharf_fleet_file_error",
            Self::Orphans => "wharf_orphans",
            Self::Evictions => "wharf_evictions",
            Self::Promises => "wharf_earmarks",
            Self::TenantGpus => "wharf_tenant_gpus",
            Self::GpuSmActive => "wharf_gpu_sm_active",
            Self::GpuMemoryUsed => "wharf_gpu_memory_used_bytes",
            Self::GpuMode => "wharf_gpu_mode",
            Self::TaskSmActive => "wharf_task_sm_active",
            Self::TaskMemoryUsed => "wharf_task_memory_used_bytes",
            Self::TaskMemoryLimit => "wharf_task_memory_limit_bytes",
            Self::TaskTax => "wharf_task_tax",
            Self::JobOoms => "wharf_job_ooms",
            Self::Ooms => "wharf_ooms",
            Self::SeriesLeftOut => "wharf_series_left_out",
        }
    }

    /// What it tells.
    pub fn help(self) -> &'static str {
        match self {
            Self::GpusTotal => "GPUs of the fleet, by model",
            Self::GpusHealthy => "GPUs that are healthy on nodes that are up, by model",
            Self::GpusAllocated => "GPUs handed out to jobs, by model; a share counts as its part",
            Self::GpusUsed => {
                "GPUs that really compute: the sum of SM_ACTIVE over those that report it, by model; absent when none does"
            }
            Self::JobsPending => "Jobs that wait, by class",
            Self::JobsActive => "Jobs that hold places, by class",
            Self::Nodes => "Nodes, by state: open, cordoned, down",
            Self::DecisionSeconds => {
                "Time from a request's arrival to its durable decision, by quantile, since start"
            }
            Self::Decisions => "Requests that were decided since start",
            Self::JournalIndex => "Events in the journal since its beginning",
            Self::JournalTerm => "Term of this leader",
            Self::Snapshots => "Snapshots written since start",
            Self::SnapshotFaults => "Snapshots that could not be written since start",
            Self::Turns => "Turns taken since start",
            Self::ReplicaBehind => "Events in the journal that what is read does not show yet",
            Self::ReplicaCopies => {
                "Copies of the whole state that were made because readers held the one before, since start"
            }
            Self::WorldGaps => "Reports of the world that needed a full list, since start",
            Self::WorldFaults => {
                "Calls that the fleet did not answer, by operation: list, changes, act; since start"
            }
            Self::WorldUnreachable => {
                "For how long the fleet has not answered, in seconds of its own time; 0 while it does"
            }
            Self::ClockSteps => {
                "Times that the wall clock was found to be set, since start; the fleet's own goes on as before"
            }
            Self::PlanPanics => "Plans that failed by a bug and were skipped, since start",
            Self::PolicyVersion => "Version of the policy in force",
            Self::PolicyError => {
                "1 while the policy directory has an error and the policy before it stays in force"
            }
            Self::FleetFileError => "1 while the fleet file has an error and the fleet stays as it is",
            Self::Orphans => "Tasks that run and should not, and are being stopped",
            Self::Evictions => "Jobs, or surplus tasks of one, that a rule made leave since start, by rule",
            Self::Promises => "Jobs with an earmark: their places are kept until the victims are gone",
            Self::TenantGpus => {
                "GPUs of a tenant with everyone below it, by resource and line; absent where a line is unlimited"
            }
            Self::GpuSmActive => "SM_ACTIVE of a GPU, from 0 to 1; absent where it is not known",
            Self::GpuMemoryUsed => "Memory of a GPU in use; absent where it is not known",
            Self::GpuMode => "1 for the way in which a GPU is divided: whole, mig, mps or time-slicing",
            Self::TaskSmActive => {
                "SM_ACTIVE of what a task was given, from 0 to 1; absent where it cannot be told apart from what others do"
            }
            Self::TaskMemoryUsed => {
                "Memory of each of its GPUs that a task uses; absent where it is not known"
            }
            Self::TaskMemoryLimit => {
                "The most memory of each of its GPUs that a task may use; absent where it is not known"
            }
            Self::TaskTax => "Throughput that a task is expected to lose by sharing, from 0 to 1",
            Self::JobOoms => {
                "Tasks of a live job that were killed because they used more memory than they may; only jobs with any"
            }
            Self::Ooms => {
                "Tasks that were killed because they used more memory than they may, as far as the fleet remembers"
            }
            Self::SeriesLeftOut => {
                "GPUs and tasks that have no series of their own because there are too many"
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Model {
    model: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfClass {
    class: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InState {
    state: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByRule {
    rule: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOperation {
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfTenant {
    tenant: String,
    resource: String,
    line: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Quantile {
    quantile: String,
}

type Floats<L> = Family<L, Gauge<f64, std::sync::atomic::AtomicU64>>;

/// Which of the files that are watched have an error.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileErrors {
    /// The policy directory.
    pub policy: bool,
    /// The fleet file.
    pub fleet: bool,
}

/// The text of `/metrics`.
pub fn render(replica: &Replica, decisions: &Decisions, errors: FileErrors) -> String {
    let mut registry = Registry::default();
    let samples = replica.samples();
    fleet(&mut registry, replica, &samples);
    devices::gpus(&mut registry, replica, &samples);
    devices::tasks(&mut registry, replica, &samples);
    devices::ooms(&mut registry, replica, &samples);
    jobs(&mut registry, replica);
    evictions(&mut registry, replica);
    lines(&mut registry, replica);
    journal(&mut registry, replica, errors);
    world(&mut registry, replica);
    latency(&mut registry, decisions);
    let mut text = String::new();
    encode(&mut text, &registry).expect("writing to a string does not fail");
    text
}

fn fleet(registry: &mut Registry, replica: &Replica, samples: &Samples) {
    let families =
        [Metric::GpusTotal, Metric::GpusHealthy, Metric::GpusAllocated, Metric::GpusUsed].map(|metric| {
            let family = Floats::<Model>::default();
            registry.register(metric.name(), metric.help(), family.clone());
            family
        });
    for pool in pools(&replica.state, samples) {
        let label = Model { model: pool.model };
        let values = [Some(pool.gpus.into()), Some(pool.healthy.into()), Some(pool.allocated), pool.used_sm];
        for (family, value) in families.iter().zip(values) {
            if let Some(value) = value {
                family.get_or_create(&label).set(value);
            }
        }
    }
    let nodes = Family::<InState, Gauge>::default();
    for state in ["open", "cordoned", "down"] {
        nodes.get_or_create(&InState { state: state.to_owned() }).set(0);
    }
    for (_, node) in replica.state.fleet.nodes() {
        let state = match (node.facts.up, node.cordoned) {
            (false, _) => "down",
            (true, true) => "cordoned",
            (true, false) => "open",
        };
        nodes.get_or_create(&InState { state: state.to_owned() }).inc();
    }
    registry.register(Metric::Nodes.name(), Metric::Nodes.help(), nodes);
}

fn jobs(registry: &mut Registry, replica: &Replica) {
    let pending = Family::<OfClass, Gauge>::default();
    let active = Family::<OfClass, Gauge>::default();
    for class in Class::ALL {
        let label = OfClass { class: class.into_str().to_owned() };
        pending.get_or_create(&label).set(0);
        active.get_or_create(&label).set(0);
    }
    for (_, job) in replica.state.jobs.iter() {
        let family = if job.phase == Phase::Waiting { &pending } else { &active };
        family.get_or_create(&OfClass { class: job.spec.class.into_str().to_owned() }).inc();
    }
    registry.register(Metric::JobsPending.name(), Metric::JobsPending.help(), pending);
    registry.register(Metric::JobsActive.name(), Metric::JobsActive.help(), active);
}

fn evictions(registry: &mut Registry, replica: &Replica) {
    let by_rule = Family::<ByRule, Counter>::default();
    let Evictions { guarantee, fair_share, preempt, moved, reservation, order, booking, drain } =
        replica.vitals.figures.evictions;
    let counts = [
        (Rule::Guarantee, guarantee),
        (Rule::FairShare, fair_share),
        (Rule::Preempt, preempt),
        (Rule::Move, moved),
        (Rule::Reservation, reservation),
        (Rule::Order, order),
        (Rule::Booking, booking),
        (Rule::Drain, drain),
    ];
    for (rule, count) in counts {
        by_rule.get_or_create(&ByRule { rule: rule.into_str().to_owned() }).inc_by(count);
    }
    registry.register(Metric::Evictions.name(), Metric::Evictions.help(), by_rule);
    let promises = u64::try_from(replica.state.earmarks.iter().count()).unwrap_or(u64::MAX);
    registry.register(Metric::Promises.name(), Metric::Promises.help(), ConstGauge::new(promises));
}

fn lines(registry: &mut Registry, replica: &Replica) {
    let family = Floats::<OfTenant>::default();
    for tenant in tenants::all(&replica.state) {
        for line in tenants::gpu_lines(&tenant) {
            let values = [
                ("guaranteed", line.guaranteed),
                ("limit", line.limit),
                ("fair_share", Some(line.fair_share)),
                ("used", Some(line.used)),
                ("borrowed", Some(line.borrowed)),
                ("lent", Some(line.lent)),
                ("demand", Some(line.demand)),
                ("past", line.past),
            ];
            for (word, value) in values {
                let (tenant, resource) = (tenant.path.clone(), line.resource.clone());
                if let Some(value) = value {
                    family.get_or_create(&OfTenant { tenant, resource, line: word }).set(value);
                }
            }
        }
    }
    registry.register(Metric::TenantGpus.name(), Metric::TenantGpus.help(), family);
}

fn journal(registry: &mut Registry, replica: &Replica, errors: FileErrors) {
    let figures = replica.vitals.figures;
    let orphans = u64::try_from(replica.state.ledger.orphans().len()).unwrap_or(u64::MAX);
    let gauges = [
        (Metric::JournalIndex, replica.state.index()),
        (Metric::JournalTerm, replica.vitals.term),
        (Metric::PolicyVersion, replica.state.tenants.version().into()),
        (Metric::PolicyError, errors.policy.into()),
        (Metric::FleetFileError, errors.fleet.into()),
        (Metric::Orphans, orphans),
        (Metric::ReplicaBehind, replica.progress.behind()),
    ];
    for (metric, value) in gauges {
        registry.register(metric.name(), metric.help(), ConstGauge::new(value));
    }
    let counters = [
        (Metric::Snapshots, figures.snapshots),
        (Metric::SnapshotFaults, figures.snapshot_faults),
        (Metric::Turns, figures.turns),
        (Metric::WorldGaps, figures.gaps),
        (Metric::PlanPanics, figures.plan_panics),
        (Metric::ReplicaCopies, replica.progress.copies.load(Ordering::Relaxed)),
    ];
    for (metric, value) in counters {
        registry.register(metric.name(), metric.help(), ConstCounter::new(value));
    }
}

fn world(registry: &mut Registry, replica: &Replica) {
    let faults = Family::<ByOperation, Counter>::default();
    for &operation in Operation::VARIANTS {
        let label = ByOperation { operation: operation.into_str() };
        faults.get_or_create(&label).inc_by(replica.vitals.figures.world_faults.of(operation));
    }
    registry.register(Metric::WorldFaults.name(), Metric::WorldFaults.help(), faults);
    let millis = replica.vitals.outage.as_ref().map_or(0, |outage| (replica.now() - outage.since).0);
    let steps = ConstCounter::new(replica.vitals.clock_steps.count);
    registry.register(Metric::ClockSteps.name(), Metric::ClockSteps.help(), steps);
    let metric = Metric::WorldUnreachable;
    registry.register(metric.name(), metric.help(), ConstGauge::new(millis / 1000));
}

fn latency(registry: &mut Registry, decisions: &Decisions) {
    let times = decisions.lock().unwrap_or_else(PoisonError::into_inner);
    let seconds = Floats::<Quantile>::default();
    if !times.is_empty() {
        for (word, quantile) in [("0.5", 0.5), ("0.9", 0.9), ("0.99", 0.99)] {
            let micros = u32::try_from(times.value_at_quantile(quantile)).unwrap_or(u32::MAX);
            let label = Quantile { quantile: word.to_owned() };
            seconds.get_or_create(&label).set(f64::from(micros) / 1_000_000.0);
        }
    }
    registry.register(Metric::DecisionSeconds.name(), Metric::DecisionSeconds.help(), seconds);
    registry.register(Metric::Decisions.name(), Metric::Decisions.help(), ConstCounter::new(times.len()));
}
