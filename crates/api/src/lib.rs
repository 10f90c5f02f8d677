//! What Wharf and the outside say to each other: files that people write, wire types of `/v1`, and a client.
//!
//! Parsing happens once, here: what leaves this crate for the engine cannot be wrong in itself. Nothing here
//! decides anything about scheduling.

pub mod client;
pub mod file;
pub mod fuzz;
pub mod v1;
