//! Rules about what a crate may know: which crates it stands on, and how pure the engine is.

use super::Problem;
use super::source::{SourceFile, words};

/// How far from pure: 0 is a function of its arguments, 1 does blocking work through traits, 2 talks to the world.
const LEVELS: [(&str, u8); 9] = [
    ("engine", 0),
    ("controller", 1),
    ("sim", 1),
    ("api", 2),
    ("server", 2),
    ("k8s", 2),
    ("agent", 2),
    ("gateway", 2),
    ("cli", 2),
];

const ENGINE_SOURCE: &str = "crates/engine/src/";

fn level(name: &str) -> Option<u8> {
    LEVELS.iter().find(|(known, _)| *known == name).map(|(_, level)| *level)
}

/// A crate may stand on crates of its own level or a lower one. Development dependencies are free.
pub(super) fn arrows_point_down(file: &SourceFile) -> Vec<Problem> {
    let name = file.path.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/Cargo.toml"));
    let Some(name) = name else { return Vec::new() };
    let hint = "add it to `LEVELS` in xtask/src/tidy/crates.rs and to the list in CONTRIBUTING.md";
    let Some(own) = level(name) else {
        return vec![file.failure(1, format!("crate `{name}` has no level"), hint)];
    };
    let mut problems = Vec::new();
    for (line, target) in arrows(&file.text) {
        let Some(other) = level(target) else {
            problems.push(file.failure(line, format!("crate `{target}` has no level"), hint));
            continue;
        };
        if other > own {
            let what = format!("`{name}` (level {own}) depends on `{target}` (level {other})");
            let hint = "move the code down, or pass in a value or a trait that the lower crate owns";
            problems.push(file.failure(line, what, hint));
        }
    }
    problems
}

/// The workspace crates that a manifest depends on, with the line. The name is looked for in the whole line, since a
/// dependency can be renamed: `world = { package = "wharf-sim" }`.
fn arrows(manifest: &str) -> Vec<(usize, &str)> {
    let mut arrows = Vec::new();
    let mut in_dependencies = false;
    for (line, text) in (1..).zip(manifest.lines()) {
        let text = text.split('#').next().unwrap_or_default().trim();
        if let Some(section) = text.strip_prefix('[') {
            in_dependencies = section.contains("dependencies") && !section.contains("dev-dependencies");
        }
        if in_dependencies {
            let names = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'));
            arrows.extend(names.filter_map(|name| name.strip_prefix("wharf-")).map(|name| (line, name)));
        }
    }
    arrows
}

pub(super) fn engine_is_no_std(file: &SourceFile) -> Vec<Problem> {
    if !file.path.starts_with(ENGINE_SOURCE) {
        return Vec::new();
    }
    let mut problems = Vec::new();
    if file.path == format!("{ENGINE_SOURCE}lib.rs") && !file.code.contains("#![no_std]") {
        let hint = "add `#![no_std]` and `extern crate alloc;`: the engine has no clock, file or thread";
        problems.push(file.failure(1, "the engine is not `#![no_std]`".to_owned(), hint));
    }
    for (line, code) in file.product_code() {
        if words(code).any(|(_, word)| word == "std") {
            let hint = "take it from `core` or `alloc`; time, seed and policy are arguments";
            problems.push(file.failure(line, "the engine uses `std`".to_owned(), hint));
        }
    }
    problems
}

