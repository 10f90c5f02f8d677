//! What history learns from events: finished jobs and receipts. State holds live things only.

mod booking;
mod eviction;

use serde::{Deserialize, Serialize};
use wharf_engine::event::{Asker, Event, JobsEvent, LedgerEvent, Next, Outcome, RequeueWhy};
use wharf_engine::jobs::{Job, Phase};
use wharf_engine::state::State;
use wharf_engine::units::{JobId, Timestamp};

use crate::disk::{HistoryKind, HistoryRow, Index};

pub use booking::BookingReceipt;
pub use eviction::{EvictionReceipt, Resource, Stood};

/// The body of a row about a finished job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedJob {
    /// Identity, in hexadecimal.
    pub uid: String,
    /// Class word.
    pub class: String,
    /// Wanted tasks.
    pub tasks: u32,
    /// GPUs of one task, in 1/3000.
    pub gpu_parts: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// World time in milliseconds.
    pub submitted_at: u64,
    /// World time in milliseconds.
    pub first_start: Option<u64>,
    /// World time in milliseconds.
    pub ended_at: u64,
    /// How long all attempts ran.
    pub ran_ms: u64,
    /// How long they might have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_ms: Option<u64>,
    /// How often it was started.
    pub attempts: u32,
    /// How often it was evicted.
    pub evictions: u32,
    /// How often a task of it failed.
    pub failures: u32,
    /// Trace labels.
    pub labels: Vec<(String, String)>,
}

/// The body of a receipt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Receipt {
    /// A gang got its places.
    Placed {
        /// Identity, in hexadecimal.
        uid: String,
        /// Which try.
        attempt: u32,
        /// Node names in task order.
        nodes: Vec<String>,
        /// The policy it was decided by; 0 when it was adopted.
        policy: u32,
    },
    /// A job was asked to leave.
    Asked {
        /// Identity, in hexadecimal.
        uid: String,
        /// On whose behalf.
        by: String,
        /// World time in milliseconds.
        deadline: u64,
    },
    /// The rules took a job, or tasks of it, for another.
    Evicted(Box<EvictionReceipt>),
    /// A job may run longer.
    Extended {
        /// Identity, in hexadecimal.
        uid: String,
        /// In all, in milliseconds.
        limit_ms: u64,
        /// Before that.
        before_ms: Option<u64>,
    },
    /// Another number of replicas of a service is wanted.
    Scaled {
        /// Identity, in hexadecimal.
        uid: String,
        /// So many.
        replicas: u32,
        /// Before that.
        before: u32,
    },
    /// Something happened to a booked window; the row has its name.
    Booking(BookingReceipt),
    /// A job waits again.
    Requeued {
        /// Identity, in hexadecimal.
        uid: String,
        /// Why.
        why: RequeueWhy,
        /// How long the attempt ran.
        ran_ms: u64,
    },
}

impl EvictionReceipt {
    /// The receipt in a row about an eviction; `None` for every other row.
    pub fn of(row: &HistoryRow) -> Option<Self> {
        match serde_json::from_str(&row.body) {
            Ok(Receipt::Evicted(receipt)) => Some(*receipt),
            Ok(
                Receipt::Placed { .. }
                | Receipt::Asked { .. }
                | Receipt::Extended { .. }
                | Receipt::Scaled { .. }
                | Receipt::Booking(_)
                | Receipt::Requeued { .. },
            )
            | Err(_) => None,
        }
    }
}

