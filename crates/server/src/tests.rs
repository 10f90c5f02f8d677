//! The golden journal of the rules, told: every promise, repair and eviction in it has its numbers and sentences.

pub(crate) mod nowhere;

use std::cmp::Reverse;
use std::fs;

use wharf_api::v1::{EvictionView, LeavingStep};
use wharf_controller::codec;
use wharf_controller::disk::{HistoryKind, Record};
use wharf_controller::history::{Moment, Projection};
use wharf_engine::answer::verdict::{Answers, Reason};
use wharf_engine::model::actor::{Actor, Source};
use wharf_engine::plan::rank;
use wharf_engine::state::State;
use wharf_engine::state::event::Event;
use wharf_engine::state::jobs::Job;
use wharf_engine::state::ledger::event::LedgerEvent;
use wharf_engine::units::{BookingId, JobId, Timestamp};

use crate::{eviction, leaving, text, view};

fn journal() -> Vec<Event> {
    read("journal-v1-rules.jsonl")
}

pub(crate) fn read(name: &str) -> Vec<Event> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/tests/golden/");
    let text = fs::read_to_string(format!("{path}{name}")).unwrap();
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
            let verdict = state.verdict(id, Timestamp(0)).unwrap();
            look(&state, id, verdict.reason);
        }
    }
}

#[test]
fn a_promise_names_who_still_has_to_leave_until_nobody_has_to() {
    let (mut asked, mut nobody) = (0, 0);
    each_reason(|state, job, reason| {
        let earmark = leaving::earmark(state, job);
        assert_eq!(earmark.is_some(), state.earmarks.of(job).is_some());
        if reason != Reason::Earmarked {
            return;
        }
        let earmark = earmark.expect("a job that waits for victims was promised something");
        assert!(!earmark.places.is_empty());
        let said = text::sentence(state, job, reason, Timestamp(0));
        match earmark.leaving.as_slice() {
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
            let verdict = state.verdict(job, until).unwrap();
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
    let actor = Actor::of(Source::Engine);
    for (index, event) in (0..).zip(journal()) {
        let mut projection = Projection::default();
        projection.hear(&state, &event, Moment { index, now: Timestamp(7), actor: &actor });
        let rows = projection.take().into_iter();
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

/// Counts for each job the others that are served before it, which the answers do not do: they sort.
#[test]
fn the_answers_about_many_jobs_are_those_about_each_alone() {
    let (mut waited, mut ranked) = (0, 0);
    for name in ["rules", "order", "bookings", "reservations", "groups", "time", "devices"] {
        let mut state = State::default();
        for (at, event) in (1_000_000..).zip(read(&format!("journal-v1-{name}.jsonl"))) {
            state.apply(&event);
            // In the middle of a turn, which nobody sees, a window may be over before its jobs have heard.
            let orphaned = |booking: BookingId| state.bookings.get(booking).is_none();
            if state.jobs.iter().any(|(_, job)| job.spec.booking.is_some_and(orphaned)) {
                continue;
            }
            let (now, policy) = (Timestamp(at), state.tenants.policy());
            let mut answers = Answers::default();
            for (id, job) in state.jobs.iter() {
                let verdict = state.verdict_among(id, now, &mut answers).unwrap();
                assert_eq!(Some(&verdict), state.verdict(id, now).as_ref(), "{name} {id:?}");
                if !job.waits_for_places() {
                    assert_eq!(verdict.ahead, 0);
                    continue;
                }
                let turn = |id: JobId, job: &Job| {
                    let rank = rank(&state, policy, id, job, now);
                    (job.spec.class, Reverse(job.spec.priority), rank, job.submitted_at, id)
                };
                let waiting = state.jobs.waiting().values().flat_map(|kind| &kind.jobs);
                let rivals = waiting.filter_map(|&(_, other)| Some((other, state.jobs.get(other)?)));
                let before = rivals.filter(|(other, rival)| {
                    rival.spec.tenant == job.spec.tenant && turn(*other, rival) < turn(id, job)
                });
                assert_eq!(verdict.ahead, view::count(before.count()), "{name} {id:?}");
                waited += usize::from(verdict.ahead > 0);
                ranked += usize::from(policy.orders.beyond_age(job.spec.class).is_some());
            }
        }
    }
    assert!(waited > 0 && ranked > 0, "some wait behind others: {waited}, some not by age: {ranked}");
}
