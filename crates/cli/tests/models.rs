//! The catalogue from outside, with nobody to ask: `get models`, `explain model/NAME` and `bench mig`.

#![expect(clippy::unwrap_used, reason = "clippy does not see that the functions around tests are tests too")]

use std::process::Command;

use serde_json::Value;

/// Exit code, standard output and standard error. The address is none: no control plane is asked.
fn wharf(args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wharf"));
    let output = command.args(args).env("WHARF_SERVER", "no address").output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn json(args: &[&str]) -> Value {
    let (code, out, error) = wharf(args);
    assert_eq!((code, error.as_str()), (0, ""), "{args:?}");
    serde_json::from_str(&out).unwrap()
}

#[test]
fn models_are_listed_in_every_form_without_a_control_plane() {
    let (code, table, error) = wharf(&["get", "models"]);
    assert_eq!((code, error.as_str()), (0, ""));
    let row = "h100            80GB   3350GB/s  132  yes         8  7: 1g.10gb to 7g.80gb\n";
    assert!(table.contains(row), "{table}");
    assert!(table.contains("\nl4              24GB    300GB/s    ?  -           -  -\n"), "{table}");
    assert_eq!(table.lines().find(|line| line.chars().count() > 100), None);
    let (_, names, _) = wharf(&["get", "model", "-o", "name"]);
    assert!(names.starts_with("model/a100\nmodel/a100-40gb\n"), "{names}");
    let (_, csv, _) = wharf(&["get", "models", "-o", "csv"]);
    let a30 = "a30,24,933,56,false,4,1g.6gb 1g.6gb+me 2g.12gb 2g.12gb+me 4g.24gb,true,true,A30,A30-24GB\n";
    assert!(csv.contains(a30), "{csv}");
    let list = json(&["get", "models", "-o", "json"]);
    assert_eq!(list["schema"], "wharf.models.v1");
    let models = list["models"].as_array().unwrap();
    assert_eq!(models.len(), names.lines().count());
    let pro = models.iter().find(|model| model["name"] == "rtx-pro-6000").unwrap();
    assert_eq!(pro["mig"]["profiles"][0]["starts"], serde_json::json!([0, 3, 6, 9]));
    let (_, yaml, _) = wharf(&["get", "models", "-o", "yaml"]);
    assert!(yaml.contains("\n    name: \"h100\"\n"), "{yaml}");
    assert_eq!(wharf(&["get", "models", "--tenant", "lab"]).0, 64);
}

#[test]
fn a_model_is_drawn_with_every_full_layout() {
    let (code, out, error) = wharf(&["explain", "model/h100"]);
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(out.starts_with("model/h100  H100-SXM5-80GB, 80 GB at 3350 GB/s, 132 SMs, NVLink\n"), "{out}");
    for line in [
        "  3g.40gb           3      4  0,4        2  40448 MiB   60    0.5 GPU",
        "  298 layouts of 1g.10gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb; the 19 full ones:",
        "  [1g ][1g ][1g ][1g ][1g ][1g ][1g ] ·      112  15.2 %",
        "  [4g                ][3g                ]   124   6.1 %",
        "  [7g                                    ]   132   0.0 %",
    ] {
        assert!(out.lines().any(|found| found == line), "{line:?} in\n{out}");
    }
    assert_eq!(out.lines().filter(|line| line.starts_with("  [")).count(), 19);
    assert!(!out.contains('\x1b'), "{out}");
    let (_, by_row, _) = wharf(&["explain", "model/h100-sxm5-80gb"]);
    assert_eq!(by_row, out);
}

#[test]
fn no_line_about_a_model_is_wider_than_a_terminal_and_what_is_inferred_is_said() {
    for model in json(&["get", "models", "-o", "json"])["models"].as_array().unwrap() {
        let (code, out, _) = wharf(&["explain", &format!("model/{}", model["name"].as_str().unwrap())]);
        assert_eq!(code, 0, "{out}");
        assert_eq!(out.lines().find(|line| line.chars().count() > 100), None);
        let inferred = model["mig"]["starts_seen"] == false;
        assert_eq!(out.contains("starts inferred from a model of the same family"), inferred, "{out}");
        let guessed = model["mig"]["profiles"]
            .as_array()
            .is_some_and(|profiles| profiles.iter().any(|profile| profile["memory_seen"] == false));
        assert_eq!(out.contains("~ is 15/16 of what the name says"), guessed, "{out}");
    }
}

#[test]
fn a_model_for_programs_has_its_layouts() {
    let h100 = json(&["explain", "model/h100", "-o", "json"]);
    assert_eq!(h100["schema"], "wharf.model.v1");
    let layouts = &h100["layouts"];
    assert_eq!((&layouts["count"], layouts["maximal"].as_array().unwrap().len()), (&298.into(), 19));
    assert_eq!(layouts["with_double_memory"], serde_json::json!({"count": 723, "maximal": 78}));
    assert_eq!(layouts["with_all"], serde_json::json!({"count": 2319, "maximal": 239}));
    assert_eq!(layouts["maximal"][18]["sm_lost_pct"], 0.0);
    assert_eq!(json(&["explain", "model/l4", "-o", "json"])["layouts"], Value::Null);
}

#[test]
fn an_unknown_model_exits_with_4_and_says_what_it_still_can() {
    let (code, out, error) = wharf(&["explain", "model/h1000"]);
    assert_eq!((code, out.as_str()), (4, ""));
    let expected = "\
error: the catalogue has no model \"h1000\"
  why: No such model (unknown_model)
 next: did you mean h100? a model that is not listed works as whole GPUs and shares; list them with: wharf get models
";
    assert_eq!(error, expected);
    assert_eq!(wharf(&["bench", "mig", "--model", "x"]).0, 4);
    assert_eq!(wharf(&["explain", "model/"]).0, 64);
}

#[test]
fn a_pool_is_played_and_its_decisions_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (mix, decisions) = (path("mix.csv"), path("decisions.jsonl"));
    std::fs::write(&mix, "profile,share\n1g.10gb,3\n7g.80gb,1\n").unwrap();
    let run = ["bench", "mig", "--model", "A100-80GB", "--gpus", "4", "--arrivals", "500", "--mix", &mix];
    let report = json(&[&run[..], &["--decisions", &decisions, "-o", "json"]].concat());
    assert_eq!((&report["schema"], &report["arrivals"]), (&"wharf.bench.mig.v1".into(), &500.into()));
    assert_eq!((&report["model"], &report["row"]), (&"a100".into(), &"A100-80GB".into()));
    let lines = std::fs::read_to_string(&decisions).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let refused = lines.iter().filter(|line| line["counted"] == true && line["gpu"].is_null()).count();
    assert_eq!(report["refused"], refused);
    assert_eq!(lines[0]["seq"], 0);
    let (code, text, _) = wharf(&run);
    assert_eq!(code, 0);
    assert!(text.contains("PROFILE  ARRIVED") && text.contains("\ndemand       500"), "{text}");
    std::fs::write(&mix, "1g.10gb,3\n1g.5gb,1\n").unwrap();
    let (code, _, error) = wharf(&run);
    assert_eq!(code, 64);
    assert!(error.contains("mix.csv:2: A100-80GB has no profile \"1g.5gb\""), "{error}");
    assert!(error.contains("allowed here: 1g.10gb, 1g.10gb+me, 1g.20gb"), "{error}");
    for wrong in [["--load", "0"], ["--gpus", "0"], ["--mix", "no-such-file"], ["--model", "l4"]] {
        assert_eq!(wharf(&[&["bench", "mig"][..], &wrong].concat()).0, 64, "{wrong:?}");
    }
}
