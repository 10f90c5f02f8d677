//! Levers on nodes: cordon, drain, and downtimes that are planned.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use wharf_api::file::lever::{parse_cordon, parse_downtime, parse_drain, parse_drain_of};
use wharf_api::v1::{
    DowntimeList, DowntimeReply, DowntimeView, NodeList, NodeReply, NodeView, Problem, schema_of,
};
use wharf_controller::turn::Glance;
use wharf_engine::decide::input::Input;
use wharf_engine::decide::rejection::Rejection;
use wharf_engine::model::actor::{Actor, Request};

use super::caller::Caller;
use super::jobs::utf8;
use super::{Refused, Shared};
use crate::rejection::{bad_file, closed, problem};
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
    let done = shared.desk.give(Request { actor, input }, move |reply, turned| {
        let state = turned.glance.state;
        reply.map_err(|rejection| problem(state, &rejection))?;
        nodes.iter().map(|name| look_at(&turned.glance, name)).collect::<Result<Vec<NodeView>, Problem>>()
    });
    Ok(Json(NodeList { schema: schema_of::<NodeList>(), nodes: done.await.map_err(closed)?? }))
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
    let done = shared.desk.give(Request { actor, input }, move |reply, turned| {
        let state = turned.glance.state;
        reply.map_err(|rejection| problem(state, &rejection))?;
        look_at(&turned.glance, &name)
    });
    let node = done.await.map_err(closed)??;
    Ok(Json(NodeReply { schema: schema_of::<NodeReply>(), node }))
}

fn look_at(glance: &Glance<'_>, name: &str) -> Result<NodeView, Problem> {
    let state = glance.state;
    let node = state.fleet.node_named(name).and_then(|id| Some((id, state.fleet.node(id)?)));
    let missing = || problem(state, &Rejection::NoSuchNode { name: name.to_owned() });
    let (id, node) = node.ok_or_else(missing)?;
    Ok(view::node(state, id, node, &glance.world.samples()))
}

pub(super) async fn downtimes(State(shared): State<Shared>) -> Answer<DowntimeList> {
    let asked = shared.desk.ask(|glance| maintenance::all(glance.state));
    Ok(Json(DowntimeList { schema: schema_of::<DowntimeList>(), downtimes: asked.await.map_err(closed)? }))
}

pub(super) async fn maintain(
    State(shared): State<Shared>,
    Caller(actor): Caller,
    body: Bytes,
) -> Result<(StatusCode, Json<DowntimeReply>), Refused> {
    let file = parse_downtime("request body", utf8(&body)?).map_err(|error| bad_file(&error))?;
    // A span from now is counted on the world's clock.
    let now = shared.desk.ask(|glance| glance.now).await.map_err(closed)?;
    let request = file.request(now);
    let name = request.name.clone();
    let input = Input::PlanDowntime(Box::new(request));
    let done = shared.desk.give(Request { actor, input }, move |reply, turned| {
        let state = turned.glance.state;
        reply.map_err(|rejection| problem(state, &rejection))?;
        look(state, &name)
    });
    Ok((StatusCode::CREATED, Json(reply(done.await.map_err(closed)??))))
}

/// Answered with the downtime as it was.
pub(super) async fn call_off(
    State(shared): State<Shared>,
    Caller(actor): Caller,
    Path(name): Path<String>,
) -> Answer<DowntimeReply> {
    let asked = name.clone();
    let before = shared.desk.ask(move |glance| look(glance.state, &asked)).await.map_err(closed)??;
    let input = Input::CallOff { name };
    let done = shared.desk.give(Request { actor, input }, |reply, turned| {
        reply.map_err(|rejection| problem(turned.glance.state, &rejection)).map(|_| ())
    });
    done.await.map_err(closed)??;
    Ok(Json(reply(before)))
}

fn look(state: &wharf_engine::state::State, name: &str) -> Result<DowntimeView, Problem> {
    let view = maintenance::named(state, name);
    view.ok_or_else(|| problem(state, &Rejection::NoSuchDowntime { name: name.to_owned() }))
}

fn reply(downtime: DowntimeView) -> DowntimeReply {
    DowntimeReply { schema: schema_of::<DowntimeReply>(), downtime }
}
