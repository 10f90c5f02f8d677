//! Who has to leave or move so that an ask can be met.

pub(crate) mod moves;
pub(crate) mod search;
pub(crate) mod victims;
