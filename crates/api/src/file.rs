//! Files that people write: jobs, policies and fleets, as YAML or JSON.
//!
//! A file is read in two steps. [`tree`] makes a tree of it in which every key and value knows its line;
//! [`field`] reads typed values out of that tree. A wrong value, a misspelt key and two keys that contradict
//! each other are therefore reported in the same way: file, line, what is wrong, what is allowed. Derived
//! `Deserialize` structs were tried and left: values of more than one form (`gpus: 8`, `gpus: {h100: 8}`) go
//! through serde's buffer, which forgets the line. What a file means is not judged here beyond the file itself: whether
//! a tenant exists is the engine's business.

pub mod booking;
pub mod fleet;
pub mod job;
pub mod lever;
pub mod policy;

mod field;
pub mod moment;
mod text;
mod tree;

use std::fmt;
use std::fs::{File, Metadata};
use std::io::Read;
use std::path::Path;

use tree::Node;

/// The most bytes a file may have. A fleet of 10,000 nodes written one by one fits; a model that was given by
/// mistake does not fill the memory.
pub const BYTES_MAX: usize = 1 << 20;

/// The most words that are listed beside one that was perhaps meant.
const LISTED_MAX: usize = 10;

/// What is wrong with a file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// The file, as the user named it.
    pub file: String,
    /// The line, counted from 1; `None` where there is no text.
    pub line: Option<u64>,
    /// The column, counted from 1.
    pub column: Option<u64>,
    /// What is wrong.
    pub what: Box<str>,
    /// The word that was perhaps meant.
    pub near: Option<Box<str>>,
    /// What is allowed instead.
    pub allowed: Option<Box<str>>,
    /// The same in the right form.
    pub instead: Option<Box<str>>,
}

impl fmt::Display for FileError {
    /// `job.yaml:3: unknown key "gpu_count"; did you mean "gpus"? Allowed here: name, tenant`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column: _, what, near, allowed, instead } = self;
        match line {
            Some(line) => write!(f, "{file}:{line}: {what}")?,
            None => write!(f, "{file}: {what}")?,
        }
        match (near, allowed) {
            (None, None) => {}
            (None, Some(allowed)) => write!(f, "; allowed here: {allowed}")?,
            (Some(near), None) => write!(f, "; did you mean {near:?}?")?,
            (Some(near), Some(allowed)) => write!(f, "; did you mean {near:?}? Allowed here: {allowed}")?,
        }
        match instead {
            Some(instead) => write!(f, "; write {instead}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for FileError {}

/// A place in a text, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    line: u64,
    column: u64,
}

/// A [`FileError`] before the name of the file is known.
#[derive(Clone, Debug)]
struct Fault {
    at: Option<At>,
    what: String,
    near: Option<Box<str>>,
    allowed: Option<Box<str>>,
    instead: Option<Box<str>>,
}

impl Fault {
    fn new(at: Option<At>, what: impl Into<String>) -> Self {
        Self { at, what: what.into(), near: None, allowed: None, instead: None }
    }

    fn allowed(self, allowed: impl Into<Box<str>>) -> Self {
        Self { allowed: Some(allowed.into()), ..self }
    }

    /// Shows the right form.
    fn instead(self, instead: impl Into<Box<str>>) -> Self {
        Self { instead: Some(instead.into()), ..self }
    }

    /// Names the word that was perhaps meant, and lists those that are allowed unless that would bury it.
    fn one_of(self, given: &str, words: &[&str]) -> Self {
        let near = nearest(given, words);
        let told = Self { near: near.map(Box::from), ..self };
        if near.is_some() && words.len() > LISTED_MAX { told } else { told.allowed(words.join(", ")) }
    }

    fn in_file(self, file: &str) -> FileError {
        FileError {
            file: file.to_owned(),
            line: self.at.map(|at| at.line),
            column: self.at.map(|at| at.column),
            what: self.what.into(),
            near: self.near,
            allowed: self.allowed,
            instead: self.instead,
        }
    }
}

/// Words of other systems and other days, for which the spelling is no guide.
const SYNONYMS: &[(&str, &str)] = &[
    ("gpu_count", "gpus"),
    ("num_gpus", "gpus"),
    ("ngpus", "gpus"),
    ("cpus", "cpu"),
    ("cores", "cpu"),
    ("mem", "memory"),
    ("ram", "memory"),
    ("replicas", "tasks"),
    ("workers", "tasks"),
    ("parallelism", "tasks"),
    ("min_available", "min"),
    ("queue", "tenant"),
    ("project", "tenant"),
    ("team", "tenant"),
    ("walltime", "time"),
    ("time_limit", "time"),
    ("quota", "guaranteed"),
    ("deserved", "guaranteed"),
    ("nominal", "guaranteed"),
    ("teams", "children"),
    ("max", "limit"),
    ("training", "batch"),
    ("serving", "inference"),
];

/// The most alike of `words`, if it is alike at all. The threshold lets a letter or two be wrong, missing or
/// swapped, and does not suggest `labels` for `level`.
pub fn nearest<'a>(given: &str, words: &[&'a str]) -> Option<&'a str> {
    let given = given.to_lowercase();
    let synonym = SYNONYMS.iter().find(|(word, _)| *word == given).map(|(_, ours)| *ours);
    if let Some(known) = words.iter().find(|word| Some(**word) == synonym) {
        return Some(known);
    }
    let alike = words.iter().map(|word| (strsim::jaro_winkler(&given, word), *word));
    let best = alike.max_by(|one, other| one.0.total_cmp(&other.0))?;
    let one_letter = given.len() > 2 && strsim::osa_distance(&given, best.1) <= 1;
    (best.0 >= 0.85 || one_letter).then_some(best.1)
}

