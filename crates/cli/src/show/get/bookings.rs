//! Booked windows as a table.

use wharf_api::v1::{BookingState, BookingView};

use crate::render::numbers::{moment, number, span};
use crate::render::table::{Cell, Column, Table};

const COLUMNS: [Column; 9] = [
    Column::text("NAME", "name"),
    Column::text("TENANT", "tenant"),
    Column::number("TASKS", "tasks"),
    Column::number("GPUS", "gpus_per_task"),
    Column::text("FROM", "from_ms"),
    Column::text("FOR", "until_ms"),
    Column::text("STATE", "state"),
    Column::text("JOBS", "jobs"),
    Column::text("BY", "by"),
];

/// A row for each.
pub(in crate::show) fn table(bookings: &[BookingView], now: Option<u64>) -> Table {
    let mut table = Table::new(&COLUMNS);
    for booking in bookings {
        table.row(vec![
            Cell::new(booking.name.clone()),
            Cell::new(booking.tenant.clone()),
            Cell::new(booking.tasks.to_string()).plain(&booking.tasks),
            Cell::new(number(booking.gpus_per_task)).plain(&booking.gpus_per_task),
            Cell::new(moment(booking.from_ms)).plain(&booking.from_ms),
            Cell::new(span(booking.until_ms.saturating_sub(booking.from_ms))).plain(&booking.until_ms),
            Cell::new(state(booking, now)).plain(&booking.state.word()),
            Cell::new(jobs(booking)).plain(&booking.jobs.len()),
            Cell::new(booking.by.clone()),
        ]);
    }
    table
}

/// `in 2h05m`, `placed, in 20m`, `open, 3h00m left`, each with `short of 1`.
pub(in crate::show) fn state(booking: &BookingView, now: Option<u64>) -> String {
    let to = |moment: u64| now.map_or_else(|| "?".to_owned(), |now| span(moment.saturating_sub(now)));
    let short = if booking.short > 0 { format!(", short of {}", booking.short) } else { String::new() };
    match booking.state {
        BookingState::Booked => format!("in {}", to(booking.from_ms)),
        BookingState::Placed => format!("placed, in {}{short}", to(booking.from_ms)),
        BookingState::Open => format!("open, {} left{short}", to(booking.until_ms)),
    }
}

/// `a, b and 3 more`
pub(in crate::show) fn jobs(booking: &BookingView) -> String {
    match booking.jobs.as_slice() {
        [] => "none".to_owned(),
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            format!("{first}, {second}, {third} and {} more", rest.len())
        }
        few => few.join(", "),
    }
}
