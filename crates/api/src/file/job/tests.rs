//! Job files, right and wrong.

use wharf_engine::device::catalogue::Media;
use wharf_engine::device::catalogue::mig::ProfileName;
use wharf_engine::model::job::Least;
use wharf_engine::units::{GpuUnits, Uid};

use super::*;

/// As printed in the design.
const SAMPLE: &str = "\
name: llama-70b-pretrain
tenant: lab/nlp/pretrain
class: batch
tasks: 32            # gang; `min: 32` by default
gpus: 8              # per task; or `gpus: 0.25`, or `slice: 1g.10gb`, or `gpu_memory: 20GiB`
gpu: {model: [h100, h200]}
topology: {task: island, gang: leaf}       # required; `prefer:` for wishes
time: {limit: 48h, estimate: 20h}
checkpoint: {every: 30m, grace: 5m}
labels: {experiment: e42, model: llama-70b@v3}
";

/// Every key there is.
const FULL: &str = "\
name: full.job-1
tenant: lab/vision
class: interactive
priority: -5
tasks: 4
min: 2
gpus: 0.25
gpu: {model: l4, memory: 20.5GiB}
cpu: 500m
memory: 4GiB
storage: 100GB
nics: 1
nodes:
  labels: {zone: [east, west], 'wharf.dev/model': l4, version: 1.10}
  tolerations:
    - {key: maintenance}
    - {key: team, value: vision}
topology: {gang: rack}
time: {limit: 1h30m}
checkpoint: {every: 10m, grace: 0s}
preemptible: false
trust: lab/red
retries: 0
labels: {on: no, answer: 42}
simulate: {duration: 90s, sm_active: 0.35, fail_after: 1m, checkpoint: fail}
";

