//! The state as the API shows it.

pub(crate) mod gpu;

use wharf_api::v1::{
    ArrayView, BlockerView, ChosenView, DependencyView, EstimateView, FunnelStage, GroupView, JobState,
    JobView, LearnedView, NodeView, OrderView, PlacementView, ReplacingView, TaskFailureView, VerdictView,
    VerdictWord, gpus, thousandths,
};
use wharf_controller::world::Samples;
use wharf_engine::answer::verdict::{Reason, Verdict};
use wharf_engine::model::dependency::{ArrayMember, Dependency};
use wharf_engine::model::group::Group;
use wharf_engine::model::job::{GpuAsk, Spec};
use wharf_engine::model::placement::Placement;
use wharf_engine::model::shortfall::{Quantity, Shortfall};
use wharf_engine::state::attained::LearnedEstimate;
use wharf_engine::state::fleet::Node;
use wharf_engine::state::holding::{Holding, TaskPhase};
use wharf_engine::state::jobs::event::Failure;
use wharf_engine::state::jobs::{Job, Phase, Rolling};
use wharf_engine::state::{Estimate, State};
use wharf_engine::units::{GpuUnits, JobId, NodeId, Timestamp};

use crate::replica::Replica;
use crate::{ended, maintenance, text};

/// A job as the API shows it.
pub(crate) fn job(replica: &Replica, id: JobId, job: &Job) -> JobView {
    let (state, now) = (&*replica.state, replica.now());
    let holding = state.ledger.holding(id);
    let verdict = replica.verdict(id).expect("a live job has a verdict");
    let tasks = holding.into_iter().flat_map(|holding| &holding.tasks);
    let running = tasks.filter(|task| task.holds() && task.since.is_some()).count();
    JobView {
        uid: format!("{:032x}", job.uid.0),
        name: job.spec.name.clone(),
        tenant: state.tenants.path(job.spec.tenant).to_owned(),
        class: job.spec.class,
        priority: job.spec.priority,
        tasks: job.wanted(),
        min: job.spec.min,
        replicas_max: job.spec.service.map(|service| service.max),
        booking: booking_of(state, job),
        gpus_per_task: gpus(job.spec.shape.gpus.units()),
        groups: groups(job, holding),
        state: job_state(job, holding),
        verdict: verdict_view(state, id, &verdict, now),
        submitted_at_ms: job.submitted_at.0,
        first_start_ms: job.past.first_start.map(|at| at.0),
        running_tasks: u32::try_from(running).unwrap_or(u32::MAX),
        placements: placements(state, job, holding),
        replacing: job.rolling.map(|rolling| replacing(rolling, holding)),
        estimate: state.estimate(&job.spec).map(estimate),
        time_limit_ms: job.time_limit().map(|limit| limit.0),
        limit_at_ms: state.limit_at(id).map(|at| at.0),
        ran_ms: job.past.ran_ms,
        attempts: job.past.attempts,
        evictions: job.past.evictions,
        failures: job.past.failures,
        last_failure: job.past.last_failure.map(|of| failure(state, of)),
        after: job.spec.after.iter().map(dependency).collect(),
        array: job.spec.array.as_ref().map(array),
        labels: job.spec.labels.iter().cloned().collect(),
        submitted_by: Some(job.spec.submitted_by.clone()).filter(|by| !by.is_empty()),
    }
}

fn failure(state: &State, failure: Failure) -> TaskFailureView {
    let Failure { task, node, detail, at } = failure;
    let node = state.fleet.node(node).map_or("?", |node| node.facts.name.as_str());
    TaskFailureView { at_ms: at.0, text: format!("task {task} on {node} {}", ended::failed(detail.cause)) }
}

fn dependency(of: &Dependency) -> DependencyView {
    DependencyView { job: of.name.clone(), when: of.when.into_str().to_owned() }
}

fn array(of: &ArrayMember) -> ArrayView {
    ArrayView { name: of.name.clone(), index: of.index, at_most: of.at_most }
}

/// The groups of a job, with how far each of them is.
fn groups(job: &Job, holding: Option<&Holding>) -> Vec<GroupView> {
    let alive: Vec<u32> = holding.into_iter().flat_map(Holding::alive).collect();
    let runs = |task: &u32| {
        let held = holding.and_then(|holding| holding.task(*task));
        held.is_some_and(|held| held.holds() && held.since.is_some())
    };
    let copies = job.spec.copies(alive.iter().copied());
    let of = |at: usize| alive.iter().filter(move |&&task| job.spec.group_of(task) == Some(at));
    let view = |(at, group): (usize, &Group)| GroupView {
        name: group.name.clone(),
        tasks: group.tasks,
        min: group.min,
        copies: group.copies,
        min_copies: group.min_copies,
        gpus_per_task: gpus(group.shape.gpus.units()),
        standing: count(copies.iter().filter(|copy| copy.group == at && copy.stands()).count()),
        placed_tasks: count(of(at).count()),
        running_tasks: count(of(at).filter(|task| runs(task)).count()),
    };
    job.spec.groups.iter().enumerate().map(view).collect()
}

