//! Commands that need no control plane elsewhere: they are one, play one, check or measure one, or only read files.

pub(crate) mod allocations;
pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod policy;
pub(crate) mod process;
pub(crate) mod sim;
pub(crate) mod trace;
pub(crate) mod up;
