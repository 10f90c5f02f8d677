//! Wharf's development tasks, started with `cargo xtask`.
//!
//! Each task is a thin layer over cargo, git or the `wharf` binary: what it runs is echoed, so that anyone can type it by
//! hand. The one task with a mind of its own is `tidy`, which holds the code to the style rules that neither rustfmt nor
//! clippy know. There is no argument parser on purpose: a task has a name, and what follows goes to the program behind it.

mod ci;
mod process;
mod suite;
mod tidy;

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

const HELP: &str = "\
Development tasks of Wharf, the control plane and scheduler for GPU fleets.

New here? Run `cargo xtask test` first: it builds everything and ends with `N passed, 0 failed`.
Then read CONTRIBUTING.md. While you work, `cargo test -p wharf-engine` answers in seconds.

  cargo xtask check          formatting, clippy and tidy, no tests: before every commit
  cargo xtask test [ARGS]    all tests, optimised; ARGS go to `cargo test`, for example a test name
  cargo xtask ci             all that CI runs, in its order: before you ask for a review

  cargo xtask sim [ARGS]     `wharf sim ARGS`; alone: a short run with faults and a fresh seed
  cargo xtask bench [ARGS]   `wharf bench ARGS`, optimised; alone: decisions, packing and slices, all of it
  cargo xtask bless          rewrite the expectations in scenarios/ and docs/ and show which ones changed
  cargo xtask tidy           only our own style rules: sizes, names, crate levels, links
";

/// Long enough to meet every fault, short enough to wait for.
const SIM_STEPS: &str = "2000";

/// What has a promised number and is measured in a few minutes.
const BENCHES: [&str; 13] = [
    "engine --case fill",
    "engine --case reclaim-small",
    "engine --case reclaim-gang",
    "engine --case impossible",
    "engine --case reservations",
    "engine --case burst",
    "placement --trace all --columns all",
    "mig --mix small --load 1.00",
    "mig --mix mixed --load 1.00",
    "mig --mix large --load 1.00",
    "mig --mix small --load 1.05",
    "mig --mix mixed --load 1.05",
    "mig --mix large --load 1.05",
];

/// Where the packing traces are expected; they are not ours to hand on.
const TRACES: &str = "../shared/traces";

/// The exit code for a command line that makes no sense, the same as in `wharf` itself.
const EXIT_USAGE: u8 = 64;

fn main() -> ExitCode {
    let mut args = env::args_os().skip(1);
    let task = args.next();
    let args: Vec<OsString> = args.collect();
    run(task, &args).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(task: Option<OsString>, args: &[OsString]) -> Result<ExitCode> {
    let root = root()?;
    let task = task.unwrap_or_else(|| "help".into());
    let task = task.to_string_lossy();
    if !args.is_empty() && matches!(&*task, "check" | "bless" | "tidy" | "ci") {
        return Ok(refuse(&format!("`{task}` takes no arguments")));
    }
    match &*task {
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        "check" => Ok(ci::check(root)),
        "test" => test(root, args),
        "ci" => Ok(ci::run(root)),
        "sim" if args.is_empty() => sim_with_fresh_seed(root),
        "bench" if args.is_empty() => bench_all(root),
        "sim" | "bench" => wharf(root, &task, args),
        "bless" => bless(root),
        "tidy" => tidy::run(root).map(|()| ExitCode::SUCCESS),
        unknown => Ok(refuse(&format!("there is no task `{unknown}`"))),
    }
}

fn refuse(why: &str) -> ExitCode {
    eprintln!("error: {why}; `cargo xtask` lists what there is");
    ExitCode::from(EXIT_USAGE)
}

/// The repository's root. The alias always builds xtask from the checkout it is run in, so the
/// path known at build time is the right one whatever the current directory is.
fn root() -> Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask does not lie in a repository")
}

fn test(root: &Path, args: &[OsString]) -> Result<ExitCode> {
    let run = suite::run(root, args)?;
    println!("{}", run.tally);
    Ok(if run.succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs `wharf` and hands on its exit code, because that code has a meaning.
fn wharf(root: &Path, subcommand: &str, args: &[OsString]) -> Result<ExitCode> {
    let mut command = process::cargo(root);
    command
        .args(["run", "--release", "--package", "wharf-cli", "--bin", "wharf", "--", subcommand])
        .args(args);
    process::exit_code(&mut command)
}

/// The seed comes from the clock and is echoed with the command: a failure can be replayed.
fn sim_with_fresh_seed(root: &Path) -> Result<ExitCode> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    let seed = now.as_secs().to_string();
    wharf(root, "sim", &["--random", &seed, "--steps", SIM_STEPS].map(OsString::from))
}

/// Everything is measured, also after something that misses its bar.
fn bench_all(root: &Path) -> Result<ExitCode> {
    let mut kept = true;
    for bench in BENCHES {
        if bench.starts_with("placement") && !root.join(TRACES).is_dir() {
            println!("skipped: wharf bench {bench}: {TRACES} is not there");
            continue;
        }
        let args: Vec<OsString> = bench.split(' ').chain(["-o", "json"]).map(OsString::from).collect();
        kept &= wharf(root, "bench", &args)? == ExitCode::SUCCESS;
    }
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn bless(root: &Path) -> Result<ExitCode> {
    let mut command = process::cargo(root);
    command.args(["test", "--release", "--package", "wharf-sim", "--test", "scenarios"]);
    process::succeed(command.env(process::BLESS, "1"))?;
    process::succeed(process::git(root).args(["diff", "--stat", "--", "scenarios", "docs"]))?;
    // `git diff` is silent about files that git does not know yet, such as a scenario just written.
    process::succeed(process::git(root).args([
        "ls-files",
        "--others",
        "--exclude-standard",
        "--",
        "scenarios",
    ]))?;
    Ok(ExitCode::SUCCESS)
}
