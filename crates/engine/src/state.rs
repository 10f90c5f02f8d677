//! The state: the fold of events, in sections that do not reach into each other.
//!
//! `apply` hands each event to its section and, where one fact concerns two sections, tells the second what
//! it needs to know through a method. It is total: an event in the journal is a fact.

mod actions;
pub mod attained;
pub mod bookings;
pub mod demand;
pub mod earmarks;
pub mod ends;
pub mod event;
pub mod fleet;
pub mod holding;
mod index;
pub mod jobs;
pub mod ledger;
pub mod maintenance;
mod metered;
pub mod owned;
pub mod past_use;
pub(crate) mod recount;
pub mod reservations;
pub mod rooms;
pub mod tenants;
mod wants;
pub mod ways;

#[cfg(test)]
pub(crate) type Corruption<T> = (&'static str, fn(&mut T));

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use crate::model::action::Notice;
use crate::model::exit::{Exit, ExitDetail, Outcome};
use crate::model::job::Spec;
use crate::model::placement::Placement;
use crate::model::policy::{Estimates, Policy};
use crate::quota::meters::Amounts;
use crate::quota::tree::Tree;
use crate::state::attained::{Attained, LearnedEstimate};
use crate::state::bookings::{Bookings, BookingsEvent};
use crate::state::demand::Demand;
use crate::state::earmarks::{Earmark, Earmarks, EarmarksEvent};
use crate::state::event::Event;
use crate::state::fleet::{Fleet, FleetEvent};
use crate::state::holding::{HeldTask, Holding, Presence, TaskPhase};
use crate::state::jobs::event::{Failure, JobsEvent};
use crate::state::jobs::{Jobs, Phase};
use crate::state::ledger::event::{EvictionRule, LedgerEvent};
use crate::state::ledger::{Charge, Ledger};
use crate::state::maintenance::{Maintenance, MaintenanceEvent};
use crate::state::owned::{Owned, OwnedEvent};
use crate::state::past_use::{PastUse, PastUseEvent};
use crate::state::reservations::Reservations;
use crate::state::tenants::{Tenants, TenantsEvent};
use crate::units::{JobId, Millis, NodeId, Timestamp};

/// Everything that is true now.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub fleet: Fleet,
    pub tenants: Tenants,
    pub jobs: Jobs,
    pub ledger: Ledger,
    pub earmarks: Earmarks,
    /// What is usually asked for, and what that makes places worth.
    pub demand: Demand,
    pub reservations: Reservations,
    pub attained: Attained,
    pub bookings: Bookings,
    pub past: PastUse,
    pub maintenance: Maintenance,
    pub owned: Owned,
    index: u64,
}

/// How long a job is expected to run, and who says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Estimate {
    Given(Millis),
    Learned(LearnedEstimate),
}

impl Estimate {
    /// How long that is.
    pub fn millis(&self) -> Millis {
        match self {
            Self::Given(millis) => *millis,
            Self::Learned(learned) => learned.millis,
        }
    }
}

impl State {
    /// How many events made it what it is: the journal index of the next event.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// A state from a snapshot that stands for the journal up to `next`.
    pub fn resume(snapshot: &[Event], next: u64) -> Self {
        let mut state = Self::default();
        state.apply_all(snapshot);
        state.index = next;
        state
    }

