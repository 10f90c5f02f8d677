//! Who may have to leave, in the order of rule 8.
//!
//! A *unit* is what leaves in one piece: one task of an elastic job beyond its minimum, or all that is left of a job.
//! Units of a tenant are listed once per plan, when they are first asked for.

use crate::quota::meters::Meters;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::model::exit::Exit;
use crate::model::job::Class;
use crate::plan::draft::Draft;
use crate::plan::rank::{OrderRank, ranked};
use crate::state::earmarks::Earmark;
use crate::state::holding::Holding;
use crate::state::jobs::{Job, Phase};
use crate::state::ledger::{Charge, Step, WorkGroup};
use crate::units::{JobId, Millis, TenantId, Timestamp};

/// What leaves in one piece.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    /// Of which job.
    pub job: JobId,
    /// Its tasks.
    pub steps: Vec<Step>,
    /// One task beyond the minimum; else all that is left of the job.
    pub surplus: bool,
    /// Places that were set aside for it; nothing of it runs there.
    pub earmarked: bool,
    /// How it stands in its tenant.
    pub group: WorkGroup,
    /// What it holds, by meter.
    pub amount: Meters,
    /// Work since the last checkpoint.
    pub lost: Millis,
    /// Lost work and restart, in GPU-milliseconds.
    pub cost: u64,
    /// When its attempt began.
    pub started_at: Timestamp,
    /// When it would be over by itself at the latest, where that is known.
    pub ends_at: Option<Timestamp>,
    /// How long it has to save its work.
    pub grace: Millis,
    /// Evicted too often of late.
    pub spent: bool,
    /// For whom it was evicted of late.
    pub evicted_for: Vec<JobId>,
    /// When the first of that is forgotten.
    pub window_ends: Option<Timestamp>,
    /// When it saves its work next.
    pub checkpoint_at: Option<Timestamp>,
    /// What makes it give way by the order of its class, where that is not by age.
    pub order: Option<OrderRank>,
}

impl Unit {
    /// The GPUs it holds, in 1/3000.
    pub(crate) fn parts(&self) -> u64 {
        let held = |step: &Step| step.place.units_each.times(step.place.gpus.count()).parts();
        self.steps.iter().map(held).sum()
    }
}

/// A unit by its place in the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnitRef {
    /// Whose.
    pub tenant: TenantId,
    /// Where in the tenant's list.
    pub at: usize,
}

/// The units of every tenant that was asked for.
#[derive(Default)]
pub(crate) struct Victims {
    lists: BTreeMap<TenantId, VictimList>,
    /// Jobs of a tenant and class that stand somewhere in its order, without what they hold.
    in_order: BTreeMap<(TenantId, Class), Vec<Unit>>,
    /// Tenants with something that might leave, there or below.
    any: Option<Vec<bool>>,
}

#[derive(Default)]
struct VictimList {
    units: Vec<Unit>,
    taken: Vec<bool>,
    /// Everything before it is taken.
    first: usize,
    /// Where the surplus tasks of a job are listed.
    surplus: BTreeMap<JobId, Vec<usize>>,
    /// Those that stand somewhere in the order of their class: rule 8, but for the highest level and then the widest first.
    by_service: Vec<usize>,
}

impl Victims {
    /// True when the tenant or somebody below it has work that might leave.
    pub(crate) fn any_below(&mut self, draft: &Draft<'_>, tenant: TenantId) -> bool {
        let any = self.any.get_or_insert_with(|| {
            let mut any = alloc::vec![false; draft.tree.lines.len()];
            for tenant in draft.state.tenants.ids() {
                if draft.state.ledger.work_groups(tenant).any(|(group, _)| group.preemptible) {
                    draft.tree.lineage(tenant).for_each(|above| any[above.index()] = true);
                }
            }
            for (job, _) in draft.state.earmarks.iter() {
                let tenant = draft.state.jobs.get(job).expect("an earmark belongs to a live job").spec.tenant;
                draft.tree.lineage(tenant).for_each(|above| any[above.index()] = true);
            }
            any
        });
        any[tenant.index()]
    }

    /// A unit.
    pub(crate) fn get(&self, unit: UnitRef) -> &Unit {
        &self.lists[&unit.tenant].units[unit.at]
    }

    /// The first untaken unit at or after a place in the list.
    pub(crate) fn next_untaken(
        &mut self,
        draft: &Draft<'_>,
        tenant: TenantId,
        from: usize,
    ) -> Option<UnitRef> {
        let list = self.lists.entry(tenant).or_insert_with(|| VictimList::of(draft, tenant));
        let at = (from.max(list.first)..list.units.len()).find(|&at| !list.taken[at])?;
        Some(UnitRef { tenant, at })
    }

