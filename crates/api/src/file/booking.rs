//! Booking files: a shape as in a job file, when it is wanted and for how long.
//!
//! The same text is the body of `POST /v1/bookings`.

use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use wharf_engine::decide::input::BookingRequest;
use wharf_engine::state::bookings::Booker;
use wharf_engine::units::{Millis, Timestamp, Uid};

use super::field::Map;
use super::job::{self, JobFile};
use super::moment::{Moment, moment_text};
use super::tree::{Entry, Node, Value};
use super::{Fault, FileError, document, read, text};

/// Every key, in the order in which a file is best written.
const KEYS: &[&str] = &[
    "name", "tenant", "tasks", "gpus", "gpu", "cpu", "memory", "storage", "nics", "nodes", "topology",
    "trust", "labels", "from", "for", "by",
];
/// Those that a job does not have.
const OWN: [&str; 3] = ["from", "for", "by"];

/// A window as somebody wrote it, checked and complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BookingFile {
    /// What is booked; its name is empty where none was given.
    pub shape: JobFile,
    /// When it begins.
    pub from: Moment,
    /// How long it lasts.
    pub span: Millis,
    /// Who books.
    pub by: Booker,
}

/// A booking from command-line flags; what is absent has the default of the file.
#[derive(Clone, Debug, Default)]
pub struct BookingFlags {
    /// `--name`.
    pub name: Option<String>,
    /// `--tenant`.
    pub tenant: Option<String>,
    /// `--tasks`.
    pub tasks: Option<String>,
    /// `--gpus`.
    pub gpus: Option<String>,
    /// `--model`.
    pub model: Option<String>,
    /// `--within`: the level that holds all of it.
    pub within: Option<String>,
    /// `--from`.
    pub from: Option<String>,
    /// `--for`.
    pub lasts: Option<String>,
    /// `--by`.
    pub by: Option<String>,
}

impl BookingFlags {
    /// The booking, read by the same code as a file.
    pub fn booking(self) -> Result<BookingFile, FileError> {
        let nested = |key: &str, value: Option<String>| {
            value.map(|value| job::map(vec![job::entry(key, job::scalar(value))]))
        };
        let fields = [
            ("name", self.name.map(job::scalar)),
            ("tenant", self.tenant.map(job::scalar)),
            ("tasks", self.tasks.map(job::scalar)),
            ("gpus", self.gpus.map(job::scalar)),
            ("gpu", nested("model", self.model)),
            ("topology", nested("gang", self.within)),
            ("from", self.from.map(job::scalar)),
            ("for", self.lasts.map(job::scalar)),
            ("by", self.by.map(job::scalar)),
        ];
        let given = fields.into_iter().filter_map(|(key, node)| Some(job::entry(key, node?)));
        booking(&job::map(given.collect())).map_err(|fault| fault.in_file("command line"))
    }
}

/// Reads a booking from the text of a file or a request.
pub fn parse_booking(file: &str, text: &str) -> Result<BookingFile, FileError> {
    document(file, text, booking)
}

/// Reads a booking from a file.
pub fn load_booking(path: &std::path::Path) -> Result<BookingFile, FileError> {
    parse_booking(&path.display().to_string(), &read(path)?)
}

fn booking(root: &Node) -> Result<BookingFile, Fault> {
    let keys = Map::root(root, KEYS)?;
    let from = keys.need("from", "from: 2026-11-20T08:00Z")?.moment()?;
    let span = keys.need("for", "for: 8h")?.duration(Millis::from_secs(60))?;
    let by = match keys.get("by")? {
        None => Booker::Tenant,
        Some(field) => match field.word(&[Booker::Tenant.into_str(), Booker::Operator.into_str()])? {
            0 => Booker::Tenant,
            _ => Booker::Operator,
        },
    };
    let named = keys.get("name")?.is_some();
    let mut shape = job::job(&shape(root, named))?;
    if !named {
        shape.name = String::new();
    }
    Ok(BookingFile { shape, from, span, by })
}

