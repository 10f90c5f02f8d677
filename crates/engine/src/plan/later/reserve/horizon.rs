//! What is free when: until when each place is held, and where an ask would fit as one task after the other is over.
//!
//! Worked example: a node of 8 GPUs has a job of 4 that ends in an hour, and one of 4 that ends in two. For a task of 4 it
//! has one *slot* in an hour and another in two; for a task of 8 it has one, in two hours. A gang of so many tasks starts
//! when so many slots are there: no order of evictions has to be tried for that, and each node is looked at by itself.

use crate::quota::meters::Meters;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::Rc;
use alloc::vec::Vec;

use super::holders::holders;
use super::promise::StartPromiser;
use super::{held_amount, held_steps, is_over_by};
use crate::model::need::Need;
use crate::model::placement::Placement;
use crate::plan::draft::Draft;
use crate::plan::later::kept::KeptPlaces;
use crate::plan::lines;
use crate::plan::place::{Ask, place_on, tasks_that_fit};
use crate::state::State;
use crate::state::ends::{Departure, departure, latest_if_placed};
use crate::state::jobs::Phase;
use crate::state::ledger::{Charge, Step, WorkGroup};
use crate::state::reservations::Reservation;
use crate::state::rooms::Room;
use crate::units::{JobId, Millis, NodeId, PoolId, Resources, TenantId, Timestamp, TrustId};

/// That a task is gone, and that another may begin, is noticed within so long, or it is an overrun.
const NOTICED_WITHIN: Millis = Millis::from_secs(60);

/// So many moments are tried at which each group of a job would fit by itself.
const TOGETHER_MAX: u32 = 16;

/// What is free when, as far as a plan has asked.
#[derive(Default)]
pub(in crate::plan) struct Horizon {
    nodes: BTreeMap<NodeId, NodeHolds>,
    /// Earmarked places, by node, once somebody asked.
    earmarked: Option<BTreeMap<NodeId, Vec<HeldPlace>>>,
    tenants: BTreeMap<TenantId, Vec<TenantHold>>,
    /// Slots of whole pools, as long as no promise changes.
    pools: Vec<(SlotKey, Rc<[Slot]>)>,
}

struct NodeHolds {
    staying: Vec<HeldPlace>,
    /// When the tasks that were told to leave are gone at the latest.
    clear_at: Timestamp,
    /// The same even if those stay whose ask may be withdrawn because their place is not needed any more; `None` where that is
    /// unknown.
    surely_clear_at: Option<Timestamp>,
}

/// A place that somebody holds.
#[derive(Clone, Copy)]
pub(super) struct HeldPlace {
    pub(super) job: JobId,
    pub(super) step: Step,
    /// When that is over at the latest, where it is known.
    pub(super) end: Option<Timestamp>,
}

struct TenantHold {
    job: JobId,
    group: WorkGroup,
    end: Option<Timestamp>,
    amount: Meters,
}

/// So many tasks of an ask fit a node from then on, beside those that fit before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    pub(super) at: Timestamp,
    pub(super) node: NodeId,
    /// Of which part of the ask.
    pub(super) part: usize,
    pub(super) tasks: u32,
}

/// What slots depend on: beside the pool what a task needs, and whether on one island.
type SlotKey = (PoolId, Need, Resources, TrustId, bool);

/// When a held place is taken to be free; never where it is `None`.
pub(super) type Ends<'e> = &'e dyn Fn(&HeldPlace) -> Option<Timestamp>;

/// When a job with an earmark is over at the latest: it gets its places when those who leave them are gone, and somebody has
/// noticed.
fn ends_with_earmark(draft: &Draft<'_>, id: JobId, tasks: &[Placement]) -> Option<Timestamp> {
    let left = draft.state.jobs.get(id)?.time_left()?;
    let clear = tasks.iter().map(|place| NodeHolds::of(draft, place.node).clear_at).max()?.max(draft.now);
    Some(latest_if_placed(draft.policy, left, clear + NOTICED_WITHIN))
}

