//! Levers on nodes, as an operator pulls them: cordon, drain and maintenance, across a crash.

use crate::server::{Server, eventually};

/// What a command that must succeed says.
pub(crate) fn text(server: &Server, args: &[&str]) -> String {
    let output = server.run(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn node(server: &Server, name: &str) -> serde_json::Value {
    let nodes = server.json(&["get", "nodes"]);
    let nodes = nodes["nodes"].as_array().unwrap().clone();
    nodes.into_iter().find(|node| node["name"] == name).unwrap()
}

#[test]
fn a_node_is_drained_and_stays_so_across_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("job.yaml");
    let wanted = "{name: long, tenant: lab/nlp, gpus: 8, tasks: 4, min: 1, simulate: {duration: 10h}, \
                  checkpoint: {every: 10m, grace: 30s}}";
    std::fs::write(&job, wanted).unwrap();
    let data = dir.path().join("data");
    let server = Server::start(&data, &["--speed", "100"]);
    text(&server, &["submit", job.to_str().unwrap()]);
    eventually("it runs", || (server.json(&["get", "jobs"])["jobs"][0]["running_tasks"] == 4).then_some(()));
    let told = text(&server, &["drain", "n1", "--within", "10m", "--reason", "fans"]);
    // The fleet's clock runs on until the answer is told.
    let within =
        |left: &str| told.contains(&format!("drains: nothing new comes, 1 task leaves within {left}"));
    assert!(within("10m") || within("9m"), "{told}");
    assert!(told.ends_with("undo: wharf undrain n1\nnext: wharf explain node/n1\n"), "{told}");
    server.kill();
    let server = Server::start(&data, &["--speed", "100"]);
    eventually("it is drained", || (node(&server, "n1")["tasks"] == 0).then_some(()));
    assert!(text(&server, &["get", "nodes", "-o", "wide"]).contains("up, drained"));
    let explained = text(&server, &["explain", "node/n1"]);
    assert!(explained.contains("drain   by tester: fans; nothing is left there"), "{explained}");
    let receipts = text(&server, &["get", "evictions"]);
    assert!(receipts.contains("drain") && receipts.contains("node/n1"), "{receipts}");
    assert_eq!(server.json(&["get", "jobs"])["jobs"][0]["running_tasks"], 3, "the rest of it runs on");
    let open = text(&server, &["undrain", "n1"]);
    assert!(open.contains("node/n1 is open: new work may come\nundo: wharf drain n1\n"), "{open}");
    eventually("it grows again", || {
        (server.json(&["get", "jobs"])["jobs"][0]["running_tasks"] == 4).then_some(())
    });
}

#[test]
fn several_nodes_close_before_anything_leaves_one_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--speed", "10"]);
    let job = dir.path().join("job.yaml");
    let wanted = "{name: long, tenant: lab/nlp, gpus: 8, simulate: {duration: 10h}, \
                  checkpoint: {every: 10m, grace: 4m}}";
    std::fs::write(&job, wanted).unwrap();
    text(&server, &["submit", job.to_str().unwrap()]);
    eventually("it runs", || (server.json(&["get", "jobs"])["jobs"][0]["running_tasks"] == 1).then_some(()));
    let told = text(&server, &["drain", "n1", "n2", "n3"]);
    assert!(told.contains("undo: wharf undrain n1 n2 n3\n"), "{told}");
    // While it saves its work it is still there, and its GPUs are nobody else's.
    let busy: Vec<String> = ["n1", "n2", "n3"]
        .into_iter()
        .filter(|name| node(&server, name)["tasks"] == 1)
        .map(str::to_owned)
        .collect();
    assert_eq!(busy.len(), 1, "one node has a task that leaves");
    assert_eq!(node(&server, &busy[0])["gpus_allocated"], 8.0);
    assert_eq!(server.json(&["get", "gpus", &busy[0]])["gpus"][0]["free"], 0.0);
    eventually("it runs on the node that is left", || (node(&server, "n4")["tasks"] == 1).then_some(()));
    let receipts = server.json(&["get", "evictions"])["evictions"].as_array().unwrap().len();
    assert_eq!(receipts, 1, "it left once");
}

