//! What went wrong, sorted: `SQLite`'s error codes become faults that say what to do.
//!
//! The rule for the border between damage and everything else: our statements are constant and every
//! condition on their values is checked before they run. So an unknown table, a broken constraint or a value
//! of the wrong type can only come from a file that is not as we left it.

use rusqlite::ffi::SQLITE_IOERR_SHORT_READ;
use rusqlite::{Error, ErrorCode};

use crate::disk::{DiskFault, Index};

/// Why a transaction did not happen, before it is known which file and which attempt that was.
#[derive(Debug)]
pub(super) enum Cause {
    /// `SQLite` said no.
    Sqlite(Error),
    /// The file is readable, but what it says cannot be.
    Damage(String),
    /// Already in its final words: a fence, an index, or the caller's own refusal.
    Fault(DiskFault),
}

impl Cause {
    /// For an error met at one record: names the record where it is damaged.
    pub(super) fn in_record(index: Index, error: Error) -> Self {
        if is_damage(&error) {
            Self::Damage(format!("record {index} cannot be read ({error})"))
        } else {
            Self::Sqlite(error)
        }
    }

    pub(super) fn into_fault(self, file: &str, attempted: &str) -> DiskFault {
        match self {
            Self::Fault(fault) => fault,
            Self::Damage(what) => DiskFault::Damaged { file: file.to_owned(), what },
            Self::Sqlite(error) if is_damage(&error) => {
                DiskFault::Damaged { file: file.to_owned(), what: error.to_string() }
            }
            Self::Sqlite(error) => {
                let attempted = format!("{attempted} in {file}");
                DiskFault::Io { attempted, why: error.to_string(), next: hint(&error) }
            }
        }
    }
}

impl From<Error> for Cause {
    fn from(error: Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<DiskFault> for Cause {
    fn from(fault: DiskFault) -> Self {
        Self::Fault(fault)
    }
}

/// A refusal of the operating system.
pub(super) fn io(attempted: String, error: &std::io::Error) -> DiskFault {
    let next = match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Some(MAKE_ROOM),
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => Some(LET_WRITE),
        std::io::ErrorKind::NotADirectory | std::io::ErrorKind::AlreadyExists => {
            Some("name a directory with --data DIR")
        }
        _ => None,
    };
    DiskFault::Io { attempted, why: error.to_string(), next }
}

const MAKE_ROOM: &str = "free space on the disk that holds the data directory";
const LET_WRITE: &str = "check that this user may write the data directory and the files in it";

fn is_damage(error: &Error) -> bool {
    match error {
        // A page that the file should have and has not.
        Error::SqliteFailure(failure, _) if failure.extended_code == SQLITE_IOERR_SHORT_READ => true,
        Error::SqliteFailure(failure, _) => matches!(
            failure.code,
            ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::ConstraintViolation
                | ErrorCode::TypeMismatch
                | ErrorCode::Unknown
        ),
        Error::SqlInputError { .. }
        | Error::QueryReturnedNoRows
        | Error::FromSqlConversionFailure(..)
        | Error::IntegralValueOutOfRange(..)
        | Error::InvalidColumnType(..)
        | Error::Utf8Error(..) => true,
        _ => false,
    }
}

fn hint(error: &Error) -> Option<&'static str> {
    match error.sqlite_error_code()? {
        ErrorCode::DiskFull => Some(MAKE_ROOM),
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen => Some(LET_WRITE),
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            Some("another program has the file open for writing; close it")
        }
        ErrorCode::SystemIoFailure => Some("look for errors of this disk in the system log"),
        ErrorCode::TooBig => Some("a snapshot or an event exceeds what one row can hold"),
        _ => None,
    }
}
