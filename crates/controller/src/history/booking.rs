//! What history keeps of booked windows: who booked what, where it was placed, what it lost, and how it ended.

use serde::{Deserialize, Serialize};
use wharf_engine::model::job::Spec;
use wharf_engine::state::State;
use wharf_engine::state::bookings::{Booker, BookingEnd, BookingsEvent, PlaceLost};
use wharf_engine::units::BookingId;

use super::{Moment, Receipt, json, nodes};
use crate::disk::{HistoryKind, HistoryRow};

/// Something that happened to a booked window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum BookingReceipt {
    Booked {
        by: Booker,
        /// It begins, in world time.
        from_ms: u64,
        until_ms: u64,
        /// So many tasks…
        tasks: u32,
        /// …of so much, in 1/3000 of a GPU.
        gpu_parts: u64,
    },
    Placed {
        /// Node names in task order.
        nodes: Vec<String>,
        /// So many tasks have none.
        short: u32,
    },
    PlacesLost {
        /// Of so many tasks.
        tasks: u32,
        why: PlaceLost,
    },
    Began,
    Ended {
        why: BookingEnd,
    },
}

/// The row that an event about a window adds to history, seen from the state before it.
pub(super) fn row(state: &State, event: &BookingsEvent, moment: Moment<'_>) -> Option<HistoryRow> {
    let (spec, receipt) = match event {
        BookingsEvent::Booked { spec, by, from, until, .. } => {
            let (tasks, gpu_parts) = (spec.tasks, spec.shape.gpus.units().parts());
            let receipt =
                BookingReceipt::Booked { by: *by, from_ms: from.0, until_ms: until.0, tasks, gpu_parts };
            (spec, receipt)
        }
        BookingsEvent::Placed { booking, tasks, .. } => {
            let spec = known(state, *booking)?;
            let short = spec.tasks.saturating_sub(count(tasks.len()));
            (spec, BookingReceipt::Placed { nodes: nodes(state, tasks), short })
        }
        BookingsEvent::PlacesLost { booking, tasks, why, .. } => {
            let receipt = BookingReceipt::PlacesLost { tasks: count(tasks.len()), why: *why };
            (known(state, *booking)?, receipt)
        }
        BookingsEvent::Began { booking, .. } => (known(state, *booking)?, BookingReceipt::Began),
        BookingsEvent::Ended { booking, why, .. } => {
            (known(state, *booking)?, BookingReceipt::Ended { why: *why })
        }
        BookingsEvent::Carried { .. } | BookingsEvent::CarriedBooking { .. } => return None,
    };
    let (tenant, body) = (state.tenants.path(spec.tenant), json(&Receipt::Booking(receipt)));
    Some(moment.row(HistoryKind::Receipt, tenant, &spec.name, body))
}

fn known(state: &State, booking: BookingId) -> Option<&Spec> {
    state.bookings.get(booking).map(|known| &known.spec)
}

fn count(places: usize) -> u32 {
    u32::try_from(places).unwrap_or(u32::MAX)
}
