//! The same instance as a state of the engine, and what the product's own planner makes of it.

use wharf_engine::decide::input::Input;
use wharf_engine::model::job::{Checkpoint, Class, GpuAsk, Shape, Spec};
use wharf_engine::model::observed::{
    ObservedGpu, ObservedNode, ObservedTask, Report, Scope, TaskRef, TaskStatus,
};
use wharf_engine::model::policy::{self, Amount, GpuQuota, Policy, Preemption, Quota};
use wharf_engine::model::rejection::Rejection;
use wharf_engine::model::submission::Submission;
use wharf_engine::plan::{EvictedJob, Memory, plan};
use wharf_engine::state::State;
use wharf_engine::state::ledger::event::EvictionRule;
use wharf_engine::units::{GpuMask, GpuUnits, JobId, Millis, Resources, Timestamp, Uid};

use super::facts::{Facts, Set};
use super::{Instance, Running};

/// When the plan is made: later than any job of an instance is old.
const NOW: Timestamp = Timestamp(1_000_000_000_000);
/// A gain that no cost comes near, so that only the order among victims is judged.
const HORIZON: Millis = Millis(1_000_000_000_000);
/// Any two tasks may share a GPU.
const TRUST: &str = "all";

/// What the planner decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// Whether the job gets its places.
    pub(super) found: bool,
    /// Who has to leave: the job's place in the instance, and its tasks.
    pub(super) victims: Vec<(usize, Vec<usize>)>,
    /// What the receipts say it costs, in GPU-seconds.
    pub(super) cost: u64,
}

impl Choice {
    /// What the planner decides on an instance.
    pub(super) fn of(instance: &Instance) -> Result<Self, Rejection> {
        let mut state = State::default();
        let mut give = |input: &Input| -> Result<(), Rejection> {
            let decision = state.decide(input, NOW)?;
            state.apply_all(&decision.events);
            Ok(())
        };
        give(&Input::ApplyPolicy(policy(instance)))?;
        let nodes = nodes(instance);
        let first = Report { scope: Scope::Nodes, world: 1, generation: 1, nodes, ..Report::default() };
        give(&Input::Observe(first.clone()))?;
        let tasks =
            (1u128..).zip(&instance.running).flat_map(|(uid, job)| running(instance, uid, job)).collect();
        give(&Input::Observe(Report { scope: Scope::All, tasks, ..first }))?;
        let uid = Uid(u128::MAX);
        give(&Input::Submit(Box::new(pending(instance, uid))))?;
        let job = state.jobs.with_uid(uid).expect("what was submitted waits");
        let made = plan(&state, state.tenants.policy(), &Memory::default(), NOW);
        let found = made.starts.iter().chain(&made.earmarks).any(|start| start.job == job);
        let place = |id: JobId| {
            let uids = (1u128..).take(instance.running.len());
            let at = uids.map(Uid).position(|uid| state.jobs.with_uid(uid) == Some(id));
            at.expect("victims are of the instance")
        };
        let victim = |evicted: &EvictedJob| {
            let tasks = evicted.tasks.iter().map(|&task| usize::try_from(task).expect("a u32 fits a usize"));
            (place(evicted.job), tasks.collect())
        };
        let taken = made.evictions.iter().filter(|evicted| evicted.receipt.why != EvictionRule::Move);
        let mut victims: Vec<(usize, Vec<usize>)> = taken.clone().map(victim).collect();
        victims.sort_unstable();
        let cost = taken.map(|evicted| evicted.receipt.cost).sum::<u64>() / 1000;
        Ok(Self { found, victims, cost })
    }

    /// The victims as a set of units; `None` where somebody leaves who may not.
    pub(super) fn set(&self, facts: &Facts<'_>) -> Option<Set> {
        let mut set = Set::default();
        for (job, tasks) in &self.victims {
            let leaves = |unit: &usize| {
                let unit = &facts.units[*unit];
                unit.job == *job && tasks.contains(&unit.task.unwrap_or(0))
            };
            set = (0..facts.units.len()).filter(leaves).fold(set, Set::with);
        }
        (facts.victims(set) == self.victims).then_some(set)
    }
}

