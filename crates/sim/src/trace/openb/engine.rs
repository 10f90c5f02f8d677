//! The real engine as a policy of the benchmark: a pod is a job of one task, submitted, planned for at once, and
//! cancelled when it has to wait. One tenant is promised everything, and nobody is moved or made to leave.
//!
//! Timed is `plan`, the whole of it: the tree of tenants, shares, passes, the search over the fleet. Deciding whether the
//! job may wait and applying events are not in it, nor are prices, which are solved between arrivals.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use wharf_controller::market::{Pricer, Summary};
use wharf_controller::selectors::DeviceSelector;
use wharf_engine::decide::input::{Input, SetDefinition, SetMembers};
use wharf_engine::model::job::{GpuAsk, Shape, Spec};
use wharf_engine::model::observed::{ObservedGpu, ObservedNode, Report, Scope};
use wharf_engine::model::policy::{GpuQuota, Policy, Preemption, Quota, Tenant};
use wharf_engine::model::submission::Submission;
use wharf_engine::plan::{Memory, plan};
use wharf_engine::price::prices::Prices;
use wharf_engine::state::State;
use wharf_engine::units::{GpuUnits, JobId, Resources, Timestamp, Uid};

use super::{Place, Pod, Trace};

const TENANT: &str = "all";

/// The engine with its memory and its prices.
pub(super) struct Engine {
    state: State,
    memory: Memory,
    pricer: Pricer,
    now: Timestamp,
    uid: u128,
    /// Time of each solve.
    pub(super) solves: Vec<Duration>,
    /// Time of each change of prices.
    pub(super) repriced: Vec<Duration>,
}

impl Engine {
    pub(super) fn new(trace: &Trace) -> Self {
        let mut engine = Self {
            state: State::default(),
            memory: Memory::default(),
            pricer: Pricer::default(),
            now: Timestamp(1_000_000_000),
            uid: 0,
            solves: Vec::new(),
            repriced: Vec::new(),
        };
        engine.give(&Input::ApplyPolicy(policy()));
        let nodes = trace.nodes.iter().enumerate().map(|(at, node)| observed(at, node)).collect();
        let report = Report { scope: Scope::All, world: 1, generation: 1, nodes, ..Report::default() };
        engine.give(&Input::Observe(report));
        let models: BTreeSet<&Vec<String>> =
            trace.pods.iter().map(|pod| &pod.models).filter(|models| !models.is_empty()).collect();
        let set = |models: &Vec<String>| SetDefinition {
            source: source(models),
            members: SetMembers::Models(models.clone()),
        };
        engine.give(&Input::DefineSets(models.into_iter().map(set).collect()));
        // The first prices, which are none: counting begins.
        engine.give(&Input::Prices(Prices::default()));
        engine
    }

    fn give(&mut self, input: &Input) -> Option<JobId> {
        let decision = self.state.decide(input, self.now).ok()?;
        self.state.apply_all(&decision.events);
        decision.job
    }

    /// Where a pod goes, and how long the plan took.
    pub(super) fn decide(&mut self, pod: &Pod) -> (Option<Place>, Duration) {
        self.now.0 += 1;
        self.uid += 1;
        let submission = Box::new(submission(self.uid, pod));
        let Some(job) = self.give(&Input::Submit(submission)) else {
            // No node could ever host it.
            return (None, Duration::ZERO);
        };
        self.price();
        let begin = Instant::now();
        let made = plan(&self.state, self.state.tenants.policy(), &self.memory, self.now);
        let took = begin.elapsed();
        let events = made.events(&self.state, self.now);
        self.memory.remember(&made, &self.state, self.now);
        self.state.apply_all(&events);
        let place = made
            .starts
            .first()
            .and_then(|start| start.tasks.first())
            .map(|place| Place { node: place.node.index(), gpus: place.gpus.indexes().collect() });
        if place.is_none() {
            self.give(&Input::Cancel { job });
        }
        (place, took)
    }

    fn price(&mut self) {
        if !self.pricer.is_due(self.state.demand.arrived()) {
            return;
        }
        let begin = Instant::now();
        let prices = self.pricer.solve(&Summary::of(&self.state));
        self.solves.push(begin.elapsed());
        let begin = Instant::now();
        let decision = self.state.decide(&Input::Prices(prices), self.now);
        let decision = decision.expect("prices that were solved are within their bounds");
        self.state.apply_all(&decision.events);
        self.memory.prepare(&self.state);
        self.repriced.push(begin.elapsed());
    }
}

fn policy() -> Policy {
    let tenant = Tenant { gpus: GpuQuota::Any(Quota::UNMETERED), ..Tenant::without_lines(TENANT) };
    let preemption = Preemption { moves_max: 0, fixed_may_borrow: true, ..Preemption::default() };
    Policy { digest: TENANT.to_owned(), tenants: vec![tenant], preemption, ..Policy::default() }
}

fn observed(at: usize, node: &super::Node) -> ObservedNode {
    let island = u32::try_from(at).expect("a trace has few nodes");
    let gpu = ObservedGpu { island, healthy: true, ..ObservedGpu::default() };
    let model = if node.gpus == 0 { String::new() } else { node.model.clone() };
    let capacity =
        Resources { cpu_milli: node.cpu_milli, memory: node.memory_mib << 20, ..Resources::default() };
    let (name, gpus) = (node.name.clone(), vec![gpu; node.gpus]);
    ObservedNode { name, up: true, model, gpus, capacity, ..ObservedNode::default() }
}

fn source(models: &[String]) -> String {
    if models.is_empty() {
        return String::new();
    }
    DeviceSelector { models: models.to_vec(), memory_gb_min: None }.source()
}

fn submission(uid: u128, pod: &Pod) -> Submission {
    let gpus = match (pod.gpus, pod.gpu_milli) {
        (1, part @ ..1000) => GpuAsk::Share(GpuUnits::from_parts(part * 3)),
        (count, _) => GpuAsk::Whole(u32::try_from(count).expect("a pod has few GPUs")),
    };
    let resources =
        Resources { cpu_milli: pod.cpu_milli, memory: pod.memory_mib << 20, ..Resources::default() };
    // Which model its GPUs are of is no matter to a pod that asks for none.
    let devices = if pod.gpus == 0 { String::new() } else { source(&pod.models) };
    let spec = Spec { preemptible: false, ..Spec::of(format!("pod-{uid}"), Shape::of(gpus, resources)) };
    Submission { devices, ..Submission::of(Uid(uid), TENANT.to_owned(), spec) }
}
