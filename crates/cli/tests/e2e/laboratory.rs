//! `wharf sim` and `wharf bench engine`: random runs, cases, traces and shapes, as typed.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use wharf_sim::testing::cases::deliberate::DELIBERATE;

use crate::server::wharf;

fn sim(args: &[&str], input: &str) -> Output {
    fed(&[&["sim"], args].concat(), input)
}

/// `wharf` with these arguments and this standard input.
fn fed(args: &[&str], input: &str) -> Output {
    let mut child = wharf()
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "{error}: {} {}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

#[test]
fn a_random_run_reports_what_the_manual_says() {
    let args = ["--random", "11", "--steps", "80", "--faults", "-o", "json"];
    let (one, two) = (sim(&args, ""), sim(&args, ""));
    assert_eq!(one.status.code(), Some(0));
    assert_eq!(one.stdout, two.stdout, "the same seed is the same run");
    let report = json(&one);
    for field in ["schema", "seed", "steps", "inputs", "crashes", "faults", "findings", "state_hash"] {
        assert!(report.get(field).is_some(), "no {field} in {report}");
    }
    assert_eq!(report["findings"], serde_json::json!([]));
}

const CASE: &str = r#"{"id":"c1","nodes":[{"name":"n","gpus":2,"cpu_milli":8000,"memory":1000}],
"tenants":[{"path":"t","guaranteed_gpus":1,"weight":1},{"path":"u","guaranteed_gpus":"unlimited","weight":1}],
"jobs":[{"name":"a","tenant":"t","priority":1,"preemptible":true,"gpus":1,"min_tasks":1,"tasks":[{"state":"running","node":"n"}],"cpu_milli":1,"memory":1},
{"name":"b","tenant":"u","priority":1,"preemptible":true,"gpus":0.5,"min_tasks":1,"tasks":[{"state":"pending"}],"cpu_milli":1,"memory":1},
{"name":"c","tenant":"u","priority":1,"preemptible":true,"gpus":3,"min_tasks":1,"tasks":[{"state":"pending"}],"cpu_milli":1,"memory":1}]"#;

#[test]
fn cases_are_read_from_standard_input_and_summed_up() {
    let line = CASE.replace('\n', "");
    let right = sim(&["--cases", "-"], &format!("{line},\"expect\":{{\"a\":1,\"b\":1,\"c\":0}}}}\n"));
    assert_eq!(right.status.code(), Some(0), "{}", String::from_utf8_lossy(&right.stderr));
    let result = json(&right);
    assert_eq!((&result["ok"], &result["settled"]), (&true.into(), &true.into()));
    assert_eq!(result["placed"].as_array().unwrap().len(), 2);
    assert_eq!(result["waits"]["c"]["reason"], "NeverFleet");
    assert!(String::from_utf8_lossy(&right.stderr).contains("1 agree, 0 differ, 0 deliberate"));
    let wrong = sim(&["--cases", "-"], &format!("{line},\"expect\":{{\"a\":0,\"b\":1,\"c\":0}}}}\n"));
    assert_eq!(wrong.status.code(), Some(1));
    let open = sim(&["--cases", "-"], &format!("{line}}}\n"));
    assert_eq!((open.status.code(), &json(&open)["ok"]), (Some(0), &serde_json::Value::Null));
    let broken = sim(&["--cases", "-"], "{\"id\":1}\n");
    assert_eq!(broken.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&broken.stderr).contains("line 1"));
}

#[test]
fn the_collected_cases_all_run() {
    let shared = std::env::var_os("WHARF_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let file = shared.join("cases/quota-gang.jsonl");
    if !file.exists() {
        println!("skipped: no behaviour cases beside this clone (WHARF_SHARED names their directory)");
        return;
    }
    let output = sim(&["--cases", file.to_str().unwrap()], "");
    let lines = String::from_utf8(output.stdout).unwrap();
    let results: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(results.len(), std::fs::read_to_string(file).unwrap().lines().count());
    assert!(results.iter().all(|result| result["settled"] == true), "every case settles");
    let summary = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "nothing differs but what is meant to: {summary}");
    let differing: Vec<&str> = results
        .iter()
        .filter(|result| result["ok"] == false)
        .filter_map(|result| result["id"].as_str())
        .collect();
    assert_eq!(differing, DELIBERATE.map(|known| known.id), "{summary}");
    assert!(DELIBERATE.iter().all(|known| summary.contains(known.reason)), "{summary}");
    let agree = results.iter().filter(|result| result["ok"] == true).count();
    assert!(agree >= AGREE_MIN, "{agree} cases agree, there were {AGREE_MIN}");
}

/// Cases that agree today.
const AGREE_MIN: usize = 69;

const TRACE: &str = "job_id,tenant,class,priority,tasks,min,gpus,submit_s,duration_s\n\
    a,lab/x,batch,0,1,1,8,0,100\n\
    b,lab/x,batch,0,4,4,8,10,50.5\n\
    c,lab/y,interactive,0,1,1,0.5,20,10\n\
    d,lab/y,batch,0,9,9,8,30,10\n";

