//! What a node is worth to the work that usually comes, and what of it a task would cost.
//!
//! A node is worth the best set of pieces it can still host. Its GPUs share its cores, so a core has a price: at a given
//! price every GPU is filled by itself with what is worth most after its cores are paid, and the node's own cores are
//! added. The lowest such sum over all prices bounds what the node can bring, and is taken for its worth. A task costs
//! the worth before it less the worth after it. Beside that, each place left for several whole GPUs counts a little.
//!
//! What is left of a GPU that one trust domain holds in part counts in full, although others cannot have it: who
//! holds a part of it is the likeliest to ask for more.

use crate::need::Need;
use crate::prices::{CPU_MILLI_MAX, LANES, Lane, Tables};
use crate::profiles::Profile;
use crate::units::{GpuUnits, TrustId};

/// What a task asks for, as far as worth goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taker {
    /// GPUs.
    pub need: Need,
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// Whose neighbours it may have.
    pub trust: TrustId,
}

/// What a profile is worth.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    /// Cores and pieces, at each price of a core.
    lanes: Lane,
    idle: u32,
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

impl Value {
    /// What a profile is worth.
    pub(crate) fn of(tables: &Tables, profile: &Profile) -> Self {
        let mut lanes = tables.cores(profile.cpu_milli);
        for left in profile.gpus() {
            add(&mut lanes, tables.left(profile.pool, left.units));
        }
        let idle = profile.idle();
        let total = i64::from(least(&lanes)) + tables.blocks(profile.pool, idle, profile.cpu_milli);
        Self { lanes, idle, total }
    }

    /// The least that a task costs on the profile that this is the value of; `None` where it does not fit.
    /// `cores` is what the taker's cores cost.
    pub(crate) fn cost(
        &self,
        tables: &Tables,
        profile: &Profile,
        taker: &Taker,
        cores: &Lane,
    ) -> Option<Cost> {
        let cpu_milli = profile.cpu_milli.checked_sub(taker.cpu_milli)?;
        let mut lanes = self.lanes;
        if profile.cpu_milli <= CPU_MILLI_MAX {
            subtract(&mut lanes, cores);
        } else {
            // Cores beyond what counts cost nothing.
            subtract(&mut lanes, &tables.cores(profile.cpu_milli));
            add(&mut lanes, &tables.cores(cpu_milli));
        }
        let after =
            |lanes: &Lane, idle: u32| i64::from(least(lanes)) + tables.blocks(profile.pool, idle, cpu_milli);
        match taker.need {
            Need::Whole(count) => {
                let idle = self.idle.checked_sub(count)?;
                let whole = tables.left(profile.pool, GpuUnits::WHOLE);
                (0..count).for_each(|_| subtract(&mut lanes, whole));
                Some(Cost { worth: self.total - after(&lanes, idle), left: GpuUnits::WHOLE })
            }
            Need::Share { units, time_sliced } => {
                let mut best: Option<Cost> = None;
                let mut before = GpuUnits::ZERO;
                for left in profile.gpus().filter(|left| left.has(units, taker.trust, time_sliced)) {
                    if core::mem::replace(&mut before, left.units) == left.units {
                        continue;
                    }
                    let rest = left.units.checked_sub(units).unwrap_or_default();
                    let least = least_with(
                        &lanes,
                        tables.left(profile.pool, left.units),
                        tables.left(profile.pool, rest),
                    );
                    let idle = self.idle - u32::from(left.trust.is_none());
                    let after = i64::from(least) + tables.blocks(profile.pool, idle, cpu_milli);
                    let worth = self.total - after;
                    // Most is left first: of equals the tightest wins.
                    if best.is_none_or(|best| worth <= best.worth) {
                        best = Some(Cost { worth, left: left.units });
                    }
                }
                best
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
