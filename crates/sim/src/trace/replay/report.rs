//! What came of a replay: a row for each job, and what the rows add up to.

use std::collections::BTreeMap;

use serde::Serialize;

use super::TraceJob;
use super::debt::Debt;

/// Evictions by rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EvictionsBy {
    /// For a guarantee.
    pub guarantee: u64,
    /// For a fair share.
    pub fair_share: u64,
    /// For a higher class or priority.
    pub preempt: u64,
    /// To make room in one piece.
    pub moved: u64,
    /// For a promised start.
    pub reservation: u64,
    /// For a job of the same tenant that was served less.
    pub order: u64,
    /// For a booked window, or at the end of one.
    pub booking: u64,
}

/// What came of one job.
#[derive(Clone, Debug, Serialize)]
pub struct JobRow {
    /// As in the trace.
    pub job_id: String,
    /// As in the trace.
    pub tenant: String,
    /// As in the trace.
    pub class: &'static str,
    /// GPUs of all its tasks.
    pub gpus: f64,
    /// As in the trace.
    pub submit_s: f64,
    /// `None` when it never started.
    pub first_start_s: Option<f64>,
    /// `None` when it did not end.
    pub end_s: Option<f64>,
    /// How long all attempts ran.
    pub run_s: f64,
    /// Time that did not count: work that had to be done again, and getting going again.
    pub lost_s: f64,
    /// How often it was evicted.
    pub evictions: u32,
}

impl JobRow {
    /// A job that never started.
    pub(in crate::trace) fn of(job: &TraceJob) -> Self {
        Self {
            job_id: job.id.clone(),
            tenant: job.tenant.clone(),
            class: job.class.into_str(),
            gpus: gpus(job),
            submit_s: secs(job.submit.0),
            first_start_s: None,
            end_s: None,
            run_s: 0.0,
            lost_s: 0.0,
            evictions: 0,
        }
    }
}

/// Waiting times in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Waits {
    /// Over how many jobs.
    pub jobs: usize,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90 %.
    pub p90: f64,
    /// 99 %.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// Waiting times by what the jobs have in common.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WaitsBy {
    /// By tenant path.
    pub tenant: BTreeMap<String, Waits>,
    /// By class.
    pub class: BTreeMap<String, Waits>,
    /// By GPUs.
    pub size: BTreeMap<String, Waits>,
}

/// What came of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport {
    /// `wharf.sim.trace.v1`.
    pub schema: &'static str,
    /// Who decided.
    pub order: &'static str,
    /// SHA-256 of everything that was read, filled in by who read it.
    pub inputs_sha256: String,
    /// Jobs of the trace.
    pub jobs: usize,
    /// Of these, ended as they should.
    pub succeeded: usize,
    /// Of these, refused at submission, by reason.
    pub refused: BTreeMap<String, usize>,
    /// End minus submission minus true duration: lost work counts as waiting.
    pub wait_s: Waits,
    /// The same, in groups.
    pub wait_s_by: WaitsBy,
    /// Evictions.
    pub evictions: u64,
    /// How many of them by which rule.
    pub evictions_by: EvictionsBy,
    /// Of these, jobs that were moved to make room in one piece.
    pub migrations: u64,
    /// Time beyond [`DEBT_AFTER`](super::debt::DEBT_AFTER) that jobs within their tenant's guarantee waited while
    /// another tenant was above its own, by tenant; only tenants that were owed something.
    pub guarantee_debt_s: BTreeMap<String, Debt>,
    /// Time that did not count, times GPUs: work that had to be done again, and getting going again.
    pub lost_gpu_s: f64,
    /// The same in hours.
    pub lost_gpu_h: f64,
    /// Work that counted, times GPUs.
    pub useful_gpu_s: f64,
    /// GPU-time handed out, of all there was between the first submission and the last end.
    pub alloc_pct: f64,
    /// What must not be.
    pub findings: Vec<String>,
    /// Hash of the last state; empty where a reference decided, which has none.
    pub state_hash: String,
    /// Events in the journal.
    pub events: u64,
    /// CPU time of the process, filled in by who runs it; `None` where it cannot be told.
    pub cpu_s: Option<f64>,
}

