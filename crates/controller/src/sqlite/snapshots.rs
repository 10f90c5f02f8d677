//! Snapshots. Two are kept: the newest to start from, the one before it as evidence when the newest turns
//! out to be wrong. It is no fallback, since the journal between the two is cut.
//!
//! A small body stands in its row. A larger one is divided into pieces in a table of their own, since `SQLite` holds at most a
//! billion bytes in a row and needs all of a row in memory at once. A file with pieces has a format of its own.

use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use super::fault::Cause;
use super::file::FORMAT_IN_PIECES;
use super::journal::{End, Mark};
use super::{leader, signed, unsigned};
use crate::disk::{DiskFault, Index, Snapshot, Term};

const KEPT: i64 = 2;
/// Far below what a row may hold, and large enough that a snapshot has few pieces.
const PIECE_BYTES_MAX: usize = 1 << 20;

pub(super) fn put(connection: &mut Connection, term: Term, snapshot: &Snapshot) -> Result<(), Cause> {
    let work = leader::write(connection, term)?;
    let first = Mark::load(&work, End::First)?;
    let next = Mark::load(&work, End::Next)?;
    if snapshot.next < first.index || snapshot.next > next.index {
        return Err(DiskFault::UnexpectedIndex { expected: snapshot.next, actual: next.index }.into());
    }
    let cut = Mark::before(&work, first, snapshot.next)?;
    insert(&work, snapshot)?;
    work.prepare_cached(
        "DELETE FROM snapshot WHERE next NOT IN (SELECT next FROM snapshot ORDER BY next DESC LIMIT ?1)",
    )?
    .execute([KEPT])?;
    if has_pieces(&work)? {
        work.execute("DELETE FROM snapshot_piece WHERE next NOT IN (SELECT next FROM snapshot)", [])?;
    }
    work.prepare_cached("DELETE FROM journal WHERE idx < ?1")?.execute([signed(cut.index)?])?;
    cut.store(&work, End::First)?;
    Ok(work.commit()?)
}

fn insert(work: &Transaction<'_>, snapshot: &Snapshot) -> Result<(), Cause> {
    let Snapshot { next, at, version, state_hash, body } = snapshot;
    let (next, at) = (signed(*next)?, signed(*at)?);
    let in_row = if body.len() <= PIECE_BYTES_MAX { body.as_slice() } else { &[] };
    work.prepare_cached(
        "INSERT OR REPLACE INTO snapshot (next, at, version, state_hash, body, digest)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute((next, at, version, state_hash, in_row, digest(snapshot)))?;
    if in_row.is_empty() { insert_pieces(work, next, body) } else { Ok(()) }
}

fn insert_pieces(work: &Transaction<'_>, next: i64, body: &[u8]) -> Result<(), Cause> {
    work.execute_batch(
        "CREATE TABLE IF NOT EXISTS snapshot_piece (
             next INTEGER NOT NULL, number INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (next, number)
         ) STRICT",
    )?;
    work.pragma_update(None, "user_version", FORMAT_IN_PIECES)?;
    work.execute("DELETE FROM snapshot_piece WHERE next = ?1", [next])?;
    let mut insert = work.prepare("INSERT INTO snapshot_piece (next, number, body) VALUES (?1, ?2, ?3)")?;
    for (number, piece) in (0_i64..).zip(body.chunks(PIECE_BYTES_MAX)) {
        insert.execute((next, number, piece))?;
    }
    Ok(())
}

fn has_pieces(view: &Transaction<'_>) -> Result<bool, Cause> {
    let format: i32 = view.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok(format >= FORMAT_IN_PIECES)
}

/// The body of a snapshot whose row has none.
fn pieces(view: &Transaction<'_>, next: Index) -> Result<Vec<u8>, Cause> {
    let mut select = view.prepare("SELECT body FROM snapshot_piece WHERE next = ?1 ORDER BY number")?;
    let mut rows = select.query([signed(next)?])?;
    let mut body = Vec::new();
    while let Some(row) = rows.next()? {
        body.extend_from_slice(row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?);
    }
    Ok(body)
}

pub(super) fn newest(connection: &mut Connection) -> Result<Option<Snapshot>, Cause> {
    let view = connection.transaction()?;
    let first = Mark::load(&view, End::First)?.index;
    let newest = view
        .prepare_cached(
            "SELECT next, at, version, state_hash, body, digest FROM snapshot ORDER BY next DESC LIMIT 1",
        )?
        .query_row([], decode)
        .optional()?;
    match newest {
        None if first == 0 => Ok(None),
        None => Err(missing(first)),
        Some((mut snapshot, stored)) => {
            if snapshot.body.is_empty() && has_pieces(&view)? {
                snapshot.body = pieces(&view, snapshot.next)?;
            }
            if digest(&snapshot) != stored {
                let what = format!("the snapshot at {} is not what was written", snapshot.next);
                return Err(Cause::Damage(what));
            }
            // The journal is cut where the newest snapshot was taken, so an older one here means that the
            // newest is lost.
            if snapshot.next != first {
                return Err(missing(first));
            }
            Ok(Some(snapshot))
        }
    }
}

fn decode(row: &Row<'_>) -> rusqlite::Result<(Snapshot, [u8; 32])> {
    let snapshot = Snapshot {
        next: unsigned(row, 0)?,
        at: unsigned(row, 1)?,
        version: row.get(2)?,
        state_hash: row.get(3)?,
        body: row.get(4)?,
    };
    Ok((snapshot, row.get(5)?))
}

fn digest(snapshot: &Snapshot) -> [u8; 32] {
    let Snapshot { next, at, version, state_hash, body } = snapshot;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&next.to_le_bytes());
    hasher.update(&at.to_le_bytes());
    hasher.update(&version.to_le_bytes());
    hasher.update(state_hash);
    hasher.update(body);
    hasher.finalize().into()
}

fn missing(next: Index) -> Cause {
    Cause::Damage(format!("the snapshot at {next} is missing"))
}
