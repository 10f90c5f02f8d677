//! Behaviour cases: a fleet, a tenant tree and jobs as they stand in; who holds GPUs once settled out.
//!
//! A case is one JSON object a line. It is decided by the engine itself, on a world that does at once what it is
//! told; it has settled when five further plans change nothing.

pub mod deliberate;
mod devices;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wharf_controller::disk::Standing;
use wharf_controller::world::NodeReport;
use wharf_engine::answer::verdict::Reason;
use wharf_engine::decide::input::Input;
use wharf_engine::model::action::{Action, StartTask};
use wharf_engine::model::job::{Checkpoint, GpuAsk, Shape, Spec};
use wharf_engine::model::observed::{ObservedGpu, ObservedNode};
use wharf_engine::model::policy::{Amount, Gangs, GpuQuota, Mode, Policy, Preemption, Quota, Tenant};
use wharf_engine::model::rejection::Rejection;
use wharf_engine::model::shortfall::{Quantity, Shortfall};
use wharf_engine::model::submission::Submission;
use wharf_engine::plan::{Memory, plan};
use wharf_engine::state::State;
use wharf_engine::units::{GpuUnits, JobId, Millis, Resources, TenantId, Timestamp, Uid};

use crate::world::fleet::SimFleet;
use devices::Devices;

/// Tenant priority where a case gives none: the middle of what the cases use.
const PRIORITY_DEFAULT: i32 = 100;
/// Plans without a change after which a case has settled.
const QUIET_PLANS: u32 = 5;
/// Plans after which a case is given up.
const PLANS_MAX: u32 = 200;
/// When the world of a case begins, in milliseconds; ages go back from here.
const BEGIN_MS: u64 = 1_000_000_000;
/// Any two tasks of a case may share a GPU.
const TRUST: &str = "all";

/// One case as it stands in a file.
#[derive(Clone, Debug, Deserialize)]
pub struct Case {
    /// Its name.
    pub id: String,
    nodes: Vec<CaseNode>,
    tenants: Vec<CaseTenant>,
    jobs: Vec<CaseJob>,
    /// How many tasks of each job hold their resources at the end.
    #[serde(default)]
    pub expect: Option<BTreeMap<String, u32>>,
}

#[derive(Clone, Debug, Deserialize)]
struct CaseNode {
    name: String,
    gpus: u32,
    cpu_milli: u64,
    memory: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct CaseTenant {
    path: String,
    guaranteed_gpus: Option<CaseAmount>,
    limit_gpus: Option<CaseAmount>,
    weight: Option<f64>,
    priority: Option<i32>,
    guaranteed_cpu_milli: Option<CaseAmount>,
    limit_cpu_milli: Option<CaseAmount>,
    guaranteed_memory: Option<CaseAmount>,
    limit_memory: Option<CaseAmount>,
}

/// A number or the word `unlimited`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum CaseAmount {
    Number(f64),
    Word(String),
}

#[derive(Clone, Debug, Deserialize)]
struct CaseJob {
    name: String,
    tenant: String,
    #[serde(default)]
    priority: i32,
    #[serde(default = "yes")]
    preemptible: bool,
    #[serde(default)]
    gpus: f64,
    #[serde(default)]
    cpu_milli: u64,
    #[serde(default)]
    memory: u64,
    min_tasks: u32,
    tasks: Vec<CaseTask>,
}

fn yes() -> bool {
    true
}

#[derive(Clone, Debug, Deserialize)]
struct CaseTask {
    state: String,
    node: Option<String>,
    #[serde(default)]
    gpu: Vec<String>,
}

/// What came of a case.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    /// Its name.
    pub id: String,
    /// Whether it came out as expected; `None` when nothing was.
    pub ok: Option<bool>,
    /// How many tasks of each job hold their resources.
    pub got: BTreeMap<String, u32>,
    /// Where they are.
    pub placed: Vec<Placed>,
    /// Who had to leave for whom.
    pub evicted: Vec<Evicted>,
    /// Why the others wait.
    pub waits: BTreeMap<String, Waits>,
    /// Fair shares in GPUs before the first plan.
    pub fair: BTreeMap<String, f64>,
    /// Plans made.
    pub plans: u32,
    /// Whether nothing changed any more.
    pub settled: bool,
}

