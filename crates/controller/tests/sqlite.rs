//! The real disk's own promises: who may open a data directory, and that nothing but what was written is
//! ever taken for the journal.

#![expect(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tempfile::TempDir;
use wharf_controller::disk::{
    Batch, Disk, DiskFault, HistoryKind, HistoryQuery, HistoryRow, Index, Record, Snapshot,
};
use wharf_controller::sqlite::{Mode, SqliteDisk};
use wharf_engine::model::actor::Actor;

const RECORDS: u64 = 60;

fn record(index: Index) -> Record {
    let byte = u8::try_from(index).unwrap();
    Record { version: 1, at: 10 * index, body: vec![byte; 200] }
}

fn snapshot(next: Index) -> Snapshot {
    Snapshot { next, at: 1, version: 1, state_hash: [2; 32], body: vec![3; 5_000] }
}

fn journal(dir: &TempDir) -> PathBuf {
    dir.path().join("journal.sqlite")
}

/// A directory whose server wrote 60 records, a snapshot at 10 and one at 20, and stopped.
fn used_dir() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut disk = SqliteDisk::open(dir.path(), Mode::Bulk).unwrap();
    let term = disk.take_term(0).unwrap();
    let records: Vec<Record> = (0..RECORDS).map(record).collect();
    let row = HistoryRow {
        index: 4,
        kind: HistoryKind::Job,
        at: 40,
        tenant: "lab".to_owned(),
        name: "train".to_owned(),
        actor: Some(Actor::embedded()),
        body: "{}".to_owned(),
    };
    disk.append(Batch { term, expected: 0, records: &records, history: &[row] }).unwrap();
    disk.put_snapshot(term, &snapshot(10)).unwrap();
    disk.put_snapshot(term, &snapshot(20)).unwrap();
    dir
}

/// Changes a file behind our back, as an operator's tool could.
fn tamper(dir: &TempDir, sql: &str) {
    Connection::open(journal(dir)).unwrap().execute_batch(sql).unwrap();
}

type Found = (Option<Snapshot>, Vec<(Index, Record)>);

/// All that a starting controller reads.
fn read_all(dir: &Path, mode: Mode) -> Result<Found, DiskFault> {
    let mut disk = SqliteDisk::open(dir, mode)?;
    let newest = disk.snapshot()?;
    let mut records = Vec::new();
    disk.read(newest.as_ref().map_or(0, |newest| newest.next), &mut |index, record| {
        records.push((index, record));
        Ok(())
    })?;
    disk.history(&HistoryQuery { limit: 10, ..HistoryQuery::default() })?;
    Ok((newest, records))
}

fn as_written() -> Found {
    (Some(snapshot(20)), (20..RECORDS).map(|index| (index, record(index))).collect())
}

/// What the damage is said to be.
fn damage(dir: &TempDir) -> String {
    match read_all(dir.path(), Mode::Own) {
        Err(DiskFault::Damaged { what, .. }) => what,
        other => panic!("not found damaged: {other:?}"),
    }
}

/// Every file but the lock, which is there to be written.
fn contents(dir: &TempDir) -> BTreeMap<String, Vec<u8>> {
    fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .filter(|(name, _)| name != "lock")
        .collect()
}

#[test]
fn what_was_written_is_read_again() {
    let dir = used_dir();
    assert_eq!(read_all(dir.path(), Mode::Own).unwrap(), as_written());
    assert_eq!(read_all(dir.path(), Mode::ReadOnly).unwrap(), as_written());
}

#[test]
fn a_directory_is_created_with_its_parents_and_any_name() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("a b/100%?#\u{e9}");
    let mut disk = SqliteDisk::open(&deep, Mode::Own).unwrap();
    let names = || {
        let names =
            fs::read_dir(&deep).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    assert_eq!(names(), ["lock"], "nothing is written before there is something to write");
    disk.take_term(0).unwrap();
    drop(disk);
    assert_eq!(read_all(&deep, Mode::ReadOnly).unwrap(), (None, vec![]));
    assert_eq!(names(), ["acknowledged", "journal.sqlite", "lock"]);
}

