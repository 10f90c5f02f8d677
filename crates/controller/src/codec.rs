//! How events stand in the journal: JSON, each with the actor that it follows from, and a version beside it.
//!
//! JSON because a journal is read by people at three in the morning with nothing but `sqlite3`, and because a
//! new field with a default needs no migration. The version is raised only when an old reader would misread.

use serde::{Deserialize, Serialize};
use wharf_engine::model::actor::Actor;
use wharf_engine::state::State;
use wharf_engine::state::event::Event;

use crate::disk::{DiskFault, Record};

/// The encoding of an event by itself: in a snapshot, and in the records of programs that kept no actors.
pub const EVENT_VERSION: u16 = 1;

/// The encoding of an event with its actor: that of the records which this program writes, and the newest it reads.
pub const RECORD_VERSION: u16 = 2;

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Recorded {
    /// Who; `None` where the record is older than actors.
    pub actor: Option<Actor>,
    pub event: Event,
}

/// The same by reference, to be written.
#[derive(Serialize)]
struct Recording<'a> {
    actor: &'a Actor,
    event: &'a Event,
}

/// An event and its actor as a record.
pub fn encode(actor: &Actor, event: &Event, at: u64) -> Record {
    let recording = Recording { actor, event };
    let body = serde_json::to_vec(&recording).expect("an event has no map with keys that are no strings");
    Record { version: RECORD_VERSION, at, body }
}

/// A record as what it says; `place` names it in a fault.
pub fn decode_record(record: &Record, place: &str) -> Result<Recorded, DiskFault> {
    check_version(record.version, RECORD_VERSION, place)?;
    let read = if record.version <= EVENT_VERSION {
        serde_json::from_slice(&record.body).map(|event| Recorded { actor: None, event })
    } else {
        serde_json::from_slice(&record.body)
    };
    read.map_err(|error| damaged(place, &error))
}

/// A record as an event; `place` names it in a fault.
pub fn decode(record: &Record, place: &str) -> Result<Event, DiskFault> {
    Ok(decode_record(record, place)?.event)
}

/// The events of a snapshot as bytes.
pub fn encode_all(events: &[Event]) -> Vec<u8> {
    serde_json::to_vec(events).expect("an event has no map with keys that are no strings")
}

/// The bytes of a snapshot as events.
pub fn decode_all(version: u16, body: &[u8]) -> Result<Vec<Event>, DiskFault> {
    check_version(version, EVENT_VERSION, "snapshot")?;
    serde_json::from_slice(body).map_err(|error| damaged("snapshot", &error))
}

/// The hash of a state: of the shortest event list that rebuilds it.
pub fn state_hash(state: &State) -> [u8; 32] {
    *blake3::hash(&encode_all(&state.snapshot())).as_bytes()
}

/// A hash as people see it.
pub fn hex(hash: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*hash).to_hex().to_string()
}

fn check_version(version: u16, known: u16, place: &str) -> Result<(), DiskFault> {
    if version <= known {
        return Ok(());
    }
    Err(DiskFault::Newer { file: place.to_owned(), found: version.into(), known: known.into() })
}

fn damaged(place: &str, error: &serde_json::Error) -> DiskFault {
    DiskFault::Damaged { file: place.to_owned(), what: format!("an event does not decode: {error}") }
}
