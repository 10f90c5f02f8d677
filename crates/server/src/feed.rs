//! The feed: what changed, made once from committed events and read by however many watch.
//!
//! The last changes are kept in a ring. A watcher says up to where it has read and gets what came since; one that was away
//! for longer than the ring reaches back is told so, and lists again. A list names its journal index, so that a list
//! and what the feed has since then leave no gap. Watchers hold nothing here: a slow one costs nothing.

mod project;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use wharf_api::v1::Change;
use wharf_controller::disk::Term;

pub(crate) use project::project;

/// The most changes that are kept: minutes of a busy control plane, in some MiB.
const KEPT_MAX: usize = 16_384;

/// Whose indexes a feed has. A restore takes the journal back, and what is written then has the indexes again of what was
/// lost: an index means something together with its term only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The reign of this process.
    pub(crate) term: Term,
    /// Whether it began with a restore.
    pub(crate) restored: bool,
}

impl Origin {
    /// Whether an index of that term, where one was named, is one of this feed.
    pub(crate) fn has(self, term: Option<Term>) -> bool {
        term.map_or(!self.restored, |term| term == self.term)
    }
}

/// The watchers' end.
#[derive(Clone)]
pub(crate) struct Feed {
    pub(crate) origin: Origin,
    ring: Arc<Mutex<Ring>>,
    head: watch::Receiver<u64>,
}

/// The follower's end.
pub(crate) struct FeedWriter {
    ring: Arc<Mutex<Ring>>,
    head: watch::Sender<u64>,
}

struct Ring {
    changes: VecDeque<Arc<Change>>,
    /// The least index from which nothing is missing.
    first: u64,
    /// The next index.
    head: u64,
    kept_max: usize,
}

/// What changed from an index on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) changes: Vec<Arc<Change>>,
    /// Where the next page begins.
    pub(crate) next: u64,
}

/// What is asked for is no longer kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forgotten {
    /// The least index that can be asked for.
    pub(crate) first: u64,
}

/// A feed that begins at a journal index.
pub(crate) fn begin(index: u64, origin: Origin) -> (FeedWriter, Feed) {
    begin_with(index, origin, KEPT_MAX)
}

fn begin_with(index: u64, origin: Origin, kept_max: usize) -> (FeedWriter, Feed) {
    let ring = Ring { changes: VecDeque::new(), first: index, head: index, kept_max };
    let ring = Arc::new(Mutex::new(ring));
    let (head, watched) = watch::channel(index);
    (FeedWriter { ring: Arc::clone(&ring), head }, Feed { origin, ring, head: watched })
}

impl FeedWriter {
    /// Tells what changed up to an index.
    pub(crate) fn tell(&self, changes: Vec<Change>, head: u64) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        if ring.head == head {
            return;
        }
        ring.head = head;
        ring.changes.extend(changes.into_iter().map(Arc::new));
        let beyond = ring.changes.len().saturating_sub(ring.kept_max);
        let forgotten = ring.changes.drain(..beyond).next_back();
        ring.first = forgotten.map_or(ring.first, |last| last.index + 1);
        drop(ring);
        let _ = self.head.send(head);
    }
}

impl Feed {
    /// What changed from `since` on, at most so much.
    pub(crate) fn page(&self, since: u64, limit: usize) -> Result<Page, Forgotten> {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        if since < ring.first {
            return Err(Forgotten { first: ring.first });
        }
        let begin = ring.changes.partition_point(|change| change.index < since);
        let changes: Vec<Arc<Change>> = ring.changes.range(begin..).take(limit).cloned().collect();
        let is_cut = begin + changes.len() < ring.changes.len();
        let last = changes.last().filter(|_| is_cut).map(|last| last.index + 1);
        Ok(Page { changes, next: last.unwrap_or(ring.head.max(since)) })
    }

    /// The next index of what has been told.
    pub(crate) fn head(&self) -> u64 {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).head
    }

    /// Waits until something at or beyond an index is told; false when nothing ever will be.
    pub(crate) async fn told(&mut self, since: u64) -> bool {
        self.head.wait_for(|head| *head > since).await.is_ok()
    }
}
