//! What came of a run, beside what the other policies made of the same arrivals.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Policy, Run, Tally, size_of};

/// At load 1.00 at most so much of the demand is refused, in percent.
const REFUSED_BAR_PCT: f64 = 0.9;
/// Up to load 1.00, of what best-fit refuses.
const RATIO_BAR_FULL: f64 = 0.8;
/// Up to load 1.05, of what best-fit refuses.
const RATIO_BAR_OVER: f64 = 0.85;
/// GPUs from which on the bars hold: a small pool refuses more, however well it is cut.
const BAR_GPUS_MIN: u32 = 1000;
/// The axis on which the bars hold. Where profiles are halves and quarters best-fit loses nothing, so nothing is won.
const BAR_AXIS: u8 = 8;

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// `wharf.bench.mig.v1`.
    pub schema: &'static str,
    /// The model.
    pub model: String,
    /// How its profiles are listed.
    pub row: &'static str,
    /// GPUs in the pool.
    pub gpus: u32,
    /// The mix by name or file.
    pub mix: String,
    /// Offered load.
    pub load: f64,
    /// The seed.
    pub seed: u64,
    /// How places were chosen.
    pub policy: &'static str,
    /// Arrivals that count.
    pub arrivals: u64,
    /// Of these, refused.
    pub refused: u64,
    /// Refused demand by size, of a hundred.
    pub refused_demand_pct: f64,
    /// Refused of each profile that is asked for, of a hundred.
    pub refused_pct: BTreeMap<&'static str, f64>,
    /// Each profile that is asked for.
    pub profiles: Vec<ProfileReport>,
    /// Every policy on the same arrivals, by its word.
    pub reference: BTreeMap<&'static str, Reference>,
    /// BLAKE3 of all decisions.
    pub result_hash: String,
    /// The bar for the refused demand, where there is one.
    pub refused_demand_bar_pct: Option<f64>,
    /// The bar for the ratio to best-fit, where there is one.
    pub ratio_bar: Option<f64>,
    /// Whether the bars are kept.
    pub ok: bool,
}

/// One profile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProfileReport {
    /// Its name.
    pub profile: &'static str,
    /// How often it was asked for.
    pub arrivals: u64,
    /// Of these, refused.
    pub refused: u64,
}

/// What a policy made of the same arrivals.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reference {
    /// Refused demand by size, of a hundred.
    pub refused_demand_pct: f64,
    /// Refused of each profile, of a hundred.
    pub refused_pct: BTreeMap<&'static str, f64>,
    /// What the policy of this run refused of what this one did; nothing where this one refused nothing.
    pub ratio: Option<f64>,
}

impl Report {
    pub(super) fn of(run: &Run, policy: Policy, tally: &Tally, tallies: &[(Policy, Tally)]) -> Self {
        let demand = refused_demand(run, tally);
        let of = |(other, tally): &(Policy, Tally)| (other.into_str(), reference(run, tally, demand));
        let reference: BTreeMap<&str, Reference> = tallies.iter().map(of).collect();
        let load = millionths(run.load_millionths);
        let promised = run.mix.is_named() && run.mig.axis == BAR_AXIS && run.gpus >= BAR_GPUS_MIN;
        let barred = policy == Policy::Wharf && promised;
        let refused_bar = (barred && run.load_millionths <= 1_000_000).then_some(REFUSED_BAR_PCT);
        let ratio_bar = match run.load_millionths {
            ..=1_000_000 if barred => Some(RATIO_BAR_FULL),
            ..=1_050_000 if barred => Some(RATIO_BAR_OVER),
            _ => None,
        };
        let ratio = reference.get(Policy::BestFit.into_str()).and_then(|best| best.ratio);
        let ok = refused_bar.is_none_or(|bar| demand <= bar)
            && ratio_bar.is_none_or(|bar| ratio.is_none_or(|ratio| ratio <= bar));
        Self {
            schema: "wharf.bench.mig.v1",
            model: run.model.clone(),
            row: run.mig.row,
            gpus: run.gpus,
            mix: run.mix.name().into(),
            load,
            seed: run.seed,
            policy: policy.into_str(),
            arrivals: tally.arrived.iter().sum(),
            refused: tally.refused.iter().sum(),
            refused_demand_pct: rounded(demand),
            refused_pct: refused_pct(run, tally),
            profiles: profiles(run, tally),
            reference,
            result_hash: tally.hash.clone(),
            refused_demand_bar_pct: refused_bar,
            ratio_bar,
            ok,
        }
    }
}

fn profiles(run: &Run, tally: &Tally) -> Vec<ProfileReport> {
    let counts = tally.arrived.iter().zip(&tally.refused);
    let rows = (0u8..).zip(run.mig.profiles).zip(counts);
    let asked = rows.filter(|((number, _), _)| run.mix.share(*number) > 0);
    asked
        .map(|((_, profile), (&arrivals, &refused))| ProfileReport {
            profile: profile.name,
            arrivals,
            refused,
        })
        .collect()
}

fn refused_pct(run: &Run, tally: &Tally) -> BTreeMap<&'static str, f64> {
    let of = |row: ProfileReport| (row.profile, rounded(pct(row.refused, row.arrivals)));
    profiles(run, tally).into_iter().map(of).collect()
}

fn reference(run: &Run, tally: &Tally, ours: f64) -> Reference {
    let theirs = refused_demand(run, tally);
    Reference {
        refused_demand_pct: rounded(theirs),
        refused_pct: refused_pct(run, tally),
        ratio: (theirs > 0.0).then(|| rounded(ours / theirs)),
    }
}

/// Refused demand of a hundred: each slice counts with its size.
fn refused_demand(run: &Run, tally: &Tally) -> f64 {
    let sum = |counts: &[u64]| {
        (0u8..).zip(counts).map(|(profile, count)| count * size_of(run.mig, profile)).sum::<u64>()
    };
    pct(sum(&tally.refused), sum(&tally.arrived))
}

fn pct(part: u64, whole: u64) -> f64 {
    // To a ten-thousandth of a percent, in whole numbers: more than a run of this length knows.
    let scaled = u128::from(part) * 1_000_000 / u128::from(whole.max(1));
    f64::from(u32::try_from(scaled).unwrap_or(u32::MAX)) / 10_000.0
}

fn millionths(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / 1_000_000.0
}

fn rounded(number: f64) -> f64 {
    (number * 10_000.0).round() / 10_000.0
}
