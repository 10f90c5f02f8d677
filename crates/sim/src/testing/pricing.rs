//! Prices in simulated lives: none, those that the market finds, as in production, or some that are drawn.
//!
//! Prices decide where work goes, so they decide what is in the way of the next job: whatever must hold of a life must hold
//! with them and without. Drawn prices are as wrong as prices can be within their bounds, which no market is.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use wharf_controller::market::{Pricer, Summary};
use wharf_engine::decide::input::Input;
use wharf_engine::price::prices::{Block, Piece, Prices};
use wharf_engine::state::State;
use wharf_engine::units::{GpuUnits, PoolId};

/// Drawn prices change after so many arrivals.
const DRAWN_AFTER: u64 = 7;

/// Where the prices of a life come from.
#[derive(Debug)]
pub enum Pricing {
    /// There are none: the tightest place wins.
    Off,
    /// They are solved as in production, but at once instead of beside the decisions.
    Market(Pricer),
    /// They are drawn.
    Drawn {
        /// From here.
        random: Box<ChaCha8Rng>,
        /// Jobs that had come when they were drawn last.
        drawn_at: Option<u64>,
    },
}

impl Pricing {
    /// Lives take turns: without prices, with those of the market, with drawn ones.
    pub fn by_seed(seed: u64) -> Self {
        match seed % 3 {
            0 => Self::Off,
            1 => Self::Market(Pricer::default()),
            _ => Self::Drawn { random: Box::new(ChaCha8Rng::seed_from_u64(seed)), drawn_at: None },
        }
    }

    /// Prices that are due before the next turn. The first ones of a market are empty: counting begins with them.
    pub fn due(&mut self, state: &State) -> Option<Input> {
        let arrived = state.demand.arrived();
        match self {
            Self::Off => None,
            Self::Market(_) | Self::Drawn { .. } if !state.demand.is_counting() => {
                Some(Input::Prices(Prices::default()))
            }
            Self::Market(pricer) => {
                pricer.is_due(arrived).then(|| Input::Prices(pricer.solve(&Summary::of(state))))
            }
            Self::Drawn { random, drawn_at } => {
                let with_gpus = |pool: &PoolId| !state.fleet.model(*pool).is_empty();
                let pools: Vec<PoolId> = state.fleet.pool_ids().filter(with_gpus).collect();
                let due = drawn_at.is_none_or(|before| arrived >= before + DRAWN_AFTER);
                if !due || pools.is_empty() {
                    return None;
                }
                *drawn_at = Some(arrived);
                Some(Input::Prices(draw(random, &pools)))
            }
        }
    }
}

/// Prices of every kind of part of a GPU, and of one block of whole ones.
pub fn draw(random: &mut ChaCha8Rng, pools: &[PoolId]) -> Prices {
    let mut piece = |size: u32| {
        let any = random.random_bool(0.6);
        let pools = if any { pools.to_vec() } else { vec![pools[random.random_range(0..pools.len())]] };
        let worth = size * random.random_range(100..500);
        let cpu_milli = random.random_range(0..9000);
        Piece { size: GpuUnits::from_parts(u64::from(size)), pools, worth, cpu_milli }
    };
    let mut pieces: Vec<Piece> = [450, 750, 1200, 1650, 2400, 3000].into_iter().map(&mut piece).collect();
    pieces.push(piece(1200));
    let block = Block {
        gpus: random.random_range(2..5),
        cpu_milli: random.random_range(0..20_000),
        pools: pools.to_vec(),
        worth: random.random_range(0..9000),
    };
    let memory_mib_per_core = [0, 1024, 3000, 9000][random.random_range(0..4)];
    let core_prices = vec![0, 1, 5, 20, 60, 110, 400];
    Prices { pieces, blocks: vec![block], core_prices, memory_mib_per_core }
}
