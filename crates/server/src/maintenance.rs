//! Nodes that are to be empty, in the words of the API.

use std::collections::BTreeSet;

use wharf_api::file::nearest;
use wharf_api::v1::{Code, DowntimeView, DrainView, Problem};
use wharf_engine::model::rejection::{DowntimeFault, Rejection};
use wharf_engine::state::State;
use wharf_engine::state::fleet::{Drain, Whom};
use wharf_engine::state::maintenance::Downtime;
use wharf_engine::units::{JobId, NodeId};

/// All downtimes, the earliest first.
pub(crate) fn all(state: &State) -> Vec<DowntimeView> {
    sorted(state.maintenance.iter().map(|(name, downtime)| view(state, name, downtime)).collect())
}

/// Those of a node, the earliest first.
pub(crate) fn of(state: &State, node: NodeId) -> Vec<DowntimeView> {
    sorted(state.maintenance.of(node).map(|(name, downtime)| view(state, name, downtime)).collect())
}

/// The downtime of that name.
pub(crate) fn named(state: &State, name: &str) -> Option<DowntimeView> {
    state.maintenance.get(name).map(|downtime| view(state, name, downtime))
}

fn sorted(mut views: Vec<DowntimeView>) -> Vec<DowntimeView> {
    views.sort_by(|a, b| (a.from_ms, &a.name).cmp(&(b.from_ms, &b.name)));
    views
}

fn view(state: &State, name: &str, downtime: &Downtime) -> DowntimeView {
    let Downtime { nodes, from, until, reason, by, whom, began, at: _ } = downtime;
    let names = nodes.iter().filter_map(|&node| Some(state.fleet.node(node)?.facts.name.clone()));
    DowntimeView {
        name: name.to_owned(),
        nodes: names.collect(),
        from_ms: from.0,
        until_ms: until.0,
        began: *began,
        by: by.clone(),
        reason: reason.clone(),
        everything: *whom == Whom::Everything,
    }
}

/// A drain as the API shows it.
pub(crate) fn drain(drain: &Drain) -> DrainView {
    let Drain { by, reason, deadline, whom, at } = drain;
    DrainView {
        by: by.clone(),
        reason: reason.clone(),
        since_ms: at.0,
        deadline_ms: deadline.0,
        everything: *whom == Whom::Everything,
    }
}

/// Jobs on a node that is to be empty that may not be asked to leave.
pub(crate) fn waits_for(state: &State, node: NodeId) -> Vec<String> {
    let jobs: BTreeSet<JobId> = state.ledger.tasks_on(node).map(|(job, _)| job).collect();
    let known = jobs.into_iter().filter_map(|job| state.jobs.get(job));
    let spared = known.filter(|job| state.to_be_empty(node).any(|limit| !limit.asks(job)));
    spared.map(|job| format!("{}/{}", state.tenants.path(job.spec.tenant), job.spec.name)).collect()
}

/// A refusal that has to do with downtimes.
pub(crate) fn problem(state: &State, rejection: &Rejection) -> Problem {
    match rejection {
        Rejection::BadDowntime { fault: DowntimeFault::NoNodes } => {
            Problem::new(Code::BadDowntime, "the maintenance names no nodes")
                .hint("name some: wharf get nodes")
        }
        Rejection::BadDowntime { fault: DowntimeFault::Over } => {
            Problem::new(Code::BadDowntime, "the maintenance would be over already")
                .hint("give a begin and a span that end after now, such as --from +2h --for 4h")
        }
        Rejection::DowntimeNameInUse { name } => {
            Problem::new(Code::DowntimeNameInUse, format!("another maintenance is planned as {name:?}"))
                .hint(format!("choose another name, or call that one off: wharf cancel maintenance/{name}"))
        }
        Rejection::NoSuchDowntime { name } => {
            let known: Vec<&str> = state.maintenance.iter().map(|(name, _)| name).collect();
            let near = nearest(name, &known).map(|near| format!("did you mean {near}? "));
            Problem::new(Code::NoSuchDowntime, format!("no maintenance is planned as {name:?}"))
                .hint(format!("{}list them with: wharf get maintenance", near.unwrap_or_default()))
        }
        _ => Problem::new(Code::Internal, "a refusal of another kind"),
    }
}
