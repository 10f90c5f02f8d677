//! The simulated world and everything that runs on it: the fleet of `wharf up`, random runs with faults, trace
//! replay, behaviour cases and scenarios. The engine inside is the one that runs in production.

pub mod behaviour;
pub mod file;
pub mod fleet;
