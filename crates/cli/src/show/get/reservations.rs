//! Promised starts: the list and its table.
use wharf_api::client::Client;
use wharf_api::v1::{HolderView, ReservationView};

use super::{List, now_for_people, show};
use crate::args::GetArgs;
use crate::render::numbers::{number, span};
use crate::render::table::{Cell, Column, Table};

const COLUMNS: [Column; 6] = [
    Column::text("JOB", "job"),
    Column::text("TENANT", "tenant"),
    Column::number("GPUS", "gpus"),
    Column::number("STARTS IN", "start_ms"),
    Column::text("NODES", "nodes"),
    Column::text("WAITS FOR", "waits_for"),
];

/// Lists them.
pub(super) fn list(client: &Client, args: &GetArgs) -> anyhow::Result<()> {
    let answer = client.reservations()?;
    let name = |of: &ReservationView| format!("job/{}/{}", of.tenant, of.job);
    let names: Vec<String> = answer.reservations.iter().map(name).collect();
    let now = now_for_people(client, args, &names);
    let table = table(&answer.reservations, now);
    let empty = "no start is promised; why not, of a job that waits: wharf explain job/NAME".into();
    show(args, &List { answer: &answer, names, table, empty })
}

/// A row for each.
pub(in crate::show) fn table(reservations: &[ReservationView], now: Option<u64>) -> Table {
    let mut table = Table::new(&COLUMNS);
    for reservation in reservations {
        table.row(vec![
            Cell::new(reservation.job.clone()),
            Cell::new(reservation.tenant.clone()),
            Cell::new(number(reservation.gpus)).plain(&reservation.gpus),
            Cell::new(starts_in(reservation, now)).plain(&reservation.start_ms),
            Cell::new(nodes(reservation)),
            Cell::new(holders(reservation, now)),
        ]);
    }
    table
}

/// `20m`, or `?` where the world's clock is not known.
pub(in crate::show) fn starts_in(reservation: &ReservationView, now: Option<u64>) -> String {
    now.map_or_else(|| "?".to_owned(), |now| span(reservation.start_ms.saturating_sub(now)))
}

pub(in crate::show) fn nodes(reservation: &ReservationView) -> String {
    let mut nodes: Vec<&str> = reservation.places.iter().map(|place| place.node.as_str()).collect();
    nodes.dedup();
    match nodes.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
    }
}

/// `a, b (asked in 5m), c (by a learned estimate) and 3 more`
pub(in crate::show) fn holders(reservation: &ReservationView, now: Option<u64>) -> String {
    let told = |holder: &HolderView| match holder.asked_ms.zip(now) {
        Some((at, now)) if at > now => format!("{} (asked in {})", holder.job, span(at - now)),
        Some(_) => format!("{} (asked)", holder.job),
        None if holder.learned => format!("{} (by a learned estimate)", holder.job),
        None => holder.job.clone(),
    };
    let names: Vec<String> = reservation.waits_for.iter().map(told).collect();
    if names.is_empty() { "no job".to_owned() } else { some_of(&names) }
}

/// `lab/nlp/a`
pub(in crate::show) fn holder_name(holder: &HolderView) -> String {
    format!("{}/{}", holder.tenant, holder.job)
}

/// The first three, and how many more there are.
pub(in crate::show) fn some_of(names: &[String]) -> String {
    match names {
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            format!("{first}, {second}, {third} and {} more", rest.len())
        }
        few => few.join(", "),
    }
}
