//! The hardware: models of GPUs, MIG geometry, and where a slice is cut.

pub mod catalogue;
pub mod cut;
pub mod geometry;
