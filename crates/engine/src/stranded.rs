//! What is free and of use to nobody: free parts of GPUs that none of some shapes could take, and why not.
//!
//! A shape is what is typically asked for, or waits. A free part counts as stranded when no shape, alone and now, could
//! take it: slot by slot on a GPU that can be cut, in one piece on any other. With 4g at 0 and 1g at 4, 5 and 6, slot 7
//! is free and stranded: no profile may begin there. The same GPU with 1g gone from 6 has two free slots, both of use
//! to 1g with twice the memory.
//!
//! The reason is what the nearest shape lacks: cores, memory, the rest of the node, its own people on the GPU, geometry. What several
//! shapes could take between them is not added up: that is a plan, and the planner's to make.

use alloc::collections::BTreeMap;

use crate::catalogue::Mig;
use crate::geometry::{Layout, Slice, Slots, slots_of};
use crate::units::{GpuUnits, PoolId, Resources, TrustId};

/// A node as far as room on it goes.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    /// Its pool.
    pub pool: PoolId,
    /// How its GPUs can be cut, if they can.
    pub mig: Option<&'static Mig>,
    /// Free cores and memory.
    pub free: Resources,
    /// Its GPUs.
    pub gpus: &'a [Gpu],
}

/// A GPU as far as room on it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gpu {
    /// Given out to nobody.
    Empty,
    /// Cut into slices, perhaps none.
    Cut(Layout),
    /// Given out in shares inside a trust domain.
    Shared {
        /// What is free of it.
        free: GpuUnits,
        /// Whose tasks may join.
        trust: TrustId,
    },
    /// Failed, cordoned, or given out whole: nothing of it is free.
    Out,
}

/// Something that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// On which pool; every one where it does not say.
    pub pool: Option<PoolId>,
    /// What of GPUs.
    pub want: Want,
    /// Cores and memory.
    pub beside: Resources,
    /// Whose it is.
    pub trust: TrustId,
}

/// What of GPUs is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// So many whole GPUs of one node.
    Whole(u16),
    /// A share of one GPU.
    Share(GpuUnits),
    /// A slice of a profile, by its number.
    Slice(u8),
}

/// Why no shape can take a free part: what the nearest one lacks, the nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Free cores of the node.
    Cores,
    /// Free memory of the node.
    Memory,
    /// Storage, room for one more task, or network interfaces of the node.
    Rest,
    /// The GPU is shared by others.
    Strangers,
    /// More of the GPU than is free.
    ShareTooSmall,
    /// A start from which it would fit.
    NoLegalStart,
    /// More whole GPUs on the node.
    TooFewTogether,
    /// Anything: no shape is for this pool.
    NobodyAsks,
}

/// What is free in a pool, and what of it is of use to nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Free.
    pub free: GpuUnits,
    /// Of that, stranded, by why.
    pub stranded: BTreeMap<Why, GpuUnits>,
}

