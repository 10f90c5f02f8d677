//! One decision of the engine, alone: `plan` on a state made of a shape, in CPU time and in bytes.
//!
//! The state is built once and `plan` only reads it, so every run makes the same plan; that it does is checked. Time
//! and allocations are taken in different runs. Beside them stands a fixed piece of work, the calibration, so that
//! a slow machine can be told from a slow program.

mod cases;
mod clock;

use std::path::Path;
use std::time::Instant;

use anyhow::ensure;
use serde::Serialize;
use wharf_api::v1::{Code, Problem};
use wharf_controller::codec;
use wharf_engine::plan::{Memory, Plan, plan};
use wharf_engine::units::JobId;
use wharf_sim::bench::shape::{BadShape, Built, JobGroup, Shape};

use super::{Measured, rounded};
use crate::args::EngineArgs;
use crate::input::files;
use crate::local::allocations::counted;
use crate::local::process::cpu_time;
use cases::Bars;
use clock::{Times, calibration_ms, millis, quickest_us, timed};

#[derive(Debug, Serialize)]
pub(super) struct Engine {
    schema: &'static str,
    case: String,
    runs: u32,
    nodes: u64,
    gpus: u64,
    running: u64,
    pending: u64,
    build_ms: f64,
    #[serde(flatten)]
    decision: Decision,
    #[serde(flatten)]
    after: After,
    #[serde(flatten)]
    late: Late,
    findings: usize,
    calibration_ms: f64,
    #[serde(flatten)]
    bars: Bars,
    ok: bool,
}

/// The plan that is measured.
#[derive(Debug, Serialize)]
struct Decision {
    cpu_ms: f64,
    cpu_ms_min: f64,
    wall_ms: f64,
    wall_ms_min: f64,
    allocated_bytes: u64,
    allocated_peak_bytes: u64,
    started: usize,
    tasks_started: usize,
    evicted: usize,
    result_hash: String,
}

/// What follows once it is applied and nothing changes.
#[derive(Debug, Serialize)]
struct After {
    /// Of the oldest job that still waits.
    reason: Option<&'static str>,
    reason_ms: Option<f64>,
    again_us: f64,
    again_events: usize,
}

/// The plan for what comes late, where something does.
#[derive(Debug, Default, Serialize)]
struct Late {
    #[serde(rename = "late_cpu_ms")]
    cpu_ms: Option<f64>,
    #[serde(rename = "late_cpu_ms_min")]
    cpu_ms_min: Option<f64>,
    #[serde(rename = "late_started")]
    started: Option<usize>,
    #[serde(rename = "late_evicted")]
    evicted: Option<usize>,
    /// Starts that are promised when it is made.
    reserved: Option<usize>,
    #[serde(flatten)]
    burst: Burst,
}

/// From a service that wants more to its last replica that is placed.
#[derive(Debug, Default, Serialize)]
struct Burst {
    /// All decisions, those included that the leaving of others takes.
    #[serde(rename = "burst_cpu_ms")]
    cpu_ms: Option<f64>,
    /// In the world's time: as long as those who leave may take.
    #[serde(rename = "burst_world_ms")]
    world_ms: Option<u64>,
    /// Replicas that have their place then.
    #[serde(rename = "burst_placed")]
    placed: Option<usize>,
}

impl Measured for Engine {
    fn keeps_promise(&self) -> bool {
        self.ok
    }
}

/// Measures a named case, or the shape of a file, which has no bars.
pub(super) fn run(args: &EngineArgs) -> anyhow::Result<Engine> {
    if let Some(case) = args.case {
        return measure(case.into_str(), &cases::shape(case), cases::bars(case), args.runs);
    }
    let file = args.shape.as_deref().expect("clap asks for a case or a shape");
    let shape = Shape::parse(&files::read(file)?.text).map_err(|wrong| refused(file, &wrong))?;
    let measured = measure(&file.display().to_string(), &shape, Bars::default(), args.runs);
    measured.map_err(|error| match error.downcast_ref::<BadShape>() {
        Some(wrong) => refused(file, wrong).into(),
        None => error,
    })
}

