//! What should happen. Reads only, so it may refuse freely; nothing changes until the events are applied.

mod bookings;
mod conclude;
mod earmarks;
pub(crate) mod emptied;
pub mod input;
mod limits;
mod observe;
mod own;
mod refused;
mod replace;
mod services;
mod submit;
mod timeline;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use crate::decide::input::{Input, SetDefinition, SetMembers};
use crate::model::actor::Actor;
use crate::model::exit::Outcome;
use crate::model::policy::Policy;
use crate::model::rejection::Rejection;
use crate::price::prices::Prices;
use crate::state::State;
use crate::state::demand::DemandEvent;
use crate::state::earmarks::EarmarksEvent;
use crate::state::event::Event;
use crate::state::fleet::{Fleet, FleetEvent};
use crate::state::holding::{HeldTask, TaskPhase};
use crate::state::jobs::Phase;
use crate::state::jobs::event::{Canceller, JobsEvent, Next, RequeueWhy};
use crate::state::ledger::event::{Asker, LedgerEvent};
use crate::state::past_use::PastUseEvent;
use crate::state::tenants::{Tenants, TenantsEvent};
use crate::units::{JobId, NodeId, PoolId, TenantId, Timestamp, TrustId, Uid};

/// What an input leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Facts, in order.
    pub events: Vec<Event>,
    /// The job it is about, where it is about one.
    pub job: Option<JobId>,
}

impl From<Vec<Event>> for Decision {
    fn from(events: Vec<Event>) -> Self {
        Self { events, job: None }
    }
}

impl State {
    /// What should happen because of an input of the process that runs the engine.
    pub fn decide(&self, input: &Input, now: Timestamp) -> Result<Decision, Rejection> {
        self.decide_for(&Actor::embedded(), input, now)
    }

    /// What should happen because of somebody's input.
    pub fn decide_for(&self, actor: &Actor, input: &Input, now: Timestamp) -> Result<Decision, Rejection> {
        match input {
            Input::Submit(submission) => submit::submit(self, submission, now),
            Input::Cancel { job } => self.cancel(actor, *job, now),
            Input::CancelArray { array } => self.cancel_array(actor, *array, now),
            Input::Release { job } => self.release_held(*job, now),
            Input::Evict { job } => self.evict(actor, *job, now),
            Input::Extend { job, to } => limits::extend(self, *job, *to, now),
            Input::Scale { job, tasks } => services::scale(self, *job, *tasks, now),
            Input::Book(request) => bookings::book(self, actor, request, now),
            Input::Unbook { name } => bookings::cancel(self, name, now),
            Input::Replace { job, how: Some(how) } => replace::replace(self, *job, *how, now),
            Input::Replace { job, how: None } => replace::stop(self, *job, now),
            Input::Cordon { node, on, reason } => self.cordon(actor, node, *on, reason),
            Input::Drain { nodes, how } => emptied::drain(self, actor, nodes, how.as_ref(), now),
            Input::PlanDowntime(request) => emptied::plan_downtime(self, actor, request, now),
            Input::CallOff { name } => emptied::call_off(self, name, now),
            Input::ApplyPolicy(policy) => self.apply_policy(policy),
            Input::DefineSets(sets) => Ok(self.define_sets(sets).into()),
            Input::Observe(report) => observe::observe(self, report, now),
            Input::Restore(report) => observe::restore::restore(self, report, now),
            Input::Own(submission) => Ok(own::own(self, submission, now)),
            Input::Disown { uid } => Ok(own::disown(self, *uid, now)),
            Input::Prices(prices) => self.price(prices),
            Input::Tick => Ok(self.due(now).into()),
        }
    }

    fn cancel(&self, actor: &Actor, id: JobId, now: Timestamp) -> Result<Decision, Rejection> {
        let job = self.jobs.get(id).ok_or(Rejection::NoSuchJob)?;
        let by = actor.name().map(|who| Canceller::Person { who: String::from(who) });
        let events = match job.phase {
            Phase::Waiting => {
                let outcome = Outcome::Cancelled;
                alloc::vec![Event::Jobs(JobsEvent::Ended { job: id, outcome, at: now, by })]
            }
            Phase::Active | Phase::Leaving(Next::Requeue(_)) => {
                self.leave_at_once(id, Next::End(Outcome::Cancelled), by, now)
            }
            Phase::Leaving(Next::End(_)) => return Err(Rejection::NothingToDo),
        };
        Ok(Decision { events, job: Some(id) })
    }