/// The same journal must give the same state on any machine, which rounding does not promise.
pub(super) fn engine_has_no_floats(file: &SourceFile) -> Vec<Problem> {
    if !file.path.starts_with(ENGINE_SOURCE) {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (line, code) in file.product_code() {
        let is_float = |(at, word)| is_float_word(word) || is_fraction(code, at, word);
        if words(code).any(is_float) {
            let hint = "count in integers of a small unit; compare ratios by multiplying across";
            problems.push(file.failure(line, "the engine uses floating point".to_owned(), hint));
        }
    }
    problems
}

/// True for `f64`, `1f64` and `1e9`; not for `0x1f64`, nor for a name that merely ends so.
fn is_float_word(word: &str) -> bool {
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(is_digit);
    let without_suffix = word.strip_suffix("f32").or_else(|| word.strip_suffix("f64"));
    let has_suffix = without_suffix.is_some_and(|number| number.is_empty() || is_number(number));
    let has_exponent = word.split_once(['e', 'E']).is_some_and(|(a, b)| is_number(a) && is_number(b));
    has_suffix || has_exponent
}

fn is_digit(byte: u8) -> bool {
    byte.is_ascii_digit() || byte == b'_'
}

/// True for `1.5`, where the word is the `1`; not for `1..5`, `1.max(5)` or the `0` in `pair.0.1`.
fn is_fraction(code: &str, at: usize, word: &str) -> bool {
    let is_field = code[..at].ends_with('.') && !code[..at].ends_with("..");
    let after = code[at + word.len()..].strip_prefix('.');
    let has_fraction = after.is_some_and(|after| after.starts_with(|c: char| c.is_ascii_digit()));
    word.bytes().all(is_digit) && !is_field && has_fraction
}

#[cfg(test)]
mod tests {
    use crate::tidy::tests::findings;

    const ENGINE: &str = "crates/engine/src/plan.rs";

    #[test]
    fn an_arrow_upwards_is_refused() {
        let manifest = "[dependencies]\nwharf-engine.workspace = true\nwharf-sim.workspace = true\n";
        let expected = ["crates/engine/Cargo.toml:3: `engine` (level 0) depends on `sim` (level 1)"];
        assert_eq!(findings("crates/engine/Cargo.toml", manifest), expected);
        assert_eq!(findings("crates/controller/Cargo.toml", manifest), [""; 0]);
        assert_eq!(findings("crates/server/Cargo.toml", manifest), [""; 0]);
    }

    #[test]
    fn an_arrow_upwards_is_seen_in_every_spelling() {
        let manifests = [
            "[dependencies]\nwharf-api = { path = \"../api\" }\n",
            "[dependencies]\nwire = { package = \"wharf-api\", path = \"../api\" }\n",
            "\n[dependencies.wharf-api]\nworkspace = true\n",
            "[target.'cfg(unix)'.dependencies]\nwharf-api.workspace = true\n",
            "[build-dependencies]\nwharf-api.workspace = true\n",
        ];
        for manifest in manifests {
            let expected = ["crates/sim/Cargo.toml:2: `sim` (level 1) depends on `api` (level 2)"];
            assert_eq!(findings("crates/sim/Cargo.toml", manifest), expected, "{manifest}");
        }
    }

    #[test]
    fn development_dependencies_and_comments_are_no_arrows() {
        let manifest = "[package]\nname = \"wharf-sim\"\n[dependencies]\n# wharf-api\nserde = \"1\" # wharf-api\n\
            [dev-dependencies]\nwharf-api.workspace = true\n";
        assert_eq!(findings("crates/sim/Cargo.toml", manifest), [""; 0]);
    }

    #[test]
    fn a_crate_without_a_level_is_refused() {
        let expected = ["crates/novel/Cargo.toml:1: crate `novel` has no level"];
        assert_eq!(findings("crates/novel/Cargo.toml", "[dependencies]\n"), expected);
        let manifest = "[dependencies]\nwharf-novel.workspace = true\n";
        let expected = ["crates/cli/Cargo.toml:2: crate `novel` has no level"];
        assert_eq!(findings("crates/cli/Cargo.toml", manifest), expected);
    }

    #[test]
    fn an_engine_with_std_is_refused() {
        let path = "crates/engine/src/lib.rs";
        assert_eq!(findings(path, "//! Docs.\n#![no_std]\n"), [""; 0]);
        let expected = ["crates/engine/src/lib.rs:1: the engine is not `#![no_std]`"];
        assert_eq!(findings(path, "//! Docs.\n// #![no_std]\n"), expected);
    }

    #[test]
    fn a_use_of_std_in_the_engine_is_refused_outside_tests() {
        for line in ["use std::fs;", "let a = ::std::fs::read;", "extern crate std;"] {
            let expected = ["crates/engine/src/plan.rs:2: the engine uses `std`"];
            assert_eq!(findings(ENGINE, &format!("//! Docs.\n{line}\n")), expected, "{line}");
        }
        let fine =
            "//! Docs.\nuse core::fmt; // not std::fmt\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
        assert_eq!(findings(ENGINE, fine), [""; 0]);
        assert_eq!(findings("crates/sim/src/world/a.rs", "//! Docs.\nuse std::fs;\n"), [""; 0]);
    }

    #[test]
    fn a_float_in_the_engine_is_refused() {
        for line in ["fn a(b: f64) {}", "let a: f32;", "let a = 1f64;", "let a = 0.5;", "for a in 1..2.5 {}"]
        {
            let expected = ["crates/engine/src/plan.rs:2: the engine uses floating point"];
            assert_eq!(findings(ENGINE, &format!("//! Docs.\n{line}\n")), expected, "{line}");
        }
        let fine =
            "//! Docs.\nlet a = (b.0.1, c[0..10], 1.max(2), \"0.5\", 0x1f64, 1usize, buf32, 0xe1); // f64\n";
        assert_eq!(findings(ENGINE, fine), [""; 0]);
        assert_eq!(findings("crates/sim/src/world/a.rs", "//! Docs.\nlet a = 0.5;\n"), [""; 0]);
    }
}
