//! Units that may have to leave, in the order of rule 8.
//!
//! A *unit* is what leaves in one piece: one task of an elastic job beyond its minimum, a whole copy of a group beyond
//! those that must stand, or all that is left of a job. Units of a tenant are listed once per plan, when they are first
//! asked for.

use crate::quota::meters::Meters;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::model::exit::Exit;
use crate::model::job::Class;
use crate::plan::draft::Draft;
use crate::plan::place::{Ask, Fit};
use crate::plan::rank::{OrderRank, ranked};
use crate::state::State;
use crate::state::earmarks::Earmark;
use crate::state::holding::Holding;
use crate::state::jobs::{Job, Phase};
use crate::state::ledger::{Charge, Step, WorkGroup};
use crate::units::{JobId, Millis, NodeId, TenantId, Timestamp};

/// What leaves in one piece.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    pub job: JobId,
    pub steps: Vec<Step>,
    /// It is beyond the minimum; else it is all that is left of the job.
    pub surplus: bool,
    /// It is an earmark: nothing of the job runs there.
    pub earmarked: bool,
    pub group: WorkGroup,
    pub amount: Meters,
    /// Work since the last checkpoint.
    pub lost: Millis,
    /// Lost work and restart, in GPU-milliseconds.
    pub cost: u64,
    submitted_at: Timestamp,
    pub started_at: Timestamp,
    /// When it would be over by itself at the latest, where that is known.
    pub ends_at: Option<Timestamp>,
    /// Evicted too often of late.
    pub spent: bool,
    /// Jobs that it was evicted for of late.
    pub evicted_for: Vec<JobId>,
    /// When the first of that is forgotten.
    pub window_ends: Option<Timestamp>,
    pub next_checkpoint_at: Option<Timestamp>,
    /// What makes it give way by the order of its class, where that is not by age.
    pub order: Option<OrderRank>,
}

impl Unit {
    /// The GPUs it holds, in 1/3000.
    pub(crate) fn parts(&self) -> u64 {
        self.steps.iter().map(|step| step.place.units().parts()).sum()
    }

    /// Evicts or spares it on a draft, and counts how much of an ask fits then.
    pub(crate) fn change<'d>(
        &self,
        draft: &mut Draft<'d>,
        (ask, fit): (&Ask<'_>, &mut Fit),
        change: fn(&mut Draft<'d>, &Self),
    ) {
        let mut nodes: Vec<NodeId> = self.steps.iter().map(|step| step.place.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        for &node in &nodes {
            fit.add(draft, ask, node, false);
        }
        change(draft, self);
        for &node in &nodes {
            fit.add(draft, ask, node, true);
        }
    }
}

/// A unit by its place in the list of its tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnitRef {
    pub tenant: TenantId,
    pub at: usize,
}

/// The units of every tenant that was asked for, and which of them have to leave.
#[derive(Default)]
pub(crate) struct Victims {
    lists: BTreeMap<TenantId, VictimList>,
    /// Jobs of a tenant and class that stand somewhere in its order, without what they hold.
    in_order: BTreeMap<(TenantId, Class), Vec<Unit>>,
    /// Tenants with something that might leave, there or below.
    any: Option<Vec<bool>>,
}

struct VictimList {
    units: Vec<Unit>,
    evicted: Vec<bool>,
    /// Everything before it is evicted.
    first: usize,
    /// Where the surplus units of a job are listed.
    surplus: BTreeMap<JobId, Vec<usize>>,
    /// Those that stand somewhere in the order of their class: as in rule 8, but the highest level and then the widest first.
    by_service: Rc<[usize]>,
}

impl Victims {
    /// True when the tenant or somebody below it has work that might leave.
    pub(crate) fn any_below(&mut self, draft: &Draft<'_>, tenant: TenantId) -> bool {
        let any = self.any.get_or_insert_with(|| {
            let state = draft.state;
            let holds =
                |tenant: &TenantId| state.ledger.work_groups(*tenant).any(|(group, _)| group.preemptible);
            let live = |job| state.jobs.get(job).expect("an earmark belongs to a live job");
            let earmarked = state.earmarks.iter().map(|(job, _)| live(job).spec.tenant);
            let mut any = alloc::vec![false; draft.tree.lines.len()];
            for tenant in state.tenants.ids().filter(holds).chain(earmarked) {
                draft.tree.lineage(tenant).for_each(|above| any[above.index()] = true);
            }
            any
        });
        any[tenant.index()]
    }

    pub(crate) fn get(&self, unit: UnitRef) -> &Unit {
        &self.lists[&unit.tenant].units[unit.at]
    }

