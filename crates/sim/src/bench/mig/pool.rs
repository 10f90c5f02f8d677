//! The GPUs of a pool, by layout, and three ways to choose where the next slice is cut.
//!
//! GPUs that look alike are judged once. First-fit and best-fit are what schedulers do that count slices: the first GPU
//! with room, or the one with the fewest free slots, and there the lowest start.

use std::collections::BTreeSet;
use strum::{IntoStaticStr, VariantArray};

use wharf_engine::device::catalogue::mig::PROFILES_MAX;
use wharf_engine::device::cut::Weights;
use wharf_engine::device::geometry::Slice;

use super::{Atlas, Cut};

/// How a place is chosen among those where a slice fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Policy {
    /// Where the least is lost of what others will ask for.
    Wharf,
    /// The GPU with the fewest free slots, the lowest start.
    BestFit,
    /// The first GPU, the lowest start.
    FirstFit,
}

impl Policy {
    /// The word for it, the same everywhere.
    pub fn into_str(self) -> &'static str {
        self.into()
    }
}

/// GPUs of one model and what is cut out of each.
pub(super) struct Pool<'a> {
    atlas: &'a Atlas,
    /// The number of each GPU's layout.
    layouts: Vec<u16>,
    /// GPUs in each layout.
    alike: Vec<BTreeSet<u32>>,
    /// Layouts that some GPU is in.
    present: BTreeSet<u16>,
    /// Free slots of each layout.
    free: Vec<u32>,
    /// Placements left in the pool, by profile.
    left: [u64; PROFILES_MAX],
    /// Arrivals so far, by profile.
    demand: [u64; PROFILES_MAX],
}

impl<'a> Pool<'a> {
    pub(super) fn new(atlas: &'a Atlas, gpus: u32) -> Self {
        let mig = atlas.mig();
        let numbers = (0u16..).take(atlas.len());
        let taken = |number| atlas.layout(number).unwrap_or_default().taken(mig).count_ones();
        let mut alike = vec![BTreeSet::new(); atlas.len()];
        alike[usize::from(Atlas::EMPTY)] = (0..gpus).collect();
        Self {
            atlas,
            layouts: (0..gpus).map(|_| Atlas::EMPTY).collect(),
            alike,
            present: BTreeSet::from([Atlas::EMPTY]),
            free: numbers.map(|number| u32::from(mig.axis) - taken(number)).collect(),
            left: atlas.left(Atlas::EMPTY).map(|left| u64::from(left) * u64::from(gpus)),
            demand: [0; PROFILES_MAX],
        }
    }

    /// Cuts a slice of a profile out of a GPU, where it fits somewhere.
    pub(super) fn place(&mut self, policy: Policy, profile: u8) -> Option<(u32, Slice)> {
        self.demand[usize::from(profile)] += 1;
        let (gpu, cut) = match policy {
            Policy::Wharf => self.least_lost(profile),
            Policy::BestFit => self.fewest_free(profile),
            Policy::FirstFit => self.first(profile),
        }?;
        self.change(gpu, cut.to);
        Some((gpu, Slice { profile, start: cut.start }))
    }

    /// Takes a slice away again.
    pub(super) fn remove(&mut self, gpu: u32, slice: Slice) {
        let layout = self.atlas.layout(self.layouts[index(gpu)]).expect("a GPU is in a known layout");
        let to = self.atlas.number(layout.without(slice)).expect("one slice less is a layout too");
        self.change(gpu, to);
    }

    fn least_lost(&self, profile: u8) -> Option<(u32, Cut)> {
        let gpus = u64::try_from(self.layouts.len()).unwrap_or(u64::MAX);
        let weights = Weights::new(self.atlas.mig(), &self.demand, &self.left, gpus);
        let costs = self.present.iter().filter_map(|&number| {
            let (cost, cut) = self.atlas.best(number, profile, &weights)?;
            Some((cost, self.lowest(number)?, cut))
        });
        costs.min().map(|(_, gpu, cut)| (gpu, cut))
    }

    fn fewest_free(&self, profile: u8) -> Option<(u32, Cut)> {
        let fits = self.present.iter().filter_map(|&number| {
            let cut = self.atlas.cuts(number, profile).first()?;
            Some((self.free[usize::from(number)], self.lowest(number)?, *cut))
        });
        fits.min().map(|(_, gpu, cut)| (gpu, cut))
    }

    fn first(&self, profile: u8) -> Option<(u32, Cut)> {
        let fits = self.present.iter().filter_map(|&number| {
            let cut = self.atlas.cuts(number, profile).first()?;
            Some((self.lowest(number)?, *cut))
        });
        fits.min()
    }

    fn lowest(&self, number: u16) -> Option<u32> {
        self.alike[usize::from(number)].first().copied()
    }

    fn change(&mut self, gpu: u32, to: u16) {
        let from = std::mem::replace(&mut self.layouts[index(gpu)], to);
        let gpus = &mut self.alike[usize::from(from)];
        gpus.remove(&gpu);
        if gpus.is_empty() {
            self.present.remove(&from);
        }
        self.alike[usize::from(to)].insert(gpu);
        self.present.insert(to);
        let (before, after) = (self.atlas.left(from), self.atlas.left(to));
        for (left, (before, after)) in self.left.iter_mut().zip(before.iter().zip(after)) {
            *left = *left + u64::from(*after) - u64::from(*before);
        }
    }
}

fn index(gpu: u32) -> usize {
    usize::try_from(gpu).expect("a GPU number is an index")
}
