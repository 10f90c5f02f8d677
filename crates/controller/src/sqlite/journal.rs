//! Journal rows and the chain of checksums through them.
//!
//! Each row's checksum covers the one before it, as in this journal of three records cut before 1:
//!
//! ```text
//! meta first = 1, first_chain = c0        the cut record 0 is gone, its checksum stays
//! row 1   chain c1 = crc(c0, row 1)
//! row 2   chain c2 = crc(c1, row 2)
//! meta next  = 3, next_chain  = c2        without it a lost last row would go unnoticed
//! ```
//!
//! A CRC finds accidents, not forgers; who can write the file can also write a new chain.

use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use super::acknowledged::{Found, Noted};
use super::fault::Cause;
use super::{history, leader, signed, unsigned};
use crate::disk::{Batch, DiskFault, Index, Record, Standing, Term};

/// A place between two records: the index of the one after it, the checksum of the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) index: Index,
    pub(super) chain: u32,
}

/// Which of the journal's ends a mark stands at.
#[derive(Clone, Copy)]
pub(super) enum End {
    First,
    Next,
}

impl End {
    fn keys(self) -> [&'static str; 2] {
        match self {
            Self::First => ["first", "first_chain"],
            Self::Next => ["next", "next_chain"],
        }
    }
}

impl Mark {
    pub(super) fn load(work: &Transaction<'_>, end: End) -> Result<Self, Cause> {
        let mut select = work.prepare_cached("SELECT value FROM meta WHERE key = ?1")?;
        let [index, chain] = end.keys();
        let index = select.query_row([index], |row| unsigned(row, 0))?;
        let chain = select.query_row([chain], |row| row.get(0))?;
        Ok(Self { index, chain })
    }

    pub(super) fn store(self, work: &Transaction<'_>, end: End) -> Result<(), Cause> {
        let mut update = work.prepare_cached("UPDATE meta SET value = ?2 WHERE key = ?1")?;
        let [index, chain] = end.keys();
        update.execute((index, signed(self.index)?))?;
        update.execute((chain, self.chain))?;
        Ok(())
    }

    /// The mark before `index`, which must lie between the journal's ends.
    pub(super) fn before(work: &Transaction<'_>, first: Self, index: Index) -> Result<Self, Cause> {
        assert!(index >= first.index, "the journal holds no record before its first");
        if index == first.index {
            return Ok(first);
        }
        let previous = index - 1;
        let chain = work
            .prepare_cached("SELECT chain FROM journal WHERE idx = ?1")?
            .query_row([signed(previous)?], |row| row.get(0))
            .optional()
            .map_err(|error| Cause::in_record(previous, error))?
            .ok_or_else(|| missing(previous))?;
        Ok(Self { index, chain })
    }

    /// The mark after `record`, when it follows this one.
    fn after(self, term: Term, record: &Record) -> Self {
        let Record { version, at, body } = record;
        let mut fixed = [0; 30];
        fixed[..4].copy_from_slice(&self.chain.to_le_bytes());
        fixed[4..12].copy_from_slice(&self.index.to_le_bytes());
        fixed[12..20].copy_from_slice(&term.to_le_bytes());
        fixed[20..28].copy_from_slice(&at.to_le_bytes());
        fixed[28..].copy_from_slice(&version.to_le_bytes());
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&fixed);
        hasher.update(body);
        Self { index: self.index + 1, chain: hasher.finalize() }
    }
}

/// How far the journal has come, as it is noted outside of it.
pub(super) fn noted(connection: &mut Connection) -> Result<Noted, Cause> {
    let view = connection.transaction()?;
    let Mark { index: next, chain } = Mark::load(&view, End::Next)?;
    Ok(Noted { standing: Standing { term: leader::current(&view)?, next }, chain })
}

/// What the journal lacks of what was acknowledged, in words, if it lacks something.
pub(super) fn lacks(connection: &mut Connection, found: Found) -> Result<Option<String>, Cause> {
    let view = connection.transaction()?;
    let (first, next) = (Mark::load(&view, End::First)?, Mark::load(&view, End::Next)?);
    let noted = match found {
        Found::Noted(noted) => noted,
        Found::Unreadable => return Ok(Some(String::from("what was acknowledged cannot be read"))),
        // A directory from before this file was kept, or one in which nothing was written yet.
        Found::Absent if next.index == 0 || !is_noted_outside(&view)? => return Ok(None),
        Found::Absent => return Ok(Some(String::from("what was acknowledged is not known"))),
    };
    let acknowledged = noted.standing.next;
    if acknowledged > next.index {
        let what = format!("the journal ends at index {}, and {acknowledged} was acknowledged", next.index);
        return Ok(Some(what));
    }
    // What lies before the first record is in the snapshot, which an older program may have written.
    if acknowledged < first.index || Mark::before(&view, first, acknowledged)?.chain == noted.chain {
        return Ok(None);
    }
    Ok(Some(format!("the journal up to index {acknowledged} is another one than was acknowledged")))
}

