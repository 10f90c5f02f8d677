//! Synthetic loads for benchmarks, described by a few numbers.
//!
//! [`shape`] builds a large state on which one decision is measured. [`mig`] puts arrivals of slices on a pool of GPUs
//! and counts what is refused. Neither needs a world.

pub mod mig;
pub mod shape;
