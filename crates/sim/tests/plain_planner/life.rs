//! A life as a list of steps, played on a state with both planners side by side.

use std::fmt;
use std::fmt::Write;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use wharf_engine::decide::input::{Input, SetDefinition, SetMembers};
use wharf_engine::model::exit::{Exit, ExitDetail};
use wharf_engine::model::observed::{ObservedNode, ObservedTask, Report, TaskRef, TaskStatus};
use wharf_engine::model::policy::Policy;
use wharf_engine::model::submission::Submission;
use wharf_engine::plan::{Memory, Plan, Start, plan};
use wharf_engine::quota::meters::Amounts;
use wharf_engine::quota::tree::Tree;
use wharf_engine::state::State;
use wharf_engine::state::event::Event;
use wharf_engine::state::holding::{HeldTask, TaskPhase};
use wharf_engine::state::past_use::{BorrowedUse, CarriedPastUse, PastUseEvent};
use wharf_engine::units::{Millis, PoolId, TenantId, Timestamp, Uid};
use wharf_sim::judge::plain_planner;
use wharf_sim::testing::pricing::draw;

/// A fleet, a policy and what happens.
#[derive(Clone)]
pub(super) struct Life {
    pub(super) nodes: Vec<ObservedNode>,
    pub(super) policy: Policy,
    pub(super) steps: Vec<Step>,
}

/// Something that happens.
#[derive(Clone)]
pub(super) enum Step {
    Submit(Box<Submission>),
    Cancel {
        job: u64,
    },
    /// Both planners plan, and the plan is carried out.
    Plan,
    Pass(Millis),
    /// Everything that was given a place runs.
    Run,
    /// Every first or second of those who were told to leave is gone.
    Leave {
        every: usize,
    },
    /// Who was asked to save its work has.
    Save,
    /// The first task of a job that runs is over.
    Finish {
        job: u64,
        exit: Exit,
    },
    NodeUp {
        node: usize,
        up: bool,
    },
    GpuHealthy {
        node: usize,
        gpu: usize,
        healthy: bool,
    },
    Cordon {
        node: usize,
        on: bool,
    },
    Policy(Box<Policy>),
    /// Other prices are in force, drawn by this seed.
    Price {
        seed: u64,
    },
}

/// What the plans of a life were about.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) states: u64,
    pub(super) starts: usize,
    /// Starts at places that were chosen by what they are worth.
    pub(super) priced: usize,
    pub(super) grown: usize,
    pub(super) earmarks: usize,
    pub(super) released: usize,
    pub(super) evictions: usize,
    pub(super) moves: usize,
    pub(super) straddles: usize,
}

impl Tally {
    fn count(&mut self, plan: &Plan) {
        self.states += 1;
        self.starts += plan.starts.len();
        self.grown += plan.grown.len();
        self.earmarks += plan.earmarks.len();
        self.released += plan.released.len();
        self.evictions += plan.evictions.len();
        let why =
            |word: &str| plan.evictions.iter().filter(|gone| gone.receipt.why.into_str() == word).count();
        self.moves += why("move");
        self.straddles += plan.evictions.iter().filter(|gone| gone.receipt.straddles.is_some()).count();
    }

    pub(super) fn add(&mut self, other: Self) {
        self.states += other.states;
        self.starts += other.starts;
        self.priced += other.priced;
        self.grown += other.grown;
        self.earmarks += other.earmarks;
        self.released += other.released;
        self.evictions += other.evictions;
        self.moves += other.moves;
        self.straddles += other.straddles;
    }
}

struct Play {
    state: State,
    memory: Memory,
    now: Timestamp,
    nodes: Vec<ObservedNode>,
    first_policy: Policy,
    generation: u64,
    tally: Tally,
}

impl Life {
    fn begin(&self) -> Play {
        let mut play = Play {
            state: State::default(),
            memory: Memory::default(),
            now: Timestamp(1_000_000),
            nodes: self.nodes.clone(),
            first_policy: self.policy.clone(),
            generation: 0,
            tally: Tally::default(),
        };
        play.give(&Input::ApplyPolicy(self.policy.clone()));
        play.report(Vec::new());
        play.define_sets();
        play
    }

    /// Plays all of it, and each tenant has borrowed so much before; an error says how the fair shares at the end differ, or
    /// do not add up. True when they would be others without a past.
    pub(super) fn compare_shares(&self, past: &[u64]) -> Result<bool, String> {
        let mut play = self.begin();
        for step in &self.steps {
            play.step(step)?;
        }
        let policy = play.state.tenants.policy().clone();
        let tree = play.state.tree(&policy);
        let without = play.state.fair_shares(&tree);
        if !past.is_empty() {
            play.state.apply(&Event::Past(carried(&play.state, past)));
        }
        play.compare_shares()?;
        let shares = play.state.fair_shares(&tree);
        adds_up(&play.state, &tree, &shares)?;
        Ok(shares != without)
    }

