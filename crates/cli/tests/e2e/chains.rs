//! Jobs that wait for each other, arrays, and waiting for jobs, as people use them; also across a restart.

use serde_json::{Value, json};

use crate::server::{Server, eventually, wharf};

/// What a command that must succeed says.
fn said(server: &Server, args: &[&str]) -> String {
    let output = server.run(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What a refused command says on stderr; its exit code is checked.
fn refused(server: &Server, args: &[&str], code: i32) -> String {
    let output = server.run(args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    said
}

fn job<'a>(name: &'a str, rest: &[&'a str]) -> Vec<&'a str> {
    [&["submit", "--tenant", "lab/nlp", "--gpus", "1", "--name", name], rest].concat()
}

fn states(server: &Server, labels: &str) -> Vec<Value> {
    let jobs = server.json(&["get", "jobs", "-l", labels]);
    jobs["jobs"].as_array().unwrap().iter().map(|job| job["state"].clone()).collect()
}

#[test]
fn a_job_starts_after_another_or_is_cancelled_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Server::start(&data, &["--speed", "60"]);
    said(&server, &job("prepare", &["--duration", "5m"]));
    let text = said(&server, &job("train", &["--after", "prepare", "--duration", "1m"]));
    assert!(
        text.contains("WaitingForDependency") && text.contains("the success of lab/nlp/prepare"),
        "{text}"
    );
    said(&server, &job("report", &["--after", "job/train", "--after", "prepare:any", "--duration", "1m"]));
    let plan = server.run(&["plan", "--tenant", "lab/nlp", "--gpus", "1", "--name", "x", "--after", "train"]);
    assert_eq!(plan.status.code(), Some(1), "it would wait");

    // What it waits for is not forgotten by a crash.
    server.kill();
    let server = Server::start(&data, &["--speed", "60"]);
    let after = &server.json(&["explain", "job/report"])["job"]["after"];
    assert_eq!(after[0], json!({"job": "lab/nlp/train", "when": "ok"}), "{after}");
    assert_eq!(server.run(&["wait", "report", "--timeout", "60s"]).status.code(), Some(0));
    let life = server.json(&["explain", "job/train"]);
    assert_eq!(life["job"]["outcome"], json!("succeeded"), "{life}");

    // A job that is over is known to have succeeded; one that was cancelled is not waited for.
    said(&server, &job("late", &["--after", "prepare", "--duration", "1h"]));
    said(&server, &job("never", &["--after", "late", "--duration", "1h"]));
    server.json(&["cancel", "late"]);
    let ended = server.run(&["wait", "never", "--timeout", "60s"]);
    assert_eq!(ended.status.code(), Some(1));
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(text.contains("cancelled: lab/nlp/late, which it waited for, did not succeed"), "{text}");
    let text = refused(&server, &job("again", &["--after", "late"]), 3);
    assert!(text.contains("dependency_failed") && text.contains("--after lab/nlp/late:any"), "{text}");
    said(&server, &job("again", &["--after", "late:any", "--duration", "1m"]));
    refused(&server, &job("x", &["--after", "nobody"]), 4);
    refused(&server, &job("x", &["--after", "late:later"]), 64);
}

#[test]
fn an_array_runs_so_many_at_a_time_and_is_cancelled_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Server::start(&data, &["--speed", "60"]);
    let text = said(&server, &job("sweep", &["--array", "0-4%2", "--duration", "20m"]));
    assert!(text.contains("5 jobs in the array sweep, at most 2 at a time"), "{text}");
    let running = |states: &[Value]| states.iter().filter(|state| *state != "waiting").count();
    eventually("two run", || (running(&states(&server, "array=sweep")) == 2).then_some(()));
    server.kill();
    let server = Server::start(&data, &["--speed", "60"]);
    assert_eq!(running(&states(&server, "array=sweep")), 2, "also after a crash");
    let fourth = server.json(&["explain", "job/sweep-3"]);
    assert_eq!(fourth["job"]["verdict"]["reason"], json!("WaitingForArrayTurn"), "{fourth}");
    assert_eq!(fourth["job"]["array"], json!({"name": "sweep", "index": 3, "at_most": 2}), "{fourth}");
    server.json(&["cancel", "sweep-1"]);
    eventually("the next has its turn", || {
        let third = server.json(&["explain", "job/sweep-2"]);
        (third["job"]["state"] != "waiting").then_some(())
    });
    said(&server, &job("after-all", &["--after", "sweep:any", "--duration", "1m"]));
    said(&server, &["cancel", "lab/nlp/sweep"]);
    eventually("all are gone", || states(&server, "array=sweep").is_empty().then_some(()));
    assert_eq!(server.run(&["wait", "after-all", "--timeout", "60s"]).status.code(), Some(0));
    let cancelled = server.json(&["get", "jobs", "--state", "cancelled", "-l", "array=sweep"]);
    assert_eq!(cancelled["jobs"].as_array().unwrap().len(), 5, "{cancelled}");
    for wrong in ["5-1", "0-3%0", "0-5000", "x"] {
        refused(&server, &job("bad", &["--array", wrong]), 64);
    }
}

#[test]
fn waiting_says_by_its_exit_code_what_became_of_a_job() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &["--speed", "60"]);
    let file = dir.path().join("fails.yaml");
    let fails = "name: fails\ntenant: lab/nlp\nretries: 0\nsimulate: {duration: 1h, fail_after: 1m}\n";
    std::fs::write(&file, fails).unwrap();
    said(&server, &["submit", file.to_str().unwrap()]);
    said(&server, &job("long", &["--duration", "90h"]));
    let code = |args: &[&str]| server.run(&[&["wait"], args].concat()).status.code();
    assert_eq!(code(&["--for=running", "--timeout", "30s", "job/long", "fails"]), Some(0));
    assert_eq!(code(&["--timeout", "30s", "fails"]), Some(1));
    assert_eq!(code(&["--for=done=1", "fails"]), Some(0));
    assert_eq!(code(&["--for=done=7", "fails"]), Some(1));
    assert_eq!(code(&["--for=done", "--timeout", "300ms", "long"]), Some(124));
    assert_eq!(code(&["nobody"]), Some(4));
    assert_eq!(code(&["--for=later", "long"]), Some(64));
    assert_eq!(code(&["--timeout", "soon", "long"]), Some(64));

    // Who submitted a job is kept as the client says.
    let mine = |user: &str| {
        let mut command = wharf();
        command.env("WHARF_SERVER", &server.address).env("WHARF_USER", user);
        let output = command.args(["get", "jobs", "--mine", "-o", "name"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let mut command = wharf();
    command.env("WHARF_SERVER", &server.address).env("WHARF_USER", "ada");
    let submitted =
        command.args(job("hers", &["--label", "team=red", "--duration", "90h"])).output().unwrap();
    assert!(submitted.status.success());
    assert_eq!((mine("ada").as_str(), mine("bob").as_str()), ("job/lab/nlp/hers\n", ""));
    let labelled = said(&server, &["get", "jobs", "-l", "team=red", "-o", "name"]);
    assert_eq!(labelled, "job/lab/nlp/hers\n");
}
