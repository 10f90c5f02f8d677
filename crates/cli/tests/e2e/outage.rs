//! Outages: the control plane dies at any moment, nothing that was acknowledged is lost, and jobs do not notice.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wharf_api::client::{Client, HistoryFilter};
use wharf_api::file::job::JobFlags;
use wharf_api::v1::HistoryKind;

use crate::server::{Server, eventually, wharf};
use crate::world::lock;

const KILLS: u64 = 100;
/// Before one kill in so many the fleet's file is locked.
const LOCKED_EVERY: u64 = 7;
const JOBS: u64 = 60;
const SPEED: &str = "60";

/// Run times by job name, in milliseconds, of everything that ended.
fn run_times(client: &Client) -> BTreeMap<String, u64> {
    let filter =
        HistoryFilter { kind: Some(HistoryKind::Job), limit: Some(1000), ..HistoryFilter::default() };
    let rows = client.history(&filter).map(|list| list.rows).unwrap_or_default();
    let time = |body: &serde_json::Value| body["ran_ms"].as_u64().unwrap();
    rows.iter().map(|row| (row.name.clone(), time(&row.body))).collect()
}

/// Submits a job until it is acknowledged, wherever the server is just then.
fn submit(address: &Mutex<String>, number: u64) {
    let job = JobFlags {
        name: Some(format!("job-{number}")),
        tenant: Some("lab".to_owned()),
        gpus: Some(["1", "2", "8", "0.5"][usize::try_from(number % 4).unwrap()].to_owned()),
        tasks: Some(["1", "2"][usize::try_from(number / 4 % 2).unwrap()].to_owned()),
        duration: Some(format!("{}s", 20 + number * 7 % 180)),
        ..JobFlags::default()
    };
    let job = job.job().unwrap();
    eventually("an acknowledged submission", || {
        let server = address.lock().unwrap().clone();
        let client = Client::new(&server).ok()?;
        client.submit(&job, &format!("key-{number}")).ok()
    });
}

/// One tenant and no moves: nobody has to leave for anybody, so that only an outage could change how long a job runs.
fn peaceful(data: &Path) {
    let policy = data.join("policy");
    std::fs::create_dir_all(&policy).unwrap();
    std::fs::write(policy.join("tenants.yaml"), "tenants: {lab: {}}\n").unwrap();
    std::fs::write(policy.join("preemption.yaml"), "moves_max: 0\n").unwrap();
}

fn run_without_disturbance(data: &Path) -> BTreeMap<String, u64> {
    peaceful(data);
    let server = Server::start(data, &["--speed", SPEED]);
    let address = Mutex::new(server.address.clone());
    (0..JOBS).for_each(|number| submit(&address, number));
    let client = Client::new(&server.address).unwrap();
    eventually("the end of every job", || {
        Some(run_times(&client)).filter(|times| u64::try_from(times.len()).unwrap() == JOBS)
    })
}

/// Somebody submits all the while; the server is killed at moments that no one chose.
fn run_with_kills(data: &Path) -> BTreeMap<String, u64> {
    peaceful(data);
    let mut server = Server::start(data, &["--speed", SPEED]);
    let address = Arc::new(Mutex::new(server.address.clone()));
    let done = Arc::new(AtomicBool::new(false));
    let submitting = std::thread::spawn({
        let (address, done) = (Arc::clone(&address), Arc::clone(&done));
        move || {
            for number in 0..JOBS {
                submit(&address, number);
                std::thread::sleep(Duration::from_millis(100));
            }
            done.store(true, Ordering::Release);
        }
    });
    let mut moment = 12_345u64;
    for kill in 0..KILLS {
        moment = moment.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Now and then the fleet does not answer, and the server dies in the middle of that.
        let locked = kill.is_multiple_of(LOCKED_EVERY).then(|| lock(data));
        std::thread::sleep(Duration::from_millis((moment >> 33) % 120));
        server.kill();
        drop(locked);
        server = Server::start(data, &["--speed", SPEED]);
        address.lock().unwrap().clone_from(&server.address);
    }
    submitting.join().unwrap();
    assert!(done.load(Ordering::Acquire), "every submission was acknowledged");
    let client = Client::new(&server.address).unwrap();
    eventually("the end of every job", || {
        Some(run_times(&client)).filter(|times| u64::try_from(times.len()).unwrap() == JOBS)
    })
}

#[test]
fn a_hundred_kills_change_no_run_time_and_lose_no_job() {
    let dir = tempfile::tempdir().unwrap();
    let undisturbed = run_without_disturbance(&dir.path().join("calm"));
    let disturbed = run_with_kills(&dir.path().join("wild"));
    assert_eq!(undisturbed, disturbed);
    for (name, ran_ms) in &undisturbed {
        let number: u64 = name.strip_prefix("job-").unwrap().parse().unwrap();
        assert_eq!(*ran_ms, (20 + number * 7 % 180) * 1000, "{name} ran its true time");
    }
    let checked = wharf().args(["check", "--data"]).arg(dir.path().join("wild")).output().unwrap();
    let checked: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(checked["ok"], true, "{checked}");
}

#[test]
fn jobs_end_while_nobody_looks_and_are_found_ended() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--speed", "100"]);
    server.json(&["submit", "--tenant", "lab/nlp", "--gpus", "1", "--name", "short", "--duration", "30s"]);
    server.json(&["submit", "--tenant", "lab/nlp", "--gpus", "1", "--name", "long", "--duration", "10h"]);
    eventually("both run", || {
        let jobs = server.json(&["get", "jobs"]);
        let running = jobs["jobs"].as_array()?.iter().filter(|job| job["state"] == "running").count();
        (running == 2).then_some(())
    });
    server.kill();
    std::thread::sleep(Duration::from_millis(600));
    let server = Server::start(dir.path(), &["--speed", "100"]);
    let jobs = server.json(&["get", "jobs"]);
    let names: Vec<_> = jobs["jobs"].as_array().unwrap().iter().map(|job| job["name"].clone()).collect();
    assert_eq!(names, ["long"], "the short one ended during the outage");
    let past = server.json(&["get", "history", "--kind", "job"]);
    assert_eq!(past["rows"][0]["body"]["ran_ms"], 30_000, "at its own moment, not when it was noticed");
    assert_eq!(past["rows"][0]["body"]["outcome"], "succeeded");
}

#[test]
fn a_lost_journal_adopts_what_runs() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    server.json(&["submit", "--tenant", "lab/nlp", "--gpus", "8", "--name", "kept", "--duration", "10h"]);
    eventually("it runs", || (server.json(&["get", "jobs"])["jobs"][0]["state"] == "running").then_some(()));
    let before = server.json(&["get", "jobs"])["jobs"][0]["placements"].clone();
    server.kill();
    for file in ["journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"] {
        let _ = std::fs::remove_file(dir.path().join(file));
    }
    // It was acknowledged, so that it is gone is not passed over; who accepts it says so.
    let refused = Server::try_start(dir.path(), &[]).err().expect("a lost journal is no first start");
    assert!(refused.contains("behind") && refused.contains("--restore"), "{refused}");
    let server = Server::start(dir.path(), &["--restore"]);
    let job = server.json(&["get", "jobs"])["jobs"][0].clone();
    assert_eq!((job["name"].as_str(), job["state"].as_str()), (Some("kept"), Some("running")));
    assert_eq!(job["placements"], before);
    assert_eq!(job["tenant"], "lab/nlp");
    // And it is ours to command again.
    server.json(&["cancel", "job/kept"]);
    eventually("it ends", || server.json(&["get", "jobs"])["jobs"].as_array()?.is_empty().then_some(()));
}
