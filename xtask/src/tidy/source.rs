//! One file as the rules see it: its lines, its code without comments and literals, and which lines are tests.

use std::path::Path;

use super::mask::{is_word_byte, mask};
use super::{Problem, Severity, Tree};

/// Attributes whose item is compiled for tests only.
const TEST_ATTRIBUTES: [&str; 3] = ["#[cfg(test)]", "#[cfg(all(test,", "#[test]"];

pub(super) struct SourceFile<'a> {
    pub(super) path: String,
    pub(super) text: String,
    /// As `text`, with comments and literals blanked; empty if this is not Rust.
    pub(super) code: String,
    /// All files there are, this one included.
    pub(super) tree: &'a Tree,
    /// The whole file is tests: an integration test, or a module that says so.
    pub(super) is_test_file: bool,
    /// One flag for each line of `code`.
    in_test: Vec<bool>,
}

/// A piece of code that ends with its closing brace or semicolon.
pub(super) struct Item {
    pub(super) has_body: bool,
    /// The position of the closing brace or semicolon.
    pub(super) end: usize,
}

impl<'a> SourceFile<'a> {
    pub(super) fn new(path: &str, text: String, tree: &'a Tree) -> Self {
        let code = if has_extension(path, "rs") { mask(&text) } else { String::new() };
        let is_test_file =
            path.contains("/tests/") || path.ends_with("/tests.rs") || code.contains("#![cfg(test)]");
        let in_test = test_lines(&code);
        Self { path: path.to_owned(), text, code, tree, is_test_file, in_test }
    }

    /// Rust that is ours: a crate's, or xtask's own.
    pub(super) fn is_rust(&self) -> bool {
        let ours = self.path.starts_with("crates/") || self.path.starts_with("xtask/");
        ours && has_extension(&self.path, "rs")
    }

    pub(super) fn is_test_line(&self, line: usize) -> bool {
        self.is_test_file || self.in_test.get(line - 1).copied().unwrap_or(false)
    }

    /// Numbered from 1, as editors do.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }

    /// The lines of code that are not tests, numbered from 1; nothing unless this is our own Rust.
    pub(super) fn product_code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = (1..).zip(self.code.lines());
        lines.filter(|&(line, _)| self.is_rust() && !self.is_test_line(line))
    }

    pub(super) fn line_at(&self, position: usize) -> usize {
        line_at(&self.code, position)
    }

    pub(super) fn failure(&self, line: usize, what: String, hint: &'static str) -> Problem {
        Problem { path: self.path.clone(), line, severity: Severity::Failure, what, hint }
    }

    pub(super) fn note(&self, line: usize, what: String, hint: &'static str) -> Problem {
        Problem { severity: Severity::Note, ..self.failure(line, what, hint) }
    }
}

pub(super) fn has_extension(path: &str, wanted: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == wanted)
}

/// Identifiers, keywords and numbers with their positions.
pub(super) fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_word = |c: char| u8::try_from(c).map_or(true, is_word_byte);
    let mut at = 0;
    let pieces = code.split_inclusive(move |c| !is_word(c)).map(move |piece| {
        let start = at;
        at += piece.len();
        (start, piece.trim_end_matches(|c| !is_word(c)))
    });
    pieces.filter(|(_, word)| !word.is_empty())
}

/// The item that begins at `start`, with its attributes if it begins there with one. It ends with the first brace that closes
/// it or, if it has no body, with a semicolon. Without either, at the brace around it or at the end of the file.
pub(super) fn item_at(code: &str, start: usize) -> Item {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(start) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
        let closes = byte == b'}' && depth == 0;
        if closes || depth < 0 || (byte == b';' && depth == 0) {
            return Item { has_body: closes, end: at };
        }
    }
    Item { has_body: false, end: code.len() }
}

fn test_lines(code: &str) -> Vec<bool> {
    let mut in_test = vec![false; code.lines().count()];
    for attribute in TEST_ATTRIBUTES {
        for (start, _) in code.match_indices(attribute) {
            let end = item_at(code, start).end;
            let last = line_at(code, end).min(in_test.len());
            in_test[line_at(code, start) - 1..last].fill(true);
        }
    }
    in_test
}

fn line_at(code: &str, position: usize) -> usize {
    1 + code[..position].matches('\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the lines that count as tests.
    fn test_lines_of(text: &str) -> Vec<usize> {
        let flags = test_lines(&mask(text));
        (1..).zip(flags).filter_map(|(line, in_test)| in_test.then_some(line)).collect()
    }

    #[test]
    fn a_test_module_reaches_to_its_closing_brace() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { \"}\"; }\n}\nfn c() {}\n";
        assert_eq!(test_lines_of(text), [2, 3, 4, 5]);
    }

    #[test]
    fn a_test_item_without_a_body_ends_at_its_semicolon() {
        assert_eq!(test_lines_of("#[cfg(test)]\nmod tests;\nfn a() {}\n"), [1, 2]);
        assert_eq!(test_lines_of("#[cfg(test)]\nstatic A: [u8; 2] =\n    [0; 2];\nfn a() {}\n"), [1, 2, 3]);
    }

    #[test]
    fn code_for_everything_but_tests_is_not_a_test() {
        assert_eq!(test_lines_of("#[cfg(not(test))]\nfn a() {}\n"), [0; 0]);
        assert_eq!(test_lines_of("// #[cfg(test)]\nfn a() {}\n"), [0; 0]);
    }

    #[test]
    fn a_test_that_never_ends_reaches_to_the_end_of_the_file() {
        assert_eq!(test_lines_of("\n#[cfg(test)]\nmod tests {\n"), [2, 3]);
        assert_eq!(test_lines_of("#[cfg(test)]"), [1]);
    }

    #[test]
    fn words_come_with_their_positions() {
        let found: Vec<_> = words("fn  a_1(é: u8)").collect();
        assert_eq!(found, [(0, "fn"), (4, "a_1"), (8, "é"), (12, "u8")]);
    }
}