/// A task that holds its resources.
#[derive(Clone, Debug, Serialize)]
pub struct Placed {
    job: String,
    task: u32,
    node: String,
    gpus: Vec<usize>,
    units: u64,
}

/// Tasks that had to leave.
#[derive(Clone, Debug, Serialize)]
pub struct Evicted {
    job: String,
    tasks: u32,
    #[serde(rename = "for")]
    beneficiary: String,
    why: String,
    cost: u64,
}

/// Why a job waits.
#[derive(Clone, Debug, Serialize)]
pub struct Waits {
    reason: String,
    need: f64,
    have: f64,
}

/// A case that makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadCase(String);

impl Case {
    /// Reads a case from a line.
    pub fn parse(line: &str) -> Result<Self, BadCase> {
        serde_json::from_str(line).map_err(|error| BadCase(format!("not a case: {error}")))
    }

    /// Lets it settle.
    pub fn run(&self) -> Result<CaseResult, BadCase> {
        let mut run = Run::new(self)?;
        let refused = run.submit(self)?;
        let fair = run.fair_shares();
        let (plans, settled) = run.settle();
        let got = run.holding(self);
        let ok = self.expect.as_ref().map(|expect| *expect == got && settled);
        let (placed, waits) = (run.placed(), run.waits(&refused));
        let evicted = run.evicted;
        Ok(CaseResult { id: self.id.clone(), ok, got, placed, evicted, waits, fair, plans, settled })
    }

    fn policy(&self) -> Result<Policy, BadCase> {
        let mut tenants: Vec<Tenant> =
            self.tenants.iter().map(CaseTenant::tenant).collect::<Result<_, _>>()?;
        tenants.sort_by_key(|tenant| tenant.path.matches('/').count());
        let (stop_grace, queue_len_max) = (Millis(0), u32::MAX);
        // No cost, no minimum runtime, no grace, no budget, and a gang is repaired at once or not at all.
        let preemption = Preemption {
            borrow_grace_max: Millis(0),
            min_runtime_reclaim: Millis(0),
            min_runtime_preempt: Millis(0),
            evictions_max: u32::MAX,
            eviction_window: Millis(0),
            victims_max: u32::MAX,
            moves_max: u32::MAX,
            restart: Millis(0),
            ..Preemption::default()
        };
        let gangs = Gangs { repair_within: Millis(0), ..Gangs::default() };
        let digest = self.id.clone();
        let policy =
            Policy { digest, tenants, stop_grace, queue_len_max, preemption, gangs, ..Policy::default() };
        Ok(crate::world::with_domain_of_all(policy, TRUST))
    }

    fn fleet(&self) -> SimFleet {
        let mut island = 0;
        let mut node = |case: &CaseNode| {
            island += 1;
            let gpu = ObservedGpu { island, healthy: true, ..ObservedGpu::default() };
            let capacity =
                Resources { cpu_milli: case.cpu_milli, memory: case.memory, ..Resources::default() };
            let node = ObservedNode {
                name: case.name.clone(),
                up: true,
                model: if case.gpus == 0 { String::new() } else { "gpu".to_owned() },
                gpus: (0..case.gpus).map(|_| gpu).collect(),
                capacity,
                ..ObservedNode::default()
            };
            NodeReport { node, labels: BTreeMap::new(), taints: Vec::new() }
        };
        SimFleet::new(1, self.nodes.iter().map(&mut node).collect(), Timestamp(BEGIN_MS))
    }
}

