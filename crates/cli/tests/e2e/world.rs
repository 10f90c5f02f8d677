//! A fleet that does not answer for a while: the control plane goes on answering, and says so.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::abuse::send;
use crate::server::{Server, eventually};

/// Somebody else's lock on the fleet's file, for as long as this lives.
pub(crate) fn lock(data: &Path) -> Connection {
    let file = Connection::open(data.join("fleet.sqlite")).unwrap();
    eventually("the lock on the fleet", || file.execute_batch("BEGIN EXCLUSIVE").ok());
    file
}

/// Status and body of an answer.
fn get(server: &Server, path: &str) -> (u16, String) {
    let host = server.address.strip_prefix("http://").unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    let answer = send(server, request.as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn metric(server: &Server, name: &str) -> f64 {
    let text = get(server, "/metrics").1;
    let line = text.lines().find(|line| line.starts_with(name)).expect(name);
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Any fault of the world ended the process, and who had submitted in that turn never heard that it was kept.
#[test]
fn a_fleet_that_is_locked_for_seconds_costs_nobody_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let locked = lock(dir.path());
    let begin = Instant::now();
    for number in 0..8 {
        let name = format!("j{number}");
        server.json(&["submit", "--tenant", "lab/nlp", "--gpus", "1", "--name", &name, "--duration", "1s"]);
    }
    assert!(begin.elapsed() < Duration::from_secs(5), "eight answers took {:?}", begin.elapsed());
    let (status, said) = eventually("an outage that is told", || {
        Some(get(&server, "/readyz")).filter(|(_, said)| said.contains("has not answered"))
    });
    assert!(status == 200 && said.starts_with("ready\n"), "{status} {said}");
    assert!(said.contains("locked"), "it says why: {said}");
    assert!(metric(&server, "wharf_world_faults_total{operation=\"act\"}") > 0.0);
    let jobs = server.json(&["get", "jobs"]);
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 8, "none was started that could end");
    eventually("a pause that grows", || {
        (metric(&server, "wharf_world_unreachable_seconds") >= 2.0).then_some(())
    });
    let tries: f64 = ["list", "changes", "act"]
        .map(|operation| metric(&server, &format!("wharf_world_faults_total{{operation=\"{operation}\"}}")))
        .iter()
        .sum();
    assert!(tries < 12.0, "{tries} tries in seconds are a busy loop");
    drop(locked);
    eventually("the end of every job", || {
        server.json(&["get", "jobs"])["jobs"].as_array()?.is_empty().then_some(())
    });
    assert_eq!(get(&server, "/readyz"), (200, "ready\n".to_owned()));
    assert!(metric(&server, "wharf_world_unreachable_seconds") < 1.0);
}

fn submit(server: &Server, name: &str, gpus: &str) {
    server.json(&["submit", "--tenant", "lab/nlp", "--gpus", gpus, "--name", name, "--duration", "10h"]);
    eventually("it runs", || {
        let jobs = server.json(&["get", "jobs"]);
        jobs["jobs"]
            .as_array()?
            .iter()
            .any(|job| job["name"] == name && job["state"] == "running")
            .then_some(())
    });
}

fn node_of(server: &Server, name: &str) -> Option<String> {
    let jobs = server.json(&["get", "jobs"]);
    let job = jobs["jobs"].as_array()?.iter().find(|job| job["name"] == name)?.clone();
    Some(job["placements"][0]["node"].as_str()?.to_owned())
}

#[test]
fn a_gpu_that_fails_is_left_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    submit(&server, "a", "8");
    let node = node_of(&server, "a").unwrap();
    let target = format!("gpu/{node}:3");
    let told = server.json(&["sim-fault", &target, "--xid", "79"]);
    assert_eq!(told["jobs"], serde_json::json!(["lab/nlp/a"]), "{told}");
    let elsewhere = eventually("it runs elsewhere", || node_of(&server, "a").filter(|other| *other != node));
    let gpu = server.json(&["explain", &target])["gpus"][0].clone();
    assert_eq!((gpu["health"].as_str(), gpu["failure"]["xid"].as_u64()), (Some("failed"), Some(79)), "{gpu}");
    let text = String::from_utf8(server.run(&["explain", &target]).stdout).unwrap();
    assert!(text.contains("has fallen off the bus") && text.contains("restarted"), "{text}");
    // An error of its own fails the job and costs no GPU.
    let told = server.json(&["sim-fault", &format!("gpu/{elsewhere}:0"), "--xid", "13"]);
    assert_eq!(told["jobs"], serde_json::json!(["lab/nlp/a"]), "{told}");
    let gpus = server.json(&["get", "gpus"]);
    let failed = gpus["gpus"].as_array().unwrap().iter().filter(|gpu| gpu["health"] == "failed").count();
    assert_eq!(failed, 1);
    server.json(&["sim-fault", &target, "--heal"]);
    let gpu = server.json(&["explain", &target])["gpus"][0].clone();
    assert_eq!((gpu["health"].as_str(), gpu.get("failure")), (Some("healthy"), None), "{gpu}");
    for (wrong, code) in [
        (&["sim-fault", "gpu/n9:0", "--xid", "79"][..], "no_such_node"),
        (&["sim-fault", "gpu/n1:8", "--xid", "79"], "no_such_gpu"),
        (&["sim-fault", "gpu/n1:0", "--xid", "1"], "bad_request"),
        (&["sim-fault", "gpu/n1:0", "--down"], "bad_request"),
        (&["sim-fault", "gpu/n1:0"], "is missing"),
        (&["sim-fault", "n1", "--down"], "bad_request"),
    ] {
        let output = server.run(wrong);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(code), "{wrong:?}: {said}");
    }
}