    /// The jobs of a tenant and class that stand somewhere in its order, whole and without what they hold: once listed.
    pub(crate) fn in_order(&self, tenant: TenantId, class: Class) -> &[Unit] {
        self.in_order.get(&(tenant, class)).map_or(&[], Vec::as_slice)
    }

    /// Lists them.
    pub(crate) fn list_in_order(&mut self, draft: &Draft<'_>, tenant: TenantId, class: Class) {
        self.in_order.entry((tenant, class)).or_insert_with(|| {
            let (jobs, ledger) = (&draft.state.jobs, &draft.state.ledger);
            let work_groups = ledger.work_groups(tenant);
            let alike = work_groups.filter(|(group, _)| group.preemptible && group.class == class);
            let unit = |&(_, id): &(Timestamp, JobId)| {
                let job = jobs.get(id).filter(|job| job.spec.booking.is_none())?;
                let holding = ledger.holding(id)?;
                Some(whole_unit(draft, id, job, holding, ledger.charge(id)?))
            };
            alike.flat_map(|(_, jobs)| jobs).filter_map(unit).collect()
        });
    }

    /// How many units of a tenant stand somewhere in the order of their class.
    pub(crate) fn ordered_len(&mut self, draft: &Draft<'_>, tenant: TenantId) -> usize {
        self.lists.entry(tenant).or_insert_with(|| VictimList::of(draft, tenant)).by_service.len()
    }

    /// One of those, in that order; `None` where it is taken.
    pub(crate) fn untaken_by_service(&self, tenant: TenantId, number: usize) -> Option<UnitRef> {
        let list = &self.lists[&tenant];
        let at = *list.by_service.get(number)?;
        (!list.taken[at]).then_some(UnitRef { tenant, at })
    }

    /// Every unit of a tenant that is not taken, with what it holds.
    pub(crate) fn untaken(
        &mut self,
        draft: &Draft<'_>,
        tenant: TenantId,
    ) -> impl Iterator<Item = (UnitRef, &Unit)> {
        let list = self.lists.entry(tenant).or_insert_with(|| VictimList::of(draft, tenant));
        let units = list.units.iter().enumerate().filter(|&(at, _)| !list.taken[at]);
        units.map(move |(at, unit)| (UnitRef { tenant, at }, unit))
    }

    /// True when it has to leave.
    pub(crate) fn is_taken(&self, unit: UnitRef) -> bool {
        self.lists[&unit.tenant].taken[unit.at]
    }

    /// It has to leave.
    pub(crate) fn take(&mut self, unit: UnitRef) {
        let list = self.lists.get_mut(&unit.tenant).expect("a unit is of a listed tenant");
        list.taken[unit.at] = true;
        while list.taken.get(list.first) == Some(&true) {
            list.first += 1;
        }
    }

    /// All of a job leaves for another reason: nothing of it is left to take.
    pub(crate) fn take_job(&mut self, draft: &Draft<'_>, tenant: TenantId, job: JobId) {
        let list = self.lists.entry(tenant).or_insert_with(|| VictimList::of(draft, tenant));
        for (unit, taken) in list.units.iter().zip(&mut list.taken) {
            *taken |= unit.job == job;
        }
        while list.taken.get(list.first) == Some(&true) {
            list.first += 1;
        }
    }

    /// It stays.
    pub(crate) fn spare(&mut self, unit: UnitRef) {
        let list = self.lists.get_mut(&unit.tenant).expect("a unit is of a listed tenant");
        list.taken[unit.at] = false;
        list.first = list.first.min(unit.at);
    }

    /// Surplus tasks of the same job that are not taken.
    pub(crate) fn surplus_of(&self, unit: UnitRef) -> Vec<UnitRef> {
        let list = &self.lists[&unit.tenant];
        let surplus = list.surplus.get(&list.units[unit.at].job).into_iter().flatten();
        let untaken = surplus.filter(|&&at| !list.taken[at]);
        untaken.map(|&at| UnitRef { tenant: unit.tenant, at }).collect()
    }
}

