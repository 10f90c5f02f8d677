//! Evictions: who had to leave for whom, and why. They are read from history, not from the state.

use axum::Json;
use axum::extract::{Path, State};
use wharf_api::v1::{
    Code, EvictionList, EvictionReply, EvictionView, Explanation, JobView, Problem, schema_of,
};
use wharf_controller::disk::{HistoryKind, HistoryQuery, HistoryRow};
use wharf_engine::units::JobId;

use super::params::Params;
use super::{ROWS_DEFAULT, ROWS_MAX, Refused, Shared};
use crate::rejection::closed;
use crate::replica::Replica;
use crate::{leaving, reservation, view};

/// The most rows after an eviction that are looked through for what became of it.
const LATER_ROWS_MAX: usize = 1_000;

type Answer<T> = Result<Json<T>, Refused>;

/// The most evictions that an explanation names; the list has them all.
const TOLD_MAX: usize = 20;

pub(super) async fn list(State(shared): State<Shared>, params: Params) -> Answer<EvictionList> {
    let [tenant, job] = ["tenant", "job"].map(|key| params.text(key).map(str::to_owned));
    let limit = params.limit(ROWS_DEFAULT, 0..=ROWS_MAX)?;
    let (owner, name) = match job.as_deref().map(|job| job.rsplit_once('/').ok_or(job)) {
        None => (None, None),
        Some(Ok((owner, name))) => (Some(owner.to_owned()), Some(name.to_owned())),
        Some(Err(name)) => (None, Some(name.to_owned())),
    };
    let query = evictions(HistoryQuery { tenant: tenant.or_else(|| owner.clone()), name, limit, ..all() });
    let mut rows = shared.desk.read(move |replica| read(replica, &query)).await.map_err(closed)??;
    rows.retain(|row| owner.as_ref().is_none_or(|owner| row.tenant == *owner));
    let evictions = rows.into_iter().filter_map(crate::eviction::view).collect();
    Ok(Json(EvictionList { schema: schema_of::<EvictionList>(), evictions }))
}

pub(super) async fn one(State(shared): State<Shared>, Path(id): Path<String>) -> Answer<EvictionReply> {
    let index = id.parse().map_err(|_| {
        Problem::new(
            Code::BadRequest,
            format!("{id:?} is no eviction: its id is a number, its journal index"),
        )
        .hint("list them with: wharf get evictions")
    })?;
    let query = evictions(HistoryQuery { index: Some(index), limit: 1, ..all() });
    let rows = shared.desk.read(move |replica| read(replica, &query)).await.map_err(closed)??;
    let eviction = rows.into_iter().find_map(crate::eviction::view).ok_or_else(|| missing(index))?;
    let (tenant, name) = (Some(eviction.victim.tenant.clone()), Some(eviction.victim.job.clone()));
    let (kind, since) = (Some(HistoryKind::Receipt), Some(eviction.at_ms));
    let query = HistoryQuery { kind, tenant, name, since, limit: LATER_ROWS_MAX, ..all() };
    let later = shared.desk.read(move |replica| read(replica, &query)).await.map_err(closed)??;
    let withdrawn = crate::eviction::is_withdrawn(&eviction, &later);
    Ok(Json(EvictionReply { schema: schema_of::<EvictionReply>(), eviction, withdrawn }))
}

fn missing(index: u64) -> Problem {
    Problem::new(Code::NoSuchEviction, format!("history has no eviction {index}"))
        .hint("list them with: wharf get evictions; older ones are gone after `keep` of history.yaml")
}

/// A job with its evictions and with who still has to leave for it.
pub(super) fn explanation(replica: &Replica, id: JobId, job: JobView) -> Result<Explanation, Problem> {
    let evictions = of_job(replica, &job.tenant, &job.name)?;
    let evictions = evictions.into_iter().filter(|eviction| eviction.victim.uid == job.uid);
    let evictions: Vec<u64> = evictions.map(|eviction| eviction.id).collect();
    let mut earmark = leaving::earmark(&replica.state, id);
    for leaving in earmark.iter_mut().flat_map(|earmark| &mut earmark.leaving) {
        let newest = of_job(replica, &leaving.tenant, &leaving.job)?.into_iter().next();
        let for_this = newest.filter(|eviction| eviction.beneficiary.uid == job.uid);
        leaving.eviction = for_this.map(|eviction| eviction.id);
    }
    let samples = replica.samples();
    let known = replica.state.jobs.get(id);
    let tasks = known.map_or_else(Vec::new, |known| {
        view::gpu::task_use(known, replica.state.ledger.holding(id), &samples)
    });
    let ooms =
        samples.ooms.as_ref().zip(known).map(|(ooms, known)| ooms.get(&known.uid).copied().unwrap_or(0));
    let chosen = view::chosen(&replica.state, id);
    let reservation = reservation::of(&replica.state, id, replica.now());
    let missed = reservation::missed(&replica.state, id);
    let unpromised = reservation::unpromised(&replica.state, id, replica.now());
    let schema = schema_of::<Explanation>();
    Ok(Explanation { schema, job, evictions, earmark, reservation, missed, unpromised, chosen, tasks, ooms })
}

fn of_job(replica: &Replica, tenant: &str, name: &str) -> Result<Vec<EvictionView>, Problem> {
    let (tenant, name) = (Some(tenant.to_owned()), Some(name.to_owned()));
    let rows = read(replica, &evictions(HistoryQuery { tenant, name, limit: TOLD_MAX, ..all() }))?;
    Ok(rows.into_iter().filter_map(crate::eviction::view).collect())
}

fn all() -> HistoryQuery {
    HistoryQuery::default()
}

fn evictions(query: HistoryQuery) -> HistoryQuery {
    HistoryQuery { kind: Some(HistoryKind::Eviction), ..query }
}

fn read(replica: &Replica, query: &HistoryQuery) -> Result<Vec<HistoryRow>, Problem> {
    replica.history.find(query).map_err(|fault| Problem::new(Code::Internal, fault.to_string()))
}