    /// Plays it; an error says where the planners differ.
    pub(super) fn play(&self) -> Result<Tally, String> {
        let mut play = self.begin();
        for (at, step) in self.steps.iter().enumerate() {
            play.step(step).map_err(|difference| format!("step {at} ({step}): {difference}"))?;
            play.now = play.now + Millis(1000);
        }
        Ok(play.tally)
    }
}

impl Play {
    /// What is refused changes nothing.
    fn give(&mut self, input: &Input) {
        if let Ok(decision) = self.state.decide(input, self.now) {
            self.state.apply_all(&decision.events);
        }
    }

    fn report(&mut self, tasks: Vec<ObservedTask>) {
        let since = (self.generation > 0).then_some(self.generation);
        self.generation += 1;
        let (generation, nodes) = (self.generation, self.nodes.clone());
        let report = Report { world: 1, since, generation, nodes, tasks, ..Report::default() };
        self.give(&Input::Observe(report));
    }

    fn define_sets(&mut self) {
        let even = self.nodes.iter().step_by(2).map(|node| node.name.clone()).collect();
        let h100 = vec!["h100".to_owned()];
        self.give(&Input::DefineSets(vec![
            SetDefinition { source: "even".to_owned(), members: SetMembers::Nodes(even) },
            SetDefinition { source: "h100".to_owned(), members: SetMembers::Models(h100) },
        ]));
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Submit(job) => self.give(&Input::Submit(job.clone())),
            Step::Cancel { job } => {
                if let Some(job) = self.state.jobs.with_uid(Uid(u128::from(*job))) {
                    self.give(&Input::Cancel { job });
                }
            }
            Step::Plan => return self.plan(),
            Step::Pass(span) => self.now = self.now + *span,
            Step::Run => {
                let tasks = self.tasks(|task| task.phase == TaskPhase::Bound, TaskStatus::Running);
                self.report(tasks);
            }
            Step::Leave { every } => {
                let stopped =
                    TaskStatus::Ended { exit: Exit::Stopped, at: self.now, detail: ExitDetail::default() };
                let leaving = self.tasks(|task| task.holds() && !task.stays(), stopped);
                self.report(leaving.into_iter().step_by(*every).collect());
            }
            Step::Save => {
                let asked = |task: &HeldTask| matches!(task.phase, TaskPhase::Asked { .. });
                let tasks = self.tasks(asked, TaskStatus::Saved { at: self.now });
                self.report(tasks);
            }
            Step::Finish { job, exit } => {
                let over = TaskStatus::Ended { exit: *exit, at: self.now, detail: ExitDetail::default() };
                let mut tasks = self.tasks(|task| task.phase == TaskPhase::Running, over);
                tasks.retain(|task| task.task.uid == Uid(u128::from(*job)));
                self.report(tasks.into_iter().take(1).collect());
            }
            Step::NodeUp { node, up } => {
                if let Some(node) = self.nodes.get_mut(*node) {
                    node.up = *up;
                }
                self.report(Vec::new());
            }
            Step::GpuHealthy { node, gpu, healthy } => {
                if let Some(gpu) = self.nodes.get_mut(*node).and_then(|node| node.gpus.get_mut(*gpu)) {
                    gpu.healthy = *healthy;
                }
                self.report(Vec::new());
            }
            Step::Cordon { node, on } => {
                self.give(&Input::Cordon { node: format!("n{node}"), on: *on, reason: String::new() });
            }
            Step::Policy(policy) => self.give(&Input::ApplyPolicy((**policy).clone())),
            Step::Price { seed } => {
                let with_gpus = |pool: &PoolId| !self.state.fleet.model(*pool).is_empty();
                let pools: Vec<PoolId> = self.state.fleet.pool_ids().filter(with_gpus).collect();
                if !pools.is_empty() {
                    let prices = draw(&mut ChaCha8Rng::seed_from_u64(*seed), &pools);
                    self.give(&Input::Prices(prices));
                }
            }
        }
        Ok(())
    }

    /// Some of the tasks that take a place, as the world would report them.
    fn tasks(&self, which: impl Fn(&HeldTask) -> bool, status: TaskStatus) -> Vec<ObservedTask> {
        let mut tasks = Vec::new();
        for (job, holding) in self.state.ledger.holdings() {
            let uid = self.state.jobs.get(job).expect("what is held belongs to a live job").uid;
            for task in holding.tasks.iter().filter(|task| which(task)) {
                let place = task.place;
                let node = &self.state.fleet.node(place.node).expect("tasks are on nodes").facts.name;
                tasks.push(ObservedTask {
                    task: TaskRef { uid, task: place.task, attempt: holding.attempt },
                    node: node.clone(),
                    gpus: place.gpus,
                    units_each: place.units_each,
                    slice: None,
                    time_sliced: false,
                    since: task.since.or((status == TaskStatus::Running).then_some(self.now)),
                    status,
                    job: None,
                });
            }
        }
        tasks
    }

    fn compare_shares(&self) -> Result<(), String> {
        let policy = self.state.tenants.policy();
        let shares = self.state.fair_shares(&self.state.tree(policy));
        let shares: Vec<Vec<u64>> = shares.iter().map(|share| share.to_vec()).collect();
        differ("fair shares", &shares, &plain_planner::fair_shares(&self.state, policy))
    }

    fn plan(&mut self) -> Result<(), String> {
        self.give(&Input::Tick);
        let policy = self.state.tenants.policy().clone();
        self.compare_shares()?;
        if self.first_policy != policy {
            // A plan by another policy than the one in force, as a preview makes it.
            let preview = plan(&self.state, &self.first_policy, &Memory::default(), self.now);
            compare("a preview", &preview, &plain_planner::plan(&self.state, &self.first_policy, self.now))?;
        }
        let made = plain_planner::plan(&self.state, &policy, self.now);
        compare("a plan", &plan(&self.state, &policy, &Memory::default(), self.now), &made)?;
        let remembered = plan(&self.state, &policy, &self.memory, self.now);
        compare("a plan that remembers", &remembered, &made)?;
        self.tally.count(&made);
        self.tally.priced += remembered.starts.iter().filter(|start| start.chosen.is_some()).count();
        self.memory.remember(&remembered, &self.state, self.now);
        let events = remembered.events(&self.state, self.now);
        self.state.apply_all(&events);
        match self.state.check().first() {
            Some(finding) => Err(format!("{finding:?} after {made:#?}")),
            None => Ok(()),
        }
    }
}

