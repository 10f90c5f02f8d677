//! Typed values out of a tree: each reader says what it found, where, and what is allowed there.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use strum::VariantArray;
use wharf_engine::units::Millis;

use super::moment::{self, Moment};
use super::tree::{Entry, Node, Value};
use super::{At, Fault, text};

/// The longest span of time that means anything here; a journal's clock stays far from its end.
const DURATION_MAX: Millis = Millis(3650 * 86_400_000);
/// The most bytes of memory or storage of a task or node: 16,384 tasks of this size still add up in 64 bits.
pub(super) const BYTES_MAX: u64 = 1 << 46;
/// The most thousandths of a core of a task or node.
pub(super) const CPU_MILLI_MAX: u64 = 1_000_000_000;
/// The longest name.
pub(super) const NAME_MAX: usize = 63;
/// How deep the tenant tree may be.
pub(super) const TENANT_LEVELS_MAX: usize = 6;
/// The most labels, selectors or tolerations in one place.
const ENTRIES_MAX: usize = 64;
/// The longest label key or value; Kubernetes allows less.
const LABEL_MAX: usize = 1024;

/// A map whose keys are known.
pub(super) struct Map<'a> {
    path: String,
    at: Option<At>,
    entries: &'a [Entry],
}

impl<'a> Map<'a> {
    /// The root of a file.
    pub(super) fn root(node: &'a Node, keys: &[&str]) -> Result<Self, Fault> {
        Self::of(String::new(), node.at, node, keys)
    }

    fn of(path: String, at: Option<At>, node: &'a Node, keys: &[&str]) -> Result<Self, Fault> {
        let entries = entries(&path, at, node)?;
        if let Some(unknown) = entries.iter().find(|entry| !keys.contains(&entry.key.as_str())) {
            let place = if path.is_empty() { String::new() } else { format!(" in {path}") };
            let what = format!("unknown key {}{place}", quoted(&unknown.key));
            return Err(Fault::new(unknown.at.or(at), what).one_of(&unknown.key, keys));
        }
        Ok(Self { path, at, entries })
    }

    /// The field of that key, if the key is there.
    pub(super) fn get(&self, key: &str) -> Result<Option<Field<'a>>, Fault> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| field(&self.path, entry)).transpose()
    }

    /// The field of that key, which has to be there.
    pub(super) fn need(&self, key: &str, example: &str) -> Result<Field<'a>, Fault> {
        let place = if self.path.is_empty() { String::new() } else { format!(" in {}", self.path) };
        let missing = || Fault::new(self.at, format!("the key {key:?} is missing{place}")).allowed(example);
        self.get(key)?.ok_or_else(missing)
    }

    /// Where the map begins.
    pub(super) fn at(&self) -> Option<At> {
        self.at
    }
}

/// Refuses keys that are planned but not there yet; each comes with what to write instead.
pub(super) fn not_yet(node: &Node, planned: &[(&str, &str)]) -> Result<(), Fault> {
    let Value::Map(entries) = &node.value else {
        return Ok(());
    };
    let instead =
        |entry: &Entry| planned.iter().find(|(key, _)| *key == entry.key).map(|(_, instead)| *instead);
    match entries.iter().find_map(|entry| Some((entry, instead(entry)?))) {
        Some((entry, instead)) => {
            Err(Fault::new(entry.at, format!("{} is not supported yet", entry.key)).instead(instead))
        }
        None => Ok(()),
    }
}

fn entries<'a>(path: &str, at: Option<At>, node: &'a Node) -> Result<&'a [Entry], Fault> {
    match &node.value {
        Value::Map(entries) => Ok(entries),
        Value::Null | Value::Scalar(_) | Value::List(_) => {
            let subject = if path.is_empty() { "the file" } else { path };
            let what = format!("{subject} is {}", shown(node));
            Err(Fault::new(node.at.or(at), what).allowed("a map of keys and values"))
        }
    }
}

fn field<'a>(path: &str, entry: &'a Entry) -> Result<Field<'a>, Fault> {
    let path = if path.is_empty() { plain(&entry.key) } else { format!("{path}.{}", plain(&entry.key)) };
    if matches!(entry.node.value, Value::Null) {
        return Err(
            Fault::new(entry.at, format!("{path} has no value")).allowed("a value, or leave the key out")
        );
    }
    Ok(Field { path, at: entry.at, node: &entry.node })
}

/// A value with the key it stands under.
pub(super) struct Field<'a> {
    path: String,
    at: Option<At>,
    node: &'a Node,
}

impl<'a> Field<'a> {
    /// Something is wrong with this value, taken by itself or together with others.
    pub(super) fn fault(&self, what: &str) -> Fault {
        Fault::new(self.at, format!("{} {what}", self.path))
    }

    /// This value is none of what is `allowed`.
    pub(super) fn wrong(&self, allowed: impl Into<Box<str>>) -> Fault {
        self.fault(&format!("is {}", shown(self.node))).allowed(allowed)
    }

    /// Where its key stands.
    pub(super) fn at(&self) -> Option<At> {
        self.at
    }

