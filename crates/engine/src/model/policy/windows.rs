//! Which windows may be booked, and what holds in them.

use serde::{Deserialize, Serialize};

use crate::units::Millis;

/// Which windows may be booked, and what holds in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Windows {
    /// A window is booked so long before it begins, at the latest; then its places are chosen.
    pub lead: Millis,
    pub span_max: Millis,
    pub ahead_max: Millis,
    pub bookings_max: u32,
    /// Whether tenants may book themselves, or operators alone.
    pub tenants_may_book: bool,
    /// Whether what the jobs of a booking leave idle is lent.
    pub fill: bool,
    /// A window that no job has used so long after it began is given up.
    pub no_show: Millis,
}

impl Default for Windows {
    fn default() -> Self {
        Self {
            lead: Millis::from_secs(3600),
            span_max: Millis::from_secs(24 * 3600),
            ahead_max: Millis::from_secs(14 * 24 * 3600),
            bookings_max: 4,
            tenants_may_book: true,
            fill: true,
            no_show: Millis::from_secs(15 * 60),
        }
    }
}