    /// All members in one decision, so that a crash leaves all of them or none. From the last to the first: none has its
    /// turn meanwhile.
    fn cancel_array(&self, actor: &Actor, array: Uid, now: Timestamp) -> Result<Decision, Rejection> {
        let members = &self.jobs.array(array).ok_or(Rejection::NoSuchJob)?.members;
        let mut events = Vec::new();
        for &member in members.iter().rev() {
            match self.cancel(actor, member, now) {
                Ok(decision) => events.extend(decision.events),
                Err(Rejection::NothingToDo) => {}
                Err(rejection) => return Err(rejection),
            }
        }
        if events.is_empty() {
            return Err(Rejection::NothingToDo);
        }
        Ok(Decision { events, job: members.first().copied() })
    }

    fn release_held(&self, id: JobId, now: Timestamp) -> Result<Decision, Rejection> {
        let job = self.jobs.get(id).ok_or(Rejection::NoSuchJob)?;
        if job.held.is_none() {
            return Err(Rejection::NothingToDo);
        }
        Ok(Decision {
            events: alloc::vec![Event::Jobs(JobsEvent::Released { job: id, at: now })],
            job: Some(id),
        })
    }

    fn evict(&self, actor: &Actor, id: JobId, now: Timestamp) -> Result<Decision, Rejection> {
        let job = self.jobs.get(id).ok_or(Rejection::NoSuchJob)?;
        match job.phase {
            Phase::Waiting => return Err(Rejection::NotRunning),
            Phase::Leaving(_) => return Err(Rejection::NothingToDo),
            Phase::Active if !job.spec.preemptible => return Err(Rejection::NotPreemptible),
            Phase::Active => {}
        }
        let holding = self.ledger.holding(id).expect("an active job holds something");
        let next = Next::Requeue(RequeueWhy::Evicted);
        let mut held = holding.tasks.iter().filter(|task| task.holds());
        let all_run = held.all(|task| task.phase == TaskPhase::Running);
        let events = match job.spec.checkpoint {
            Some(checkpoint) if all_run => alloc::vec![
                Event::Jobs(JobsEvent::Leaving { job: id, next, at: now, by: None }),
                Event::Ledger(LedgerEvent::Asked {
                    job: id,
                    tasks: holding.holding_tasks(),
                    by: Asker::Lever { who: String::from(actor.called()) },
                    deadline: now + checkpoint.grace,
                    at: now,
                }),
            ],
            Some(_) | None => self.leave_at_once(id, next, None, now),
        };
        Ok(Decision { events, job: Some(id) })
    }

    /// Everything it holds is told to stop.
    fn leave_at_once(&self, job: JobId, next: Next, by: Option<Canceller>, now: Timestamp) -> Vec<Event> {
        let tasks =
            self.ledger.holding(job).map(crate::state::holding::Holding::holding_tasks).unwrap_or_default();
        alloc::vec![Event::Jobs(JobsEvent::Leaving { job, next, at: now, by }), self.stop(job, tasks, now)]
    }

    fn cordon(&self, actor: &Actor, name: &str, on: bool, reason: &str) -> Result<Decision, Rejection> {
        let node =
            self.fleet.node_named(name).ok_or_else(|| Rejection::NoSuchNode { name: String::from(name) })?;
        let known = self.fleet.node(node).expect("a named node is there");
        // A reason is for the time of the cordon; another one replaces it.
        let reason = if on { String::from(reason) } else { String::new() };
        let by = actor.name().filter(|_| on).map(String::from).unwrap_or_default();
        if known.cordoned == on && (!on || known.cordon_reason == reason) {
            return Err(Rejection::NothingToDo);
        }
        Ok(alloc::vec![Event::Fleet(FleetEvent::Cordoned { node, on, reason, by })].into())
    }

