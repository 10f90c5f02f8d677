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

fn of<'a>(tenant: &'a str, name: &'a str, rest: &[&'a str]) -> Vec<&'a str> {
    [&["submit", "--tenant", tenant, "--gpus", "0", "--name", name], rest].concat()
}

#[test]
fn members_that_are_over_count_for_who_waits_for_their_array() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &["--speed", "60"]);
    said(&server, &job("mix", &["--array", "0-3%2", "--duration", "90h"]));
    said(&server, &["cancel", "mix-0"]);
    eventually("it is over", || {
        (server.json(&["explain", "job/mix-0"])["job"]["outcome"] == "cancelled").then_some(())
    });
    let text = refused(&server, &job("then", &["--after", "mix"]), 3);
    assert!(text.contains("dependency_failed") && text.contains("lab/nlp/mix-0 is over"), "{text}");
    said(&server, &job("anyway", &["--after", "mix:any", "--duration", "1m"]));

    // An array is explained and waited for by its name, while it lives and once it is over.
    let text = said(&server, &["explain", "job/mix"]);
    assert!(text.starts_with("array lab/nlp/mix  4 jobs, at most 2 at a time\n"), "{text}");
    assert!(text.contains("mix-0  cancelled") && text.contains("mix-3  waiting"), "{text}");
    assert_eq!(server.run(&["wait", "mix", "--timeout", "300ms"]).status.code(), Some(124), "others run");
    said(&server, &job("sweep", &["--array", "0-2", "--duration", "1m"]));
    let text = said(&server, &["wait", "sweep", "--timeout", "60s"]);
    assert_eq!(text, "array lab/nlp/sweep: 3 of 3 as asked\n");
    let array = server.json(&["explain", "job/lab/nlp/sweep"]);
    assert_eq!(array["members"][2]["outcome"], json!("succeeded"), "{array}");
    said(&server, &job("then", &["--after", "sweep", "--duration", "1m"]));
    assert_eq!(server.run(&["wait", "then", "--timeout", "60s"]).status.code(), Some(0));

    let text = said(&server, &["cancel", "mix"]);
    assert!(text.starts_with("array lab/nlp/mix is cancelled: 3 jobs\n"), "{text}");
    assert_eq!(server.run(&["wait", "mix", "--timeout", "60s"]).status.code(), Some(1));
    refused(&server, &job("never", &["--after", "mix"]), 3);
    // The newest array of a name is meant.
    said(&server, &job("mix", &["--array", "7-8", "--duration", "1m"]));
    said(&server, &["wait", "mix", "--timeout", "60s"]);
    said(&server, &job("at-last", &["--after", "mix", "--duration", "1m"]));
}

#[test]
fn a_name_means_one_array_or_job() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Server::start(&data, &["--speed", "60"]);
    let long = ["--duration", "90h"];
    let array = [&["--array", "0-3"], &long[..]].concat();
    said(&server, &of("lab/nlp", "dup", &array));
    let text = refused(&server, &of("lab/nlp", "dup", &["--array", "7-9"]), 5);
    assert!(text.contains("name_in_use") && text.contains("a live array named \"dup\""), "{text}");
    refused(&server, &of("lab/nlp", "dup", &long), 5);
    said(&server, &of("lab/nlp", "alone", &long));
    refused(&server, &of("lab/nlp", "alone", &array), 5);
    said(&server, &of("lab/vision", "dup", &array));
    for command in [["cancel", "dup"], ["wait", "dup"], ["explain", "job/dup"]] {
        let text = refused(&server, &command, 5);
        assert!(text.contains("ambiguous_job") && text.contains("lab/vision/dup"), "{text}");
    }
    let text = refused(&server, &of("lab/eval", "then", &["--after", "dup"]), 5);
    assert!(text.contains("ambiguous_job"), "{text}");
    said(&server, &of("lab/vision", "then", &["--after", "dup"]));

    // All members are cancelled in one commit, and counted.
    said(&server, &of("lab/nlp", "many", &["--array", "0-999", "--duration", "90h"]));
    let reply = server.json(&["cancel", "many"]);
    server.kill();
    assert_eq!(reply["members"], json!(1000), "{reply}");
    let server = Server::start(&data, &["--speed", "60"]);
    eventually("all are gone", || states(&server, "array=many").is_empty().then_some(()));
    said(&server, &of("lab/nlp", "many", &["--array", "0-999%1", "--duration", "90h"]));
    let text = refused(&server, &of("lab/nlp", "x", &["--array", "0-999", "--after", "many"]), 64);
    assert!(
        text.contains("1000000 dependencies in all") && text.contains("at most 16384 together"),
        "{text}"
    );
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