/// What a job has of it.
fn shape(root: &Node, named: bool) -> Node {
    let entries = match &root.value {
        Value::Map(entries) => entries.iter(),
        _ => [].iter(),
    };
    let of_job = entries.filter(|entry| !OWN.contains(&entry.key.as_str())).cloned();
    let mut all: Vec<Entry> = of_job.collect();
    if !named {
        all.push(job::entry("name", job::scalar("booking".to_owned())));
    }
    Node { at: root.at, value: Value::Map(all) }
}

impl BookingFile {
    /// The booking as the engine takes it. Without a name it is called after its tenant and its begin.
    pub fn request(&self, uid: Uid, now: Timestamp) -> BookingRequest {
        let from = self.from.on(now);
        let mut job = self.shape.submission(uid);
        if job.spec.name.is_empty() {
            let last = self.shape.tenant.rsplit('/').next().unwrap_or_default();
            let begin: String = moment_text(from).chars().filter(char::is_ascii_digit).take(12).collect();
            job.spec.name = format!("{last}-{begin}");
        }
        BookingRequest { job, by: self.by, from, span: self.span }
    }
}

impl Serialize for BookingFile {
    /// As a document that [`parse_booking`] reads back as the same booking.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let all = serde_json::to_value(&self.shape).map_err(serde::ser::Error::custom)?;
        let Json::Object(all) = all else { return all.serialize(serializer) };
        let known =
            |key: &String| KEYS.contains(&key.as_str()) && !(key == "name" && self.shape.name.is_empty());
        let mut document: serde_json::Map<String, Json> =
            all.into_iter().filter(|(key, _)| known(key)).collect();
        document.insert("from".to_owned(), json!(self.from.text()));
        document.insert("for".to_owned(), json!(text::duration_text(self.span.0)));
        document.insert("by".to_owned(), json!(self.by.into_str()));
        document.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
tenant: lab/nlp
tasks: 4
gpus: 8
gpu: {model: h100}
topology: {gang: leaf}
from: 2026-11-20T08:00Z
for: 8h
";

    #[test]
    fn a_booking_is_a_shape_and_a_time() {
        let read = parse_booking("b.yaml", FILE).unwrap();
        assert_eq!((read.shape.tasks, read.span), (4, Millis::from_secs(8 * 3600)));
        assert_eq!(read.by, Booker::Tenant);
        let request = read.request(Uid(1), Timestamp(0));
        assert_eq!(request.job.spec.name, "nlp-202611200800");
        assert_eq!(request.from, Timestamp(1_795_161_600_000));
        let soon = parse_booking("b.yaml", &FILE.replace("2026-11-20T08:00Z", "+2h")).unwrap();
        assert_eq!(soon.request(Uid(1), Timestamp(1000)).from, Timestamp(7_201_000));
    }

    #[test]
    fn what_is_sent_is_read_back_the_same() {
        for text in [FILE.to_owned(), format!("name: friday\nby: operator\n{FILE}")] {
            let read = parse_booking("b.yaml", &text).unwrap();
            let sent = serde_json::to_string(&read).unwrap();
            assert_eq!(parse_booking("request body", &sent).unwrap(), read, "{sent}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong =
            |from: &str, to: &str| parse_booking("b.yaml", &FILE.replace(from, to)).unwrap_err().to_string();
        assert!(wrong("for: 8h\n", "").contains("for: 8h"), "{}", wrong("for: 8h\n", ""));
        assert!(wrong("2026-11-20T08:00Z", "tomorrow").contains("2026-11-20T08:00Z"));
        assert!(wrong("for: 8h", "fore: 8h").contains("did you mean"), "{}", wrong("for: 8h", "fore: 8h"));
        assert!(wrong("for: 8h", "for: 8h\nclass: batch").contains("class"));
        assert!(wrong("for: 8h", "for: 8h\nby: alice").contains("operator"));
    }
}