fn parsed(text: &str) -> JobFile {
    parse_job("job.yaml", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A job with a name and a tenant on the first two lines, and `rest` from line 3.
fn with(rest: &str) -> String {
    format!("name: a\ntenant: lab\n{rest}\n")
}

fn error(text: &str) -> String {
    match parse_job("job.yaml", text) {
        Ok(job) => panic!("read as {job:?}:\n{text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_sample_of_the_design_is_read_as_printed() {
    let job = parsed(SAMPLE);
    assert_eq!((job.tasks, job.min, job.asks.gpus), (32, 32, GpuAsk::Whole(8)));
    assert_eq!(job.time_limit, Some(Millis::from_secs(48 * 3600)));
    let submission = job.submission(Uid(7));
    assert_eq!(submission.tenant, "lab/nlp/pretrain");
    assert_eq!(submission.devices, r#"devices{"models":["h100","h200"]}"#);
    assert_eq!(submission.nodes, "nodes{}");
    assert_eq!(submission.gang_within.as_deref(), Some("leaf"));
    assert!(submission.spec.topology.task_on_island);
    assert_eq!(
        submission.spec.checkpoint,
        Some(Checkpoint { every: Millis::from_secs(1800), grace: Millis::from_secs(300), on_request: false })
    );
    assert_eq!(submission.spec.payload, "");
}

#[test]
fn two_lines_are_a_job_of_one_gpu() {
    let job = parsed("name: a\ntenant: lab");
    assert_eq!((job.tasks, job.min, job.asks.gpus, job.asks.cpu_milli), (1, 1, GpuAsk::Whole(1), 1000));
    assert_eq!((job.class, job.priority, job.preemptible, job.retries), (Class::Batch, 0, true, 2));
    let submission = job.submission(Uid(1));
    assert_eq!((submission.devices.as_str(), submission.trust), ("", None));
    assert_eq!(submission.spec.shape.resources.pods, 1);
}

#[test]
fn every_key_arrives() {
    let job = parsed(FULL);
    assert_eq!(job.asks.gpus, GpuAsk::Share(GpuUnits::from_parts(750)));
    assert_eq!(
        (job.asks.cpu_milli, job.asks.memory, job.asks.storage, job.asks.nics),
        (500, 4 << 30, 100_000_000_000, 1)
    );
    assert_eq!(job.labels["on"], "no");
    assert_eq!(job.nodes.labels["version"], ["1.10"]);
    let submission = job.submission(Uid(1));
    assert_eq!(submission.devices, r#"devices{"models":["l4"],"memory_gb_min":21}"#);
    assert_eq!(
        submission.spec.payload,
        r#"{"duration_ms":90000,"sm_active_milli":350,"fail_after_ms":60000,"checkpoint":"fail"}"#
    );
}

#[test]
fn a_job_survives_the_wire() {
    let payload = with("payload: \"run --me\\n\\t\\\"now\\\"\"\ngpus: 1/3");
    for text in [SAMPLE, FULL, "name: a\ntenant: lab", &payload, &with("simulate: {}")] {
        let job = parsed(text);
        let wire = serde_json::to_string(&job).unwrap();
        assert_eq!(parsed(&wire), job, "{wire}");
    }
}

#[test]
fn gpus_are_whole_or_an_exact_part_of_one() {
    let read = |text: &str| parsed(&with(&format!("gpus: {text}"))).asks.gpus;
    assert_eq!(read("0"), GpuAsk::Whole(0));
    assert_eq!(read("16"), GpuAsk::Whole(16));
    assert_eq!(read("2.0"), GpuAsk::Whole(2));
    assert_eq!(read("0.333"), GpuAsk::Share(GpuUnits::from_parts(999)));
    assert_eq!(read("\"1/3\""), GpuAsk::Share(GpuUnits::from_parts(1000)));
    for wrong in ["17", "1.5", "-1", "0.0625", "1/7", "many", "[1]", "{a: 1}", "1e0", "4294967297"] {
        let shown = error(&with(&format!("gpus: {wrong}")));
        assert!(shown.starts_with("job.yaml:3: gpus is "), "{shown}");
        assert!(shown.contains("0 to 16") || shown.contains("one word"), "{shown}");
    }
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_what_was_meant() {
    assert_eq!(
        error(&with("gpu_count: 8")),
        "job.yaml:3: unknown key \"gpu_count\"; did you mean \"gpus\"?",
        "the other keys would only bury it"
    );
    assert!(
        error(&with("zzz: 8")).starts_with("job.yaml:3: unknown key \"zzz\"; allowed here: name, tenant, ")
    );
    assert_eq!(
        error(&with("time:\n  limt: 3h")),
        "job.yaml:4: unknown key \"limt\" in time; did you mean \"limit\"? Allowed here: limit, estimate"
    );
    assert_eq!(
        error(&with("nodes: {tolerations: [{kei: a}]}")),
        "job.yaml:3: unknown key \"kei\" in nodes.tolerations[0]; did you mean \"key\"? Allowed here: key, value"
    );
}

#[test]
fn a_missing_key_is_named() {
    assert_eq!(error("tenant: lab\n"), "job.yaml:1: the key \"name\" is missing; allowed here: name: my-job");
    assert_eq!(
        error(&with("checkpoint: {every: 10m}")),
        "job.yaml:3: the key \"grace\" is missing in checkpoint; allowed here: checkpoint: {every: 30m, grace: 5m}"
    );
}

#[test]
fn keys_that_are_planned_say_so_and_what_works() {
    let works = "topology: {task: island} for the GPUs of a task, or topology: {gang: LEVEL} for the whole gang; both are \
                 required, not preferred";
    for wish in
        ["topology: {prefer: leaf}", "topology: {task: island, prefer: {gang: leaf}}", "prefer: {gang: leaf}"]
    {
        assert_eq!(error(&with(wish)), format!("job.yaml:3: prefer is not supported yet; write {works}"));
    }
}

#[test]
fn a_value_in_the_wrong_shape_is_shown_in_the_right_one() {
    for (wrong, shown) in [
        ("gpu: h100", "gpu is \"h100\"; write gpu: {model: h100}"),
        ("gpu: [h100, h200]", "gpu is a list; write gpu: {model: [h100, h200]}"),
        ("gpu: 4", "gpu is \"4\"; write gpus: 4"),
        ("gpus: h100:8", "gpus is \"h100:8\"; write gpus: 8, gpu: {model: h100}"),
        ("time: 4h", "time is \"4h\"; write time: {limit: 4h}"),
        ("checkpoint: 30m", "checkpoint is \"30m\"; write checkpoint: {every: 30m, grace: 5m}"),
        ("topology: island", "topology is \"island\"; write topology: {task: island}"),
        ("topology: rack", "topology is \"rack\"; write topology: {gang: rack}"),
        ("class: inference\nservice: 4", "service is \"4\"; write service: {min: 1, max: 4}"),
        ("nodes: n1", "nodes is \"n1\"; write nodes: {labels: {KEY: n1}}"),
        ("simulate: 5m", "simulate is \"5m\"; write simulate: {duration: 5m}"),
    ] {
        let told = error(&with(wrong));
        assert!(told.ends_with(shown), "{told}");
    }
    assert!(error(&with("gpus: h100")).ends_with("; write gpus: 1, gpu: {model: h100}"));
}

#[test]
fn slices_and_alternatives_are_read_in_order() {
    let least = |memory_mib, compute, compute_of| GpuAsk::AtLeast(Least { memory_mib, compute, compute_of });
    let ask = |text: &str| parsed(&with(text)).asks.gpus;
    let name = ProfileName { compute: 1, gb: 10, media: Media::Usual };
    assert_eq!(ask("slice: 1g.10gb"), GpuAsk::Slice(name));
    assert_eq!(ask("slice: {memory: 20GiB, compute: 2/7}"), least(20 * 1024, 2, 7));
    assert_eq!(ask("gpu_memory: 20GiB"), least(20 * 1024, 0, 0));
    let job = parsed(&with("slice: 7g.80gb\nany_of:\n  - {gpus: 0.5, gpu: {model: l4}}\n  - {gpus: 1}"));
    let asks: Vec<GpuAsk> = job.asks.any_of.iter().map(|other| other.gpus).collect();
    assert_eq!(asks, [GpuAsk::Share(GpuUnits::from_parts(1500)), GpuAsk::Whole(1)]);
    let submission = job.submission(Uid(1));
    assert_eq!(submission.any_of_devices, [r#"devices{"models":["l4"]}"#, ""]);
    let written = serde_json::to_string(&job).unwrap();
    assert_eq!(parse_job("body", &written).unwrap(), job, "{written}");
}

#[test]
fn a_wrong_slice_says_what_is_allowed() {
    let starts = |text: &str, start: &str| {
        let shown = error(&with(text));
        assert!(shown.starts_with(start), "{shown}");
    };
    starts("slice: 9g.10gb", "job.yaml:3: slice is \"9g.10gb\"; allowed here: a profile that");
    starts("slice: {}", "job.yaml:3: slice asks for nothing");
    starts("slice: {compute: 8/7}", "job.yaml:3: slice.compute is \"8/7\"");
    starts("gpus: 1\nslice: 1g.10gb", "job.yaml:4: slice is given, but the job says already");
    starts("any_of: [{gpu: {model: l4}}]", "job.yaml:3: any_of");
    starts("gpus: 2\ntime_slicing: true", "job.yaml:4: time_slicing is true, but");
    starts("slice: 1g.10gb\ntopology: {task: island}", "job.yaml:4: topology.task is island, but");
    starts("gpu_memory: 0", "job.yaml:3: gpu_memory is 0");
}

#[test]
fn a_bad_word_lists_the_good_ones() {
    assert_eq!(
        error(&with("class: bach")),
        "job.yaml:3: class is \"bach\"; did you mean \"batch\"? Allowed here: inference, interactive, batch"
    );
    assert_eq!(
        error(&with("topology: {task: node}")),
        "job.yaml:3: topology.task is \"node\"; allowed here: island"
    );
    assert_eq!(
        error(&with("preemptible: yes")),
        "job.yaml:3: preemptible is \"yes\"; allowed here: true, false"
    );
}

#[test]
fn values_of_the_wrong_type_or_out_of_range_name_what_is_allowed() {
    for (wrong, shown) in [
        ("tasks: 0", "tasks is \"0\"; allowed here: a whole number from 1 to 16384"),
        ("tasks: many", "tasks is \"many\"; allowed here: a whole number from 1 to 16384"),
        ("tasks: [1]", "tasks is a list; allowed here: a whole number from 1 to 16384"),
        ("tasks:", "tasks has no value; allowed here: a value, or leave the key out"),
        ("retries: 101", "retries is \"101\"; allowed here: a whole number from 0 to 100"),
        ("labels: 3", "labels is \"3\"; allowed here: a map of keys and values"),
        ("labels: {a: [b]}", "labels.a is a list; allowed here: one word or text"),
        ("labels: {\"\": b}", "labels has an entry without a key; allowed here: keys of 1 to 1024 bytes"),
        (
            "memory: 1EB",
            "memory is \"1EB\"; allowed here: a size such as 4GiB, 512MiB, 80GB or a number of bytes",
        ),
        ("memory: 65TiB", "memory is \"65TiB\"; allowed here: a size of at most 64TiB"),
        ("cpu: two", "cpu is \"two\"; allowed here: cores such as 8, 0.5 or 500m"),
        ("gpu: {model: []}", "gpu.model has 0 items; allowed here: one value, or a list of 1 to 64"),
        ("time: {limit: 0s}", "time.limit is \"0s\"; allowed here: a duration from 1s to 3650d"),
        (
            "time: {limit: 48}",
            "time.limit is \"48\"; allowed here: a duration such as 48h, 1h30m, 90s or 2d (units: d, h, m, s, ms)",
        ),
        (
            "priority: high",
            "priority is \"high\"; allowed here: a whole number from -1000000000 to 1000000000",
        ),
        (
            "simulate: {sm_active: 1.2}",
            "simulate.sm_active is \"1.2\"; allowed here: a number from 0 to 1 with at most three decimals",
        ),
    ] {
        assert_eq!(error(&with(wrong)), format!("job.yaml:3: {shown}"));
    }
    assert_eq!(error("- a\n- b\n"), "job.yaml:1: the file is a list; allowed here: a map of keys and values");
}

#[test]
fn names_and_paths_follow_the_rules() {
    assert_eq!(
        error("name: Llama_70B\ntenant: lab\n"),
        "job.yaml:1: name is \"Llama_70B\"; allowed here: lower-case letters, digits, '-' and '.', a letter or digit \
         at both ends, at most 63 characters"
    );
    for wrong in ["/lab", "lab/", "lab//nlp", "a/b/c/d/e/f/g", "Lab"] {
        let shown = error(&format!("name: a\ntenant: {wrong}\n"));
        assert!(shown.starts_with("job.yaml:2: tenant is "), "{shown}");
    }
}

#[test]
fn keys_that_contradict_each_other_are_reported_at_their_line() {
    for (wrong, line, shown) in [
        (
            "tasks: 2\nmin: 3",
            4,
            "min is 3, more than tasks, which is 2; allowed here: a whole number from 1 to 2",
        ),
        ("min: 2", 3, "min is 2, more than tasks, which is 1; allowed here: a whole number from 1 to 1"),
        (
            "time:\n  limit: 1h\n  estimate: 2h",
            5,
            "time.estimate is longer than time.limit; allowed here: at most 1h",
        ),
        (
            "gpus: 0\ngpu: {model: h100}",
            4,
            "gpu is given, but gpus is 0; allowed here: gpu only together with gpus",
        ),
        (
            "gpus: 0.5\ntopology: {task: island}",
            4,
            "topology.task is island, but the task has no whole GPU to be on one; \
             allowed here: task: island together with gpus: 1 or more",
        ),
        (
            "simulate: {duration: 1s}\npayload: x",
            4,
            "payload is given together with simulate; allowed here: one of the two",
        ),
    ] {
        assert_eq!(error(&with(wrong)), format!("job.yaml:{line}: {shown}"));
    }
    let nothing = error(&with("gpus: 0\ncpu: 0"));
    assert!(nothing.starts_with("job.yaml:1: the job asks for nothing"), "{nothing}");
}

#[test]
fn flags_make_the_same_job_as_a_file() {
    let text = |word: &str| Some(word.to_owned());
    let flags = JobFlags {
        name: text("a"),
        tenant: text("lab"),
        gpus: text("0.5"),
        tasks: text("2"),
        model: text("h100"),
        duration: text("1m"),
        ..JobFlags::default()
    };
    let file = with("gpus: 0.5\ntasks: 2\ngpu: {model: h100}\nsimulate: {duration: 1m}");
    assert_eq!(flags.job().unwrap(), parsed(&file));
}

#[test]
fn a_wrong_flag_is_explained_without_a_line() {
    let flags = JobFlags {
        name: Some("a".into()),
        tenant: Some("lab".into()),
        tasks: Some("x".into()),
        ..JobFlags::default()
    };
    assert_eq!(
        flags.job().unwrap_err().to_string(),
        "command line: tasks is \"x\"; allowed here: a whole number from 1 to 16384"
    );
}

#[test]
fn a_label_on_the_command_line_has_a_key_and_a_value_and_is_given_once() {
    let error = |labels: &[&str]| {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        let (name, tenant) = (Some("a".into()), Some("lab".into()));
        JobFlags { name, tenant, labels, ..JobFlags::default() }.job().unwrap_err().to_string()
    };
    assert_eq!(error(&["team"]), "command line: --label team has no value; write --label team=VALUE");
    assert_eq!(error(&["=red"]), "command line: --label =red has no key; write --label KEY=red");
    let twice = error(&["team=red", "team=blue"]);
    assert!(twice.contains("--label team=blue cannot be given together with --label team=red"), "{twice}");
}
