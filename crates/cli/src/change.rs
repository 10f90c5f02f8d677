//! Commands that change something: work handed in or taken back, levers on jobs and nodes, bookings, faults to try out.
//!
//! Each is a request to the client and a function from the reply to text that names the undo.

pub(crate) mod booking;
pub(crate) mod cancel;
pub(crate) mod jobs;
pub(crate) mod nodes;
pub(crate) mod sim_fault;
pub(crate) mod submit;
