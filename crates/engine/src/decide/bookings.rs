//! Booked windows: whether one may be booked, and what is due about those that are.
//!
//! Its places are chosen when its lead begins, together with those of every window that shares a moment with it, the largest
//! tasks first; a job that is there and is not over in time is asked when the window is as far away as it needs to leave. When
//! its end is that near, its own jobs are asked too, the newest first, until what its tenant holds is within its fair share or
//! guarantee: what stays goes on as ordinary work. A job on places that the next window has leaves in any case.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use strum::VariantArray;

use super::emptied::{LeftFor, tell_to_leave};
use super::live::LiveJob;
use super::{Decision, submit, timeline};
use crate::decide::input::BookingRequest;
use crate::model::actor::{Actor, Role};
use crate::model::job::{Class, GpuAsk, Shape, Spec};
use crate::model::placement::Placement;
use crate::model::rejection::{BookingFault, NotOfBooking, Rejection};
use crate::model::submission::Submission;
use crate::plan::draft::Draft;
use crate::plan::later::booked::choose::{self, WindowPart};
use crate::plan::later::held_amount;
use crate::plan::lines;
use crate::state::State;
use crate::state::bookings::{Booker, Booking, BookingEnd, BookingsEvent, PlaceLost};
use crate::state::event::Event;
use crate::state::jobs::{KindKey, Phase};
use crate::units::{BookingId, JobId, Timestamp};

/// Books a window, if everything that is promised then can be kept.
pub(super) fn book(
    state: &State,
    actor: &Actor,
    request: &BookingRequest,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let &BookingRequest { ref job, by, from, span } = request;
    if by == Booker::Operator && !actor.is(Role::Operator) {
        return Err(Rejection::BookingRefused { fault: BookingFault::NotAnOperator, nearest: None });
    }
    let (spec, mut events) = submit::wanted(state, job)?;
    let spec = window_of(spec);
    let until = from + span;
    if let Some(known) = state.bookings.named(&spec.name).and_then(|id| state.bookings.get(id)) {
        let same = known.spec == spec && (known.by, known.from, known.until) == (by, from, until);
        let name = spec.name;
        return if same { Ok(Decision::default()) } else { Err(Rejection::BookingNameInUse { name }) };
    }
    submit::check_trust(state.tenants.policy(), job)?;
    if !asks_whole_gpus(&spec.shape) {
        return Err(Rejection::BookingRefused { fault: BookingFault::WholeGpusOnly, nearest: None });
    }
    let domain = submit::domain(job);
    if let Some(shortfall) = state.never(&KindKey::of(&spec), domain) {
        return Err(Rejection::Never { shortfall, group: None });
    }
    let wanted = timeline::WantedWindow { spec: &spec, domain, by, from, span };
    timeline::check(state, wanted, now)?;
    let (booking, at) = (state.bookings.next(), now);
    events.push(Event::Bookings(BookingsEvent::Booked { booking, spec, by, from, until, at }));
    Ok(events.into())
}

/// A window is all or nothing, and what its jobs are is their own business.
fn window_of(spec: Spec) -> Spec {
    Spec {
        class: Class::Batch,
        priority: 0,
        min: spec.tasks,
        preemptible: true,
        time_limit: None,
        estimate: None,
        service: None,
        checkpoint: None,
        booking: None,
        retries: 0,
        payload: String::new(),
        ..spec
    }
}

fn asks_whole_gpus(shape: &Shape) -> bool {
    shape.alternatives().all(|way| matches!(way.gpus, GpuAsk::Whole(1..)))
}

/// A window is not wanted any more; its jobs go on as every other.
pub(super) fn cancel(state: &State, name: &str, now: Timestamp) -> Result<Decision, Rejection> {
    let booking =
        state.bookings.named(name).ok_or_else(|| Rejection::NoSuchBooking { name: String::from(name) })?;
    let ended = BookingsEvent::Ended { booking, why: BookingEnd::Cancelled, at: now };
    Ok(alloc::vec![Event::Bookings(ended)].into())
}

/// Finds the window that a submission names, if the job may use it.
pub(super) fn find(state: &State, submission: &Submission, spec: &mut Spec) -> Result<(), Rejection> {
    let Some(name) = &submission.booking else { return Ok(()) };
    let id = state.bookings.named(name).ok_or_else(|| Rejection::NoSuchBooking { name: name.clone() })?;
    let booked = &state.bookings.get(id).expect("a named booking is there").spec;
    let refused = |why| Rejection::NotOfBooking { name: name.clone(), why };
    if booked.tenant != spec.tenant {
        return Err(refused(NotOfBooking::OtherTenant));
    }
    if spec.has_groups() {
        return Err(refused(NotOfBooking::Groups));
    }
    let asks = (booked.shape.gpus, spec.shape.gpus, asks_whole_gpus(&spec.shape));
    let (GpuAsk::Whole(has), GpuAsk::Whole(each), true) = asks else {
        return Err(refused(NotOfBooking::WholeGpusOnly));
    };
    let fitting = u64::from(has / each) * u64::from(booked.tasks);
    if fitting < u64::from(spec.min) {
        return Err(refused(NotOfBooking::TooSmall));
    }
    spec.booking = Some(id);
    Ok(())
}

