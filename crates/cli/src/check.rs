//! The invariants of a saved state.

use std::process::ExitCode;

use crate::args::CheckArgs;

/// Not built yet.
#[expect(clippy::needless_pass_by_value, reason = "the real one takes what it is given apart")]
pub(crate) fn run(args: CheckArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet: {args:?}")
}
