//! A large fleet under the demo's load, for a while: does it stay within a gigabyte and a core?

use std::time::{Duration, Instant};

use serde::Serialize;
use wharf_api::client::Client;

use super::{Measured, child::Server, rounded};
use crate::local::process::{cpu_seconds_of, memory_peak_of};

/// The promises.
const MEMORY_MAX: u64 = 1_000_000_000;
const CORES_MAX: f64 = 1.0;

#[derive(Debug, Serialize)]
pub(super) struct Soak {
    schema: &'static str,
    fleet: String,
    speed: u64,
    minutes: u64,
    gpus: u64,
    allocated: f64,
    events: u64,
    memory_peak_bytes: Option<u64>,
    cores: Option<f64>,
    decision_ms_p50: Option<f64>,
    decision_ms_p99: Option<f64>,
    memory_bar_bytes: u64,
    cores_bar: f64,
    ok: bool,
}

impl Measured for Soak {
    fn keeps_promise(&self) -> bool {
        self.ok
    }
}

pub(super) fn run(fleet: &str, speed: u64, minutes: u64) -> anyhow::Result<Soak> {
    let dir = tempfile::tempdir()?;
    let speed_text = speed.to_string();
    let begin = Instant::now();
    let server = Server::start(dir.path(), &["--fleet", fleet, "--demo", "--speed", &speed_text])?;
    std::thread::sleep(Duration::from_secs(minutes * 60));
    let summary = Client::new(&server.address)?.summary()?;
    let cores = cpu_seconds_of(&server.pid()).map(|cpu| cpu / begin.elapsed().as_secs_f64());
    let memory = memory_peak_of(&server.pid());
    let loaded = summary.pools.iter().all(|pool| pool.allocated * 10.0 >= f64::from(pool.gpus) * 8.0);
    let within = loaded
        && cores.is_some_and(|cores| cores <= CORES_MAX)
        && memory.is_some_and(|bytes| bytes <= MEMORY_MAX);
    Ok(Soak {
        schema: "wharf.bench.soak.v1",
        fleet: fleet.to_owned(),
        speed,
        minutes,
        gpus: summary.pools.iter().map(|pool| u64::from(pool.gpus)).sum(),
        allocated: rounded(summary.pools.iter().map(|pool| pool.allocated).sum()),
        events: summary.journal.index,
        memory_peak_bytes: memory,
        cores: cores.map(rounded),
        decision_ms_p50: summary.decision_ms.map(|times| times.p50),
        decision_ms_p99: summary.decision_ms.map(|times| times.p99),
        memory_bar_bytes: MEMORY_MAX,
        cores_bar: CORES_MAX,
        ok: within,
    })
}