fn earmarked(draft: &Draft<'_>) -> BTreeMap<NodeId, Vec<HeldPlace>> {
    let mut earmarked: BTreeMap<NodeId, Vec<HeldPlace>> = BTreeMap::new();
    for (job, earmark) in draft.state.earmarks.iter() {
        let Some(known) = draft.state.jobs.get(job) else { continue };
        let (charge, end) = (Charge::of(known), ends_with_earmark(draft, job, &earmark.tasks));
        for &place in &earmark.tasks {
            let step = charge.step(place);
            earmarked.entry(place.node).or_default().push(HeldPlace { job, step, end });
        }
    }
    earmarked
}

impl Horizon {
    /// Promises changed: what is free beside them did too.
    pub(super) fn forget_slots(&mut self) {
        self.pools.clear();
    }

    /// Places of a node that tasks hold which were not told to leave before this plan.
    pub(super) fn held_on(&mut self, draft: &Draft<'_>, node: NodeId) -> &[HeldPlace] {
        &self.on(draft, node).staying
    }

    /// A job that waited starts in this plan.
    pub(in crate::plan) fn starts(&mut self, draft: &Draft<'_>, job: JobId, tasks: &[Placement]) {
        let Some(known) = draft.state.jobs.get(job).filter(|job| job.phase == Phase::Waiting) else { return };
        let charge = Charge::of(known);
        let end = known.time_left().map(|left| latest_if_placed(draft.policy, left, draft.now));
        for &place in tasks {
            let step = charge.step(place);
            self.on(draft, place.node).staying.push(HeldPlace { job, step, end });
        }
    }

    fn on(&mut self, draft: &Draft<'_>, node: NodeId) -> &mut NodeHolds {
        self.nodes.entry(node).or_insert_with(|| {
            let mut on = NodeHolds::of(draft, node);
            let earmarked = self.earmarked.get_or_insert_with(|| earmarked(draft));
            on.staying.extend(earmarked.get(&node).into_iter().flatten());
            on
        })
    }

    /// What a tenant holds that is over by then, by meter; without what would give way to work that stands so anyway.
    pub(super) fn over_by(
        &mut self,
        draft: &Draft<'_>,
        own: &WorkGroup,
        start: Timestamp,
        leaving: &BTreeSet<JobId>,
    ) -> Meters {
        self.total(draft, own.tenant, |of| {
            let gives_way = lines::gives_way(draft.policy, &of.group, own);
            !gives_way && (of.end.is_some_and(|end| end <= start) || leaving.contains(&of.job))
        })
    }

    /// What a tenant holds without a known end, by meter.
    pub(super) fn endless(&mut self, draft: &Draft<'_>, tenant: TenantId) -> Meters {
        self.total(draft, tenant, |of| of.end.is_none())
    }

    fn total(
        &mut self,
        draft: &Draft<'_>,
        tenant: TenantId,
        is_counted: impl Fn(&TenantHold) -> bool,
    ) -> Meters {
        let mut total = draft.tree.zero();
        let held = self.of_tenant(draft, tenant).iter();
        held.filter(|of| is_counted(of)).for_each(|of| total.add(&of.amount));
        total
    }

    fn of_tenant(&mut self, draft: &Draft<'_>, tenant: TenantId) -> &[TenantHold] {
        self.tenants.entry(tenant).or_insert_with(|| all_of(draft, tenant))
    }

    /// When what a tenant holds is over, as far as that is known, in order.
    pub(super) fn ends_of(&mut self, draft: &Draft<'_>, tenant: TenantId) -> Vec<Timestamp> {
        let mut ends: Vec<Timestamp> = self.of_tenant(draft, tenant).iter().filter_map(|of| of.end).collect();
        ends.sort_unstable();
        // A few seconds more or less are not worth a second look.
        ends.dedup_by_key(|end| end.0 / 10_000);
        ends
    }
}

