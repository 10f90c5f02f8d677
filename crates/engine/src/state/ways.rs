//! Every way in which a shape can be met by the pools of a fleet, as the policy allows it (rule 10).

use crate::device::catalogue::mig::Mig;
use crate::device::catalogue::{self, Model};
use crate::device::geometry::units_of;
use crate::model::job::{Class, GpuAsk, Least, Shape};
use crate::model::need::{Need, PoolOption, SharingRefusal};
use crate::model::policy::{Mode, Policy};
use crate::state::fleet::Fleet;
use crate::units::{GpuUnits, PoolId};
use alloc::vec::Vec;

const MODES: u8 = 4;

/// Every way that geometry allows, in order, as the policy allows it or with why it does not.
pub fn ways<'a>(
    fleet: &'a Fleet,
    policy: &'a Policy,
    class: Class,
    domain: &'a str,
    shape: &'a Shape,
) -> impl Iterator<Item = Result<PoolOption, SharingRefusal>> + 'a {
    let allowed = policy.sharing.modes(class, domain);
    let tax_max = policy.sharing.classes[class.index()].tax_max;
    shape.alternatives().zip(0u8..).flat_map(move |(alternative, at)| {
        let modes = modes(alternative.gpus, allowed, shape.time_slicing && class == Class::Interactive);
        modes.into_iter().zip(0u8..).flat_map(move |(mode, choice)| {
            pools(fleet, alternative.gpus).filter_map(move |pool| {
                if !fleet.set_has_pool(alternative.devices, pool) {
                    return None;
                }
                let need = need(fleet, alternative.gpus, mode, pool)?;
                let tax = tax(fleet.model(pool), need, policy);
                Some(if tax > tax_max && mode != Mode::Whole {
                    Err(SharingRefusal { mode, tax, tax_max })
                } else {
                    Ok(PoolOption { pool, need, tax, rank: at * MODES + choice })
                })
            })
        })
    })
}

/// The pool that a shape is demand in, and as what, whatever the policy says of sharing.
pub(crate) fn first_way(fleet: &Fleet, shape: &Shape) -> Option<(PoolId, Need)> {
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

pub(crate) fn slice(mig: &Mig, gpus: GpuAsk) -> Option<Need> {
    let profile = gpus.profile_on(mig)?;
    Some(Need::Slice { profile, units: units_of(mig, mig.profile(profile)?) })
}

/// What a slice must have to be no less than a share: its part of the memory, and of the compute.
fn as_slice(model: &Model, units: GpuUnits) -> Option<Least> {
    let mig = model.mig?;
    let (parts, whole) = (units.parts(), GpuUnits::WHOLE.parts());
    // Slots of a device are even parts of its memory: a quarter is two slots of eight.
    let enough =
        mig.profiles.iter().filter(|profile| u64::from(profile.slots) * whole >= parts * u64::from(mig.axis));
    let memory_mib = enough.map(|profile| profile.memory_mib).min()?;
    let compute = u8::try_from(parts.div_ceil(whole / 100)).ok()?;
    Some(Least { memory_mib, compute, compute_of: 100 })
}

/// The throughput expected to be lost, in thousandths: of a slice the multiprocessors it lacks, of shares what was measured.
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