/// A span in milliseconds, written as files have it: `90s`, `5m`, `1h30m`.
pub fn parse_span(text: &str) -> Option<u64> {
    text::duration(text)
}

/// Bytes in the largest unit that is still above 10, rounded down: `512GiB`.
pub fn size_text(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|&(_, shift)| bytes >> shift >= 10) {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => text::size_text(bytes),
    }
}

/// A span as files have it: `1h30m`.
pub fn duration_text(millis: u64) -> String {
    text::duration_text(millis)
}

/// A span as a sentence has it, rounded up to what matters: `1m30s`, `3h13m`, `2d4h`.
pub fn span_text(millis: u64) -> String {
    const UNITS: [(u64, u64); 4] = [(86_400_000, 3_600_000), (3_600_000, 60_000), (60_000, 1000), (0, 1000)];
    let step = UNITS.into_iter().find(|&(from, _)| millis >= from).map_or(1000, |(_, step)| step);
    text::duration_text(millis.div_ceil(step).saturating_mul(step))
}

/// The whole text of a file, or what keeps it from being one.
fn read(path: &Path) -> Result<String, FileError> {
    as_text(&path.display().to_string(), read_bytes(path)?)
}

/// The bytes of a file, at most one more than are allowed.
fn read_bytes(path: &Path) -> Result<Vec<u8>, FileError> {
    let file = path.display().to_string();
    let fault = |what: String| Fault::new(None, what).in_file(&file);
    let limit = u64::try_from(BYTES_MAX).expect("a MiB fits") + 1;
    let mut bytes = Vec::new();
    let opened = File::open(path).map_err(|error| fault(format!("cannot be opened: {error}")))?;
    // One byte more than allowed is enough to know, whatever the file claims its size to be.
    opened.take(limit).read_to_end(&mut bytes).map_err(|error| fault(format!("cannot be read: {error}")))?;
    Ok(bytes)
}

