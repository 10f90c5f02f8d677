//! Jobs that are over, as the API shows them: reasons and timelines in words.

use wharf_api::v1::{EndedAs, EndedJobView, TimelineView, gpus};
use wharf_controller::disk::{HistoryKind, HistoryRow};
use wharf_controller::history::{EndReason, EvictionReceipt, FinishedJob, Receipt};
use wharf_engine::model::actor::Actor;
use wharf_engine::model::exit::{Exit, ExitCause, ExitDetail, Outcome};
use wharf_engine::state::jobs::event::{Canceller, RequeueWhy};
use wharf_engine::units::{GpuUnits, Millis};

use crate::text::{gpus as gpus_text, span};

/// The job that a row tells of; `None` for every other row.
pub(crate) fn view(row: &HistoryRow) -> Option<EndedJobView> {
    let job: FinishedJob = serde_json::from_str(&row.body).ok().filter(|_| row.kind == HistoryKind::Job)?;
    let outcome = match job.outcome {
        Outcome::Succeeded => EndedAs::Succeeded,
        Outcome::Failed => EndedAs::Failed,
        Outcome::Cancelled => EndedAs::Cancelled,
        Outcome::TimedOut => EndedAs::TimeLimit,
    };
    let (reason, text) = why(&job);
    let exit_code = match job.reason {
        Some(EndReason::TaskFailed { cause: Some(ExitCause::Code(code)), .. }) => Some(code),
        Some(EndReason::TaskFailed { .. } | EndReason::TimeLimit { .. } | EndReason::Cancelled { .. })
        | None => None,
    };
    Some(EndedJobView {
        uid: job.uid,
        name: row.name.clone(),
        tenant: row.tenant.clone(),
        class: job.class,
        tasks: job.tasks,
        gpus_per_task: gpus(GpuUnits::from_parts(job.gpu_parts)),
        outcome,
        reason,
        text,
        exit_code,
        submitted_at_ms: job.submitted_at,
        first_start_ms: job.first_start,
        ended_at_ms: job.ended_at,
        ran_ms: job.ran_ms,
        time_limit_ms: job.time_limit_ms,
        attempts: job.attempts,
        evictions: job.evictions,
        failures: job.failures,
        ooms: job.ooms,
        memory_peak_mib: job.memory_peak_mib,
        labels: job.labels.into_iter().collect(),
        submitted_by: Some(job.submitted_by).filter(|by| !by.is_empty()),
    })
}

/// Why a job ended as it did: a token, and a sentence.
fn why(job: &FinishedJob) -> (Option<String>, String) {
    let (token, text) = match &job.reason {
        None if job.outcome == Outcome::Succeeded => return (None, "it succeeded".to_owned()),
        // Written by a version that did not ask why.
        None => ("Unknown", "why it ended is not recorded".to_owned()),
        Some(EndReason::TaskFailed { task, node, cause }) => {
            (cause.map_or("TaskFailed", token), format!("task {task} on {node} {}", failed(*cause)))
        }
        Some(EndReason::TimeLimit { limit_ms }) => {
            let limit = limit_ms.map(|limit| format!(" of {}", span(Millis(limit)))).unwrap_or_default();
            ("TimeLimit", format!("its time limit{limit} was up"))
        }
        Some(EndReason::Cancelled { by: by @ Some(Canceller::Dependency { .. }) }) => {
            ("DependencyFailed", cancelled(by.as_ref()))
        }
        Some(EndReason::Cancelled { by }) => ("Cancelled", cancelled(by.as_ref())),
    };
    (Some(token.to_owned()), text)
}

fn cancelled(by: Option<&Canceller>) -> String {
    match by {
        Some(Canceller::Person { who }) => format!("cancelled by {who}"),
        Some(Canceller::World) => "cancelled: its owner deleted it".to_owned(),
        Some(Canceller::Dependency { name }) => {
            format!("cancelled: {name}, which it waited for, did not succeed")
        }
        None => "cancelled".to_owned(),
    }
}

/// The stable word for why a task ended.
fn token(cause: ExitCause) -> &'static str {
    match cause {
        ExitCause::Code(_) => "ExitCode",
        ExitCause::Signal(_) => "Signal",
        ExitCause::OutOfMemory => "OutOfMemory",
        ExitCause::NodeLost => "NodeLost",
        ExitCause::DeviceLost => "DeviceLost",
        ExitCause::StartRefused => "StartRefused",
        ExitCause::Missing => "Missing",
    }
}

/// How a task failed, after its name.
pub(crate) fn failed(cause: Option<ExitCause>) -> String {
    match cause {
        None => "failed".to_owned(),
        Some(ExitCause::Code(code)) => format!("failed with exit code {code}"),
        Some(ExitCause::Signal(signal)) => format!("was ended by signal {signal}"),
        Some(ExitCause::OutOfMemory) => "was killed: it used more memory than it may".to_owned(),
        Some(ExitCause::NodeLost) => "was lost with its node".to_owned(),
        Some(ExitCause::DeviceLost) => "was lost with its GPU".to_owned(),
        Some(ExitCause::StartRefused) => "was not started by its node".to_owned(),
        Some(ExitCause::Missing) => "is gone: its node no longer knows it".to_owned(),
    }
}

/// The identity of the job that a row tells of.
pub(crate) fn uid(row: &HistoryRow) -> Option<String> {
    let body: serde_json::Value = serde_json::from_str(&row.body).ok()?;
    body.get("uid").and_then(|uid| uid.as_str()).map(str::to_owned)
}

