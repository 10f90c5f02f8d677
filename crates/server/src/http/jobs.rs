//! Jobs: submit, plan, look, cancel, evict, extend, scale, replace.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use wharf_api::file::job::{JobFile, parse_job};
use wharf_api::file::lever::{parse_extension, parse_replacement, parse_scale};
use wharf_api::file::nearest;
use wharf_api::v1::{
    Code, Explanation, JobReply, JobView, PlanView, Problem, Submitted, VerdictWord, schema_of,
};
use wharf_controller::disk::{HistoryKind, HistoryQuery};
use wharf_controller::turn::{WhatIf, what_if};
use wharf_engine::decide::input::{Input, Request};
use wharf_engine::model::actor::Actor;
use wharf_engine::model::rejection::Rejection;
use wharf_engine::state::State as Engine;
use wharf_engine::state::jobs::event::Next;
use wharf_engine::state::jobs::{Job, Phase};
use wharf_engine::units::{JobId, TenantId, Uid};

use super::caller::Caller;
use super::{Refused, Shared, after, evictions};
use crate::desk::Decided;
use crate::rejection::{bad_file, closed, problem};
use crate::replica::Replica;
use crate::view::{self, placements, verdict_view};
use crate::{ended, eviction, leaving, text};

type Answer<T> = Result<Json<T>, Refused>;

/// Live jobs whose names are compared with one that is not there: enough for a team, cheap for a queue of 100,000.
const NAMES_COMPARED_MAX: usize = 10_000;
/// How often jobs to wait for are looked up again because one of them ended meanwhile.
const AFTER_TRIES_MAX: usize = 5;
/// Longer than any identifier that somebody would choose for a key.
const KEY_BYTES_MAX: usize = 256;

/// The file becomes an input with its actor; [`Desk::decide`](crate::desk::Desk::decide) has it decided, and
/// [`submitted`] shows what came of it.
pub(super) async fn submit(
    State(shared): State<Shared>,
    Caller(actor): Caller,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<Submitted>), Refused> {
    let job = read(&body)?;
    let uid = uid(&job, &headers)?;
    for _ in 0..AFTER_TRIES_MAX {
        let mut submission = job.submission(uid);
        submission.after = after::resolve(&shared, &job).await?;
        submission.spec.submitted_by = actor.name().unwrap_or_default().to_owned();
        let request = Request { actor: actor.clone(), input: Input::Submit(Box::new(submission)) };
        let decided = shared.desk.decide(request).await.map_err(closed)?;
        match submitted(decided, &job.devices.models) {
            Err(NotSubmitted::AfterEnded) => {}
            Err(NotSubmitted::Refused(problem)) => return Err((*problem).into()),
            Ok((job, created, members)) => {
                let status = if created { StatusCode::CREATED } else { StatusCode::OK };
                let schema = schema_of::<Submitted>();
                return Ok((status, Json(Submitted { schema, job, created, members })));
            }
        }
    }
    Err(Problem::new(
        Code::Unavailable,
        "the jobs that it is to wait for end faster than they can be looked up",
    )
    .hint("submit it again")
    .into())
}

/// Why a submission was not taken.
enum NotSubmitted {
    /// A job that it waits for ended meanwhile: history says how.
    AfterEnded,
    Refused(Box<Problem>),
}

/// The answer, from the state of the turn that decided the submission.
fn submitted(decided: Decided, models: &[String]) -> Result<(JobView, bool, Option<u32>), NotSubmitted> {
    let Decided { reply, replica, next_job_before } = decided;
    let state = &*replica.state;
    let refused = |rejection: &Rejection| {
        NotSubmitted::Refused(Box::new(unknown_model(state, models, problem(state, rejection))))
    };
    let id = match reply {
        Ok(id) => id.expect("a submission is about a job"),
        Err(Rejection::DependencyNotLive { .. }) => return Err(NotSubmitted::AfterEnded),
        Err(rejection) => return Err(refused(&rejection)),
    };
    // In the same turn somebody may have cancelled it.
    let shown = show(&replica, id).ok_or_else(|| refused(&Rejection::UidEnded))?;
    let member = state.jobs.get(id).and_then(|job| job.spec.array.as_ref());
    let array = member.and_then(|member| state.jobs.array(member.id));
    let members = array.map(|array| u32::try_from(array.members.len()).unwrap_or(u32::MAX));
    Ok((shown, id >= next_job_before, members))
}

