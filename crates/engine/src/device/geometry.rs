//! What is cut out of one GPU: slices at starts on its memory axis, and what still can be.
//!
//! A layout is legal when its slices do not overlap, each begins where its profile may, no profile is there more
//! often than it may be, and the media engines are given out once. Freed slots merge by themselves: a layout has no
//! memory of what was cut before.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::device::catalogue::mig::{AXIS_MAX, PROFILES_MAX};
use crate::device::catalogue::{Media, Mig, Profile};
use crate::units::GpuUnits;

/// A slice of a GPU: the number of its profile in the model's table, and the first slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Slice {
    pub profile: u8,
    pub start: u8,
}

/// Slots of a GPU's memory axis, a bit each.
pub type Slots = u16;

/// Placements left, by profile number.
pub type ProfilesLeft = [u8; PROFILES_MAX];

/// The slices of one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Layout([u8; AXIS_MAX]);

impl Layout {
    /// Its slices, by start.
    pub fn slices(self) -> impl Iterator<Item = Slice> {
        (0u8..).zip(self.0).filter_map(|(start, mark)| Some(Slice { profile: mark.checked_sub(1)?, start }))
    }

    /// True when nothing is cut out.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// With one slice more.
    #[must_use]
    pub fn with(mut self, slice: Slice) -> Self {
        self.0[usize::from(slice.start)] = slice.profile + 1;
        self
    }

    /// With one slice less.
    #[must_use]
    pub fn without(mut self, slice: Slice) -> Self {
        self.0[usize::from(slice.start)] = 0;
        self
    }

    /// Slots that its slices take.
    pub fn taken(self, mig: &Mig) -> Slots {
        self.slices().fold(0, |taken, slice| taken | slots_of(mig, slice))
    }

    /// True when one more slice of that profile could be cut out at that start, and nobody would notice.
    pub fn allows(self, mig: &Mig, slice: Slice) -> bool {
        self.starts_for(mig, slice.profile).any(|start| start == slice.start)
    }

    /// Where a slice of that profile could begin.
    pub fn starts_for(self, mig: &Mig, profile: u8) -> impl Iterator<Item = u8> + use<> {
        let taken = Taken::of(mig, self);
        mig.profile(profile).into_iter().flat_map(move |known| taken.starts(profile, known))
    }

    /// How many more slices of that profile could be cut out.
    pub(crate) fn copies_left(self, mig: &Mig, profile: u8) -> u32 {
        let taken = Taken::of(mig, self);
        mig.profile(profile).map_or(0, |known| u32::from(taken.copies_left(profile, known)))
    }

    /// How many more slices of each profile could be cut out.
    pub fn copies_left_of_each(self, mig: &Mig) -> ProfilesLeft {
        let taken = Taken::of(mig, self);
        let mut left = ProfilesLeft::default();
        for ((number, profile), left) in (0u8..).zip(mig.profiles).zip(&mut left) {
            *left = taken.copies_left(number, profile);
        }
        left
    }

    /// True when every slice could have been cut out beside the others.
    pub fn is_legal(self, mig: &Mig) -> bool {
        self.slices().all(|slice| self.without(slice).allows(mig, slice))
    }

    /// Multiprocessors that its slices have together, where all of them are known.
    pub fn sm(self, mig: &Mig) -> Option<u32> {
        self.slices().map(|slice| Some(u32::from(mig.profile(slice.profile)?.sm?))).sum()
    }
}

/// What the slices of a layout take of a device: it decides what else could be cut out.
#[derive(Clone, Copy, Default)]
struct Taken {
    slots: Slots,
    count: [u8; PROFILES_MAX],
    some_media: bool,
    all_media: bool,
    extension: bool,
}

impl Taken {
    fn of(mig: &Mig, layout: Layout) -> Self {
        let mut taken = Self::default();
        for slice in layout.slices() {
            let Some(profile) = mig.profile(slice.profile) else { continue };
            taken.slots |= span(slice.start, profile.slots);
            taken.count[usize::from(slice.profile)] += 1;
            taken.some_media |= profile.media != Media::Without;
            taken.all_media |= profile.media == Media::All;
            taken.extension |= profile.media == Media::Extension;
        }
        taken
    }

    fn starts(self, number: u8, profile: &Profile) -> impl Iterator<Item = u8> + use<> {
        let Profile { starts, slots, .. } = *profile;
        let starts = if self.allowed(number, profile) > 0 { starts } else { &[] };
        starts.iter().copied().filter(move |&start| self.slots & span(start, slots) == 0)
    }

    /// How many more slices of a profile could be cut out: its starts never overlap each other.
    fn copies_left(self, number: u8, profile: &Profile) -> u8 {
        let starts = self.starts(number, profile).count();
        u8::try_from(starts).unwrap_or(u8::MAX).min(self.allowed(number, profile))
    }

