//! Two months of a training cluster shared by eleven virtual clusters, with the columns of the Philly trace.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use wharf_engine::units::Millis;

use super::weighted;
use crate::trace::philly::{NODE_GPUS, Row};

/// How long the trace is, in days: October and November.
pub const DAYS: u64 = 61;

/// A virtual cluster: its name, its size in nodes of eight, and its part of the jobs.
const CLUSTERS: [(&str, u32, u64); 11] = [
    ("vc-a", 64, 40),
    ("vc-b", 64, 12),
    ("vc-c", 64, 10),
    ("vc-d", 32, 14),
    ("vc-e", 32, 6),
    ("vc-f", 32, 5),
    ("vc-g", 16, 4),
    ("vc-h", 16, 3),
    ("vc-i", 16, 2),
    ("vc-j", 8, 2),
    ("vc-k", 8, 2),
];

/// Of jobs of one size: GPUs, weight, and how many seconds they run at the ends of [`PARTS`].
const SIZES: [(u32, u64, [u64; 8]); 6] = [
    (1, 870, [10, 60, 100, 1_100, 3_500, 12_500, 400_000, 900_000]),
    (2, 24, [5, 12, 20, 60, 3_500, 160_000, 800_000, 1_500_000]),
    (4, 48, [10, 80, 350, 6_400, 75_000, 200_000, 1_000_000, 1_500_000]),
    (8, 49, [10, 80, 400, 8_500, 90_000, 290_000, 1_200_000, 1_800_000]),
    (16, 7, [10, 50, 250, 8_000, 57_000, 190_000, 760_000, 1_200_000]),
    (32, 2, [10, 30, 220, 2_500, 21_000, 60_000, 160_000, 400_000]),
];

/// Where the columns of [`SIZES`] stand, in thousandths of the jobs.
const PARTS: [u64; 8] = [0, 100, 250, 500, 750, 900, 990, 1000];

/// How many jobs arrive in each hour of a day, relative to each other.
const HOURS: [u64; 24] = [5, 4, 4, 4, 4, 4, 5, 7, 6, 4, 3, 2, 3, 3, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5];

/// The part of the GPU time of all virtual clusters that the jobs ask for, in thousandths.
const LOAD_THOUSANDTHS: u64 = 470;

/// Every third submission is a sweep of like jobs, of up to this many.
const SWEEP_MAX: u64 = 16;

/// The virtual clusters with their sizes in nodes of eight.
pub fn clusters() -> impl Iterator<Item = (&'static str, u32)> {
    CLUSTERS.iter().map(|&(name, nodes, _)| (name, nodes))
}

/// The jobs, in the order of their submission.
pub fn jobs(seed: u64) -> Vec<Row> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let gpus: u64 = CLUSTERS.iter().map(|&(_, nodes, _)| u64::from(nodes * NODE_GPUS)).sum();
    let budget = gpus * DAYS * 24 * 3600 / 1000 * LOAD_THOUSANDTHS;
    let mut asked = 0;
    let mut rows = Vec::new();
    while asked < budget {
        let &(vc, nodes, _) = weighted(&mut rng, &CLUSTERS, |&(_, _, weight)| weight);
        let &(gpus, _, seconds) = weighted(&mut rng, &SIZES, |&(_, weight, _)| weight);
        // Nobody asks for more than half of what is their own.
        let gpus = gpus.min(nodes * NODE_GPUS / 2);
        let submit = moment(&mut rng);
        let sweep = if rng.random_range(0..3) == 0 { rng.random_range(2..=SWEEP_MAX) } else { 1 };
        for nth in 0..sweep {
            let duration = duration(&mut rng, &seconds);
            asked += duration * u64::from(gpus);
            let submit = Millis::from_secs(submit + nth);
            rows.push(Row {
                id: String::new(),
                vc: vc.to_owned(),
                submit,
                gpus,
                duration: Millis::from_secs(duration),
            });
        }
    }
    rows.sort_by_key(|row| row.submit);
    for (at, row) in rows.iter_mut().enumerate() {
        row.id = format!("job-{at:06}");
    }
    rows
}

/// A second of the trace: any day, the hours as busy as [`HOURS`] says.
fn moment(rng: &mut ChaCha8Rng) -> u64 {
    let hours: Vec<(u64, u64)> = (0..).zip(HOURS).collect();
    let &(hour, _) = weighted(rng, &hours, |&(_, weight)| weight);
    (rng.random_range(0..DAYS) * 24 + hour) * 3600 + rng.random_range(0..3600)
}

/// Between two columns of the table the seconds grow evenly.
fn duration(rng: &mut ChaCha8Rng, seconds: &[u64; 8]) -> u64 {
    let at = rng.random_range(0..1000);
    let upper = PARTS.iter().position(|&part| part > at).unwrap_or(PARTS.len() - 1);
    let (from, to) = (PARTS[upper - 1], PARTS[upper]);
    let (least, most) = (seconds[upper - 1], seconds[upper]);
    // Within a thousandth the seconds are drawn too: otherwise the longest jobs would all be of a few lengths.
    let step = (most - least) / (to - from);
    least + (at - from) * step + rng.random_range(0..=step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_jobs_and_another_gives_others() {
        assert_eq!(jobs(1), jobs(1));
        assert_ne!(jobs(1), jobs(2));
    }

    #[test]
    fn the_proportions_are_those_of_the_tables() {
        let rows = jobs(7);
        let seconds = |row: &Row| row.duration.0 / 1000;
        let total: u64 = rows.iter().map(|row| seconds(row) * u64::from(row.gpus)).sum();
        let offered = total / (2816 * DAYS * 24 * 36);
        assert!((46..=48).contains(&offered), "the jobs ask for {offered} % of the cluster");
        let single = rows.iter().filter(|row| row.gpus == 1).count() * 100 / rows.len();
        assert!((80..=92).contains(&single), "{single} % of the jobs ask for one GPU");
        assert!(rows.iter().any(|row| row.gpus == 32));
        assert!(rows.iter().all(|row| seconds(row) >= 5 && row.submit.0 < (DAYS * 24 + 1) * 3_600_000));
        assert!(rows.is_sorted_by_key(|row| row.submit));
    }
}
