//! Prices for places: what work usually asks for, sold to what is left of the fleet, until supply meets demand.
//!
//! Every GPU that is left chooses what to host, by prices; every shape's price rises while more of it is asked for than
//! offered, and falls while less. Cores have a price too, where they are short. The result enters the engine as one
//! input of small integers: nothing here is asked when a decision is made, and a replay needs none of it.
//!
//! [`Summary`] is copied out of the state in well under a millisecond; solving takes up to about twenty and belongs on
//! another thread. Prices of the solve before are where the next one starts.

mod clearing;
mod summary;

use std::collections::BTreeMap;

use wharf_engine::price::prices::{BLOCKS_MAX, Block, Piece, Prices, WORTH_MAX};
use wharf_engine::units::{GpuUnits, PoolId};

use clearing::Market;
pub use summary::Summary;

/// The prices of a core at which the engine looks at a place, in thousandths of a GPU. Finer near nothing: on most nodes
/// cores are nearly enough, and that is where a small difference decides.
const CORE_PRICES: [u16; 22] =
    [0, 1, 2, 3, 5, 7, 10, 14, 20, 28, 40, 50, 60, 70, 80, 100, 120, 150, 200, 250, 320, 400];

/// After so many jobs at the earliest prices are solved again, and after so many at the latest.
const RESOLVE_AFTER: (u64, u64) = (8, 48);
/// Until so many jobs have come, prices are far from settled and are given more time.
const UNSETTLED: u64 = 600;
/// Rounds of the market then, and later.
const ROUNDS: (u32, u32) = (150, 60);
/// What a place for several whole GPUs is worth beside its pieces, as a part of the demand it could host. Larger weights
/// keep nodes whole at the price of everything else.
const BLOCK_WEIGHT: f64 = 0.01;

/// Solves prices again and again, each time from where it left off.
#[derive(Clone, Debug, Default)]
pub struct Pricer {
    /// Jobs that had come at the last solve.
    solved_at: Option<u64>,
    market: Market,
}

impl Pricer {
    /// True when so many jobs have come that prices are worth solving again: soon after a start, seldom later.
    pub fn is_due(&self, arrived: u64) -> bool {
        let (least, most) = RESOLVE_AFTER;
        match self.solved_at {
            None => arrived > 0,
            Some(before) => arrived >= before + (before / 2).clamp(least, most),
        }
    }

    /// The prices at which what is left of the fleet would be taken by the work that usually comes.
    pub fn solve(&mut self, summary: &Summary) -> Prices {
        self.solved_at = Some(summary.arrived);
        let rounds = if summary.arrived < UNSETTLED { ROUNDS.0 } else { ROUNDS.1 };
        let worths = self.market.clear(summary, rounds);
        let prices = Prices {
            pieces: pieces(summary, &worths),
            blocks: blocks(summary),
            core_prices: CORE_PRICES.to_vec(),
            memory_mib_per_core: summary.memory_mib_per_core,
        };
        if prices.pieces.is_empty() { Prices::default() } else { prices }
    }
}

/// Who comes cannot be chosen: the mean over those who may go to the same pools.
fn pieces(summary: &Summary, worths: &[f64]) -> Vec<Piece> {
    let mut sums: BTreeMap<(u64, &[PoolId]), (f64, f64, f64)> = BTreeMap::new();
    for (wanted, worth) in summary.wanted.iter().zip(worths) {
        let sum = sums.entry((wanted.size.parts(), &wanted.pools)).or_default();
        sum.0 += wanted.count;
        sum.1 += wanted.count * worth;
        sum.2 += wanted.count * wanted.cores;
    }
    let piece = |((size, pools), (count, worth, cores)): ((u64, &[PoolId]), (f64, f64, f64))| Piece {
        size: GpuUnits::from_parts(size),
        pools: pools.to_vec(),
        worth: whole(worth / count * 1e6).min(WORTH_MAX),
        cpu_milli: whole(cores / count * 1e3),
    };
    sums.into_iter().map(piece).collect()
}

fn blocks(summary: &Summary) -> Vec<Block> {
    let mut blocks: Vec<Block> = summary
        .blocks
        .iter()
        .map(|block| {
            let share = block.tasks / summary.tasks.max(1.0);
            let worth = BLOCK_WEIGHT * share * summary.idle_all / block.places.max(1.0);
            Block {
                gpus: block.gpus,
                cpu_milli: block.cpu_milli,
                pools: block.pools.clone(),
                worth: whole(worth * 1e6).min(WORTH_MAX),
            }
        })
        .filter(|block| block.worth > 0)
        .collect();
    blocks.sort_by_key(|block| (std::cmp::Reverse(block.worth), block.gpus, block.cpu_milli));
    blocks.truncate(BLOCKS_MAX);
    blocks
}

/// The nearest whole number that is not negative.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the number is rounded and clamped; the cast saturates"
)]
fn whole(number: f64) -> u32 {
    number.round().clamp(0.0, f64::from(u32::MAX)) as u32
}
