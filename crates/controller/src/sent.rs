//! Which of the actions that are due the world was told already, task by task. Lost at a restart without harm: every
//! action may be repeated.
//!
//! A start and a stop say something of each of their tasks, so each task is remembered by itself and only those that
//! are new go out. An ask says who is asked together (the coordinator of a job that leaves whole speaks for all
//! ranks), so it is remembered, and repeated, as one.

use std::collections::BTreeMap;

use wharf_engine::model::action::{Action, StartTask};
use wharf_engine::model::observed::TaskRef;
use wharf_engine::units::{Millis, Timestamp, Uid};

/// What something was said about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum About {
    Start(TaskRef),
    Ask(Uid, u32),
    Stop(TaskRef),
}

/// What was said.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Start(StartTask),
    Ask { tasks: Vec<u32>, deadline: Timestamp },
    Stop { deadline: Timestamp },
}

/// What was said last, and when.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    at: BTreeMap<About, (Said, Timestamp)>,
    acknowledged: u64,
}

impl Sent {
    /// What the world was not told, or so long ago that it may be lost. Forgets what is no longer due. Nothing counts
    /// as sent before it is [marked](Self::mark).
    pub(crate) fn unsent(&mut self, due: Vec<Action>, now: Timestamp, resend: Millis) -> Vec<Action> {
        let mut before = core::mem::take(&mut self.at);
        let mut is_unsent = |about: About, same: &dyn Fn(&Said) -> bool| match before.remove(&about) {
            Some((said, at)) if same(&said) => {
                self.at.insert(about, (said, at));
                now >= at + resend
            }
            Some(_) | None => true,
        };
        let mut unsent = Vec::new();
        for action in due {
            match action {
                Action::Start { attempt, job, mut tasks } => {
                    tasks.retain(|start| {
                        let task = TaskRef { uid: job.uid, task: start.task, attempt };
                        is_unsent(
                            About::Start(task),
                            &|said| matches!(said, Said::Start(before) if before == start),
                        )
                    });
                    if !tasks.is_empty() {
                        unsent.push(Action::Start { attempt, job, tasks });
                    }
                }
                Action::AskCheckpoint { uid, attempt, tasks, deadline } => {
                    let said = Said::Ask { tasks: tasks.clone(), deadline };
                    if is_unsent(About::Ask(uid, attempt), &|before| *before == said) {
                        unsent.push(Action::AskCheckpoint { uid, attempt, tasks, deadline });
                    }
                }
                Action::Stop { mut tasks, deadline } => {
                    let said = Said::Stop { deadline };
                    tasks.retain(|&task| is_unsent(About::Stop(task), &|before| *before == said));
                    if !tasks.is_empty() {
                        unsent.push(Action::Stop { tasks, deadline });
                    }
                }
                Action::Acknowledge { generation } => {
                    if generation != self.acknowledged {
                        unsent.push(action);
                    }
                }
            }
        }
        unsent
    }

    /// The world has taken these.
    pub(crate) fn mark(&mut self, actions: &[Action], now: Timestamp) {
        for action in actions {
            match action {
                Action::Start { attempt, job, tasks } => {
                    for start in tasks {
                        let task = TaskRef { uid: job.uid, task: start.task, attempt: *attempt };
                        self.at.insert(About::Start(task), (Said::Start(start.clone()), now));
                    }
                }
                Action::AskCheckpoint { uid, attempt, tasks, deadline } => {
                    let said = Said::Ask { tasks: tasks.clone(), deadline: *deadline };
                    self.at.insert(About::Ask(*uid, *attempt), (said, now));
                }
                Action::Stop { tasks, deadline } => {
                    for &task in tasks {
                        self.at.insert(About::Stop(task), (Said::Stop { deadline: *deadline }, now));
                    }
                }
                Action::Acknowledge { generation } => self.acknowledged = *generation,
            }
        }
    }

    /// When the first of them is sent again.
    pub(crate) fn next_resend(&self, resend: Millis) -> Option<Timestamp> {
        self.at.values().map(|&(_, sent)| sent + resend).min()
    }
}

#[cfg(test)]
mod tests;
