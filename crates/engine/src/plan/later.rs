//! What is promised for later: reserved starts, booked windows, planned downtimes.

pub mod booked;
pub mod downtimes;
pub mod reserve;