#[test]
fn a_trace_is_replayed_on_virtual_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (jobs, events, data) = (path("jobs.csv"), path("events.jsonl"), path("data"));
    let args = ["--trace", "-", "--fleet", "lab", "--seed", "3", "-o", "json"];
    let kept = ["--jobs", &jobs, "--events", &events, "--data", &data];
    let output = sim(&[&args[..], &kept].concat(), TRACE);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report = json(&output);
    for field in [
        "schema",
        "inputs_sha256",
        "jobs",
        "wait_s",
        "wait_s_by",
        "evictions",
        "lost_gpu_s",
        "useful_gpu_s",
        "alloc_pct",
        "findings",
        "state_hash",
        "cpu_s",
    ] {
        assert!(report.get(field).is_some(), "no {field} in {report}");
    }
    assert_eq!((&report["jobs"], &report["succeeded"]), (&4.into(), &3.into()));
    assert_eq!(report["refused"]["Never"], 1, "the gang of 9 nodes");
    assert_eq!(report["wait_s_by"]["size"]["16+"]["mean"], 90.0, "b waits for a");
    assert_eq!(report["useful_gpu_s"], 8.0 * 100.0 + 32.0 * 50.5 + 0.5 * 10.0);
    let rows = std::fs::read_to_string(jobs).unwrap();
    let mut lines = rows.lines();
    let header = "job_id,tenant,class,gpus,submit_s,first_start_s,end_s,run_s,lost_s,evictions";
    assert_eq!(lines.next(), Some(header));
    assert_eq!(lines.next(), Some("a,lab/x,batch,8.0,0.0,0.0,100.0,100.0,0.0,0"));
    assert_eq!(lines.next(), Some("b,lab/x,batch,32.0,10.0,100.0,150.5,50.5,0.0,0"));
    let events = std::fs::read_to_string(events).unwrap();
    assert_eq!(report["events"], events.lines().count(), "every event is written");
    let first: serde_json::Value = serde_json::from_str(events.lines().next().unwrap()).unwrap();
    assert!(first["event"]["Fleet"].is_object(), "an event is written as it is: {first}");
    assert_eq!(first["actor"]["source"], "world");
    let checked = wharf().args(["check", "--data", &data]).output().unwrap();
    let checked: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(checked["state_hash"], report["state_hash"], "the journal rebuilds the state it ended in");
    assert_eq!(checked["snapshot"], serde_json::Value::Null);
    let again = json(&sim(&args, TRACE));
    assert_eq!(
        (&again["state_hash"], &again["inputs_sha256"]),
        (&report["state_hash"], &report["inputs_sha256"])
    );
}

#[test]
fn a_wrong_trace_names_the_line() {
    for (trace, said) in [
        ("job_id,tenant\na,b\n", "-:2"),
        ("job_id,tenant,class,gpus,submit_s,duration_s\na,t,batch,1,0,1\na,t,batch,1,0,1\n", "-:3"),
        ("job_id,tenant,class,gpus,submit_s,duration_s\na,t,slow,1,0,1\n", "-:2"),
        ("job_id,tenant,class,gpus,submit_s,duration_s\na,t,batch,1.5,0,1\n", "-:2"),
    ] {
        let output = sim(&["--trace", "-", "--fleet", "lab"], trace);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(said), "{trace:?} got {text}");
    }
}

const SHAPE: &str = r#"{
    "nodes": [{"count": 3, "gpus": 4}],
    "tenants": [{"path": "lab/a", "guaranteed_gpus": 8}, {"path": "lab/b"}],
    "running": [{"count": 3, "tenant": "lab/b", "gpus": 0.5}, {"tenant": "lab/b", "gpus": 2}],
    "pending": [{"count": 5, "tenant": "lab/a"}, {"tenant": "lab/b", "gpus": 4, "tasks": 3}],
    "late": [{"count": 2, "tenant": "lab/a", "class": "inference"}]
}"#;

#[test]
fn a_decision_on_a_shape_is_measured() {
    let args = ["bench", "engine", "--shape", "-", "--runs", "3", "-o", "json"];
    let output = fed(&args, SHAPE);
    let report = json(&output);
    assert_eq!(output.status.code(), Some(0), "{report}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 1);
    let manual = include_str!("../../../../docs/reference/cli.md");
    for (field, value) in report.as_object().unwrap() {
        assert!(!value.is_object() && !value.is_array(), "{field} is not flat");
        assert!(field == "schema" || manual.contains(&format!("`{field}`")), "{field} is not in the manual");
    }
    for (field, value) in [
        ("schema", "wharf.bench.engine.v1".into()),
        ("ok", true.into()),
        ("runs", 3.into()),
        ("gpus", 12.into()),
        ("running", 4.into()),
        ("pending", 6.into()),
        ("started", 5.into()),
        ("tasks_started", 5.into()),
        ("reason", "WaitingForCapacity".into()),
        ("again_events", 0.into()),
        ("late_started", 2.into()),
        ("findings", 0.into()),
        ("bar_ms", serde_json::Value::Null),
    ] {
        assert_eq!(report[field], value, "{field} of {report}");
    }
    assert!(report["allocated_bytes"].as_u64() >= report["allocated_peak_bytes"].as_u64());
    assert!(report["allocated_peak_bytes"].as_u64() > Some(0));
    assert_eq!(report["result_hash"].as_str().unwrap().len(), 64);
    assert_eq!(json(&fed(&args, SHAPE))["result_hash"], report["result_hash"], "the same decision");
}

#[test]
fn a_wrong_shape_says_what_why_and_next() {
    for (shape, said) in [
        ("{\"nodes\": [],\n\"pools\": []}", "error: -:2: unknown field `pools`\n  why: It is no shape"),
        (
            "{\"nodes\": [{}], \"tenants\": [{\"path\": \"t\"}], \"late\": [{}]}",
            " next: name one of tenants: t",
        ),
    ] {
        let output = fed(&["bench", "engine", "--shape", "-"], shape);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{text}");
        assert!(text.contains(said), "{shape:?} got {text}");
    }
    for wrong in [&["--case", "spill"][..], &[], &["--case", "fill", "--shape", "-"]] {
        assert_eq!(fed(&[&["bench", "engine"], wrong].concat(), "").status.code(), Some(64), "{wrong:?}");
    }
}
