//! Levers on nodes: cordon, drain, and downtimes that are planned.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use wharf_api::file::lever::{parse_cordon, parse_downtime, parse_drain, parse_drain_of};
use wharf_api::v1::{
    DowntimeList, DowntimeReply, DowntimeView, NodeList, NodeReply, NodeView, Problem, schema_of,
};
use wharf_engine::decide::input::{Input, Request};
use wharf_engine::model::actor::Actor;
use wharf_engine::model::rejection::Rejection;

use super::caller::Caller;
use super::jobs::utf8;
use super::{Refused, Shared};
use crate::desk::Decided;
use crate::rejection::{bad_file, closed, problem};
use crate::replica::Replica;
use crate::{maintenance, view};

type Answer<T> = Result<Json<T>, Refused>;

pub(super) async fn cordon(
    State(shared): State<Shared>,
    Caller(actor): Caller,
    Path(node): Path<String>,
    body: Bytes,
) -> Answer<NodeReply> {
    let reason = parse_cordon("request body", utf8(&body)?).map_err(|error| bad_file(&error))?;
    pull(&shared, actor, node.clone(), Input::Cordon { node, on: true, reason }).await
}

pub(super) async fn uncordon(
    State(shared): State<Shared>,
    Caller(actor): Caller,
    Path(node): Path<String>,
) -> Answer<NodeReply> {
    pull(&shared, actor, node.clone(), Input::Cordon { node, on: false, reason: String::new() }).await
}

pub(super) async fn drain(
    State(shared): State<Shared>,
    Caller(actor): Caller,
    Path(node): Path<String>,
    body: Bytes,
) -> Answer<NodeReply> {
    let how = parse_drain("request body", utf8(&body)?).map_err(|error| bad_file(&error))?;
    pull(&shared, actor, node.clone(), Input::Drain { nodes: vec![node], how: Some(how) }).await
}

pub(super) async fn drain_all(
    State(shared): State<Shared>,
    Caller(actor): Caller,
    body: Bytes,
) -> Answer<NodeList> {
    let (nodes, how) = parse_drain_of("request body", utf8(&body)?).map_err(|error| bad_file(&error))?;
    let input = Input::Drain { nodes: nodes.clone(), how: Some(how) };
    let Decided { reply, replica, .. } =
        shared.desk.decide(Request { actor, input }).await.map_err(closed)?;
    reply.map_err(|rejection| problem(&replica.state, &rejection))?;
    let nodes: Result<Vec<NodeView>, Problem> = nodes.iter().map(|name| look_at(&replica, name)).collect();
    Ok(Json(NodeList {
        schema: schema_of::<NodeList>(),
        nodes: nodes?,
        index: replica.index(),
        term: replica.vitals.term,
        next: None,
    }))
}

pub(super) async fn undrain(
    State(shared): State<Shared>,
    Caller(actor): Caller,
    Path(node): Path<String>,
) -> Answer<NodeReply> {
    pull(&shared, actor, node.clone(), Input::Drain { nodes: vec![node], how: None }).await
}

/// A lever on a node, answered with the node as it is then.
async fn pull(shared: &Shared, actor: Actor, name: String, input: Input) -> Answer<NodeReply> {
    let Decided { reply, replica, .. } =
        shared.desk.decide(Request { actor, input }).await.map_err(closed)?;
    reply.map_err(|rejection| problem(&replica.state, &rejection))?;
    let node = look_at(&replica, &name)?;
    Ok(Json(NodeReply { schema: schema_of::<NodeReply>(), node }))
}

fn look_at(replica: &Replica, name: &str) -> Result<NodeView, Problem> {
    let state = &*replica.state;
    let node = state.fleet.node_named(name).and_then(|id| Some((id, state.fleet.node(id)?)));
    let missing = || problem(state, &Rejection::NoSuchNode { name: name.to_owned() });
    let (id, node) = node.ok_or_else(missing)?;
    Ok(view::node(state, id, node, &replica.samples()))
}

pub(super) async fn downtimes(State(shared): State<Shared>) -> Answer<DowntimeList> {
    let asked = shared.desk.read(|replica| maintenance::all(&replica.state));
    Ok(Json(DowntimeList { schema: schema_of::<DowntimeList>(), downtimes: asked.await.map_err(closed)? }))
}

pub(super) async fn maintain(
    State(shared): State<Shared>,
    Caller(actor): Caller,
    body: Bytes,
) -> Result<(StatusCode, Json<DowntimeReply>), Refused> {
    let file = parse_downtime("request body", utf8(&body)?).map_err(|error| bad_file(&error))?;
    // A span from now is counted on the world's clock.
    let request = file.request(shared.desk.latest().now());
    let name = request.name.clone();
    let input = Input::PlanDowntime(Box::new(request));
    let decided = shared.desk.decide(Request { actor, input }).await.map_err(closed)?;
    let state = &decided.replica.state;
    decided.reply.map_err(|rejection| problem(state, &rejection))?;
    Ok((StatusCode::CREATED, Json(reply(look(state, &name)?))))
}

/// Answered with the downtime as it was.
pub(super) async fn call_off(
    State(shared): State<Shared>,
    Caller(actor): Caller,
    Path(name): Path<String>,
) -> Answer<DowntimeReply> {
    let before = look(&shared.desk.latest().state, &name)?;
    let input = Input::CallOff { name };
    let decided = shared.desk.decide(Request { actor, input }).await.map_err(closed)?;
    decided.reply.map_err(|rejection| problem(&decided.replica.state, &rejection))?;
    Ok(Json(reply(before)))
}

fn look(state: &wharf_engine::state::State, name: &str) -> Result<DowntimeView, Problem> {
    let view = maintenance::named(state, name);
    view.ok_or_else(|| problem(state, &Rejection::NoSuchDowntime { name: name.to_owned() }))
}

fn reply(downtime: DowntimeView) -> DowntimeReply {
    DowntimeReply { schema: schema_of::<DowntimeReply>(), downtime }
}
