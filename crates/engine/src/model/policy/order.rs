//! In which order a class is served inside a tenant (rule 3).

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use crate::model::job::Class;
use crate::units::Millis;

/// By what waiting jobs of a class are ordered inside their tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum Order {
    /// The oldest first.
    #[default]
    Age,
    /// Who was served least so far, in levels; inside a level the oldest.
    Attained,
    /// Who is expected to be done with the least work, by what finished before; inside a step the oldest.
    Learned,
}

/// The order of one class, and what it may cost those who were served for long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderRules {
    pub order: Order,
    /// Where one level ends and the next begins, in GPU time served; strictly rising.
    pub levels: Vec<Millis>,
    /// How long a job waits before it makes a longer-served one leave.
    pub patience: Millis,
    /// How long an attempt runs before it has to leave by this order; never shorter than its checkpoint interval.
    pub min_run: Millis,
    /// Jobs of more GPUs are first in the order, and no smaller one makes them leave by it.
    pub gang_over: u32,
    /// So many free GPUs of a pool are not for those who were evicted: newcomers land there.
    pub landing_room: u32,
    /// Who has waited for so long is first once, and then safe for as long as it waited.
    pub promote_after: Option<Millis>,
    /// Work that carries this label is expected to last as long as other work with the same value of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

impl Default for OrderRules {
    /// Levels, patience, minimum run and landing room are those that did best on the Philly trace.
    fn default() -> Self {
        Self {
            order: Order::Age,
            levels: Vec::from([Millis::from_secs(36_000), Millis::from_secs(360_000)]),
            patience: Millis::from_secs(30),
            min_run: Millis::from_secs(1800),
            gang_over: 8,
            landing_room: 8,
            promote_after: None,
            label: None,
        }
    }
}

/// The order of every class, as in [`Class::ALL`]. Apart, so that every event is not as large as the largest policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Orders(pub Box<[OrderRules; 3]>);

impl Orders {
    /// The rules of a class.
    pub fn of(&self, class: Class) -> &OrderRules {
        &self.0[class.index()]
    }

    /// The rules of a class, where it is not simply the oldest first.
    pub fn beyond_age(&self, class: Class) -> Option<&OrderRules> {
        Some(self.of(class)).filter(|rules| rules.order != Order::Age)
    }

    /// True when every class is served by age.
    pub fn all_by_age(&self) -> bool {
        self.0.iter().all(|rules| rules.order == Order::Age)
    }
}