fn replacing(rolling: Rolling, holding: Option<&Holding>) -> ReplacingView {
    let staying = holding.into_iter().flat_map(Holding::staying);
    let old = staying.filter(|task| rolling.is_old(task)).count();
    let (surge, unavailable) = (rolling.surge, rolling.unavailable);
    ReplacingView { old: u32::try_from(old).unwrap_or(u32::MAX), surge, unavailable }
}

/// How long a job is expected to run, as the API shows it.
fn estimate(known: Estimate) -> EstimateView {
    let ms = known.millis().0;
    let learned = match known {
        Estimate::Given(_) => None,
        Estimate::Learned(LearnedEstimate { millis: _, jobs, label }) => {
            Some(LearnedView { jobs: u64::try_from(jobs).unwrap_or(u64::MAX), label })
        }
    };
    EstimateView { ms, learned }
}

pub(crate) fn job_state(job: &Job, holding: Option<&Holding>) -> JobState {
    let starting = || {
        let tasks = holding.into_iter().flat_map(|holding| &holding.tasks);
        tasks.into_iter().any(|task| task.phase == TaskPhase::Bound)
    };
    match job.phase {
        Phase::Waiting => JobState::Waiting,
        Phase::Leaving(_) => JobState::Leaving,
        Phase::Active if starting() => JobState::Starting,
        Phase::Active => JobState::Running,
    }
}

/// Where a job's tasks are.
pub(crate) fn placements(state: &State, job: &Job, holding: Option<&Holding>) -> Vec<PlacementView> {
    let tasks = holding.into_iter().flat_map(|holding| &holding.tasks).filter(|task| task.holds());
    tasks.map(|task| placement(state, &job.spec, &task.place)).collect()
}

/// Why the first task of a job is where it is, or will be.
pub(crate) fn chosen(state: &State, job: JobId) -> Option<ChosenView> {
    let held = state.ledger.holding(job).and_then(|holding| holding.chosen);
    let chosen = held.or_else(|| state.earmarks.of(job).and_then(|promise| promise.chosen))?;
    let name = |node| state.fleet.node(node).map_or_else(|| "?".to_owned(), |node| node.facts.name.clone());
    Some(ChosenView {
        by: chosen.by.into_str().to_owned(),
        cost_gpus: of_millionths(chosen.cost),
        runner_up: chosen.runner_up.map(|(node, _)| name(node)),
        runner_up_cost_gpus: chosen.runner_up.map(|(_, cost)| of_millionths(cost)),
    })
}

fn of_millionths(cost: i64) -> f64 {
    thousandths(u64::try_from(cost).unwrap_or_default() / 1000)
}

/// The name of the window that a job uses.
fn booking_of(state: &State, job: &Job) -> Option<String> {
    let booking = state.bookings.get(job.spec.booking?)?;
    Some(booking.spec.name.clone())
}

/// A place as the API shows it.
pub(crate) fn placement(state: &State, spec: &Spec, place: &Placement) -> PlacementView {
    let group = spec.group_of(place.task).map(|at| &spec.groups[at]);
    let node = state.fleet.node(place.node).map_or("?", |node| node.facts.name.as_str());
    PlacementView {
        task: place.task,
        group: group.map(|group| group.name.clone()),
        node: node.to_owned(),
        gpus: place.gpus.indexes().map(|gpu| u32::try_from(gpu).unwrap_or_default()).collect(),
        share: gpus(place.units_each),
        enforced: place.enforced(),
        slice: place.slice.and_then(|slice| gpu::slice(state, place.pool, slice)),
        memory_mib: state.memory_mib(place).filter(|_| place.gpus.count() > 0),
        tax: thousandths(place.tax.into()),
    }
}

/// A verdict as the API shows it.
pub(crate) fn verdict_view(state: &State, job: JobId, verdict: &Verdict, now: Timestamp) -> VerdictView {
    let word = match verdict.reason {
        Reason::Running | Reason::Repairing => VerdictWord::Running,
        Reason::Starting => VerdictWord::Starting,
        Reason::Leaving => VerdictWord::Leaving,
        Reason::Startable => VerdictWord::RunnableNow,
        Reason::BackingOff { .. }
        | Reason::StartRefused { .. }
        | Reason::Short(_)
        | Reason::Earmarked
        | Reason::Reserved { .. }
        | Reason::Window { .. }
        | Reason::Booked { .. }
        | Reason::Downtime { .. }
        | Reason::Fixed { .. }
        | Reason::LandingRoom { .. }
        | Reason::Held { .. }
        | Reason::Dependency
        | Reason::ArrayTurn { .. }
        | Reason::Sharing(_) => VerdictWord::Waits,
    };
    let short = match verdict.reason {
        Reason::Short(shortfall) => Some((number(shortfall.need), number(shortfall.have))),
        _ => None,
    };
    let stages = verdict.funnel.iter().flat_map(|funnel| &funnel.stages);
    VerdictView {
        verdict: word,
        reason: Some(verdict.reason.token().to_owned()),
        text: text::sentence(state, job, verdict.reason, now),
        need: short.map(|(need, _)| need),
        have: short.map(|(_, have)| have),
        group: group_of(state, job, verdict),
        funnel: stages
            .map(|(stage, have)| FunnelStage { stage: stage.into_str().to_owned(), gpus: whole(*have) })
            .collect(),
        // Stages after the first that fails leave no more than it does: they say nothing new.
        blockers: blocker(verdict.reason).into_iter().collect(),
        ahead: verdict.funnel.as_ref().map(|_| verdict.ahead),
        order: order(state, job, now),
        until_ms: text::until(state, job, verdict.reason).map(|until| until.0),
        policy_version: verdict.policy,
        basis: verdict.basis,
    }
}

