//! What the market needs of a state: who comes, and what is left of the fleet.

use std::collections::{BTreeMap, BTreeSet};

use wharf_engine::model::job::GpuAsk;
use wharf_engine::state::State;
use wharf_engine::state::demand::TypicalShape;
use wharf_engine::state::rooms::{GpuRoom, Room};
use wharf_engine::units::{GpuUnits, PoolId, Resources};

/// Free cores per idle GPU that tell classes of nodes apart.
const BANDS: [f64; 8] = [0.5, 3.0, 6.0, 9.0, 11.0, 14.0, 20.0, 40.0];
/// What is left of a GPU counts as idle from here on: of less, little can be sold.
const IDLE_FROM: GpuUnits = GpuUnits::from_parts(900);
/// Shapes that make up so much of all that is asked for are enough; the rest is noise.
const COVERED: f64 = 0.9995;

/// What the market needs of a state.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Jobs that had come.
    pub arrived: u64,
    pub(super) wanted: Vec<Wanted>,
    pub(super) blocks: Vec<Together>,
    /// Tasks that were counted, with and without GPUs.
    pub(super) tasks: f64,
    /// Cores of tasks without GPUs.
    pub(super) cores_alone: f64,
    pub(super) classes: Vec<Class>,
    /// GPUs of which enough is left to be sold.
    pub(super) idle: f64,
    /// GPUs, whatever is left of them.
    pub(super) idle_all: f64,
    /// The memory that goes with a core in what runs now, in MiB; nothing while nothing runs.
    pub(super) memory_mib_per_core: u32,
}

/// A part of one GPU that is asked for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) size: GpuUnits,
    /// With so many cores.
    pub(super) cores: f64,
    /// Where nodes could host it when empty.
    pub(super) pools: Vec<PoolId>,
    /// So often.
    pub(super) count: f64,
}

/// Whole GPUs of one node that are asked for together.
#[derive(Clone, Debug)]
pub(super) struct Together {
    pub(super) gpus: u32,
    pub(super) cpu_milli: u64,
    pub(super) pools: Vec<PoolId>,
    pub(super) tasks: f64,
    /// Places left for it.
    pub(super) places: f64,
}

/// Nodes of one pool with about as many free cores for each idle GPU.
#[derive(Clone, Debug)]
pub(super) struct Class {
    pub(super) pool: PoolId,
    pub(super) band: usize,
    /// GPUs by what is left of them.
    pub(super) left: Vec<(GpuUnits, f64)>,
    pub(super) cores: f64,
}

impl Summary {
    /// What the market needs of this state.
    pub fn of(state: &State) -> Self {
        let mut summary = Self { arrived: state.demand.arrived(), ..Self::default() };
        summary.memory_mib_per_core = memory_mib_per_core(state);
        let nodes = Nodes::of(state, summary.memory_mib_per_core);
        summary.count_left(&nodes);
        // What a part of a GPU is worth does not depend on how many are asked for together.
        let mut asked: BTreeMap<TypicalShape, f64> = BTreeMap::new();
        for (typical, tasks) in state.demand.shapes() {
            *asked.entry(TypicalShape { together: 1, ..*typical }).or_default() += f64::from(tasks);
        }
        for (typical, tasks) in asked {
            summary.count_asked(state, &nodes, &typical, tasks);
        }
        summary.keep_most();
        summary
    }

    fn count_left(&mut self, nodes: &Nodes) {
        self.classes = nodes.classes();
        for (left, count) in self.classes.iter().flat_map(|class| &class.left) {
            let gpus = gpus(*left) * count;
            self.idle_all += gpus;
            self.idle += if *left >= IDLE_FROM { gpus } else { 0.0 };
        }
    }

    fn count_asked(&mut self, state: &State, nodes: &Nodes, typical: &TypicalShape, tasks: f64) {
        self.tasks += tasks;
        let (size, gpus) = match typical.gpus {
            GpuAsk::Whole(0) => {
                self.cores_alone += cores(typical.cpu_milli) * tasks;
                return;
            }
            GpuAsk::Whole(count) => (GpuUnits::WHOLE, count),
            // Slices count as the part of a GPU that they take; which part is much the same on every model.
            GpuAsk::Share(_) | GpuAsk::Slice(_) | GpuAsk::AtLeast(_) => (typical.gpus.units(), 1),
        };
        let can_be_cut =
            |pool| state.fleet.mig(pool).is_some_and(|mig| typical.gpus.profile_on(mig).is_some());
        let pools: Vec<PoolId> = state
            .fleet
            .pool_ids()
            .filter(|&pool| state.fleet.set_has_pool(typical.devices, pool))
            .filter(|&pool| !typical.gpus.is_slice() || can_be_cut(pool))
            .filter(|&pool| nodes.could_host(pool, gpus, typical.cpu_milli))
            .collect();
        if pools.is_empty() {
            return;
        }
        if gpus > 1 {
            let places = nodes.places(&pools, gpus, typical.cpu_milli);
            let (pools, cpu_milli) = (pools.clone(), typical.cpu_milli);
            self.blocks.push(Together { gpus, cpu_milli, pools, tasks, places });
        }
        let (each, count) = (cores(typical.cpu_milli) / f64::from(gpus), tasks * f64::from(gpus));
        self.wanted.push(Wanted { size, cores: each, pools, count });
    }

