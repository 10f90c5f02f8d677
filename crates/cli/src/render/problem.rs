//! How the command line says no: what, why and what to do next, with an exit code to rely on.

use std::fmt;
use std::io::{self, ErrorKind};
use std::process::ExitCode;

use wharf_api::client::{ClientError, why_silent};
use wharf_api::file::{FileError, nearest};
use wharf_api::v1::{Code, Problem};
use wharf_controller::disk::DiskFault;
use wharf_controller::turn::Fault;
use wharf_sim::world::file::FileFault;

use crate::args::Format;
use crate::render::numbers::span;
use crate::render::output::{self, Paint, Tone};

/// What a wrong command line exits with.
pub(crate) const EXIT_USAGE: u8 = 64;
/// What a command exits with that failed for a reason of this machine.
const EXIT_FAILED: u8 = 1;

/// Arguments that are fine one by one and make no sense together.
#[derive(Debug)]
pub(crate) struct Usage {
    /// What is wrong.
    pub(crate) what: String,
    /// What to type instead.
    pub(crate) next: String,
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.next)
    }
}

impl std::error::Error for Usage {}

/// Why a control plane cannot have the address that it is to listen on.
pub(crate) fn cannot_listen(address: &str, error: &io::Error) -> Problem {
    let (why, next) = match error.kind() {
        ErrorKind::AddrInUse => (
            "another process listens there",
            "stop that process, or choose another address: wharf up --listen 127.0.0.1:0 takes any free port",
        ),
        ErrorKind::PermissionDenied => {
            ("this user may not listen there", "choose a port above 1023: wharf up --listen 127.0.0.1:8470")
        }
        ErrorKind::AddrNotAvailable => (
            "this machine has no such address",
            "choose one that it has: wharf up --listen 127.0.0.1:8470, or 0.0.0.0:8470 for all of them",
        ),
        _ => ("it is no address of this machine", "write HOST:PORT, such as --listen 127.0.0.1:8470"),
    };
    Problem::new(Code::CannotStart, format!("cannot listen on {address}: {why}")).hint(next)
}

/// What is said when a list has nothing of that name, with the one that was perhaps meant.
pub(crate) fn missing<'a>(
    code: Code,
    (kind, name): (&str, &str),
    known: impl IntoIterator<Item = &'a str>,
    list: &str,
) -> anyhow::Error {
    let known: Vec<&str> = known.into_iter().collect();
    // Of a path the last part is what people remember.
    let tails: Vec<&str> = known.iter().map(|path| path.rsplit('/').next().unwrap_or(path)).collect();
    let by_last = || {
        let near = nearest(name.rsplit('/').next().unwrap_or(name), &tails)?;
        known.get(tails.iter().position(|tail| *tail == near)?).copied()
    };
    let near = nearest(name, &known).or_else(by_last).map(|near| format!("did you mean {near}? "));
    let hint = format!("{}list them with: wharf get {list}", near.unwrap_or_default());
    Problem::new(code, format!("there is no {kind} {name:?}")).hint(hint).into()
}

/// Tells the user, and says what to exit with.
pub(crate) fn report(error: &anyhow::Error, format: Format) -> ExitCode {
    let (problem, code) = understood(error);
    let text = match format {
        Format::Text => text(&problem, Paint::stderr()),
        Format::Json => output::json(&problem).unwrap_or_else(|_| text(&problem, Paint::OFF)),
    };
    output::remark(text.trim_end());
    ExitCode::from(code)
}

/// What to do about an error, where that is known.
pub(crate) fn next(error: &anyhow::Error) -> Option<&'static str> {
    error.chain().find_map(of_storage).and_then(|(_, next)| next)
}

/// An error as a problem with its exit code.
fn understood(error: &anyhow::Error) -> (Problem, u8) {
    if let Some(error) = error.downcast_ref::<ClientError>() {
        return (of_client(error), error.exit_code());
    }
    if let Some(error) = error.downcast_ref::<FileError>() {
        return (of_file(error), EXIT_USAGE);
    }
    if let Some(Usage { what, next }) = error.downcast_ref::<Usage>() {
        let problem = titled(Code::BadRequest, "The command line cannot be read", what.clone());
        return (problem.hint(next), EXIT_USAGE);
    }
    // A bare problem is one that was found here, by looking through a list.
    if let Some(problem) = error.downcast_ref::<Problem>() {
        return (problem.clone(), problem.code.exit_code());
    }
    if let Some((fault, next)) = error.chain().find_map(of_storage) {
        // A sentence of ours before it says what came of it.
        let before = error.chain().map(ToString::to_string).take_while(|said| *said != fault);
        let detail = before.chain([fault.clone()]).collect::<Vec<_>>().join(": ");
        let problem = Problem::new(Code::Storage, detail);
        return (next.map_or(problem.clone(), |next| problem.hint(next)), EXIT_FAILED);
    }
    let causes: Vec<String> = error.chain().skip(1).map(|cause| without_number(&cause.to_string())).collect();
    let why = if causes.is_empty() { "The command failed".to_owned() } else { sentence(&causes.join(": ")) };
    (titled(Code::Internal, &why, error.to_string()), EXIT_FAILED)
}

