//! Second opinions on the engine's decisions, from code that shares nothing with its planner.
//!
//! [`plain_planner`] decides a whole turn with every rule in the plainest code, for small fleets. [`oracle`] judges every
//! set of victims that a small fleet offers. Both read the engine's state and policy; neither uses its planner's parts.

pub mod oracle;
pub mod plain_planner;