/// Whether a file of its own says what was acknowledged of this journal.
fn is_noted_outside(view: &Transaction<'_>) -> Result<bool, Cause> {
    let mut select = view.prepare_cached("SELECT EXISTS (SELECT 1 FROM meta WHERE key = 'noted')")?;
    Ok(select.query_row([], |row| row.get(0))?)
}

/// From now on it does.
pub(super) fn note_outside(connection: &mut Connection) -> Result<(), Cause> {
    connection.execute("INSERT OR IGNORE INTO meta (key, value) VALUES ('noted', 1)", [])?;
    Ok(())
}

/// Writes the records of one turn; returns how far the journal has come with them.
pub(super) fn append(connection: &mut Connection, batch: Batch<'_>) -> Result<Noted, Cause> {
    let Batch { term, expected, records, history } = batch;
    let work = leader::write(connection, term)?;
    let mut mark = Mark::load(&work, End::Next)?;
    if mark.index != expected {
        return Err(DiskFault::UnexpectedIndex { expected, actual: mark.index }.into());
    }
    let mut insert = work.prepare_cached(
        "INSERT INTO journal (idx, term, at, version, body, chain) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    let written_by = signed(term)?;
    for record in records {
        let after = mark.after(term, record);
        let (index, at) = (signed(mark.index)?, signed(record.at)?);
        insert.execute((index, written_by, at, record.version, &record.body, after.chain))?;
        mark = after;
    }
    drop(insert);
    mark.store(&work, End::Next)?;
    history::add(&work, history)?;
    work.commit()?;
    Ok(Noted { standing: Standing { term, next: mark.index }, chain: mark.chain })
}

pub(super) fn read(
    connection: &mut Connection,
    from: Index,
    each: &mut dyn FnMut(Index, Record) -> Result<(), DiskFault>,
) -> Result<Index, Cause> {
    let view = connection.transaction()?;
    let first = Mark::load(&view, End::First)?;
    let next = Mark::load(&view, End::Next)?;
    check_range(from, first, next)?;
    let mut mark = Mark::before(&view, first, from)?;
    let mut select = view.prepare_cached(
        "SELECT idx, term, at, version, body, chain FROM journal WHERE idx >= ?1 ORDER BY idx",
    )?;
    let mut rows = select.query([signed(from)?])?;
    while let Some(row) = rows.next().map_err(|error| Cause::in_record(mark.index, error))? {
        let stored = Stored::decode(row).map_err(|error| Cause::in_record(mark.index, error))?;
        mark = stored.follow(mark)?;
        each(stored.index, stored.record)?;
    }
    if mark.index < next.index {
        return Err(missing(mark.index));
    }
    if mark != next {
        return Err(Cause::Damage(format!("record {} lies past the journal's end", next.index)));
    }
    Ok(next.index)
}

fn check_range(from: Index, first: Mark, next: Mark) -> Result<(), Cause> {
    if from < first.index {
        return Err(Cause::Damage(format!(
            "record {from} is asked for, but the journal begins at {} and no snapshot covers the rest",
            first.index
        )));
    }
    if from > next.index {
        return Err(Cause::Damage(format!(
            "record {from} is asked for, but the journal ends before {}",
            next.index
        )));
    }
    Ok(())
}

/// A row as it stands in the file.
struct Stored {
    index: Index,
    term: Term,
    record: Record,
    chain: u32,
}

impl Stored {
    fn decode(row: &Row<'_>) -> rusqlite::Result<Self> {
        let record = Record { version: row.get(3)?, at: unsigned(row, 2)?, body: row.get(4)? };
        Ok(Self { index: unsigned(row, 0)?, term: unsigned(row, 1)?, record, chain: row.get(5)? })
    }

    /// The mark after this row, if it is the one that was written at `mark`.
    fn follow(&self, mark: Mark) -> Result<Mark, Cause> {
        if self.index != mark.index {
            return Err(missing(mark.index));
        }
        let after = mark.after(self.term, &self.record);
        if after.chain != self.chain {
            return Err(Cause::Damage(format!("record {} is not what was written", self.index)));
        }
        Ok(after)
    }
}

fn missing(index: Index) -> Cause {
    Cause::Damage(format!("record {index} is missing"))
}
