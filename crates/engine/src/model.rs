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

/// What is as built in, or was added later and says nothing, is not written: what an older version wrote keeps its hash.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
