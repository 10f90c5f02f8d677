//! Files that are not what they were: `wharf check` and `wharf up` say so alike, change nothing, and nothing that was
//! acknowledged goes missing without a word.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use wharf_api::client::{Client, ClientError, JobFilter};
use wharf_api::v1::{Code, Resume};

use crate::server::{Server, eventually, wharf};

type Files = BTreeMap<String, Vec<u8>>;

/// Every file of a data directory but the lock, which is there to be written.
fn files(data: &Path) -> Files {
    let files = std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.is_file() && path.file_name().is_some_and(|name| name != "lock"))
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(path).unwrap()))
        .collect()
}

fn put(data: &Path, files: &Files) {
    for name in self::files(data).keys() {
        std::fs::remove_file(data.join(name)).unwrap();
    }
    for (name, bytes) in files {
        std::fs::write(data.join(name), bytes).unwrap();
    }
}

fn check(data: &Path, further: &[&str]) -> serde_json::Value {
    let output = wharf().args(["check", "--data"]).arg(data).args(further).output().unwrap();
    let checked: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.success(), checked["ok"] == true, "{checked}");
    checked
}

/// Jobs by name with their states.
fn jobs(server: &Server) -> BTreeMap<String, String> {
    let listed = server.json(&["get", "jobs"]);
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let jobs = listed["jobs"].as_array().unwrap().iter();
    jobs.map(|job| (text(&job["name"]), text(&job["state"]))).collect()
}

fn submit(server: &Server, name: &str, gpus: &str) {
    server.json(&["submit", "--tenant", "lab/nlp", "--gpus", gpus, "--name", name, "--duration", "90h"]);
}

fn all_run(server: &Server, count: usize) {
    eventually("all of them run", || {
        let running = jobs(server).values().filter(|state| *state == "running").count();
        (running == count).then_some(())
    });
}

/// A control plane with four jobs that run was killed.
fn killed(data: &Path) -> Files {
    let server = Server::start(data, &[]);
    for name in ["a", "b", "c", "d"] {
        submit(&server, name, "1");
    }
    all_run(&server, 4);
    server.kill();
    files(data)
}

fn refused_alike(data: &Path, damaged: &Files, what: &str) {
    put(data, damaged);
    let checked = check(data, &[]);
    assert_eq!(checked["ok"], false, "{what}: {checked}");
    assert!(files(data) == *damaged, "{what}: check changed a file");
    let refused = Server::try_start(data, &[]).err().expect(what);
    assert!(files(data) == *damaged, "{what}: a refused start changed a file: {refused}");
    assert!(refused.contains("othing was changed"), "{what}: {refused}");
}

#[test]
fn a_damaged_log_is_refused_by_check_and_up_alike() {
    let dir = tempfile::tempdir().unwrap();
    let whole = killed(dir.path());
    let log = "journal.sqlite-wal";
    assert_eq!(check(dir.path(), &[])["ok"], true);
    for tenth in [3, 6, 9] {
        let at = whole[log].len() * tenth / 10;
        let mut flipped = whole.clone();
        flipped.get_mut(log).unwrap()[at] ^= 1;
        refused_alike(dir.path(), &flipped, &format!("byte {at} of the log flipped"));
        let mut cut = whole.clone();
        cut.get_mut(log).unwrap().truncate(at);
        refused_alike(dir.path(), &cut, &format!("the log cut at {at}"));
    }
    for gone in [log, "journal.sqlite", "acknowledged"] {
        let mut without = whole.clone();
        without.remove(gone);
        refused_alike(dir.path(), &without, &format!("{gone} removed"));
    }
    put(dir.path(), &whole);
    let server = Server::start(dir.path(), &[]);
    assert_eq!(jobs(&server).len(), 4);
}

