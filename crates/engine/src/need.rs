//! What an ask comes to on GPUs of one model, by the model's geometry and the policy on sharing (rule 10).
//!
//! A share is enforced by MPS inside one trust domain, by time-slicing for interactive work that allows it, by a MIG
//! slice that is large enough, or by a GPU of its own: the policy says which of them a class and a trust domain may
//! use, in order, and what throughput a class may lose by it.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::catalogue::{self, Mig, Model};
use crate::event::Placement;
use crate::fleet::Fleet;
use crate::geometry::units_of;
use crate::job::{Class, GpuAsk, Least, Shape};
use crate::policy::{Mode, Policy};
use crate::units::{GpuUnits, PoolId};

/// What one task takes of GPUs of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Whole GPUs of one node; 0 for work that needs none.
    Whole(u32),
    /// A part of one GPU beside tasks of the same trust domain.
    Share {
        /// How much.
        units: GpuUnits,
        /// By turns on the whole device, or side by side.
        time_sliced: bool,
    },
    /// A slice cut out of one GPU, whoever else has slices of it.
    Slice {
        /// The number of the profile in the model's table.
        profile: u8,
        /// What its slots are charged.
        units: GpuUnits,
    },
}

impl Need {
    /// What an ask comes to as far as that can be said before a model is known.
    pub fn nominal(gpus: GpuAsk) -> Self {
        match gpus {
            GpuAsk::Whole(count) => Self::Whole(count),
            GpuAsk::Share(_) | GpuAsk::Slice(_) | GpuAsk::AtLeast(_) => {
                Self::Share { units: gpus.units(), time_sliced: false }
            }
        }
    }

    /// What a task that has a place was given.
    pub fn held(place: &Placement) -> Self {
        let (units, count) = (place.units_each, place.gpus.count());
        match place.slice {
            Some(slice) => Self::Slice { profile: slice.profile, units },
            None if units >= GpuUnits::WHOLE || count == 0 => Self::Whole(count),
            None => Self::Share { units, time_sliced: place.time_sliced },
        }
    }

    /// What one task is charged.
    pub fn units(self) -> GpuUnits {
        match self {
            Self::Whole(count) => GpuUnits::whole(count),
            Self::Share { units, .. } | Self::Slice { units, .. } => units,
        }
    }

    /// What it takes of each GPU it is given.
    pub fn units_each(self) -> GpuUnits {
        match self {
            Self::Whole(_) => GpuUnits::WHOLE,
            Self::Share { units, .. } | Self::Slice { units, .. } => units,
        }
    }
}

/// A way to meet a shape: in which pool, as what, at which price in throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Where.
    pub pool: PoolId,
    /// As what.
    pub need: Need,
    /// Expected loss of throughput against the same part of an undivided GPU, in thousandths.
    pub tax: u16,
    /// Its place in the order of alternatives and of modes; ways of one rank differ in the pool alone.
    pub rank: u8,
}

/// How many modes there are.
const MODES: u8 = 4;

/// Every way that geometry allows, in order, as the policy allows it or with why it does not.
pub fn ways<'a>(
    fleet: &'a Fleet,
    policy: &'a Policy,
    class: Class,
    domain: &'a str,
    shape: &'a Shape,
) -> impl Iterator<Item = Result<Way, Refused>> + 'a {
    let rules = policy.sharing.of(class, domain);
    shape.alternatives().zip(0u8..).flat_map(move |(alternative, at)| {
        let modes = modes(alternative.gpus, rules.modes, shape.time_slicing && class == Class::Interactive);
        modes.into_iter().zip(0u8..).flat_map(move |(mode, choice)| {
            pools(fleet, alternative.gpus).filter_map(move |pool| {
                if !fleet.set_has_pool(alternative.devices, pool) {
                    return None;
                }
                let need = need(fleet, alternative.gpus, mode, pool)?;
                let tax = tax(fleet.model(pool), need, policy);
                Some(if tax > rules.tax_max && mode != Mode::Whole {
                    Err(Refused { mode, tax, tax_max: rules.tax_max })
                } else {
                    Ok(Way { pool, need, tax, rank: at * MODES + choice })
                })
            })
        })
    })
}

/// Why sharing is refused: it would cost more throughput than the class may lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Which way of sharing.
    pub mode: Mode,
    /// Expected loss of throughput, in thousandths.
    pub tax: u16,
    /// The most that the class may lose.
    pub tax_max: u16,
}

