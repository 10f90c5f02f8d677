//! What a node is worth to the work that usually comes, and what of it a task would cost.
//!
//! A node is worth the best set of pieces it can still host. Its GPUs share its cores, so a core has a price: at a given
//! price every GPU is filled by itself with what is worth most after its cores are paid, and the node's own cores are
//! added. A core counts only with the memory that usually goes with it: GPUs beside idle cores and no memory are stuck.
//! The lowest such sum over all prices bounds what the node can bring, and is taken for its worth. A task costs
//! the worth before it less the worth after it. Beside that, each place left for several whole GPUs counts a little.
//!
//! What is left of a GPU that one trust domain holds in part counts in full, although others cannot have it: who
//! holds a part of it is the likeliest to ask for more.

use crate::model::need::Need;
use crate::price::node_classes::{ClassHead, NodeClass};
use crate::price::prices::{LANES, Lane, Tables};
use crate::units::{GpuUnits, PoolId, TrustId};

/// What a task asks for, as far as worth goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taker {
    pub need: Need,
    pub cpu_milli: u64,
    pub memory: u64,
    pub trust: TrustId,
}

/// What a profile is worth.
#[derive(Clone, Copy, Debug, Default)]
pub struct Value {
    /// The price of a core at which cores and pieces are worth least: the one that counts.
    lowest: usize,
    idle: u32,
    cpu_milli: u64,
    /// Cores and pieces, at each price of a core.
    lanes: Lane,
    /// In millionths of a GPU.
    pub total: i64,
}

/// What a task would cost on a profile, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// In millionths of a GPU.
    pub worth: i64,
    /// On a GPU with so much left, where it asks for a part of one.
    pub left: GpuUnits,
}

/// What a task takes out of a node of one pool, at each price of a core.
pub(crate) struct Fee<'a> {
    tables: &'a Tables,
    pub pool: PoolId,
    taker: &'a Taker,
    cores: Lane,
    /// Whole GPUs; a part of a GPU costs what it leaves less than it found.
    whole: Lane,
}

impl<'a> Fee<'a> {
    pub(crate) fn new(tables: &'a Tables, pool: PoolId, taker: &'a Taker) -> Self {
        let mut whole = [0; LANES];
        if let Need::Whole(count) = taker.need {
            (0..count).for_each(|_| add(&mut whole, tables.left(pool, GpuUnits::WHOLE)));
        }
        Self { tables, pool, taker, cores: tables.cores(taker.cpu_milli), whole }
    }

    /// False where cores or GPUs are too few.
    pub(crate) fn could_fit(&self, head: &ClassHead) -> bool {
        let gpus = match self.taker.need {
            Need::Whole(count) => count <= head.idle,
            Need::Share { units, .. } => units <= head.left_most,
            Need::Slice { .. } => true,
        };
        gpus && self.taker.cpu_milli <= head.cpu_milli
    }

    fn left(&self, left: GpuUnits) -> &Lane {
        self.tables.left(self.pool, left)
    }

    /// The cores of use that would be left, in thousandths; `None` where there are not enough.
    fn cores_left(&self, profile: &NodeClass) -> Option<u64> {
        let cpu_milli = profile.cpu_milli.checked_sub(self.taker.cpu_milli)?;
        // Whether the last GiB is enough is seen when the node itself is looked at.
        let memory = (profile.memory_gib << 30).saturating_sub(self.taker.memory);
        Some(self.tables.cores_of_use(cpu_milli, memory))
    }

    fn blocks(&self, idle: u32, cpu_milli: u64) -> i64 {
        self.tables.blocks(self.pool, idle, cpu_milli)
    }

    /// What is left of each GPU that could be shared with the task, each amount once, with what it leaves of it.
    fn parts(
        &self,
        profile: &NodeClass,
        units: GpuUnits,
        time_sliced: bool,
    ) -> impl Iterator<Item = SharedGpu> {
        let mut before = GpuUnits::ZERO;
        let trust = self.taker.trust;
        let open = profile.gpus().filter(move |left| left.has(units, trust, time_sliced));
        let once = open.filter(move |left| core::mem::replace(&mut before, left.units) != left.units);
        once.map(move |left| SharedGpu {
            found: left.units,
            rest: left.units.checked_sub(units).unwrap_or_default(),
            was_idle: left.trust.is_none(),
        })
    }
}

