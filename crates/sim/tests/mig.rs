//! Where slices are cut: a pool under load beside best-fit, its decisions recomputed from outside, and one GPU beside
//! the exact optimum.

#![expect(clippy::unwrap_used, reason = "clippy does not see that the functions around tests are tests too")]

#[path = "mig/optimum.rs"]
mod optimum;

use std::collections::BTreeMap;
use std::convert::Infallible;

use strum::VariantArray;
use wharf_engine::device::catalogue::mig::PROFILES_MAX;
use wharf_engine::device::catalogue::{Mig, mig, model};
use wharf_engine::device::cut::{Weights, best_start};
use wharf_engine::device::geometry::{Layout, Slice, layouts};
use wharf_sim::bench::mig::{Atlas, Decision, Mix, MixName, Policy, Report, Run};

use optimum::Chain;

fn run(name: &str, gpus: u32, mix: MixName, load_millionths: u64, arrivals: u64) -> Run {
    let mig = model(name).and_then(|model| model.mig).expect("it can be cut");
    let mix = Mix::named(mix, mig);
    Run { model: name.into(), mig, gpus, mix, load_millionths, seed: 1, arrivals }
}

fn played(run: &Run, policy: Policy) -> (Report, Vec<Decision>) {
    let mut decisions = Vec::new();
    let keep = |decision: &Decision| {
        decisions.push(decision.clone());
        Ok::<(), Infallible>(())
    };
    let Ok(report) = run.run(policy, keep);
    (report, decisions)
}

fn report(run: &Run) -> Report {
    let Ok(report) = run.run(Policy::Wharf, |_| Ok::<(), Infallible>(()));
    report
}

#[test]
fn less_is_refused_than_by_best_fit_at_full_load_and_beyond() {
    for &mix in MixName::VARIANTS {
        for (load, bar) in [(1_000_000, 0.8), (1_050_000, 0.85)] {
            let report = report(&run("a100", 500, mix, load, 30_000));
            let ratio = report.reference["bestfit"].ratio.unwrap_or(0.0);
            assert!(ratio <= bar, "{} at {load}: {ratio}", mix.into_str());
            let first = report.reference["firstfit"].ratio.unwrap_or(0.0);
            assert!(first < ratio, "{}: first-fit is the worst", mix.into_str());
        }
    }
}

/// Their profiles are halves and quarters, which best-fit packs as well as anybody: there is nothing to win.
#[test]
fn devices_of_four_and_twelve_slots_are_cut_no_worse_than_by_best_fit() {
    for name in ["a30", "rtx-pro-6000"] {
        for &mix in MixName::VARIANTS {
            let report = report(&run(name, 100, mix, 1_050_000, 10_000));
            let ratio = report.reference["bestfit"].ratio.unwrap_or(0.0);
            assert!(ratio <= 1.02, "{name} {}: {ratio}", mix.into_str());
        }
    }
}

#[test]
fn a_seed_gives_the_same_run_and_another_seed_another() {
    let one = run("h100", 50, MixName::Mixed, 1_000_000, 5_000);
    assert_eq!(report(&one), report(&one));
    let other = Run { seed: 2, ..one.clone() };
    assert_ne!(report(&one).result_hash, report(&other).result_hash);
}

/// Plays the decisions again with nothing but the table of profiles.
fn replay(
    mig: &'static Mig,
    gpus: usize,
    decisions: &[Decision],
    mut judge: impl FnMut(&[Layout], &Decision, u8),
) {
    let mut layouts = vec![Layout::default(); gpus];
    let mut leaving: BTreeMap<(u64, u64), (usize, Slice)> = BTreeMap::new();
    for decision in decisions {
        while let Some(entry) = leaving.first_entry().filter(|entry| entry.key().0 <= decision.t) {
            let (gpu, slice) = entry.remove();
            layouts[gpu] = layouts[gpu].without(slice);
        }
        let profile = mig.profile_named(decision.profile).unwrap();
        judge(&layouts, decision, profile);
        if let (Some(gpu), Some(start)) = (decision.gpu, decision.start) {
            let (gpu, slice) = (usize::try_from(gpu).unwrap(), Slice { profile, start });
            assert!(layouts[gpu].allows(mig, slice), "{decision:?} on {:?}", layouts[gpu]);
            layouts[gpu] = layouts[gpu].with(slice);
            leaving.insert((decision.until, decision.seq), (gpu, slice));
        }
    }
}

#[test]
fn decisions_are_legal_and_what_fits_is_never_refused() {
    for &policy in Policy::VARIANTS {
        let run = run("a100", 20, MixName::Mixed, 1_100_000, 3_000);
        let (report, decisions) = played(&run, policy);
        let counted = decisions.iter().filter(|decision| decision.counted);
        let refused = counted.clone().filter(|decision| decision.gpu.is_none()).count();
        assert_eq!(u64::try_from(counted.count()).unwrap(), report.arrivals);
        assert_eq!(u64::try_from(refused).unwrap(), report.refused);
        replay(run.mig, 20, &decisions, |layouts, decision, profile| {
            let fits = layouts.iter().any(|layout| layout.starts_for(run.mig, profile).next().is_some());
            assert_eq!(fits, decision.gpu.is_some(), "{decision:?}");
        });
    }
}