/// Name of the group that a verdict is about.
fn group_of(state: &State, job: JobId, verdict: &Verdict) -> Option<String> {
    let at = verdict.funnel.as_ref()?.group?;
    Some(state.jobs.get(job)?.spec.groups.get(at)?.name.clone())
}

/// By what its class is ordered, where that is not its age.
fn order(state: &State, id: JobId, now: Timestamp) -> Option<OrderView> {
    let class = state.jobs.get(id)?.spec.class;
    let rules = state.tenants.policy().orders.beyond_age(class)?;
    let served = state.attained.gpu_ms(id, state.ledger.holding(id), now);
    Some(OrderView { by: rules.order.into_str().to_owned(), served_gpu_s: thousandths(served) })
}

fn blocker(reason: Reason) -> Option<BlockerView> {
    let Reason::Short(Shortfall { stage, need, have, .. }) = reason else { return None };
    let (need, have) = (number(need), number(have));
    Some(BlockerView { what: stage.into_str().to_owned(), need, have, gap: need - have })
}

fn number(quantity: Quantity) -> f64 {
    match quantity {
        Quantity::Gpus(units) => gpus(units),
        Quantity::Tasks(tasks) => thousandths(tasks.saturating_mul(1000)),
    }
}

fn whole(quantity: Quantity) -> u64 {
    match quantity {
        Quantity::Gpus(units) => units.parts() / GpuUnits::WHOLE.parts(),
        Quantity::Tasks(tasks) => tasks,
    }
}

/// A node as the API shows it.
pub(crate) fn node(state: &State, id: NodeId, node: &Node, samples: &Samples) -> NodeView {
    let room = state.ledger.rooms().get(id);
    let held: u64 = state.ledger.occupied(id).iter().map(|units| units.parts()).sum();
    let free =
        room.map(|room| room.capacity.saturating_sub(room.held + room.held_by_leaving)).unwrap_or_default();
    let facts = &node.facts;
    let active: Option<Vec<u32>> = samples
        .gpus
        .get(&facts.name)
        .and_then(|gpus| gpus.iter().map(|sample| sample.sm_active_milli).collect());
    let levels = facts
        .domains
        .iter()
        .map(|&(level, domain)| (state.fleet.levels()[usize::from(level.0)].clone(), domain));
    NodeView {
        name: facts.name.clone(),
        model: state.fleet.model(facts.pool).to_owned(),
        gpus: count(facts.gpus.len()),
        gpus_allocated: gpus(GpuUnits::from_parts(held)),
        gpus_others: facts.others_gpus.count(),
        up: facts.up,
        cordoned: node.cordoned,
        cpu_milli: facts.capacity.cpu_milli,
        cpu_free_milli: free.cpu_milli,
        memory: facts.capacity.memory,
        memory_free: free.memory,
        sm_active: active.and_then(|active| mean(&active)),
        levels: levels.collect(),
        tasks: count(state.ledger.tasks_on(id).count()),
        cordon_reason: (!node.cordon_reason.is_empty()).then(|| node.cordon_reason.clone()),
        cordoned_by: Some(node.cordoned_by.clone()).filter(|by| !by.is_empty()),
        drain: node.drain.as_ref().map(maintenance::drain),
        maintenance: maintenance::of(state, id),
        waits_for: maintenance::waits_for(state, id),
    }
}

/// The mean of thousandths as a part of one; `None` of nothing.
pub(crate) fn mean(milli: &[u32]) -> Option<f64> {
    let sum: u64 = milli.iter().copied().map(u64::from).sum();
    let count = u64::try_from(milli.len()).ok().filter(|&count| count > 0)?;
    Some(thousandths(sum / count))
}

pub(crate) fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// What a job asks for in all, as a number of GPUs.
pub(crate) fn wanted_gpus(job: &Job) -> f64 {
    match job.spec.shape.gpus {
        GpuAsk::Whole(0) => 0.0,
        _ => gpus(job.spec.units_wanted()),
    }
}
