//! `wharf wait`: until jobs run or are over.
//!
//! A job is looked at again and again, by its identity, so that another of the same name is not mistaken for it. A control
//! plane that does not answer for a while is waited for too: jobs go on without it.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::Serialize;
use wharf_api::client::{Client, ClientError};
use wharf_api::file::parse_span;
use wharf_api::v1::{ArrayReply, Code, EndedAs, EndedJobView, JobState};

use super::array::{self, array_name};
use super::without_kind;
use crate::args::{Format, WaitArgs, WaitFor};
use crate::output::{self, remark};
use crate::problem::Usage;

/// The first look is followed by another after this long; each further pause is half as long again, up to the most.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// One of the jobs ended otherwise.
const EXIT_OTHERWISE: u8 = 1;
/// The time is up; as timeout(1) has it.
const EXIT_TIMEOUT: u8 = 124;

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
    let mut waited = Vec::new();
    for name in &args.jobs {
        let reference = without_kind(name, "job");
        let array = array::meant(client, reference)?;
        let these = match &array {
            Some(array) => wait_for_members(client, array, args.what, until)?,
            None => wait(client, reference, args.what, until)?.map(|one| vec![one]),
        };
        let Some(these) = these else {
            remark(&format!("the time is up, and {name} is not {}", word(args.what)));
            return Ok(ExitCode::from(EXIT_TIMEOUT));
        };
        if args.output == Format::Text {
            say(&these, array.as_ref())?;
        }
        waited.extend(these);
    }
    if args.output == Format::Json {
        #[derive(Serialize)]
        struct Answer<'a> {
            schema: &'static str,
            jobs: &'a [Waited],
        }
        output::print_json(&Answer { schema: "wharf.wait.v1", jobs: &waited })?;
    }
    let met = waited.iter().all(|one| one.met);
    Ok(if met { ExitCode::SUCCESS } else { ExitCode::from(EXIT_OTHERWISE) })
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
    let (mut uid, mut pause) = (None, PAUSE_FIRST);
    loop {
        match look(client, name, uid.as_deref(), what) {
            Ok(Look::Over(waited)) => return Ok(Some(waited)),
            Ok(Look::NotYet(known)) => uid = Some(known),
            // It was there before, so it will be again.
            Err(ClientError::Unreachable { .. }) if uid.is_some() => {}
            Err(error) => return Err(error.into()),
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(None);
        }
        std::thread::sleep(left.map_or(pause, |left| pause.min(left)));
        pause = (pause * 3 / 2).min(PAUSE_MAX);
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
    let outcome = outcome.word().replace('_', " ");
    let text = if succeeded { outcome } else { format!("{outcome}: {why}") };
    Waited { job, met, text }
}
