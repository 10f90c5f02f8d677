//! The data directory: its lock, and a file that is known to be ours before it is touched.
//!
//! A new file is made under another name and renamed when it is complete, so a file with the right name is
//! always a whole one. An existing file is looked at twice: first its raw header, without `SQLite`, since
//! `SQLite` would leave its side files beside a database that is none of our business; then through `SQLite`,
//! because the header in force may still be in the write-ahead log. Until the first write everything goes through a
//! [`look`] that changes nothing, so that a file can still be refused.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Transaction};

use super::fault::{Cause, io};
use crate::disk::DiskFault;
use crate::look::{self, beside};

/// The format that a new file has. What an older program reads it still reads.
const FORMAT: i32 = 1;

/// The format of a file with a snapshot in pieces, which an older program would take for a damaged one; and the newest
/// that this program reads.
pub(super) const FORMAT_IN_PIECES: i32 = 2;

/// Tells our files from other programs' `SQLite` databases.
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"Whrf");

/// Long enough for an operator's `sqlite3` one-liner or a backup to finish, short enough for a turn.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// More than the number of distinct statements here, so that none is prepared twice.
const STATEMENTS_MAX: usize = 32;

/// A cut of a long journal swells the write-ahead log once; this gives the space back.
const LOG_BYTES_MAX: i64 = 64 << 20;

const SCHEMA: &str = "
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO meta (key, value) VALUES ('first', 0), ('first_chain', 0), ('next', 0), ('next_chain', 0);
CREATE TABLE leader (one INTEGER PRIMARY KEY CHECK (one = 1), term INTEGER NOT NULL) STRICT;
INSERT INTO leader (one, term) VALUES (1, 0);
CREATE TABLE journal (
    idx INTEGER PRIMARY KEY, term INTEGER NOT NULL, at INTEGER NOT NULL, version INTEGER NOT NULL,
    body BLOB NOT NULL, chain INTEGER NOT NULL
) STRICT;
CREATE TABLE snapshot (
    next INTEGER PRIMARY KEY, at INTEGER NOT NULL, version INTEGER NOT NULL, state_hash BLOB NOT NULL,
    body BLOB NOT NULL, digest BLOB NOT NULL
) STRICT;
CREATE TABLE history (
    seq INTEGER PRIMARY KEY, idx INTEGER NOT NULL, kind INTEGER NOT NULL, at INTEGER NOT NULL,
    tenant TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL, actor TEXT
) STRICT;
CREATE INDEX history_name ON history (name);
CREATE INDEX history_tenant ON history (tenant);
CREATE INDEX history_at ON history (at);
CREATE INDEX history_eviction ON history (idx) WHERE kind = 2;
CREATE INDEX history_kind ON history (kind, idx);
";

#[derive(Clone, Copy)]
pub(super) enum Sync {
    Full,
    Off,
}

pub(super) fn path(dir: &Path) -> PathBuf {
    dir.join("journal.sqlite")
}

/// Takes the directory for its one owner. Creates the directory, and nothing else.
pub(super) fn own(dir: &Path) -> Result<File, DiskFault> {
    fs::create_dir_all(dir)
        .map_err(|error| io(format!("cannot create the data directory {}", dir.display()), &error))?;
    lock(dir)
}

/// Opens the journal to write it, which creates one where there is none.
pub(super) fn write(dir: &Path, sync: Sync) -> Result<Connection, DiskFault> {
    let path = path(dir);
    if is_new(&path)? {
        create(dir, &path)?;
    }
    check_header(&path)?;
    connect_to_write(&path, sync).map_err(|cause| failed_open(&path, cause))
}

/// Opens the journal to read it; an empty one where there is none.
pub(super) fn read(dir: &Path) -> Result<Connection, DiskFault> {
    let path = path(dir);
    if is_new(&path)? {
        return empty().map_err(|cause| failed_open(&path, cause));
    }
    check_header(&path)?;
    let opened = look::open(&path).map_err(Cause::Sqlite);
    opened.and_then(|connection| looked(&path, connection)).map_err(|cause| failed_open(&path, cause))
}

/// Opens the journal to read it, beside a server if one runs. There must be one.
pub(super) fn read_beside(dir: &Path) -> Result<Connection, DiskFault> {
    let path = path(dir);
    let attempted = || format!("cannot open {} to read it", path.display());
    let size = fs::metadata(&path).map_err(|error| io(attempted(), &error))?.len();
    if size == 0 && self::size(&beside(&path, "-wal"))? == 0 {
        let why = "it is empty; no server has used this data directory yet".to_owned();
        return Err(DiskFault::Io { attempted: attempted(), why, next: None });
    }
    if !is_owned(dir) {
        return read(dir);
    }
    check_header(&path)?;
    let opened = look::open_beside_a_writer(&path).map_err(Cause::Sqlite);
    opened.and_then(|connection| looked(&path, connection)).map_err(|cause| failed_open(&path, cause))
}

/// True while a server has the directory.
pub fn is_owned(dir: &Path) -> bool {
    let lock = File::open(dir.join("lock"));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Takes the directory, or says who has it.
fn lock(dir: &Path) -> Result<File, DiskFault> {
    let path = dir.join("lock");
    let attempted = |error: std::io::Error| io(format!("cannot lock {}", path.display()), &error);
    // Not truncated on opening: until the lock is ours the content is another process's pid.
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(attempted)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(DiskFault::InUse { dir: dir.display().to_string(), holder: holder(&mut file) });
        }
        Err(TryLockError::Error(error)) => return Err(attempted(error)),
    }
    file.set_len(0).map_err(attempted)?;
    writeln!(file, "{}", std::process::id()).map_err(attempted)?;
    Ok(file)
}

