//! The tenant tree with its guarantees, limits and fair shares.

pub mod amount;
pub mod meters;
pub mod share;
pub mod tree;
