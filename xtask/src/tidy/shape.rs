//! Rules about the size and the layout of files.

use super::Problem;
use super::source::{SourceFile, item_at, words};

/// A screen. What does not fit on it is not read at once.
const FUNCTION_LINES_MAX: usize = 70;
/// Beyond this a file usually has a second concept in it.
const FILE_LINES_NOTED: usize = 500;
/// From here on it certainly has one.
const FILE_LINES_REFUSED: usize = 800;

pub(super) fn file_begins_with_docs(file: &SourceFile) -> Vec<Problem> {
    if !file.is_rust() || file.text.starts_with("//!") {
        return Vec::new();
    }
    let hint = "say on the first lines what the module is for, how it works and what it leaves out";
    vec![file.failure(1, "the file does not begin with `//!`".to_owned(), hint)]
}

/// Counts from the line with `fn` to the one with the closing brace. Tests are held to it too: a long test tells two stories.
/// Tables are not, since they are constants and not functions.
pub(super) fn functions_fit_a_screen(file: &SourceFile) -> Vec<Problem> {
    if !file.is_rust() {
        return Vec::new();
    }
    let mut problems = Vec::new();
    let mut all = words(&file.code).peekable();
    while let Some((start, word)) = all.next() {
        let Some(&(name_at, name)) = all.peek() else { break };
        // `fn(u8)` is a type; only whitespace stands between `fn` and a name.
        if word != "fn" || !file.code[start + word.len()..name_at].trim().is_empty() {
            continue;
        }
        let item = item_at(&file.code, start);
        let first = file.line_at(start);
        let length = file.line_at(item.end) - first + 1;
        if item.has_body && length > FUNCTION_LINES_MAX {
            let what = format!("`{name}` has {length} lines, {FUNCTION_LINES_MAX} are the most");
            let hint = "split it: the parent keeps the branches, the leaves become small functions";
            problems.push(file.failure(first, what, hint));
        }
    }
    problems
}

/// Counts without the tests inside a file, which should not be a reason to write fewer of them.
pub(super) fn files_stay_small(file: &SourceFile) -> Vec<Problem> {
    if !file.is_rust() {
        return Vec::new();
    }
    let count = if file.is_test_file { file.lines().count() } else { file.product_code().count() };
    let what = format!("the file has {count} lines without tests");
    let hint = "find the second concept in it and give that a file of its own";
    if count >= FILE_LINES_REFUSED {
        vec![file.failure(1, what, hint)]
    } else if count > FILE_LINES_NOTED {
        vec![file.note(1, what, hint)]
    } else {
        Vec::new()
    }
}

pub(super) fn modules_are_files_with_a_name(file: &SourceFile) -> Vec<Problem> {
    if !file.is_rust() || !file.path.ends_with("/mod.rs") {
        return Vec::new();
    }
    let hint = "move it to `name.rs` beside the directory `name/`, so that editor tabs differ";
    vec![file.failure(1, "a file named `mod.rs`".to_owned(), hint)]
}

