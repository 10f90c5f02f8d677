//! Durable facts, one enum per section. Append-only: a variant or a field is never removed or given another
//! meaning, new fields have defaults, and the golden journal in the tree is replayed by a test.

use serde::{Deserialize, Serialize};

pub use super::attained::AttainedEvent;
pub use super::bookings::BookingsEvent;
pub use super::demand::DemandEvent;
pub use super::earmarks::EarmarksEvent;
pub use super::fleet::FleetEvent;
pub use super::jobs::event::JobsEvent;
pub use super::ledger::event::LedgerEvent;
pub use super::maintenance::MaintenanceEvent;
pub use super::owned::OwnedEvent;
pub use super::past_use::PastUseEvent;
pub use super::reservations::ReservationsEvent;
pub use super::tenants::TenantsEvent;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// To the fleet.
    Fleet(FleetEvent),
    /// To tenants and policy.
    Tenants(TenantsEvent),
    /// To jobs.
    Jobs(JobsEvent),
    /// To what is held by whom.
    Ledger(LedgerEvent),
    /// To places that are set aside for jobs.
    #[serde(rename = "Promises")]
    Earmarks(EarmarksEvent),
    /// To what is usually asked for, and what that makes places worth.
    Demand(DemandEvent),
    /// To starts that are promised to jobs that wait.
    Reservations(ReservationsEvent),
    /// To how much jobs were served.
    Attained(AttainedEvent),
    /// To windows that are booked.
    Bookings(BookingsEvent),
    /// To what tenants borrowed.
    Past(PastUseEvent),
    /// To planned downtimes of nodes.
    Maintenance(MaintenanceEvent),
    /// To jobs that the world owns.
    Owned(OwnedEvent),
}
