//! History rows: written with the events they tell of, found by name or tenant, dropped by age.
//!
//! They are a projection and not part of the state, so they are not chained; `SQLite`'s own checks must do.

use rusqlite::{Connection, Row, ToSql, Transaction};

use super::fault::Cause;
use super::{leader, signed, unsigned};
use crate::disk::{HistoryKind, HistoryQuery, HistoryRow, Term};

pub(super) fn add(work: &Transaction<'_>, rows: &[HistoryRow]) -> Result<(), Cause> {
    let mut insert = work.prepare_cached(
        "INSERT INTO history (idx, kind, at, tenant, name, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for row in rows {
        let HistoryRow { index, kind, at, tenant, name, body } = row;
        insert.execute((signed(*index)?, code(*kind), signed(*at)?, tenant, name, body))?;
    }
    Ok(())
}

pub(super) fn find(connection: &mut Connection, query: &HistoryQuery) -> Result<Vec<HistoryRow>, Cause> {
    let HistoryQuery { kind, tenant, name, index, limit } = query;
    let limit = i64::try_from(*limit).unwrap_or(i64::MAX);
    // An index that SQLite cannot hold is later than all that it does hold.
    let index = index.map(|index| i64::try_from(index).unwrap_or(i64::MAX));
    let evictions = *kind == Some(HistoryKind::Eviction);
    let mut sql = String::from("SELECT idx, kind, at, tenant, name, body FROM history WHERE TRUE");
    let mut values: Vec<(&str, &dyn ToSql)> = vec![(":limit", &limit)];
    if let Some(kind) = kind {
        // Written out, because the index over evictions serves only a query that shows it is about them.
        sql.push_str(" AND kind = ");
        sql.push_str(&code(*kind).to_string());
    }
    if let Some(index) = &index {
        sql.push_str(" AND idx = :index");
        values.push((":index", index));
    }
    if let Some(name) = name {
        sql.push_str(" AND name = :name");
        values.push((":name", name));
    }
    if let Some(tenant) = tenant {
        // A range instead of LIKE: nothing to escape, case counts, and the index serves it. '0' is the
        // character after '/'. Of evictions there are fewer than rows of a tenant: `+` keeps that index out.
        sql.push_str(if evictions {
            " AND (+tenant = :tenant OR (+tenant >= :tenant || '/' AND +tenant < :tenant || '0'))"
        } else {
            " AND (tenant = :tenant OR (tenant >= :tenant || '/' AND tenant < :tenant || '0'))"
        });
        values.push((":tenant", tenant));
    }
    // Both orders are the same; the first is that of the index over evictions.
    sql.push_str(if evictions { " ORDER BY idx DESC, seq DESC" } else { " ORDER BY seq DESC" });
    sql.push_str(" LIMIT :limit");
    let view = connection.transaction()?;
    let mut select = view.prepare_cached(&sql)?;
    let rows = select.query_map(values.as_slice(), decode)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn trim(connection: &mut Connection, term: Term, before: u64) -> Result<(), Cause> {
    let work = leader::write(connection, term)?;
    // A time that SQLite cannot hold is later than all that it does hold.
    let before = i64::try_from(before).unwrap_or(i64::MAX);
    work.prepare_cached("DELETE FROM history WHERE at < ?1")?.execute([before])?;
    Ok(work.commit()?)
}

fn decode(row: &Row<'_>) -> rusqlite::Result<HistoryRow> {
    let code: i64 = row.get(1)?;
    let kind = kind(code).ok_or(rusqlite::Error::IntegralValueOutOfRange(1, code))?;
    Ok(HistoryRow {
        index: unsigned(row, 0)?,
        kind,
        at: unsigned(row, 2)?,
        tenant: row.get(3)?,
        name: row.get(4)?,
        body: row.get(5)?,
    })
}

fn code(kind: HistoryKind) -> i64 {
    match kind {
        HistoryKind::Job => 0,
        HistoryKind::Receipt => 1,
        HistoryKind::Eviction => 2,
    }
}

fn kind(code: i64) -> Option<HistoryKind> {
    [HistoryKind::Job, HistoryKind::Receipt, HistoryKind::Eviction]
        .into_iter()
        .find(|kind| self::code(*kind) == code)
}
