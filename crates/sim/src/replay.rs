//! Trace replay: jobs of a file on virtual time, decided by the engine that runs in production.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde::Serialize;
use wharf_controller::codec;
use wharf_controller::disk::{
    Batch, Disk, DiskFault, HistoryKind, HistoryQuery, HistoryRow, Index, Record, Snapshot, Term,
};
use wharf_controller::history::FinishedJob;
use wharf_controller::selectors::{DeviceSelector, NodeSelector};
use wharf_controller::turn::{Controller, Fault, Settings};
use wharf_controller::world::NodeReport;
use wharf_engine::event::Outcome;
use wharf_engine::input::{Input, Submission};
use wharf_engine::job::{Class, GpuAsk, Shape, Spec, Topology};
use wharf_engine::policy::Policy;
use wharf_engine::units::{Millis, Resources, TenantId, Timestamp, TrustId, Uid};

use crate::direct::DirectWorld;
use crate::fleet::SimFleet;

/// When the world of a replay begins, in milliseconds; the trace's zero.
const BEGIN_MS: u64 = 1_000_000;
/// Turns between two checks of the whole state, each of which costs a copy of everything.
const CHECK_EVERY: u64 = 25_000;

/// One job of a trace.
#[derive(Clone, Debug)]
pub struct TraceJob {
    /// Unique in the trace.
    pub id: String,
    /// Path of the tenant.
    pub tenant: String,
    /// How it relates to latency.
    pub class: Class,
    /// Higher first, inside the tenant.
    pub priority: i32,
    /// Wanted tasks.
    pub tasks: u32,
    /// The gang.
    pub min: u32,
    /// GPUs of one task.
    pub gpus: GpuAsk,
    /// Model of its GPUs; any where empty.
    pub model: String,
    /// When it comes, from the trace's zero.
    pub submit: Millis,
    /// How long it really takes.
    pub duration: Millis,
    /// The longest it may run.
    pub limit: Option<Millis>,
    /// How long its owner thinks it runs.
    pub estimate: Option<Millis>,
}

/// What to replay on what.
pub struct Replay {
    /// The jobs; any order.
    pub jobs: Vec<TraceJob>,
    /// The nodes.
    pub nodes: Vec<NodeReport>,
    /// The policy.
    pub policy: Policy,
    /// Makes the jobs' identities.
    pub seed: u64,
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
    /// Work that had to be done again.
    pub lost_s: f64,
    /// How often it was evicted.
    pub evictions: u32,
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
    /// Work that had to be done again, times GPUs.
    pub lost_gpu_s: f64,
    /// Work that counted, times GPUs.
    pub useful_gpu_s: f64,
    /// GPU-time handed out, of all there was between the first submission and the last end.
    pub alloc_pct: f64,
    /// What must not be.
    pub findings: Vec<String>,
    /// Hash of the last state.
    pub state_hash: String,
    /// Events in the journal.
    pub events: u64,
    /// CPU time of the process, filled in by who runs it; `None` where it cannot be told.
    pub cpu_s: Option<f64>,
}

impl Replay {
    /// Runs it over a disk; every record goes to `tap` as well.
    pub fn run(
        mut self,
        disk: impl Disk,
        tap: &mut dyn FnMut(Index, &Record),
    ) -> Result<(ReplayReport, Vec<JobRow>), Fault> {
        self.jobs.sort_by_key(|job| job.submit);
        // A trace is replayed whole: nobody tries again later.
        self.policy.queue_len_max = u32::MAX;
        let world =
            DirectWorld::new(SimFleet::new(self.seed, std::mem::take(&mut self.nodes), Timestamp(BEGIN_MS)));
        let ended = Rc::new(RefCell::new(Vec::new()));
        let tapped = Tapped { disk, tap, ended: Rc::clone(&ended) };
        // The whole journal is what a replay is for: nothing of it is cut.
        let settings = Settings { snapshot_after: u64::MAX / 4, ..Settings::default() };
        let mut player = Player {
            leader: Controller::open(tapped, world.clone(), settings)?,
            world,
            refused: BTreeMap::new(),
            findings: Vec::new(),
            turns: 0,
        };
        player.turn(&[Input::ApplyPolicy(self.policy.clone())])?;
        player.play(&self.jobs, self.seed)?;
        player.check();
        let rows = rows(&self.jobs, self.seed, &ended.borrow(), &player.world);
        Ok((player.report(&self.jobs, &rows, &ended.borrow()), rows))
    }
}

