//! Commands that stay and look on: until jobs are over, or until the user has seen enough.

pub(crate) mod top;
pub(crate) mod wait;