/// So much borrowed by each tenant, of whatever is counted.
fn carried(state: &State, past: &[u64]) -> PastUseEvent {
    let meters: Vec<Option<PoolId>> = state.fleet.pool_ids().map(Some).chain([None]).collect();
    let of_tenant = |(tenant, &mean): (TenantId, &u64)| {
        let borrowed = meters.iter().map(|&pool| (pool, BorrowedUse { since: 0, mean })).collect();
        CarriedPastUse { tenant, at: Timestamp(1_000_000), borrowed }
    };
    let tenants = state.tenants.ids().zip(past).map(of_tenant).collect();
    PastUseEvent::Carried { stepped_at: Timestamp(1_000_000), tenants }
}

/// Nobody has more than it wants or less than it is owed; and where all have a claim, all there is is divided.
fn adds_up(state: &State, tree: &Tree, shares: &Amounts) -> Result<(), String> {
    let demand = tree.subtree_demand(&state.own_demand(tree));
    let capacity = state.capacity(tree);
    let parents = state.tenants.ids().map(|tenant| (Some(tenant), &tree.lines[tenant.index()].children[..]));
    for (parent, siblings) in parents.chain([(None, &tree.roots[..])]) {
        for meter in 0..tree.meters.len() {
            let there = parent.map_or(capacity[meter], |parent| shares[parent.index()][meter]);
            let of = |amounts: &Amounts, tenant: &TenantId| amounts[tenant.index()][meter];
            let wanted: u64 = siblings.iter().map(|tenant| of(&demand, tenant)).sum();
            let had: u64 = siblings.iter().map(|tenant| of(shares, tenant)).sum();
            let line = |tenant: &TenantId| &tree.lines[tenant.index()];
            let owed = |tenant: &TenantId| line(tenant).quotas[meter].guaranteed.cap(of(&demand, tenant));
            let owed_together: u64 = siblings.iter().map(owed).sum();
            let kept =
                owed_together > there || siblings.iter().all(|tenant| of(shares, tenant) >= owed(tenant));
            let no_more = siblings.iter().all(|tenant| of(shares, tenant) <= of(&demand, tenant));
            let claims = tree.meters[meter].per_gpu().is_none()
                || siblings.iter().all(|tenant| line(tenant).weight > 0);
            if !kept || !no_more || had > there || (claims && had != there.min(wanted)) {
                let path = parent.map_or("", |parent| state.tenants.path(parent));
                return Err(format!("below {path:?}, meter {meter}: {had} of {there}, wanted {wanted}"));
            }
        }
    }
    Ok(())
}