struct Player<D: Disk> {
    leader: Controller<D, DirectWorld>,
    world: DirectWorld,
    refused: BTreeMap<String, usize>,
    findings: Vec<String>,
    turns: u64,
}

impl<D: Disk> Player<D> {
    fn play(&mut self, jobs: &[TraceJob], seed: u64) -> Result<(), Fault> {
        let mut coming = (0u64..).zip(jobs).peekable();
        loop {
            let next_submit = coming.peek().map(|(_, job)| Timestamp(BEGIN_MS + job.submit.0));
            let Some(now) = [next_submit, self.leader.next_wake()].into_iter().flatten().min() else { break };
            self.world.with(|fleet| fleet.advance(now));
            let mut inputs = Vec::new();
            while let Some((number, job)) = coming.next_if(|(_, job)| BEGIN_MS + job.submit.0 <= now.0) {
                inputs.push(Input::Submit(Box::new(submission(job, uid(seed, number)))));
            }
            self.turn(&inputs)?;
            let stuck = coming.peek().is_none() && self.leader.next_wake().is_none();
            if stuck {
                break;
            }
        }
        Ok(())
    }

    fn turn(&mut self, inputs: &[Input]) -> Result<(), Fault> {
        self.turns += 1;
        for reply in self.leader.turn(inputs)? {
            if let Err(rejection) = reply {
                let text = format!("{rejection:?}");
                let word = text.split([' ', '(', '{']).next().unwrap_or_default().to_owned();
                *self.refused.entry(word).or_default() += 1;
            }
        }
        if self.turns.is_multiple_of(CHECK_EVERY) {
            self.check();
        }
        Ok(())
    }

    fn check(&mut self) {
        let found = self.leader.state().check_deep();
        let turn = self.turns;
        self.findings.extend(found.into_iter().map(|finding| format!("turn {turn}: {finding:?}")));
    }

    fn report(self, jobs: &[TraceJob], rows: &[JobRow], ended: &[HistoryRow]) -> ReplayReport {
        let finished: Vec<FinishedJob> = finished(ended);
        let state = self.leader.state();
        let capacity: usize = state.fleet.nodes().map(|(_, node)| node.facts.gpus.len()).sum();
        let first = rows.iter().map(|row| row.submit_s).fold(f64::INFINITY, f64::min);
        let last = rows.iter().filter_map(|row| row.end_s).fold(0.0, f64::max);
        let held: f64 = rows.iter().map(|row| row.run_s * row.gpus).sum();
        let there = (last - first) * count(capacity);
        ReplayReport {
            schema: "wharf.sim.trace.v1",
            inputs_sha256: String::new(),
            jobs: jobs.len(),
            succeeded: finished.iter().filter(|job| job.outcome == Outcome::Succeeded).count(),
            refused: self.refused,
            wait_s: waits(waiting(jobs, rows, |_| true)),
            wait_s_by: waits_by(jobs, rows),
            evictions: finished.iter().map(|job| u64::from(job.evictions)).sum(),
            lost_gpu_s: rounded(rows.iter().map(|row| row.lost_s * row.gpus).sum()),
            useful_gpu_s: rounded(rows.iter().map(|row| (row.run_s - row.lost_s) * row.gpus).sum()),
            alloc_pct: if there > 0.0 { rounded(100.0 * held / there) } else { 0.0 },
            findings: self.findings,
            state_hash: codec::hex(&codec::state_hash(state)),
            events: state.index(),
            cpu_s: None,
        }
    }
}

fn finished(ended: &[HistoryRow]) -> Vec<FinishedJob> {
    ended.iter().filter_map(|row| serde_json::from_str(&row.body).ok()).collect()
}

fn uid(seed: u64, number: u64) -> Uid {
    Uid((u128::from(seed) << 64) | u128::from(number))
}

