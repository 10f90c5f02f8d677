//! What happens to nodes: they fail, hang, heal, change, leave and join.

use wharf_controller::world::NodeReport;
use wharf_engine::device::catalogue::Recovery;
use wharf_engine::model::exit::{Exit, ExitCause};

use super::occupancy::Occupancy;
use super::{SimFleet, SimTask};

impl SimFleet {
    /// A node goes down. Its tasks die with it, unless it is only out of reach.
    pub fn fail_node(&mut self, name: &str, tasks_die: bool) {
        let Some(node) = self.nodes.get_mut(name).filter(|node| node.node.up) else { return };
        node.node.up = false;
        self.node_changed(name);
        if tasks_die {
            self.kill(Exit::Lost, ExitCause::NodeLost, |task| task.node == name);
            self.restart_devices(name);
            self.recover_gpus(name, &[Recovery::Reset, Recovery::RestartNode]);
        }
    }

    /// A node goes on with what runs on it and starts nothing more.
    pub fn hang_node(&mut self, name: &str) {
        self.hung.insert(name.to_owned());
    }

    /// A node comes back, with what still runs on it.
    pub fn heal_node(&mut self, name: &str) {
        self.hung.remove(name);
        self.refusing.heal(name);
        let Some(node) = self.nodes.get_mut(name).filter(|node| !node.node.up) else { return };
        node.node.up = true;
        self.node_changed(name);
        let on_it = self.tasks.iter().filter(|(_, task)| task.node == name);
        self.unreported.tasks.extend(on_it.map(|(task, _)| *task).collect::<Vec<_>>());
    }

    /// A node becomes another: labels, taints, health, what others use, fewer GPUs. Tasks on GPUs that are gone die.
    pub fn change_node(&mut self, name: &str, how: impl FnOnce(&mut NodeReport)) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        how(node);
        let gpus = node.node.gpus.len();
        let on_gone = |task: &SimTask| task.node == name && task.gpus.indexes().any(|gpu| gpu >= gpus);
        self.kill(Exit::Lost, ExitCause::DeviceLost, on_gone);
        self.occupied.entry(name.to_owned()).or_default().resize(gpus, Occupancy::default());
        self.fit_devices(name);
        self.node_changed(name);
    }

    /// A node leaves, with everything on it.
    pub fn remove_node(&mut self, name: &str) {
        self.kill(Exit::Lost, ExitCause::NodeLost, |task| task.node == name);
        if self.nodes.remove(name).is_some() {
            self.occupied.remove(name);
            self.fit_devices(name);
            self.node_changed(name);
        }
    }

    /// A node joins.
    pub fn add_node(&mut self, node: NodeReport) {
        let name = node.node.name.clone();
        self.occupied.insert(name.clone(), vec![Occupancy::default(); node.node.gpus.len()]);
        self.nodes.insert(name.clone(), node);
        self.fit_devices(&name);
        self.node_changed(&name);
    }

    pub(super) fn kill(&mut self, exit: Exit, cause: ExitCause, which: impl Fn(&SimTask) -> bool) {
        let doomed = self.tasks.iter().filter(|(_, task)| !task.is_over() && which(task));
        for task in doomed.map(|(task, _)| *task).collect::<Vec<_>>() {
            self.end_because(task, exit, Some(cause), self.now);
        }
    }

    pub(super) fn node_changed(&mut self, name: &str) {
        self.unreported.nodes.insert(name.to_owned());
        self.unsaved.nodes.insert(name.to_owned());
    }
}
