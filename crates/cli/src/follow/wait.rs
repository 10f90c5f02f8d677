//! `wharf wait`: until jobs run or are over.
//!
//! A job is looked at, and looked at again when the feed of changes tells of it; by its identity, so that another of the
//! same name is not mistaken for it. A control plane that does not answer for a while is waited for too: jobs go on
//! without it.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::Serialize;
use wharf_api::client::{Client, ClientError};
use wharf_api::file::parse_span;
use wharf_api::v1::{ArrayReply, Code, EndedAs, EndedJobView, JobState, Resume};

use crate::args::names::without_kind;
use crate::args::{Format, WaitArgs, WaitFor};
use crate::render::output::{self, remark};
use crate::render::problem::Usage;
use crate::show::explain::array::{self, array_name};

/// Where the control plane does not answer it is asked again after this long; each further pause is half as long again, up
/// to the most.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long one request waits for changes: well within what our client waits for an answer.
const WATCH_SECONDS: u64 = 20;
/// One of the jobs ended otherwise.
const EXIT_OTHERWISE: u8 = 1;
/// The time is up; as timeout(1) has it.
const EXIT_TIMEOUT: u8 = 124;

/// What a program reads.
#[derive(Serialize)]
struct Answer<'a> {
    schema: &'static str,
    /// True when the time was up before all of them were as asked or over.
    timed_out: bool,
    jobs: &'a [Waited],
}

/// What became of a job.
#[derive(Debug, Serialize)]
struct Waited {
    job: String,
    /// True when it is as asked.
    met: bool,
    /// In words.
    text: String,
}

/// Runs it.
pub(crate) fn run(client: &Client, args: &WaitArgs) -> anyhow::Result<ExitCode> {
    let timeout = args.timeout.as_deref().map(span).transpose()?;
    let until = timeout.map(|timeout| Instant::now() + timeout);
    let (mut waited, mut timed_out) = (Vec::new(), false);
    for name in &args.jobs {
        let reference = without_kind(name, "job");
        let array = array::meant(client, reference)?;
        let these = match &array {
            Some(array) => wait_for_members(client, array, args.what, until)?,
            None => wait(client, reference, args.what, until)?.map(|one| vec![one]),
        };
        let Some(these) = these else {
            // Those that follow are looked at once more: some may be over.
            let text = format!("is not {}, and the time is up", word(args.what));
            remark(&format!("{name} {text}"));
            waited.push(Waited { job: name.clone(), met: false, text });
            timed_out = true;
            continue;
        };
        if args.output == Format::Text {
            say(&these, array.as_ref())?;
        }
        waited.extend(these);
    }
    if args.output == Format::Json {
        output::print_json(&Answer { schema: "wharf.wait.v1", timed_out, jobs: &waited })?;
    }
    Ok(exit_code(&waited, timed_out))
}

fn exit_code(waited: &[Waited], timed_out: bool) -> ExitCode {
    match waited.iter().all(|one| one.met) {
        _ if timed_out => ExitCode::from(EXIT_TIMEOUT),
        true => ExitCode::SUCCESS,
        false => ExitCode::from(EXIT_OTHERWISE),
    }
}

/// A line for each job; of an array, a line for it and for those of its members that are not as asked.
fn say(waited: &[Waited], array: Option<&ArrayReply>) -> anyhow::Result<()> {
    if let Some(array) = array {
        let met = waited.iter().filter(|one| one.met).count();
        let (name, all) = (array_name(array), waited.len());
        output::print(&format!("{name}: {met} of {all} as asked\n"))?;
    }
    for one in waited.iter().filter(|one| array.is_none() || !one.met) {
        output::print(&format!("{} {}\n", one.job, one.text))?;
    }
    Ok(())
}

/// All members of an array, by their identities; `None` when the time is up.
fn wait_for_members(
    client: &Client,
    array: &ArrayReply,
    what: WaitFor,
    until: Option<Instant>,
) -> anyhow::Result<Option<Vec<Waited>>> {
    let mut waited = Vec::new();
    for member in &array.members {
        let one = match member.outcome {
            Some(outcome) => {
                let job = format!("job/{}/{}", array.tenant, member.name);
                Some(judge(job, outcome, member.exit_code, &member.text, what))
            }
            None => wait(client, &member.uid, what, until)?,
        };
        let Some(one) = one else { return Ok(None) };
        waited.push(one);
    }
    Ok(Some(waited))
}

fn span(text: &str) -> Result<Duration, Usage> {
    let millis = parse_span(text).filter(|&millis| millis > 0);
    millis.map(Duration::from_millis).ok_or_else(|| Usage {
        what: format!("--timeout {text:?} is no span of time"),
        next: "write 30s, 5m or 1h30m".to_owned(),
    })
}

fn word(what: WaitFor) -> String {
    match what {
        WaitFor::Running => "running".to_owned(),
        WaitFor::Done | WaitFor::DoneWith(_) => "over".to_owned(),
    }
}

