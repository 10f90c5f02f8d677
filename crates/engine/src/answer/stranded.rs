//! Free but unschedulable: what is free of GPUs and fits nobody who waits or usually comes, and why.
//!
//! Every free part of a GPU is counted once: a shape can use it, or there is one reason why it cannot. What no shape can use
//! is stranded. A gang uses what is free only where all of its minimum fits; groups are looked at one by one.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use strum::IntoStaticStr;

use crate::model::job::GpuAsk;
use crate::model::need::Need;
use crate::plan::place::{FitByDomain, tasks_beside_gpus};
use crate::state::State;
use crate::state::jobs::KindKey;
use crate::state::rooms::{GpuRoom, Room};
use crate::state::ways::{slice, ways};
use crate::units::{DeviceSetId, GpuUnits, LevelId, NodeId, NodeSetId, PoolId, Resources, TrustId};

const TYPICAL_MAX: usize = 16;
/// The most shapes that wait and are looked at, those with most tasks first.
const PENDING_MAX: usize = 64;

/// Why a free part of a GPU is of no use to a shape, the nearest to use last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
#[strum(const_into_str, serialize_all = "snake_case")]
pub enum StrandedWhy {
    /// Its selectors keep it from the node.
    NotAllowed,
    /// The GPU is held in part, and a whole one is asked for.
    InUse,
    /// The GPU is cut into slices, and an undivided part is asked for; or the other way round.
    OtherMode,
    /// Another trust domain holds a part of it.
    Strangers,
    /// Slots are free, but none at which the profile may begin.
    NoLegalStart,
    TooSmall,
    /// Too few whole GPUs are free on the node or island; or too few tasks of a gang would fit the pool or domain.
    NotTogether,
    Cpu,
    Memory,
    OtherResource,
    /// It is what remains beside as many tasks as fit.
    LeftOver,
}

/// What is asked for, as far as it matters where it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StrandedAsk {
    /// As it was asked for first.
    pub gpus: GpuAsk,
    /// What that, or an alternative, comes to in the pool.
    pub need: Need,
    pub resources: Resources,
    /// Whose neighbours it may have; a shape that usually comes may be of any domain.
    pub trust: Option<TrustId>,
    pub nodes: NodeSetId,
    pub devices: DeviceSetId,
    pub on_island: bool,
    /// So many tasks start together or not at all…
    pub together: u32,
    /// …in one domain of this level, where one is asked for.
    pub within: Option<LevelId>,
}

/// How many tasks ask for a shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StrandedSource {
    pub pending: u64,
    /// Of a thousand tasks that came of late.
    pub typical_milli: u32,
}

/// What a pool has free of one shape's kind, and why the rest is of no use to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrandedShape {
    pub asked: StrandedAsk,
    pub source: StrandedSource,
    pub fits: u64,
    pub usable: GpuUnits,
    pub why: BTreeMap<StrandedWhy, GpuUnits>,
}

fn add(counted: &mut BTreeMap<StrandedWhy, GpuUnits>, why: StrandedWhy, units: GpuUnits) {
    if units > GpuUnits::ZERO {
        *counted.entry(why).or_default() += units;
    }
}

/// What a pool has free, and how much of that is of no use to anybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrandedPool {
    pub pool: PoolId,
    /// Healthy GPUs on open nodes.
    pub gpus: u64,
    pub free: GpuUnits,
    /// What no shape can use any part of, by what keeps the nearest one from it.
    pub stranded: BTreeMap<StrandedWhy, GpuUnits>,
    /// Shapes that tasks wait for come first.
    pub shapes: Vec<StrandedShape>,
}

impl StrandedPool {
    /// All that is stranded.
    pub fn stranded_units(&self) -> GpuUnits {
        self.stranded.values().copied().sum()
    }
}

/// What is free and of no use, pool by pool.
pub fn stranded(state: &State) -> Vec<StrandedPool> {
    let with_gpus = state.fleet.pool_ids().filter(|&pool| !state.fleet.model(pool).is_empty());
    with_gpus.map(|pool| of_pool(state, pool)).collect()
}

fn of_pool(state: &State, pool: PoolId) -> StrandedPool {
    let (stranded, shapes) = (BTreeMap::new(), shapes(state, pool));
    let mut found = StrandedPool { pool, gpus: 0, free: GpuUnits::ZERO, stranded, shapes };
    let rooms = || state.ledger.rooms().iter().filter(|(_, room)| room.open && room.pool == pool);
    let fit = |shape: &StrandedShape| {
        let mut fit = FitByDomain::default();
        for (node, room) in rooms() {
            let tasks = NodeUse { state, node, room, asked: shape.asked }.tasks();
            fit.add(&state.fleet, shape.asked.within, node, tasks);
        }
        fit
    };
    let fits: Vec<FitByDomain> = found.shapes.iter().map(fit).collect();
    for (node, room) in rooms() {
        found.gpus += room.usable_gpus();
        let free: GpuUnits = room.gpus.iter().map(GpuRoom::not_held).sum();
        if free == GpuUnits::ZERO {
            continue;
        }
        found.free += free;
        let mut nearest = alloc::vec![Some(StrandedWhy::NotAllowed); room.gpus.len()];
        for (shape, fit) in found.shapes.iter_mut().zip(&fits) {
            let asked = &shape.asked;
            let around = fit.around(&state.fleet, asked.within, node);
            let enough = around.is_some_and(|tasks| tasks >= u64::from(asked.together));
            let kept_by = NodeUse { state, node, room, asked: *asked }.count(enough, shape);
            for (nearest, why) in nearest.iter_mut().zip(kept_by) {
                *nearest = (*nearest).zip(why).map(|(nearest, why)| nearest.max(why));
            }
        }
        for (gpu, why) in room.gpus.iter().zip(nearest) {
            if let Some(why) = why {
                add(&mut found.stranded, why, gpu.not_held());
            }
        }
    }
    found
}

