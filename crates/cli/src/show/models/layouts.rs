//! The layouts of a device: how many there are, and those to which nothing can be added.

use serde::Serialize;
use wharf_engine::device::catalogue::{Media, Mig, Profile};
use wharf_engine::device::geometry::{Layout, is_maximal, layouts};

/// Layouts of the base profiles, for programs.
#[derive(Debug, Serialize)]
pub(super) struct Layouts {
    /// The profiles they are made of: none that differs in media engines or in memory alone.
    pub(super) profiles: Vec<&'static str>,
    /// All of them, the empty one included.
    pub(super) count: usize,
    /// Those to which nothing can be added, by what begins first.
    pub(super) maximal: Vec<Maximal>,
    /// With twice the memory for one compute slice, where there is such a profile.
    pub(super) with_double_memory: Option<Counts>,
    /// With every profile there is.
    pub(super) with_all: Counts,
}

/// How many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    pub(super) count: usize,
    pub(super) maximal: usize,
}

/// A layout to which nothing can be added.
#[derive(Debug, Serialize)]
pub(super) struct Maximal {
    pub(super) slices: Vec<SliceView>,
    /// Multiprocessors of all slices.
    pub(super) sm: Option<u32>,
    /// What is missing of the uncut device, of a hundred.
    pub(super) sm_lost_pct: Option<f64>,
}

/// One slice.
#[derive(Debug, Serialize)]
pub(super) struct SliceView {
    pub(super) profile: &'static str,
    pub(super) start: u8,
    pub(super) slots: u8,
}

impl Layouts {
    pub(super) fn of(mig: &Mig) -> Self {
        let (base, double) = (numbers(mig, is_base), numbers(mig, is_usual));
        let all = numbers(mig, |_, _| true);
        let found = layouts(mig, &base);
        let mut maximal: Vec<Layout> =
            found.iter().copied().filter(|&layout| is_maximal(mig, &base, layout)).collect();
        maximal.sort_unstable();
        Self {
            profiles: base.iter().filter_map(|&number| Some(mig.profile(number)?.name)).collect(),
            count: found.len(),
            maximal: maximal.into_iter().map(|layout| Maximal::of(mig, layout)).collect(),
            with_double_memory: (double != base).then(|| counts(mig, &double)),
            with_all: counts(mig, &all),
        }
    }
}

impl Maximal {
    fn of(mig: &Mig, layout: Layout) -> Self {
        let slices = layout.slices().filter_map(|slice| {
            let Profile { name, slots, .. } = *mig.profile(slice.profile)?;
            Some(SliceView { profile: name, start: slice.start, slots })
        });
        let sm = layout.sm(mig);
        let lost = |(sm, whole): (u32, u16)| {
            let lost = (f64::from(whole) - f64::from(sm)) / f64::from(whole);
            (lost * 1000.0).round() / 10.0
        };
        Self { slices: slices.collect(), sm, sm_lost_pct: sm.zip(mig.sm).map(lost) }
    }
}

fn numbers(mig: &Mig, keep: impl Fn(&Mig, &Profile) -> bool) -> Vec<u8> {
    (0u8..).zip(mig.profiles).filter(|(_, profile)| keep(mig, profile)).map(|(number, _)| number).collect()
}

fn is_usual(_: &Mig, profile: &Profile) -> bool {
    profile.media == Media::Usual
}

/// Usual, and not one compute slice with more memory than it needs.
fn is_base(mig: &Mig, profile: &Profile) -> bool {
    let least = mig.profiles.iter().map(|profile| profile.slots).min();
    is_usual(mig, profile) && (profile.compute > 1 || Some(profile.slots) == least)
}

fn counts(mig: &Mig, profiles: &[u8]) -> Counts {
    let found = layouts(mig, profiles);
    let maximal = found.iter().filter(|&&layout| is_maximal(mig, profiles, layout)).count();
    Counts { count: found.len(), maximal }
}
