//! The state: the fold of events, in sections that do not reach into each other.
//!
//! `apply` hands each event to its section and, where one fact concerns two sections, tells the second what
//! it needs to know through a method. It is total: an event in the journal is a fact.

use alloc::vec::Vec;

use crate::event::{Event, FleetEvent, HeldTask, Holding, JobsEvent, LedgerEvent, TaskPhase, TenantsEvent};
use crate::fleet::Fleet;
use crate::jobs::Jobs;
use crate::ledger::{Charge, Ledger};
use crate::tenants::Tenants;
use crate::units::{JobId, Timestamp};

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
    index: u64,
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
            FleetEvent::NodeSeen { node, .. }
            | FleetEvent::NodeRemoved { node }
            | FleetEvent::Cordoned { node, .. } => self.ledger.node_changed(*node, self.fleet.node(*node)),
            FleetEvent::NodeSetDefined { .. } | FleetEvent::DeviceSetDefined { .. } => {
                self.ledger.anything_may_fit(self.fleet.pool_ids());
            }
            FleetEvent::PoolNamed { .. } | FleetEvent::LevelNamed { .. } | FleetEvent::WorldSeen { .. } => {}
        }
    }

    fn apply_tenants(&mut self, event: &TenantsEvent) {
        self.tenants.apply(event);
        match event {
            TenantsEvent::PolicyApplied { .. } => self.ledger.anything_may_fit(self.fleet.pool_ids()),
            TenantsEvent::TenantNamed { .. } | TenantsEvent::TrustNamed { .. } => {}
        }
    }

    fn apply_jobs(&mut self, event: &JobsEvent) {
        match event {
            JobsEvent::Requeued { job, at, .. } => {
                let ran = self.ledger.holding(*job).map_or(0, |holding| holding.ran(*at));
                self.jobs.ran(*job, ran);
                self.ledger.forget(*job);
            }
            JobsEvent::Ended { job, .. } => self.ledger.forget(*job),
            JobsEvent::Queued { .. }
            | JobsEvent::Leaving { .. }
            | JobsEvent::Carried { .. }
            | JobsEvent::CarriedEnded { .. }
            | JobsEvent::CarriedJob { .. } => {}
        }
        self.jobs.apply(event);
    }

    fn apply_ledger(&mut self, event: &LedgerEvent) {
        match event {
            LedgerEvent::Started { job, attempt, tasks, policy, at } => {
                let held = |place| HeldTask { place, since: None, phase: TaskPhase::Bound };
                let tasks = tasks.iter().copied().map(held).collect();
                let holding = Holding { attempt: *attempt, policy: *policy, at: *at, asked_by: None, tasks };
                self.ledger.start(*job, holding, self.charge(*job));
                self.jobs.started(*job, *attempt, *at);
            }
            LedgerEvent::Carried { job, holding } => {
                self.ledger.start(*job, holding.clone(), self.charge(*job));
                self.jobs.resumed(*job);
            }
            LedgerEvent::Gone { job, .. } => {
                self.ledger.apply(event);
                let tenant = self.charge(*job).tenant;
                self.ledger.note_freed_of(self.tenants.lineage(tenant));
            }
            LedgerEvent::Running { .. }
            | LedgerEvent::Asked { .. }
            | LedgerEvent::Acked { .. }
            | LedgerEvent::AskFailed { .. }
            | LedgerEvent::Stopping { .. }
            | LedgerEvent::OrphanSeen { .. }
            | LedgerEvent::OrphanGone { .. } => self.ledger.apply(event),
        }
    }

    fn charge(&self, job: JobId) -> Charge {
        Charge::of(&self.jobs.get(job).expect("places belong to a live job").spec)
    }

    /// The earliest moment after `now` at which time alone changes a plan or an action.
    pub fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let asked = self.ledger.deadlines().first().map(|&(at, _)| at);
        [asked, self.jobs.next_start_allowed(now)].into_iter().flatten().min()
    }

    /// The shortest event list that rebuilds it.
    pub fn snapshot(&self) -> Vec<Event> {
        let mut events = Vec::new();
        self.fleet.snapshot(&mut events);
        self.tenants.snapshot(&mut events);
        self.jobs.snapshot(&mut events);
        self.ledger.snapshot(&mut events);
        self.jobs.snapshot_leaving(&mut events);
        events
    }
}
