//! Which of the actions that are due the world was told already, and what it answered, task by task. Lost at a restart without
//! harm: every action may be repeated.
//!
//! A start and a stop say something of each of their tasks, so each task is remembered by itself and only those that
//! are new go out. An ask says who is asked together (the coordinator of a job that leaves whole speaks for all
//! ranks), so it is remembered, and repeated, as one.
//!
//! What the world did not answer is sent again: it may be lost. What it refused and is still due is sent again after a pause that
//! doubles. What it has taken is not sent again, until a full list comes: then the world says anew what is open.

use std::collections::BTreeMap;

use wharf_engine::model::action::{Action, Notice, StartTask};
use wharf_engine::model::exit::Outcome;
use wharf_engine::model::observed::TaskRef;
use wharf_engine::model::outcome::{ActionOutcome, ActionRef, Answer};
use wharf_engine::units::{Millis, Timestamp};

/// A refused action is sent again after at most so many times as long as one that was not answered.
const PAUSE_MAX: u64 = 16;

/// What was said.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Start(StartTask),
    Ask { tasks: Vec<u32>, deadline: Timestamp },
    Stop { deadline: Timestamp },
    Reject(Notice),
    Close(Outcome),
}

/// What the world answered to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Nothing,
    Taken,
    Refused,
}

/// Something that was said last, when, and what came of it.
#[derive(Debug)]
struct Told {
    said: Said,
    at: Timestamp,
    heard: Heard,
    /// How often the world has refused it so far.
    refused: u32,
}

impl Told {
    /// When it is said again, if ever.
    fn again_at(&self, resend: Millis) -> Option<Timestamp> {
        let times = match self.heard {
            Heard::Taken => return None,
            Heard::Nothing => 1,
            Heard::Refused => (1 << self.refused.min(16)).min(PAUSE_MAX),
        };
        Some(self.at + Millis(resend.0.saturating_mul(times)))
    }
}

/// What was said last, and what the world answered.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    told: BTreeMap<ActionRef, Told>,
    acknowledged: u64,
}

impl Sent {
    /// What the world was not told, or so long ago that it may be lost. Forgets what is no longer due. Nothing counts
    /// as sent before it is [marked](Self::mark).
    pub(crate) fn unsent(&mut self, due: Vec<Action>, now: Timestamp, resend: Millis) -> Vec<Action> {
        let mut before = core::mem::take(&mut self.told);
        let mut is_unsent = |about: ActionRef, same: &dyn Fn(&Said) -> bool| match before.remove(&about) {
            Some(told) if same(&told.said) => {
                let again = told.again_at(resend);
                self.told.insert(about, told);
                again.is_some_and(|at| now >= at)
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
                            ActionRef::Start(task),
                            &|said| matches!(said, Said::Start(before) if before == start),
                        )
                    });
                    if !tasks.is_empty() {
                        unsent.push(Action::Start { attempt, job, tasks });
                    }
                }
                Action::AskCheckpoint { uid, attempt, tasks, deadline } => {
                    let said = Said::Ask { tasks: tasks.clone(), deadline };
                    if is_unsent(ActionRef::Ask { uid, attempt }, &|before| *before == said) {
                        unsent.push(Action::AskCheckpoint { uid, attempt, tasks, deadline });
                    }
                }
                Action::Stop { mut tasks, deadline } => {
                    let said = Said::Stop { deadline };
                    tasks.retain(|&task| is_unsent(ActionRef::Stop(task), &|before| *before == said));
                    if !tasks.is_empty() {
                        unsent.push(Action::Stop { tasks, deadline });
                    }
                }
                Action::Reject { uid, notice } => {
                    let said = Said::Reject(notice.clone());
                    if is_unsent(ActionRef::Reject(uid), &|before| *before == said) {
                        unsent.push(Action::Reject { uid, notice });
                    }
                }
                Action::Close { uid, outcome } => {
                    if is_unsent(ActionRef::Close(uid), &|before| *before == Said::Close(outcome)) {
                        unsent.push(Action::Close { uid, outcome });
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

    /// The world has these.
    pub(crate) fn mark(&mut self, actions: &[Action], now: Timestamp) {
        for action in actions {
            match action {
                Action::Start { attempt, job, tasks } => {
                    for start in tasks {
                        let task = TaskRef { uid: job.uid, task: start.task, attempt: *attempt };
                        self.tell(ActionRef::Start(task), Said::Start(start.clone()), now);
                    }
                }
                Action::AskCheckpoint { uid, attempt, tasks, deadline } => {
                    let said = Said::Ask { tasks: tasks.clone(), deadline: *deadline };
                    self.tell(ActionRef::Ask { uid: *uid, attempt: *attempt }, said, now);
                }
                Action::Stop { tasks, deadline } => {
                    for &task in tasks {
                        self.tell(ActionRef::Stop(task), Said::Stop { deadline: *deadline }, now);
                    }
                }
                Action::Reject { uid, notice } => {
                    self.tell(ActionRef::Reject(*uid), Said::Reject(notice.clone()), now);
                }
                Action::Close { uid, outcome } => {
                    self.tell(ActionRef::Close(*uid), Said::Close(*outcome), now);
                }
                Action::Acknowledge { generation } => self.acknowledged = *generation,
            }
        }
    }

    fn tell(&mut self, about: ActionRef, said: Said, now: Timestamp) {
        let refused = self.told.get(&about).map_or(0, |told| told.refused);
        self.told.insert(about, Told { said, at: now, heard: Heard::Nothing, refused });
    }

    /// What the world answers. A full list says everything anew: what it does not answer there is open.
    pub(crate) fn hear(&mut self, answers: &[Answer], is_list: bool, now: Timestamp) {
        if is_list {
            for told in self.told.values_mut().filter(|told| told.heard == Heard::Taken) {
                (told.heard, told.at) = (Heard::Nothing, now);
            }
        }
        for Answer { about, outcome } in answers {
            let Some(told) = self.told.get_mut(about) else { continue };
            match outcome {
                ActionOutcome::Done | ActionOutcome::Gone => told.heard = Heard::Taken,
                // A refusal that is told twice was one.
                ActionOutcome::Refused { .. } if told.heard == Heard::Nothing => {
                    told.refused = told.refused.saturating_add(1);
                    told.heard = Heard::Refused;
                }
                ActionOutcome::Refused { .. } => {}
            }
        }
    }

    /// When the first of them is sent again.
    pub(crate) fn next_resend(&self, resend: Millis) -> Option<Timestamp> {
        self.told.values().filter_map(|told| told.again_at(resend)).min()
    }
}

#[cfg(test)]
mod tests;
