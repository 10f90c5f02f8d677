//! History, policy, metrics and whether we are alive.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use wharf_api::v1::{Code, HistoryList, HistoryView, PolicyView, Problem, schema_of};
use wharf_controller::disk;

use super::params::Params;
use super::{ROWS_DEFAULT, ROWS_MAX, Refused, Shared};
use crate::metrics::{self, FileErrors};
use crate::policy::Remarks;
use crate::rejection::closed;
use crate::replica::Replica;
use crate::text;

/// A desk that takes longer than this to answer is not ready.
const READY_WITHIN: Duration = Duration::from_secs(2);

pub(super) async fn history(
    State(shared): State<Shared>,
    params: Params,
) -> Result<Json<HistoryList>, Refused> {
    let kind = params.one_of("kind")?;
    let limit = params.limit(ROWS_DEFAULT, 0..=ROWS_MAX)?;
    let [tenant, name] = ["tenant", "name"].map(|key| params.text(key).map(str::to_owned));
    let query = disk::HistoryQuery { kind, tenant, name, limit, ..disk::HistoryQuery::default() };
    let rows =
        shared.desk.read(move |replica| replica.history.find(&query).map_err(|fault| fault.to_string()));
    let rows = rows.await.map_err(closed)?.map_err(|fault| Problem::new(Code::Internal, fault))?;
    let shown = rows.into_iter().map(|row| HistoryView {
        at_ms: row.at,
        kind: row.kind,
        tenant: row.tenant,
        name: row.name,
        actor: row.actor.map(Into::into),
        body: serde_json::from_str(&row.body).unwrap_or_default(),
    });
    Ok(Json(HistoryList { schema: schema_of::<HistoryList>(), rows: shown.collect() }))
}

pub(super) async fn policy(State(shared): State<Shared>) -> Result<Json<PolicyView>, Refused> {
    let (version, digest) = {
        let replica = shared.desk.latest();
        (replica.state.tenants.version(), replica.state.tenants.policy().digest.clone())
    };
    let Remarks { error, warnings } = shared.policy.remarks();
    Ok(Json(PolicyView { schema: schema_of::<PolicyView>(), version, digest, error, warnings }))
}

pub(super) async fn metrics(State(shared): State<Shared>) -> Result<impl IntoResponse, Refused> {
    let decisions = shared.desk.decisions().clone();
    let errors =
        FileErrors { policy: shared.policy.error().is_some(), fleet: shared.fleet.error().is_some() };
    let asked = shared.desk.read_first(move |replica| metrics::render(replica, &decisions, errors));
    let text = asked.await.map_err(closed)?;
    Ok(([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text))
}

pub(super) async fn healthz(State(shared): State<Shared>) -> impl IntoResponse {
    if shared.desk.has_stopped() {
        (StatusCode::INTERNAL_SERVER_ERROR, "stopped\n")
    } else {
        (StatusCode::OK, "ok\n")
    }
}

pub(super) async fn readyz(State(shared): State<Shared>) -> impl IntoResponse {
    let not_ready = |why: &str| (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"));
    // It goes through a turn and what follows it, so that either being stuck is noticed.
    match tokio::time::timeout(READY_WITHIN, shared.desk.ping()).await {
        Ok(Ok(replica)) if replica.state.tenants.version() == 0 => not_ready("no policy yet"),
        // Requests are still decided and kept. Whoever took us out of service for the fleet's sake would lose the
        // answers and mend nothing, so this is a line to read and a metric to alert on. Likewise the journal is whole
        // without a snapshot.
        Ok(Ok(replica)) => (StatusCode::OK, format!("ready\n{}", faults(&replica))),
        Ok(Err(_)) => not_ready("the control plane does not take requests"),
        Err(_) => not_ready("the control plane does not answer"),
    }
}

/// What an operator should know and what is no reason to take us out of service.
fn faults(replica: &Replica) -> String {
    let vitals = &replica.vitals;
    let outage = vitals.outage.as_ref().map(|outage| text::outage(outage, vitals.now));
    let snapshot = vitals.snapshot_fault.as_ref();
    let snapshot = snapshot.map(|fault| format!("snapshots cannot be written: {}", fault.what));
    outage.into_iter().chain(snapshot).map(|line| line + "\n").collect()
}
