//! The turn: inputs in, one durable commit, then replies and actions.
//!
//! [`disk::Disk`] and [`world::World`] are the only two traits at the edge; each has a real and a simulated
//! implementation. [`turn::Controller`] drives the pure engine between them.

#![allow(
    missing_docs,
    reason = "a field whose name and type say it all needs no sentence; tidy asks for one on types and functions"
)]

pub mod checkpoints;
pub mod codec;
pub mod disk;
pub mod history;
pub mod look;
pub mod market;
pub mod memory;
pub mod outage;
pub mod reader;
pub mod selectors;
mod sent;
pub mod sqlite;
pub mod telemetry;
pub mod turn;
pub mod world;