pub(super) async fn plan(State(shared): State<Shared>, body: Bytes) -> Answer<PlanView> {
    let job = read(&body)?;
    let mut submission = job.submission(fresh_uid()?);
    submission.after = after::resolve(&shared, &job).await?;
    let models = job.devices.models.clone();
    let asked = shared.desk.read(move |replica| {
        let tried = what_if(&replica.state, &replica.strings, &submission, replica.now());
        let tried = tried.map_err(|rejection| {
            unknown_model(&replica.state, &models, problem(&replica.state, &rejection))
        })?;
        Ok::<_, Problem>(planned(replica, &tried))
    });
    Ok(Json(asked.await.map_err(closed)??))
}

/// A job that can never run because the fleet has no model that it names is told which it has.
fn unknown_model(state: &Engine, models: &[String], refused: Problem) -> Problem {
    let known: Vec<&str> =
        state.fleet.pools().iter().map(String::as_str).filter(|model| !model.is_empty()).collect();
    let strange = models.iter().all(|model| !known.contains(&model.as_str()));
    let Some(first) = models.first().filter(|_| refused.code == Code::Never && strange) else {
        return refused;
    };
    let near = nearest(first, &known).map(|near| format!("did you mean {near}? ")).unwrap_or_default();
    let what = format!("it can never run: this fleet has no GPUs of model {}", models.join(" or "));
    Problem::new(Code::Never, what).hint(format!("{near}its models are: {}", known.join(", ")))
}

fn planned(replica: &Replica, tried: &WhatIf) -> PlanView {
    let WhatIf { state, job, victims } = tried;
    let verdict = state.verdict(*job, replica.now()).expect("it was just accepted");
    let mut verdict = verdict_view(state, *job, &verdict, replica.now());
    let known = state.jobs.get(*job).expect("it was just accepted");
    let mut placements = placements(state, known, state.ledger.holding(*job));
    if !placements.is_empty() {
        verdict.verdict = VerdictWord::RunnableNow;
        "it can start now".clone_into(&mut verdict.text);
        verdict.reason = Some("Startable".to_owned());
    } else if let Some(earmark) = leaving::earmark(state, *job) {
        placements = earmark.places;
        let who = text::still_there(state, *job).unwrap_or_else(|| "none".to_owned());
        verdict.text = format!("it would start when the jobs that have to leave for it are gone: {who}");
    }
    verdict.basis = replica.state.index();
    let would_preempt = victims.iter().filter_map(|evicted| eviction::victim(state, evicted)).collect();
    PlanView { schema: schema_of::<PlanView>(), verdict, placements, would_preempt }
}

pub(super) async fn one(State(shared): State<Shared>, Path(name): Path<String>) -> Answer<JobReply> {
    let job = look(&shared, name).await?;
    Ok(Json(JobReply { schema: schema_of::<JobReply>(), job, members: None, actor: None }))
}

pub(super) async fn explain(State(shared): State<Shared>, Path(name): Path<String>) -> Answer<Explanation> {
    let asked = shared.desk.read(move |replica| {
        let id = find(replica, &name)?;
        let job = show(replica, id).expect("it was just found");
        evictions::explanation(replica, id, job)
    });
    Ok(Json(asked.await.map_err(closed)??))
}

async fn look(shared: &Shared, name: String) -> Result<JobView, Refused> {
    let looked = shared.desk.read(move |replica| {
        let id = find(replica, &name)?;
        Ok::<_, Problem>(show(replica, id).expect("it was just found"))
    });
    Ok(looked.await.map_err(closed)??)
}

pub(super) async fn cancel(
    State(shared): State<Shared>,
    Caller(actor): Caller,
    Path(name): Path<String>,
) -> Answer<JobReply> {
    let asked = shared.desk.read_first({
        let name = name.clone();
        move |replica| match meant(&replica.state, &name)? {
            Some(Meant::Array(id)) => Ok(of_array(replica, id)),
            Some(Meant::Job(_)) | None => Ok::<_, Problem>(None),
        }
    });
    match asked.await.map_err(closed)?? {
        Some(found) => cancel_array(&shared, actor, found).await,
        None => act(&shared, actor, name, |job| Input::Cancel { job }).await,
    }
}

/// An array, its first member, and how many of them are not on their way out for good.
fn of_array(replica: &Replica, id: Uid) -> Option<(Uid, JobView, u32)> {
    let state = &*replica.state;
    let members = &state.jobs.array(id)?.members;
    let ends = |job: &Job| matches!(job.phase, Phase::Leaving(Next::End(_)));
    let left = members.iter().filter(|&&member| state.jobs.get(member).is_some_and(|job| !ends(job))).count();
    Some((id, show(replica, *members.first()?)?, u32::try_from(left).unwrap_or(u32::MAX)))
}

