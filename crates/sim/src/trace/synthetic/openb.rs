//! A cluster of shared GPUs and pods that arrive one at a time, with the columns of the openb traces.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::weighted;
use crate::trace::openb::{Node, Pod, Trace};

/// Alike nodes: how many, GPUs of each, model, thousandths of a core, MiB.
const NODES: [(usize, usize, &str, u64, u64); 7] = [
    (550, 8, "G2", 96_000, 393_216),
    (390, 2, "T4", 104_000, 524_288),
    (130, 2, "P100", 16_000, 122_880),
    (40, 8, "G3", 128_000, 786_432),
    (40, 4, "V100", 32_000, 131_072),
    (20, 8, "V100", 96_000, 786_432),
    (20, 4, "T4", 96_000, 393_216),
];

/// What pods ask of GPUs: how many, thousandths of each, weight.
const GPUS: [(usize, u64, u64); 14] = [
    (0, 0, 133),
    (1, 1000, 480),
    (1, 800, 130),
    (1, 500, 90),
    (1, 650, 30),
    (1, 600, 20),
    (1, 330, 40),
    (1, 250, 25),
    (1, 200, 20),
    (1, 150, 10),
    (1, 100, 5),
    (2, 1000, 5),
    (4, 1000, 5),
    (8, 1000, 7),
];

/// What pods ask of cores and memory: thousandths of a core, MiB, weight.
const CORES: [(u64, u64, u64); 10] = [
    (3_000, 6_144, 28),
    (4_000, 15_360, 9),
    (4_000, 30_720, 5),
    (6_000, 12_288, 6),
    (8_000, 16_384, 8),
    (8_000, 30_720, 9),
    (11_000, 49_152, 20),
    (12_000, 24_576, 7),
    (16_000, 58_368, 5),
    (19_000, 64_512, 3),
];

/// Pods to draw arrivals from.
const PODS: usize = 8_000;
/// Arrivals end when so much of the cluster's GPUs was asked for, in percent.
const ASKED_PERCENT: u64 = 130;

/// The cluster and the pods.
pub fn trace(seed: u64) -> Trace {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let alike = NODES.iter().flat_map(|row| std::iter::repeat_n(row, row.0));
    let node = |(at, &(_, gpus, model, cpu_milli, memory_mib)): (usize, &(usize, usize, &str, u64, u64))| {
        Node { name: format!("node-{at:04}"), cpu_milli, memory_mib, gpus, model: model.to_owned() }
    };
    let nodes = alike.enumerate().map(node).collect();
    Trace { nodes, pods: (0..PODS).map(|_| pod(&mut rng)).collect() }
}

fn pod(rng: &mut ChaCha8Rng) -> Pod {
    let &(gpus, gpu_milli, _) = weighted(rng, &GPUS, |&(_, _, weight)| weight);
    let &(cpu_milli, memory_mib, _) = weighted(rng, &CORES, |&(_, _, weight)| weight);
    // A pod of several GPUs feeds each of them, with no more than the part of a node that goes with a GPU.
    let times = u64::try_from(gpus.max(1)).expect("a pod has few GPUs");
    let (cpu_milli, memory_mib) =
        if gpus > 1 { (cpu_milli.min(12_000), memory_mib.min(49_152)) } else { (cpu_milli, memory_mib) };
    Pod { cpu_milli: cpu_milli * times, memory_mib: memory_mib * times, gpus, gpu_milli, models: Vec::new() }
}

/// An order of arrival: rows of the trace's pods until [`ASKED_PERCENT`] of the GPUs were asked for.
pub fn arrivals(trace: &Trace, seed: u64) -> Vec<usize> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let gpus: usize = trace.nodes.iter().map(|node| node.gpus).sum();
    let most = u64::try_from(gpus).expect("a cluster has few GPUs") * 1000 * ASKED_PERCENT / 100;
    let mut asked = 0;
    let mut order = Vec::new();
    while asked < most {
        let pod = rng.random_range(0..trace.pods.len());
        asked += trace.pods[pod].asked();
        order.push(pod);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_pods_and_orders() {
        let (one, again, other) = (trace(1), trace(1), trace(2));
        assert_eq!(one.pods, again.pods);
        assert_ne!(one.pods, other.pods);
        assert_eq!(arrivals(&one, 42), arrivals(&again, 42));
        assert_ne!(arrivals(&one, 42), arrivals(&one, 43));
    }

    #[test]
    fn every_pod_fits_an_empty_cluster_and_more_is_asked_for_than_there_is() {
        let trace = trace(3);
        let fits = |pod: &Pod| {
            let room = |node: &&Node| {
                node.gpus >= pod.gpus && node.cpu_milli >= pod.cpu_milli && node.memory_mib >= pod.memory_mib
            };
            trace.nodes.iter().any(|node| room(&node))
        };
        let lost = trace.pods.iter().filter(|pod| !fits(pod)).count();
        assert_eq!(lost, 0, "pods that never fit would be refused by every policy");
        let gpus: usize = trace.nodes.iter().map(|node| node.gpus).sum();
        let asked: u64 = arrivals(&trace, 42).iter().map(|&pod| trace.pods[pod].asked()).sum();
        assert!(asked >= u64::try_from(gpus).unwrap() * 1300);
    }
}
