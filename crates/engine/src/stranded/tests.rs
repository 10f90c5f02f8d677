use alloc::vec::Vec;

use super::*;
use crate::catalogue::mig;
use crate::geometry::layouts;

const POOL: PoolId = PoolId(0);

fn resources(cpu_milli: u64, memory: u64) -> Resources {
    Resources { cpu_milli, memory, ..Resources::default() }
}

fn slice(name: &str) -> Shape {
    let profile = mig::A100_80.profile_named(name).expect("it is in the table");
    Shape { pool: Some(POOL), want: Want::Slice(profile), beside: resources(1, 1), trust: TrustId(0) }
}

fn cut(slices: &[(&str, u8)]) -> Gpu {
    let profile = |name: &str| mig::A100_80.profile_named(name).expect("it is in the table");
    let with =
        |layout: Layout, &(name, start): &(&str, u8)| layout.with(Slice { profile: profile(name), start });
    Gpu::Cut(slices.iter().fold(Layout::default(), with))
}

fn on_one_node(gpus: &[Gpu], free: Resources, shapes: &[Shape]) -> Account {
    let node = Node { pool: POOL, mig: Some(&mig::A100_80), free, gpus };
    account(&[node], shapes).remove(&POOL).expect("the pool of the node")
}

fn eighths(count: u64) -> GpuUnits {
    GpuUnits::from_parts(375 * count)
}

#[test]
fn a_slot_where_nothing_may_begin_is_stranded() {
    let gpu = cut(&[("4g.40gb", 0), ("1g.10gb", 4), ("1g.10gb", 5), ("1g.10gb", 6)]);
    let shapes = ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb"].map(slice);
    let Account { free, stranded } = on_one_node(&[gpu], resources(8, 8), &shapes);
    assert_eq!((free, stranded), (eighths(1), BTreeMap::from([(Why::NoLegalStart, eighths(1))])));
    let gpu = cut(&[("4g.40gb", 0), ("1g.10gb", 4), ("1g.10gb", 5)]);
    let found = on_one_node(&[gpu], resources(8, 8), &shapes);
    assert_eq!((found.free, found.stranded.len()), (eighths(2), 0), "1g with twice the memory fits at 6");
}

#[test]
fn the_nearest_shape_says_what_is_missing() {
    let gpus = [cut(&[("3g.40gb", 4)])];
    let why = |cpu, memory, shapes: &[Shape]| {
        let stranded = on_one_node(&gpus, resources(cpu, memory), shapes).stranded;
        stranded.into_iter().collect::<Vec<_>>()
    };
    let (four, seven) = (slice("4g.40gb"), slice("7g.80gb"));
    assert_eq!(why(8, 8, &[four, seven]), []);
    assert_eq!(why(0, 8, &[four, seven]), [(Why::Cores, eighths(4))]);
    assert_eq!(why(0, 0, &[four, seven]), [(Why::Memory, eighths(4))]);
    assert_eq!(why(8, 8, &[seven]), [(Why::NoLegalStart, eighths(4))]);
    assert_eq!(why(8, 8, &[]), [(Why::NobodyAsks, eighths(4))]);
}

