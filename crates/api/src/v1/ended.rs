//! Jobs that are over: how each ended, why, and its life as a timeline.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use super::ActorView;

/// A job that ended, as history keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndedJobView {
    /// Its identity, 32 hexadecimal digits.
    pub uid: String,
    /// Its name; later jobs may have the same.
    pub name: String,
    /// Path of the tenant.
    pub tenant: String,
    /// `inference`, `interactive` or `batch`.
    pub class: String,
    /// Wanted tasks.
    pub tasks: u32,
    /// GPUs of one task.
    pub gpus_per_task: f64,
    /// How it ended.
    pub outcome: EndedAs,
    /// Why it did not succeed, as a token of a closed list; `null` for a job that did.
    pub reason: Option<String>,
    /// The same in one sentence.
    pub text: String,
    /// Exit code of the task that failed, where it is known.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// When it was submitted.
    pub submitted_at_ms: u64,
    /// When it first started; `null` where it never did.
    pub first_start_ms: Option<u64>,
    /// When it ended.
    pub ended_at_ms: u64,
    /// How long all of its attempts ran.
    pub ran_ms: u64,
    /// How long they might have; `null` where nothing limited it.
    #[serde(default)]
    pub time_limit_ms: Option<u64>,
    /// How often it was started.
    pub attempts: u32,
    /// How often it was evicted.
    pub evictions: u32,
    /// How often a task of it failed.
    pub failures: u32,
    /// How often a task of it was killed because it used more memory than it may.
    pub ooms: u32,
    /// The most memory of one GPU that a task of it used, in MiB; `null` where that is not known.
    pub memory_peak_mib: Option<u32>,
    /// Trace labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Who submitted it, as the client said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_by: Option<String>,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum EndedAs {
    /// Every task succeeded.
    Succeeded,
    /// A task failed once too often.
    Failed,
    /// Somebody cancelled it.
    Cancelled,
    /// It ran as long as it may.
    TimeLimit,
}

impl EndedAs {
    /// The word for it, the same everywhere.
    pub fn into_str(self) -> &'static str {
        self.into()
    }
}

/// Which jobs that are over are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum EndedState {
    /// Those that succeeded.
    Done,
    /// Those that failed or ran into their time limit.
    Failed,
    /// Those that were cancelled.
    Cancelled,
}

impl EndedState {
    /// The word for it, the same everywhere.
    pub fn into_str(self) -> &'static str {
        self.into()
    }

    /// True for a job that ended like that.
    pub fn has(self, outcome: EndedAs) -> bool {
        match self {
            Self::Done => outcome == EndedAs::Succeeded,
            Self::Failed => matches!(outcome, EndedAs::Failed | EndedAs::TimeLimit),
            Self::Cancelled => outcome == EndedAs::Cancelled,
        }
    }
}

/// Jobs that are over, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndedList {
    /// `wharf.v1.ended`.
    pub schema: String,
    /// Newest first.
    pub jobs: Vec<EndedJobView>,
    /// What to pass as `before` for those that follow; `null` at the end.
    pub next: Option<u64>,
}

/// The life of a job that is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndedReply {
    /// `wharf.v1.ended-job`.
    pub schema: String,
    /// The job.
    pub job: EndedJobView,
    /// What happened to it, oldest first.
    pub timeline: Vec<TimelineView>,
    /// True where the oldest entries are left out.
    pub shortened: bool,
    /// GPU time that it held, in GPU-seconds.
    pub held_gpu_s: f64,
    /// The part of it that was thrown away: work since the last checkpoint before an eviction, a loss or a failure.
    pub lost_gpu_s: f64,
}

/// Something that happened to a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineView {
    /// When.
    pub at_ms: u64,
    /// What, as a stable word.
    pub what: String,
    /// What, in words.
    pub text: String,
    /// Id of the eviction, where it was one: `wharf explain eviction/ID`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eviction: Option<u64>,
    /// Who did it; `null` where that is not known.
    #[serde(default)]
    pub actor: Option<ActorView>,
}
