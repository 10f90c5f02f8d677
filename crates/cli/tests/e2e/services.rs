//! Services, time limits and the past, as people use them: scale, replace and extend over HTTP, what is refused, and what a restart keeps.

use std::path::Path;

use serde_json::{Value, json};

use crate::server::{Server, eventually};

/// Submits a job file.
fn submit(server: &Server, dir: &Path, job: &str) {
    let file = dir.join("job.yaml");
    std::fs::write(&file, job).unwrap();
    server.json(&["submit", file.to_str().unwrap()]);
}

/// A service of two to six replicas of four GPUs, two of them wanted, which all run.
fn serving(server: &Server, dir: &Path) {
    let job = "name: chat\ntenant: lab/serving\nclass: inference\ngpus: 4\nservice: {min: 2, max: 6}\n";
    submit(server, dir, job);
    runs(server, "chat", 2);
}

fn job(server: &Server, name: &str) -> Value {
    server.json(&["explain", &format!("job/{name}")])["job"].clone()
}

fn runs(server: &Server, name: &str, tasks: u64) -> Value {
    eventually(&format!("{tasks} of {name} run"), || {
        let job = job(server, name);
        let placed = job["placements"].as_array()?.len();
        (job["running_tasks"] == json!(tasks) && placed == usize::try_from(tasks).ok()?).then_some(job)
    })
}

fn task_numbers(job: &Value) -> Vec<u64> {
    let places = job["placements"].as_array().unwrap().iter();
    places.map(|place| place["task"].as_u64().unwrap()).collect()
}

/// What a refused command says on stderr; its exit code is checked.
fn refused(server: &Server, args: &[&str], code: i32) -> String {
    let output = server.run(args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    assert!(said.contains("next:"), "it says what to do: {said}");
    said
}

#[test]
fn a_service_grows_into_batch_work_shrinks_and_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Server::start(&data, &["--speed", "60"]);
    serving(&server, dir.path());
    // Batch work borrows the rest of the fleet: three nodes of eight.
    for number in 1..=3 {
        let rest = "checkpoint: {every: 10m, grace: 30s}\nsimulate: {duration: 90h}\n";
        submit(&server, dir.path(), &format!("name: train-{number}\ntenant: lab/nlp\ngpus: 8\n{rest}"));
        runs(&server, &format!("train-{number}"), 1);
    }
    let scaled = server.json(&["scale", "job/chat", "3"]);
    assert_eq!(scaled["job"]["tasks"], json!(3), "{scaled}");
    runs(&server, "chat", 3);
    let evictions = server.json(&["get", "evictions"]);
    let receipts = evictions["evictions"].as_array().unwrap();
    assert_eq!(receipts.len(), 1, "one batch job leaves for one replica: {evictions}");

    server.kill();
    let server = Server::start(&data, &["--speed", "60"]);
    assert_eq!(job(&server, "chat")["tasks"], json!(3), "what was wanted is kept");
    server.json(&["scale", "chat", "2"]);
    assert_eq!(task_numbers(&runs(&server, "chat", 2)), [0, 1], "the newest goes");

    for (replicas, why) in [("1", "below its minimum"), ("7", "above its maximum")] {
        let said = refused(&server, &["scale", "chat", replicas], 64);
        assert!(said.contains('2') && said.contains('6'), "{why}: {said}");
    }
    refused(&server, &["scale", "train-1", "2"], 5);
    refused(&server, &["scale", "nobody", "2"], 4);
}

