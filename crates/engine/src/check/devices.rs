//! I1, I2, I6, I11, I13 to I15: what is on devices, recomputed from what tasks hold and what is earmarked and reserved.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Finding, name_of};
use crate::device::catalogue::{self, Media, Mig, Profile};
use crate::model::job::{Class, Spec};
use crate::model::placement::Placement;
use crate::model::policy::Mode;
use crate::state::State;
use crate::state::recount::{held, present, shape_of};
use crate::units::{DeviceSetId, GpuUnits, NodeId, Resources, TrustId};

#[derive(Default)]
struct GpuLoad {
    units: u64,
    /// Trust domains of tasks that hold it undivided.
    trusts: Vec<TrustId>,
    modes: Vec<Mode>,
    slices: Vec<(u8, u8)>,
}

fn loads(places: impl Iterator<Item = (Placement, TrustId)>) -> BTreeMap<(NodeId, usize), GpuLoad> {
    let mut loads: BTreeMap<(NodeId, usize), GpuLoad> = BTreeMap::new();
    for (place, trust) in places {
        for gpu in place.gpus.indexes() {
            let load = loads.entry((place.node, gpu)).or_default();
            load.units += place.units_each.parts();
            load.modes.push(place.enforced());
            match place.slice {
                Some(slice) => load.slices.push((slice.profile, slice.start)),
                None => load.trusts.push(trust),
            }
        }
    }
    loads
}

pub(super) fn check_devices(state: &State, findings: &mut Vec<Finding>) {
    let mut nodes: BTreeMap<NodeId, Resources> = BTreeMap::new();
    for (id, job, task) in held(state) {
        let place = &task.place;
        let beside = nodes.entry(place.node).or_default();
        *beside = *beside + shape_of(&job.spec, place.task).resources;
        let adopted = state.ledger.holding(id).is_some_and(|holding| holding.policy == 0);
        if !adopted && !may_be_so(state, &job.spec, place) {
            findings.push(Finding::NotAllowed { job: id.0, task: place.task });
        }
    }
    for ((node, gpu), load) in loads(held(state).map(|(_, job, task)| (task.place, job.spec.trust))) {
        check_gpu(state, node, gpu, &load, findings);
    }
    for (node, beside) in nodes {
        // What others use may have grown after we placed; what we placed ourselves must fit the node.
        if state.fleet.node(node).is_some_and(|known| !known.facts.capacity.covers(&beside)) {
            findings.push(Finding::NodeOversubscribed { node: name_of(state, node) });
        }
    }
}

/// What is earmarked is held by no task that stays.
pub(super) fn check_earmarks(state: &State, findings: &mut Vec<Finding>) {
    let staying = present(state).filter(|it| !it.leaves);
    let planned = staying.filter_map(|it| Some((it.place, it.job?.spec.trust)));
    for ((node, gpu), GpuLoad { units: planned, slices, .. }) in loads(planned) {
        if !fit_together(state, node, &slices) {
            findings.push(Finding::LayoutIllegal { node: name_of(state, node), gpu });
        }
        if planned > GpuUnits::WHOLE.parts() {
            findings.push(Finding::EarmarkedTwice { node: name_of(state, node), gpu, planned });
        }
    }
}

/// What is reserved for a job is reserved for no other. A reservation beside an earmark is dropped by the next plan.
pub(super) fn check_reservations(state: &State, findings: &mut Vec<Finding>) {
    let waiting = state.reservations.iter().filter(|of| state.earmarks.of(of.job).is_none());
    let places = waiting.flat_map(|reservation| &reservation.tasks);
    let loads = loads(places.map(|&place| (place, TrustId::default())));
    for ((node, gpu), _) in loads.into_iter().filter(|(_, load)| load.units > GpuUnits::WHOLE.parts()) {
        findings.push(Finding::ReservedTwice { node: name_of(state, node), gpu });
    }
}

fn check_gpu(state: &State, node: NodeId, gpu: usize, load: &GpuLoad, findings: &mut Vec<Finding>) {
    let at = || name_of(state, node);
    if load.units > GpuUnits::WHOLE.parts() {
        findings.push(Finding::GpuOversubscribed { node: at(), gpu, held: load.units });
    }
    let strangers = load.trusts.iter().any(|trust| *trust != load.trusts[0]);
    if strangers || (!load.trusts.is_empty() && !load.slices.is_empty()) {
        findings.push(Finding::TrustMixed { node: at(), gpu });
    }
    if load.modes.iter().any(|mode| *mode != load.modes[0]) {
        findings.push(Finding::ModesMixed { node: at(), gpu });
    }
    if !fit_together(state, node, &load.slices) {
        findings.push(Finding::LayoutIllegal { node: at(), gpu });
    }
}

/// True when slices could be on one GPU of a node. Tasks on a device that was relabelled under them are on their way out.
fn fit_together(state: &State, node: NodeId, slices: &[(u8, u8)]) -> bool {
    let model = state.fleet.node(node).map(|node| state.fleet.model(node.facts.pool));
    model.and_then(catalogue::mig).is_none_or(|mig| is_legal(mig, slices))
}

/// Slots apart, starts from the table, no profile too often, media engines given out once.
fn is_legal(mig: &Mig, slices: &[(u8, u8)]) -> bool {
    let mut slots = [false; 16];
    let mut profiles: Vec<&Profile> = Vec::new();
    for &(number, start) in slices {
        let Some(profile) = mig.profiles.get(usize::from(number)) else { return false };
        if !profile.starts.contains(&start) {
            return false;
        }
        for slot in start..start + profile.slots {
            if core::mem::replace(&mut slots[usize::from(slot)], true) {
                return false;
            }
        }
        profiles.push(profile);
    }
    let of = |media: Media| profiles.iter().filter(|profile| profile.media == media).count();
    let often = |profile: &&&Profile| profiles.iter().filter(|other| other.name == profile.name).count();
    let too_often = profiles.iter().any(|profile| often(&profile) > usize::from(profile.max));
    let media =
        of(Media::Extension) <= 1 && (of(Media::All) == 0 || profiles.len() == of(Media::Without) + 1);
    !too_often && media
}

/// True when a place is one that its job may have: its pool, turns only where allowed, a slice charged what its slots are.
fn may_be_so(state: &State, spec: &Spec, place: &Placement) -> bool {
    let allowed = |set: DeviceSetId| set.0 == 0 || state.fleet.set_has_pool(set, place.pool);
    let shape = shape_of(spec, place.task);
    let right_pool = allowed(shape.devices) || shape.any_of.iter().any(|other| allowed(other.devices));
    let turns = !place.time_sliced || (shape.time_slicing && spec.class == Class::Interactive);
    let charged = place.slice.is_none_or(|slice| {
        let Some(mig) = catalogue::mig(state.fleet.model(place.pool)) else { return false };
        let Some(profile) = mig.profiles.get(usize::from(slice.profile)) else { return false };
        place.units_each.parts() * u64::from(mig.axis) == u64::from(profile.slots) * GpuUnits::WHOLE.parts()
    });
    right_pool && turns && charged
}
