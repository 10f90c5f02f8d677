//! What places are worth to the work that usually comes.

pub mod node_classes;
pub mod prices;
pub mod worth;
