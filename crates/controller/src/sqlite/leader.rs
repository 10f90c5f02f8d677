//! The term in force. It stands in the same file as the journal, so that checking it and writing are one
//! transaction: a lease kept elsewhere could run out between the two.

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::fault::Cause;
use super::{signed, unsigned};
use crate::disk::{DiskFault, Term};

pub(super) fn take(connection: &mut Connection, above: Term) -> Result<Term, Cause> {
    let work = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let term = current(&work)?.max(above).saturating_add(1);
    work.prepare_cached("UPDATE leader SET term = ?1")?.execute([signed(term)?])?;
    work.commit()?;
    Ok(term)
}

/// Starts a write under `held`, or refuses because another term is in force. A term that was never given
/// out is refused too: it comes from another data directory.
pub(super) fn write(connection: &mut Connection, held: Term) -> Result<Transaction<'_>, Cause> {
    let work = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let current = current(&work)?;
    if held != current {
        return Err(DiskFault::Fenced { held, current }.into());
    }
    Ok(work)
}

pub(super) fn current(work: &Transaction<'_>) -> Result<Term, Cause> {
    Ok(work.prepare_cached("SELECT term FROM leader")?.query_row([], |row| unsigned(row, 0))?)
}
