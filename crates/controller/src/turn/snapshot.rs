//! When a snapshot is due, and what happens when it cannot be written.
//!
//! The journal is whole without a snapshot; it is only longer, and the next start takes longer. A snapshot that fails is therefore
//! counted and told, and tried again later. Only a fence ends the controller, as it would with the next append.

use wharf_engine::units::{Millis, Timestamp};

use super::{Controller, Fault};
use crate::disk::{Disk, DiskFault, Snapshot};
use crate::world::World;
use crate::{codec, history};

/// How long after a failure the next attempt is made; twice as long after each further one.
const RETRY_AFTER: Millis = Millis::from_secs(60);
/// The longest that is waited: a disk that was made room on is noticed within the hour.
const RETRY_AFTER_MAX: Millis = Millis::from_secs(3600);

/// Why the last snapshot could not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotFault {
    pub what: String,
    /// When it first failed, in world time.
    pub since: Timestamp,
    pub retry_at: Timestamp,
    /// So often in a row.
    pub times: u32,
}

/// When the next snapshot is due.
#[derive(Debug)]
pub(super) struct Snapshots {
    /// At this index.
    due_at: u64,
    pub(super) fault: Option<SnapshotFault>,
}

impl Snapshots {
    pub(super) fn from(due_at: u64) -> Self {
        Self { due_at, fault: None }
    }
}

impl<D: Disk, W: World> Controller<D, W> {
    /// Writes a snapshot and cuts the journal before it.
    pub fn snapshot(&mut self) -> Result<(), Fault> {
        let events = self.state.snapshot();
        let held = u64::try_from(events.len()).unwrap_or(u64::MAX / 2);
        let body = codec::encode_all(&events);
        // Two copies of everything are enough.
        drop(events);
        let state_hash = *blake3::hash(&body).as_bytes();
        let (next, at, version) = (self.state.index(), self.now.0, codec::EVENT_VERSION);
        self.disk.put_snapshot(self.term, &Snapshot { next, at, version, state_hash, body })?;
        let keep = self.state.tenants.policy().history_keep;
        let carried = history::carried(&self.state, self.now);
        self.disk.trim_history(self.term, self.now.0.saturating_sub(keep.0), &carried)?;
        self.snapshots = Snapshots::from(next + self.settings.snapshot_after.max(2 * held));
        self.figures.snapshots += 1;
        Ok(())
    }

    /// Ends in order. The journal is whole without the last snapshot: that it cannot be written is told, and is no failure.
    pub fn close(&mut self) -> Result<(), Fault> {
        self.try_snapshot()
    }

    /// Writes a snapshot when it is time for one, or for another try.
    pub(super) fn snapshot_if_due(&mut self) -> Result<(), Fault> {
        let waits = self.snapshots.fault.as_ref().is_some_and(|fault| self.now < fault.retry_at);
        if waits || self.state.index() < self.snapshots.due_at {
            return Ok(());
        }
        self.try_snapshot()
    }

    fn try_snapshot(&mut self) -> Result<(), Fault> {
        match self.snapshot() {
            Err(Fault::Disk(fault)) if !matches!(fault, DiskFault::Fenced { .. }) => {
                self.snapshot_failed(&fault);
                Ok(())
            }
            written_or_over => written_or_over,
        }
    }

    fn snapshot_failed(&mut self, fault: &DiskFault) {
        self.figures.snapshot_faults += 1;
        let before = self.snapshots.fault.take();
        let times = before.as_ref().map_or(0, |before| before.times);
        let wait = RETRY_AFTER.0.saturating_mul(1 << times.min(16)).min(RETRY_AFTER_MAX.0);
        self.snapshots.fault = Some(SnapshotFault {
            what: fault.to_string(),
            since: before.map_or(self.now, |before| before.since),
            retry_at: self.now + Millis(wait),
            times: times + 1,
        });
    }
}