impl StartPromiser<'_, '_> {
    /// The slots of an ask when every task is gone that has a known end.
    fn slots_at_last(&mut self, ask: &Ask<'_>) -> Vec<Slot> {
        let (state, at) = (self.draft.state, self.draft.now);
        let mut slots = Vec::new();
        for (node, known) in state.fleet.nodes() {
            let mut room = Room::of(known, state.fleet.mig(known.facts.pool));
            if !room.open || !ask.goes_to(room.pool) {
                continue;
            }
            let held = self.horizon.held_on(self.draft, node).iter();
            held.filter(|held| held.end.is_none()).for_each(|held| room.occupy(&held.step));
            for (part, of) in parts_in(ask, room.pool) {
                slots.push(Slot { at, node, part, tasks: tasks_that_fit(&room, of.way.need, of.key) });
            }
        }
        slots
    }

    /// The slots of an ask in its pools, the earliest first.
    pub(super) fn slots(&mut self, ask: &Ask<'_>) -> Rc<[Slot]> {
        let mut all = Vec::new();
        for (part, of) in ask.parts().enumerate() {
            let on_island = of.key.topology.task_on_island;
            let key = (of.pool(), of.way.need, of.key.shape.resources, of.key.trust, on_island);
            if !self.horizon.pools.iter().any(|(known, _)| *known == key) {
                let alone = Ask { beside: None, ..of.clone() };
                let slots = self.slots_if(&alone, &|held| held.end);
                self.horizon.pools.push((key, slots.into()));
            }
            let known = self.horizon.pools.iter().find(|(known, _)| *known == key);
            let (_, slots) = known.expect("they were just looked up");
            // Mostly there is one part, whose slots many jobs ask for.
            if ask.beside.is_none() {
                return Rc::clone(slots);
            }
            all.extend(slots.iter().map(|slot| Slot { part, ..*slot }));
        }
        all.sort_unstable();
        all.into()
    }

    /// The same where some are over at another time.
    pub(super) fn slots_if(&mut self, ask: &Ask<'_>, ends: Ends<'_>) -> Vec<Slot> {
        let mut slots = Vec::new();
        for (node, room) in self.draft.state.ledger.rooms().iter() {
            if room.open && ask.goes_to(room.pool) {
                self.slots_on(ask, node, ends, &mut slots);
            }
        }
        slots.sort_unstable();
        slots
    }

    /// The slots of one node, as it is on the draft.
    pub(super) fn slots_on(&mut self, ask: &Ask<'_>, node: NodeId, ends: Ends<'_>, into: &mut Vec<Slot>) {
        let (draft, gone) = (&*self.draft, &self.commitments.leaving);
        let Some(room) = draft.room(node) else { return };
        let on = self.horizon.on(draft, node);
        let Some(clear_at) = on.surely_clear_at else { return };
        let leaving = || on.staying.iter().filter(|held| gone.contains(&held.job));
        let staying = on.staying.iter().filter(|held| !gone.contains(&held.job));
        let mut over: Vec<(Timestamp, Step)> =
            staying.filter_map(|held| Some((ends(held)?, held.step))).collect();
        over.sort_by_key(|(end, step)| (*end, step.place.task));
        for (part, of) in parts_in(ask, room.pool) {
            let mut at = clear_at.max(draft.now);
            let mut fits = tasks_that_fit(room, of.way.need, of.key);
            if fits > 0 {
                // Tasks may have been told to leave on the draft itself.
                let jobs = leaving().filter_map(|held| draft.state.jobs.get(held.job));
                let gone_at = jobs.map(|job| draft.now + draft.state.time_to_leave(&job.spec)).max();
                at = gone_at.map_or(at, |gone_at| at.max(gone_at));
                into.push(Slot { at, node, part, tasks: fits });
            }
            let mut room = if over.is_empty() { continue } else { room.clone() };
            for (end, step) in &over {
                room.vacate(step);
                let now_fits = tasks_that_fit(&room, of.way.need, of.key).max(fits);
                at = at.max(*end);
                if now_fits > fits {
                    into.push(Slot { at, node, part, tasks: now_fits - fits });
                }
                fits = now_fits;
            }
        }
    }