/// The pid in a lock file, in the words of [`DiskFault::InUse`]; empty where it cannot be told.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.take(20).read_to_string(&mut text);
    match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(pid)) => format!(" (pid {pid})"),
        (Ok(_) | Err(_), _) => String::new(),
    }
}

/// True when there is no journal yet. An empty file is one that was never written to.
fn is_new(path: &Path) -> Result<bool, DiskFault> {
    if size(path)? > 0 {
        return Ok(false);
    }
    // SQLite would delete such a log without a word, and with it whatever it still holds.
    if size(&beside(path, "-wal"))? > 0 {
        return Err(damaged(path, "the file is gone or empty, yet its write-ahead log is not"));
    }
    Ok(true)
}

/// Size of a file in bytes; 0 where there is none.
fn size(path: &Path) -> Result<u64, DiskFault> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(error) => Err(io(format!("cannot look at {}", path.display()), &error)),
    }
}

/// Makes an empty journal, whole or not at all.
fn create(dir: &Path, path: &Path) -> Result<(), DiskFault> {
    let draft = beside(path, ".new");
    let attempted = |error: std::io::Error| io(format!("cannot create {}", path.display()), &error);
    // What a crash in the middle of an earlier creation left.
    for suffix in ["", "-journal", "-wal", "-shm"] {
        match fs::remove_file(beside(&draft, suffix)) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(attempted(error)),
        }
    }
    write_schema(&draft)
        .map_err(|cause| cause.into_fault(&draft.display().to_string(), "cannot create the journal"))?;
    fs::rename(&draft, path).map_err(attempted)?;
    // Without this the new name may not survive a power failure, though the content would.
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(attempted)
}

fn write_schema(draft: &Path) -> Result<(), Cause> {
    let mut connection = connect(draft, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
    let work = connection.transaction()?;
    work.pragma_update(None, "application_id", APPLICATION_ID)?;
    work.pragma_update(None, "user_version", FORMAT)?;
    work.execute_batch(SCHEMA)?;
    work.commit()?;
    use_log(&connection)?;
    connection.close().map_err(|(_, error)| Cause::Sqlite(error))
}

/// Refuses what is not ours by the first 100 bytes alone (see "The Database Header" in `SQLite`'s file format).
fn check_header(path: &Path) -> Result<(), DiskFault> {
    let mut header = [0; 100];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    match read {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            return Err(damaged(path, "it ends inside its header"));
        }
        Err(error) => return Err(io(format!("cannot read {}", path.display()), &error)),
    }
    if !header.starts_with(b"SQLite format 3\0") {
        return Err(damaged(path, "it is not a SQLite database"));
    }
    let number = |at: usize| i32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    check_identity(path, Identity { application_id: number(68), format: number(60) })
}

/// What a file says it is.
#[derive(Clone, Copy)]
struct Identity {
    application_id: i32,
    format: i32,
}

fn check_identity(path: &Path, identity: Identity) -> Result<(), DiskFault> {
    let Identity { application_id, format } = identity;
    if application_id != APPLICATION_ID {
        return Err(damaged(
            path,
            &format!("it is the database of another program (application id {application_id:#x})"),
        ));
    }
    if format > FORMAT_IN_PIECES {
        return Err(DiskFault::Newer {
            file: path.display().to_string(),
            found: format.into(),
            known: FORMAT_IN_PIECES.into(),
        });
    }
    if format < FORMAT {
        return Err(damaged(path, &format!("it has format {format}, which never existed")));
    }
    Ok(())
}

fn connect_to_write(path: &Path, sync: Sync) -> Result<Connection, Cause> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    use_log(&connection)?;
    connection.pragma_update(
        None,
        "synchronous",
        match sync {
            Sync::Full => "FULL",
            Sync::Off => "OFF",
        },
    )?;
    connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES_MAX, |_| Ok(()))?;
    Ok(connection)
}

fn looked(path: &Path, connection: Connection) -> Result<Connection, Cause> {
    prepare(&connection)?;
    check_connected(path, &connection)?;
    Ok(connection)
}

/// A journal in which nothing was written yet.
fn empty() -> Result<Connection, Cause> {
    let connection = Connection::open_in_memory()?;
    connection.execute_batch(SCHEMA)?;
    prepare(&connection)?;
    Ok(connection)
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, Cause> {
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    prepare(&connection)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    Ok(connection)
}

fn prepare(connection: &Connection) -> Result<(), Cause> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    Ok(())
}

fn check_connected(path: &Path, connection: &Connection) -> Result<(), Cause> {
    let view: Transaction<'_> = connection.unchecked_transaction()?;
    let number = |name| view.pragma_query_value(None, name, |row| row.get(0));
    let identity = Identity { application_id: number("application_id")?, format: number("user_version")? };
    Ok(check_identity(path, identity)?)
}

/// Switches to the write-ahead log: one sync per commit, and readers beside the writer.
fn use_log(connection: &Connection) -> Result<(), Cause> {
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode == "wal" {
        return Ok(());
    }
    let attempted = "cannot switch the journal to a write-ahead log".to_owned();
    let why = format!("SQLite stays in mode {mode}");
    let next = Some("put the data directory on a local disk: a network file system cannot hold it");
    Err(Cause::Fault(DiskFault::Io { attempted, why, next }))
}

fn damaged(path: &Path, what: &str) -> DiskFault {
    DiskFault::Damaged { file: path.display().to_string(), what: what.to_owned() }
}

fn failed_open(path: &Path, cause: Cause) -> DiskFault {
    cause.into_fault(&path.display().to_string(), "cannot open the journal")
}
