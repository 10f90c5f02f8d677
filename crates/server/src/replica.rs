//! A replica: the committed state at one journal index, with everything that answers are made of.
//!
//! It never changes while somebody holds it, so a reader may take its time on its own thread. What verdicts on one state
//! have in common is worked out by the first reader that needs it and shared by all others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use wharf_controller::disk::{Disk, Term};
use wharf_controller::outage::Outage;
use wharf_controller::reader::HistoryReader;
use wharf_controller::selectors::Strings;
use wharf_controller::telemetry::Telemetry;
use wharf_controller::turn::{Controller, Figures, SnapshotFault};
use wharf_controller::world::{ClockSteps, Samples, World};
use wharf_engine::answer::verdict::{Answers, Verdict};
use wharf_engine::state::State;
use wharf_engine::units::{JobId, Timestamp};

/// What was committed, at one journal index.
pub struct Replica {
    /// What is true.
    pub state: Arc<State>,
    /// What selectors see of the nodes.
    pub strings: Arc<Strings>,
    /// What the controller says of itself.
    pub vitals: Vitals,
    /// Jobs that are over, and why. It may know of more than `state`, never of less.
    pub history: HistoryReader,
    /// How far replicas are behind the journal.
    pub progress: Arc<Progress>,
    telemetry: Telemetry,
    answers: Mutex<Answers>,
}

/// What a controller says of itself after a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vitals {
    /// The world's time.
    pub now: Timestamp,
    /// Its reign.
    pub term: Term,
    /// Figures of its life.
    pub figures: Figures,
    /// What is wrong with the world, while it does not answer.
    pub outage: Option<Outage>,
    /// Why the last snapshot could not be written, while none has been since.
    pub snapshot_fault: Option<SnapshotFault>,
    /// How often the wall clock was found to be set.
    pub clock_steps: ClockSteps,
}

impl Vitals {
    /// Of a controller as it is now.
    pub(crate) fn of<D: Disk, W: World>(controller: &Controller<D, W>) -> Self {
        Self {
            now: controller.now(),
            term: controller.term(),
            figures: controller.figures(),
            outage: controller.outage().cloned(),
            snapshot_fault: controller.snapshot_fault().cloned(),
            clock_steps: controller.clock_steps(),
        }
    }
}

/// How far the journal is ahead of what readers see.
#[derive(Debug, Default)]
pub struct Progress {
    /// The journal's next index.
    pub(crate) committed: AtomicU64,
    /// That of the newest replica.
    pub(crate) published: AtomicU64,
    /// Copies of the whole state that were made because readers held the one before.
    pub(crate) copies: AtomicU64,
}

impl Progress {
    /// The journal's next index.
    pub(crate) fn committed(&self) -> u64 {
        self.committed.load(Ordering::Relaxed)
    }

    /// How many committed events readers do not see yet.
    pub(crate) fn behind(&self) -> u64 {
        let published = self.published.load(Ordering::Relaxed);
        self.committed.load(Ordering::Relaxed).saturating_sub(published)
    }
}

impl Replica {
    /// A copy of what a controller holds.
    pub fn of<D: Disk, W: World>(controller: &Controller<D, W>) -> Self {
        let index = || AtomicU64::new(controller.state().index());
        let progress = Progress { committed: index(), published: index(), copies: AtomicU64::default() };
        Self {
            state: Arc::new(controller.state().clone()),
            strings: Arc::new(controller.strings().clone()),
            vitals: Vitals::of(controller),
            history: controller.history_reader(),
            progress: Arc::new(progress),
            telemetry: controller.telemetry(),
            answers: Mutex::default(),
        }
    }

    /// The one that comes after it, with another state.
    pub(crate) fn next(&self, state: Arc<State>, strings: Arc<Strings>, vitals: Vitals) -> Self {
        Self {
            state,
            strings,
            vitals,
            history: self.history.clone(),
            progress: Arc::clone(&self.progress),
            telemetry: self.telemetry.clone(),
            answers: Mutex::default(),
        }
    }

    /// How many events made it: the journal index of the next one.
    pub fn index(&self) -> u64 {
        self.state.index()
    }

    /// The world's time.
    pub fn now(&self) -> Timestamp {
        self.vitals.now
    }

    /// The answer for a live job.
    pub fn verdict(&self, job: JobId) -> Option<Verdict> {
        // It is a memory of whole entries: one that a panic interrupted is as good as before.
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        self.state.verdict_among(job, self.now(), &mut answers)
    }

    /// What devices and tasks really do, at its time or a moment later.
    pub fn samples(&self) -> Arc<Samples> {
        self.telemetry.samples(self.now())
    }
}
