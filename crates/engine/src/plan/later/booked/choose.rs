//! Which places a booked window gets: what is free or will be, then what others have borrowed, then batch work.
//!
//! Worked example: four nodes; one is free, one has a job whose time limit is up before the window begins, one a borrower, one
//! an inference job within its guarantee. A window of two nodes gets the first two and disturbs nobody; one of three also
//! gets the borrower's, which is asked in time; one of four is short of a node.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::ways_of_window;
use crate::model::job::Class;
use crate::model::placement::Placement;
use crate::plan::draft::Draft;
use crate::plan::evict::victims::all_of_job;
use crate::plan::later::kept::{KeptPlaces, booked_steps};
use crate::plan::later::reserve::is_above_guarantee;
use crate::plan::lines;
use crate::plan::place::{Ask, Fit, place};
use crate::state::bookings::Booking;
use crate::state::jobs::{Job, KindKey, Phase};
use crate::state::ledger::Step;
use crate::units::{BookingId, JobId, Timestamp};

/// From which class places are taken when jobs that are over by then do not suffice, and whether only from work that borrows: of
/// the window's own tenant, or of one above its guarantee; of inference, where that alone is above it.
const SOURCES: [(Class, bool); 5] = [
    (Class::Batch, true),
    (Class::Interactive, true),
    (Class::Batch, false),
    (Class::Interactive, false),
    (Class::Inference, true),
];

/// A booking and what is chosen of it so far.
#[derive(Clone, Copy)]
pub(crate) struct WindowPart<'a> {
    pub(crate) id: BookingId,
    pub(crate) booking: &'a Booking,
    /// Places that it keeps.
    pub(crate) kept: &'a [Placement],
}

impl WindowPart<'_> {
    fn missing(self) -> usize {
        usize::try_from(self.booking.spec.tasks).unwrap_or(usize::MAX).saturating_sub(self.kept.len())
    }
}

/// True when a job that holds places has given them back when a window begins.
pub(crate) fn is_over_before(draft: &Draft<'_>, job: JobId, from: Timestamp) -> bool {
    draft.state.end_of(job, draft.policy, draft.now).before_window().is_some_and(|end| end <= from)
}

/// True when a job can be told to leave for a window: not work that no guarantee could get back in time either.
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
    // What windows have does not count: for those, inference within its guarantee never leaves.
    lines::protected_beyond(draft, job.spec.tenant, &meters, &[])
}

/// Places for as many of the missing tasks as can have one. The draft stays as it is.
pub(crate) fn choose(
    draft: &mut Draft<'_>,
    part: WindowPart<'_>,
    others: &BTreeMap<BookingId, Vec<Placement>>,
) -> Vec<Placement> {
    let mark = draft.mark();
    draft.occupy_all(&chosen_steps(draft, part, others));
    let chosen = draft.mark();
    // Starts that were promised to jobs are kept where that is possible.
    let reserved: Vec<Step> = KeptPlaces::starts(draft.state).flat_map(|kept| kept.steps(draft)).collect();
    draft.occupy_all(&reserved);
    let mut found = try_all(draft, part);
    if found.len() < part.missing() && !reserved.is_empty() {
        draft.roll_back(chosen);
        let without = try_all(draft, part);
        found = if without.len() > found.len() { without } else { found };
    }
    draft.roll_back(mark);
    // The tasks get the lowest numbers that are not taken.
    let free = (0..part.booking.spec.tasks).filter(|task| part.kept.iter().all(|kept| kept.task != *task));
    found.into_iter().zip(free).map(|(place, task)| Placement { task, ..place }).collect()
}

/// The places that a window keeps, and those of windows that share a moment with it.
fn chosen_steps(
    draft: &Draft<'_>,
    part: WindowPart<'_>,
    others: &BTreeMap<BookingId, Vec<Placement>>,
) -> Vec<Step> {
    let mut steps = booked_steps(draft, part.booking, part.kept);
    let beside = draft.state.bookings.iter().filter(|(id, _)| *id != part.id);
    for (id, booking) in beside.filter(|(_, booking)| booking.overlaps(part.booking)) {
        steps.extend(booked_steps(draft, booking, others.get(&id).unwrap_or(&booking.places)));
    }
    steps
}

fn try_all(draft: &mut Draft<'_>, part: WindowPart<'_>) -> Vec<Placement> {
    let key = KindKey::of(&part.booking.spec);
    let kept = part.kept.first();
    let mut best = Vec::new();
    for way in ways_of_window(draft, part.kept, &key) {
        let tasks = u32::try_from(part.missing()).unwrap_or(u32::MAX);
        let mut ask = Ask::new(draft.tree, &key, way, tasks);
        let level = key.topology.gang_within;
        ask.domain = kept.zip(level).and_then(|(kept, level)| draft.state.fleet.domain_of(kept.node, level));
        let found = make_room(draft, &mut ask, part);
        if found.len() > best.len() {
            best = found;
        }
        if best.len() == part.missing() {
            break;
        }
    }
    best
}

fn make_room(draft: &mut Draft<'_>, ask: &mut Ask<'_>, part: WindowPart<'_>) -> Vec<Placement> {
    let mark = draft.mark();
    let mut fit = Fit::of(draft, ask);
    let mut jobs = holders(draft, ask, part);
    for source in core::iter::once(None).chain(SOURCES.map(Some)) {
        jobs.retain(|&(_, id)| {
            if fit.is_enough(draft, ask) || !gives(draft, id, source, part.booking) {
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

/// Other jobs that hold something in the pool, the newest first.
fn holders(draft: &Draft<'_>, ask: &Ask<'_>, part: WindowPart<'_>) -> Vec<(Reverse<Timestamp>, JobId)> {
    let state = draft.state;
    let here = state.ledger.holdings().filter(|(id, holding)| {
        let own = state.jobs.get(*id).is_none_or(|job| job.spec.booking == Some(part.id));
        !own && holding.staying().any(|task| task.place.pool == ask.pool())
    });
    let mut jobs: Vec<_> = here.map(|(id, holding)| (Reverse(holding.at), id)).collect();
    jobs.sort_unstable();
    jobs
}

/// True when a job makes room for a window: because it is over when that begins, or as one of a source.
fn gives(draft: &mut Draft<'_>, id: JobId, source: Option<(Class, bool)>, booking: &Booking) -> bool {
    let Some(job) = draft.state.jobs.get(id) else { return false };
    let Some((class, borrows)) = source else { return is_over_before(draft, id, booking.from) };
    if job.spec.class != class || job.phase != Phase::Active || !may_leave(draft, job) {
        return false;
    }
    !borrows
        || match class {
            Class::Inference => inference_is_beyond(draft, job),
            Class::Interactive | Class::Batch => {
                job.spec.tenant == booking.spec.tenant || is_above_guarantee(draft, id)
            }
        }
}
