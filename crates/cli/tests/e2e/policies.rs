//! The policy directory of a running control plane: what is taken, what is refused, and where that is said.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::abuse::get;
use crate::server::{Server, eventually, wharf};

fn policy(server: &Server) -> serde_json::Value {
    server.json(&["get", "policy"])
}

fn error(server: &Server) -> String {
    eventually("the error", || policy(server)["error"].as_str().map(str::to_owned))
}

fn with_tenants(dir: &Path, text: &str) -> String {
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join("tenants.yaml"), text).unwrap();
    dir.to_str().unwrap().to_owned()
}

/// Seen before: guarantees of 300 H100 on a fleet of 128 came into force without a word, though lint refuses them.
#[test]
fn a_policy_that_the_fleet_cannot_keep_is_refused_and_the_one_in_force_stays() {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("policy");
    let fits = "tenants: {a: {guaranteed: {h100: 20}}, b: {limit: {h100: 8}}}\n";
    let given = with_tenants(&files, fits);
    let data = dir.path().join("data");
    let server = Server::start(&data, &["--policy", &given]);
    assert_eq!(policy(&server)["version"], 1);
    fs::write(files.join("tenants.yaml"), fits.replace("20", "300")).unwrap();
    let said = error(&server);
    assert!(said.contains("tenants.yaml:1: a is promised 300 h100 GPUs"), "{said}");
    assert!(said.contains("has 32") && said.contains("lower a's guarantee to 32"), "{said}");
    assert_eq!(policy(&server)["version"], 1, "the policy in force stays");
    assert!(get(&server, "/metrics").contains("wharf_policy_error 1"));
    let shown = String::from_utf8(server.run(&["get", "policy"]).stdout).unwrap();
    assert!(shown.contains("not in force"), "{shown}");
    // At a start too: what the journal holds goes on.
    server.kill();
    let server = Server::start(&data, &["--policy", &given]);
    assert_eq!(policy(&server)["version"], 1);
    error(&server);
    // What is only doubtful is applied, and said.
    fs::write(files.join("tenants.yaml"), fits.replace("b: {limit: {h100: 8}}", "b: {limit: {l4: 8}}"))
        .unwrap();
    let warned = eventually("the warning", || {
        let now = policy(&server);
        (now["version"] == 2).then(|| now["warnings"].to_string()).filter(|said| said.len() > 4)
    });
    assert!(warned.contains("b has a limit in l4"), "{warned}");
    assert!(policy(&server)["error"].is_null());
    let shown = String::from_utf8(server.run(&["get", "policy"]).stdout).unwrap();
    assert!(shown.contains("in force, with warnings"), "{shown}");
    assert!(get(&server, "/metrics").contains("wharf_policy_error 0"));
}

#[test]
fn a_first_start_with_a_policy_that_the_fleet_cannot_keep_says_so_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    let given = with_tenants(&dir.path().join("policy"), "tenants: {a: {guaranteed: 300}}\n");
    let said = Server::try_start(&dir.path().join("data"), &["--policy", &given]).err().unwrap();
    assert!(said.contains("a is promised 300 GPUs") && said.contains("has 32"), "{said}");
    fs::write(dir.path().join("policy/tenants.yaml"), "tenants: {a: {guaranteed: 30}}\n").unwrap();
    Server::start(&dir.path().join("data"), &["--policy", &given]);
}

/// Seen before: whoever opens a pipe waits for a writer, and the directory was never read again.
#[test]
fn a_pipe_in_the_directory_is_an_error_and_not_the_end_of_watching() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let files = dir.path().join("policy");
    let pipe = files.join("idle.yaml");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let said = error(&server);
    assert!(said.contains("idle.yaml: is a named pipe and no regular file"), "{said}");
    fs::remove_file(&pipe).unwrap();
    fs::create_dir(&pipe).unwrap();
    eventually("the other error", || error(&server).contains("is a directory").then_some(()));
    fs::remove_dir(&pipe).unwrap();
    eventually("no error", || policy(&server)["error"].is_null().then_some(()));
    let tenants = files.join("tenants.yaml");
    let before = fs::read_to_string(&tenants).unwrap();
    fs::write(&tenants, before.replace("vision:", "robotics:")).unwrap();
    eventually("a reload", || (policy(&server)["version"] == 2).then_some(()));
}

#[test]
fn the_files_of_a_first_start_are_clean_on_every_fleet() {
    for fleet in ["lab", "mixed", "pod", "giant"] {
        let dir = tempfile::tempdir().unwrap();
        Server::start(dir.path(), &["--fleet", fleet]).kill();
        let files = dir.path().join("policy");
        let lint =
            wharf().args(["policy", "lint"]).arg(files).args(["--fleet", fleet, "-o", "json"]).output();
        let found: serde_json::Value = serde_json::from_slice(&lint.unwrap().stdout).unwrap();
        assert_eq!((&found["ok"], &found["findings"]), (&true.into(), &serde_json::json!([])), "{fleet}");
    }
}
