//! Commands that ask and change nothing: lists, explanations, what a job would get, use of a window.
//!
//! Each is a question to the client and a function from the answer to text, so that the text can be tested without a
//! server.

pub(crate) mod explain;
pub(crate) mod get;
pub(crate) mod models;
pub(crate) mod plan;
pub(crate) mod usage;
pub(crate) mod verdict;

use wharf_api::client::Client;

/// The world's clock, for ages. Where it cannot be had, ages are unknown; the answer itself is still good.
pub(crate) fn world_now(client: &Client) -> Option<u64> {
    client.summary().ok().map(|summary| summary.now_ms)
}
