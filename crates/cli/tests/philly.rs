//! Replay of the Philly trace from outside: waits worked out by hand, wrong input, and the real trace where it is there.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Two virtual clusters of one node each. At 16 GPUs, all for 10 s:
///
/// | job | vc | submit | GPUs | fifo | fifo-skip | static |
/// |---|---|---|---|---|---|---|
/// | a | one | 0 | 8 | 0 | 0 | 0 |
/// | b | one | 1 | 8 | 1: the second node | 1 | 10: its own node is taken |
/// | c | two | 2 | 8 | 10 | 10 | 2: its own node |
/// | d | one | 3 | 1 | 11 | 11 | 20: behind b |
/// | e | two | 4 | 2 | 11 | 11 | 12 |
///
/// So waits are 0 0 8 8 7 in one queue, and 0 9 0 17 8 on nodes of their own.
const JOBS: &str = "\
job_id,vc,submit_s,submit_vc_s,num_gpu,duration_s
early,one,99,0,1,10
a,one,100,0,8,10
b,one,101,0,8,10
c,two,102,0,8,10
d,one,103,0,1,10
e,two,104,0,2,10
left-out,51b7ef,104,0,8,10
late,one,200,0,1,10
";
const SIZES: &str = "vc,jobs,helios_nodes_8gpu\none,4,32.0\ntwo,2,32.0\n51b7ef,1,\n";

/// Two nodes: `y` wants both and blocks `z` only where the head of the queue does. 12 GPUs are two whole nodes.
///
/// fifo: x 0, y 10, z 20; fifo-skip: x 0, z 2 beside it, y when z is gone at 12. Waits 0 9 18, and 0 11 0.
const GANG: &str = "\
job_id,vc,submit_s,submit_vc_s,num_gpu,duration_s
x,one,0,0,8,10
y,two,1,0,12,10
z,one,2,0,1,10
";

fn dir(jobs: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("jobs.csv"), jobs).unwrap();
    std::fs::write(dir.path().join("philly_vcs.csv"), SIZES).unwrap();
    dir
}

fn wharf(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wharf"));
    let out = command.current_dir(dir).arg("sim").args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (out.status.code().unwrap(), text(out.stdout), text(out.stderr))
}

/// The report, and what each job waited.
fn replay(dir: &Path, args: &[&str]) -> (Value, Vec<(String, f64)>) {
    let given = ["--trace", "jobs.csv", "--format", "philly", "--jobs", "rows.csv", "-o", "json"];
    let (code, out, error) = wharf(dir, &[&given, args].concat());
    assert_eq!((code, error.as_str()), (0, ""), "{args:?}");
    let mut rows = csv::Reader::from_path(dir.join("rows.csv")).unwrap();
    let at =
        |name: &str, headers: &csv::StringRecord| headers.iter().position(|known| known == name).unwrap();
    let headers = rows.headers().unwrap().clone();
    let [id, submit, end] = ["job_id", "submit_s", "end_s"].map(|name| at(name, &headers));
    let seconds = |text: &str| text.parse::<f64>().unwrap();
    let waited =
        |row: csv::StringRecord| (row[id].to_owned(), seconds(&row[end]) - seconds(&row[submit]) - 10.0);
    let waits = rows.records().map(|row| waited(row.unwrap())).collect();
    (serde_json::from_str(&out).unwrap(), waits)
}

fn seconds_of(waits: &[(String, f64)]) -> Vec<f64> {
    waits.iter().map(|(_, wait)| *wait).collect()
}

#[test]
fn references_wait_as_worked_out_by_hand() {
    let dir = dir(JOBS);
    let window = ["--from", "100", "--to", "200", "--gpus", "16", "--order"];
    for (order, expected) in [
        ("fifo", [0.0, 0.0, 8.0, 8.0, 7.0]),
        ("fifo-skip", [0.0, 0.0, 8.0, 8.0, 7.0]),
        ("static", [0.0, 9.0, 0.0, 17.0, 8.0]),
    ] {
        let (report, waits) = replay(dir.path(), &[&window[..], &[order]].concat());
        assert_eq!(seconds_of(&waits), expected, "{order}");
        assert_eq!(waits.iter().map(|(id, _)| id.as_str()).collect::<String>(), "abcde", "{order}");
        assert_eq!((&report["order"], &report["jobs"]), (&order.into(), &5.into()));
        assert_eq!(report["wait_s"]["max"], expected.iter().copied().fold(0.0, f64::max), "{order}");
    }
}