impl CaseTenant {
    fn tenant(&self) -> Result<Tenant, BadCase> {
        let quota = |guaranteed: &Option<CaseAmount>, limit: &Option<CaseAmount>, absent, unit| {
            Ok::<_, BadCase>(Quota {
                guaranteed: guaranteed.as_ref().map_or(Ok(absent), |amount| amount.amount(unit))?,
                limit: limit.as_ref().map_or(Ok(Amount::Unlimited), |amount| amount.amount(unit))?,
            })
        };
        let weight = self.weight.unwrap_or(1.0);
        Ok(Tenant {
            path: self.path.clone(),
            gpus: GpuQuota::Any(quota(&self.guaranteed_gpus, &self.limit_gpus, Amount::Of(0), 3000)?),
            cpu: quota(&self.guaranteed_cpu_milli, &self.limit_cpu_milli, Amount::Unlimited, 1)?,
            memory: quota(&self.guaranteed_memory, &self.limit_memory, Amount::Unlimited, 1)?,
            weight: u32::try_from(parts(weight, 1000)?).map_err(|_| BadCase(format!("weight {weight}")))?,
            priority: self.priority.unwrap_or(PRIORITY_DEFAULT),
        })
    }
}

impl CaseAmount {
    fn amount(&self, unit: u64) -> Result<Amount, BadCase> {
        match self {
            Self::Word(word) if word == "unlimited" => Ok(Amount::Unlimited),
            Self::Word(word) => Err(BadCase(format!("an amount is a number or \"unlimited\", not {word:?}"))),
            Self::Number(number) => Ok(Amount::Of(parts(*number, unit)?)),
        }
    }
}

/// A number of a file, in whole parts of a unit.
fn parts(number: f64, unit: u64) -> Result<u64, BadCase> {
    let text = format!("{:.0}", number * f64::from(u32::try_from(unit).unwrap_or(u32::MAX)));
    text.parse().map_err(|_| BadCase(format!("{number} is not an amount")))
}

impl CaseJob {
    fn ask(&self) -> Result<GpuAsk, BadCase> {
        let units = parts(self.gpus, 3000)?;
        if units.is_multiple_of(3000) {
            return Ok(GpuAsk::Whole(u32::try_from(units / 3000).unwrap_or(u32::MAX)));
        }
        Ok(GpuAsk::Share(GpuUnits::from_parts(units)))
    }

    fn submission(&self, number: u128) -> Result<Submission, BadCase> {
        let tasks = u32::try_from(self.tasks.len()).unwrap_or(u32::MAX);
        let resources = Resources { cpu_milli: self.cpu_milli, memory: self.memory, ..Resources::default() };
        let spec = Spec {
            priority: self.priority,
            tasks,
            min: self.min_tasks,
            preemptible: self.preemptible,
            // It saves its work all the time, so that stopping it costs nothing.
            checkpoint: Some(Checkpoint { every: Millis(0), grace: Millis(0), on_request: false }),
            // Longer than any case takes to settle.
            payload: r#"{"duration_ms":1000000000000}"#.to_owned(),
            ..Spec::of(self.name.clone(), Shape::of(self.ask()?, resources))
        };
        Ok(Submission {
            trust: Some(TRUST.to_owned()),
            ..Submission::of(Uid(number), self.tenant.clone(), spec)
        })
    }
}

/// The running tasks of a job, where the case says they are.
fn running_tasks(job: &CaseJob, devices: &mut Devices) -> Result<Vec<StartTask>, BadCase> {
    let mut tasks = Vec::new();
    for (task, case) in (0u32..).zip(&job.tasks).filter(|(_, task)| task.state == "running") {
        let Some(node) = case.node.clone() else {
            return Err(BadCase(format!("task {task} of {} runs on no node", job.name)));
        };
        let (gpus, units_each) = devices.take(&node, job.ask()?, &case.gpu);
        let enforced = if units_each < GpuUnits::WHOLE { Mode::Mps } else { Mode::Whole };
        tasks.push(StartTask { task, node, gpus, units_each, enforced, slice: None, memory_mib: None });
    }
    Ok(tasks)
}