/// The row that an event adds to history, seen from the state before it.
pub fn project(state: &State, event: &Event, index: Index, now: Timestamp) -> Option<HistoryRow> {
    let (id, kind, body) = match event {
        Event::Jobs(JobsEvent::Ended { job, outcome, at }) => {
            (*job, HistoryKind::Job, json(&finished(state, *job, *outcome, *at)?))
        }
        Event::Ledger(LedgerEvent::Started { job, attempt, tasks, policy, .. }) => {
            let name =
                |node| state.fleet.node(node).map_or_else(|| "?".to_owned(), |node| node.facts.name.clone());
            let nodes = tasks.iter().map(|task| name(task.node)).collect();
            let uid = uid(state.jobs.get(*job)?);
            (
                *job,
                HistoryKind::Receipt,
                json(&Receipt::Placed { uid, attempt: *attempt, nodes, policy: *policy }),
            )
        }
        Event::Ledger(LedgerEvent::Asked { job, by, deadline, .. }) => {
            let uid = uid(state.jobs.get(*job)?);
            let by = match by {
                Asker::Lever { who } => who.clone(),
                Asker::Rules { why, .. } => why.word().to_owned(),
                Asker::Limit => "time_limit".to_owned(),
                Asker::Scale => "scale".to_owned(),
                Asker::Booking { .. } => "booking".to_owned(),
                Asker::Replace => "replace".to_owned(),
            };
            (*job, HistoryKind::Receipt, json(&Receipt::Asked { uid, by, deadline: deadline.0 }))
        }
        Event::Ledger(LedgerEvent::Evicted { job, tasks, receipt, .. }) => {
            let body = eviction::receipt(state, *job, tasks, receipt)?;
            (*job, HistoryKind::Eviction, json(&Receipt::Evicted(Box::new(body))))
        }
        Event::Jobs(JobsEvent::Extended { job, limit, .. }) => {
            let known = state.jobs.get(*job)?;
            let before_ms = known.time_limit().map(|limit| limit.0);
            let body = Receipt::Extended { uid: uid(known), limit_ms: limit.0, before_ms };
            (*job, HistoryKind::Receipt, json(&body))
        }
        Event::Jobs(JobsEvent::Scaled { job, tasks, .. }) => {
            let known = state.jobs.get(*job)?;
            let body = Receipt::Scaled { uid: uid(known), replicas: *tasks, before: known.spec.tasks };
            (*job, HistoryKind::Receipt, json(&body))
        }
        Event::Jobs(JobsEvent::Requeued { job, at, .. }) => {
            let known = state.jobs.get(*job)?;
            let Phase::Leaving(Next::Requeue(why)) = known.phase else { return None };
            let ran_ms = state.ledger.holding(*job).map_or(0, |holding| holding.ran(*at));
            (*job, HistoryKind::Receipt, json(&Receipt::Requeued { uid: uid(known), why, ran_ms }))
        }
        Event::Bookings(event) => return booking::row(state, event, index, now),
        Event::Fleet(_)
        | Event::Tenants(_)
        | Event::Jobs(_)
        | Event::Ledger(_)
        | Event::Promises(_)
        | Event::Demand(_)
        | Event::Reservations(_)
        | Event::Attained(_)
        | Event::Past(_) => return None,
    };
    let job = state.jobs.get(id)?;
    let tenant = state.tenants.path(job.spec.tenant).to_owned();
    Some(HistoryRow { index, kind, at: now.0, tenant, name: job.spec.name.clone(), body })
}

fn finished(state: &State, id: JobId, outcome: Outcome, at: Timestamp) -> Option<FinishedJob> {
    let job = state.jobs.get(id)?;
    let last_attempt = state.ledger.holding(id).map_or(0, |holding| holding.ran(at));
    Some(FinishedJob {
        uid: uid(job),
        class: job.spec.class.word().to_owned(),
        tasks: job.spec.tasks,
        gpu_parts: job.spec.shape.gpus.units().parts(),
        outcome,
        submitted_at: job.submitted_at.0,
        first_start: job.past.first_start.map(|at| at.0),
        ended_at: at.0,
        ran_ms: job.past.ran_ms + last_attempt,
        time_limit_ms: job.time_limit().map(|limit| limit.0),
        attempts: job.past.attempts,
        evictions: job.past.evictions,
        failures: job.past.failures,
        labels: job.spec.labels.clone(),
    })
}

fn uid(job: &Job) -> String {
    format!("{:032x}", job.uid.0)
}

fn json(body: &impl Serialize) -> String {
    serde_json::to_string(body).expect("a struct of strings and numbers always encodes")
}
