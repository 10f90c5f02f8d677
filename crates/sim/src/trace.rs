//! Traces: recorded workloads, decided by the engine and by simple schedulers beside it.
//!
//! [`replay`] runs jobs of a file on virtual time, [`philly`] makes such jobs of the Philly trace, and [`first_come`]
//! replays them in order of arrival for comparison. [`openb`] places the pods of the openb traces one at a time.
//! [`synthetic`] draws stand-ins for both traces.

pub mod first_come;
pub mod openb;
pub mod philly;
pub mod replay;
pub mod synthetic;
