//! A look at a `SQLite` file that leaves every byte beside it as it was.
//!
//! An ordinary connection changes files merely by reading. It writes the index of the write-ahead log (`-shm`), and
//! when it closes as the last one it moves the log (`-wal`) into the file and deletes both. A file that is about to be
//! refused is evidence and must stay as it was found, so this module reads it in one of three ways:
//!
//! - Without a log the file is complete: it is opened as immutable, and nothing is created beside it.
//! - With a log, and nobody else at it, the connection takes the file for itself before its first read. `SQLite` then
//!   keeps the index of the log in memory. The log is not moved when the connection closes.
//! - With a log that another process uses, or where this user may not write, the connection is an ordinary one. It
//!   does not move the log either; whatever else changes is the other process's work.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Error, ErrorCode, OpenFlags};

/// A connection for reading. What is beside the file stays as it is.
pub fn open(path: &Path) -> rusqlite::Result<Connection> {
    if !beside(path, "-wal").exists() {
        let uri = immutable_uri(path);
        return connect(Path::new(&uri), OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI);
    }
    match take(path) {
        Err(error) if is_taken(&error) => open_beside_a_writer(path),
        taken => taken,
    }
}

/// A connection for reading a file that another process writes.
pub fn open_beside_a_writer(path: &Path) -> rusqlite::Result<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

/// A file that `SQLite`, or we, keep next to a database.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Whether every page of the database is as `SQLite` wrote it: the first thing that is wrong, if something is.
pub fn first_fault(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let found: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    Ok((found != "ok").then_some(found))
}

/// Takes the file for this connection alone, so that the index of the log is kept in memory.
fn take(path: &Path) -> rusqlite::Result<Connection> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // Whoever has it open keeps it open for longer than is worth waiting.
    connection.busy_timeout(Duration::ZERO)?;
    connection.pragma_update_and_check(None, "locking_mode", "EXCLUSIVE", |_| Ok(()))?;
    // The first read takes the lock, or fails because somebody else has the file open.
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(connection)
}

fn is_taken(error: &Error) -> bool {
    let taken = [
        ErrorCode::DatabaseBusy,
        ErrorCode::DatabaseLocked,
        ErrorCode::ReadOnly,
        ErrorCode::CannotOpen,
        ErrorCode::PermissionDenied,
    ];
    error.sqlite_error_code().is_some_and(|code| taken.contains(&code))
}

fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

/// The path as a URI that tells `SQLite` nobody writes the file.
fn immutable_uri(path: &Path) -> String {
    let escaped = path.as_os_str().as_encoded_bytes().iter().map(|&byte| {
        if byte.is_ascii_alphanumeric() || b"/-._".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    });
    format!("file:{}?immutable=1", escaped.collect::<String>())
}
