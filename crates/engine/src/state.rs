//! The state: the fold of events, in sections that do not reach into each other.
//!
//! `apply` hands each event to its section and, where one fact concerns two sections, tells the second what
//! it needs to know through a method. It is total: an event in the journal is a fact.

mod actions;
pub mod attained;
pub mod bookings;
mod deadline;
pub mod demand;
pub mod earmarks;
mod emptying;
pub mod ends;
pub mod event;
pub mod fleet;
pub mod holding;
pub mod jobs;
pub mod ledger;
pub mod maintenance;
mod metered;
pub mod owned;
pub mod past_use;
pub mod reservations;
pub mod rooms;
pub mod tenants;
pub mod ways;

/// An index by its name, and what makes it wrong.
#[cfg(test)]
pub(crate) type Corruption<T> = (&'static str, fn(&mut T));

use crate::model::exit::Outcome;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use crate::model::action::Notice;
use crate::model::exit::{Exit, ExitDetail};
use crate::model::group::{Group, Lacks};
use crate::model::job::Spec;
use crate::model::need::Need;
use crate::model::placement::Placement;
use crate::model::policy::{Estimates, Policy};
use crate::quota::amount::Use;
use crate::state::attained::{Attained, LearnedEstimate};
use crate::state::bookings::{Bookings, BookingsEvent};
use crate::state::demand::{Demand, DemandEvent};
use crate::state::earmarks::{Earmark, Earmarks, EarmarksEvent};
use crate::state::event::Event;
use crate::state::fleet::{Fleet, FleetEvent};
use crate::state::holding::{HeldTask, Holding, TaskPhase};
use crate::state::jobs::event::{Failure, JobsEvent, Next};
use crate::state::jobs::{Job, Jobs, More, Phase};
use crate::state::ledger::event::{EvictionRule, LedgerEvent};
use crate::state::ledger::{Charge, Ledger, WantedTotal};
use crate::state::maintenance::{Maintenance, MaintenanceEvent};
use crate::state::owned::{Owned, OwnedEvent};
use crate::state::past_use::{PastUse, PastUseEvent};
use crate::state::reservations::Reservations;
use crate::state::tenants::{Tenants, TenantsEvent};
use crate::state::ways::first_way;
use crate::units::{JobId, Millis, NodeId, Timestamp, Uid};

/// Everything that is true now.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The nodes there are.
    pub fleet: Fleet,
    /// Who there is.
    pub tenants: Tenants,
    /// What is asked for.
    pub jobs: Jobs,
    /// Who holds what.
    pub ledger: Ledger,
    /// Who was promised what.
    pub earmarks: Earmarks,
    /// What is usually asked for, and what that makes places worth.
    pub demand: Demand,
    /// Who was promised which start.
    pub reservations: Reservations,
    /// How much jobs were served.
    pub attained: Attained,
    /// Which windows are booked.
    pub bookings: Bookings,
    /// What tenants borrowed.
    pub past: PastUse,
    /// Which downtimes are planned.
    pub maintenance: Maintenance,
    /// What owners of jobs in the world are to be told.
    pub owned: Owned,
    index: u64,
}

/// How long a job is expected to run, and who says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Estimate {
    /// Its owner.
    Given(Millis),
    /// Finished jobs like it.
    Learned(LearnedEstimate),
}

impl Estimate {
    /// In all.
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