/// What is wrong with a file, as every command says it.
fn refused(file: &Path, wrong: &BadShape) -> Problem {
    let BadShape { line, what, next } = wrong;
    let line = line.map(|line| format!(":{line}")).unwrap_or_default();
    let detail = format!("{}{line}: {what}", file.display());
    let title = "It is no shape that can be measured".to_owned();
    Problem { title, ..Problem::new(Code::BadRequest, detail) }.hint(next)
}

fn measure(name: &str, shape: &Shape, bars: Bars, runs: u32) -> anyhow::Result<Engine> {
    let begin = Instant::now();
    let mut built = shape.build()?;
    let build_ms = rounded(millis(begin.elapsed()));
    let mut memory = Memory::default();
    let (made, decision) = decide(&built, &memory, runs)?;
    apply(&mut built, &mut memory, &made);
    let after = after(&built, &memory);
    let late = late(&mut built, &mut memory, shape, runs)?;
    let mut engine = Engine {
        schema: "wharf.bench.engine.v1",
        case: name.to_owned(),
        runs,
        nodes: shape.nodes_len(),
        gpus: shape.gpus_len(),
        running: jobs_len(&shape.running),
        pending: jobs_len(&shape.pending),
        build_ms,
        decision,
        after,
        late,
        findings: built.state.check().len(),
        calibration_ms: rounded(calibration_ms(runs)),
        bars,
        ok: false,
    };
    engine.ok = engine.is_within(bars);
    Ok(engine)
}

impl Engine {
    /// Whether it is quick, and did what it was quick at: a plan that does nothing keeps no promise.
    fn is_within(&self, bars: Bars) -> bool {
        let decided_ms = self.decision.cpu_ms + self.after.reason_ms.unwrap_or_default();
        self.findings == 0
            && bars.bar_ms.is_none_or(|bar| decided_ms <= bar)
            && bars.allocated_bar_bytes.is_none_or(|bar| self.decision.allocated_bytes <= bar)
            && bars.again_bar_us.is_none_or(|bar| self.after.again_us <= bar)
            && bars.started_wanted.is_none_or(|wanted| self.decision.started == wanted)
            && bars.late_bar_ms.is_none_or(|bar| self.late.cpu_ms.is_some_and(|took| took <= bar))
            && bars.late_evicted_wanted.is_none_or(|wanted| self.late.evicted == Some(wanted))
            && bars.reserved_wanted.is_none_or(|wanted| self.late.reserved == Some(wanted))
            && bars.burst_placed_wanted.is_none_or(|wanted| self.late.burst.placed == Some(wanted))
    }
}

fn jobs_len(groups: &[JobGroup]) -> u64 {
    groups.iter().map(|group| u64::from(group.count)).sum()
}

/// One decision, made `runs` times for its time and once more for its allocations.
fn decide(built: &Built, memory: &Memory, runs: u32) -> anyhow::Result<(Plan, Decision)> {
    let once = || plan(&built.state, built.state.tenants.policy(), memory, built.now);
    let (made, times) = timed_plan(once, runs)?;
    let (_, allocated) = counted(once);
    let Counts { started, tasks_started, evicted } = counts(&made);
    let events = codec::encode_all(&made.events(&built.state, built.now));
    let decision = Decision {
        cpu_ms: rounded(times.cpu_ms()),
        cpu_ms_min: rounded(times.cpu_ms_min()),
        wall_ms: rounded(times.wall_ms()),
        wall_ms_min: rounded(times.wall_ms_min()),
        allocated_bytes: allocated.total,
        allocated_peak_bytes: allocated.peak,
        started,
        tasks_started,
        evicted,
        result_hash: codec::hex(blake3::hash(&events).as_bytes()),
    };
    Ok((made, decision))
}

