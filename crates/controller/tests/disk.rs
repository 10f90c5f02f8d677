//! What every disk promises: one suite, run over the real and the simulated one, and a random comparison of
//! the two. That is what allows conclusions from the simulator to hold for the real disk.

#![expect(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::fmt::Debug;

use wharf_controller::disk::{
    Batch, Disk, DiskFault, HistoryKind, HistoryQuery, HistoryRow, Index, Record, Snapshot, Term,
};
use wharf_controller::memory::{CrashPoint, MemoryDisk};
use wharf_controller::sqlite::{Mode, SqliteDisk};
use wharf_engine::model::actor::{Actor, Subject};

/// Opens the disk under test as a restarted process would; the disk opened before must be dropped.
type Open<'a> = &'a dyn Fn() -> Box<dyn Disk>;

macro_rules! on_every_disk {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[test]
            fn $name() {
                let dir = tempfile::tempdir().unwrap();
                super::$name(&|| Box::new(super::SqliteDisk::open(dir.path(), super::Mode::Own).unwrap()));
            })+
        }
        mod memory {
            $(#[test]
            fn $name() {
                let disk = super::MemoryDisk::new();
                super::$name(&|| Box::new(disk.clone()));
            })+
        }
    };
}

on_every_disk! {
    a_new_disk_is_empty,
    readers_beside_see_what_was_appended,
    everything_survives_reopening,
    each_term_is_higher_than_the_last,
    a_stale_term_is_fenced,
    a_term_never_given_out_is_fenced,
    an_unexpected_index_is_refused,
    a_turn_may_have_history_only,
    a_snapshot_cuts_the_journal_before_it,
    the_journal_continues_after_a_cut,
    a_snapshot_of_what_is_not_written_is_refused,
    a_snapshot_older_than_the_newest_is_refused,
    a_snapshot_may_be_taken_again_at_the_same_index,
    reading_what_is_cut_is_refused,
    reading_past_the_end_is_refused,
    reading_stops_at_the_readers_refusal,
    history_is_newest_first_and_limited,
    history_is_found_by_kind_and_name,
    history_of_a_tenant_includes_those_below_it_and_no_sibling,
    trimming_drops_older_history_only,
    what_is_carried_takes_the_place_of_what_was,
    guarantees_in_force_outlive_a_trim,
    who_did_it_stays_with_the_row,
    a_refused_turn_leaves_no_trace,
}

fn record(text: &str) -> Record {
    Record { version: 1, at: 1_000, body: text.as_bytes().to_vec() }
}

fn actor() -> Actor {
    Actor { subject: Subject::Claimed("ada".to_owned()), ..Actor::embedded() }
}

fn history_row(index: Index, tenant: &str, name: &str) -> HistoryRow {
    HistoryRow {
        index,
        kind: HistoryKind::Job,
        at: 1_000 * index,
        tenant: tenant.to_owned(),
        name: name.to_owned(),
        actor: Some(actor()),
        body: format!("{{\"index\":{index}}}"),
    }
}

fn snapshot_at(next: Index) -> Snapshot {
    Snapshot { next, at: 7, version: 3, state_hash: [5; 32], body: format!("state at {next}").into_bytes() }
}

fn all(limit: usize) -> HistoryQuery {
    HistoryQuery { limit, ..HistoryQuery::default() }
}

fn append(disk: &mut dyn Disk, term: Term, expected: Index, texts: &[&str]) -> Result<(), DiskFault> {
    let records: Vec<Record> = texts.iter().map(|text| record(text)).collect();
    disk.append(Batch { term, expected, records: &records, history: &[] })
}

fn add_history(disk: &mut dyn Disk, term: Term, rows: &[HistoryRow]) {
    let expected = next(disk);
    disk.append(Batch { term, expected, records: &[], history: rows }).unwrap();
}

/// Where the journal ends.
fn next(disk: &mut dyn Disk) -> Index {
    let start = disk.snapshot().unwrap().map_or(0, |snapshot| snapshot.next);
    read(disk, start).unwrap().0
}

/// The next index, and what stands before it as `index:text`.
fn read(disk: &mut dyn Disk, from: Index) -> Result<(Index, Vec<String>), DiskFault> {
    let mut seen = Vec::new();
    let next = disk.read(from, &mut |index, record| {
        seen.push(format!("{index}:{}", String::from_utf8(record.body).unwrap()));
        Ok(())
    })?;
    Ok((next, seen))
}

