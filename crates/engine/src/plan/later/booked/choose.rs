//! Which places a booked window gets: what is free or will be, then what others have borrowed, then batch work.
//!
//! Worked example: four nodes; one is free, one has a job whose time limit is up before the window begins, one a borrower, one
//! an inference job within its guarantee. A window of two nodes gets the first two and disturbs nobody; one of three also
//! gets the borrower's, who is asked in time; one of four is short of a node.

use alloc::vec::Vec;
use core::cmp::Reverse;
use strum::VariantArray;

use super::steps;
use crate::model::job::Class;
use crate::model::placement::Placement;
use crate::plan::draft::Draft;
use crate::plan::evict::victims::all_of_job;
use crate::plan::later::reserve;
use crate::plan::lines;
use crate::plan::place::{Ask, Fit, place};
use crate::state::bookings::Booking;
use crate::state::jobs::{Job, KindKey, Phase};
use crate::state::ledger::Step;
use crate::units::{BookingId, JobId, Timestamp};

/// In which order places are taken from those who hold them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
enum WindowSource {
    /// They are over when the window begins.
    Over,
    /// Batch work of the own tenant, or of a tenant above its guarantee.
    BorrowedBatch,
    /// Interactive work of those.
    BorrowedInteractive,
    /// Batch work within its tenant's guarantee.
    Batch,
    /// Interactive work within it.
    Interactive,
    /// Inference, where its tenant's inference alone is above the guarantee.
    Inference,
}

/// A booking and what is chosen of it so far.
#[derive(Clone, Copy)]
pub(crate) struct WindowPart<'a> {
    /// Which.
    pub(crate) id: BookingId,
    /// As it is in the state.
    pub(crate) booking: &'a Booking,
    /// Places that it keeps.
    pub(crate) kept: &'a [Placement],
}

/// True when somebody who is there can be told to leave for a window: not work that no guarantee could get back in time either.
pub(crate) fn may_be_asked(draft: &mut Draft<'_>, job: &Job) -> bool {
    let inference = job.spec.class == Class::Inference;
    may_leave(draft, job) && (!inference || inference_is_beyond(draft, job))
}

fn may_leave(draft: &Draft<'_>, job: &Job) -> bool {
    let group = lines::work_group(&job.key());
    job.spec.booking.is_none() && !lines::is_fixed(&group, draft.policy)
}

fn inference_is_beyond(draft: &mut Draft<'_>, job: &Job) -> bool {
    let meters: Vec<usize> =
        (0..draft.tree.meters.len()).filter(|&meter| draft.tree.meters[meter].per_gpu().is_some()).collect();
    lines::inference_alone_beyond(draft, job.spec.tenant, &meters)
}

/// Places for as many of the missing tasks as can have one. The draft stays as it is.
pub(crate) fn choose(
    draft: &mut Draft<'_>,
    part: WindowPart<'_>,
    others: &[(BookingId, Vec<Placement>)],
) -> Vec<Placement> {
    let mark = draft.mark();
    hold_others(draft, part, others);
    let held = draft.mark();
    // Starts that were promised to jobs are kept where that is possible.
    let promised: Vec<Step> = promised_steps(draft);
    for &step in &promised {
        draft.occupy(step);
    }
    let mut found = try_all(draft, part);
    if found.len() < missing(part) && !promised.is_empty() {
        draft.roll_back(held);
        let without = try_all(draft, part);
        found = if without.len() > found.len() { without } else { found };
    }
    draft.roll_back(mark);
    numbered(part, found)
}

fn missing(part: WindowPart<'_>) -> usize {
    usize::try_from(part.booking.spec.tasks).unwrap_or(usize::MAX).saturating_sub(part.kept.len())
}

fn promised_steps(draft: &Draft<'_>) -> Vec<Step> {
    let state = draft.state;
    let promised = state.reservations.iter().filter(|(job, _)| state.earmarks.of(*job).is_none());
    let steps = promised.filter_map(|(job, reservation)| {
        let spec = &state.jobs.get(job)?.spec;
        Some(reserve::steps(state, spec, reservation).collect::<Vec<_>>())
    });
    steps.flatten().collect()
}

