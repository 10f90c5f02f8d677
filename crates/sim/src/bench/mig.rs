//! A pool of GPUs that are cut into slices, under load: what is refused, and by which way of choosing where to cut.
//!
//! Slices arrive at random (Poisson) and stay for exponential times; what fits nowhere is refused and gone, and what
//! fits is never refused. The same arrivals are played to each [`Policy`]: ours, which asks [`wharf_engine::device::cut`] and
//! learns the mix from what has arrived so far, and two that everybody has. All numbers behind a decision are whole,
//! and times are drawn by comparing whole numbers, so that a seed gives the same run on any machine.
//!
//! Left out on purpose: queues, moves, failures, and several slices at once. They hide what a cut costs.

mod arrivals;
mod atlas;
mod mix;
mod pool;
mod report;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::Serialize;
use strum::VariantArray;
use wharf_engine::device::catalogue::Mig;
use wharf_engine::device::geometry::Slice;

use arrivals::{Arrival, Draw};
use pool::Pool;

pub use arrivals::LIFE_NS;
pub use atlas::{Atlas, Cut};
pub use mix::{Mix, MixError, MixName, size_of, sizes_in};
pub use pool::Policy;
pub use report::{ProfileReport, Reference, Report};

/// Mean lifetimes that pass before anything is counted: the pool has forgotten by then that it was empty.
const WARM_UP_LIVES: u64 = 20;

/// The most GPUs of a pool.
pub const GPUS_MAX: u32 = 100_000;

/// What to play.
#[derive(Clone, Debug)]
pub struct Run {
    /// The name of the model.
    pub model: String,
    /// How its GPUs are cut.
    pub mig: &'static Mig,
    /// GPUs in the pool.
    pub gpus: u32,
    /// What is asked for.
    pub mix: Mix,
    /// Offered load in millionths of the pool: what arrives in a mean lifetime, by [`size_of`].
    pub load_millionths: u64,
    /// Everything follows from it.
    pub seed: u64,
    /// Arrivals that count, after the warm-up.
    pub arrivals: u64,
}

/// An arrival and what became of it: with this everything can be recomputed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// Arrivals before it, those of the warm-up included.
    pub seq: u64,
    /// What was asked for.
    pub profile: &'static str,
    /// On which GPU it was cut out; nothing where it was refused.
    pub gpu: Option<u32>,
    /// The first slot; nothing where it was refused.
    pub start: Option<u8>,
    /// When it arrived, in nanoseconds; a mean lifetime is [`LIFE_NS`].
    pub t: u64,
    /// When it leaves, or would have left.
    pub until: u64,
    /// Whether it counts: the warm-up is over.
    pub counted: bool,
}

/// What one policy did with the arrivals, by profile number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Slices that arrived and counted.
    pub arrived: Vec<u64>,
    /// Of these, refused.
    pub refused: Vec<u64>,
    /// Decisions, hashed.
    pub hash: String,
}

impl Run {
    /// Plays the policy, and the other two for comparison. Each decision of the first is handed over.
    pub fn run<E>(
        &self,
        policy: Policy,
        mut each: impl FnMut(&Decision) -> Result<(), E>,
    ) -> Result<Report, E> {
        let atlas = Atlas::new(self.mig);
        let tally = self.play(&atlas, policy, &mut each)?;
        let mut tallies = Vec::new();
        for &other in Policy::VARIANTS {
            let same =
                if other == policy { tally.clone() } else { self.play(&atlas, other, &mut |_| Ok(()))? };
            tallies.push((other, same));
        }
        Ok(Report::of(self, policy, &tally, &tallies))
    }

    /// Plays one policy.
    pub fn play<E>(
        &self,
        atlas: &Atlas,
        policy: Policy,
        each: &mut impl FnMut(&Decision) -> Result<(), E>,
    ) -> Result<Tally, E> {
        let mut draw = Draw::new(self);
        let mut pool = Pool::new(atlas, self.gpus);
        let mut leaving: BinaryHeap<Reverse<(u64, u32, Slice)>> = BinaryHeap::new();
        let mut counts = Counts::new(self.mig.profiles.len());
        let mut seq = 0;
        while counts.arrived_sum < self.arrivals {
            let arrival = draw.next();
            while let Some(&Reverse((_, gpu, slice))) = leaving.peek().filter(|next| next.0.0 <= arrival.at) {
                leaving.pop();
                pool.remove(gpu, slice);
            }
            let place = pool.place(policy, arrival.profile);
            if let Some((gpu, slice)) = place {
                leaving.push(Reverse((arrival.until, gpu, slice)));
            }
            let decision = self.decision(seq, &arrival, place);
            counts.count(arrival.profile, &decision);
            each(&decision)?;
            seq += 1;
        }
        Ok(counts.into_tally())
    }

    fn decision(&self, seq: u64, arrival: &Arrival, place: Option<(u32, Slice)>) -> Decision {
        let Arrival { at, profile, until } = *arrival;
        Decision {
            seq,
            profile: self.mig.profile(profile).map_or("", |profile| profile.name),
            gpu: place.map(|(gpu, _)| gpu),
            start: place.map(|(_, slice)| slice.start),
            t: at,
            until,
            counted: at >= WARM_UP_LIVES * LIFE_NS,
        }
    }
}

/// What is counted while a policy is played.
struct Counts {
    tally: Tally,
    arrived_sum: u64,
    hasher: blake3::Hasher,
}

impl Counts {
    fn new(profiles: usize) -> Self {
        let tally = Tally { arrived: vec![0; profiles], refused: vec![0; profiles], hash: String::new() };
        Self { tally, arrived_sum: 0, hasher: blake3::Hasher::new() }
    }

    fn count(&mut self, profile: u8, decision: &Decision) {
        let place = decision.gpu.zip(decision.start);
        let (gpu, start) = place.unwrap_or((u32::MAX, u8::MAX));
        self.hasher.update(&[profile, start]).update(&gpu.to_le_bytes()).update(&decision.t.to_le_bytes());
        if decision.counted {
            self.arrived_sum += 1;
            self.tally.arrived[usize::from(profile)] += 1;
            self.tally.refused[usize::from(profile)] += u64::from(place.is_none());
        }
    }

    fn into_tally(self) -> Tally {
        Tally { hash: self.hasher.finalize().to_hex().to_string(), ..self.tally }
    }
}
