//! What people are told: verdicts, and capacity that nothing can use.

pub mod stranded;
pub mod verdict;
