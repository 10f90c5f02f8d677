//! The binary from outside: exit codes, what goes to which stream, and what is sent to the control plane.
//!
//! The control plane is a listener that gives one canned answer per request, in order, and keeps what it was asked.

#![expect(clippy::unwrap_used, reason = "clippy does not see that the functions around tests are tests too")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;

const JOB: &str = r#"{
    "uid": "00000000000000000000000000000abc", "name": "hello", "tenant": "lab/nlp", "class": "batch",
    "priority": 0, "tasks": 1, "min": 1, "gpus_per_task": 8.0, "state": "waiting",
    "verdict": {
        "verdict": "waits", "reason": "WaitingForCapacity", "text": "4 of the 8 GPUs it needs are free.",
        "need": 8.0, "have": 4.0,
        "funnel": [{"stage": "fleet", "gpus": 16}, {"stage": "free", "gpus": 4}],
        "blockers": [], "ahead": 0, "policy_version": 1, "basis": 7, "from_a_later_version": true
    },
    "submitted_at_ms": 1000, "first_start_ms": null, "running_tasks": 0, "placements": [],
    "attempts": 0, "evictions": 0, "failures": 0
}"#;
const SUMMARY: &str = r#"{
    "schema": "wharf.v1.summary", "now_ms": 181000,
    "pools": [{"model": "h100", "gpus": 16, "healthy": 16, "allocated": 12.0, "used_sm": null}],
    "tenants": [], "queue": [], "jobs": [], "journal": {"index": 7, "term": 1}, "decision_ms": null
}"#;

/// One canned answer.
struct Answer {
    status: &'static str,
    body: String,
}

fn ok(schema: &str, rest: &str) -> Answer {
    Answer { status: "200 OK", body: format!(r#"{{"schema": "wharf.v1.{schema}", {rest}}}"#) }
}

/// A control plane that knows these answers. Joining it gives the requests, each as `METHOD PATH` and body.
struct Canned {
    server: String,
    thread: JoinHandle<Vec<(String, String)>>,
}

fn canned(answers: Vec<Answer>) -> Canned {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        answers.into_iter().map(|answer| serve(&listener.accept().unwrap().0, &answer)).collect()
    });
    Canned { server, thread }
}

fn serve(mut stream: &TcpStream, answer: &Answer) -> (String, String) {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let length = lines
        .iter()
        .find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).unwrap();
    let Answer { status, body: text } = answer;
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", text.len());
    stream.write_all(format!("{head}{text}").as_bytes()).unwrap();
    let asked = lines[0].trim_end_matches(" HTTP/1.1").to_owned();
    (asked, String::from_utf8(body).unwrap())
}

