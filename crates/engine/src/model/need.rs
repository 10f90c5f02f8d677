//! What an ask comes to on GPUs of one model, by the model's geometry and the policy on sharing (rule 10).
//!
//! A share is enforced by MPS inside one trust domain, by time-slicing for interactive work that allows it, by a MIG
//! slice that is large enough, or by a GPU of its own: the policy says which of them a class and a trust domain may
//! use, in order, and what throughput a class may lose by it.

use serde::{Deserialize, Serialize};

use crate::model::job::GpuAsk;
use crate::model::placement::Placement;
use crate::model::policy::Mode;
use crate::units::{GpuUnits, PoolId};

/// What one task takes of GPUs of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Whole GPUs of one node; 0 for work that needs none.
    Whole(u32),
    /// A part of one GPU beside tasks of the same trust domain.
    Share { units: GpuUnits, time_sliced: bool },
    /// A slice cut out of one GPU, whoever else has slices of it, by the number of its profile in the model's table.
    Slice { profile: u8, units: GpuUnits },
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
pub struct PoolOption {
    pub pool: PoolId,
    pub need: Need,
    /// Expected loss of throughput against the same part of an undivided GPU, in thousandths.
    pub tax: u16,
    /// Its place in the order of alternatives and of modes; ways of one rank differ in the pool alone.
    pub rank: u8,
}

/// Why sharing is refused: it would cost more throughput than the class may lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharingRefusal {
    pub mode: Mode,
    /// Expected loss of throughput, in thousandths.
    pub tax: u16,
    pub tax_max: u16,
}
