//! What the feed tells of an event. One exhaustive match: a new event does not compile until somebody has decided what
//! watchers learn of it.
//!
//! Earmarks, prices and what is counted for fair shares are not told: they change answers, which are worked out when
//! somebody asks, and nothing that a watcher could list.

use wharf_api::v1::{Change, ChangeKind};
use wharf_engine::model::observed::TaskRef;
use wharf_engine::state::State;
use wharf_engine::state::bookings::BookingsEvent;
use wharf_engine::state::event::Event;
use wharf_engine::state::fleet::FleetEvent;
use wharf_engine::state::jobs::event::JobsEvent;
use wharf_engine::state::ledger::event::LedgerEvent;
use wharf_engine::state::maintenance::MaintenanceEvent;
use wharf_engine::state::reservations::ReservationsEvent;
use wharf_engine::state::tenants::TenantsEvent;
use wharf_engine::units::{BookingId, JobId, NodeId, TenantId, Timestamp, Uid};

/// The change that an event is, seen from the state before it.
pub(crate) fn project(state: &State, event: &Event, now: Timestamp) -> Option<Change> {
    let tell = Tell { state, now };
    match event {
        Event::Fleet(event) => tell.of_fleet(event),
        Event::Tenants(event) => match event {
            TenantsEvent::PolicyApplied { .. } => Some(tell.bare(ChangeKind::PolicyApplied)),
            TenantsEvent::TenantNamed { .. } | TenantsEvent::TrustNamed { .. } => None,
        },
        Event::Jobs(event) => tell.of_jobs(event),
        Event::Ledger(event) => tell.of_ledger(event),
        Event::Bookings(event) => tell.of_bookings(event),
        Event::Maintenance(event) => {
            let kind = match event {
                MaintenanceEvent::Planned { .. } | MaintenanceEvent::Began { .. } => {
                    ChangeKind::DowntimeChanged
                }
                MaintenanceEvent::Ended { .. } => ChangeKind::DowntimeEnded,
            };
            Some(Change { downtime: Some(event.name().to_owned()), ..tell.bare(kind) })
        }
        Event::Reservations(event) => match event {
            ReservationsEvent::Reserved(of) => tell.job(of.job, ChangeKind::ReservationChanged),
            ReservationsEvent::Dropped { job, .. } => tell.job(*job, ChangeKind::ReservationDropped),
            ReservationsEvent::Carried { .. } => None,
        },
        Event::Earmarks(_) | Event::Demand(_) | Event::Attained(_) | Event::Past(_) | Event::Owned(_) => None,
    }
}

struct Tell<'a> {
    state: &'a State,
    now: Timestamp,
}

