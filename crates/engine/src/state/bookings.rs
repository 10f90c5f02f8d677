//! The bookings section: windows of time in which places belong to the jobs of one tenant.
//!
//! Worked example: a team books two nodes for Friday, 8 to 16 o'clock, with a lead of an hour. At 7 the places are chosen: from
//! then on work that comes there is over by 8, or can be gone. What is there already is asked at 8 minus its grace. From 8 to
//! 16 only jobs that name the booking start there, and what they leave idle is lent to work that can leave at once. If none has
//! come by 8:15, the window is given up. A booking takes no room in the ledger; what its jobs hold is charged as always.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use crate::model::is_default;
use crate::model::job::Spec;
use crate::model::placement::Placement;
use crate::state::State;
use crate::state::event::Event;
use crate::units::{BookingId, JobId, Millis, Timestamp};

/// The booked windows that are to come or last.
#[derive(Clone, Debug, Default)]
pub struct Bookings {
    by_id: BTreeMap<BookingId, Booking>,
    next: BookingId,
    version: u64,
}

/// A booked window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Booking {
    /// Name, tenant, shape, tasks and topology, as of a job that takes all of it.
    pub spec: Spec,
    pub by: Booker,
    pub from: Timestamp,
    pub until: Timestamp,
    pub at: Timestamp,
    /// Its places, once they are chosen; fewer than its tasks while it is short.
    pub places: Vec<Placement>,
    pub placed_at: Option<Timestamp>,
    pub began: bool,
    pub used: bool,
    pub lost: Vec<LostPlaces>,
}

/// Who booked a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum Booker {
    /// Its tenant, within its own guarantee.
    #[default]
    Tenant,
    /// An operator, with whatever the guarantees of others leave.
    Operator,
}

/// Places that a booking lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostPlaces {
    pub tasks: u32,
    pub why: PlaceLost,
    pub at: Timestamp,
}

/// Why a place of a booking is not one any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(const_into_str, serialize_all = "snake_case")]
pub enum PlaceLost {
    /// Its node or GPU failed, left or was cordoned.
    #[strum(serialize = "place_gone")]
    Gone,
    /// Somebody is there who cannot be gone when it is needed.
    #[strum(serialize = "place_held")]
    Held,
}

/// Why a booking is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(const_into_str, serialize_all = "snake_case")]
pub enum BookingEnd {
    TimeUp,
    Cancelled,
    NoShow,
    /// The policy no longer knows its tenant: nobody could come.
    TenantGone,
}

/// What happens to bookings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "few are held at a time, and those that are large come seldom")]
pub enum BookingsEvent {
    /// Somebody ordered it.
    Booked { booking: BookingId, spec: Spec, by: Booker, from: Timestamp, until: Timestamp, at: Timestamp },
    /// These are its places from now on; fewer than its tasks where no more could be had.
    Placed { booking: BookingId, tasks: Vec<Placement>, at: Timestamp },
    /// The places of these tasks are lost; others are chosen if there are any.
    PlacesLost { booking: BookingId, tasks: Vec<u32>, why: PlaceLost, at: Timestamp },
    /// Its time has come.
    Began { booking: BookingId, at: Timestamp },
    /// It is over; its jobs go on as every other.
    Ended { booking: BookingId, why: BookingEnd, at: Timestamp },
    /// In a snapshot: the next id.
    Carried { next: BookingId },
    /// In a snapshot: how far a booking is.
    CarriedBooking {
        booking: BookingId,
        places: Vec<Placement>,
        placed_at: Option<Timestamp>,
        #[serde(default, skip_serializing_if = "is_default")]
        began: bool,
        #[serde(default, skip_serializing_if = "is_default")]
        used: bool,
        #[serde(default, skip_serializing_if = "is_default")]
        lost: Vec<LostPlaces>,
    },
}

impl Booking {
    /// True when two windows share a moment.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.from < other.until && other.from < self.until
    }

    /// So many of its places are missing, once they were to be chosen.
    pub fn short(&self) -> u32 {
        let has = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        if self.placed_at.is_some() { self.spec.tasks.saturating_sub(has) } else { 0 }
    }

    /// True when one of its places shares a GPU with another place.
    pub fn meets(&self, place: &Placement) -> bool {
        self.places.iter().any(|own| own.meets(place))
    }
}

impl Bookings {
    /// The earliest moment after `now` at which time alone changes something about a booked window.
    pub(super) fn next_deadline(&self, state: &State, now: Timestamp) -> Option<Timestamp> {
        let windows = state.tenants.policy().windows;
        let before = |moment: Timestamp, span: Millis| Timestamp(moment.0.saturating_sub(span.0));
        let mut moments = Vec::new();
        for (id, booking) in self.iter() {
            let Booking { from, until, .. } = *booking;
            moments.extend([before(from, windows.lead), from, until]);
            if !booking.used {
                moments.push(from + windows.no_show);
            }
            let leave = |job: &JobId| state.jobs.get(*job).map(|job| state.time_to_leave(&job.spec));
            if !booking.began {
                let strangers = state.strangers_in(id, &booking.places);
                moments.extend(strangers.iter().filter_map(leave).map(|span| before(from, span)));
            }
            let own = state.jobs_of_booking(id).filter(|job| state.ledger.holding(*job).is_some());
            moments.extend(own.filter_map(|job| leave(&job)).map(|span| before(until, span)));
        }
        moments.into_iter().filter(|&at| at > now).min()
    }

