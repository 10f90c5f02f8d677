//! The pure scheduling engine.
//!
//! `Input ─decide→ Event ─apply→ State ─plan→ Plan ─commit→ Event`, and `State ─actions_due→ Action`.
//!
//! There is no clock, file, thread, random number, hash map or float in here: time and policy are arguments,
//! so the same code runs in production, in replay, in `plan` and in tests, and the same journal gives the same
//! state on any machine.
#![no_std]

extern crate alloc;

pub mod action;
pub mod answer;
pub mod attained;
pub mod bookings;
pub mod catalogue;
pub mod check;
pub mod cut;
pub mod decide;
pub mod demand;
pub mod dependency;
pub mod ends;
pub mod event;
pub mod fleet;
pub mod geometry;
pub mod group;
pub mod holding;
pub mod input;
pub mod job;
pub mod jobs;
pub mod ledger;
pub mod maintenance;
pub mod need;
pub mod owned;
pub mod past;
pub mod plan;
pub mod policy;
pub mod prices;
pub mod profiles;
pub mod promises;
pub mod reservations;
pub mod rooms;
pub mod share;
pub mod state;
pub mod stranded;
pub mod tenants;
pub mod tree;
pub mod units;
pub mod verdict;
pub mod worth;
