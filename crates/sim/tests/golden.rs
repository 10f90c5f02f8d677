//! The golden journal: every kind of event as it was once written, replayed by the program of today.
//!
//! A journal outlives the program that wrote it. The files in `golden/` are never written again; when the encoding
//! changes, a new pair is added beside them (`WHARF_GOLDEN=1` writes the pair of the present version if it is absent).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "golden/actors.rs"]
mod actors;
#[path = "golden/bookings.rs"]
mod bookings;
#[path = "golden/first_stories.rs"]
mod first_stories;
#[path = "golden/groups.rs"]
mod groups;
#[path = "golden/kinds.rs"]
mod kinds;
#[path = "golden/parts.rs"]
mod parts;
#[path = "golden/play.rs"]
mod play;
#[path = "golden/stories.rs"]
mod stories;

use std::path::PathBuf;

use wharf_controller::codec::{self, EVENT_VERSION, RECORD_VERSION, Recorded};
use wharf_controller::disk::Record;
use wharf_engine::state::State;
use wharf_engine::state::event::Event;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

#[test]
fn a_journal_of_every_version_still_means_the_same() {
    write_if_asked();
    for Journal { version, name, .. } in JOURNALS {
        let text = std::fs::read_to_string(golden(&format!("{name}.jsonl"))).unwrap();
        let hash = std::fs::read_to_string(golden(&format!("{name}.hash"))).unwrap();
        let mut state = State::default();
        for (index, line) in text.lines().enumerate() {
            let Recorded { actor, event } = recorded(*version, line);
            assert_eq!(actor.is_some(), *version >= RECORD_VERSION, "{name} index {index}");
            state.apply(&event);
        }
        assert_eq!(codec::hex(&codec::state_hash(&state)), hash.trim(), "{name}");
        assert_eq!(state.check_deep(), [], "{name}");
    }
}

/// A golden journal with its encoding, and the story that it tells.
struct Journal {
    version: u16,
    name: &'static str,
    story: Story,
}

enum Story {
    Events(fn() -> Vec<Event>),
    /// Whole records, with who did what.
    Records(fn() -> Vec<String>),
}

/// Every golden journal. Kinds of events that came later have a journal of their own.
const JOURNALS: &[Journal] = &[
    Journal { version: 1, name: "journal-v1", story: Story::Events(first_stories::of_two_lives) },
    Journal { version: 1, name: "journal-v1-rules", story: Story::Events(first_stories::of_the_rules) },
    Journal { version: 1, name: "journal-v1-devices", story: Story::Events(first_stories::of_devices) },
    Journal {
        version: 1,
        name: "journal-v1-reservations",
        story: Story::Events(first_stories::of_reservations),
    },
    Journal { version: 1, name: "journal-v1-order", story: Story::Events(first_stories::of_an_order) },
    Journal { version: 1, name: "journal-v1-time", story: Story::Events(first_stories::of_time) },
    Journal { version: 1, name: "journal-v1-services", story: Story::Events(first_stories::of_services) },
    Journal { version: 1, name: "journal-v1-bookings", story: Story::Events(bookings::story) },
    Journal { version: 1, name: "journal-v1-groups", story: Story::Events(groups::story) },
    Journal { version: 1, name: "journal-v1-past", story: Story::Events(stories::of_the_past) },
    Journal { version: 1, name: "journal-v1-replace", story: Story::Events(stories::of_a_replacement) },
    Journal { version: 1, name: "journal-v1-restore", story: Story::Events(stories::of_a_restore) },
    Journal { version: 1, name: "journal-v1-maintenance", story: Story::Events(stories::of_maintenance) },
    Journal { version: 1, name: "journal-v1-chains", story: Story::Events(stories::of_chains) },
    Journal { version: 2, name: "journal-v2-actors", story: Story::Records(actors::story) },
    Journal { version: 1, name: "journal-v1-refused", story: Story::Events(stories::of_refusals) },
    Journal { version: 1, name: "journal-v1-owned", story: Story::Events(stories::of_owned_jobs) },
];

fn write_if_asked() {
    if std::env::var_os("WHARF_GOLDEN").is_none() {
        return;
    }
    for Journal { version, name, story } in JOURNALS {
        if golden(&format!("{name}.jsonl")).exists() {
            continue;
        }
        match story {
            Story::Events(story) if *version == EVENT_VERSION => {
                let events = story();
                let lines: Vec<String> =
                    events.iter().map(|event| serde_json::to_string(event).unwrap()).collect();
                write_pair(name, &lines, &events);
            }
            Story::Records(story) if *version == RECORD_VERSION => {
                let lines = story();
                let events: Vec<Event> =
                    lines.iter().map(|line| recorded(RECORD_VERSION, line).event).collect();
                write_pair(name, &lines, &events);
            }
            // The program of today writes the encoding of today.
            Story::Events(_) | Story::Records(_) => {}
        }
    }
}

fn write_pair(name: &str, lines: &[String], events: &[Event]) {
    std::fs::write(golden(&format!("{name}.jsonl")), lines.join("\n") + "\n").unwrap();
    let hash = codec::hex(&codec::state_hash(&State::resume(events, 0)));
    std::fs::write(golden(&format!("{name}.hash")), hash + "\n").unwrap();
}

fn recorded(version: u16, line: &str) -> Recorded {
    codec::decode_record(&Record { version, at: 0, body: line.as_bytes().to_vec() }, "golden").unwrap()
}
