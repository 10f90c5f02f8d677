//! `wharf`, the one binary: control plane, command line and laboratory.

mod args;
mod bench;
mod check;
mod demo;
mod sim;
mod up;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

fn main() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        Some(Command::Up(args)) => up::run(args),
        Some(Command::Sim(args)) => sim::run(args),
        Some(Command::Check(args)) => check::run(args),
        Some(Command::Bench(args)) => bench::run(args),
        _ => Ok(ExitCode::SUCCESS),
    }
}