/// Every public type and function of the engine and the controller says what it is for. Fields and variants may speak for themselves, which
/// `missing_docs` does not let them.
pub(super) fn public_items_have_docs(file: &SourceFile) -> Vec<Problem> {
    if !["crates/engine/src/", "crates/controller/src/"].iter().any(|of| file.path.starts_with(of)) {
        return Vec::new();
    }
    let lines: Vec<&str> = file.text.lines().collect();
    let undocumented = |line: usize| {
        let before = lines[..line - 1].iter().rev().map(|line| line.trim_start());
        let mut within_attribute = false;
        let mut docs = before.skip_while(|line| {
            within_attribute = line.starts_with(")]") || within_attribute && !line.starts_with("#[");
            within_attribute || line.starts_with("#[")
        });
        !docs.next().is_some_and(|line| line.starts_with("///") || line.starts_with("$(#[$doc"))
    };
    let is_item = |code: &str| {
        let kinds = ["pub fn ", "pub const fn ", "pub struct ", "pub enum ", "pub trait ", "pub type "];
        kinds.iter().any(|kind| code.trim_start().starts_with(kind))
    };
    let public = file.product_code().filter(|(_, code)| is_item(code));
    public
        .filter(|&(line, _)| undocumented(line))
        .map(|(line, _)| file.failure(line, "a public item without docs".to_owned(), "say what it is for"))
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::tidy::tests::findings;

    const PATH: &str = "crates/sim/src/world/a.rs";

    /// A function named `f` of so many lines.
    fn function(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "    work();\n".repeat(lines - 2))
    }

    #[test]
    fn a_file_without_docs_is_refused() {
        assert_eq!(findings(PATH, "//! Docs.\n"), [""; 0]);
        for text in ["", "use a;\n", "// Docs.\n", "\n//! Docs.\n"] {
            assert_eq!(
                findings(PATH, text),
                ["crates/sim/src/world/a.rs:1: the file does not begin with `//!`"]
            );
        }
        assert_eq!(findings("examples/a.rs", "use a;\n"), [""; 0]);
    }

    #[test]
    fn a_function_longer_than_a_screen_is_refused() {
        let text = |lines| format!("//! Docs.\n\n{}", function(lines));
        assert_eq!(findings(PATH, &text(70)), [""; 0]);
        assert_eq!(
            findings(PATH, &text(71)),
            ["crates/sim/src/world/a.rs:3: `f` has 71 lines, 70 are the most"]
        );
    }

    #[test]
    fn long_functions_are_found_in_tests_and_in_impls() {
        let long = function(71);
        let text = format!("//! Docs.\nimpl A {{\n{long}}}\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
        let expected = [
            "crates/sim/src/world/a.rs:3: `f` has 71 lines, 70 are the most",
            "crates/sim/src/world/a.rs:77: `f` has 71 lines, 70 are the most",
        ];
        assert_eq!(findings(PATH, &text), expected);
    }

    #[test]
    fn the_length_of_a_function_is_its_own() {
        let blank = "\n".repeat(80);
        let declared = format!("//! Docs.\ntrait A {{\n    fn f(&self) -> [u8; 2];\n{blank}}}\n");
        assert_eq!(findings(PATH, &declared), [""; 0]);
        let a_type = format!("//! Docs.\nconst A: fn(u8) = {{\n{blank}}};\n");
        assert_eq!(findings(PATH, &a_type), [""; 0]);
        let brace_in_text = format!("//! Docs.\nfn f() {{\n    work(\"{{\");\n}}\n{blank}fn g() {{}}\n");
        assert_eq!(findings(PATH, &brace_in_text), [""; 0]);
    }

    #[test]
    fn a_large_file_is_noted_and_a_huge_one_refused() {
        let text = |lines: usize| format!("//! Docs.\n{}", "use a;\n".repeat(lines - 1));
        assert_eq!(findings(PATH, &text(500)), [""; 0]);
        let noted = ["crates/sim/src/world/a.rs:1: note: the file has 501 lines without tests"];
        assert_eq!(findings(PATH, &text(501)), noted);
        let noted = ["crates/sim/src/world/a.rs:1: note: the file has 799 lines without tests"];
        assert_eq!(findings(PATH, &text(799)), noted);
        let refused = ["crates/sim/src/world/a.rs:1: the file has 800 lines without tests"];
        assert_eq!(findings(PATH, &text(800)), refused);
    }

    #[test]
    fn tests_do_not_make_a_file_large_but_a_test_file_may_be() {
        let uses = "use a;\n".repeat(900);
        let inside = format!("//! Docs.\n#[cfg(test)]\nmod tests {{\n{uses}}}\n");
        assert_eq!(findings(PATH, &inside), [""; 0]);
        let beside = format!("//! Docs.\n{uses}");
        let refused = ["crates/sim/tests/a.rs:1: the file has 901 lines without tests"];
        assert_eq!(findings("crates/sim/tests/a.rs", &beside), refused);
    }

    #[test]
    fn a_public_item_of_the_engine_has_docs_and_its_fields_need_none() {
        let path = "crates/engine/src/units.rs";
        let documented = "//! Docs.\n/// A.\n#[derive(Clone)]\npub struct A {\n    pub b: u8,\n}\n";
        assert_eq!(findings(path, documented), [""; 0]);
        let of_many_lines = "//! Docs.\n/// A.\n#[derive(\n    Clone,\n)]\npub struct A;\n";
        assert_eq!(findings(path, of_many_lines), [""; 0]);
        let bare = "//! Docs.\n\n#[derive(Clone)]\npub struct A;\nfn f() {}\n";
        assert_eq!(findings(path, bare), ["crates/engine/src/units.rs:4: a public item without docs"]);
        assert_eq!(findings(PATH, bare), [""; 0]);
    }

    #[test]
    fn a_module_file_without_a_name_is_refused() {
        let path = "crates/sim/src/world/a/mod.rs";
        assert_eq!(findings(path, "//! Docs.\n"), ["crates/sim/src/world/a/mod.rs:1: a file named `mod.rs`"]);
    }
}
