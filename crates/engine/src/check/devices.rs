//! I1, I2, I6, I13, I14: what is on devices, recomputed from what tasks hold.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Finding, Tasks, name_of, resources_of, shape_of};
use crate::device::catalogue::{self, Media, Mig, Profile};
use crate::model::job::{Class, Spec};
use crate::model::placement::Placement;
use crate::model::policy::Mode;
use crate::state::State;
use crate::units::{GpuUnits, NodeId, Resources, TrustId};

/// What a GPU carries.
#[derive(Default)]
struct GpuLoad {
    units: u64,
    /// Trust domains of those who hold it undivided.
    trusts: Vec<TrustId>,
    modes: Vec<Mode>,
    slices: Vec<(u8, u8)>,
}

pub(super) fn check_devices(state: &State, findings: &mut Vec<Finding>) {
    let mut gpus: BTreeMap<(NodeId, usize), GpuLoad> = BTreeMap::new();
    let mut nodes: BTreeMap<NodeId, Resources> = BTreeMap::new();
    for (job, task) in (Tasks { state }).held() {
        let spec = &state.jobs.get(job).expect("what is held belongs to a live job").spec;
        let place = &task.place;
        for gpu in place.gpus.indexes() {
            let carried = gpus.entry((place.node, gpu)).or_default();
            carried.units += place.units_each.parts();
            carried.modes.push(place.enforced());
            match place.slice {
                Some(slice) => carried.slices.push((slice.profile, slice.start)),
                None => carried.trusts.push(spec.trust),
            }
        }
        let held = nodes.entry(place.node).or_default();
        *held = *held + resources_of(spec, place.task);
        let adopted = state.ledger.holding(job).is_some_and(|holding| holding.policy == 0);
        if !adopted && !may_be_so(state, spec, place) {
            findings.push(Finding::NotAllowed { job: job.0, task: place.task });
        }
    }
    for ((node, gpu), carried) in gpus {
        check_gpu(state, node, gpu, &carried, findings);
    }
    for (node, held) in nodes {
        // What others use may have grown after we placed; what we placed ourselves must fit the node.
        let fits = state.fleet.node(node).is_none_or(|known| known.facts.capacity.covers(&held));
        if !fits {
            findings.push(Finding::NodeOversubscribed { node: name_of(state, node) });
        }
    }
}

fn check_gpu(state: &State, node: NodeId, gpu: usize, carried: &GpuLoad, findings: &mut Vec<Finding>) {
    let at = || name_of(state, node);
    if carried.units > GpuUnits::WHOLE.parts() {
        findings.push(Finding::GpuOversubscribed { node: at(), gpu, held: carried.units });
    }
    let strangers = carried.trusts.iter().any(|trust| *trust != carried.trusts[0]);
    if strangers || (!carried.trusts.is_empty() && !carried.slices.is_empty()) {
        findings.push(Finding::TrustMixed { node: at(), gpu });
    }
    if carried.modes.iter().any(|mode| *mode != carried.modes[0]) {
        findings.push(Finding::ModesMixed { node: at(), gpu });
    }
    if !fit_together(state, node, &carried.slices) {
        findings.push(Finding::LayoutIllegal { node: at(), gpu });
    }
}

/// True when slices could be on one GPU of a node. A device that was relabelled under its slices is the world's doing, and
/// its tasks are on their way out.
pub(super) fn fit_together(state: &State, node: NodeId, slices: &[(u8, u8)]) -> bool {
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

/// True when a place is one that its job may have: an alternative of the model's set, turns only where they are
/// allowed, and a slice that is charged what its slots are.
fn may_be_so(state: &State, spec: &Spec, place: &Placement) -> bool {
    let allowed = |set: crate::units::DeviceSetId| set.0 == 0 || state.fleet.set_has_pool(set, place.pool);
    let shape = shape_of(spec, place.task);
    let right_pool = allowed(shape.devices) || shape.any_of.iter().any(|other| allowed(other.devices));
    let turns = !place.time_sliced || (shape.time_slicing && spec.class == Class::Interactive);
    let charged = place.slice.is_none_or(|slice| {
        let mig = catalogue::mig(state.fleet.model(place.pool));
        let profile =
            mig.and_then(|mig| mig.profiles.get(usize::from(slice.profile)).map(|known| (mig, known)));
        profile.is_some_and(|(mig, profile)| {
            place.units_each.parts() * u64::from(mig.axis)
                == u64::from(profile.slots) * GpuUnits::WHOLE.parts()
        })
    });
    right_pool && turns && charged
}
