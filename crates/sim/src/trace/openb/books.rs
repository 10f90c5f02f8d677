//! What is left of every node, kept in the plainest way: the books against which every decision is checked.

use super::{Place, Pod, Trace};

/// What is left of one node.
#[derive(Clone, Debug)]
pub struct Left {
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// Memory.
    pub memory_mib: u64,
    /// Of each GPU, in thousandths.
    pub gpus: Vec<u64>,
    /// Their model.
    pub model: String,
    /// Whether anything was placed on it.
    pub used: bool,
}

/// What is left of every node.
#[derive(Clone, Debug)]
pub struct Books {
    /// In the order of the trace.
    pub nodes: Vec<Left>,
}

impl Left {
    /// True when the pod fits.
    pub fn fits(&self, pod: &Pod) -> bool {
        let model = pod.gpus == 0 || pod.models.is_empty() || pod.models.contains(&self.model);
        let gpus = self.gpus.iter().filter(|&&left| left >= pod.gpu_milli && pod.gpus > 0).count();
        model && self.cpu_milli >= pod.cpu_milli && self.memory_mib >= pod.memory_mib && gpus >= pod.gpus
    }

    /// The GPUs with the least left that are enough.
    pub fn tightest(&self, pod: &Pod) -> Vec<usize> {
        let mut fitting: Vec<(u64, usize)> = self.fitting(pod).map(|gpu| (self.gpus[gpu], gpu)).collect();
        fitting.sort_unstable();
        fitting.into_iter().take(pod.gpus).map(|(_, gpu)| gpu).collect()
    }

    /// GPUs with enough left.
    pub fn fitting(&self, pod: &Pod) -> impl Iterator<Item = usize> {
        (0..self.gpus.len()).filter(|&gpu| self.gpus[gpu] >= pod.gpu_milli)
    }
}

impl Books {
    /// Everything empty.
    pub fn new(trace: &Trace) -> Self {
        let left = |node: &super::Node| Left {
            cpu_milli: node.cpu_milli,
            memory_mib: node.memory_mib,
            gpus: vec![1000; node.gpus],
            model: node.model.clone(),
            used: false,
        };
        Self { nodes: trace.nodes.iter().map(left).collect() }
    }

    /// True when some node could take the pod, whatever a policy says.
    pub fn fits_anywhere(&self, pod: &Pod) -> bool {
        self.nodes.iter().any(|node| node.fits(pod))
    }

    /// Books a placement, which has to fit.
    pub fn take(&mut self, pod: &Pod, place: &Place) {
        let node = &mut self.nodes[place.node];
        assert!(node.fits(pod), "a pod is placed where it fits: {pod:?} on node {}", place.node);
        assert!(place.gpus.len() == pod.gpus, "a pod gets as many GPUs as it asked for");
        node.cpu_milli -= pod.cpu_milli;
        node.memory_mib -= pod.memory_mib;
        node.used = true;
        for &gpu in &place.gpus {
            let left = node.gpus[gpu].checked_sub(pod.gpu_milli);
            node.gpus[gpu] = left.expect("a GPU is not given out beyond what it has");
        }
    }
}