#[test]
fn a_node_that_refuses_starts_is_avoided_and_explained() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let nodes = server.json(&["get", "nodes"]);
    let names: Vec<&str> =
        nodes["nodes"].as_array().unwrap().iter().map(|node| node["name"].as_str().unwrap()).collect();
    let (open, refusing) = names.split_last().unwrap();
    for node in refusing {
        server.json(&["sim-fault", &format!("node/{node}"), "--refuse-starts"]);
    }
    server.json(&["sim-fault", &format!("node/{open}"), "--refuse-starts", "--for", "10h"]);
    server.json(&["submit", "--tenant", "lab/nlp", "--gpus", "8", "--name", "a", "--duration", "10h"]);
    let text = eventually("it is refused", || {
        let verdict = server.json(&["explain", "job/a"])["job"]["verdict"].clone();
        (verdict["reason"] == "StartRefused").then(|| verdict["text"].as_str().unwrap().to_owned())
    });
    assert!(text.contains("refused to start it: admission was denied"), "{text}");
    assert!(text.contains("; tried ") && text.contains("next try in "), "{text}");
    for node in &names {
        server.json(&["sim-fault", &format!("node/{node}"), "--heal"]);
    }
    eventually("it runs", || node_of(&server, "a"));
    let output = server.run(&["sim-fault", "gpu/n1:0", "--refuse-starts"]);
    assert!(!output.status.success(), "a GPU refuses nothing");
}

#[test]
fn nodes_join_and_leave_with_the_fleet_file() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let file = dir.path().join("fleet.yaml");
    let path = file.to_str().unwrap();
    let write = |names: &str| {
        let text = format!("nodes: [{{names: {names}, gpus: 8, model: h100, cpu: 128, memory: 2TiB}}]\n");
        std::fs::write(&file, text).unwrap();
    };
    let nodes = |server: &Server| server.json(&["get", "nodes"])["nodes"].as_array().unwrap().len();
    write("\"n{1..2}\"");
    let server = Server::start(&data, &["--fleet", path]);
    assert!(server.greeting.contains("2 nodes × 8 H100 (16 GPUs)"), "{}", server.greeting);
    submit(&server, "a", "8");
    submit(&server, "b", "8");
    write("\"n{1..3}\"");
    eventually("a third node", || (nodes(&server) == 3).then_some(()));
    std::fs::write(&file, "nodes: [{name: n1, gpus: many}]\n").unwrap();
    eventually("an error that is told", || (metric(&server, "wharf_fleet_file_error") > 0.0).then_some(()));
    assert_eq!(nodes(&server), 3, "the fleet stays as it is");
    // The node of the second job leaves.
    let other = node_of(&server, "a").unwrap();
    let entry = |name: &str| format!("  - {{name: {name}, gpus: 8, model: h100, cpu: 128, memory: 2TiB}}\n");
    std::fs::write(&file, format!("nodes:\n{}{}", entry(&other), entry("n3"))).unwrap();
    eventually("it runs on what is left", || node_of(&server, "b").filter(|node| node == "n3"));
    assert_eq!(nodes(&server), 2);
    assert_eq!(node_of(&server, "a").unwrap(), other, "nobody else was disturbed");
    server.kill();
    // What is edited meanwhile counts at the next start; the path need not be the same word.
    std::fs::write(&file, format!("nodes:\n{}{}{}", entry(&other), entry("n3"), entry("n4"))).unwrap();
    let server = Server::start(&data, &[]);
    assert!(server.greeting.contains("3 nodes × 8 H100 (24 GPUs)"), "{}", server.greeting);
    assert_eq!(nodes(&server), 3);
}

#[test]
fn a_fleet_that_was_started_by_name_has_a_file_to_edit() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let file = dir.path().join("fleet-lab.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(server.greeting.contains("fleet-lab.yaml"), "{}", server.greeting);
    let more = format!("{text}\n  - {{name: extra, gpus: 4, model: l4, cpu: 32, memory: 256GiB}}\n");
    std::fs::write(&file, more).unwrap();
    eventually("a fifth node", || {
        (server.json(&["get", "nodes"])["nodes"].as_array()?.len() == 5).then_some(())
    });
}

#[test]
fn a_start_waits_for_a_fleet_that_is_locked_for_a_while() {
    let dir = tempfile::tempdir().unwrap();
    Server::start(dir.path(), &[]).kill();
    let locked = lock(dir.path());
    let letting_go = std::thread::spawn(move || {
        // Longer than the library waits by itself.
        std::thread::sleep(Duration::from_secs(7));
        drop(locked);
    });
    let server = Server::start(dir.path(), &[]);
    letting_go.join().unwrap();
    assert_eq!(get(&server, "/readyz"), (200, "ready\n".to_owned()));
}
