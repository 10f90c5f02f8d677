//! The HTTP API over one controller.
//!
//! One thread, the [`desk`], owns the controller: it takes inputs in turns and answers questions between them, so
//! that nobody ever sees a state that is not committed. HTTP handlers translate and wait.

mod active;
mod booking;
pub mod desk;
mod ended;
mod eviction;
pub mod fleet_file;
mod http;
mod leaving;
mod maintenance;
pub mod metrics;
pub mod policy;
mod pricing;
mod refused;
mod rejection;
mod reservation;
mod stranded;
mod tenants;
mod text;
mod view;

pub use http::{Hosts, Serving, serve};

#[cfg(test)]
mod tests;