/// Shapes that the pool could meet if it were empty.
fn shapes(state: &State, pool: PoolId) -> Vec<StrandedShape> {
    let mut sources: BTreeMap<StrandedAsk, StrandedSource> = BTreeMap::new();
    let policy = state.tenants.policy();
    let waiting = state.jobs.waiting().values().flat_map(|kind| {
        let jobs = u64::try_from(kind.jobs.len()).unwrap_or(u64::MAX);
        kind.key.alike().map(move |key| (key, u64::from(key.tasks) * jobs))
    });
    for (key, tasks) in waiting.filter(|(key, _)| key.shape.gpus != GpuAsk::Whole(0)) {
        let options = ways(&state.fleet, policy, key.class, state.tenants.trust(key.trust), &key.shape);
        for option in options.filter_map(Result::ok).filter(|option| option.pool == pool) {
            sources.entry(asked_by(key, option.need)).or_default().pending += tasks;
        }
    }
    // Where too many shapes are waited for, those with fewest tasks are left out.
    let mut pending: Vec<u64> = sources.values().map(|source| source.pending).collect();
    pending.sort_unstable_by_key(|&tasks| Reverse(tasks));
    if let Some(&least) = pending.get(PENDING_MAX) {
        sources.retain(|_, source| source.pending > least);
    }
    let total: u64 = state.demand.shapes().map(|(_, tasks)| u64::from(tasks)).sum();
    let mut usual: Vec<_> = state.demand.shapes().collect();
    usual.sort_by_key(|&(typical, tasks)| (Reverse(tasks), *typical));
    for (typical, tasks) in usual.into_iter().take(TYPICAL_MAX) {
        let resources = Resources { cpu_milli: typical.cpu_milli, pods: 1, ..Resources::default() };
        // Whatever the policy says of sharing.
        let slice = state.fleet.mig(pool).and_then(|mig| slice(mig, typical.gpus));
        let could_be_cut = slice.is_some() || !typical.gpus.is_slice();
        let could_use = could_be_cut && state.fleet.set_has_pool(typical.devices, pool);
        let asked = StrandedAsk {
            gpus: typical.gpus,
            need: slice.unwrap_or_else(|| Need::nominal(typical.gpus)),
            resources,
            trust: None,
            nodes: NodeSetId(0),
            devices: typical.devices,
            on_island: false,
            together: typical.together,
            within: None,
        };
        let milli = u64::from(tasks) * 1000 / total.max(1);
        if typical.gpus != GpuAsk::Whole(0) && could_use {
            sources.entry(asked).or_default().typical_milli += u32::try_from(milli).unwrap_or(1000);
        }
    }
    let mut shapes: Vec<(StrandedAsk, StrandedSource)> = sources.into_iter().collect();
    shapes.sort_by_key(|(_, source)| {
        (source.pending == 0, Reverse(source.typical_milli), Reverse(source.pending))
    });
    let (fits, usable) = (0, GpuUnits::ZERO);
    let uncounted = |(asked, source)| StrandedShape { asked, source, fits, usable, why: BTreeMap::new() };
    shapes.into_iter().map(uncounted).collect()
}

fn asked_by(key: &KindKey, need: Need) -> StrandedAsk {
    StrandedAsk {
        gpus: key.shape.gpus,
        need,
        resources: key.shape.resources,
        trust: Some(key.trust),
        nodes: key.shape.nodes,
        devices: key.shape.devices,
        on_island: key.topology.task_on_island,
        together: key.min,
        within: key.topology.gang_within,
    }
}

struct NodeUse<'a> {
    state: &'a State,
    node: NodeId,
    room: &'a Room,
    asked: StrandedAsk,
}

