//! The words of a line, and what is said about a wrong one.

use std::fmt::Display;
use std::str::FromStr;

use strum::VariantArray;
use wharf_engine::units::Millis;

use super::super::measure::span;

/// The words of one line, from left to right. Braces, commas and colons are words of their own.
pub(super) struct Words<'a> {
    words: Vec<&'a str>,
    at: usize,
}

impl<'a> Words<'a> {
    pub(super) fn of(line: &'a str) -> Self {
        let is_mark = |c: char| matches!(c, '{' | '}' | ',' | ':');
        let pieces = line.split_whitespace().flat_map(|piece| piece.split_inclusive(is_mark));
        let mut words = Vec::new();
        for piece in pieces {
            let word = piece.trim_end_matches(is_mark);
            words.extend([word, &piece[word.len()..]].into_iter().filter(|part| !part.is_empty()));
        }
        Self { words, at: 0 }
    }

    pub(super) fn next(&mut self) -> Option<&'a str> {
        let word = self.peek()?;
        self.at += 1;
        Some(word)
    }

    pub(super) fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    /// Takes the next word if it is this one.
    pub(super) fn take(&mut self, word: &str) -> bool {
        let is_it = self.peek() == Some(word);
        self.at += usize::from(is_it);
        is_it
    }

    /// The next word, or what is missing.
    pub(super) fn need(&mut self, what: &str) -> Result<&'a str, String> {
        self.next().ok_or_else(|| format!("the line ends too early; next comes {what}"))
    }

    /// The next word is this one.
    pub(super) fn expect(&mut self, word: &str) -> Result<(), String> {
        let found = self.need(&format!("`{word}`"))?;
        if found == word { Ok(()) } else { Err(unknown("here comes no", found, &[word])) }
    }

    /// The next word is a number.
    pub(super) fn number<T: FromStr>(&mut self, what: &str) -> Result<T, String> {
        let word = self.need(what)?;
        word.parse().map_err(|_| format!("`{word}` is no number; here comes {what}"))
    }

    /// The next word is a span of time.
    pub(super) fn span(&mut self, what: &str) -> Result<Millis, String> {
        span(self.need(what)?)
    }

    /// The next words are these.
    pub(super) fn expect_all<const N: usize>(&mut self, words: [&str; N]) -> Result<(), String> {
        words.iter().try_for_each(|word| self.expect(word))
    }

    /// The next word is `key=value`.
    pub(super) fn pair(&mut self) -> Result<(String, String), String> {
        let word = self.need("a pair like zone=a")?;
        let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is no pair like zone=a"))?;
        Ok((key.to_owned(), value.to_owned()))
    }

    /// Nothing follows.
    pub(super) fn end(&mut self) -> Result<(), String> {
        self.next().map_or(Ok(()), |word| Err(format!("`{word}` is too much; the line ends before it")))
    }
}

/// The one of a closed set that is called by this word.
pub(super) fn one_of<T: VariantArray + Copy + Into<&'static str>>(
    where_: &str,
    word: &str,
) -> Result<T, String> {
    let words: Vec<&str> = T::VARIANTS.iter().map(|&known| known.into()).collect();
    let found = words.iter().position(|known| *known == word).ok_or_else(|| unknown(where_, word, &words));
    found.map(|at| T::VARIANTS[at])
}

/// A word that is not allowed, what was probably meant, and what is allowed.
pub(super) fn unknown(where_: impl Display, word: &str, allowed: &[&str]) -> String {
    // Of a path the last part may be meant.
    let changes_to = |known: &str| known.rsplit('/').next().map_or(0, |part| distance(word, part));
    let nearest = allowed.iter().map(|known| (changes_to(known), *known)).min();
    let meant = match nearest {
        Some((changes, known)) if changes <= word.len() / 3 => format!("did you mean `{known}`? "),
        Some(_) | None => String::new(),
    };
    let list = if allowed.is_empty() { "nothing yet".to_owned() } else { allowed.join(", ") };
    format!("{where_} `{word}`; {meant}allowed: {list}")
}

/// How many letters have to be changed, added or left out; two neighbours in the wrong order count as two.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (at, letter) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for column in 0..b.len() {
            let changed = diagonal + usize::from(letter != b[column]);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[b.len()]
}
