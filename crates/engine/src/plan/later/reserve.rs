//! Promised starts (rule 5): which still hold, whom they bind, and who is promised one.
//!
//! Jobs that wait within their fair share are promised the earliest start at which the work in their way is over by
//! its own time limits and estimates, or gone because it borrows and was asked. Until then their places may be filled by
//! work that is over, or can be gone, in time. No promise is made on places that are promised to another job, so a later
//! one never delays an earlier one.

mod borrowed;
mod holders;
mod horizon;
mod promise;

use crate::quota::meters::Meters;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::kept::{KeptPlaces, bar_any};
use super::{held_amount, held_steps, is_over_by};
use crate::model::job::Spec;
use crate::model::placement::Placement;
use crate::model::policy::Amount;
use crate::plan::draft::Draft;
use crate::plan::lines::{self, Line, Pass};
use crate::plan::place::Ask;
use crate::state::State;
use crate::state::jobs::KindKey;
use crate::state::ledger::Step;
use crate::state::reservations::{DropReason, Reservation};
use crate::units::{GpuUnits, JobId, TenantId, Timestamp};

pub(in crate::plan) use holders::{InTheWay, in_the_way, is_free};
pub(in crate::plan) use horizon::Horizon;
pub(in crate::plan) use promise::make;
pub use promise::{StartSearches, Unreserved};

/// Which reservations still hold.
#[derive(Default)]
pub(in crate::plan) struct ReservationReview<'a> {
    /// The earliest start first.
    pub(in crate::plan) kept: Vec<&'a Reservation>,
    pub(in crate::plan) dropped: Vec<(JobId, DropReason)>,
}

impl<'a> ReservationReview<'a> {
    pub(in crate::plan) fn of(draft: &mut Draft<'a>, horizon: &mut Horizon) -> Self {
        let mut review = Self::default();
        let mut all: Vec<&Reservation> = draft.state.reservations.iter().collect();
        all.sort_by_key(|reservation| (reservation.start, reservation.job));
        for reservation in all {
            match broken(draft, horizon, &review.kept, reservation) {
                Some(why) => review.dropped.push((reservation.job, why)),
                None => review.kept.push(reservation),
            }
        }
        review
    }
}

/// Why a reservation does not hold any more beside those with an earlier start, if it does not.
fn broken(
    draft: &mut Draft<'_>,
    horizon: &mut Horizon,
    earlier: &[&Reservation],
    reservation: &Reservation,
) -> Option<DropReason> {
    let state = draft.state;
    if draft.policy.reservations_max == 0 {
        return Some(DropReason::Policy);
    }
    // Its places are earmarked already; the work that leaves them may be late all the same.
    if state.earmarks.of(reservation.job).is_some() {
        return (draft.now >= reservation.start).then_some(DropReason::Overrun);
    }
    let spec = reservation.spec(state);
    let is_there = |place: &Placement| {
        let allowed = state.fleet.set_has_node(spec.shape_of(place.task).nodes, place.node);
        allowed && state.ledger.rooms().is_open_at(place)
    };
    if !reservation.tasks.iter().all(is_there) {
        return Some(DropReason::PlaceGone);
    }
    let key = state.jobs.get(reservation.job)?.key();
    if bar_any(KeptPlaces::ordered(state), draft, &key, &reservation.tasks) {
        return Some(DropReason::Booked);
    }
    if let Some(other) = earmarked_for(state, reservation) {
        let own = other.tenant == spec.tenant;
        return Some(if own { DropReason::Priority } else { DropReason::Guarantee });
    }
    let Some(ask) = ask_of(draft, &key, reservation) else { return Some(DropReason::Policy) };
    let way = in_the_way(draft, &ask, reservation);
    let late = way.others.iter().find_map(|&other| why_there(draft, other, reservation));
    if late.is_some() {
        return late;
    }
    let mut before = EarlierStarts::until(draft, earlier.iter().copied(), spec.tenant, reservation.start);
    // It was reckoned with them when it was made; it is given up for what is used, not for what is promised.
    before.beside.fill(0);
    let earmarked = state.earmarks.iter().map(|(job, _)| job);
    before.leaving.extend(earmarked.filter(|job| !reservation.fillers.contains(job)));
    before.leaving.extend(way.fillers.iter().chain(&way.borrowers));
    (!before.leave_entitled(draft, horizon, &ask, reservation.start)).then_some(DropReason::AboveShare)
}

/// The job for which a reserved place is earmarked, if there is one: it was served before, whatever was reserved.
fn earmarked_for<'a>(state: &'a State, reservation: &Reservation) -> Option<&'a Spec> {
    let takes = |place: &Placement| {
        let fit =
            |of: &Placement| of.units_each.parts() + place.units_each.parts() <= GpuUnits::WHOLE.parts();
        reservation.tasks.iter().any(|of| of.meets(place) && !fit(of))
    };
    // Earlier earmarks were reckoned with.
    let mut later = state.earmarks.iter().filter(|(job, _)| reservation.fillers.contains(job));
    let (job, _) = later.find(|(_, earmark)| earmark.tasks.iter().any(takes))?;
    state.jobs.get(job).map(|job| &job.spec)
}

