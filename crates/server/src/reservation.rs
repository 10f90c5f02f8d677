//! Promised starts, in the words of the API.

use std::collections::BTreeSet;

use wharf_api::v1::{HolderView, MissedView, ReservationView, UnpromisedView, gpus};
use wharf_engine::plan::Unreserved;
use wharf_engine::state::State;
use wharf_engine::state::reservations::{MissedStart, Reservation};
use wharf_engine::units::{JobId, Timestamp};

use crate::view::placement;

/// All of them, the earliest first.
pub(crate) fn all(state: &State, now: Timestamp) -> Vec<ReservationView> {
    let mut views: Vec<ReservationView> =
        state.reservations.iter().filter_map(|reserved| of(state, reserved.job, now)).collect();
    views.sort_by(|a, b| (a.start_ms, &a.job).cmp(&(b.start_ms, &b.job)));
    views
}

/// What a job was promised.
pub(crate) fn of(state: &State, id: JobId, now: Timestamp) -> Option<ReservationView> {
    let (job, reservation) = (state.jobs.get(id)?, state.reservations.of(id)?);
    let mut holders = holders(state, reservation);
    holders.extend(state.in_the_way_of(id, state.tenants.policy(), now));
    Some(ReservationView {
        job: job.spec.name.clone(),
        tenant: state.tenants.path(job.spec.tenant).to_owned(),
        gpus: gpus(job.spec.units_min()),
        start_ms: reservation.start.0,
        since_ms: reservation.at.0,
        places: reservation.tasks.iter().map(|place| placement(state, &job.spec, place)).collect(),
        waits_for: holders.into_iter().filter_map(|job| holder(state, job, Some(reservation), now)).collect(),
        missed: missed(state, id),
    })
}

/// Why no start is promised to a job that waits.
pub(crate) fn unpromised(state: &State, id: JobId, now: Timestamp) -> Option<UnpromisedView> {
    let (why, jobs) = match state.unpromised(id, state.tenants.policy(), now)? {
        Unreserved::NoKnownEnd { holders } => ("no_known_end", holders),
        Unreserved::AboveShare => ("above_share", Vec::new()),
        Unreserved::OthersFirst => ("others_first", Vec::new()),
        Unreserved::Off => ("off", Vec::new()),
    };
    let holders = jobs.into_iter().filter_map(|job| holder(state, job, None, now)).collect();
    Some(UnpromisedView { why: why.to_owned(), holders })
}

/// Promised starts of a job that were given up, or made earlier.
pub(crate) fn missed(state: &State, id: JobId) -> Vec<MissedView> {
    let view = |missed: &MissedStart| MissedView {
        start_ms: missed.start.0,
        why: missed.why.into_str().to_owned(),
        at_ms: missed.at.0,
    };
    state.reservations.missed(id).iter().map(view).collect()
}

fn holders(state: &State, reservation: &Reservation) -> BTreeSet<JobId> {
    let mut holders = BTreeSet::new();
    for place in &reservation.tasks {
        for (job, task) in state.ledger.tasks_on(place.node) {
            let held = state.ledger.holding(job).and_then(|holding| holding.task(task));
            if held.is_some_and(|held| held.place.gpus.overlaps(place.gpus)) {
                holders.insert(job);
            }
        }
    }
    holders
}

/// Who holds a place, when that is over, and when it is asked to leave.
pub(crate) fn holder(
    state: &State,
    id: JobId,
    of: Option<&Reservation>,
    now: Timestamp,
) -> Option<HolderView> {
    let job = state.jobs.get(id)?;
    let ends = state.end_of(id, state.tenants.policy(), now).known();
    let asked = of.filter(|of| {
        let may_be_asked = of.fillers.contains(&id) || of.borrowers.contains(&id);
        may_be_asked && ends.is_none_or(|end| end > of.start)
    });
    let said = job.time_limit().is_some() || job.spec.estimate.is_some();
    let leave = state.time_to_leave(&job.spec);
    Some(HolderView {
        job: job.spec.name.clone(),
        tenant: state.tenants.path(job.spec.tenant).to_owned(),
        ends_ms: ends.map(|end| end.0),
        learned: ends.is_some() && !said,
        asked_ms: asked.map(|of| of.start.0.saturating_sub(leave.0)),
    })
}