#[test]
fn the_receipt_of_a_drain_that_was_called_off_says_that_nobody_left() {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("job.yaml");
    let wanted = "{name: slow, tenant: lab/nlp, gpus: 8, simulate: {duration: 10h}, checkpoint: {every: 10m, grace: 30m}}";
    std::fs::write(&job, wanted).unwrap();
    let server = Server::start(&dir.path().join("data"), &[]);
    text(&server, &["submit", job.to_str().unwrap()]);
    let place = eventually("it runs", || {
        let jobs = server.json(&["get", "jobs"]);
        let job = &jobs["jobs"][0];
        (job["running_tasks"] == 1).then(|| job["placements"][0]["node"].as_str().unwrap().to_owned())
    });
    text(&server, &["drain", &place]);
    let asked = || server.json(&["get", "evictions"])["evictions"][0]["id"].as_u64();
    let receipt = format!("eviction/{}", eventually("it is asked to leave", asked));
    assert!(text(&server, &["explain", &receipt]).contains("slow had to leave for node/"));
    text(&server, &["undrain", &place, &place]);
    eventually("it may stay", || {
        text(&server, &["explain", &receipt]).contains("slow was to leave for node/").then_some(())
    });
}

#[test]
fn several_nodes_are_cordoned_for_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let told = text(&server, &["cordon", "n1", "n2", "--reason", "switch s4"]);
    assert!(told.ends_with("undo: wharf uncordon n1 n2\n"), "{told}");
    assert!(text(&server, &["get", "nodes", "-o", "wide"]).contains("switch s4"));
    assert!(text(&server, &["explain", "node/n2"]).contains("cordon  by tester: switch s4"));
    let none = server.run(&["cordon", "n3", "n33"]);
    assert_eq!(none.status.code(), Some(4));
    assert_eq!(node(&server, "n3")["cordoned"], false, "one that is not there leaves the others alone");
    text(&server, &["uncordon", "n1,n2"]);
    assert_eq!(node(&server, "n1")["cordoned"], false);
}

#[test]
fn maintenance_takes_nodes_out_of_service_and_gives_them_back() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--speed", "100"]);
    text(
        &server,
        &["submit", "--name", "a", "--tenant", "lab/nlp", "--gpus", "8", "--tasks", "4", "--duration", "10h"],
    );
    eventually("it runs", || (server.json(&["get", "jobs"])["jobs"][0]["running_tasks"] == 4).then_some(()));
    let told = text(
        &server,
        &["maintain", "n1", "n2", "--from", "+5m", "--for", "10m", "--name", "fw", "--reason", "firmware"],
    );
    assert!(told.starts_with("maintenance/fw is planned: n1, n2 out of service from "), "{told}");
    assert!(told.contains("undo: wharf cancel maintenance/fw\n"), "{told}");
    let listed = text(&server, &["get", "maintenance"]);
    assert!(listed.contains("fw") && listed.contains("n1,n2") && listed.contains("firmware"), "{listed}");
    eventually("it begins", || text(&server, &["get", "nodes"]).contains("up, maintenance").then_some(()));
    let waits = server.json(&["get", "jobs"])["jobs"][0]["verdict"]["reason"].clone();
    eventually("the gang has left", || (node(&server, "n1")["tasks"] == 0).then_some(()));
    assert_ne!(waits, "Running");
    eventually("it is over", || {
        let over = server.json(&["get", "maintenance"])["downtimes"].as_array().unwrap().is_empty();
        over.then_some(())
    });
    eventually("the gang runs again", || {
        (server.json(&["get", "jobs"])["jobs"][0]["running_tasks"] == 4).then_some(())
    });
}