    /// A booking that is to come or lasts.
    pub fn get(&self, booking: BookingId) -> Option<&Booking> {
        self.by_id.get(&booking)
    }

    /// Every one of them, in the order in which they were booked.
    pub fn iter(&self) -> impl Iterator<Item = (BookingId, &Booking)> {
        self.by_id.iter().map(|(&id, booking)| (id, booking))
    }

    /// The one of that name.
    pub fn named(&self, name: &str) -> Option<BookingId> {
        self.iter().find(|(_, booking)| booking.spec.name == name).map(|(id, _)| id)
    }

    /// True when nothing is booked.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The id that the next one gets.
    pub fn next(&self) -> BookingId {
        self.next
    }

    /// Changes with every event and with the first start of a job of a booking.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn use_it(&mut self, booking: BookingId) {
        if let Some(known) = self.by_id.get_mut(&booking) {
            self.version += u64::from(!known.used);
            known.used = true;
        }
    }

    pub(crate) fn apply(&mut self, event: &BookingsEvent) {
        self.version += 1;
        match event {
            &BookingsEvent::Booked { booking, ref spec, by, from, until, at } => {
                assert!(booking >= self.next, "booking ids count up in journal order");
                self.next = BookingId(booking.0 + 1);
                let (spec, places, placed_at, lost) = (spec.clone(), Vec::new(), None, Vec::new());
                let (began, used) = (false, false);
                let made = Booking { spec, by, from, until, at, places, placed_at, began, used, lost };
                self.by_id.insert(booking, made);
            }
            BookingsEvent::Placed { booking, tasks, at } => {
                let known = self.live(*booking);
                known.places.clone_from(tasks);
                known.placed_at = Some(*at);
            }
            BookingsEvent::PlacesLost { booking, tasks, why, at } => {
                let known = self.live(*booking);
                known.places.retain(|place| !tasks.contains(&place.task));
                let tasks = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
                known.lost.push(LostPlaces { tasks, why: *why, at: *at });
            }
            BookingsEvent::Began { booking, at: _ } => self.live(*booking).began = true,
            BookingsEvent::Ended { booking, .. } => {
                let ended = self.by_id.remove(booking);
                assert!(ended.is_some(), "a booking ends once");
            }
            BookingsEvent::Carried { next } => self.next = *next,
            BookingsEvent::CarriedBooking { booking, places, placed_at, began, used, lost } => {
                let known = self.live(*booking);
                (known.places, known.lost) = (places.clone(), lost.clone());
                (known.placed_at, known.began, known.used) = (*placed_at, *began, *used);
            }
        }
    }

    fn live(&mut self, booking: BookingId) -> &mut Booking {
        self.by_id.get_mut(&booking).expect("an event names a booking that is to come or lasts")
    }

    pub(crate) fn snapshot(&self, into: &mut Vec<Event>) {
        for (&booking, known) in &self.by_id {
            let Booking { spec, by, from, until, at, places, placed_at, began, used, lost } = known.clone();
            into.push(Event::Bookings(BookingsEvent::Booked { booking, spec, by, from, until, at }));
            if placed_at.is_some() || began {
                let carried = BookingsEvent::CarriedBooking { booking, places, placed_at, began, used, lost };
                into.push(Event::Bookings(carried));
            }
        }
        if self.next > BookingId(0) {
            into.push(Event::Bookings(BookingsEvent::Carried { next: self.next }));
        }
    }
}

impl State {
    /// Live jobs of a booking, in the order in which they came.
    pub fn jobs_of_booking(&self, booking: BookingId) -> impl Iterator<Item = JobId> {
        let of_it = move |id: &JobId| self.jobs.get(*id).is_some_and(|job| job.spec.booking == Some(booking));
        self.jobs.booked().iter().copied().filter(of_it)
    }

    /// Jobs that stay in places of a booking and are not of it, in the order in which they came.
    pub fn strangers_in(&self, id: BookingId, places: &[Placement]) -> BTreeSet<JobId> {
        let own = |job| self.jobs.get(job).is_some_and(|job| job.spec.booking == Some(id));
        let strangers = places.iter().flat_map(|place| {
            let there = self.staying_on(place.node).filter(|(_, held)| held.place.meets(place));
            there.map(|(job, _)| job).filter(|&job| !own(job))
        });
        strangers.collect()
    }
}
