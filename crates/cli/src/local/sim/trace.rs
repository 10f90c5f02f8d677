//! Replay of a trace: our own CSV in, a report and one row a job out.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use wharf_api::file::fleet::load_fleet;
use wharf_api::file::policy::load_policy;
use wharf_controller::codec;
use wharf_controller::disk::{Index, Record};
use wharf_controller::memory::MemoryDisk;
use wharf_controller::sqlite::{Mode, SqliteDisk};
use wharf_controller::world::NodeReport;
use wharf_engine::model::actor::Actor;
use wharf_engine::model::job::{Class, GPUS_PER_TASK_MAX, GpuAsk, TASKS_MAX};
use wharf_engine::model::policy::{Policy, Tenant};
use wharf_engine::state::event::Event;
use wharf_engine::units::{GpuUnits, Millis};
use wharf_server::policy::errors_text;
use wharf_sim::trace::replay::{JobRow, Replay, ReplayReport, TraceJob};

use super::philly;
use crate::args::{Format, SimArgs, TraceFormat};
use crate::input::files;
use crate::local::process::cpu_seconds;
use crate::render::problem::Usage;

/// One row of the file. Columns from `model` on may be absent.
#[derive(Debug, Deserialize)]
struct Row {
    job_id: String,
    tenant: String,
    class: Class,
    priority: Option<i32>,
    tasks: Option<u32>,
    min: Option<u32>,
    gpus: f64,
    #[serde(default)]
    model: String,
    submit_s: f64,
    duration_s: f64,
    #[serde(default)]
    limit_s: Option<f64>,
    #[serde(default)]
    estimate_s: Option<f64>,
}

pub(super) fn run(args: &SimArgs) -> anyhow::Result<ExitCode> {
    let file = args.trace.as_deref().expect("clap asks for one kind of work");
    if let Some(dir) = args.data.as_ref().filter(|dir| dir.join("journal.sqlite").exists()) {
        let what = format!("{} already holds a journal", dir.display());
        return Err(
            Usage { what, next: "a replay begins a new one: choose an empty directory".to_owned() }.into()
        );
    }
    match args.format {
        TraceFormat::Wharf => run_own(file, args),
        TraceFormat::Philly => philly::run(file, args),
    }
}

