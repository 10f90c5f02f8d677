//! `wharf`, the one binary: control plane, command line and laboratory.
//!
//! This file reads the arguments and hands over: to [`show`] what asks a control plane, to [`change`] what tells it
//! something, to [`follow`] what stays and looks on, to [`local`] what needs none. Whatever goes wrong comes back here,
//! is told on standard error by [`problem`], and becomes the exit code.

mod args;
mod change;
mod follow;
mod input;
mod local;
mod render;
mod show;

use std::process::ExitCode;

use clap::Parser;
use wharf_api::client::Client;

use args::{Cli, Command, Listed, OVERVIEW, names};
use render::{command_line, output, problem};

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
    let client = || Client::new(server).map(|client| client.as_user(names::user()));
    match command {
        Command::Up(args) => local::up::run(args),
        Command::Policy(args) => local::policy::run(args),
        Command::Sim(args) => local::sim::run(&args),
        Command::Trace(args) => local::trace::run(&args),
        Command::Check(args) => local::check::run(args),
        Command::Bench(args) => local::bench::run(args),
        Command::Completions(args) => local::completions::run(&args),
        Command::Submit(args) => change::submit::run(&client()?, args),
        Command::Plan(args) => show::plan::run(&client()?, args),
        Command::Explain(args) if show::models::is_named(&args.what) => show::models::explain(&args),
        Command::Explain(args) => show::explain::run(&client()?, &args),
        Command::Book(args) => change::booking::book(&client()?, args),
        Command::Cancel(args) => change::cancel::run(&client()?, &args),
        Command::Evict(args) => change::jobs::evict(&client()?, &args),
        Command::Release(args) => change::jobs::release(&client()?, &args),
        Command::Wait(args) => follow::wait::run(&client()?, &args),
        Command::Extend(args) => change::jobs::extend(&client()?, &args),
        Command::Scale(args) => change::jobs::scale(&client()?, &args),
        Command::Replace(args) => change::jobs::replace(&client()?, &args),
        Command::Cordon(args) => change::nodes::cordon(&client()?, &args),
        Command::Uncordon(args) => change::nodes::uncordon(&client()?, &args),
        Command::Drain(args) => change::nodes::drain(&client()?, &args),
        Command::Undrain(args) => change::nodes::undrain(&client()?, &args),
        Command::Maintain(args) => change::nodes::maintain(&client()?, &args),
        Command::SimFault(args) => change::sim_fault::run(&client()?, &args),
        Command::Get(args) if args.what == Listed::Models => show::get::models(&args),
        Command::Get(args) => show::get::run(&client()?, &args),
        Command::Usage(args) => show::usage::run(&client()?, &args),
        Command::Top(args) => follow::top::run(&client()?, &args),
    }
}

fn finish(result: anyhow::Result<ExitCode>, format: args::Format) -> ExitCode {
    result.unwrap_or_else(|error| problem::report(&error, format))
}

/// Help, the version, or what is wrong with the arguments.
fn wrong_arguments(error: &clap::Error) -> ExitCode {
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(usage) = command_line::understood(error, &words) {
        return problem::report(&usage.into(), args::Format::Text);
    }
    // Where it cannot be said, the exit code still is.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(problem::EXIT_USAGE) } else { ExitCode::SUCCESS }
}
