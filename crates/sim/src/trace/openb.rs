//! The placement benchmark: pods arrive one at a time on a cluster of shared GPUs and stay; each is placed once or
//! refused for good. What is measured is how much of the GPUs is given out when so much has been asked for.
//!
//! The protocol is that of the openb traces (FGD, USENIX ATC'23). A policy sees pods as they arrive and nothing of those
//! to come. `Wharf` is the real engine; the others are plain reimplementations for reference. Every placement is booked,
//! and every refusal judged, in books of their own that share nothing with any policy.

mod books;
mod engine;
mod fgd;
mod plain;
mod tally;

use std::time::{Duration, Instant};
use strum::IntoStaticStr;

pub use books::Books;
pub use tally::{Refused, Tally};

/// A node of the cluster.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// Memory.
    pub memory_mib: u64,
    /// How many GPUs.
    pub gpus: usize,
    /// Their model.
    pub model: String,
}

/// A pod of the workload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pod {
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// Memory.
    pub memory_mib: u64,
    /// How many GPUs.
    pub gpus: usize,
    /// How much of each, in thousandths.
    pub gpu_milli: u64,
    /// Models it may run on, sorted; any where empty.
    pub models: Vec<String>,
}

impl Pod {
    /// What it asks for of GPUs in all, in thousandths.
    pub fn asked(&self) -> u64 {
        u64::try_from(self.gpus).expect("a pod has few GPUs") * self.gpu_milli
    }
}

/// A cluster and the pods that may arrive.
#[derive(Clone, Debug)]
pub struct Trace {
    /// In the order of the file.
    pub nodes: Vec<Node>,
    /// In the order of the file.
    pub pods: Vec<Pod>,
}

/// Where a pod goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which node.
    pub node: usize,
    /// Which of its GPUs.
    pub gpus: Vec<usize>,
}

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Policy {
    /// The engine, with prices solved between arrivals.
    Wharf,
    /// Fragmentation gradient descent, as published, ties by the order of nodes.
    Fgd,
    /// The least that is left over of cores and GPUs.
    BestFit,
    /// The first node that fits.
    FirstFit,
    /// GPUs in use first, then nodes in use.
    Packing,
}

impl Policy {
    /// The word for it, the same everywhere.
    pub fn into_str(self) -> &'static str {
        self.into()
    }
}

/// One decision.
#[derive(Clone, Debug)]
pub struct Decision {
    /// How many came before.
    pub seq: usize,
    /// Which pod of the trace.
    pub pod: usize,
    /// Where it went, if anywhere.
    pub place: Option<Place>,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was counted.
    pub tally: Tally,
    /// Time of each decision.
    pub latencies: Vec<Duration>,
    /// Time of each solve of prices, outside the decisions.
    pub solves: Vec<Duration>,
    /// Time of each change of prices in the engine.
    pub repriced: Vec<Duration>,
    /// A hash over all decisions.
    pub hash: String,
}

/// Lets the pods arrive in this order; every decision is also told to `tell`.
pub fn run(trace: &Trace, order: &[usize], policy: Policy, mut tell: impl FnMut(&Decision)) -> Outcome {
    let mut books = Books::new(trace);
    let mut tally = Tally::new(trace);
    let mut decider = Decider::new(trace, policy);
    let (mut latencies, mut hash) = (Vec::with_capacity(order.len()), blake3::Hasher::new());
    for (seq, &pod) in order.iter().enumerate() {
        let asked = &trace.pods[pod];
        let (place, took) = decider.decide(&books, asked);
        latencies.push(took);
        let could = place.is_none() && books.fits_anywhere(asked);
        if let Some(place) = &place {
            books.take(asked, place);
        }
        tally.count(asked, place.is_some(), could);
        let decision = Decision { seq, pod, place };
        hash.update(format!("{seq} {pod} {:?}\n", decision.place).as_bytes());
        tell(&decision);
    }
    let (solves, repriced) = match decider {
        Decider::Engine(engine) => (engine.solves, engine.repriced),
        Decider::Plain(..) | Decider::Fgd(_) => (Vec::new(), Vec::new()),
    };
    Outcome { tally, latencies, solves, repriced, hash: hash.finalize().to_hex().to_string() }
}

enum Decider {
    Engine(Box<engine::Engine>),
    Fgd(fgd::Fgd),
    Plain(Policy),
}

impl Decider {
    fn new(trace: &Trace, policy: Policy) -> Self {
        match policy {
            Policy::Wharf => Self::Engine(Box::new(engine::Engine::new(trace))),
            Policy::Fgd => Self::Fgd(fgd::Fgd::new(trace)),
            Policy::BestFit | Policy::FirstFit | Policy::Packing => Self::Plain(policy),
        }
    }

    fn decide(&mut self, books: &Books, pod: &Pod) -> (Option<Place>, Duration) {
        if let Self::Engine(engine) = self {
            return engine.decide(pod);
        }
        let begin = Instant::now();
        let place = match self {
            Self::Fgd(fgd) => fgd.choose(books, pod),
            Self::Plain(Policy::BestFit) => plain::best_fit(books, pod),
            Self::Plain(Policy::Packing) => plain::packing(books, pod),
            Self::Plain(_) | Self::Engine(_) => plain::first_fit(books, pod),
        };
        (place, begin.elapsed())
    }
}
