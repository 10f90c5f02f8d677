//! A fleet that does not answer for a while: the control plane goes on answering, and says so.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::abuse::send;
use crate::server::{Server, eventually};

/// Somebody else's lock on the fleet's file, for as long as this lives.
fn lock(data: &Path) -> Connection {
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
