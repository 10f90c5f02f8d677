//! Moments as people write them: `2026-11-20T08:00Z`, or `+2h` from now.
//!
//! Only times with a zone are read: a file that means another moment on another machine is a trap.

use wharf_engine::units::{Millis, Timestamp};

use super::text;

/// What is said where a moment cannot be read.
pub(super) const ALLOWED: &str = "a time with its zone such as 2026-11-20T08:00Z or 2026-11-20T08:00+01:00, or a span from now such as +2h";

const DAY_MS: i64 = 86_400_000;

/// When something begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// By the calendar.
    At(Timestamp),
    /// So long from now.
    In(Millis),
}

impl Moment {
    /// On a clock that shows `now`.
    pub fn on(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::In(span) => now + span,
        }
    }

    /// As it is written.
    pub(super) fn text(self) -> String {
        match self {
            Self::At(at) => moment_text(at),
            Self::In(span) => format!("+{}", text::duration_text(span.0)),
        }
    }
}

/// Reads a moment.
pub(super) fn moment(written: &str) -> Option<Moment> {
    if let Some(span) = written.strip_prefix('+') {
        return text::duration(span).map(|millis| Moment::In(Millis(millis)));
    }
    calendar(written).map(|millis| Moment::At(Timestamp(millis)))
}

/// Reads a moment that has been, on a clock that shows `now`: `7d` ago, or a time with its zone.
pub fn past_moment(written: &str, now: Timestamp) -> Option<Timestamp> {
    match text::duration(written) {
        Some(ago) => Some(Timestamp(now.0.saturating_sub(ago))),
        None => calendar(written).map(Timestamp),
    }
}

/// A moment of the calendar, in UTC: `2026-11-20T08:00:00Z`.
pub fn moment_text(at: Timestamp) -> String {
    let seconds = at.0 / 1000;
    let (year, month, day) = date_of(i64::try_from(seconds / 86_400).unwrap_or(i64::MAX / 2));
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The day of a moment, in UTC: `2026-11-20`.
pub fn day_text(days: u64) -> String {
    let (year, month, day) = date_of(i64::try_from(days).unwrap_or(i64::MAX / 2));
    format!("{year:04}-{month:02}-{day:02}")
}

/// `YYYY-MM-DDTHH:MM[:SS]` and `Z`, `+HH:MM` or `-HH:MM`, in milliseconds since 1970.
fn calendar(text: &str) -> Option<u64> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let (clock, zone_minutes) = zone(rest)?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let parts: Vec<&str> = clock.split(':').collect();
    let [hour, minute, second] = match parts.as_slice() {
        [_, _] => {
            let [hour, minute] = numbers(clock, ':', [2, 2])?;
            [hour, minute, 0]
        }
        _ => numbers(clock, ':', [2, 2, 2])?,
    };
    let days = days_of(year, month, day);
    let exists = (1..=12).contains(&month) && date_of(days) == (year, month, day);
    if !exists || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let millis = days * DAY_MS + ((hour * 60 + minute - zone_minutes) * 60 + second) * 1000;
    u64::try_from(millis).ok()
}

/// The time of day, and how many minutes its zone is ahead of UTC.
fn zone(text: &str) -> Option<(&str, i64)> {
    if let Some(clock) = text.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let at = text.rfind(['+', '-'])?;
    let (clock, zone) = text.split_at(at);
    let [hours, minutes] = numbers(&zone[1..], ':', [2, 2])?;
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    (hours <= 23 && minutes <= 59).then_some((clock, sign * (hours * 60 + minutes)))
}

/// Numbers of exactly so many digits.
fn numbers<const N: usize>(text: &str, between: char, digits: [usize; N]) -> Option<[i64; N]> {
    let parts: Vec<&str> = text.split(between).collect();
    let mut read = [0; N];
    if parts.len() != N {
        return None;
    }
    for (at, part) in parts.iter().enumerate() {
        let plain = part.len() == digits[at] && part.bytes().all(|byte| byte.is_ascii_digit());
        read[at] = part.parse().ok().filter(|_| plain)?;
    }
    Some(read)
}

/// Days since 1970 of a date of the Gregorian calendar. Years are counted from March, so that the day that comes and goes
/// is their last; 400 of them are 146,097 days.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The date of a day since 1970.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_the_calendar_are_read_and_written() {
        let at = |text| match moment(text) {
            Some(Moment::At(at)) => Some(at.0),
            Some(Moment::In(_)) | None => None,
        };
        assert_eq!(at("1970-01-01T00:00Z"), Some(0));
        assert_eq!(at("2026-11-20T08:00Z"), Some(1_795_161_600_000));
        assert_eq!(at("2026-11-20T08:00:30Z"), Some(1_795_161_630_000));
        assert_eq!(at("2026-11-20T09:00+01:00"), at("2026-11-20T08:00Z"));
        assert_eq!(at("2026-11-19T23:30-08:30"), at("2026-11-20T08:00Z"));
        assert_eq!(at("2024-02-29 12:00Z"), Some(1_709_208_000_000));
        assert_eq!(moment_text(Timestamp(1_795_161_630_000)), "2026-11-20T08:00:30Z");
    }

    #[test]
    fn what_is_no_moment_is_not_read() {
        let wrong = [
            "2026-11-20",
            "2026-11-20T08:00",
            "2026-02-29T08:00Z",
            "2026-13-01T08:00Z",
            "2026-11-20T24:00Z",
            "26-11-20T08:00Z",
            "tomorrow",
            "+",
            "2h",
            "",
        ];
        for text in wrong {
            assert_eq!(moment(text), None, "{text}");
        }
        assert_eq!(moment("+90m"), Some(Moment::In(Millis::from_secs(5400))));
    }

    #[test]
    fn moments_that_have_been_are_spans_ago_or_times_with_a_zone() {
        let now = Timestamp(8 * 86_400_000);
        assert_eq!(past_moment("7d", now), Some(Timestamp(86_400_000)));
        assert_eq!(past_moment("9d", now), Some(Timestamp(0)));
        assert_eq!(past_moment("1970-01-03T01:00+01:00", now), Some(Timestamp(2 * 86_400_000)));
        assert_eq!([past_moment("lately", now), past_moment("2026-11-01", now)], [None, None]);
        assert_eq!([0, 59, 20_777].map(day_text), ["1970-01-01", "1970-03-01", "2026-11-20"]);
    }

    #[test]
    fn every_day_of_four_centuries_comes_back() {
        for days in -10..146_100 {
            let (year, month, day) = date_of(days);
            assert_eq!(days_of(year, month, day), days);
        }
    }
}
