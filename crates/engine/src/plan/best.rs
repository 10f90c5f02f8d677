//! The place that is missed least, where places have prices: the least loss of worth over all that fit.
//!
//! Nodes of one profile cost the same, so profiles are compared, and of each only as many nodes are looked at as could
//! still be the best or the second. What a shape costs on a profile is remembered outside the state until prices change.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::RefCell;

use crate::event::{Chosen, Field};
use crate::jobs::KindKey;
use crate::need::Need;
use crate::plan::draft::Draft;
use crate::plan::place::Ask;
use crate::prices::{Lane, Tables};
use crate::profiles::{Profile, Slots};
use crate::rooms::{Drains, Room, pick_gpus};
use crate::units::{GpuMask, GpuUnits, NodeId, PoolId};
use crate::worth::{Taker, Value};

/// Costs that differ by less than this many millionths of a GPU are taken for equal: prices are not better known.
const BUCKET: i32 = 3000;
/// The most shapes whose costs are remembered: a few megabytes on a fleet of a thousand nodes.
const SHAPES_MAX: usize = 1024;
/// Stands for a place that does not fit.
const NOWHERE: i32 = i32::MAX;

/// How good a place is, fields in the order in which they decide; less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score {
    /// Work without GPUs on a node that has some.
    pub among_gpus: bool,
    /// Whether somebody has to leave first.
    pub drains: Drains,
    /// What is lost, in buckets.
    pub lost: i32,
    /// The lower id.
    pub node: NodeId,
}

/// A place for one task.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Where.
    pub pool: PoolId,
    /// Which node.
    pub node: NodeId,
    /// Which of its GPUs.
    pub gpus: GpuMask,
    /// How good it is.
    pub score: Score,
    /// Why there.
    pub chosen: Chosen,
}

/// What shapes cost on profiles, as far as it was worked out. Losing it costs time, never an answer.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    prices: u64,
    by_taker: BTreeMap<Taker, Vec<Vec<Cell>>>,
    values: Vec<Vec<(u32, Option<Value>)>>,
}

/// What a shape costs on the profile that had this stamp.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    stamp: u32,
    cost: i32,
}

/// A place that may be the best.
#[derive(Clone, Copy)]
struct Place {
    score: Score,
    cost: i32,
    pool: PoolId,
}

/// Nodes as they are in the state, or as the draft changed them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Touched,
    Untouched,
}

/// The best two so far.
#[derive(Default)]
struct Top {
    best: Option<Place>,
    second: Option<Place>,
}

impl Top {
    /// What costs more than this cannot be the best or the second any more.
    fn cost_max(&self, among_gpus: bool) -> i32 {
        match self.second {
            Some(second) if second.score.among_gpus < among_gpus => i32::MIN,
            Some(second) if second.score.among_gpus == among_gpus && second.score.drains == Drains::No => {
                second.score.lost.saturating_add(1).saturating_mul(BUCKET).saturating_sub(1)
            }
            Some(_) | None => NOWHERE - 1,
        }
    }

    fn wants(&self, score: &Score) -> bool {
        self.second.is_none_or(|second| *score < second.score)
    }

    fn offer(&mut self, place: Place) {
        if self.best.is_none_or(|best| place.score < best.score) {
            self.second = self.best.replace(place);
        } else {
            self.second = Some(place);
        }
    }
}

/// The best place for one task that is asked for, in any of these pools, if prices are in force and there is one.
pub fn find(
    draft: &Draft<'_>,
    ask: &Ask<'_>,
    pools: &[PoolId],
    within: &dyn Fn(NodeId) -> bool,
) -> Option<Found> {
    let state = draft.state;
    let tables = state.demand.tables()?;
    let profiles = state.ledger.rooms().profiles()?;
    let (key, need) = (ask.key, ask.way.need);
    let taker = Taker { need, cpu_milli: key.shape.resources.cpu_milli, trust: key.trust };
    let fits = |node: NodeId, room: &Room| {
        within(node)
            && state.fleet.set_has_node(key.shape.nodes, node)
            && room.free().covers(&key.shape.resources)
            && (!key.topology.task_on_island || whole_gpus(room, need, key).is_some())
    };
    let cores = tables.cores(taker.cpu_milli);
    let search = Search { draft, key, tables, taker, cores, fits: &fits };
    let mut top = Top::default();
    for &pool in pools {
        for side in [Side::Touched, Side::Untouched] {
            let profiles = if side == Side::Touched { draft.touched_profiles() } else { Some(profiles) };
            if let Some(slots) = profiles.and_then(|profiles| profiles.pool(pool)) {
                search.look(pool, slots, side, &mut top);
            }
        }
    }
    let best = top.best?;
    let room = draft.room(best.score.node)?;
    let gpus = search.gpus(room)?;
    let (pool, node, score) = (best.pool, best.score.node, best.score);
    Some(Found { pool, node, gpus, score, chosen: chosen(&best, top.second.as_ref()) })
}

struct Search<'a, 'd> {
    draft: &'a Draft<'d>,
    key: &'a KindKey,
    tables: &'a Tables,
    taker: Taker,
    /// What its cores cost.
    cores: Lane,
    fits: &'a dyn Fn(NodeId, &Room) -> bool,
}

impl Search<'_, '_> {
    fn among_gpus(&self, pool: PoolId) -> bool {
        self.taker.need == Need::Whole(0) && !self.draft.state.fleet.model(pool).is_empty()
    }

