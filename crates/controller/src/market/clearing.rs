//! The market itself: prices move until what is left of the fleet would host what is asked for.
//!
//! Every GPU with a residual r hosts some multiset of sizes that fits r, each with a probability that grows with what it
//! brings: exp((prices - cores at their price) / T). The sum over all multisets is a knapsack recurrence over sizes, and
//! how often a size is hosted on average is its derivative, taken by running the recurrence backwards. Then the price of
//! a shape moves by the logarithm of demand over supply. A small T makes the choice nearly that of a linear programme,
//! whose dual the prices approach; a larger one blurs them.

use std::collections::BTreeMap;

use wharf_engine::units::{GpuUnits, PoolId};

use super::summary::{Class, Summary, Wanted, gpus};

/// How sharply a GPU chooses, in GPUs.
const TEMPERATURE: f64 = 0.01;
/// Demand is scaled to so much of what is idle: a market in which all is sold has no prices for what is not wanted.
const SOLD: f64 = 0.965;
/// How far prices move in the first round; later rounds move them less.
const STEP: f64 = 0.15;
/// Logarithms beyond this are cut: a shape that is not offered at all must not run away.
const LOG_MAX: f64 = 3.0;
/// How far the price of a core moves, in GPUs, for each time its use is missed.
const CORE_STEP: f64 = 0.01;
/// The highest price of a core, in GPUs: the engine looks no higher.
const CORE_PRICE_MAX: f64 = 0.4;
/// The finest step in which a GPU is divided here, in 1/3000.
const GRID_MIN: u64 = 10;

/// A shape, as prices are remembered.
type Key = (u64, u64, Vec<PoolId>);

/// Prices from solve to solve.
#[derive(Clone, Debug, Default)]
pub(super) struct Market {
    worths: BTreeMap<Key, f64>,
    core_prices: BTreeMap<(PoolId, usize), f64>,
}

impl Market {
    /// What each wanted shape is worth, in GPUs.
    pub(super) fn clear(&mut self, summary: &Summary, rounds: u32) -> Vec<f64> {
        let mut round = Round::new(self, summary);
        let averaged_from = rounds - rounds / 3;
        let mut sums = vec![0.0; summary.wanted.len()];
        for number in 0..rounds {
            round.sell();
            round.move_prices(STEP / (1.0 + f64::from(number) / 100.0).sqrt());
            if number >= averaged_from {
                sums.iter_mut().zip(&round.worths).for_each(|(sum, worth)| *sum += worth);
            }
        }
        let averaged = f64::from(rounds - averaged_from);
        for sum in &mut sums {
            *sum /= averaged;
        }
        for (sum, wanted) in sums.iter_mut().zip(&summary.wanted) {
            if !sum.is_finite() {
                *sum = gpus(wanted.size);
            }
        }
        self.worths = summary.wanted.iter().map(key).zip(sums.iter().copied()).collect();
        for (class, price) in summary.classes.iter().zip(&round.core_prices) {
            self.core_prices.insert((class.pool, class.band), *price);
        }
        sums
    }
}

fn key(wanted: &Wanted) -> Key {
    (wanted.size.parts(), wanted.cores.to_bits(), wanted.pools.clone())
}

/// The market at one moment.
struct Round<'a> {
    summary: &'a Summary,
    /// Distinct sizes in steps, with the shapes of each.
    sizes: Vec<(usize, Vec<usize>)>,
    /// By class, GPUs by what is left of them in steps.
    left: Vec<Vec<f64>>,
    demand: Vec<f64>,
    /// Demand as a part of all of the same size.
    prior: Vec<f64>,
    alone: f64,
    worths: Vec<f64>,
    core_prices: Vec<f64>,
    supply: Vec<f64>,
    /// Cores that the GPUs of each class take.
    used: Vec<f64>,
    stages: Vec<f64>,
    chances: Vec<f64>,
}

impl<'a> Round<'a> {
    fn new(market: &Market, summary: &'a Summary) -> Self {
        let grid = grid(&summary.wanted);
        let steps = |units: GpuUnits| usize::try_from(units.parts() / grid).expect("a GPU has few steps");
        let up =
            |units: GpuUnits| usize::try_from(units.parts().div_ceil(grid)).expect("a GPU has few steps");
        let mut sizes: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (at, wanted) in summary.wanted.iter().enumerate() {
            sizes.entry(up(wanted.size)).or_default().push(at);
        }
        let asked: f64 = summary.wanted.iter().map(|wanted| wanted.count * gpus(wanted.size)).sum();
        let scale = if asked > 0.0 { SOLD * summary.idle / asked } else { 0.0 };
        let mut prior = vec![0.0; summary.wanted.len()];
        for of_size in sizes.values() {
            let total: f64 = of_size.iter().map(|&at| summary.wanted[at].count).sum();
            for &at in of_size {
                prior[at] = summary.wanted[at].count / total;
            }
        }
        let left = |class: &Class| {
            let mut left = vec![0.0; steps(GpuUnits::WHOLE) + 1];
            class.left.iter().for_each(|&(units, count)| left[steps(units)] += count);
            let most = left.iter().rposition(|&count| count > 0.0).map_or(0, |most| most + 1);
            left.truncate(most);
            left
        };
        let worth = |wanted: &Wanted| market.worths.get(&key(wanted)).copied().unwrap_or(gpus(wanted.size));
        let core_price =
            |class: &Class| market.core_prices.get(&(class.pool, class.band)).copied().unwrap_or(0.0);
        Self {
            summary,
            sizes: sizes.into_iter().collect(),
            left: summary.classes.iter().map(left).collect(),
            demand: summary.wanted.iter().map(|wanted| wanted.count * scale).collect(),
            prior,
            alone: summary.cores_alone * scale,
            worths: summary.wanted.iter().map(worth).collect(),
            core_prices: summary.classes.iter().map(core_price).collect(),
            supply: vec![0.0; summary.wanted.len()],
            used: vec![0.0; summary.classes.len()],
            stages: Vec::new(),
            chances: vec![0.0; summary.wanted.len()],
        }
    }