fn names(disk: &mut dyn Disk, query: &HistoryQuery) -> Vec<String> {
    disk.history(query).unwrap().into_iter().map(|row| row.name).collect()
}

fn a_new_disk_is_empty(open: Open<'_>) {
    let mut disk = open();
    assert_eq!(disk.snapshot().unwrap(), None);
    assert_eq!(read(&mut *disk, 0).unwrap(), (0, vec![]));
    assert_eq!(disk.history(&all(10)).unwrap(), []);
}

/// A reader on another thread sees each append as soon as it has returned, and holds none up.
fn readers_beside_see_what_was_appended(open: Open<'_>) {
    let mut disk = open();
    let term = disk.take_term(0).unwrap();
    let reader = disk.history_reader();
    for index in 0..20 {
        let row = history_row(index, "lab", &format!("job-{index}"));
        let record = Record { version: 1, at: index, body: vec![1] };
        let (records, history) = (std::slice::from_ref(&record), std::slice::from_ref(&row));
        disk.append(Batch { term, expected: index, records, history }).unwrap();
        let (beside, query) = (reader.clone(), all(1));
        let newest = std::thread::spawn(move || beside.find(&query)).join().unwrap();
        assert_eq!(newest.unwrap(), [row]);
    }
    assert_eq!(reader.find(&all(100)).unwrap(), disk.history(&all(100)).unwrap());
}

fn everything_survives_reopening(open: Open<'_>) {
    let records = [
        Record { version: u16::MAX, at: u64::MAX >> 1, body: vec![] },
        Record { version: 0, at: 0, body: (0..=255).collect() },
        Record { version: 2, at: 5, body: vec![9; 100_000] },
    ];
    let row = history_row(2, "lab/\u{e9}", "o'brien %");
    let mut disk = open();
    let term = disk.take_term(0).unwrap();
    append(&mut *disk, term, 0, &["zero"]).unwrap();
    let history = std::slice::from_ref(&row);
    disk.append(Batch { term, expected: 1, records: &records, history }).unwrap();
    disk.put_snapshot(term, &snapshot_at(1)).unwrap();
    drop(disk);

    let mut disk = open();
    let mut seen = Vec::new();
    let next = disk.read(1, &mut |index, record| {
        seen.push((index, record));
        Ok(())
    });
    assert_eq!(next.unwrap(), 4);
    assert_eq!(seen, (1..).zip(records).collect::<Vec<_>>());
    assert_eq!(disk.snapshot().unwrap(), Some(snapshot_at(1)));
    assert_eq!(disk.history(&all(10)).unwrap(), [row]);
    assert_eq!(disk.take_term(0).unwrap(), term + 1);
}

fn each_term_is_higher_than_the_last(open: Open<'_>) {
    let mut disk = open();
    assert_eq!(disk.take_term(0).unwrap(), 1);
    assert_eq!(disk.take_term(0).unwrap(), 2);
    drop(disk);
    assert_eq!(open().take_term(0).unwrap(), 3);
}

fn a_stale_term_is_fenced(open: Open<'_>) {
    let stale = open().take_term(0).unwrap();
    let mut disk = open();
    let current = disk.take_term(0).unwrap();
    append(&mut *disk, current, 0, &["new"]).unwrap();
    let is_fenced = |outcome| match outcome {
        Err(DiskFault::Fenced { held, current: found }) => (held, found) == (stale, current),
        other => panic!("not fenced: {other:?}"),
    };
    assert!(is_fenced(append(&mut *disk, stale, 1, &["old"])));
    assert!(is_fenced(disk.put_snapshot(stale, &snapshot_at(1))));
    assert!(is_fenced(disk.trim_history(stale, 5, &[])));
    // The fence comes first: a leader that is over must learn that, not that it lags behind.
    assert!(is_fenced(append(&mut *disk, stale, 0, &["old"])));
    assert_eq!(read(&mut *disk, 0).unwrap(), (1, vec!["0:new".to_owned()]));
    assert_eq!(disk.snapshot().unwrap(), None);
}

fn a_term_never_given_out_is_fenced(open: Open<'_>) {
    let mut disk = open();
    let term = disk.take_term(0).unwrap();
    let outcome = append(&mut *disk, term + 1, 0, &["x"]);
    assert!(matches!(outcome, Err(DiskFault::Fenced { held: 2, current: 1 })), "{outcome:?}");
}