    fn look(&self, pool: PoolId, slots: &Slots, side: Side, top: &mut Top) {
        let nothing = RefCell::default();
        let costs = match side {
            Side::Touched => self.draft.touched_costs(),
            Side::Untouched => self.draft.costs().unwrap_or(&nothing),
        };
        let costs = &mut *costs.borrow_mut();
        costs.keep_for(self.draft.state.demand.version());
        let Costs { by_taker, values, .. } = costs;
        let cells = at_pool(by_taker.entry(self.taker).or_default(), pool);
        let values = at_pool(values, pool);
        cells.resize(slots.heads().len().max(cells.len()), Cell::default());
        values.resize(slots.heads().len().max(values.len()), (0, None));
        let among_gpus = self.among_gpus(pool);
        let mut cost_max = top.cost_max(among_gpus);
        for (slot, (head, cell)) in slots.heads().iter().zip(cells).enumerate() {
            if cell.stamp != head.stamp {
                let cost = if head.stamp == 0 {
                    NOWHERE
                } else {
                    self.cost_on(slots.profile(slot), &mut values[slot], head.stamp)
                };
                *cell = Cell { stamp: head.stamp, cost };
            }
            // An empty slot that was never filled has no stamp either.
            if cell.cost > cost_max || head.stamp == 0 {
                continue;
            }
            let (drains, node) = (head.drains, head.first);
            let score = Score { among_gpus, drains, lost: cell.cost.div_euclid(BUCKET), node };
            if top.wants(&score) {
                self.nodes(Place { score, cost: cell.cost, pool }, slots, slot, side, top);
                cost_max = top.cost_max(among_gpus);
            }
        }
    }

    fn cost_on(&self, profile: &Profile, known: &mut (u32, Option<Value>), stamp: u32) -> i32 {
        if profile.cpu_milli < self.taker.cpu_milli {
            return NOWHERE;
        }
        if known.0 != stamp {
            *known = (stamp, None);
        }
        let value = known.1.get_or_insert_with(|| Value::of(self.tables, profile));
        self.cost_of(value, profile)
    }

    fn cost_of(&self, value: &Value, profile: &Profile) -> i32 {
        let cost = value.cost(self.tables, profile, &self.taker, &self.cores);
        // The bounds of prices keep what a node is worth within 32 bits.
        cost.map_or(NOWHERE, |cost| i32::try_from(cost.worth).unwrap_or(NOWHERE - 1))
    }

    /// The nodes of a profile, as long as they could be the best or the second.
    fn nodes(&self, mut place: Place, slots: &Slots, slot: usize, side: Side, top: &mut Top) {
        let first = match side {
            Side::Touched => NodeId(0),
            Side::Untouched => self.draft.first_untouched(place.pool, slot),
        };
        let mut all_touched = true;
        for node in slots.nodes(slot, first) {
            place.score.node = node;
            if !top.wants(&place.score) {
                return;
            }
            let room = match side {
                Side::Touched => self.draft.room(node),
                Side::Untouched => self.draft.untouched_room(node),
            };
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
        let profile = Profile::of(room)?;
        let value = Value::of(self.tables, &profile);
        let cost = value.cost(self.tables, &profile, &self.taker, &self.cores)?;
        if cost.left == GpuUnits::WHOLE {
            return pick_gpus(room, 1, false);
        }
        let left = |gpu: &crate::rooms::GpuRoom| gpu.free_for_share(self.taker.trust, time_sliced);
        let at = room.gpus.iter().position(|gpu| left(gpu) == cost.left && cost.left >= units)?;
        let mut mask = GpuMask::default();
        mask.insert(at);
        Some(mask)
    }
}

impl Costs {
    /// Forgets everything when prices are others, or when it has become too much.
    fn keep_for(&mut self, prices: u64) {
        if self.prices != prices {
            self.prices = prices;
            self.by_taker.values_mut().flatten().for_each(Vec::clear);
            self.values.iter_mut().for_each(Vec::clear);
        }
        if self.by_taker.len() > SHAPES_MAX {
            self.by_taker.clear();
        }
    }
}

fn at_pool<T>(by_pool: &mut Vec<Vec<T>>, pool: PoolId) -> &mut Vec<T> {
    if by_pool.len() <= pool.index() {
        by_pool.resize_with(pool.index() + 1, Vec::new);
    }
    &mut by_pool[pool.index()]
}

fn whole_gpus(room: &Room, need: Need, key: &KindKey) -> Option<GpuMask> {
    match need {
        Need::Whole(count) => pick_gpus(room, count, key.topology.task_on_island),
        Need::Share { .. } | Need::Slice { .. } => pick_gpus(room, 1, false),
    }
}

/// Which field decided, and against whom.
fn chosen(best: &Place, second: Option<&Place>) -> Chosen {
    let by = match second.map(|second| (best.score, second.score)) {
        None => Field::Only,
        Some((best, second)) if best.among_gpus != second.among_gpus => Field::WithoutGpus,
        Some((best, second)) if best.drains != second.drains => Field::Drains,
        Some((best, second)) if best.lost != second.lost => Field::Worth,
        Some(_) => Field::Node,
    };
    let runner_up = second.map(|second| (second.score.node, i64::from(second.cost)));
    Chosen { by, cost: i64::from(best.cost), runner_up }
}
