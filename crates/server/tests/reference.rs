//! The reference documents are held to the code: every metric, error code, reason, stage and policy key has its row, and no row tells
//! of one that does not exist.

#![expect(clippy::unwrap_used, reason = "clippy does not see that the functions around tests are tests too")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use hdrhistogram::Histogram;
use strum::{VariantArray, VariantNames};
use wharf_api::file::job::parse_job;
use wharf_api::file::policy::default_policy_files;
use wharf_api::v1::Code;
use wharf_controller::disk::Standing;
use wharf_controller::memory::MemoryDisk;
use wharf_controller::telemetry::Telemetry;
use wharf_controller::turn::{Controller, Settings};
use wharf_controller::world::{NodeReport, Sample, Samples, TaskSample, World, WorldFault, WorldReport};
use wharf_engine::decide::input::Input;
use wharf_engine::model::action::Action;
use wharf_engine::model::observed::{ObservedGpu, ObservedNode, TaskRef};
use wharf_engine::model::outcome::Denial;
use wharf_engine::model::policy::{Policy, Tenant};
use wharf_engine::model::shortfall::Stage;
use wharf_engine::units::{Resources, Timestamp, Uid};
use wharf_server::desk::Decisions;
use wharf_server::metrics::{FileErrors, Metric, render};
use wharf_server::replica::Replica;

/// A file of the repository.
fn text(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).expect(path)
}

/// The rows of the table below a heading, as cells without backticks; the header row is left out.
fn table(document: &str, heading: &str) -> Vec<Vec<String>> {
    let text = text(document);
    let below = text.lines().skip_while(|line| *line != heading).skip(1);
    let section = below.take_while(|line| !line.starts_with('#'));
    let rows = section.filter(|line| line.starts_with('|')).skip(2);
    let cells = |row: &str| row.split('|').map(|cell| cell.trim().replace('`', "")).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> = rows.map(|row| cells(row.trim_matches('|'))).collect();
    assert!(!rows.is_empty(), "{document} has a table below {heading:?}");
    rows
}

/// One column of a table, sorted.
fn column(rows: &[Vec<String>], index: usize) -> Vec<String> {
    sorted(rows.iter().map(|row| row[index].clone()))
}

fn sorted(words: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut words: Vec<String> = words.into_iter().collect();
    words.sort();
    words
}

#[test]
fn every_error_code_has_a_row_with_its_status_and_exit_code() {
    let rows = table("docs/reference/api.md", "## Error codes");
    let told = sorted(rows.iter().map(|row| row[..3].join(" ")));
    let code = |code: &Code| format!("{} {} {}", code.word(), code.status(), code.exit_code());
    assert_eq!(told, sorted(Code::ALL.iter().map(code)));
}

#[test]
fn every_metric_has_a_row_with_its_name_as_it_is_shown_and_its_type() {
    let told = sorted(table("docs/reference/metrics.md", "# Metrics").iter().map(|row| row[..2].join(" ")));
    let shown = shown_metrics();
    let metric = |metric: Metric| {
        let kind = &shown[metric.name()];
        let suffix = if kind == "counter" { "_total" } else { "" };
        format!("{}{suffix} {kind}", metric.name())
    };
    assert_eq!(told, sorted(Metric::ALL.map(metric)));
    assert_eq!(shown.len(), Metric::ALL.len(), "every metric that is shown is in the list");
}

#[test]
fn every_label_of_a_metric_stands_in_its_row() {
    let rows = table("docs/reference/metrics.md", "# Metrics");
    for line in rendered().lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let labels = &rows.iter().find(|row| row[0] == name).expect(name)[2];
        let label = line.split_once('{').and_then(|(_, rest)| rest.split_once('='));
        let expected = label.map_or("none", |(label, _)| label);
        assert!(labels.starts_with(expected), "{name} has the label {expected}, not {labels}");
    }
}

#[test]
fn every_reason_and_every_stage_has_a_row() {
    let source = text("crates/engine/src/answer/verdict.rs");
    let reasons = table("docs/reference/reasons.md", "## Reasons");
    assert_eq!(column(&reasons, 0), sorted(words_of(&source, "pub fn token(")));
    let stages = table("docs/reference/reasons.md", "## The funnel");
    let known = Stage::VARIANTS.iter().map(|stage| stage.into_str().to_owned());
    assert_eq!(column(&stages, 0), sorted(known));
    let tokens = column(&reasons, 0);
    for row in &stages {
        assert!(tokens.contains(&row[2]), "{} leads to {}, which is no reason", row[0], row[2]);
    }
}

