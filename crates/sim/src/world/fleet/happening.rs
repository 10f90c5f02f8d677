//! What somebody lets happen to the fleet: errors of GPUs, nodes that fail, another list of nodes.

use std::collections::{BTreeMap, BTreeSet};

use wharf_controller::world::{Happened, Happening, Impossible, NodeReport};
use wharf_engine::device::catalogue::xid;
use wharf_engine::model::exit::{Exit, ExitCause};
use wharf_engine::model::observed::TaskRef;
use wharf_engine::model::outcome::{Denial, Message};

use super::SimFleet;

impl SimFleet {
    /// Lets something happen.
    pub fn happen(&mut self, what: &Happening) -> Result<Happened, Impossible> {
        let before: BTreeSet<TaskRef> = self.running().map(|(task, ..)| task).collect();
        let mut happened = Happened::default();
        match what {
            Happening::GpuError { node, gpu, xid: number } => {
                self.find_gpu(node, *gpu)?;
                let error = xid(*number).ok_or(Impossible::NoSuchXid(*number))?;
                self.gpu_error(node, *gpu, error);
            }
            Happening::GpuHealed { node, gpu } => {
                self.find_gpu(node, *gpu)?;
                self.heal_gpu(node, *gpu);
            }
            Happening::NodeDown(node) => {
                self.find_node(node)?;
                self.fail_node(node, true);
            }
            Happening::StartsRefused { node, span } => {
                self.find_node(node)?;
                let message = Message::cut("the simulated node was told to refuse starts");
                let until = span.map(|span| self.now + span);
                self.refuse_starts(node, Denial::AdmissionDenied { message }, until);
            }
            Happening::NodeHealed(node) => {
                self.find_node(node)?;
                self.heal_node(node);
            }
            Happening::Fleet(nodes) => happened = self.turn_into(nodes),
        }
        let died = before.iter().filter_map(|task| self.tasks.get(task)).filter(|task| task.is_over());
        let jobs = died.filter_map(|task| task.job.as_ref());
        let names: BTreeSet<String> = jobs.map(|job| format!("{}/{}", job.tenant, job.spec.name)).collect();
        Ok(Happened { jobs: names.into_iter().collect(), ..happened })
    }

    fn find_node(&self, node: &str) -> Result<&NodeReport, Impossible> {
        self.nodes.get(node).ok_or_else(|| Impossible::NoSuchNode(node.to_owned()))
    }

    fn find_gpu(&self, node: &str, gpu: usize) -> Result<(), Impossible> {
        let gpus = self.find_node(node)?.node.gpus.len();
        if gpu < gpus { Ok(()) } else { Err(Impossible::NoSuchGpu { node: node.to_owned(), gpu, gpus }) }
    }

    /// Nodes join, leave and change until the fleet has exactly these. What is down or has failed stays so.
    fn turn_into(&mut self, declared: &[NodeReport]) -> Happened {
        let mut happened = Happened::default();
        let names: BTreeMap<&str, &NodeReport> =
            declared.iter().map(|node| (node.node.name.as_str(), node)).collect();
        let gone = self.nodes.keys().filter(|name| !names.contains_key(name.as_str())).cloned();
        happened.left = gone.collect();
        for name in &happened.left {
            self.remove_node(name);
        }
        for (&name, &node) in &names {
            let Some(known) = self.nodes.get(name) else {
                self.add_node(node.clone());
                happened.joined.push(name.to_owned());
                continue;
            };
            let wanted = as_it_is(node, known);
            if wanted == *known {
                continue;
            }
            // GPUs of another model are other GPUs: nothing that ran there is there any more.
            if wanted.node.model != known.node.model {
                self.kill(Exit::Lost, ExitCause::DeviceLost, |task| task.node == name);
                self.restart_devices(name);
            }
            self.change_node(name, |known| *known = wanted);
            happened.changed.push(name.to_owned());
        }
        happened
    }
}

/// A node as it is declared, in the condition in which it is.
fn as_it_is(declared: &NodeReport, known: &NodeReport) -> NodeReport {
    let mut node = declared.clone();
    node.node.up = known.node.up;
    if node.node.model == known.node.model {
        for (gpu, known) in node.node.gpus.iter_mut().zip(&known.node.gpus) {
            (gpu.healthy, gpu.xid, gpu.mode) = (known.healthy, known.xid, known.mode);
        }
    }
    node
}