/// A row as an entry of a timeline; rows about GPU time and about other things have none.
pub(crate) fn entry(row: &HistoryRow) -> Option<TimelineView> {
    let (what, text) = match row.kind {
        HistoryKind::Usage
        | HistoryKind::Allocation
        | HistoryKind::Carried
        | HistoryKind::Audit
        | HistoryKind::Guarantee => return None,
        HistoryKind::Job => {
            let job = view(row)?;
            ("ended", format!("ended: {}", job.text))
        }
        HistoryKind::Receipt | HistoryKind::Eviction => {
            happened(&serde_json::from_str::<Receipt>(&row.body).ok()?, row.actor.as_ref())?
        }
    };
    let eviction = (row.kind == HistoryKind::Eviction).then_some(row.index);
    let actor = row.actor.clone().map(Into::into);
    Some(TimelineView { at_ms: row.at, what: what.to_owned(), text, eviction, actor })
}

fn happened(receipt: &Receipt, actor: Option<&Actor>) -> Option<(&'static str, String)> {
    let by = actor.and_then(Actor::name).map(|name| format!(", says {name}")).unwrap_or_default();
    Some(match receipt {
        Receipt::Placed { attempt, nodes, gpu_parts, .. } => {
            let held = given(*gpu_parts);
            ("placed", format!("attempt {attempt} starts{held} on {}", listed(nodes)))
        }
        Receipt::Grown { tasks, nodes, gpu_parts, .. } => {
            let held = given(*gpu_parts);
            ("grown", format!("{} more{held} on {}", counted(tasks.len(), "task"), listed(nodes)))
        }
        Receipt::TaskEnded { task, node, exit, detail, .. } => {
            ("task_ended", format!("task {task} on {node} {}", ended(*exit, *detail)))
        }
        Receipt::Asked { by, tasks, .. } => {
            let whom = if tasks.is_empty() { "it".to_owned() } else { counted(tasks.len(), "task") };
            ("asked", format!("{whom} asked to save its work and leave: {}", by.replace('_', " ")))
        }
        Receipt::Saved { tasks, .. } => ("saved", format!("work saved ({})", counted(tasks.len(), "task"))),
        Receipt::SaveFailed { tasks, .. } => {
            ("save_failed", format!("work could not be saved ({})", counted(tasks.len(), "task")))
        }
        Receipt::Withdrawn { .. } => ("withdrawn", "it may stay after all".to_owned()),
        Receipt::Broken { .. } => {
            ("broken", "it lost tasks, is below its minimum and waits to be repaired".to_owned())
        }
        Receipt::Cancelled { by, .. } => ("cancelled", cancelled(by.as_ref())),
        Receipt::Evicted(receipt) => {
            let whole = if receipt.whole { "evicted" } else { "gives up tasks" };
            ("evicted", format!("{whole} for {} ({})", left_for(receipt), receipt.why.into_str()))
        }
        Receipt::Extended { limit_ms, .. } => {
            ("extended", format!("may run {} in all{by}", span(Millis(*limit_ms))))
        }
        Receipt::Scaled { replicas, before, .. } => {
            ("scaled", format!("{replicas} replicas wanted, before {before}{by}"))
        }
        Receipt::Requeued { why, ran_ms, .. } => {
            let why = match why {
                RequeueWhy::TaskFailed => "a task failed",
                RequeueWhy::NodeLost => "its tasks were lost",
                RequeueWhy::Evicted => "evicted",
                RequeueWhy::StartStuck => "it did not start in time",
                RequeueWhy::StartRefused => "its node refused to start it",
            };
            ("requeued", format!("waits again after {}: {why}", span(Millis(*ran_ms))))
        }
        Receipt::Booking(_) => return None,
    })
}

/// Whom or what it left for: of a drain, and of a window in which nobody runs yet, it is its own beneficiary.
fn left_for(receipt: &EvictionReceipt) -> String {
    let EvictionReceipt { beneficiary, beneficiary_tenant, .. } = receipt;
    match (&receipt.node, &receipt.booking) {
        (Some(node), _) => format!("node/{node}, which is to be empty"),
        (None, Some(booking)) if receipt.beneficiary_uid == receipt.uid => format!("booking/{booking}"),
        (None, _) => format!("{beneficiary_tenant}/{beneficiary}"),
    }
}

fn ended(exit: Option<Exit>, detail: ExitDetail) -> String {
    match exit {
        Some(Exit::Succeeded) => "ended".to_owned(),
        Some(Exit::Stopped) | None => "was stopped".to_owned(),
        Some(Exit::Failed) => failed(detail.cause),
        Some(Exit::Lost) => match detail.cause {
            None => "was lost".to_owned(),
            cause => failed(cause),
        },
    }
}

/// ` with 8 GPUs`; nothing for work without GPUs.
fn given(parts: u64) -> String {
    if parts == 0 {
        return String::new();
    }
    format!(" with {}", gpus_text(GpuUnits::from_parts(parts)))
}

/// Some of the nodes, each once.
fn listed(nodes: &[String]) -> String {
    const SHOWN_MAX: usize = 4;
    let mut each: Vec<&str> = nodes.iter().map(String::as_str).collect();
    each.dedup();
    let more = each.len().saturating_sub(SHOWN_MAX);
    let shown = each.iter().take(SHOWN_MAX).copied().collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown} and {}", counted(more, "more node")) } else { shown }
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
