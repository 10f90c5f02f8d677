//! How tasks and jobs end.

use serde::{Deserialize, Serialize};

/// What is known of a task's end beyond its [`Exit`]. A world that knows nothing says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ExitDetail {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<ExitCause>,
    /// The most memory of one GPU that it used, in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_peak_mib: Option<u32>,
    /// How busy it kept what it was given while it ran: the mean of SM_ACTIVE, in thousandths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_active_milli: Option<u16>,
}

impl From<ExitCause> for ExitDetail {
    fn from(cause: ExitCause) -> Self {
        Self { cause: Some(cause), ..Self::default() }
    }
}

/// Why a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitCause {
    Code(i32),
    Signal(u8),
    OutOfMemory,
    NodeLost,
    DeviceLost,
    StartRefused,
    /// The world no longer knows it.
    Missing,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    Succeeded,
    Failed,
    Stopped,
    /// Its node or device went away, or the world no longer knows it.
    Lost,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Succeeded,
    /// A task failed once too often.
    Failed,
    Cancelled,
    #[serde(rename = "time_limit")]
    TimedOut,
}
