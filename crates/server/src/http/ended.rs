//! Jobs that are over. They are read from history, a bounded piece at a time, so that no reader waits behind a long look
//! back.

use axum::Json;
use axum::extract::{Path, State};
use wharf_api::v1::{
    Code, EndedJobView, EndedList, EndedReply, EndedState, Problem, TimelineView, gpu_seconds, schema_of,
};
use wharf_controller::disk::{HistoryKind, HistoryQuery, HistoryRow};
use wharf_controller::history::{Usage, gpu_ms};

use super::params::Params;
use super::{ROWS_DEFAULT, ROWS_MAX, Refused, Shared};
use crate::ended;
use crate::rejection::closed;

type Answer<T> = Result<Json<T>, Refused>;

/// Rows that are read at a time.
pub(super) const PIECE: usize = 256;
/// The most pieces that one request reads: who wants to look back further asks again from where it ended.
pub(super) const PIECES_MAX: usize = 64;
/// The most rows of one job's life that are told.
const LIFE_ROWS_MAX: usize = 2_000;

/// Which jobs are asked for.
#[derive(Debug)]
struct Filter {
    tenant: Option<String>,
    state: Option<EndedState>,
    name: Option<String>,
    /// `key=value`, or a bare key; several with commas.
    labels: Option<String>,
    /// Submitted by this user, as the client said.
    submitted_by: Option<String>,
    /// Not before this moment.
    since_ms: Option<u64>,
    limit: usize,
    before: Option<u64>,
}

impl Filter {
    fn of(params: &Params) -> Result<Self, Problem> {
        let [tenant, name, labels, submitted_by] =
            ["tenant", "name", "labels", "submitted_by"].map(|key| params.text(key).map(str::to_owned));
        Ok(Self {
            tenant,
            state: params.one_of("state")?,
            name,
            labels,
            submitted_by,
            since_ms: params.number("since_ms")?,
            limit: params.limit(ROWS_DEFAULT, 1..=ROWS_MAX)?,
            before: params.number("before")?,
        })
    }

    fn lets_pass(&self, job: &EndedJobView) -> bool {
        let state = self.state.is_none_or(|state| state.has(job.outcome));
        let by = self.submitted_by.is_none() || self.submitted_by == job.submitted_by;
        let wanted = self.labels.as_deref().unwrap_or_default();
        state && by && super::listing::has_labels(wanted, |key| job.labels.get(key).map(String::as_str))
    }
}

pub(super) async fn list(State(shared): State<Shared>, params: Params) -> Answer<EndedList> {
    let filter = Filter::of(&params)?;
    let limit = filter.limit;
    let mut query = HistoryQuery {
        kind: Some(HistoryKind::Job),
        tenant: filter.tenant.clone(),
        name: filter.name.clone(),
        before: Some(filter.before.unwrap_or(u64::MAX)),
        since: filter.since_ms,
        limit: PIECE,
        ..HistoryQuery::default()
    };
    let mut jobs = Vec::new();
    for _ in 0..PIECES_MAX {
        let rows = read(&shared, query.clone()).await?;
        let last = rows.len() < PIECE;
        for row in rows {
            query.before = Some(row.index);
            jobs.extend(ended::view(&row).filter(|job| filter.lets_pass(job)));
            if jobs.len() == limit {
                return Ok(Json(EndedList { schema: schema_of::<EndedList>(), jobs, next: query.before }));
            }
        }
        if last {
            return Ok(Json(EndedList { schema: schema_of::<EndedList>(), jobs, next: None }));
        }
    }
    Ok(Json(EndedList { schema: schema_of::<EndedList>(), jobs, next: query.before }))
}

pub(super) async fn one(State(shared): State<Shared>, Path(reference): Path<String>) -> Answer<EndedReply> {
    let missing = || {
        Problem::new(Code::NoSuchJob, format!("history has no job {reference:?}"))
            .hint("jobs that are over: wharf get jobs --state all; older ones are gone after `keep` of history.yaml")
    };
    let ended = find(&shared, &reference).await?.ok_or_else(missing)?;
    let job = ended::view(&ended).ok_or_else(missing)?;
    let query = HistoryQuery {
        tenant: Some(ended.tenant.clone()),
        name: Some(ended.name.clone()),
        before: Some(ended.index.saturating_add(1)),
        limit: LIFE_ROWS_MAX,
        ..HistoryQuery::default()
    };
    let rows = read(&shared, query).await?;
    let shortened = rows.len() == LIFE_ROWS_MAX;
    let own = rows.into_iter().filter(|row| row.tenant == ended.tenant);
    let own: Vec<HistoryRow> = own.filter(|row| ended::uid(row).as_ref() == Some(&job.uid)).collect();
    let (held, lost) = gpu_time(&own);
    let submitted = TimelineView {
        at_ms: job.submitted_at_ms,
        what: "submitted".to_owned(),
        text: "submitted".to_owned(),
        eviction: None,
        actor: None,
    };
    let mut timeline: Vec<TimelineView> = own.iter().rev().filter_map(ended::entry).collect();
    timeline.insert(0, submitted);
    let schema = schema_of::<EndedReply>();
    Ok(Json(EndedReply { schema, job, timeline, shortened, held_gpu_s: held, lost_gpu_s: lost }))
}

/// GPU time that was held and lost, in GPU-seconds.
fn gpu_time(rows: &[HistoryRow]) -> (f64, f64) {
    let usage = rows.iter().filter(|row| row.kind == HistoryKind::Usage);
    let usage = usage.filter_map(|row| serde_json::from_str::<Usage>(&row.body).ok());
    let (held, lost) = usage.fold((0, 0), |(held, lost), usage| {
        let of_row: u128 = usage.segments.iter().map(|segment| segment.part_ms_within(0, u64::MAX)).sum();
        (held + of_row, lost + usage.lost_gpu_ms)
    });
    (gpu_seconds(gpu_ms(held)), gpu_seconds(lost))
}

/// The newest job that a reference means: `tenant/path/name`, a bare name, or a uid.
pub(super) async fn find(shared: &Shared, reference: &str) -> Result<Option<HistoryRow>, Refused> {
    let kind = Some(HistoryKind::Job);
    if super::jobs::parse_uid(reference).is_some() {
        let mut query =
            HistoryQuery { kind, before: Some(u64::MAX), limit: PIECE, ..HistoryQuery::default() };
        for _ in 0..PIECES_MAX {
            let rows = read(shared, query.clone()).await?;
            let Some(last) = rows.last() else { break };
            query.before = Some(last.index);
            if let Some(found) = rows.into_iter().find(|row| ended::uid(row).as_deref() == Some(reference)) {
                return Ok(Some(found));
            }
        }
        return Ok(None);
    }
    let (tenant, name) = match reference.rsplit_once('/') {
        Some((tenant, name)) => (Some(tenant.to_owned()), name),
        None => (None, reference),
    };
    let name = Some(name.to_owned());
    let query = HistoryQuery { kind, tenant: tenant.clone(), name, limit: PIECE, ..HistoryQuery::default() };
    let rows = read(shared, query).await?;
    Ok(rows.into_iter().find(|row| tenant.as_ref().is_none_or(|tenant| row.tenant == *tenant)))
}

pub(super) async fn read(shared: &Shared, query: HistoryQuery) -> Result<Vec<HistoryRow>, Refused> {
    let asked =
        shared.desk.read(move |replica| replica.history.find(&query).map_err(|fault| fault.to_string()));
    let rows = asked.await.map_err(closed)?;
    Ok(rows.map_err(|fault| Problem::new(Code::Internal, fault))?)
}
