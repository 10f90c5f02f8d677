//! Booked windows.

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::{HolderView, PlacementView};

/// The answer to a booking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Booked {
    /// `wharf.v1.booked`.
    pub schema: String,
    /// The booking.
    pub booking: BookingView,
    /// `false` when the same had been booked before.
    pub created: bool,
}

/// One booking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BookingReply {
    /// `wharf.v1.booking`.
    pub schema: String,
    /// The booking.
    pub booking: BookingView,
}

/// Bookings that are to come or last, the earliest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BookingList {
    /// `wharf.v1.bookings`.
    pub schema: String,
    /// The earliest first.
    pub bookings: Vec<BookingView>,
}

/// How far a booking is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum BookingState {
    /// Its places are not chosen yet.
    Booked,
    /// Its places are chosen; it has not begun.
    Placed,
    /// Its window has begun.
    Open,
}

impl BookingState {
    /// The word for it, the same everywhere.
    pub fn into_str(self) -> &'static str {
        self.into()
    }
}

/// A booked window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BookingView {
    /// Its name.
    pub name: String,
    /// Whose jobs it is for.
    pub tenant: String,
    /// `tenant` or `operator`.
    pub by: String,
    /// How far it is.
    pub state: BookingState,
    /// So many tasks…
    pub tasks: u32,
    /// …of so many GPUs.
    pub gpus_per_task: f64,
    /// When it begins.
    pub from_ms: u64,
    /// When it is over.
    pub until_ms: u64,
    /// When it was booked.
    pub booked_ms: u64,
    /// When its places are chosen, or were to be.
    pub places_ms: u64,
    /// Its places.
    pub places: Vec<PlacementView>,
    /// So many of its tasks have no place; 0 while places are not chosen yet.
    pub short: u32,
    /// Whether a job of it has started.
    pub used: bool,
    /// It is given up then, if nobody has come; `null` once it is used.
    pub no_show_ms: Option<u64>,
    /// Live jobs that name it.
    pub jobs: Vec<String>,
    /// Who else holds its places now.
    pub in_the_way: Vec<HolderView>,
    /// Places that it lost, oldest first.
    pub lost: Vec<LostPlacesView>,
}

/// Places that a booking lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LostPlacesView {
    /// Of so many tasks.
    pub tasks: u32,
    /// Why: `place_gone` or `place_held`.
    pub why: String,
    /// When.
    pub at_ms: u64,
}
