//! The HTTP API over one controller.
//!
//! One thread, the [`desk`], owns the controller: it takes inputs in turns and answers questions between them, so
//! that nobody ever sees a state that is not committed. HTTP handlers translate and wait.

pub mod desk;
mod http;
pub mod metrics;
pub mod policy;
mod rejection;
mod text;
mod view;

pub use http::{Serving, serve};
