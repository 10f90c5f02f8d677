//! Devices of a fleet at work: what tasks need of them is carried out, in order, before the tasks run.
//!
//! Without a model of devices nothing here takes time or fails, and nothing is reported.

use std::collections::{BTreeMap, BTreeSet};

use wharf_engine::device::catalogue::{self, Mig};
use wharf_engine::model::exit::{Exit, ExitCause};
use wharf_engine::model::observed::TaskRef;
use wharf_engine::model::policy::Mode;
use wharf_engine::units::Timestamp;

use super::SimFleet;
use super::device::{Device, Key, Operation, Progressed, Want};
use super::task::SimTask;

/// How the GPUs of a fleet are divided.
#[derive(Clone, Debug, Default)]
pub(super) struct Partition {
    /// What delays and failures are drawn from; `None` without a model of devices.
    pub(super) seed: Option<u64>,
    /// By node and index.
    pub(super) devices: BTreeMap<String, Vec<Device>>,
    timers: BTreeSet<(Timestamp, String, usize)>,
}

impl Partition {
    /// When a device next goes on by itself.
    pub(super) fn next_timer(&self) -> Option<Timestamp> {
        self.timers.first().map(|&(at, _, _)| at)
    }

    fn get_mut(&mut self, node: &str, gpu: usize) -> Option<&mut Device> {
        self.devices.get_mut(node)?.get_mut(gpu)
    }
}

impl SimFleet {
    /// With a model of devices: dividing GPUs takes time and fails now and then.
    #[must_use]
    pub fn with_devices(mut self, seed: u64) -> Self {
        let known = std::mem::take(&mut self.partition.devices);
        let by_use = self.devices_by_use(&known);
        // Devices that nobody ever divided need no row in a file.
        self.unsaved.devices.extend(by_use.keys().cloned());
        self.partition = Partition { seed: Some(seed), devices: known, ..Partition::default() };
        self.partition.devices.extend(by_use);
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        for name in names {
            self.fit_devices(&name);
            (0..self.devices(&name).len()).for_each(|gpu| self.work(&name, gpu, self.now));
        }
        self
    }

    /// The devices of a node; none without a model of them.
    pub fn devices(&self, node: &str) -> &[Device] {
        self.partition.devices.get(node).map_or(&[], Vec::as_slice)
    }

    /// Devices of nodes that are not known, as they must be for what runs on them; none for nodes where none is divided.
    fn devices_by_use(&self, known: &BTreeMap<String, Vec<Device>>) -> BTreeMap<String, Vec<Device>> {
        let mut by_use: BTreeMap<String, Vec<Device>> = BTreeMap::new();
        let divided = |task: &&SimTask| !task.is_over() && task.enforced != Mode::Whole;
        for task in self.tasks.values().filter(divided).filter(|task| !known.contains_key(&task.node)) {
            let gpus = self.nodes.get(&task.node).map_or(0, |node| node.node.gpus.len());
            let devices = by_use.entry(task.node.clone()).or_insert_with(|| vec![Device::default(); gpus]);
            for gpu in task.gpus.indexes() {
                if let Some(device) = devices.get_mut(gpu) {
                    device.used_as(task.want());
                }
            }
        }
        by_use
    }

    /// As many devices as the node has GPUs; the node tells their modes, and what they were at goes on.
    pub(super) fn fit_devices(&mut self, name: &str) {
        if self.partition.seed.is_none() {
            return;
        }
        let Some(node) = self.nodes.get_mut(name) else {
            self.partition.devices.remove(name);
            self.unsaved.devices.insert(name.to_owned());
            return;
        };
        let devices = self.partition.devices.entry(name.to_owned()).or_default();
        if devices.len() > node.node.gpus.len() {
            self.unsaved.devices.insert(name.to_owned());
        }
        devices.resize_with(node.node.gpus.len(), Device::default);
        for (gpu, device) in node.node.gpus.iter_mut().zip(devices.iter()) {
            gpu.mode = device.mode();
        }
        let due = devices.iter().enumerate().filter_map(|(gpu, device)| Some((device.next_timer()?, gpu)));
        let due: Vec<_> = due.map(|(at, gpu)| (at, name.to_owned(), gpu)).collect();
        self.partition.timers.extend(due);
    }

    /// The machine was off.
    pub(super) fn restart_devices(&mut self, name: &str) {
        let mig = self.mig_of(name);
        for device in self.partition.devices.get_mut(name).into_iter().flatten() {
            device.restart(mig);
        }
        self.unsaved.devices.insert(name.to_owned());
        self.fit_devices(name);
    }