/// The pool that a shape is demand in, and as what, whatever the policy says of sharing.
pub fn first_way(fleet: &Fleet, shape: &Shape) -> Option<(PoolId, Need)> {
    shape.alternatives().find_map(|alternative| {
        let mode = if alternative.gpus.is_slice() { Mode::Mig } else { Mode::Mps };
        let mut usable =
            pools(fleet, alternative.gpus).filter(|&pool| fleet.set_has_pool(alternative.devices, pool));
        usable.find_map(|pool| Some((pool, need(fleet, alternative.gpus, mode, pool)?)))
    })
}

/// Pools that could meet an ask: work without GPUs goes to nodes without GPUs first.
fn pools(fleet: &Fleet, gpus: GpuAsk) -> impl Iterator<Item = PoolId> {
    let none = gpus == GpuAsk::Whole(0);
    let without = fleet.pool_ids().filter(move |&pool| none && fleet.model(pool).is_empty());
    without.chain(fleet.pool_ids().filter(|&pool| !fleet.model(pool).is_empty()))
}

/// How an ask may be met, in order. Whole GPUs and slices are what they are; only a share can be met in several ways.
fn modes(gpus: GpuAsk, allowed: &[Mode], turns: bool) -> Vec<Mode> {
    match gpus {
        GpuAsk::Whole(_) => alloc::vec![Mode::Whole],
        GpuAsk::Slice(_) | GpuAsk::AtLeast(_) => alloc::vec![Mode::Mig],
        GpuAsk::Share(_) => {
            allowed.iter().copied().filter(|&mode| mode != Mode::TimeSlicing || turns).collect()
        }
    }
}

fn need(fleet: &Fleet, gpus: GpuAsk, mode: Mode, pool: PoolId) -> Option<Need> {
    match (gpus, mode) {
        (GpuAsk::Whole(count), _) => Some(Need::Whole(count)),
        (GpuAsk::Share(_), Mode::Whole) => Some(Need::Whole(1)),
        (GpuAsk::Share(units), Mode::Mps) => Some(Need::Share { units, time_sliced: false }),
        (GpuAsk::Share(units), Mode::TimeSlicing) => Some(Need::Share { units, time_sliced: true }),
        (GpuAsk::Share(units), Mode::Mig) => {
            let model = catalogue::model(fleet.model(pool))?;
            slice(model.mig?, GpuAsk::AtLeast(as_slice(model, units)?))
        }
        (GpuAsk::Slice(_) | GpuAsk::AtLeast(_), _) => slice(fleet.mig(pool)?, gpus),
    }
}

fn slice(mig: &Mig, gpus: GpuAsk) -> Option<Need> {
    let profile = gpus.profile_on(mig)?;
    Some(Need::Slice { profile, units: units_of(mig, mig.profile(profile)?) })
}

/// What a slice must have to be no less than a share: its part of the memory, and of the compute.
fn as_slice(model: &Model, units: GpuUnits) -> Option<Least> {
    let mig = model.mig?;
    let (parts, whole) = (units.parts(), GpuUnits::WHOLE.parts());
    // Slots of a device are even parts of its memory: who asks for a quarter gets two slots of eight.
    let enough =
        mig.profiles.iter().filter(|profile| u64::from(profile.slots) * whole >= parts * u64::from(mig.axis));
    let memory_mib = enough.map(|profile| profile.memory_mib).min()?;
    let compute = u8::try_from(parts.div_ceil(whole / 100)).ok()?;
    Some(Least { memory_mib, compute, compute_of: 100 })
}

/// What throughput is expected to be lost, in thousandths: for a slice the multiprocessors it lacks against its part of
/// the device, for shares what the policy says was measured.
pub fn tax(model: &str, need: Need, policy: &Policy) -> u16 {
    match need {
        Need::Whole(_) => 0,
        Need::Share { time_sliced: false, .. } => policy.sharing.mps_tax,
        Need::Share { time_sliced: true, .. } => policy.sharing.time_slicing_tax,
        Need::Slice { profile, .. } => {
            catalogue::model(model).and_then(|model| slice_tax(model, profile)).unwrap_or(0)
        }
    }
}

fn slice_tax(model: &Model, profile: u8) -> Option<u16> {
    let mig = model.mig?;
    let profile = mig.profile(profile)?;
    let has = u32::from(profile.sm?) * u32::from(mig.compute) * 1000;
    let part = u32::from(mig.sm?) * u32::from(profile.compute);
    u16::try_from(1000u32.saturating_sub((has + part / 2) / part)).ok()
}
