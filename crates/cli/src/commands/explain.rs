//! `wharf explain`: one screen that says why something is as it is.
//!
//! About a job the control plane answers; about tenants, nodes and GPUs [`beside`](super::beside) puts together
//! what the lists say.

use std::process::ExitCode;

use wharf_api::client::Client;
use wharf_api::v1::{Explanation, JobState, JobView};

use super::verdict::{self, Need};
use super::{beside, fact, job_name, next_line, place_lines, world_now};
use crate::args::{ExplainArgs, Format};
use crate::numbers::{age, counted, number};
use crate::output::{self, Paint, Tone};
use crate::problem::Usage;

/// Runs it.
pub(crate) fn run(client: &Client, args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let ExplainArgs { what, output } = args;
    match subject(what)? {
        Subject::Job(name) => explain_job(client, name, *output)?,
        Subject::Tenant(path) => beside::tenant(client, path, *output)?,
        Subject::Node(name) => beside::node(client, name, *output)?,
        Subject::Gpu { node, index } => beside::gpu(client, node, index, *output)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What is asked about.
#[derive(Debug, PartialEq, Eq)]
enum Subject<'a> {
    Job(&'a str),
    Tenant(&'a str),
    Node(&'a str),
    Gpu { node: &'a str, index: u32 },
}

fn subject(what: &str) -> Result<Subject<'_>, Usage> {
    let wrong = |what: String, next: &str| Usage { what, next: next.to_owned() };
    let (kind, name) = what.split_once('/').unwrap_or(("job", what));
    if name.is_empty() {
        return Err(wrong(
            format!("{what:?} names nothing"),
            "write job/NAME, tenant/PATH, node/NAME or gpu/NODE:INDEX",
        ));
    }
    match kind {
        "job" => Ok(Subject::Job(name)),
        "tenant" => Ok(Subject::Tenant(name)),
        "node" => Ok(Subject::Node(name)),
        "gpu" => {
            let parts = name.rsplit_once(':').and_then(|(node, index)| Some((node, index.parse().ok()?)));
            let Some((node, index)) = parts else {
                return Err(wrong(format!("{name:?} is no GPU"), "write gpu/NODE:INDEX, such as gpu/n1:3"));
            };
            Ok(Subject::Gpu { node, index })
        }
        // Not a kind: a job named by tenant and name, as the list shows it.
        _ => Ok(Subject::Job(what)),
    }
}

fn explain_job(client: &Client, name: &str, format: Format) -> anyhow::Result<()> {
    let explanation = client.explain(name)?;
    match format {
        Format::Text => output::print(&text(&explanation, world_now(client), Paint::stdout())),
        Format::Json => output::print_json(&explanation),
    }
}

/// The screen.
fn text(explanation: &Explanation, now: Option<u64>, paint: Paint) -> String {
    let job = &explanation.job;
    let unit = if job.gpus_per_task > 0.0 { "GPUs" } else { "tasks" };
    let least = f64::from(job.min) * if job.gpus_per_task > 0.0 { job.gpus_per_task } else { 1.0 };
    let need = Need { unit, amount: Some(job.verdict.need.unwrap_or(least)) };
    let mut screen =
        vec![format!("{}  {}", paint.tone(Tone::Strong, &job_name(job)), shape(job)), String::new()];
    screen.extend(verdict::head(&job.verdict, paint));
    screen.extend(verdict::details(&job.verdict, need, paint));
    screen.push(String::new());
    let facts = [
        ("places", place_lines(&job.placements)),
        ("ahead", verdict::ahead(&job.verdict).into_iter().collect()),
        ("so far", vec![past(job, now)]),
        ("basis", vec![verdict::basis(&job.verdict)]),
        ("uid", vec![job.uid.clone()]),
    ];
    for (label, lines) in facts {
        for (index, line) in lines.iter().enumerate() {
            let label = if index == 0 { label } else { "" };
            screen.push(fact(label, line, paint));
        }
    }
    screen.push(next(job, paint));
    output::lines(&screen)
}

/// `batch, 4 tasks of 8 GPUs, priority 0`
fn shape(job: &JobView) -> String {
    let tasks = counted(u64::from(job.tasks), "task");
    let least = if job.min < job.tasks { format!(" (at least {})", job.min) } else { String::new() };
    let gpus = match job.gpus_per_task {
        gpus if gpus <= 0.0 => "without GPU".to_owned(),
        gpus if gpus <= 1.0 => format!("of {} GPU", number(gpus)),
        gpus => format!("of {} GPUs", number(gpus)),
    };
    format!("{}, {tasks}{least} {gpus}, priority {}", job.class.word(), job.priority)
}

/// `submitted 12m ago, first started 10m ago; 2 attempts, 1 eviction, 0 failures`
fn past(job: &JobView, now: Option<u64>) -> String {
    let submitted = format!("submitted {} ago", age(job.submitted_at_ms, now));
    let started = match job.first_start_ms {
        Some(at) => format!("first started {} ago", age(at, now)),
        None => "never started".to_owned(),
    };
    let running = match job.state {
        JobState::Starting | JobState::Running if job.tasks > 1 => {
            format!(", {} of {} tasks run", job.running_tasks, job.tasks)
        }
        JobState::Waiting | JobState::Starting | JobState::Running | JobState::Leaving => String::new(),
    };
    let counts = [(job.attempts, "attempt"), (job.evictions, "eviction"), (job.failures, "failure")];
    let counts = counts.map(|(count, what)| counted(u64::from(count), what)).join(", ");
    format!("{submitted}, {started}{running}; {counts}")
}

fn next(job: &JobView, paint: Paint) -> String {
    match job.state {
        JobState::Waiting => {
            let command = format!("wharf explain tenant/{}   who is there now: wharf top", job.tenant);
            next_line(paint, "next:", &command)
        }
        JobState::Starting | JobState::Running | JobState::Leaving => {
            let command = format!("wharf get history --name {}", job.name);
            next_line(paint, "next:", &command)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{explanation, running, waiting};
    use super::*;

    #[test]
    fn a_waiting_job_shows_where_the_funnel_stops() {
        let expected = "\
job/lab/nlp/llama-70b  batch, 4 tasks of 8 GPUs, priority 0

WAITS  WaitingForRoomTogether
  16 of the 32 GPUs it needs are free on one leaf.

  GPUs left after each question; it needs 32
    fleet          512  ████████████████████████████████
    healthy        504  ███████████████████████████████▌
    right model    256  ████████████████
    allowed        256  ████████████████
    free            40  ██▌
  ✗ free together   16  █ ◄ 16 short
    within quota    16  █

  in the way          need  have  gap
  GPUs free together    32    16   16

  ahead   3 jobs of its tenant are served before it
  so far  submitted 12m ago, first started 11m ago; 2 attempts, 1 eviction, 0 failures
  basis   policy 3, journal index 18234
  uid     00000000000000000000000000000abc
next: wharf explain tenant/lab/nlp   who is there now: wharf top
";
        assert_eq!(text(&explanation(waiting()), Some(1_720_000), Paint::OFF), expected);
    }

    #[test]
    fn a_running_job_shows_its_places() {
        let expected = "\
job/lab/nlp/llama-70b  batch, 4 tasks of 8 GPUs, priority 0

RUNNING  Running
  All of its tasks run.

  places  task 0    n0 (GPUs 0-7)
          task 1    n1 (GPUs 0-7)
          task 2    n2 (GPUs 0-7)
          task 3    n3 (GPUs 0-7)
  so far  submitted ? ago, first started ? ago, 4 of 4 tasks run; 2 attempts, 1 eviction, 0 failures
  basis   policy 3, journal index 18234
  uid     00000000000000000000000000000abc
next: wharf get history --name llama-70b
";
        assert_eq!(text(&explanation(running()), None, Paint::OFF), expected);
    }

    #[test]
    fn what_is_asked_about_is_read_from_its_name() {
        assert_eq!(subject("hello").unwrap(), Subject::Job("hello"));
        assert_eq!(subject("job/lab/nlp/hello").unwrap(), Subject::Job("lab/nlp/hello"));
        assert_eq!(subject("lab/nlp/hello").unwrap(), Subject::Job("lab/nlp/hello"));
        assert_eq!(subject("tenant/lab/nlp").unwrap(), Subject::Tenant("lab/nlp"));
        assert_eq!(subject("node/n1").unwrap(), Subject::Node("n1"));
        assert_eq!(subject("gpu/n1:3").unwrap(), Subject::Gpu { node: "n1", index: 3 });
        for wrong in ["gpu/n1", "gpu/n1:x", "gpu/n1:-1", "job/", "", "node/"] {
            subject(wrong).expect_err(wrong);
        }
    }
}
