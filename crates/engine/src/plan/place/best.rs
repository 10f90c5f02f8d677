//! The place that is missed least, where places have prices: the least loss of worth over all that fit.
//!
//! Nodes of one profile cost the same, so profiles are compared, and of each only as many nodes are looked at as could
//! still be the best or the second. What a profile is worth is remembered outside the state until prices change. At the
//! one price of a core that decides what a profile is worth, a task costs at least so much: where that is too much
//! already, the rest is not worked out.

use alloc::vec::Vec;
use core::cell::RefCell;

use crate::model::need::Need;
use crate::model::placement::{ChosenPlace, Field};
use crate::plan::draft::Draft;
use crate::plan::place::{Ask, FoundPlace};
use crate::price::node_classes::{ClassSlots, Drains, NodeClass, NodeClasses};
use crate::price::prices::Tables;
use crate::price::worth::{Fee, Taker, Value};
use crate::state::jobs::KindKey;
use crate::state::rooms::{GpuRoom, Room, pick_gpus};
use crate::units::{GpuMask, GpuUnits, NodeId, PoolId, Resources};

/// Costs that differ by less than this many millionths of a GPU are taken for equal: prices are not better known.
const BUCKET: i32 = 3000;

/// A model is scarce when less than one in so many GPUs of the fleet is of it.
const SCARCE: u64 = 10;

/// How good a place is, fields in the order in which they decide; less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Score {
    /// Work without GPUs on a node that has some.
    pub among_gpus: bool,
    pub drains: Drains,
    /// What is lost, in buckets.
    pub lost: i32,
    /// A model that the fleet has few of: a job that needs just that one may still come.
    pub scarce: bool,
    pub node: NodeId,
}

/// What profiles are worth, as far as it was worked out. Losing it costs time, never an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Worths {
    prices: u64,
    pools: Vec<Vec<KnownWorth>>,
    /// Kept for its memory alone.
    bounds: Vec<(Score, usize)>,
}

/// What the profile that had this stamp is worth.
#[derive(Clone, Copy, Debug, Default)]
struct KnownWorth {
    stamp: u32,
    value: Value,
}

/// A place that may be the best.
#[derive(Clone, Copy)]
struct ScoredPlace {
    score: Score,
    cost: i32,
    pool: PoolId,
}

#[derive(Default)]
struct BestTwo {
    best: Option<ScoredPlace>,
    second: Option<ScoredPlace>,
}

impl BestTwo {
    fn wants(&self, score: &Score) -> bool {
        self.second.is_none_or(|second| *score < second.score)
    }

    fn offer(&mut self, place: ScoredPlace) {
        if self.best.is_none_or(|best| place.score < best.score) {
            self.second = self.best.replace(place);
        } else {
            self.second = Some(place);
        }
    }
}

/// The best place for one task that is asked for, in any of these pools, if prices are in force and there is one.
pub(super) fn find(
    draft: &mut Draft<'_>,
    ask: &Ask<'_>,
    pools: &[PoolId],
    within: &dyn Fn(NodeId) -> bool,
) -> Option<FoundPlace> {
    draft.keep_touched_profiles();
    let (draft, state) = (&*draft, draft.state);
    let tables = state.demand.tables()?;
    let profiles = state.ledger.rooms().profiles()?;
    let (key, need) = (ask.key, ask.way.need);
    let Resources { cpu_milli, memory, .. } = key.shape.resources;
    let taker = Taker { need, cpu_milli, memory, trust: key.trust };
    let fits = |node: NodeId, room: &Room| {
        within(node)
            && key.may_go_to(&state.fleet, node)
            && room.free().covers(&key.shape.resources)
            && (!key.topology.task_on_island || whole_gpus(room, need, key).is_some())
    };
    let search = PlaceSearch { draft, key, tables, taker, fits: &fits };
    let mut top = BestTwo::default();
    for &pool in pools {
        // Nodes as the draft changed them, then those that are as in the state.
        for (touched, profiles) in [(true, draft.touched_profiles()), (false, Some(profiles))] {
            if let Some(slots) = profiles.and_then(|profiles| profiles.pool(pool)) {
                search.compare(pool, slots, touched, &mut top);
            }
        }
    }
    let best = top.best?;
    let room = draft.room(best.score.node)?;
    let gpus = search.gpus(room)?;
    let chosen = Some(chosen(&best, top.second.as_ref()));
    Some(FoundPlace { chosen, score: Some(best.score), ..FoundPlace::on(best.pool, best.score.node, gpus) })
}

