//! Where a job stands in the order of its class inside its tenant (rule 3), where that is not by age.
//!
//! Worked example: levels at 10 and 100 GPU hours. `new` waits and was served nothing: level 0. `old` has run on 8 GPUs
//! for two hours: 16 GPU hours, level 1. Both belong to one tenant, in one class and priority. When `new` has waited for
//! its patience, and `old` has had its minimum run, `old` leaves and waits behind everybody of level 0.
//!
//! Everything moves in steps: a level, a power of two of the run time, a patience that is over. Between two steps plans
//! stay as they are, and each step that may lift a refusal is a moment at which the planner is woken.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::model::job::{Class, Spec};
use crate::model::policy::{Order, OrderRules, Policy};
use crate::plan::draft::Draft;
use crate::plan::lines::{self, Pass};
use crate::plan::memory::earlier;
use crate::plan::place::Ask;
use crate::price::node_classes::Drains;
use crate::state::State;
use crate::state::attained::{self, age_floor, next_age, run_time};
use crate::state::holding::Holding;
use crate::state::jobs::{Job, Kind};
use crate::units::{GpuMask, GpuUnits, JobId, Millis, PoolId, Timestamp};

/// By so many steps of half an octave the expected work of a victim is larger: at least by twice.
const CLEARLY: u32 = 3;
/// Because of the landing room at most one in so many GPUs of a pool stands idle: on a small fleet it would keep work out.
const LANDING_PART: u64 = 10;
/// Where a job stands inside its class and priority, the smaller the earlier, fields in the order in which they decide.
/// All alike where the class is served by age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// False for a job that has waited so long that it is first this once.
    pub in_line: bool,
    /// False for a job of more than one node.
    pub small: bool,
    /// Its level, or the step of its expected work.
    pub step: u32,
}

/// What a waiting job may do by its rank, and what it may not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OrderGroup {
    pub rank: Rank,
    pub patient: bool,
    /// Whether it was evicted before, and so leaves the landing room to others.
    pub evicted: bool,
}

/// A job's claim on the places of longer-served ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrderClaim {
    /// The step from which on others give way to it.
    pub above: u32,
    pub gang: bool,
}

/// What makes a job that runs give way by its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrderRank {
    pub step: u32,
    /// Its level of service, whatever it goes by.
    pub level: usize,
    /// When it stands elsewhere at the earliest, if it goes on.
    pub next_step_at: Option<Timestamp>,
    /// In milliseconds of one GPU.
    pub served: u64,
    pub min_run: Millis,
    /// It waited for long and is safe until then.
    pub safe_until: Option<Timestamp>,
    pub gang: bool,
}

pub(super) struct RankGroup {
    pub(super) group: OrderGroup,
    /// Oldest first.
    pub(super) jobs: Vec<(Timestamp, JobId)>,
    pub(super) changes_at: Option<Timestamp>,
}

/// The waiting jobs of a kind that may start now, by how they stand; `None` where the class is served by age.
pub(super) fn alike(draft: &Draft<'_>, known: &Kind) -> Option<Vec<RankGroup>> {
    let (state, now) = (draft.state, draft.now);
    let rules = draft.policy.orders.beyond_age(known.key.class).filter(|_| known.more.is_none())?;
    let mut groups: BTreeMap<OrderGroup, RankGroup> = BTreeMap::new();
    for &(at, id) in &known.jobs {
        let Some(job) = state.jobs.get(id).filter(|job| job.not_before <= now) else { continue };
        let job = WaitingJob { state, rules, id, job, now };
        let group = job.group();
        let nobody = RankGroup { group, jobs: Vec::new(), changes_at: None };
        let alike = groups.entry(group).or_insert(nobody);
        alike.jobs.push((at, id));
        alike.changes_at = earlier(alike.changes_at, job.changes_at());
    }
    Some(groups.into_values().collect())
}

#[derive(Clone, Copy)]
struct WaitingJob<'a> {
    state: &'a State,
    rules: &'a OrderRules,
    id: JobId,
    job: &'a Job,
    now: Timestamp,
}

impl WaitingJob<'_> {
    fn since(self) -> Timestamp {
        self.state.attained.waits_since(self.id, self.job)
    }

    /// After how long a wait it is first for once, unless it was already.
    fn first_after(self) -> Option<Millis> {
        let unspent = self.state.attained.of(self.id).safe_until.is_none();
        self.rules.promote_after.filter(|_| unspent)
    }

    fn group(self) -> OrderGroup {
        let patient = self.now - self.since() >= self.rules.patience;
        OrderGroup { rank: self.rank(), patient, evicted: self.job.past.evictions > 0 }
    }

    fn rank(self) -> Rank {
        let Self { state, rules, id, job, now } = self;
        let first = self.first_after().is_some_and(|after| now - self.since() >= after);
        let served = state.attained.gpu_ms(id, state.ledger.holding(id), now);
        let step = step(state, rules, &job.spec, served);
        Rank { in_line: !first, small: !is_gang(&job.spec, rules), step }
    }

    /// When time alone makes it stand elsewhere.
    fn changes_at(self) -> Option<Timestamp> {
        let moments = [Some(self.rules.patience), self.first_after()];
        moments.into_iter().flatten().map(|after| self.since() + after).filter(|&at| at > self.now).min()
    }
}

