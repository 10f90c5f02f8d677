//! Use, as the issue of a first day has it: run, submit, look, explain, cancel, stop, wrong input.

use std::time::Duration;

use crate::server::{Server, eventually, wharf};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_newcomer_submits_and_sees_where_it_landed() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    assert!(server.greeting.contains("lab: 4 nodes × 8 H100 (32 GPUs)"), "{}", server.greeting);
    assert!(server.greeting.contains("submit --tenant lab/nlp --gpus 2 --name hello"), "{}", server.greeting);
    let submitted = server.run(&["submit", "--tenant", "lab/nlp", "--gpus", "2", "--name", "x"]);
    assert_eq!(submitted.status.code(), Some(0), "{}", text(&submitted.stderr));
    eventually("it runs", || (server.json(&["get", "jobs"])["jobs"][0]["state"] == "running").then_some(()));
    let explained = server.run(&["explain", "job/x"]);
    assert!(text(&explained.stdout).contains("n1"), "{}", text(&explained.stdout));
    let gpus = server.json(&["get", "gpus"]);
    let held = gpus["gpus"].as_array().unwrap().iter().filter(|gpu| gpu["allocated"] == 1.0).count();
    assert_eq!(held, 2);
    let tenants = server.json(&["get", "tenants"]);
    let nlp =
        tenants["tenants"].as_array().unwrap().iter().find(|tenant| tenant["path"] == "lab/nlp").unwrap();
    assert_eq!(nlp["lines"][0]["used"], 2.0);
    let cancelled = server.run(&["cancel", "job/x"]);
    assert_eq!(cancelled.status.code(), Some(0), "{}", text(&cancelled.stderr));
    eventually("it is gone", || server.json(&["get", "jobs"])["jobs"].as_array()?.is_empty().then_some(()));
}

#[test]
fn a_job_with_groups_is_submitted_explained_and_refused_by_group() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/groups.yaml");
    let planned = server.run(&["plan", example]);
    assert_eq!(planned.status.code(), Some(0), "{}", text(&planned.stderr));
    assert!(text(&planned.stdout).contains("task 0    coordinator  n"), "{}", text(&planned.stdout));
    let submitted = server.run(&["submit", example]);
    assert_eq!(submitted.status.code(), Some(0), "{}", text(&submitted.stderr));
    let told = eventually("all of it runs", || {
        let told = text(&server.run(&["explain", "job/rl-run"]).stdout);
        told.contains("3 of 3 copies stand (at least 2); each 2 tasks (at least 1) of 4 GPUs; 6 tasks run")
            .then_some(told)
    });
    assert!(told.contains("batch, 7 tasks (at least 3) in 2 groups, priority 0"), "{told}");
    assert!(told.contains("groups  coordinator  stands; 1 task without GPU; 1 task run"), "{told}");
    let nlp = server.json(&["get", "tenants"])["tenants"].as_array().unwrap().clone();
    let nlp = nlp.iter().find(|tenant| tenant["path"] == "lab/nlp").unwrap();
    assert_eq!(nlp["lines"][0]["used"], 24.0, "all groups are charged");
    let waits = dir.path().join("waits.yaml");
    let two =
        "{name: waits, tenant: lab/nlp, groups: [{name: head, gpus: 0}, {name: worker, tasks: 2, gpus: 8}]}";
    std::fs::write(&waits, two).unwrap();
    let planned = server.run(&["plan", waits.to_str().unwrap()]);
    assert_eq!(planned.status.code(), Some(1), "{}", text(&planned.stderr));
    assert!(text(&planned.stdout).contains("16 GPUs for its group worker"), "{}", text(&planned.stdout));
    let never = dir.path().join("never.yaml");
    let wide =
        "{name: never, tenant: lab/nlp, groups: [{name: head, gpus: 0}, {name: worker, tasks: 5, gpus: 8}]}";
    std::fs::write(&never, wide).unwrap();
    let refused = server.run(&["submit", never.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stdout));
    assert!(text(&refused.stderr).contains("40 GPUs for its group worker"), "{}", text(&refused.stderr));
    let cancelled = server.run(&["cancel", "job/rl-run"]);
    assert_eq!(cancelled.status.code(), Some(0), "{}", text(&cancelled.stderr));
    eventually("it is gone", || server.json(&["get", "jobs"])["jobs"].as_array()?.is_empty().then_some(()));
}

