//! What devices and tasks really do, for readers on any thread.
//!
//! A world hands out one [`Telemetry`]. Whoever looks first takes the samples, on its own thread; whoever looks within
//! [`FRESH_FOR`] of that, for a state that is no later, shares them. So telemetry costs nothing while nobody looks, and decisions never wait for it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use wharf_engine::units::Timestamp;

use crate::world::Samples;

/// Samples are taken again after this long, by the wall: real agents report every second or more, and a page that
/// refreshes itself does not ask more often.
const FRESH_FOR: Duration = Duration::from_millis(100);

/// Samples, and when they were taken by the wall.
type Taken = (Instant, Arc<Samples>);

/// A handle to a world's samples; its clones share them.
#[derive(Clone)]
pub struct Telemetry {
    take: Arc<dyn Fn() -> Samples + Send + Sync>,
    last: Arc<Mutex<Option<Taken>>>,
}

impl Telemetry {
    /// Samples that `take` takes. It must not wait for the thread that decides.
    pub fn new(take: impl Fn() -> Samples + Send + Sync + 'static) -> Self {
        Self { take: Arc::new(take), last: Arc::default() }
    }

    /// Samples that are at most a moment old. [`Samples::at`] says of when they are: not of before `at`, as far as the
    /// world has come, so that a reader of a state at that time is not shown what was before it.
    pub fn samples(&self, at: Timestamp) -> Arc<Samples> {
        // Those who come while somebody takes samples wait for these instead of taking their own.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, samples)) =
            last.as_ref().filter(|(taken, samples)| taken.elapsed() < FRESH_FOR && samples.at >= at)
        {
            return Arc::clone(samples);
        }
        let samples = Arc::new((self.take)());
        *last = Some((Instant::now(), Arc::clone(&samples)));
        samples
    }
}

impl Default for Telemetry {
    /// Of a world that tells nothing.
    fn default() -> Self {
        Self::new(Samples::default)
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Telemetry").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn samples_are_shared_until_a_reader_knows_of_something_later() {
        let world = Arc::new(AtomicU64::new(5));
        let clock = Arc::clone(&world);
        let telemetry = Telemetry::new(move || Samples {
            at: Timestamp(clock.load(Ordering::Relaxed)),
            ..Samples::default()
        });
        let first = telemetry.samples(Timestamp(5));
        world.store(9, Ordering::Relaxed);
        assert_eq!(telemetry.samples(Timestamp(9)).at, Timestamp(9), "not of before the state");
        assert_eq!(telemetry.samples(Timestamp(4)).at, Timestamp(9));
        assert_eq!(first.at, Timestamp(5));
    }
}
