//! The HTTP API over one controller.
//!
//! One thread, the [`desk`], owns the controller and decides. Another, the follower, keeps a second state of what was
//! committed; everything that is read is answered from that, on the reader's own thread, so that no reader ever delays a
//! decision and nobody sees a state that is not committed. HTTP handlers translate and wait.
//!
//! # One request, hop by hop
//!
//! From the submission of a job to its answer:
//!
//! 1. `http::router` finds the handler of `POST /v1/jobs`. On the way there a request passes limits and checks (`http`).
//! 2. `http::jobs::submit` makes a `decide::input::Request` of it: the job file becomes a submission, the headers an actor.
//! 3. [`Desk::decide`](desk::Desk::decide) sends it to the desk's thread and waits.
//! 4. `desk::Worker::turn`, on the desk's thread, takes everything that waits and has
//!    [`Controller::commit_turn`](wharf_controller::turn::Controller::commit_turn) decide, plan and commit it.
//! 5. `follower::FollowerHandle::hand_over` gives the committed events and the replies to the follower. The desk goes on with
//!    [`Controller::finish_turn`](wharf_controller::turn::Controller::finish_turn), which tells the world what to do.
//! 6. `follower::Follower::publish`, on the follower's thread, applies the events to the state that is read, tells the feed, and
//!    lets the replies go, each with the [`Replica`](replica::Replica) of its own turn.
//! 7. `http::jobs::submitted`, in the handler that waits since 3, shows the job as that replica has it.
//!
//! A read takes hops 1 and 2, and [`Desk::read`](desk::Desk::read) answers it from the newest replica.

mod active;
mod booking;
pub mod desk;
mod ended;
mod eviction;
mod feed;
pub mod fleet_file;
mod follower;
mod http;
mod leaving;
mod maintenance;
pub mod metrics;
pub mod policy;
mod pricing;
mod refused;
mod rejection;
pub mod replica;
mod reservation;
mod stranded;
mod tenants;
mod text;
mod view;

pub use http::{Hosts, Serving, serve};

#[cfg(test)]
mod tests;