#[test]
fn exit_codes_are_those_of_the_manual() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let code = |args: &[&str]| server.run(args).status.code().unwrap();
    let job = |gpus: &'static str, tasks: &'static str, name: &'static str| {
        ["--tenant", "lab/nlp", "--gpus", gpus, "--tasks", tasks, "--name", name]
    };
    assert_eq!(code(&[&["plan"][..], &job("8", "1", "a")].concat()), 0, "startable now");
    assert_eq!(code(&[&["submit"][..], &job("8", "4", "all")].concat()), 0);
    assert_eq!(code(&[&["plan"][..], &job("8", "1", "a")].concat()), 1, "would wait");
    assert_eq!(code(&[&["submit"][..], &job("8", "5", "b")].concat()), 2, "can never be placed");
    assert_eq!(code(&[&["submit"][..], &job("8", "4", "all")].concat()), 5, "the name is in use");
    assert_eq!(code(&["submit", "--tenant", "lab", "--gpus", "1", "--name", "c"]), 3, "not a leaf");
    assert_eq!(code(&["submit", "--tenant", "lab/nope", "--gpus", "1", "--name", "c"]), 4, "no such tenant");
    assert_eq!(code(&["explain", "job/nope"]), 4);
    assert_eq!(code(&["submit", "--gpus", "many"]), 64);
    assert_eq!(code(&["frobnicate"]), 64);
    assert_eq!(
        wharf().args(["get", "jobs", "--server", "http://127.0.0.1:9"]).status().unwrap().code(),
        Some(69)
    );
}

#[test]
fn a_second_process_is_refused_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let first = Server::start(dir.path(), &[]);
    let refused = Server::try_start(dir.path(), &[]).err().expect("one process at a time");
    assert!(refused.contains("in use by another process") && refused.contains("--data"), "{refused}");
    assert!(first.run(&["get", "nodes"]).status.success(), "the first goes on");
}

#[test]
fn signals_finish_cleanly_and_a_restart_finds_everything() {
    for signal in ["-INT", "-TERM"] {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(dir.path(), &[]);
        server.json(&[
            "submit",
            "--tenant",
            "lab/nlp",
            "--gpus",
            "4",
            "--name",
            "stays",
            "--duration",
            "10h",
        ]);
        let (code, took) = server.signal(signal);
        assert_eq!(code, 0, "{signal}");
        assert!(took < Duration::from_secs(10), "{signal} took {took:?}");
        let server = Server::start(dir.path(), &[]);
        assert!(server.greeting.contains("1 live jobs"), "{}", server.greeting);
        assert_eq!(server.json(&["get", "jobs"])["jobs"][0]["name"], "stays");
    }
}

#[test]
fn wrong_files_are_named_with_line_and_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("job.yaml");
    std::fs::write(&file, "name: x\ntenant: lab/nlp\ngpu_count: 2\n").unwrap();
    let server = Server::start(&dir.path().join("data"), &[]);
    let output = server.run(&["submit", file.to_str().unwrap()]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(said.contains("job.yaml:3") && said.contains("gpu_count") && said.contains("gpus"), "{said}");
    let refused = Server::try_start(&dir.path().join("other"), &["--fleet", "labb"]).err().unwrap();
    assert!(refused.contains("lab"), "{refused}");
}

#[test]
fn a_policy_is_reloaded_and_a_broken_one_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let tenants = dir.path().join("policy/tenants.yaml");
    let before = std::fs::read_to_string(&tenants).unwrap();
    assert_eq!(server.json(&["get", "policy"])["version"], 1);
    std::fs::write(&tenants, before.replace("vision:", "robotics:")).unwrap();
    eventually("the new policy", || (server.json(&["get", "policy"])["version"] == 2).then_some(()));
    server.json(&["submit", "--tenant", "lab/robotics", "--gpus", "1", "--name", "r"]);
    std::fs::write(&tenants, before.replace("weight: 2", "wieght: 2")).unwrap();
    let error =
        eventually("the error", || server.json(&["get", "policy"])["error"].as_str().map(str::to_owned));
    assert!(
        error.contains("tenants.yaml:") && error.contains("wieght") && error.contains("weight"),
        "{error}"
    );
    assert_eq!(server.json(&["get", "policy"])["version"], 2, "the policy in force stays");
    // Also at a restart: what is in the journal is in force.
    server.kill();
    let server = Server::start(dir.path(), &[]);
    assert_eq!(server.json(&["get", "policy"])["version"], 2);
    assert_eq!(server.json(&["get", "jobs"])["jobs"][0]["tenant"], "lab/robotics");
}

