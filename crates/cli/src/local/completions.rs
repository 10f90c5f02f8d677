//! `wharf completions`: a script for the shell, made from the same definitions as the parser.

use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::generate;
use clap_complete::shells::{Bash, Fish, Zsh};

use crate::args::{Cli, CompletionArgs, Shell};
use crate::render::output;

/// Runs it.
pub(crate) fn run(args: &CompletionArgs) -> anyhow::Result<ExitCode> {
    let mut command = Cli::command();
    let mut script = Vec::new();
    match args.shell {
        Shell::Bash => generate(Bash, &mut command, "wharf", &mut script),
        Shell::Zsh => generate(Zsh, &mut command, "wharf", &mut script),
        Shell::Fish => generate(Fish, &mut command, "wharf", &mut script),
    }
    output::print(&String::from_utf8(script).context("the script is not text")?)?;
    Ok(ExitCode::SUCCESS)
}
