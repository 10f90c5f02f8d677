//! Commands that ask a control plane or read what the user wrote, and what they share.
//!
//! Each command is a question to the client and a function from the answer to text, so that the text can be tested
//! without a server.

pub(crate) mod completions;
pub(crate) mod explain;
pub(crate) mod get;
pub(crate) mod levers;
pub(crate) mod models;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod submit;

mod ask;
mod beside;
mod eviction;
mod verdict;

use wharf_api::client::Client;
use wharf_api::v1::{Code, JobView, PlacementView, Problem};

use crate::numbers::{counted, indexes};
use crate::output::{Paint, Tone};

/// The most placements that are listed; a gang of thousands is read by programs.
const PLACEMENTS_SHOWN_MAX: usize = 16;

/// A job as other commands take it.
fn job_name(job: &JobView) -> String {
    format!("job/{}/{}", job.tenant, job.name)
}

/// What the user typed without the kind before it, if it is that kind.
fn without_kind<'a>(typed: &'a str, kind: &str) -> &'a str {
    typed.strip_prefix(kind).and_then(|rest| rest.strip_prefix('/')).unwrap_or(typed)
}

/// The world's clock, for ages. Where it cannot be had, ages are unknown; the answer itself is still good.
fn world_now(client: &Client) -> Option<u64> {
    client.summary().ok().map(|summary| summary.now_ms)
}

/// What to type next, in the form that every command uses.
fn next_line(paint: Paint, label: &str, command: &str) -> String {
    format!("{} {}", paint.tone(Tone::Faint, label), paint.tone(Tone::Accent, command))
}

/// A line with a label before it.
fn fact(label: &str, value: &str, paint: Paint) -> String {
    format!("  {}  {value}", paint.tone(Tone::Faint, &format!("{label:<6}")))
}

/// Where tasks are, in one phrase: `n1 (GPUs 0-7) and 3 more nodes`.
fn places(placements: &[PlacementView]) -> Option<String> {
    let first = placements.first()?;
    let mut others: Vec<&str> = placements.iter().map(|place| place.node.as_str()).collect();
    others.retain(|node| *node != first.node);
    others.sort_unstable();
    others.dedup();
    let place = place(first);
    Some(match u64::try_from(others.len()).unwrap_or(u64::MAX) {
        0 => place,
        others => format!("{place} and {}", counted(others, "more node")),
    })
}

/// Where one task is: `n1 (GPUs 0-7)`, `n1 (0.25 of GPU 3)`.
fn place(place: &PlacementView) -> String {
    let PlacementView { task: _, node, gpus, share } = place;
    let list = indexes(gpus);
    match gpus.len() {
        0 => node.clone(),
        1 if *share < 1.0 => format!("{node} ({} of GPU {list})", crate::numbers::number(*share)),
        1 => format!("{node} (GPU {list})"),
        _ => format!("{node} (GPUs {list})"),
    }
}

/// One line per task, as far as they fit on a screen.
fn place_lines(placements: &[PlacementView]) -> Vec<String> {
    let shown = placements.iter().take(PLACEMENTS_SHOWN_MAX);
    let mut lines: Vec<String> = shown.map(|one| format!("task {:<4} {}", one.task, place(one))).collect();
    let hidden = placements.len().saturating_sub(PLACEMENTS_SHOWN_MAX);
    if hidden > 0 {
        lines.push(format!("and {hidden} more; -o json has all"));
    }
    lines
}

/// What is said when a list has nothing of that name.
fn missing(code: Code, what: &str, list: &str) -> anyhow::Error {
    Problem::new(code, format!("there is no {what}")).hint(format!("list them with: wharf get {list}")).into()
}

#[cfg(test)]
pub(crate) mod samples;

#[cfg(test)]
mod tests {
    use super::samples::placed;
    use super::*;

    #[test]
    fn a_kind_may_be_left_out() {
        assert_eq!(without_kind("job/lab/nlp/a", "job"), "lab/nlp/a");
        assert_eq!(without_kind("lab/nlp/a", "job"), "lab/nlp/a");
        assert_eq!(without_kind("jobs", "job"), "jobs");
    }

    #[test]
    fn places_are_told_in_a_phrase() {
        assert_eq!(places(&[]), None);
        assert_eq!(places(&[placed(0, "n1", &[0, 1, 2, 3], 1.0)]).unwrap(), "n1 (GPUs 0-3)");
        assert_eq!(places(&[placed(0, "n1", &[3], 0.25)]).unwrap(), "n1 (0.25 of GPU 3)");
        assert_eq!(places(&[placed(0, "n1", &[], 1.0), placed(1, "n1", &[], 1.0)]).unwrap(), "n1");
        let gang: Vec<PlacementView> =
            (0..20).map(|task| placed(task, &format!("n{task}"), &[0], 1.0)).collect();
        assert_eq!(places(&gang).unwrap(), "n0 (GPU 0) and 19 more nodes");
        assert_eq!(place_lines(&gang).len(), 17);
        assert_eq!(place_lines(&gang).last().unwrap(), "and 4 more; -o json has all");
    }
}
