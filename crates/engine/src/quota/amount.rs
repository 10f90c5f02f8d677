//! Amounts of everything that quota is counted in.

use crate::units::{GpuUnits, PoolId, Resources};
use alloc::collections::BTreeMap;

/// What a tenant's own jobs hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Use {
    pub gpus: BTreeMap<PoolId, GpuUnits>,
    pub cpu_milli: u64,
    pub memory: u64,
}

impl Use {
    pub(crate) fn count(&mut self, pool: PoolId, units: GpuUnits, resources: Resources, more: bool) {
        let count = |total: u64, part: u64| if more { total + part } else { total - part };
        self.cpu_milli = count(self.cpu_milli, resources.cpu_milli);
        self.memory = count(self.memory, resources.memory);
        if units > GpuUnits::ZERO {
            let total = self.gpus.entry(pool).or_default();
            *total = GpuUnits::from_parts(count(total.parts(), units.parts()));
            if *total == GpuUnits::ZERO {
                self.gpus.remove(&pool);
            }
        }
    }
}