    fn list(&mut self, draft: &Draft<'_>, tenant: TenantId) -> &mut VictimList {
        self.lists.entry(tenant).or_insert_with(|| VictimList::of(draft, tenant))
    }

    fn listed(&mut self, unit: UnitRef) -> &mut VictimList {
        self.lists.get_mut(&unit.tenant).expect("a unit is of a listed tenant")
    }

    /// The first unit at or after a place in the list that is not evicted.
    pub(crate) fn next_staying(
        &mut self,
        draft: &Draft<'_>,
        tenant: TenantId,
        from: usize,
    ) -> Option<UnitRef> {
        let list = self.list(draft, tenant);
        let at = (from.max(list.first)..list.units.len()).find(|&at| !list.evicted[at])?;
        Some(UnitRef { tenant, at })
    }

    /// The jobs of a tenant and class that stand somewhere in its order, whole and without what they hold.
    pub(crate) fn in_order(&mut self, draft: &Draft<'_>, tenant: TenantId, class: Class) -> &[Unit] {
        self.in_order.entry((tenant, class)).or_insert_with(|| {
            let work_groups = draft.state.ledger.work_groups(tenant);
            let alike = work_groups.filter(|(group, _)| group.preemptible && group.class == class);
            let running =
                alike.flat_map(|(_, jobs)| jobs).filter_map(|&(_, job)| HeldJob::of(draft.state, job));
            running.filter(HeldJob::may_be_evicted).map(|held| held.whole(draft)).collect()
        })
    }

    /// Where units of a tenant are listed that stand somewhere in the order of their class, in that order.
    pub(crate) fn by_service(&mut self, draft: &Draft<'_>, tenant: TenantId) -> Rc<[usize]> {
        Rc::clone(&self.list(draft, tenant).by_service)
    }

    pub(crate) fn is_evicted(&self, unit: UnitRef) -> bool {
        self.lists[&unit.tenant].evicted[unit.at]
    }

    pub(crate) fn evict(&mut self, unit: UnitRef) {
        let list = self.listed(unit);
        list.evicted[unit.at] = true;
        list.skip_evicted();
    }

    /// All of a job leaves for another reason: nothing of it is left to evict.
    pub(crate) fn evict_job(&mut self, draft: &Draft<'_>, tenant: TenantId, job: JobId) {
        let list = self.list(draft, tenant);
        for (unit, evicted) in list.units.iter().zip(&mut list.evicted) {
            *evicted |= unit.job == job;
        }
        list.skip_evicted();
    }

    pub(crate) fn spare(&mut self, unit: UnitRef) {
        let list = self.listed(unit);
        list.evicted[unit.at] = false;
        list.first = list.first.min(unit.at);
    }

    /// What leaves when a unit does: of a gang, first the surplus of its job that still stays.
    pub(crate) fn leaving_with(&self, unit: UnitRef) -> impl Iterator<Item = UnitRef> {
        let list = &self.lists[&unit.tenant];
        let Unit { job, surplus, .. } = list.units[unit.at];
        let beside = if surplus { None } else { list.surplus.get(&job) };
        let staying = beside.into_iter().flatten().filter(|&&at| !list.evicted[at]);
        staying.map(move |&at| UnitRef { at, ..unit }).chain([unit])
    }
}

impl VictimList {
    fn of(draft: &Draft<'_>, tenant: TenantId) -> Self {
        let mut units = Vec::new();
        let groups = draft.state.ledger.work_groups(tenant).filter(|(group, _)| group.preemptible);
        for &(_, job) in groups.flat_map(|(_, jobs)| jobs) {
            let held = HeldJob::of(draft.state, job).expect("a job that stays is live and holds something");
            held.add_units(draft, &mut units);
        }
        for (job, earmark) in draft.state.earmarks.iter() {
            units.extend(earmarked_unit(draft, tenant, job, earmark));
        }
        units.sort_by_cached_key(|unit: &Unit| {
            let task = unit.steps.first().map(|step| step.place.task);
            let (group, newest) = (unit.group, Reverse((unit.submitted_at, unit.job)));
            // Of those that cost the same, the longest served; by age alone that is known of nobody.
            let longest_served = Reverse(unit.order.map_or(0, |order| order.served));
            let small = (!unit.surplus, unit.cost, longest_served);
            (Reverse(group.class), group.priority, small, newest, Reverse(task))
        });
        let mut surplus: BTreeMap<JobId, Vec<usize>> = BTreeMap::new();
        for (at, unit) in units.iter().enumerate().filter(|(_, unit)| unit.surplus) {
            surplus.entry(unit.job).or_default().push(at);
        }
        let mut by_service: Vec<usize> = (0..units.len()).filter(|&at| units[at].order.is_some()).collect();
        // One wide job that waits makes room for many narrow ones.
        by_service.sort_by_cached_key(|&at| {
            let unit = &units[at];
            let level = unit.order.map(|order| order.level);
            let widest = (!unit.surplus, Reverse(level), Reverse(unit.parts()), unit.cost);
            (Reverse(unit.group.class), unit.group.priority, widest)
        });
        Self {
            evicted: alloc::vec![false; units.len()],
            units,
            first: 0,
            surplus,
            by_service: by_service.into(),
        }
    }

