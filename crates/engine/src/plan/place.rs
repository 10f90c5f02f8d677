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

pub(crate) mod best;
pub(crate) mod groups;

use crate::quota::meters::Meters;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::Rc;
use alloc::vec::Vec;

use crate::device::cut::best_start;
use crate::device::geometry::Slice;
use crate::model::need::{Need, PoolOption};
use crate::model::placement::{ChosenPlace, Field, Placement};
use crate::model::policy::Policy;
use crate::plan::draft::Draft;
use crate::plan::place::best::Score;
use crate::price::node_classes::Drains;
use crate::quota::tree::Tree;
use crate::state::State;
use crate::state::jobs::KindKey;
use crate::state::ledger::Step;
use crate::state::rooms::{GpuRoom, Room, pick_gpus};
use crate::state::ways::ways;
use crate::units::{GpuMask, GpuUnits, NodeId, PoolId, Resources};

/// What is asked for in one pool, all or nothing.
#[derive(Clone, Debug)]
pub(crate) struct Ask<'a> {
    /// What the tasks have in common.
    pub key: &'a KindKey,
    /// So many.
    pub tasks: u32,
    /// The number of the first.
    pub first_task: u32,
    /// Where and as what.
    pub way: PoolOption,
    /// The domain that the rest of the gang is in.
    pub domain: Option<u32>,
    /// What one task is charged, by meter.
    pub charge: Rc<[u64]>,
    /// The numbers of the tasks, where they do not just count up.
    pub numbers: Option<Rc<[u32]>>,
    /// What other groups of the job ask for with it, all of it or nothing.
    pub beside: Option<Rc<[Self]>>,
}

impl<'a> Ask<'a> {
    /// So many tasks, from the first, wherever the rest of the gang is.
    pub(crate) fn new(tree: &Tree, key: &'a KindKey, way: PoolOption, tasks: u32) -> Self {
        let charge = tree.charge(way.need.units(), key.shape.resources, way.pool)[..].into();
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

    /// True when some of it goes to that pool.
    pub(crate) fn goes_to(&self, pool: PoolId) -> bool {
        self.parts().any(|part| part.way.pool == pool)
    }

    /// True when it is for the same tasks, to be met in the same way.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        let told = |part: &Self| (part.way, part.numbers.clone());
        self.way == other.way && self.parts().map(told).eq(other.parts().map(told))
    }

    /// True when it is for the same tasks by the same alternative, in the same pool or another.
    pub(crate) fn differs_in_pool_alone(&self, other: &Self) -> bool {
        let told = |part: &Self| (part.tasks, part.numbers.clone());
        let same_tasks = self.parts().map(told).eq(other.parts().map(told));
        let same_key = core::ptr::eq(self.key, other.key) || self.key == other.key;
        self.way.rank == other.way.rank && same_key && same_tasks
    }

    /// The number of one of its tasks.
    fn number(&self, at: u32) -> u32 {
        let listed = usize::try_from(at).ok().and_then(|at| self.numbers.as_ref()?.get(at).copied());
        listed.unwrap_or(self.first_task + at)
    }

    /// The GPUs that all of it takes.
    pub(crate) fn units(&self) -> GpuUnits {
        let beside = self.beside().iter().map(Self::units);
        beside.fold(self.way.need.units().times(self.tasks), |total, part| total + part)
    }

    /// What all of it is charged in one meter.
    pub(crate) fn amount(&self, meter: usize) -> u64 {
        let beside = self.beside().iter().map(|part| part.amount(meter));
        beside.fold(self.charge[meter].saturating_mul(u64::from(self.tasks)), u64::saturating_add)
    }

    /// What all of it is charged.
    pub(crate) fn total(&self) -> Meters {
        (0..self.charge.len()).map(|meter| self.amount(meter)).collect()
    }

    fn step(&self, place: Placement) -> Step {
        Step { place, resources: self.key.shape.resources, trust: Some(self.key.trust) }
    }
}

/// Where everything that was asked for goes.
#[derive(Clone, Debug)]
pub(crate) struct PlacedTasks {
    /// Each task.
    pub tasks: Vec<Placement>,
    /// Why the first of them went where it did, where places have prices.
    pub chosen: Option<ChosenPlace>,
    /// How good the place of each is, where places have prices.
    scores: Vec<Score>,
}

