//! Rules about documents: links lead to files that exist, and decisions have their four parts.

use super::source::{SourceFile, has_extension};
use super::{Problem, Tree};

/// What every decision tells, as the beginnings of its headings.
const DECISION_PARTS: [&str; 4] = ["problem", "options", "choice", "consequence"];

/// Links to other sites and to headings are not followed, and what stands in code is no link.
pub(super) fn links_lead_somewhere(file: &SourceFile) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (line, text) in prose(file) {
        for target in links(&text) {
            let is_elsewhere = target.contains("://") || target.starts_with("mailto:");
            let path = target.split(['#', '?']).next().unwrap_or_default().replace("%20", " ");
            if is_elsewhere || path.is_empty() || exists(file.tree, &resolved(&file.path, &path)) {
                continue;
            }
            let hint = "correct the path, which is relative to this file, or remove the link";
            problems.push(file.failure(line, format!("a link to `{target}`, which does not exist"), hint));
        }
    }
    problems
}

/// A map that names a file which was moved sends its reader astray.
pub(super) fn files_on_the_map_exist(file: &SourceFile) -> Vec<Problem> {
    if file.path != "ARCHITECTURE.md" {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (line, text) in file.lines() {
        for name in text.split('`').skip(1).step_by(2).filter(|name| has_extension(name, "rs")) {
            let below = format!("/{name}");
            if !file.tree.iter().any(|path| path == name || path.ends_with(&below)) {
                let hint = "name the file where that is now";
                problems.push(file.failure(line, format!("`{name}` does not exist"), hint));
            }
        }
    }
    problems
}

pub(super) fn decisions_have_their_four_parts(file: &SourceFile) -> Vec<Problem> {
    let is_decision = file.path.starts_with("docs/decisions/") && file.path != "docs/decisions/README.md";
    if !is_decision {
        return Vec::new();
    }
    let hint = "docs/decisions/README.md shows the format";
    let mut problems = Vec::new();
    if !file.text.starts_with("# ") {
        problems.push(file.failure(1, "a decision without a title".to_owned(), hint));
    }
    let headings: Vec<String> = prose(file).filter_map(|(_, text)| heading(&text)).collect();
    for part in DECISION_PARTS {
        if !headings.iter().any(|heading| heading.starts_with(part)) {
            problems.push(file.failure(1, format!("a decision without the heading `{part}`"), hint));
        }
    }
    problems
}

/// The text of a heading in lower case.
fn heading(line: &str) -> Option<String> {
    let text = line.trim_start_matches('#');
    (text.len() < line.len() && text.starts_with(' ')).then(|| text.trim().to_lowercase())
}

/// The lines of a Markdown file without code, neither fenced nor in backticks; nothing for other files.
fn prose<'a>(file: &'a SourceFile) -> impl Iterator<Item = (usize, String)> + 'a {
    let is_markdown = has_extension(&file.path, "md");
    let mut fence = None;
    file.lines().filter(move |_| is_markdown).filter_map(move |(line, text)| {
        let marker = ["```", "~~~"].into_iter().find(|marker| text.trim_start().starts_with(marker));
        match (fence, marker) {
            (None, None) => return Some((line, without_code(text))),
            (None, Some(_)) => fence = marker,
            (Some(open), Some(close)) if open == close => fence = None,
            (Some(_), _) => {}
        }
        None
    })
}

/// The line without what stands between backticks. A backtick without a partner is kept as it is.
fn without_code(line: &str) -> String {
    let pieces: Vec<&str> = line.split('`').collect();
    let last = pieces.len() - 1;
    let is_prose = |at: usize| at.is_multiple_of(2) || at == last;
    pieces.iter().enumerate().filter(|(at, _)| is_prose(*at)).map(|(_, piece)| *piece).collect()
}

/// The targets of `[text](target "title")` and of `[label]: target`.
fn links(line: &str) -> Vec<&str> {
    let inline = line.split("](").skip(1).map(|rest| rest.split(')').next().unwrap_or_default());
    let definition = line.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    let targets = inline.chain(definition.map(|(_, target)| target));
    targets.map(target).collect()
}

/// A target without its title; one in angle brackets may have spaces.
fn target(written: &str) -> &str {
    let written = written.trim();
    match written.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        Some((target, _)) => target,
        None => written.split(' ').next().unwrap_or_default(),
    }
}

