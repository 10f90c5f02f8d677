//! The real disk: one `SQLite` file in a data directory.
//!
//! Every trait method is one transaction on `DIR/journal.sqlite`, in WAL mode with `synchronous=FULL`, so it
//! is on the platter when it returns. Each journal row carries a checksum over itself and the row before it;
//! a changed, missing or swapped row is therefore found when the journal is read, also where `SQLite` itself
//! would not notice. A process that owns the directory holds an operating system lock on `DIR/lock`, which
//! falls with the process however it ends.
//!
//! Deliberately absent: repair. A file that is not what was written is refused and left as it is, because a
//! journal with a hole rebuilds a state that never was. There is no retry either; `SQLite` waits
//! a few seconds for a foreign lock, anything longer is the caller's next turn.

mod fault;
mod file;
mod history;
mod journal;
mod leader;
mod snapshots;

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::checkpoints::Checkpoints;
use crate::disk::{
    Batch, Disk, DiskFault, HistoryQuery, HistoryRow, Index, Record, Snapshot, Standing, Term,
};
use fault::Cause;

/// What a process wants of a data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A server: creates what is absent, keeps every other owner out, and syncs each commit.
    Own,
    /// Like [`Mode::Own`] without syncing. For benchmarks that write a journal and then read it: a power
    /// failure may cost the whole file.
    Bulk,
    /// A look at a directory that a server may be using: takes no lock, creates nothing, refuses all writes.
    /// One exception: beside a copied write-ahead log that came without its index, `SQLite` makes a new one.
    ReadOnly,
}

/// The [`Disk`] of a running control plane.
#[derive(Debug)]
pub struct SqliteDisk {
    // Before the lock, because fields are dropped in this order: the file must be closed when the next
    // owner gets in.
    _checkpoints: Option<Checkpoints>,
    connection: Connection,
    _lock: Option<File>,
    file: String,
    identity: Option<Identity>,
    looked_at: Instant,
}

/// What tells a file from another of the same name: device and inode.
type Identity = (u64, u64);

/// How often a writer looks whether its file is still where it was.
const LOOK_EVERY: Duration = Duration::from_secs(1);

fn identity(path: &Path) -> Option<Identity> {
    let known = std::fs::metadata(path).ok()?;
    Some((known.dev(), known.ino()))
}

impl SqliteDisk {
    /// Opens the journal in `dir`. A file that this program must not touch is refused before anything is
    /// written to it.
    pub fn open(dir: &Path, mode: Mode) -> Result<Self, DiskFault> {
        let file::Opened { connection, lock } = match mode {
            Mode::Own => file::own(dir, file::Sync::Full),
            Mode::Bulk => file::own(dir, file::Sync::Off),
            Mode::ReadOnly => file::read_only(dir),
        }?;
        let path = file::path(dir);
        let checkpoints = match mode {
            Mode::Own => Some(Checkpoints::beside(&connection, &path)),
            Mode::Bulk | Mode::ReadOnly => None,
        };
        let file = path.display().to_string();
        let checkpoints = checkpoints.transpose().map_err(|error| {
            Cause::Sqlite(error).into_fault(&file, "cannot set the length of the write-ahead log")
        })?;
        let (identity, looked_at) = (identity(&path), Instant::now());
        Ok(Self { _checkpoints: checkpoints, connection, _lock: lock, file, identity, looked_at })
    }

    /// A file that was removed or replaced takes every write and keeps none: better to stop than to acknowledge it.
    fn still_there(&mut self) -> Result<(), DiskFault> {
        if self.looked_at.elapsed() < LOOK_EVERY {
            return Ok(());
        }
        self.looked_at = Instant::now();
        if identity(Path::new(&self.file)) == self.identity {
            return Ok(());
        }
        let what = "it was removed or replaced while this process had it open".to_owned();
        Err(DiskFault::Damaged { file: self.file.clone(), what })
    }

    /// Runs `work` and, where it fails, says of which file and what was attempted.
    fn attempt<T>(
        &mut self,
        attempted: &str,
        work: impl FnOnce(&mut Connection) -> Result<T, Cause>,
    ) -> Result<T, DiskFault> {
        work(&mut self.connection).map_err(|cause| cause.into_fault(&self.file, attempted))
    }
}

impl Disk for SqliteDisk {
    fn standing(&mut self) -> Result<Standing, DiskFault> {
        self.attempt("cannot read how far the journal has come", journal::standing)
    }

    fn take_term(&mut self, above: Term) -> Result<Term, DiskFault> {
        let term = self.attempt("cannot start a new term", |connection| leader::take(connection, above))?;
        self.attempt("cannot index the history", history::index)?;
        Ok(term)
    }

    fn snapshot(&mut self) -> Result<Option<Snapshot>, DiskFault> {
        self.attempt("cannot load the newest snapshot", snapshots::newest)
    }

    fn read(
        &mut self,
        from: Index,
        each: &mut dyn FnMut(Index, Record) -> Result<(), DiskFault>,
    ) -> Result<Index, DiskFault> {
        self.attempt("cannot read the journal", |connection| journal::read(connection, from, each))
    }

    fn append(&mut self, batch: Batch<'_>) -> Result<(), DiskFault> {
        self.still_there()?;
        self.attempt("cannot append to the journal", |connection| journal::append(connection, batch))
    }

    fn put_snapshot(&mut self, term: Term, snapshot: &Snapshot) -> Result<(), DiskFault> {
        self.attempt("cannot store a snapshot", |connection| snapshots::put(connection, term, snapshot))
    }

    fn history(&mut self, query: &HistoryQuery) -> Result<Vec<HistoryRow>, DiskFault> {
        self.attempt("cannot read the history", |connection| history::find(connection, query))
    }

    fn trim_history(&mut self, term: Term, before: u64) -> Result<(), DiskFault> {
        self.attempt("cannot trim the history", |connection| history::trim(connection, term, before))
    }
}

/// An unsigned number as `SQLite` holds it; its integers end at `i64::MAX`.
fn signed(value: u64) -> Result<i64, Cause> {
    i64::try_from(value).map_err(|error| Cause::Sqlite(rusqlite::Error::ToSqlConversionFailure(error.into())))
}

/// The unsigned number in a column; a negative one was never written by us.
fn unsigned(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, value))
}
