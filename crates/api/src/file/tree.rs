//! A file as a tree in which every key and value knows its line.
//!
//! Scalars are kept as they are written: `1.10` stays `1.10`, and `no` is a word until somebody asks for
//! a truth value. The parser's limits hold against hostile input (depth, aliases, size); on top of them a
//! document may have one root only.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Error, Location, Spanned};

use super::{At, Fault};

/// How deep maps and lists may be nested: the deepest file of ours, a tenant tree of six levels, has 14.
const DEPTH_MAX: usize = 32;

/// How many values aliases may stand for, all in all: enough for a fleet of anchors, refused in milliseconds.
const ALIASED_MAX: usize = 100_000;

/// A value with its place.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// `None` for a value that was not read from a file.
    pub(super) at: Option<At>,
    pub(super) value: Value,
}

/// What stands there.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Nothing, `~` or `null`.
    Null,
    /// Anything that is one word or text, as written.
    Scalar(String),
    List(Vec<Node>),
    /// In the order of the file; keys are unique.
    Map(Vec<Entry>),
}

/// A key with its place, and its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) at: Option<At>,
    pub(super) key: String,
    pub(super) node: Node,
}

/// Reads one document.
pub(super) fn parse(text: &str) -> Result<Node, Fault> {
    let options = serde_saphyr::options! {
        // Comments are for people; the parser would otherwise keep them, and refuses more than 32 in a row.
        emit_comments: false,
        budget: serde_saphyr::budget! { max_depth: DEPTH_MAX },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: ALIASED_MAX },
    };
    let raw: Spanned<Raw> =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| fault(&error, text))?;
    let root = node(raw, text);
    if matches!(root.value, Value::Null) {
        let at = (!text.is_empty()).then_some(At { line: 1, column: 1 });
        return Err(Fault::new(at, "the file is empty").allowed("a map of keys and values"));
    }
    Ok(root)
}

/// What the parser hands over; numbers and truth values only say that they were plain.
enum Raw {
    Null,
    Text(String),
    /// A number or truth value as the parser understood it, for the case that the source cannot be quoted.
    Plain(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a map")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Plain(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Plain(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Plain(value.to_string()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Raw, E> {
        Ok(Raw::Plain(value.to_string()))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Raw, E> {
        Ok(Raw::Plain(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        Ok(Raw::Plain(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Raw, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Raw::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Raw, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Raw::Map(map))
    }
}

fn node(raw: Spanned<Raw>, text: &str) -> Node {
    let value = match raw.value {
        Raw::Null => Value::Null,
        Raw::Text(scalar) => Value::Scalar(scalar),
        Raw::Plain(understood) => {
            Value::Scalar(as_written(&raw.defined, text).map_or(understood, str::to_owned))
        }
        Raw::List(items) => Value::List(items.into_iter().map(|item| node(item, text)).collect()),
        Raw::Map(entries) => Value::Map(entries.into_iter().map(|entry| pair(entry, text)).collect()),
    };
    Node { at: at(&raw.defined), value }
}

fn pair((key, value): (Spanned<String>, Spanned<Raw>), text: &str) -> Entry {
    Entry { at: at(&key.defined), key: key.value, node: node(value, text) }
}

/// The source of a plain scalar; `None` where it is quoted behind a tag (`!!int "3"`).
fn as_written<'a>(location: &Location, text: &'a str) -> Option<&'a str> {
    let span = location.span();
    let start = usize::try_from(span.byte_offset()?).ok()?;
    let len = usize::try_from(span.byte_len()?).ok()?;
    let written = text.get(start..start.checked_add(len)?)?.trim();
    (!written.is_empty() && !written.starts_with(['"', '\''])).then_some(written)
}

fn at(location: &Location) -> Option<At> {
    (location.line() > 0).then(|| At { line: location.line(), column: location.column() })
}

/// The parser's complaint in our form. Its hints about its own options are of no use to the reader.
fn fault(error: &Error, text: &str) -> Fault {
    let error = error.without_snippet();
    let start = At { line: 1, column: 1 };
    let place = error.location().as_ref().and_then(at).or((!text.is_empty()).then_some(start));
    match error {
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or("?");
            Fault::new(place, format!("the key {key:?} is there twice")).allowed("every key once")
        }
        Error::MultipleDocuments { .. } => {
            Fault::new(place, "a second document begins").allowed("one document per file")
        }
        Error::Budget { .. } => {
            Fault::new(place, format!("nested deeper than {DEPTH_MAX} levels, or too many values or aliases"))
        }
        Error::UnknownAnchor { .. } => {
            Fault::new(place, "an alias (*NAME) refers to an anchor (&NAME) that is not there")
        }
        other => Fault::new(place, format!("not valid YAML: {}", in_our_words(&other.to_string()))),
    }
}

/// What the parser stumbled over, for people who know YAML by example. Each is recognised by what the parser says.
const STUMBLES: &[(&str, &str)] = &[
    ("quote", "a quote is opened and not closed"),
    ("mapping values", "a colon where no key can be; quote a text that has one, or check the indentation"),
    ("tab", "a tab in the indentation; use spaces"),
    ("alias", "an alias (*NAME) refers to an anchor (&NAME) that is not there"),
    ("anchor", "an alias (*NAME) refers to an anchor (&NAME) that is not there"),
    ("flow", "a list or map in brackets is not closed, or a comma is missing in it"),
    ("',' or", "a list or map in brackets is not closed, or a comma is missing in it"),
    ("':'", "a key without a colon, or a line that is indented wrongly"),
    ("simple key", "a key without a colon, or a line that is indented wrongly"),
    ("indent", "a line is indented otherwise than those around it"),
    ("block", "a line is indented otherwise than those around it"),
];

fn in_our_words(said: &str) -> &'static str {
    let said = said.to_lowercase();
    let known = STUMBLES.iter().find(|(word, _)| said.contains(word));
    known.map_or("a character or word that cannot be here", |(_, ours)| ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse(text).unwrap_err().in_file("f").to_string()
    }