impl NodeUse<'_> {
    /// Counts what the shape can use of the node, and why not of the rest; says of each GPU what keeps the shape
    /// from it, if anything does. `enough`: all that start together would fit where the node is.
    fn count(&self, enough: bool, shape: &mut StrandedShape) -> Vec<Option<StrandedWhy>> {
        let (copies, need) = (self.copies(), self.asked.need);
        let by_gpus = self.tasks_by_gpus(&copies);
        let tasks = by_gpus.min(tasks_beside_gpus(self.room.free(), self.asked.resources));
        let short = self.short_resource();
        if enough {
            shape.fits += u64::from(tasks);
            shape.usable += need.units().times(tasks);
        } else {
            add(&mut shape.why, StrandedWhy::NotTogether, need.units().times(tasks));
        }
        add(&mut shape.why, short, need.units().times(by_gpus - tasks));
        let mut kept_by = |(gpu, copies): (&GpuRoom, Result<u32, StrandedWhy>)| match copies {
            Ok(count) => {
                let rest = gpu.not_held().checked_sub(need.units_each().times(count));
                add(&mut shape.why, StrandedWhy::LeftOver, rest.unwrap_or_default());
                if tasks == 0 { Some(short) } else { (!enough).then_some(StrandedWhy::NotTogether) }
            }
            Err(why) => {
                add(&mut shape.why, why, gpu.not_held());
                Some(why)
            }
        };
        self.room.gpus.iter().zip(copies).map(&mut kept_by).collect()
    }

    /// How many parts of each GPU the shape could take if cores and memory were no matter, or why none.
    fn copies(&self) -> Vec<Result<u32, StrandedWhy>> {
        if !self.state.fleet.set_has_node(self.asked.nodes, self.node) {
            return alloc::vec![Err(StrandedWhy::NotAllowed); self.room.gpus.len()];
        }
        match self.asked.need {
            Need::Whole(count) => self.whole(count),
            Need::Share { units, time_sliced } => {
                self.room.gpus.iter().map(|gpu| self.shares(gpu, units, time_sliced)).collect()
            }
            Need::Slice { profile, .. } => {
                self.room.gpus.iter().map(|gpu| self.slices(gpu, profile)).collect()
            }
        }
    }

    /// Free GPUs go together in groups; what is too few for a group is not together, and what is too many is left over.
    fn whole(&self, count: u32) -> Vec<Result<u32, StrandedWhy>> {
        let mut groups: BTreeMap<u32, u32> = BTreeMap::new();
        let group = |gpu: &GpuRoom| if self.asked.on_island { gpu.island } else { 0 };
        for gpu in self.room.gpus.iter().filter(|gpu| gpu.is_free()) {
            *groups.entry(group(gpu)).or_default() += 1;
        }
        groups.retain(|_, free| *free >= count);
        for free in groups.values_mut() {
            *free = *free / count.max(1) * count;
        }
        let gpus = self.room.gpus.iter();
        gpus.map(|gpu| {
            if !gpu.is_free() {
                return Err(if gpu.layout.is_empty() { StrandedWhy::InUse } else { StrandedWhy::OtherMode });
            }
            let Some(together) = groups.get_mut(&group(gpu)) else { return Err(StrandedWhy::NotTogether) };
            let taken = u32::from(*together > 0);
            *together -= taken;
            Ok(taken)
        })
        .collect()
    }

    fn shares(&self, gpu: &GpuRoom, units: GpuUnits, time_sliced: bool) -> Result<u32, StrandedWhy> {
        let trust = self.asked.trust.or(gpu.trust).unwrap_or_default();
        if !gpu.layout.is_empty() || (gpu.holders > 0 && gpu.time_sliced != time_sliced) {
            return Err(StrandedWhy::OtherMode);
        }
        if gpu.strangers > 0 || gpu.trust.is_some_and(|holder| holder != trust) {
            return Err(StrandedWhy::Strangers);
        }
        let copies = gpu.shares_that_fit(trust, units, time_sliced);
        if copies == 0 { Err(StrandedWhy::TooSmall) } else { Ok(copies) }
    }

    fn slices(&self, gpu: &GpuRoom, profile: u8) -> Result<u32, StrandedWhy> {
        let Some(layout) = gpu.open_layout() else { return Err(StrandedWhy::OtherMode) };
        let copies = self.room.mig.map_or(0, |mig| layout.copies_left(mig, profile));
        if copies == 0 { Err(StrandedWhy::NoLegalStart) } else { Ok(copies) }
    }

    fn tasks(&self) -> u32 {
        self.tasks_by_gpus(&self.copies()).min(tasks_beside_gpus(self.room.free(), self.asked.resources))
    }

    fn tasks_by_gpus(&self, copies: &[Result<u32, StrandedWhy>]) -> u32 {
        let all: u32 = copies.iter().map(|copies| copies.unwrap_or(0)).sum();
        match self.asked.need {
            Need::Whole(count) => all / count.max(1),
            Need::Share { .. } | Need::Slice { .. } => all,
        }
    }

    /// What the node is shortest of, beside GPUs, for one task more.
    fn short_resource(&self) -> StrandedWhy {
        let (free, asked) = (self.room.free(), self.asked.resources);
        let tasks = tasks_beside_gpus(free, asked);
        let cpu = Resources { cpu_milli: asked.cpu_milli, ..Resources::default() };
        let memory = Resources { memory: asked.memory, ..Resources::default() };
        let mut parts = [(StrandedWhy::Cpu, cpu), (StrandedWhy::Memory, memory)].into_iter();
        let short = parts.find(|(_, part)| tasks_beside_gpus(free, *part) == tasks);
        short.map_or(StrandedWhy::OtherResource, |(why, _)| why)
    }
}