#[test]
fn every_refusal_has_a_row() {
    let refusals = table("docs/reference/reasons.md", "## Refusals");
    assert_eq!(column(&refusals, 0), sorted(Denial::VARIANTS.iter().copied().map(str::to_owned)));
}

#[test]
fn every_key_of_an_example_policy_file_has_a_row() {
    for (name, example) in default_policy_files() {
        // Tenants and pools are maps of the user's own names; the keys below these are not at the start of a line.
        if ["tenants.yaml", "pools.yaml"].contains(name) {
            continue;
        }
        let keys = example.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
        let keys = keys.filter_map(|line| line.split_once(':')).map(|(key, _)| key.to_owned());
        let rows = column(&table("docs/reference/policy.md", &format!("## {name}")), 0);
        let mut told: Vec<String> =
            rows.iter().filter_map(|row| row.split(['.', ',']).next()).map(str::to_owned).collect();
        told.dedup();
        assert_eq!(told, sorted(keys), "{name}");
    }
}

/// The string literals in the function that begins with `signature`, up to the end of its `impl` block.
fn words_of(source: &str, signature: &str) -> Vec<String> {
    let (_, body) = source.split_once(signature).expect("the engine has this function");
    let (body, _) = body.split_once("\n}\n").expect("its block ends");
    body.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Types by name, as `/metrics` tells them.
fn shown_metrics() -> BTreeMap<String, String> {
    let text = rendered();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
}

/// `/metrics` of a control plane for which nothing is unknown, because what is not known is not shown.
fn rendered() -> String {
    let mut controller = Controller::open(MemoryDisk::new(), OneGpu, Settings::default()).unwrap();
    let policy = Policy { tenants: vec![Tenant::without_lines("lab")], ..Policy::default() };
    controller.turn(&[Input::ApplyPolicy(policy)]).unwrap();
    let job = parse_job("a job", "{name: a, tenant: lab, gpus: 1}").unwrap().submission(JOB);
    controller.turn(&[Input::Submit(Box::new(job))]).unwrap();
    let mut times = Histogram::new(3).unwrap();
    times.record(1).unwrap();
    let decisions: Decisions = Arc::new(Mutex::new(times));
    render(&Replica::of(&controller), &decisions, FileErrors::default())
}

const JOB: Uid = Uid(7);

/// A world with one GPU that reports its use and that of the one task on it.
struct OneGpu;

impl World for OneGpu {
    fn now(&self) -> Timestamp {
        Timestamp(1)
    }

    fn obeyed(&self) -> Standing {
        Standing::default()
    }

    fn list(&mut self) -> Result<WorldReport, WorldFault> {
        let gpus = vec![ObservedGpu { healthy: true, ..ObservedGpu::default() }];
        let node = ObservedNode {
            name: "n1".into(),
            up: true,
            model: "h100".into(),
            gpus,
            capacity: Resources { cpu_milli: 64_000, memory: 1 << 40, pods: 100, ..Resources::default() },
            ..ObservedNode::default()
        };
        let report = NodeReport { node, labels: BTreeMap::new(), taints: Vec::new() };
        Ok(WorldReport { nodes: vec![report], ..WorldReport::default() })
    }

    fn changes(&mut self) -> Result<Vec<WorldReport>, WorldFault> {
        Ok(Vec::new())
    }

    fn act(&mut self, _: Standing, _: &[Action]) -> Result<(), WorldFault> {
        Ok(())
    }

    fn next_change(&self) -> Option<Timestamp> {
        None
    }

    fn telemetry(&self) -> Telemetry {
        Telemetry::new(samples)
    }
}

fn samples() -> Samples {
    let sample = Sample { sm_active_milli: Some(500), memory_used_mib: Some(1024) };
    let task = TaskSample {
        sm_active_milli: Some(500),
        sm_active_mean_milli: Some(500),
        memory_used_mib: Some(1024),
        memory_limit_mib: Some(4096),
    };
    Samples {
        at: Timestamp(1),
        gpus: BTreeMap::from([("n1".to_owned(), vec![sample])]),
        tasks: BTreeMap::from([(TaskRef { uid: JOB, task: 0, attempt: 1 }, task)]),
        ooms: Some(BTreeMap::from([(JOB, 1)])),
    }
}