    /// What every class would host at these prices.
    fn sell(&mut self) {
        self.supply.fill(0.0);
        self.used.fill(0.0);
        for class in 0..self.left.len() {
            if !self.left[class].is_empty() {
                self.sell_class(class);
            }
        }
        self.place_alone();
    }

    fn sell_class(&mut self, class: usize) {
        let (pool, price) = (self.summary.classes[class].pool, self.core_prices[class]);
        let len = self.left[class].len();
        let mut offered: Vec<(usize, f64, usize)> = Vec::with_capacity(self.sizes.len());
        for (at, (steps, shapes)) in self.sizes.iter().enumerate().filter(|(_, (steps, _))| *steps < len) {
            let mut weight = 0.0;
            for &shape in shapes {
                let wanted = &self.summary.wanted[shape];
                let here = wanted.pools.contains(&pool);
                let brings = (self.worths[shape] - price * wanted.cores) / TEMPERATURE;
                self.chances[shape] = if here { self.prior[shape] * brings.exp() } else { 0.0 };
                weight += self.chances[shape];
            }
            if weight > 0.0 {
                offered.push((*steps, weight, at));
            }
        }
        let hosted = hosted(&self.left[class], &offered, &mut self.stages);
        for ((_, weight, at), count) in offered.into_iter().zip(hosted) {
            for &shape in &self.sizes[at].1 {
                let sold = count * self.chances[shape] / weight;
                self.supply[shape] += sold;
                self.used[class] += sold * self.summary.wanted[shape].cores;
            }
        }
    }

    /// Work without GPUs goes where cores are cheapest.
    fn place_alone(&mut self) {
        let slack = |class: usize| self.summary.classes[class].cores - self.used[class];
        let mut order: Vec<(usize, f64)> = (0..self.used.len()).map(|class| (class, slack(class))).collect();
        let prices = &self.core_prices;
        order.sort_by(|a, b| prices[a.0].total_cmp(&prices[b.0]).then(b.1.total_cmp(&a.1)));
        let mut rest = self.alone;
        for (class, slack) in order {
            let taken = rest.min(slack.max(0.0));
            self.used[class] += taken;
            rest -= taken;
        }
    }

    fn move_prices(&mut self, step: f64) {
        let wanted = &self.summary.wanted;
        for (at, worth) in self.worths.iter_mut().enumerate() {
            let missing = (self.demand[at] / self.supply[at].max(1e-9)).ln().clamp(-LOG_MAX, LOG_MAX);
            *worth = (*worth + step * TEMPERATURE * missing).clamp(0.0, 2.0 * gpus(wanted[at].size));
        }
        // Only ratios matter: all that is asked for is worth as many GPUs as it takes.
        let sizes: f64 = self.demand.iter().zip(wanted).map(|(demand, of)| demand * gpus(of.size)).sum();
        let worths: f64 = self.demand.iter().zip(&self.worths).map(|(demand, worth)| demand * worth).sum();
        if worths > 0.0 {
            self.worths.iter_mut().for_each(|worth| *worth *= sizes / worths);
        }
        for (class, price) in self.core_prices.iter_mut().enumerate() {
            let cores = self.summary.classes[class].cores;
            let missed = if cores > 0.0 { self.used[class] / cores - 1.0 } else { 1.0 };
            *price = (*price + CORE_STEP * step * missed.min(LOG_MAX)).clamp(0.0, CORE_PRICE_MAX);
        }
    }
}

/// How many of each size GPUs with these residuals host on average.
fn hosted(left: &[f64], offered: &[(usize, f64, usize)], stages: &mut Vec<f64>) -> Vec<f64> {
    let len = left.len();
    stages.clear();
    stages.resize(len, 1.0);
    // Stage by stage one more size may be used, any number of times: its sum is the one before, shifted and weighted.
    for &(steps, weight, _) in offered {
        let from = stages.len() - len;
        stages.extend_from_within(from..);
        let stage = &mut stages[from + len..];
        for begin in (steps..len).step_by(steps) {
            let (before, block) = stage.split_at_mut(begin);
            let before = &before[begin - steps..];
            block.iter_mut().zip(before).for_each(|(sum, shifted)| *sum += weight * shifted);
        }
    }
    let last = &stages[stages.len() - len..];
    let mut slope: Vec<f64> = left.iter().zip(last).map(|(count, sum)| count / sum).collect();
    let mut counts = vec![0.0; offered.len()];
    for (at, &(steps, weight, _)) in offered.iter().enumerate().rev() {
        let stage = &stages[(at + 1) * len..(at + 2) * len];
        let mut begin = len;
        while begin > steps {
            // The block before this one gets what this one passes down; blocks do not overlap.
            let end = begin;
            begin = begin.saturating_sub(steps).max(steps);
            let (before, block) = slope.split_at_mut(begin);
            let before = &mut before[begin - steps..];
            before.iter_mut().zip(&block[..end - begin]).for_each(|(slope, after)| *slope += weight * after);
        }
        let passed: f64 = slope[steps..].iter().zip(stage).map(|(slope, sum)| slope * sum).sum();
        counts[at] = weight * passed;
    }
    counts
}

/// The largest step in which every size can be counted, unless that is finer than it is worth.
fn grid(wanted: &[Wanted]) -> u64 {
    let whole = GpuUnits::WHOLE.parts();
    wanted.iter().fold(whole, |step, wanted| gcd(step, wanted.size.parts())).max(GRID_MIN)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