fn run_own(file: &Path, args: &SimArgs) -> anyhow::Result<ExitCode> {
    if let Some(flag) = args.philly.given().first() {
        let what = format!("{flag} is for the Philly trace");
        return Err(Usage { what, next: "add --format philly, or leave it out".to_owned() }.into());
    }
    let Some(fleet) = &args.fleet else {
        let what = "a trace needs a fleet".to_owned();
        return Err(Usage { what, next: "add --fleet NAME|FILE, as in --fleet pod".to_owned() }.into());
    };
    let given = files::read(file)?;
    let jobs = parse(&file.display().to_string(), &given.text).map_err(|error| wrong_trace(&error))?;
    let policy = policy(args.policy.as_deref(), &jobs)?;
    let (nodes, fleet_hash) = fleet_of(fleet)?;
    let inputs = files::combined(&[given.sha256, fleet_hash, policy_hash(&policy)]);
    let replay = Replay { jobs, nodes, policy, seed: args.seed };
    let (mut report, rows) = play(replay, args)?;
    report.inputs_sha256 = inputs;
    report.cpu_s = cpu_seconds();
    if let Some(path) = &args.jobs {
        write_rows(path, &rows)?;
    }
    show(&report, args.output)?;
    Ok(if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// A file that is not a trace is a wrong argument.
pub(super) fn wrong_trace(error: &anyhow::Error) -> Usage {
    Usage {
        what: format!("{error:#}"),
        next: "see docs/reference/cli.md for the columns of a trace".to_owned(),
    }
}

/// The nodes of a fleet, and what its file hashes to.
pub(super) fn fleet_of(name: &str) -> anyhow::Result<(Vec<NodeReport>, [u8; 32])> {
    let loaded = load_fleet(name)?;
    let bytes = std::fs::read(name).unwrap_or_else(|_| name.as_bytes().to_vec());
    Ok((loaded.nodes, Sha256::digest(bytes).into()))
}

pub(super) fn policy_hash(policy: &Policy) -> [u8; 32] {
    Sha256::digest(policy.digest.as_bytes()).into()
}

pub(super) fn play(replay: Replay, args: &SimArgs) -> anyhow::Result<(ReplayReport, Vec<JobRow>)> {
    let mut events = match &args.events {
        Some(path) => Some(BufWriter::new(
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?,
        )),
        None => None,
    };
    let mut failed = None;
    let mut tap = |index: Index, record: &Record| {
        if let Some(out) = &mut events {
            let written = write_event(out, index, record);
            failed = failed.take().or(written.err());
        }
    };
    let played = match &args.data {
        Some(dir) => replay.run(SqliteDisk::open(dir, Mode::Bulk)?, &mut tap)?,
        None => replay.run(MemoryDisk::new(), &mut tap)?,
    };
    if let Some(error) = failed {
        return Err(error).context("cannot write the events");
    }
    if let Some(mut out) = events {
        out.flush().context("cannot write the events")?;
    }
    Ok(played)
}

fn write_event(out: &mut impl Write, index: Index, record: &Record) -> std::io::Result<()> {
    #[derive(Serialize)]
    struct Line {
        index: Index,
        at_ms: u64,
        event: Event,
        actor: Option<Actor>,
    }
    let read = codec::decode_record(record, "the trace's journal").map_err(std::io::Error::other)?;
    let line = Line { index, at_ms: record.at, event: read.event, actor: read.actor };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}

/// Reads a trace; an error names the line and what is allowed.
fn parse(file: &str, text: &str) -> anyhow::Result<Vec<TraceJob>> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let mut jobs = Vec::new();
    let mut seen = BTreeSet::new();
    let headers = reader.headers().with_context(|| format!("{file}:1: no header"))?.clone();
    for record in reader.records() {
        let record = record.with_context(|| format!("{file}: not CSV"))?;
        let line = record.position().map_or(0, csv::Position::line);
        let row: Row = record.deserialize(Some(&headers)).with_context(|| format!(
            "{file}:{line}: columns are job_id,tenant,class,priority,tasks,min,gpus,model,submit_s,duration_s,limit_s,estimate_s"
        ))?;
        let job = job(row).with_context(|| format!("{file}:{line}"))?;
        if !seen.insert(job.id.clone()) {
            bail!("{file}:{line}: job_id {:?} stands twice", job.id);
        }
        jobs.push(job);
    }
    if jobs.is_empty() {
        bail!("{file}: there is no job in it");
    }
    Ok(jobs)
}

fn job(row: Row) -> anyhow::Result<TraceJob> {
    let tasks = row.tasks.unwrap_or(1);
    let min = row.min.unwrap_or(tasks);
    if tasks == 0 || tasks > TASKS_MAX {
        bail!("tasks {tasks} is not between 1 and {TASKS_MAX}");
    }
    if min == 0 || min > tasks {
        bail!("min {min} is not between 1 and tasks, which is {tasks}");
    }
    Ok(TraceJob {
        id: row.job_id,
        tenant: row.tenant,
        class: row.class,
        priority: row.priority.unwrap_or(0),
        tasks,
        min,
        gpus: gpus(row.gpus)?,
        model: row.model,
        submit: millis(row.submit_s)?,
        duration: millis(row.duration_s)?,
        limit: row.limit_s.map(millis).transpose()?,
        estimate: row.estimate_s.map(millis).transpose()?,
        contract: None,
    })
}

fn gpus(number: f64) -> anyhow::Result<GpuAsk> {
    if !(0.0..=f64::from(GPUS_PER_TASK_MAX)).contains(&number) {
        bail!("gpus {number} is not between 0 and {GPUS_PER_TASK_MAX}");
    }
    if number.fract() == 0.0 {
        return Ok(GpuAsk::Whole(whole(number)?.try_into()?));
    }
    if number > 1.0 {
        bail!("gpus {number} is neither whole nor a part of one GPU");
    }
    Ok(GpuAsk::Share(GpuUnits::from_parts(whole((number * 1000.0).round())? * 3)))
}

pub(super) fn millis(seconds: f64) -> anyhow::Result<Millis> {
    if !(0.0..=1e10).contains(&seconds) {
        bail!("{seconds} is not a number of seconds");
    }
    Ok(Millis(whole((seconds * 1000.0).round())?))
}

/// A float that is a whole number, as one.
pub(super) fn whole(number: f64) -> anyhow::Result<u64> {
    format!("{number:.0}").parse().with_context(|| format!("{number} is not a whole number"))
}

/// The policy that is asked for, or one without promises and limits for whoever the trace names.
pub(super) fn policy(dir: Option<&Path>, jobs: &[TraceJob]) -> anyhow::Result<Policy> {
    let names: BTreeSet<&str> = jobs.iter().map(|job| job.tenant.as_str()).collect();
    if let Some(dir) = dir {
        let policy = load_policy(dir).map_err(|errors| anyhow::anyhow!(errors_text(&errors)))?;
        let unknown = |name: &&&str| !policy.tenants.iter().any(|tenant| tenant.path == ***name);
        if let Some(name) = names.iter().find(unknown) {
            let known: Vec<&str> = policy.tenants.iter().map(|tenant| tenant.path.as_str()).collect();
            bail!(
                "the trace has jobs of {name:?}, which the policy does not name; it names: {}",
                known.join(", ")
            );
        }
        return Ok(policy);
    }
    let mut paths = BTreeSet::new();
    for name in names {
        let ends = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
        paths.extend(ends.map(|end| &name[..end]));
    }
    Ok(Policy {
        digest: "no promises, no limits".to_owned(),
        tenants: paths.into_iter().map(Tenant::without_lines).collect(),
        ..Policy::default()
    })
}

pub(super) fn write_rows(path: &Path, rows: &[JobRow]) -> anyhow::Result<()> {
    let mut out = csv::Writer::from_path(path).with_context(|| format!("cannot write {}", path.display()))?;
    for row in rows {
        out.serialize(row)?;
    }
    Ok(out.flush()?)
}

pub(super) fn show(report: &ReplayReport, format: Format) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if format == Format::Json {
        writeln!(out, "{}", serde_json::to_string(report)?)?;
        return Ok(());
    }
    writeln!(out, "{} jobs, {} succeeded, {} events", report.jobs, report.succeeded, report.events)?;
    for (reason, count) in &report.refused {
        writeln!(out, "refused {count}: {reason}")?;
    }
    let waits = report.wait_s;
    writeln!(
        out,
        "wait s: mean {} p50 {} p90 {} p99 {} max {}",
        waits.mean, waits.p50, waits.p90, waits.p99, waits.max
    )?;
    writeln!(
        out,
        "evictions {}, {} of them moves, lost {} GPU s, useful {} GPU s",
        report.evictions, report.migrations, report.lost_gpu_s, report.useful_gpu_s
    )?;
    for (tenant, debt) in &report.guarantee_debt_s {
        writeln!(out, "owed {tenant}: {} s at most, {} jobs", debt.max, debt.jobs)?;
    }
    writeln!(out, "allocated {} %", report.alloc_pct)?;
    for finding in &report.findings {
        writeln!(out, "finding: {finding}")?;
    }
    writeln!(out, "state {}", report.state_hash)?;
    Ok(())
}