/// Windows that share a moment with it keep their places, and it keeps its own.
fn hold_others(draft: &mut Draft<'_>, part: WindowPart<'_>, others: &[(BookingId, Vec<Placement>)]) {
    let own = steps(draft, &part.booking.spec, part.kept);
    for step in own {
        draft.occupy(step);
    }
    for (id, booking) in draft.state.bookings.iter().filter(|(id, _)| *id != part.id) {
        if booking.overlaps(part.booking) {
            let chosen = others.iter().find(|(known, _)| *known == id);
            let places = chosen.map_or(&booking.places, |(_, places)| places);
            let held = steps(draft, &booking.spec, places);
            for step in held {
                draft.occupy(step);
            }
        }
    }
}

/// The tasks get the lowest numbers that are not taken.
fn numbered(part: WindowPart<'_>, found: Vec<Placement>) -> Vec<Placement> {
    let free = (0..part.booking.spec.tasks).filter(|task| part.kept.iter().all(|kept| kept.task != *task));
    found.into_iter().zip(free).map(|(place, task)| Placement { task, ..place }).collect()
}

fn try_all(draft: &mut Draft<'_>, part: WindowPart<'_>) -> Vec<Placement> {
    let key = KindKey::of(&part.booking.spec);
    let ways: Vec<_> = draft.asks().options(&key).collect();
    let kept = part.kept.first();
    let mut best = Vec::new();
    for way in ways.into_iter().filter(|way| kept.is_none_or(|kept| kept.pool == way.pool)) {
        let tasks = u32::try_from(missing(part)).unwrap_or(u32::MAX);
        let mut ask = Ask::new(draft.tree, &key, way, tasks);
        let level = key.topology.gang_within;
        ask.domain = kept.zip(level).and_then(|(kept, level)| draft.state.fleet.domain_of(kept.node, level));
        let found = make_room(draft, &mut ask, part);
        if found.len() > best.len() {
            best = found;
        }
        if best.len() == missing(part) {
            break;
        }
    }
    best
}

fn make_room(draft: &mut Draft<'_>, ask: &mut Ask<'_>, part: WindowPart<'_>) -> Vec<Placement> {
    let mark = draft.mark();
    let mut fit = Fit::of(draft, ask);
    let mut jobs = who_holds(draft, ask, part);
    for &source in WindowSource::VARIANTS {
        jobs.retain(|&(_, id)| {
            if fit.is_enough(draft, ask) || !gives(draft, id, source, part) {
                return true;
            }
            if let Some(unit) = all_of_job(draft, id) {
                unit.change(draft, (ask, &mut fit), Draft::evict);
            }
            false
        });
    }
    // Short of some, it has the rest.
    ask.tasks = ask.tasks.min(u32::try_from(fit.most(ask)).unwrap_or(u32::MAX));
    let placed = if ask.tasks > 0 { place(draft, ask) } else { None };
    draft.roll_back(mark);
    placed.map(|placed| placed.tasks).unwrap_or_default()
}

/// Whoever holds something in the pool, the newest first.
fn who_holds(draft: &Draft<'_>, ask: &Ask<'_>, part: WindowPart<'_>) -> Vec<(Reverse<Timestamp>, JobId)> {
    let state = draft.state;
    let here = state.ledger.holdings().filter(|(id, holding)| {
        let own = state.jobs.get(*id).is_none_or(|job| job.spec.booking == Some(part.id));
        !own && holding.staying().any(|task| task.place.pool == ask.pool())
    });
    let mut jobs: Vec<_> = here.map(|(id, holding)| (Reverse(holding.at), id)).collect();
    jobs.sort_unstable();
    jobs
}

/// True when a job makes room for a window as one of that source.
fn gives(draft: &mut Draft<'_>, id: JobId, source: WindowSource, part: WindowPart<'_>) -> bool {
    let (state, now) = (draft.state, draft.now);
    let Some(job) = state.jobs.get(id) else { return false };
    if source == WindowSource::Over {
        return state
            .end_of(id, draft.policy, now)
            .before_window()
            .is_some_and(|end| end <= part.booking.from);
    }
    if job.phase != Phase::Active || !may_leave(draft, job) {
        return false;
    }
    let own = job.spec.tenant == part.booking.spec.tenant;
    let borrowed = |draft: &mut Draft<'_>| own || reserve::is_above_guarantee(draft, id, job);
    match (source, job.spec.class) {
        (WindowSource::BorrowedBatch, Class::Batch)
        | (WindowSource::BorrowedInteractive, Class::Interactive) => borrowed(draft),
        (WindowSource::Batch, Class::Batch) | (WindowSource::Interactive, Class::Interactive) => true,
        (WindowSource::Inference, Class::Inference) => inference_is_beyond(draft, job),
        _ => false,
    }
}