#[test]
fn decisions_are_those_that_the_engine_gives_gpu_by_gpu() {
    let run = run("a100", 20, MixName::Large, 1_000_000, 1_000);
    let (_, decisions) = played(&run, Policy::Wharf);
    let mut demand = [0; PROFILES_MAX];
    replay(run.mig, 20, &decisions, |layouts, decision, profile| {
        demand[usize::from(profile)] += 1;
        let mut left = [0; PROFILES_MAX];
        for &layout in layouts {
            let on_one = layout.copies_left_of_each(run.mig);
            left.iter_mut().zip(on_one).for_each(|(sum, left)| *sum += u64::from(left));
        }
        let weights = Weights::new(run.mig, &demand, &left, 20);
        let costs = (0u32..).zip(layouts).filter_map(|(gpu, &layout)| {
            let (cost, start) = best_start(run.mig, layout, profile, &weights)?;
            Some((cost, gpu, start))
        });
        let best = costs.min().map(|(_, gpu, start)| (gpu, start));
        assert_eq!(decision.gpu.zip(decision.start), best, "{decision:?}");
    });
}

/// What our choice of starts refuses on one GPU, beside what the best choice does, of a hundred.
fn on_one_gpu(mig: &'static Mig, mix: MixName, load: f64) -> (f64, f64) {
    let mix = Mix::named(mix, mig);
    let demand: Vec<u64> = (0u8..11).map(|profile| 1000 * u64::from(mix.share(profile))).collect();
    let atlas = Atlas::new(mig);
    let chain = Chain::new(&atlas, &mix, load);
    let ours = chain.refused_pct(&|number, profile| {
        let left = atlas.left(number).map(u64::from);
        let weights = Weights::new(mig, &demand, &left, 1);
        atlas.best(number, profile, &weights).map(|(_, cut)| cut)
    });
    (ours, chain.least_refused_pct())
}

#[test]
fn on_one_gpu_the_choice_of_starts_is_next_to_the_exact_optimum() {
    for mig in [&mig::A100_80, &mig::A30, &mig::RTX_PRO_6000] {
        for &mix in MixName::VARIANTS {
            for load in [0.7, 1.0] {
                let (ours, least) = on_one_gpu(mig, mix, load);
                println!("{} {} {load}: {ours:.3} % beside {least:.3} %", mig.row, mix.into_str());
                assert!(ours >= least - 1e-6, "nothing is better than the best");
                assert!(
                    ours - least <= 0.1,
                    "{} {} {load}: {ours:.3} beside {least:.3}",
                    mig.row,
                    mix.into_str()
                );
            }
        }
    }
}

#[test]
fn a_played_gpu_refuses_what_the_chain_says() {
    let (ours, _) = on_one_gpu(&mig::A100_80, MixName::Mixed, 1.0);
    let played = report(&run("a100", 1, MixName::Mixed, 1_000_000, 200_000)).refused_demand_pct;
    assert!((ours - played).abs() < 0.5, "{ours:.3} computed, {played:.3} played");
}

/// Some demand and some scarcity.
fn some_weights(mig: &Mig) -> Weights {
    let mix = |at: u32| 6u64.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(at * 7);
    let demand: Vec<u64> = (0..11).map(|at| mix(at) % 50).collect();
    let left: Vec<u64> = (11..22).map(|at| mix(at) % 300).collect();
    Weights::new(mig, &demand, &left, 100)
}

#[test]
fn the_atlas_says_of_every_layout_what_the_engine_says() {
    for mig in [&mig::A30, &mig::RTX_PRO_6000, &mig::A100_80] {
        let profiles: Vec<u8> = (0u8..).take(mig.profiles.len()).collect();
        let (atlas, weights) = (Atlas::new(mig), some_weights(mig));
        let everything = layouts(mig, &profiles);
        assert_eq!(atlas.len(), everything.len());
        assert_eq!(atlas.layout(Atlas::EMPTY), Some(Layout::default()));
        for layout in everything {
            let number = atlas.number(layout).expect("every layout has a number");
            assert_eq!(atlas.layout(number), Some(layout));
            for &profile in &profiles {
                let best = atlas.best(number, profile, &weights);
                let same = best_start(mig, layout, profile, &weights);
                assert_eq!(best.map(|(cost, cut)| (cost, cut.start)), same);
                let to = best.and_then(|(_, cut)| atlas.layout(cut.to));
                assert_eq!(to, same.map(|(_, start)| layout.with(Slice { profile, start })));
            }
        }
    }
}
