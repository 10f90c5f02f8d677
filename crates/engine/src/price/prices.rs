//! Prices: what a part of a GPU is worth to the work that usually comes, and the tables made of them.
//!
//! They are solved at the edge, in floats, and enter as small integers, so that a replay values every place as it was
//! valued on the day. Worth is counted in millionths of a GPU.
//!
//! Worked example: half of the work asks for 470 thousandths, the other half for whole GPUs. A part of 470 is then worth
//! half a GPU, because two of them fill one; 530 left of a GPU are worth as much as 470, and 460 left are worth nothing.
//! The table says so for every residual, at every price of a core: a GPU whose node has no core to spare is worth little.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::units::{GpuUnits, PoolId};

/// The most pieces in one set of prices.
pub const PIECES_MAX: usize = 512;
/// The most blocks in one set of prices.
pub const BLOCKS_MAX: usize = 64;
/// How many prices of a core there are at most: a multiple of eight, so that they are worked on side by side.
pub(crate) const LANES: usize = 24;
/// The highest price of a core: 0.4 of a GPU. Together with the other bounds it keeps sums within 32 bits.
pub const CORE_PRICE_MAX: u16 = 400;
/// The highest worth of a piece: four GPUs.
pub const WORTH_MAX: u32 = 4_000_000;

/// The finest step of a table, in 1/3000 of a GPU.
const GRID_MIN: u64 = 5;
/// The most work a table may take: beyond it the grid is made coarser. A few hundred microseconds.
const WORK_MAX: u64 = 800_000;
/// Free cores beyond this many thousandths add nothing to a node's worth.
pub(crate) const CPU_MILLI_MAX: u64 = 2_000_000;

/// What the pieces of a GPU are worth to the work that usually comes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prices {
    pub pieces: Vec<Piece>,
    /// Whole GPUs that are asked for together.
    #[serde(default)]
    pub blocks: Vec<Block>,
    /// Prices of a core at which places are looked at, ascending, in thousandths of a GPU.
    pub core_prices: Vec<u16>,
    /// The memory that usually goes with a core, in MiB: cores without it are of no use. Nothing where it is not known.
    #[serde(default, skip_serializing_if = "crate::model::is_default")]
    pub memory_mib_per_core: u32,
}

/// A part of one GPU that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    pub size: GpuUnits,
    pub pools: Vec<PoolId>,
    /// In millionths of a GPU: the mean over the tasks that ask for it.
    pub worth: u32,
    /// The cores that they take with it, in thousandths: the mean too.
    pub cpu_milli: u32,
}

/// Whole GPUs of one node that are asked for together. Each place left for them is worth something by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    pub gpus: u32,
    pub cpu_milli: u64,
    pub pools: Vec<PoolId>,
    /// What one place for it is worth beside its pieces, in millionths of a GPU.
    pub worth: u32,
}

/// A worth at each price of a core.
pub(crate) type Lane = [i32; LANES];

/// What follows from prices, pool by pool.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    grid: u64,
    core_prices: Lane,
    /// Thousandths of a core that a GiB of memory is enough for, if that is known.
    cpu_milli_per_gib: Option<u64>,
    pools: Vec<PoolTables>,
}

#[derive(Clone, Debug, Default)]
struct PoolTables {
    /// By what is left of a GPU, in steps of the grid.
    left: Vec<Lane>,
    blocks: Vec<(u32, u64, i64)>,
}

impl Prices {
    /// True when nothing is priced: places are then found by tightness.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// True when every number is within its bounds and every pool one of so many.
    pub(crate) fn is_sound(&self, pools: usize) -> bool {
        let known =
            |of: &[PoolId]| !of.is_empty() && of.is_sorted() && of.iter().all(|pool| pool.index() < pools);
        let piece = |piece: &Piece| {
            let size = piece.size > GpuUnits::ZERO && piece.size <= GpuUnits::WHOLE;
            size && piece.worth <= WORTH_MAX && known(&piece.pools)
        };
        let block = |block: &Block| block.gpus > 0 && block.worth <= WORTH_MAX && known(&block.pools);
        let cores = &self.core_prices;
        let cores_sound = cores.is_sorted() && cores.last().is_none_or(|&last| last <= CORE_PRICE_MAX);
        let sizes =
            self.pieces.len() <= PIECES_MAX && self.blocks.len() <= BLOCKS_MAX && cores.len() <= LANES;
        sizes
            && cores_sound
            && (self.pieces.is_empty() || !cores.is_empty())
            && self.pieces.iter().all(piece)
            && self.blocks.iter().all(block)
    }

    pub(crate) fn tables(&self, pools: usize) -> Tables {
        if self.is_empty() {
            return Tables::default();
        }
        let price = |lane| self.core_prices.get(lane).or(self.core_prices.last());
        let core_prices = core::array::from_fn(|lane| price(lane).copied().map_or(0, i32::from));
        let grid = self.grid();
        let cpu_milli_per_gib = (1024 * 1000u64).checked_div(u64::from(self.memory_mib_per_core));
        let mut tables = Tables { grid, core_prices, cpu_milli_per_gib, pools: Vec::new() };
        tables.pools = (0..).map(PoolId).take(pools).map(|pool| self.of_pool(pool, &tables)).collect();
        tables
    }

