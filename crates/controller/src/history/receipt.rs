//! Receipts: what happened to a job on its way, and why.

use serde::{Deserialize, Serialize};
use wharf_engine::model::exit::{Exit, ExitDetail};
use wharf_engine::state::jobs::event::{Canceller, RequeueWhy};

use super::{BookingReceipt, EvictionReceipt};
use crate::disk::HistoryRow;

/// The body of a receipt. A `uid` is the identity of the job, in hexadecimal; moments are in milliseconds of world time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Receipt {
    /// A gang got its places.
    Placed {
        uid: String,
        attempt: u32,
        /// Node names in task order.
        nodes: Vec<String>,
        /// The policy it was decided by; 0 when it was adopted.
        policy: u32,
        /// What all of them were given, in 1/3000 of a GPU.
        #[serde(default)]
        gpu_parts: u64,
    },
    /// More tasks of a job that runs got their places.
    Grown {
        uid: String,
        tasks: Vec<u32>,
        /// Node names in the same order.
        nodes: Vec<String>,
        /// What all of them were given, in 1/3000 of a GPU.
        gpu_parts: u64,
    },
    /// A task failed or was lost, or the job goes on without it.
    TaskEnded {
        uid: String,
        task: u32,
        node: String,
        /// How it ended; absent where an older version did not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit: Option<Exit>,
        /// What else is known of its end.
        #[serde(flatten)]
        detail: ExitDetail,
    },
    /// A job was asked to leave.
    Asked {
        uid: String,
        by: String,
        deadline: u64,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tasks: Vec<u32>,
    },
    /// Tasks that were asked saved their work.
    Saved { uid: String, tasks: Vec<u32>, saved_at: u64 },
    /// Tasks that were asked could not save their work.
    SaveFailed { uid: String, tasks: Vec<u32> },
    /// Tasks that were asked to leave may stay after all.
    Withdrawn { uid: String, tasks: Vec<u32> },
    /// A gang fell below its minimum and waits to be repaired.
    Broken {
        uid: String,
        /// It ends then and waits whole; world time in milliseconds.
        deadline: u64,
    },
    /// A job that runs was cancelled.
    Cancelled {
        uid: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Canceller>,
    },
    /// The rules took a job, or tasks of it, for another.
    Evicted(Box<EvictionReceipt>),
    /// A job may run longer.
    Extended { uid: String, limit_ms: u64, before_ms: Option<u64> },
    /// Another number of replicas of a service is wanted.
    Scaled { uid: String, replicas: u32, before: u32 },
    /// Something happened to a booked window; the row has its name.
    Booking(BookingReceipt),
    /// A job waits again.
    Requeued { uid: String, why: RequeueWhy, ran_ms: u64 },
}

impl EvictionReceipt {
    /// The receipt in a row about an eviction; `None` for every other row.
    pub fn of(row: &HistoryRow) -> Option<Self> {
        match serde_json::from_str(&row.body) {
            Ok(Receipt::Evicted(receipt)) => Some(*receipt),
            Ok(_) | Err(_) => None,
        }
    }
}
