//! Who may have to leave, and at what price (rule 8).
//!
//! A *unit* is what leaves in one piece: one task of an elastic job beyond its minimum, or all that is left of a job.

use std::cmp::Reverse;

use wharf_engine::model::exit::Exit;
use wharf_engine::model::job::{Class, Spec};
use wharf_engine::model::placement::Placement;
use wharf_engine::state::jobs::{Job, Phase};
use wharf_engine::state::ledger::event::EvictionRule;
use wharf_engine::units::{JobId, Millis, TenantId, Timestamp};

use super::lines::{Ask, Pass};
use super::world::{Facts, How, WHOLE, World};

/// What leaves in one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unit<'a> {
    pub(super) job: JobId,
    pub(super) spec: &'a Spec,
    pub(super) tasks: Vec<Placement>,
    /// One task beyond the minimum; else all that is left of the job.
    pub(super) surplus: bool,
    /// Places that were set aside for it; nothing of it runs there.
    pub(super) promised: bool,
    /// What it is charged, by meter.
    pub(super) amount: Vec<u64>,
    /// Work since the last checkpoint.
    pub(super) lost: Millis,
    /// Lost work and restart, in GPU-milliseconds.
    pub(super) cost: u64,
}

impl Unit<'_> {
    pub(super) fn tenant(&self) -> TenantId {
        self.spec.tenant
    }
}

/// The units of a tenant's own jobs, in the order in which they are taken: class, priority, elastic surplus before
/// whole gangs, cost, newest.
pub(super) fn units_of<'a>(world: &World<'a>, tenant: TenantId) -> Vec<Unit<'a>> {
    let state = world.facts.state;
    let mut units: Vec<Unit<'a>> = Vec::new();
    for (id, job) in state.jobs.iter().filter(|(_, job)| job.spec.tenant == tenant && job.spec.preemptible) {
        // Who was given something in this plan is not taken in it.
        if !world.tasks_of(id, How::Given).is_empty() {
            continue;
        }
        let promised = world.tasks_of(id, How::Promised);
        // Who is being moved runs, and was told that it has a place to go.
        if !promised.is_empty() && !matches!(job.phase, Phase::Leaving(_)) {
            units.push(earmarked_unit(world.facts, id, job, promised));
        }
        let Some(holding) = state.ledger.holding(id) else { continue };
        let mut staying = world.tasks_of(id, How::Holds);
        let done = holding.exits(Exit::Succeeded);
        let min = usize::try_from(job.spec.min).expect("a u32 fits a usize").max(1);
        while !staying.is_empty() && staying.len() + done > min {
            let last = staying.pop().expect("it is not empty");
            units.push(unit(world.facts, id, &job.spec, vec![last], true));
        }
        if !staying.is_empty() {
            units.push(unit(world.facts, id, &job.spec, staying, false));
        }
    }
    units.sort_by_key(|unit| {
        let submitted_at = state.jobs.get(unit.job).map(|job| job.submitted_at);
        let newest = Reverse((submitted_at, unit.job, unit.tasks[0].task));
        (Reverse(unit.spec.class), unit.spec.priority, !unit.surplus, unit.cost, newest)
    });
    units
}

/// A job that may be moved: its minimum is there, and nobody told any of it to leave or gave it more.
pub(super) fn movable<'a>(world: &World<'a>, id: JobId) -> Option<Unit<'a>> {
    let job = world.facts.state.jobs.get(id).filter(|job| job.spec.preemptible)?;
    // A move stops a job for a while: no latency is spent on tidying up.
    if job.spec.class == Class::Inference || world.facts.is_fixed(&job.spec) || world.giving_up.contains(&id)
    {
        return None;
    }
    let tasks = world.tasks_of(id, How::Holds);
    let in_motion = !world.tasks_of(id, How::Leaves).is_empty() || !world.tasks_of(id, How::Given).is_empty();
    let all_there = u32::try_from(tasks.len()).is_ok_and(|count| count >= job.spec.min.max(1));
    (all_there && !in_motion).then(|| unit(world.facts, id, &job.spec, tasks, false))
}

fn unit<'a>(facts: &Facts<'a>, job: JobId, spec: &'a Spec, tasks: Vec<Placement>, surplus: bool) -> Unit<'a> {
    let ran = if surplus { age_of(facts, job, tasks[0].task) } else { facts.now - running_since(facts, job) };
    let lost = match spec.checkpoint {
        None => ran,
        Some(checkpoint) if checkpoint.every.0 == 0 => Millis(0),
        Some(checkpoint) => Millis(ran.0 % checkpoint.every.0),
    };
    let count = u64::try_from(tasks.len()).expect("a count of tasks fits");
    let millis = u128::from(lost.0) + u128::from(facts.policy.preemption.restart.0);
    let parts = u128::from(spec.shape.gpus.units().parts() * count);
    let cost = u64::try_from(millis * parts / u128::from(WHOLE)).unwrap_or(u64::MAX);
    let amount = facts.charge(&spec.shape, tasks[0].pool, count);
    Unit { job, spec, tasks, surplus, promised: false, amount, lost, cost }
}

