//! What history learns from events: finished jobs and receipts. State holds live things only.

use serde::{Deserialize, Serialize};
use wharf_engine::event::{Asker, Event, Eviction, JobsEvent, LedgerEvent, Next, Outcome, RequeueWhy, Why};
use wharf_engine::jobs::{Job, Phase};
use wharf_engine::state::State;
use wharf_engine::units::{JobId, Timestamp};

use crate::disk::{HistoryKind, HistoryRow, Index};

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

/// Why something had to leave, for whom, and at what price.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvictionReceipt {
    /// Identity of who had to leave, in hexadecimal.
    pub uid: String,
    /// Which tasks of it.
    pub tasks: Vec<u32>,
    /// All of it, or surplus tasks of an elastic job.
    pub whole: bool,
    /// By which rule.
    pub why: Why,
    /// Identity of who benefits, in hexadecimal.
    pub beneficiary_uid: String,
    /// Whose job that is.
    pub beneficiary_tenant: String,
    /// And its name.
    pub beneficiary: String,
    /// Work of each task since its last checkpoint.
    pub lost_ms: u64,
    /// Lost work and restart.
    pub cost_gpu_ms: u64,
    /// What the beneficiary gains by not waiting; a guarantee does not ask.
    pub gain_gpu_ms: Option<u64>,
    /// The tenant that this carries below its line, where one job could not be divided.
    pub below_line: Option<String>,
    /// By so much of what is short: 1/3000 of a GPU, thousandths of a core, or bytes.
    pub below_line_by: Option<u64>,
    /// The policy it was decided by.
    pub policy: u32,
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
            };
            (*job, HistoryKind::Receipt, json(&Receipt::Asked { uid, by, deadline: deadline.0 }))
        }
        Event::Ledger(LedgerEvent::Evicted { job, tasks, receipt, .. }) => {
            let body = evicted(state, *job, tasks, receipt)?;
            (*job, HistoryKind::Receipt, json(&Receipt::Evicted(Box::new(body))))
        }
        Event::Jobs(JobsEvent::Requeued { job, at, .. }) => {
            let known = state.jobs.get(*job)?;
            let Phase::Leaving(Next::Requeue(why)) = known.phase else { return None };
            let ran_ms = state.ledger.holding(*job).map_or(0, |holding| holding.ran(*at));
            (*job, HistoryKind::Receipt, json(&Receipt::Requeued { uid: uid(known), why, ran_ms }))
        }
        Event::Fleet(_) | Event::Tenants(_) | Event::Jobs(_) | Event::Ledger(_) | Event::Promises(_) => {
            return None;
        }
    };
    let job = state.jobs.get(id)?;
    let tenant = state.tenants.path(job.spec.tenant).to_owned();
    Some(HistoryRow { index, kind, at: now.0, tenant, name: job.spec.name.clone(), body })
}

fn evicted(state: &State, job: JobId, tasks: &[u32], receipt: &Eviction) -> Option<EvictionReceipt> {
    let Eviction { why, beneficiary, whole, lost, cost, gain, straddles, policy } = receipt;
    let (victim, winner) = (state.jobs.get(job)?, state.jobs.get(*beneficiary)?);
    Some(EvictionReceipt {
        uid: uid(victim),
        tasks: tasks.to_vec(),
        whole: *whole,
        why: *why,
        beneficiary_uid: uid(winner),
        beneficiary_tenant: state.tenants.path(winner.spec.tenant).to_owned(),
        beneficiary: winner.spec.name.clone(),
        lost_ms: lost.0,
        cost_gpu_ms: *cost,
        gain_gpu_ms: *gain,
        below_line: straddles.map(|straddle| state.tenants.path(straddle.tenant).to_owned()),
        below_line_by: straddles.map(|straddle| straddle.short),
        policy: *policy,
    })
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