impl Tell<'_> {
    fn of_fleet(&self, event: &FleetEvent) -> Option<Change> {
        match event {
            FleetEvent::NodeSeen { facts, .. } => {
                Some(Change { node: Some(facts.name.clone()), ..self.bare(ChangeKind::NodeChanged) })
            }
            FleetEvent::Cordoned { node, .. } | FleetEvent::Draining { node, .. } => {
                Some(self.node(*node, ChangeKind::NodeChanged))
            }
            FleetEvent::NodeRemoved { node } => Some(self.node(*node, ChangeKind::NodeGone)),
            FleetEvent::PoolNamed { .. }
            | FleetEvent::LevelNamed { .. }
            | FleetEvent::NodeSetDefined { .. }
            | FleetEvent::DeviceSetDefined { .. }
            | FleetEvent::WorldSeen { .. } => None,
        }
    }

    fn of_jobs(&self, event: &JobsEvent) -> Option<Change> {
        let (job, kind) = match event {
            JobsEvent::Queued { uid, spec, .. } => {
                return Some(self.named(spec.tenant, &spec.name, *uid, ChangeKind::JobQueued));
            }
            JobsEvent::Leaving { job, .. } => (job, ChangeKind::JobLeaving),
            JobsEvent::Stays { job, .. } => (job, ChangeKind::JobStays),
            JobsEvent::Requeued { job, .. } => (job, ChangeKind::JobRequeued),
            JobsEvent::Extended { job, .. }
            | JobsEvent::Scaled { job, .. }
            | JobsEvent::Rolled { job, .. }
            | JobsEvent::Changed { job, .. }
            | JobsEvent::StartRefused { job, .. }
            | JobsEvent::RefusalsForgotten { job, .. }
            | JobsEvent::ReplicaFailed { job, .. } => (job, ChangeKind::JobChanged),
            JobsEvent::Held { job, .. } => (job, ChangeKind::JobHeld),
            JobsEvent::Released { job, .. } => (job, ChangeKind::JobReleased),
            JobsEvent::Ended { job, .. } => (job, ChangeKind::JobEnded),
            JobsEvent::Carried { .. } | JobsEvent::CarriedEnded { .. } | JobsEvent::CarriedJob { .. } => {
                return None;
            }
        };
        self.job(*job, kind)
    }

    fn of_ledger(&self, event: &LedgerEvent) -> Option<Change> {
        let (job, kind) = match event {
            LedgerEvent::Started { job, .. } => (job, ChangeKind::JobStarted),
            LedgerEvent::Running { job, .. } => (job, ChangeKind::TaskRunning),
            LedgerEvent::Grown { job, .. } => (job, ChangeKind::JobGrown),
            LedgerEvent::Evicted { job, .. } => (job, ChangeKind::JobEvicted),
            LedgerEvent::Shed { job, .. } | LedgerEvent::Gone { job, .. } => (job, ChangeKind::TaskEnded),
            LedgerEvent::Broken { job, .. }
            | LedgerEvent::Withdrawn { job, .. }
            | LedgerEvent::Asked { job, .. }
            | LedgerEvent::Acked { job, .. }
            | LedgerEvent::AskFailed { job, .. }
            | LedgerEvent::LeaveRefused { job, .. }
            | LedgerEvent::Stopping { job, .. } => (job, ChangeKind::JobChanged),
            LedgerEvent::OrphanSeen { task, place, .. } => {
                return Some(self.orphan(*task, place.node, ChangeKind::OrphanSeen));
            }
            LedgerEvent::OrphanGone { task } => {
                let known = self.state.ledger.orphans().get(task)?;
                return Some(self.orphan(*task, known.place.node, ChangeKind::OrphanGone));
            }
            LedgerEvent::Carried { .. } => return None,
        };
        self.job(*job, kind)
    }

    fn of_bookings(&self, event: &BookingsEvent) -> Option<Change> {
        let (booking, kind) = match event {
            BookingsEvent::Booked { spec, .. } => {
                let change = self.bare(ChangeKind::BookingChanged);
                return Some(Change {
                    tenant: Some(self.path(spec.tenant)),
                    booking: Some(spec.name.clone()),
                    ..change
                });
            }
            BookingsEvent::Placed { booking, .. }
            | BookingsEvent::PlacesLost { booking, .. }
            | BookingsEvent::Began { booking, .. } => (booking, ChangeKind::BookingChanged),
            BookingsEvent::Ended { booking, .. } => (booking, ChangeKind::BookingEnded),
            BookingsEvent::Carried { .. } | BookingsEvent::CarriedBooking { .. } => return None,
        };
        self.booking(*booking, kind)
    }

    fn bare(&self, kind: ChangeKind) -> Change {
        Change {
            index: self.state.index(),
            at_ms: self.now.0,
            kind,
            tenant: None,
            job: None,
            uid: None,
            node: None,
            booking: None,
            downtime: None,
        }
    }

    fn named(&self, tenant: TenantId, name: &str, uid: Uid, kind: ChangeKind) -> Change {
        let tenant = Some(self.path(tenant));
        Change { tenant, job: Some(name.to_owned()), uid: Some(hexadecimal(uid)), ..self.bare(kind) }
    }

    fn path(&self, tenant: TenantId) -> String {
        self.state.tenants.path(tenant).to_owned()
    }

    fn job(&self, job: JobId, kind: ChangeKind) -> Option<Change> {
        let known = self.state.jobs.get(job)?;
        Some(self.named(known.spec.tenant, &known.spec.name, known.uid, kind))
    }

    fn node(&self, node: NodeId, kind: ChangeKind) -> Change {
        let name = self.state.fleet.node(node).map(|node| node.facts.name.clone());
        Change { node: name, ..self.bare(kind) }
    }

    fn orphan(&self, task: TaskRef, node: NodeId, kind: ChangeKind) -> Change {
        Change { uid: Some(hexadecimal(task.uid)), ..self.node(node, kind) }
    }

    fn booking(&self, booking: BookingId, kind: ChangeKind) -> Option<Change> {
        let spec = &self.state.bookings.get(booking)?.spec;
        let (tenant, booking) = (Some(self.path(spec.tenant)), Some(spec.name.clone()));
        Some(Change { tenant, booking, ..self.bare(kind) })
    }
}

fn hexadecimal(uid: Uid) -> String {
    format!("{:032x}", uid.0)
}
