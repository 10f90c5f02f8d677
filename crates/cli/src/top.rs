//! placeholder
use crate::args::TopArgs;
use std::process::ExitCode;
use wharf_api::client::Client;
pub(crate) fn run(_c: &Client, _a: &TopArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("soon")
}
