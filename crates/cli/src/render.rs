//! Answers and errors as text: for people, with colour where it is welcome, and for programs.
//!
//! Everything here is a function from values to text, but for [`output`], which prints, and [`problem`], which ends the
//! program. Nothing here asks a control plane.

pub(crate) mod command_line;
pub(crate) mod numbers;
pub(crate) mod output;
pub(crate) mod places;
pub(crate) mod problem;
#[cfg(test)]
pub(crate) mod samples;
pub(crate) mod table;

use output::{Paint, Tone};

/// What to type next, in the form that every command uses.
pub(crate) fn next_line(paint: Paint, label: &str, command: &str) -> String {
    format!("{} {}", paint.tone(Tone::Faint, label), paint.tone(Tone::Accent, command))
}

/// A line with a label before it.
pub(crate) fn fact(label: &str, value: &str, paint: Paint) -> String {
    format!("  {}  {value}", paint.tone(Tone::Faint, &format!("{label:<6}")))
}

/// Lines under one label, which stands before the first of them.
pub(crate) fn labelled(label: &str, lines: &[String], paint: Paint) -> Vec<String> {
    let labels = std::iter::once(label).chain(std::iter::repeat(""));
    labels.zip(lines).map(|(label, line)| fact(label, line, paint)).collect()
}

/// A line for each item, as far as they fit on a screen; the last line says how many more there are.
pub(crate) fn first_lines<T>(items: &[T], most: usize, line: impl FnMut(&T) -> String) -> Vec<String> {
    let mut lines: Vec<String> = items.iter().take(most).map(line).collect();
    let hidden = items.len().saturating_sub(most);
    if hidden > 0 {
        lines.push(format!("and {hidden} more; -o json has all"));
    }
    lines
}
