//! Jobs that a world owns: they appear, change and disappear there.
//!
//! A job that appears is judged as if somebody had submitted it. One that is not taken is not lost: its owner is told why, and
//! the world may name it again at any time, which judges it again. A world names each job by itself; it has no arrays.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::live::LiveJob;
use super::{Decision, submit};
use crate::model::action::Notice;
use crate::model::dependency::ARRAY_MAX;
use crate::model::rejection::Rejection;
use crate::model::submission::Submission;
use crate::state::State;
use crate::state::event::Event;
use crate::state::jobs::Phase;
use crate::state::jobs::event::{Canceller, JobsEvent};
use crate::state::owned::{OwnedEvent, REJECTED_MAX};
use crate::units::{Timestamp, Uid};

pub(super) fn own(state: &State, submission: &Submission, now: Timestamp) -> Decision {
    let uid = submission.uid;
    if let Some(id) = state.jobs.with_uid(uid) {
        return Decision { events: again(LiveJob::of(state, id, now), submission), job: Some(id) };
    }
    // It is over, and its owner was not reached yet.
    if matches!(state.owned.notice(uid), Some(Notice::Ended { .. })) {
        return Decision::default();
    }
    appears(state, submission, now).unwrap_or_else(|why| reject(state, uid, why, now).into())
}

fn appears(state: &State, submission: &Submission, now: Timestamp) -> Result<Decision, Rejection> {
    if let Some(array) = &submission.array {
        return Err(Rejection::BadArray { given: array.indexes.len(), max: ARRAY_MAX });
    }
    let mut decision = submit::submit(state, submission, now)?;
    for event in &mut decision.events {
        if let Event::Jobs(JobsEvent::Queued { owned, .. }) = event {
            *owned = true;
        }
    }
    Ok(decision)
}

/// A live job is named again. What was adopted with its tasks is known by what it asks for.
fn again(live: LiveJob<'_>, submission: &Submission) -> Vec<Event> {
    let LiveJob { state, id, job, now } = live;
    let uid = job.uid;
    match submit::same_job(state, submission) {
        Ok(true) if !job.owned => alloc::vec![Event::Owned(OwnedEvent::Claimed { uid, at: now })],
        Ok(true) => nothing_to_tell(live).into_iter().collect(),
        Ok(false) | Err(_) if !job.owned => reject(state, uid, Rejection::UidInUse { job: id }, now),
        Err(why) => refuse_change(live, Some(why)),
        Ok(false) if job.phase == Phase::Waiting => {
            change(live, submission).unwrap_or_else(|why| refuse_change(live, Some(why)))
        }
        Ok(false) => refuse_change(live, None),
    }
}

/// A job that waits becomes what its owner made of it. What it waits for stays.
fn change(live: LiveJob<'_>, submission: &Submission) -> Result<Vec<Event>, Rejection> {
    let LiveJob { state, id, job, now } = live;
    let (mut spec, mut events) = submit::judge(state, submission)?;
    if (spec.tenant, &spec.name) != (job.spec.tenant, &job.spec.name) {
        return Err(Rejection::UidInUse { job: id });
    }
    spec.after.clone_from(&job.spec.after);
    events.extend(nothing_to_tell(live));
    events.push(Event::Jobs(JobsEvent::Changed { job: id, spec, at: now }));
    Ok(events)
}

fn nothing_to_tell(live: LiveJob<'_>) -> Option<Event> {
    let uid = live.job.uid;
    live.state.owned.notice(uid).map(|_| Event::Owned(OwnedEvent::Withdrawn { uid, at: live.now }))
}

fn reject(state: &State, uid: Uid, why: Rejection, now: Timestamp) -> Vec<Event> {
    if state.owned.notice(uid).is_none() && state.owned.rejected_len() >= REJECTED_MAX {
        return Vec::new();
    }
    note(state, uid, Notice::Rejected { why: Box::new(why) }, now)
}

fn refuse_change(live: LiveJob<'_>, why: Option<Rejection>) -> Vec<Event> {
    note(live.state, live.job.uid, Notice::ChangeRefused { why: why.map(Box::new) }, live.now)
}

fn note(state: &State, uid: Uid, notice: Notice, now: Timestamp) -> Vec<Event> {
    let is_new = state.owned.notice(uid) != Some(&notice);
    is_new.then_some(Event::Owned(OwnedEvent::Noted { uid, notice, at: now })).into_iter().collect()
}

/// The world no longer has a job: what is left of it ends, and nobody is told.
pub(super) fn disown(state: &State, uid: Uid, now: Timestamp) -> Decision {
    let live = state.jobs.with_uid(uid).map(|id| LiveJob::of(state, id, now)).filter(|live| live.job.owned);
    if live.is_none() && state.owned.notice(uid).is_none() {
        return Decision::default();
    }
    let mut events = live.map(|live| live.cancelled(Some(Canceller::World))).unwrap_or_default();
    events.push(Event::Owned(OwnedEvent::Gone { uid, at: now }));
    Decision { events, job: live.map(|live| live.id) }
}
