//! What the user hands in: jobs and bookings as files or flags, and data files, compressed or not.

pub(crate) mod booking;
pub(crate) mod files;
pub(crate) mod job;