fn an_unexpected_index_is_refused(open: Open<'_>) {
    let mut disk = open();
    let term = disk.take_term(0).unwrap();
    append(&mut *disk, term, 0, &["a", "b"]).unwrap();
    for expected in [0, 1, 3, u64::MAX] {
        match append(&mut *disk, term, expected, &["c"]) {
            Err(DiskFault::UnexpectedIndex { expected: found, actual: 2 }) => assert_eq!(found, expected),
            other => panic!("expected {expected}: {other:?}"),
        }
    }
    append(&mut *disk, term, 2, &["c"]).unwrap();
    assert_eq!(read(&mut *disk, 1).unwrap(), (3, vec!["1:b".to_owned(), "2:c".to_owned()]));
}

fn a_turn_may_have_history_only(open: Open<'_>) {
    let mut disk = open();
    let term = disk.take_term(0).unwrap();
    add_history(&mut *disk, term, &[history_row(0, "lab", "a")]);
    assert_eq!(read(&mut *disk, 0).unwrap(), (0, vec![]));
    assert_eq!(names(&mut *disk, &all(1)), ["a"]);
}

fn a_snapshot_cuts_the_journal_before_it(open: Open<'_>) {
    let mut disk = open();
    let term = disk.take_term(0).unwrap();
    append(&mut *disk, term, 0, &["a", "b", "c"]).unwrap();
    disk.put_snapshot(term, &snapshot_at(2)).unwrap();
    drop(disk);
    let mut disk = open();
    assert_eq!(disk.snapshot().unwrap(), Some(snapshot_at(2)));
    assert_eq!(read(&mut *disk, 2).unwrap(), (3, vec!["2:c".to_owned()]));
}

fn the_journal_continues_after_a_cut(open: Open<'_>) {
    let mut disk = open();
    let term = disk.take_term(0).unwrap();
    for round in 0..4 {
        append(&mut *disk, term, 3 * round, &["a", "b", "c"]).unwrap();
        // In turn: everything is cut, and one record is left.
        disk.put_snapshot(term, &snapshot_at(3 * round + 3 - round % 2)).unwrap();
        drop(disk);
        disk = open();
    }
    assert_eq!(disk.snapshot().unwrap(), Some(snapshot_at(11)));
    append(&mut *disk, term, 12, &["d"]).unwrap();
    assert_eq!(read(&mut *disk, 11).unwrap(), (13, vec!["11:c".to_owned(), "12:d".to_owned()]));
    assert_eq!(read(&mut *disk, 12).unwrap(), (13, vec!["12:d".to_owned()]));
    assert_eq!(read(&mut *disk, 13).unwrap(), (13, vec![]));
}

fn a_snapshot_of_what_is_not_written_is_refused(open: Open<'_>) {
    let mut disk = open();
    let term = disk.take_term(0).unwrap();
    append(&mut *disk, term, 0, &["a"]).unwrap();
    let outcome = disk.put_snapshot(term, &snapshot_at(2));
    assert!(matches!(outcome, Err(DiskFault::UnexpectedIndex { expected: 2, actual: 1 })), "{outcome:?}");
    assert_eq!(disk.snapshot().unwrap(), None);
    assert_eq!(read(&mut *disk, 0).unwrap(), (1, vec!["0:a".to_owned()]));
}

fn a_snapshot_older_than_the_newest_is_refused(open: Open<'_>) {
    let mut disk = open();
    let term = disk.take_term(0).unwrap();
    append(&mut *disk, term, 0, &["a", "b"]).unwrap();
    disk.put_snapshot(term, &snapshot_at(2)).unwrap();
    let outcome = disk.put_snapshot(term, &snapshot_at(1));
    assert!(matches!(outcome, Err(DiskFault::UnexpectedIndex { expected: 1, actual: 2 })), "{outcome:?}");
    assert_eq!(disk.snapshot().unwrap(), Some(snapshot_at(2)));
}

fn a_snapshot_may_be_taken_again_at_the_same_index(open: Open<'_>) {
    let mut disk = open();
    let term = disk.take_term(0).unwrap();
    append(&mut *disk, term, 0, &["a"]).unwrap();
    disk.put_snapshot(term, &snapshot_at(1)).unwrap();
    let again = Snapshot { version: 4, ..snapshot_at(1) };
    disk.put_snapshot(term, &again).unwrap();
    assert_eq!(disk.snapshot().unwrap(), Some(again));
}

