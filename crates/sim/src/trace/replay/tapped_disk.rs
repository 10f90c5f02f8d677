//! A disk that shows what is written to it, as it is written.

use std::cell::RefCell;
use std::rc::Rc;

use wharf_controller::disk::{
    Batch, Disk, DiskFault, HistoryKind, HistoryQuery, HistoryRow, Index, Record, Snapshot, Standing, Term,
};
use wharf_controller::reader::HistoryReader;

/// A disk that shows what is written to it.
pub(super) struct TappedDisk<'a, D> {
    pub(super) disk: D,
    pub(super) tap: &'a mut dyn FnMut(Index, &Record),
    /// Rows of the jobs that ended.
    pub(super) ended: Rc<RefCell<Vec<HistoryRow>>>,
}

impl<D: Disk> Disk for TappedDisk<'_, D> {
    fn standing(&mut self) -> Result<Standing, DiskFault> {
        self.disk.standing()
    }

    fn take_term(&mut self, above: Term) -> Result<Term, DiskFault> {
        self.disk.take_term(above)
    }

    fn snapshot(&mut self) -> Result<Option<Snapshot>, DiskFault> {
        self.disk.snapshot()
    }

    fn read(
        &mut self,
        from: Index,
        each: &mut dyn FnMut(Index, Record) -> Result<(), DiskFault>,
    ) -> Result<Index, DiskFault> {
        self.disk.read(from, each)
    }

    fn append(&mut self, batch: Batch<'_>) -> Result<(), DiskFault> {
        self.disk.append(batch)?;
        for (index, record) in (batch.expected..).zip(batch.records) {
            (self.tap)(index, record);
        }
        let ended = batch.history.iter().filter(|row| row.kind == HistoryKind::Job);
        self.ended.borrow_mut().extend(ended.cloned());
        Ok(())
    }

    fn put_snapshot(&mut self, term: Term, snapshot: &Snapshot) -> Result<(), DiskFault> {
        self.disk.put_snapshot(term, snapshot)
    }

    fn history_reader(&self) -> HistoryReader {
        self.disk.history_reader()
    }

    fn history(&mut self, query: &HistoryQuery) -> Result<Vec<HistoryRow>, DiskFault> {
        self.disk.history(query)
    }

    fn trim_history(&mut self, term: Term, before: u64, carried: &[HistoryRow]) -> Result<(), DiskFault> {
        self.disk.trim_history(term, before, carried)
    }
}
