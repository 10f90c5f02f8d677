//! Every file in `scenarios/` comes out as it is written. `WHARF_BLESS=1` rewrites what comes out differently; a
//! finding fails even then.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use wharf_sim::scenario::retell;

#[test]
fn scenarios_come_out_as_they_are_written() {
    let bless = std::env::var_os("WHARF_BLESS").is_some_and(|value| value == "1");
    let mut wrong = String::new();
    for path in files() {
        let name = format!("scenarios/{}", path.file_name().unwrap().to_string_lossy());
        let text = fs::read_to_string(&path).unwrap();
        let told = match retell(&name, &text) {
            Ok(told) => told,
            Err(mistake) => {
                writeln!(wrong, "{mistake}").unwrap();
                continue;
            }
        };
        for finding in &told.findings {
            writeln!(wrong, "{name}: {finding}").unwrap();
        }
        if told.text == text {
            continue;
        }
        if bless && told.findings.is_empty() {
            fs::write(&path, told.text).unwrap();
        } else {
            writeln!(wrong, "{name} comes out differently:\n{}", difference(&text, &told.text)).unwrap();
        }
    }
    assert!(
        wrong.is_empty(),
        "{wrong}\n`cargo xtask bless` writes what happens now; read it before you keep it"
    );
}

#[test]
fn the_example_of_the_manual_comes_out_as_it_is_written() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenarios.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("```scenario\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let told = retell("docs/scenarios.md", example).unwrap();
    assert!(told.findings.is_empty(), "{:?}", told.findings);
    assert_eq!(told.text, example, "\n{}", difference(example, &told.text));
}

fn files() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let entries = fs::read_dir(dir).expect("the repository has scenarios");
    let paths = entries.map(|entry| entry.expect("a directory can be listed").path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "txt")).collect();
    files.sort();
    assert!(!files.is_empty(), "there are scenarios");
    files
}

/// The whole text with `-` before lines that do not come out and `+` before those that do instead.
fn difference(written: &str, told: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (written.lines().collect(), told.lines().collect());
    let mut text = String::new();
    let (mut a, mut b) = (0, 0);
    while a < old.len() || b < new.len() {
        let same = a < old.len() && b < new.len() && old[a] == new[b];
        // Only `expect` lines differ, so the next other line is where both go on.
        let dropped = a < old.len() && old[a].starts_with("expect");
        let (mark, line) = if same {
            (' ', old[a])
        } else if dropped {
            ('-', old[a])
        } else {
            ('+', new[b])
        };
        writeln!(text, "  {mark} {line}").expect("a string can be written to");
        a += usize::from(mark != '+');
        b += usize::from(mark != '-');
    }
    text
}
