//! The turn: inputs in, one durable commit, then replies and actions.

pub mod disk;