/// `None` when the time is up.
fn wait(
    client: &Client,
    name: &str,
    what: WaitFor,
    until: Option<Instant>,
) -> anyhow::Result<Option<Waited>> {
    let (mut uid, mut pause) = (None::<String>, PAUSE_FIRST);
    loop {
        // From before the look, so that nothing is missed between the two.
        let since = client.changes(None, 0).map(|list| list.resume());
        match look(client, name, uid.as_deref(), what) {
            Ok(Look::Over(waited)) => return Ok(Some(waited)),
            Ok(Look::NotYet(known)) => uid = Some(known),
            // It was there before, so it will be again.
            Err(ClientError::Unreachable { .. }) if uid.is_some() => {}
            Err(error) => return Err(error.into()),
        }
        let changed = match (since, &uid) {
            (Ok(since), Some(uid)) => until_changed(client, uid, since, until),
            (Ok(_) | Err(_), _) => None,
        };
        let left = left(until);
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(None);
        }
        if changed.is_some() {
            pause = PAUSE_FIRST;
        } else {
            std::thread::sleep(left.map_or(pause, |left| pause.min(left)));
            pause = (pause * 3 / 2).min(PAUSE_MAX);
        }
    }
}

/// How much time is left; `None` for ever.
fn left(until: Option<Instant>) -> Option<Duration> {
    until.map(|until| until.saturating_duration_since(Instant::now()))
}

/// Waits until the feed tells of a job, or the time is up; `None` where the feed cannot be followed any further.
fn until_changed(client: &Client, uid: &str, mut since: Resume, until: Option<Instant>) -> Option<()> {
    loop {
        let left = left(until);
        // Time for less than a second is slept by whoever asks.
        let seconds = left.map_or(WATCH_SECONDS, |left| left.as_secs().min(WATCH_SECONDS));
        let list = client.changes(Some(since), seconds).ok()?;
        if list.changes.iter().any(|change| change.uid.as_deref() == Some(uid)) {
            return Some(());
        }
        if seconds == 0 && list.changes.is_empty() {
            return None;
        }
        since = list.resume();
    }
}

enum Look {
    Over(Waited),
    /// It lives; its identity.
    NotYet(String),
}

fn look(client: &Client, name: &str, uid: Option<&str>, what: WaitFor) -> Result<Look, ClientError> {
    match client.job(uid.unwrap_or(name)) {
        Ok(reply) => {
            let job = reply.job;
            let path = format!("job/{}/{}", job.tenant, job.name);
            if what == WaitFor::Running && job.state == JobState::Running {
                return Ok(Look::Over(Waited { job: path, met: true, text: "runs".to_owned() }));
            }
            Ok(Look::NotYet(job.uid))
        }
        Err(ClientError::Problem(problem)) if problem.code == Code::NoSuchJob => {
            match client.ended_job(uid.unwrap_or(name)) {
                Ok(reply) => Ok(Look::Over(judge_job(&reply.job, what))),
                Err(_) => Err(ClientError::Problem(problem)),
            }
        }
        Err(error) => Err(error),
    }
}

fn judge_job(job: &EndedJobView, what: WaitFor) -> Waited {
    let path = format!("job/{}/{}", job.tenant, job.name);
    judge(path, job.outcome, job.exit_code, &job.text, what)
}

/// Whether a job that is over ended as asked.
fn judge(job: String, outcome: EndedAs, exit_code: Option<i32>, why: &str, what: WaitFor) -> Waited {
    let succeeded = outcome == EndedAs::Succeeded;
    let met = match what {
        // It ran, and is over already.
        WaitFor::Running | WaitFor::Done => succeeded,
        WaitFor::DoneWith(code) => exit_code == Some(code),
    };
    let wanted = match what {
        WaitFor::DoneWith(code) if !met => format!("; it was to end with exit code {code}"),
        WaitFor::Running | WaitFor::Done | WaitFor::DoneWith(_) => String::new(),
    };
    let text = format!("{}{wanted}", told(outcome, why));
    Waited { job, met, text }
}

/// How it ended, after its name. What is told of a cancelled job says so itself.
fn told(outcome: EndedAs, why: &str) -> String {
    match outcome {
        EndedAs::Succeeded => "succeeded".to_owned(),
        EndedAs::Failed => format!("failed: {why}"),
        EndedAs::TimeLimit => format!("was ended: {why}"),
        EndedAs::Cancelled if why.starts_with("cancelled") => format!("was {why}"),
        EndedAs::Cancelled => format!("was cancelled: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples::ended;

    fn waited(outcome: EndedAs, text: &str, what: WaitFor) -> (bool, String) {
        let waited = judge_job(&EndedJobView { outcome, text: text.into(), ..ended() }, what);
        (waited.met, waited.text)
    }

    #[test]
    fn an_end_is_told_without_saying_it_twice() {
        let (_, text) =
            waited(EndedAs::Cancelled, "cancelled: a, which it waited for, did not succeed", WaitFor::Done);
        assert_eq!(text, "was cancelled: a, which it waited for, did not succeed");
        let (_, text) = waited(EndedAs::TimeLimit, "its time limit of 2m was up", WaitFor::Done);
        assert_eq!(text, "was ended: its time limit of 2m was up");
        assert_eq!(waited(EndedAs::Succeeded, "it succeeded", WaitFor::Done), (true, "succeeded".into()));
    }

    #[test]
    fn another_exit_code_than_the_one_that_was_wanted_names_it() {
        let (met, text) = waited(EndedAs::Succeeded, "it succeeded", WaitFor::DoneWith(3));
        assert_eq!((met, text.as_str()), (false, "succeeded; it was to end with exit code 3"));
    }
}