    /// When an ask fits these slots, and on which nodes. Groups that fit each by itself may be in each other's way, and only a
    /// try tells.
    pub(super) fn first_fit(
        &mut self,
        ask: &Ask<'_>,
        slots: &[Slot],
        ends: Ends<'_>,
    ) -> Option<(Timestamp, BTreeSet<NodeId>)> {
        let (state, mut tries) = (self.draft.state, 0);
        first_fit(state, ask, slots, |at, nodes| {
            tries += 1;
            let alike = ask.beside.is_none();
            alike || (tries <= TOGETHER_MAX && self.places_at(ask, at, nodes, ends).is_some())
        })
    }

    /// Where the tasks of an ask go on these nodes when every task has left that has by then.
    pub(super) fn places_at(
        &mut self,
        ask: &Ask<'_>,
        start: Timestamp,
        nodes: &BTreeSet<NodeId>,
        ends: Ends<'_>,
    ) -> Option<Vec<Placement>> {
        let mark = self.draft.mark();
        for &node in nodes {
            for held in self.horizon.held_on(self.draft, node) {
                let leaves = self.commitments.leaving.contains(&held.job);
                if !leaves && ends(held).is_some_and(|end| end <= start) {
                    self.draft.drain(held.step);
                }
            }
        }
        let placed = place_on(self.draft, ask, &|node| nodes.contains(&node));
        self.draft.roll_back(mark);
        placed.map(|placed| placed.tasks)
    }

    /// True when an ask fits once every task with a known end is gone, and nothing is promised to others.
    pub(super) fn fits_at_last(&mut self, ask: &Ask<'_>) -> bool {
        let slots = self.slots_at_last(ask);
        let alone = first_fit(self.draft.state, ask, &slots, |_, _| true).is_some();
        if ask.beside.is_none() || !alone {
            return alone;
        }
        let mark = self.draft.mark();
        let waiting = self.current().filter(|of| self.commitments.awaits(self.draft, of));
        let promised: Vec<Step> = waiting.flat_map(|of| KeptPlaces::Start(of).steps(self.draft)).collect();
        self.draft.vacate_all(&promised);
        let nodes = slots.iter().map(|slot| slot.node).collect();
        let fits = self.places_at(ask, Timestamp(u64::MAX), &nodes, &|held| held.end).is_some();
        self.draft.roll_back(mark);
        fits
    }

    /// Jobs that are in the way of a promise and neither over by its start nor told to leave: they would have to be asked.
    pub(super) fn late_for(&self, of: &Reservation) -> BTreeSet<JobId> {
        let mut late = holders(self.draft, of, &of.fillers);
        late.retain(|&job| {
            !is_over_by(self.draft, job, of.start) && !self.commitments.leaving.contains(&job)
        });
        late
    }
}

/// True when a job holds something of one of these nodes.
pub(super) fn is_near(state: &State, job: JobId, places: &[Placement]) -> bool {
    held_steps(state, job).any(|step| places.iter().any(|place| place.node == step.place.node))
}

/// The parts of an ask in a pool, numbered as in the ask.
fn parts_in<'s, 'k>(ask: &'s Ask<'k>, pool: PoolId) -> impl Iterator<Item = (usize, &'s Ask<'k>)> {
    ask.parts().enumerate().filter(move |(_, of)| of.pool() == pool)
}