    /// True for a map.
    pub(super) fn is_map(&self) -> bool {
        matches!(self.node.value, Value::Map(_))
    }

    /// Refuses keys that are planned but not there yet.
    pub(super) fn not_yet(&self, planned: &[(&str, &str)]) -> Result<(), Fault> {
        not_yet(self.node, planned)
    }

    /// A map with these keys.
    pub(super) fn map(&self, keys: &[&str]) -> Result<Map<'a>, Fault> {
        Map::of(self.path.clone(), self.at, self.node, keys)
    }

    /// A map with these keys. What is one value instead is shown in the right shape: `{}` in the example stands for it.
    pub(super) fn shaped(&self, keys: &[&str], example: &str) -> Result<Map<'a>, Fault> {
        let given = match &self.node.value {
            Value::Map(_) | Value::Null => return self.map(keys),
            Value::Scalar(text) => cut(text),
            Value::List(items) => {
                let words = items.iter().map(|item| match &item.value {
                    Value::Scalar(text) => Some(cut(text)),
                    Value::Null | Value::List(_) | Value::Map(_) => None,
                });
                match words.collect::<Option<Vec<String>>>() {
                    Some(words) => format!("[{}]", words.join(", ")),
                    None => return self.map(keys),
                }
            }
        };
        Err(self.fault(&format!("is {}", shown(self.node))).instead(example.replace("{}", &given)))
    }

    /// A map whose keys are names of the user's own.
    pub(super) fn named(&self) -> Result<Vec<(&'a str, Field<'a>)>, Fault> {
        let entries = entries(&self.path, self.at, self.node)?;
        entries.iter().map(|entry| Ok((entry.key.as_str(), field(&self.path, entry)?))).collect()
    }

    /// The items of a list.
    pub(super) fn list(&self) -> Result<Vec<Field<'a>>, Fault> {
        let Value::List(items) = &self.node.value else {
            return Err(self.wrong("a list"));
        };
        let item = |(index, node): (usize, &'a Node)| Field {
            path: format!("{}[{index}]", self.path),
            at: node.at.or(self.at),
            node,
        };
        Ok(items.iter().enumerate().map(item).collect())
    }

    /// One value or a list of them, as a list; never empty.
    pub(super) fn one_or_more(&self) -> Result<Vec<Field<'a>>, Fault> {
        let items = match &self.node.value {
            Value::List(_) => self.list()?,
            Value::Null | Value::Scalar(_) | Value::Map(_) => {
                vec![Field { path: self.path.clone(), at: self.at, node: self.node }]
            }
        };
        if items.is_empty() || items.len() > ENTRIES_MAX {
            let what = format!("has {} items", items.len());
            return Err(self.fault(&what).allowed(format!("one value, or a list of 1 to {ENTRIES_MAX}")));
        }
        Ok(items)
    }

    /// Any text, as written.
    pub(super) fn text(&self) -> Result<&'a str, Fault> {
        match &self.node.value {
            Value::Scalar(text) => Ok(text),
            Value::Null | Value::List(_) | Value::Map(_) => Err(self.wrong("one word or text")),
        }
    }

    /// Text of a bounded length.
    pub(super) fn label(&self) -> Result<String, Fault> {
        let text = self.text()?;
        if text.len() > LABEL_MAX {
            return Err(self.fault("is too long").allowed(format!("text of at most {LABEL_MAX} bytes")));
        }
        Ok(text.to_owned())
    }

    fn parsed<T>(&self, allowed: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<T, Fault> {
        match &self.node.value {
            Value::Scalar(text) => read(text).ok_or_else(|| self.wrong(allowed)),
            Value::Null | Value::List(_) | Value::Map(_) => Err(self.wrong(allowed)),
        }
    }

    /// A whole number in a range.
    pub(super) fn whole(&self, range: RangeInclusive<u32>) -> Result<u32, Fault> {
        let allowed = format!("a whole number from {} to {}", range.start(), range.end());
        self.parsed(&allowed, |text| {
            let number = u32::try_from(text::whole(text)?).ok()?;
            range.contains(&number).then_some(number)
        })
    }

    /// A priority: a whole number of either sign.
    pub(super) fn priority(&self) -> Result<i32, Fault> {
        const LARGEST: i32 = 1_000_000_000;
        self.parsed(&format!("a whole number from -{LARGEST} to {LARGEST}"), |text| {
            text.parse().ok().filter(|number| (-LARGEST..=LARGEST).contains(number))
        })
    }

    /// `true` or `false`.
    pub(super) fn truth(&self) -> Result<bool, Fault> {
        self.parsed("true, false", |text| text.parse().ok())
    }

    /// A number with at most three decimals, in thousandths.
    pub(super) fn thousandths(&self, range: RangeInclusive<u32>, allowed: &str) -> Result<u32, Fault> {
        self.parsed(allowed, |text| {
            let number = u32::try_from(text::thousandths(text)?).ok()?;
            range.contains(&number).then_some(number)
        })
    }

    /// One of a few words, as its position.
    pub(super) fn word(&self, words: &[&str]) -> Result<usize, Fault> {
        let found = match &self.node.value {
            Value::Scalar(text) => words.iter().position(|word| word == text).ok_or(text.as_str()),
            Value::Null | Value::List(_) | Value::Map(_) => Err(""),
        };
        found.map_err(|given| self.fault(&format!("is {}", shown(self.node))).one_of(given, words))
    }

    /// One of a closed set.
    pub(super) fn one_of<T: VariantArray + Copy + Into<&'static str>>(&self) -> Result<T, Fault> {
        let words: Vec<&str> = T::VARIANTS.iter().map(|&known| known.into()).collect();
        self.word(&words).map(|position| T::VARIANTS[position])
    }

    /// A time of the calendar, or a span from now.
    pub(super) fn moment(&self) -> Result<Moment, Fault> {
        self.parsed(moment::ALLOWED, moment::moment)
    }

    /// A span of time of at least `least`.
    pub(super) fn duration(&self, least: Millis) -> Result<Millis, Fault> {
        self.span(&(least..=DURATION_MAX), "")
    }

    /// A span of time within bounds that have a reason.
    pub(super) fn duration_in(&self, bounds: RangeInclusive<Millis>, why: &str) -> Result<Millis, Fault> {
        self.span(&bounds, &format!(" ({why})"))
    }

    fn span(&self, bounds: &RangeInclusive<Millis>, why: &str) -> Result<Millis, Fault> {
        let millis = Millis(self.parsed(text::DURATION, text::duration)?);
        if bounds.contains(&millis) {
            return Ok(millis);
        }
        let (least, most) = (text::duration_text(bounds.start().0), text::duration_text(bounds.end().0));
        Err(self.wrong(format!("a duration from {least} to {most}{why}")))
    }

    /// Bytes.
    pub(super) fn bytes(&self) -> Result<u64, Fault> {
        let bytes = self.parsed(text::SIZE, text::size)?;
        if bytes <= BYTES_MAX { Ok(bytes) } else { Err(self.wrong("a size of at most 64TiB")) }
    }

    /// Thousandths of a core.
    pub(super) fn cores(&self) -> Result<u64, Fault> {
        let milli = self.parsed(text::CORES, text::cores)?;
        if milli <= CPU_MILLI_MAX { Ok(milli) } else { Err(self.wrong("at most 1000000 cores")) }
    }

    /// A name by our rules.
    pub(super) fn name(&self, chars_max: usize) -> Result<String, Fault> {
        let allowed = format!(
            "lower-case letters, digits, '-' and '.', a letter or digit at both ends, at most {chars_max} characters"
        );
        self.parsed(&allowed, |text| text::is_name(text, chars_max).then(|| text.to_owned()))
    }

    /// A tenant's path.
    pub(super) fn tenant(&self) -> Result<String, Fault> {
        let allowed = format!(
            "a path such as lab/nlp: 1 to {TENANT_LEVELS_MAX} names of lower-case letters, digits, '-' and '.'"
        );
        self.parsed(&allowed, |text| {
            let deep = text.split('/').count() <= TENANT_LEVELS_MAX;
            (deep && text.split('/').all(|name| text::is_name(name, NAME_MAX))).then(|| text.to_owned())
        })
    }

    /// A map of text to text.
    pub(super) fn labels(&self) -> Result<BTreeMap<String, String>, Fault> {
        let labels = self.label_fields()?;
        labels.into_iter().map(|(key, value)| Ok((key, value.label()?))).collect()
    }

    /// A map of text to something, with bounded keys.
    pub(super) fn label_fields(&self) -> Result<Vec<(String, Field<'a>)>, Fault> {
        let named = self.named()?;
        if named.len() > ENTRIES_MAX {
            let what = format!("has {} entries", named.len());
            return Err(self.fault(&what).allowed(format!("at most {ENTRIES_MAX}")));
        }
        let key = |(key, value): (&str, Field<'a>)| {
            if key.is_empty() || key.len() > LABEL_MAX {
                let what =
                    if key.is_empty() { "has an entry without a key" } else { "has a key that is too long" };
                return Err(self.fault(what).allowed(format!("keys of 1 to {LABEL_MAX} bytes")));
            }
            Ok((key.to_owned(), value))
        };
        named.into_iter().map(key).collect()
    }
}

/// A value as an error shows it: short, and on one line whatever it is.
fn shown(node: &Node) -> String {
    match &node.value {
        Value::Null => "empty".to_owned(),
        Value::Scalar(text) => quoted(text),
        Value::List(_) => "a list".to_owned(),
        Value::Map(_) => "a map".to_owned(),
    }
}

fn quoted(text: &str) -> String {
    format!("{:?}", cut(text))
}

/// A key inside a path: quoted only where it would tear the line apart.
fn plain(key: &str) -> String {
    let short = cut(key);
    if short.chars().any(char::is_control) { format!("{short:?}") } else { short }
}

fn cut(text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    if text.chars().count() <= SHOWN_MAX {
        return text.to_owned();
    }
    text.chars().take(SHOWN_MAX - 1).chain(['…']).collect()
}
