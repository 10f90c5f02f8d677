//! Starting other programs: one place that knows how cargo and git are called, and that echoes every call.

use std::env;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

/// The variable that makes the scenario tests rewrite their expectations.
pub(crate) const BLESS: &str = "WHARF_BLESS";

/// Cargo in the root of the repository. The one that started us, so that a `+toolchain` holds for all steps.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // A forgotten `export WHARF_BLESS=1` would turn every scenario into one that cannot fail.
    command.current_dir(root).env_remove(BLESS);
    command
}

pub(crate) fn git(root: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(root).arg("--no-pager");
    command
}

/// Runs to the end; anything but success is an error that names the command.
pub(crate) fn succeed(command: &mut Command) -> Result<()> {
    echo(command);
    let status = command.status().with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !status.success() {
        bail!("`{}` failed: {status}", shown(command));
    }
    Ok(())
}

/// Runs to the end and returns the program's own verdict.
pub(crate) fn exit_code(command: &mut Command) -> Result<ExitCode> {
    echo(command);
    let status = command.status().with_context(|| format!("cannot start `{}`", shown(command)))?;
    // Killed by a signal, or a code outside of a byte: no meaning to hand on, but no success either.
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

pub(crate) fn echo(command: &Command) {
    println!("$ {}", shown(command));
}

/// The command as one would type it: the program without its directory, then the arguments.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut shown = program.file_stem().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    for arg in command.get_args() {
        // Writing to a `String` cannot fail.
        let _ = write!(shown, " {}", arg.to_string_lossy());
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        let mut command = Command::new("some/where/cargo");
        command.args(["fmt", "--check"]);
        assert_eq!(shown(&command), "cargo fmt --check");
    }

    #[test]
    fn a_failing_program_is_an_error_that_names_it() {
        let error = succeed(Command::new("git").arg("no-such-subcommand").stderr(Stdio::null())).unwrap_err();
        assert!(error.to_string().starts_with("`git no-such-subcommand` failed"), "{error}");
    }

    #[test]
    fn a_program_that_does_not_exist_is_an_error_that_names_it() {
        let error = succeed(&mut Command::new("no-such-program-anywhere")).unwrap_err();
        assert_eq!(error.to_string(), "cannot start `no-such-program-anywhere`");
    }
}
