//! Arrays by their names: members that live, and what history knows of those that are over.

use axum::Json;
use axum::extract::{Path, State};
use wharf_api::v1::{ArrayReply, Code, EndedJobView, JobView, MemberView, Problem, schema_of};
use wharf_controller::disk::{HistoryKind, HistoryQuery, HistoryRow};
use wharf_controller::history::{ArrayOf, FinishedJob};
use wharf_engine::units::Uid;

use super::ended::{PIECE, PIECES_MAX, read};
use super::jobs::{Meant, meant, show};
use super::{Refused, Shared};
use crate::ended;
use crate::rejection::closed;
use crate::replica::Replica;

/// An array of which members live.
pub(super) struct Live {
    /// Its identity, as history has it.
    id: String,
    /// Who pays.
    pub(super) tenant: String,
    /// Its name.
    pub(super) name: String,
    at_most: u32,
    /// When it was submitted: none of its members ended before.
    since: u64,
    /// The members that live.
    pub(super) members: Vec<Uid>,
}

impl Live {
    /// `None` when its last member has just ended.
    pub(super) fn of(replica: &Replica, id: Uid) -> Option<Self> {
        let state = &*replica.state;
        let array = state.jobs.array(id)?;
        let jobs: Vec<_> = array.members.iter().filter_map(|&member| state.jobs.get(member)).collect();
        Some(Self {
            id: format!("{:032x}", id.0),
            tenant: state.tenants.path(array.tenant).to_owned(),
            name: array.name.clone(),
            at_most: array.at_most,
            since: jobs.first()?.submitted_at.0,
            members: jobs.iter().map(|job| job.uid).collect(),
        })
    }
}

/// Members of one array that are over.
#[derive(Default)]
pub(super) struct Past {
    /// Each with its place in the array and in history, newest first.
    pub(super) members: Vec<(ArrayOf, u64, EndedJobView)>,
    /// False when more jobs ended since than one request reads.
    pub(super) complete: bool,
}

/// The members of a live array that are over.
pub(super) async fn over_of(shared: &Shared, live: &Live) -> Result<Past, Refused> {
    look_back(shared, Some(&live.tenant), &live.name, Some((live.id.clone(), live.since))).await
}

/// The members of the newest array of that name, where all of them are over.
async fn over(shared: &Shared, reference: &str) -> Result<Past, Refused> {
    match reference.rsplit_once('/') {
        Some((tenant, name)) => look_back(shared, Some(tenant), name, None).await,
        None => look_back(shared, None, reference, None).await,
    }
}

/// Reads back, piece by piece. Without an identity the first member that is met says which array is the newest.
async fn look_back(
    shared: &Shared,
    tenant: Option<&str>,
    name: &str,
    array: Option<(String, u64)>,
) -> Result<Past, Refused> {
    let (mut id, since) = array.map_or((None, None), |(id, since)| (Some(id), Some(since)));
    let mut query = HistoryQuery {
        kind: Some(HistoryKind::Job),
        tenant: tenant.map(str::to_owned),
        before: Some(u64::MAX),
        since,
        limit: PIECE,
        ..HistoryQuery::default()
    };
    let mut past = Past::default();
    for _ in 0..PIECES_MAX {
        let rows = read(shared, query.clone()).await?;
        past.complete = rows.len() < PIECE;
        for row in &rows {
            query.before = Some(row.index);
            // Tenants below the one that is asked for have arrays of their own.
            let Some((of, submitted_at)) = membership(row, name).filter(|_| is_of(row, tenant)) else {
                continue;
            };
            if id.is_none() {
                (id, query.since, query.tenant) =
                    (Some(of.id.clone()), Some(submitted_at), Some(row.tenant.clone()));
            }
            if id.as_ref() == Some(&of.id) {
                past.members.extend(ended::view(row).map(|job| (of, row.index, job)));
            }
        }
        if past.complete {
            break;
        }
    }
    Ok(past)
}

fn is_of(row: &HistoryRow, tenant: Option<&str>) -> bool {
    tenant.is_none_or(|tenant| row.tenant == tenant)
}

