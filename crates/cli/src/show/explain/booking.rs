//! `wharf book`, `wharf explain booking/NAME`, `wharf cancel booking/NAME`.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use wharf_api::client::Client;
use wharf_api::file::BYTES_MAX;
use wharf_api::file::booking::{BookingFile, BookingFlags, load_booking, parse_booking};
use wharf_api::v1::{Booked, BookingReply, BookingState, BookingView, HolderView, LostPlacesView};

use crate::args::{BookArgs, Format};
use crate::render::numbers::{age, counted, gpus, moment, span};
use crate::render::output::{self, Paint, Tone};
use crate::render::places::place_lines;
use crate::render::problem::Usage;
use crate::render::{fact, next_line};
use crate::show::get::bookings;
use crate::show::world_now;

/// Books a window.
pub(crate) fn book(client: &Client, args: BookArgs) -> anyhow::Result<ExitCode> {
    let format = args.output;
    let booked = client.book(&asked(args)?)?;
    match format {
        Format::Text => output::print(&text(&booked, world_now(client), Paint::stdout()))?,
        Format::Json => output::print_json(&booked)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Where it is, and what is missing.
pub(crate) fn explain(client: &Client, name: &str, format: Format) -> anyhow::Result<()> {
    let reply = client.booking(name)?;
    match format {
        Format::Text => output::print(&screen(&reply.booking, world_now(client), Paint::stdout())),
        Format::Json => output::print_json(&reply),
    }
}

fn asked(args: BookArgs) -> anyhow::Result<BookingFile> {
    let BookArgs { file, file_flag, name, tenant, gpus, tasks, model, within, from, lasts, by, output: _ } =
        args;
    let flags = BookingFlags { name, tenant, tasks, gpus, model, within, from, lasts, by };
    let BookingFlags { name, tenant, tasks, gpus, model, within, from, lasts, by } = &flags;
    let given = [name, tenant, tasks, gpus, model, within, from, lasts, by].into_iter().any(Option::is_some);
    match (file.or(file_flag), given) {
        (Some(path), false) if path == Path::new("-") => {
            let mut text = String::new();
            let most = u64::try_from(BYTES_MAX).unwrap_or(u64::MAX);
            std::io::stdin()
                .take(most + 1)
                .read_to_string(&mut text)
                .context("cannot read standard input")?;
            Ok(parse_booking("standard input", &text)?)
        }
        (Some(path), false) => Ok(load_booking(&path)?),
        (Some(path), true) => Err(Usage {
            what: format!("{} and flags both say what to book", path.display()),
            next: "give either the file or the flags".to_owned(),
        }
        .into()),
        (None, true) => Ok(flags.booking()?),
        (None, false) => Err(Usage {
            what: "nothing says what to book".to_owned(),
            next: "wharf book --tenant lab/nlp --gpus 8 --from +2h --for 1h, or wharf book FILE".to_owned(),
        }
        .into()),
    }
}

fn title(booking: &BookingView) -> String {
    format!("booking/{}", booking.name)
}

/// `4 x 8 GPUs of lab/nlp, 2026-11-20 08:00:00Z for 8h00m`
fn shape(booking: &BookingView) -> String {
    let each = gpus(booking.gpus_per_task);
    let lasts = span(booking.until_ms.saturating_sub(booking.from_ms));
    let begin = moment(booking.from_ms);
    format!("{} x {each} of {}, {begin} for {lasts}", booking.tasks, booking.tenant)
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
pub(crate) fn cancelled(reply: &BookingReply, paint: Paint) -> String {
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

fn to(at: u64, now: Option<u64>) -> String {
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
    for (label, told) in facts {
        for (index, line) in told.iter().enumerate() {
            lines.push(fact(if index == 0 { label } else { "" }, line, paint));
        }
    }
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
        "place_held" => "somebody there could not be gone in time",
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

    fn sample() -> BookingView {
        BookingView {
            name: "friday".into(),
            tenant: "lab/nlp".into(),
            by: "operator".into(),
            state: BookingState::Placed,
            tasks: 4,
            gpus_per_task: 8.0,
            from_ms: 7_200_000,
            until_ms: 10_800_000,
            booked_ms: 0,
            places_ms: 3_600_000,
            places: Vec::new(),
            short: 1,
            used: false,
            no_show_ms: Some(8_100_000),
            jobs: vec!["a".into(), "b".into()],
            in_the_way: vec![HolderView {
                job: "x".into(),
                tenant: "lab/ops".into(),
                ends_ms: None,
                learned: false,
                asked_ms: None,
            }],
            lost: vec![LostPlacesView { tasks: 1, why: "place_gone".into(), at_ms: 3_600_000 }],
        }
    }

    #[test]
    fn the_screen_says_what_is_missing_and_who_is_there() {
        let told = screen(&sample(), Some(5_400_000), Paint::OFF);
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

    #[test]
    fn what_is_booked_says_how_to_undo_it() {
        let booked = Booked { schema: String::new(), booking: sample(), created: true };
        let told = text(&booked, Some(0), Paint::OFF);
        assert!(told.contains("undo: wharf cancel booking/friday"), "{told}");
        assert!(told.contains("next: wharf submit --booking friday"), "{told}");
        let reply = BookingReply { schema: String::new(), booking: sample() };
        assert!(cancelled(&reply, Paint::OFF).contains("its 2 jobs go on as every other: a, b"));
    }
}
