//! Which devices the running tasks of a case sit on: a case names some and leaves the others to a rule.

use std::collections::{BTreeMap, BTreeSet};

use wharf_engine::model::job::GpuAsk;
use wharf_engine::units::{GpuMask, GpuUnits};

/// Which GPUs running tasks sit on.
#[derive(Default)]
pub(super) struct Devices {
    held: BTreeMap<String, BTreeMap<usize, u64>>,
    named: BTreeMap<(String, String), usize>,
}

impl Devices {
    /// Puts a task on devices of a node, by the names a case gives them or by the rules of the cases.
    pub(super) fn take(&mut self, node: &str, ask: GpuAsk, names: &[String]) -> (GpuMask, GpuUnits) {
        let mut mask = GpuMask::default();
        match ask {
            GpuAsk::Whole(count) => {
                for _ in 0..count {
                    mask.insert(self.whole(node));
                }
                (mask, GpuUnits::WHOLE)
            }
            GpuAsk::Share(_) | GpuAsk::Slice(_) | GpuAsk::AtLeast(_) => {
                let units = ask.units();
                let gpu = match names.first() {
                    Some(name) => self.device_named(node, name),
                    None => self.fullest(node, units.parts()),
                };
                *self.held.entry(node.to_owned()).or_default().entry(gpu).or_default() += units.parts();
                mask.insert(gpu);
                (mask, units)
            }
        }
    }

    fn whole(&mut self, node: &str) -> usize {
        let held = self.held.entry(node.to_owned()).or_default();
        let free = (0..GpuMask::MAX).find(|gpu| !held.contains_key(gpu)).unwrap_or(GpuMask::MAX - 1);
        held.insert(free, 3000);
        free
    }

    /// A name is a device of its own; which one does not matter.
    fn device_named(&mut self, node: &str, name: &str) -> usize {
        let key = (node.to_owned(), name.to_owned());
        if let Some(&gpu) = self.named.get(&key) {
            return gpu;
        }
        let taken: BTreeSet<usize> =
            self.held.get(node).into_iter().flat_map(BTreeMap::keys).copied().collect();
        let gpu = (0..GpuMask::MAX).find(|gpu| !taken.contains(gpu)).unwrap_or(GpuMask::MAX - 1);
        self.named.insert(key, gpu);
        gpu
    }

    fn fullest(&self, node: &str, parts: u64) -> usize {
        let held = self.held.get(node).cloned().unwrap_or_default();
        let fits = held.iter().filter(|(_, held)| **held + parts <= 3000);
        let fullest = fits.max_by_key(|&(gpu, held)| (*held, std::cmp::Reverse(*gpu))).map(|(gpu, _)| *gpu);
        fullest.unwrap_or_else(|| (0..GpuMask::MAX).find(|gpu| !held.contains_key(gpu)).unwrap_or(0))
    }
}
