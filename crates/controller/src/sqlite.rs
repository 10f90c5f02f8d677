//! The real disk: one `SQLite` file in a data directory.
//!
//! Every trait method is one transaction on `DIR/journal.sqlite`, in WAL mode with `synchronous=FULL`, so it
//! is on the platter when it returns. Each journal row carries a checksum over itself and the row before it;
//! a changed, missing or swapped row is therefore found when the journal is read, also where `SQLite` itself
//! would not notice. A process that owns the directory holds an operating system lock on `DIR/lock`, which
//! falls with the process however it ends.
//!
//! How far the journal had come when replies last left is noted beside it, in `DIR/acknowledged`, because everything inside
//! the file can go back together. A journal that lacks something of that is behind: it is refused, or opened
//! on request as a restore. Nothing is written before the first new term, so a refused directory is as it was found.
//!
//! Deliberately absent: repair. A file that is not what was written is refused and left as it is, because a
//! journal with a hole rebuilds a state that never was. There is no retry either; `SQLite` waits
//! a few seconds for a foreign lock, anything longer is the caller's next turn.

mod acknowledged;
mod beside;
mod fault;
mod file;
mod history;
mod journal;
mod leader;
mod snapshots;

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::checkpoints::Checkpoints;
use crate::disk::{
    Batch, Disk, DiskFault, HistoryQuery, HistoryRow, Index, Record, Snapshot, Standing, Term,
};
use crate::look;
use crate::reader::HistoryReader;
pub use file::is_owned;

use acknowledged::{Acknowledged, Found, Noted};
pub(crate) use beside::Beside;
use fault::Cause;

/// What a process wants of a data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A server: creates what is absent, keeps every other owner out, and syncs each commit.
    Own,
    /// Like [`Mode::Own`], and a journal that is behind what was acknowledged is opened all the same.
    Restore,
    /// Like [`Mode::Own`] without syncing, and without a note of what was acknowledged. For benchmarks that write a
    /// journal and then read it: a power failure may cost the whole file.
    Bulk,
    /// A look at a directory that a server may be using: takes no lock, creates nothing, refuses all writes. Whether
    /// the journal is behind is told by [`Disk::is_behind`].
    ReadOnly,
}

/// The [`Disk`] of a running control plane.
#[derive(Debug)]
pub struct SqliteDisk {
    // Before the lock, because fields are dropped in this order: the file must be closed when the next
    // owner gets in.
    checkpoints: Option<Checkpoints>,
    connection: Connection,
    _lock: Option<File>,
    dir: PathBuf,
    file: String,
    mode: Mode,
    /// False while the connection is a look that leaves everything as it is.
    writes: bool,
    acknowledged: Acknowledged,
    /// What the journal lacks of what was acknowledged.
    lacks: Option<String>,
    restoring: bool,
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
    /// Opens the journal in `dir`. Nothing is written yet: a file that this program must not touch, or that is
    /// behind what was acknowledged, is left as it was found.
    pub fn open(dir: &Path, mode: Mode) -> Result<Self, DiskFault> {
        let lock = if mode == Mode::ReadOnly { None } else { Some(file::own(dir)?) };
        // Noted after each commit, so what is read first can only be older than the journal beside it.
        let acknowledged = Acknowledged::load(dir)?;
        let connection = if mode == Mode::ReadOnly { file::read_beside(dir) } else { file::read(dir) }?;
        let path = file::path(dir);
        let mut disk = Self {
            checkpoints: None,
            connection,
            _lock: lock,
            dir: dir.to_owned(),
            file: path.display().to_string(),
            mode,
            writes: false,
            acknowledged,
            lacks: None,
            restoring: false,
            identity: None,
            looked_at: Instant::now(),
        };
        let found = disk.acknowledged.found;
        disk.lacks =
            disk.attempt("cannot read where the journal ends", |journal| journal::lacks(journal, found))?;
        match &disk.lacks {
            Some(what) if mode == Mode::Own => {
                let (dir, what) = (dir.display().to_string(), what.clone());
                Err(DiskFault::Behind { dir, what })
            }
            Some(_) | None => Ok(disk),
        }
    }

    /// The first page that is not as `SQLite` wrote it, if there is one. Reads the whole file.
    pub fn first_fault(&mut self) -> Result<Option<String>, DiskFault> {
        self.attempt("cannot read every page", |connection| Ok(look::first_fault(connection)?))
    }