async fn cancel_array(
    shared: &Shared,
    actor: Actor,
    (array, first, members): (Uid, JobView, u32),
) -> Answer<JobReply> {
    let (by, input) = (actor.clone().into(), Input::CancelArray { array });
    let Decided { reply, replica, .. } =
        shared.desk.decide(Request { actor, input }).await.map_err(closed)?;
    let id = reply.map_err(|rejection| problem(&replica.state, &rejection))?;
    let job = id.and_then(|id| show(&replica, id)).unwrap_or(first);
    Ok(Json(JobReply { schema: schema_of::<JobReply>(), job, members: Some(members), actor: Some(by) }))
}

pub(super) async fn evict(
    State(shared): State<Shared>,
    Caller(actor): Caller,
    Path(name): Path<String>,
) -> Answer<JobReply> {
    act(&shared, actor, name, |job| Input::Evict { job }).await
}

pub(super) async fn release(
    State(shared): State<Shared>,
    Caller(actor): Caller,
    Path(name): Path<String>,
) -> Answer<JobReply> {
    act(&shared, actor, name, |job| Input::Release { job }).await
}

pub(super) async fn extend(
    State(shared): State<Shared>,
    Caller(actor): Caller,
    Path(name): Path<String>,
    body: Bytes,
) -> Answer<JobReply> {
    let to = parse_extension("request body", utf8(&body)?).map_err(|error| bad_file(&error))?;
    act(&shared, actor, name, move |job| Input::Extend { job, to }).await
}

pub(super) async fn scale(
    State(shared): State<Shared>,
    Caller(actor): Caller,
    Path(name): Path<String>,
    body: Bytes,
) -> Answer<JobReply> {
    let tasks = parse_scale("request body", utf8(&body)?).map_err(|error| bad_file(&error))?;
    act(&shared, actor, name, move |job| Input::Scale { job, tasks }).await
}

pub(super) async fn replace(
    State(shared): State<Shared>,
    Caller(actor): Caller,
    Path(name): Path<String>,
    body: Bytes,
) -> Answer<JobReply> {
    let how = parse_replacement("request body", utf8(&body)?).map_err(|error| bad_file(&error))?;
    act(&shared, actor, name, move |job| Input::Replace { job, how }).await
}

/// An input about a job, answered with the job as it was before, or as it is while it leaves.
async fn act(
    shared: &Shared,
    actor: Actor,
    name: String,
    input: impl FnOnce(JobId) -> Input,
) -> Answer<JobReply> {
    let found = shared.desk.read_first(move |replica| {
        let id = find(replica, &name)?;
        Ok::<_, Problem>((id, show(replica, id).expect("it was just found")))
    });
    let (id, before) = found.await.map_err(closed)??;
    let (by, input) = (actor.clone().into(), input(id));
    let Decided { reply, replica, .. } =
        shared.desk.decide(Request { actor, input }).await.map_err(closed)?;
    reply.map_err(|rejection| problem(&replica.state, &rejection))?;
    let job = show(&replica, id).unwrap_or(before);
    Ok(Json(JobReply { schema: schema_of::<JobReply>(), job, members: None, actor: Some(by) }))
}

pub(super) fn show(replica: &Replica, id: JobId) -> Option<JobView> {
    let job = replica.state.jobs.get(id)?;
    Some(view::job(replica, id, job))
}

/// What a reference means among what is live.
#[derive(Clone, Copy)]
pub(super) enum Meant {
    Job(JobId),
    Array(Uid),
}

/// The live job or array that a reference means: `tenant/path/name`, a bare name, or a uid.
pub(super) fn meant(state: &Engine, reference: &str) -> Result<Option<Meant>, Problem> {
    if let Some(job) = parse_uid(reference).and_then(|uid| state.jobs.with_uid(uid)) {
        return Ok(Some(Meant::Job(job)));
    }
    if let Some((tenant, name)) = reference.rsplit_once('/') {
        return Ok(state.tenants.named(tenant).and_then(|tenant| named(state, tenant, name)));
    }
    let of_tenant = |tenant| named(state, tenant, reference).map(|meant| (tenant, meant));
    let found: Vec<(TenantId, Meant)> = state.tenants.ids().filter_map(of_tenant).collect();
    match found.as_slice() {
        [] => Ok(None),
        [(_, one)] => Ok(Some(*one)),
        many => Err(ambiguous(state, reference, many.iter().map(|(tenant, _)| *tenant))),
    }
}