/// Two thousand bytes of garbage in a page that no start reads were "in order".
#[test]
fn check_reads_every_page() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    for name in ["a", "b", "c"] {
        submit(&server, name, "1");
    }
    server.signal("-TERM");
    let whole = files(dir.path());
    assert_eq!(check(dir.path(), &[])["ok"], true);
    for file in ["journal.sqlite", "fleet.sqlite"] {
        // Of pages that are free nobody reads anything.
        let unused = u32::from_be_bytes(whole[file][36..40].try_into().unwrap());
        let (mut found, pages) = (0, u32::try_from(whole[file].len() / 4096).unwrap());
        for page in 0..whole[file].len() / 4096 {
            let mut damaged = whole.clone();
            damaged.get_mut(file).unwrap()[page * 4096..page * 4096 + 2000].fill(0x5a);
            put(dir.path(), &damaged);
            found += u32::from(check(dir.path(), &[])["ok"] == false);
            assert!(files(dir.path()) == damaged, "page {page}: check changed a file");
        }
        assert!(found + unused >= pages, "{file}: {found} of {pages} pages, {unused} of them unused");
    }
    let mut garbage = whole.clone();
    garbage.get_mut("fleet.sqlite").unwrap()[..2000].fill(0xa5);
    refused_alike(dir.path(), &garbage, "garbage in the fleet's file");
}

#[test]
fn an_older_copy_is_restored_on_request_and_stops_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--speed", "60"]);
    submit(&server, "old", "8");
    server.json(&["submit", "--tenant", "lab/nlp", "--gpus", "1", "--name", "ends", "--duration", "5m"]);
    all_run(&server, 2);
    for name in ["fill-1", "fill-2", "fill-3"] {
        submit(&server, name, "8");
    }
    server.signal("-TERM");
    let copy = std::fs::read(dir.path().join("journal.sqlite")).unwrap();
    let server = Server::start(dir.path(), &["--speed", "60"]);
    let waiting = jobs(&server).into_iter().find(|(_, state)| state == "waiting").unwrap().0;
    eventually("its end", || (!jobs(&server).contains_key("ends")).then_some(()));
    server.json(&["cancel", &format!("job/{waiting}")]);
    submit(&server, "new", "2");
    eventually("the new one", || (jobs(&server).get("new")? == "running").then_some(()));
    let before = jobs(&server);
    let seen = Client::new(&server.address).unwrap().changes(None, 0).unwrap().resume();
    server.signal("-TERM");
    let mut put_back = files(dir.path());
    put_back.insert("journal.sqlite".to_owned(), copy);
    refused_alike(dir.path(), &put_back, "an older copy");
    assert_eq!(check(dir.path(), &["--restore"])["ok"], true, "as a copy it is in order");
    let server = Server::start(dir.path(), &["--speed", "60", "--restore"]);
    let mut after = jobs(&server);
    assert_eq!(after.remove(&waiting).as_deref(), Some("waiting"), "nobody can know that it was cancelled");
    assert_eq!(after, before, "what runs goes on, and what ended has ended");
    let held = server.json(&["get", "jobs"]);
    let held = held["jobs"].as_array().unwrap().iter().find(|job| job["name"] == waiting.as_str()).unwrap();
    assert_eq!(held["verdict"]["reason"], "HeldAfterRestore", "{held}");
    server.json(&["cancel", "job/old"]);
    eventually("its end", || (!jobs(&server).contains_key("old")).then_some(()));
    assert_eq!(jobs(&server)[&waiting], "waiting", "there is room, and it is held");
    server.json(&["release", &format!("job/{waiting}")]);
    eventually("its start", || (jobs(&server)[&waiting] == "running").then_some(()));
    an_index_of_before_is_gone(&server, seen);
    server.kill();
    // From here on it is the journal.
    let server = Server::start(dir.path(), &["--speed", "60"]);
    assert_eq!(jobs(&server)[&waiting], "running");
}

/// The journal has given its index out again by now, and to follow it from there would leave out what was restored.
fn an_index_of_before_is_gone(server: &Server, seen: Resume) {
    let client = Client::new(&server.address).unwrap();
    let now = client.jobs(&JobFilter::default()).unwrap().resume();
    assert!(now.term > seen.term);
    let refused = client.changes(Some(seen), 0).unwrap_err();
    assert!(matches!(&refused, ClientError::Problem(problem) if problem.code == Code::Gone), "{refused}");
    let bare = crate::abuse::get(server, &format!("/v1/events?since={}", now.index));
    assert!(bare.starts_with("HTTP/1.1 410"), "it does not say of which term it is: {bare}");
    client.changes(Some(now), 0).unwrap();
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    Server::start(dir.path(), &[]).signal("-TERM");
    let mut check = wharf();
    check.args(["check", "-o", "text", "--data"]).arg(dir.path());
    let mut child = check.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success());
}
