//! What watchers read is what the journal says, without gap and without anything twice, however they read.

use wharf_api::v1::ChangeKind;
use wharf_engine::state::State;
use wharf_engine::state::event::Event;
use wharf_engine::units::Timestamp;

use super::*;
use crate::tests::read;

const ORIGIN: Origin = Origin { term: 3, restored: false };

/// Everything that the feed has to tell of a journal.
fn projected(events: &[Event]) -> Vec<Change> {
    let mut state = State::default();
    let mut all = Vec::new();
    for event in events {
        all.extend(project(&state, event, Timestamp(7)));
        state.apply(event);
    }
    all
}

/// Reads to the end from an index, in pages of so many.
fn watched(feed: &Feed, mut since: u64, limit: usize) -> (Vec<Change>, u64) {
    let mut all = Vec::new();
    loop {
        let page = feed.page(since, limit).unwrap();
        assert!(page.changes.len() <= limit);
        since = page.next;
        if page.changes.is_empty() {
            return (all, since);
        }
        all.extend(page.changes.iter().map(|change| Change::clone(change)));
    }
}

#[test]
fn pages_of_the_feed_are_the_journal_whatever_their_size_and_whenever_they_are_read() {
    for name in ["rules", "bookings", "services", "maintenance", "restore"] {
        let events = read(&format!("journal-v1-{name}.jsonl"));
        let all = projected(&events);
        assert!(all.windows(2).all(|pair| pair[0].index < pair[1].index), "one change an event at most");
        for limit in [1, 7, 1000] {
            let (teller, feed) = begin(0, ORIGIN);
            let (mut told, mut since) = (Vec::new(), 0);
            for (at, turn) in events.chunks(11).enumerate() {
                let head = u64::try_from(at * 11 + turn.len()).unwrap();
                let of_turn = all.iter().filter(|change| change.index < head && change.index >= feed.head());
                teller.tell(of_turn.cloned().collect(), head);
                // Sometimes the watcher is away for a while.
                if at % 3 == 0 {
                    let (more, next) = watched(&feed, since, limit);
                    told.extend(more);
                    since = next;
                }
            }
            told.extend(watched(&feed, since, limit).0);
            assert_eq!(told, all, "{name} in pages of {limit}");
        }
    }
}

#[test]
fn a_watcher_that_was_away_for_too_long_is_told_from_where_it_can_go_on() {
    let all = projected(&read("journal-v1-rules.jsonl"));
    let (teller, feed) = begin_with(0, ORIGIN, 10);
    let head = all.last().unwrap().index + 1;
    teller.tell(all.clone(), head);
    let Err(Forgotten { first }) = feed.page(0, 100) else { panic!("the ring holds 10 changes") };
    assert_eq!(feed.page(first - 1, 100), Err(Forgotten { first }));
    let kept: Vec<Change> =
        feed.page(first, 100).unwrap().changes.iter().map(|it| Change::clone(it)).collect();
    assert_eq!(kept, all[all.len() - 10..], "nothing from there on is missing");
}

#[test]
fn a_watcher_of_what_is_not_told_yet_waits_for_it_from_there() {
    let (teller, feed) = begin(5, ORIGIN);
    assert_eq!(feed.page(9, 10), Ok(Page { changes: Vec::new(), next: 9 }));
    assert_eq!(feed.page(4, 10), Err(Forgotten { first: 5 }));
    teller.tell(Vec::new(), 9);
    assert_eq!(feed.page(5, 10), Ok(Page { changes: Vec::new(), next: 9 }));
}

#[test]
fn an_index_from_before_a_restore_is_not_taken_for_one_after_it() {
    let restored = Origin { restored: true, ..ORIGIN };
    assert!(ORIGIN.has(None) && ORIGIN.has(Some(3)) && !ORIGIN.has(Some(2)));
    assert!(!restored.has(None), "it may be of before");
    assert!(restored.has(Some(3)) && !restored.has(Some(2)));
}

#[test]
fn starts_that_are_promised_and_what_should_not_run_are_told() {
    let mut told = std::collections::BTreeSet::new();
    for name in ["rules", "reservations"] {
        told.extend(projected(&read(&format!("journal-v1-{name}.jsonl"))).into_iter().map(|change| {
            let is_complete = match change.kind {
                ChangeKind::ReservationChanged | ChangeKind::ReservationDropped => change.job.is_some(),
                ChangeKind::OrphanSeen | ChangeKind::OrphanGone => {
                    change.node.is_some() && change.uid.is_some()
                }
                _ => true,
            };
            assert!(is_complete, "{change:?}");
            change.kind
        }));
    }
    for kind in [
        ChangeKind::ReservationChanged,
        ChangeKind::ReservationDropped,
        ChangeKind::OrphanSeen,
        ChangeKind::OrphanGone,
    ] {
        assert!(told.contains(&kind), "{kind:?} is in no golden journal");
    }
}
