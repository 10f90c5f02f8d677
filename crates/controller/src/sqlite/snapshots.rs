//! Snapshots. Two are kept: the newest to start from, the one before it as evidence when the newest turns
//! out to be wrong. It is no fallback, since the journal between the two is cut.

use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use super::fault::Cause;
use super::journal::{End, Mark};
use super::{leader, signed, unsigned};
use crate::disk::{DiskFault, Index, Snapshot, Term};

const KEPT: i64 = 2;

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
    work.prepare_cached("DELETE FROM journal WHERE idx < ?1")?.execute([signed(cut.index)?])?;
    cut.store(&work, End::First)?;
    Ok(work.commit()?)
}

fn insert(work: &Transaction<'_>, snapshot: &Snapshot) -> Result<(), Cause> {
    let Snapshot { next, at, version, state_hash, body } = snapshot;
    let (next, at) = (signed(*next)?, signed(*at)?);
    work.prepare_cached(
        "INSERT OR REPLACE INTO snapshot (next, at, version, state_hash, body, digest)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute((next, at, version, state_hash, body, digest(snapshot)))?;
    Ok(())
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
        Some((snapshot, stored)) => {
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
