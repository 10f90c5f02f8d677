//! What places are worth to the work that usually comes.

pub mod prices;
pub mod profiles;
pub mod worth;
