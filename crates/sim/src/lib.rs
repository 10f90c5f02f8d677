//! The simulated world and everything that runs on it: the fleet of `wharf up`, random runs with faults, trace
//! replay, behaviour cases, scenarios and benchmark shapes. The engine inside is the one that runs in production.

pub mod behaviour;
pub mod cases;
pub mod direct;
pub mod file;
mod flaky;
pub mod fleet;
pub mod mig;
pub mod net;
pub mod obvious;
pub mod openb;
pub mod oracle;
pub mod philly;
pub mod pricing;
pub mod random;
pub mod reference;
pub mod replay;
pub mod scenario;
pub mod shape;
pub mod synthetic;
