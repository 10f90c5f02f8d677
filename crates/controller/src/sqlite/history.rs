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

/// Files of earlier versions lack the index by kind. It is made by the first owner that needs it, after everything was
/// read and found in order.
pub(super) fn index(connection: &mut Connection) -> Result<(), Cause> {
    Ok(connection.execute_batch("CREATE INDEX IF NOT EXISTS history_kind ON history (kind, idx)")?)
}

pub(super) fn find(connection: &mut Connection, query: &HistoryQuery) -> Result<Vec<HistoryRow>, Cause> {
    let HistoryQuery { kind, tenant, name, index, before, since, limit } = query;
    let limit = i64::try_from(*limit).unwrap_or(i64::MAX);
    // An index that SQLite cannot hold is later than all that it does hold.
    let bounded = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let (index, before, since) = (index.map(bounded), before.map(bounded), since.map(bounded));
    let by_kind = *kind == Some(HistoryKind::Eviction) || before.is_some();
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
    if let Some(before) = &before {
        sql.push_str(" AND idx < :before");
        values.push((":before", before));
    }
    if let Some(since) = &since {
        // The index over moments is kept out: what is asked for is read in the order of rows.
        sql.push_str(" AND +at >= :since");
        values.push((":since", since));
    }
    if let Some(name) = name {
        sql.push_str(" AND name = :name");
        values.push((":name", name));
    }
    if let Some(tenant) = tenant {
        // A range instead of LIKE: nothing to escape, case counts, and the index serves it. '0' is the
        // character after '/'. Of evictions there are fewer than rows of a tenant, and what is read piece by piece is
        // read in its order: `+` keeps that index out.
        sql.push_str(if by_kind {
            " AND (+tenant = :tenant OR (+tenant >= :tenant || '/' AND +tenant < :tenant || '0'))"
        } else {
            " AND (tenant = :tenant OR (tenant >= :tenant || '/' AND tenant < :tenant || '0'))"
        });
        values.push((":tenant", tenant));
    }
    // Both orders are the same; the first is that of the indexes over kinds.
    sql.push_str(if by_kind { " ORDER BY idx DESC, seq DESC" } else { " ORDER BY seq DESC" });
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
        HistoryKind::Usage => 3,
    }
}

fn kind(code: i64) -> Option<HistoryKind> {
    [HistoryKind::Job, HistoryKind::Receipt, HistoryKind::Eviction, HistoryKind::Usage]
        .into_iter()
        .find(|kind| self::code(*kind) == code)
}