fn policy(instance: &Instance) -> Policy {
    let amount = |gpus: u64| Amount::Of(gpus * GpuUnits::WHOLE.parts());
    let tenant = |tenant: &super::Tenant| policy::Tenant {
        gpus: GpuQuota::Any(Quota {
            guaranteed: amount(tenant.guaranteed_gpus),
            limit: tenant.limit_gpus.map_or(Amount::Unlimited, amount),
        }),
        weight: tenant.weight,
        priority: tenant.priority,
        ..policy::Tenant::without_lines(&tenant.path)
    };
    let preemption = Preemption {
        borrow_grace_max: Millis::from_secs(instance.borrow_grace_max_s),
        min_runtime_reclaim: Millis(0),
        min_runtime_preempt: Millis(0),
        evictions_max: u32::MAX,
        victims_max: u32::MAX,
        moves_max: 0,
        restart: Millis::from_secs(instance.restart_s),
        value: [1_000_000; 3],
        wait_horizon: HORIZON,
        ..Preemption::default()
    };
    let mut tenants: Vec<policy::Tenant> = instance.tenants.iter().map(tenant).collect();
    tenants.sort_by_key(|tenant| tenant.path.matches('/').count());
    let policy = Policy { digest: "oracle".to_owned(), tenants, preemption, ..Policy::default() };
    crate::world::with_domain_of_all(policy, TRUST)
}

fn nodes(instance: &Instance) -> Vec<ObservedNode> {
    let node = |(island, node): (u32, &super::Node)| ObservedNode {
        name: node.name.clone(),
        up: true,
        model: "h100".to_owned(),
        gpus: (0..node.gpus)
            .map(|_| ObservedGpu { island, healthy: true, ..ObservedGpu::default() })
            .collect(),
        ..ObservedNode::default()
    };
    (1..).zip(&instance.nodes).map(node).collect()
}

fn running(instance: &Instance, uid: u128, job: &Running) -> Vec<ObservedTask> {
    let spec = Spec {
        priority: job.priority,
        tasks: number(job.tasks.len()),
        min: number(job.min),
        preemptible: job.preemptible,
        checkpoint: job.checkpoint.map(|checkpoint| Checkpoint {
            every: Millis::from_secs(checkpoint.every_s),
            grace: Millis::from_secs(checkpoint.grace_s),
            on_request: false,
        }),
        ..spec(&job.name, job.class, job.gpus)
    };
    let submission = submission(Uid(uid), &job.tenant, spec);
    let task = |(task, place): (u32, &super::Place)| {
        assert!(
            instance.nodes.iter().any(|node| node.name == place.node),
            "a task is on a node of the fleet"
        );
        let mut gpus = GpuMask::default();
        place.gpus.iter().for_each(|&gpu| gpus.insert(gpu));
        ObservedTask {
            task: TaskRef { uid: Uid(uid), task, attempt: 1 },
            node: place.node.clone(),
            gpus,
            units_each: GpuUnits::WHOLE,
            slice: None,
            time_sliced: false,
            since: Some(Timestamp(NOW.0 - job.running_s * 1000)),
            status: TaskStatus::Running,
            job: Some(submission.clone()),
        }
    };
    (0..).zip(&job.tasks).map(task).collect()
}

fn pending(instance: &Instance, uid: Uid) -> Submission {
    let job = &instance.pending;
    let tasks = u32::try_from(job.tasks).expect("a gang is small");
    let spec = Spec { priority: job.priority, tasks, min: tasks, ..spec(&job.name, job.class, job.gpus) };
    submission(uid, &job.tenant, spec)
}

fn submission(uid: Uid, tenant: &str, spec: Spec) -> Submission {
    let (nodes, devices) = (String::new(), String::new());
    Submission {
        trust: Some(TRUST.to_owned()),
        nodes,
        devices,
        ..Submission::of(uid, tenant.to_owned(), spec)
    }
}

fn spec(name: &str, class: Class, gpus: u64) -> Spec {
    Spec {
        class,
        ..Spec::of(
            name.to_owned(),
            Shape::of(GpuAsk::Whole(u32::try_from(gpus).expect("a task is small")), Resources::default()),
        )
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("a job is small")
}