fn submission(job: &TraceJob, uid: Uid) -> Submission {
    let models = if job.model.is_empty() { Vec::new() } else { vec![job.model.clone()] };
    let devices = DeviceSelector { models, memory_gb_min: None };
    let spec = Spec {
        name: job.id.clone(),
        tenant: TenantId(0),
        class: job.class,
        priority: job.priority,
        tasks: job.tasks,
        min: job.min,
        shape: Shape::of(job.gpus, Resources { pods: 1, ..Resources::default() }),
        topology: Topology::default(),
        preemptible: true,
        trust: TrustId(0),
        time_limit: job.limit,
        estimate: job.estimate,
        checkpoint: None,
        retries: 0,
        labels: Vec::new(),
        payload: format!(r#"{{"duration_ms":{}}}"#, job.duration.0),
    };
    let devices = if job.model.is_empty() { String::new() } else { devices.source() };
    let nodes = NodeSelector::default().source();
    let (tenant, any_of_devices) = (job.tenant.clone(), Vec::new());
    Submission { uid, tenant, trust: None, nodes, devices, any_of_devices, gang_within: None, spec }
}

fn rows(jobs: &[TraceJob], seed: u64, ended: &[HistoryRow], world: &DirectWorld) -> Vec<JobRow> {
    let past: BTreeMap<String, FinishedJob> =
        finished(ended).into_iter().map(|job| (job.uid.clone(), job)).collect();
    let row = |(number, job): (u64, &TraceJob)| {
        let uid = uid(seed, number);
        let past = past.get(&format!("{:032x}", uid.0));
        let since_begin = |at: u64| secs(at.saturating_sub(BEGIN_MS));
        JobRow {
            job_id: job.id.clone(),
            tenant: job.tenant.clone(),
            class: job.class.word(),
            gpus: gpus(job),
            submit_s: secs(job.submit.0),
            first_start_s: past.and_then(|past| past.first_start).map(since_begin),
            end_s: past.map(|past| since_begin(past.ended_at)),
            run_s: past.map_or(0.0, |past| secs(past.ran_ms)),
            lost_s: secs(world.with(|fleet| fleet.progress(uid)).lost_ms),
            evictions: past.map_or(0, |past| past.evictions),
        }
    };
    (0u64..).zip(jobs).map(row).collect()
}

fn gpus(job: &TraceJob) -> f64 {
    let parts = job.gpus.units().parts() * u64::from(job.tasks);
    f64::from(u32::try_from(parts).unwrap_or(u32::MAX)) / 3000.0
}

fn secs(millis: u64) -> f64 {
    std::time::Duration::from_millis(millis).as_secs_f64()
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

fn rounded(number: f64) -> f64 {
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
        class: group(&|job| job.class.word().to_owned()),
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

/// A disk that shows what is written to it.
struct Tapped<'a, D> {
    disk: D,
    tap: &'a mut dyn FnMut(Index, &Record),
    ended: Rc<RefCell<Vec<HistoryRow>>>,
}

impl<D: Disk> Disk for Tapped<'_, D> {
    fn take_term(&mut self, above: Term) -> Result<Term, DiskFault> {
        self.disk.take_term(above)
    }

    fn snapshot(&mut self) -> Result<Option<Snapshot>, DiskFault> {
        self.disk.snapshot()
    }

    fn read(
        &mut self,
        from: Index,
        each: &mut dyn FnMut(Index, Record) -> Result<(), DiskFault>,
    ) -> Result<Index, DiskFault> {
        self.disk.read(from, each)
    }

    fn append(&mut self, batch: Batch<'_>) -> Result<(), DiskFault> {
        self.disk.append(batch)?;
        for (index, record) in (batch.expected..).zip(batch.records) {
            (self.tap)(index, record);
        }
        let ended = batch.history.iter().filter(|row| row.kind == HistoryKind::Job);
        self.ended.borrow_mut().extend(ended.cloned());
        Ok(())
    }

    fn put_snapshot(&mut self, term: Term, snapshot: &Snapshot) -> Result<(), DiskFault> {
        self.disk.put_snapshot(term, snapshot)
    }

    fn history(&mut self, query: &HistoryQuery) -> Result<Vec<HistoryRow>, DiskFault> {
        self.disk.history(query)
    }

    fn trim_history(&mut self, term: Term, before: u64) -> Result<(), DiskFault> {
        self.disk.trim_history(term, before)
    }
}
