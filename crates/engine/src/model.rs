//! What is asked for, by which policy, and what a world says and is told: plain values without state.

pub mod action;
pub mod actor;
pub mod dependency;
pub mod exit;
pub mod group;
pub mod job;
pub mod need;
pub mod observed;
pub mod outcome;
pub mod placement;
pub mod policy;
pub mod rejection;
pub mod shortfall;
pub mod submission;

/// What later versions added is left out while it says nothing: what an older version wrote keeps its hash.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