    pub(super) fn mig_of(&self, node: &str) -> Option<&'static Mig> {
        catalogue::mig(&self.nodes.get(node)?.node.model)
    }

    /// Asks the devices of a task to become what it needs. True when they are, and it can run at once.
    pub(super) fn prepare(&mut self, task: TaskRef, known: &SimTask) -> bool {
        let want = known.want();
        let mut ready = true;
        for gpu in known.gpus.indexes() {
            let Some(device) = self.partition.get_mut(&known.node, gpu) else { continue };
            if !device.is_ready_for(want) {
                device.enqueue(task);
                self.unsaved.devices.insert(known.node.clone());
                ready = false;
            }
        }
        ready
    }

    /// A task is over: its devices no longer wait for it, and what was cut out for it is cleared away.
    pub(super) fn release(&mut self, task: TaskRef, known: &SimTask, at: Timestamp) {
        for gpu in known.gpus.indexes() {
            let Some(device) = self.partition.get_mut(&known.node, gpu) else { continue };
            if device.dequeue(task) {
                self.unsaved.devices.insert(known.node.clone());
            }
            self.work(&known.node, gpu, at);
        }
    }

    /// Lets a device take up what is next, and those run who need nothing more of it.
    pub(super) fn work(&mut self, node: &str, gpu: usize, at: Timestamp) {
        while let Some(next) = self.next_work(node, gpu) {
            match next {
                Work::Begin(operation, task) => {
                    let device = self.partition.get_mut(node, gpu).expect("it has something to do");
                    device.begin(operation, task);
                }
                Work::Ready(task) => {
                    let device = self.partition.get_mut(node, gpu).expect("it has something to do");
                    device.dequeue(task);
                    self.begin_if_ready(task, at);
                }
            }
            self.unsaved.devices.insert(node.to_owned());
        }
        self.set_off(node, gpu, at);
    }

    fn next_work(&self, node: &str, gpu: usize) -> Option<Work> {
        let device = self.partition.devices.get(node)?.get(gpu)?;
        if device.is_changing() {
            return None;
        }
        let owned = self.occupied.get(node)?.get(gpu)?.slices;
        if let Some(slice) = device.left_over(owned) {
            return Some(Work::Begin(Operation::Destroy(slice), None));
        }
        let &task = device.queue().first()?;
        let want = self.tasks.get(&task).map(SimTask::want)?;
        Some(match device.next_operation(want) {
            Some(operation) => Work::Begin(operation, Some(task)),
            None => Work::Ready(task),
        })
    }

    /// An operation that waits goes on where the GPU is empty: everyone on it still waits for it.
    fn set_off(&mut self, node: &str, gpu: usize, at: Timestamp) {
        let Some(seed) = self.partition.seed else { return };
        let mig = self.mig_of(node);
        let on_it = self.occupied.get(node).and_then(|gpus| gpus.get(gpu)).map_or(0, |gpu| gpu.tasks);
        let Some(device) = self.partition.get_mut(node, gpu) else { return };
        let is_empty = on_it <= device.queue().len();
        device.set_off(Key { seed, node, gpu, mig }, is_empty, at);
        if let Some(at) = device.next_timer() {
            self.partition.timers.insert((at, node.to_owned(), gpu));
        }
    }

    /// What is due on devices by then, the earliest first.
    pub(super) fn next_device_timer(&self) -> Option<Timestamp> {
        self.partition.next_timer()
    }

    /// The earliest moment of a device has come.
    pub(super) fn device_timer(&mut self) {
        let Some((at, node, gpu)) = self.partition.timers.pop_first() else { return };
        let Some(seed) = self.partition.seed else { return };
        let mig = self.mig_of(&node);
        let key = Key { seed, node: &node, gpu, mig };
        // A timer may be left over from before the machine was off.
        let Some(progressed) = self.partition.get_mut(&node, gpu).and_then(|device| device.go_on(key, at))
        else {
            return;
        };
        self.unsaved.devices.insert(node.clone());
        match progressed {
            Progressed::Verifies(until) => {
                self.partition.timers.insert((until, node, gpu));
                return;
            }
            Progressed::Done(Operation::Enter(mode)) => self.tell_mode(&node, gpu, mode),
            Progressed::Done(Operation::Create(_) | Operation::Destroy(_)) => {}
            Progressed::Failed(task) => {
                let alive = task.filter(|task| self.tasks.get(task).is_some_and(|known| !known.is_over()));
                if let Some(task) = alive {
                    self.end_because(task, Exit::Lost, Some(ExitCause::DeviceLost), at);
                }
            }
        }
        self.work(&node, gpu, at);
    }

    fn tell_mode(&mut self, name: &str, gpu: usize, mode: Mode) {
        if let Some(gpu) = self.nodes.get_mut(name).and_then(|node| node.node.gpus.get_mut(gpu)) {
            gpu.mode = mode;
            self.node_changed(name);
        }
    }

    /// A task runs when none of its devices has anything left to do for it.
    fn begin_if_ready(&mut self, task: TaskRef, at: Timestamp) {
        let Some(known) = self.tasks.get(&task) else { return };
        let devices = self.devices(&known.node);
        let waits = |gpu: usize| devices.get(gpu).is_some_and(|device| device.queue().contains(&task));
        if !known.gpus.indexes().any(waits) {
            self.begin(task, at);
        }
    }
}

/// What a device does next.
enum Work {
    /// An operation, for somebody or to clear away.
    Begin(Operation, Option<TaskRef>),
    /// Nothing more for this one: it can run.
    Ready(TaskRef),
}

impl SimTask {
    /// What it needs of each of its devices.
    pub(super) fn want(&self) -> Want {
        Want { mode: self.enforced, slice: self.slice }
    }
}

#[cfg(test)]
mod tests;
