//! I8 of the rooms: what each node has left, and every index that finds it, counted again from the fleet and the tasks on it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::{Capacity, Drains, GpuRoom, MPS_CLIENTS_MAX, Room, Rooms};
use crate::device::catalogue::mig::AXIS_MAX;
use crate::device::catalogue::{self, Media, Mig};
use crate::device::geometry::{Layout, Slice};
use crate::price::node_classes::GpuLeft;
use crate::state::State;
use crate::state::fleet::Node;
use crate::state::recount::{self, Present, grouped};
use crate::units::{GpuUnits, NodeId, PoolId, Resources, TrustId};

impl Rooms {
    pub(crate) fn wrong_indexes(&self, state: &State) -> Vec<&'static str> {
        let mut there: BTreeMap<NodeId, Vec<Present<'_>>> = BTreeMap::new();
        for it in recount::present(state) {
            there.entry(it.place.node).or_default().push(it);
        }
        let is_right = |(id, node): (NodeId, &Node)| {
            let here = there.get(&id).map(Vec::as_slice).unwrap_or_default();
            let out = state.maintenance.iter().any(|(_, of)| of.began && of.nodes.contains(&id));
            let open = node.facts.up && !node.cordoned && node.drain.is_none() && !out;
            let mig = catalogue::mig(state.fleet.model(node.facts.pool));
            self.by_node.get(&id).is_some_and(|room| room.open == open && is_room(room, node, mig, here))
        };
        let rooms = self.by_node.len() == state.fleet.nodes().count() && state.fleet.nodes().all(is_right);
        // From here on a room is what it should be, or is found above.
        let open: BTreeMap<NodeId, &Room> = self.iter().filter(|(_, room)| room.open).collect();
        recount::wrong(&[
            ("rooms", rooms),
            ("nodes by free GPUs", self.by_whole_free == grouped(open.iter().map(by_whole_free))),
            ("GPUs in part", self.partly_free == grouped(gpus(&open).filter_map(partly_free))),
            ("GPUs by layout", self.by_layout == grouped(gpus(&open).filter_map(by_layout))),
            ("capacity by pool", self.capacity == capacity(state)),
            ("nodes by profile", self.profiles_are_right(state, &open)),
        ])
    }

    /// True when places have prices and each open node stands with those that are worth as much, or neither.
    fn profiles_are_right(&self, state: &State, open: &BTreeMap<NodeId, &Room>) -> bool {
        let priced = !state.demand.prices().pieces.is_empty();
        let Some(profiles) = &self.profiles else { return !priced };
        let (mut seen, mut alike) = (BTreeSet::new(), BTreeSet::new());
        for (pool, slots) in profiles.pools() {
            for (slot, head) in slots.heads().iter().enumerate().filter(|(_, head)| head.stamp != 0) {
                let (profile, nodes) = (slots.profile(slot), slots.nodes(slot, NodeId(0)));
                let nodes: Vec<NodeId> = nodes.collect();
                let lefts: Vec<GpuLeft> = profile.gpus().copied().collect();
                let is_right = |node: &NodeId| {
                    open.get(node).is_some_and(|room| {
                        let free = room.capacity.saturating_sub(room.held);
                        let expected = (pool, free.cpu_milli, free.memory >> 30, drains(room));
                        let said = (room.pool, profile.cpu_milli, profile.memory_gib, profile.drains);
                        expected == said && profile.pool == pool && lefts == lefts_of(room)
                    })
                };
                let idle = lefts.iter().filter(|left| left.trust.is_none()).count();
                let most = lefts.first().map_or(GpuUnits::ZERO, |left| left.units);
                let head_is_right = nodes.first() == Some(&head.first)
                    && (head.drains, head.left_most) == (profile.drains, most)
                    && usize::try_from(head.idle) == Ok(idle)
                    && head.cpu_milli == profile.cpu_milli;
                if !head_is_right || !alike.insert(*profile) || !nodes.iter().all(is_right) {
                    return false;
                }
                seen.extend(nodes);
            }
        }
        priced && seen == open.keys().copied().collect()
    }
}

