//! The simulated disk: the same promises as [`crate::sqlite`], kept in memory, and a crash on demand.
//!
//! A [`MemoryDisk`] is a handle; its clones are one disk. So a stale leader and its successor can both hold
//! it, and what a crashed controller wrote is there for the next one. It stores records as they are: damage
//! is the business of the real disk's tests.

use std::sync::{Arc, Mutex, PoisonError};

use crate::disk::{
    Batch, Disk, DiskFault, HistoryKind, HistoryQuery, HistoryRow, Index, Record, Snapshot, Standing, Term,
};
use crate::reader::HistoryReader;

/// On which side of an operation's effect a simulated crash falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPoint {
    /// Nothing of it is on the disk.
    Before,
    /// All of it is on the disk, though the caller does not learn so.
    After,
}

/// A [`Disk`] in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    contents: Arc<Mutex<Contents>>,
}

#[derive(Clone, Debug, Default)]
struct Contents {
    term: Term,
    /// Index of `records[0]`.
    first: Index,
    records: Vec<Record>,
    snapshot: Option<Snapshot>,
    history: Vec<HistoryRow>,
    operations: u64,
    crash: Option<Crash>,
}

#[derive(Clone, Debug)]
struct Crash {
    operation: u64,
    point: CrashPoint,
}