    /// What the journal lacks of what was acknowledged, in words.
    pub fn lacks(&self) -> Option<&str> {
        self.lacks.as_deref()
    }

    /// From a look to a connection that writes.
    fn begin_to_write(&mut self) -> Result<(), DiskFault> {
        if self.writes || self.mode == Mode::ReadOnly {
            return Ok(());
        }
        let sync = if self.mode == Mode::Bulk { file::Sync::Off } else { file::Sync::Full };
        // The look may have the file for itself.
        let idle =
            Connection::open_in_memory().map_err(|error| self.fault("cannot open the journal", error))?;
        drop(std::mem::replace(&mut self.connection, idle));
        self.connection = file::write(&self.dir, sync)?;
        let path = file::path(&self.dir);
        if self.mode != Mode::Bulk {
            let moved = Checkpoints::beside(&self.connection, &path);
            let attempted = "cannot set the length of the write-ahead log";
            self.checkpoints = Some(moved.map_err(|error| self.fault(attempted, error))?);
        }
        (self.identity, self.looked_at, self.writes) = (identity(&path), Instant::now(), true);
        Ok(())
    }

    fn fault(&self, attempted: &str, error: rusqlite::Error) -> DiskFault {
        Cause::Sqlite(error).into_fault(&self.file, attempted)
    }

    /// Notes beside the journal how far it has come; only then may anybody hear of it.
    fn note(&mut self, noted: Noted) -> Result<(), DiskFault> {
        if self.mode == Mode::Bulk { Ok(()) } else { self.acknowledged.note(noted) }
    }

    /// A file that was removed or replaced takes every write and keeps none: better to stop than to acknowledge it.
    fn still_there(&mut self) -> Result<(), DiskFault> {
        if self.looked_at.elapsed() < LOOK_EVERY {
            return Ok(());
        }
        self.looked_at = Instant::now();
        self.acknowledged.make_sure();
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
        let noted = self.attempt("cannot read how far the journal has come", journal::noted)?;
        Ok(noted.standing)
    }

    fn is_behind(&self) -> bool {
        self.lacks.is_some()
    }

    fn begin_restore(&mut self) -> Result<(), DiskFault> {
        self.restoring = true;
        let next = self.standing()?.next;
        let noted = match self.acknowledged.found {
            Found::Noted(noted) if noted.standing.next > next => return Ok(()),
            Found::Noted(noted) => noted.standing,
            Found::Absent | Found::Unreadable => Standing::default(),
        };
        // More than the journal holds, whatever its chain: it stays behind until the restore is written.
        self.note(Noted { standing: Standing { next: next + 1, ..noted }, chain: 0 })
    }

    fn take_term(&mut self, above: Term) -> Result<Term, DiskFault> {
        self.begin_to_write()?;
        let above = match self.acknowledged.found {
            Found::Noted(noted) => above.max(noted.standing.term),
            Found::Absent | Found::Unreadable => above,
        };
        let term = self.attempt("cannot start a new term", |connection| leader::take(connection, above))?;
        self.attempt("cannot bring the history up to date", history::upgrade)?;
        if self.mode != Mode::Bulk && !self.restoring {
            let noted = self.attempt("cannot read how far the journal has come", journal::noted)?;
            self.note(noted)?;
            self.attempt("cannot start a new term", journal::note_outside)?;
        }
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
        self.begin_to_write()?;
        self.still_there()?;
        let noted =
            self.attempt("cannot append to the journal", |connection| journal::append(connection, batch))?;
        self.note(noted)?;
        if std::mem::take(&mut self.restoring) {
            self.lacks = None;
            self.attempt("cannot finish the restore", journal::note_outside)?;
        }
        Ok(())
    }

    fn put_snapshot(&mut self, term: Term, snapshot: &Snapshot) -> Result<(), DiskFault> {
        self.begin_to_write()?;
        self.attempt("cannot store a snapshot", |connection| snapshots::put(connection, term, snapshot))
    }

    fn history_reader(&self) -> HistoryReader {
        HistoryReader::of_directory(self.dir.clone())
    }

    fn history(&mut self, query: &HistoryQuery) -> Result<Vec<HistoryRow>, DiskFault> {
        self.attempt("cannot read the history", |connection| history::find(connection, query))
    }

    fn trim_history(&mut self, term: Term, before: u64, carried: &[HistoryRow]) -> Result<(), DiskFault> {
        self.begin_to_write()?;
        self.attempt("cannot trim the history", |connection| history::trim(connection, term, before, carried))
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