    fn apply_policy(&self, policy: &Policy) -> Result<Decision, Rejection> {
        if self.tenants.version() > 0 && self.tenants.policy() == policy {
            return Err(Rejection::NothingToDo);
        }
        let mut names = Names::new(&self.tenants);
        for tenant in &policy.tenants {
            names.tenant(&tenant.path);
        }
        let mut events = names.events;
        let version = self.tenants.version() + 1;
        events.push(Event::Tenants(TenantsEvent::PolicyApplied { version, policy: policy.clone() }));
        Ok(events.into())
    }

    fn price(&self, prices: &Prices) -> Result<Decision, Rejection> {
        if !prices.is_sound(self.fleet.pools().len()) {
            return Err(Rejection::BadPrices);
        }
        if self.demand.is_counting() && self.demand.prices() == prices {
            return Ok(Decision::default());
        }
        Ok(alloc::vec![Event::Demand(DemandEvent::Priced { prices: prices.clone() })].into())
    }

    fn define_sets(&self, sets: &[SetDefinition]) -> Vec<Event> {
        let mut events = Vec::new();
        let (mut next_nodes, mut next_devices) = (self.fleet.next_node_set(), self.fleet.next_device_set());
        for definition in sets {
            let source = &definition.source;
            let event = match &definition.members {
                SetMembers::Nodes(names) => {
                    let members = node_ids(&self.fleet, names);
                    let known = self.fleet.node_set(source);
                    if known.is_some_and(|(_, before)| before == members) {
                        continue;
                    }
                    let set = known.map_or(next_nodes, |(set, _)| set);
                    next_nodes.0 += u32::from(known.is_none());
                    FleetEvent::NodeSetDefined { set, source: source.clone(), members }
                }
                SetMembers::Models(models) => {
                    let pools = pool_ids(&self.fleet, models);
                    let known = self.fleet.device_set(source);
                    if known.is_some_and(|(_, before)| before == pools) {
                        continue;
                    }
                    let set = known.map_or(next_devices, |(set, _)| set);
                    next_devices.0 += u32::from(known.is_none());
                    FleetEvent::DeviceSetDefined { set, source: source.clone(), pools }
                }
            };
            events.push(Event::Fleet(event));
        }
        events
    }

    /// What time and the world made due: deadlines, promises that can be kept or cannot, asks that serve nobody.
    fn due(&self, now: Timestamp) -> Vec<Event> {
        let mut events = self.deadlines_passed(now);
        events.extend(refused::due(self, now));
        if self.tenants.policy().half_life.is_some_and(|half_life| self.past.is_due(half_life, now)) {
            events.push(Event::Past(PastUseEvent::Stepped { at: now }));
        }
        // Who is told to leave or to stop at this moment is not given anything, nor asked to stay.
        let told: BTreeSet<JobId> = events.iter().filter_map(told_to_go).collect();
        events.extend(earmarks::due(self, &told, now));
        events.extend(earmarks::withdrawals(self, &told, now));
        events.extend(bookings::due(self, &told, now));
        // Whose places change in this decision is looked at again in the next.
        let changed: BTreeSet<JobId> = events.iter().filter_map(emptied::about).collect();
        events.extend(emptied::due(self, &changed, now));
        events.extend(self.cancelled_with(now));
        events
    }

    /// Jobs that waited for the success of one that did not succeed are cancelled, and so are those that waited for
    /// theirs. A job waits for older ones only, so that ids lead from the first to the last of a chain.
    fn cancelled_with(&self, now: Timestamp) -> Vec<Event> {
        let (mut events, outcome) = (Vec::new(), Outcome::Cancelled);
        let mut open: BTreeMap<JobId, String> = self.jobs.broken().collect();
        while let Some((job, name)) = open.pop_first() {
            let by = Some(Canceller::Dependency { name });
            events.push(Event::Jobs(JobsEvent::Ended { job, outcome, at: now, by }));
            let own = self.jobs.get(job).map(|known| &known.spec);
            let path = own.map(|own| alloc::format!("{}/{}", self.tenants.path(own.tenant), own.name));
            for later in self.jobs.waiting_for(job, outcome) {
                open.entry(later).or_insert_with(|| path.clone().unwrap_or_default());
            }
        }
        events
    }

