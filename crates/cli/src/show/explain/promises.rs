//! What a waiting job is promised: a start, or places that others are leaving.

use wharf_api::v1::{
    EarmarkView, Explanation, LeavingStep, LeavingView, MissedView, ReservationView, UnpromisedView,
};

use crate::render::first_lines;
use crate::render::numbers::{UNKNOWN, age, span};
use crate::render::places::{place, place_lines};
use crate::show::get::reservations;

/// The most tasks that are listed as leaving; many more are read by programs.
const LEAVING_SHOWN_MAX: usize = 16;

/// The start that is promised, or why none is; then what was promised before, the newest first.
pub(super) fn starts(explanation: &Explanation, now: Option<u64>) -> Vec<String> {
    let Explanation { reservation, missed, unpromised, .. } = explanation;
    let promised = reservation.iter().map(|of| to_start(of, now)).chain(unpromised.iter().map(why_no_start));
    let before = missed.iter().rev().map(|of| was_to_start(of, now));
    promised.chain(before).collect()
}

/// `no start is promised: no end is known of a, b`
fn why_no_start(unpromised: &UnpromisedView) -> String {
    let why = match unpromised.why.as_str() {
        "no_known_end" => {
            let names: Vec<String> = unpromised.holders.iter().map(reservations::holder_name).collect();
            format!(
                "no end is known of {} (time.limit in a job file makes one)",
                reservations::some_of(&names)
            )
        }
        "above_share" => "its tenant would be above its fair share".to_owned(),
        "off" => "the policy promises none (reservations in queue.yaml)".to_owned(),
        "others_first" => "others come first (wharf get reservations)".to_owned(),
        other => other.replace('_', " "),
    };
    format!("no start is promised: {why}")
}

/// `within 20m on n1 and 1 more; waits for a, b`
fn to_start(reservation: &ReservationView, now: Option<u64>) -> String {
    let within = reservations::starts_in(reservation, now);
    let nodes = reservations::nodes(reservation);
    format!("within {within} on {nodes}; waits for {}", reservations::holders(reservation, now))
}

/// `until 5m ago: in 20m from now; given up: place gone`
fn was_to_start(missed: &MissedView, now: Option<u64>) -> String {
    let ago = age(missed.at_ms, now);
    let was = match now {
        Some(now) if missed.start_ms >= now => format!("in {} from now", span(missed.start_ms - now)),
        Some(now) => format!("{} ago", span(now - missed.start_ms)),
        None => UNKNOWN.to_owned(),
    };
    match missed.why.as_str() {
        "earlier" => format!("until {ago} ago it was to be {was}"),
        why => format!("given up {ago} ago, it was to be {was}: {}", why.replace('_', " ")),
    }
}

/// The places that are set aside for a job, and who still has to leave them.
pub(super) fn earmark(earmark: &EarmarkView, now: Option<u64>) -> (Vec<String>, Vec<String>) {
    let leaves = first_lines(&earmark.leaving, LEAVING_SHOWN_MAX, |leaving| leaving_line(leaving, now));
    (place_lines(&earmark.places), leaves)
}

/// `job/lab/nlp/a task 0 on n1 (GPUs 0-7): asked to save its work, stopped in 4m at the latest (eviction/18234)`
fn leaving_line(leaving: &LeavingView, now: Option<u64>) -> String {
    let LeavingView { job, tenant, place: at, step, deadline_ms, eviction } = leaving;
    let left = deadline_ms.zip(now).map(|(deadline, now)| span(deadline.saturating_sub(now)));
    let left = left.unwrap_or_else(|| UNKNOWN.to_owned());
    let how = match step {
        LeavingStep::Asked => format!("asked to save its work, stopped in {left} at the latest"),
        LeavingStep::Saved => "has saved its work and is about to be stopped".to_owned(),
        LeavingStep::Stopping => format!("stopping, killed in {left} at the latest"),
    };
    let receipt = eviction.map_or_else(String::new, |id| format!(" (eviction/{id})"));
    format!("job/{tenant}/{job} task {} on {}: {how}{receipt}", at.task, place(at))
}