/// Why a job that may not be asked to leave would still be there at a promised start, if it would.
fn why_there(draft: &Draft<'_>, id: JobId, reservation: &Reservation) -> Option<DropReason> {
    let job = draft.state.jobs.get(id)?;
    if is_over_by(draft, id, reservation.start) {
        return None;
    }
    let promised = reservation.spec(draft.state);
    let came_later = reservation.fillers.contains(&id);
    let own = job.spec.tenant == promised.tenant;
    Some(if reservation.borrowers.contains(&id) {
        DropReason::WithinShare
    } else if came_later && own && !is_behind(&job.key(), promised) {
        DropReason::Priority
    } else if came_later && !own {
        DropReason::Guarantee
    } else if job.past.extended.is_some() {
        DropReason::Extended
    } else {
        DropReason::Overrun
    })
}

/// What a job asks for at its promised places, if the policy still allows that.
pub(in crate::plan) fn ask_of<'k>(
    draft: &Draft<'_>,
    key: &'k KindKey,
    reservation: &Reservation,
) -> Option<Ask<'k>> {
    draft.asks().of_places(key, reservation.spec(draft.state), &reservation.tasks)
}

/// What other promises change until a start.
struct EarlierStarts {
    /// What the tenant's jobs that are promised a start by then hold from then on, by meter.
    beside: Meters,
    /// Jobs that have to leave by then.
    leaving: BTreeSet<JobId>,
}

impl EarlierStarts {
    fn until<'r>(
        draft: &Draft<'_>,
        all: impl Iterator<Item = &'r Reservation>,
        tenant: TenantId,
        start: Timestamp,
    ) -> Self {
        let state = draft.state;
        let mut before = Self { beside: draft.tree.zero(), leaving: BTreeSet::new() };
        // What is earmarked counts already.
        for of in all.filter(|of| of.start <= start && state.earmarks.of(of.job).is_none()) {
            before.leaving.extend(holders::on_gpus_of(state, &of.fillers, &of.tasks));
            before.leaving.extend(&of.borrowers);
            let spec = of.spec(state);
            if spec.tenant == tenant {
                before.beside.add(&draft.tree.charge_of(|task| spec.resources_of(task), of.tasks.iter()));
            }
        }
        before
    }

    /// True when a tenant with the ask and with what is promised to it before, and without what of its own work is over by
    /// then or leaves for it, is within its fair share.
    fn leave_entitled(
        &self,
        draft: &mut Draft<'_>,
        horizon: &mut Horizon,
        ask: &Ask<'_>,
        start: Timestamp,
    ) -> bool {
        let own = lines::work_group(ask.key);
        let below = lines::lower_work(draft, &own);
        let over = horizon.over_by(draft, &own, start, &self.leaving);
        lines::meters_of(ask).all(|meter| {
            let used = draft.used(own.tenant)[meter] + self.beside[meter] + ask.amount(meter);
            let left = used.saturating_sub(below[meter] + over[meter]);
            Amount::Of(left) <= lines::line(draft, own.tenant, meter, Line::Entitled)
        })
    }
}

/// True when a job of the same tenant is not served before another by class or priority.
fn is_behind(key: &KindKey, promised: &Spec) -> bool {
    (key.class, Reverse(key.priority)) >= (promised.class, Reverse(promised.priority))
}

/// True when what a job holds is borrowed. Counted as when it started (rule 3), without own work that gives way to it: what
/// would start within its guarantee must not be asked to leave because it is above it.
pub(in crate::plan) fn is_above_guarantee(draft: &mut Draft<'_>, id: JobId) -> bool {
    let Some(charge) = draft.state.ledger.charge(id) else { return false };
    let (amount, below) = (held_amount(draft, id), lines::lower_work(draft, &charge.group));
    let tenant = charge.group.tenant;
    let is_beyond = |meter: usize| {
        let used = draft.used(tenant)[meter].saturating_sub(below[meter]);
        Amount::Of(used) > lines::line(draft, tenant, meter, Line::Guarantee)
    };
    (0..amount.len()).filter(|&meter| amount[meter] > 0).any(is_beyond)
}

/// True when work in that pass may not have what was promised to a job.
pub(super) fn is_bound(key: &KindKey, pass: Pass, promised: &Spec) -> bool {
    // A reservation never delays work of others within a guarantee.
    if key.tenant == promised.tenant { is_behind(key, promised) } else { pass != Pass::WithinGuarantee }
}

/// The places of a promised start as its job takes them. An answer that is given between two plans may find one of them gone.
pub(in crate::plan) fn steps<'a>(
    state: &'a State,
    reservation: &'a Reservation,
) -> impl Iterator<Item = Step> + 'a {
    let is_there = |place: &&Placement| {
        let room = state.ledger.rooms().get(place.node);
        room.is_some_and(|room| place.gpus.indexes().all(|gpu| gpu < room.gpus.len()))
    };
    let spec = reservation.spec(state);
    let step = |&place: &Placement| Step {
        place,
        resources: spec.resources_of(place.task),
        trust: Some(spec.trust),
    };
    reservation.tasks.iter().filter(is_there).map(step)
}
