//! What is promised for later: reserved starts, booked windows, planned downtimes.

pub(crate) mod booked;
pub(crate) mod downtimes;
pub(crate) mod reserve;
