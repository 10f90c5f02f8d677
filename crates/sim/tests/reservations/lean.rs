//! The turns of a controller without its disk: decide, apply, plan and act on a simulated fleet, and nothing written down.
//! A thousand lives are played in the time that a controller, which encodes every event, plays a hundred.

use std::collections::BTreeMap;

use wharf_controller::disk::Standing;
use wharf_controller::turn::PLANS_MAX;
use wharf_controller::world::NodeReport;
use wharf_engine::decide::input::Input;
use wharf_engine::model::job::{GpuAsk, Shape, Spec};
use wharf_engine::model::observed::{ObservedGpu, ObservedNode};
use wharf_engine::model::rejection::Rejection;
use wharf_engine::model::submission::Submission;
use wharf_engine::plan::{Memory, Plan, plan};
use wharf_engine::state::State;
use wharf_engine::state::event::Event;
use wharf_engine::units::{Millis, Resources, Timestamp, Uid};
use wharf_sim::testing::pricing::Pricing;
use wharf_sim::world::fleet::SimFleet;

/// When every life begins.
pub(crate) const BEGIN: Timestamp = Timestamp(1_000_000);
/// There is one leader for ever.
const LEADER: Standing = Standing { term: 1, next: 0 };

/// A control plane over a simulated fleet.
pub(crate) struct Lean {
    pub(crate) state: State,
    memory: Memory,
    pub(crate) fleet: SimFleet,
    pricing: Pricing,
}

impl Lean {
    /// It meets the world, and knows no policy.
    pub(crate) fn new(seed: u64, nodes: Vec<NodeReport>) -> Self {
        let fleet = SimFleet::new(seed, nodes, BEGIN);
        let (state, memory, pricing) = (State::default(), Memory::default(), Pricing::by_seed(seed));
        let mut lean = Self { state, memory, fleet, pricing };
        let listed = lean.fleet.list();
        lean.observe(listed, &mut Vec::new());
        lean
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.fleet.now()
    }

    /// When there is something to do without anybody asking.
    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        let due = [self.state.next_deadline(self.now()), self.memory.wake(), self.fleet.next_change()];
        due.into_iter().flatten().min()
    }

    /// One turn; its events, in order. A submission that can never run is refused, which is fine.
    pub(crate) fn turn(&mut self, inputs: &[Input]) -> Vec<Event> {
        let mut events = Vec::new();
        if let Some(report) = self.fleet.changes() {
            self.observe(report, &mut events);
        }
        if let Some(prices) = self.pricing.due(&self.state) {
            self.settle(&prices, &mut events).unwrap();
        }
        for input in inputs {
            let _ = self.settle(input, &mut events);
        }
        let promised = self.state.earmarks.iter().count();
        self.settle(&Input::Tick, &mut events).unwrap();
        let mut any_over = self.state.earmarks.iter().count() < promised;
        for _ in 0..PLANS_MAX {
            let planned = events.len();
            any_over |= !self.plan(&mut events).released.is_empty();
            if events.len() == planned {
                break;
            }
        }
        if any_over {
            let settled = events.len();
            self.settle(&Input::Tick, &mut events).unwrap();
            if events.len() > settled {
                self.plan(&mut events);
            }
        }
        for action in self.state.actions_due() {
            self.fleet.act(LEADER, &action);
        }
        events
    }

    fn plan(&mut self, events: &mut Vec<Event>) -> Plan {
        let now = self.now();
        let made = plan(&self.state, self.state.tenants.policy(), &self.memory, now);
        let new = made.events(&self.state, now);
        self.memory.remember(&made, &self.state, now);
        self.state.apply_all(&new);
        events.extend(new);
        made
    }

    fn observe(&mut self, said: wharf_controller::world::WorldReport, events: &mut Vec<Event>) {
        let mut report = said.report;
        report.nodes = said.nodes.into_iter().map(|node| node.node).collect();
        self.settle(&Input::Observe(report), events).unwrap();
    }

    fn settle(&mut self, input: &Input, events: &mut Vec<Event>) -> Result<(), Rejection> {
        let decided = self.state.decide(input, self.now())?;
        self.state.apply_all(&decided.events);
        events.extend(decided.events);
        Ok(())
    }
}

/// Nodes of so many GPUs each.
pub(crate) fn nodes(gpus: impl IntoIterator<Item = usize>) -> Vec<NodeReport> {
    let node = |(at, gpus): (u32, usize)| {
        let gpu = ObservedGpu { island: at, healthy: true, ..ObservedGpu::default() };
        let node = ObservedNode {
            name: format!("n{at}"),
            up: true,
            model: "h100".into(),
            gpus: vec![gpu; gpus],
            capacity: Resources { cpu_milli: 128_000, memory: 1 << 40, pods: 100, ..Resources::default() },
            ..ObservedNode::default()
        };
        NodeReport { node, labels: BTreeMap::new(), taints: Vec::new() }
    };
    (0..).zip(gpus).map(node).collect()
}

/// A batch job of one task with one GPU, which runs for so long.
pub(crate) fn spec(number: u128, runs: Millis) -> Spec {
    Spec {
        payload: format!(r#"{{"duration_ms":{},"checkpoint_ms":3000}}"#, runs.0),
        ..Spec::of(
            format!("j{number}"),
            Shape::of(GpuAsk::Whole(1), Resources { pods: 1, ..Resources::default() }),
        )
    }
}

/// Asks for it.
pub(crate) fn submit(number: u128, tenant: &str, spec: Spec) -> Input {
    Input::Submit(Box::new(Submission::of(Uid(number), tenant, spec)))
}