    /// The shapes that make up nearly all that is asked for.
    fn keep_most(&mut self) {
        let amount = |wanted: &Wanted| wanted.count * gpus(wanted.size);
        self.wanted.sort_by(|a, b| amount(b).total_cmp(&amount(a)));
        let enough = COVERED * self.wanted.iter().map(amount).sum::<f64>();
        let mut covered = 0.0;
        self.wanted.retain(|wanted| {
            let kept = covered < enough;
            covered += amount(wanted);
            kept
        });
    }
}

/// The open nodes, alike ones counted together.
struct Nodes {
    /// GPUs and thousandths of a core when empty.
    shapes: BTreeSet<(PoolId, u32, u64)>,
    /// Idle GPUs and free thousandths of a core, with how many nodes.
    free: BTreeMap<(PoolId, u32, u64), f64>,
    bands: BTreeMap<(PoolId, usize), Class>,
}

impl Nodes {
    fn of(state: &State, memory_mib_per_core: u32) -> Self {
        let (shapes, free, bands) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        let mut nodes = Self { shapes, free, bands };
        for (_, room) in state.ledger.rooms().iter().filter(|(_, room)| room.open) {
            nodes.add(room, memory_mib_per_core);
        }
        nodes
    }

    fn add(&mut self, room: &Room, memory_mib_per_core: u32) {
        let small = |count: usize| u32::try_from(count).expect("a node has at most 16 GPUs");
        let usable = small(room.gpus.iter().filter(|gpu| gpu.usable).count());
        let Resources { cpu_milli, memory, .. } = room.free();
        let by_memory = ((memory >> 20) * 1000).checked_div(u64::from(memory_mib_per_core));
        let free = cpu_milli.min(by_memory.unwrap_or(u64::MAX));
        self.shapes.insert((room.pool, usable, room.capacity.cpu_milli));
        *self.free.entry((room.pool, small(room.whole_free()), free)).or_default() += 1.0;
        let left = GpuRoom::left_undivided;
        let idle: f64 = room.gpus.iter().map(|gpu| gpus(left(gpu))).sum();
        let band = match idle {
            idle if idle <= 0.0 => BANDS.len() + 1,
            idle => BANDS.iter().filter(|&&from| cores(free) / idle >= from).count(),
        };
        let class = self.bands.entry((room.pool, band)).or_insert_with(|| Class {
            pool: room.pool,
            band,
            left: Vec::new(),
            cores: 0.0,
        });
        class.cores += cores(free);
        for left in room.gpus.iter().map(left).filter(|&left| left > GpuUnits::ZERO) {
            class.left.push((left, 1.0));
        }
    }

    fn could_host(&self, pool: PoolId, gpus: u32, cpu_milli: u64) -> bool {
        self.shapes.iter().any(|&(of, has, cpu)| of == pool && has >= gpus && cpu >= cpu_milli)
    }

    fn places(&self, pools: &[PoolId], gpus: u32, cpu_milli: u64) -> f64 {
        let places = |&(pool, idle, free): &(PoolId, u32, u64)| {
            let by_cores = free.checked_div(cpu_milli).unwrap_or(u64::MAX);
            let by_gpus = u64::from(idle / gpus);
            let places = if pools.contains(&pool) { by_gpus.min(by_cores) } else { 0 };
            f64::from(u32::try_from(places).expect("a node has at most 16 GPUs"))
        };
        self.free.iter().map(|(node, count)| places(node) * count).sum()
    }

    fn classes(&self) -> Vec<Class> {
        let merged = |class: &Class| {
            let mut counts: BTreeMap<GpuUnits, f64> = BTreeMap::new();
            class.left.iter().for_each(|(left, count)| *counts.entry(*left).or_default() += count);
            Class { left: counts.into_iter().collect(), ..class.clone() }
        };
        self.bands.values().map(merged).collect()
    }
}

/// The memory that goes with a core in what runs now, in MiB.
fn memory_mib_per_core(state: &State) -> u32 {
    let held = |(_, room): (_, &Room)| room.held;
    let held = state.ledger.rooms().iter().map(held).fold(Resources::default(), |all, held| all + held);
    let per_core = (held.memory >> 20).saturating_mul(1000).checked_div(held.cpu_milli);
    u32::try_from(per_core.unwrap_or(0)).unwrap_or(u32::MAX)
}

/// GPUs, from 1/3000.
pub(super) fn gpus(units: GpuUnits) -> f64 {
    float(units.parts()) / 3000.0
}

fn cores(milli: u64) -> f64 {
    float(milli) / 1000.0
}

/// Amounts here are far below 2^53.
#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "there is no exact conversion, nor need for one"
)]
fn float(number: u64) -> f64 {
    number as f64
}
