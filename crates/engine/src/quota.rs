//! The tenant tree with its guarantees, limits and fair shares.

pub mod amount;
pub mod meters;
mod share;
pub mod tree;
