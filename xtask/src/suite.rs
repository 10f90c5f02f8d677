//! Running all tests and counting what passed.
//!
//! The test runner prints one `test result:` line for each test binary and no sum over all of them. So its output is let
//! through unchanged while those lines are added up. Compiler messages go to standard error and are not touched.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result};

use crate::process;

/// What the test binaries reported, summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
}

/// One run of the test suite.
pub(crate) struct Run {
    pub(crate) tally: Tally,
    pub(crate) succeeded: bool,
}

impl Tally {
    /// Adds one line of output, if it is the closing line of a test binary.
    fn read(&mut self, line: &str) {
        if let Some(counts) = without_colour(line).strip_prefix("test result:") {
            self.passed += count_before(counts, "passed");
            self.failed += count_before(counts, "failed");
        }
    }

    /// A test binary that aborts, or does not compile, prints no closing line. It must not look like "0 failed".
    fn concluded(self, succeeded: bool) -> Self {
        if succeeded { self } else { Self { failed: self.failed.max(1), ..self } }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// Runs every test of the workspace in the release profile: the simulations are too slow without optimisation, and overflow
/// checks stay on there.
pub(crate) fn run(root: &Path, args: &[OsString]) -> Result<Run> {
    let mut command = process::cargo(root);
    // All test binaries run even if one fails: a list of what is broken is worth more than its first entry.
    command.args(["test", "--workspace", "--release", "--no-fail-fast"]).args(args);
    process::echo(&command);
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start `cargo test`")?;
    let output = child.stdout.take().context("the output of `cargo test` is not piped")?;
    let tally = tee(BufReader::new(output), &mut io::stdout())?;
    let succeeded = child.wait().context("`cargo test` cannot be waited for")?.success();
    Ok(Run { tally: tally.concluded(succeeded), succeeded })
}

/// Copies line by line, so that progress is seen as it happens, and counts on the way. Bytes, not text: a test may print
/// anything.
fn tee(mut from: impl BufRead, to: &mut impl Write) -> io::Result<Tally> {
    let mut tally = Tally::default();
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        tally.read(&String::from_utf8_lossy(&line));
        line.clear();
    }
    to.flush()?;
    Ok(tally)
}

/// The number in front of `word`, as in `3 passed;`.
fn count_before(counts: &str, word: &str) -> u64 {
    let words: Vec<&str> = counts.split([' ', '.', ';']).collect();
    let pair = words.windows(2).find(|pair| pair[1] == word);
    pair.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

/// The line without terminal colours, which `CARGO_TERM_COLOR=always` puts even into a pipe.
fn without_colour(line: &str) -> String {
    let mut parts = line.split("\u{1b}[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(part.split_once('m').map_or("", |(_, rest)| rest));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &[u8] = b"running 3 tests\n\
        test a ... ok\n\
        test result: FAILED. 2 passed; 1 failed; 4 ignored; 0 measured; 5 filtered out; finished in 0.00s\n\
        the test result: 9 passed; of a chatty test\n\
        test result: \x1b[32mok\x1b[0m. 40 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n\
        \xff no newline at the end";

    #[test]
    fn closing_lines_are_summed_over_all_binaries() {
        let tally = tee(OUTPUT, &mut Vec::new()).unwrap();
        assert_eq!(tally.to_string(), "42 passed, 1 failed");
    }

    #[test]
    fn output_passes_through_byte_for_byte() {
        let mut copy = Vec::new();
        tee(OUTPUT, &mut copy).unwrap();
        assert_eq!(copy, OUTPUT);
    }

    #[test]
    fn a_run_that_died_without_a_closing_line_counts_as_a_failure() {
        let tally = Tally { passed: 7, failed: 0 };
        assert_eq!(tally.concluded(false).to_string(), "7 passed, 1 failed");
        assert_eq!(tally.concluded(true).to_string(), "7 passed, 0 failed");
    }
}
