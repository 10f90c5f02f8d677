//! Where a slice should be cut: at the start that spoils the least of what others will ask for.
//!
//! A GPU with 3g at slot 0 has room for four more compute slices and can never give out 4g, which begins at 0 only.
//! So a start is judged by the placements it takes away from every profile, and a placement is worth the more, the
//! more of the demand wants that profile and the fewer of its placements the pool has left:
//!
//! `lost = sum over profiles q of weight(q) × placements of q lost`
//! `weight(q) = share of q in the demand × (GPUs / placements of q left)² / √slots of q`
//!
//! On an empty A100, 3g at 0 loses 4g and 7g, at 4 only 7g: it goes to 4. A first 1g takes the last GPU on which 7g
//! fits only if no GPU is broken already. Where as much is lost, the fuller GPU is taken, and of those the one with
//! more slices, which would be the last to become empty: both keep others on their way to a whole GPU. The square and
//! the root were measured against other exponents, as `docs/devices.md` says.
//!
//! A whole GPU is a profile like any other, the one that takes the whole axis. Nothing is refused that fits.

use crate::device::catalogue::mig::PROFILES_MAX;
use crate::device::catalogue::{Media, Mig, Profile};
use crate::device::geometry::{Layout, ProfilesLeft, Slice};

/// How much one arrival counts over the slot of a profile that nobody asked for yet: a hundred arrivals outweigh that prior.
const ARRIVAL: u128 = 64;

/// Binary digits of a share: a millionth of the demand counts.
const SHARE_BITS: u32 = 20;

/// A weight is at most this, so that the placements of a device can be added up and moved by [`SPARE_BITS`].
const WEIGHT_MAX: u64 = 1 << 47;

/// Binary digits below what is lost, for how empty the GPU is.
const SPARE_BITS: u32 = 8;

/// What a placement of each profile is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weights([u64; PROFILES_MAX]);

impl Weights {
    /// From how often each profile is asked for, and how many placements of it a pool of so many GPUs has left.
    ///
    /// What is missing at the end of `demand` or `left` is 0. A profile without placements left has none to lose; its
    /// weight is that of one with a single placement.
    pub fn new(mig: &Mig, demand: &[u64], left: &[u64], gpus: u64) -> Self {
        let at = |amounts: &[u64], number: usize| amounts.get(number).copied().unwrap_or(0);
        // A profile that differs in its media engines alone is worth something only to those who ask for it.
        let prior = |profile: &Profile| if profile.media == Media::Usual { profile.slots } else { 0 };
        let asked = |number: usize, profile: &Profile| {
            u128::from(at(demand, number)) * ARRIVAL + u128::from(prior(profile))
        };
        let profiles = || mig.profiles.iter().enumerate();
        let all: u128 = profiles().map(|(number, profile)| asked(number, profile)).sum();
        let mut weights = Self::default();
        for ((number, profile), weight) in profiles().zip(&mut weights.0) {
            let share = (asked(number, profile) << SHARE_BITS) / all.max(1);
            *weight = scarce(share, gpus, at(left, number).max(1), profile.slots);
        }
        weights
    }

    /// What a placement of that profile is worth.
    pub fn of(&self, profile: u8) -> u64 {
        self.0.get(usize::from(profile)).copied().unwrap_or(0)
    }

    /// What placements are worth together.
    pub fn worth(&self, left: &ProfilesLeft) -> u64 {
        self.0.iter().zip(left).map(|(&weight, &left)| weight * u64::from(left)).sum()
    }
}

/// `share × (gpus / left)² / √slots`, of which a little always remains.
fn scarce(share: u128, gpus: u64, left: u64, slots: u8) -> u64 {
    let (gpus, left) = (u128::from(gpus.max(1)), u128::from(left));
    // √(slots × 2^16) is √slots × 2^8, hence the share with 8 digits more.
    let root = u128::from((u64::from(slots) << 16).isqrt());
    let over = left.saturating_mul(left).saturating_mul(root).max(1);
    let weight = (share << 8).saturating_mul(gpus.saturating_mul(gpus)) / over;
    u64::try_from(weight).unwrap_or(WEIGHT_MAX).clamp(1, WEIGHT_MAX)
}

/// The start at which a slice of that profile costs a GPU the least, with the cost; the lower one of equals.
pub fn best_start(mig: &Mig, layout: Layout, profile: u8, weights: &Weights) -> Option<(u64, u8)> {
    let mut starts = layout.starts_for(mig, profile).peekable();
    starts.peek()?;
    let (before, spare) = (weights.worth(&layout.copies_left_of_each(mig)), spare(mig, layout));
    let after = |start| weights.worth(&layout.with(Slice { profile, start }).copies_left_of_each(mig));
    starts.map(|start| (cost(before, after(start), spare), start)).min()
}

/// What a cut costs by what placements are worth before and after it: what is lost and, in the lowest bits, how empty the GPU is.
pub fn cost(before: u64, after: u64, spare: u8) -> u64 {
    (before.saturating_sub(after) << SPARE_BITS) | u64::from(spare)
}

/// How empty a GPU is: free slots first, then few slices.
pub fn spare(mig: &Mig, layout: Layout) -> u8 {
    let taken = u8::try_from(layout.taken(mig).count_ones()).unwrap_or(u8::MAX);
    let slices = u8::try_from(layout.slices().count()).unwrap_or(u8::MAX);
    mig.axis.saturating_sub(taken) * 16 + 15u8.saturating_sub(slices)
}

#[cfg(test)]
mod tests;