fn is_room(room: &Room, node: &Node, mig: Option<&'static Mig>, here: &[Present<'_>]) -> bool {
    let facts = &node.facts;
    let nothing = Resources::default();
    let beside = |leaves: bool| {
        let those = here.iter().filter(|it| it.leaves == leaves);
        those.fold(nothing, |sum, it| sum + it.resources)
    };
    let capacity = if facts.up { facts.capacity.saturating_sub(facts.others) } else { nothing };
    let leaving = here.iter().filter(|it| it.leaves).count();
    room.pool == facts.pool
        && (room.capacity, room.held, room.held_by_leaving) == (capacity, beside(false), beside(true))
        && usize::try_from(room.leaving) == Ok(leaving)
        && room.mig.map(|mig| mig.profiles.len()) == mig.map(|mig| mig.profiles.len())
        && room.gpus.len() == facts.gpus.len()
        && room.gpus.iter().enumerate().all(|(at, gpu)| {
            let usable = facts.up && facts.gpus[at].healthy && !facts.others_gpus.contains(at);
            (gpu.usable, gpu.island) == (usable, facts.gpus[at].island) && is_gpu(gpu, mig, at, here)
        })
}

fn is_gpu(gpu: &GpuRoom, mig: Option<&'static Mig>, at: usize, here: &[Present<'_>]) -> bool {
    let on = |leaves: bool| here.iter().filter(move |it| it.leaves == leaves && it.place.gpus.contains(at));
    let trust = |it: &Present<'_>| it.job.map(|job| job.spec.trust);
    // A slice that the device cannot have, or that an orphan is in, takes the whole of it.
    let slice = |it: &Present<'_>| {
        it.place.slice.filter(|slice| it.job.is_some() && profile_of(mig, *slice).is_some())
    };
    let held: u64 = on(false).map(|it| it.place.units_each.parts()).sum();
    let mut slices: Vec<Slice> = on(false).filter_map(slice).collect();
    slices.sort_unstable_by_key(|slice| slice.start);
    let undivided: Vec<(Option<TrustId>, bool)> =
        on(false).filter(|it| slice(it).is_none()).map(|it| (trust(it), it.place.time_sliced)).collect();
    let strangers = undivided.iter().filter(|(trust, _)| trust.is_none()).count();
    let mode_is_right = match gpu.trust {
        None => undivided.len() == strangers && !gpu.time_sliced,
        Some(trust) => undivided.contains(&(Some(trust), gpu.time_sliced)),
    };
    let mut leaving_slots = [0u8; AXIS_MAX];
    let mut leaving_undivided = 0;
    for it in on(true) {
        match slice(it).map(|slice| (slice, profile_of(mig, slice))) {
            Some((slice, Some(profile))) if profile.media == Media::Usual => {
                let slots = usize::from(slice.start)..usize::from(slice.start + profile.slots);
                leaving_slots[slots].iter_mut().for_each(|leaving| *leaving += 1);
            }
            _ => leaving_undivided += 1,
        }
    }
    gpu.held.parts() == held
        && usize::try_from(gpu.holders) == Ok(on(false).count())
        && usize::try_from(gpu.leaving) == Ok(on(true).count())
        && gpu.layout.slices().eq(slices)
        && usize::try_from(gpu.strangers) == Ok(strangers)
        && mode_is_right
        && (gpu.leaving_slots, gpu.leaving_undivided) == (leaving_slots, leaving_undivided)
}

fn profile_of(mig: Option<&'static Mig>, slice: Slice) -> Option<&'static catalogue::Profile> {
    mig?.profiles.get(usize::from(slice.profile))
}

fn drains(room: &Room) -> Drains {
    if room.leaving > 0 { Drains::Yes } else { Drains::No }
}

fn by_whole_free((&node, room): (&NodeId, &&Room)) -> ((PoolId, Drains, u8), NodeId) {
    let free = room.gpus.iter().filter(|gpu| gpu.usable && gpu.holders == 0).count();
    ((room.pool, drains(room), u8::try_from(free).unwrap_or(u8::MAX)), node)
}

type OpenGpu<'a> = (NodeId, &'a Room, u8, &'a GpuRoom);

fn gpus<'a>(open: &'a BTreeMap<NodeId, &Room>) -> impl Iterator<Item = OpenGpu<'a>> {
    open.iter().flat_map(|(&node, &room)| (0u8..).zip(&room.gpus).map(move |(at, gpu)| (node, room, at, gpu)))
}