struct PlaceSearch<'a, 'd> {
    draft: &'a Draft<'d>,
    key: &'a KindKey,
    tables: &'a Tables,
    taker: Taker,
    fits: &'a dyn Fn(NodeId, &Room) -> bool,
}

impl PlaceSearch<'_, '_> {
    fn among_gpus(&self, pool: PoolId) -> bool {
        self.taker.need == Need::Whole(0) && !self.draft.state.fleet.model(pool).is_empty()
    }

    fn is_scarce(&self, pool: PoolId) -> bool {
        let rooms = self.draft.state.ledger.rooms();
        let of_pool = rooms.capacity_of(pool).gpus;
        let all: u64 = rooms.capacity().map(|(_, capacity)| capacity.gpus).sum();
        of_pool.saturating_mul(SCARCE) < all
    }

    /// Offers the nodes of a pool, class by class.
    fn compare(&self, pool: PoolId, slots: &ClassSlots, touched: bool, top: &mut BestTwo) {
        let nothing = RefCell::default();
        let known = if touched { Some(&self.draft.touched_worths) } else { self.draft.worths };
        let worths = known.unwrap_or(&nothing);
        let worths = &mut *worths.borrow_mut();
        worths.keep_for(self.draft.state.demand.version());
        let (known, bounds) = worths.of_pool(pool, slots);
        let fee = Fee::new(self.tables, pool, &self.taker);
        self.bound_all(&fee, slots, known, bounds);
        // The likeliest two first: what they cost rules out most of the others.
        if bounds.len() > 2 {
            bounds.select_nth_unstable(1);
        }
        for &(bound, slot) in &*bounds {
            if !top.wants(&bound) {
                continue;
            }
            let Some(cost) = known[slot].value.cost(&fee, slots.profile(slot)) else { continue };
            // The bounds of prices keep what a node is worth within 32 bits.
            let cost = i32::try_from(cost.worth).unwrap_or(i32::MAX);
            let score = Score { lost: cost.div_euclid(BUCKET), ..bound };
            if top.wants(&score) {
                self.nodes(ScoredPlace { score, cost, pool }, slots, slot, touched, top);
            }
        }
    }

    /// The best score that the nodes of each slot where the task could fit may have.
    fn bound_all(
        &self,
        fee: &Fee<'_>,
        slots: &ClassSlots,
        known: &mut [KnownWorth],
        bounds: &mut Vec<(Score, usize)>,
    ) {
        bounds.clear();
        let (among_gpus, scarce) = (self.among_gpus(fee.pool), self.is_scarce(fee.pool));
        for (slot, head) in slots.heads().iter().enumerate() {
            // Of an empty slot the cores and GPUs are still known: most slots are too small, so that is asked first.
            if !fee.could_fit(head) || head.stamp == 0 {
                continue;
            }
            let (profile, known) = (slots.profile(slot), &mut known[slot]);
            known.keep_for(head.stamp, self.tables, profile);
            if let Some(cost) = known.value.cost_at_least(fee, profile) {
                let (drains, node) = (head.drains, head.first);
                let lost = cost.div_euclid(BUCKET);
                bounds.push((Score { among_gpus, drains, lost, scarce, node }, slot));
            }
        }
    }

