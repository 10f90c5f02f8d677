//! Fragmentation gradient descent, as published: the place that makes the least of what is left useless to the shapes
//! that make up most of the workload.

use std::collections::BTreeMap;

use super::books::Left;
use super::plain::float;
use super::{Books, Place, Pod, Trace};

/// The most popular shapes that make up so much of all pods are the target.
const POPULAR: f64 = 0.95;

/// The target workload.
pub(super) struct Fgd {
    target: Vec<(Pod, f64)>,
}

impl Fgd {
    pub(super) fn new(trace: &Trace) -> Self {
        let mut counts: BTreeMap<Pod, f64> = BTreeMap::new();
        for pod in &trace.pods {
            *counts.entry(Pod { memory_mib: 0, ..pod.clone() }).or_default() += 1.0;
        }
        let mut target: Vec<(Pod, f64)> = counts.into_iter().collect();
        target.sort_by(|a, b| b.1.total_cmp(&a.1));
        let all: f64 = target.iter().map(|(_, count)| count).sum();
        let mut covered = 0.0;
        target.retain(|(_, count)| {
            let kept = covered < POPULAR * all;
            covered += count;
            kept
        });
        let kept: f64 = target.iter().map(|(_, count)| count).sum();
        for (_, count) in &mut target {
            *count /= kept;
        }
        Self { target }
    }

    /// The highest score, the first node of equals, the first GPU of equals.
    pub(super) fn choose(&self, books: &Books, pod: &Pod) -> Option<Place> {
        let mut best: Option<(f64, Place)> = None;
        for (at, node) in books.nodes.iter().enumerate().filter(|(_, node)| node.fits(pod)) {
            let before = self.fragmented(node);
            let (less, gpus) = self.on_node(node, pod, before);
            let score = (100.0 / (1.0 + (-less / 1000.0).exp())).floor();
            if best.as_ref().is_none_or(|(best, _)| score > *best) {
                best = Some((score, Place { node: at, gpus }));
            }
        }
        best.map(|(_, place)| place)
    }

    /// How much less is fragmented with the pod where it does least harm on the node.
    fn on_node(&self, node: &Left, pod: &Pod, before: f64) -> (f64, Vec<usize>) {
        let choices: Vec<Vec<usize>> = if pod.gpus == 1 && pod.gpu_milli < 1000 {
            node.fitting(pod).map(|gpu| vec![gpu]).collect()
        } else {
            vec![node.tightest(pod)]
        };
        let mut best: Option<(f64, Vec<usize>)> = None;
        for gpus in choices {
            let mut after = node.clone();
            after.cpu_milli -= pod.cpu_milli;
            for &gpu in &gpus {
                after.gpus[gpu] -= pod.gpu_milli;
            }
            let less = before - self.fragmented(&after);
            if best.as_ref().is_none_or(|(best, _)| less > *best) {
                best = Some((less, gpus));
            }
        }
        best.expect("a pod that fits has a place")
    }

    /// What of a node's idle GPUs the target cannot use, on average, in thousandths.
    fn fragmented(&self, node: &Left) -> f64 {
        self.target.iter().map(|(pod, share)| share * float(useless(node, pod))).sum()
    }
}

fn useless(node: &Left, pod: &Pod) -> u64 {
    let runs = pod.gpus > 0
        && (pod.models.is_empty() || pod.models.contains(&node.model))
        && node.cpu_milli >= pod.cpu_milli
        && node.fitting(pod).count() >= pod.gpus;
    node.gpus.iter().filter(|&&left| !runs || left < pod.gpu_milli).sum()
}
