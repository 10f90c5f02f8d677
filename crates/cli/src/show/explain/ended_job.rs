//! A job that is over: how it ended, why, and its life as a timeline.

use wharf_api::client::Client;
use wharf_api::v1::{EndedAs, EndedJobView, EndedReply, TimelineView};

use crate::args::Format;
use crate::render::numbers::{age, counted, float, gpus, mib, number, span, tenths};
use crate::render::output::{self, Paint, Tone};
use crate::render::{fact, next_line};
use crate::show::world_now;

/// The most entries of a timeline that are shown; programs read all.
const ENTRIES_SHOWN_MAX: usize = 40;

/// Explains it.
pub(crate) fn explain(client: &Client, reply: &EndedReply, format: Format) -> anyhow::Result<()> {
    output::answer(format, reply, |paint| text(reply, world_now(client), paint))
}

fn text(reply: &EndedReply, now: Option<u64>, paint: Paint) -> String {
    let EndedReply { schema: _, job, timeline, shortened, held_gpu_s, lost_gpu_s } = reply;
    let name = format!("job/{}/{}", job.tenant, job.name);
    let each = match job.gpus_per_task {
        none if none <= 0.0 => "without GPU".to_owned(),
        some => format!("of {}", gpus(some)),
    };
    let shape = format!("{}, {} {each}", job.class, counted(job.tasks.into(), "task"));
    let mut lines = vec![format!("{}  {shape}", paint.tone(Tone::Strong, &name)), String::new()];
    let reason = job.reason.as_ref().map(|reason| format!("  {reason}")).unwrap_or_default();
    lines.push(format!("{}{reason}", paint.strong(tone(job.outcome), &head(job.outcome))));
    lines.push(format!("  {}", job.text));
    lines.push(String::new());
    let facts = [
        (
            "ended",
            format!("{} ago, after it ran {} in {}", age(job.ended_at_ms, now), span(job.ran_ms), tries(job)),
        ),
        ("GPUs", gpu_time(*held_gpu_s, *lost_gpu_s)),
        ("memory", memory(job)),
        ("uid", job.uid.clone()),
    ];
    lines.extend(
        facts.iter().filter(|(_, text)| !text.is_empty()).map(|(label, text)| fact(label, text, paint)),
    );
    lines.push(String::new());
    if *shortened || timeline.len() > ENTRIES_SHOWN_MAX {
        lines.push("  the oldest entries are left out; -o json has more".to_owned());
    }
    let skipped = timeline.len().saturating_sub(ENTRIES_SHOWN_MAX);
    let start = job.submitted_at_ms;
    lines.extend(timeline.iter().skip(skipped).map(|entry| line(entry, start, paint)));
    let next = format!("wharf get jobs --state all --tenant {}", job.tenant);
    lines.push(next_line(paint, "next:", &next));
    output::lines(&lines)
}

fn head(outcome: EndedAs) -> String {
    match outcome {
        EndedAs::Succeeded => "SUCCEEDED",
        EndedAs::Failed => "FAILED",
        EndedAs::Cancelled => "CANCELLED",
        EndedAs::TimeLimit => "TIME LIMIT",
    }
    .to_owned()
}

/// The colour of an outcome.
pub(crate) fn tone(outcome: EndedAs) -> Tone {
    match outcome {
        EndedAs::Succeeded => Tone::Good,
        EndedAs::Failed | EndedAs::TimeLimit => Tone::Bad,
        EndedAs::Cancelled => Tone::Warn,
    }
}

/// `2 attempts; 1 eviction, 0 failures`
fn tries(job: &EndedJobView) -> String {
    let counts = [(job.evictions, "eviction"), (job.failures, "failure")];
    let counts = counts.map(|(count, what)| counted(u64::from(count), what)).join(", ");
    format!("{}; {counts}", counted(job.attempts.into(), "attempt"))
}

/// `12.5 GPU-hours held, 0.5 of them lost`
fn gpu_time(held_gpu_s: f64, lost_gpu_s: f64) -> String {
    let hours = |seconds: f64| number((seconds / 36.0).round() / 100.0);
    let held = match hours(held_gpu_s).as_str() {
        "1" => "1 GPU-hour held".to_owned(),
        many => format!("{many} GPU-hours held"),
    };
    if lost_gpu_s > 0.0 {
        return format!("{held}, {} of them lost", hours(lost_gpu_s));
    }
    held
}

/// `at most 61.2GiB of a GPU; killed 2 times: it used more than it may`
fn memory(job: &EndedJobView) -> String {
    let peak = job.memory_peak_mib.map(|_| format!("at most {} of a GPU", mib(job.memory_peak_mib)));
    let killed = (job.ooms > 0)
        .then(|| format!("killed {}: it used more than it may", counted(job.ooms.into(), "time")));
    peak.into_iter().chain(killed).collect::<Vec<_>>().join("; ")
}

/// `  +3m05s   attempt 1 starts with 8 GPUs on n1`
fn line(entry: &TimelineView, start: u64, paint: Paint) -> String {
    let after = format!("+{}", since_start(entry.at_ms.saturating_sub(start)));
    let receipt = entry.eviction.map(|id| format!(" (eviction/{id})")).unwrap_or_default();
    format!("  {}  {}{receipt}", paint.tone(Tone::Faint, &format!("{after:>9}")), entry.text)
}

/// Exact enough to tell entries apart: `2.5s`, `3m05s`, `2h05m10s`.
fn since_start(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0..60 => format!("{}s", tenths(float(millis) / 1000.0)),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m{:02}s", seconds / 3600, seconds / 60 % 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use wharf_api::v1::schema_of;

    use super::*;
    use crate::render::samples::ended;

    #[test]
    fn a_job_that_ran_out_of_memory_tells_its_life() {
        let entry = |at_ms, text: &str| TimelineView {
            at_ms,
            what: String::new(),
            text: text.into(),
            eviction: None,
            actor: None,
        };
        let job = ended();
        let timeline = vec![entry(1_000_000, "submitted"), entry(1_005_000, "ended: out of memory")];
        let (schema, shortened) = (schema_of::<EndedReply>(), false);
        let reply = EndedReply { schema, job, timeline, shortened, held_gpu_s: 36.0, lost_gpu_s: 0.0 };
        let expected = "\
job/lab/nlp/hungry  batch, 1 task of 1 GPU

FAILED  OutOfMemory
  task 0 on n1 was killed: it used more memory than it may

  ended   10m ago, after it ran 5s in 1 attempt; 0 evictions, 1 failure
  GPUs    0.01 GPU-hours held
  memory  at most 80.0GiB of a GPU; killed 1 time: it used more than it may
  uid     abc

        +0s  submitted
        +5s  ended: out of memory
next: wharf get jobs --state all --tenant lab/nlp
";
        assert_eq!(text(&reply, Some(1_605_000), Paint::OFF), expected);
        let without = EndedJobView { gpus_per_task: 0.0, ..ended() };
        let told = text(&EndedReply { job: without, held_gpu_s: 3_600.0, ..reply }, None, Paint::OFF);
        assert!(told.starts_with("job/lab/nlp/hungry  batch, 1 task without GPU\n"), "{told}");
        assert!(told.contains("1 GPU-hour held\n"), "{told}");
    }
}
