//! How an answer reaches the reader: colour where it is welcome, and a pipe that may close at any time.
//!
//! Commands make text and print it once, here. Nothing else writes to standard output.

use std::io::{self, ErrorKind, IsTerminal, Write};

use anyhow::Context;
use serde::Serialize;
use serde_json::Value;

use crate::args::Format;

/// What a piece of text means; colours follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Nothing special.
    Plain,
    /// To be seen first.
    Strong,
    /// To be seen last.
    Faint,
    /// As it should be.
    Good,
    /// Waits, or wants attention.
    Warn,
    /// Broken, or refused.
    Bad,
    /// A name or a part of a picture.
    Accent,
}

impl Tone {
    /// Its colour among the 256. All are of medium brightness, with a contrast of more than 3.7 to 1 on black and
    /// on white alike: the sixteen named colours are not, and nobody tells us the background.
    pub(crate) fn colour(self) -> Option<u8> {
        match self {
            Self::Plain | Self::Strong => None,
            Self::Faint => Some(244),
            Self::Good => Some(28),
            Self::Warn => Some(166),
            Self::Bad => Some(160),
            Self::Accent => Some(31),
        }
    }
}

/// Whether text is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// No colours at all.
    pub(crate) const OFF: Self = Self { on: false };

    /// For standard output.
    pub(crate) fn stdout() -> Self {
        Self { on: io::stdout().is_terminal() && colour_is_welcome() }
    }

    /// For standard error.
    pub(crate) fn stderr() -> Self {
        Self { on: io::stderr().is_terminal() && colour_is_welcome() }
    }

    /// The text in the colour of its tone.
    pub(crate) fn tone(self, tone: Tone, text: &str) -> String {
        match tone.colour().filter(|_| self.on) {
            Some(colour) => format!("\x1b[38;5;{colour}m{text}\x1b[0m"),
            None if tone == Tone::Strong => self.strong(tone, text),
            None => text.to_owned(),
        }
    }

    /// The text in bold and in the colour of its tone.
    pub(crate) fn strong(self, tone: Tone, text: &str) -> String {
        match (self.on, tone.colour()) {
            (false, _) => text.to_owned(),
            (true, Some(colour)) => format!("\x1b[1;38;5;{colour}m{text}\x1b[0m"),
            (true, None) => format!("\x1b[1m{text}\x1b[0m"),
        }
    }
}

/// Whether the reader wants colour: <https://no-color.org>, and a terminal that can.
pub(crate) fn colour_is_welcome() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Prints text. A reader that has seen enough (`| head`) is no error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot write the answer"),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Prints an answer as it is asked for.
pub(crate) fn answer(
    format: Format,
    answer: &impl Serialize,
    text: impl FnOnce(Paint) -> String,
) -> anyhow::Result<()> {
    match format {
        Format::Text => print(&text(Paint::stdout())),
        Format::Json => print_json(answer),
    }
}

/// Lines as a text that ends with its last line.
pub(crate) fn lines(lines: &[String]) -> String {
    lines.iter().flat_map(|line| [line.trim_end(), "\n"]).collect()
}

/// Prints an answer as JSON.
pub(crate) fn print_json(answer: &impl Serialize) -> anyhow::Result<()> {
    print(&json(answer)?)
}

/// An answer as JSON, on lines of its own.
pub(crate) fn json(answer: &impl Serialize) -> anyhow::Result<String> {
    let text = serde_json::to_string_pretty(answer).context("cannot write the answer as JSON")?;
    Ok(text + "\n")
}

/// An answer as YAML: blocks, with every text in the quotes of JSON, which YAML reads alike.
pub(crate) fn yaml(answer: &impl Serialize) -> anyhow::Result<String> {
    let value = serde_json::to_value(answer).context("cannot write the answer as YAML")?;
    Ok(lines(&yaml_lines(&value, 0)))
}

fn yaml_lines(value: &Value, depth: usize) -> Vec<String> {
    let indent = "  ".repeat(depth);
    let below = |head: String, value: &Value| match value {
        Value::Object(fields) if !fields.is_empty() => [vec![head], yaml_lines(value, depth + 1)].concat(),
        Value::Array(values) if !values.is_empty() => [vec![head], yaml_lines(value, depth + 1)].concat(),
        flat => vec![format!("{head} {flat}")],
    };
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let field = |(key, value): (&String, &Value)| below(format!("{indent}{}:", yaml_key(key)), value);
            fields.iter().flat_map(field).collect()
        }
        Value::Array(values) if !values.is_empty() => {
            values.iter().flat_map(|value| below(format!("{indent}-"), value)).collect()
        }
        flat => vec![format!("{indent}{flat}")],
    }
}

/// A key as it is, where no reader could take it for anything but a text.
fn yaml_key(key: &str) -> String {
    let plain = key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        && !matches!(key, "" | "y" | "n" | "yes" | "no" | "on" | "off" | "true" | "false" | "null");
    if plain { key.to_owned() } else { Value::from(key).to_string() }
}

/// Says something beside the answer, on standard error.
pub(crate) fn remark(text: &str) {
    // Where nobody reads standard error there is nobody to tell.
    let _ = writeln!(io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_without_colour_is_untouched() {
        assert_eq!(Paint::OFF.tone(Tone::Bad, "x"), "x");
        assert_eq!(Paint::OFF.strong(Tone::Bad, "x"), "x");
    }

    #[test]
    fn yaml_is_blocks_of_quoted_text() {
        let answer = serde_json::json!({
            "schema": "x", "no": 1, "1g.10gb": [], "list": [{"a": null, "b": [1.5, "y: #"]}, [true]], "none": {}
        });
        let text = yaml(&answer).unwrap();
        let expected = "\
\"1g.10gb\": []
list:
  -
    a: null
    b:
      - 1.5
      - \"y: #\"
  -
    - true
\"no\": 1
none: {}
schema: \"x\"
";
        assert_eq!(text, expected);
    }

    #[test]
    fn every_colour_is_undone() {
        let on = Paint { on: true };
        assert_eq!(on.tone(Tone::Bad, "x"), "\x1b[38;5;160mx\x1b[0m");
        assert_eq!(on.strong(Tone::Plain, "x"), "\x1b[1mx\x1b[0m");
        assert_eq!(on.tone(Tone::Plain, "x"), "x");
    }
}
