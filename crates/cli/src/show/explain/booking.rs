//! `wharf explain booking/NAME`: where it is, what is missing, what is in its way.

use wharf_api::client::Client;
use wharf_api::v1::{BookingState, BookingView, HolderView, LostPlacesView};

use crate::args::Format;
use crate::render::numbers::{age, counted, gpus, moment, span};
use crate::render::output::{self, Paint, Tone};
use crate::render::places::place_lines;
use crate::render::{labelled, next_line};
use crate::show::get::bookings;
use crate::show::world_now;

/// Where it is, and what is missing.
pub(crate) fn explain(client: &Client, name: &str, format: Format) -> anyhow::Result<()> {
    let reply = client.booking(name)?;
    output::answer(format, &reply, |paint| screen(&reply.booking, world_now(client), paint))
}

pub(crate) fn title(booking: &BookingView) -> String {
    format!("booking/{}", booking.name)
}

/// `4 x 8 GPUs of lab/nlp, 2026-11-20 08:00:00Z for 8h00m`
pub(crate) fn shape(booking: &BookingView) -> String {
    let each = gpus(booking.gpus_per_task);
    let lasts = span(booking.until_ms.saturating_sub(booking.from_ms));
    let begin = moment(booking.from_ms);
    format!("{} x {each} of {}, {begin} for {lasts}", booking.tasks, booking.tenant)
}

/// How long it is until a moment.
pub(crate) fn to(at: u64, now: Option<u64>) -> String {
    now.map_or_else(|| "?".to_owned(), |now| span(at.saturating_sub(now)))
}

/// The screen of `wharf explain`.
fn screen(booking: &BookingView, now: Option<u64>, paint: Paint) -> String {
    let mut lines = vec![
        format!("{}  {}", paint.tone(Tone::Strong, &title(booking)), shape(booking)),
        String::new(),
        head(booking, now, paint),
        String::new(),
    ];
    let facts = [
        ("places", place_lines(&booking.places)),
        ("short", short(booking)),
        ("lost", booking.lost.iter().map(|lost| lost_text(lost, now)).collect()),
        ("there", booking.in_the_way.iter().map(|there| in_the_way(there, booking, now)).collect()),
        ("jobs", vec![bookings::jobs(booking)]),
        ("unused", unused(booking)),
        ("booked", vec![format!("by the {}, {} ago", booking.by, age(booking.booked_ms, now))]),
    ];
    lines.extend(facts.iter().flat_map(|(label, told)| labelled(label, told, paint)));
    let next = if booking.jobs.is_empty() {
        format!("wharf submit --booking {} …", booking.name)
    } else {
        format!("wharf explain job/{}/{}", booking.tenant, booking.jobs[0])
    };
    lines.push(next_line(paint, "next:", &next));
    output::lines(&lines)
}

fn head(booking: &BookingView, now: Option<u64>, paint: Paint) -> String {
    let (what, tone) = match booking.state {
        BookingState::Booked => {
            let chosen = to(booking.places_ms, now);
            (
                format!("It begins in {}; its places are chosen in {chosen}.", to(booking.from_ms, now)),
                Tone::Good,
            )
        }
        BookingState::Placed => {
            (format!("Its places are chosen; it begins in {}.", to(booking.from_ms, now)), Tone::Good)
        }
        BookingState::Open => {
            (format!("It has begun and is over in {}.", to(booking.until_ms, now)), Tone::Good)
        }
    };
    let tone = if booking.short > 0 { Tone::Bad } else { tone };
    paint.tone(tone, &what)
}

fn short(booking: &BookingView) -> Vec<String> {
    if booking.short == 0 {
        return Vec::new();
    }
    vec![format!(
        "{} of {} tasks have no place; they get one as soon as there is one",
        booking.short, booking.tasks
    )]
}

fn lost_text(lost: &LostPlacesView, now: Option<u64>) -> String {
    let why = match lost.why.as_str() {
        "place_gone" => "a node or GPU failed, left or was cordoned",
        "place_held" => "a job there could not be gone in time",
        other => other,
    };
    let places = counted(u64::from(lost.tasks), "place");
    format!("{places} {} ago: {why} ({})", age(lost.at_ms, now), lost.why)
}

fn in_the_way(there: &HolderView, booking: &BookingView, now: Option<u64>) -> String {
    let ends = match there.ends_ms {
        Some(end) if end <= booking.from_ms => format!("over within {}", to(end, now)),
        _ if booking.state == BookingState::Open => "leaves when a job of the booking comes".to_owned(),
        _ => "is asked to leave in time".to_owned(),
    };
    format!("job/{}/{}: {ends}", there.tenant, there.job)
}

fn unused(booking: &BookingView) -> Vec<String> {
    let given_up = booking.no_show_ms.map(moment);
    given_up
        .map(|at| format!("no job of it has started; it is given up {at} if none does"))
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples::booking;

    #[test]
    fn the_screen_says_what_is_missing_and_who_is_there() {
        let told = screen(&booking(), Some(5_400_000), Paint::OFF);
        assert!(
            told.starts_with("booking/friday  4 x 8 GPUs of lab/nlp, day 0 02:00:00 for 1h00m"),
            "{told}"
        );
        assert!(told.contains("it begins in 30m."), "{told}");
        assert!(told.contains("1 of 4 tasks have no place"), "{told}");
        assert!(told.contains("1 place 30m ago: a node or GPU failed"), "{told}");
        assert!(told.contains("job/lab/ops/x: is asked to leave in time"), "{told}");
        assert!(told.contains("next: wharf explain job/lab/nlp/a"), "{told}");
    }
}
