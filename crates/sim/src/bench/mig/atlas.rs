//! Every layout of a device, numbered, with what each has left and where each cut leads.
//!
//! A device has a few hundred to a few thousand layouts, so a pool of thousands of GPUs stands in few of them: each layout is
//! judged once instead of each GPU. It is geometry alone and never changes.

use wharf_engine::device::catalogue::Mig;
use wharf_engine::device::cut::{Weights, cost, spare};
use wharf_engine::device::geometry::{Layout, ProfilesLeft, Slice, layouts};

/// The layouts of one device.
#[derive(Clone, Debug)]
pub struct Atlas {
    mig: &'static Mig,
    layouts: Vec<Layout>,
    left: Vec<ProfilesLeft>,
    spare: Vec<u8>,
    cuts: Vec<Cut>,
    /// Where the cuts of a layout and a profile begin.
    begins: Vec<usize>,
}

/// A cut: where the slice begins, and the layout it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cut {
    /// The first slot.
    pub start: u8,
    /// The number of the layout afterwards.
    pub to: u16,
}

impl Atlas {
    /// Of every profile of a device.
    pub fn new(mig: &'static Mig) -> Self {
        let profiles: Vec<u8> = (0u8..).take(mig.profiles.len()).collect();
        let mut all = layouts(mig, &profiles);
        all.sort_unstable();
        let left = all.iter().map(|&layout| layout.copies_left_of_each(mig)).collect();
        let spare = all.iter().map(|&layout| spare(mig, layout)).collect();
        let mut atlas = Self { mig, layouts: all, left, spare, cuts: Vec::new(), begins: Vec::from([0]) };
        for number in 0..atlas.layouts.len() {
            for &profile in &profiles {
                atlas.add_cuts(atlas.layouts[number], profile);
            }
        }
        atlas
    }

    fn add_cuts(&mut self, layout: Layout, profile: u8) {
        for start in layout.starts_for(self.mig, profile) {
            let to = self.number(layout.with(Slice { profile, start }));
            self.cuts.push(Cut { start, to: to.expect("one legal slice more is a layout too") });
        }
        self.begins.push(self.cuts.len());
    }

    /// The device.
    pub fn mig(&self) -> &'static Mig {
        self.mig
    }

    /// The number of the layout without slices: the lowest.
    pub const EMPTY: u16 = 0;

    /// The number of a layout, if it is legal.
    pub fn number(&self, layout: Layout) -> Option<u16> {
        u16::try_from(self.layouts.binary_search(&layout).ok()?).ok()
    }

    /// A layout by its number.
    pub fn layout(&self, number: u16) -> Option<Layout> {
        self.layouts.get(usize::from(number)).copied()
    }

    /// How many layouts there are.
    pub fn len(&self) -> usize {
        self.layouts.len()
    }

    /// Never: the empty layout is one.
    pub fn is_empty(&self) -> bool {
        self.layouts.is_empty()
    }

    /// The placements that a layout has left.
    pub fn left(&self, number: u16) -> &ProfilesLeft {
        &self.left[usize::from(number)]
    }

    /// Where a slice of a profile can be cut out of a layout, by start.
    pub fn cuts(&self, number: u16, profile: u8) -> &[Cut] {
        let at = usize::from(number) * self.mig.profiles.len() + usize::from(profile);
        &self.cuts[self.begins[at]..self.begins[at + 1]]
    }

    /// The cut that costs the least, with the cost; the lower start of equals. The same as
    /// [`best_start`](wharf_engine::device::cut::best_start).
    pub fn best(&self, number: u16, profile: u8, weights: &Weights) -> Option<(u64, Cut)> {
        let cuts = self.cuts(number, profile);
        if cuts.is_empty() {
            return None;
        }
        let (before, spare) = (weights.worth(self.left(number)), self.spare[usize::from(number)]);
        cuts.iter().map(|&cut| (cost(before, weights.worth(self.left(cut.to)), spare), cut)).min()
    }
}