#[test]
fn check_tells_a_whole_directory_from_a_damaged_one() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    server.json(&["submit", "--tenant", "lab/nlp", "--gpus", "4", "--name", "a", "--duration", "10h"]);
    let check = || {
        let output = wharf().args(["check", "--data"]).arg(dir.path()).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code().unwrap(), json)
    };
    let (code, live) = check();
    assert_eq!((code, &live["ok"], &live["jobs"]), (0, &true.into(), &1.into()), "while it runs: {live}");
    server.signal("-TERM");
    let journal = dir.path().join("journal.sqlite");
    let mut bytes = std::fs::read(&journal).unwrap();
    let at = bytes.windows(6).rposition(|window| window == b"Queued").expect("the snapshot names a job");
    bytes[at] = b'X';
    std::fs::write(&journal, &bytes).unwrap();
    let (code, damaged) = check();
    assert_eq!((code, &damaged["ok"]), (1, &false.into()), "{damaged}");
    let refused = Server::try_start(dir.path(), &[]).err().expect("a damaged journal is not used");
    assert!(refused.contains("damaged"), "{refused}");
    assert!(std::fs::read(&journal).unwrap() == bytes, "and not overwritten");
}

#[test]
fn the_demo_gives_something_to_watch() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--demo", "--speed", "60", "--fleet", "mixed"]);
    eventually("a busy fleet", || {
        let summary = server.run(&["top", "--once"]);
        let jobs = server.json(&["get", "jobs"]);
        let classes: std::collections::BTreeSet<_> = jobs["jobs"]
            .as_array()?
            .iter()
            .filter_map(|job| job["class"].as_str().map(str::to_owned))
            .collect();
        (classes.len() == 3 && text(&summary.stdout).contains("really used")).then_some(())
    });
}

#[test]
fn a_first_start_that_failed_leaves_no_trap() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let failed = wharf().args(["up", "--listen", &address, "--data"]).arg(&data).output().unwrap();
    assert!(text(&failed.stderr).contains("cannot listen"), "{}", text(&failed.stderr));
    assert!(Server::try_start(&data, &["--fleet", "labb"]).is_err());
    assert!(Server::try_start(&data, &["--policy", "nowhere"]).is_err());
    let left: Vec<_> = std::fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"], "nothing is written before everything was read");
    // Nor is the fleet pinned: another one may still be chosen.
    let other = dir.path().join("other");
    assert!(Server::try_start(&other, &["--policy", "nowhere"]).is_err());
    Server::start(&other, &["--fleet", "pod"]).kill();
    let server = Server::start(&data, &[]);
    server.json(&["submit", "--tenant", "lab/nlp", "--gpus", "1", "--name", "a"]);
    // Without its policy directory a later start goes on with the policy in the journal, and does not write another.
    server.signal("-TERM");
    std::fs::remove_dir_all(data.join("policy")).unwrap();
    let server = Server::start(&data, &[]);
    assert_eq!(server.json(&["get", "policy"])["version"], 1);
    assert!(!data.join("policy").exists());
    server.signal("-TERM");
    std::fs::remove_file(data.join("fleet.sqlite")).unwrap();
    let refused = Server::try_start(&data, &[]).err().unwrap();
    assert!(refused.contains("no fleet") && refused.contains("--fleet"), "{refused}");
}

#[test]
fn an_emptied_journal_is_no_first_start() {
    let dir = tempfile::tempdir().unwrap();
    Server::start(dir.path(), &[]).signal("-TERM");
    std::fs::write(dir.path().join("journal.sqlite"), "").unwrap();
    let refused = Server::try_start(dir.path(), &[]).err().expect("not a first start");
    assert!(refused.contains("Nothing was changed") && refused.contains("restore"), "{refused}");
}

#[test]
fn a_journal_that_is_removed_under_a_server_stops_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    std::fs::remove_file(dir.path().join("journal.sqlite")).unwrap();
    let mut number = 0;
    eventually("a refusal", || {
        number += 1;
        let name = format!("j{number}");
        let output = server.run(&["submit", "--tenant", "lab/nlp", "--gpus", "1", "--name", &name]);
        (!output.status.success()).then_some(())
    });
}