    /// Makes it so.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Fleet(event) => self.apply_fleet(event),
            Event::Tenants(event) => self.apply_tenants(event),
            Event::Jobs(event) => self.apply_jobs(event),
            Event::Ledger(event) => self.apply_ledger(event),
            Event::Earmarks(event) => self.apply_earmarks(event),
            Event::Demand(event) => self.apply_demand(event),
            Event::Reservations(event) => self.reservations.apply(event),
            Event::Attained(event) => self.attained.apply(event),
            Event::Bookings(event) => self.apply_bookings(event),
            Event::Past(event) => self.apply_past(event),
            Event::Maintenance(event) => self.apply_maintenance(event),
            Event::Owned(event) => self.apply_owned(event),
        }
        self.index += 1;
    }

    /// Makes them so, in order.
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
                self.ledger.anything_may_fit(self.fleet.pool_ids());
            }
            FleetEvent::PoolNamed { .. } => self.reline_past(),
            FleetEvent::LevelNamed { .. } | FleetEvent::WorldSeen { .. } => {}
        }
    }

    fn node_changed(&mut self, node: NodeId) {
        let known = self.fleet.node(node);
        let known = known.map(|known| (known, self.fleet.mig(known.facts.pool)));
        self.ledger.node_changed(node, known, &self.earmarks);
    }

    fn apply_maintenance(&mut self, event: &MaintenanceEvent) {
        let nodes = |section: &Maintenance| {
            section.get(event.name()).map(|downtime| downtime.nodes.clone()).unwrap_or_default()
        };
        let before = nodes(&self.maintenance);
        self.maintenance.apply(event);
        for node in before.into_iter().chain(nodes(&self.maintenance)) {
            self.fleet.set_out_of_service(node, self.maintenance.is_out(node));
            self.node_changed(node);
        }
    }

    fn apply_tenants(&mut self, event: &TenantsEvent) {
        self.tenants.apply(event);
        match event {
            TenantsEvent::PolicyApplied { policy, .. } => {
                self.ledger.anything_may_fit(self.fleet.pool_ids());
                let counts = !policy.orders.all_by_age() || policy.estimates.learned;
                self.attained.count(counts, self.jobs.iter());
                if policy.half_life.is_none() {
                    self.past.forget();
                }
                self.reline_past();
            }
            TenantsEvent::TenantNamed { .. } | TenantsEvent::TrustNamed { .. } => {}
        }
    }

    fn apply_owned(&mut self, event: &OwnedEvent) {
        self.owned.apply(event);
        match event {
            OwnedEvent::Claimed { uid, .. } => self.set_owned(*uid, true),
            OwnedEvent::Gone { uid, .. } => self.set_owned(*uid, false),
            OwnedEvent::Noted { .. } | OwnedEvent::Withdrawn { .. } => {}
        }
    }

    fn set_owned(&mut self, uid: Uid, owned: bool) {
        if let Some(job) = self.jobs.with_uid(uid) {
            self.jobs.set_owned(job, owned);
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
            | JobsEvent::RefusalsForgotten { job, .. } => {
                self.becomes_another_kind(*job, |jobs| jobs.apply(event));
            }
            JobsEvent::StartRefused { job, by, .. } => {
                // What was promised to it before, on a node that it avoids from now on, is not kept.
                let promised = self.earmarks.of(*job).into_iter().flat_map(|earmark| &earmark.tasks);
                let mut nodes = promised.map(|place| place.node);
                if nodes.any(|node| by.iter().any(|refusal| refusal.node == node)) {
                    self.release(*job);
                }
                self.becomes_another_kind(*job, |jobs| jobs.apply(event));
            }
            JobsEvent::Held { job, .. } => {
                self.release(*job);
                self.reservations.forget(*job);
                self.jobs.apply(event);
                self.refresh(*job);
            }
            JobsEvent::Released { job, .. } => {
                self.jobs.apply(event);
                self.refresh(*job);
            }
            JobsEvent::Extended { job, .. } => {
                self.becomes_another_kind(*job, |jobs| jobs.apply(event));
                self.refresh_limit(*job);
            }
            JobsEvent::Leaving { job, .. } | JobsEvent::Stays { job, .. } => {
                // What was promised to it as it was; a job that is moved is promised its new places afterwards.
                self.release(*job);
                self.jobs.apply(event);
                self.refresh(*job);
            }
            JobsEvent::Changed { job, .. } => {
                self.release(*job);
                self.reservations.forget(*job);
                self.becomes_another_kind(*job, |jobs| jobs.apply(event));
            }
            JobsEvent::Queued { spec, uid, .. } => {
                self.demand.count(spec);
                self.owned.forget(*uid);
                self.jobs.apply(event);
            }
            JobsEvent::CarriedJob { job, .. } => self.becomes_another_kind(*job, |jobs| jobs.apply(event)),
            JobsEvent::ReplicaFailed { .. } | JobsEvent::Carried { .. } | JobsEvent::CarriedEnded { .. } => {
                self.jobs.apply(event);
            }
        }
    }

    /// What an attempt held is free; what it did is not forgotten.
    fn let_go(&mut self, job: JobId, at: Timestamp) {
        let ran = self.ledger.holding(job).map_or(0, |holding| holding.ran(at));
        self.jobs.ran(job, ran);
        let served = self.ledger.holding(job).map_or(0, |holding| holding.served(at));
        self.attained.served(job, served);
        self.attained.waits(job, at);
        self.leaves_earmark(job);
        self.ledger.forget(job);
    }

    /// A job that is over holds, wants and is promised nothing.
    fn end(&mut self, job: JobId, outcome: Outcome, at: Timestamp) {
        self.note_ended(job, at);
        if let Some(job) = self.jobs.get(job).filter(|job| job.owned) {
            self.owned.note(job.uid, Notice::Ended { outcome }, at);
        }
        self.release(job);
        self.leaves_earmark(job);
        self.ledger.forget(job);
        self.reservations.forget(job);
        self.ledger.set_want(job, None);
        self.ledger.set_wants_of_groups(job, Vec::new());
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

    /// It leaves the lists of its old kind first.
    fn becomes_another_kind(&mut self, job: JobId, change: impl FnOnce(&mut Jobs)) {
        let aside = self.earmarks.of(job).is_some();
        self.jobs.set_more(job, None);
        if !aside {
            self.jobs.leave_kind(job);
        }
        change(&mut self.jobs);
        if !aside {
            self.jobs.join_kind(job);
        }
        self.changed(job);
    }

    fn apply_ledger(&mut self, event: &LedgerEvent) {
        let grouped = event.job().filter(|job| self.jobs.get(*job).is_some_and(|job| job.spec.has_groups()));
        let before = grouped.and_then(|job| self.ledger.holding(job)?.repair_by);
        self.apply_to_ledger(event);
        if let Some(job) = grouped {
            self.keep_repairing(job, before);
        }
    }

    /// A job with groups waits to be repaired for as long as a copy of it is below its minimum, whatever else of it
    /// grew or left meanwhile.
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
                let holding = Holding::started(*attempt, *policy, tasks, *at, *chosen);
                self.start(*job, holding, tasks);
            }
            LedgerEvent::Carried { job, holding } => {
                self.ledger.start(*job, holding.clone(), self.charge(*job));
                self.jobs.resumed(*job);
                self.changed(*job);
            }
            LedgerEvent::Evicted { job, receipt, at, .. } => {
                // A guarantee, a booked window and a node that is to be empty have their time, however often that is.
                if !matches!(
                    receipt.why,
                    EvictionRule::Guarantee | EvictionRule::Booking | EvictionRule::Drain
                ) {
                    let window = self.tenants.policy().preemption.eviction_window;
                    self.jobs.evicted(*job, receipt.beneficiary, window, *at);
                }
            }
            LedgerEvent::Grown { job, tasks, at, .. } => {
                if self.earmarks.of(*job).is_none() {
                    self.reservations.filled(*job, tasks);
                }
                self.release(*job);
                self.apply_and_count_served(*job, event, *at);
                self.changed(*job);
                self.count_past(*job, *at);
            }
            LedgerEvent::Shed { job, task, at, exit, detail } => {
                self.note_exit(*job, *task, *exit, *detail, *at);
                self.apply_and_count_served(*job, event, *at);
                self.changed(*job);
                self.count_past(*job, *at);
            }
            LedgerEvent::Gone { job, task, exit, at, detail } => {
                self.note_exit(*job, *task, Some(*exit), *detail, *at);
                self.ledger.apply(event);
                self.changed(*job);
                self.count_past(*job, *at);
            }
            LedgerEvent::Broken { job, .. }
            | LedgerEvent::Withdrawn { job, .. }
            | LedgerEvent::Asked { job, .. }
            | LedgerEvent::Stopping { job, .. } => {
                self.ledger.apply(event);
                self.changed(*job);
            }
            LedgerEvent::Running { job, .. } => {
                self.ledger.apply(event);
                // Only now is it known when it is over.
                self.reservations.note_news();
                self.note_whole(*job);
                // From here on its service grows, which may make it give way: refusals are looked at again.
                if !self.tenants.policy().orders.all_by_age() {
                    self.changed(*job);
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

    /// A job of which all tasks run is refused no longer.
    fn note_whole(&mut self, job: JobId) {
        let holding = self.ledger.holding(job).expect("what runs is held");
        let runs = |task: &HeldTask| match task.phase {
            TaskPhase::Running | TaskPhase::Gone { exit: Exit::Succeeded, .. } => true,
            TaskPhase::Bound
            | TaskPhase::Asked { .. }
            | TaskPhase::Acked { .. }
            | TaskPhase::Stopping { .. }
            | TaskPhase::Gone { .. } => false,
        };
        if holding.tasks.iter().all(runs) {
            self.jobs.no_longer_refused(job);
        }
    }

    /// How a task ended stays with its job.
    fn note_exit(&mut self, job: JobId, task: u32, exit: Option<Exit>, detail: ExitDetail, at: Timestamp) {
        let held = self.ledger.holding(job).and_then(|holding| holding.task(task));
        // Journals of before causes were told keep their hash.
        let failed = held.filter(|_| exit == Some(Exit::Failed) && detail.cause.is_some());
        let failure = failed.map(|held| Failure { task, node: held.place.node, detail, at });
        self.jobs.note_exit(job, detail, failure);
    }

    fn start(&mut self, job: JobId, holding: Holding, tasks: &[Placement]) {
        let (attempt, at) = (holding.attempt, holding.at);
        let aside = self.earmarks.of(job).is_some();
        self.release(job);
        self.ledger.start(job, holding, self.charge(job));
        self.jobs.started(job, attempt, at);
        self.reservations.forget(job);
        // Who was promised what was set aside already knew of it.
        if !aside {
            self.reservations.filled(job, tasks);
        }
        self.note_started(job, at);
        if let Some(booking) = self.jobs.get(job).and_then(|job| job.spec.booking) {
            self.bookings.use_it(booking);
        }
        self.changed(job);
        self.count_past(job, at);
    }

    fn apply_earmarks(&mut self, event: &EarmarksEvent) {
        match event {
            EarmarksEvent::Earmarked { job, tasks, policy, at, chosen } => {
                let charge = self.charge(*job);
                self.ledger.earmark(*job, tasks, &charge);
                let earmark = Earmark { tasks: tasks.clone(), policy: *policy, at: *at, chosen: *chosen };
                self.earmarks.insert(*job, earmark, charge);
                self.reservations.set_aside(*job, tasks);
                self.reservations.filled(*job, tasks);
                self.jobs.leave_kind(*job);
                self.changed(*job);
            }
            EarmarksEvent::Released { job, at: _ } => {
                self.release(*job);
                self.changed(*job);
            }
        }
    }

    fn apply_demand(&mut self, event: &DemandEvent) {
        self.demand.apply(event, self.fleet.pools().len());
        self.ledger.keep_profiles(self.demand.tables().is_some());
    }

    fn apply_past(&mut self, event: &PastUseEvent) {
        if let Some(half_life) = self.tenants.policy().half_life {
            let tree = self.tree(self.tenants.policy());
            let own = self.own_use(&tree);
            self.past.apply(event, half_life, tree, own);
        }
    }

    /// Lines, tenants or pools are others than what was borrowed is counted by.
    fn reline_past(&mut self) {
        if self.past.is_counting() {
            let tree = self.tree(self.tenants.policy());
            let own = self.own_use(&tree);
            self.past.relined(tree, own);
        }
    }

    /// A job's tenant holds more or less from that moment on.
    fn count_past(&mut self, job: JobId, at: Timestamp) {
        let Some(tree) = self.past.tree() else { return };
        let tenant = self.jobs.get(job).expect("places belong to a live job").spec.tenant;
        let own =
            self.ledger.used(tenant).map_or_else(|| tree.metered(&Use::default()), |own| tree.metered(own));
        self.past.holds(tenant, &own, at);
    }

    /// The holding forgets tasks that are over; their service is not forgotten.
    fn apply_and_count_served(&mut self, job: JobId, event: &LedgerEvent, at: Timestamp) {
        let served = |ledger: &Ledger| ledger.holding(job).map_or(0, |holding| holding.served(at));
        let before = served(&self.ledger);
        self.ledger.apply(event);
        self.attained.served(job, before.saturating_sub(served(&self.ledger)));
    }

    fn note_started(&mut self, id: JobId, at: Timestamp) {
        let job = self.jobs.get(id).expect("who starts is a live job");
        if let Some(rules) = self.tenants.policy().orders.beyond_age(job.spec.class) {
            self.attained.started(id, job, rules, at);
        }
    }

    fn note_ended(&mut self, id: JobId, at: Timestamp) {
        let job = self.jobs.get(id).expect("who ends is a live job");
        let served = self.attained.gpu_ms(id, self.ledger.holding(id), at);
        let Policy { orders, estimates, .. } = self.tenants.policy();
        let by_order = orders.beyond_age(job.spec.class).map(|rules| rules.label.as_ref());
        // A service runs until it is stopped: how long that was says nothing of the next.
        let learns = estimates.learned && job.spec.service.is_none();
        let by_estimate = learns.then_some(estimates.label.as_ref());
        let by: Vec<Option<&String>> = by_order.into_iter().chain(by_estimate).collect();
        self.attained.ended(id, &job.spec, &by, served);
    }

    /// How long a job is expected to run in all: as its owner says or, where it says nothing, as others like it did.
    pub fn estimate(&self, spec: &Spec) -> Option<Estimate> {
        if let Some(given) = spec.estimate {
            return Some(Estimate::Given(given));
        }
        let Estimates { learned, label } = &self.tenants.policy().estimates;
        let learns = *learned && spec.service.is_none();
        learns.then(|| self.attained.estimate(spec, label.as_ref())).flatten().map(Estimate::Learned)
    }

    /// What a job held of places that are promised it holds no longer. Where it moves inside a node, it fills that still.
    fn leaves_earmark(&mut self, job: JobId) {
        let aside = self.earmarks.of(job).into_iter().flat_map(|earmark| &earmark.tasks);
        let stays: BTreeSet<NodeId> = aside.map(|place| place.node).collect();
        let held = self.ledger.holding(job).into_iter().flat_map(|holding| &holding.tasks);
        let left = held.map(|task| task.place.node).filter(|node| !stays.contains(node));
        self.reservations.left(job, left);
    }

    /// Places that were set aside for a job are taken by it, or no longer are.
    fn release(&mut self, job: JobId) {
        if let Some((earmark, charge)) = self.earmarks.remove(job) {
            self.ledger.release(job, &earmark.tasks, &charge);
            self.ledger.note_changed_of(self.tenants.lineage(charge.group.tenant));
            self.jobs.join_kind(job);
        }
    }

    fn charge(&self, job: JobId) -> Charge {
        Charge::of(self.jobs.get(job).expect("places belong to a live job"))
    }

    /// What is held by a job, or promised to it, is not what it was.
    fn changed(&mut self, job: JobId) {
        let tenant = self.jobs.get(job).expect("places belong to a live job").spec.tenant;
        self.ledger.note_changed_of(self.tenants.lineage(tenant));
        self.refresh(job);
    }

    /// What a job wants and lacks is worked out again.
    fn refresh(&mut self, id: JobId) {
        let job = self.jobs.get(id).expect("what changed belongs to a live job");
        let (want, more) = (self.want(id, job), self.more(id, job));
        if job.spec.has_groups() {
            let wants = self.wants_of_groups(id, job);
            self.ledger.set_wants_of_groups(id, wants);
        }
        self.ledger.set_want(id, want);
        self.jobs.set_more(id, more);
        self.refresh_limit(id);
    }

    /// When the time limit of a job asks something of it is worked out again.
    fn refresh_limit(&mut self, id: JobId) {
        self.jobs.set_wrap_up(id, self.wrap_up_at(id));
    }

    fn want(&self, id: JobId, job: &Job) -> Option<WantedTotal> {
        if matches!(job.phase, Phase::Leaving(Next::End(_))) || job.spec.has_groups() {
            return None;
        }
        let holding = self.ledger.holding(id);
        let held = holding.and_then(|holding| holding.tasks.first()).map(|task| &task.place);
        let place = held.or_else(|| self.earmarks.of(id)?.tasks.first())?;
        let each = place.units_each.times(place.gpus.count());
        let done = holding.map_or(0, |holding| holding.exits(Exit::Succeeded));
        let tasks = job.spec.tasks.saturating_sub(u32::try_from(done).unwrap_or(u32::MAX));
        let resources = job.spec.shape.resources.times(tasks);
        Some(WantedTotal { tenant: job.spec.tenant, pool: place.pool, units: each.times(tasks), resources })
    }

    /// What each group of a job wants where its tasks are, or in the first pool they may use.
    fn wants_of_groups(&self, id: JobId, job: &Job) -> Vec<WantedTotal> {
        let holding = self.ledger.holding(id);
        let promised = self.earmarks.of(id).map(|earmark| earmark.tasks.as_slice()).unwrap_or_default();
        let ending = matches!(job.phase, Phase::Leaving(Next::End(_)));
        if ending || (holding.is_none() && promised.is_empty()) {
            return Vec::new();
        }
        let held = || holding.into_iter().flat_map(|holding| &holding.tasks);
        let of_group = |(at, group): (usize, &Group)| {
            let own = |task: u32| job.spec.group_of(task) == Some(at);
            let place = held().map(|task| &task.place).chain(promised).find(|place| own(place.task));
            let given = place.map(|place| (place.pool, place.units_each.times(place.gpus.count())));
            let first = || first_way(&self.fleet, &group.shape).map(|(pool, need)| (pool, need.units()));
            let (pool, each) = given.or_else(first)?;
            let done = holding.map_or(0, |holding| holding.done().filter(|&task| own(task)).count());
            let tasks = group.tasks_in_all().saturating_sub(u32::try_from(done).unwrap_or(u32::MAX));
            let resources = group.shape.resources.times(tasks);
            Some(WantedTotal { tenant: job.spec.tenant, pool, units: each.times(tasks), resources })
        };
        job.spec.groups.iter().enumerate().filter_map(of_group).collect()
    }

    fn more(&self, id: JobId, job: &Job) -> Option<More> {
        let holding = self.ledger.holding(id).filter(|_| job.phase == Phase::Active)?;
        let (done, failed) = (holding.exits(Exit::Succeeded), holding.exits(Exit::Failed));
        // What is being promised to a job that runs is on its way; one piece at a time.
        if failed > 0 || self.earmarks.of(id).is_some() {
            return None;
        }
        if job.spec.has_groups() {
            return self.more_of_groups(id, job, holding);
        }
        let staying = holding.staying().count();
        let alive = u32::try_from(staying + done).unwrap_or(u32::MAX);
        let repair = alive < job.spec.min;
        let complete = alive >= job.spec.tasks || (done > 0 && !repair);
        let first = holding.staying().next().or(holding.tasks.first()).filter(|_| !complete)?;
        let domain =
            job.spec.topology.gang_within.and_then(|level| self.fleet.domain_of(first.place.node, level));
        let tasks = if repair { job.spec.min - alive } else { 1 };
        let (pool, need) = (first.place.pool, Need::held(&first.place));
        Some(More { tasks, repair, pool, need, domain, of: None })
    }

    fn more_of_groups(&self, id: JobId, job: &Job, holding: &Holding) -> Option<More> {
        let (lacks, repair) = match job.spec.lacks(holding.alive()) {
            Lacks::Repair(lacks) => (lacks, true),
            // A job of which tasks have finished is repaired, but not grown any more.
            Lacks::Growth(_) if holding.exits(Exit::Succeeded) > 0 => return None,
            Lacks::Growth(lacks) => (lacks, false),
        };
        let tasks: usize = lacks.iter().map(|lack| lack.slots.len()).sum();
        let tasks = u32::try_from(tasks).ok().filter(|&tasks| tasks > 0)?;
        let first = holding.staying().next().or(holding.tasks.first())?;
        let domain =
            job.spec.topology.gang_within.and_then(|level| self.fleet.domain_of(first.place.node, level));
        let (pool, need) = (first.place.pool, Need::held(&first.place));
        Some(More { tasks, repair, pool, need, domain, of: Some(id) })
    }

    /// How long a job may take to be gone once it is told to leave.
    pub fn time_to_leave(&self, spec: &Spec) -> Millis {
        let stop = self.tenants.policy().stop_grace;
        Millis(spec.grace().0.saturating_add(stop.0))
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
