//! I8 of the rooms: what each node has left, and every index that finds it, counted again from the fleet and the tasks on it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::{Capacity, Drains, GpuRoom, MPS_CLIENTS_MAX, Room, Rooms};
use crate::device::catalogue::mig::AXIS_MAX;
use crate::device::catalogue::{self, Media, Mig};
use crate::device::geometry::{Layout, Slice};
use crate::model::placement::Placement;
use crate::price::node_classes::GpuLeft;
use crate::state::State;
use crate::state::fleet::Node;
use crate::state::ledger::check::{CheckedPlace, place_of, resources_of};
use crate::units::{GpuUnits, NodeId, PoolId, Resources, TrustId};

/// Something on a node.
struct Occupant {
    place: Placement,
    resources: Resources,
    /// Nobody knows whose it is where it runs and should not.
    trust: Option<TrustId>,
    leaves: bool,
}

impl Rooms {
    /// The indexes that do not say what the fleet and its tasks do.
    pub(crate) fn wrong_indexes(&self, state: &State) -> Vec<&'static str> {
        let mut wrong = Vec::new();
        let mut expect = |holds: bool, index| {
            if !holds {
                wrong.push(index);
            }
        };
        let there = all_there(state);
        let nobody = Vec::new();
        let mut rooms_are_right = self.by_node.len() == state.fleet.nodes().count();
        for (id, node) in state.fleet.nodes() {
            let here = there.get(&id).unwrap_or(&nobody);
            let model = state.fleet.model(node.facts.pool);
            let out = state.maintenance.iter().any(|(_, of)| of.began && of.nodes.contains(&id));
            let closed = node.cordoned || node.drain.is_some() || out;
            rooms_are_right &= self.by_node.get(&id).is_some_and(|room| {
                room.open == (node.facts.up && !closed) && is_room(room, node, model, here)
            });
        }
        expect(rooms_are_right, "rooms");
        // From here on a room is what it should be, or is found above.
        let open: BTreeMap<NodeId, &Room> = self.iter().filter(|(_, room)| room.open).collect();
        expect(self.by_whole_free == by_whole_free(&open), "nodes by free GPUs");
        expect(self.partly_free == partly_free(&open), "GPUs in part");
        expect(self.by_layout == by_layout(&open), "GPUs by layout");
        expect(self.capacity == capacity(state), "capacity by pool");
        expect(self.profiles_are_right(state, &open), "nodes by profile");
        wrong
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

/// Everything that takes room, by node: tasks, what is set aside, and what runs and should not.
fn all_there(state: &State) -> BTreeMap<NodeId, Vec<Occupant>> {
    let mut there: BTreeMap<NodeId, Vec<Occupant>> = BTreeMap::new();
    let mut add = |of: Occupant| there.entry(of.place.node).or_default().push(of);
    for (id, job) in state.jobs.iter() {
        let trust = Some(job.spec.trust);
        for task in state.ledger.holding(id).into_iter().flat_map(|holding| &holding.tasks) {
            let leaves = match place_of(task) {
                CheckedPlace::Stays => false,
                CheckedPlace::Leaves => true,
                CheckedPlace::Gone => continue,
            };
            let resources = resources_of(&job.spec, task.place.task);
            add(Occupant { place: task.place, resources, trust, leaves });
        }
        for &place in state.earmarks.of(id).into_iter().flat_map(|earmark| &earmark.tasks) {
            add(Occupant { place, resources: resources_of(&job.spec, place.task), trust, leaves: false });
        }
    }
    for orphan in state.ledger.orphans().values() {
        let (place, resources) = (orphan.place, orphan.resources);
        add(Occupant { place, resources, trust: None, leaves: false });
    }
    there
}

fn is_room(room: &Room, node: &Node, model: &str, here: &[Occupant]) -> bool {
    let facts = &node.facts;
    let nothing = Resources::default();
    let beside = |leaves: bool| {
        let those = here.iter().filter(|of| of.leaves == leaves);
        those.fold(nothing, |sum, of| sum + of.resources)
    };
    let capacity = if facts.up { facts.capacity.saturating_sub(facts.others) } else { nothing };
    let leaving = here.iter().filter(|of| of.leaves).count();
    let mig = catalogue::mig(model);
    room.pool == facts.pool
        && (room.capacity, room.held, room.draining) == (capacity, beside(false), beside(true))
        && usize::try_from(room.leaving) == Ok(leaving)
        && room.mig.map(|mig| mig.profiles.len()) == mig.map(|mig| mig.profiles.len())
        && room.gpus.len() == facts.gpus.len()
        && room.gpus.iter().enumerate().all(|(at, gpu)| {
            let usable = facts.up && facts.gpus[at].healthy && !facts.others_gpus.contains(at);
            (gpu.usable, gpu.island) == (usable, facts.gpus[at].island) && is_gpu(gpu, mig, at, here)
        })
}

fn is_gpu(gpu: &GpuRoom, mig: Option<&'static Mig>, at: usize, here: &[Occupant]) -> bool {
    let on = |leaves: bool| here.iter().filter(move |of| of.leaves == leaves && of.place.gpus.contains(at));
    // A slice that the device cannot have, or that runs and should not, takes the whole of it.
    let slice = |of: &Occupant| {
        of.place.slice.filter(|slice| of.trust.is_some() && profile_of(mig, *slice).is_some())
    };
    let held: u64 = on(false).map(|of| of.place.units_each.parts()).sum();
    let mut slices: Vec<Slice> = on(false).filter_map(slice).collect();
    slices.sort_unstable_by_key(|slice| slice.start);
    let undivided: Vec<(Option<TrustId>, bool)> =
        on(false).filter(|of| slice(of).is_none()).map(|of| (of.trust, of.place.time_sliced)).collect();
    let strangers = undivided.iter().filter(|(trust, _)| trust.is_none()).count();
    let mode_is_right = match gpu.trust {
        None => undivided.len() == strangers && !gpu.time_sliced,
        Some(trust) => undivided.contains(&(Some(trust), gpu.time_sliced)),
    };
    let mut leaving_slots = [0u8; AXIS_MAX];
    let mut leaving_undivided = 0;
    for of in on(true) {
        match slice(of).map(|slice| (slice, profile_of(mig, slice))) {
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

fn by_whole_free(open: &BTreeMap<NodeId, &Room>) -> BTreeMap<(PoolId, Drains, u8), BTreeSet<NodeId>> {
    let mut index: BTreeMap<(PoolId, Drains, u8), BTreeSet<NodeId>> = BTreeMap::new();
    for (&node, room) in open {
        let free = room.gpus.iter().filter(|gpu| gpu.usable && gpu.holders == 0).count();
        let free = u8::try_from(free).unwrap_or(u8::MAX);
        index.entry((room.pool, drains(room), free)).or_default().insert(node);
    }
    index
}

/// Every GPU of open nodes, with its number.
fn gpus<'a>(open: &'a BTreeMap<NodeId, &Room>) -> impl Iterator<Item = (NodeId, &'a Room, u8, &'a GpuRoom)> {
    open.iter().flat_map(|(&node, &room)| (0u8..).zip(&room.gpus).map(move |(at, gpu)| (node, room, at, gpu)))
}

fn partly_free(open: &BTreeMap<NodeId, &Room>) -> BTreeMap<PoolId, BTreeSet<(GpuUnits, NodeId, u8)>> {
    let mut index: BTreeMap<PoolId, BTreeSet<(GpuUnits, NodeId, u8)>> = BTreeMap::new();
    for (node, room, at, gpu) in gpus(open) {
        let undivided = gpu.layout.slices().next().is_none();
        if gpu.usable && gpu.holders > 0 && undivided && gpu.held.parts() < GpuUnits::WHOLE.parts() {
            let left = GpuUnits::from_parts(GpuUnits::WHOLE.parts() - gpu.held.parts());
            index.entry(room.pool).or_default().insert((left, node, at));
        }
    }
    index
}

fn by_layout(open: &BTreeMap<NodeId, &Room>) -> BTreeMap<(PoolId, Layout), BTreeSet<(NodeId, u8)>> {
    let mut index: BTreeMap<(PoolId, Layout), BTreeSet<(NodeId, u8)>> = BTreeMap::new();
    for (node, room, at, gpu) in gpus(open) {
        let only_slices = usize::try_from(gpu.holders) == Ok(gpu.layout.slices().count());
        if room.mig.is_some() && gpu.usable && only_slices {
            index.entry((room.pool, gpu.layout)).or_default().insert((node, at));
        }
    }
    index
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

/// What is left of the GPUs of a room for whoever holds them undivided, or for anybody where nobody does; most first.
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

/// An index and what would be wrong with it.
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
