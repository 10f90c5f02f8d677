//! `windows.yaml`: which windows may be booked, and what holds in them.

use wharf_engine::model::policy::{Policy, Windows};
use wharf_engine::units::Millis;

use super::super::field::{Field, Map};
use super::super::tree::Node;
use super::super::{Fault, text};
use super::preemption::set;

const MINUTE: Millis = Millis::from_secs(60);
const WEEK: Millis = Millis::from_secs(7 * 86_400);
const YEAR: Millis = Millis::from_secs(366 * 86_400);
/// The most bookings of one tenant: each new one is checked against all of them.
const BOOKINGS_MAX: u32 = 64;

/// Reads `windows.yaml`.
pub(super) fn windows(root: &Node) -> Result<Windows, Fault> {
    let known = ["lead", "span_max", "ahead_max", "bookings_max", "tenants_may_book", "fill", "no_show"];
    let keys = Map::root(root, &known)?;
    let mut read = Windows::default();
    let why = "with less, no job could be asked to leave in time; with more than a week, chosen places are in the way of other work";
    set(&keys, "lead", &mut read.lead, |field| field.duration_in(MINUTE..=WEEK, why))?;
    let why = "what is wanted for longer is a guarantee";
    set(&keys, "span_max", &mut read.span_max, |field| field.duration_in(MINUTE..=WEEK, why))?;
    let why = "the fleet of the year after next is not known";
    set(&keys, "ahead_max", &mut read.ahead_max, |field| field.duration_in(MINUTE..=YEAR, why))?;
    set(&keys, "bookings_max", &mut read.bookings_max, |field| field.whole(0..=BOOKINGS_MAX))?;
    set(&keys, "tenants_may_book", &mut read.tenants_may_book, Field::truth)?;
    set(&keys, "fill", &mut read.fill, Field::truth)?;
    let why = "a window that is not used keeps its places idle";
    set(&keys, "no_show", &mut read.no_show, |field| field.duration_in(MINUTE..=WEEK, why))?;
    if read.ahead_max < read.lead {
        let at = keys.get("ahead_max")?.or(keys.get("lead")?).and_then(|field| field.at());
        let what = "ahead_max is shorter than lead: nothing could be booked";
        let least = text::duration_text(read.lead.0);
        return Err(Fault::new(at, what).allowed(format!("ahead_max of at least {least}")));
    }
    Ok(read)
}

/// Who borrows may need longer to leave than the lead of a window gives them.
pub(super) fn lead_too_short(policy: &Policy) -> Option<(Millis, Millis)> {
    let (lead, bound) = (policy.windows.lead, policy.recovery_bound());
    (lead < bound).then_some((lead, bound))
}

#[cfg(test)]
mod tests {
    use super::super::super::document;
    use super::*;

    fn read(text: &str) -> Result<Windows, String> {
        document("windows.yaml", text, windows).map_err(|error| error.to_string())
    }

    #[test]
    fn the_example_says_what_is_built_in() {
        assert_eq!(read(include_str!("../../../policy/windows.yaml")), Ok(Windows::default()));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!(read("lead: 10m").map(|read| read.lead), Ok(Millis::from_secs(600)));
        assert!(read("lead: 1s").unwrap_err().contains("from 1m"));
        assert!(read("leed: 1h").unwrap_err().contains("lead"));
        assert!(read("{lead: 2h, ahead_max: 1h}").unwrap_err().contains("nothing could be booked"));
        assert!(read("bookings_max: 100").unwrap_err().contains("64"));
    }

    #[test]
    fn a_lead_below_the_longest_wait_for_a_borrower_is_noticed() {
        let mut policy = Policy::default();
        assert_eq!(lead_too_short(&policy), None);
        policy.windows.lead = MINUTE;
        assert_eq!(lead_too_short(&policy), Some((MINUTE, policy.recovery_bound())));
    }
}
