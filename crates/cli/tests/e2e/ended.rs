//! Jobs that are over, as people ask about them: the list, the reason, the life as a timeline; also after a restart.

use std::path::Path;

use serde_json::{Value, json};

use crate::server::{Server, eventually};

fn submit(server: &Server, dir: &Path, job: &str) {
    let file = dir.join("job.yaml");
    std::fs::write(&file, job).unwrap();
    server.json(&["submit", file.to_str().unwrap()]);
}

fn ended(server: &Server, state: &str, name: &str) -> Value {
    eventually(&format!("{name} is {state}"), || {
        let list = server.json(&["get", "jobs", "--state", state, "--name", name]);
        list["jobs"].as_array()?.first().cloned()
    })
}

#[test]
fn a_finished_job_says_how_it_ended_and_tells_its_life() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Server::start(&data, &["--speed", "60"]);
    let hungry = "name: hungry\ntenant: lab/nlp\ngpus: 1\nretries: 0\nlabels: {team: red}\n";
    submit(&server, dir.path(), &format!("{hungry}simulate: {{duration: 1h, memory: 200GiB}}\n"));
    submit(&server, dir.path(), "name: short\ntenant: lab/nlp\ngpus: 2\nsimulate: {duration: 1m}\n");
    submit(&server, dir.path(), "name: unwanted\ntenant: lab/nlp\ngpus: 1\nsimulate: {duration: 90h}\n");
    server.json(&["cancel", "job/unwanted"]);

    let job = ended(&server, "failed", "hungry");
    assert_eq!((&job["outcome"], &job["reason"]), (&json!("failed"), &json!("OutOfMemory")), "{job}");
    assert_eq!((&job["failures"], &job["ooms"]), (&json!(1), &json!(1)), "{job}");
    assert!(job["memory_peak_mib"].as_u64().unwrap() > 70_000, "{job}");
    assert_eq!(ended(&server, "done", "short")["reason"], Value::Null);
    assert_eq!(ended(&server, "cancelled", "unwanted")["reason"], json!("Cancelled"));

    // What is over stays over for whoever asks later.
    server.kill();
    let server = Server::start(&data, &["--speed", "60"]);
    let text = server.run(&["explain", "job/hungry"]);
    assert_eq!(text.status.code(), Some(0));
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    for part in [
        "FAILED  OutOfMemory",
        "was killed: it used more memory than it may",
        "submitted",
        "starts with 1 GPU on n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let life = server.json(&["explain", "short"]);
    assert!(life["held_gpu_s"].as_f64().unwrap() >= 119.0, "two GPUs for a minute: {life}");
    let all = server.json(&["get", "jobs", "--state", "all"]);
    assert_eq!(all["ended"].as_array().unwrap().len(), 3, "{all}");
    let table = server.run(&["get", "jobs", "--state", "failed"]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains("hungry") && table.contains("OutOfMemory") && !table.contains("short"), "{table}");
    assert_eq!(server.run(&["explain", "job/nobody"]).status.code(), Some(4));
    assert_eq!(server.run(&["get", "jobs", "--state", "dead"]).status.code(), Some(64));
}
