//! The list of live jobs, page by page in the order of submission.

use axum::Json;
use axum::extract::State;
use wharf_api::v1::{JobList, JobState, JobView, Problem, schema_of};
use wharf_engine::model::rejection::Rejection;
use wharf_engine::state::State as Engine;
use wharf_engine::state::jobs::Job;
use wharf_engine::units::JobId;

use super::params::{PAGE_DEFAULT, PAGE_MAX, Params, token};
use super::{Refused, Shared};
use crate::rejection::{closed, problem};
use crate::replica::Replica;
use crate::view;

/// Which jobs are asked for.
#[derive(Debug)]
struct Wanted {
    tenant: Option<String>,
    state: Option<JobState>,
    /// Submitted by this user, as the client said.
    submitted_by: Option<String>,
    /// `key=value`, or a bare key; several with commas.
    labels: String,
    limit: usize,
    /// From this one on.
    from: JobId,
}

impl Wanted {
    fn of(params: &Params) -> Result<Self, Problem> {
        let [from] = params.continued()?.unwrap_or([0]);
        Ok(Self {
            tenant: params.text("tenant").map(str::to_owned),
            state: params.one_of("state")?,
            submitted_by: params.text("submitted_by").map(str::to_owned),
            labels: params.text("labels").unwrap_or_default().to_owned(),
            limit: params.limit(PAGE_DEFAULT, 1..=PAGE_MAX)?,
            from: JobId(from),
        })
    }
}

pub(super) async fn list(State(shared): State<Shared>, params: Params) -> Result<Json<JobList>, Refused> {
    let wanted = Wanted::of(&params)?;
    let asked = shared.desk.read(move |replica| {
        let (jobs, next) = select(replica, &wanted)?;
        let next = next.map(|JobId(id)| token([id]));
        Ok::<_, Problem>(JobList {
            schema: schema_of::<JobList>(),
            jobs,
            index: replica.index(),
            term: replica.vitals.term,
            next,
        })
    });
    Ok(Json(asked.await.map_err(closed)??))
}

/// A page, and the first job of the next one. Only jobs of the page are judged.
fn select(replica: &Replica, wanted: &Wanted) -> Result<(Vec<JobView>, Option<JobId>), Problem> {
    let state = &*replica.state;
    if let Some(path) = &wanted.tenant {
        is_known(state, path)?;
    }
    let of_tenant = |path: &str| wanted.tenant.as_ref().is_none_or(|tenant| is_under(path, tenant));
    let by = |job: &Job| wanted.submitted_by.as_ref().is_none_or(|by| job.spec.submitted_by == *by);
    let labelled = |job: &Job| {
        let of_key = |key: &str| job.spec.labels.iter().find(|(known, _)| known == key);
        has_labels(&wanted.labels, |key| of_key(key).map(|(_, value)| value.as_str()))
    };
    let mut found = state.jobs.iter().skip_while(|&(id, _)| id < wanted.from).filter(|&(id, job)| {
        let shown = || view::job_state(job, state.ledger.holding(id));
        of_tenant(state.tenants.path(job.spec.tenant))
            && by(job)
            && labelled(job)
            && wanted.state.is_none_or(|state| state == shown())
    });
    let page = found.by_ref().take(wanted.limit).map(|(id, job)| view::job(replica, id, job));
    let page = page.collect();
    Ok((page, found.next().map(|(id, _)| id)))
}

/// True when every one of `key=value` or bare keys, with commas between, is met.
pub(super) fn has_labels<'a>(wanted: &str, value: impl Fn(&str) -> Option<&'a str>) -> bool {
    wanted.split(',').filter(|label| !label.is_empty()).all(|label| match label.split_once('=') {
        Some((key, wanted)) => value(key) == Some(wanted),
        None => value(label).is_some(),
    })
}

fn is_under(path: &str, tenant: &str) -> bool {
    path.strip_prefix(tenant).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Jobs of a tenant that the policy no longer names may still run.
pub(super) fn is_known(state: &Engine, tenant: &str) -> Result<(), Problem> {
    let of_policy = state.tenants.policy().tenants.iter().any(|known| is_under(&known.path, tenant));
    let known = of_policy || state.tenants.ids().any(|known| is_under(state.tenants.path(known), tenant));
    let unknown = || problem(state, &Rejection::UnknownTenant { path: tenant.to_owned() });
    if known { Ok(()) } else { Err(unknown()) }
}
