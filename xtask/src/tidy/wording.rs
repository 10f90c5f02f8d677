//! Rules about words that may not stand in the code, or in any file.

use super::Problem;
use super::source::{SourceFile, item_at, words};

/// Words that fit everything and so say nothing.
const EMPTY_WORDS: [&str; 7] = ["manager", "managers", "helper", "helpers", "util", "utils", "common"];

/// Keywords that are followed by the name of a type or module.
const NAMING_KEYWORDS: [&str; 6] = ["struct", "enum", "trait", "type", "union", "mod"];

/// Directories of one machine. Put together here, because this file is checked as well.
const MACHINE_ROOTS: [&str; 4] =
    [TEMPORARY, concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/")];
const TEMPORARY: &str = concat!("/tm", "p/");

pub(super) fn lints_are_not_silenced_without_a_reason(file: &SourceFile) -> Vec<Problem> {
    if !file.is_rust() {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for opening in ["#[allow(", "#![allow("] {
        for (start, _) in file.code.match_indices(opening) {
            let inside = start + opening.len();
            let attribute = &file.code[inside..item_at(&file.code, inside).end];
            if !words(attribute).any(|(_, word)| word == "reason") {
                let what = "`allow` without a reason".to_owned();
                let hint =
                    "mend the code, or write `#[expect(lint, reason = \"…\")]`, which tells when it can go";
                problems.push(file.failure(file.line_at(start), what, hint));
            }
        }
    }
    problems
}

pub(super) fn names_say_something(file: &SourceFile) -> Vec<Problem> {
    if !file.is_rust() {
        return Vec::new();
    }
    let mut problems = Vec::new();
    let mut keyword = "";
    for (at, word) in words(&file.code) {
        let parts = if NAMING_KEYWORDS.contains(&keyword) { parts(word) } else { Vec::new() };
        if let Some(empty) = parts.iter().find(|part| EMPTY_WORDS.contains(&part.as_str())) {
            let what = format!("`{word}` is named {empty}");
            let hint = "name what it is or does, with a word from the glossary";
            problems.push(file.failure(file.line_at(at), what, hint));
        }
        keyword = word;
    }
    problems
}

/// The words in a name, in lower case: `NodeManager` and `node_manager` alike.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for c in name.chars() {
        if c.is_uppercase() || c == '_' {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut().filter(|_| c != '_') {
            part.extend(c.to_lowercase());
        }
    }
    parts
}

pub(super) fn unwrap_is_for_tests(file: &SourceFile) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (line, code) in file.product_code() {
        if code.contains(".unwrap()") {
            let hint = "return the error, or write `expect(\"why this holds\")` if failing would be a bug";
            problems.push(file.failure(line, "`unwrap` outside of tests".to_owned(), hint));
        }
    }
    problems
}

