//! Measurements of what the specification promises.

use std::process::ExitCode;

use crate::args::BenchArgs;

/// Not built yet.
#[expect(clippy::needless_pass_by_value, reason = "the real one takes what it is given apart")]
pub(crate) fn run(args: BenchArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet: {args:?}")
}
