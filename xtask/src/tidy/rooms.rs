//! Rules about the rooms of the engine: a folder says what its code may touch.

use super::Problem;
use super::source::SourceFile;

const SOURCE: &str = "crates/engine/src/";

/// The folders of the engine, with how high each stands. Code may use its own folder and lower ones; folders of one
/// level do not know each other.
const ROOMS: [(&str, u8); 10] = [
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
];

fn level(room: &str) -> Option<u8> {
    ROOMS.iter().find(|(known, _)| *known == room).map(|(_, level)| *level)
}

/// The folder below the engine's source that a file is in; `plan` for `plan.rs` and for `plan/draft.rs`.
fn room_of(path: &str) -> Option<&str> {
    let below = path.strip_prefix(SOURCE)?.strip_suffix(".rs")?;
    Some(below.split('/').next().unwrap_or(below)).filter(|&room| room != "lib")
}

/// An arrow between two rooms points down.
pub(super) fn rooms_stand_on_lower_ones(file: &SourceFile) -> Vec<Problem> {
    let Some(own) = room_of(&file.path) else { return Vec::new() };
    let hint = "add it to `ROOMS` in xtask/src/tidy/rooms.rs and to the map in ARCHITECTURE.md";
    let Some(own_level) = level(own) else {
        return vec![file.failure(1, format!("`{own}` is no room of the engine"), hint)];
    };
    let mut problems = Vec::new();
    for (line, code) in file.product_code() {
        for other in rooms_named(code).filter(|&other| other != own) {
            if level(other).is_none_or(|level| level >= own_level) {
                let what = format!("`{own}` uses `{other}`, which does not stand below it");
                let hint = "move the code up, or the value that it needs down";
                problems.push(file.failure(line, what, hint));
            }
        }
    }
    problems
}

/// The rooms that a line names by `crate::room`.
fn rooms_named(code: &str) -> impl Iterator<Item = &str> {
    code.split("crate::").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        Some(&rest[..end]).filter(|room| !room.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use crate::tidy::tests::findings;

    #[test]
    fn an_arrow_to_a_higher_room_or_one_beside_is_refused() {
        let uses = "//! Docs.\nuse crate::plan::Plan;\nuse crate::units::JobId;\n";
        let state = "crates/engine/src/state/jobs.rs";
        assert_eq!(
            findings(state, uses),
            [format!("{state}:2: `state` uses `plan`, which does not stand below it")]
        );
        let beside = "crates/engine/src/check.rs";
        assert_eq!(
            findings(beside, uses),
            [format!("{beside}:2: `check` uses `plan`, which does not stand below it")]
        );
        assert_eq!(findings("crates/engine/src/answer/verdict.rs", uses), [""; 0]);
        assert_eq!(findings("crates/engine/src/plan/draft.rs", uses), [""; 0]);
    }

    #[test]
    fn tests_may_look_anywhere() {
        let uses = "//! Docs.\n#[cfg(test)]\nmod tests {\n    use crate::plan::Plan;\n}\n";
        assert_eq!(findings("crates/engine/src/state/jobs.rs", uses), [""; 0]);
    }

    #[test]
    fn a_folder_without_a_level_is_refused() {
        let expected = ["crates/engine/src/attic/box.rs:1: `attic` is no room of the engine"];
        assert_eq!(findings("crates/engine/src/attic/box.rs", "//! Docs.\n"), expected);
    }
}
