//! Jobs that a world owns: they appear, change and disappear there.
//!
//! A job that appears is judged as if somebody had submitted it. One that is not taken is not lost: its owner is told why, and
//! the world may name it again at any time, which judges it again. A world names each job by itself; it has no arrays.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Decision, Names, submit};
use crate::model::action::Notice;
use crate::model::dependency::ARRAY_MAX;
use crate::model::exit::Outcome;
use crate::model::rejection::Rejection;
use crate::model::submission::Submission;
use crate::state::State;
use crate::state::event::Event;
use crate::state::jobs::event::{Canceller, JobsEvent, Next};
use crate::state::jobs::{Job, Phase};
use crate::state::owned::{OwnedEvent, REJECTED_MAX};
use crate::units::{JobId, Timestamp, Uid};

/// The world names a job of its own, for the first time or again.
pub(super) fn own(state: &State, submission: &Submission, now: Timestamp) -> Decision {
    let uid = submission.uid;
    if let Some(id) = state.jobs.with_uid(uid) {
        let job = state.jobs.get(id).expect("a job of that identity is live");
        return Decision { events: again(state, id, job, submission, now), job: Some(id) };
    }
    match state.owned.notice(uid) {
        // It is over, and its owner was not reached yet.
        Some(Notice::Ended { .. }) => Decision::default(),
        Some(Notice::Rejected { .. } | Notice::ChangeRefused { .. }) | None => {
            match appears(state, submission, now) {
                Ok(decision) => decision,
                Err(why) => reject(state, uid, why, now).into(),
            }
        }
    }
}

fn appears(state: &State, submission: &Submission, now: Timestamp) -> Result<Decision, Rejection> {
    if let Some(array) = &submission.array {
        return Err(Rejection::BadArray { given: array.indexes.len(), max: ARRAY_MAX });
    }
    let Decision { mut events, job } = submit::submit(state, submission, now)?;
    for event in &mut events {
        if let Event::Jobs(JobsEvent::Queued { owned, .. }) = event {
            *owned = true;
        }
    }
    Ok(Decision { events, job })
}

/// A live job is named again. What was adopted with its tasks is known by what it asks for.
fn again(state: &State, id: JobId, job: &Job, submission: &Submission, now: Timestamp) -> Vec<Event> {
    let uid = job.uid;
    match submit::same_job(state, submission) {
        Ok(true) if !job.owned => alloc::vec![Event::Owned(OwnedEvent::Claimed { uid, at: now })],
        Ok(true) if state.owned.notice(uid).is_some() => {
            alloc::vec![Event::Owned(OwnedEvent::Withdrawn { uid, at: now })]
        }
        Ok(true) => Vec::new(),
        Ok(false) | Err(_) if !job.owned => reject(state, uid, Rejection::UidInUse { job: id }, now),
        Err(why) => refuse_change(state, uid, Some(why), now),
        Ok(false) => match job.phase {
            Phase::Waiting => change(state, id, job, submission, now)
                .unwrap_or_else(|why| refuse_change(state, uid, Some(why), now)),
            Phase::Active | Phase::Leaving(_) => refuse_change(state, uid, None, now),
        },
    }
}

/// A job that waits becomes what its owner made of it. What it waits for stays.
fn change(
    state: &State,
    id: JobId,
    job: &Job,
    submission: &Submission,
    now: Timestamp,
) -> Result<Vec<Event>, Rejection> {
    let mut names = Names::new(&state.tenants);
    let mut spec = submit::judge(state, submission, &mut names)?;
    if (spec.tenant, &spec.name) != (job.spec.tenant, &job.spec.name) {
        return Err(Rejection::UidInUse { job: id });
    }
    spec.after.clone_from(&job.spec.after);
    let mut events = names.events;
    if state.owned.notice(job.uid).is_some() {
        events.push(Event::Owned(OwnedEvent::Withdrawn { uid: job.uid, at: now }));
    }
    events.push(Event::Jobs(JobsEvent::Changed { job: id, spec, at: now }));
    Ok(events)
}

fn reject(state: &State, uid: Uid, why: Rejection, now: Timestamp) -> Vec<Event> {
    let is_new = state.owned.notice(uid).is_none();
    if is_new && state.owned.rejected_len() >= REJECTED_MAX {
        return Vec::new();
    }
    note(state, uid, Notice::Rejected { why: Box::new(why) }, now)
}

fn refuse_change(state: &State, uid: Uid, why: Option<Rejection>, now: Timestamp) -> Vec<Event> {
    note(state, uid, Notice::ChangeRefused { why: why.map(Box::new) }, now)
}

fn note(state: &State, uid: Uid, notice: Notice, now: Timestamp) -> Vec<Event> {
    if state.owned.notice(uid) == Some(&notice) {
        return Vec::new();
    }
    alloc::vec![Event::Owned(OwnedEvent::Noted { uid, notice, at: now })]
}

/// The world no longer has a job: what is left of it ends, and nobody is told.
pub(super) fn disown(state: &State, uid: Uid, now: Timestamp) -> Decision {
    let live = state.jobs.with_uid(uid).and_then(|id| Some((id, state.jobs.get(id)?)));
    let live = live.filter(|(_, job)| job.owned);
    if live.is_none() && state.owned.notice(uid).is_none() {
        return Decision::default();
    }
    let mut events = Vec::new();
    if let Some((id, job)) = live {
        let (outcome, by) = (Outcome::Cancelled, Some(Canceller::World));
        match job.phase {
            Phase::Waiting => events.push(Event::Jobs(JobsEvent::Ended { job: id, outcome, at: now, by })),
            Phase::Active | Phase::Leaving(Next::Requeue(_)) => {
                events.extend(state.leave_at_once(id, Next::End(outcome), by, now));
            }
            Phase::Leaving(Next::End(_)) => {}
        }
    }
    events.push(Event::Owned(OwnedEvent::Gone { uid, at: now }));
    Decision { events, job: live.map(|(id, _)| id) }
}
