//! Time that a piece of work takes, and how fast the machine is meanwhile.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::local::bench::percentile;
use crate::local::process::cpu_time;

/// How often work is done whose quickest run counts.
const QUICKEST_OF: u32 = 20;
/// Steps of the calibration: some tens of milliseconds.
const CALIBRATION_STEPS: u64 = 200_000;
/// Keys of its map: some megabytes, as large as what a decision walks over.
const CALIBRATION_KEYS: u64 = 1 << 16;

/// What the runs took, in milliseconds, each list sorted.
pub(super) struct Times {
    cpu: Vec<f64>,
    wall: Vec<f64>,
}

impl Times {
    /// The median of CPU time.
    pub(super) fn cpu_ms(&self) -> f64 {
        percentile(&self.cpu, 50)
    }

    /// The least CPU time.
    pub(super) fn cpu_ms_min(&self) -> f64 {
        percentile(&self.cpu, 0)
    }

    /// The median of the time on the wall.
    pub(super) fn wall_ms(&self) -> f64 {
        percentile(&self.wall, 50)
    }

    /// The least time on the wall.
    pub(super) fn wall_ms_min(&self) -> f64 {
        percentile(&self.wall, 0)
    }
}

/// A span in milliseconds.
pub(super) fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1000.0
}

/// Does the work so many times, at least once; what came of each run is dropped after the last.
pub(super) fn timed<T>(runs: u32, work: impl Fn() -> T) -> (Vec<T>, Times) {
    let mut done = Vec::new();
    let mut times = Times { cpu: Vec::new(), wall: Vec::new() };
    for _ in 0..runs.max(1) {
        let (wall, cpu) = (Instant::now(), cpu_time());
        let one = black_box(work());
        times.cpu.push(millis(cpu_time().saturating_sub(cpu)));
        times.wall.push(millis(wall.elapsed()));
        done.push(one);
    }
    times.cpu.sort_by(f64::total_cmp);
    times.wall.sort_by(f64::total_cmp);
    (done, times)
}

/// What came of the work, and its quickest run in microseconds. By the clock on the wall alone: asking for CPU time
/// takes longer than a decision that finds nothing to do.
pub(super) fn quickest_us<T>(work: impl Fn() -> T) -> (T, f64) {
    let once = || {
        let begin = Instant::now();
        let done = black_box(work());
        (begin.elapsed(), done)
    };
    let (mut least, mut done) = once();
    for _ in 1..QUICKEST_OF {
        let (span, again) = once();
        least = least.min(span);
        done = again;
    }
    (done, millis(least) * 1000.0)
}

/// The median CPU time of work that is always the same, in milliseconds.
pub(super) fn calibration_ms(runs: u32) -> f64 {
    let (_, times) = timed(runs, calibration);
    times.cpu_ms()
}

/// A map of numbers that are mixed from a counter; each step puts one in and takes one out.
fn calibration() -> usize {
    let mut map = BTreeMap::new();
    for step in 0..black_box(CALIBRATION_STEPS) {
        let mixed = mix(step);
        map.insert(mixed % CALIBRATION_KEYS, step);
        map.remove(&(mixed / CALIBRATION_KEYS % CALIBRATION_KEYS));
    }
    map.len()
}

/// The finishing steps of `SplitMix64`: a few multiplications without a branch.
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calibration_is_the_same_work_every_time() {
        assert_eq!(calibration(), calibration());
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf, "the first number of SplitMix64 with seed 0");
    }

    #[test]
    fn every_run_is_timed_and_there_is_at_least_one() {
        let (done, times) = timed(0, || 7);
        assert_eq!((done, times.cpu.len(), times.wall.len()), (vec![7], 1, 1));
        assert!(times.wall_ms_min() <= times.wall_ms());
    }
}
