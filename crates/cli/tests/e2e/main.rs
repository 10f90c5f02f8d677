//! The whole program, as people and accidents use it: real processes, real HTTP, real files.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod abuse;
mod actors;
mod bookings;
mod browsers;
mod chains;
mod changes;
mod damage;
mod devices;
mod drains;
mod ended;
mod evictions;
mod laboratory;
mod messages;
mod outage;
mod policies;
mod readers;
mod readme;
mod reservations;
mod server;
mod services;
mod usage;
mod use_it;
mod world;
