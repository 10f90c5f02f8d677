//! Planned downtimes on a draft: who may still come to a node that will be out of service.

use alloc::vec::Vec;

use crate::model::placement::Placement;
use crate::plan::draft::Draft;
use crate::plan::later::booked;
use crate::plan::later::reserve::FILL_MIN;
use crate::plan::place::Fit;
use crate::state::ends::latest_if_placed;
use crate::state::fleet::Whom;
use crate::state::jobs::KindKey;
use crate::state::ledger::Step;
use crate::state::maintenance::Downtime;
use crate::units::{GpuMask, GpuUnits, JobId, Millis, NodeId, Resources, Timestamp, TrustId};

/// All of the nodes that work of a kind may not come to because it could not be gone in time, as somebody would take it.
pub(in crate::plan) fn kept_from(draft: &Draft<'_>, key: &KindKey) -> Vec<Step> {
    let to_come =
        draft.state.maintenance.iter().map(|(_, downtime)| downtime).filter(|downtime| !downtime.began);
    let closed = to_come.filter(|downtime| !lets_in(draft, downtime, key));
    closed.flat_map(|downtime| &downtime.nodes).flat_map(|&node| whole(draft, node)).collect()
}

/// All of the nodes that will be out of service soon: no start is promised there.
pub(in crate::plan) fn all_steps(draft: &Draft<'_>) -> Vec<Step> {
    let soon = draft.now + draft.policy.windows.lead;
    let to_come = draft.state.maintenance.iter().map(|(_, downtime)| downtime);
    let near = to_come.filter(|downtime| !downtime.began && downtime.from <= soon);
    near.flat_map(|downtime| &downtime.nodes).flat_map(|&node| whole(draft, node)).collect()
}

/// True when a downtime keeps work of a kind from one of these places.
pub(in crate::plan) fn bars(draft: &Draft<'_>, key: &KindKey, tasks: &[Placement]) -> bool {
    let mut downtimes = draft.state.maintenance.iter().map(|(_, downtime)| downtime);
    downtimes.any(|downtime| {
        tasks.iter().any(|place| downtime.nodes.contains(&place.node)) && !lets_in(draft, downtime, key)
    })
}

/// True when work of a kind that starts now is over, or can be gone, when the downtime begins.
fn lets_in(draft: &Draft<'_>, downtime: &Downtime, key: &KindKey) -> bool {
    let (policy, now) = (draft.policy, draft.now);
    let over = key.ends_within.is_some_and(|within| latest_if_placed(policy, within, now) <= downtime.from);
    let leave = Millis(key.grace.0.saturating_add(policy.stop_grace.0));
    let asked = key.preemptible || downtime.whom == Whom::Everything;
    over || (asked && now + FILL_MIN + leave <= downtime.from)
}

/// Everything that a node has, as somebody would take it.
fn whole(draft: &Draft<'_>, node: NodeId) -> Vec<Step> {
    let Some(room) = draft.room(node) else { return Vec::new() };
    let mut gpus = GpuMask::default();
    (0..room.gpus.len()).for_each(|gpu| gpus.insert(gpu));
    let place = Placement {
        task: 0,
        node,
        pool: room.pool,
        gpus,
        units_each: GpuUnits::WHOLE,
        slice: None,
        time_sliced: false,
        tax: 0,
    };
    let bare = Placement { gpus: GpuMask::default(), ..place };
    let beside = Step { place: bare, resources: room.free(), trust: Some(TrustId::default()) };
    let mut steps = booked::steps_at(draft, Resources::default(), TrustId::default(), &[place]);
    steps.push(beside);
    steps
}

/// When the downtime begins that keeps a job from what is free, if one does.
pub(crate) fn held_back(draft: &mut Draft<'_>, id: JobId) -> Option<Timestamp> {
    let state = draft.state;
    let key = KindKey::of(&state.jobs.get(id)?.spec);
    // Nodes that are out of service already are nobody's.
    let to_come = state.maintenance.iter().filter(|(_, downtime)| !downtime.began);
    let closed = to_come.filter(|(_, downtime)| !lets_in(draft, downtime, &key));
    let first = closed.map(|(_, downtime)| downtime.from).min()?;
    for ask in draft.asks().minimum(&key) {
        let mark = draft.mark();
        for step in kept_from(draft, &key) {
            draft.occupy(step);
        }
        let fits = Fit::of(draft, &ask).is_enough(draft, &ask);
        draft.roll_back(mark);
        if fits {
            return None;
        }
    }
    Some(first)
}