#[test]
fn replicas_are_replaced_one_after_the_other_and_never_fewer_run() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &["--speed", "60"]);
    serving(&server, dir.path());
    let before = task_numbers(&job(&server, "chat"));
    let replaced = server.json(&["replace", "chat"]);
    assert_eq!(replaced["job"]["replacing"]["old"], json!(2), "{replaced}");
    let fresh = eventually("all replicas are fresh", || {
        let job = job(&server, "chat");
        assert!(job["running_tasks"].as_u64() >= Some(2), "fewer than two serve: {job}");
        let done = job["replacing"].is_null() && job["running_tasks"] == json!(2);
        (done && job["placements"].as_array()?.len() == 2).then_some(job)
    });
    assert!(task_numbers(&fresh).iter().all(|task| !before.contains(task)), "{before:?}: {fresh}");

    let said = refused(&server, &["replace", "chat", "--surge", "0"], 5);
    assert!(said.contains('2'), "as many are wanted as have to run: {said}");
    let nothing = server.run(&["replace", "chat", "--stop"]);
    assert_eq!(nothing.status.code(), Some(5), "nothing is replaced any more");
}

#[test]
fn a_limit_is_kept_unless_it_is_extended_within_the_policy() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Server::start(&data, &["--speed", "60"]);
    std::fs::write(data.join("policy/queue.yaml"), "limit_max: {batch: 3h}\n").unwrap();
    let limited = "tenant: lab/nlp\ngpus: 1\ntime: {limit: 10m}\nsimulate: {duration: 2h}\n";
    submit(&server, dir.path(), &format!("name: short\n{limited}"));
    submit(&server, dir.path(), &format!("name: long\n{limited}"));
    let extended = server.json(&["extend", "long", "--limit", "2h30m"]);
    assert_eq!(extended["job"]["time_limit_ms"], json!(9_000_000), "{extended}");

    let too_long = dir.path().join("too-long.yaml");
    std::fs::write(&too_long, "name: day\ntenant: lab/nlp\ngpus: 1\ntime: {limit: 24h}\n").unwrap();
    eventually("the policy is in force", || {
        let output = server.run(&["plan", too_long.to_str()?]);
        (output.status.code() == Some(3)).then_some(())
    });
    let said = refused(&server, &["extend", "long", "--by", "1h"], 3);
    assert!(said.contains("3h") && said.contains("limit_max"), "{said}");
    let shorter = refused(&server, &["extend", "long", "--limit", "5m"], 5);
    assert!(shorter.contains("2h30m"), "{shorter}");

    let ended = |name: &str| {
        eventually(&format!("{name} is over"), || {
            let rows = server.json(&["get", "history", "--kind", "job", "--name", name]);
            let rows = rows["rows"].as_array()?.clone();
            rows.into_iter().find(|row| row["body"]["outcome"].is_string())
        })
    };
    assert_eq!(ended("short")["body"]["outcome"], "time_limit", "it wanted two hours and had ten minutes");
    assert_eq!(job(&server, "long")["time_limit_ms"], json!(9_000_000));
}

#[test]
fn what_a_tenant_borrowed_is_told_where_the_past_counts() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Server::start(&data, &["--speed", "3600"]);
    let past = |server: &Server, path: &str| {
        let tenants = server.json(&["get", "tenants"]);
        let tenants = tenants["tenants"].as_array().unwrap().clone();
        tenants.into_iter().find(|tenant| tenant["path"] == path).unwrap()["lines"][0]["past"].clone()
    };
    assert_eq!(past(&server, "lab/nlp"), json!(0.0), "it counts unless the policy says otherwise");
    submit(&server, dir.path(), "name: all\ntenant: lab/nlp\ngpus: 8\ntasks: 4\nsimulate: {duration: 90h}\n");
    let told = eventually("it has borrowed for a day", || {
        let borrowed = past(&server, "lab/nlp");
        (borrowed.as_f64()? > 1.0).then_some(borrowed)
    });
    let table = String::from_utf8_lossy(&server.run(&["get", "tenants"]).stdout).into_owned();
    assert!(table.contains("PAST"), "{told}: {table}");
    let explained = server.json(&["explain", "tenant/lab/nlp"]);
    assert!(explained["tenants"][0]["lines"][0]["past"].as_f64() > Some(1.0), "{explained}");
    std::fs::write(data.join("policy/history.yaml"), "half_life: never\n").unwrap();
    eventually("the past is forgotten", || past(&server, "lab/nlp").is_null().then_some(()));
}