/// The same of a regular file only: whoever opens a pipe waits until somebody writes into it, perhaps for ever.
fn read_regular(path: &Path) -> Result<Vec<u8>, FileError> {
    let fault = |what: String| Fault::new(None, what).in_file(&path.display().to_string());
    let known = std::fs::metadata(path).map_err(|error| fault(format!("cannot be opened: {error}")))?;
    if !known.is_file() {
        return Err(Fault::new(None, format!("is {} and no regular file", kind_of(&known)))
            .allowed("a regular file, or a link to one")
            .in_file(&path.display().to_string()));
    }
    read_bytes(path)
}

#[cfg(unix)]
fn kind_of(known: &Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    let kind = known.file_type();
    match (kind.is_dir(), kind.is_fifo(), kind.is_socket()) {
        (true, _, _) => "a directory",
        (_, true, _) => "a named pipe",
        (_, _, true) => "a socket",
        _ => "a device",
    }
}

#[cfg(not(unix))]
fn kind_of(known: &Metadata) -> &'static str {
    if known.is_dir() { "a directory" } else { "a device" }
}

/// Bytes of a file as text, if they are not too many and UTF-8.
fn as_text(file: &str, bytes: Vec<u8>) -> Result<String, FileError> {
    within_size(file, bytes.len())?;
    String::from_utf8(bytes).map_err(|error| {
        let start = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = start.split(|byte| *byte == b'\n').count();
        let at = At { line: u64::try_from(line).unwrap_or(u64::MAX), column: 1 };
        Fault::new(Some(at), "a byte that is not UTF-8").allowed("UTF-8 text").in_file(file)
    })
}

fn within_size(file: &str, bytes: usize) -> Result<(), FileError> {
    if bytes <= BYTES_MAX {
        return Ok(());
    }
    let at = At { line: 1, column: 1 };
    Err(Fault::new(Some(at), "the file is larger than 1 MiB").allowed("at most 1 MiB of text").in_file(file))
}

/// Parses `text` and reads it with `reader`; every error gets the file's name.
fn document<T>(
    file: &str,
    text: &str,
    reader: impl FnOnce(&Node) -> Result<T, Fault>,
) -> Result<T, FileError> {
    within_size(file, text.len())?;
    tree::parse(text).and_then(|root| reader(&root)).map_err(|fault| fault.in_file(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_near_is_suggested_and_a_far_one_is_not() {
        let words = ["name", "tenant", "gpus", "labels", "priority", "preemptible"];
        assert_eq!(nearest("gpu_count", &words), Some("gpus"));
        assert_eq!(nearest("prioritty", &words), Some("priority"));
        assert_eq!(nearest("Lables", &words), Some("labels"));
        assert_eq!(nearest("level", &words), None);
        assert_eq!(nearest("", &words), None);
        assert_eq!(nearest("x", &[]), None);
    }

    #[test]
    fn spans_in_sentences_have_two_units_at_most() {
        let spans = [0, 1, 90_000, 3_599_001, 11_565_000, 190_000_000];
        assert_eq!(spans.map(span_text), ["0s", "1s", "1m30s", "1h", "3h13m", "2d5h"]);
    }

    #[test]
    fn a_byte_that_is_not_text_is_named_with_its_line() {
        let error = as_text("job.yaml", b"name: a\ntenant: \xff\n".to_vec()).unwrap_err();
        assert_eq!(error.to_string(), "job.yaml:2: a byte that is not UTF-8; allowed here: UTF-8 text");
    }

    #[test]
    fn a_file_that_is_too_large_is_refused_before_it_is_parsed() {
        let error = document("big.yaml", &"#".repeat(BYTES_MAX + 1), |_| Ok(())).unwrap_err();
        assert_eq!(
            error.to_string(),
            "big.yaml:1: the file is larger than 1 MiB; allowed here: at most 1 MiB of text"
        );
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = read(Path::new("no/such/file.yaml")).unwrap_err();
        assert!(error.to_string().starts_with("no/such/file.yaml: cannot be opened: "), "{error}");
    }
}
