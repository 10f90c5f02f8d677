//! Nodes that are to be empty: because they drain, or because a downtime of theirs is to come or lasts.
//!
//! Worked example: `n1` is drained within 30 minutes. From now on nothing new is placed there. A job whose limit is up before
//! that is left alone. A job with a grace of 5 minutes is asked 5 minutes and the time of a stop before the 30 are over: until then it
//! works, and if it ends by itself nobody is disturbed. An elastic job gives up what it has there, a service its replicas; a gang
//! that cannot do without moves whole. A job that may not be evicted is waited for, unless the lever says otherwise.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use super::Decision;
use super::conclude::repair_deadline;
use super::live::{LiveJob, numbers};
use crate::decide::input::{DowntimeRequest, DrainRequest};
use crate::model::actor::Actor;
use crate::model::rejection::{DowntimeFault, Rejection};
use crate::plan::draft::Draft;
use crate::plan::evict::victims::{all_of_job, cost_of_tasks};
use crate::state::State;
use crate::state::event::Event;
use crate::state::fleet::{Drain, FleetEvent};
use crate::state::holding::{HeldTask, Holding};
use crate::state::jobs::event::{JobsEvent, Next, RequeueWhy};
use crate::state::ledger::event::{Asker, Eviction, EvictionRule, LedgerEvent};
use crate::state::maintenance::{Downtime, MaintenanceEvent};
use crate::units::{BookingId, JobId, NodeId, Timestamp};

/// Nodes are to be empty, or not any more. All of them close at once, so that nothing moves from one to the next.
pub(super) fn drain(
    state: &State,
    actor: &Actor,
    names: &[String],
    how: Option<&DrainRequest>,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let nodes = nodes_named(state, names)?;
    let drain = how.map(|how| Drain {
        by: String::from(actor.called()),
        reason: how.reason.clone(),
        deadline: now + how.within,
        whom: how.whom,
        at: now,
    });
    let is_new = |node: &NodeId| state.fleet.node(*node).is_some_and(|known| known.drain != drain);
    let event = |node| Event::Fleet(FleetEvent::Draining { node, drain: drain.clone() });
    Decision::about(None, nodes.into_iter().filter(is_new).map(event))
}

/// The nodes of these names, each once, or the first name that is none.
fn nodes_named(state: &State, names: &[String]) -> Result<BTreeSet<NodeId>, Rejection> {
    names.iter().map(|name| node_named(state, name)).collect()
}

pub(super) fn node_named(state: &State, name: &str) -> Result<NodeId, Rejection> {
    state.fleet.node_named(name).ok_or_else(|| Rejection::NoSuchNode { name: String::from(name) })
}

pub(super) fn plan_downtime(
    state: &State,
    actor: &Actor,
    asked: &DowntimeRequest,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let nodes = nodes_named(state, &asked.nodes)?;
    let until = asked.from + asked.span;
    let refused = |fault| Err(Rejection::BadDowntime { fault });
    if nodes.is_empty() {
        return refused(DowntimeFault::NoNodes);
    }
    if asked.span.0 == 0 || until <= now {
        return refused(DowntimeFault::Over);
    }
    if state.maintenance.get(&asked.name).is_some() {
        return Err(Rejection::DowntimeNameInUse { name: asked.name.clone() });
    }
    let downtime = Downtime {
        nodes: nodes.into_iter().collect(),
        from: asked.from.max(now),
        until,
        reason: asked.reason.clone(),
        by: String::from(actor.called()),
        whom: asked.whom,
        began: false,
        at: now,
    };
    let name = asked.name.clone();
    Ok(alloc::vec![Event::Maintenance(MaintenanceEvent::Planned { name, downtime })].into())
}

pub(super) fn call_off(state: &State, name: &str, now: Timestamp) -> Result<Decision, Rejection> {
    if state.maintenance.get(name).is_none() {
        return Err(Rejection::NoSuchDowntime { name: String::from(name) });
    }
    let ended = MaintenanceEvent::Ended { name: String::from(name), cancelled: true, at: now };
    Ok(alloc::vec![Event::Maintenance(ended)].into())
}

/// Whose places an event is about.
pub(super) fn about(event: &Event) -> Option<JobId> {
    match event {
        Event::Ledger(event) => event.job(),
        Event::Jobs(JobsEvent::Leaving { job, .. } | JobsEvent::Stays { job, .. }) => Some(*job),
        _ => None,
    }
}