impl VictimList {
    fn of(draft: &Draft<'_>, tenant: TenantId) -> Self {
        let mut units = Vec::new();
        for (group, jobs) in draft.state.ledger.work_groups(tenant).filter(|(group, _)| group.preemptible) {
            for &(_, job) in jobs {
                add_units(draft, group, job, &mut units);
            }
        }
        for (job, earmark) in draft.state.earmarks.iter() {
            units.extend(earmarked_unit(draft, tenant, job, earmark));
        }
        units.sort_by_cached_key(|(submitted_at, unit)| {
            let task = unit.steps.first().map(|step| step.place.task);
            let (group, newest) = (unit.group, Reverse((*submitted_at, unit.job)));
            // Of those who cost the same, the longest served; by age alone that is known of nobody.
            let longest_served = Reverse(unit.order.map_or(0, |order| order.served));
            let small = (!unit.surplus, unit.cost, longest_served);
            (Reverse(group.class), group.priority, small, newest, Reverse(task))
        });
        let units: Vec<Unit> = units.into_iter().map(|(_, unit)| unit).collect();
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
        Self { taken: alloc::vec![false; units.len()], units, first: 0, surplus, by_service }
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
    let state = draft.state;
    let charge = state.ledger.charge(id).filter(|charge| charge.group.preemptible)?;
    let (job, holding) = (state.jobs.get(id)?, state.ledger.holding(id)?);
    if job.spec.booking.is_some() {
        return None;
    }
    let steps: Vec<Step> = holding.staying().map(|task| charge.step(task.place)).collect();
    let whole = whole_unit(draft, id, job, holding, charge);
    (!steps.is_empty()).then(|| priced(draft, &whole, job, steps, false))
}

/// What it costs that a job leaves now, whoever takes it: work since the last checkpoint, and GPU-milliseconds.
pub(crate) fn cost_of(draft: &Draft<'_>, id: JobId) -> Option<(Millis, u64)> {
    let state = draft.state;
    let (job, holding, charge) = (state.jobs.get(id)?, state.ledger.holding(id)?, state.ledger.charge(id)?);
    let steps: Vec<Step> = holding.staying().map(|task| charge.step(task.place)).collect();
    let unit = priced(draft, &whole_unit(draft, id, job, holding, charge), job, steps, false);
    Some((unit.lost, unit.cost))
}

/// The same of some of its tasks alone, each by its own age; the work that is lost is their mean.
pub(crate) fn cost_of_tasks(draft: &Draft<'_>, id: JobId, tasks: &[u32]) -> Option<(Millis, u64)> {
    let state = draft.state;
    let (job, holding, charge) = (state.jobs.get(id)?, state.ledger.holding(id)?, state.ledger.charge(id)?);
    let whole = whole_unit(draft, id, job, holding, charge);
    let (mut lost, mut cost) = (0u64, 0u64);
    for task in tasks.iter().filter_map(|&task| holding.task(task)) {
        let unit = younger(draft, &whole, holding, charge, task.place.task);
        let unit = priced(draft, &unit, job, alloc::vec![charge.step(task.place)], true);
        lost = lost.saturating_add(unit.lost.0);
        cost = cost.saturating_add(unit.cost);
    }
    let count = u64::try_from(tasks.len()).unwrap_or(u64::MAX).max(1);
    Some((Millis(lost / count), cost))
}

/// Places that were set aside for a job of the tenant: nobody runs there, so letting go of them costs nothing.
fn earmarked_unit(
    draft: &Draft<'_>,
    tenant: TenantId,
    id: JobId,
    earmark: &Earmark,
) -> Option<(Timestamp, Unit)> {
    let job = draft.state.jobs.get(id).filter(|job| job.spec.tenant == tenant && job.spec.preemptible)?;
    if job.spec.booking.is_some() {
        return None;
    }
    // Who is being moved runs, and was told that it has a place to go.
    if matches!(job.phase, Phase::Leaving(_)) {
        return None;
    }
    let charge = Charge::of(job);
    let unit = Unit {
        job: id,
        steps: earmark.tasks.iter().map(|&place| charge.step(place)).collect(),
        surplus: job.phase == Phase::Active,
        earmarked: true,
        group: charge.group,
        amount: draft.tree.charge_of(|task| charge.resources_of(task), earmark.tasks.iter()),
        lost: Millis(0),
        cost: 0,
        started_at: earmark.at,
        ends_at: None,
        grace: Millis(0),
        spent: false,
        evicted_for: Vec::new(),
        window_ends: None,
        checkpoint_at: None,
        order: None,
    };
    Some((job.submitted_at, unit))
}

/// The units of one job: its tasks beyond the minimum, the last first, and the rest in one piece.
fn add_units(draft: &Draft<'_>, group: WorkGroup, id: JobId, units: &mut Vec<(Timestamp, Unit)>) {
    let state = draft.state;
    let job = state.jobs.get(id).expect("what is held belongs to a live job");
    // Nobody takes from a booked window.
    if job.spec.booking.is_some() {
        return;
    }
    let holding = state.ledger.holding(id).expect("who stands holds something");
    let charge = state.ledger.charge(id).expect("who holds something is charged");
    let mut steps: Vec<Step> = holding.staying().map(|task| charge.step(task.place)).collect();
    if job.spec.has_groups() {
        return add_units_of_groups(draft, group, id, &steps, units);
    }
    let done = holding.exits(Exit::Succeeded);
    let min = usize::try_from(job.spec.min).expect("a u32 fits a usize");
    let surplus = (steps.len() + done).saturating_sub(min.max(1));
    let whole = Unit { group, ..whole_unit(draft, id, job, holding, charge) };
    for _ in 0..surplus {
        let Some(step) = steps.pop() else { break };
        let unit = younger(draft, &whole, holding, charge, step.place.task);
        units.push((job.submitted_at, priced(draft, &unit, job, alloc::vec![step], true)));
    }
    if !steps.is_empty() {
        units.push((job.submitted_at, priced(draft, &whole, job, steps, false)));
    }
}

/// The same of a job with groups: tasks beyond the minimum of a copy, whole copies beyond those that must stand.
fn add_units_of_groups(
    draft: &Draft<'_>,
    group: WorkGroup,
    id: JobId,
    steps: &[Step],
    units: &mut Vec<(Timestamp, Unit)>,
) {
    let state = draft.state;
    let job = state.jobs.get(id).expect("what is held belongs to a live job");
    let holding = state.ledger.holding(id).expect("who stands holds something");
    let charge = state.ledger.charge(id).expect("who holds something is charged");
    let staying: Vec<u32> = steps.iter().map(|step| step.place.task).collect();
    let done: Vec<u32> = holding.done().collect();
    let (pieces, rest) = job.spec.surplus(&staying, &done);
    let whole = Unit { group, ..whole_unit(draft, id, job, holding, charge) };
    let of = |tasks: &[u32]| -> Vec<Step> {
        steps.iter().filter(|step| tasks.contains(&step.place.task)).copied().collect()
    };
    for piece in pieces {
        let Some(&oldest) = piece.first() else { continue };
        let unit = younger(draft, &whole, holding, charge, oldest);
        units.push((job.submitted_at, priced(draft, &unit, job, of(&piece), true)));
    }
    if !rest.is_empty() {
        units.push((job.submitted_at, priced(draft, &whole, job, of(&rest), false)));
    }
}

fn whole_unit(draft: &Draft<'_>, id: JobId, job: &Job, holding: &Holding, charge: &Charge) -> Unit {
    let rules = &draft.policy.preemption;
    let since = holding.since().unwrap_or(draft.now);
    let ran = draft.now - since;
    let lost = charge.checkpoint.map_or(ran, |checkpoint| checkpoint.lost(ran));
    let lately = job.past.evicted.iter().filter(|&&(at, _)| draft.now < at + rules.eviction_window);
    let often = u32::try_from(lately.clone().count()).unwrap_or(u32::MAX);
    Unit {
        job: id,
        steps: Vec::new(),
        surplus: false,
        earmarked: false,
        group: charge.group,
        amount: Meters::default(),
        lost,
        cost: 0,
        started_at: holding.at,
        ends_at: draft.state.end_of(id, draft.policy, draft.now).known(),
        grace: charge.group.grace,
        spent: often >= rules.evictions_max,
        evicted_for: lately.clone().map(|&(_, beneficiary)| beneficiary).collect(),
        window_ends: lately.map(|&(at, _)| at + rules.eviction_window).min(),
        checkpoint_at: charge
            .checkpoint
            .filter(|checkpoint| !checkpoint.on_request)
            .map(|checkpoint| draft.now + Millis(checkpoint.every.0 - lost.0.min(checkpoint.every.0))),
        order: ranked(draft, id, job, holding),
    }
}

/// A task that joined later has less to lose, and its own minimum runtime.
fn younger(draft: &Draft<'_>, whole: &Unit, holding: &Holding, charge: &Charge, task: u32) -> Unit {
    let held = holding.task(task).expect("a unit is made of held tasks");
    let ran = held.since.map_or(Millis(0), |since| draft.now - since);
    let lost = charge.checkpoint.map_or(ran, |checkpoint| checkpoint.lost(ran));
    let started_at = if held.bound_at.0 == 0 { holding.at } else { held.bound_at };
    Unit { lost, started_at, ..whole.clone() }
}

fn priced(draft: &Draft<'_>, whole: &Unit, job: &Job, steps: Vec<Step>, surplus: bool) -> Unit {
    let places = steps.iter().map(|step| &step.place);
    let amount = draft.tree.charge_of(|task| job.spec.resources_of(task), places);
    let unit = Unit { steps, surplus, amount, ..whole.clone() };
    let millis = whole.lost.0.saturating_add(draft.policy.preemption.restart.0);
    let cost = u64::try_from(u128::from(millis) * u128::from(unit.parts()) / 3000).unwrap_or(u64::MAX);
    Unit { cost, ..unit }
}
