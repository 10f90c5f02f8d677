//! A node as most tests have it: up, with H100s, and more cores and memory than anybody asks for.

use std::collections::BTreeMap;

use wharf_controller::world::NodeReport;
use wharf_engine::model::observed::{ObservedGpu, ObservedNode};
use wharf_engine::units::Resources;

pub(crate) fn node(name: &str, gpus: usize) -> NodeReport {
    let gpu = ObservedGpu { healthy: true, ..ObservedGpu::default() };
    let node = ObservedNode {
        name: name.into(),
        up: true,
        model: "h100".into(),
        gpus: vec![gpu; gpus],
        capacity: Resources { cpu_milli: 64_000, memory: 1 << 40, pods: 100, ..Resources::default() },
        ..ObservedNode::default()
    };
    NodeReport { node, labels: BTreeMap::new(), taints: Vec::new() }
}
