//! Arrivals drawn from a seed, in whole numbers.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Mix, Run};

/// How long a slice lives on average, in nanoseconds: an hour.
pub const LIFE_NS: u64 = 3_600_000_000_000;

/// One slice that is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) at: u64,
    pub(super) profile: u8,
    pub(super) until: u64,
}

/// The endless row of arrivals. It does not depend on what becomes of them.
pub(super) struct Draw<'a> {
    rng: ChaCha8Rng,
    mix: &'a Mix,
    gap_ns: u64,
    now: u64,
}

impl<'a> Draw<'a> {
    pub(super) fn new(run: &'a Run) -> Self {
        let gap = u128::from(LIFE_NS) * 1_000_000 * u128::from(run.mix.size_sum(run.mig));
        let per = u128::from(run.load_millionths.max(1))
            * u128::from(run.gpus.max(1))
            * u128::from(run.mix.share_sum())
            * u128::from(super::sizes_in(run.mig));
        let gap_ns = u64::try_from(gap / per).unwrap_or(u64::MAX).max(1);
        Self { rng: ChaCha8Rng::seed_from_u64(run.seed), mix: &run.mix, gap_ns, now: 0 }
    }

    pub(super) fn next(&mut self) -> Arrival {
        self.now = self.now.saturating_add(self.span(self.gap_ns));
        let at = self.now;
        let profile = self.mix.pick(self.rng.next_u32());
        let until = at.saturating_add(self.span(LIFE_NS));
        Arrival { at, profile, until }
    }

    /// An exponential time of that mean.
    fn span(&mut self, mean: u64) -> u64 {
        let (whole, part) = self.exponential();
        let part = (u128::from(mean) * u128::from(part)) >> 32;
        let part = u64::try_from(part).unwrap_or(u64::MAX);
        mean.saturating_mul(whole).saturating_add(part)
    }

    /// An exponential number of mean 1, as whole part and 1/2^32. Von Neumann's way: a falling run of uniform numbers
    /// has odd length with probability `exp(-first)`, so no logarithm is needed, which no two machines round alike.
    fn exponential(&mut self) -> (u64, u32) {
        let mut whole = 0;
        loop {
            let first = self.rng.next_u32();
            let mut last = first;
            let mut odd = true;
            loop {
                let next = self.rng.next_u32();
                if next >= last {
                    break;
                }
                last = next;
                odd = !odd;
            }
            if odd {
                return (whole, first);
            }
            whole += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wharf_engine::device::catalogue::mig;

    use crate::bench::mig::MixName;

    #[test]
    fn times_are_exponential_and_the_load_is_what_was_asked_for() {
        let mix = Mix::named(MixName::Mixed, &mig::A100_80);
        let run = Run {
            model: "a100".into(),
            mig: &mig::A100_80,
            gpus: 100,
            mix,
            load_millionths: 1_000_000,
            seed: 7,
            arrivals: 0,
        };
        let mut draw = Draw::new(&run);
        let (mut lives, mut squares, mut sizes, mut last) = (0.0, 0.0, 0u64, 0);
        let count = 200_000u32;
        for _ in 0..count {
            let Arrival { at, profile, until } = draw.next();
            let life = std::time::Duration::from_nanos(until - at).as_secs_f64() / 3600.0;
            lives += life;
            squares += life * life;
            sizes += super::super::size_of(&mig::A100_80, profile);
            last = at;
        }
        let mean = lives / f64::from(count);
        assert!((mean - 1.0).abs() < 0.01, "mean {mean}");
        let variance = squares / f64::from(count) - mean * mean;
        assert!((variance - 1.0).abs() < 0.03, "variance {variance}");
        let offered = f64::from(u32::try_from(sizes).unwrap()) / 56.0;
        let load = offered / (std::time::Duration::from_nanos(last).as_secs_f64() / 3600.0) / 100.0;
        assert!((load - 1.0).abs() < 0.01, "load {load}");
    }
}
