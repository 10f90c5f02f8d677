//! The list of live jobs, page by page in the order of submission.

use axum::Json;
use axum::extract::State;
use wharf_api::v1::{Code, JobList, JobState, JobView, Problem, schema_of};
use wharf_engine::input::Rejection;
use wharf_engine::jobs::Job;
use wharf_engine::state::State as Engine;
use wharf_engine::units::JobId;

use super::params::Params;
use super::{Refused, Shared};
use crate::rejection::{closed, problem};
use crate::replica::Replica;
use crate::view;

/// Jobs of a page unless the caller asks for another number: about half a MiB.
const PAGE_DEFAULT: usize = 500;
/// The most jobs of a page.
const PAGE_MAX: usize = 1000;

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
        let token = params.text("continue").map(|token| {
            u64::from_str_radix(token, 16).map_err(|_| {
                Problem::new(Code::BadRequest, format!("continue: {token:?} is no token of this list"))
                    .hint("give the token of the page before, or leave it out to begin again")
            })
        });
        Ok(Self {
            tenant: params.text("tenant").map(str::to_owned),
            state: params.one_of("state", &JobState::ALL, JobState::word)?,
            submitted_by: params.text("submitted_by").map(str::to_owned),
            labels: params.text("labels").unwrap_or_default().to_owned(),
            limit: params.limit(PAGE_DEFAULT, 1..=PAGE_MAX)?,
            from: JobId(token.transpose()?.unwrap_or(0)),
        })
    }
}

pub(super) async fn list(State(shared): State<Shared>, params: Params) -> Result<Json<JobList>, Refused> {
    let wanted = Wanted::of(&params)?;
    let (jobs, next) = shared.desk.ask(move |replica| select(replica, &wanted)).await.map_err(closed)??;
    let token = next.map(|JobId(id)| format!("{id:x}"));
    Ok(Json(JobList { schema: schema_of::<JobList>(), jobs, next: token }))
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
    let mut found = state.jobs.iter_from(wanted.from).filter(|&(id, job)| {
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
