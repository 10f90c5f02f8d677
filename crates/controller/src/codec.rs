//! How events stand in the journal: JSON, with a version beside it.
//!
//! JSON because a journal is read by people at three in the morning with nothing but `sqlite3`, and because a
//! new field with a default needs no migration. The version is raised only when an old reader would misread.

use wharf_engine::state::State;
use wharf_engine::state::event::Event;

use crate::disk::{DiskFault, Record};

/// The encoding this program writes, and the newest it reads.
pub const VERSION: u16 = 1;

/// An event as a record.
pub fn encode(event: &Event, at: u64) -> Record {
    let body = serde_json::to_vec(event).expect("an event has no map with keys that are no strings");
    Record { version: VERSION, at, body }
}

/// A record as an event; `place` names it in a fault.
pub fn decode(record: &Record, place: &str) -> Result<Event, DiskFault> {
    check_version(record.version, place)?;
    serde_json::from_slice(&record.body).map_err(|error| damaged(place, &error))
}

/// The events of a snapshot as bytes.
pub fn encode_all(events: &[Event]) -> Vec<u8> {
    serde_json::to_vec(events).expect("an event has no map with keys that are no strings")
}

/// The bytes of a snapshot as events.
pub fn decode_all(version: u16, body: &[u8]) -> Result<Vec<Event>, DiskFault> {
    check_version(version, "snapshot")?;
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

fn check_version(version: u16, place: &str) -> Result<(), DiskFault> {
    if version <= VERSION {
        return Ok(());
    }
    Err(DiskFault::Newer { file: place.to_owned(), found: version.into(), known: VERSION.into() })
}

fn damaged(place: &str, error: &serde_json::Error) -> DiskFault {
    DiskFault::Damaged { file: place.to_owned(), what: format!("an event does not decode: {error}") }
}
