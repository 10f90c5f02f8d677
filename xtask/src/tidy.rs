//! The style rules that neither rustfmt nor clippy know, as plain functions over one file.
//!
//! A rule looks at a file and returns the problems it sees. All rules are in `RULES`, and tests go through the same list, so a
//! rule that is written but not listed fails its test. Rust is read as lines and words with comments and literals
//! blanked out, not as a syntax tree: a parser would cost more build time than all of xtask.

mod crates;
mod documents;
mod mask;
mod rooms;
mod shape;
mod source;
mod vocabulary;
mod wording;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::process;
use source::SourceFile;

/// Every rule. Order decides only the order in which the problems of one file are printed.
const RULES: [fn(&SourceFile) -> Vec<Problem>; 16] = [
    shape::file_begins_with_docs,
    shape::functions_fit_a_screen,
    shape::files_stay_small,
    shape::modules_are_files_with_a_name,
    shape::public_items_have_docs,
    crates::arrows_point_down,
    rooms::rooms_stand_on_lower_ones,
    crates::engine_is_no_std,
    crates::engine_has_no_floats,
    wording::lints_are_not_silenced_without_a_reason,
    wording::names_say_something,
    wording::unwrap_is_for_tests,
    wording::paths_hold_on_every_machine,
    documents::links_lead_somewhere,
    documents::files_on_the_map_exist,
    documents::decisions_have_their_four_parts,
];

/// A rule that looks at all files together.
type RuleOfAll = fn(&[SourceFile<'_>]) -> Vec<Problem>;

/// Every such rule.
const RULES_OF_ALL: [RuleOfAll; 2] =
    [vocabulary::type_names_are_used_once, vocabulary::public_types_are_in_the_glossary];

/// The paths of all files in the repository, relative to its root, with `/` on every system.
type Tree = BTreeSet<String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Severity {
    /// Worth a thought; does not fail.
    Note,
    Failure,
}

/// Something that a rule does not like, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Problem {
    path: String,
    line: usize,
    severity: Severity,
    what: String,
    hint: &'static str,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, severity, what, hint } = self;
        let note = match severity {
            Severity::Note => "note: ",
            Severity::Failure => "",
        };
        write!(f, "{path}:{line}: {note}{what}\n    {hint}")
    }
}

/// Checks every file of the repository and prints what was found.
pub(crate) fn run(root: &Path) -> Result<()> {
    let tree = tree(root)?;
    let mut files = Vec::new();
    for path in &tree {
        let bytes = fs::read(root.join(path)).with_context(|| format!("cannot read {path}"))?;
        // What is not text, a picture for example, has no style.
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(SourceFile::new(path, text, &tree));
        }
    }
    let mut problems: Vec<Problem> = files.iter().flat_map(check).collect();
    problems.extend(RULES_OF_ALL.iter().flat_map(|rule| rule(&files)));
    for problem in &problems {
        println!("{problem}");
    }
    let failures = problems.iter().filter(|problem| problem.severity == Severity::Failure).count();
    println!("tidy: {} files; failures: {failures}, notes: {}", tree.len(), problems.len() - failures);
    ensure!(failures == 0, "tidy found something to mend, listed above");
    Ok(())
}

fn check(file: &SourceFile<'_>) -> Vec<Problem> {
    RULES.iter().flat_map(|rule| rule(file)).collect()
}

/// Files that git tracks or would track. New files count, so that a problem is seen before the commit.
fn tree(root: &Path) -> Result<Tree> {
    let mut git = process::git(root);
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = git.output().context("cannot start git, which knows what files there are")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{}` failed: {}", process::shown(&git), complaint.trim());
    let paths = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    // A file that is deleted but not yet committed as such is still listed by git.
    let present = paths.split_terminator('\0').filter(|path| root.join(path).is_file());
    Ok(present.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What all rules together say about a file, one `path:line: what` each. `others` are further files in the repository.
    pub(super) fn findings_among(path: &str, text: &str, others: &[&str]) -> Vec<String> {
        let tree = others.iter().copied().chain([path]).map(str::to_owned).collect();
        let problems = check(&SourceFile::new(path, text.to_owned(), &tree));
        let first_line = |problem: &Problem| problem.to_string().lines().next().map(str::to_owned);
        problems.iter().filter_map(first_line).collect()
    }

    pub(super) fn findings(path: &str, text: &str) -> Vec<String> {
        findings_among(path, text, &[])
    }

    #[test]
    fn a_problem_names_file_line_what_and_what_to_do() {
        let tree = Tree::new();
        let file = SourceFile::new("crates/sim/src/world/a.rs", "fn f() {}\n".to_owned(), &tree);
        let shown: Vec<String> = check(&file).iter().map(Problem::to_string).collect();
        let expected = "crates/sim/src/world/a.rs:1: the file does not begin with `//!`\n    \
            say on the first lines what the module is for, how it works and what it leaves out";
        assert_eq!(shown, [expected]);
    }

    #[test]
    fn files_known_to_git_are_listed_with_paths_from_the_root() {
        let tree = tree(crate::root().unwrap()).unwrap();
        assert!(tree.contains("xtask/src/tidy.rs"));
        assert!(!tree.iter().any(|path| path.starts_with("target/")));
    }
}