    /// Who was asked to save its work and has had its time is told to stop; a gang that was not repaired or did
    /// not start in time lets go.
    fn deadlines_passed(&self, now: Timestamp) -> Vec<Event> {
        let mut events = limits::due(self, now);
        // Who ends by its own limit has nothing else to do.
        let ending: BTreeSet<JobId> = events.iter().filter_map(told_to_go).collect();
        let due = self.ledger.deadlines().iter().take_while(|&&(deadline, _)| deadline <= now);
        let due = due.filter(|(_, job)| !ending.contains(job));
        events.extend(due.flat_map(|&(_, job)| self.time_is_up(job, now)));
        let start_within = self.tenants.policy().gangs.start_within;
        let stuck = self.ledger.bound().iter().take_while(|&&(at, _)| at + start_within <= now);
        let stuck = stuck.filter(|(_, job)| !ending.contains(job));
        events.extend(stuck.flat_map(|&(_, job)| self.let_go_of_stuck(job, now)));
        // Who was told something in this decision is looked at again in the next.
        let told: BTreeSet<JobId> = events.iter().filter_map(told_to_go).collect();
        let replaced = replace::due(self, now);
        let stepped = |event: &Event| match event {
            Event::Jobs(JobsEvent::Rolled { job, .. }) => Some(*job),
            _ => None,
        };
        let stepping: BTreeSet<JobId> = replaced.iter().filter_map(stepped).collect();
        let too_many = services::due(self, &stepping, now).into_iter().chain(replaced);
        events.extend(too_many.filter(|event| concerned(event).is_none_or(|job| !told.contains(&job))));
        events
    }

    fn time_is_up(&self, job: JobId, now: Timestamp) -> Vec<Event> {
        let holding = self.ledger.holding(job).expect("a deadline belongs to a holding");
        let unrepaired = holding.repair_by.is_some_and(|deadline| deadline <= now) && self.is_active(job);
        let goes_on = self.earmarks.of(job).is_some() || self.is_service(job);
        if unrepaired && goes_on {
            // Its new place is on the way: victims were asked for it, and its other tasks still have their work. And
            // replicas of a service do not need each other.
            let deadline = now + self.tenants.policy().recovery_bound();
            return alloc::vec![Event::Ledger(LedgerEvent::Broken { job, deadline, at: now })];
        }
        let alive: Vec<u32> = holding.alive().collect();
        let spec = &self.jobs.get(job).expect("a deadline belongs to a live job").spec;
        if unrepaired && spec.has_groups() && spec.is_met_by(alive.iter().copied()) {
            // Enough stands without the copies that were not repaired in time: what is left of them lets go.
            let staying: BTreeSet<u32> = holding.staying().map(|task| task.place.task).collect();
            let broken = spec.of_broken_copies(&alive).into_iter().filter(|task| staying.contains(task));
            let broken: Vec<u32> = broken.collect();
            return if broken.is_empty() { Vec::new() } else { alloc::vec![self.stop(job, broken, now)] };
        }
        if unrepaired {
            return self.leave_at_once(job, Next::Requeue(RequeueWhy::NodeLost), None, now);
        }
        let asked =
            |task: &&HeldTask| matches!(task.phase, TaskPhase::Asked { deadline, .. } if deadline <= now);
        let tasks: Vec<u32> = holding.tasks.iter().filter(asked).map(|task| task.place.task).collect();
        if tasks.is_empty() { Vec::new() } else { alloc::vec![self.stop(job, tasks, now)] }
    }

    /// Tasks beyond the minimum that do not start are given up; without the minimum the whole gang is.
    fn let_go_of_stuck(&self, job: JobId, now: Timestamp) -> Vec<Event> {
        if !self.is_active(job) {
            return Vec::new();
        }
        let holding = self.ledger.holding(job).expect("what is bound is held");
        let spec = &self.jobs.get(job).expect("what is bound belongs to a live job").spec;
        let (bound, running): (Vec<&HeldTask>, Vec<&HeldTask>) =
            holding.staying().partition(|task| task.phase == TaskPhase::Bound);
        let mut rest: Vec<u32> = running.iter().map(|task| task.place.task).chain(holding.done()).collect();
        let mut tasks: Vec<u32> = bound.iter().map(|task| task.place.task).collect();
        if spec.has_groups() {
            // A copy whose other tasks do not start is of no use.
            let broken = spec.of_broken_copies(&rest);
            rest.retain(|task| !broken.contains(task));
            tasks.extend(
                broken.into_iter().filter(|task| running.iter().any(|held| held.place.task == *task)),
            );
            tasks.sort_unstable();
        }
        if spec.is_met_by(rest.into_iter()) {
            return alloc::vec![self.stop(job, tasks, now)];
        }
        if self.is_service(job) && !running.is_empty() {
            let deadline = conclude::repair_deadline(self, now);
            let tasks = bound.into_iter().map(|task| task.place.task).collect();
            let broken = Event::Ledger(LedgerEvent::Broken { job, deadline, at: now });
            return alloc::vec![self.stop(job, tasks, now), broken];
        }
        self.leave_at_once(job, Next::Requeue(RequeueWhy::StartStuck), None, now)
    }