fn timed_plan(once: impl Fn() -> Plan, runs: u32) -> anyhow::Result<(Plan, Times)> {
    let (mut plans, times) = timed(runs, once);
    let made = plans.pop().expect("there is at least one run");
    ensure!(plans.iter().all(|other| *other == made), "the same state was planned in two ways");
    Ok((made, times))
}

/// What a plan does, counted in jobs and tasks.
struct Counts {
    started: usize,
    tasks_started: usize,
    evicted: usize,
}

fn counts(made: &Plan) -> Counts {
    let given = made.starts.iter().chain(&made.grown).chain(&made.earmarks);
    Counts {
        started: made.starts.len() + made.earmarks.len(),
        tasks_started: given.map(|start| start.tasks.len()).sum(),
        evicted: made.evictions.len(),
    }
}

fn apply(built: &mut Built, memory: &mut Memory, made: &Plan) {
    memory.remember(made, &built.state, built.now);
    let events = made.events(&built.state, built.now);
    built.state.apply_all(&events);
}

fn after(built: &Built, memory: &Memory) -> After {
    let policy = built.state.tenants.policy();
    let (again, again_us) = quickest_us(|| plan(&built.state, policy, memory, built.now));
    let begin = cpu_time();
    let verdict = oldest_waiting(built).and_then(|job| built.state.verdict(job, built.now));
    let reason_ms = rounded(millis(cpu_time().saturating_sub(begin)));
    After {
        reason: verdict.as_ref().map(|verdict| verdict.reason.token()),
        reason_ms: verdict.map(|_| reason_ms),
        again_us: rounded(again_us),
        again_events: again.events(&built.state, built.now).len(),
    }
}

fn oldest_waiting(built: &Built) -> Option<JobId> {
    let kinds = built.state.jobs.waiting().values();
    kinds.filter_map(|kind| kind.jobs.first()).min().map(|&(_, job)| job)
}

/// The decision on what comes, and what ends, when the first plan was applied, remembering what that one refused.
fn late(built: &mut Built, memory: &mut Memory, shape: &Shape, runs: u32) -> anyhow::Result<Late> {
    if shape.late.is_empty() && shape.ends == 0 && shape.scale.is_none() {
        return Ok(Late::default());
    }
    built.submit("late", &shape.late)?;
    if shape.ends > 0 {
        built.end(shape.ends)?;
    }
    if let Some(replicas) = shape.scale {
        built.scale(replicas)?;
    }
    let reserved = built.state.reservations.iter().count();
    let (made, times) =
        timed_plan(|| plan(&built.state, built.state.tenants.policy(), memory, built.now), runs)?;
    let Counts { started, tasks_started: _, evicted } = counts(&made);
    apply(built, memory, &made);
    let burst = if shape.scale.is_some() { burst(built, memory, times.cpu_ms())? } else { Burst::default() };
    Ok(Late {
        burst,
        cpu_ms: Some(rounded(times.cpu_ms())),
        cpu_ms_min: Some(rounded(times.cpu_ms_min())),
        started: Some(started),
        evicted: Some(evicted),
        reserved: Some(reserved),
    })
}

/// Everybody who was asked leaves as late as it may, and every replica is placed where they were.
fn burst(built: &mut Built, memory: &mut Memory, asked_ms: f64) -> anyhow::Result<Burst> {
    let (begin, asked_at) = (cpu_time(), built.now);
    built.leave()?;
    built.tick()?;
    let made = plan(&built.state, built.state.tenants.policy(), memory, built.now);
    apply(built, memory, &made);
    let took = millis(cpu_time().saturating_sub(begin));
    let services = built.state.jobs.services().iter();
    let holdings = services.filter_map(|&job| built.state.ledger.holding(job));
    Ok(Burst {
        cpu_ms: Some(rounded(asked_ms + took)),
        world_ms: Some(built.now.0 - asked_at.0),
        placed: Some(holdings.map(|holding| holding.staying().count()).sum()),
    })
}