impl MemoryDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// A disk of its own with the same contents, as a backup would have them.
    #[must_use]
    pub fn backup(&self) -> Self {
        Self { contents: Arc::new(Mutex::new(self.with(|contents| contents.clone()))) }
    }

    /// Makes the `count`-th operation from now fail, the next being 1, whichever handle asks for it. The ones
    /// after it work again: they belong to the process that was started after the crash.
    pub fn crash_after(&self, count: u32, point: CrashPoint) {
        assert!(count > 0, "the operation that crashes lies ahead");
        self.with(|contents| {
            let operation = contents.operations + u64::from(count);
            contents.crash = Some(Crash { operation, point });
        });
    }

    /// How many operations were attempted, through all handles. Each call of a [`Disk`] method is one.
    pub fn operations(&self) -> u64 {
        self.with(|contents| contents.operations)
    }

    /// What a reader beside the disk finds. It is no operation of the controller's, so no crash falls on it.
    pub(crate) fn find(&self, query: &HistoryQuery) -> Vec<HistoryRow> {
        self.with(|contents| contents.find(query))
    }

    fn with<T>(&self, look: impl FnOnce(&mut Contents) -> T) -> T {
        // Every operation checks before it changes, so a panic cannot leave a half-made change behind.
        look(&mut self.contents.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn operate<T>(&self, work: impl FnOnce(&mut Contents) -> Result<T, DiskFault>) -> Result<T, DiskFault> {
        self.with(|contents| {
            contents.operations += 1;
            let operation = contents.operations;
            let Some(crash) = contents.crash.take_if(|crash| crash.operation == operation) else {
                return work(contents);
            };
            let side = match crash.point {
                CrashPoint::Before => "before",
                CrashPoint::After => {
                    // Even a refusal is lost on a process that is dead.
                    drop(work(contents));
                    "after"
                }
            };
            let why = format!("{side} operation {operation} took effect");
            Err(DiskFault::Io { attempted: "simulated crash".to_owned(), why, next: None })
        })
    }
}

impl Contents {
    fn next(&self) -> Index {
        self.first + count(&self.records)
    }

    fn find(&self, query: &HistoryQuery) -> Vec<HistoryRow> {
        let newest_first = self.history.iter().rev();
        newest_first.filter(|row| is_asked_for(row, query)).take(query.limit).cloned().collect()
    }

    fn check_term(&self, held: Term) -> Result<(), DiskFault> {
        if held == self.term { Ok(()) } else { Err(DiskFault::Fenced { held, current: self.term }) }
    }

    /// The position of `index` in `records`; the end of them is one too.
    fn offset(&self, index: Index) -> Option<usize> {
        let offset = usize::try_from(index.checked_sub(self.first)?).ok()?;
        (offset <= self.records.len()).then_some(offset)
    }

    fn read(&self, from: Index) -> Result<Vec<Record>, DiskFault> {
        let Some(offset) = self.offset(from) else {
            let what = format!(
                "record {from} is asked for, but the journal spans {} to {}",
                self.first,
                self.next()
            );
            return Err(DiskFault::Damaged { file: "the simulated disk".to_owned(), what });
        };
        Ok(self.records[offset..].to_vec())
    }

    fn append(&mut self, batch: Batch<'_>) -> Result<(), DiskFault> {
        let Batch { term, expected, records, history } = batch;
        self.check_term(term)?;
        let actual = self.next();
        if expected != actual {
            return Err(DiskFault::UnexpectedIndex { expected, actual });
        }
        self.records.extend_from_slice(records);
        self.history.extend_from_slice(history);
        Ok(())
    }

    fn put_snapshot(&mut self, term: Term, snapshot: &Snapshot) -> Result<(), DiskFault> {
        self.check_term(term)?;
        let Some(cut) = self.offset(snapshot.next) else {
            return Err(DiskFault::UnexpectedIndex { expected: snapshot.next, actual: self.next() });
        };
        self.records.drain(..cut);
        self.first = snapshot.next;
        self.snapshot = Some(snapshot.clone());
        Ok(())
    }
}

impl Disk for MemoryDisk {
    fn standing(&mut self) -> Result<Standing, DiskFault> {
        // No operation that could crash: it comes right after one that reads.
        self.with(|contents| Ok(Standing { term: contents.term, next: contents.next() }))
    }

    fn take_term(&mut self, above: Term) -> Result<Term, DiskFault> {
        self.operate(|contents| {
            contents.term = contents.term.max(above) + 1;
            Ok(contents.term)
        })
    }

    fn snapshot(&mut self) -> Result<Option<Snapshot>, DiskFault> {
        self.operate(|contents| Ok(contents.snapshot.clone()))
    }

    fn read(
        &mut self,
        from: Index,
        each: &mut dyn FnMut(Index, Record) -> Result<(), DiskFault>,
    ) -> Result<Index, DiskFault> {
        // Copied out first, so that `each` may use another handle of this disk.
        let records = self.operate(|contents| contents.read(from))?;
        let next = from + count(&records);
        for (index, record) in (from..).zip(records) {
            each(index, record)?;
        }
        Ok(next)
    }

    fn append(&mut self, batch: Batch<'_>) -> Result<(), DiskFault> {
        self.operate(|contents| contents.append(batch))
    }

    fn put_snapshot(&mut self, term: Term, snapshot: &Snapshot) -> Result<(), DiskFault> {
        self.operate(|contents| contents.put_snapshot(term, snapshot))
    }

    fn history_reader(&self) -> HistoryReader {
        HistoryReader::of_memory(self.clone())
    }

    fn history(&mut self, query: &HistoryQuery) -> Result<Vec<HistoryRow>, DiskFault> {
        self.operate(|contents| Ok(contents.find(query)))
    }

    fn trim_history(&mut self, term: Term, before: u64, carried: &[HistoryRow]) -> Result<(), DiskFault> {
        self.operate(|contents| {
            contents.check_term(term)?;
            let guarantees = contents.history.iter().filter(|row| row.kind == HistoryKind::Guarantee);
            let in_force = guarantees.filter(|row| row.at < before).map(|row| row.index).max();
            contents.history.retain(|row| {
                let is_kept = row.at >= before && row.kind != HistoryKind::Carried;
                is_kept || (row.kind == HistoryKind::Guarantee && Some(row.index) == in_force)
            });
            contents.history.extend_from_slice(carried);
            Ok(())
        })
    }
}

fn is_asked_for(row: &HistoryRow, query: &HistoryQuery) -> bool {
    let HistoryQuery { kind, tenant, name, index, before, since, limit: _ } = query;
    let kind_fits = kind.map_or(!row.kind.is_for_sums(), |kind| row.kind == kind);
    let tenant_fits = tenant.as_ref().is_none_or(|path| is_within(&row.tenant, path));
    let name_fits = name.as_ref().is_none_or(|name| row.name == *name);
    let index_fits = index.is_none_or(|index| row.index == index);
    let time_fits =
        before.is_none_or(|before| row.index < before) && since.is_none_or(|since| row.at >= since);
    kind_fits && tenant_fits && name_fits && index_fits && time_fits
}

/// True for the path itself and for what lies below it, not for a sibling whose name begins alike.
fn is_within(tenant: &str, path: &str) -> bool {
    tenant.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn count(records: &[Record]) -> u64 {
    u64::try_from(records.len()).expect("memory holds fewer than 2^64 records")
}