struct Run {
    state: State,
    fleet: SimFleet,
    names: BTreeMap<Uid, String>,
    evicted: Vec<Evicted>,
}

impl Run {
    /// The policy, the fleet and what already runs on it.
    fn new(case: &Case) -> Result<Self, BadCase> {
        let mut run = Self {
            state: State::default(),
            fleet: case.fleet(),
            names: BTreeMap::new(),
            evicted: Vec::new(),
        };
        run.give(&Input::ApplyPolicy(case.policy()?)).map_err(refused)?;
        // Whole GPUs are given out first, whoever is older; time goes by age.
        let mut devices = Devices::default();
        let mut running = BTreeMap::new();
        let mut place_all = |shares: bool| {
            for (number, job) in (1u128..).zip(&case.jobs) {
                if matches!(job.ask()?, GpuAsk::Share(_)) == shares {
                    running.insert(number, running_tasks(job, &mut devices)?);
                }
            }
            Ok::<_, BadCase>(())
        };
        place_all(false)?;
        place_all(true)?;
        for (number, job) in (1u128..).zip(&case.jobs) {
            run.names.insert(Uid(number), job.name.clone());
            run.start(job, number, running.remove(&number).unwrap_or_default())?;
        }
        run.observe(true)?;
        Ok(run)
    }

    fn start(&mut self, job: &CaseJob, number: u128, tasks: Vec<StartTask>) -> Result<(), BadCase> {
        let submission = job.submission(number)?;
        if !tasks.is_empty() {
            self.fleet
                .act(Standing::default(), &Action::Start { attempt: 1, job: Box::new(submission), tasks });
        }
        self.fleet.advance(Timestamp(self.fleet.now().0 + 1000));
        Ok(())
    }

    /// Jobs of which nothing runs are submitted in their order; returns why some were refused.
    fn submit(&mut self, case: &Case) -> Result<BTreeMap<String, Rejection>, BadCase> {
        let mut refused = BTreeMap::new();
        for (number, job) in (1u128..).zip(&case.jobs) {
            self.fleet.advance(Timestamp(self.fleet.now().0 + 1000));
            if self.state.jobs.with_uid(Uid(number)).is_some() {
                continue;
            }
            let input = Input::Submit(Box::new(job.submission(number)?));
            if let Err(rejection) = self.give(&input) {
                refused.insert(job.name.clone(), rejection);
            }
        }
        Ok(refused)
    }

    fn give(&mut self, input: &Input) -> Result<(), Rejection> {
        let decision = self.state.decide(input, self.fleet.now())?;
        self.state.apply_all(&decision.events);
        Ok(())
    }

    fn observe(&mut self, full: bool) -> Result<(), BadCase> {
        let said = if full { Some(self.fleet.list()) } else { self.fleet.changes() };
        if let Some(mut said) = said {
            said.report.nodes = said.nodes.into_iter().map(|node| node.node).collect();
            self.give(&Input::Observe(said.report)).map_err(refused)?;
        }
        Ok(())
    }

    fn settle(&mut self) -> (u32, bool) {
        let (mut plans, mut quiet) = (0, 0);
        while plans < PLANS_MAX && quiet < QUIET_PLANS {
            let before = self.state.index();
            let made = plan(&self.state, self.state.tenants.policy(), &Memory::default(), self.fleet.now());
            let told: Vec<Evicted> = made.evictions.iter().map(|evicted| self.told(evicted)).collect();
            self.evicted.extend(told);
            let events = made.events(&self.state, self.fleet.now());
            self.state.apply_all(&events);
            for action in self.state.actions_due() {
                self.fleet.act(Standing { term: 1, next: 0 }, &action);
            }
            self.fleet.advance(Timestamp(self.fleet.now().0 + 1000));
            let observed = self.observe(false).is_ok() && self.give(&Input::Tick).is_ok();
            plans += 1;
            quiet = if observed && self.state.index() == before { quiet + 1 } else { 0 };
        }
        (plans, quiet == QUIET_PLANS)
    }

