//! What a world answers to an action.
//!
//! A world takes an action at once and carries it out in its own time. What became of it comes back with a report, under the
//! identity of the action: it is done, it is refused, or what it was about is gone. An action that was refused is never
//! carried out later: whoever still wants it sends it again, or decides otherwise.

use alloc::string::String;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use crate::model::observed::TaskRef;
use crate::units::{GpuMask, Uid};

/// The identity of an action. A start and a stop are about one task each, however many were sent together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ActionRef {
    /// A task was to run.
    Start(TaskRef),
    /// An attempt was to be asked to save its work.
    Ask { uid: Uid, attempt: u32 },
    /// A task was to stop.
    Stop(TaskRef),
    /// The owner of a job was to be told that it, or a change of it, is not taken.
    Reject(Uid),
    /// The owner of a job was to be told that it is over.
    Close(Uid),
}

/// What became of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub about: ActionRef,
    pub outcome: ActionOutcome,
}

/// How an action came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionOutcome {
    /// The world has taken it for good. What follows from it, a task that runs or ends, is reported as it happens.
    Done,
    /// The world does not do it.
    Refused { why: Denial },
    /// What it was about does not exist any more.
    Gone,
}

/// Why a world does not do what it was told.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr, VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(const_into_str)]
pub enum Denial {
    /// It has no node of that name.
    NodeUnknown,
    /// The node is there and takes no work.
    NodeNotReady,
    /// Somebody else has these GPUs of the node, or they cannot be divided like that now.
    DevicesTaken { gpus: GpuMask },
    /// These GPUs of the node have failed or are not there.
    DevicesFailed { gpus: GpuMask },
    /// So many thousandths of a core are missing.
    OutOfCpu { short_milli: u64 },
    /// So many bytes are missing.
    OutOfMemory { short: u64 },
    /// Somebody's policy forbids it: an admission webhook, a quota of the cluster.
    AdmissionDenied { message: Message },
    /// The image or the command cannot be started.
    CannotStart { message: Message },
    /// Who runs Wharf may not do that.
    NotPermitted { message: Message },
    /// Too many tasks of its kind are away already: a disruption budget is used up.
    DisruptionBudget,
    /// It was sent under an older term than one that the world has obeyed.
    StaleTerm { obeyed: u64 },
    /// The world cannot do such a thing at all.
    Unsupported,
}

/// A short text of somebody else's making, cut to [`Message::BYTES_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Message(String);

impl Message {
    /// Two lines of a terminal: enough for what a webhook says, and bounded because it stays with the job.
    pub const BYTES_MAX: usize = 160;

    /// The beginning of a text.
    pub fn cut(text: &str) -> Self {
        Self(String::from(&text[..text.floor_char_boundary(Self::BYTES_MAX)]))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_between_characters() {
        let long = "ü".repeat(Message::BYTES_MAX);
        let cut = Message::cut(&long);
        assert_eq!(cut.as_str().len(), Message::BYTES_MAX);
        let odd = alloc::format!("x{long}");
        assert_eq!(Message::cut(&odd).as_str().len(), Message::BYTES_MAX - 1);
        assert_eq!(Message::cut("short").as_str(), "short");
    }
}
