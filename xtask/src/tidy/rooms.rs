//! Rules about the rooms of a crate: a folder says what its code may touch.

use super::Problem;
use super::source::SourceFile;

/// The folders of one crate's source, with how high each stands. Code may use its own folder and lower ones; folders of
/// one level do not know each other.
struct House {
    source: &'static str,
    rooms: &'static [(&'static str, u8)],
}

const HOUSES: [House; 3] = [
    House {
        source: "crates/engine/src/",
        rooms: &[
            ("units", 0),
            ("device", 1),
            ("model", 2),
            ("price", 3),
            ("quota", 3),
            ("state", 4),
            ("check", 5),
            ("plan", 5),
            ("answer", 6),
            ("decide", 7),
        ],
    },
    House {
        source: "crates/sim/src/",
        rooms: &[("world", 0), ("bench", 1), ("judge", 1), ("testing", 1), ("trace", 1)],
    },
    House {
        source: "crates/cli/src/",
        rooms: &[
            ("args", 0),
            ("render", 1),
            ("input", 2),
            ("show", 3),
            ("change", 4),
            ("follow", 4),
            ("local", 4),
        ],
    },
];

impl House {
    fn level(&self, room: &str) -> Option<u8> {
        self.rooms.iter().find(|(known, _)| *known == room).map(|(_, level)| *level)
    }
}

/// The modules of a file, from the crate's root: `plan` and `draft` for `plan/draft.rs`; none for the root itself.
fn modules<'a>(house: &House, path: &'a str) -> Option<Vec<&'a str>> {
    let below = path.strip_prefix(house.source)?.strip_suffix(".rs")?;
    Some(below.split('/').filter(|&module| module != "lib" && module != "main").collect())
}

/// An arrow between two rooms points down.
pub(super) fn rooms_stand_on_lower_ones(file: &SourceFile) -> Vec<Problem> {
    let found = HOUSES.iter().find_map(|house| Some((house, modules(house, &file.path)?)));
    let Some((house, modules)) = found else { return Vec::new() };
    let Some(&own) = modules.first() else { return Vec::new() };
    let hint = "add it to `HOUSES` in xtask/src/tidy/rooms.rs and to the map in ARCHITECTURE.md";
    let Some(own_level) = house.level(own) else {
        return vec![file.failure(1, format!("`{own}` is no room of `{}`", house.source), hint)];
    };
    let stands_below = |other: &str| house.level(other).is_some_and(|level| level < own_level);
    let mut problems = Vec::new();
    for (at, other) in rooms_named(&file.code, modules.len()) {
        let line = file.line_at(at);
        if other != own && !stands_below(other) && !file.is_test_line(line) {
            let what = format!("`{own}` uses `{other}`, which does not stand below it");
            problems.push(file.failure(line, what, "move the code up, or the value that it needs down"));
        }
    }
    problems
}

/// The rooms that code names, with their positions: by `crate::room`, by `crate::{room, room::item}`, or by as many
/// `super::` as lead to the crate's root from a module so deep.
fn rooms_named(code: &str, depth: usize) -> Vec<(usize, &str)> {
    let by_super = "super::".repeat(depth);
    let paths = code.match_indices("crate::").chain(code.match_indices(&by_super));
    let goes_on = |c: char| c == ':' || c == '_' || c.is_alphanumeric();
    let begins = |&(at, _): &(usize, &str)| !code[..at].ends_with(goes_on);
    paths.filter(begins).flat_map(|(at, path)| first_words(code, at + path.len())).collect()
}

/// What a path goes on with at a position: one word, or the first word of each branch of its braces.
fn first_words(code: &str, at: usize) -> Vec<(usize, &str)> {
    if !code[at..].starts_with('{') {
        return word_at(code, at).into_iter().collect();
    }
    let mut depth = 0;
    let mut words = Vec::new();
    for (offset, letter) in code[at..].char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if depth == 1 && matches!(letter, '{' | ',') {
            words.extend(word_at(code, at + offset + 1));
        }
    }
    words
}

/// The word after a position and the white space there. A type, a constant or `self` is no room; nor is another `super`.
fn word_at(code: &str, at: usize) -> Option<(usize, &str)> {
    let rest = code[at..].trim_start();
    let start = code.len() - rest.len();
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
    let word = &rest[..end];
    let is_room = word.starts_with(|c: char| c.is_ascii_lowercase()) && word != "self" && word != "super";
    is_room.then_some((start, word))
}

