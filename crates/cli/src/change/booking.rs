//! `wharf book`, `wharf cancel booking/NAME`: a window is ordered, or given up.

use std::process::ExitCode;

use wharf_api::client::Client;
use wharf_api::v1::{Booked, BookingReply};

use crate::args::BookArgs;
use crate::input;
use crate::render::next_line;
use crate::render::numbers::moment;
use crate::render::output::{self, Paint, Tone};
use crate::show::explain::booking::{shape, title, to};
use crate::show::get::bookings;
use crate::show::world_now;

/// Books a window.
pub(crate) fn book(client: &Client, args: BookArgs) -> anyhow::Result<ExitCode> {
    let format = args.output;
    let booked = client.book(&input::booking::given(args)?)?;
    output::answer(format, &booked, |paint| text(&booked, world_now(client), paint))?;
    Ok(ExitCode::SUCCESS)
}

fn text(booked: &Booked, now: Option<u64>, paint: Paint) -> String {
    let booking = &booked.booking;
    let name = title(booking);
    let before = if booked.created { "" } else { " (it had been booked before)" };
    output::lines(&[
        format!("{} is booked{before}: {}", paint.tone(Tone::Strong, &name), shape(booking)),
        format!(
            "  it begins in {}; its places are chosen {}",
            to(booking.from_ms, now),
            moment(booking.places_ms)
        ),
        next_line(paint, "undo:", &format!("wharf cancel {name}")),
        next_line(paint, "next:", &format!("wharf submit --booking {} …", booking.name)),
    ])
}

/// What is said of a booking that was given up.
pub(super) fn cancelled(reply: &BookingReply, paint: Paint) -> String {
    let booking = &reply.booking;
    let jobs = match booking.jobs.len() {
        0 => "no job had named it".to_owned(),
        1 => format!("its job goes on as every other: {}", bookings::jobs(booking)),
        count => format!("its {count} jobs go on as every other: {}", bookings::jobs(booking)),
    };
    output::lines(&[
        format!("{} is given up: {jobs}", paint.tone(Tone::Strong, &title(booking))),
        next_line(paint, "undo:", "none; book it again with wharf book, if there still is room"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples::booking;

    #[test]
    fn what_is_booked_says_how_to_undo_it() {
        let booked = Booked { schema: String::new(), booking: booking(), created: true };
        let told = text(&booked, Some(0), Paint::OFF);
        assert!(told.contains("undo: wharf cancel booking/friday"), "{told}");
        assert!(told.contains("next: wharf submit --booking friday"), "{told}");
        let reply = BookingReply { schema: String::new(), booking: booking() };
        assert!(cancelled(&reply, Paint::OFF).contains("its 2 jobs go on as every other: a, b"));
    }
}