/// Decision by decision; refusals are the fast planner's own business.
fn compare(what: &str, fast: &Plan, plain: &Plan) -> Result<(), String> {
    differ(&format!("releases of {what}"), &fast.released, &plain.released)?;
    differ(&format!("evictions of {what}"), &fast.evictions, &plain.evictions)?;
    differ(&format!("starts of {what}"), &bare(&fast.starts), &bare(&plain.starts))?;
    differ(&format!("growth of {what}"), &bare(&fast.grown), &bare(&plain.grown))?;
    differ(&format!("earmarks of {what}"), &bare(&fast.earmarks), &bare(&plain.earmarks))
}

/// Starts without what the receipt says of the runner-up, which the plain planner does not look for.
fn bare(starts: &[Start]) -> Vec<Start> {
    starts.iter().map(|start| Start { chosen: None, ..start.clone() }).collect()
}

fn differ<T: PartialEq + fmt::Debug>(what: &str, fast: &T, plain: &T) -> Result<(), String> {
    if fast == plain { Ok(()) } else { Err(format!("{what}\nfast    {fast:?}\nplain   {plain:?}")) }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Submit(job) => {
                let Submission { tenant, trust, nodes, devices, gang_within, spec, .. } = &**job;
                let resources = spec.shape.resources;
                write!(f, "submit {} of {tenant}: {:?} {}, ", spec.name, spec.class, spec.priority)?;
                write!(f, "{}..{} tasks of {:?}, ", spec.min, spec.tasks, spec.shape.gpus)?;
                write!(f, "cpu {}, memory {:#x}, ", resources.cpu_milli, resources.memory)?;
                write!(f, "preemptible {}, {:?}, ", spec.preemptible, spec.checkpoint)?;
                write!(f, "limit {:?}, estimate {:?}, ", spec.time_limit, spec.estimate)?;
                write!(f, "island {}, within {gang_within:?}, ", spec.topology.task_on_island)?;
                write!(f, "nodes {nodes:?}, devices {devices:?}, trust {trust:?}")
            }
            Self::Cancel { job } => write!(f, "cancel j{job}"),
            Self::Plan => write!(f, "plan"),
            Self::Pass(span) => write!(f, "{} s pass", span.0 / 1000),
            Self::Run => write!(f, "run"),
            Self::Leave { every } => write!(f, "every {every}. leaves"),
            Self::Save => write!(f, "save"),
            Self::Finish { job, exit } => write!(f, "a task of j{job} ends: {exit:?}"),
            Self::NodeUp { node, up } => write!(f, "node n{node} up {up}"),
            Self::GpuHealthy { node, gpu, healthy } => write!(f, "gpu {gpu} of n{node} healthy {healthy}"),
            Self::Cordon { node, on } => write!(f, "cordon n{node} {on}"),
            Self::Policy(policy) => write!(f, "policy {}", tenants(policy)),
            Self::Price { seed } => write!(f, "prices of seed {seed}"),
        }
    }
}

fn tenants(policy: &Policy) -> String {
    let mut text = String::new();
    for tenant in &policy.tenants {
        let (gpus, cpu, memory) = (&tenant.gpus, tenant.cpu, tenant.memory);
        let (path, weight, priority) = (&tenant.path, tenant.weight, tenant.priority);
        write!(text, "\n  {path} weight {weight} priority {priority} {gpus:?} cpu {cpu:?} memory {memory:?}")
            .expect("writing to a string");
    }
    let (worth, quantum) = (&policy.normal_milli, policy.quantum);
    write!(text, "\n  worth {worth:?} quantum {quantum} {:?}", policy.preemption)
        .expect("writing to a string");
    text
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ObservedNode { name, model, gpus, capacity, others, others_gpus, domains, .. } in &self.nodes {
            let islands: Vec<u32> = gpus.iter().map(|gpu| gpu.island).collect();
            write!(f, "node {name} {model:?} islands {islands:?} cpu {} ", capacity.cpu_milli)?;
            write!(f, "memory {:#x} others {} ", capacity.memory, others.cpu_milli)?;
            writeln!(f, "gpus of others {others_gpus:?} {domains:?}")?;
        }
        writeln!(f, "policy {}", tenants(&self.policy))?;
        for (at, step) in self.steps.iter().enumerate() {
            writeln!(f, "{at:3} {step}")?;
        }
        Ok(())
    }
}
