//! From the start of the program to the first answer that it is ready.

use std::time::{Duration, Instant};

use serde::Serialize;
use wharf_api::client::Client;

use super::{Measured, child::Server, percentile, rounded};

/// The promise.
const BAR_S: f64 = 1.0;

#[derive(Debug, Serialize)]
pub(super) struct Start {
    schema: &'static str,
    runs: u64,
    fresh_s_p50: f64,
    fresh_s_max: f64,
    again_s_p50: f64,
    again_s_max: f64,
    bar_s: f64,
    ok: bool,
}

impl Measured for Start {
    fn keeps_promise(&self) -> bool {
        self.ok
    }
}

/// Starts on a fresh directory and again on the same one.
pub(super) fn run(runs: u64) -> anyhow::Result<Start> {
    let (mut fresh, mut again) = (Vec::new(), Vec::new());
    for _ in 0..runs.max(1) {
        let dir = tempfile::tempdir()?;
        fresh.push(once(dir.path())?);
        again.push(once(dir.path())?);
    }
    fresh.sort_by(f64::total_cmp);
    again.sort_by(f64::total_cmp);
    let worst = percentile(&fresh, 100).max(percentile(&again, 100));
    Ok(Start {
        schema: "wharf.bench.start.v1",
        runs,
        fresh_s_p50: rounded(percentile(&fresh, 50)),
        fresh_s_max: rounded(percentile(&fresh, 100)),
        again_s_p50: rounded(percentile(&again, 50)),
        again_s_max: rounded(percentile(&again, 100)),
        bar_s: BAR_S,
        ok: worst <= BAR_S,
    })
}

fn once(data: &std::path::Path) -> anyhow::Result<f64> {
    let begin = Instant::now();
    let server = Server::start(data, &[])?;
    let client = Client::new(&server.address)?;
    // The policy is in force when it is ready; `/v1/policy` answers only then with a version.
    while client.policy().map_or(true, |policy| policy.version == 0) {
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(begin.elapsed().as_secs_f64())
}