    fn skip_evicted(&mut self) {
        while self.evicted.get(self.first) == Some(&true) {
            self.first += 1;
        }
    }
}

/// A job that may be moved, in one piece; `None` when it may not, or is not all there: a gang that waits for repair, or
/// of which tasks have finished, would start again with less than its minimum.
pub(crate) fn whole_job(draft: &Draft<'_>, id: JobId) -> Option<Unit> {
    let (job, holding) = (draft.state.jobs.get(id)?, draft.state.ledger.holding(id)?);
    let staying = holding.staying().count();
    let broken = job.spec.is_broken_with(holding.staying().map(|task| task.place.task));
    let settled = staying > 0 && !broken && staying == holding.holding_tasks().len();
    if settled { rest_of_job(draft, id) } else { None }
}

/// All that is left of a job that may be evicted, in one piece.
pub(crate) fn rest_of_job(draft: &Draft<'_>, id: JobId) -> Option<Unit> {
    let held = HeldJob::of(draft.state, id).filter(HeldJob::may_be_evicted)?;
    Some(held.rest(draft)).filter(|unit| !unit.steps.is_empty())
}

/// All that is left of a job, in one piece, whether it may be evicted or not.
pub(crate) fn all_of_job(draft: &Draft<'_>, id: JobId) -> Option<Unit> {
    Some(HeldJob::of(draft.state, id)?.rest(draft))
}

/// The mean of the work that some tasks of a job lose when they leave now, each by its own age, and their cost together.
pub(crate) fn cost_of_tasks(draft: &Draft<'_>, id: JobId, tasks: &[u32]) -> Option<(Millis, u64)> {
    let held = HeldJob::of(draft.state, id)?;
    let whole = held.whole(draft);
    let (mut lost, mut cost) = (0u64, 0u64);
    for task in tasks.iter().filter_map(|&task| held.holding.task(task)) {
        let unit = held.surplus(draft, &whole, alloc::vec![held.charge.step(task.place)]);
        lost = lost.saturating_add(unit.lost.0);
        cost = cost.saturating_add(unit.cost);
    }
    let count = u64::try_from(tasks.len()).unwrap_or(u64::MAX).max(1);
    Some((Millis(lost / count), cost))
}

/// An earmark of a job of the tenant: nobody runs there, so letting go of it costs nothing.
fn earmarked_unit(draft: &Draft<'_>, tenant: TenantId, id: JobId, earmark: &Earmark) -> Option<Unit> {
    let job = draft.state.jobs.get(id).filter(|job| job.spec.tenant == tenant && job.spec.preemptible)?;
    // A job that is being moved runs, and was told that it has a place to go.
    if job.spec.booking.is_some() || matches!(job.phase, Phase::Leaving(_)) {
        return None;
    }
    let charge = Charge::of(job);
    Some(Unit {
        job: id,
        steps: earmark.tasks.iter().map(|&place| charge.step(place)).collect(),
        surplus: job.phase == Phase::Active,
        earmarked: true,
        group: charge.group,
        amount: draft.tree.charge_of(|task| charge.resources_of(task), earmark.tasks.iter()),
        lost: Millis(0),
        cost: 0,
        submitted_at: job.submitted_at,
        started_at: earmark.at,
        ends_at: None,
        spent: false,
        evicted_for: Vec::new(),
        window_ends: None,
        next_checkpoint_at: None,
        order: None,
    })
}

/// A job that holds something, of which units are made.
struct HeldJob<'s> {
    id: JobId,
    job: &'s Job,
    holding: &'s Holding,
    charge: &'s Charge,
}

impl<'s> HeldJob<'s> {
    fn of(state: &'s State, id: JobId) -> Option<Self> {
        let (job, holding) = (state.jobs.get(id)?, state.ledger.holding(id)?);
        Some(Self { id, job, holding, charge: state.ledger.charge(id)? })
    }

    /// Nobody evicts jobs of a booked window.
    fn may_be_evicted(&self) -> bool {
        self.charge.group.preemptible && self.job.spec.booking.is_none()
    }