#[test]
fn a_second_owner_is_refused_and_told_the_pid() {
    let dir = tempfile::tempdir().unwrap();
    let first = SqliteDisk::open(dir.path(), Mode::Own).unwrap();
    let fault = SqliteDisk::open(dir.path(), Mode::Own).unwrap_err();
    assert!(matches!(fault, DiskFault::InUse { .. }), "{fault:?}");
    assert!(fault.to_string().contains(&format!("(pid {})", std::process::id())), "{fault}");
    drop(first);
    SqliteDisk::open(dir.path(), Mode::Own).unwrap();
}

#[test]
fn an_owner_without_a_readable_pid_is_an_owner() {
    let dir = tempfile::tempdir().unwrap();
    let _first = SqliteDisk::open(dir.path(), Mode::Own).unwrap();
    for text in [&b""[..], b"no pid", b"\xff\xff", b"99999999999999999999999999"] {
        fs::write(dir.path().join("lock"), text).unwrap();
        match SqliteDisk::open(dir.path(), Mode::Own) {
            Err(DiskFault::InUse { holder, .. }) => assert_eq!(holder, ""),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_reader_looks_on_while_a_server_writes() {
    let dir = used_dir();
    let mut server = SqliteDisk::open(dir.path(), Mode::Own).unwrap();
    let term = server.take_term(0).unwrap();
    let mut reader = SqliteDisk::open(dir.path(), Mode::ReadOnly).unwrap();
    let next = |disk: &mut SqliteDisk| disk.read(20, &mut |_, _| Ok(())).unwrap();
    assert_eq!(next(&mut reader), 60);
    server.append(Batch { term, expected: 60, records: &[record(60)], history: &[] }).unwrap();
    assert_eq!(next(&mut reader), 61);
    drop(server);
    assert_eq!(next(&mut reader), 61);
}

#[test]
fn a_reader_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let absent = dir.path().join("absent");
    for path in [&absent, dir.path()] {
        let fault = SqliteDisk::open(path, Mode::ReadOnly).unwrap_err();
        assert!(matches!(fault, DiskFault::Io { .. }), "{fault:?}");
        assert!(fault.to_string().starts_with("cannot open "), "{fault}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    fs::write(journal(&dir), b"").unwrap();
    let fault = SqliteDisk::open(dir.path(), Mode::ReadOnly).unwrap_err();
    assert!(fault.to_string().contains("no server has used"), "{fault}");

    let dir = used_dir();
    let before = contents(&dir);
    read_all(dir.path(), Mode::ReadOnly).unwrap();
    assert_eq!(contents(&dir), before);
}

#[test]
fn a_reader_cannot_write() {
    let dir = used_dir();
    let fault = SqliteDisk::open(dir.path(), Mode::ReadOnly).unwrap().take_term(0).unwrap_err();
    assert!(matches!(fault, DiskFault::Io { .. }), "{fault:?}");
    assert!(fault.to_string().starts_with("cannot start a new term in "), "{fault}");
}

/// A copy of the files of a running server is what a power failure leaves; the index of the log is not
/// synced, so the copy has none. The log may be torn anywhere behind its last sync.
#[test]
fn after_a_crash_whole_turns_are_there_and_no_halves() {
    let dir = used_dir();
    let mut server = SqliteDisk::open(dir.path(), Mode::Own).unwrap();
    let term = server.take_term(0).unwrap();
    for turn in 0..5 {
        let expected = RECORDS + 2 * turn;
        let records = [record(expected), record(expected + 1)];
        server.append(Batch { term, expected, records: &records, history: &[] }).unwrap();
    }
    let file = fs::read(journal(&dir)).unwrap();
    let log = fs::read(dir.path().join("journal.sqlite-wal")).unwrap();
    let mut turns_before = 0;
    for length in (0..log.len()).step_by(509).chain([log.len()]) {
        let copy = tempfile::tempdir().unwrap();
        fs::write(journal(&copy), &file).unwrap();
        fs::write(copy.path().join("journal.sqlite-wal"), &log[..length]).unwrap();
        let (_, looked_at) = read_all(copy.path(), Mode::ReadOnly).unwrap();
        let refused = SqliteDisk::open(copy.path(), Mode::Own).err();
        let is_behind = matches!(refused, Some(DiskFault::Behind { .. }));
        assert!(is_behind || looked_at == as_written().1, "a copy without its note is refused");
        let (_, records) = read_all(copy.path(), Mode::Restore).unwrap();
        assert_eq!(looked_at, records);
        let extra = records.len() - as_written().1.len();
        assert_eq!(extra % 2, 0, "half a turn in {length} bytes");
        assert!(extra / 2 >= turns_before);
        turns_before = extra / 2;
    }
    assert_eq!(turns_before, 5);
}

#[test]
fn an_empty_file_counts_as_new() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(journal(&dir), b"").unwrap();
    assert_eq!(read_all(dir.path(), Mode::Own).unwrap(), (None, vec![]));
}

#[test]
fn a_creation_that_was_cut_short_is_begun_again() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("journal.sqlite.new"), b"half").unwrap();
    fs::write(dir.path().join("journal.sqlite.new-journal"), b"half").unwrap();
    SqliteDisk::open(dir.path(), Mode::Own).unwrap().take_term(0).unwrap();
    assert_eq!(read_all(dir.path(), Mode::Own).unwrap(), (None, vec![]));
    assert!(!dir.path().join("journal.sqlite.new-journal").exists());
}

#[test]
fn a_newer_file_is_refused_and_unchanged() {
    let dir = used_dir();
    tamper(&dir, "PRAGMA user_version = 3");
    let before = contents(&dir);
    for mode in [Mode::Own, Mode::Bulk, Mode::ReadOnly] {
        let fault = SqliteDisk::open(dir.path(), mode).unwrap_err();
        assert!(matches!(fault, DiskFault::Newer { found: 3, known: 2, .. }), "{fault:?}");
        assert_eq!(contents(&dir), before);
    }
}

/// A newer program upgrades the format and crashes: the file itself still says 1, the log says 3. Closing
/// the connection that finds this out would copy the log into the file, if it were let.
#[test]
fn a_newer_format_that_stands_only_in_the_log_is_refused_and_unchanged() {
    let dir = used_dir();
    let newer = Connection::open(journal(&dir)).unwrap();
    newer.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    newer.execute_batch("PRAGMA user_version = 3; UPDATE leader SET term = 77").unwrap();
    drop(newer);
    let before = contents(&dir);
    assert!(!before["journal.sqlite-wal"].is_empty());
    for mode in [Mode::Own, Mode::ReadOnly] {
        let fault = SqliteDisk::open(dir.path(), mode).unwrap_err();
        assert!(matches!(fault, DiskFault::Newer { found: 3, known: 2, .. }), "{fault:?}");
        assert!(contents(&dir) == before, "{mode:?} changed the files");
    }
}

#[test]
fn a_file_of_another_program_is_refused_and_unchanged() {
    let foreign = tempfile::tempdir().unwrap();
    tamper(&foreign, "CREATE TABLE journal (idx)");
    let text = tempfile::tempdir().unwrap();
    fs::write(journal(&text), "Dear diary, ".repeat(1_000)).unwrap();
    let short = tempfile::tempdir().unwrap();
    fs::write(journal(&short), "x").unwrap();
    let older = used_dir();
    tamper(&older, "PRAGMA user_version = 0");
    for dir in [foreign, text, short, older] {
        let before = contents(&dir);
        for mode in [Mode::Own, Mode::ReadOnly] {
            let fault = SqliteDisk::open(dir.path(), mode).unwrap_err();
            assert!(matches!(fault, DiskFault::Damaged { .. }), "{fault:?}");
            assert_eq!(contents(&dir), before);
        }
    }
}

#[test]
fn a_log_without_its_file_is_refused() {
    let dir = used_dir();
    fs::write(dir.path().join("journal.sqlite-wal"), b"some frames").unwrap();
    fs::write(journal(&dir), b"").unwrap();
    let before = contents(&dir);
    assert!(damage(&dir).contains("write-ahead log"));
    assert_eq!(contents(&dir), before);
}

#[test]
fn a_changed_record_is_found_by_its_index() {
    for change in ["body = zeroblob(200)", "at = at + 1", "term = 9", "version = 7", "chain = chain + 1"] {
        let dir = used_dir();
        tamper(&dir, &format!("UPDATE journal SET {change} WHERE idx = 33"));
        assert_eq!(damage(&dir), "record 33 is not what was written", "{change}");
    }
}

#[test]
fn a_changed_byte_in_the_file_is_found_by_its_index() {
    let dir = used_dir();
    let mut bytes = fs::read(journal(&dir)).unwrap();
    let body = record(33).body;
    let at = bytes.windows(body.len()).position(|window| window == body).unwrap();
    bytes[at + 100] ^= 1;
    fs::write(journal(&dir), bytes).unwrap();
    assert_eq!(damage(&dir), "record 33 is not what was written");
}

#[test]
fn a_missing_record_is_found_wherever_it_stood() {
    for index in [20, 33, RECORDS - 1] {
        let dir = used_dir();
        tamper(&dir, &format!("DELETE FROM journal WHERE idx = {index}"));
        assert_eq!(damage(&dir), format!("record {index} is missing"));
    }
}

#[test]
fn swapped_records_are_found() {
    let dir = used_dir();
    tamper(
        &dir,
        "UPDATE journal SET idx = -1 WHERE idx = 30; UPDATE journal SET idx = 30 WHERE idx = 31;
         UPDATE journal SET idx = 31 WHERE idx = -1;",
    );
    assert_eq!(damage(&dir), "record 30 is not what was written");
}

#[test]
fn a_record_past_the_end_is_found() {
    let dir = used_dir();
    tamper(&dir, "INSERT INTO journal SELECT 60, term, at, version, body, chain FROM journal WHERE idx = 59");
    assert_eq!(damage(&dir), "record 60 is not what was written");
    let dir = used_dir();
    tamper(&dir, "UPDATE meta SET value = 59 WHERE key = 'next'");
    assert_eq!(damage(&dir), "record 59 lies past the journal's end");
}

#[test]
fn a_damaged_or_missing_snapshot_is_never_replaced_by_the_one_before_it() {
    let changes = [
        (
            "UPDATE snapshot SET body = zeroblob(5000) WHERE next = 20",
            "the snapshot at 20 is not what was written",
        ),
        ("UPDATE snapshot SET at = 2 WHERE next = 20", "the snapshot at 20 is not what was written"),
        ("DELETE FROM snapshot WHERE next = 20", "the snapshot at 20 is missing"),
        ("DELETE FROM snapshot", "the snapshot at 20 is missing"),
    ];
    for (change, what) in changes {
        let dir = used_dir();
        tamper(&dir, change);
        assert_eq!(damage(&dir), what, "{change}");
    }
}

#[test]
fn two_snapshots_are_kept() {
    let dir = used_dir();
    let mut disk = SqliteDisk::open(dir.path(), Mode::Own).unwrap();
    let term = disk.take_term(0).unwrap();
    disk.put_snapshot(term, &snapshot(30)).unwrap();
    drop(disk);
    let kept = |sql| -> String {
        Connection::open(journal(&dir)).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(kept("SELECT group_concat(next) FROM (SELECT next FROM snapshot ORDER BY next)"), "20,30");
    assert_eq!(kept("SELECT min(idx) || ' to ' || max(idx) FROM journal"), "30 to 59");
}

#[test]
fn a_missing_table_or_row_is_damage() {
    for change in [
        "DROP TABLE journal",
        "DROP TABLE leader",
        "DELETE FROM leader",
        "DELETE FROM meta WHERE key = 'next_chain'",
        "UPDATE meta SET value = -5 WHERE key = 'first'",
    ] {
        let dir = used_dir();
        tamper(&dir, change);
        let outcome = SqliteDisk::open(dir.path(), Mode::Own).and_then(|mut disk| {
            disk.take_term(0)?;
            disk.read(20, &mut |_, _| Ok(()))
        });
        assert!(matches!(outcome, Err(DiskFault::Damaged { .. })), "{change}: {outcome:?}");
    }
}

#[test]
fn a_truncated_file_is_refused_and_unchanged() {
    let whole = fs::read(journal(&used_dir())).unwrap();
    for length in
        [1, 99, 100, 511, 4_095, 4_096, 5_000, whole.len() / 2, whole.len() - 4_096, whole.len() - 1]
    {
        let dir = tempfile::tempdir().unwrap();
        fs::write(journal(&dir), &whole[..length]).unwrap();
        for mode in [Mode::ReadOnly, Mode::Own] {
            let outcome = read_all(dir.path(), mode);
            assert!(matches!(outcome, Err(DiskFault::Damaged { .. })), "{length} bytes: {outcome:?}");
            assert_eq!(fs::read(journal(&dir)).unwrap(), &whole[..length]);
        }
    }
}

/// Whatever byte of the file changes: either it did not matter, or the file is refused. Never a panic, and
/// never a journal that differs from what was written.
#[test]
fn no_single_changed_byte_yields_another_journal() {
    let whole = fs::read(journal(&used_dir())).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut refused = 0;
    // All of the header page, then a sample; 37 is coprime to every structure in the file.
    for at in (0..4_096).step_by(3).chain((4_096..whole.len()).step_by(37)) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0b0100_0001;
        fs::write(journal(&dir), bytes).unwrap();
        match read_all(dir.path(), Mode::ReadOnly) {
            Ok(found) => assert!(found == as_written(), "byte {at}"),
            Err(DiskFault::Damaged { .. } | DiskFault::Newer { .. }) => refused += 1,
            Err(other) => panic!("byte {at}: {other:?}"),
        }
    }
    assert!(refused > 200, "only {refused} changes were noticed");
}

/// A snapshot of two hundred megabytes exceeded what a row may hold, and every start after it failed. Bodies beyond a
/// megabyte are stored in pieces; smaller ones stand in their row, where an older program finds them.
#[test]
fn a_large_snapshot_is_stored_in_pieces() {
    let dir = used_dir();
    let large = Snapshot { body: (0..3_500_000u32).map(|at| at.to_le_bytes()[1]).collect(), ..snapshot(40) };
    let format = || -> i64 {
        Connection::open(journal(&dir))
            .unwrap()
            .query_row("PRAGMA user_version", [], |row| row.get(0))
            .unwrap()
    };
    assert_eq!(format(), 1);
    for next in [40, 41, 42] {
        let mut disk = SqliteDisk::open(dir.path(), Mode::Bulk).unwrap();
        let term = disk.take_term(0).unwrap();
        disk.put_snapshot(term, &Snapshot { next, ..large.clone() }).unwrap();
        drop(disk);
        let (newest, records) = read_all(dir.path(), Mode::ReadOnly).unwrap();
        assert_eq!(newest, Some(Snapshot { next, ..large.clone() }));
        assert_eq!(records.len(), usize::try_from(RECORDS - next).unwrap());
    }
    assert_eq!(format(), 2);
    let count: i64 = Connection::open(journal(&dir))
        .unwrap()
        .query_row("SELECT count(*) FROM snapshot_piece", [], |row| row.get(0))
        .unwrap();
    assert_eq!(count, 8, "pieces of the two that are kept");
    tamper(&dir, "UPDATE snapshot_piece SET body = zeroblob(9) WHERE next = 42 AND number = 2");
    assert_eq!(damage(&dir), "the snapshot at 42 is not what was written");
    tamper(&dir, "DELETE FROM snapshot_piece WHERE next = 42 AND number = 2");
    assert_eq!(damage(&dir), "the snapshot at 42 is not what was written");
}

/// A file of a version that kept no actors is read as it is, and gets the column from the first owner that writes.
#[test]
fn history_without_actors_is_read_and_brought_up_to_date() {
    let dir = used_dir();
    tamper(&dir, "ALTER TABLE history DROP COLUMN actor");
    let all = HistoryQuery { limit: 9, ..HistoryQuery::default() };
    let actors = |disk: &mut SqliteDisk| -> Vec<Option<Actor>> {
        disk.history(&all).unwrap().into_iter().map(|row| row.actor).collect()
    };
    let mut look = SqliteDisk::open(dir.path(), Mode::ReadOnly).unwrap();
    assert_eq!(actors(&mut look), [None]);
    drop(look);
    let mut disk = SqliteDisk::open(dir.path(), Mode::Bulk).unwrap();
    assert_eq!(actors(&mut disk), [None]);
    let term = disk.take_term(0).unwrap();
    let row = HistoryRow {
        index: RECORDS,
        kind: HistoryKind::Audit,
        at: 70,
        tenant: String::new(),
        name: "node/n1".to_owned(),
        actor: Some(Actor::embedded()),
        body: "{}".to_owned(),
    };
    disk.append(Batch { term, expected: RECORDS, records: &[record(RECORDS)], history: &[row] }).unwrap();
    assert_eq!(actors(&mut disk), [Some(Actor::embedded()), None]);
}
