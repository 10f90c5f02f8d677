//! Trace replay: jobs of a file on virtual time, decided by the engine that runs in production.

mod debt;
mod report;
mod tapped_disk;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use wharf_controller::codec;
use wharf_controller::disk::{Disk, HistoryRow, Index, Record};
use wharf_controller::history::FinishedJob;
use wharf_controller::selectors::{DeviceSelector, NodeSelector};
use wharf_controller::turn::{Controller, Evictions, Fault, Settings};
use wharf_controller::world::NodeReport;
use wharf_engine::decide::input::Input;
use wharf_engine::model::exit::Outcome;
use wharf_engine::model::job::{Checkpoint, Class, GpuAsk, Shape, Spec};
use wharf_engine::model::policy::Policy;
use wharf_engine::model::submission::Submission;
use wharf_engine::units::{Millis, Resources, Timestamp, Uid};

use crate::world::direct::DirectWorld;
use crate::world::fleet::SimFleet;

use debt::Debts;
use tapped_disk::TappedDisk;

pub use debt::{DEBT_AFTER, Debt};
pub(crate) use report::secs;
pub use report::{EvictionsBy, JobRow, ReplayReport, Waits, WaitsBy};

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
    /// What it promises about saving its work, and keeps.
    pub contract: Option<Contract>,
}

/// What a job of a trace promises about saving its work, and what leaving costs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contract {
    /// How often it saves by itself.
    pub every: Millis,
    /// Asked to leave, it is gone after so long.
    pub grace: Millis,
    /// How long it takes to get going again, each time.
    pub restart: Millis,
    /// Whether it saves when asked. What it has done by the ask is kept then; else it runs through the grace and falls
    /// back to what it last saved by itself.
    pub on_request: bool,
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
        let tapped = TappedDisk { disk, tap, ended: Rc::clone(&ended) };
        // The whole journal is what a replay is for: nothing of it is cut.
        let settings = Settings { snapshot_after: u64::MAX / 4, ..Settings::default() };
        let mut player = Player {
            leader: Controller::open(tapped, world.clone(), settings)?,
            world,
            refused: BTreeMap::new(),
            findings: Vec::new(),
            debts: Debts::default(),
            turns: 0,
        };
        player.turn(&[Input::ApplyPolicy(self.policy.clone())])?;
        player.play(&self.jobs, self.seed)?;
        player.check();
        let ended = finished(&ended.borrow());
        let rows = rows(&self.jobs, self.seed, &ended, &player.world);
        Ok((player.report(&self.jobs, &rows, &ended), rows))
    }
}

struct Player<D: Disk> {
    leader: Controller<D, DirectWorld>,
    world: DirectWorld,
    refused: BTreeMap<String, usize>,
    findings: Vec<String>,
    debts: Debts,
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
        self.debts.look(self.leader.state(), self.leader.now());
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

    fn report(self, jobs: &[TraceJob], rows: &[JobRow], ended: &[FinishedJob]) -> ReplayReport {
        let state = self.leader.state();
        let capacity: usize = state.fleet.nodes().map(|(_, node)| node.facts.gpus.len()).sum();
        let figures = self.leader.figures();
        let Evictions { guarantee, fair_share, preempt, moved, reservation, order, booking, drain: _ } =
            figures.evictions;
        let mut findings = self.findings;
        if figures.plan_panics > 0 {
            findings.push(format!("{} plans failed by a bug and were left out", figures.plan_panics));
        }
        ReplayReport {
            succeeded: ended.iter().filter(|job| job.outcome == Outcome::Succeeded).count(),
            refused: self.refused,
            evictions_by: EvictionsBy { guarantee, fair_share, preempt, moved, reservation, order, booking },
            migrations: moved,
            guarantee_debt_s: self.debts.into_report(state, self.leader.now()),
            findings,
            state_hash: codec::hex(&codec::state_hash(state)),
            events: state.index(),
            ..ReplayReport::of("wharf", jobs, rows, capacity)
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
        class: job.class,
        priority: job.priority,
        tasks: job.tasks,
        min: job.min,
        time_limit: job.limit,
        estimate: job.estimate,
        checkpoint: job.contract.map(|Contract { every, grace, on_request, .. }| Checkpoint {
            every,
            grace,
            on_request,
        }),
        payload: payload(job),
        ..Spec::of(job.id.clone(), Shape::of(job.gpus, Resources { pods: 1, ..Resources::default() }))
    };
    let devices = if job.model.is_empty() { String::new() } else { devices.source() };
    let nodes = NodeSelector::default().source();
    Submission { nodes, devices, ..Submission::of(uid, job.tenant.clone(), spec) }
}

/// What the simulated fleet is told of a job, and nobody else.
fn payload(job: &TraceJob) -> String {
    let duration_ms = job.duration.0;
    let Some(Contract { grace, restart, on_request, .. }) = job.contract else {
        return format!(r#"{{"duration_ms":{duration_ms}}}"#);
    };
    // Who cannot save when asked needs longer than it has, so that it is stopped at the end of its grace.
    let checkpoint_ms = if on_request { grace.0 } else { grace.0 + 1 };
    let restart_ms = restart.0;
    format!(
        r#"{{"duration_ms":{duration_ms},"checkpoint_ms":{checkpoint_ms},"saves_as_of_ask":true,"restart_ms":{restart_ms}}}"#
    )
}

fn rows(jobs: &[TraceJob], seed: u64, ended: &[FinishedJob], world: &DirectWorld) -> Vec<JobRow> {
    let past: BTreeMap<&str, &FinishedJob> = ended.iter().map(|job| (job.uid.as_str(), job)).collect();
    let row = |(number, job): (u64, &TraceJob)| {
        let uid = uid(seed, number);
        let past = past.get(format!("{:032x}", uid.0).as_str());
        let since_begin = |at: u64| secs(at.saturating_sub(BEGIN_MS));
        JobRow {
            first_start_s: past.and_then(|past| past.first_start).map(since_begin),
            end_s: past.map(|past| since_begin(past.ended_at)),
            run_s: past.map_or(0.0, |past| secs(past.ran_ms)),
            lost_s: secs(world.with(|fleet| fleet.progress(uid)).lost_ms),
            evictions: past.map_or(0, |past| past.evictions),
            ..JobRow::of(job)
        }
    };
    (0u64..).zip(jobs).map(row).collect()
}
