//! What CI runs, in its order, cheapest first: formatting, clippy, tidy, then all tests.
//!
//! The run stops at the first step that fails. Each step is closed with its duration, because a slow CI is found out step by
//! step. The last line is the sum over all test binaries.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::{process, suite, tidy};

/// The steps that need no test to run.
pub(crate) fn check(root: &Path) -> ExitCode {
    exit_code(static_steps(root))
}

pub(crate) fn run(root: &Path) -> ExitCode {
    let started = Instant::now();
    let mut tally = None;
    let succeeded = static_steps(root)
        && step("test", || {
            let run = suite::run(root, &[])?;
            tally = Some(run.tally);
            ensure!(run.succeeded, "there are failing tests");
            Ok(())
        });
    println!("total: {}", seconds(started.elapsed()));
    if let Some(tally) = tally {
        println!("{tally}");
    }
    exit_code(succeeded)
}

fn static_steps(root: &Path) -> bool {
    step("fmt", || process::succeed(process::cargo(root).args(["fmt", "--all", "--check"])))
        && step("clippy", || clippy(root))
        && step("tidy", || tidy::run(root))
}

fn clippy(root: &Path) -> Result<()> {
    // In the release profile, although clippy optimises nothing: build scripts and procedural macros are then the very
    // ones that the tests use. In the dev profile a cold run would compile and run them twice, and with them the C
    // code of SQLite. Warnings are denied here and not by `RUSTFLAGS`, whose change rebuilds the world.
    let mut command = process::cargo(root);
    process::succeed(command.args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--release",
        "--",
        "-D",
        "warnings",
    ]))
}

/// Runs one step between two lines that say what and how long. A failure is told here, where it happened.
fn step(name: &str, body: impl FnOnce() -> Result<()>) -> bool {
    println!("==> {name}");
    let started = Instant::now();
    let outcome = body();
    let took = seconds(started.elapsed());
    match &outcome {
        Ok(()) => println!("==> {name} ok in {took}"),
        Err(error) => println!("==> {name} FAILED in {took}: {error:#}"),
    }
    outcome.is_ok()
}

fn seconds(duration: Duration) -> String {
    format!("{}.{} s", duration.as_secs(), duration.subsec_millis() / 100)
}

fn exit_code(succeeded: bool) -> ExitCode {
    if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_reports_the_outcome_of_its_body() {
        assert!(step("good", || Ok(())));
        assert!(!step("bad", || anyhow::bail!("on purpose")));
    }

    #[test]
    fn durations_are_shown_in_tenths_of_a_second() {
        assert_eq!(seconds(Duration::from_millis(61_049)), "61.0 s");
        assert_eq!(seconds(Duration::from_millis(950)), "0.9 s");
    }
}