/// The account of every pool.
pub fn account(nodes: &[Node<'_>], shapes: &[Shape]) -> BTreeMap<PoolId, Account> {
    let mut accounts: BTreeMap<PoolId, Account> = BTreeMap::new();
    for node in nodes {
        let account = accounts.entry(node.pool).or_default();
        for &gpu in node.gpus {
            match (gpu, node.mig) {
                (Gpu::Out, _) => {}
                (Gpu::Empty | Gpu::Cut(_), Some(mig)) => add_slots(account, node, mig, gpu, shapes),
                (Gpu::Empty | Gpu::Cut(_), None) => {
                    add(account, GpuUnits::WHOLE, in_one_piece(node, gpu, shapes))
                }
                (Gpu::Shared { free, .. }, _) => add(account, free, in_one_piece(node, gpu, shapes)),
            }
        }
    }
    accounts
}

fn add(account: &mut Account, units: GpuUnits, why: Option<Why>) {
    account.free += units;
    if let Some(why) = why.filter(|_| units > GpuUnits::ZERO) {
        *account.stranded.entry(why).or_default() += units;
    }
}

/// Slot by slot.
fn add_slots(account: &mut Account, node: &Node<'_>, mig: &Mig, gpu: Gpu, shapes: &[Shape]) {
    let layout = layout_of(gpu);
    let taken = layout.taken(mig);
    let slot_units = GpuUnits::from_parts(GpuUnits::WHOLE.parts() / u64::from(mig.axis));
    for slot in (0..mig.axis).filter(|slot| taken & (1 << slot) == 0) {
        let lacks = |shape: &Shape| match shape.want {
            Want::Slice(profile) if !covers(mig, layout, profile, 1 << slot) => Some(Why::NoLegalStart),
            Want::Slice(_) => lacks_beside(node, shape),
            Want::Whole(_) | Want::Share(_) => lacks(node, gpu, shape),
        };
        add(account, slot_units, nearest(node, shapes, lacks));
    }
}

fn layout_of(gpu: Gpu) -> Layout {
    match gpu {
        Gpu::Cut(layout) => layout,
        Gpu::Empty | Gpu::Shared { .. } | Gpu::Out => Layout::default(),
    }
}

/// True when a slice of that profile could be cut out over that slot.
fn covers(mig: &Mig, layout: Layout, profile: u8, slot: Slots) -> bool {
    layout.starts_for(mig, profile).any(|start| slots_of(mig, Slice { profile, start }) & slot != 0)
}

fn in_one_piece(node: &Node<'_>, gpu: Gpu, shapes: &[Shape]) -> Option<Why> {
    nearest(node, shapes, |shape| lacks(node, gpu, shape))
}

/// Nothing where some shape lacks nothing; otherwise what the nearest one lacks.
fn nearest(node: &Node<'_>, shapes: &[Shape], lacks: impl Fn(&Shape) -> Option<Why>) -> Option<Why> {
    let mut nearest = Why::NobodyAsks;
    for shape in shapes.iter().filter(|shape| shape.pool.is_none_or(|pool| pool == node.pool)) {
        nearest = nearest.min(lacks(shape)?);
    }
    Some(nearest)
}

/// What a shape that is no slice lacks on a GPU, or a slice on one that cannot be cut.
fn lacks(node: &Node<'_>, gpu: Gpu, shape: &Shape) -> Option<Why> {
    match (shape.want, gpu) {
        (Want::Whole(count), _) => {
            let whole = is_empty(gpu) && whole_gpus(node) >= usize::from(count);
            if whole { lacks_beside(node, shape) } else { Some(Why::TooFewTogether) }
        }
        (Want::Share(units), Gpu::Shared { free, trust }) => match (units <= free, trust == shape.trust) {
            (false, _) => Some(Why::ShareTooSmall),
            (true, false) => Some(Why::Strangers),
            (true, true) => lacks_beside(node, shape),
        },
        (Want::Share(_), gpu) if is_empty(gpu) => lacks_beside(node, shape),
        (Want::Share(_), _) => Some(Why::ShareTooSmall),
        (Want::Slice(_), _) => Some(Why::NoLegalStart),
    }
}

fn is_empty(gpu: Gpu) -> bool {
    match gpu {
        Gpu::Empty => true,
        Gpu::Cut(layout) => layout.is_empty(),
        Gpu::Shared { .. } | Gpu::Out => false,
    }
}

fn whole_gpus(node: &Node<'_>) -> usize {
    node.gpus.iter().filter(|&&gpu| is_empty(gpu)).count()
}

/// Of what is missing, the last that would have to be found.
fn lacks_beside(node: &Node<'_>, shape: &Shape) -> Option<Why> {
    let free = Resources { cpu_milli: u64::MAX, ..node.free };
    let roomy = Resources { memory: u64::MAX, ..free };
    match (roomy.covers(&shape.beside), free.covers(&shape.beside), node.free.covers(&shape.beside)) {
        (false, _, _) => Some(Why::Rest),
        (true, false, _) => Some(Why::Memory),
        (true, true, false) => Some(Why::Cores),
        (true, true, true) => None,
    }
}

#[cfg(test)]
mod tests;