/// A fault of the disk or of a file, with what to do about it.
fn of_storage(error: &(dyn std::error::Error + 'static)) -> Option<(String, Option<&'static str>)> {
    if let Some(fault) = error.downcast_ref::<Fault>() {
        return Some((fault.to_string(), fault.next()));
    }
    if let Some(fault) = error.downcast_ref::<FileFault>() {
        return Some((fault.to_string(), Some(fault.next())));
    }
    error.downcast_ref::<DiskFault>().map(|fault| (fault.to_string(), fault.next()))
}

fn of_client(error: &ClientError) -> Problem {
    match error {
        ClientError::Address { server, what } => {
            let problem = titled(
                Code::BadRequest,
                &sentence(what),
                format!("{server:?} is no address of a control plane"),
            );
            problem.hint("write http://HOST:PORT in --server or WHARF_SERVER")
        }
        ClientError::Unreachable { server, source } => {
            let problem =
                titled(Code::Unavailable, &sentence(why_silent(source)), format!("no answer from {server}"));
            problem.hint("is it running? start it with: wharf up, or name another with --server")
        }
        ClientError::Problem(problem) => Problem::clone(problem),
        ClientError::Protocol { server, what } => {
            let detail = format!("{server} does not answer like a control plane of this version");
            titled(Code::Unavailable, &sentence(what), detail).hint("compare: wharf --version, on both sides")
        }
    }
}

fn of_file(error: &FileError) -> Problem {
    let FileError { file, line, column: _, what, near, allowed, instead } = error;
    let place = line.map_or_else(|| file.clone(), |line| format!("{file}:{line}"));
    let what = without_number(what);
    let problem = titled(Code::BadRequest, "It cannot be read", format!("{place}: {what}"));
    let near = near.as_ref().map(|near| format!("did you mean {near:?}?"));
    let allowed = allowed.as_ref().map(|allowed| format!("allowed here: {allowed}"));
    let instead = instead.as_ref().map(|instead| format!("write {instead}"));
    let hints: Vec<String> = near.into_iter().chain(allowed).chain(instead).collect();
    match (hints.is_empty(), line) {
        (false, _) => problem.hint(hints.join(" ")),
        (true, None) => problem.hint("is that the right path? It is looked up from the current directory"),
        (true, Some(_)) => problem,
    }
}

/// What the system says without the number that it has for it.
fn without_number(text: &str) -> String {
    text.split(" (os error ").next().unwrap_or(text).to_owned()
}

/// With a capital letter, as every title has one.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

fn titled(code: Code, title: &str, detail: String) -> Problem {
    Problem { title: title.to_owned(), ..Problem::new(code, detail) }
}

fn text(problem: &Problem, paint: Paint) -> String {
    let Problem { kind: _, title, status: _, detail, code, hint, retry_after_ms, nearest_ms: _ } = problem;
    let label = |word| paint.tone(Tone::Faint, word);
    let mut lines = vec![
        format!("{} {detail}", paint.strong(Tone::Bad, "error:")),
        format!("{} {title} ({})", label("  why:"), code.word()),
    ];
    lines.extend(hint.as_ref().map(|hint| format!("{} {hint}", label(" next:"))));
    let again = retry_after_ms.map(|millis| format!("{} in {}", label("again:"), span(millis.max(1000))));
    lines.extend(again);
    output::lines(&lines)
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    fn shown(error: impl Into<anyhow::Error>) -> (String, u8) {
        let (problem, code) = understood(&error.into());
        (text(&problem, Paint::OFF), code)
    }

    #[test]
    fn a_refusal_says_what_why_and_next() {
        let problem = Problem::new(Code::QueueFull, "10000 jobs wait").hint("try later").retry_after_ms(2500);
        let (text, code) = shown(ClientError::Problem(Box::new(problem)));
        let expected = "error: 10000 jobs wait\n  why: Too many jobs wait (queue_full)\n next: try later\nagain: in 2s\n";
        assert_eq!((text.as_str(), code), (expected, 3));
    }

    #[test]
    fn every_kind_of_error_has_its_exit_code() {
        let usage = Usage { what: "both".into(), next: "one".into() };
        assert_eq!(shown(usage).1, 64);
        assert_eq!(shown(Problem::new(Code::NoSuchNode, "no node x")).1, 4);
        assert_eq!(shown(Problem::new(Code::Never, "never")).1, 2);
        assert_eq!(shown(ClientError::Address { server: "x".into(), what: "no" }).1, 64);
        assert_eq!(shown(ClientError::Protocol { server: "x".into(), what: "no".into() }).1, 69);
        assert_eq!(shown(anyhow!("disk full").context("cannot write")).1, 1);
    }

    /// A full disk was told of three times in one sentence, as "internal" and without a next step.
    #[test]
    fn a_fault_of_the_disk_is_told_once_with_what_to_do() {
        let fault = DiskFault::Io {
            attempted: "cannot append to the journal".into(),
            why: "database or disk is full".into(),
            next: Some("free space"),
        };
        let error =
            anyhow::Error::new(Fault::Disk(fault)).context("the control plane stopped; running jobs go on");
        let (text, code) = shown(error);
        let expected = "error: the control plane stopped; running jobs go on: cannot append to the journal: database or disk is full\n  \
            why: The data directory cannot be used as it is (storage)\n next: free space\n";
        assert_eq!((text.as_str(), code), (expected, 1));
    }

    #[test]
    fn a_failure_of_this_machine_tells_its_causes() {
        let (text, _) = shown(anyhow!("disk full").context("cannot write"));
        assert_eq!(text, "error: cannot write\n  why: Disk full (internal)\n");
    }

    #[test]
    fn a_wrong_file_names_the_line_and_what_was_perhaps_meant() {
        let error = FileError {
            file: "job.yaml".into(),
            line: Some(3),
            column: Some(1),
            what: "unknown key \"gpu\"".into(),
            near: Some("gpus".into()),
            allowed: None,
            instead: None,
        };
        let (text, code) = shown(error);
        assert_eq!(code, 64);
        assert!(text.starts_with("error: job.yaml:3: unknown key \"gpu\"\n"), "{text}");
        assert!(text.ends_with(" next: did you mean \"gpus\"?\n"), "{text}");
    }
}