/// Any file but the lock file, which is not written by hand.
pub(super) fn paths_hold_on_every_machine(file: &SourceFile) -> Vec<Problem> {
    if file.path == "Cargo.lock" || file.path.ends_with("/Cargo.lock") {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (line, text) in file.lines() {
        if let Some(root) = MACHINE_ROOTS.into_iter().find(|root| names_machine_path(text, root)) {
            let hint = "write a path relative to the repository, or take it from an argument or a temporary directory";
            problems.push(file.failure(line, format!("a path of one machine, below `{root}`"), hint));
        }
    }
    problems
}

/// True if an absolute path below `root` stands in the text. After a name, a dot or a variable, `root` is only a piece of a
/// relative path or of a URL.
fn names_machine_path(text: &str, root: &str) -> bool {
    text.match_indices(root).any(|(at, _)| {
        let is_inside = text[..at].ends_with(|c: char| c.is_alphanumeric() || "_.-~*)}".contains(c));
        let after = &text[at + root.len()..];
        // The temporary directory itself exists everywhere; what lies in it does not.
        let names_file = root != TEMPORARY || after.starts_with(|c: char| c.is_ascii_alphabetic());
        !is_inside && names_file
    })
}

#[cfg(test)]
mod tests {
    use super::TEMPORARY;
    use crate::tidy::tests::findings;

    const PATH: &str = "crates/sim/src/world/a.rs";

    fn findings_in_line(line: &str) -> Vec<String> {
        findings(PATH, &format!("//! Docs.\n{line}\n"))
    }

    #[test]
    fn a_lint_silenced_without_a_reason_is_refused() {
        for line in
            ["#[allow(dead_code)]", "#![allow(clippy::all)]", "#[allow(a,\n    b)]", "#[allow(a)] // reason"]
        {
            let expected = ["crates/sim/src/world/a.rs:2: `allow` without a reason"];
            assert_eq!(findings_in_line(line), expected, "{line}");
        }
        for line in ["#[expect(dead_code)]", "#[allow(\n    a,\n    reason = \"b\"\n)]", "// #[allow(a)]"] {
            assert_eq!(findings_in_line(line), [""; 0], "{line}");
        }
    }

    #[test]
    fn an_empty_name_of_a_type_or_module_is_refused() {
        let cases = [
            ("struct NodeManager;", "NodeManager", "manager"),
            ("pub(crate) enum HelperKind {}", "HelperKind", "helper"),
            ("trait Util {}", "Util", "util"),
            ("type CommonError = u8;", "CommonError", "common"),
            ("mod utils;", "utils", "utils"),
            ("pub mod test_helpers {}", "test_helpers", "helpers"),
        ];
        for (line, name, empty) in cases {
            let expected = [format!("crates/sim/src/world/a.rs:2: `{name}` is named {empty}")];
            assert_eq!(findings_in_line(line), expected, "{line}");
        }
        for line in ["struct Utilisation;", "use k8s::FieldManager;", "mod managed;", "// struct Helper"] {
            assert_eq!(findings_in_line(line), [""; 0], "{line}");
        }
    }

    #[test]
    fn unwrap_is_refused_outside_of_tests() {
        let expected = ["crates/sim/src/world/a.rs:2: `unwrap` outside of tests"];
        assert_eq!(findings_in_line("fn a() { b.unwrap(); }"), expected);
        for line in ["a.unwrap_or(b)", "\".unwrap()\"", "#[cfg(test)]\nmod tests {\n    a.unwrap()\n}"] {
            assert_eq!(findings_in_line(line), [""; 0], "{line}");
        }
    }

    #[test]
    fn unwrap_is_fine_in_test_files() {
        let text = "//! Docs.\nfn a() { b.unwrap(); }\n";
        assert_eq!(findings("crates/sim/tests/a.rs", text), [""; 0]);
        assert_eq!(findings("crates/sim/src/world/a/tests.rs", text), [""; 0]);
        assert_eq!(findings(PATH, &format!("{text}#![cfg(test)]\n")), [""; 0]);
    }

    #[test]
    fn a_path_of_one_machine_is_refused_in_any_file() {
        for root in [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), TEMPORARY] {
            for text in [format!("see {root}notes"), format!("\"{root}a\""), format!("file://{root}a")] {
                let expected = [format!("deploy/a.yaml:2: a path of one machine, below `{root}`")];
                assert_eq!(findings("deploy/a.yaml", &format!("a: b\n{text}\n")), expected);
            }
        }
    }

    #[test]
    fn a_relative_path_or_url_is_no_path_of_one_machine() {
        let root = concat!("/wo", "rk/");
        for before in ["docs", "https://example.org", ".", "${DIR}", "$(pwd)"] {
            assert_eq!(findings("a.yaml", &format!("{before}{root}a\n")), [""; 0], "{before}");
        }
        assert_eq!(findings("a.yaml", &format!("{TEMPORARY}\n")), [""; 0]);
        assert_eq!(findings("Cargo.lock", &format!("{root}a\n")), [""; 0]);
    }
}