impl ReplayReport {
    /// What rows add up to, on so many GPUs. What only the engine knows is left at nothing.
    pub(crate) fn of(order: &'static str, jobs: &[TraceJob], rows: &[JobRow], capacity: usize) -> Self {
        let first = rows.iter().map(|row| row.submit_s).fold(f64::INFINITY, f64::min);
        let last = rows.iter().filter_map(|row| row.end_s).fold(0.0, f64::max);
        let held: f64 = rows.iter().map(|row| row.run_s * row.gpus).sum();
        let redone: f64 = rows.iter().map(|row| row.lost_s * row.gpus).sum();
        let there = (last - first) * count(capacity);
        Self {
            schema: "wharf.sim.trace.v1",
            order,
            inputs_sha256: String::new(),
            jobs: jobs.len(),
            succeeded: rows.iter().filter(|row| row.end_s.is_some()).count(),
            refused: BTreeMap::new(),
            wait_s: waits(waiting(jobs, rows, |_| true)),
            wait_s_by: waits_by(jobs, rows),
            evictions: rows.iter().map(|row| u64::from(row.evictions)).sum(),
            evictions_by: EvictionsBy::default(),
            migrations: 0,
            guarantee_debt_s: BTreeMap::new(),
            lost_gpu_s: rounded(redone),
            lost_gpu_h: rounded(redone / 3600.0),
            useful_gpu_s: rounded(held - redone),
            alloc_pct: if there > 0.0 { rounded(100.0 * held / there) } else { 0.0 },
            findings: Vec::new(),
            state_hash: String::new(),
            events: 0,
            cpu_s: None,
        }
    }
}

pub(crate) fn gpus(job: &TraceJob) -> f64 {
    let parts = job.gpus.units().parts() * u64::from(job.tasks);
    f64::from(u32::try_from(parts).unwrap_or(u32::MAX)) / 3000.0
}

pub(crate) fn secs(millis: u64) -> f64 {
    std::time::Duration::from_millis(millis).as_secs_f64()
}

pub(crate) fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

pub(crate) fn rounded(number: f64) -> f64 {
    // Adding zero makes a negative zero, the sum of nothing, a plain one.
    (number * 1000.0).round() / 1000.0 + 0.0
}

/// Waiting times of the ended jobs that are asked for.
fn waiting(jobs: &[TraceJob], rows: &[JobRow], which: impl Fn(&TraceJob) -> bool) -> Vec<f64> {
    let ended = jobs.iter().zip(rows).filter(|(job, _)| which(job));
    ended.filter_map(|(job, row)| Some((row.end_s? - row.submit_s - secs(job.duration.0)).max(0.0))).collect()
}

fn waits(mut seconds: Vec<f64>) -> Waits {
    if seconds.is_empty() {
        return Waits::default();
    }
    seconds.sort_by(f64::total_cmp);
    // Nearest rank: the smallest value that at least so many percent do not exceed.
    let at = |percent: usize| seconds[(seconds.len() * percent).div_ceil(100).max(1) - 1];
    let mean = seconds.iter().sum::<f64>() / count(seconds.len());
    Waits {
        jobs: seconds.len(),
        mean: rounded(mean),
        p50: rounded(at(50)),
        p90: rounded(at(90)),
        p99: rounded(at(99)),
        max: rounded(at(100)),
    }
}

fn waits_by(jobs: &[TraceJob], rows: &[JobRow]) -> WaitsBy {
    let group = |key: &dyn Fn(&TraceJob) -> String| {
        let mut keys: Vec<String> = jobs.iter().map(key).collect();
        keys.sort();
        keys.dedup();
        let of = |name: &String| waits(waiting(jobs, rows, |job| key(job) == *name));
        keys.iter().map(|name| (name.clone(), of(name))).collect()
    };
    WaitsBy {
        tenant: group(&|job| job.tenant.clone()),
        class: group(&|job| job.class.into_str().to_owned()),
        size: group(&|job| size(gpus(job)).to_owned()),
    }
}

fn size(gpus: f64) -> &'static str {
    match gpus {
        gpus if gpus <= 0.0 => "0",
        gpus if gpus <= 1.0 => "1",
        gpus if gpus < 8.0 => "2-7",
        gpus if gpus <= 8.0 => "8",
        gpus if gpus < 16.0 => "9-15",
        _ => "16+",
    }
}