#[test]
fn the_head_of_the_queue_blocks_or_is_skipped() {
    let dir = dir(GANG);
    for (order, expected) in [("fifo", [0.0, 9.0, 18.0]), ("fifo-skip", [0.0, 11.0, 0.0])] {
        let (report, waits) = replay(dir.path(), &["--gpus", "16", "--order", order]);
        assert_eq!(seconds_of(&waits), expected, "{order}");
        let by_size = &report["wait_s_by"]["size"];
        assert_eq!(by_size["16+"]["mean"], expected[1], "12 GPUs are two whole nodes: {by_size}");
        assert_eq!(by_size["1"]["mean"], expected[2]);
    }
    let max = |gpus| replay(dir.path(), &["--gpus", gpus, "--order", "fifo"]).0["wait_s"]["max"].clone();
    assert_eq!(max("24"), 8.0, "z waits for x, which is gone at 10 s: y has the other two nodes");
    assert_eq!(max("32"), 0.0, "a fourth node is enough");
}

#[test]
fn a_gang_that_never_fits_its_partition_is_refused() {
    let dir = dir(GANG);
    let args =
        ["--trace", "jobs.csv", "--format", "philly", "--gpus", "16", "--order", "static", "-o", "json"];
    let (code, out, _) = wharf(dir.path(), &args);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["refused"]["NeverFits"], &report["succeeded"]), (0, &1.into(), &2.into()));
}

/// Guarantees are one node each. `b` borrows the other's node at 101 s; `c` within its guarantee gets it back: `b`, which came last,
/// is asked at 102 s and gone within its grace.
#[test]
fn the_engine_takes_a_guarantee_back_within_the_grace() {
    let jobs = "job_id,vc,submit_s,submit_vc_s,num_gpu,duration_s\na,one,0,0,8,1000\nb,one,10,0,8,1000\nc,two,400,0,8,10\n";
    let dir = dir(jobs);
    let args = ["--gpus", "16", "--checkpoint"];
    let run = |contract: &str| replay(dir.path(), &[&args[..], &[contract]].concat()).0;
    let report = run("every=5m,grace=60s,restart=30s,on-request");
    assert_eq!((&report["evictions"], &report["evictions_by"]["guarantee"]), (&1.into(), &1.into()));
    let of = |report: &Value, vc: &str| report["wait_s_by"]["tenant"][vc]["mean"].as_f64().unwrap();
    assert!((of(&report, "two") - 60.0).abs() < 1e-6, "who leaves has its grace");
    assert_eq!(report["guarantee_debt_s"], serde_json::json!({}), "nothing is owed beyond it");
    // a, which was served longer, leaves at 460 s with what it had at 400 s. It starts again when c is over, at 470 s, and needs
    // 30 s to get going: it ends at 1,100 s, 100 s late, over two jobs.
    assert!((of(&report, "one") - 50.0).abs() < 1e-6);
    assert_eq!(report["lost_gpu_s"], 8.0 * 90.0, "the grace and the restart");
    // Without saving when asked it falls back to what it last saved by itself.
    let periodic = run("every=5m,grace=60s,restart=30s");
    assert!((of(&periodic, "two") - 60.0).abs() < 1e-6);
    assert!(of(&periodic, "one") > 50.0, "{periodic}");
}

#[test]
fn all_orders_stand_side_by_side_and_jitter_repeats() {
    let dir = dir(JOBS);
    let args = ["--trace", "jobs.csv", "--format", "philly", "--gpus", "16", "--order", "all"];
    let (code, out, error) = wharf(dir.path(), &args);
    assert_eq!((code, error.as_str()), (0, ""));
    let words: Vec<&str> = out.lines().skip(2).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(words, ["static", "fifo", "fifo-skip", "wharf"], "{out}");
    let jittered = |seed| replay(dir.path(), &["--gpus", "16", "--order", "fifo", "--jitter", seed]).1;
    assert_eq!(jittered("7"), jittered("7"));
    assert_ne!(jittered("7"), jittered("8"));
}

