//! Cuts held to brute force: everything is recounted slot by slot and by the rule for whole layouts.

use alloc::vec::Vec;

use super::*;
use crate::device::catalogue::{MODELS, mig};
use crate::device::geometry::layouts;

const MODELS_TRIED: [&Mig; 3] = [&mig::A30, &mig::RTX_PRO_6000, &mig::H100_SXM];

fn everything(mig: &Mig) -> Vec<Layout> {
    let profiles: Vec<u8> = (0u8..).take(mig.profiles.len()).collect();
    layouts(mig, &profiles)
}

fn named(mig: &Mig, name: &str) -> u8 {
    mig.profile_named(name).expect("it is in the table")
}

/// The rule about media engines, told of two slices.
fn may_be_together(one: Media, other: Media) -> bool {
    match (one, other) {
        (Media::Without, _) | (_, Media::Without) => true,
        (Media::All, _) | (_, Media::All) | (Media::Extension, Media::Extension) => false,
        (Media::Usual | Media::Graphics | Media::Extension, _) => true,
    }
}

fn copies(layout: Layout, profile: u8) -> usize {
    layout.slices().filter(|slice| slice.profile == profile).count()
}

/// Starts at which a slice could be added, slot by slot and slice by slice.
fn starts_by_hand(mig: &Mig, layout: Layout, profile: u8) -> Vec<u8> {
    let known = mig.profiles[usize::from(profile)];
    let others = || layout.slices().map(|slice| (slice.start, mig.profiles[usize::from(slice.profile)]));
    let is_taken = |slot: u8| others().any(|(start, other)| (start..start + other.slots).contains(&slot));
    let fits = |start: u8| !(start..start + known.slots).any(is_taken);
    let one_more = copies(layout, profile) < usize::from(known.max)
        && others().all(|(_, other)| may_be_together(known.media, other.media));
    known.starts.iter().copied().filter(|&start| one_more && fits(start)).collect()
}

fn left_by_hand(mig: &Mig, layout: Layout, profile: u8) -> u8 {
    let starts = starts_by_hand(mig, layout, profile).len();
    let max = usize::from(mig.profiles[usize::from(profile)].max);
    u8::try_from(starts.min(max - copies(layout, profile))).expect("a device has few starts")
}

fn lost_by_hand(mig: &Mig, layout: Layout, slice: Slice, weights: &Weights) -> u64 {
    let after = layout.with(slice);
    let lost = |q: u8| left_by_hand(mig, layout, q) - left_by_hand(mig, after, q);
    (0u8..).take(mig.profiles.len()).map(|q| u64::from(lost(q)) * weights.of(q)).sum()
}