fn reading_what_is_cut_is_refused(open: Open<'_>) {
    let mut disk = open();
    let term = disk.take_term(0).unwrap();
    append(&mut *disk, term, 0, &["a", "b"]).unwrap();
    disk.put_snapshot(term, &snapshot_at(1)).unwrap();
    let outcome = read(&mut *disk, 0);
    assert!(matches!(outcome, Err(DiskFault::Damaged { .. })), "{outcome:?}");
}

fn reading_past_the_end_is_refused(open: Open<'_>) {
    let mut disk = open();
    for from in [1, u64::MAX] {
        let outcome = read(&mut *disk, from);
        assert!(matches!(outcome, Err(DiskFault::Damaged { .. })), "{outcome:?}");
    }
}

fn reading_stops_at_the_readers_refusal(open: Open<'_>) {
    let mut disk = open();
    let term = disk.take_term(0).unwrap();
    append(&mut *disk, term, 0, &["a", "b", "c"]).unwrap();
    let mut seen = 0;
    let outcome = disk.read(0, &mut |index, _| {
        seen += 1;
        if index == 1 { Err(DiskFault::Fenced { held: 40, current: 41 }) } else { Ok(()) }
    });
    assert!(matches!(outcome, Err(DiskFault::Fenced { held: 40, current: 41 })), "{outcome:?}");
    assert_eq!(seen, 2);
}

fn history_is_newest_first_and_limited(open: Open<'_>) {
    let mut disk = open();
    let term = disk.take_term(0).unwrap();
    // Two rows of one event keep the order in which they were given.
    add_history(&mut *disk, term, &[history_row(1, "lab", "a"), history_row(1, "lab", "b")]);
    add_history(&mut *disk, term, &[history_row(2, "lab", "c")]);
    assert_eq!(names(&mut *disk, &all(usize::MAX)), ["c", "b", "a"]);
    assert_eq!(names(&mut *disk, &all(2)), ["c", "b"]);
    assert_eq!(names(&mut *disk, &all(0)), [""; 0]);
}

fn history_is_found_by_kind_and_name(open: Open<'_>) {
    let mut disk = open();
    let term = disk.take_term(0).unwrap();
    let receipt = HistoryRow { kind: HistoryKind::Receipt, ..history_row(3, "lab", "a") };
    add_history(&mut *disk, term, &[history_row(1, "lab", "a"), history_row(2, "lab", "b"), receipt.clone()]);
    let by_kind = HistoryQuery { kind: Some(HistoryKind::Receipt), ..all(9) };
    assert_eq!(disk.history(&by_kind).unwrap(), [receipt]);
    let by_name = HistoryQuery { name: Some("a".to_owned()), ..all(9) };
    assert_eq!(disk.history(&by_name).unwrap().len(), 2);
    let by_all =
        HistoryQuery { kind: Some(HistoryKind::Job), tenant: Some("lab".to_owned()), ..by_name.clone() };
    assert_eq!(disk.history(&by_all).unwrap(), [history_row(1, "lab", "a")]);
    let elsewhere = HistoryQuery { tenant: Some("other".to_owned()), ..by_name };
    assert_eq!(disk.history(&elsewhere).unwrap(), []);
}

fn history_of_a_tenant_includes_those_below_it_and_no_sibling(open: Open<'_>) {
    let mut disk = open();
    let term = disk.take_term(0).unwrap();
    let tenants = [
        "lab",
        "lab/nlp",
        "lab/nlp/x",
        "lab2",
        "lab-a",
        "lab.b",
        "LAB",
        "l_b",
        "l_b/%",
        "l%",
        "l%/y",
        "la",
        "",
    ];
    let rows: Vec<HistoryRow> =
        (0..).zip(tenants).map(|(index, tenant)| history_row(index, tenant, tenant)).collect();
    add_history(&mut *disk, term, &rows);
    let mut of =
        |tenant: &str| names(&mut *disk, &HistoryQuery { tenant: Some(tenant.to_owned()), ..all(99) });
    assert_eq!(of("lab"), ["lab/nlp/x", "lab/nlp", "lab"]);
    assert_eq!(of("lab/nlp"), ["lab/nlp/x", "lab/nlp"]);
    assert_eq!(of("l_b"), ["l_b/%", "l_b"]);
    assert_eq!(of("l%"), ["l%/y", "l%"]);
    assert_eq!(of("l"), [""; 0]);
    assert_eq!(of("'; DROP TABLE history; --"), [""; 0]);
}

