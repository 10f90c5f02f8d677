//! `wharf evict`, `release`, `extend`, `scale`, `replace`: levers on jobs, each with its undo.

use std::process::ExitCode;

use wharf_api::client::Client;
use wharf_api::file::duration_text;
use wharf_api::v1::{ExtendRequest, JobReply, JobView, ReplaceRequest, ScaleRequest};

use crate::args::names::{job_name, without_kind};
use crate::args::{ExtendArgs, Format, JobNameArgs, ReplaceArgs, ScaleArgs};
use crate::render::next_line;
use crate::render::numbers::{UNKNOWN, counted};
use crate::render::output::{self, Paint, Tone};

/// Asks a job to leave and wait again.
pub(crate) fn evict(client: &Client, args: &JobNameArgs) -> anyhow::Result<ExitCode> {
    let reply = client.evict(without_kind(&args.job, "job"))?;
    say_job(&reply, args.output, evicted)
}

/// Lets a held job be started.
pub(crate) fn release(client: &Client, args: &JobNameArgs) -> anyhow::Result<ExitCode> {
    let reply = client.release(without_kind(&args.job, "job"))?;
    say_job(&reply, args.output, released)
}

/// Lets a job run longer.
pub(crate) fn extend(client: &Client, args: &ExtendArgs) -> anyhow::Result<ExitCode> {
    let request = ExtendRequest { limit: args.limit.clone(), by: args.by.clone() };
    let reply = client.extend(without_kind(&args.job, "job"), &request)?;
    say_job(&reply, args.output, extended)
}

/// Wants another number of replicas of a service.
pub(crate) fn scale(client: &Client, args: &ScaleArgs) -> anyhow::Result<ExitCode> {
    let request = ScaleRequest { replicas: args.replicas };
    let reply = client.scale(without_kind(&args.job, "job"), request)?;
    say_job(&reply, args.output, scaled)
}

/// Wants fresh replicas of a service.
pub(crate) fn replace(client: &Client, args: &ReplaceArgs) -> anyhow::Result<ExitCode> {
    let request = ReplaceRequest { surge: args.surge, unavailable: args.unavailable, stop: args.stop };
    let reply = client.replace(without_kind(&args.job, "job"), request)?;
    say_job(&reply, args.output, replaced)
}

fn say_job(
    reply: &JobReply,
    format: Format,
    text: impl Fn(&JobView, Paint) -> String,
) -> anyhow::Result<ExitCode> {
    output::answer(format, reply, |paint| signed(text(&reply.job, paint), reply, paint))?;
    Ok(ExitCode::SUCCESS)
}

/// What is said of a job, or of all members of an array, that was cancelled.
pub(super) fn taken_back(reply: &JobReply, paint: Paint) -> String {
    let job = &reply.job;
    let text = match (reply.members, &job.array) {
        (Some(members), Some(array)) => array_cancelled(&job.tenant, &array.name, members, paint),
        _ => cancelled(job, paint),
    };
    signed(text, reply, paint)
}

/// With whom the control plane took the caller for, after everything else.
fn signed(text: String, reply: &JobReply, paint: Paint) -> String {
    let by = reply.actor.as_ref().map(|actor| next_line(paint, "by:", &actor.text()) + "\n");
    text + &by.unwrap_or_default()
}

fn cancelled(job: &JobView, paint: Paint) -> String {
    let after = if job.placements.is_empty() {
        "it held nothing"
    } else {
        "it gives back what it holds as soon as its tasks have ended"
    };
    gone(&job_name(job), after, paint)
}

/// `array lab/nlp/sweep is cancelled: 20 jobs`
fn array_cancelled(tenant: &str, name: &str, members: u32, paint: Paint) -> String {
    gone(&format!("array {tenant}/{name}"), &counted(members.into(), "job"), paint)
}

fn gone(name: &str, what: &str, paint: Paint) -> String {
    output::lines(&[
        format!("{} is cancelled: {what}", paint.tone(Tone::Strong, name)),
        next_line(paint, "undo:", "none; hand it in again with wharf submit"),
    ])
}

/// What a lever does to a job, how that is undone, and where to look next.
fn pulled(job: &JobView, what: &str, undo: &str, paint: Paint) -> String {
    let name = job_name(job);
    output::lines(&[
        format!("{} {what}", paint.tone(Tone::Strong, &name)),
        next_line(paint, "undo:", undo),
        next_line(paint, "next:", &format!("wharf explain {name}")),
    ])
}

fn evicted(job: &JobView, paint: Paint) -> String {
    let what =
        "is asked to leave, after saving its work if it has a checkpoint contract; then it waits again";
    pulled(job, what, "none is needed: it waits again and starts by itself", paint)
}

fn released(job: &JobView, paint: Paint) -> String {
    let undo = format!("none; wharf cancel {} takes it back", job_name(job));
    pulled(job, "is released and waits for its start like any other", &undo, paint)
}

fn extended(job: &JobView, paint: Paint) -> String {
    let limit = job.time_limit_ms.map_or_else(|| UNKNOWN.to_owned(), duration_text);
    let undo = "none; a limit is not made shorter. wharf cancel ends the job";
    pulled(job, &format!("may run {limit} in all"), undo, paint)
}

fn scaled(job: &JobView, paint: Paint) -> String {
    let (wanted, run) = (counted(job.tasks.into(), "replica"), job.running_tasks);
    let how =
        if run > job.tasks { "the newest are let go" } else { "the rest come as the rules give places" };
    let undo = format!("wharf scale {} N with the number before", job_name(job));
    pulled(job, &format!("wants {wanted}, {run} run: {how}"), &undo, paint)
}

fn replaced(job: &JobView, paint: Paint) -> String {
    let undo = format!("wharf replace {}", job_name(job));
    let Some(replacing) = &job.replacing else {
        return pulled(job, "replaces no more replicas", &undo, paint);
    };
    let what = format!("replaces {}, a few at a time", counted(replacing.old.into(), "replica"));
    pulled(job, &what, &format!("{undo} --stop   what is fresh by then stays"), paint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples::{running, waiting};

    #[test]
    fn every_lever_prints_its_undo() {
        assert!(cancelled(&waiting(), Paint::OFF).contains("it held nothing\nundo: none;"));
        assert!(cancelled(&running(), Paint::OFF).contains("gives back what it holds"));
        assert!(evicted(&running(), Paint::OFF).contains("undo: none is needed"));
        let shrunk = JobView { tasks: 2, ..running() };
        assert!(scaled(&shrunk, Paint::OFF).contains("wants 2 replicas, 4 run: the newest are let go"));
        let limited = JobView { time_limit_ms: Some(21_600_000), ..running() };
        assert!(extended(&limited, Paint::OFF).contains("may run 6h in all\nundo: none; a limit"));
    }
}