#[test]
fn wrong_input_exits_with_64_and_says_what_is_wrong() {
    let dir = dir(JOBS);
    std::fs::write(dir.path().join("bad.csv"), JOBS.replace("num_gpu", "gpus")).unwrap();
    std::fs::write(dir.path().join("zero.csv"), JOBS.replace("a,one,100,0,8,", "a,one,100,0,0,")).unwrap();
    std::fs::write(dir.path().join("other.csv"), JOBS.replace(",two,", ",three,")).unwrap();
    let philly = ["--format", "philly", "--gpus", "16"];
    let wrong: [(&[&str], &str); 10] = [
        (&["--trace", "bad.csv"], "columns are job_id,vc,submit_s,submit_vc_s,num_gpu,duration_s"),
        (&["--trace", "zero.csv"], "zero.csv:3"),
        (&["--trace", "other.csv"], "three"),
        (&["--trace", "absent.csv"], "cannot read absent.csv"),
        (&["--trace", "jobs.csv", "--order", "lifo"], "lifo"),
        (&["--trace", "jobs.csv", "--checkpoint", "every=30m"], "grace and restart is missing"),
        (&["--trace", "jobs.csv", "--checkpoint", "every=30,grace=1s,restart=1s"], "a span is written"),
        (&["--trace", "jobs.csv", "--estimates", "noisy"], "noisy:SIGMA"),
        (&["--trace", "jobs.csv", "--from", "5000"], "no job was submitted"),
        (&["--trace", "jobs.csv", "--order", "all", "--jobs", "rows.csv"], "choose one --order"),
    ];
    for (args, expected) in wrong {
        let (code, out, error) = wharf(dir.path(), &[&philly[..], args].concat());
        assert_eq!((code, out.as_str()), (64, ""), "{args:?}: {error}");
        assert!(error.contains(expected), "{args:?}: {error}");
    }
    let more: [(&[&str], &str); 4] = [
        (&["--trace", "jobs.csv", "--format", "philly"], "--gpus 1840"),
        (&["--trace", "jobs.csv", "--format", "philly", "--gpus", "12"], "multiple of 8"),
        (&["--trace", "jobs.csv", "--fleet", "pod", "--order", "fifo"], "--format philly"),
        (&["--trace", "jobs.csv"], "--fleet"),
    ];
    for (args, expected) in more {
        let (code, out, error) = wharf(dir.path(), args);
        assert_eq!((code, out.as_str()), (64, ""), "{args:?}: {error}");
        assert!(error.contains(expected), "{args:?}: {error}");
    }
}

/// Published: 1,067 on fixed partitions at 2,816 GPUs, 386 with skipping and 0 at all where there is enough.
#[test]
fn the_real_trace_gives_what_was_published() {
    let traces: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../../shared/traces"].iter().collect();
    let Ok(trace) = traces.join("philly_jobs.csv.gz").canonicalize() else {
        eprintln!("skipped: the Philly trace is not in {}", traces.display());
        return;
    };
    let trace = trace.to_str().unwrap();
    let mean = |order: &str, gpus: &str| {
        let window = ["--trace", trace, "--format", "philly", "--from", "4062800", "--to", "9333140"];
        let args = [&window[..], &["--gpus", gpus, "--order", order, "-o", "json"]].concat();
        let (code, out, error) = wharf(&traces, &args);
        assert_eq!(code, 0, "{error}");
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((&report["jobs"], &report["succeeded"]), (&89_347.into(), &89_347.into()));
        report["wait_s"]["mean"].as_f64().unwrap()
    };
    assert!((mean("fifo", "2816") - 0.0).abs() < 1e-6);
    let partitions = mean("static", "2816");
    assert!((1000.0..1150.0).contains(&partitions), "{partitions}");
    let skipping = mean("fifo-skip", "1840");
    assert!((363.0..400.0).contains(&skipping), "{skipping}");
}
