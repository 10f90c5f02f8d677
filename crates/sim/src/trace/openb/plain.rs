//! Reference policies that look at one node at a time. Ties go to the first node.

use std::cmp::Reverse;

use super::books::Left;
use super::{Books, Place, Pod};

/// What cores and GPUs are measured by: the largest node.
const LARGEST: (f64, f64) = (128_000.0, 8_000.0);

/// The first node that fits.
pub(super) fn first_fit(books: &Books, pod: &Pod) -> Option<Place> {
    let node = books.nodes.iter().position(|node| node.fits(pod))?;
    let gpus = books.nodes[node].fitting(pod).take(pod.gpus).collect();
    Some(Place { node, gpus })
}

/// The least that is left over of cores and GPUs, as a whole number from 0 to 100 between the best and the worst.
pub(super) fn best_fit(books: &Books, pod: &Pod) -> Option<Place> {
    let fitting = books.nodes.iter().enumerate().filter(|(_, node)| node.fits(pod));
    let over: Vec<(usize, f64)> = fitting.map(|(at, node)| (at, left_over(node, pod))).collect();
    let least = over.iter().map(|(_, over)| *over).fold(f64::INFINITY, f64::min);
    let most = over.iter().map(|(_, over)| *over).fold(f64::NEG_INFINITY, f64::max);
    let score = |over: f64| if most > least { ((over - least) * 100.0 / (most - least)).ceil() } else { 0.0 };
    let best = over.iter().min_by(|a, b| score(a.1).total_cmp(&score(b.1)))?;
    Some(Place { node: best.0, gpus: books.nodes[best.0].tightest(pod) })
}

fn left_over(node: &Left, pod: &Pod) -> f64 {
    let cpu = float(node.cpu_milli - pod.cpu_milli) / LARGEST.0;
    let gpu = float(node.gpus.iter().sum::<u64>() - pod.asked()) / LARGEST.1;
    0.5 * cpu + 0.5 * gpu
}

/// GPUs in use first, then free GPUs of nodes in use, then empty nodes; the tightest of each.
pub(super) fn packing(books: &Books, pod: &Pod) -> Option<Place> {
    let fitting = books.nodes.iter().enumerate().filter(|(_, node)| node.fits(pod));
    let score = |node: &Left| {
        let gpus = node.tightest(pod);
        let shared = gpus.first().is_some_and(|&gpu| node.gpus[gpu] < 1000);
        let free = node.gpus.iter().filter(|&&left| left == 1000).count();
        let tight = gpus.first().map_or(0, |&gpu| node.gpus[gpu]);
        (Reverse(shared), Reverse(node.used), if shared { 0 } else { free }, tight)
    };
    let (node, left) = fitting.min_by_key(|(_, node)| score(node))?;
    Some(Place { node, gpus: left.tightest(pod) })
}

/// Amounts here are far below 2^53.
#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "there is no exact conversion, nor need for one"
)]
pub(super) fn float(number: u64) -> f64 {
    number as f64
}