pub(super) fn due(state: &State, asked: &BTreeSet<JobId>, now: Timestamp) -> Vec<Event> {
    let end = |(booking, known)| {
        let why = why_over(state, booking, known, now)?;
        Some(Event::Bookings(BookingsEvent::Ended { booking, why, at: now }))
    };
    let mut events: Vec<Event> = state.bookings.iter().filter_map(end).collect();
    let mut near = near(state, now);
    near.retain(|&(id, known)| why_over(state, id, known, now).is_none());
    if near.is_empty() {
        return events;
    }
    Draft::trial(state, state.tenants.policy(), now, |draft| {
        let (asked, chosen) = (asked.clone(), BTreeMap::new());
        let mut round = WindowRound { draft, asked, events: Vec::new(), chosen };
        for &(booking, known) in &near {
            if now >= known.from && !known.began {
                round.events.push(Event::Bookings(BookingsEvent::Began { booking, at: now }));
            }
            round.choose(booking, known);
        }
        for &(booking, known) in &near {
            round.ask_strangers(booking, known);
            round.ask_own(booking, known);
        }
        events.append(&mut round.events);
    });
    events
}

/// Whether the time of a window is up, or nobody came to it, or could come.
fn why_over(state: &State, id: BookingId, known: &Booking, now: Timestamp) -> Option<BookingEnd> {
    let no_show_at = known.from + state.tenants.policy().windows.no_show;
    let mut jobs = state.jobs_of_booking(id);
    if now >= known.until {
        Some(BookingEnd::TimeUp)
    } else if !known.used && now >= no_show_at && jobs.all(|job| state.earmarks.of(job).is_none()) {
        Some(BookingEnd::NoShow)
    } else {
        let gone = state.tenants.in_policy(state.tenants.path(known.spec.tenant)).is_none();
        (gone && state.jobs_of_booking(id).next().is_none()).then_some(BookingEnd::TenantGone)
    }
}

/// Windows whose lead has begun, and those that meet one of them: the largest first, which find a place least easily.
fn near(state: &State, now: Timestamp) -> Vec<(BookingId, &Booking)> {
    let lead = state.tenants.policy().windows.lead;
    let is_near = |known: &Booking| known.placed_at.is_some() || now + lead >= known.from;
    let beside =
        |known: &Booking| state.bookings.iter().any(|(_, other)| is_near(other) && other.overlaps(known));
    let mut near: Vec<(BookingId, &Booking)> =
        state.bookings.iter().filter(|(_, known)| is_near(known) || beside(known)).collect();
    near.sort_by_key(|(id, known)| {
        let size = (known.spec.shape.gpus.units(), known.spec.tasks);
        (known.placed_at.is_none(), Reverse(size), known.from, *id)
    });
    near
}

/// One decision about all windows that are near.
struct WindowRound<'a> {
    draft: Draft<'a>,
    /// Jobs that were asked to leave in this decision.
    asked: BTreeSet<JobId>,
    events: Vec<Event>,
    chosen: BTreeMap<BookingId, Vec<Placement>>,
}

