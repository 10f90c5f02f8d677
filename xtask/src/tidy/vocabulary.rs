//! Rules about the words of the engine: a type name is used once, and public ones come from the glossary.

use std::collections::{BTreeMap, BTreeSet};

use super::Problem;
use super::source::SourceFile;

const SOURCE: &str = "crates/engine/src/";
const GLOSSARY: &str = "ARCHITECTURE.md";

/// A type that is defined somewhere.
struct Definition<'a> {
    file: &'a SourceFile<'a>,
    line: usize,
    name: &'a str,
    is_public: bool,
}

/// Every type of the engine, outside tests.
fn definitions<'a>(files: &'a [SourceFile<'a>]) -> impl Iterator<Item = Definition<'a>> {
    let engine = files.iter().filter(|file| file.path.starts_with(SOURCE));
    engine.flat_map(|file| {
        file.product_code().filter_map(move |(line, code)| {
            let (is_public, name) = definition(code)?;
            Some(Definition { file, line, name, is_public })
        })
    })
}

/// The type that a line defines at the outermost level, and whether other crates may name it.
fn definition(code: &str) -> Option<(bool, &str)> {
    let (visibility, rest) = match code.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => ("pub(", rest.split_once(") ")?.1),
        Some(rest) => ("pub", rest.strip_prefix(' ')?),
        None => ("", code),
    };
    let rest = ["struct ", "enum ", "type ", "trait "].iter().find_map(|word| rest.strip_prefix(word))?;
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
    Some((visibility == "pub", &rest[..end]))
}

/// Two concepts of one name make every sentence about them ambiguous.
pub(super) fn type_names_are_used_once(files: &[SourceFile<'_>]) -> Vec<Problem> {
    let mut first: BTreeMap<&str, String> = BTreeMap::new();
    let mut problems = Vec::new();
    for Definition { file, line, name, .. } in definitions(files) {
        if let Some(other) = first.get(name) {
            let what = format!("the engine has a `{name}` already, in {other}");
            problems.push(file.failure(line, what, "make them one type, or give each an honest name"));
        } else {
            first.insert(name, file.path.clone());
        }
    }
    problems
}

/// A newcomer looks a word up in one place.
pub(super) fn public_types_are_in_the_glossary(files: &[SourceFile<'_>]) -> Vec<Problem> {
    let Some(glossary) = files.iter().find(|file| file.path == GLOSSARY) else { return Vec::new() };
    let known = glossary_words(&glossary.text);
    let unknown = definitions(files).filter(|of| {
        let mut words = camel_words(of.name);
        of.is_public && !words.any(|word| known.contains(&singular(&word)))
    });
    let hint = "add the word to the glossary of ARCHITECTURE.md, or name the type after one that is there";
    unknown
        .map(|of| of.file.failure(of.line, format!("`{}` is not in the glossary", of.name), hint))
        .collect()
}

/// The words in the first column of the tables below the heading.
fn glossary_words(text: &str) -> BTreeSet<String> {
    let below = text.split_once("## Glossary").map_or("", |(_, below)| below);
    let rows = below.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let words = rows.flat_map(|cell| cell.split(|c: char| !c.is_ascii_alphanumeric()));
    words.filter(|word| !word.is_empty()).map(|word| singular(&word.to_ascii_lowercase())).collect()
}

/// `GpuUnits` is `gpu` and `units`.
fn camel_words(name: &str) -> impl Iterator<Item = String> {
    let starts: Vec<usize> =
        name.char_indices().filter(|(_, c)| c.is_ascii_uppercase()).map(|(at, _)| at).collect();
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain([name.len()]).collect();
    let words: Vec<String> =
        starts.into_iter().zip(ends).map(|(start, end)| name[start..end].to_ascii_lowercase()).collect();
    words.into_iter()
}

/// Good enough to compare words by: `policies` and `policy`, `slots` and `slot`.
fn singular(word: &str) -> String {
    match word.strip_suffix("ies") {
        Some(stem) => format!("{stem}y"),
        None => word.trim_end_matches('s').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::new();
        let files: Vec<SourceFile<'_>> =
            files.iter().map(|(path, text)| SourceFile::new(path, (*text).to_owned(), &tree)).collect();
        let rules = [type_names_are_used_once, public_types_are_in_the_glossary];
        rules.iter().flat_map(|rule| rule(&files)).map(|problem| problem.what).collect()
    }

    const GLOSSARY_TEXT: &str = "# A\n## Glossary\n| word | meaning |\n|---|---|\n| Job, Policy | what |\n";

    #[test]
    fn a_name_that_is_used_twice_is_refused() {
        let one = ("crates/engine/src/a.rs", "//! Docs.\nstruct Part;\n");
        let other = ("crates/engine/src/b.rs", "//! Docs.\npub(super) enum Part {}\n");
        let elsewhere = ("crates/sim/src/world/b.rs", "//! Docs.\nstruct Part;\n");
        assert_eq!(findings(&[one, other]), ["the engine has a `Part` already, in crates/engine/src/a.rs"]);
        assert_eq!(findings(&[one, elsewhere]), [""; 0]);
    }

    #[test]
    fn names_in_tests_and_of_associated_types_are_free() {
        let one = ("crates/engine/src/a.rs", "//! Docs.\nimpl Deref for A {\n    type Target = B;\n}\n");
        let other = (
            "crates/engine/src/b.rs",
            "//! Docs.\nstruct Target;\n#[cfg(test)]\nmod tests {\n    struct Target;\n}\n",
        );
        assert_eq!(findings(&[one, other]), [""; 0]);
    }

    #[test]
    fn a_public_type_is_named_after_a_word_of_the_glossary() {
        let known = (
            "crates/engine/src/a.rs",
            "//! Docs.\npub struct JobSpec;\npub enum Policies {}\nstruct Thing;\n",
        );
        let unknown = ("crates/engine/src/b.rs", "//! Docs.\npub struct Thing2;\n");
        let glossary = ("ARCHITECTURE.md", GLOSSARY_TEXT);
        assert_eq!(findings(&[known, glossary]), [""; 0]);
        assert_eq!(findings(&[unknown, glossary]), ["`Thing2` is not in the glossary"]);
    }
}
