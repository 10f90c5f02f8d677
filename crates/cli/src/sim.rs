//! Cases, traces and random runs against the simulated fleet.

use std::process::ExitCode;

use crate::args::SimArgs;

/// Not built yet.
#[expect(clippy::needless_pass_by_value, reason = "the real one takes what it is given apart")]
pub(crate) fn run(args: SimArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet: {args:?}")
}
