//! What went wrong, sorted: `SQLite`'s error codes become faults that say what to do.
//!
//! The rule for the border between damage and everything else: our statements are constant and every
//! condition on their values is checked before they run. So an unknown table, a broken constraint or a value
//! of the wrong type can only come from a file that is not as we left it.

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
                match hint(&error) {
                    Some(hint) => io(attempted, Hinted { source: error, hint }),
                    None => io(attempted, error),
                }
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

/// An error of `SQLite` with what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{source}; {hint}")]
struct Hinted {
    source: Error,
    hint: &'static str,
}

pub(super) fn io(
    attempted: String,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> DiskFault {
    DiskFault::Io { attempted, source: source.into() }
}

fn is_damage(error: &Error) -> bool {
    match error {
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
        ErrorCode::DiskFull => Some("free space on the disk that holds the data directory"),
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen => {
            Some("check that this user may write the data directory and the files in it")
        }
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            Some("another program has the file open for writing; close it")
        }
        ErrorCode::SystemIoFailure => Some("look for errors of this disk in the system log"),
        ErrorCode::TooBig => Some("a snapshot or an event exceeds what one row can hold"),
        _ => None,
    }
}