/// Some demand and some scarcity, made from a number.
fn some_weights(mig: &Mig, seed: u64) -> Weights {
    let mix = |at: u64| {
        (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(u32::try_from(at * 7).expect("small"))
    };
    let demand: Vec<u64> = (0..11).map(|at| mix(at) % 50).collect();
    let left: Vec<u64> = (0..11).map(|at| mix(at + 11) % 300).collect();
    Weights::new(mig, &demand, &left, 100)
}

#[test]
fn no_model_has_more_profiles_than_there_is_room_for() {
    let most = MODELS.iter().filter_map(|model| Some(model.mig?.profiles.len())).max();
    assert_eq!(most, Some(PROFILES_MAX));
}

#[test]
fn placements_left_are_those_found_by_hand() {
    for mig in MODELS_TRIED {
        for layout in everything(mig) {
            let left = layout.copies_left_of_each(mig);
            for (profile, left) in (0u8..).zip(left).take(mig.profiles.len()) {
                assert_eq!(left, left_by_hand(mig, layout, profile), "{} {layout:?} {profile}", mig.row);
                let starts: Vec<u8> = layout.starts_for(mig, profile).collect();
                assert_eq!(starts, starts_by_hand(mig, layout, profile), "{} {layout:?} {profile}", mig.row);
            }
        }
    }
}

#[test]
fn what_is_lost_is_what_is_lost_by_hand_and_the_best_start_loses_least() {
    for mig in MODELS_TRIED {
        let all = everything(mig);
        for (number, &layout) in (0u64..).zip(&all).step_by(7) {
            let weights = some_weights(mig, number);
            for profile in (0u8..).take(mig.profiles.len()) {
                let starts = starts_by_hand(mig, layout, profile);
                let by_hand =
                    |&start: &u8| (lost_by_hand(mig, layout, Slice { profile, start }, &weights), start);
                let least = starts.iter().map(by_hand).min();
                let best = best_start(mig, layout, profile, &weights);
                let best = best.map(|(cost, start)| (cost >> SPARE_BITS, start));
                assert_eq!(best, least, "{} {layout:?}", mig.row);
            }
        }
    }
}

#[test]
fn three_of_seven_goes_to_the_upper_half_so_that_four_of_seven_still_fits() {
    let mig = &mig::A100_80;
    let left = Layout::default().copies_left_of_each(mig).map(u64::from);
    let weights = Weights::new(mig, &[], &left, 1);
    let start = |layout, name| best_start(mig, layout, named(mig, name), &weights).map(|(_, start)| start);
    assert_eq!(start(Layout::default(), "3g.40gb"), Some(4));
    let upper = Layout::default().with(Slice { profile: named(mig, "3g.40gb"), start: 4 });
    assert_eq!(start(upper, "4g.40gb"), Some(0));
    assert_eq!(start(upper, "3g.40gb"), Some(0));
}

#[test]
fn a_small_slice_goes_where_something_is_broken_already() {
    let mig = &mig::A100_80;
    let (one, three) = (named(mig, "1g.10gb"), named(mig, "3g.40gb"));
    let broken = Layout::default().with(Slice { profile: one, start: 0 });
    let left = [Layout::default(), broken].map(|layout| layout.copies_left_of_each(mig));
    let left: Vec<u64> =
        (0..PROFILES_MAX).map(|q| left.iter().map(|left| u64::from(left[q])).sum()).collect();
    let weights = Weights::new(mig, &[], &left, 2);
    let cost = |layout| best_start(mig, layout, one, &weights).expect("there is room");
    assert!(cost(broken).0 < cost(Layout::default()).0, "a whole GPU stays whole");
    assert_eq!(cost(broken).1, 1, "the same pair is broken further");
    let half = Layout::default().with(Slice { profile: three, start: 4 });
    assert!(cost(half.with(Slice { profile: one, start: 1 })).0 < cost(half).0, "the last 4g stays possible");
}

#[test]
fn of_equal_losses_the_fuller_gpu_is_taken_then_the_one_with_more_slices() {
    let mig = &mig::A100_80;
    let [one, double, four] = ["1g.10gb", "1g.20gb", "4g.40gb"].map(|name| named(mig, name));
    let weights = Weights::new(mig, &[], &[], 10);
    let at = |profile, start| Slice { profile, start };
    let lower = (0..4).fold(Layout::default(), |layout, start| layout.with(at(one, start)));
    let (whole, parts) = (Layout::default().with(at(four, 0)), lower);
    let cost = |layout| best_start(mig, layout, double, &weights).expect("there is room").0;
    assert_eq!(cost(whole) >> SPARE_BITS, cost(parts) >> SPARE_BITS);
    assert!(cost(parts) < cost(whole), "four slices take longer to leave than one");
}

#[test]
fn what_is_asked_for_and_scarce_weighs_more() {
    let mig = &mig::A100_80;
    let four = named(mig, "4g.40gb");
    let weight = |demand: u64, left: u64| {
        let mut demands = [10; PROFILES_MAX];
        demands[usize::from(four)] = demand;
        let mut lefts = [50; PROFILES_MAX];
        lefts[usize::from(four)] = left;
        Weights::new(mig, &demands, &lefts, 100).of(four)
    };
    assert!(weight(20, 50) > weight(10, 50));
    assert!(weight(10, 25) > weight(10, 50));
    assert_eq!(weight(10, 0), weight(10, 1), "none left: nothing to lose, and no division by it");
    let empty = Weights::new(mig, &[], &[], 0);
    assert!((0..7).all(|profile| empty.of(profile) > 0), "no argument makes a profile worthless");
}

#[test]
fn no_argument_overflows() {
    for mig in MODELS_TRIED {
        let most = [u64::MAX; PROFILES_MAX];
        for weights in [
            Weights::new(mig, &most, &[], u64::MAX),
            Weights::new(mig, &most, &most, 1),
            Weights::new(mig, &[u64::MAX], &[1], u64::MAX),
        ] {
            for layout in everything(mig).into_iter().step_by(11) {
                for profile in (0u8..).take(mig.profiles.len()) {
                    let found = best_start(mig, layout, profile, &weights).is_some();
                    assert_eq!(found, layout.starts_for(mig, profile).next().is_some());
                }
            }
        }
    }
}
