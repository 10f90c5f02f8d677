//! One GPU as a Markov chain over its layouts: what a choice of starts refuses in the long run, and what the best one
//! does, by value iteration. What fits is never refused. It knows nothing of weights.

use wharf_sim::bench::mig::{Atlas, Cut, Mix, size_of, sizes_in};

/// Rounds until the long-run cost is known to a thousandth of a percent; a round is a tenth of a mean lifetime.
const ROUNDS: usize = 1000;

pub(crate) struct Chain<'a> {
    atlas: &'a Atlas,
    /// Arrivals in a mean lifetime, and sizes, of the profiles that are asked for.
    asked: Vec<(u8, f64, f64)>,
    /// Layouts that can be reached, by number.
    reached: Vec<u16>,
    /// Of each of them, the layouts that a departure leads to.
    left: Vec<Vec<u16>>,
}

impl<'a> Chain<'a> {
    pub(crate) fn new(atlas: &'a Atlas, mix: &Mix, load: f64) -> Self {
        let part = |profile| exact(size_of(atlas.mig(), profile)) / exact(sizes_in(atlas.mig()));
        let shares = (0u8..11).map(|profile| (profile, f64::from(mix.share(profile))));
        let shares: Vec<(u8, f64)> = shares.filter(|(_, share)| *share > 0.0).collect();
        let mean: f64 = shares.iter().map(|(profile, share)| share * part(*profile)).sum();
        let asked: Vec<(u8, f64, f64)> =
            shares.iter().map(|&(profile, share)| (profile, load * share / mean, part(profile))).collect();
        let reached = reached(atlas, &asked);
        let left = reached.iter().map(|&number| departures(atlas, number)).collect();
        Self { atlas, asked, reached, left }
    }

    /// Refused demand of a hundred, where each start is chosen so.
    pub(crate) fn refused_pct(&self, choose: &dyn Fn(u16, u8) -> Option<Cut>) -> f64 {
        let chosen = |number, profile| choose(number, profile).into_iter().collect();
        self.solve(&chosen)
    }

    /// Refused demand of a hundred, where each start is chosen best.
    pub(crate) fn least_refused_pct(&self) -> f64 {
        self.solve(&|number, profile| self.atlas.cuts(number, profile).to_vec())
    }

    /// Value iteration over what may be chosen.
    fn solve(&self, choices: &dyn Fn(u16, u8) -> Vec<Cut>) -> f64 {
        let slices = self.left.iter().map(Vec::len).max().unwrap_or(0);
        let arrivals: f64 = self.asked.iter().map(|(_, rate, _)| rate).sum();
        let rate = arrivals + exact(u64::try_from(slices).unwrap());
        let table: Vec<Vec<Vec<Cut>>> = self
            .reached
            .iter()
            .map(|&number| self.asked.iter().map(|&(profile, ..)| choices(number, profile)).collect())
            .collect();
        let mut value = vec![0.0; self.atlas.len()];
        let mut gain = 0.0;
        for _ in 0..ROUNDS {
            let mut next = value.clone();
            for (at, &number) in self.reached.iter().enumerate() {
                next[usize::from(number)] = self.step(at, &table[at], &value, rate);
            }
            gain = next[0] - value[0];
            let base = next[0];
            value = next.into_iter().map(|value| value - base).collect();
        }
        let offered: f64 = self.asked.iter().map(|(_, rate, size)| rate * size).sum();
        100.0 * gain * rate / offered
    }

    fn step(&self, at: usize, cuts: &[Vec<Cut>], value: &[f64], rate: f64) -> f64 {
        let here = value[usize::from(self.reached[at])];
        let mut sum = 0.0;
        let mut used = 0.0;
        for ((_, arrivals, size), cuts) in self.asked.iter().zip(cuts) {
            let best = cuts.iter().map(|cut| value[usize::from(cut.to)]).min_by(f64::total_cmp);
            sum += arrivals * best.unwrap_or(size + here);
            used += arrivals;
        }
        for &to in &self.left[at] {
            sum += value[usize::from(to)];
            used += 1.0;
        }
        (sum + (rate - used) * here) / rate
    }
}

/// Layouts made of what is asked for.
fn reached(atlas: &Atlas, asked: &[(u8, f64, f64)]) -> Vec<u16> {
    let is_asked = |profile| asked.iter().any(|(known, ..)| *known == profile);
    let made_of = |number: &u16| atlas.layout(*number).unwrap().slices().all(|slice| is_asked(slice.profile));
    (0u16..).take(atlas.len()).filter(made_of).collect()
}

fn departures(atlas: &Atlas, number: u16) -> Vec<u16> {
    let layout = atlas.layout(number).unwrap();
    layout.slices().map(|slice| atlas.number(layout.without(slice)).unwrap()).collect()
}

fn exact(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}
