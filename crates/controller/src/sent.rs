//! Which of the actions that are due were sent already. Lost at a restart without harm: every action may be
//! repeated.

use std::collections::BTreeMap;

use wharf_engine::action::Action;
use wharf_engine::input::TaskRef;
use wharf_engine::units::{Millis, Timestamp, Uid};

/// What makes two actions the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Start(Uid, u32, (u32, usize)),
    Ask(Uid, u32, (u32, usize), Timestamp),
    Stop(TaskRef, usize),
}

/// When each action was last sent.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    at: BTreeMap<Key, Timestamp>,
    acknowledged: u64,
}

impl Sent {
    /// Those that were not sent, or so long ago that they may be lost.
    pub(crate) fn new_ones(&mut self, due: Vec<Action>, now: Timestamp, resend: Millis) -> Vec<Action> {
        let mut kept = BTreeMap::new();
        let fresh = due.into_iter().filter(|action| self.is_new(action, now, resend, &mut kept)).collect();
        self.at = kept;
        fresh
    }

    fn is_new(
        &mut self,
        action: &Action,
        now: Timestamp,
        resend: Millis,
        kept: &mut BTreeMap<Key, Timestamp>,
    ) -> bool {
        let key = match action {
            Action::Start { attempt, job, tasks } => {
                Key::Start(job.uid, *attempt, (tasks[0].task, tasks.len()))
            }
            Action::AskCheckpoint { uid, attempt, tasks, deadline } => {
                Key::Ask(*uid, *attempt, (tasks[0], tasks.len()), *deadline)
            }
            Action::Stop { tasks, .. } => Key::Stop(tasks[0], tasks.len()),
            Action::Acknowledge { generation } => {
                return core::mem::replace(&mut self.acknowledged, *generation) != *generation;
            }
        };
        let before = self.at.get(&key).copied();
        let fresh = before.is_none_or(|sent| now >= sent + resend);
        kept.insert(key, if fresh { now } else { before.unwrap_or(now) });
        fresh
    }

    /// When the first of them is sent again.
    pub(crate) fn next_resend(&self, resend: Millis) -> Option<Timestamp> {
        self.at.values().min().map(|&sent| sent + resend)
    }
}
