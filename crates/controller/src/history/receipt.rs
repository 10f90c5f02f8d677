//! Receipts: what happened to a job on its way, and why.

use serde::{Deserialize, Serialize};
use wharf_engine::model::exit::{Exit, ExitDetail};
use wharf_engine::state::jobs::event::{Canceller, RequeueWhy};

use super::{BookingReceipt, EvictionReceipt};
use crate::disk::HistoryRow;

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
        /// What all of them were given, in 1/3000 of a GPU.
        #[serde(default)]
        gpu_parts: u64,
    },
    /// More tasks of a job that runs got their places.
    Grown {
        /// Identity, in hexadecimal.
        uid: String,
        /// Their numbers.
        tasks: Vec<u32>,
        /// Node names in the same order.
        nodes: Vec<String>,
        /// What all of them were given, in 1/3000 of a GPU.
        gpu_parts: u64,
    },
    /// A task failed or was lost, or the job goes on without it.
    TaskEnded {
        /// Identity, in hexadecimal.
        uid: String,
        /// Which task.
        task: u32,
        /// Where it ran.
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
        /// Identity, in hexadecimal.
        uid: String,
        /// On whose behalf.
        by: String,
        /// World time in milliseconds.
        deadline: u64,
        /// Which of its tasks.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tasks: Vec<u32>,
    },
    /// Tasks that were asked saved their work.
    Saved {
        /// Identity, in hexadecimal.
        uid: String,
        /// Their numbers.
        tasks: Vec<u32>,
        /// World time in milliseconds.
        saved_at: u64,
    },
    /// Tasks that were asked could not save their work.
    SaveFailed {
        /// Identity, in hexadecimal.
        uid: String,
        /// Their numbers.
        tasks: Vec<u32>,
    },
    /// Tasks that were asked to leave may stay after all.
    Withdrawn {
        /// Identity, in hexadecimal.
        uid: String,
        /// Their numbers.
        tasks: Vec<u32>,
    },
    /// A gang fell below its minimum and waits to be repaired.
    Broken {
        /// Identity, in hexadecimal.
        uid: String,
        /// It ends then and waits whole; world time in milliseconds.
        deadline: u64,
    },
    /// A job that runs was cancelled.
    Cancelled {
        /// Identity, in hexadecimal.
        uid: String,
        /// Who did, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Canceller>,
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
            Ok(_) | Err(_) => None,
        }
    }
}