fn trimming_drops_older_history_only(open: Open<'_>) {
    let mut disk = open();
    let term = disk.take_term(0).unwrap();
    let rows: Vec<HistoryRow> = (1..=4).map(|index| history_row(index, "lab", &index.to_string())).collect();
    add_history(&mut *disk, term, &rows);
    disk.trim_history(term, 3_000, &[]).unwrap();
    assert_eq!(names(&mut *disk, &all(9)), ["4", "3"]);
    disk.trim_history(term, u64::MAX, &[]).unwrap();
    add_history(&mut *disk, term, &[history_row(5, "lab", "5"), history_row(6, "lab", "6")]);
    assert_eq!(names(&mut *disk, &all(9)), ["6", "5"]);
}

fn what_is_carried_takes_the_place_of_what_was(open: Open<'_>) {
    let mut disk = open();
    let term = disk.take_term(0).unwrap();
    add_history(&mut *disk, term, &[history_row(1, "lab", "old"), history_row(4, "lab", "new")]);
    let carried = |index, name| HistoryRow { kind: HistoryKind::Carried, ..history_row(index, "lab", name) };
    disk.trim_history(term, 3_000, &[carried(5, "a"), carried(5, "b")]).unwrap();
    let of_kind = HistoryQuery { kind: Some(HistoryKind::Carried), ..all(9) };
    assert_eq!(names(&mut *disk, &of_kind), ["b", "a"]);
    disk.trim_history(term, 3_000, &[carried(6, "c")]).unwrap();
    assert_eq!(names(&mut *disk, &of_kind), ["c"]);
    assert_eq!(names(&mut *disk, &all(9)), ["new"], "what is only for sums is asked for by its kind");
}

fn guarantees_in_force_outlive_a_trim(open: Open<'_>) {
    let mut disk = open();
    let term = disk.take_term(0).unwrap();
    let promised =
        |index, name: &str| HistoryRow { kind: HistoryKind::Guarantee, ..history_row(index, "lab", name) };
    let rows = [(1, "a1"), (1, "b1"), (2, "a2"), (2, "b2"), (4, "a4")].map(|(at, name)| promised(at, name));
    add_history(&mut *disk, term, &rows);
    let of_kind = HistoryQuery { kind: Some(HistoryKind::Guarantee), ..all(9) };
    disk.trim_history(term, 3_000, &[]).unwrap();
    assert_eq!(names(&mut *disk, &of_kind), ["a4", "b2", "a2"]);
    disk.trim_history(term, 9_000, &[]).unwrap();
    assert_eq!(names(&mut *disk, &of_kind), ["a4"]);
}

fn who_did_it_stays_with_the_row(open: Open<'_>) {
    let mut disk = open();
    let term = disk.take_term(0).unwrap();
    let rows = [history_row(1, "lab", "a"), HistoryRow { actor: None, ..history_row(2, "lab", "b") }];
    add_history(&mut *disk, term, &rows);
    let actors: Vec<Option<Actor>> =
        disk.history(&all(9)).unwrap().into_iter().map(|row| row.actor).collect();
    assert_eq!(actors, [None, Some(actor())]);
}

fn a_refused_turn_leaves_no_trace(open: Open<'_>) {
    let mut disk = open();
    let term = disk.take_term(0).unwrap();
    let history = [history_row(0, "lab", "a")];
    for (term, expected) in [(term, 1), (term + 1, 0)] {
        disk.append(Batch { term, expected, records: &[record("a")], history: &history }).unwrap_err();
    }
    drop(disk);
    a_new_disk_is_empty(open);
}

