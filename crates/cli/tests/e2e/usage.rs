//! GPU-hours as people ask for them: by team, by label, by day, of a window; also after a restart.

use std::path::Path;

use serde_json::{Value, json};

use crate::server::{Server, eventually};

fn submit(server: &Server, dir: &Path, job: &str) {
    let file = dir.join("job.yaml");
    std::fs::write(&file, job).unwrap();
    server.json(&["submit", file.to_str().unwrap()]);
}

fn text(server: &Server, args: &[&str]) -> (Option<i32>, String) {
    let output = server.run(args);
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// The amount of the one row whose key has this value.
fn amount(report: &Value, key: &str, value: &Value, what: &str) -> Value {
    let rows: Vec<&Value> =
        report["rows"].as_array().unwrap().iter().filter(|row| row["key"][key] == *value).collect();
    assert_eq!(rows.len(), 1, "{value}: {report}");
    rows[0][what].clone()
}

#[test]
fn gpu_hours_add_up_by_whatever_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Server::start(&data, &["--speed", "60"]);
    let (_, nothing) = text(&server, &["usage"]);
    assert!(nothing.contains("no tenant held a GPU"), "{nothing}");
    let busy = "simulate: {duration: 3m, sm_active: 0.5}";
    let red = "labels: {project: \"red, hot\"}";
    submit(&server, dir.path(), &format!("name: a\ntenant: lab/nlp\ngpus: 4\n{red}\n{busy}\n"));
    submit(&server, dir.path(), &format!("name: b\ntenant: lab/vision\ngpus: 1\n{busy}\n"));
    let running = eventually("both hold GPUs", || {
        let report = server.json(&["usage", "--by", "team"]);
        (report["total"]["jobs"] == json!(2)).then_some(report)
    });
    assert!(amount(&running, "team", &json!("lab/nlp"), "allocated_gpu_h").as_f64().unwrap() > 0.0);
    assert_eq!(server.run(&["wait", "a", "b", "--timeout", "60s"]).status.code(), Some(0));

    let by = ["usage", "--since", "1d", "--by", "tenant,label:project"];
    let report = server.json(&by);
    let held = |report: &Value, tenant: &str| {
        amount(report, "tenant", &json!(tenant), "allocated_gpu_h").as_f64().unwrap()
    };
    // Four GPUs for three minutes, and a moment to start.
    assert!((0.2..0.3).contains(&held(&report, "lab/nlp")), "{report}");
    assert_eq!(amount(&report, "label:project", &Value::Null, "jobs"), json!(1));
    let used = amount(&report, "tenant", &json!("lab/nlp"), "used_gpu_h").as_f64().unwrap();
    assert!((0.09..0.11).contains(&used), "{report}");
    assert_eq!(report["total"]["unknown_gpu_h"], json!(0.0), "{report}");

    let csv = text(&server, &[&by[..], &["-o", "csv"]].concat()).1;
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(
        lines[0],
        "tenant,label:project,jobs,allocated_gpu_h,used_gpu_h,unknown_gpu_h,utilisation,lost_gpu_h"
    );
    assert!(lines[1].starts_with("lab/nlp,\"red, hot\",1,0.2"), "{csv}");
    assert!(lines.len() == 3 && lines[2].starts_with("lab/vision,-,1,0.05"), "{csv}");
    let table = text(&server, &["usage", "--tenant", "lab/vision", "--by", "class"]).1;
    assert!(table.contains("batch") && table.contains("total") && table.contains("ALLOCATED"), "{table}");
    assert_eq!(server.json(&["usage", "--tenant", "lab/vision"])["rows"].as_array().unwrap().len(), 1);

    server.kill();
    let server = Server::start(&data, &["--speed", "60"]);
    let later = server.json(&by);
    assert_eq!((&later["rows"], &later["total"]), (&report["rows"], &report["total"]));
}

#[test]
fn a_wrong_question_about_usage_says_what_is_right() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &["--speed", "60"]);
    for (args, code, said) in [
        (&["--by", "tenat"][..], 64, "did you mean tenant?"),
        (&["--by", "team,label:"], 64, "label: has no key after it"),
        (&["--by", "team,team"], 64, "team is given twice"),
        (&["--since", "lately"], 64, "since: \"lately\" is neither a span of time nor a moment"),
        (&["--until", "2026-11-01"], 64, "until: \"2026-11-01\" is neither"),
        (&["--since", "1d", "--until", "2d"], 64, "is not before until 2d"),
        (&["--tenant", "lab/nlpp"], 4, "did you mean lab/nlp?"),
        (&["-o", "name"], 64, "one of: table, wide, json, yaml, csv"),
    ] {
        let (exit, text) = text(&server, &[&["usage"], args].concat());
        assert_eq!(exit, Some(code), "{args:?}: {text}");
        assert!(text.contains(said), "{args:?}: {text}");
    }
}