impl PlacedTasks {
    /// How good it is in all, to be compared with other pools: less is better.
    pub(crate) fn total(&self) -> (bool, Option<Drains>, i64) {
        let among_gpus = self.scores.iter().any(|score| score.among_gpus);
        let drains = self.scores.iter().map(|score| score.drains).max();
        (among_gpus, drains, self.scores.iter().map(|score| i64::from(score.lost)).sum())
    }
}

/// Places everything that is asked for on the draft, or leaves the draft as it was.
pub(crate) fn place(draft: &mut Draft<'_>, ask: &Ask<'_>) -> Option<PlacedTasks> {
    let Some(level) = ask.key.topology.gang_within else {
        return place_all(draft, ask, &|_| true);
    };
    let state = draft.state;
    let fit = Fit::of(draft, ask);
    fit.domains(ask)
        .into_iter()
        .find_map(|domain| place_all(draft, ask, &|node| state.fleet.domain_of(node, level) == Some(domain)))
}

/// Places everything that is asked for on these nodes, or leaves the draft as it was.
pub(super) fn place_on(
    draft: &mut Draft<'_>,
    ask: &Ask<'_>,
    nodes: &BTreeSet<NodeId>,
) -> Option<PlacedTasks> {
    place_all(draft, ask, &|node| nodes.contains(&node))
}

/// The ways to meet a kind that the policy allows, in order.
pub(crate) fn ways_of<'a>(
    state: &'a State,
    policy: &'a Policy,
    key: &'a KindKey,
) -> impl Iterator<Item = PoolOption> + use<'a> {
    let domain = state.tenants.trust(key.trust);
    ways(&state.fleet, policy, key.class, domain, &key.shape).filter_map(Result::ok)
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
        let task = put(draft, ask, first.number(0), &FoundPlaces::on(found.node, found.gpus));
        let (chosen, scores) = (Some(found.chosen), alloc::vec![found.score]);
        return Some((ask, PlacedTasks { tasks: alloc::vec![task], chosen, scores }));
    }
    let mark = draft.mark();
    let mut tried = Vec::new();
    for ask in asks {
        if let Some(placed) = place(draft, ask) {
            tried.push((placed.total(), *ask));
            draft.roll_back(mark);
        }
    }
    let (_, ask) = tried.into_iter().min_by_key(|(total, ask)| (*total, ask.pool()))?;
    Some((ask, place(draft, ask).expect("it was placed a moment ago")))
}

/// How many tasks of an ask fit, by domain.
#[derive(Clone, Debug)]
pub(crate) struct Fit {
    by_domain: BTreeMap<Option<u32>, u64>,
    /// The same of each group beside the first.
    beside: Vec<Self>,
}

impl Fit {
    /// Counted on the draft, over the nodes that have room.
    pub(crate) fn of(draft: &Draft<'_>, ask: &Ask<'_>) -> Self {
        let beside = ask.beside().iter().map(|part| Self::of(draft, part)).collect();
        let mut fit = Self { by_domain: BTreeMap::new(), beside };
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
        let Some(room) = draft.room(node) else { return };
        let allowed = room.open && room.pool == ask.pool() && ask.key.may_go_to(&draft.state.fleet, node);
        if !allowed {
            return;
        }
        let domain = match ask.key.topology.gang_within {
            None => None,
            Some(level) => match draft.state.fleet.domain_of(node, level) {
                None => return,
                domain => domain,
            },
        };
        let fits = u64::from(tasks_that_fit(room, ask.way.need, ask.key));
        let total = self.by_domain.entry(domain).or_default();
        *total = if more { *total + fits } else { *total - fits };
    }