    fn map(node: &Node) -> &[Entry] {
        match &node.value {
            Value::Map(entries) => entries,
            other => panic!("not a map: {other:?}"),
        }
    }

    fn scalar(node: &Node) -> &str {
        match &node.value {
            Value::Scalar(text) => text,
            other => panic!("not a scalar: {other:?}"),
        }
    }

    #[test]
    fn numbers_and_words_stay_as_they_are_written() {
        let root = parse("a: 1.10\nb: no\nc: 0x10\nd: '7'\ne: |\n  two\n  lines\nf: !!int \"3\"\n").unwrap();
        let shown: Vec<&str> = map(&root).iter().map(|entry| scalar(&entry.node)).collect();
        assert_eq!(shown, ["1.10", "no", "0x10", "7", "two\nlines\n", "3"]);
    }

    #[test]
    fn every_key_knows_its_line_and_column() {
        let root = parse("a: 1\nb:\n  - {c: 2}\n").unwrap();
        let second = &map(&root)[1];
        assert_eq!(second.at, Some(At { line: 2, column: 1 }));
        let Value::List(items) = &second.node.value else { panic!("not a list") };
        assert_eq!(map(&items[0])[0].at, Some(At { line: 3, column: 6 }));
    }

    #[test]
    fn json_is_read_too_and_a_long_line_is_no_obstacle() {
        let labels: Vec<String> = (0..200).map(|i| format!("\"k{i}\": \"v\\u00e9{i}\"")).collect();
        let root = parse(&format!("{{\"labels\": {{{}}}, \"n\": 1e3}}", labels.join(", "))).unwrap();
        assert_eq!(scalar(&map(&map(&root)[0].node)[199].node), "vé199");
    }

    #[test]
    fn text_that_is_no_yaml_is_refused_with_its_line() {
        assert_eq!(error("a: 1\na: 2\n"), "f:2: the key \"a\" is there twice; allowed here: every key once");
        assert_eq!(
            error("a: 1\n---\nb: 2\n"),
            "f:3: a second document begins; allowed here: one document per file"
        );
        assert_eq!(
            error("a: 1\n b: [\n"),
            "f:2: not valid YAML: a colon where no key can be; quote a text that has one, or check the indentation"
        );
        assert_eq!(error("a: \"abc"), "f:1: not valid YAML: a quote is opened and not closed");
        assert_eq!(error("a: *x"), "f:1: an alias (*NAME) refers to an anchor (&NAME) that is not there");
        for strange in [
            "a: [1, 2",
            "a: {b: 1",
            "\ta: 1",
            "a:\n- b\n c",
            "a: !!x\nb",
            "%YAML 9",
            "@",
            "a: `x`",
            "? a\n? b\n- c",
        ] {
            let Err(fault) = parse(strange) else { continue };
            let shown = fault.in_file("f").to_string();
            let ours = STUMBLES.iter().any(|(_, ours)| shown.contains(ours));
            assert!(ours || shown.contains("cannot be here"), "{strange:?}: {shown}");
        }
        assert_eq!(error(""), "f: the file is empty; allowed here: a map of keys and values");
        assert_eq!(
            error("# only a comment\n"),
            "f:1: the file is empty; allowed here: a map of keys and values"
        );
    }

    #[test]
    fn a_tower_of_brackets_is_refused_without_falling() {
        let deep = format!("{}{}", "[".repeat(60), "]".repeat(60));
        assert!(error(&deep).contains("nested deeper than 32 levels"), "{}", error(&deep));
    }

    #[test]
    fn a_bomb_of_aliases_is_refused() {
        let mut bomb = String::from("a: &a [x, x, x, x, x, x, x, x, x, x]\n");
        for (this, last) in ["b", "c", "d", "e", "f", "g", "h", "i"].iter().zip("abcdefgh".chars()) {
            let ten = vec![format!("*{last}"); 10].join(", ");
            bomb = format!("{bomb}{this}: &{this} [{ten}]\n");
        }
        let shown = error(&bomb);
        assert!(shown.starts_with("f:"), "{shown}");
    }
}
