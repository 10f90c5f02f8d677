//! Where tasks go: all that were asked for or none, on GPUs of one model, within one domain where that is asked.
//!
//! Where places have prices, each task takes the place that is missed least ([`best`]). Without prices it takes the
//! tightest node that fits, so that large holes stay whole. In both, nodes that nobody is leaving come first, because
//! work there starts at once, and ties go to the lower id.
//!
//! Tasks of one gang are alike, and what one of them takes on a node never changes what fits on another. So the
//! number that fits is a sum over nodes, and a gang fits if that sum is large enough: [`Fit`] keeps it while victims
//! are taken and spared. Groups of one job are not alike and may be in each other's way: their sums are looked at first,
//! then they are tried together.

pub(crate) mod asks;
pub(crate) mod best;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::Rc;
use alloc::vec::Vec;

use crate::device::cut::best_start;
use crate::device::geometry::Slice;
use crate::model::need::{Need, PoolOption};
use crate::model::placement::{ChosenPlace, Field, Placement};
use crate::plan::draft::Draft;
use crate::plan::place::best::Score;
use crate::price::node_classes::Drains;
use crate::quota::meters::Meters;
use crate::quota::tree::Tree;
use crate::state::fleet::Fleet;
use crate::state::jobs::KindKey;
use crate::state::ledger::Step;
use crate::state::rooms::{GpuRoom, Room, pick_gpus};
use crate::units::{GpuMask, GpuUnits, LevelId, NodeId, PoolId, Resources};

/// What is asked for in one pool, all or nothing.
#[derive(Clone, Debug)]
pub(crate) struct Ask<'a> {
    pub key: &'a KindKey,
    pub tasks: u32,
    pub first_task: u32,
    pub way: PoolOption,
    /// The domain that the rest of the gang is in.
    pub domain: Option<u32>,
    pub charge: Rc<Meters>,
    /// The numbers of the tasks, where they do not just count up.
    pub numbers: Option<Rc<[u32]>>,
    /// What other groups of the job ask for with it, all of it or nothing.
    pub beside: Option<Rc<[Self]>>,
}

impl<'a> Ask<'a> {
    /// So many tasks, from the first, wherever the rest of the gang is.
    pub(crate) fn new(tree: &Tree, key: &'a KindKey, way: PoolOption, tasks: u32) -> Self {
        let charge = Rc::new(tree.charge(way.need.units(), key.shape.resources, way.pool));
        Self { key, tasks, first_task: 0, way, domain: None, charge, numbers: None, beside: None }
    }

    /// Where; of a job with groups, where its largest tasks go.
    pub(crate) fn pool(&self) -> PoolId {
        self.way.pool
    }