fn partly_free((node, room, at, gpu): OpenGpu<'_>) -> Option<(PoolId, (GpuUnits, NodeId, u8))> {
    let left = GpuUnits::from_parts(GpuUnits::WHOLE.parts().saturating_sub(gpu.held.parts()));
    let undivided = gpu.layout.slices().next().is_none();
    let in_part = gpu.usable && gpu.holders > 0 && undivided && left > GpuUnits::ZERO;
    in_part.then_some((room.pool, (left, node, at)))
}

fn by_layout((node, room, at, gpu): OpenGpu<'_>) -> Option<((PoolId, Layout), (NodeId, u8))> {
    let only_slices = usize::try_from(gpu.holders) == Ok(gpu.layout.slices().count());
    (room.mig.is_some() && gpu.usable && only_slices).then_some(((room.pool, gpu.layout), (node, at)))
}

fn capacity(state: &State) -> BTreeMap<PoolId, Capacity> {
    let mut pools: BTreeMap<PoolId, Capacity> = BTreeMap::new();
    for (_, node) in state.fleet.nodes() {
        let facts = &node.facts;
        let pool = pools.entry(facts.pool).or_default();
        pool.nodes += 1;
        if facts.up {
            let usable = |at: &usize| facts.gpus[*at].healthy && !facts.others_gpus.contains(*at);
            let gpus = (0..facts.gpus.len()).filter(usable).count();
            pool.gpus += u64::try_from(gpus).unwrap_or(u64::MAX);
            pool.resources = pool.resources + facts.capacity.saturating_sub(facts.others);
        }
    }
    pools
}

/// What is left of the GPUs of a room for their trust domains, or for all where no task holds them undivided; most first.
fn lefts_of(room: &Room) -> Vec<GpuLeft> {
    let mut lefts = Vec::new();
    for gpu in &room.gpus {
        let full = gpu.holders >= MPS_CLIENTS_MAX && !gpu.time_sliced;
        let left = GpuUnits::WHOLE.parts().saturating_sub(gpu.held.parts());
        let undivided = gpu.layout.slices().next().is_none() && gpu.strangers == 0;
        if gpu.usable && undivided && !full && left > 0 {
            let units = GpuUnits::from_parts(left);
            lefts.push(GpuLeft { units, trust: gpu.trust, time_sliced: gpu.time_sliced });
        }
    }
    lefts.sort_unstable_by(|one, other| other.cmp(one));
    lefts
}

#[cfg(test)]
pub(crate) fn corruptions() -> Vec<crate::state::Corruption<Rooms>> {
    fn gpu(rooms: &mut Rooms, how: fn(&mut GpuRoom)) {
        let held = rooms.by_node.values_mut().flat_map(|room| &mut room.gpus).find(|gpu| gpu.holders > 0);
        how(held.expect("somebody holds a GPU"));
    }
    alloc::vec![
        ("rooms", |rooms| _ = rooms.by_node.pop_first()),
        ("rooms", |rooms| rooms.by_node.values_mut().for_each(|room| room.held.cpu_milli += 1)),
        ("rooms", |rooms| rooms.by_node.values_mut().for_each(|room| room.leaving += 1)),
        ("rooms", |rooms| gpu(rooms, |gpu| gpu.held = GpuUnits::ZERO)),
        ("rooms", |rooms| gpu(rooms, |gpu| gpu.holders += 1)),
        ("rooms", |rooms| gpu(rooms, |gpu| gpu.strangers += 1)),
        ("rooms", |rooms| gpu(rooms, |gpu| gpu.trust = Some(TrustId(7)))),
        ("rooms", |rooms| gpu(rooms, |gpu| gpu.time_sliced = !gpu.time_sliced)),
        ("rooms", |rooms| gpu(rooms, |gpu| gpu.layout = gpu.layout.with(Slice { profile: 0, start: 6 }))),
        ("rooms", |rooms| gpu(rooms, |gpu| gpu.leaving_undivided += 1)),
        ("nodes by free GPUs", |rooms| _ = rooms.by_whole_free.pop_first()),
        ("GPUs in part", |rooms| _ = rooms.partly_free.pop_first()),
        ("GPUs by layout", |rooms| {
            let uncut = (PoolId(0), Layout::default());
            rooms.by_layout.entry(uncut).or_default().insert((NodeId(9), 0));
        }),
        ("capacity by pool", |rooms| _ = rooms.capacity.pop_first()),
        ("nodes by profile", |rooms| rooms.profiles = None),
        ("nodes by profile", |rooms| rooms.profiles =
            Some(crate::price::node_classes::NodeClasses::default())),
    ]
}