    /// The largest step in which every size and a whole GPU can be counted, unless that is finer than it is worth.
    fn grid(&self) -> u64 {
        let whole = GpuUnits::WHOLE.parts();
        let exact = self.pieces.iter().fold(whole, |step, piece| gcd(step, piece.size.parts()));
        let factors = [self.pieces.len(), LANES].map(|count| u64::try_from(count).unwrap_or(u64::MAX));
        let of_step = factors.into_iter().fold(1u64, u64::saturating_mul);
        let fine = |grid: &u64| (whole / grid).saturating_mul(of_step) > WORK_MAX;
        // A whole GPU is a whole number of steps, whatever the sizes are.
        let mut steps = (exact.max(GRID_MIN)..=whole).filter(|grid| whole.is_multiple_of(*grid));
        steps.find(|grid| !fine(grid)).unwrap_or(whole)
    }

    /// The best use of each residual: as many pieces as fit, of whatever kinds are worth most together.
    fn of_pool(&self, pool: PoolId, tables: &Tables) -> PoolTables {
        let here: Vec<(usize, Lane)> = self
            .pieces
            .iter()
            .filter(|piece| piece.pools.contains(&pool))
            .map(|piece| (tables.steps_of(piece.size), worth_at(piece, &tables.core_prices)))
            .collect();
        let mut left: Vec<Lane> = alloc::vec![[0; LANES]; tables.step_below(GpuUnits::WHOLE) + 1];
        for at in 1..left.len() {
            let mut best = left[at - 1];
            for (steps, worth) in here.iter().filter(|(steps, _)| *steps <= at) {
                let rest = &left[at - steps];
                for ((best, rest), worth) in best.iter_mut().zip(rest).zip(worth) {
                    *best = (*best).max(rest.wrapping_add(*worth));
                }
            }
            left[at] = best.map(|worth| worth.min(16_000_000));
        }
        let blocks = self.blocks.iter().filter(|block| block.pools.contains(&pool));
        let blocks = blocks.map(|block| (block.gpus, block.cpu_milli, i64::from(block.worth))).collect();
        PoolTables { left, blocks }
    }
}

/// What a piece brings beyond its cores, at each price of a core.
fn worth_at(piece: &Piece, core_prices: &Lane) -> Lane {
    let worth = i64::from(piece.worth);
    core_prices.map(|price| {
        let net = worth - i64::from(price) * i64::from(piece.cpu_milli);
        i32::try_from(net.max(-1_000_000_000)).expect("a worth is at most four million")
    })
}

impl Tables {
    pub(crate) fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    /// The worth of a residual at each price of a core.
    pub(crate) fn left(&self, pool: PoolId, left: GpuUnits) -> &Lane {
        const NOTHING: &Lane = &[0; LANES];
        let of_pool = self.pools.get(pool.index());
        of_pool.and_then(|table| table.left.get(self.step_below(left))).unwrap_or(NOTHING)
    }

    /// The cores of which a node has use: those for which it has memory too. In thousandths.
    pub(crate) fn cores_of_use(&self, cpu_milli: u64, memory: u64) -> u64 {
        // In steps of a sixteenth of a GiB: exact enough, and far from any overflow.
        let by_memory = |per_gib: u64| (memory >> 26).saturating_mul(per_gib) >> 4;
        cpu_milli.min(self.cpu_milli_per_gib.map_or(u64::MAX, by_memory)).min(CPU_MILLI_MAX)
    }

    /// What so many thousandths of a core cost at each price.
    pub(crate) fn cores(&self, cpu_milli: u64) -> Lane {
        let cpu = i32::try_from(cpu_milli.min(CPU_MILLI_MAX)).expect("it is bounded");
        self.core_prices.map(|price| price.wrapping_mul(cpu))
    }

    /// What so many cost at one of the prices.
    pub(crate) fn cores_at(&self, lane: usize, cpu_milli: u64) -> i32 {
        let cpu = i32::try_from(cpu_milli.min(CPU_MILLI_MAX)).expect("it is bounded");
        self.core_prices[lane].wrapping_mul(cpu)
    }

    /// What the places for blocks on a node with so many free GPUs and thousandths of a core are worth.
    pub(crate) fn blocks(&self, pool: PoolId, idle: u32, cpu_milli: u64) -> i64 {
        let Some(table) = self.pools.get(pool.index()) else { return 0 };
        let mut total = 0i64;
        for &(gpus, cpu, worth) in table.blocks.iter().filter(|&&(gpus, _, _)| gpus <= idle) {
            let mut places = idle / gpus;
            // Mostly the GPUs are fewer than the cores: a step or two down is less than a division.
            while places > 0 && u64::from(places).saturating_mul(cpu) > cpu_milli {
                places -= 1;
            }
            total += worth * i64::from(places);
        }
        total
    }

    fn steps_of(&self, size: GpuUnits) -> usize {
        usize::try_from(size.parts().div_ceil(self.grid)).expect("a GPU has few steps")
    }

    fn step_below(&self, left: GpuUnits) -> usize {
        usize::try_from(left.parts() / self.grid.max(1)).expect("a GPU has few steps")
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
