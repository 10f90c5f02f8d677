//! All in one: control plane, world and API in this process.

use std::process::ExitCode;

use crate::args::UpArgs;

/// Not built yet.
#[expect(clippy::needless_pass_by_value, reason = "the real one takes what it is given apart")]
pub(crate) fn run(args: UpArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet: {args:?}")
}