impl NodeHolds {
    fn of(draft: &Draft<'_>, node: NodeId) -> Self {
        let state = draft.state;
        let begin = Timestamp(0);
        let mut on = Self { staying: Vec::new(), clear_at: begin, surely_clear_at: Some(begin) };
        for (job, task) in state.ledger.tasks_on(node) {
            let (Some(holding), Some(charge)) = (state.ledger.holding(job), state.ledger.charge(job)) else {
                continue;
            };
            let Some(held) = holding.task(task) else { continue };
            let end = state.end_of(job, draft.policy, draft.now).known();
            if held.stays() {
                on.staying.push(HeldPlace { job, step: charge.step(held.place), end });
            }
            let leaves = departure(holding, held.phase, draft.policy, draft.now);
            let Some(Departure { gone_at, may_stay }) = leaves else { continue };
            on.clear_at = on.clear_at.max(gone_at);
            let surely = if may_stay { end } else { Some(gone_at) };
            on.surely_clear_at = on.surely_clear_at.zip(surely).map(|(all, own)| all.max(own).max(gone_at));
        }
        on
    }
}

fn all_of(draft: &Draft<'_>, tenant: TenantId) -> Vec<TenantHold> {
    let state = draft.state;
    let jobs = state
        .ledger
        .work_groups(tenant)
        .flat_map(|(group, jobs)| jobs.iter().map(move |&(_, job)| (group, job)));
    let held = jobs.map(|(group, job)| {
        let end = state.end_of(job, draft.policy, draft.now).known();
        TenantHold { job, group, end, amount: held_amount(draft, job) }
    });
    let earmarked = state.earmarks.iter().filter_map(|(job, earmark)| {
        let known = state.jobs.get(job).filter(|job| job.spec.tenant == tenant)?;
        let amount = draft.tree.charge_of(|task| known.spec.resources_of(task), earmark.tasks.iter());
        let end = ends_with_earmark(draft, job, &earmark.tasks);
        Some(TenantHold { job, group: Charge::of(known).group, end, amount })
    });
    held.chain(earmarked).collect()
}

/// When each part of an ask fits these slots, which are in order, and on which nodes: in one domain where that is asked for, and
/// as soon as the caller is content with it.
fn first_fit(
    state: &State,
    ask: &Ask<'_>,
    slots: &[Slot],
    mut content: impl FnMut(Timestamp, &BTreeSet<NodeId>) -> bool,
) -> Option<(Timestamp, BTreeSet<NodeId>)> {
    let parts: Vec<&Ask<'_>> = ask.parts().collect();
    let mut touched: BTreeSet<Option<u32>> = BTreeSet::new();
    let mut domains: BTreeMap<Option<u32>, (Vec<u64>, Vec<NodeId>)> = BTreeMap::new();
    for (index, slot) in slots.iter().enumerate() {
        let key = parts[slot.part].key;
        let domain = match key.topology.gang_within {
            None => Some(None),
            Some(level) => state.fleet.domain_of(slot.node, level).map(Some),
        };
        if let Some(domain) = domain.filter(|_| key.may_go_to(&state.fleet, slot.node)) {
            let nobody = || (alloc::vec![0; parts.len()], Vec::new());
            let (tasks, nodes) = domains.entry(domain).or_insert_with(nobody);
            tasks[slot.part] += u64::from(slot.tasks);
            nodes.push(slot.node);
            touched.insert(domain);
        }
        // Groups are tried with all that is free at a moment; of tasks alike the first nodes that suffice will do.
        let more = slots.get(index + 1).is_some_and(|next| next.at == slot.at);
        if more && parts.len() > 1 {
            continue;
        }
        for domain in core::mem::take(&mut touched) {
            let (tasks, nodes) = &domains[&domain];
            if tasks.iter().zip(&parts).all(|(tasks, part)| *tasks >= u64::from(part.tasks)) {
                let nodes = nodes.iter().copied().collect();
                if content(slot.at, &nodes) {
                    return Some((slot.at, nodes));
                }
            }
        }
    }
    None
}