/// Places that were set aside for a job: nobody runs there, so letting go of them costs nothing.
fn earmarked_unit<'a>(facts: &Facts<'a>, id: JobId, job: &'a Job, tasks: Vec<Placement>) -> Unit<'a> {
    let count = u64::try_from(tasks.len()).expect("a count of tasks fits");
    let amount = facts.charge(&job.spec.shape, tasks[0].pool, count);
    let surplus = job.phase == Phase::Active;
    Unit { job: id, spec: &job.spec, tasks, surplus, promised: true, amount, lost: Millis(0), cost: 0 }
}

/// How long a task runs.
fn age_of(facts: &Facts<'_>, job: JobId, task: u32) -> Millis {
    let holding = facts.state.ledger.holding(job).expect("a unit holds something");
    let held = holding.tasks.iter().find(|held| held.place.task == task).expect("a unit is of held tasks");
    held.since.map_or(Millis(0), |since| facts.now - since)
}

/// When a unit was given its places.
fn placed_at(facts: &Facts<'_>, unit: &Unit<'_>) -> Timestamp {
    let holding = facts.state.ledger.holding(unit.job).expect("a unit holds something");
    let joined = holding.tasks.iter().find(|held| unit.surplus && held.place.task == unit.tasks[0].task);
    joined.map(|held| held.bound_at).filter(|at| at.0 > 0).unwrap_or(holding.at)
}

/// Since when its first task runs.
fn running_since(facts: &Facts<'_>, job: JobId) -> Timestamp {
    let holding = facts.state.ledger.holding(job).expect("a unit holds something");
    let first = holding.tasks.iter().filter_map(|task| task.since).chain(holding.first_since).min();
    first.unwrap_or(facts.now)
}

/// Since when it runs, or by when it does or is given up.
fn begins_by(facts: &Facts<'_>, job: JobId) -> Timestamp {
    let holding = facts.state.ledger.holding(job).expect("a unit holds something");
    let first = holding.tasks.iter().filter_map(|task| task.since).chain(holding.first_since).min();
    first.unwrap_or((holding.at + facts.policy.gangs.start_within).max(facts.now))
}

/// What binds everything but guarantees: minimum runtime, budget, and not twice for the same beneficiary.
pub(super) fn is_ripe(facts: &Facts<'_>, unit: &Unit<'_>, ask: &Ask<'_>, why: EvictionRule) -> bool {
    let rules = &facts.policy.preemption;
    let runtime_min = match why {
        EvictionRule::Guarantee => Millis(0),
        EvictionRule::FairShare => rules.min_runtime_reclaim,
        // A guarantee does not wait for somebody to have run for long enough to be moved.
        EvictionRule::Move if ask.pass == Pass::WithinGuarantee => Millis(0),
        // The plain planner serves every class by age and promises no start: nobody leaves for either.
        EvictionRule::Preempt
        | EvictionRule::Move
        | EvictionRule::Order
        | EvictionRule::Reservation
        | EvictionRule::Booking
        | EvictionRule::Drain => rules.min_runtime_preempt,
    };
    let past = &facts.state.jobs.get(unit.job).expect("a unit is of a live job").past;
    let mut lately = past.evicted.clone();
    lately.retain(|&(at, _)| facts.now < at + rules.eviction_window);
    let spent = u32::try_from(lately.len()).is_ok_and(|often| often >= rules.evictions_max);
    let again = lately.iter().any(|&(_, known)| known == ask.job);
    facts.now - placed_at(facts, unit) >= runtime_min && !spent && !again
}

/// What an ask gains by starting when these have left, in GPU-milliseconds.
pub(super) fn gain(facts: &Facts<'_>, ask: &Ask<'_>, units: &[&Unit<'_>]) -> u64 {
    let rules = &facts.policy.preemption;
    let stop = facts.policy.stop_grace;
    let horizon = facts.now + rules.wait_horizon + stop;
    // Places that were only set aside hold nobody up.
    let units: Vec<&&Unit<'_>> = units.iter().filter(|unit| !unit.promised).collect();
    // They would be gone by then without being told.
    let ends = units.iter().map(|unit| {
        let past = &facts.state.jobs.get(unit.job).expect("a unit is of a live job").past;
        let rest = |millis: Millis| begins_by(facts, unit.job) + Millis(millis.0.saturating_sub(past.ran_ms));
        let limit = past.extended.or(unit.spec.time_limit).map(|limit| rest(limit) + stop);
        // An estimate that has passed says nothing any more.
        let estimate = unit.spec.estimate.map(rest).filter(|&end| end > facts.now);
        limit.or(estimate).unwrap_or(horizon)
    });
    let without = ends.max().unwrap_or(facts.now).min(horizon);
    let leave = units.iter().map(|unit| unit.spec.grace().0 + stop.0).max().unwrap_or(0);
    let saved = (without - facts.now).0.saturating_sub(leave);
    let value = match ask.spec.class {
        Class::Inference => rules.value[0],
        Class::Interactive => rules.value[1],
        Class::Batch => rules.value[2],
    };
    let parts = (ask.spec.shape.gpus.units().parts() * u64::from(ask.tasks)).max(1);
    let worth = u128::from(saved) * u128::from(value) * u128::from(parts) / u128::from(WHOLE);
    u64::try_from(worth).unwrap_or(u64::MAX)
}