#[test]
fn shares_and_whole_gpus_are_looked_at_in_one_piece() {
    let half = GpuUnits::from_parts(1500);
    let shared = |trust| Gpu::Shared { free: half, trust: TrustId(trust) };
    let share = |parts| Shape { want: Want::Share(GpuUnits::from_parts(parts)), ..slice("1g.10gb") };
    let whole = |count| Shape { want: Want::Whole(count), ..slice("1g.10gb") };
    let why = |gpus: &[Gpu], shape| {
        let stranded = on_one_node(gpus, resources(8, 8), &[shape]).stranded;
        stranded.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(why(&[shared(0)], share(1500)), []);
    assert_eq!(why(&[shared(0)], share(1501)), [(Why::ShareTooSmall, half)]);
    assert_eq!(why(&[shared(1)], share(1500)), [(Why::Strangers, half)]);
    assert_eq!(why(&[Gpu::Empty, Gpu::Out], whole(1)), []);
    assert_eq!(why(&[Gpu::Empty, Gpu::Out], whole(2)), [(Why::TooFewTogether, GpuUnits::WHOLE)]);
    assert_eq!(why(&[Gpu::Empty, shared(0)], share(1600)), [(Why::ShareTooSmall, half)]);
}

/// Parts of one GPU that a shape could take, each as slots, if the node had so much and trust were so.
fn takes(node: &Node<'_>, at: usize, shape: &Shape, free: Resources, anybody: bool) -> Vec<Slots> {
    let everything = Slots::MAX;
    let fits = shape.pool.is_none_or(|pool| pool == node.pool)
        && shape.beside.cpu_milli <= free.cpu_milli
        && shape.beside.memory <= free.memory;
    let is_bare = |gpu: &Gpu| *gpu == Gpu::Empty || *gpu == Gpu::Cut(Layout::default());
    let gpu = node.gpus[at];
    let layout = if let Gpu::Cut(layout) = gpu { layout } else { Layout::default() };
    match (shape.want, gpu) {
        _ if !fits => Vec::new(),
        (Want::Whole(count), _) => {
            let bare = node.gpus.iter().filter(|gpu| is_bare(gpu)).count();
            if is_bare(&gpu) && bare >= usize::from(count) { Vec::from([everything]) } else { Vec::new() }
        }
        (Want::Share(units), Gpu::Shared { free, trust }) => {
            let joins = units <= free && (anybody || trust == shape.trust);
            if joins { Vec::from([everything]) } else { Vec::new() }
        }
        (Want::Share(_), _) => {
            if is_bare(&gpu) {
                Vec::from([everything])
            } else {
                Vec::new()
            }
        }
        (Want::Slice(_), Gpu::Shared { .. } | Gpu::Out) => Vec::new(),
        (Want::Slice(profile), _) => {
            let mig = node.mig.expect("these can be cut");
            let slots = |start: u8| slots_of(mig, Slice { profile, start });
            let legal = |start: &u8| layout.allows(mig, Slice { profile, start: *start });
            (0..mig.axis).filter(legal).map(slots).collect()
        }
    }
}

/// The account by trying everything with more and more granted.
fn by_hand(node: &Node<'_>, shapes: &[Shape]) -> (GpuUnits, [GpuUnits; 4]) {
    let (mut all, mut stranded) = (GpuUnits::ZERO, [GpuUnits::ZERO; 4]);
    let cores = Resources { cpu_milli: u64::MAX, ..node.free };
    let both = Resources { memory: u64::MAX, ..cores };
    let granted = [(node.free, false), (cores, false), (both, false), (both, true)];
    for (at, gpu) in node.gpus.iter().enumerate() {
        let (parts, units): (Slots, u64) = match gpu {
            Gpu::Out => (0, 0),
            Gpu::Empty => (0xff, 375),
            Gpu::Cut(layout) => (0xff & !layout.taken(&mig::A100_80), 375),
            Gpu::Shared { free, .. } => (1, free.parts()),
        };
        for part in (0..8).filter(|part| parts & (1 << part) != 0) {
            let of_use = |&(free, anybody): &(Resources, bool)| {
                let takes = |shape| takes(node, at, shape, free, anybody);
                shapes.iter().flat_map(takes).any(|slots| slots & (1 << part) != 0)
            };
            all += GpuUnits::from_parts(units);
            let level = granted.iter().position(of_use).unwrap_or(4);
            if let Some(level) = level.checked_sub(1) {
                stranded[level] += GpuUnits::from_parts(units);
            }
        }
    }
    (all, stranded)
}

#[test]
fn small_fleets_are_accounted_as_by_hand() {
    let every = layouts(&mig::A100_80, &[0, 2, 3, 4, 5, 6]);
    let mut seed = 1u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..3000 {
        let mut gpu = || match draw(5) {
            0 => Gpu::Empty,
            1 => Gpu::Out,
            2 => Gpu::Shared { free: GpuUnits::from_parts(draw(3001)), trust: TrustId(0) },
            _ => Gpu::Cut(every[usize::try_from(draw(723)).expect("small")]),
        };
        let gpus = [gpu(), gpu(), gpu()];
        let free = resources(draw(4), draw(4));
        let mut shape = || Shape {
            pool: if draw(5) == 0 { Some(PoolId(9)) } else { None },
            want: match draw(3) {
                0 => Want::Whole(u16::try_from(1 + draw(3)).expect("small")),
                1 => Want::Share(GpuUnits::from_parts(1 + draw(3000))),
                _ => Want::Slice(u8::try_from(draw(7)).expect("small")),
            },
            beside: resources(draw(5), draw(5)),
            trust: TrustId(u32::try_from(draw(2)).expect("small")),
        };
        let shapes = [shape(), shape()];
        let node = Node { pool: POOL, mig: Some(&mig::A100_80), free, gpus: &gpus };
        let found = account(&[node], &shapes).remove(&POOL).expect("the pool of the node");
        let sum = |whys: &[Why]| {
            whys.iter()
                .filter_map(|why| found.stranded.get(why))
                .fold(GpuUnits::ZERO, |sum, &units| sum + units)
        };
        let geometry = [Why::ShareTooSmall, Why::NoLegalStart, Why::TooFewTogether, Why::NobodyAsks];
        let levels = [sum(&[Why::Cores]), sum(&[Why::Memory]), sum(&[Why::Strangers]), sum(&geometry)];
        assert_eq!((found.free, levels), by_hand(&node, &shapes), "{node:?} {shapes:?}");
    }
}
