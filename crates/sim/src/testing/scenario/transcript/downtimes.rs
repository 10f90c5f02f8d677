//! What is told of nodes that are to be empty.

use wharf_engine::state::fleet::{Drain, Whom};
use wharf_engine::state::ledger::event::Eviction;
use wharf_engine::state::maintenance::MaintenanceEvent;
use wharf_engine::units::{JobId, NodeId};

use super::{Transcript, numbered, span_text};

impl Transcript {
    pub(super) fn draining(&self, node: NodeId, drain: Option<&Drain>) -> String {
        let name = self.node(node);
        let Some(Drain { deadline, whom, at, .. }) = drain else { return format!("{name} drains no more") };
        let whom = match whom {
            Whom::Preemptible => "",
            Whom::Everything => ", everything leaves",
        };
        format!("{name} drains within {}{whom}", span_text(*deadline - *at))
    }

    pub(super) fn downtime(&self, event: MaintenanceEvent) -> String {
        match event {
            MaintenanceEvent::Planned { name, downtime } => {
                let nodes: Vec<&str> = downtime.nodes.iter().map(|&node| self.node(node)).collect();
                let (from, lasts) =
                    (span_text(downtime.from - self.start), span_text(downtime.until - downtime.from));
                format!("maintenance {name} of {} from {from} for {lasts}", nodes.join(", "))
            }
            MaintenanceEvent::Began { name, .. } => format!("maintenance {name} begins"),
            MaintenanceEvent::Ended { name, cancelled: false, .. } => format!("maintenance {name} is over"),
            MaintenanceEvent::Ended { name, cancelled: true, .. } => {
                format!("maintenance {name} is called off")
            }
        }
    }

    pub(super) fn left_node(&mut self, job: JobId, tasks: &[u32], receipt: &Eviction) -> String {
        let node = receipt.node.map_or("?", |node| self.node(node)).to_owned();
        let price = self.price(receipt);
        let name = &self.known(job).name;
        if receipt.whole {
            return format!("{name} has to leave: {node} is to be empty{price}");
        }
        format!("{name} gives up {}: {node} is to be empty{price}", numbered(tasks))
    }
}
