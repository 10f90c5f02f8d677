//! The row of a job that ended: how, why, and what its life was like.

use serde::{Deserialize, Serialize};
use wharf_engine::model::dependency::ArrayMember;
use wharf_engine::model::exit::{Exit, ExitCause, Outcome};
use wharf_engine::state::State;
use wharf_engine::state::jobs::event::{Canceller, Failure};
use wharf_engine::units::{JobId, Timestamp};

use super::{node_name, uid};

/// The body of a row about a finished job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedJob {
    pub uid: String,
    pub class: String,
    pub tasks: u32,
    /// GPUs of one task, in 1/3000.
    pub gpu_parts: u64,
    pub outcome: Outcome,
    /// Why it ended so; absent for a job that succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<EndReason>,
    pub submitted_at: u64,
    pub first_start: Option<u64>,
    pub ended_at: u64,
    pub ran_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_ms: Option<u64>,
    pub attempts: u32,
    pub evictions: u32,
    /// How often a task of it failed, the last one included.
    pub failures: u32,
    /// How often a task of it was killed because it used more memory than it may.
    #[serde(default)]
    pub ooms: u32,
    /// The most memory of one GPU that a task of it used, in MiB, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_peak_mib: Option<u32>,
    pub labels: Vec<(String, String)>,
    /// Who submitted it, as the client said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub submitted_by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayOf>,
}

/// The array that a finished job was a member of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayOf {
    /// Identity of the array, in hexadecimal.
    pub id: String,
    pub name: String,
    pub index: u32,
    /// At most so many ran at a time.
    pub at_most: u32,
}

impl ArrayOf {
    fn of(member: &ArrayMember) -> Self {
        let ArrayMember { id, name, index, at_most } = member;
        Self { id: format!("{:032x}", id.0), name: name.clone(), index: *index, at_most: *at_most }
    }
}

/// Why a job ended without success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum EndReason {
    TaskFailed {
        task: u32,
        node: String,
        /// Why it failed, where the world knows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<ExitCause>,
    },
    TimeLimit {
        limit_ms: Option<u64>,
    },
    Cancelled {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Canceller>,
    },
}

/// The row's body, seen from the state before the end.
pub(super) fn finished(
    state: &State,
    id: JobId,
    outcome: Outcome,
    by: Option<&Canceller>,
    at: Timestamp,
) -> Option<FinishedJob> {
    let job = state.jobs.get(id)?;
    let holding = state.ledger.holding(id);
    // Earlier failures were counted when the job was queued again; the one that ends it is not followed by a try.
    let last = holding.is_some_and(|holding| holding.exits(Exit::Failed) > 0) && outcome == Outcome::Failed;
    let reason = match outcome {
        Outcome::Succeeded => None,
        Outcome::Failed => job.past.last_failure.map(|failure| failed(state, failure)),
        Outcome::TimedOut => Some(EndReason::TimeLimit { limit_ms: job.time_limit().map(|limit| limit.0) }),
        Outcome::Cancelled => Some(EndReason::Cancelled { by: by.or(job.cancelled_by.as_ref()).cloned() }),
    };
    Some(FinishedJob {
        uid: uid(job),
        class: job.spec.class.into_str().to_owned(),
        tasks: job.spec.tasks,
        gpu_parts: job.spec.shape.gpus.units().parts(),
        outcome,
        reason,
        submitted_at: job.submitted_at.0,
        first_start: job.past.first_start.map(|at| at.0),
        ended_at: at.0,
        ran_ms: job.past.ran_ms + holding.map_or(0, |holding| holding.ran(at)),
        time_limit_ms: job.time_limit().map(|limit| limit.0),
        attempts: job.past.attempts,
        evictions: job.past.evictions,
        failures: job.past.failures + u32::from(last),
        ooms: job.past.ooms,
        memory_peak_mib: job.past.memory_peak_mib,
        labels: job.spec.labels.clone(),
        submitted_by: job.spec.submitted_by.clone(),
        array: job.spec.array.as_ref().map(ArrayOf::of),
    })
}

fn failed(state: &State, failure: Failure) -> EndReason {
    let Failure { task, node, detail, at: _ } = failure;
    EndReason::TaskFailed { task, node: node_name(state, node), cause: detail.cause }
}
