//! The pure scheduling engine.
//!
//! `Input ─decide→ Event ─apply→ State ─plan→ Plan ─commit→ Event`, and `State ─actions_due→ Action`.
//!
//! There is no clock, file, thread, random number, hash map or float in here: time and policy are arguments,
//! so the same code runs in production, in replay, in `plan` and in tests, and the same journal gives the same
//! state on any machine.
#![no_std]
#![allow(
    missing_docs,
    reason = "a field whose name and type say it all needs no sentence; tidy asks for one on types and functions"
)]

extern crate alloc;

pub mod answer;
pub mod check;
pub mod decide;
pub mod device;
pub mod model;
pub mod plan;
pub mod price;
pub mod quota;
pub mod state;
pub mod units;