/// Which member of an array of that name a row tells of, and when the array was submitted.
fn membership(row: &HistoryRow, array: &str) -> Option<(ArrayOf, u64)> {
    // Most rows are others' and need not be read.
    row.name.strip_prefix(array)?.strip_prefix('-')?;
    let job: FinishedJob = serde_json::from_str(&row.body).ok()?;
    let of = job.array.filter(|of| of.name == array)?;
    Some((of, job.submitted_at))
}

/// An array with all of its members, those that are over too.
pub(super) async fn one(
    State(shared): State<Shared>,
    Path(reference): Path<String>,
) -> Result<Json<ArrayReply>, Refused> {
    let missing = || {
        Problem::new(Code::NoSuchJob, format!("there is no array {reference:?}, live or over"))
            .hint("live jobs: wharf get jobs; those that are over: wharf get jobs --state all")
    };
    let (live, shown) = match live(&shared, &reference).await? {
        Found::Array(live, shown) => (Some(live), shown),
        Found::Nothing => (None, Vec::new()),
        Found::Job => return Err(missing().into()),
    };
    let past = match &live {
        Some(live) => over_of(&shared, live).await?,
        None => newest(&shared, &reference).await?,
    };
    let of_past = past.members.first().map(|(of, _, job)| (job.tenant.clone(), of.name.clone(), of.at_most));
    let known = live.map(|live| (live.tenant, live.name, live.at_most)).or(of_past);
    let (tenant, name, at_most) = known.ok_or_else(missing)?;
    let live = shown.into_iter().filter_map(alive);
    let mut members: Vec<MemberView> = live.chain(past.members.into_iter().map(gone)).collect();
    // Who ended while history was read is over.
    members.sort_by_key(|member| (member.index, member.outcome.is_none()));
    members.dedup_by_key(|member| member.index);
    let schema = schema_of::<ArrayReply>();
    Ok(Json(ArrayReply { schema, name, tenant, at_most, members, shortened: !past.complete }))
}

/// What lives of that name.
enum Found {
    Nothing,
    Job,
    Array(Live, Vec<JobView>),
}

async fn live(shared: &Shared, reference: &str) -> Result<Found, Refused> {
    let reference = reference.to_owned();
    let asked = shared.desk.read(move |replica| {
        let id = match meant(&replica.state, &reference)? {
            Some(Meant::Array(id)) => id,
            Some(Meant::Job(_)) => return Ok(Found::Job),
            None => return Ok(Found::Nothing),
        };
        let members = replica.state.jobs.array(id).map(|array| array.members.clone()).unwrap_or_default();
        let shown: Vec<JobView> = members.iter().filter_map(|&job| show(replica, job)).collect();
        Ok::<_, Problem>(Live::of(replica, id).map_or(Found::Nothing, |live| Found::Array(live, shown)))
    });
    Ok(asked.await.map_err(closed)??)
}

/// The members of the newest array of that name, unless a job of that name ended later.
pub(super) async fn newest(shared: &Shared, reference: &str) -> Result<Past, Refused> {
    let past = over(shared, reference).await?;
    let job = super::ended::find(shared, reference).await?;
    let array_at = past.members.first().map(|(_, index, _)| *index);
    let job_is_newer = job.is_some_and(|row| array_at.is_none_or(|at| at < row.index));
    Ok(if job_is_newer { Past { members: Vec::new(), complete: true } } else { past })
}

fn alive(job: JobView) -> Option<MemberView> {
    let index = job.array?.index;
    let (state, text) = (Some(job.state), job.verdict.text);
    Some(MemberView { index, name: job.name, uid: job.uid, state, outcome: None, text, exit_code: None })
}

fn gone((of, _, job): (ArrayOf, u64, EndedJobView)) -> MemberView {
    let EndedJobView { name, uid, outcome, text, exit_code, .. } = job;
    MemberView { index: of.index, name, uid, state: None, outcome: Some(outcome), text, exit_code }
}