    /// How many more slices of a profile the rules about counts and media engines allow.
    fn allowed(self, number: u8, profile: &Profile) -> u8 {
        let has_media = match profile.media {
            Media::Without => true,
            Media::Usual | Media::Graphics => !self.all_media,
            Media::Extension => !self.all_media && !self.extension,
            Media::All => !self.some_media,
        };
        if has_media { profile.max.saturating_sub(self.count[usize::from(number)]) } else { 0 }
    }
}

/// The slots that a slice takes.
pub fn slots_of(mig: &Mig, slice: Slice) -> Slots {
    mig.profile(slice.profile).map_or(0, |profile| span(slice.start, profile.slots))
}

fn span(start: u8, slots: u8) -> Slots {
    ((1 << slots) - 1) << start
}

/// What a slice of a profile is charged: its slots, as parts of a GPU.
pub fn units_of(mig: &Mig, profile: &Profile) -> GpuUnits {
    GpuUnits::from_parts(GpuUnits::WHOLE.parts() * u64::from(profile.slots) / u64::from(mig.axis))
}

/// Every legal layout of some profiles of a device, the empty one first.
pub fn layouts(mig: &Mig, profiles: &[u8]) -> Vec<Layout> {
    let mut found = Vec::from([Layout::default()]);
    let mut at = 0;
    while let Some(&layout) = found.get(at) {
        let last = layout.slices().last().map_or(0, |slice| slice.start + 1);
        for &profile in profiles {
            let later = layout.starts_for(mig, profile).filter(|&start| start >= last);
            found.extend(later.map(|start| layout.with(Slice { profile, start })));
        }
        at += 1;
    }
    found
}

/// True when nothing of these profiles could be added.
pub fn is_maximal(mig: &Mig, profiles: &[u8], layout: Layout) -> bool {
    profiles.iter().all(|&profile| layout.starts_for(mig, profile).next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::catalogue::{MODELS, mig};

    /// Profiles that differ in nothing but media engines are left out, and twice the memory if so asked.
    fn base(mig: &Mig, double: bool) -> Vec<u8> {
        let usual = |profile: &Profile| profile.media == Media::Usual;
        let is_double = |profile: &Profile| mig.axis == 8 && (profile.compute, profile.slots) == (1, 2);
        let kept = |profile: &Profile| usual(profile) && (double || !is_double(profile));
        (0u8..).zip(mig.profiles).filter(|(_, profile)| kept(profile)).map(|(number, _)| number).collect()
    }

    fn counts(mig: &Mig, profiles: &[u8]) -> (usize, usize) {
        let all = layouts(mig, profiles);
        let maximal = all.iter().filter(|&&layout| is_maximal(mig, profiles, layout)).count();
        (all.len(), maximal)
    }

    #[test]
    fn every_family_has_as_many_layouts_and_maximal_ones_as_were_counted_elsewhere() {
        for model in MODELS.iter().filter_map(|model| model.mig).filter(|mig| mig.axis == 8) {
            assert_eq!(counts(model, &base(model, false)), (298, 19), "{}", model.row);
            assert_eq!(counts(model, &base(model, true)), (723, 78), "{} with double memory", model.row);
            let mut all = base(model, true);
            all.push(1);
            assert_eq!(counts(model, &all), (2319, 239), "{} with media extension", model.row);
        }
        for model in [&mig::A30, &mig::RTX_PRO_6000] {
            assert_eq!(counts(model, &base(model, false)), (26, 5), "{}", model.row);
        }
    }

    #[test]
    fn every_layout_found_is_legal_and_every_legal_set_is_found() {
        for model in [&mig::A30, &mig::RTX_PRO_6000, &mig::H100_SXM] {
            let profiles: Vec<u8> = (0u8..).take(model.profiles.len()).collect();
            let found = layouts(model, &profiles);
            assert!(found.iter().all(|layout| layout.is_legal(model)), "{}", model.row);
            let mut unique = found.clone();
            unique.sort_unstable();
            unique.dedup();
            assert_eq!(unique.len(), found.len(), "{}: each once", model.row);
            // One slice less is a layout too: the search misses none.
            for layout in &found {
                for slice in layout.slices() {
                    assert!(unique.binary_search(&layout.without(slice)).is_ok(), "{layout:?}");
                }
            }
        }
    }

    #[test]
    fn slices_never_add_up_to_more_than_the_device() {
        for model in MODELS.iter().filter_map(|model| model.mig) {
            let profiles: Vec<u8> = (0u8..).take(model.profiles.len()).collect();
            for layout in layouts(model, &profiles) {
                let held: Vec<&Profile> =
                    layout.slices().filter_map(|slice| model.profile(slice.profile)).collect();
                let units: u64 = held.iter().map(|profile| units_of(model, profile).parts()).sum();
                let compute: u32 = held.iter().map(|profile| u32::from(profile.compute)).sum();
                assert!(units <= GpuUnits::WHOLE.parts(), "{}: {layout:?}", model.row);
                assert!(compute <= u32::from(model.compute), "{}: {layout:?}", model.row);
            }
        }
    }
}