/// The path from the repository's root. A link beginning with `/` already counts from there. A link that leaves the
/// repository keeps its `..` and so leads nowhere.
fn resolved(from: &str, link: &str) -> String {
    let directory = from.rsplit_once('/').map_or("", |(directory, _)| directory);
    let base = if link.starts_with('/') { "" } else { directory };
    let mut parts: Vec<&str> = Vec::new();
    for part in base.split('/').chain(link.split('/')) {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// True for a file, for a directory with files in it, and for the root.
fn exists(tree: &Tree, path: &str) -> bool {
    let directory = format!("{path}/");
    let first_below = tree.range(directory.clone()..).next();
    path.is_empty() || tree.contains(path) || first_below.is_some_and(|below| below.starts_with(&directory))
}

#[cfg(test)]
mod tests {
    use crate::tidy::tests::{findings, findings_among};

    const OTHERS: [&str; 3] = ["README.md", "docs/guide/first steps.md", "docs/map.svg"];

    fn findings_in_line(line: &str) -> Vec<String> {
        findings_among("docs/index.md", &format!("# Index\n{line}\n"), &OTHERS)
    }

    #[test]
    fn a_link_to_nothing_is_refused_with_its_line() {
        let cases = [
            ("[a](gone.md)", "gone.md"),
            ("[a](map.svg) and [b](../gone/x.md#part)", "../gone/x.md#part"),
            ("![a](guide/map.svg \"title\")", "guide/map.svg"),
            ("[a]: gone.md", "gone.md"),
            ("[a](../../README.md)", "../../README.md"),
            ("[a](/docs/README.md)", "/docs/README.md"),
            ("[a](gui)", "gui"),
        ];
        for (line, target) in cases {
            let expected = [format!("docs/index.md:2: a link to `{target}`, which does not exist")];
            assert_eq!(findings_in_line(line), expected, "{line}");
        }
    }

    #[test]
    fn a_link_to_something_is_fine() {
        let lines = [
            "[a](map.svg) [b](../README.md#part) [c](/README.md) [d](guide/) [e](guide) [f](..)",
            "[a](guide/first%20steps.md) [b](<guide/first steps.md>) [c](map.svg \"title\")",
            "[a](https://example.org/gone.md) [b](mailto:a@example.org) [c](#part)",
            "`[a](gone.md)`",
            "```\n[a](gone.md)\n~~~\n[a](gone.md)\n```",
            "- [ ] to do (later)",
        ];
        for line in lines {
            assert_eq!(findings_in_line(line), [""; 0], "{line}");
        }
    }

    #[test]
    fn a_link_after_code_is_still_followed() {
        let refused = findings_in_line("```\ncode\n```\n`code` and [a](gone.md) it's `");
        assert_eq!(refused, ["docs/index.md:5: a link to `gone.md`, which does not exist"]);
    }

    #[test]
    fn a_file_on_the_map_exists() {
        let map = "See `state/jobs.rs`, `jobs.rs` and `obs.rs`, `decide/gone.rs`.\n";
        let found = findings_among("ARCHITECTURE.md", map, &["crates/engine/src/state/jobs.rs"]);
        let refused = ["`obs.rs` does not exist", "`decide/gone.rs` does not exist"];
        assert_eq!(found, refused.map(|what| format!("ARCHITECTURE.md:1: {what}")));
        assert_eq!(findings("docs/a.md", map), [""; 0]);
    }

    #[test]
    fn links_are_looked_for_in_documents_only() {
        assert_eq!(findings("a.txt", "[a](gone.md)\n"), [""; 0]);
    }

    #[test]
    fn a_decision_without_its_parts_is_refused() {
        let path = "docs/decisions/0001-a.md";
        let whole = "# A\n\n## Problem\n\n## Options considered\n\n### CHOICE\n\n## Consequences\n";
        assert_eq!(findings(path, whole), [""; 0]);
        let expected = ["docs/decisions/0001-a.md:1: a decision without a title"];
        assert_eq!(findings(path, &format!("\n{whole}")), expected);
        for (heading, part) in [("## Problem", "problem"), ("### CHOICE", "choice")] {
            let expected = [format!("docs/decisions/0001-a.md:1: a decision without the heading `{part}`")];
            assert_eq!(findings(path, &whole.replace(heading, "Problem, choice:")), expected);
            assert_eq!(findings(path, &whole.replace(heading, &format!("```\n{heading}\n```"))), expected);
        }
        assert_eq!(findings("docs/decisions/README.md", "How to write one.\n"), [""; 0]);
    }
}