    /// Changes the state as an event says.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Fleet(event) => self.apply_fleet(event),
            Event::Tenants(event) => self.apply_tenants(event),
            Event::Jobs(event) => self.apply_jobs(event),
            Event::Ledger(event) => self.apply_ledger(event),
            Event::Earmarks(event) => self.apply_earmarks(event),
            Event::Demand(event) => {
                self.demand.apply(event, self.fleet.pools().len());
                self.ledger.keep_profiles(self.demand.tables().is_some());
            }
            Event::Reservations(event) => self.reservations.apply(event),
            Event::Attained(event) => self.attained.apply(event),
            Event::Bookings(event) => self.apply_bookings(event),
            Event::Past(event) => self.apply_past(event),
            Event::Maintenance(event) => self.apply_maintenance(event),
            Event::Owned(event) => self.apply_owned(event),
        }
        self.index += 1;
    }

    /// Applies events in order.
    pub fn apply_all(&mut self, events: &[Event]) {
        for event in events {
            self.apply(event);
        }
    }

    fn apply_fleet(&mut self, event: &FleetEvent) {
        self.fleet.apply(event);
        match event {
            FleetEvent::NodeRemoved { node } => {
                self.maintenance.forget(*node);
                self.node_changed(*node);
            }
            FleetEvent::NodeSeen { node, .. }
            | FleetEvent::Cordoned { node, .. }
            | FleetEvent::Draining { node, .. } => self.node_changed(*node),
            FleetEvent::NodeSetDefined { .. } | FleetEvent::DeviceSetDefined { .. } => {
                self.fleet.pool_ids().for_each(|pool| self.ledger.note_freed(pool));
            }
            FleetEvent::PoolNamed { .. } => self.reline_past(),
            FleetEvent::LevelNamed { .. } | FleetEvent::WorldSeen { .. } => {}
        }
    }

    fn node_changed(&mut self, node: NodeId) {
        self.ledger.node_changed(node, &self.fleet, &self.earmarks);
    }

    fn apply_maintenance(&mut self, event: &MaintenanceEvent) {
        let known = |section: &Maintenance| section.get(event.name()).cloned();
        let before = known(&self.maintenance);
        self.maintenance.apply(event);
        for node in before.into_iter().chain(known(&self.maintenance)).flat_map(|downtime| downtime.nodes) {
            let out = self.maintenance.of(node).any(|(_, downtime)| downtime.began);
            self.fleet.set_out_of_service(node, out);
            self.node_changed(node);
        }
    }

    fn apply_tenants(&mut self, event: &TenantsEvent) {
        self.tenants.apply(event);
        if let TenantsEvent::PolicyApplied { policy, .. } = event {
            self.fleet.pool_ids().for_each(|pool| self.ledger.note_freed(pool));
            let counts = !policy.orders.all_by_age() || policy.estimates.learned;
            self.attained.count(counts, self.jobs.iter());
            if policy.half_life.is_none() {
                self.past.forget();
            }
            self.reline_past();
        }
    }

    fn apply_owned(&mut self, event: &OwnedEvent) {
        self.owned.apply(event);
        if let OwnedEvent::Claimed { uid, .. } | OwnedEvent::Gone { uid, .. } = event
            && let Some(job) = self.jobs.with_uid(*uid)
        {
            self.jobs.set_owned(job, matches!(event, OwnedEvent::Claimed { .. }));
        }
    }

    fn apply_jobs(&mut self, event: &JobsEvent) {
        match event {
            JobsEvent::Requeued { job, at, .. } => {
                self.let_go(*job, *at);
                self.jobs.apply(event);
                if self.earmarks.of(*job).is_some() {
                    self.jobs.leave_kind(*job);
                }
                self.refresh(*job);
            }
            JobsEvent::Ended { job, at, outcome, .. } => {
                self.end(*job, *outcome, *at);
                self.jobs.apply(event);
            }
            // Another number of tasks, more time, or other nodes to avoid, make it another kind.
            JobsEvent::Scaled { job, .. }
            | JobsEvent::Rolled { job, .. }
            | JobsEvent::CarriedJob { job, .. }
            | JobsEvent::Extended { job, .. }
            | JobsEvent::RefusalsForgotten { job, .. } => {
                self.becomes_another_kind(*job, |jobs| jobs.apply(event));
            }
            JobsEvent::StartRefused { job, by, .. } => {
                // An earmark on a node that the job avoids from now on is not kept.
                let avoids = |place: &Placement| by.iter().any(|refusal| refusal.node == place.node);
                if self.earmarks.of(*job).is_some_and(|earmark| earmark.tasks.iter().any(avoids)) {
                    self.release_earmark(*job);
                }
                self.becomes_another_kind(*job, |jobs| jobs.apply(event));
            }
            JobsEvent::Held { job, .. } => {
                self.release_earmark(*job);
                self.reservations.forget(*job);
                self.jobs.apply(event);
                self.refresh(*job);
            }
            JobsEvent::Released { job, .. }
            | JobsEvent::Leaving { job, .. }
            | JobsEvent::Stays { job, .. } => {
                // A job that is moved gets another earmark afterwards.
                self.release_earmark(*job);
                self.jobs.apply(event);
                self.refresh(*job);
            }
            JobsEvent::Changed { job, .. } => {
                self.release_earmark(*job);
                self.reservations.forget(*job);
                self.becomes_another_kind(*job, |jobs| jobs.apply(event));
            }
            JobsEvent::Queued { spec, uid, .. } => {
                self.demand.count(spec);
                self.owned.forget(*uid);
                self.jobs.apply(event);
            }
            JobsEvent::ReplicaFailed { .. } | JobsEvent::Carried { .. } | JobsEvent::CarriedEnded { .. } => {
                self.jobs.apply(event);
            }
        }
    }

    /// An attempt gives up its places. How long it ran and was served is remembered.
    fn let_go(&mut self, job: JobId, at: Timestamp) {
        let holding = self.ledger.holding(job);
        self.jobs.ran(job, holding.map_or(0, |holding| holding.ran(at)));
        self.attained.served(job, holding.map_or(0, |holding| holding.served(at)));
        self.attained.waits(job, at);
        self.leave_reservations(job);
        self.ledger.forget(job);
    }

    /// A job that is over holds and wants nothing, and has neither an earmark nor a reservation.
    fn end(&mut self, job: JobId, outcome: Outcome, at: Timestamp) {
        self.note_ended(job, at);
        if let Some(job) = self.jobs.get(job).filter(|job| job.owned) {
            self.owned.note(job.uid, Notice::Ended { outcome }, at);
        }
        self.release_earmark(job);
        self.leave_reservations(job);
        self.ledger.forget(job);
        self.reservations.forget(job);
        self.ledger.set_wants(job, Vec::new());
        self.jobs.set_more(job, None);
        self.jobs.set_wrap_up(job, None);
    }

    fn apply_bookings(&mut self, event: &BookingsEvent) {
        self.bookings.apply(event);
        if let BookingsEvent::Ended { booking, .. } = event {
            let own: Vec<JobId> = self.jobs_of_booking(*booking).collect();
            for job in own {
                self.becomes_another_kind(job, |jobs| jobs.unbook(job));
            }
        }
    }

    /// Changes what a job asks for. It is not in the lists of its old kind meanwhile; a job with an earmark is in none.
    fn becomes_another_kind(&mut self, job: JobId, change: impl FnOnce(&mut Jobs)) {
        let is_listed = self.earmarks.of(job).is_none();
        self.jobs.set_more(job, None);
        if is_listed {
            self.jobs.leave_kind(job);
        }
        change(&mut self.jobs);
        if is_listed {
            self.jobs.join_kind(job);
        }
        self.places_changed(job);
    }

    fn apply_ledger(&mut self, event: &LedgerEvent) {
        let grouped = event.job().filter(|job| self.jobs.get(*job).is_some_and(|job| job.spec.has_groups()));
        let before = grouped.and_then(|job| self.ledger.holding(job)?.repair_by);
        self.apply_to_ledger(event);
        if let Some(job) = grouped {
            self.keep_repairing(job, before);
        }
    }

    /// A job with groups waits to be repaired as long as a copy of it is below its minimum, whatever else grew or left.
    fn keep_repairing(&mut self, id: JobId, before: Option<Timestamp>) {
        let Some(holding) = self.ledger.holding(id) else { return };
        let active = self.jobs.get(id).filter(|job| job.phase == Phase::Active);
        let broken = active.is_some_and(|job| job.spec.is_broken_with(holding.alive()));
        let deadline = holding.repair_by.or(before).filter(|_| broken);
        if deadline != holding.repair_by {
            self.ledger.set_repair_by(id, deadline);
            self.refresh(id);
        }
    }

    fn apply_to_ledger(&mut self, event: &LedgerEvent) {
        match event {
            LedgerEvent::Started { job, attempt, tasks, policy, at, chosen } => {
                let (attempt, policy, at, chosen) = (*attempt, *policy, *at, *chosen);
                let held = tasks.iter().map(|&place| HeldTask::bound(place, Timestamp(0))).collect();
                let holding = Holding { attempt, policy, at, chosen, tasks: held, ..Holding::default() };
                self.start(*job, holding, tasks);
            }
            LedgerEvent::Carried { job, holding } => {
                self.ledger.start(*job, holding.clone(), self.charge(*job));
                self.jobs.resumed(*job);
                self.places_changed(*job);
            }
            LedgerEvent::Evicted { job, receipt, at, .. } => {
                use EvictionRule::{Booking, Drain, Guarantee};
                // A guarantee, a booked window and a node that is to be empty have their time, however often that is.
                if !matches!(receipt.why, Guarantee | Booking | Drain) {
                    let window = self.tenants.policy().preemption.eviction_window;
                    self.jobs.evicted(*job, receipt.beneficiary, window, *at);
                }
            }
            LedgerEvent::Grown { job, tasks, at, .. } => {
                if self.earmarks.of(*job).is_none() {
                    self.reservations.filled(*job, tasks);
                }
                self.release_earmark(*job);
                self.apply_and_count_served(*job, event, *at);
                self.places_changed(*job);
                self.count_past(*job, *at);
            }
            LedgerEvent::Shed { job, task, at, exit, detail } => {
                self.note_exit(*job, *task, *exit, *detail, *at);
                self.apply_and_count_served(*job, event, *at);
                self.places_changed(*job);
                self.count_past(*job, *at);
            }
            LedgerEvent::Gone { job, task, exit, at, detail } => {
                self.note_exit(*job, *task, Some(*exit), *detail, *at);
                self.ledger.apply(event);
                self.places_changed(*job);
                self.count_past(*job, *at);
            }
            LedgerEvent::Broken { job, .. }
            | LedgerEvent::Withdrawn { job, .. }
            | LedgerEvent::Asked { job, .. }
            | LedgerEvent::Stopping { job, .. } => {
                self.ledger.apply(event);
                self.places_changed(*job);
            }
            LedgerEvent::Running { job, .. } => {
                self.ledger.apply(event);
                // Only now is it known when the job will be over.
                self.reservations.note_news();
                self.note_whole(*job);
                // From here on the job is served, after which it may have to give way: refusals are looked at again.
                if !self.tenants.policy().orders.all_by_age() {
                    self.places_changed(*job);
                }
                self.refresh_limit(*job);
            }
            LedgerEvent::Acked { .. }
            | LedgerEvent::LeaveRefused { .. }
            | LedgerEvent::AskFailed { .. }
            | LedgerEvent::OrphanSeen { .. }
            | LedgerEvent::OrphanGone { .. } => self.ledger.apply(event),
        }
    }

    fn note_whole(&mut self, job: JobId) {
        let holding = self.ledger.holding(job).expect("what runs is held");
        let runs = |task: &HeldTask| {
            matches!(task.phase, TaskPhase::Running | TaskPhase::Gone { exit: Exit::Succeeded, .. })
        };
        if holding.tasks.iter().all(runs) {
            self.jobs.no_longer_refused(job);
        }
    }

    fn note_exit(&mut self, job: JobId, task: u32, exit: Option<Exit>, detail: ExitDetail, at: Timestamp) {
        let held = self.ledger.holding(job).and_then(|holding| holding.task(task));
        // Journals from before causes were recorded must rebuild the same state.
        let failed = held.filter(|_| exit == Some(Exit::Failed) && detail.cause.is_some());
        let failure = failed.map(|held| Failure { task, node: held.place.node, detail, at });
        self.jobs.note_exit(job, detail, failure);
    }

    fn start(&mut self, job: JobId, holding: Holding, tasks: &[Placement]) {
        let (attempt, at) = (holding.attempt, holding.at);
        let had_earmark = self.earmarks.of(job).is_some();
        self.release_earmark(job);
        self.ledger.start(job, holding, self.charge(job));
        self.jobs.started(job, attempt, at);
        self.reservations.forget(job);
        // Reservations count an earmark as filled from the beginning.
        if !had_earmark {
            self.reservations.filled(job, tasks);
        }
        let started = self.jobs.get(job).expect("a job that starts is live");
        if let Some(rules) = self.tenants.policy().orders.beyond_age(started.spec.class) {
            self.attained.started(job, started, rules, at);
        }
        if let Some(booking) = started.spec.booking {
            self.bookings.use_it(booking);
        }
        self.places_changed(job);
        self.count_past(job, at);
    }

    fn apply_earmarks(&mut self, event: &EarmarksEvent) {
        match event {
            EarmarksEvent::Earmarked(earmark) => {
                let Earmark { job, tasks, .. } = earmark;
                let charged = (earmark.clone(), self.charge(*job));
                self.ledger.shift_earmark(&charged, Presence::Gone, Presence::Stays);
                self.earmarks.insert(charged);
                self.reservations.earmarked(*job, tasks);
                self.reservations.filled(*job, tasks);
                self.jobs.leave_kind(*job);
                self.places_changed(*job);
            }
            EarmarksEvent::Released { job, at: _ } => {
                self.release_earmark(*job);
                self.places_changed(*job);
            }
        }
    }

    fn apply_past(&mut self, event: &PastUseEvent) {
        if let Some(half_life) = self.tenants.policy().half_life {
            let (tree, own) = self.tree_and_use();
            self.past.apply(event, half_life, tree, own);
        }
    }

    /// Guarantees, tenants or pools are others than those by which past use is counted.
    fn reline_past(&mut self) {
        if self.past.is_counting() {
            let (tree, own) = self.tree_and_use();
            self.past.relined(tree, own);
        }
    }

    fn tree_and_use(&self) -> (Tree, Amounts) {
        let tree = self.tree(self.tenants.policy());
        let own = self.own_use(&tree);
        (tree, own)
    }

    fn count_past(&mut self, job: JobId, at: Timestamp) {
        let Some(tree) = self.past.tree() else { return };
        let tenant = self.jobs.get(job).expect("places belong to a live job").spec.tenant;
        let own = self.own_use_of(tenant, tree);
        self.past.holds(tenant, &own, at);
    }

    /// The holding drops the record of tasks that are over. How long they were served is remembered.
    fn apply_and_count_served(&mut self, job: JobId, event: &LedgerEvent, at: Timestamp) {
        let served = |ledger: &Ledger| ledger.holding(job).map_or(0, |holding| holding.served(at));
        let before = served(&self.ledger);
        self.ledger.apply(event);
        self.attained.served(job, before.saturating_sub(served(&self.ledger)));
    }

    fn note_ended(&mut self, id: JobId, at: Timestamp) {
        let job = self.jobs.get(id).expect("a job that ends is live");
        let served = self.attained.gpu_ms(id, self.ledger.holding(id), at);
        let Policy { orders, estimates, .. } = self.tenants.policy();
        let by_order = orders.beyond_age(job.spec.class).map(|rules| rules.label.as_ref());
        // A service runs until it is stopped: how long that was says nothing of the next.
        let learns = estimates.learned && job.spec.service.is_none();
        let by_estimate = learns.then_some(estimates.label.as_ref());
        let by: Vec<Option<&String>> = by_order.into_iter().chain(by_estimate).collect();
        self.attained.ended(id, &job.spec, &by, served);
    }

    /// How long a job is expected to run in all: as its owner says or, where the owner says nothing, as jobs like it did.
    pub fn estimate(&self, spec: &Spec) -> Option<Estimate> {
        if let Some(given) = spec.estimate {
            return Some(Estimate::Given(given));
        }
        let Estimates { learned, label } = &self.tenants.policy().estimates;
        let learns = *learned && spec.service.is_none();
        learns.then(|| self.attained.estimate(spec, label.as_ref())).flatten().map(Estimate::Learned)
    }

    /// A job no longer fills the reservations on its nodes, except where it has an earmark: it moves inside the node.
    fn leave_reservations(&mut self, job: JobId) {
        let earmarked = self.earmarks.of(job).into_iter().flat_map(|earmark| &earmark.tasks);
        let stays: BTreeSet<NodeId> = earmarked.map(|place| place.node).collect();
        let held = self.ledger.holding(job).into_iter().flat_map(|holding| &holding.tasks);
        let left = held.map(|task| task.place.node).filter(|node| !stays.contains(node));
        self.reservations.left(job, left);
    }

    /// A job starts at the places that are earmarked for it, or gets none of them.
    fn release_earmark(&mut self, job: JobId) {
        if let Some(charged) = self.earmarks.remove(job) {
            self.ledger.shift_earmark(&charged, Presence::Stays, Presence::Gone);
            self.ledger.note_changed_of(self.tenants.lineage(charged.1.group.tenant));
            self.jobs.join_kind(job);
        }
    }

    fn charge(&self, job: JobId) -> Charge {
        Charge::of(self.jobs.get(job).expect("places belong to a live job"))
    }

    /// How long a job may take to be gone once it is told to leave.
    pub fn time_to_leave(&self, spec: &Spec) -> Millis {
        let stop = self.tenants.policy().stop_grace;
        Millis(spec.grace().0.saturating_add(stop.0))
    }

    /// The earliest moment after `now` at which time alone changes a plan or an action.
    pub fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        // Every section is named, so that a new one does not compile until its deadlines were thought of.
        let Self {
            fleet: _, // a node that drains is emptied like one with a downtime: see `Maintenance`
            tenants,
            jobs,
            ledger,
            earmarks: _, // due when their victims are gone
            demand: _,   // changes with what is submitted
            reservations,
            attained: _, // a plan that depends on service says when it changes: see `Memory::wake`
            bookings,
            past,
            maintenance,
            owned: _, // what owners are told is due at once, as an action
            index: _,
        } = self;
        let policy = tenants.policy();
        let deadlines = [
            jobs.next_deadline(policy, now),
            ledger.next_deadline(policy, now),
            reservations.next_deadline(self, now),
            bookings.next_deadline(self, now),
            policy.half_life.and_then(|half_life| past.next_step(half_life)),
            maintenance.next_deadline(self, now),
        ];
        deadlines.into_iter().flatten().filter(|&at| at > now).min()
    }

    /// The shortest event list that rebuilds it.
    pub fn snapshot(&self) -> Vec<Event> {
        let mut events = Vec::new();
        self.fleet.snapshot(&mut events);
        self.tenants.snapshot(&mut events);
        self.jobs.snapshot(&mut events);
        self.ledger.snapshot(&mut events);
        self.jobs.snapshot_leaving(&mut events);
        self.earmarks.snapshot(&mut events);
        self.demand.snapshot(&mut events);
        self.reservations.snapshot(&mut events);
        self.attained.snapshot(&mut events);
        self.bookings.snapshot(&mut events);
        self.past.snapshot(&mut events);
        self.maintenance.snapshot(&mut events);
        self.owned.snapshot(&mut events);
        events
    }
}
