//! What is told of booked windows.

use wharf_engine::state::bookings::{Booker, BookingEnd, BookingsEvent, PlaceLost};
use wharf_engine::state::ledger::event::Eviction;
use wharf_engine::units::{BookingId, JobId};

use super::{Transcript, span_text};

/// What is known of a booking from its events.
pub(super) struct Known {
    name: String,
    tasks: u32,
}

impl Transcript {
    pub(super) fn window(&mut self, event: BookingsEvent) -> Option<String> {
        match event {
            BookingsEvent::Booked { booking, spec, by, from, until, .. } => {
                let (name, tasks) = (spec.name.clone(), spec.tasks);
                let times = if tasks == 1 { String::new() } else { format!(" x{tasks}") };
                let (gpus, at, lasts) =
                    (spec.shape.gpus.units(), span_text(from - self.start), span_text(until - from));
                let who = match by {
                    Booker::Tenant => "",
                    Booker::Operator => " by the operator",
                };
                let line = format!("booking {name}: {gpus}{times} from {at} for {lasts}{who}");
                self.bookings.insert(booking, Known { name, tasks });
                Some(line)
            }
            BookingsEvent::Placed { booking, tasks, .. } => {
                let places = self.places(&tasks);
                let Known { name, tasks: wanted, .. } = self.bookings.get(&booking)?;
                let missing = usize::try_from(*wanted).unwrap_or(usize::MAX).saturating_sub(tasks.len());
                let places = if places.is_empty() { "nothing".to_owned() } else { places };
                let short =
                    if missing > 0 { format!(", short of {missing} of {wanted}") } else { String::new() };
                Some(format!("booking {name} has {places}{short}"))
            }
            BookingsEvent::PlacesLost { booking, tasks, why, .. } => {
                let Known { name, .. } = self.bookings.get(&booking)?;
                let why = match why {
                    PlaceLost::Gone => "gone",
                    PlaceLost::Held => "held by somebody who cannot leave",
                };
                let places = if tasks.len() == 1 { "place is" } else { "places are" };
                Some(format!("booking {name}: {} {places} {why}", tasks.len()))
            }
            BookingsEvent::Began { booking, .. } => {
                Some(format!("booking {} begins", self.bookings.get(&booking)?.name))
            }
            BookingsEvent::Ended { booking, why, .. } => {
                let Known { name, .. } = self.bookings.get(&booking)?;
                let why = match why {
                    BookingEnd::TimeUp => "its time is up",
                    BookingEnd::Cancelled => "cancelled",
                    BookingEnd::NoShow => "nobody came",
                    BookingEnd::TenantGone => "its tenant is gone",
                };
                Some(format!("booking {name} is over: {why}"))
            }
            BookingsEvent::Carried { .. } | BookingsEvent::CarriedBooking { .. } => None,
        }
    }

    pub(super) fn left_for_window(&mut self, job: JobId, booking: BookingId, receipt: &Eviction) -> String {
        let price = self.price(receipt);
        let window = self.bookings.get(&booking).map_or("?", |known| known.name.as_str()).to_owned();
        if receipt.beneficiary == job {
            return format!("{} has to leave: booking {window}{price}", self.known(job).name);
        }
        let beneficiary = self.known(receipt.beneficiary).name.clone();
        format!("{} has to leave: booking {window}, for {beneficiary}{price}", self.known(job).name)
    }
}
