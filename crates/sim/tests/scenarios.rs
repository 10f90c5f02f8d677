//! Every file in `scenarios/`, and every scenario in the manual, comes out as it is written. `WHARF_BLESS=1` rewrites
//! what comes out differently; a finding fails even then.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use wharf_sim::testing::pricing::Pricing;
use wharf_sim::testing::scenario::{retell, retell_with};

/// Pages with scenarios in them.
const PAGES: [&str; 2] = ["docs/scenarios.md", "docs/rules.md"];
const BEGIN: &str = "```scenario\n";
const END: &str = "```\n";
const STRING: &str = "a string can be written to";

#[test]
fn scenarios_come_out_as_they_are_written() {
    let mut wrong = String::new();
    for path in files() {
        let name = format!("scenarios/{}", path.file_name().unwrap().to_string_lossy());
        let text = fs::read_to_string(&path).unwrap();
        let told = told(&name, &text, &mut wrong);
        if told != text {
            fs::write(&path, told).unwrap();
        }
    }
    all_is_right(&wrong);
}

#[test]
fn the_examples_of_the_manual_come_out_as_they_are_written() {
    let mut wrong = String::new();
    for page in PAGES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
        let text = fs::read_to_string(&path).unwrap();
        let mut parts = text.split(BEGIN);
        let mut woven = parts.next().unwrap_or_default().to_owned();
        for (number, part) in (1..).zip(parts) {
            let (example, rest) = part.split_once(END).expect("a scenario in a page ends");
            let told = told(&format!("{page}, scenario {number}"), example, &mut wrong);
            woven.extend([BEGIN, &told, END, rest]);
        }
        assert!(text.contains(BEGIN), "{page} has scenarios");
        if woven != text {
            fs::write(&path, woven).unwrap();
        }
    }
    all_is_right(&wrong);
}

/// Stories in which the place itself decides who starts next: with prices they may go on otherwise.
const TOLD_BY_PLACES: [&str; 2] = ["scenarios/tightest-node.txt", "scenarios/used-by-others.txt"];

/// Prices decide where work goes, never whether something breaks: every story is also run with those that the market finds and
/// with drawn ones. It is then the same but for the places, and what must not be may not be whatever is told.
#[test]
fn scenarios_hold_with_prices_too() {
    let mut wrong = String::new();
    for path in files() {
        let name = format!("scenarios/{}", path.file_name().unwrap().to_string_lossy());
        let text = fs::read_to_string(&path).unwrap();
        for seed in 1..=5 {
            let told = retell_with(&name, &text, Pricing::by_seed(seed)).unwrap();
            for finding in &told.findings {
                writeln!(wrong, "{name}, prices of seed {seed}: {finding}").expect(STRING);
            }
            if placeless(&told.text) != placeless(&text) && !TOLD_BY_PLACES.contains(&&*name) {
                let difference = difference(&text, &told.text);
                writeln!(wrong, "{name}, prices of seed {seed}, goes on otherwise:\n{difference}")
                    .expect(STRING);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A story without the places that work goes to.
fn placeless(text: &str) -> Vec<String> {
    let told = |line: &str| {
        let line = line.split('#').next().unwrap_or_default().trim();
        let code = line.split(" on n").next().unwrap_or_default();
        code.split(" is promised ").next().unwrap_or_default().to_owned()
    };
    text.lines().map(told).filter(|line| !line.is_empty()).collect()
}

/// The text as it is to be kept: told again where that is blessed, else as it is. What is wrong is added to `wrong`.
fn told(name: &str, text: &str, wrong: &mut String) -> String {
    let bless = std::env::var_os("WHARF_BLESS").is_some_and(|value| value == "1");
    let told = match retell(name, text) {
        Ok(told) => told,
        Err(mistake) => {
            writeln!(wrong, "{mistake}").expect(STRING);
            return text.to_owned();
        }
    };
    for finding in &told.findings {
        writeln!(wrong, "{name}: {finding}").expect(STRING);
    }
    if told.text == text || (bless && told.findings.is_empty()) {
        return told.text;
    }
    writeln!(wrong, "{name} comes out differently:\n{}", difference(text, &told.text)).expect(STRING);
    text.to_owned()
}

fn all_is_right(wrong: &str) {
    assert!(
        wrong.is_empty(),
        "{wrong}\n`cargo xtask bless` writes what happens now; read it before you keep it"
    );
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
        writeln!(text, "  {mark} {line}").expect(STRING);
        a += usize::from(mark != '+');
        b += usize::from(mark != '-');
    }
    text
}
