//! What time and the world made due: deadlines, earmarks that can be honoured or cannot, asks that serve nobody.
//!
//! A job that one step of a tick tells to leave or to stop is left alone by the steps after it: what follows from that is decided
//! in the next tick, on a state that knows of it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use super::conclude::{self, repair_deadline};
use super::live::{LiveJob, numbers};
use super::{bookings, earmarks, emptied, limits, services};
use crate::model::exit::Outcome;
use crate::state::State;
use crate::state::earmarks::EarmarksEvent;
use crate::state::event::Event;
use crate::state::holding::{HeldTask, TaskPhase};
use crate::state::jobs::event::{Canceller, JobsEvent, Next, RequeueWhy};
use crate::state::ledger::event::LedgerEvent;
use crate::state::past_use::PastUseEvent;
use crate::units::{JobId, Timestamp};

pub(super) fn due(state: &State, now: Timestamp) -> Vec<Event> {
    let mut events = deadlines_passed(state, now);
    events.extend(conclude::forgotten_refusals(state, now));
    if state.tenants.policy().half_life.is_some_and(|half_life| state.past.is_due(half_life, now)) {
        events.push(Event::Past(PastUseEvent::Stepped { at: now }));
    }
    let leaving = told_to_go(&events);
    events.extend(earmarks::due(state, &leaving, now));
    events.extend(earmarks::asks_no_longer_needed(state, &leaving, now));
    events.extend(bookings::due(state, &leaving, now));
    let changed: BTreeSet<JobId> = events.iter().filter_map(emptied::about).collect();
    events.extend(emptied::due(state, &changed, now));
    events.extend(cancelled_with_others(state, now));
    events
}

/// The jobs that have to let go of something by these events.
fn told_to_go(events: &[Event]) -> BTreeSet<JobId> {
    let job = |event: &Event| match event {
        Event::Jobs(JobsEvent::Leaving { job, .. })
        | Event::Ledger(LedgerEvent::Stopping { job, .. })
        | Event::Earmarks(EarmarksEvent::Released { job, .. }) => Some(*job),
        _ => None,
    };
    events.iter().filter_map(job).collect()
}

/// Tasks that had their time are told to stop; gangs that are not repaired or started in time let go; services shrink.
fn deadlines_passed(state: &State, now: Timestamp) -> Vec<Event> {
    let mut events = limits::due(state, now);
    let ending = told_to_go(&events);
    let live =
        |&(_, job): &(Timestamp, JobId)| (!ending.contains(&job)).then(|| LiveJob::of(state, job, now));
    let due = state.ledger.deadlines().iter().take_while(|&&(deadline, _)| deadline <= now);
    events.extend(due.filter_map(live).flat_map(time_is_up));
    let start_within = state.tenants.policy().gangs.start_within;
    let stuck = state.ledger.bound().iter().take_while(|&&(at, _)| at + start_within <= now);
    events.extend(stuck.filter_map(live).filter(|live| live.is_active()).flat_map(let_go_of_stuck));
    let leaving = told_to_go(&events);
    let steps: BTreeMap<JobId, Vec<Event>> = services::replacing(state, now).collect();
    let is_busy = |job: &JobId| leaving.contains(job) || steps.contains_key(job);
    events.extend(services::due(state, is_busy, now));
    for (job, step) in steps {
        // How far the replacement is stays true; only its tasks are left alone.
        let keeps = |event: &Event| matches!(event, Event::Jobs(_)) || !leaving.contains(&job);
        events.extend(step.into_iter().filter(keeps));
    }
    events
}

/// The deadline of an ask, or of a repair.
fn time_is_up(live: LiveJob<'_>) -> Vec<Event> {
    let LiveJob { state, id, job, now } = live;
    let holding = live.holding().expect("a deadline belongs to a holding");
    let unrepaired = holding.repair_by.is_some_and(|deadline| deadline <= now) && live.is_active();
    if unrepaired && (state.earmarks.of(id).is_some() || live.is_service()) {
        // Its new place is on the way, and its other tasks have their work; replicas of a service do not need each other.
        return alloc::vec![live.broken(now + state.tenants.policy().recovery_bound())];
    }
    let alive: Vec<u32> = holding.alive().collect();
    let to_stop = if unrepaired && job.spec.has_groups() && job.spec.is_met_by(alive.iter().copied()) {
        // Enough stands without the copies that were not repaired in time: what is left of them lets go.
        let broken = job.spec.of_broken_copies(&alive);
        broken.into_iter().filter(|&task| holding.task(task).is_some_and(HeldTask::stays)).collect()
    } else if unrepaired {
        return live.leaves_at_once(Next::Requeue(RequeueWhy::NodeLost), None);
    } else {
        let due =
            |task: &&HeldTask| matches!(task.phase, TaskPhase::Asked { deadline, .. } if deadline <= now);
        numbers(holding.tasks.iter().filter(due))
    };
    live.stopped(to_stop).into_iter().collect()
}

/// Tasks beyond the minimum that do not start are given up; without the minimum the whole gang is.
fn let_go_of_stuck(live: LiveJob<'_>) -> Vec<Event> {
    let holding = live.holding().expect("what is bound is held");
    let spec = &live.job.spec;
    let (bound, running): (Vec<&HeldTask>, Vec<&HeldTask>) =
        holding.staying().partition(|task| task.phase == TaskPhase::Bound);
    let mut rest: Vec<u32> = running.iter().map(|task| task.place.task).chain(holding.done()).collect();
    let mut tasks = numbers(bound.iter().copied());
    if spec.has_groups() {
        // A copy whose other tasks do not start is of no use.
        let broken = spec.of_broken_copies(&rest);
        rest.retain(|task| !broken.contains(task));
        tasks.extend(numbers(running.iter().copied().filter(|task| broken.contains(&task.place.task))));
        tasks.sort_unstable();
    }
    if spec.is_met_by(rest.into_iter()) {
        return live.stopped(tasks).into_iter().collect();
    }
    if live.is_service() && !running.is_empty() {
        let broken = live.broken(repair_deadline(live.state, live.now));
        return live.stopped(numbers(bound)).into_iter().chain([broken]).collect();
    }
    live.leaves_at_once(Next::Requeue(RequeueWhy::StartStuck), None)
}

/// Jobs that waited for the success of one that did not succeed are cancelled, and so are those that waited for
/// theirs. A job waits for older ones only, so that ids lead from the first to the last of a chain.
fn cancelled_with_others(state: &State, now: Timestamp) -> Vec<Event> {
    let mut events = Vec::new();
    let mut open: BTreeMap<JobId, String> = state.jobs.broken().collect();
    while let Some((id, name)) = open.pop_first() {
        let live = LiveJob::of(state, id, now);
        events.push(live.ended(Outcome::Cancelled, now, Some(Canceller::Dependency { name })));
        let spec = &live.job.spec;
        let path = alloc::format!("{}/{}", state.tenants.path(spec.tenant), spec.name);
        for later in state.jobs.waiting_for(id, Outcome::Cancelled) {
            open.entry(later).or_insert_with(|| path.clone());
        }
    }
    events
}
