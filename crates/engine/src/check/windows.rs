//! Booked windows: no two have one GPU at one moment, and whoever sits in one that has begun can leave.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::{Finding, Tasks, name_of};
use crate::state::State;
use crate::state::holding::TaskPhase;

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
        check_inside(state, *id, findings);
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
    for (job, task) in (Tasks { state }).held() {
        let spec = &state.jobs.get(job).expect("what is held belongs to a live job").spec;
        let stays = matches!(task.phase, TaskPhase::Bound | TaskPhase::Running);
        let out = state.maintenance.iter().find(|(_, downtime)| {
            downtime.began && downtime.nodes.contains(&task.place.node) && spec.preemptible
        });
        if let Some((name, _)) = out.filter(|_| stays) {
            findings.push(Finding::LeftOnClosedNode { job: job.0, downtime: name.to_string() });
        }
    }
}

/// Nobody is in the places of a window that has begun who is not of it and may not be evicted.
fn check_inside(state: &State, id: crate::units::BookingId, findings: &mut Vec<Finding>) {
    let Some(window) = state.bookings.get(id).filter(|window| window.began) else { return };
    for (job, task) in (Tasks { state }).held() {
        let spec = &state.jobs.get(job).expect("what is held belongs to a live job").spec;
        let stays = matches!(task.phase, TaskPhase::Bound | TaskPhase::Running);
        let inside = window.places.iter().any(|place| {
            place.node == task.place.node && task.place.gpus.indexes().any(|gpu| place.gpus.contains(gpu))
        });
        if inside && stays && spec.booking != Some(id) && !spec.preemptible {
            findings.push(Finding::StuckInWindow { job: job.0, booking: window.spec.name.clone() });
        }
    }
}
