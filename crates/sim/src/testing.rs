//! The engine on simulated worlds, judged by what was written down or by what must always hold.
//!
//! [`scenario`] is a text of a few lines with its expectation, [`cases`] are collected cases of other schedulers, and
//! [`random`] is whatever a seed brings, with faults. Prices in all of them come from [`pricing`].

pub mod cases;
pub mod pricing;
pub mod random;
pub mod scenario;