    /// The nodes of a profile, as long as they could be the best or the second.
    fn nodes(
        &self,
        mut place: ScoredPlace,
        slots: &ClassSlots,
        slot: usize,
        touched: bool,
        top: &mut BestTwo,
    ) {
        let first = if touched { NodeId(0) } else { self.draft.first_untouched(place.pool, slot) };
        let mut all_touched = true;
        for node in slots.nodes(slot, first) {
            place.score.node = node;
            if !top.wants(&place.score) {
                return;
            }
            let room = if touched { self.draft.room(node) } else { self.draft.untouched_room(node) };
            let Some(room) = room else {
                if all_touched {
                    self.draft.pass_touched(place.pool, slot, node);
                }
                continue;
            };
            all_touched = false;
            if (self.fits)(node, room) {
                top.offer(place);
            }
        }
    }

    /// Which GPUs of the best node.
    fn gpus(&self, room: &Room) -> Option<GpuMask> {
        let Need::Share { units, time_sliced } = self.taker.need else {
            return whole_gpus(room, self.taker.need, self.key);
        };
        let profile = room.profile()?;
        let fee = Fee::new(self.tables, profile.pool, &self.taker);
        let cost = Value::of(self.tables, &profile).cost(&fee, &profile)?;
        if cost.left == GpuUnits::WHOLE {
            return pick_gpus(room, 1, false);
        }
        let left = |gpu: &GpuRoom| gpu.free_for_share(self.taker.trust, time_sliced);
        let at = room.gpus.iter().position(|gpu| left(gpu) == cost.left && cost.left >= units)?;
        Some(GpuMask::from_iter([at]))
    }
}

impl Worths {
    /// Works out what every profile is worth when prices are others, so that the next search finds it done.
    pub(in crate::plan) fn prepare(&mut self, tables: &Tables, prices: u64, profiles: &NodeClasses) {
        if self.prices == prices {
            return;
        }
        self.keep_for(prices);
        for (pool, slots) in profiles.pools() {
            for (slot, (head, known)) in slots.heads().iter().zip(self.of_pool(pool, slots).0).enumerate() {
                if head.stamp != 0 {
                    known.keep_for(head.stamp, tables, slots.profile(slot));
                }
            }
        }
    }

    /// Forgets everything when prices are others.
    fn keep_for(&mut self, prices: u64) {
        if self.prices != prices {
            self.prices = prices;
            self.pools.iter_mut().for_each(Vec::clear);
        }
    }

    /// What is known of a pool's slots, and a list to work with.
    fn of_pool(&mut self, pool: PoolId, slots: &ClassSlots) -> (&mut [KnownWorth], &mut Vec<(Score, usize)>) {
        if self.pools.len() <= pool.index() {
            self.pools.resize_with(pool.index() + 1, Vec::new);
        }
        let known = &mut self.pools[pool.index()];
        known.resize(slots.heads().len().max(known.len()), KnownWorth::default());
        (known, &mut self.bounds)
    }
}

impl KnownWorth {
    fn keep_for(&mut self, stamp: u32, tables: &Tables, profile: &NodeClass) {
        if self.stamp != stamp {
            *self = Self { stamp, value: Value::of(tables, profile) };
        }
    }
}

fn whole_gpus(room: &Room, need: Need, key: &KindKey) -> Option<GpuMask> {
    match need {
        Need::Whole(count) => pick_gpus(room, count, key.topology.task_on_island),
        Need::Share { .. } | Need::Slice { .. } => pick_gpus(room, 1, false),
    }
}

/// Which field decided, and against whom.
fn chosen(best: &ScoredPlace, second: Option<&ScoredPlace>) -> ChosenPlace {
    let by = match second.map(|second| (best.score, second.score)) {
        None => Field::Only,
        Some((best, second)) if best.among_gpus != second.among_gpus => Field::WithoutGpus,
        Some((best, second)) if best.drains != second.drains => Field::Drains,
        Some((best, second)) if best.lost != second.lost => Field::Worth,
        Some((best, second)) if best.scarce != second.scarce => Field::Scarce,
        Some(_) => Field::Node,
    };
    let runner_up = second.map(|second| (second.score.node, i64::from(second.cost)));
    ChosenPlace { by, cost: i64::from(best.cost), runner_up }
}