/// What time made due: downtimes begin and end, and jobs on a node that is to be empty are asked in time.
pub(super) fn due(state: &State, changed: &BTreeSet<JobId>, now: Timestamp) -> Vec<Event> {
    let edge = |(name, downtime): (&str, &Downtime)| {
        let name = String::from(name);
        if now >= downtime.until {
            return Some(MaintenanceEvent::Ended { name, cancelled: false, at: now });
        }
        (now >= downtime.from && !downtime.began).then_some(MaintenanceEvent::Began { name, at: now })
    };
    let mut events: Vec<Event> = state.maintenance.iter().filter_map(edge).map(Event::Maintenance).collect();
    let mut leaving: BTreeMap<JobId, BTreeSet<NodeId>> = BTreeMap::new();
    for node in state.nodes_to_be_empty() {
        // A node whose downtime is just over is judged anew in the next decision.
        if state.maintenance.of(node).any(|(_, downtime)| now >= downtime.until) {
            continue;
        }
        let has_to_go = |id: &JobId| !changed.contains(id) && state.has_to_go(node, *id, now);
        for id in state.active_on(node).into_iter().filter(has_to_go) {
            leaving.entry(id).or_default().insert(node);
        }
    }
    if leaving.is_empty() {
        return events;
    }
    Draft::trial(state, state.tenants.policy(), now, |draft| {
        events.extend(
            leaving.iter().flat_map(|(&id, nodes)| leave(&draft, LiveJob::of(state, id, now), nodes)),
        );
    });
    events
}

/// What a job has on these nodes leaves: alone, where the rest can do without it, else with all of the job.
fn leave(draft: &Draft<'_>, live: LiveJob<'_>, nodes: &BTreeSet<NodeId>) -> Vec<Event> {
    let (job, Some(holding)) = (live.job, live.holding()) else { return Vec::new() };
    let (there, elsewhere): (Vec<&HeldTask>, Vec<&HeldTask>) =
        holding.staying().partition(|task| nodes.contains(&task.place.node));
    let Some(&node) = nodes.first().filter(|_| !there.is_empty()) else { return Vec::new() };
    let rest = elsewhere.iter().map(|task| task.place.task).chain(holding.done());
    let is_enough = !job.spec.has_groups() && job.spec.is_met_by(rest);
    let alone = !elsewhere.is_empty() && (job.spec.service.is_some() || is_enough);
    let mut events = tell_to_leave(draft, live, alone.then_some(there), LeftFor::Node(node));
    // The rest of a service runs on below its minimum, which is repaired like any other.
    if alone && !is_enough && holding.repair_by.is_none() {
        events.push(live.broken(repair_deadline(live.state, live.now)));
    }
    events
}

/// What tasks leave for when it is not for a job.
#[derive(Clone, Copy)]
pub(super) enum LeftFor {
    Window(BookingId),
    Node(NodeId),
}

/// A job, or some of its tasks, have to leave: the receipt, then the ask or, for those that have nothing to save, the stop.
pub(super) fn tell_to_leave(
    draft: &Draft<'_>,
    live: LiveJob<'_>,
    some: Option<Vec<&HeldTask>>,
    left_for: LeftFor,
) -> Vec<Event> {
    let LiveJob { state, id, now, .. } = live;
    let whole = some.is_none();
    let held = some.unwrap_or_else(|| live.holding().into_iter().flat_map(Holding::staying).collect());
    let tasks = numbers(held.iter().copied());
    let all = || all_of_job(draft, id).map(|unit| (unit.lost, unit.cost));
    let cost = if whole { all() } else { cost_of_tasks(draft, id, &tasks) };
    let (lost, cost) = cost.unwrap_or_default();
    let (why, by, booking, node) = match left_for {
        LeftFor::Window(booking) => (EvictionRule::Booking, Asker::Booking { booking }, Some(booking), None),
        LeftFor::Node(node) => (EvictionRule::Drain, Asker::Drain { node }, None, Some(node)),
    };
    let (gain, straddles, policy) = (None, None, state.tenants.version());
    let receipt =
        Eviction { why, beneficiary: id, whole, lost, cost, gain, straddles, policy, booking, node };
    let mut events = alloc::vec![Event::Ledger(LedgerEvent::Evicted { job: id, tasks, receipt, at: now })];
    if whole {
        events.push(live.leaving(Next::Requeue(RequeueWhy::Evicted), None));
    }
    events.extend(live.lets_go_of(&held, by));
    events
}