    fn is_service(&self, job: JobId) -> bool {
        self.jobs.get(job).is_some_and(|job| job.spec.service.is_some())
    }

    fn is_active(&self, job: JobId) -> bool {
        self.jobs.get(job).is_some_and(|job| job.phase == Phase::Active)
    }

    fn stop(&self, job: JobId, tasks: Vec<u32>, now: Timestamp) -> Event {
        let deadline = now + self.tenants.policy().stop_grace;
        Event::Ledger(LedgerEvent::Stopping { job, tasks, deadline, at: now })
    }
}

/// Whom an event about places is about.
fn concerned(event: &Event) -> Option<JobId> {
    match event {
        Event::Earmarks(EarmarksEvent::Released { job, .. })
        | Event::Ledger(LedgerEvent::Asked { job, .. } | LedgerEvent::Stopping { job, .. }) => Some(*job),
        _ => None,
    }
}

/// Who has to go by an event.
fn told_to_go(event: &Event) -> Option<JobId> {
    match event {
        Event::Jobs(JobsEvent::Leaving { job, .. })
        | Event::Ledger(LedgerEvent::Stopping { job, .. })
        | Event::Earmarks(EarmarksEvent::Released { job, .. }) => Some(*job),
        _ => None,
    }
}

/// Ids for paths and trust domains that are new, and the events that name them.
struct Names<'a> {
    tenants: &'a Tenants,
    new_tenants: Vec<String>,
    new_trusts: Vec<String>,
    events: Vec<Event>,
}

impl<'a> Names<'a> {
    fn new(tenants: &'a Tenants) -> Self {
        Self { tenants, new_tenants: Vec::new(), new_trusts: Vec::new(), events: Vec::new() }
    }

    /// The tenant of that path; it and everyone above it are named if they are new.
    fn tenant(&mut self, path: &str) -> TenantId {
        if let Some((above, _)) = path.rsplit_once('/') {
            self.tenant(above);
        }
        if let Some(known) = self.tenants.named(path) {
            return known;
        }
        let base = self.tenants.len();
        if let Some(at) = self.new_tenants.iter().position(|new| new == path) {
            return TenantId(small(base + at));
        }
        let tenant = TenantId(small(base + self.new_tenants.len()));
        self.new_tenants.push(String::from(path));
        self.events.push(Event::Tenants(TenantsEvent::TenantNamed { tenant, path: String::from(path) }));
        tenant
    }

    /// The trust domain of that name, named if it is new.
    fn trust(&mut self, name: &str) -> TrustId {
        if let Some(known) = self.tenants.trust_named(name) {
            return known;
        }
        let base = self.tenants.next_trust().0;
        if let Some(at) = self.new_trusts.iter().position(|new| new == name) {
            return TrustId(base + small(at));
        }
        let trust = TrustId(base + small(self.new_trusts.len()));
        self.new_trusts.push(String::from(name));
        self.events.push(Event::Tenants(TenantsEvent::TrustNamed { trust, name: String::from(name) }));
        trust
    }
}

fn small(count: usize) -> u32 {
    u32::try_from(count).expect("fewer than 2^32 names")
}

fn node_ids(fleet: &Fleet, names: &[String]) -> Vec<NodeId> {
    let mut ids: Vec<NodeId> = names.iter().filter_map(|name| fleet.node_named(name)).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn pool_ids(fleet: &Fleet, models: &[String]) -> Vec<PoolId> {
    fleet.pool_ids().filter(|&pool| models.iter().any(|model| model == fleet.model(pool))).collect()
}
