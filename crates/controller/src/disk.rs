//! The durable edge: what a control plane needs of a disk.
//!
//! Every method is one atomic, durable step, so a crash always falls between two of them. An append is
//! conditional on the leader's term and on the index it expects, which is what fences a stale leader: it
//! learns that it lost before any reply or action has left. Records are opaque bytes here; what they mean
//! is the business of [`crate::codec`].

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};
use wharf_engine::model::actor::Actor;

use crate::reader::HistoryReader;

/// A leader's reign. Raised by [`Disk::take_term`]; an append with an older one is refused.
pub type Term = u64;

/// The position of a record in the journal, dense from 0.
pub type Index = u64;

/// How far a journal has come: under which term, and the next free index. A leader gives its orders as of here, and a
/// world remembers the furthest it obeyed. The term decides first: after a restore the index may be lower and the
/// reign is later all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Standing {
    pub term: Term,
    pub next: Index,
}

/// One event as it stands in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Version of the encoding of `body`.
    pub version: u16,
    pub at: u64,
    /// The encoded event, with its actor.
    pub body: Vec<u8>,
}

/// A state as the shortest event list that rebuilds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Index of the first record that is *not* part of it.
    pub next: Index,
    pub at: u64,
    /// Version of the encoding of `body`.
    pub version: u16,
    pub state_hash: [u8; 32],
    pub body: Vec<u8>,
}

/// What a history row tells of.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum HistoryKind {
    /// A job that ended.
    Job,
    /// Why something was placed, asked to leave or queued again.
    Receipt,
    /// Why something had to leave for another job.
    Eviction,
    /// GPU time that a job was given, written when it lets go.
    Usage,
    /// What a job was given or let go: the rows that GPU time is computed from.
    Allocation,
    /// What is held at the last trim, for the rows that it dropped.
    Carried,
    /// A lever that is about no job: on a node, a downtime or the policy.
    Audit,
    /// What a tenant is promised by a policy.
    Guarantee,
}

impl HistoryKind {
    /// The word used in API and flags.
    pub fn into_str(self) -> &'static str {
        self.into()
    }

    /// True for rows that people do not read one by one.
    pub fn is_for_sums(self) -> bool {
        matches!(self, Self::Allocation | Self::Carried | Self::Guarantee)
    }
}

/// A fact about the past, kept beside the journal: state holds live things only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRow {
    /// Journal index of the event it was projected from.
    pub index: Index,
    pub kind: HistoryKind,
    pub at: u64,
    pub tenant: String,
    pub name: String,
    /// Who did it; `None` in a row of a program that did not keep that.
    pub actor: Option<Actor>,
    /// The rest, as JSON.
    pub body: String,
}

/// Which history rows are asked for; newest first.
#[derive(Clone, Debug, Default)]
pub struct HistoryQuery {
    /// Only rows of this kind. Without it rows of every kind but those that only sums are made of: allocations,
    /// what is carried, and guarantees.
    pub kind: Option<HistoryKind>,
    /// Only rows of this tenant or of tenants below it.
    pub tenant: Option<String>,
    pub name: Option<String>,
    /// Only the row that was projected from this event.
    pub index: Option<Index>,
    /// Only rows that were projected from earlier events than this.
    pub before: Option<Index>,
    /// Only rows from this moment on, in world time.
    pub since: Option<u64>,
    pub limit: usize,
}

/// The events of one turn, with the conditions under which they may be written.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    pub term: Term,
    /// The index the writer expects the first record to get.
    pub expected: Index,
    /// What happened, in order.
    pub records: &'a [Record],
    /// What history learns from it, in the same commit.
    pub history: &'a [HistoryRow],
}

/// Why a disk did not do what it was asked. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum DiskFault {
    /// Another leader took over: this process must stop acting.
    #[error("this process's term {held} is over: term {current} has taken the journal")]
    Fenced { held: Term, current: Term },
    /// The journal is not where the writer thinks it is.
    #[error("the journal's next index is {actual}, not {expected}")]
    UnexpectedIndex { expected: Index, actual: Index },
    /// Another process has the data directory.
    #[error("the data directory {dir} is in use by another process{holder}")]
    InUse {
        dir: String,
        /// ` (pid N)` where it is known.
        holder: String,
    },
    /// Written by a later version of Wharf.
    #[error("{file} has format {found}, this program knows up to {known}. Nothing was changed")]
    Newer { file: String, found: i64, known: i64 },
    /// Not what was written.
    #[error("{file} is damaged: {what}. Nothing was changed")]
    Damaged { file: String, what: String },
    /// Something that was acknowledged is not in the journal any more.
    #[error("the journal in {dir} is behind what was acknowledged: {what}. Nothing was changed")]
    Behind { dir: String, what: String },
    /// The operating system or SQLite refused.
    #[error("{attempted}: {why}")]
    Io { attempted: String, why: String, next: Option<&'static str> },
}

impl DiskFault {
    /// What to do about it, where that is known.
    pub fn next(&self) -> Option<&'static str> {
        match self {
            Self::Fenced { .. } | Self::UnexpectedIndex { .. } => None,
            Self::InUse { .. } => Some("stop it, or choose another directory with --data DIR"),
            Self::Newer { .. } => Some("run a newer wharf"),
            Self::Damaged { .. } => {
                Some("restore a copy, or keep the file and start with another --data DIR")
            }
            Self::Behind { .. } => Some(RESTORE),
            Self::Io { next, .. } => *next,
        }
    }
}

/// What to do about a journal that is behind.
pub(crate) const RESTORE: &str = "put the right files back, or accept the loss and run the same command with --restore: \
    what runs is adopted, nothing is stopped";

/// A durable place for one control plane's journal, snapshots and history.
pub trait Disk {
    /// How far the journal has come.
    fn standing(&mut self) -> Result<Standing, DiskFault>;

    /// True when it lacks something that was acknowledged, and was opened all the same.
    fn is_behind(&self) -> bool {
        false
    }

    /// A restore begins: until the next append the journal counts as behind, also when this process dies before it.
    fn begin_restore(&mut self) -> Result<(), DiskFault> {
        Ok(())
    }

    /// Starts a new reign, later than `above`, and fences every earlier one. `above` is what the world has obeyed: a
    /// disk that was lost and begun anew must not be older than that.
    fn take_term(&mut self, above: Term) -> Result<Term, DiskFault>;

    /// The newest snapshot.
    fn snapshot(&mut self) -> Result<Option<Snapshot>, DiskFault>;

    /// Hands every record from `from` on to `each`, in order; returns the next free index.
    fn read(
        &mut self,
        from: Index,
        each: &mut dyn FnMut(Index, Record) -> Result<(), DiskFault>,
    ) -> Result<Index, DiskFault>;

    /// Writes one turn, whole or not at all.
    fn append(&mut self, batch: Batch<'_>) -> Result<(), DiskFault>;

    /// Stores a snapshot and cuts the journal before it. Fenced like an append.
    fn put_snapshot(&mut self, term: Term, snapshot: &Snapshot) -> Result<(), DiskFault>;

    /// Reads history from any thread, beside this disk: what an append has written is there.
    fn history_reader(&self) -> HistoryReader;

    /// Reads history, newest first.
    fn history(&mut self, query: &HistoryQuery) -> Result<Vec<HistoryRow>, DiskFault>;

    /// Drops history rows older than `before` (world time in milliseconds) but the guarantees that were in force then, and
    /// puts `carried` in place of all rows of [`HistoryKind::Carried`]. Fenced like an append.
    fn trim_history(&mut self, term: Term, before: u64, carried: &[HistoryRow]) -> Result<(), DiskFault>;
}
