//! A connection that reads history beside the one that writes. The write-ahead log lets it: it holds nobody up, and
//! each query sees everything that was committed before it.

use std::path::Path;

use rusqlite::Connection;

use super::{file, history};
use crate::disk::{DiskFault, HistoryQuery, HistoryRow};
use crate::look;

/// A read-only connection to the journal of a directory whose owner is this process.
#[derive(Debug)]
pub(crate) struct Beside {
    connection: Connection,
    file: String,
}

impl Beside {
    pub(crate) fn open(dir: &Path) -> Result<Self, DiskFault> {
        let path = file::path(dir);
        let file = path.display().to_string();
        let opened = look::open_beside_a_writer(&path);
        let connection = opened.map_err(|error| {
            super::Cause::Sqlite(error).into_fault(&file, "cannot open the journal to read its history")
        })?;
        Ok(Self { connection, file })
    }

    pub(crate) fn find(&mut self, query: &HistoryQuery) -> Result<Vec<HistoryRow>, DiskFault> {
        let found = history::find(&mut self.connection, query);
        found.map_err(|cause| cause.into_fault(&self.file, "cannot read the history"))
    }
}