/// An outcome in words that both disks use alike; how damage is told differs.
fn told<T: Debug>(outcome: Result<T, DiskFault>) -> String {
    match outcome {
        Err(DiskFault::Damaged { .. }) => "damaged".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Random numbers that are the same in every run (xorshift64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    /// `value` three times in four, otherwise one near it.
    fn about(&mut self, value: u64) -> u64 {
        if self.below(4) > 0 { value } else { (value + self.below(5)).saturating_sub(2) }
    }
}

/// One random request, put to both disks.
fn ask(dice: &mut Dice, disks: [&mut dyn Disk; 2], held: &mut Term) -> [String; 2] {
    let [real, simulated] = disks;
    let end = next(simulated);
    let (kind, term, index) = (dice.below(20), dice.about(*held), dice.about(end));
    let texts = ["a", "bb", "ccc"];
    let count = usize::try_from(dice.below(4)).unwrap();
    let row = history_row(index, texts[count % 3], texts[(count + 1) % 3]);
    let records: Vec<Record> = texts[..count].iter().map(|text| record(text)).collect();
    [real, simulated].map(|disk| match kind {
        0 => told(disk.take_term(0).inspect(|term| *held = *term)),
        1 | 2 => told(disk.put_snapshot(term, &snapshot_at(index))),
        3 => told(disk.trim_history(term, index * 500, &[])),
        4..=6 => told(read(disk, index.saturating_sub(3))),
        7 => told(disk.snapshot()),
        8 => told(disk.history(&HistoryQuery { tenant: Some("bb".to_owned()), ..all(5) })),
        9 => told(disk.history(&HistoryQuery { index: Some(index.saturating_sub(1)), ..all(5) })),
        _ => {
            let history = std::slice::from_ref(&row);
            told(disk.append(Batch { term, expected: index, records: &records, history }))
        }
    })
}

#[test]
fn both_disks_answer_alike_whatever_is_asked() {
    let mut journal_len_max = 0;
    for seed in 1..=12 {
        let dir = tempfile::tempdir().unwrap();
        let open = || SqliteDisk::open(dir.path(), Mode::Bulk).unwrap();
        let mut dice = Dice(seed * 0x9E37_79B9);
        let mut held = 0;
        let mut memory = MemoryDisk::new();
        let mut sqlite = open();
        for step in 0..150 {
            let [real, simulated] = ask(&mut dice, [&mut sqlite, &mut memory], &mut held);
            assert_eq!(real, simulated, "seed {seed}, step {step}");
            if dice.below(20) == 0 {
                drop(sqlite);
                sqlite = open();
            }
        }
        journal_len_max = journal_len_max.max(next(&mut memory));
    }
    assert!(journal_len_max > 50, "nearly all was refused: {journal_len_max}");
}

#[test]
fn a_stale_leader_and_its_successor_share_one_memory_disk() {
    let mut old = MemoryDisk::new();
    let mut new = old.clone();
    let old_term = old.take_term(0).unwrap();
    append(&mut old, old_term, 0, &["a"]).unwrap();
    let new_term = new.take_term(0).unwrap();
    assert!(matches!(append(&mut old, old_term, 1, &["b"]), Err(DiskFault::Fenced { held: 1, current: 2 })));
    append(&mut new, new_term, 1, &["c"]).unwrap();
    assert_eq!(read(&mut old, 0).unwrap().1, ["0:a", "1:c"]);
}

#[test]
fn a_simulated_crash_falls_before_or_after_the_effect() {
    for (point, survivors) in [(CrashPoint::Before, vec!["0:a"]), (CrashPoint::After, vec!["0:a", "1:b"])] {
        let mut disk = MemoryDisk::new();
        let term = disk.take_term(0).unwrap();
        disk.crash_after(2, point);
        append(&mut disk, term, 0, &["a"]).unwrap();
        let fault = append(&mut disk, term, 1, &["b"]).unwrap_err();
        assert!(fault.to_string().starts_with("simulated crash: "), "{fault}");
        assert_eq!(disk.operations(), 3);
        // The process that is started next works on what is there.
        assert_eq!(read(&mut disk.clone(), 0).unwrap().1, survivors);
    }
}

#[test]
fn every_operation_of_a_run_can_be_crashed() {
    let run = |disk: &MemoryDisk| -> Result<(), DiskFault> {
        let mut disk = disk.clone();
        let term = disk.take_term(0)?;
        let start = disk.snapshot()?.map_or(0, |snapshot| snapshot.next);
        let (next, _) = read(&mut disk, start)?;
        append(&mut disk, term, next, &["a", "b"])?;
        disk.put_snapshot(term, &snapshot_at(next + 1))?;
        disk.history(&all(1))?;
        disk.trim_history(term, 0, &[])
    };
    let whole = MemoryDisk::new();
    run(&whole).unwrap();
    let operations = u32::try_from(whole.operations()).unwrap();
    assert_eq!(operations, 7);
    for count in 1..=operations {
        for point in [CrashPoint::Before, CrashPoint::After] {
            let disk = MemoryDisk::new();
            disk.crash_after(count, point);
            assert!(matches!(run(&disk), Err(DiskFault::Io { .. })));
            assert_eq!(disk.operations(), u64::from(count));
            run(&disk).unwrap();
        }
    }
}