#[cfg(test)]
mod tests {
    use crate::tidy::tests::findings;

    const STATE: &str = "crates/engine/src/state/jobs.rs";

    fn refused(path: &str, line: usize, own: &str, other: &str) -> String {
        format!("{path}:{line}: `{own}` uses `{other}`, which does not stand below it")
    }

    #[test]
    fn an_arrow_to_a_higher_room_or_one_beside_is_refused() {
        let uses = "//! Docs.\nuse crate::plan::Plan;\nuse crate::units::JobId;\n";
        assert_eq!(findings(STATE, uses), [refused(STATE, 2, "state", "plan")]);
        let beside = "crates/engine/src/check.rs";
        assert_eq!(findings(beside, uses), [refused(beside, 2, "check", "plan")]);
        assert_eq!(findings("crates/engine/src/answer/verdict.rs", uses), [""; 0]);
        assert_eq!(findings("crates/engine/src/plan/draft.rs", uses), [""; 0]);
    }

    #[test]
    fn every_branch_of_braces_is_an_arrow() {
        let uses = "//! Docs.\nuse crate::{\n    decide,\n    model::{job::Job, plan},\n    plan::{self, Plan},\n    \
                    units::JobId,\n};\n";
        assert_eq!(
            findings(STATE, uses),
            [refused(STATE, 3, "state", "decide"), refused(STATE, 5, "state", "plan")]
        );
        assert_eq!(findings(STATE, "//! Docs.\nuse crate::{model::job::Job, units::JobId};\n"), [""; 0]);
    }

    #[test]
    fn a_path_up_to_the_root_is_an_arrow() {
        let uses = "//! Docs.\nuse super::super::plan::Plan;\nuse super::super::units::JobId;\nuse super::fleet::Node;\n";
        assert_eq!(findings(STATE, uses), [refused(STATE, 2, "state", "plan")]);
        let head = "crates/engine/src/state.rs";
        assert_eq!(
            findings(head, "//! Docs.\nuse super::plan::Plan;\n"),
            [refused(head, 2, "state", "plan")]
        );
        let deep = "crates/engine/src/state/ledger/event.rs";
        assert_eq!(findings(deep, "//! Docs.\nuse super::super::fleet::Node;\n"), [""; 0]);
        assert_eq!(
            findings(deep, "//! Docs.\nuse super::super::super::{plan, units};\n"),
            [refused(deep, 2, "state", "plan")]
        );
    }

    #[test]
    fn the_simulator_and_the_command_line_have_rooms_too() {
        let world = "crates/sim/src/world/net.rs";
        let uses = "//! Docs.\nuse crate::testing::pricing::Pricing;\n";
        assert_eq!(findings(world, uses), [refused(world, 2, "world", "testing")]);
        assert_eq!(
            findings("crates/sim/src/testing/random.rs", "//! Docs.\nuse crate::world::net;\n"),
            [""; 0]
        );
        let judge = "crates/sim/src/judge/oracle.rs";
        assert_eq!(findings(judge, uses), [refused(judge, 2, "judge", "testing")]);
        let show = "crates/cli/src/show/get.rs";
        let uses = "//! Docs.\nuse crate::{change::submit, render::output};\n";
        assert_eq!(findings(show, uses), [refused(show, 2, "show", "change")]);
        assert_eq!(findings("crates/cli/src/main.rs", uses), [""; 0]);
    }

    #[test]
    fn tests_may_look_anywhere() {
        let uses = "//! Docs.\n#[cfg(test)]\nmod tests {\n    use crate::plan::Plan;\n}\n";
        assert_eq!(findings(STATE, uses), [""; 0]);
    }

    #[test]
    fn a_folder_without_a_level_is_refused() {
        let expected = ["crates/engine/src/attic/box.rs:1: `attic` is no room of `crates/engine/src/`"];
        assert_eq!(findings("crates/engine/src/attic/box.rs", "//! Docs.\n"), expected);
        let expected = ["crates/sim/src/a.rs:1: `a` is no room of `crates/sim/src/`"];
        assert_eq!(findings("crates/sim/src/a.rs", "//! Docs.\n"), expected);
    }
}
