//! `wharf submit`: hands a job in and says where it landed, or what it waits for.

use std::hash::{BuildHasher, RandomState};
use std::process::ExitCode;

use wharf_api::client::Client;
use wharf_api::v1::{JobView, Submitted, VerdictWord};

use crate::args::SubmitArgs;
use crate::args::names::job_name;
use crate::input::job;
use crate::render::next_line;
use crate::render::numbers::counted;
use crate::render::output::{self, Paint, Tone};
use crate::render::places::places;
use crate::render::problem::Usage;
use crate::show::verdict;

/// Runs it.
pub(crate) fn run(client: &Client, args: SubmitArgs) -> anyhow::Result<ExitCode> {
    let SubmitArgs { job, idempotency_key, output } = args;
    let job = job::given(job)?;
    let readable = |key: &String| !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
    if let Some(key) = idempotency_key.as_ref().filter(|key| !readable(key)) {
        return Err(Usage {
            what: format!("--idempotency-key {key:?} is not a key"),
            next: "letters, digits and signs without spaces; leave it out for a new one each time".to_owned(),
        }
        .into());
    }
    let submitted = client.submit(&job, &idempotency_key.unwrap_or_else(new_key))?;
    output::answer(output, &submitted, |paint| text(&submitted, paint))?;
    Ok(ExitCode::SUCCESS)
}

/// A key that nobody used before: 128 bits from the operating system, by way of the seeds of two hashers.
fn new_key() -> String {
    let [high, low] = [0u8, 1].map(|part| RandomState::new().hash_one((part, std::process::id())));
    format!("cli-{high:016x}{low:016x}")
}

fn text(submitted: &Submitted, paint: Paint) -> String {
    let job = &submitted.job;
    let name = job_name(job);
    let before = if submitted.created { "" } else { " (it had been handed in before)" };
    let (mut what, tone) = what_became_of_it(job);
    if let (Some(members), Some(array)) = (submitted.members, &job.array) {
        what = format!(
            "{what}; {} in the array {}, at most {} at a time",
            counted(members.into(), "job"),
            array.name,
            array.at_most
        );
    }
    let mut lines = vec![format!("{} {}{before}", paint.tone(Tone::Strong, &name), paint.tone(tone, &what))];
    lines.extend(verdict::sentence(&job.verdict));
    lines.push(next_line(paint, "next:", &format!("wharf explain {name}")));
    output::lines(&lines)
}

fn what_became_of_it(job: &JobView) -> (String, Tone) {
    let reason = job.verdict.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let on = places(&job.placements).map(|places| format!(" on {places}")).unwrap_or_default();
    match job.verdict.verdict {
        VerdictWord::Running => (format!("runs{on}"), Tone::Good),
        VerdictWord::Starting => (format!("starts{on}"), Tone::Good),
        VerdictWord::RunnableNow => ("is accepted and about to start".into(), Tone::Good),
        VerdictWord::Waits => (format!("is accepted and waits{reason}"), Tone::Warn),
        VerdictWord::Leaving => ("is leaving".into(), Tone::Warn),
        VerdictWord::Never => (format!("is accepted but cannot run on this fleet{reason}"), Tone::Bad),
        VerdictWord::Denied => (format!("is accepted but refused by policy{reason}"), Tone::Bad),
    }
}

#[cfg(test)]
mod tests {
    use wharf_api::v1::schema_of;

    use super::*;
    use crate::render::samples::{running, waiting};

    fn submitted(job: JobView, created: bool) -> String {
        text(&Submitted { schema: schema_of::<Submitted>(), job, created, members: None }, Paint::OFF)
    }

    #[test]
    fn a_job_that_waits_says_why_and_what_to_type() {
        let expected = "\
job/lab/nlp/llama-70b is accepted and waits (WaitingForRoomTogether)
  16 of the 32 GPUs it needs are free on one leaf.
next: wharf explain job/lab/nlp/llama-70b
";
        assert_eq!(submitted(waiting(), true), expected);
    }

    #[test]
    fn a_job_that_landed_says_where_and_a_repeated_one_that_it_is() {
        let text = submitted(running(), false);
        let first = text.lines().next().unwrap();
        let expected =
            "job/lab/nlp/llama-70b runs on n0 (GPUs 0-7) and 3 more nodes (it had been handed in before)";
        assert_eq!(first, expected);
    }

    #[test]
    fn keys_do_not_repeat() {
        assert_ne!(new_key(), new_key());
        assert_eq!(new_key().len(), 36);
    }
}
