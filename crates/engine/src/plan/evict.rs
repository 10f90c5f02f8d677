//! Who has to leave or move so that an ask can be met.

pub mod moves;
pub mod reclaim;
pub mod victims;
