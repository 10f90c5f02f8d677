//! The golden journal of the rules, told: every promise, repair and eviction in it has its numbers and sentences.

use std::fs;

use wharf_api::v1::{EvictionView, LeavingStep};
use wharf_controller::codec;
use wharf_controller::disk::{HistoryKind, Record};
use wharf_controller::history::project;
use wharf_engine::event::{Event, LedgerEvent};
use wharf_engine::state::State;
use wharf_engine::units::{JobId, Timestamp};
use wharf_engine::verdict::Reason;

use crate::{eviction, leaving, text, view};

fn journal() -> Vec<Event> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/tests/golden/journal-v1-rules.jsonl");
    let text = fs::read_to_string(path).unwrap();
    let event = |line: &str| {
        let record = Record { version: 1, at: 0, body: line.as_bytes().to_vec() };
        codec::decode(&record, "golden").unwrap()
    };
    text.lines().map(event).collect()
}

/// Looks at every state of the journal, with the reason of every live job.
fn each_reason(mut look: impl FnMut(&State, JobId, Reason)) {
    let mut state = State::default();
    for event in journal() {
        state.apply(&event);
        for (id, _) in state.jobs.iter() {
            let verdict = state.verdict(id, state.tenants.policy(), Timestamp(0)).unwrap();
            look(&state, id, verdict.reason);
        }
    }
}

#[test]
fn a_promise_names_who_still_has_to_leave_until_nobody_has_to() {
    let (mut asked, mut nobody) = (0, 0);
    each_reason(|state, job, reason| {
        let promise = leaving::promise(state, job);
        assert_eq!(promise.is_some(), state.promises.of(job).is_some());
        if reason != Reason::Promised {
            return;
        }
        let promise = promise.expect("a job that waits for victims was promised something");
        assert!(!promise.places.is_empty());
        let said = text::sentence(state, job, reason, Timestamp(0));
        match promise.leaving.as_slice() {
            [] => nobody += 1,
            all => {
                assert!(said.contains(&format!("{} task", all.len())), "{said}");
                let timed = |leaving: &wharf_api::v1::LeavingView| {
                    leaving.step == LeavingStep::Saved || leaving.deadline_ms.is_some()
                };
                assert!(all.iter().all(timed), "{all:?}");
                asked += 1;
            }
        }
    });
    assert!(asked > 0 && nobody > 0, "the journal has both: {asked} and {nobody}");
}

#[test]
fn a_gang_below_its_minimum_says_until_when() {
    let mut seen = 0;
    each_reason(|state, job, reason| {
        if reason == Reason::Repairing {
            let until = text::until(state, job, reason).expect("a repair has an end");
            let verdict = state.verdict(job, state.tenants.policy(), until).unwrap();
            let shown = view::verdict_view(state, job, &verdict, Timestamp(until.0 - 90_000));
            assert_eq!(shown.until_ms, Some(until.0));
            assert!(shown.text.contains("within 1m30s, it ends and waits whole"), "{}", shown.text);
            seen += 1;
        }
    });
    assert!(seen > 0, "the journal has a gang that is repaired");
}

#[test]
fn every_eviction_of_the_journal_has_a_receipt_with_sentences() {
    let mut state = State::default();
    let mut told: Vec<EvictionView> = Vec::new();
    for (index, event) in (0..).zip(journal()) {
        let rows = project(&state, &event, index, Timestamp(7)).into_iter();
        told.extend(rows.filter(|row| row.kind == HistoryKind::Eviction).filter_map(eviction::view));
        state.apply(&event);
    }
    let is_eviction = |event: &&Event| matches!(event, Event::Ledger(LedgerEvent::Evicted { .. }));
    let evicted = journal().iter().filter(is_eviction).count();
    assert!(evicted > 0 && told.len() == evicted, "{} of {evicted}", told.len());
    for eviction in &told {
        assert!(eviction.victim.lost_gpu_s.is_some(), "{eviction:?}");
        assert!(eviction.rule_text.contains(&eviction.beneficiary.job), "{eviction:?}");
        assert!(eviction.victim_text.len() > 20, "{eviction:?}");
        assert!(!eviction.victim.tasks.is_empty() && eviction.id > 0, "{eviction:?}");
    }
    assert!(told.iter().any(|eviction| eviction.victim_text.contains("more than its guarantee of")));
}