    /// True when all that is asked for fits somewhere. The draft stays as it is.
    pub(crate) fn is_enough(&self, draft: &mut Draft<'_>, ask: &Ask<'_>) -> bool {
        let fits =
            |&domain: &Option<u32>| self.holds(ask, domain) && (ask.domain.is_none() || domain == ask.domain);
        if !self.by_domain.keys().any(fits) {
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
    fn holds(&self, ask: &Ask<'_>, domain: Option<u32>) -> bool {
        let own = self.by_domain.get(&domain).is_some_and(|&fits| fits >= u64::from(ask.tasks));
        own && self.beside.iter().zip(ask.beside()).all(|(fit, part)| fit.holds(part, domain))
    }

    /// The most tasks that fit together.
    pub(crate) fn most(&self, ask: &Ask<'_>) -> u64 {
        let within = |domain: Option<u32>| ask.domain.is_none() || domain == ask.domain;
        self.by_domain.iter().filter(|&(&domain, _)| within(domain)).map(|(_, &fits)| fits).max().unwrap_or(0)
    }

    /// Domains that hold all that is asked for, the tightest first.
    fn domains(&self, ask: &Ask<'_>) -> Vec<u32> {
        let within = |domain: u32| ask.domain.is_none_or(|required| required == domain);
        let mut fitting: Vec<(u64, u32)> = self
            .by_domain
            .iter()
            .filter(|&(&domain, _)| self.holds(ask, domain))
            .filter_map(|(&domain, &fits)| Some((fits, domain.filter(|&domain| within(domain))?)))
            .collect();
        fitting.sort_unstable();
        fitting.into_iter().map(|(_, domain)| domain).collect()
    }
}

/// Nodes on which a task might fit.
fn nodes_with_room(draft: &Draft<'_>, ask: &Ask<'_>) -> BTreeSet<NodeId> {
    let with_free = |from: u32| {
        let from = u8::try_from(from).expect("a task asks for at most 16 GPUs");
        let levels = from..=u8::try_from(GpuMask::MAX).expect("16 fits");
        levels.flat_map(|free| {
            let settled = draft.with_whole_free(ask.pool(), Drains::No, free);
            settled.chain(draft.with_whole_free(ask.pool(), Drains::Yes, free))
        })
    };
    match ask.way.need {
        Need::Whole(count) => with_free(count).collect(),
        Need::Share { units, .. } => {
            let partly = draft.partly_free(ask.pool(), units).map(|(_, node, _)| node);
            with_free(1).chain(partly).collect()
        }
        Need::Slice { .. } => draft.nodes_with_slices(ask.pool()).collect(),
    }
}

/// All that is asked for, or the draft as it was.
fn place_all(draft: &mut Draft<'_>, ask: &Ask<'_>, within: &dyn Fn(NodeId) -> bool) -> Option<PlacedTasks> {
    let mark = draft.mark();
    let mut placed = PlacedTasks { tasks: Vec::new(), chosen: None, scores: Vec::new() };
    for part in ask.parts() {
        for at in 0..part.tasks {
            if !place_task(draft, part, part.number(at), within, &mut placed) {
                draft.roll_back(mark);
                return None;
            }
        }
    }
    if ask.beside.is_some() {
        placed.tasks.sort_unstable_by_key(|place| place.task);
    }
    Some(placed)
}

fn place_task(
    draft: &mut Draft<'_>,
    ask: &Ask<'_>,
    task: u32,
    within: &dyn Fn(NodeId) -> bool,
    placed: &mut PlacedTasks,
) -> bool {
    let is_slice = matches!(ask.way.need, Need::Slice { .. });
    let found = if draft.state.demand.tables().is_some() && !is_slice {
        best::find(draft, ask, &[ask.pool()], within).map(|found| {
            placed.scores.push(found.score);
            FoundPlaces { chosen: Some(found.chosen), ..FoundPlaces::on(found.node, found.gpus) }
        })
    } else {
        find_place(draft, ask, within)
    };
    let Some(found) = found else { return false };
    placed.chosen = placed.chosen.or(found.chosen);
    placed.tasks.push(put(draft, ask, task, &found));
    true
}

/// A task takes a place on the draft.
fn put(draft: &mut Draft<'_>, ask: &Ask<'_>, task: u32, found: &FoundPlaces) -> Placement {
    let PoolOption { pool, need, tax, .. } = ask.way;
    let place = Placement {
        task,
        node: found.node,
        pool,
        gpus: found.gpus,
        units_each: need.units_each(),
        slice: found.slice,
        time_sliced: matches!(need, Need::Share { time_sliced: true, .. }),
        tax,
    };
    draft.occupy(ask.step(place));
    place
}

/// A place for one task.
struct FoundPlaces {
    node: NodeId,
    gpus: GpuMask,
    slice: Option<Slice>,
    chosen: Option<ChosenPlace>,
}

impl FoundPlaces {
    fn on(node: NodeId, gpus: GpuMask) -> Self {
        Self { node, gpus, slice: None, chosen: None }
    }

    fn on_gpu(node: NodeId, at: u8, slice: Option<Slice>) -> Self {
        let mut gpus = GpuMask::default();
        gpus.insert(usize::from(at));
        Self { node, gpus, slice, chosen: None }
    }
}

/// The tightest place for one task, where nobody leaves if there is one.
fn find_place(draft: &Draft<'_>, ask: &Ask<'_>, within: &dyn Fn(NodeId) -> bool) -> Option<FoundPlaces> {
    let key = ask.key;
    let allowed = |node: NodeId| {
        within(node)
            && key.may_go_to(&draft.state.fleet, node)
            && draft.room(node).is_some_and(|room| room.free().covers(&key.shape.resources))
    };
    let find = |drains| match ask.way.need {
        Need::Whole(count) => find_whole(draft, ask, drains, count, &allowed),
        Need::Share { units, time_sliced } => find_shared(draft, ask, drains, (units, time_sliced), &allowed)
            .or_else(|| find_whole(draft, ask, drains, 1, &allowed)),
        Need::Slice { profile, .. } => find_slice(draft, ask, drains, profile, &allowed),
    };
    find(Drains::No).or_else(|| find(Drains::Yes))
}

/// The node with the fewest free GPUs that are enough.
fn find_whole(
    draft: &Draft<'_>,
    ask: &Ask<'_>,
    drains: Drains,
    count: u32,
    allowed: &dyn Fn(NodeId) -> bool,
) -> Option<FoundPlaces> {
    let from = u8::try_from(count).expect("a task asks for at most 16 GPUs");
    let levels = from..=u8::try_from(GpuMask::MAX).expect("16 fits");
    let nodes = levels.flat_map(|free| draft.with_whole_free(ask.pool(), drains, free));
    nodes.filter(|&node| allowed(node)).find_map(|node| {
        let room = draft.room(node)?;
        Some(FoundPlaces::on(node, pick_gpus(room, count, ask.key.topology.task_on_island)?))
    })
}

/// The GPU with the least left that still has enough, among those this trust domain already holds in part.
fn find_shared(
    draft: &Draft<'_>,
    ask: &Ask<'_>,
    drains: Drains,
    (units, time_sliced): (GpuUnits, bool),
    allowed: &dyn Fn(NodeId) -> bool,
) -> Option<FoundPlaces> {
    let ours = |node: NodeId, at: u8| {
        let Some(room) = draft.room(node) else { return false };
        let gpu = room.gpus.get(usize::from(at));
        let here = (room.leaving > 0) == (drains == Drains::Yes);
        here && gpu.is_some_and(|gpu| gpu.free_for_share(ask.key.trust, time_sliced) >= units)
    };
    let mut gpus = draft.partly_free(ask.pool(), units);
    let (_, node, at) = gpus.find(|&(_, node, at)| ours(node, at) && allowed(node))?;
    Some(FoundPlaces::on_gpu(node, at, None))
}

/// The GPU and the offset at which a slice takes the least from what could still be cut out.
fn find_slice(
    draft: &Draft<'_>,
    ask: &Ask<'_>,
    drains: Drains,
    profile: u8,
    allowed: &dyn Fn(NodeId) -> bool,
) -> Option<FoundPlaces> {
    let mig = draft.state.fleet.mig(ask.pool())?;
    let here = |node: NodeId| {
        draft.room(node).is_some_and(|room| (room.leaving > 0) == (drains == Drains::Yes)) && allowed(node)
    };
    let weights = draft.slice_weights(ask.pool(), mig);
    let mut best: Vec<(u64, (NodeId, u8), u8)> = Vec::new();
    for layout in draft.layouts(ask.pool()) {
        let Some((lost, start)) = best_start(mig, layout, profile, &weights) else { continue };
        if best.get(1).is_some_and(|&(least, ..)| lost > least) {
            continue;
        }
        let gpus = draft.with_layout(ask.pool(), layout).filter(|&(node, _)| here(node));
        best.extend(gpus.take(2).map(|gpu| (lost, gpu, start)));
        best.sort_unstable();
        best.truncate(2);
    }
    let &(lost, (node, at), start) = best.first()?;
    let chosen = Some(chosen(lost, best.get(1).map(|&(lost, (node, _), _)| (lost, node))));
    Some(FoundPlaces { chosen, ..FoundPlaces::on_gpu(node, at, Some(Slice { profile, start })) })
}

/// Why a slice is cut where it is.
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
            let islands = room.gpus.iter().filter(|gpu| gpu.is_free()).map(|gpu| gpu.island);
            let mut free_on: BTreeMap<u32, u32> = BTreeMap::new();
            islands.for_each(|island| *free_on.entry(island).or_default() += 1);
            free_on.values().map(|free| free / count).sum()
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
