//! Divided GPUs, as people see them: how a job is kept apart, what a GPU holds, who ran out of memory.

use std::path::Path;
use std::process::Output;

use serde_json::json;

use crate::abuse::get;
use crate::server::{Server, eventually};

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn submit(server: &Server, dir: &Path, name: &str, rest: &str) {
    let file = dir.join(format!("{name}.yaml"));
    std::fs::write(&file, format!("name: {name}\ntenant: lab/nlp\n{rest}\n")).unwrap();
    text(&server.run(&["submit", file.to_str().unwrap()]));
}

fn runs(server: &Server, name: &str) {
    eventually(&format!("{name} runs"), || {
        let jobs = server.json(&["get", "jobs"]);
        let found = jobs["jobs"].as_array()?.iter().find(|job| job["name"] == name)?.clone();
        (found["state"] == "running").then_some(())
    });
}

const LONG: &str = "simulate: {duration: 90h}";

#[test]
fn a_slice_and_a_share_say_how_they_are_kept_apart() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &["--speed", "20"]);
    submit(&server, dir.path(), "sliced", &format!("slice: 2g.20gb\n{LONG}"));
    submit(&server, dir.path(), "shared", &format!("gpus: 0.25\n{LONG}"));
    runs(&server, "sliced");
    runs(&server, "shared");
    let jobs = server.json(&["get", "jobs"]);
    let place = &jobs["jobs"][0]["placements"][0];
    assert_eq!(
        (&place["enforced"], &place["slice"]["profile"]),
        (&json!("mig"), &json!("2g.20gb")),
        "{place}"
    );
    assert!(place["memory_mib"].as_u64().unwrap() > 19_000 && place["tax"].is_number(), "{place}");
    let shared = &jobs["jobs"][1]["placements"][0];
    assert_eq!((&shared["enforced"], &shared["slice"]), (&json!("mps"), &json!(null)), "{shared}");

    let told = text(&server.run(&["explain", "job/sliced"]));
    assert!(told.contains(", MIG 2g.20gb at slot ") && told.contains("expected tax "), "{told}");
    assert!(told.contains("  uses    task 0 ") && told.contains(" of its SMs, "), "{told}");
    let told = text(&server.run(&["explain", "job/shared"]));
    assert!(told.contains(", MPS 0.25 with at most ") && told.contains("tax up to 30 %"), "{told}");

    let (node, index) = (place["node"].as_str().unwrap(), &place["gpus"][0]);
    let listed = text(&server.run(&["get", "gpus", node]));
    assert!(listed.contains(" mig ") && listed.contains("2g.20gb@") && listed.contains(" mps "), "{listed}");
    let all = server.json(&["get", "gpus", node]);
    assert_eq!(all["gpus"].as_array().unwrap().len(), 8, "only of that node");
    let csv = text(&server.run(&["get", "gpus", node, "-o", "csv"]));
    assert!(csv.starts_with("gpu,node,index,model,mode,slices,health,"), "{csv}");
    assert_eq!(server.run(&["get", "gpus", "nowhere"]).status.code(), Some(4));

    let drawn = text(&server.run(&["explain", &format!("gpu/{node}/{index}")]));
    assert!(drawn.contains("│2g.20gb─") && drawn.contains("job/lab/nlp/sliced"), "{drawn}");
    assert!(drawn.contains("  room    1g.10gb at "), "{drawn}");

    let metrics = get(&server, "/metrics");
    for series in [
        format!("wharf_gpu_mode{{node=\"{node}\",gpu=\"{index}\",mode=\"mig\"}} 1"),
        "wharf_task_tax{tenant=\"lab/nlp\",job=\"shared\",task=\"0\"} 0.3".to_owned(),
        "wharf_task_memory_used_bytes{tenant=\"lab/nlp\",job=\"sliced\",task=\"0\"} ".to_owned(),
        "wharf_ooms_total 0".to_owned(),
        "wharf_series_left_out{of=\"gpu\"} 0".to_owned(),
    ] {
        assert!(metrics.contains(&series), "{series} in\n{metrics}");
    }
}

#[test]
fn who_uses_more_memory_than_its_share_is_killed_and_that_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &["--speed", "20"]);
    let greedy = "gpus: 0.25\nretries: 100\nsimulate: {duration: 90h, memory: 40GiB}";
    submit(&server, dir.path(), "greedy", greedy);
    let told = eventually("it is killed", || {
        let told = text(&server.run(&["explain", "job/greedy"]));
        told.contains("it used more memory than it may").then_some(told)
    });
    assert!(told.contains("killed 1 time:") || told.contains(" times:"), "{told}");
    let explained = server.json(&["explain", "job/greedy"]);
    assert!(explained["ooms"].as_u64().unwrap() > 0 && explained["job"]["failures"].as_u64().unwrap() > 0);
}

#[test]
fn slices_survive_a_kill_of_the_control_plane() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Server::start(&data, &["--speed", "2"]);
    for number in 0..4 {
        submit(&server, dir.path(), &format!("s{number}"), &format!("slice: 1g.10gb\n{LONG}"));
    }
    server.kill();
    let server = Server::start(&data, &["--speed", "20"]);
    (0..4).for_each(|number| runs(&server, &format!("s{number}")));
    let gpus = server.json(&["get", "gpus"]);
    let slices = |gpu: &serde_json::Value| gpu["slices"].as_array().unwrap().len();
    let all: usize = gpus["gpus"].as_array().unwrap().iter().map(slices).sum();
    assert_eq!(all, 4);
}
