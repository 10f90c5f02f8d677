//! What simulated devices and tasks really do: what a monitoring agent would read off them.
//!
//! What such an agent could not know is not told here either. A node that is out of reach tells nothing; how busy a
//! task keeps a GPU that it shares undivided with others cannot be told apart from what the others do.

use std::collections::BTreeMap;

use wharf_controller::world::{Sample, Samples, TaskSample};
use wharf_engine::model::observed::TaskRef;
use wharf_engine::model::policy::Mode;
use wharf_engine::units::{GpuUnits, Timestamp};

use super::{SimFleet, SimTask};

impl SimFleet {
    /// What every device and task really does now.
    pub fn samples(&self) -> Samples {
        let mut gpus: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
        for (name, node) in &self.nodes {
            // A node that cannot be reached tells nothing, which is not the same as zero.
            let idle = node.node.up.then_some(0);
            let sample = Sample { sm_active_milli: idle, memory_used_mib: idle };
            gpus.insert(name.clone(), vec![sample; node.node.gpus.len()]);
        }
        let mut tasks = BTreeMap::new();
        let running = self.tasks.iter().filter(|(_, known)| !known.is_over() && known.since.is_some());
        for (&task, known) in running {
            let Some(of_node) = gpus.get_mut(&known.node) else { continue };
            self.add(of_node, task, known);
            if self.nodes[&known.node].node.up {
                tasks.insert(task, self.task_sample(task, known));
            }
        }
        Samples { at: self.now, gpus, tasks, ooms: Some(self.ooms.clone()) }
    }

    fn add(&self, gpus: &mut [Sample], task: TaskRef, known: &SimTask) {
        let share = known.units_each.parts().min(GpuUnits::WHOLE.parts());
        let memory = known.memory_used_mib(task);
        for gpu in known.gpus.indexes() {
            let Some(Sample { sm_active_milli, memory_used_mib }) = gpus.get_mut(gpu) else { continue };
            let active = u64::from(known.behaviour.sm_active_now(task, gpu, self.now));
            let active = u32::try_from(active * share / GpuUnits::WHOLE.parts()).unwrap_or(1000);
            *sm_active_milli = sm_active_milli.map(|sum| (sum + active).min(1000));
            *memory_used_mib = memory_used_mib.zip(memory).map(|(sum, memory)| sum.saturating_add(memory));
        }
    }

    fn task_sample(&self, task: TaskRef, known: &SimTask) -> TaskSample {
        let gpus = &self.occupied[&known.node];
        let alone = known.gpus.indexes().all(|gpu| gpus.get(gpu).is_some_and(|gpu| gpu.tasks == 1));
        let told_apart = alone || matches!(known.enforced, Mode::Whole | Mode::Mig);
        let each = known.gpus.indexes().map(|gpu| known.behaviour.sm_active_now(task, gpu, self.now));
        let mean = each.sum::<u32>().checked_div(known.gpus.count());
        TaskSample {
            sm_active_milli: mean.filter(|_| told_apart),
            sm_active_mean_milli: known.sm_active_mean(task, self.now),
            memory_used_mib: known.memory_used_mib(task),
            memory_limit_mib: known.memory_mib,
        }
    }
}

impl SimTask {
    /// The mean of SM_ACTIVE over its run until then, in thousandths. Who came and went on a GPU that is shared
    /// undivided is not remembered, so there it is unknown.
    pub(super) fn sm_active_mean(&self, task: TaskRef, until: Timestamp) -> Option<u16> {
        let since = self.since.filter(|_| matches!(self.enforced, Mode::Whole | Mode::Mig))?;
        let gpus: Vec<usize> = self.gpus.indexes().collect();
        self.behaviour.sm_active_mean(task, &gpus, (since, until))
    }

    /// What it uses of each of its GPUs. Who wants more than it may has all of it until it is killed.
    pub(super) fn memory_used_mib(&self, task: TaskRef) -> Option<u32> {
        if self.gpus.count() == 0 {
            return None;
        }
        let wanted = self.behaviour.memory_wanted(task.uid, self.memory_mib)?;
        Some(self.memory_mib.map_or(wanted, |limit| wanted.min(limit)))
    }
}