    fn steps(&self) -> Vec<Step> {
        self.holding.staying().map(|task| self.charge.step(task.place)).collect()
    }

    /// The units of the job: what is beyond its minimum, the last tasks first, and the rest in one piece.
    fn add_units(&self, draft: &Draft<'_>, units: &mut Vec<Unit>) {
        if !self.may_be_evicted() {
            return;
        }
        let (pieces, rest) = self.surplus_and_rest();
        let whole = self.whole(draft);
        units.extend(pieces.into_iter().map(|piece| self.surplus(draft, &whole, piece)));
        if !rest.is_empty() {
            units.push(self.priced(draft, whole, rest));
        }
    }

    /// What is beyond the minimum: single tasks and, of a job with groups, whole copies; and the rest.
    fn surplus_and_rest(&self) -> (Vec<Vec<Step>>, Vec<Step>) {
        let (spec, mut steps) = (&self.job.spec, self.steps());
        if !spec.has_groups() {
            let min = usize::try_from(spec.min).expect("a u32 fits a usize").max(1);
            let surplus = (steps.len() + self.holding.exits(Exit::Succeeded)).saturating_sub(min);
            let rest = steps.len().saturating_sub(surplus);
            let pieces = steps.split_off(rest).into_iter().rev().map(|step| alloc::vec![step]);
            return (pieces.collect(), steps);
        }
        let staying: Vec<u32> = steps.iter().map(|step| step.place.task).collect();
        let done: Vec<u32> = self.holding.done().collect();
        let (pieces, rest) = spec.surplus(&staying, &done);
        let of = |tasks: &[u32]| -> Vec<Step> {
            steps.iter().filter(|step| tasks.contains(&step.place.task)).copied().collect()
        };
        (pieces.iter().map(|piece| of(piece)).collect(), of(&rest))
    }

    fn rest(&self, draft: &Draft<'_>) -> Unit {
        self.priced(draft, self.whole(draft), self.steps())
    }

    /// The job without what it holds.
    fn whole(&self, draft: &Draft<'_>) -> Unit {
        let Self { id, job, holding, charge } = *self;
        let (rules, now) = (&draft.policy.preemption, draft.now);
        let lost = self.lost(now - holding.since().unwrap_or(now));
        let lately = job.past.evicted.iter().filter(|&&(at, _)| now < at + rules.eviction_window);
        let often = u32::try_from(lately.clone().count()).unwrap_or(u32::MAX);
        let by_itself = charge.checkpoint.filter(|checkpoint| !checkpoint.on_request);
        Unit {
            job: id,
            steps: Vec::new(),
            surplus: false,
            earmarked: false,
            group: charge.group,
            amount: Meters::default(),
            lost,
            cost: 0,
            submitted_at: job.submitted_at,
            started_at: holding.at,
            ends_at: draft.state.end_of(id, draft.policy, now).known(),
            spent: often >= rules.evictions_max,
            evicted_for: lately.clone().map(|&(_, beneficiary)| beneficiary).collect(),
            window_ends: lately.map(|&(at, _)| at + rules.eviction_window).min(),
            next_checkpoint_at: by_itself
                .map(|checkpoint| now + Millis(checkpoint.every.0 - lost.0.min(checkpoint.every.0))),
            order: ranked(draft, id, job, holding),
        }
    }

    /// A piece of the job's surplus. A task that joined later has less to lose, and its own minimum runtime.
    fn surplus(&self, draft: &Draft<'_>, whole: &Unit, piece: Vec<Step>) -> Unit {
        let oldest = piece.first().and_then(|step| self.holding.task(step.place.task));
        let held = oldest.expect("a unit is made of held tasks");
        let lost = self.lost(held.since.map_or(Millis(0), |since| draft.now - since));
        let started_at = if held.bound_at.0 == 0 { self.holding.at } else { held.bound_at };
        let surplus = Unit { lost, started_at, surplus: true, ..whole.clone() };
        self.priced(draft, surplus, piece)
    }

    fn lost(&self, ran: Millis) -> Millis {
        self.charge.checkpoint.map_or(ran, |checkpoint| checkpoint.lost(ran))
    }

    fn priced(&self, draft: &Draft<'_>, unit: Unit, steps: Vec<Step>) -> Unit {
        let places = steps.iter().map(|step| &step.place);
        let amount = draft.tree.charge_of(|task| self.job.spec.resources_of(task), places);
        let unit = Unit { steps, amount, ..unit };
        let millis = unit.lost.0.saturating_add(draft.policy.preemption.restart.0);
        let cost = u64::try_from(u128::from(millis) * u128::from(unit.parts()) / 3000).unwrap_or(u64::MAX);
        Unit { cost, ..unit }
    }
}
