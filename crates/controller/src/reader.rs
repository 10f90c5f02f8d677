//! History for readers: beside the disk that the controller writes, on the reader's own thread.
//!
//! A query never waits for a turn and no turn waits for a query. Of a directory every query that runs at the same time
//! as others has a connection of its own; a few are kept for the next ones. What an append wrote is seen by every query
//! that begins after it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::disk::{DiskFault, HistoryQuery, HistoryRow};
use crate::memory::MemoryDisk;
use crate::sqlite::Beside;

/// Connections that are kept while nobody uses them: as many as queries mostly run side by side.
const KEPT_MAX: usize = 4;

/// Reads history from any thread. Its clones share their connections.
#[derive(Clone, Debug)]
pub struct HistoryReader(Arc<Source>);

#[derive(Debug)]
enum Source {
    Memory(MemoryDisk),
    Directory { dir: PathBuf, kept: Mutex<Vec<Beside>> },
}

impl HistoryReader {
    pub(crate) fn of_memory(disk: MemoryDisk) -> Self {
        Self(Arc::new(Source::Memory(disk)))
    }

    pub(crate) fn of_directory(dir: PathBuf) -> Self {
        Self(Arc::new(Source::Directory { dir, kept: Mutex::default() }))
    }

    /// The rows that are asked for, newest first.
    pub fn find(&self, query: &HistoryQuery) -> Result<Vec<HistoryRow>, DiskFault> {
        let (dir, kept) = match &*self.0 {
            Source::Memory(disk) => return Ok(disk.find(query)),
            Source::Directory { dir, kept } => (dir, kept),
        };
        let lock = || kept.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = lock().pop();
        let mut connection = idle.map_or_else(|| Beside::open(dir), Ok)?;
        // A connection that failed is not used again: its file may have been replaced.
        let found = connection.find(query)?;
        let mut kept = lock();
        if kept.len() < KEPT_MAX {
            kept.push(connection);
        }
        Ok(found)
    }
}
