//! The HTTP API over one controller.
//!
//! One thread, the [`desk`], owns the controller and decides. Another, the follower, keeps a second state of what was
//! committed; everything that is read is answered from that, on the reader's own thread, so that no reader ever delays a
//! decision and nobody sees a state that is not committed. HTTP handlers translate and wait.

mod active;
mod booking;
pub mod desk;
mod ended;
mod eviction;
mod feed;
pub mod fleet_file;
mod follower;
mod http;
mod leaving;
mod maintenance;
pub mod metrics;
pub mod policy;
mod pricing;
mod refused;
mod rejection;
pub mod replica;
mod reservation;
mod stranded;
mod tenants;
mod text;
mod view;

pub use http::{Hosts, Serving, serve};

#[cfg(test)]
mod tests;