fn named(state: &Engine, tenant: TenantId, name: &str) -> Option<Meant> {
    let array = || state.jobs.array_named(tenant, name).map(|(id, _)| Meant::Array(id));
    state.jobs.named(tenant, name).map(Meant::Job).or_else(array)
}

fn ambiguous(state: &Engine, name: &str, tenants: impl Iterator<Item = TenantId>) -> Problem {
    let path = |tenant| format!("{}/{name}", state.tenants.path(tenant));
    let all: Vec<String> = tenants.take(8).map(path).collect();
    Problem::new(Code::AmbiguousJob, format!("more than one tenant has a job named {name:?}"))
        .hint(format!("say which: {}", all.join(", ")))
}

/// The live job that a reference means.
pub(super) fn find(replica: &Replica, reference: &str) -> Result<JobId, Problem> {
    match meant(&replica.state, reference)? {
        Some(Meant::Job(job)) => Ok(job),
        Some(Meant::Array(_)) => {
            Err(Problem::new(Code::NoSuchJob, format!("{reference:?} is an array; this is about one job"))
                .hint(format!("its jobs: wharf explain job/{reference}")))
        }
        None => Err(missing(replica, reference)),
    }
}

pub(super) fn parse_uid(text: &str) -> Option<Uid> {
    let hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    hex.then(|| u128::from_str_radix(text, 16).ok().map(Uid)).flatten()
}

/// A job that is not live may have ended; history knows how.
fn missing(replica: &Replica, reference: &str) -> Problem {
    let name = reference.rsplit('/').next().unwrap_or(reference);
    let kind = Some(HistoryKind::Job);
    let query = HistoryQuery { kind, name: Some(name.to_owned()), limit: 1, ..HistoryQuery::default() };
    let past = replica.history.find(&query).ok().and_then(|mut rows| rows.pop());
    let problem = Problem::new(Code::NoSuchJob, format!("there is no live job {reference:?}"));
    match past.as_ref().and_then(ended::view) {
        Some(job) => problem.hint(format!(
            "a job of that name ended ({}): wharf explain job/{}/{}",
            job.outcome.into_str().replace('_', " "),
            job.tenant,
            job.name
        )),
        None => problem.hint(nearest_job(&replica.state, reference)),
    }
}

/// The live job that was perhaps meant.
fn nearest_job(state: &Engine, reference: &str) -> String {
    let path = |job: &Job| format!("{}/{}", state.tenants.path(job.spec.tenant), job.spec.name);
    let jobs = || state.jobs.iter().take(NAMES_COMPARED_MAX).map(|(_, job)| job);
    let names: Vec<&str> = jobs().map(|job| job.spec.name.as_str()).collect();
    let last = reference.rsplit('/').next().unwrap_or(reference);
    let near = nearest(last, &names).and_then(|near| jobs().find(|job| job.spec.name == near));
    match near {
        Some(near) => format!("did you mean {}? All of them: wharf get jobs", path(near)),
        None => "list them with: wharf get jobs".to_owned(),
    }
}

fn read(body: &Bytes) -> Result<JobFile, Refused> {
    Ok(parse_job("request body", utf8(body)?).map_err(|error| bad_file(&error))?)
}

pub(super) fn utf8(body: &Bytes) -> Result<&str, Refused> {
    Ok(std::str::from_utf8(body).map_err(|_| Problem::new(Code::BadRequest, "the body is not UTF-8"))?)
}

/// The same key for the same tenant is the same job.
fn uid(job: &JobFile, headers: &HeaderMap) -> Result<Uid, Refused> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(fresh_uid()?) };
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        let what = format!("an Idempotency-Key has 1 to {KEY_BYTES_MAX} bytes");
        return Err(Problem::new(Code::BadRequest, what)
            .hint("leave it out, or give a new one for every job")
            .into());
    }
    let tenant = job.submission(Uid(0)).tenant;
    let hash =
        blake3::Hasher::new().update(tenant.as_bytes()).update(b"\0").update(key.as_bytes()).finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.as_bytes()[..16]);
    Ok(Uid(u128::from_be_bytes(bytes)))
}

pub(super) fn fresh_uid() -> Result<Uid, Problem> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Problem::new(Code::Internal, format!("no random numbers to be had: {error}")))?;
    Ok(Uid(u128::from_be_bytes(bytes)))
}
