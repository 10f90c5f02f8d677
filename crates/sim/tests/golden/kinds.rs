//! Every kind of event has a name here and stands in a golden journal.

use std::collections::BTreeSet;

use wharf_controller::codec::EVENT_VERSION;
use wharf_engine::state::attained::AttainedEvent;
use wharf_engine::state::bookings::BookingsEvent;
use wharf_engine::state::demand::DemandEvent;
use wharf_engine::state::earmarks::EarmarksEvent;
use wharf_engine::state::event::Event;
use wharf_engine::state::fleet::FleetEvent;
use wharf_engine::state::jobs::event::JobsEvent;
use wharf_engine::state::ledger::event::LedgerEvent;
use wharf_engine::state::maintenance::MaintenanceEvent;
use wharf_engine::state::owned::OwnedEvent;
use wharf_engine::state::past_use::PastUseEvent;
use wharf_engine::state::reservations::ReservationsEvent;
use wharf_engine::state::tenants::TenantsEvent;

use super::{JOURNALS, golden};

/// The kinds, each with its name. A new variant of an event does not compile until it has a row, and then the test asks
/// for it.
macro_rules! kinds {
    ($($section:ident($kind:path) => $name:literal,)*) => {
        const KINDS: &[&str] = &[$($name),*];

        pub(super) fn kind(event: &Event) -> &'static str {
            match event {
                $(Event::$section($kind { .. }) => $name,)*
            }
        }
    };
}

kinds! {
    Fleet(FleetEvent::PoolNamed) => "PoolNamed",
    Fleet(FleetEvent::LevelNamed) => "LevelNamed",
    Fleet(FleetEvent::NodeSeen) => "NodeSeen",
    Fleet(FleetEvent::NodeRemoved) => "NodeRemoved",
    Fleet(FleetEvent::Cordoned) => "Cordoned",
    Fleet(FleetEvent::NodeSetDefined) => "NodeSetDefined",
    Fleet(FleetEvent::DeviceSetDefined) => "DeviceSetDefined",
    Fleet(FleetEvent::WorldSeen) => "WorldSeen",
    Fleet(FleetEvent::Draining) => "Draining",
    Tenants(TenantsEvent::TenantNamed) => "TenantNamed",
    Tenants(TenantsEvent::TrustNamed) => "TrustNamed",
    Tenants(TenantsEvent::PolicyApplied) => "PolicyApplied",
    Jobs(JobsEvent::Queued) => "Queued",
    Jobs(JobsEvent::Leaving) => "Leaving",
    Jobs(JobsEvent::Requeued) => "Requeued",
    Jobs(JobsEvent::Ended) => "Ended",
    Jobs(JobsEvent::Carried) => "JobsCarried",
    Jobs(JobsEvent::CarriedJob) => "CarriedJob",
    Jobs(JobsEvent::CarriedEnded) => "CarriedEnded",
    Jobs(JobsEvent::Changed) => "Changed",
    Jobs(JobsEvent::StartRefused) => "StartRefused",
    Jobs(JobsEvent::RefusalsForgotten) => "RefusalsForgotten",
    Jobs(JobsEvent::Stays) => "Stays",
    Jobs(JobsEvent::Extended) => "Extended",
    Jobs(JobsEvent::Scaled) => "Scaled",
    Jobs(JobsEvent::ReplicaFailed) => "ReplicaFailed",
    Jobs(JobsEvent::Rolled) => "Rolled",
    Jobs(JobsEvent::Held) => "Held",
    Jobs(JobsEvent::Released) => "JobReleased",
    Owned(OwnedEvent::Claimed) => "OwnedClaimed",
    Owned(OwnedEvent::Noted) => "OwnedNoted",
    Owned(OwnedEvent::Withdrawn) => "OwnedSettled",
    Owned(OwnedEvent::Gone) => "OwnedGone",
    Ledger(LedgerEvent::LeaveRefused) => "LeaveRefused",
    Ledger(LedgerEvent::Started) => "Started",
    Ledger(LedgerEvent::Running) => "Running",
    Ledger(LedgerEvent::Asked) => "Asked",
    Ledger(LedgerEvent::Acked) => "Acked",
    Ledger(LedgerEvent::AskFailed) => "AskFailed",
    Ledger(LedgerEvent::Stopping) => "Stopping",
    Ledger(LedgerEvent::Gone) => "Gone",
    Ledger(LedgerEvent::OrphanSeen) => "OrphanSeen",
    Ledger(LedgerEvent::OrphanGone) => "OrphanGone",
    Ledger(LedgerEvent::Carried) => "LedgerCarried",
    Ledger(LedgerEvent::Grown) => "Grown",
    Ledger(LedgerEvent::Broken) => "Broken",
    Ledger(LedgerEvent::Evicted) => "Evicted",
    Ledger(LedgerEvent::Withdrawn) => "Withdrawn",
    Ledger(LedgerEvent::Shed) => "Shed",
    Earmarks(EarmarksEvent::Earmarked) => "Promised",
    Earmarks(EarmarksEvent::Released) => "Released",
    Demand(DemandEvent::Priced) => "Priced",
    Demand(DemandEvent::Carried) => "DemandCarried",
    Bookings(BookingsEvent::Booked) => "Booked",
    Bookings(BookingsEvent::Placed) => "BookingPlaced",
    Bookings(BookingsEvent::PlacesLost) => "BookingPlacesLost",
    Bookings(BookingsEvent::Began) => "BookingBegan",
    Bookings(BookingsEvent::Ended) => "BookingEnded",
    Bookings(BookingsEvent::Carried) => "BookingsCarried",
    Bookings(BookingsEvent::CarriedBooking) => "CarriedBooking",
    Reservations(ReservationsEvent::Reserved) => "Reserved",
    Reservations(ReservationsEvent::Dropped) => "ReservationDropped",
    Reservations(ReservationsEvent::Carried) => "ReservationsCarried",
    Attained(AttainedEvent::CarriedJob) => "AttainedCarriedJob",
    Attained(AttainedEvent::CarriedFinished) => "AttainedCarriedFinished",
    Past(PastUseEvent::Stepped) => "Stepped",
    Past(PastUseEvent::Carried) => "PastCarried",
    Maintenance(MaintenanceEvent::Planned) => "DowntimePlanned",
    Maintenance(MaintenanceEvent::Began) => "DowntimeBegan",
    Maintenance(MaintenanceEvent::Ended) => "DowntimeEnded",
}

#[test]
fn the_golden_journal_has_every_kind_of_event() {
    let of_version = JOURNALS.iter().filter(|journal| journal.version == EVENT_VERSION);
    let text: String = of_version
        .map(|journal| std::fs::read_to_string(golden(&format!("{}.jsonl", journal.name))).unwrap())
        .collect();
    let seen: BTreeSet<&str> =
        text.lines().map(|line| kind(&serde_json::from_str::<Event>(line).unwrap())).collect();
    for kind in KINDS {
        assert!(seen.contains(*kind), "no {kind} in the golden journal; seen: {seen:?}");
    }
    assert_eq!(seen.len(), KINDS.len());
}
