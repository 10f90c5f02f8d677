//! Simulated worlds and everything that runs on them: the fleet of `wharf up`, random lives with faults, trace replay,
//! behaviour cases, scenarios and benchmarks. The engine inside is the one that runs in production.
//!
//! A folder may use the folders below it: `testing` and `trace` use `world`. The others stand alone.

pub mod bench;
pub mod judge;
pub mod testing;
pub mod trace;
pub mod world;
