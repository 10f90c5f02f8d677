//! `wharf`, the one binary: control plane, command line and laboratory.
//!
//! This file reads the arguments and hands over. Commands that talk to a control plane are in [`commands`] and
//! [`top`]; those that are one, or play one, have modules of their own. Whatever goes wrong comes back here, is
//! told on standard error by [`problem`], and becomes the exit code.

mod allocations;
mod args;
mod bench;
mod check;
mod commands;
mod demo;
mod numbers;
mod output;
mod problem;
mod process;
mod sim;
mod table;
mod top;
mod trace;
mod up;
mod usage;

use std::process::ExitCode;

use clap::Parser;
use wharf_api::client::Client;

use args::{Cli, Command, Listed, OVERVIEW};

fn main() -> ExitCode {
    let Cli { server, command } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return wrong_arguments(&error),
    };
    let Some(command) = command else {
        return finish(output::print(OVERVIEW).map(|()| ExitCode::SUCCESS), args::Format::Text);
    };
    let format = command.format();
    finish(run(&server, command), format)
}

fn run(server: &str, command: Command) -> anyhow::Result<ExitCode> {
    let client = || Client::new(server).map(|client| client.as_user(commands::user()));
    match command {
        Command::Up(args) => up::run(args),
        Command::Policy(args) => commands::policy::run(args),
        Command::Sim(args) => sim::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Check(args) => check::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Completions(args) => commands::completions::run(&args),
        Command::Submit(args) => commands::submit::run(&client()?, args),
        Command::Plan(args) => commands::plan::run(&client()?, args),
        Command::Explain(args) if commands::models::is_named(&args.what) => commands::models::explain(&args),
        Command::Explain(args) => commands::explain::run(&client()?, &args),
        Command::Book(args) => commands::booking::book(&client()?, args),
        Command::Cancel(args) => commands::cancel::run(&client()?, &args),
        Command::Evict(args) => commands::levers::evict(&client()?, &args),
        Command::Release(args) => commands::levers::release(&client()?, &args),
        Command::Wait(args) => commands::wait::run(&client()?, &args),
        Command::Extend(args) => commands::levers::extend(&client()?, &args),
        Command::Scale(args) => commands::levers::scale(&client()?, &args),
        Command::Replace(args) => commands::levers::replace(&client()?, &args),
        Command::Cordon(args) => commands::nodes::cordon(&client()?, &args),
        Command::Uncordon(args) => commands::nodes::uncordon(&client()?, &args),
        Command::Drain(args) => commands::nodes::drain(&client()?, &args),
        Command::Undrain(args) => commands::nodes::undrain(&client()?, &args),
        Command::Maintain(args) => commands::nodes::maintain(&client()?, &args),
        Command::SimFault(args) => commands::sim_fault::run(&client()?, &args),
        Command::Get(args) if args.what == Listed::Models => commands::get::models(&args),
        Command::Get(args) => commands::get::run(&client()?, &args),
        Command::Usage(args) => commands::usage::run(&client()?, &args),
        Command::Top(args) => top::run(&client()?, &args),
    }
}

fn finish(result: anyhow::Result<ExitCode>, format: args::Format) -> ExitCode {
    result.unwrap_or_else(|error| problem::report(&error, format))
}

/// Help, the version, or what is wrong with the arguments.
fn wrong_arguments(error: &clap::Error) -> ExitCode {
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(usage) = usage::understood(error, &words) {
        return problem::report(&usage.into(), args::Format::Text);
    }
    // Where it cannot be said, the exit code still is.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(problem::EXIT_USAGE) } else { ExitCode::SUCCESS }
}
