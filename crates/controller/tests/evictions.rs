//! Evictions in history: newest first, and one by the journal index of its event, on both disks.

#![expect(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use wharf_controller::disk::{Batch, Disk, HistoryKind, HistoryQuery, HistoryRow, Index};
use wharf_controller::memory::MemoryDisk;
use wharf_controller::sqlite::{Mode, SqliteDisk};

fn row(kind: HistoryKind, index: Index, tenant: &str, name: &str) -> HistoryRow {
    let (tenant, name, body) = (tenant.to_owned(), name.to_owned(), "{}".to_owned());
    HistoryRow { index, kind, at: 1_000 * index, tenant, name, actor: None, body }
}

fn rows() -> Vec<HistoryRow> {
    vec![
        row(HistoryKind::Eviction, 3, "lab", "a"),
        row(HistoryKind::Job, 4, "lab", "a"),
        row(HistoryKind::Eviction, 5, "lab/x", "b"),
        row(HistoryKind::Receipt, 6, "lab", "a"),
        row(HistoryKind::Eviction, 7, "lab", "a"),
        row(HistoryKind::Eviction, 8, "labour", "a"),
    ]
}

fn add(disk: &mut dyn Disk) {
    let term = disk.take_term(0).unwrap();
    disk.append(Batch { term, expected: 0, records: &[], history: &rows() }).unwrap();
}

fn check(disk: &mut dyn Disk) {
    let evictions = HistoryQuery { kind: Some(HistoryKind::Eviction), limit: 9, ..HistoryQuery::default() };
    let mut found = |query: HistoryQuery| -> Vec<Index> {
        disk.history(&query).unwrap().into_iter().map(|row| row.index).collect()
    };
    assert_eq!(found(evictions.clone()), [8, 7, 5, 3], "newest first");
    assert_eq!(found(HistoryQuery { limit: 2, ..evictions.clone() }), [8, 7]);
    let of_tenant = HistoryQuery { tenant: Some("lab".to_owned()), ..evictions.clone() };
    assert_eq!(found(of_tenant.clone()), [7, 5, 3], "those below it too, and no sibling");
    assert_eq!(found(HistoryQuery { name: Some("a".to_owned()), ..of_tenant }), [7, 3]);
    let one = |index| HistoryQuery { index: Some(index), ..evictions.clone() };
    assert_eq!(found(one(5)), [5]);
    for other in [0, 4, 6, 9, u64::MAX] {
        assert!(found(one(other)).is_empty(), "{other} is no eviction");
    }
    assert_eq!(found(HistoryQuery { kind: None, ..one(6) }), [6], "any row has an index");
    assert_eq!(disk.history(&one(5)).unwrap(), [rows().swap_remove(2)]);
}

#[test]
fn evictions_are_found_in_memory() {
    let mut disk = MemoryDisk::new();
    add(&mut disk);
    check(&mut disk);
}

#[test]
fn evictions_are_found_in_a_file_also_after_it_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut disk = SqliteDisk::open(dir.path(), Mode::Own).unwrap();
    add(&mut disk);
    check(&mut disk);
    drop(disk);
    check(&mut SqliteDisk::open(dir.path(), Mode::Own).unwrap());
}