impl WindowRound<'_> {
    /// Places that cannot be kept are given up, and what is missing is chosen.
    fn choose(&mut self, booking: BookingId, known: &Booking) {
        let (mut kept, before, at) = (known.places.clone(), known.places.len(), self.draft.now);
        for &why in PlaceLost::VARIANTS {
            let is_lost = |place: &&Placement| match why {
                PlaceLost::Gone => !self.is_there(booking, place),
                PlaceLost::Held => self.is_held(booking, known, place),
            };
            let tasks: Vec<u32> = kept.iter().filter(is_lost).map(|place| place.task).collect();
            if !tasks.is_empty() {
                kept.retain(|place| !tasks.contains(&place.task));
                self.events.push(Event::Bookings(BookingsEvent::PlacesLost { booking, tasks, why, at }));
            }
        }
        let mut more = Vec::new();
        if kept.len() < usize::try_from(known.spec.tasks).unwrap_or(usize::MAX) {
            let part = WindowPart { id: booking, booking: known, kept: &kept };
            more = choose::choose(&mut self.draft, part, &self.chosen);
        }
        let news = !more.is_empty() || kept.len() < before || known.placed_at.is_none();
        kept.append(&mut more);
        kept.sort_by_key(|place| place.task);
        if news {
            let tasks = kept.clone();
            self.events.push(Event::Bookings(BookingsEvent::Placed { booking, tasks, at }));
        }
        self.chosen.insert(booking, kept);
    }

    /// True while its GPUs work and new work may come, or the window's own is there already.
    fn is_there(&self, booking: BookingId, place: &Placement) -> bool {
        let state = self.draft.state;
        let rooms = state.ledger.rooms();
        let mut own = state.jobs_of_booking(booking).filter_map(|job| state.ledger.holding(job));
        let mut in_use = || own.any(|holding| holding.staying().any(|task| task.place.meets(place)));
        rooms.is_open_at(place)
            || (rooms.get(place.node).is_some_and(|room| room.has_place(place)) && in_use())
    }

    /// True when a job is there that is neither over when the place is needed nor can be asked to leave.
    fn is_held(&mut self, booking: BookingId, known: &Booking, place: &Placement) -> bool {
        let (state, needed_at) = (self.draft.state, known.from.max(self.draft.now));
        let strangers = state.strangers_in(booking, core::slice::from_ref(place));
        strangers.into_iter().any(|id| {
            !choose::is_over_before(&self.draft, id, needed_at)
                && !state.jobs.get(id).is_some_and(|job| choose::may_be_asked(&mut self.draft, job))
        })
    }

    /// A job in the way is asked in time; once the window is in use, one that can leave at once may stay until it is needed.
    fn ask_strangers(&mut self, booking: BookingId, known: &Booking) {
        let (state, now, policy) = (self.draft.state, self.draft.now, self.draft.policy);
        for id in state.strangers_in(booking, &self.chosen[&booking]) {
            let Some(job) = state.jobs.get(id).filter(|job| job.phase == Phase::Active) else { continue };
            let over = choose::is_over_before(&self.draft, id, known.from.max(now));
            let due = now + state.time_to_leave(&job.spec) >= known.from;
            let fills = known.used && policy.windows.fill && job.spec.class != Class::Inference;
            if due && !over && !fills && choose::may_be_asked(&mut self.draft, job) {
                self.ask(booking, id);
            }
        }
    }

    /// Jobs of a window that is nearly over, the newest first.
    fn ask_own(&mut self, booking: BookingId, known: &Booking) {
        let state = self.draft.state;
        let own: Vec<JobId> = state.jobs_of_booking(booking).collect();
        for id in own.into_iter().rev() {
            let Some(job) = state.jobs.get(id).filter(|job| job.phase == Phase::Active) else { continue };
            let due = self.draft.now + state.time_to_leave(&job.spec) >= known.until;
            if due && !self.goes_on(booking, id) {
                self.ask(booking, id);
            }
        }
    }

    /// True when a job of a window may stay as ordinary work: nobody has booked its places after it, and its tenant stays within
    /// its fair share or guarantee with it; within its guarantee, if no guarantee could get it back.
    fn goes_on(&mut self, booking: BookingId, id: JobId) -> bool {
        let (state, draft) = (self.draft.state, &mut self.draft);
        let (Some(holding), Some(charge)) = (state.ledger.holding(id), state.ledger.charge(id)) else {
            return false;
        };
        let mut others =
            self.chosen.iter().filter(|&(&other, _)| other != booking).flat_map(|(_, places)| places);
        if others.any(|other| holding.staying().any(|task| task.place.meets(other))) {
            return false;
        }
        let (tenant, group, amount) = (charge.group.tenant, charge.group, held_amount(draft, id));
        let meters: Vec<usize> = (0..amount.len()).filter(|&meter| amount[meter] > 0).collect();
        let used = draft.used(tenant);
        let within = meters.iter().all(|&meter| {
            lines::line(draft, tenant, meter, lines::Line::Entitled).cap(used[meter]) == used[meter]
        });
        let (fixed, mut lineage) = (lines::is_fixed(&group, draft.policy), draft.tree.lineage(tenant));
        let goes_on =
            within && !(fixed && lineage.any(|above| lines::fixed_alone_beyond(draft, above, &meters)));
        if !goes_on {
            draft.count(group, amount, false);
        }
        goes_on
    }

    fn ask(&mut self, booking: BookingId, job: JobId) {
        let live = LiveJob::of(self.draft.state, job, self.draft.now);
        if self.asked.insert(job) {
            self.events.extend(tell_to_leave(&self.draft, live, None, LeftFor::Window(booking)));
        }
    }
}
