//! The living edge: what a control plane needs of a world.
//!
//! A world has nodes and runs tasks. It reports changes with a generation, or everything as a full list; it
//! carries out actions, refusing those of an older term; it keeps what ended until that is acknowledged. Its
//! clock is the only one: a simulated world may run faster than the wall.

use std::collections::BTreeMap;

use wharf_engine::action::Action;
use wharf_engine::input::{ObservedNode, ObservedTask};
use wharf_engine::units::{TaskRef, Timestamp};

use crate::disk::Term;

/// A node with the strings that stop at the edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReport {
    /// What the engine learns.
    pub node: ObservedNode,
    /// Labels, for selectors.
    pub labels: BTreeMap<String, String>,
    /// Taints: a task without a matching toleration stays away.
    pub taints: Vec<Taint>,
}

/// Keeps tasks away that do not tolerate it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value; may be empty.
    pub value: String,
}