fn wharf(server: &str, args: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wharf"));
    command.args(args).env("WHARF_SERVER", server).env_remove("COLUMNS");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Exit code, standard output and standard error.
fn told(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// Without a server: for what is wrong before one is asked.
fn alone(args: &[&str]) -> (i32, String, String) {
    told(&wharf("http://127.0.0.1:1", args, ""))
}

#[test]
fn alone_it_shows_a_newcomer_where_to_start() {
    let (code, out, _) = alone(&[]);
    assert_eq!(code, 0);
    assert!(out.contains("wharf up --demo"), "{out}");
    let (code, help, _) = alone(&["--help"]);
    assert_eq!((code, help.trim_end()), (0, out.trim_end()));
    let (code, version, _) = alone(&["--version"]);
    assert_eq!((code, version), (0, format!("wharf {}\n", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn wrong_arguments_exit_with_64() {
    let wrong: [&[&str]; 15] = [
        &["no-such-command"],
        &["get"],
        &["get", "cats"],
        &["get", "jobs", "--state", "asleep"],
        &["get", "nodes", "--tenant", "lab"],
        &["submit"],
        &["submit", "job.yaml", "--gpus", "1"],
        &["submit", "no-such-file.yaml"],
        &["submit", "--name", "a", "--tenant", "t", "--gpus", "many"],
        &["explain", "gpu/n1"],
        &["sim", "--random", "1", "--trace", "x"],
        &["up", "--speed", "0"],
        &["policy", "lint"],
        &["policy", "lint", "no-such-directory"],
        &["policy", "lint", ".", "--fleet", "no-such-fleet"],
    ];
    for args in wrong {
        let (code, out, error) = alone(args);
        assert_eq!((code, out.as_str()), (64, ""), "{args:?}: {error}");
        assert!(error.starts_with("error: "), "{args:?}: {error}");
    }
    assert_eq!(told(&wharf("ftp://x", &["get", "jobs"], "")).0, 64);
}

#[test]
fn nobody_at_the_address_exits_with_69_and_a_hint() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    for args in [vec!["get", "jobs"], vec!["top"], vec!["explain", "x"], vec!["cordon", "n1"]] {
        let (code, out, error) = told(&wharf(&server, &args, ""));
        assert_eq!((code, out.as_str()), (69, ""), "{args:?}");
        assert!(error.starts_with(&format!("error: no answer from {server}\n")), "{error}");
        assert!(error.contains("is it running? start it with: wharf up"), "{error}");
    }
    let (code, _, error) = told(&wharf(&server, &["get", "jobs", "-o", "json"], ""));
    assert_eq!(code, 69);
    let problem: serde_json::Value = serde_json::from_str(&error).unwrap();
    assert_eq!(problem["code"], "unavailable");
}

#[test]
fn a_submitted_job_that_waits_is_a_success() {
    let server = canned(vec![ok("submitted", &format!(r#""job": {JOB}, "created": true"#))]);
    let file = "name: hello\ntenant: lab/nlp\ngpus: 8\n";
    let (code, out, error) = told(&wharf(&server.server, &["submit", "-"], file));
    assert_eq!((code, error.as_str()), (0, ""));
    let expected = "\
job/lab/nlp/hello is accepted and waits (WaitingForCapacity)
  4 of the 8 GPUs it needs are free.
next: wharf explain job/lab/nlp/hello
";
    assert_eq!(out, expected);
    let asked = server.thread.join().unwrap();
    assert_eq!(asked[0].0, "POST /v1/jobs");
    assert!(asked[0].1.contains(r#""name":"hello""#), "{asked:?}");
}

#[test]
fn a_plan_exits_with_what_would_happen() {
    for (verdict, expected) in [("runnable_now", 0), ("waits", 1), ("never", 2), ("denied", 3)] {
        let verdict = format!(
            r#""verdict": {{"verdict": "{verdict}", "reason": null, "text": "t", "need": null, "have": null,
            "ahead": null, "policy_version": 1, "basis": 7}}, "placements": []"#
        );
        let server = canned(vec![ok("plan", &verdict)]);
        let args = ["plan", "--name", "a", "--tenant", "lab/nlp", "--gpus", "1", "-o", "json"];
        let (code, out, error) = told(&wharf(&server.server, &args, ""));
        assert_eq!(code, expected, "{error}");
        assert!(out.contains(r#""schema": "wharf.v1.plan""#), "{out}");
    }
}

#[test]
fn explain_draws_the_funnel_without_colour_in_a_pipe() {
    let summary = Answer { status: "200 OK", body: SUMMARY.into() };
    let server = canned(vec![ok("explanation", &format!(r#""job": {JOB}"#)), summary]);
    let (code, out, _) = told(&wharf(&server.server, &["explain", "job/lab/nlp/hello"], ""));
    assert_eq!(code, 0);
    assert!(out.contains("✗ free    4  ████████ ◄ 4 short\n"), "{out}");
    assert!(out.contains("submitted 3m ago, never started"), "{out}");
    assert!(!out.contains('\x1b'), "{out}");
    assert_eq!(server.thread.join().unwrap()[0].0, "GET /v1/jobs/lab%2Fnlp%2Fhello/explain");
}

#[test]
fn a_refusal_is_told_with_code_why_and_next() {
    let refusal = || Answer {
        status: "404 Not Found",
        body: r#"{"type": "urn:wharf:problem:no_such_job", "title": "No such job", "status": 404,
            "detail": "no job x", "code": "no_such_job", "hint": "list them with: wharf get jobs"}"#
            .into(),
    };
    let server = canned(vec![refusal(), refusal()]);
    let (code, out, error) = told(&wharf(&server.server, &["cancel", "job/x"], ""));
    assert_eq!((code, out.as_str()), (4, ""));
    let expected =
        "error: no job x\n  why: No such job (no_such_job)\n next: list them with: wharf get jobs\n";
    assert_eq!(error, expected);
    let (code, _, error) = told(&wharf(&server.server, &["cancel", "x", "-o", "json"], ""));
    assert_eq!(code, 4);
    let problem: serde_json::Value = serde_json::from_str(&error).unwrap();
    assert_eq!((&problem["code"], &problem["status"]), (&"no_such_job".into(), &404.into()));
    let asked = server.thread.join().unwrap();
    assert_eq!([&asked[0].0, &asked[1].0], ["DELETE /v1/jobs/x", "DELETE /v1/jobs/x"]);
}

#[test]
fn lists_come_in_every_form_and_an_empty_one_helps() {
    let jobs = || ok("jobs", &format!(r#""jobs": [{JOB}]"#));
    let summary = Answer { status: "200 OK", body: SUMMARY.into() };
    let server = canned(vec![jobs(), summary, jobs(), jobs(), ok("jobs", r#""jobs": []"#)]);
    let get = |rest: &[&str]| told(&wharf(&server.server, &[&["get", "jobs"], rest].concat(), ""));
    let table = "\
NAME   TENANT   CLASS  STATE    GPUS  AGE  REASON
hello  lab/nlp  batch  waiting     8   3m  WaitingForCapacity
";
    assert_eq!(get(&[]), (0, table.into(), String::new()));
    assert_eq!(get(&["-o", "name"]), (0, "job/lab/nlp/hello\n".into(), String::new()));
    let (code, csv, _) = get(&["-o", "csv", "--no-headers", "--tenant", "lab", "--state", "waiting"]);
    assert_eq!(code, 0);
    assert!(csv.starts_with("hello,lab/nlp,batch,waiting,8,1000,WaitingForCapacity,"), "{csv}");
    let (code, out, error) = get(&[]);
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(error.contains("wharf submit"), "{error}");
    let asked = server.thread.join().unwrap();
    assert_eq!(asked[3].0, "GET /v1/jobs?tenant=lab&state=waiting");
}

#[test]
fn top_in_a_pipe_is_one_frame_of_text() {
    let server = canned(vec![Answer { status: "200 OK", body: SUMMARY.into() }]);
    let (code, out, _) = told(&wharf(&server.server, &["top"], ""));
    assert_eq!(code, 0);
    assert!(out.contains("12/16 alloc  75%") && out.contains("used ?"), "{out}");
    assert!(!out.contains('\x1b'), "{out}");
}

#[test]
fn completions_are_made_for_every_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let (code, out, _) = alone(&["completions", shell]);
        assert_eq!(code, 0);
        assert!(out.contains("uncordon"), "{shell}");
    }
}

/// A policy directory with these files.
fn policy(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

#[test]
fn a_policy_is_linted_without_a_control_plane() {
    let dir = policy(wharf_api::file::policy::default_policy_files());
    let path = dir.path().to_str().unwrap();
    let (code, out, error) = alone(&["policy", "lint", path, "--fleet", "lab"]);
    assert_eq!((code, error.as_str()), (0, ""));
    let expected = format!(
        "\
TENANT       GUARANTEED  BACK WITHIN
lab          28 GPUs     5m11s
lab/nlp      8 GPUs      5m11s
lab/vision   8 GPUs      5m11s
lab/eval     4 GPUs      5m11s
lab/serving  8 GPUs      5m11s

{path}: nothing found
"
    );
    assert_eq!(out, expected);
    let help = alone(&["policy", "lint", "--help"]);
    assert!(help.1.contains("wharf policy lint ./policy --fleet lab"), "{help:?}");
}

#[test]
fn a_policy_that_cannot_be_kept_exits_with_1_and_says_how_to_mend_it() {
    let tenants = "tenants:\n  lab:\n    guaranteed: 40\n    children:\n      nlp: {guaranteed: 44}\n";
    let dir = policy(&[("tenants.yaml", tenants), ("gangs.yaml", "start_with: 1m\n")]);
    let path = dir.path().to_str().unwrap();
    let (code, out, error) = alone(&["policy", "lint", path]);
    assert_eq!((code, error.as_str()), (1, ""));
    let expected = format!(
        "  \
  error: {path}/gangs.yaml:1: unknown key \"start_with\"
    why: a policy with an error in one file is refused whole: the one in force stays
    fix: perhaps \"start_within\" was meant; allowed here: start_within, repair_within

  error: {path}/tenants.yaml:3: lab is promised 40 GPUs, its children 44 together
    why: a tenant hands its own guarantee on to its children and cannot hand on more
    fix: raise lab's guarantee to 44 or lower lab/nlp's by 4

{path}: 2 errors; no guarantee is promised while there are errors
can a fleet keep it? wharf policy lint {path} --fleet NAME|FILE
"
    );
    assert_eq!(out, expected);

    std::fs::remove_file(dir.path().join("gangs.yaml")).unwrap();
    std::fs::write(dir.path().join("tenants.yaml"), tenants.replace("44", "8")).unwrap();
    let (code, out, _) = alone(&["policy", "lint", path, "--fleet", "lab", "-o", "json"]);
    assert_eq!(code, 1);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&json["schema"], &json["ok"]), (&"wharf.policy.lint.v1".into(), &false.into()));
    assert_eq!((&json["fleet"], &json["dir"]), (&"lab".into(), &path.into()));
    let finding = &json["findings"][0];
    assert_eq!((&finding["severity"], &finding["line"]), (&"error".into(), &3.into()));
    assert_eq!(finding["column"], 5);
    assert_eq!(finding["what"], "lab is promised 40 GPUs, the fleet lab has 32");
    assert_eq!(finding["fix"], "lower lab's guarantee to 32, or add 8 GPUs");
    assert_eq!(json["tenants"], serde_json::json!([]));
}
