//! The demand section: what work usually asks for, and the prices that follow from it.
//!
//! Shapes are counted as they come. Old work counts less and less: when the counts grow large, all are halved. Counting
//! begins with the first prices, which may be empty: a journal from before there were any is replayed without.
//! Nothing here decides anything by itself; the counts are read at the edge, where prices are solved, and prices
//! tell the planner which of the places that fit is missed least.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::model::job::{GpuAsk, Shape, Spec};
use crate::price::prices::{Prices, Tables};
use crate::state::event::Event;
use crate::units::DeviceSetId;

/// Counts are halved when they pass this together: what came 100,000 tasks ago says little about tomorrow.
const TOTAL_MAX: u64 = 65_536;
/// The most shapes that are told apart. More would cost the solver more than the rarest are worth.
const SHAPES_MAX: usize = 512;

/// What is asked for, as far as its worth goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TypicalShape {
    pub gpus: GpuAsk,
    pub cpu_milli: u64,
    pub devices: DeviceSetId,
    /// So many of its tasks start together or not at all.
    #[serde(default = "alone", skip_serializing_if = "is_alone")]
    pub together: u32,
}

fn alone() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_alone(together: &u32) -> bool {
    *together == alone()
}

/// What happens to demand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DemandEvent {
    /// Other prices are in force. With the first of them, which may be empty, counting begins.
    Priced { prices: Prices },
    /// How many jobs were counted, how many tasks asked for each shape, and what is in force, in a snapshot.
    Carried { arrived: u64, shapes: Vec<(TypicalShape, u32)>, prices: Prices },
}

/// What work usually asks for, and what that makes places worth.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    counting: bool,
    arrived: u64,
    shapes: BTreeMap<TypicalShape, u32>,
    prices: Prices,
    tables: Tables,
    /// Counts up with every change of prices.
    version: u64,
}

impl Demand {
    /// True when shapes are counted.
    pub fn is_counting(&self) -> bool {
        self.counting
    }

    /// How many jobs were counted so far.
    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Shapes with how many tasks asked for them, of late.
    pub fn shapes(&self) -> impl Iterator<Item = (&TypicalShape, u32)> {
        self.shapes.iter().map(|(shape, &tasks)| (shape, tasks))
    }

    /// The prices in force.
    pub fn prices(&self) -> &Prices {
        &self.prices
    }

    /// What follows from them; `None` where nothing is priced.
    pub(crate) fn tables(&self) -> Option<&Tables> {
        Some(&self.tables).filter(|tables| !tables.is_empty())
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn apply(&mut self, event: &DemandEvent, pools: usize) {
        match event {
            DemandEvent::Priced { prices } => self.price(prices, pools),
            DemandEvent::Carried { arrived, shapes, prices } => {
                self.arrived = *arrived;
                self.shapes = shapes.iter().copied().collect();
                self.price(prices, pools);
            }
        }
    }

    fn price(&mut self, prices: &Prices, pools: usize) {
        self.counting = true;
        self.prices = prices.clone();
        self.tables = prices.tables(pools);
        self.version += 1;
    }

    pub(crate) fn count(&mut self, spec: &Spec) {
        if self.counting {
            self.arrived += 1;
            spec.parts().for_each(|(shape, tasks, min)| self.count_shape(shape, tasks, min));
        }
    }

    fn count_shape(&mut self, shape: &Shape, tasks: u32, together: u32) {
        let (cpu_milli, devices) = (shape.resources.cpu_milli, shape.devices);
        let typical = TypicalShape { gpus: shape.gpus, cpu_milli, devices, together: together.max(1) };
        *self.shapes.entry(typical).or_default() += tasks;
        while self.shapes.values().map(|&tasks| u64::from(tasks)).sum::<u64>() > TOTAL_MAX {
            self.shapes.retain(|_, tasks| {
                *tasks /= 2;
                *tasks > 0
            });
        }
        if self.shapes.len() > SHAPES_MAX {
            let rarest = self.shapes.iter().filter(|&(&shape, _)| shape != typical);
            if let Some((&shape, _)) = rarest.min_by_key(|&(shape, &tasks)| (tasks, *shape)) {
                self.shapes.remove(&shape);
            }
        }
    }

    pub(crate) fn snapshot(&self, into: &mut Vec<Event>) {
        if self.counting {
            let shapes = self.shapes.iter().map(|(&shape, &tasks)| (shape, tasks)).collect();
            let (arrived, prices) = (self.arrived, self.prices.clone());
            into.push(Event::Demand(DemandEvent::Carried { arrived, shapes, prices }));
        }
    }
}