/// Where a waiting job stands in the order of its class.
pub fn rank(state: &State, policy: &Policy, id: JobId, job: &Job, now: Timestamp) -> Rank {
    let rules = policy.orders.beyond_age(job.spec.class);
    rules.map_or_else(Rank::default, |rules| WaitingJob { state, rules, id, job, now }.rank())
}

fn is_gang(spec: &Spec, rules: &OrderRules) -> bool {
    attained::minimum_gpus(spec) > u64::from(rules.gang_over)
}

/// What a patient job may ask of longer-served ones. One that is first this once asks as if it was never served.
pub(super) fn order_claim(policy: &Policy, class: Class, group: &OrderGroup) -> Option<OrderClaim> {
    let rules = policy.orders.beyond_age(class).filter(|_| group.patient)?;
    let step = if group.rank.in_line { group.rank.step } else { 0 };
    let margin = match rules.order {
        Order::Age => return None,
        Order::Attained => 1,
        Order::Learned => CLEARLY,
    };
    Some(OrderClaim { above: step + margin, gang: !group.rank.small })
}

/// What makes a job that holds something give way by its order; `None` where its class is served by age.
pub(super) fn ranked(draft: &Draft<'_>, id: JobId, job: &Job, holding: &Holding) -> Option<OrderRank> {
    let (state, now) = (draft.state, draft.now);
    let rules = draft.policy.orders.beyond_age(job.spec.class)?;
    let served = state.attained.gpu_ms(id, Some(holding), now);
    let every = job.spec.checkpoint.map_or(Millis(0), |checkpoint| checkpoint.every);
    let parts: u64 = holding.staying().map(|task| task.place.units().parts()).sum();
    let in_gpu_ms = next_step(state, rules, &job.spec, served).map(|at| at.saturating_sub(served));
    let in_ms = in_gpu_ms.and_then(|left| {
        let floor = run_time(left, parts)?;
        Some(floor.saturating_add(u64::from(attained::gpu_time(floor, parts) < left)))
    });
    Some(OrderRank {
        step: step(state, rules, &job.spec, served),
        level: level(rules, served),
        next_step_at: in_ms.map(|left| now + Millis(left.max(1))),
        served,
        min_run: rules.min_run.max(every),
        safe_until: state.attained.of(id).safe_until,
        gang: is_gang(&job.spec, rules),
    })
}

fn level(rules: &OrderRules, served: u64) -> usize {
    rules.levels.iter().take_while(|bound| bound.0 <= served).count()
}

/// The level of so much service, or the step of the work that is expected after it.
fn step(state: &State, rules: &OrderRules, spec: &Spec, served: u64) -> u32 {
    let level = level(rules, served);
    match expected(state, rules, spec, served) {
        Some(gpu_ms) => half_octaves(gpu_ms),
        // Nothing is known of jobs like it: where others go by expected work, it counts as what its level begins with.
        None if rules.order == Order::Learned => {
            level.checked_sub(1).map_or(0, |level| half_octaves(rules.levels[level].0))
        }
        None => u32::try_from(level).unwrap_or(u32::MAX),
    }
}

/// The work that is expected of a job after so much service, in milliseconds of one GPU.
fn expected(state: &State, rules: &OrderRules, spec: &Spec, served: u64) -> Option<u64> {
    if rules.order != Order::Learned {
        return None;
    }
    let ran = run_time(served, attained::minimum(spec))?;
    let left = spec.estimate.map(|estimate| left_of(estimate, ran));
    let left = left.or_else(|| state.attained.left(spec, rules, ran))?;
    Some(attained::gpu_time(left, attained::minimum(spec)))
}

/// What is left of what its owner thinks. Who goes on beyond that is taken to be half done.
fn left_of(estimate: Millis, ran_ms: u64) -> u64 {
    let left = estimate.0.saturating_sub(ran_ms);
    if left > 0 { left } else { age_floor(ran_ms).max(estimate.0) }
}

/// With how much service a job stands elsewhere.
fn next_step(state: &State, rules: &OrderRules, spec: &Spec, served: u64) -> Option<u64> {
    let minimum = attained::minimum(spec);
    if expected(state, rules, spec, served).is_some() {
        let ran = run_time(served, minimum)?;
        // Less and less is left until the moment its owner thought of: only then it stands further back.
        let estimate = spec.estimate.map(|estimate| estimate.0).filter(|&estimate| estimate > ran);
        return Some(attained::gpu_time(estimate.or_else(|| next_age(ran))?, minimum));
    }
    rules.levels.iter().map(|bound| bound.0).find(|&bound| bound > served)
}

