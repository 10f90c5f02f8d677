//! History rows: written with the events they tell of, found by name or tenant, dropped by age.
//!
//! They are a projection and not part of the state, so they are not chained; `SQLite`'s own checks must do.

use rusqlite::types::Type;
use rusqlite::{Connection, Row, ToSql, Transaction};
use strum::VariantArray;
use wharf_engine::model::actor::Actor;

use super::fault::Cause;
use super::{leader, signed, unsigned};
use crate::disk::{HistoryKind, HistoryQuery, HistoryRow, Term};

pub(super) fn add(work: &Transaction<'_>, rows: &[HistoryRow]) -> Result<(), Cause> {
    let mut insert = work.prepare_cached(
        "INSERT INTO history (idx, kind, at, tenant, name, body, actor) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    for row in rows {
        let HistoryRow { index, kind, at, tenant, name, actor, body } = row;
        let actor = actor
            .as_ref()
            .map(|actor| serde_json::to_string(actor).expect("a struct of strings and words always encodes"));
        insert.execute((signed(*index)?, code(*kind), signed(*at)?, tenant, name, body, actor))?;
    }
    Ok(())
}

/// Files of earlier versions lack the index by kind and the column of actors. They are made by the first owner that needs
/// them, after everything was read and found in order. An earlier version does not mind them.
pub(super) fn upgrade(connection: &mut Connection) -> Result<(), Cause> {
    connection.execute_batch("CREATE INDEX IF NOT EXISTS history_kind ON history (kind, idx)")?;
    if !has_actors(connection)? {
        connection.execute_batch("ALTER TABLE history ADD COLUMN actor TEXT")?;
    }
    Ok(())
}

fn has_actors(connection: &Connection) -> Result<bool, Cause> {
    let mut select = connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM pragma_table_info('history') WHERE name = 'actor')")?;
    Ok(select.query_row([], |row| row.get(0))?)
}

pub(super) fn find(connection: &mut Connection, query: &HistoryQuery) -> Result<Vec<HistoryRow>, Cause> {
    let HistoryQuery { kind, tenant, name, index, before, since, limit } = query;
    let limit = i64::try_from(*limit).unwrap_or(i64::MAX);
    // An index that SQLite cannot hold is later than all that it does hold.
    let bounded = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let (index, before, since) = (index.map(bounded), before.map(bounded), since.map(bounded));
    let by_kind = *kind == Some(HistoryKind::Eviction) || before.is_some();
    // A look at a file of an earlier version leaves it as it is.
    let actor = if has_actors(connection)? { "actor" } else { "NULL" };
    let mut sql = format!("SELECT idx, kind, at, tenant, name, body, {actor} FROM history WHERE TRUE");
    let mut values: Vec<(&str, &dyn ToSql)> = vec![(":limit", &limit)];
    // Written out, because the index over evictions serves only a query that shows it is about them.
    match kind {
        Some(kind) => sql += &[" AND kind = ", &code(*kind).to_string()].concat(),
        None => {
            for kind in HistoryKind::VARIANTS.iter().copied().filter(|kind| kind.is_for_sums()) {
                sql += &[" AND +kind <> ", &code(kind).to_string()].concat();
            }
        }
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

pub(super) fn trim(
    connection: &mut Connection,
    term: Term,
    before: u64,
    carried: &[HistoryRow],
) -> Result<(), Cause> {
    let work = leader::write(connection, term)?;
    // A time that SQLite cannot hold is later than all that it does hold.
    let before = i64::try_from(before).unwrap_or(i64::MAX);
    let [carried_code, guarantee] = [HistoryKind::Carried, HistoryKind::Guarantee].map(code);
    // Of what was promised, that stays which was in force when the rows begin that are kept.
    work.prepare_cached(
        "DELETE FROM history WHERE at < ?1 AND NOT (
            kind = ?2 AND idx = (SELECT max(idx) FROM history WHERE kind = ?2 AND at < ?1)
         )",
    )?
    .execute([before, guarantee])?;
    work.prepare_cached("DELETE FROM history WHERE kind = ?1")?.execute([carried_code])?;
    add(&work, carried)?;
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
        actor: actor(row.get(6)?)?,
    })
}

fn code(kind: HistoryKind) -> i64 {
    match kind {
        HistoryKind::Job => 0,
        HistoryKind::Receipt => 1,
        HistoryKind::Eviction => 2,
        HistoryKind::Usage => 3,
        HistoryKind::Allocation => 4,
        HistoryKind::Carried => 5,
        HistoryKind::Audit => 6,
        HistoryKind::Guarantee => 7,
    }
}

fn kind(code: i64) -> Option<HistoryKind> {
    HistoryKind::VARIANTS.iter().copied().find(|kind| self::code(*kind) == code)
}

fn actor(text: Option<String>) -> rusqlite::Result<Option<Actor>> {
    let read = text.map(|text| serde_json::from_str(&text)).transpose();
    read.map_err(|error| rusqlite::Error::FromSqlConversionFailure(6, Type::Text, error.into()))
}