    /// The ask of each group; itself alone where tasks are alike.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Self> {
        core::iter::once(self).chain(self.beside())
    }

    fn beside(&self) -> &[Self] {
        self.beside.as_deref().unwrap_or_default()
    }

    pub(crate) fn goes_to(&self, pool: PoolId) -> bool {
        self.parts().any(|part| part.way.pool == pool)
    }

    /// The room of a node that its tasks may go to.
    pub(crate) fn room_on<'d>(&self, draft: &'d Draft<'_>, node: NodeId) -> Option<&'d Room> {
        let allowed = |room: &&Room| room.open && room.pool == self.pool();
        draft.room(node).filter(allowed).filter(|_| self.key.may_go_to(&draft.state.fleet, node))
    }

    /// True when it is for the same tasks, to be met in the same way.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        let what = |part: &Self| (part.way, part.numbers.clone());
        self.way == other.way && self.parts().map(what).eq(other.parts().map(what))
    }

    /// True when it is for the same tasks by the same alternative, in the same pool or another.
    pub(crate) fn differs_in_pool_alone(&self, other: &Self) -> bool {
        let what = |part: &Self| (part.tasks, part.numbers.clone());
        let same_tasks = self.parts().map(what).eq(other.parts().map(what));
        let same_key = core::ptr::eq(self.key, other.key) || self.key == other.key;
        self.way.rank == other.way.rank && same_key && same_tasks
    }

    fn number(&self, at: u32) -> u32 {
        let listed = usize::try_from(at).ok().and_then(|at| self.numbers.as_ref()?.get(at).copied());
        listed.unwrap_or(self.first_task + at)
    }

    /// The GPUs that all of it takes.
    pub(crate) fn units(&self) -> GpuUnits {
        let each = self.parts().map(|part| part.way.need.units().times(part.tasks));
        each.fold(GpuUnits::ZERO, |total, part| total + part)
    }

    /// What all of it is charged in one meter.
    pub(crate) fn amount(&self, meter: usize) -> u64 {
        let each = self.parts().map(|part| part.charge[meter].saturating_mul(u64::from(part.tasks)));
        each.fold(0, u64::saturating_add)
    }

    pub(crate) fn total(&self) -> Meters {
        (0..self.charge.len()).map(|meter| self.amount(meter)).collect()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PlacedTasks {
    pub tasks: Vec<Placement>,
    /// Why the first of them went where it did, where places have prices.
    pub chosen: Option<ChosenPlace>,
    /// How good the places are together, where places have prices: less is better.
    total: (bool, Option<Drains>, i64),
}

impl PlacedTasks {
    fn put(&mut self, draft: &mut Draft<'_>, ask: &Ask<'_>, task: u32, found: &FoundPlace) {
        let (PoolOption { pool, need, tax, .. }, key) = (ask.way, ask.key);
        let &FoundPlace { node, gpus, slice, .. } = found;
        let (units_each, time_sliced) =
            (need.units_each(), matches!(need, Need::Share { time_sliced: true, .. }));
        let place = Placement { task, node, pool, gpus, units_each, slice, time_sliced, tax };
        draft.occupy(Step { place, resources: key.shape.resources, trust: Some(key.trust) });
        self.tasks.push(place);
        self.chosen = self.chosen.or(found.chosen);
        if let Some(score) = found.score {
            let (among_gpus, drains, lost) = self.total;
            let drains = drains.max(Some(score.drains));
            self.total = (among_gpus || score.among_gpus, drains, lost + i64::from(score.lost));
        }
    }
}

#[derive(Clone, Copy)]
struct FoundPlace {
    pool: PoolId,
    node: NodeId,
    gpus: GpuMask,
    slice: Option<Slice>,
    /// Why there, and how good it is, where that is compared.
    chosen: Option<ChosenPlace>,
    score: Option<Score>,
}

impl FoundPlace {
    fn on(pool: PoolId, node: NodeId, gpus: GpuMask) -> Self {
        Self { pool, node, gpus, slice: None, chosen: None, score: None }
    }
}

/// Places everything that is asked for on the draft, or leaves the draft as it was.
pub(crate) fn place(draft: &mut Draft<'_>, ask: &Ask<'_>) -> Option<PlacedTasks> {
    let Some(level) = ask.key.topology.gang_within else {
        return place_on(draft, ask, &|_| true);
    };
    let fleet = &draft.state.fleet;
    let fit = Fit::of(draft, ask);
    // The tightest domain first.
    let mut domains: Vec<(u64, u32)> = fit.domains(ask).map(|(domain, fits)| (fits, domain)).collect();
    domains.sort_unstable();
    domains
        .into_iter()
        .find_map(|(_, domain)| place_on(draft, ask, &|node| fleet.domain_of(node, level) == Some(domain)))
}

/// Places everything that one of the asks, alike but for the pool, asks for, where it is missed least.
pub(crate) fn place_where_best<'b, 'a>(
    draft: &mut Draft<'_>,
    asks: &[&'b Ask<'a>],
) -> Option<(&'b Ask<'a>, PlacedTasks)> {
    let first = asks.first()?;
    let is_slice = matches!(first.way.need, Need::Slice { .. });
    let alone = first.tasks == 1 && first.beside.is_none();
    if alone && first.key.topology.gang_within.is_none() && !is_slice {
        let pools: Vec<PoolId> = asks.iter().map(|ask| ask.pool()).collect();
        let found = best::find(draft, first, &pools, &|_| true)?;
        let ask = asks.iter().find(|ask| ask.pool() == found.pool).expect("it was looked for in these pools");
        let mut placed = PlacedTasks::default();
        placed.put(draft, ask, first.number(0), &found);
        return Some((ask, placed));
    }
    let mark = draft.mark();
    let mut tried = Vec::new();
    for ask in asks {
        if let Some(placed) = place(draft, ask) {
            tried.push((placed.total, *ask));
            draft.roll_back(mark);
        }
    }
    let (_, ask) = tried.into_iter().min_by_key(|(total, ask)| (*total, ask.pool()))?;
    Some((ask, place(draft, ask).expect("it was placed a moment ago")))
}

/// How many tasks fit together, by domain of the level that a gang stays within: without one, the fleet is domain 0.
#[derive(Clone, Debug, Default)]
pub(crate) struct FitByDomain(BTreeMap<u32, u64>);

impl FitByDomain {
    fn domain(fleet: &Fleet, within: Option<LevelId>, node: NodeId) -> Option<u32> {
        within.map_or(Some(0), |level| fleet.domain_of(node, level))
    }

    /// Counts the tasks that fit a node, unless it is in no domain; the result is how many fit its domain now.
    pub(crate) fn add(
        &mut self,
        fleet: &Fleet,
        within: Option<LevelId>,
        node: NodeId,
        fits: u32,
    ) -> Option<u64> {
        let total = self.0.entry(Self::domain(fleet, within, node)?).or_default();
        *total += u64::from(fits);
        Some(*total)
    }

    /// How many tasks fit the domain of a node, if it is in any.
    pub(crate) fn around(&self, fleet: &Fleet, within: Option<LevelId>, node: NodeId) -> Option<u64> {
        self.0.get(&Self::domain(fleet, within, node)?).copied()
    }

    pub(crate) fn most(&self) -> u64 {
        self.0.values().copied().max().unwrap_or(0)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Fit {
    own: FitByDomain,
    /// The same of each group beside the first.
    beside: Vec<Self>,
}

impl Fit {
    /// Counted on the draft, over the nodes that have room.
    pub(crate) fn of(draft: &Draft<'_>, ask: &Ask<'_>) -> Self {
        let beside = ask.beside().iter().map(|part| Self::of(draft, part)).collect();
        let mut fit = Self { own: FitByDomain::default(), beside };
        for node in nodes_with_room(draft, ask) {
            fit.add_own(draft, ask, node, true);
        }
        fit
    }

    /// Counts a node in or out, as it is on the draft.
    pub(crate) fn add(&mut self, draft: &Draft<'_>, ask: &Ask<'_>, node: NodeId, more: bool) {
        self.add_own(draft, ask, node, more);
        for (fit, part) in self.beside.iter_mut().zip(ask.beside()) {
            fit.add_own(draft, part, node, more);
        }
    }

    fn add_own(&mut self, draft: &Draft<'_>, ask: &Ask<'_>, node: NodeId, more: bool) {
        let Some(room) = ask.room_on(draft, node) else { return };
        let (fleet, within) = (&draft.state.fleet, ask.key.topology.gang_within);
        let fits = tasks_that_fit(room, ask.way.need, ask.key);
        if more {
            self.own.add(fleet, within, node, fits);
        } else if let Some(domain) = FitByDomain::domain(fleet, within, node) {
            *self.own.0.entry(domain).or_default() -= u64::from(fits);
        }
    }

    /// True when all that is asked for fits somewhere. The draft stays as it is.
    pub(crate) fn is_enough(&self, draft: &mut Draft<'_>, ask: &Ask<'_>) -> bool {
        if self.domains(ask).next().is_none() {
            return false;
        }
        if ask.beside.is_none() {
            return true;
        }
        // Each group alone would fit; whether they do together only a try tells.
        let mark = draft.mark();
        let together = place(draft, ask).is_some();
        draft.roll_back(mark);
        together
    }

    /// True when each group, were it alone, would fit a domain.
    fn holds(&self, ask: &Ask<'_>, domain: u32) -> bool {
        let own = self.own.0.get(&domain).is_some_and(|&fits| fits >= u64::from(ask.tasks));
        own && self.beside.iter().zip(ask.beside()).all(|(fit, part)| fit.holds(part, domain))
    }

    pub(crate) fn most(&self, ask: &Ask<'_>) -> u64 {
        self.allowed(ask).map(|(_, fits)| fits).max().unwrap_or(0)
    }

    /// Domains that hold all that is asked for, with how many tasks fit there.
    fn domains(&self, ask: &Ask<'_>) -> impl Iterator<Item = (u32, u64)> {
        self.allowed(ask).filter(|&(domain, _)| self.holds(ask, domain))
    }

    fn allowed(&self, ask: &Ask<'_>) -> impl Iterator<Item = (u32, u64)> {
        let required = ask.domain;
        let all = self.own.0.iter().map(|(&domain, &fits)| (domain, fits));
        all.filter(move |&(domain, _)| required.is_none_or(|required| required == domain))
    }
}

/// Nodes of the ask's pool with at least so many free GPUs, those with fewest first.
fn with_free(draft: &Draft<'_>, ask: &Ask<'_>, drains: Drains, least: u32) -> impl Iterator<Item = NodeId> {
    let least = u8::try_from(least).expect("a task asks for at most 16 GPUs");
    let counts = least..=u8::try_from(GpuMask::MAX).expect("16 fits");
    counts.flat_map(move |free| draft.with_whole_free(ask.pool(), drains, free))
}

fn nodes_with_room(draft: &Draft<'_>, ask: &Ask<'_>) -> BTreeSet<NodeId> {
    let with_free =
        |least| with_free(draft, ask, Drains::No, least).chain(with_free(draft, ask, Drains::Yes, least));
    match ask.way.need {
        Need::Whole(count) => with_free(count).collect(),
        Need::Share { units, .. } => {
            let partly = draft.partly_free(ask.pool(), units).map(|(_, node, _)| node);
            with_free(1).chain(partly).collect()
        }
        Need::Slice { .. } => draft.nodes_with_slices(ask.pool()).collect(),
    }
}

/// Places everything that is asked for on these nodes, or leaves the draft as it was.
pub(super) fn place_on(
    draft: &mut Draft<'_>,
    ask: &Ask<'_>,
    within: &dyn Fn(NodeId) -> bool,
) -> Option<PlacedTasks> {
    let mark = draft.mark();
    let mut placed = PlacedTasks::default();
    for part in ask.parts() {
        for at in 0..part.tasks {
            let Some(found) = find_place(draft, part, within) else {
                draft.roll_back(mark);
                return None;
            };
            placed.put(draft, part, part.number(at), &found);
        }
    }
    if ask.beside.is_some() {
        placed.tasks.sort_unstable_by_key(|place| place.task);
    }
    Some(placed)
}

/// A place for one task: where it is missed least, if that is known, or else the tightest.
fn find_place(draft: &mut Draft<'_>, ask: &Ask<'_>, within: &dyn Fn(NodeId) -> bool) -> Option<FoundPlace> {
    let is_slice = matches!(ask.way.need, Need::Slice { .. });
    if draft.state.demand.tables().is_some() && !is_slice {
        return best::find(draft, ask, &[ask.pool()], within);
    }
    let search = |drains| TightestSearch { draft, ask, drains, within }.find();
    search(Drains::No).or_else(|| search(Drains::Yes))
}

/// A search for the tightest place, among nodes that somebody leaves or among the others.
struct TightestSearch<'s, 'd> {
    draft: &'s Draft<'d>,
    ask: &'s Ask<'s>,
    drains: Drains,
    within: &'s dyn Fn(NodeId) -> bool,
}

impl TightestSearch<'_, '_> {
    fn find(&self) -> Option<FoundPlace> {
        match self.ask.way.need {
            Need::Whole(count) => self.whole(count),
            Need::Share { units, time_sliced } => self.shared(units, time_sliced).or_else(|| self.whole(1)),
            Need::Slice { profile, .. } => self.slice(profile),
        }
    }

    /// The room of a node, if a task may go there and it is among those that are searched.
    fn room(&self, node: NodeId) -> Option<&Room> {
        let key = self.ask.key;
        if !(self.within)(node) || !key.may_go_to(&self.draft.state.fleet, node) {
            return None;
        }
        let fits = |room: &&Room| room.drains() == self.drains && room.free().covers(&key.shape.resources);
        self.draft.room(node).filter(fits)
    }

    fn on_gpu(&self, node: NodeId, at: u8) -> FoundPlace {
        FoundPlace::on(self.ask.pool(), node, GpuMask::from_iter([usize::from(at)]))
    }

    /// The node with the fewest free GPUs that are enough.
    fn whole(&self, count: u32) -> Option<FoundPlace> {
        with_free(self.draft, self.ask, self.drains, count).find_map(|node| {
            let gpus = pick_gpus(self.room(node)?, count, self.ask.key.topology.task_on_island)?;
            Some(FoundPlace::on(self.ask.pool(), node, gpus))
        })
    }

    /// The GPU with the least left that still has enough, among those this trust domain already holds in part.
    fn shared(&self, units: GpuUnits, time_sliced: bool) -> Option<FoundPlace> {
        let has = |gpu: &GpuRoom| gpu.free_for_share(self.ask.key.trust, time_sliced) >= units;
        let fits = |&(_, node, at): &(GpuUnits, NodeId, u8)| {
            self.room(node).and_then(|room| room.gpus.get(usize::from(at))).is_some_and(has)
        };
        let (_, node, at) = self.draft.partly_free(self.ask.pool(), units).find(fits)?;
        Some(self.on_gpu(node, at))
    }

    /// The GPU and the offset at which a slice takes the least from what could still be cut out.
    fn slice(&self, profile: u8) -> Option<FoundPlace> {
        let (draft, pool) = (self.draft, self.ask.pool());
        let mig = draft.state.fleet.mig(pool)?;
        let weights = draft.slice_weights(pool, mig);
        let mut best: Vec<(u64, (NodeId, u8), u8)> = Vec::new();
        for layout in draft.layouts(pool) {
            let Some((lost, start)) = best_start(mig, layout, profile, &weights) else { continue };
            if best.get(1).is_some_and(|&(least, ..)| lost > least) {
                continue;
            }
            let gpus = draft.with_layout(pool, layout).filter(|&(node, _)| self.room(node).is_some());
            best.extend(gpus.take(2).map(|gpu| (lost, gpu, start)));
            best.sort_unstable();
            best.truncate(2);
        }
        let &(lost, (node, at), start) = best.first()?;
        let chosen = Some(chosen(lost, best.get(1).map(|&(lost, (node, _), _)| (lost, node))));
        Some(FoundPlace { chosen, slice: Some(Slice { profile, start }), ..self.on_gpu(node, at) })
    }
}

fn chosen(lost: u64, second: Option<(u64, NodeId)>) -> ChosenPlace {
    let by = match second {
        None => Field::Only,
        Some((other, _)) if other != lost => Field::Cut,
        Some(_) => Field::Node,
    };
    // What is lost is counted in placements, which are no part of a GPU.
    ChosenPlace { by, cost: 0, runner_up: second.map(|(_, node)| (node, 0)) }
}

/// How many tasks of a kind a room could take.
pub(crate) fn tasks_that_fit(room: &Room, need: Need, key: &KindKey) -> u32 {
    let by_gpu = match need {
        Need::Whole(0) => u32::MAX,
        Need::Whole(count) if key.topology.task_on_island => {
            tasks_on_islands(room.gpus.iter().filter(|gpu| gpu.is_free()).map(|gpu| gpu.island), count)
        }
        Need::Whole(count) => u32::try_from(room.whole_free()).expect("at most 16") / count,
        Need::Share { units, time_sliced } => {
            let fits = |gpu: &GpuRoom| gpu.shares_that_fit(key.trust, units, time_sliced);
            room.gpus.iter().map(fits).sum()
        }
        Need::Slice { profile, .. } => {
            let cut = |gpu: &GpuRoom| Some(gpu.open_layout()?.copies_left(room.mig?, profile));
            room.gpus.iter().filter_map(cut).sum()
        }
    };
    by_gpu.min(tasks_beside_gpus(room.free(), key.shape.resources))
}

/// How many tasks GPUs on these islands suffice for, where each task takes so many of one island.
pub(crate) fn tasks_on_islands(gpus: impl Iterator<Item = u32>, each: u32) -> u32 {
    let mut free_on: BTreeMap<u32, u32> = BTreeMap::new();
    gpus.for_each(|island| *free_on.entry(island).or_default() += 1);
    free_on.values().map(|free| free / each).sum()
}

/// How many tasks the rest of a node leaves room for.
pub(crate) fn tasks_beside_gpus(free: Resources, asked: Resources) -> u32 {
    let parts = [
        (free.cpu_milli, asked.cpu_milli),
        (free.memory, asked.memory),
        (free.storage, asked.storage),
        (free.pods, asked.pods),
        (free.nics, asked.nics),
    ];
    let fits = parts.into_iter().filter(|&(_, asked)| asked > 0).map(|(free, asked)| free / asked);
    u32::try_from(fits.min().unwrap_or(u64::from(u32::MAX))).unwrap_or(u32::MAX)
}
