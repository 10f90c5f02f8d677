//! The README's tour, typed by a machine: every command in a `console` block gives the output printed there.
//!
//! `…` in the README stands for whatever differs from run to run.

use std::path::PathBuf;

use crate::server::{Server, eventually, wharf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Commands of the console blocks, each with the lines printed below it.
fn tour(readme: &str) -> Vec<(String, Vec<String>)> {
    let mut steps: Vec<(String, Vec<String>)> = Vec::new();
    let mut inside = false;
    for line in readme.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if inside {
            match (line.strip_prefix("$ wharf "), steps.last_mut()) {
                (Some(command), _) => steps.push((command.to_owned(), Vec::new())),
                (None, Some((_, output))) => output.push(line.to_owned()),
                (None, None) => panic!("a console block begins with a command, not {line:?}"),
            }
        }
    }
    steps
}

fn matches(expected: &str, said: &str) -> bool {
    let mut rest = said;
    for (number, part) in expected.split('…').enumerate() {
        let Some(at) = rest.find(part) else { return false };
        if number == 0 && at != 0 {
            return false;
        }
        rest = &rest[at + part.len()..];
    }
    rest.is_empty() || expected.ends_with('…')
}

#[test]
fn the_tour_of_the_readme_comes_out_as_printed() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let steps = tour(&readme);
    assert!(steps.len() >= 5, "the tour has its commands");
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    for (command, expected) in steps {
        let args: Vec<&str> = command.split(' ').collect();
        let run = || {
            let output = wharf()
                .env("WHARF_SERVER", &server.address)
                .current_dir(root())
                .args(&args)
                .output()
                .unwrap();
            let said = if output.stdout.is_empty() { output.stderr } else { output.stdout };
            String::from_utf8(said).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let agrees = |said: &[String]| {
            said.len() == expected.len() && expected.iter().zip(said).all(|(line, said)| matches(line, said))
        };
        let said = run();
        // Looking may come a moment before the simulated devices report; asking again does no harm.
        let looks = args[0] == "get";
        if looks && !agrees(&said) {
            eventually(&command, || agrees(&run()).then_some(()));
            continue;
        }
        assert!(agrees(&said), "$ wharf {command}\n{}\nis not\n{}", said.join("\n"), expected.join("\n"));
    }
}

#[test]
fn the_two_commands_of_the_readme_are_the_ones_that_exist() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.contains("    cargo run --release -- up "));
    assert!(readme.contains("    cargo xtask ci "));
    let ci = std::fs::read_to_string(root().join(".ci/run")).unwrap();
    assert!(ci.contains("cargo xtask ci"), "CI runs the README's command: {ci}");
}
