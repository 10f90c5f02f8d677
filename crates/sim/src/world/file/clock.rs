//! The fleet's clock: it goes on whatever is done to the wall clock.
//!
//! While the process runs, time is counted by a clock that nobody can set and that goes on while the machine sleeps.
//! Over a restart of the process the same clock tells how long nobody looked. Only after a restart of the machine is
//! the wall clock asked, and believed within bounds: one that is behind adds nothing, one that is absurdly far ahead
//! adds [`AWAY_MAX`]. So the fleet's time never goes back, never stands still and never jumps by years; a wall clock
//! that was set makes the two differ, which is told.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use wharf_engine::units::{Millis, Timestamp};

/// A wall clock that moves by this much against the steady one was set; less is what keeping it right takes.
const STEP_MIN_MS: u64 = 2_000;

/// The longest that a fleet is believed to have been left alone while its machine was off: 30 days. Clocks that are
/// wrong are mostly wrong by years (a dead battery, a typing error); who really was away for longer finds the fleet 30
/// days older, which is harmless and is told.
pub const AWAY_MAX: Millis = Millis(30 * 24 * 3_600_000);

/// What the clocks of the machine show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Milliseconds since 1970 by the wall.
    pub wall_ms: u64,
    /// Milliseconds since the machine was started, counted by a clock that nobody can set.
    pub steady_ms: u64,
    /// Which start of the machine that was; `None` where it is not known.
    pub boot: Option<u128>,
}

/// Where readings come from.
pub type Source = Box<dyn Fn() -> Reading + Send>;

/// The clocks of this machine.
pub fn machine() -> Source {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let boot = boot.ok().and_then(|text| u128::from_str_radix(&text.trim().replace('-', ""), 16).ok());
    Box::new(move || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        Reading { wall_ms, steady_ms: steady_ms(), boot }
    })
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const STEADY: rustix::time::ClockId = rustix::time::ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const STEADY: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

fn steady_ms() -> u64 {
    let shown = rustix::time::clock_gettime(STEADY);
    let (seconds, nanos) = (u64::try_from(shown.tv_sec), u64::try_from(shown.tv_nsec));
    seconds.unwrap_or_default() * 1000 + nanos.unwrap_or_default() / 1_000_000
}

/// What a file remembers of a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remembered {
    pub(super) world: Timestamp,
    pub(super) speed: u64,
    pub(super) wall_ms: u64,
    /// Of which start of the machine, and what the steady clock showed then.
    pub(super) steady: Option<(u128, u64)>,
}

/// A wall clock that is not where it should be; the fleet's own goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The machine was restarted and its clock is behind what it showed before.
    RestartedBehind(Millis),
    /// The machine was restarted and its clock is ahead by more than anybody is away for.
    RestartedAhead(Millis),
    /// It was set back while the process ran.
    Back(Millis),
    /// It was set ahead while the process ran.
    Ahead(Millis),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RestartedBehind(by) => {
                write!(f, "the wall clock is {} behind where it was at the last stop", Span(*by))?;
                write!(f, "; the fleet's clock goes on from where it stood")
            }
            Self::RestartedAhead(by) => {
                write!(f, "the wall clock says that {} have passed since the last stop", Span(*by))?;
                write!(f, "; the fleet's clock goes on as if it were {}", Span(AWAY_MAX))
            }
            Self::Back(by) => {
                write!(f, "the wall clock was set back by {}; the fleet's clock goes on as before", Span(*by))
            }
            Self::Ahead(by) => {
                write!(
                    f,
                    "the wall clock was set ahead by {}; the fleet's clock goes on as before",
                    Span(*by)
                )
            }
        }
    }
}

/// A span in the two largest units that it has: nobody needs the seconds of ten years.
struct Span(Millis);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.0 / 1000;
        match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
            (0, 0, 0, seconds) => write!(f, "{seconds} s"),
            (0, 0, minutes, seconds) => write!(f, "{minutes} min {seconds} s"),
            (0, hours, minutes, _) => write!(f, "{hours} h {minutes} min"),
            (days, hours, _, _) => write!(f, "{days} days {hours} h"),
        }
    }
}

/// World time, which runs a number of times as fast as the machine's.
pub(super) struct Clock {
    source: Source,
    speed: u64,
    /// World time at `last`.
    world: Timestamp,
    last: Reading,
}

impl Clock {
    /// A new world's clock begins with the wall's.
    pub(super) fn begin(source: Source, speed: u64) -> Self {
        let last = source();
        Self { source, speed, world: Timestamp(last.wall_ms), last }
    }

    /// Goes on from what a file remembers. While nobody looked, time went at the speed it had.
    pub(super) fn resume(source: Source, speed: u64, from: Remembered) -> (Self, Option<Step>) {
        let last = source();
        let (away, step) = away(from, last);
        let world = from.world + Millis(away.0.saturating_mul(from.speed));
        (Self { source, speed, world, last }, step)
    }

    pub(super) fn speed(&self) -> u64 {
        self.speed
    }

    pub(super) fn now(&self) -> Timestamp {
        self.at((self.source)())
    }

    fn at(&self, reading: Reading) -> Timestamp {
        let passed = reading.steady_ms.saturating_sub(self.last.steady_ms);
        self.world + Millis(passed.saturating_mul(self.speed))
    }

    /// Whether the wall clock was set since the last look.
    pub(super) fn look(&mut self) -> Option<Step> {
        let reading = (self.source)();
        let expected = self.last.wall_ms + reading.steady_ms.saturating_sub(self.last.steady_ms);
        let (ahead, back) =
            (reading.wall_ms.saturating_sub(expected), expected.saturating_sub(reading.wall_ms));
        (self.world, self.last) = (self.at(reading), reading);
        match (ahead >= STEP_MIN_MS, back >= STEP_MIN_MS) {
            (true, _) => Some(Step::Ahead(Millis(ahead))),
            (_, true) => Some(Step::Back(Millis(back))),
            (false, false) => None,
        }
    }

    /// What the file should remember, as of the last look.
    pub(super) fn remembered(&self) -> Remembered {
        let Reading { wall_ms, steady_ms, boot } = self.last;
        let steady = boot.map(|boot| (boot, steady_ms));
        Remembered { world: self.world, speed: self.speed, wall_ms, steady }
    }

    /// What the steady clock showed at the last look.
    pub(super) fn looked_at(&self) -> Millis {
        Millis(self.last.steady_ms)
    }
}

/// For how long nobody looked, and what is odd about the wall clock.
fn away(from: Remembered, now: Reading) -> (Millis, Option<Step>) {
    let same_boot = from.steady.filter(|&(boot, before)| now.boot == Some(boot) && before <= now.steady_ms);
    if let Some((_, before)) = same_boot {
        return (Millis(now.steady_ms - before), None);
    }
    if now.wall_ms < from.wall_ms {
        return (Millis(0), Some(Step::RestartedBehind(Millis(from.wall_ms - now.wall_ms))));
    }
    let away = Millis(now.wall_ms - from.wall_ms);
    if away > AWAY_MAX { (AWAY_MAX, Some(Step::RestartedAhead(away))) } else { (away, None) }
}

#[cfg(test)]
mod tests;