struct SharedGpu {
    found: GpuUnits,
    rest: GpuUnits,
    was_idle: bool,
}

impl Value {
    /// What a profile is worth.
    pub(crate) fn of(tables: &Tables, profile: &NodeClass) -> Self {
        let cpu_milli = tables.cores_of_use(profile.cpu_milli, profile.memory_gib << 30);
        let mut lanes = tables.cores(cpu_milli);
        for left in profile.gpus() {
            add(&mut lanes, tables.left(profile.pool, left.units));
        }
        let idle = profile.idle();
        let least = least(&lanes);
        let lowest = lanes.iter().position(|&lane| lane == least).expect("the least is one of them");
        let total = i64::from(least) + tables.blocks(profile.pool, idle, cpu_milli);
        Self { lowest, idle, cpu_milli, lanes, total }
    }

    /// A bound below what a task costs on the profile that this is the value of, quickly: at the price of a core that
    /// counts before it, others may count after it and make it cost more, never less. `None` where it does not fit.
    pub(crate) fn cost_at_least(&self, fee: &Fee<'_>, profile: &NodeClass) -> Option<i32> {
        let taken = self.cpu_milli.saturating_sub(fee.cores_left(profile)?);
        let cores = fee.tables.cores_at(self.lowest, taken);
        let Need::Share { units, time_sliced } = fee.taker.need else {
            return Some(cores.wrapping_add(fee.whole[self.lowest]));
        };
        let parts = fee.parts(profile, units, time_sliced);
        let taken = parts
            .map(|part| fee.left(part.found)[self.lowest].wrapping_sub(fee.left(part.rest)[self.lowest]));
        taken.min().map(|taken| cores.wrapping_add(taken))
    }

    /// The least that a task costs on the profile that this is the value of; `None` where it does not fit.
    pub(crate) fn cost(&self, fee: &Fee<'_>, profile: &NodeClass) -> Option<Cost> {
        let cpu_milli = fee.cores_left(profile)?;
        let mut lanes = self.lanes;
        match self.cpu_milli.saturating_sub(cpu_milli) {
            taken if taken == fee.taker.cpu_milli => subtract(&mut lanes, &fee.cores),
            taken => subtract(&mut lanes, &fee.tables.cores(taken)),
        }
        match fee.taker.need {
            Need::Whole(count) => {
                let idle = self.idle.checked_sub(count)?;
                subtract(&mut lanes, &fee.whole);
                let after = i64::from(least(&lanes)) + fee.blocks(idle, cpu_milli);
                Some(Cost { worth: self.total - after, left: GpuUnits::WHOLE })
            }
            Need::Share { units, time_sliced } => {
                let cost = |part: SharedGpu| {
                    let least = least_with(&lanes, fee.left(part.found), fee.left(part.rest));
                    let idle = self.idle - u32::from(part.was_idle);
                    let after = i64::from(least) + fee.blocks(idle, cpu_milli);
                    Cost { worth: self.total - after, left: part.found }
                };
                // Most is left first: of equals the tightest wins.
                fee.parts(profile, units, time_sliced).map(cost).min_by_key(|cost| (cost.worth, cost.left))
            }
            // What a slice costs is judged by what could still be cut out.
            Need::Slice { .. } => None,
        }
    }
}

// The bounds of prices keep every sum within 32 bits; wrapping lets the lanes be worked on side by side.

fn add(lanes: &mut Lane, more: &Lane) {
    for (lane, more) in lanes.iter_mut().zip(more) {
        *lane = lane.wrapping_add(*more);
    }
}

fn subtract(lanes: &mut Lane, less: &Lane) {
    for (lane, less) in lanes.iter_mut().zip(less) {
        *lane = lane.wrapping_sub(*less);
    }
}

fn least(lanes: &Lane) -> i32 {
    lanes.iter().copied().fold(i32::MAX, i32::min)
}

/// The least with one GPU's residual exchanged for another.
fn least_with(lanes: &Lane, without: &Lane, with: &Lane) -> i32 {
    let mut changed = [0; LANES];
    for (at, lane) in changed.iter_mut().enumerate() {
        *lane = lanes[at].wrapping_sub(without[at]).wrapping_add(with[at]);
    }
    least(&changed)
}
