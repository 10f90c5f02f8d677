//! How long jobs alike took that are over, and what that says of one that is not.
//!
//! Worked example: of four finished jobs three took 1 minute and one took 100. A new one is expected to be done after 1
//! minute with three chances of four: what it costs to see one of them end is 4 minutes of running for 3 ends, 80
//! seconds. One that has run for 2 minutes can only be the long one: 98 minutes. That number, the least running for one
//! end over all the times one could give up at, is the inverse of what is known as the Gittins index.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// So many of the last durations are kept: a tenant's work changes with its projects.
const KEPT_MAX: usize = 1000;
/// With fewer than this nothing is said.
const SAMPLES_MIN: usize = 20;
/// Ages are told apart at 0 and at so many milliseconds times a power of two: between two of them a plan stays as it is.
const STEP_MS: u64 = 60_000;
/// The last age that is told apart is a minute times two to this, less one: about a year.
const AGES: usize = 20;

/// How many GPUs a job takes, as far as that tells how long it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// One, or a part of one.
    One,
    /// Two or three.
    Few,
    /// Four to seven.
    Half,
    Node,
    Nodes,
}

impl Size {
    /// The size of so many GPUs.
    pub fn of(gpus: u64) -> Self {
        match gpus {
            0 | 1 => Self::One,
            2 | 3 => Self::Few,
            4..=7 => Self::Half,
            8 => Self::Node,
            _ => Self::Nodes,
        }
    }
}

/// The last finished durations of jobs alike.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Finished {
    /// In milliseconds, the oldest first.
    pub(super) durations: Vec<u64>,
    /// What is left for one end, by age; empty with too few samples.
    left: Vec<u64>,
    /// Nine of ten were over by then; nothing with too few samples.
    pub(super) most: Option<u64>,
}

impl Finished {
    pub(super) fn of(durations: &[u64]) -> Self {
        let mut finished = Self { durations: durations.to_vec(), ..Self::default() };
        finished.work_out();
        finished
    }

    pub(super) fn add(&mut self, millis: u64) {
        if self.durations.len() == KEPT_MAX {
            self.durations.remove(0);
        }
        self.durations.push(millis);
        self.work_out();
    }

    /// The running it takes to see one job of that age end, in milliseconds; `None` where too few are known.
    pub(super) fn left(&self, age_ms: u64) -> Option<u64> {
        self.left.get(age_step(age_ms)).copied()
    }

    fn work_out(&mut self) {
        if self.durations.len() < SAMPLES_MIN {
            return;
        }
        let mut sorted = self.durations.clone();
        sorted.sort_unstable();
        self.most = sorted.get((sorted.len() * 9).div_ceil(10) - 1).copied();
        self.left = (0..AGES).map(|step| left_at(&sorted, age_at(step))).collect();
    }
}

/// The number of the last age that is told apart and not above this one.
fn age_step(age_ms: u64) -> usize {
    let doublings = (age_ms / STEP_MS).checked_ilog2();
    let step = doublings.map_or(0, |doublings| usize::try_from(doublings).unwrap_or(AGES) + 1);
    step.min(AGES - 1)
}

fn age_at(step: usize) -> u64 {
    step.checked_sub(1).map_or(0, |doublings| STEP_MS << doublings)
}

/// The last age that is told apart and not above this one.
pub(crate) fn age_floor(age_ms: u64) -> u64 {
    age_at(age_step(age_ms))
}

pub(crate) fn next_age(age_ms: u64) -> Option<u64> {
    let next = age_step(age_ms) + 1;
    (next < AGES).then(|| age_at(next))
}

/// The least running for one end, over all the moments at which one could give up.
fn left_at(sorted: &[u64], age: u64) -> u64 {
    let longer = &sorted[sorted.partition_point(|&duration| duration <= age)..];
    let (mut ran, mut going_on) = (0u64, u64::try_from(longer.len()).unwrap_or(u64::MAX));
    let for_one = (1u64..).zip(longer).map(|(ends, &duration)| {
        let more = duration - age;
        ran = ran.saturating_add(more);
        going_on -= 1;
        ran.saturating_add(going_on.saturating_mul(more)).div_ceil(ends)
    });
    // Older than all that is known: it is taken to be half done, as everything of which only the age is known.
    for_one.min().unwrap_or(age)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_samples_say_nothing() {
        assert_eq!(Finished::of(&[1000; SAMPLES_MIN - 1]).left(0), None);
        assert_eq!(Finished::of(&[1000; SAMPLES_MIN]).left(0), Some(1000));
    }

    #[test]
    fn an_estimate_holds_for_nine_of_ten() {
        let durations: Vec<u64> = (1..=30).rev().map(|minute| minute * 60_000).collect();
        assert_eq!(Finished::of(&durations).most, Some(27 * 60_000));
        assert_eq!(Finished::of(&durations[..SAMPLES_MIN - 1]).most, None);
    }

    #[test]
    fn most_end_soon_and_who_did_not_takes_long() {
        let minute = 60_000;
        let mut durations = alloc::vec![minute; 15];
        durations.extend([100 * minute; 5]);
        let finished = Finished::of(&durations);
        assert_eq!(finished.left(0), Some(80_000), "20 minutes of running for 15 ends");
        // Between two ages that are told apart nothing changes.
        for (age, left) in [(2, 98), (3, 98), (4, 96), (128, 128)] {
            assert_eq!(finished.left(age * minute), Some(left * minute));
        }
    }

    #[test]
    fn ages_are_told_apart_at_powers_of_two() {
        let next = [59_999, 60_000, 200_000, u64::MAX].map(next_age);
        assert_eq!(next, [Some(60_000), Some(120_000), Some(240_000), None]);
    }

    #[test]
    fn the_last_thousand_count() {
        let mut finished = Finished::of(&[1000; KEPT_MAX]);
        finished.add(7000);
        assert_eq!((finished.durations.len(), finished.durations.last()), (KEPT_MAX, Some(&7000)));
    }
}