    fn told(&self, evicted: &wharf_engine::plan::EvictedJob) -> Evicted {
        let receipt = &evicted.receipt;
        Evicted {
            job: self.name(evicted.job),
            tasks: u32::try_from(evicted.tasks.len()).unwrap_or(u32::MAX),
            beneficiary: self.name(receipt.beneficiary),
            why: receipt.why.into_str().to_owned(),
            cost: receipt.cost / 1000,
        }
    }

    fn fair_shares(&self) -> BTreeMap<String, f64> {
        let tree = self.state.tree(self.state.tenants.policy());
        let shares = self.state.fair_shares(&tree);
        let gpus = |tenant: TenantId| {
            let millis = shares[tenant.index()][0] / 3_000;
            f64::from(u32::try_from(millis).unwrap_or(u32::MAX)) / 1000.0
        };
        let tenants = self.state.tenants.ids();
        tenants.map(|tenant| (self.state.tenants.path(tenant).to_owned(), gpus(tenant))).collect()
    }

    fn name(&self, job: JobId) -> String {
        self.state.jobs.get(job).map_or_else(|| "?".to_owned(), |job| job.spec.name.clone())
    }

    fn holding(&self, case: &Case) -> BTreeMap<String, u32> {
        let mut got: BTreeMap<String, u32> = case.jobs.iter().map(|job| (job.name.clone(), 0)).collect();
        for (job, holding) in self.state.ledger.holdings() {
            let count = u32::try_from(holding.holding_tasks().len()).unwrap_or(u32::MAX);
            got.insert(self.name(job), count);
        }
        got
    }

    fn placed(&self) -> Vec<Placed> {
        let mut placed = Vec::new();
        for (job, holding) in self.state.ledger.holdings() {
            for task in holding.tasks.iter().filter(|task| task.holds()) {
                let place = &task.place;
                let node = self.state.fleet.node(place.node).map_or("?", |node| node.facts.name.as_str());
                let units = place.units_each.times(place.gpus.count()).parts();
                let (job, node, gpus) = (self.name(job), node.to_owned(), place.gpus.indexes().collect());
                placed.push(Placed { job, task: place.task, node, gpus, units });
            }
        }
        placed
    }

    fn waits(&self, refused: &BTreeMap<String, Rejection>) -> BTreeMap<String, Waits> {
        let mut waits = BTreeMap::new();
        for (name, rejection) in refused {
            let (reason, short) = match rejection {
                Rejection::Never { shortfall, .. } => {
                    (format!("Never{:?}", shortfall.stage), Some(*shortfall))
                }
                other => (format!("{other:?}"), None),
            };
            waits.insert(name.clone(), wait(reason, short));
        }
        for (id, job) in self.state.jobs.iter().filter(|(id, _)| self.state.ledger.holding(*id).is_none()) {
            let verdict = self.state.verdict(id, self.fleet.now());
            let reason = verdict.expect("a live job has a verdict").reason;
            let short = match reason {
                Reason::Short(shortfall) => Some(shortfall),
                _ => None,
            };
            waits.insert(job.spec.name.clone(), wait(reason.token().to_owned(), short));
        }
        waits
    }
}

fn wait(reason: String, short: Option<Shortfall>) -> Waits {
    let number = |quantity: Quantity| match quantity {
        Quantity::Gpus(units) => f64::from(u32::try_from(units.parts()).unwrap_or(u32::MAX)) / 3000.0,
        Quantity::Tasks(tasks) => f64::from(u32::try_from(tasks).unwrap_or(u32::MAX)),
    };
    let (need, have) = short.map_or((0.0, 0.0), |short| (number(short.need), number(short.have)));
    Waits { reason, need, have }
}

#[expect(clippy::needless_pass_by_value, reason = "it stands where an error is mapped")]
fn refused(rejection: Rejection) -> BadCase {
    BadCase(format!("the case cannot be set up: {rejection:?}"))
}
