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
    Fleet(FleetEvent),
    Tenants(TenantsEvent),
    Jobs(JobsEvent),
    Ledger(LedgerEvent),
    #[serde(rename = "Promises")]
    Earmarks(EarmarksEvent),
    Demand(DemandEvent),
    Reservations(ReservationsEvent),
    Attained(AttainedEvent),
    Bookings(BookingsEvent),
    Past(PastUseEvent),
    Maintenance(MaintenanceEvent),
    Owned(OwnedEvent),
}
