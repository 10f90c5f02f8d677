//! A second fleet that shows what the first one does, for telemetry: it is sampled beside the thread that the first one
//! belongs to. It learns what changed and nothing else, and does nothing by itself.

use wharf_controller::world::NodeReport;
use wharf_engine::model::observed::TaskRef;
use wharf_engine::units::{Timestamp, Uid};

use super::occupancy::Occupancy;
use super::{Changes, SimFleet, SimTask};

/// What a mirror has to learn.
#[derive(Debug)]
pub(crate) struct Shown {
    now: Timestamp,
    nodes: Vec<(String, Option<NodeReport>)>,
    tasks: Vec<(TaskRef, Option<SimTask>)>,
    ooms: Vec<(Uid, u32)>,
}

impl SimFleet {
    /// What a mirror has to learn of what changed.
    pub(crate) fn show(&self, changed: &Changes) -> Shown {
        let node = |name: &String| (name.clone(), self.nodes.get(name).cloned());
        let task = |&task: &TaskRef| (task, self.tasks.get(&task).map(SimTask::without_job));
        let ooms = |&uid: &Uid| Some((uid, *self.ooms.get(&uid)?));
        Shown {
            now: self.now,
            nodes: changed.nodes.iter().map(node).collect(),
            tasks: changed.tasks.iter().map(task).collect(),
            ooms: changed.progress.iter().filter_map(ooms).collect(),
        }
    }

    /// Learns what was shown.
    pub(crate) fn mirror(&mut self, shown: Shown) {
        let Shown { now, nodes, tasks, ooms } = shown;
        self.now = now;
        self.ooms.extend(ooms);
        // A node may have fewer GPUs than what has left it needed.
        for (task, _) in &tasks {
            if let Some(before) = self.tasks.remove(task).filter(|before| !before.is_over()) {
                self.hold(&before, false);
            }
        }
        for (name, node) in nodes {
            let Some(node) = node else {
                self.occupied.remove(&name);
                self.nodes.remove(&name);
                continue;
            };
            let gpus = self.occupied.entry(name.clone()).or_default();
            gpus.resize(node.node.gpus.len(), Occupancy::default());
            self.nodes.insert(name, node);
        }
        for (task, known) in tasks {
            let Some(known) = known else { continue };
            if !known.is_over() {
                self.hold(&known, true);
            }
            self.tasks.insert(task, known);
        }
    }
}