/// GPU seconds in steps of half an octave: 1, 1.4, 2, 2.8, 4, and so on; 0 for less than one.
fn half_octaves(gpu_ms: u64) -> u32 {
    let secs = u128::from(gpu_ms / 1000);
    let Some(octave) = secs.checked_ilog2() else { return 0 };
    let upper_half = secs * secs >= 1 << (2 * octave + 1);
    1 + 2 * octave + u32::from(upper_half)
}

/// How a job stands that has to leave in this plan.
pub(super) fn just_evicted(policy: &Policy, spec: &Spec) -> OrderGroup {
    let small = !is_gang(spec, policy.orders.of(spec.class));
    OrderGroup { rank: Rank { in_line: true, small, step: 0 }, patient: false, evicted: true }
}

/// How many GPUs are kept for newcomers where that alone keeps a waiting job from starting, in every way it could.
pub(crate) fn kept_for_newcomers(state: &State, id: JobId, job: &Job, now: Timestamp) -> Option<u64> {
    let policy = state.tenants.policy();
    let rules = policy.orders.beyond_age(job.spec.class).filter(|_| job.past.evictions > 0)?;
    let group = WaitingJob { state, rules, id, job, now }.group();
    let tree = state.tree(policy);
    let no_shares = tree.zero_each();
    let mut draft = Draft::on(state, policy, &tree, &no_shares, now);
    let key = job.key();
    let below = lines::lower_work(&mut draft, &lines::work_group(&key));
    let mut kept = None;
    for ask in draft.asks().minimum(&key) {
        let pool = takes_landing_room(&draft, &group, &ask, lines::pass(&draft, &ask, &below))?;
        kept.get_or_insert(landing_room(state, rules, pool));
    }
    kept
}

/// The pool of which an ask of a job that was evicted would take the last free GPUs, which are left to newcomers. It
/// holds up neither a guarantee, nor a job of more than one node, nor a job that has waited so long that it is first.
pub(super) fn takes_landing_room(
    draft: &Draft<'_>,
    group: &OrderGroup,
    ask: &Ask<'_>,
    pass: Pass,
) -> Option<PoolId> {
    let free = !group.evicted || !group.rank.in_line || !group.rank.small || pass == Pass::WithinGuarantee;
    let rules = draft.policy.orders.beyond_age(ask.key.class).filter(|_| !free)?;
    // So many GPUs more would leave less than the landing room, and no more than a part of the pool is idle.
    let takes_last = |&(pool, asked): &(PoolId, u64)| {
        let (free, room) = (free_gpus(draft, pool), landing_room(draft.state, rules, pool));
        let all = draft.state.ledger.rooms().capacity_of(pool).gpus;
        asked > 0 && free <= all / LANDING_PART && free.saturating_sub(asked) < room
    };
    asked_by_pool(ask).into_iter().find(takes_last).map(|(pool, _)| pool)
}

/// How many GPUs of a pool are kept from jobs that were evicted.
fn landing_room(state: &State, rules: &OrderRules, pool: PoolId) -> u64 {
    u64::from(rules.landing_room).min(state.ledger.rooms().capacity_of(pool).gpus / LANDING_PART)
}

/// How many GPUs of each pool, rounded up.
fn asked_by_pool(ask: &Ask<'_>) -> BTreeMap<PoolId, u64> {
    let mut parts: BTreeMap<PoolId, u64> = BTreeMap::new();
    for part in ask.parts() {
        *parts.entry(part.pool()).or_default() += part.way.need.units().times(part.tasks).parts();
    }
    parts.into_iter().map(|(pool, parts)| (pool, parts.div_ceil(GpuUnits::WHOLE.parts()))).collect()
}

fn free_gpus(draft: &Draft<'_>, pool: PoolId) -> u64 {
    let on_nodes = |free: u8| {
        let nodes = [Drains::No, Drains::Yes].map(|drains| draft.with_whole_free(pool, drains, free).count());
        u64::from(free) * u64::try_from(nodes.iter().sum::<usize>()).unwrap_or(u64::MAX)
    };
    (1..=u8::try_from(GpuMask::MAX).expect("16 fits")).map(on_nodes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_told_apart_in_half_octaves() {
        let steps: Vec<u32> = [0, 999, 1000, 2000, 3000, 4000, 5000, 6000, 8000].map(half_octaves).into();
        assert_eq!(steps, [0, 0, 1, 3, 4, 5, 5, 6, 7]);
        assert_eq!(half_octaves(u64::MAX), half_octaves(u64::MAX - 1));
    }

    #[test]
    fn clearly_more_is_more_than_twice() {
        for secs in 1..2000u64 {
            let clearly =
                (secs..8000).find(|&more| half_octaves(more * 1000) >= half_octaves(secs * 1000) + CLEARLY);
            assert!(clearly.is_some_and(|more| more > 2 * secs), "{secs}");
        }
    }

    #[test]
    fn by_age_all_stand_alike() {
        let group = OrderGroup { patient: true, ..OrderGroup::default() };
        assert_eq!(order_claim(&Policy::default(), Class::Batch, &group), None);
    }
}
