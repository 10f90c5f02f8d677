//! What a run is measured by.

use super::plain::float;
use super::{Pod, Trace};

/// Figures of a run.
#[derive(Clone, Debug)]
pub struct Tally {
    capacity: u64,
    arrived: u64,
    placed: u64,
    /// By rounded percent arrived: sum of percent given out, and how many arrivals.
    curve: Vec<(f64, f64)>,
    /// Pods refused up to the moment at which as much has been asked for as there is.
    pub refused: Refused,
    /// Pods refused although some node could have taken them, over the whole run.
    pub refused_feasible: u64,
    /// Percent arrived at the first refusal.
    pub first_refusal_pct: Option<f64>,
}

/// Refused pods by what they asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// No GPU.
    pub cpu: u64,
    /// A part of one.
    pub share: u64,
    /// One.
    pub one: u64,
    /// Two.
    pub two: u64,
    /// Four.
    pub four: u64,
    /// Eight, or any other number.
    pub eight: u64,
}

impl Tally {
    pub(super) fn new(trace: &Trace) -> Self {
        let gpus: usize = trace.nodes.iter().map(|node| node.gpus).sum();
        Self {
            capacity: u64::try_from(gpus).expect("a count of GPUs fits") * 1000,
            arrived: 0,
            placed: 0,
            curve: Vec::new(),
            refused: Refused::default(),
            refused_feasible: 0,
            first_refusal_pct: None,
        }
    }

    pub(super) fn count(&mut self, pod: &Pod, placed: bool, could: bool) {
        self.arrived += pod.asked();
        self.placed += if placed { pod.asked() } else { 0 };
        let arrived = self.percent(self.arrived);
        let at = (0..1000).find(|&at| float(at) + 0.5 > arrived).unwrap_or(1000);
        let at = usize::try_from(at).expect("a percent fits");
        if self.curve.len() <= at {
            self.curve.resize(at + 1, (0.0, 0.0));
        }
        let given = self.percent(self.placed);
        self.curve[at].0 += given;
        self.curve[at].1 += 1.0;
        if !placed {
            self.first_refusal_pct.get_or_insert(arrived);
            self.refused_feasible += u64::from(could);
            if self.arrived <= self.capacity {
                self.refused.add(pod);
            }
        }
    }

    fn percent(&self, milli: u64) -> f64 {
        float(milli) * 100.0 / float(self.capacity)
    }

    /// Percent of the GPUs given out, on average over the arrivals at which so many percent had been asked for, rounded.
    pub fn alloc_at(&self, percent: usize) -> Option<f64> {
        let (sum, arrivals) = self.curve.get(percent).copied()?;
        (arrivals > 0.0).then(|| sum / arrivals)
    }
}

impl Refused {
    fn add(&mut self, pod: &Pod) {
        let count = match (pod.gpus, pod.gpu_milli) {
            (0, _) => &mut self.cpu,
            (1, ..1000) => &mut self.share,
            (1, _) => &mut self.one,
            (2, _) => &mut self.two,
            (4, _) => &mut self.four,
            _ => &mut self.eight,
        };
        *count += 1;
    }
}
