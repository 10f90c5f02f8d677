//! I16 to I18: no two windows have one GPU at one moment, and whatever is in a window or downtime that has begun can leave.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::{Finding, name_of};
use crate::state::State;
use crate::state::bookings::Booking;
use crate::state::holding::HeldTask;
use crate::state::jobs::Job;
use crate::state::recount::{held, stays};
use crate::units::BookingId;

pub(super) fn check_windows(state: &State, findings: &mut Vec<Finding>) {
    let all: Vec<_> = state.bookings.iter().collect();
    for (at, (id, one)) in all.iter().enumerate() {
        for (_, other) in &all[at + 1..] {
            if one.until <= other.from || other.until <= one.from {
                continue;
            }
            for place in &one.places {
                let theirs = other.places.iter().filter(|theirs| theirs.node == place.node);
                let shared = theirs.flat_map(|theirs| theirs.gpus.indexes());
                for gpu in shared.filter(|&gpu| place.gpus.contains(gpu)) {
                    findings.push(Finding::BookedTwice { node: name_of(state, place.node), gpu });
                }
            }
        }
        if one.began {
            check_inside(state, *id, one, findings);
        }
    }
    for (id, job) in state.jobs.iter() {
        let known = job.spec.booking.is_none_or(|booking| state.bookings.get(booking).is_some());
        if !known {
            let what = "names a window that is over".to_string();
            findings.push(Finding::PhaseMismatch { job: id.0, what });
        }
    }
}

/// Whatever may be evicted has been told to leave a node that is out of service.
pub(super) fn check_downtimes(state: &State, findings: &mut Vec<Finding>) {
    for (id, _, task) in held(state).filter(|(_, job, task)| stays(task) && job.spec.preemptible) {
        let node = task.place.node;
        let mut begun = state.maintenance.iter().filter(|(_, downtime)| downtime.began);
        if let Some((name, _)) = begun.find(|(_, downtime)| downtime.nodes.contains(&node)) {
            findings.push(Finding::LeftOnClosedNode { job: id.0, downtime: name.to_string() });
        }
    }
}

/// No task of others that may not be evicted is in the places of a window that has begun.
fn check_inside(state: &State, id: BookingId, window: &Booking, findings: &mut Vec<Finding>) {
    let is_stuck = |job: &Job, task: &HeldTask| {
        let inside = window.places.iter().any(|place| {
            place.node == task.place.node && task.place.gpus.indexes().any(|gpu| place.gpus.contains(gpu))
        });
        inside && stays(task) && job.spec.booking != Some(id) && !job.spec.preemptible
    };
    for (job, _, _) in held(state).filter(|(_, job, task)| is_stuck(job, task)) {
        findings.push(Finding::StuckInWindow { job: job.0, booking: window.spec.name.clone() });
    }
}
