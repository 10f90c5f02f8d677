//! The nodes of a shape while running tasks are laid on them: each task on the first node that has room.

use wharf_engine::model::job::GpuAsk;
use wharf_engine::units::{GpuMask, GpuUnits, Resources};

use super::{JobGroup, NodeGroup};

/// What is left of each node, in order.
pub(super) struct Floor<'a> {
    nodes: Vec<Left<'a>>,
}

/// What is left of one node.
struct Left<'a> {
    group: &'a NodeGroup,
    resources: Resources,
    gpus: Vec<GpuUnits>,
}

/// Lays the tasks of one group of jobs. They are all alike and nothing is ever taken away, so a node that was too
/// full once stays so, and the walk over the nodes is made once for the group and not once for each task.
pub(super) struct Walk<'a> {
    jobs: &'a JobGroup,
    ask: GpuAsk,
    at: usize,
}

impl<'a> Walk<'a> {
    pub(super) fn new(jobs: &'a JobGroup, ask: GpuAsk) -> Self {
        Self { jobs, ask, at: 0 }
    }

    /// The node, by position, and its GPUs for the next task; `None` when no node has room.
    pub(super) fn next(&mut self, floor: &mut Floor<'_>) -> Option<(usize, GpuMask)> {
        while let Some(left) = floor.nodes.get_mut(self.at) {
            if let Some(gpus) = left.take(self.jobs, self.ask) {
                return Some((self.at, gpus));
            }
            self.at += 1;
        }
        None
    }
}

impl<'a> Floor<'a> {
    pub(super) fn new(groups: &'a [NodeGroup]) -> Self {
        let equal = |group: &'a NodeGroup| (0..group.count).map(move |_| Left::new(group));
        Self { nodes: groups.iter().flat_map(equal).collect() }
    }
}

impl<'a> Left<'a> {
    fn new(group: &'a NodeGroup) -> Self {
        let gpus = (0..group.gpus).map(|_| GpuUnits::WHOLE).collect();
        Self { group, resources: group.resources(), gpus }
    }

    fn take(&mut self, jobs: &JobGroup, ask: GpuAsk) -> Option<GpuMask> {
        let labels = &self.group.labels;
        let labelled = jobs.labels.iter().all(|(key, value)| labels.get(key) == Some(value));
        let model = jobs.model.as_ref().is_none_or(|model| *model == self.group.model);
        let resources = self.resources.checked_sub(jobs.resources())?;
        let gpus = self.fitting(ask).filter(|_| labelled && model)?;
        let each = units_each(ask);
        for gpu in gpus.indexes() {
            self.gpus[gpu] = self.gpus[gpu].checked_sub(each).expect("a fitting GPU has so much left");
        }
        self.resources = resources;
        Some(gpus)
    }

    /// The first GPUs that have room.
    fn fitting(&self, ask: GpuAsk) -> Option<GpuMask> {
        let each = units_each(ask);
        let count = if let GpuAsk::Whole(count) = ask { count } else { 1 };
        let mut mask = GpuMask::default();
        let open = self.gpus.iter().enumerate().filter(|(_, left)| **left >= each).map(|(gpu, _)| gpu);
        for gpu in open.take(usize::try_from(count).expect("a u32 fits a usize")) {
            mask.insert(gpu);
        }
        (mask.count() == count).then_some(mask)
    }
}

/// What a task takes of each GPU. A shape asks for whole GPUs and shares alone.
pub(super) fn units_each(ask: GpuAsk) -> GpuUnits {
    match ask {
        GpuAsk::Whole(_) => GpuUnits::WHOLE,
        GpuAsk::Share(_) | GpuAsk::Slice(_) | GpuAsk::AtLeast(_) => ask.units(),
    }
}
