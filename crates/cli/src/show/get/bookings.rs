//! Booked windows: the list and its table.
use wharf_api::client::Client;
use wharf_api::v1::{BookingState, BookingView};

use super::{List, now_for_people, show, tenants};
use crate::args::GetArgs;
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

/// Lists them.
pub(super) fn list(client: &Client, args: &GetArgs) -> anyhow::Result<()> {
    let mut answer = client.bookings()?;
    if let Some(path) = &args.tenant {
        answer.bookings.retain(|booking| tenants::is_under(&booking.tenant, path));
    }
    if answer.bookings.is_empty() {
        tenants::known(client, args)?;
    }
    let names: Vec<String> =
        answer.bookings.iter().map(|booking| format!("booking/{}", booking.name)).collect();
    let now = now_for_people(client, args, &names);
    let table = table(&answer.bookings, now);
    let whom = args.tenant.as_ref().map_or_else(String::new, |path| format!(" by {path} or below it"));
    let next = "book something: wharf book --tenant PATH --gpus 8 --from +2h --for 1h";
    show(args, &List { answer: &answer, names, table, empty: format!("nothing is booked{whom}; {next}") })
}

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
            Cell::new(state(booking, now)).plain(&booking.state.into_str()),
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
pub(crate) fn jobs(booking: &BookingView) -> String {
    match booking.jobs.as_slice() {
        [] => "none".to_owned(),
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            format!("{first}, {second}, {third} and {} more", rest.len())
        }
        few => few.join(", "),
    }
}
