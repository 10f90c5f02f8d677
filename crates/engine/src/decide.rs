//! What should happen because of an input. Reads only, so it may refuse freely; nothing changes until the events are applied.

mod bookings;
mod conclude;
mod earmarks;
pub(crate) mod emptied;
pub mod input;
mod limits;
mod live;
mod names;
mod observe;
mod own;
mod services;
mod submit;
mod tick;
mod timeline;

use alloc::string::String;
use alloc::vec::Vec;

use crate::decide::input::Input;
use crate::model::actor::Actor;
use crate::model::policy::Policy;
use crate::model::rejection::Rejection;
use crate::price::prices::Prices;
use crate::state::State;
use crate::state::demand::DemandEvent;
use crate::state::event::Event;
use crate::state::fleet::FleetEvent;
use crate::state::holding::TaskPhase;
use crate::state::jobs::Phase;
use crate::state::jobs::event::{Canceller, Next, RequeueWhy};
use crate::state::ledger::event::Asker;
use crate::state::tenants::TenantsEvent;
use crate::units::{JobId, Timestamp, Uid};
use live::LiveJob;
use names::Names;

/// What an input leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    pub events: Vec<Event>,
    /// The job it is about, where it is about one.
    pub job: Option<JobId>,
}

impl From<Vec<Event>> for Decision {
    fn from(events: Vec<Event>) -> Self {
        Self { events, job: None }
    }
}

impl Decision {
    /// The decision about `job`, if there is anything to do.
    fn about(job: Option<JobId>, events: impl IntoIterator<Item = Event>) -> Result<Self, Rejection> {
        let events: Vec<Event> = events.into_iter().collect();
        if events.is_empty() { Err(Rejection::NothingToDo) } else { Ok(Self { events, job }) }
    }
}

impl State {
    /// What should happen because of an input of the process that runs the engine.
    pub fn decide(&self, input: &Input, now: Timestamp) -> Result<Decision, Rejection> {
        self.decide_for(&Actor::embedded(), input, now)
    }

    /// What should happen because of somebody's input.
    pub fn decide_for(&self, actor: &Actor, input: &Input, now: Timestamp) -> Result<Decision, Rejection> {
        let live = |job: &JobId| LiveJob::named(self, *job, now);
        match input {
            Input::Submit(submission) => submit::submit(self, submission, now),
            Input::Cancel { job } => {
                live(job).and_then(|live| live.decision(live.cancelled(canceller(actor))))
            }
            Input::CancelArray { array } => cancel_array(self, actor, *array, now),
            Input::Release { job } => release_held(live(job)?),
            Input::Evict { job } => evict(live(job)?, actor),
            Input::Extend { job, to } => limits::extend(live(job)?, *to),
            Input::Scale { job, tasks } => services::scale(live(job)?, *tasks),
            Input::Book(request) => bookings::book(self, actor, request, now),
            Input::Unbook { name } => bookings::cancel(self, name, now),
            Input::Replace { job, how } => services::replace(live(job)?, *how),
            Input::Cordon { node, on, reason } => cordon(self, actor, node, *on, reason),
            Input::Drain { nodes, how } => emptied::drain(self, actor, nodes, how.as_ref(), now),
            Input::PlanDowntime(request) => emptied::plan_downtime(self, actor, request, now),
            Input::CallOff { name } => emptied::call_off(self, name, now),
            Input::ApplyPolicy(policy) => apply_policy(self, policy),
            Input::DefineSets(sets) => Ok(names::define_sets(&self.fleet, sets).into()),
            Input::Observe(report) => observe::observe(self, report, now),
            Input::Restore(report) => observe::restore::restore(self, report, now),
            Input::Own(submission) => Ok(own::own(self, submission, now)),
            Input::Disown { uid } => Ok(own::disown(self, *uid, now)),
            Input::Prices(prices) => price(self, prices),
            Input::Tick => Ok(tick::due(self, now).into()),
        }
    }
}

fn canceller(actor: &Actor) -> Option<Canceller> {
    actor.name().map(|who| Canceller::Person { who: String::from(who) })
}

/// All members in one decision: a crash leaves all or none. The last goes first, so that none has its turn meanwhile.
fn cancel_array(state: &State, actor: &Actor, array: Uid, now: Timestamp) -> Result<Decision, Rejection> {
    let members = &state.jobs.array(array).ok_or(Rejection::NoSuchJob)?.members;
    let cancelled = |&member: &JobId| LiveJob::of(state, member, now).cancelled(canceller(actor));
    Decision::about(members.first().copied(), members.iter().rev().flat_map(cancelled))
}

fn release_held(live: LiveJob<'_>) -> Result<Decision, Rejection> {
    live.decision(live.job.held.is_some().then(|| live.released()))
}

/// A job that can save its work is asked to; it leaves at once where it cannot, or where some of it does not run.
fn evict(live: LiveJob<'_>, actor: &Actor) -> Result<Decision, Rejection> {
    let spec = &live.job.spec;
    match live.job.phase {
        Phase::Waiting => return Err(Rejection::NotRunning),
        Phase::Leaving(_) => return Err(Rejection::NothingToDo),
        Phase::Active if !spec.preemptible => return Err(Rejection::NotPreemptible),
        Phase::Active => {}
    }
    let holding = live.holding().expect("an active job holds something");
    let next = Next::Requeue(RequeueWhy::Evicted);
    let mut held = holding.tasks.iter().filter(|task| task.holds());
    if spec.checkpoint.is_none() || !held.all(|task| task.phase == TaskPhase::Running) {
        return live.decision(live.leaves_at_once(next, None));
    }
    let by = Asker::Lever { who: String::from(actor.called()) };
    let asked = live.asked(holding.holding_tasks(), by, live.now + spec.grace());
    live.decision([live.leaving(next, None)].into_iter().chain(asked))
}

fn cordon(state: &State, actor: &Actor, name: &str, on: bool, reason: &str) -> Result<Decision, Rejection> {
    let node = emptied::node_named(state, name)?;
    let known = state.fleet.node(node).expect("a named node is there");
    // A reason is for the time of the cordon; another one replaces it.
    let reason = if on { String::from(reason) } else { String::new() };
    let by = actor.name().filter(|_| on).map(String::from).unwrap_or_default();
    let is_new = known.cordoned != on || on && known.cordon_reason != reason;
    Decision::about(None, is_new.then_some(Event::Fleet(FleetEvent::Cordoned { node, on, reason, by })))
}

fn apply_policy(state: &State, policy: &Policy) -> Result<Decision, Rejection> {
    let tenants = &state.tenants;
    if tenants.version() > 0 && tenants.policy() == policy {
        return Err(Rejection::NothingToDo);
    }
    let mut names = Names::new(state);
    for tenant in &policy.tenants {
        names.tenant(&tenant.path);
    }
    let (version, policy) = (tenants.version() + 1, policy.clone());
    names.events.push(Event::Tenants(TenantsEvent::PolicyApplied { version, policy }));
    Ok(names.events.into())
}

fn price(state: &State, prices: &Prices) -> Result<Decision, Rejection> {
    if !prices.is_sound(state.fleet.pools().len()) {
        return Err(Rejection::BadPrices);
    }
    if state.demand.is_counting() && state.demand.prices() == prices {
        return Ok(Decision::default());
    }
    Ok(alloc::vec![Event::Demand(DemandEvent::Priced { prices: prices.clone() })].into())
}
