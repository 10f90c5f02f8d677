//! From submission to durable decision, through HTTP, at a steady rate; beside it, what a sync of this disk costs.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use wharf_api::client::Client;
use wharf_api::file::job::JobFlags;

use super::{Measured, child::Server, percentile, rounded};

/// Connections that share the rate.
const CLIENTS: u64 = 4;
/// How often the disk is probed beside the load.
const PROBE_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug, Serialize)]
pub(super) struct Submit {
    schema: &'static str,
    rate: u64,
    seconds: u64,
    submitted: usize,
    refused: usize,
    latency_ms_p50: f64,
    latency_ms_p99: f64,
    latency_ms_max: f64,
    /// Of that, from arrival at the desk to commit.
    desk_ms_p50: Option<f64>,
    desk_ms_p99: Option<f64>,
    fsync_ms_p50: f64,
    fsync_ms_p99: f64,
    bar_ms: f64,
    ok: bool,
}

impl Measured for Submit {
    fn keeps_promise(&self) -> bool {
        self.ok
    }
}

pub(super) fn run(rate: u64, seconds: u64) -> anyhow::Result<Submit> {
    let dir = tempfile::tempdir()?;
    let server = Server::start(&dir.path().join("data"), &["--fleet", "pod"])?;
    let done = AtomicBool::new(false);
    let (loads, probes) = std::thread::scope(|scope| {
        let probe = scope.spawn(|| probe(dir.path(), &done));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let address = &server.address;
                scope.spawn(move || load(address, client, rate, seconds))
            })
            .collect();
        let loads: Vec<_> = clients.into_iter().map(|client| client.join().expect("a client ends")).collect();
        done.store(true, Ordering::Release);
        (loads, probe.join().expect("the probe ends"))
    });
    let desk = Client::new(&server.address)?.summary()?.decision_ms;
    let mut latencies = Vec::new();
    let mut refused = 0;
    for load in loads {
        let (ours, no) = load?;
        latencies.extend(ours);
        refused += no;
    }
    let mut syncs = probes?;
    latencies.sort_by(f64::total_cmp);
    syncs.sort_by(f64::total_cmp);
    let bar = 2.0 + 2.0 * percentile(&syncs, 99);
    let p99 = percentile(&latencies, 99);
    Ok(Submit {
        schema: "wharf.bench.submit.v1",
        rate,
        seconds,
        submitted: latencies.len(),
        refused,
        latency_ms_p50: rounded(percentile(&latencies, 50)),
        latency_ms_p99: rounded(p99),
        latency_ms_max: rounded(percentile(&latencies, 100)),
        desk_ms_p50: desk.map(|times| times.p50),
        desk_ms_p99: desk.map(|times| times.p99),
        fsync_ms_p50: rounded(percentile(&syncs, 50)),
        fsync_ms_p99: rounded(percentile(&syncs, 99)),
        bar_ms: rounded(bar),
        ok: p99 <= bar && refused == 0,
    })
}

/// One connection's part of the load: submissions at fixed moments, whatever the answers take.
fn load(address: &str, client: u64, rate: u64, seconds: u64) -> anyhow::Result<(Vec<f64>, usize)> {
    let connection = Client::new(address)?;
    let gap =
        Duration::from_secs(1).mul_f64(f64::from(u32::try_from(CLIENTS)?) / f64::from(u32::try_from(rate)?));
    let begin =
        Instant::now() + gap.mul_f64(f64::from(u32::try_from(client)?) / f64::from(u32::try_from(CLIENTS)?));
    let (mut latencies, mut refused) = (Vec::new(), 0);
    for number in 0..rate * seconds / CLIENTS {
        let due = begin + gap * u32::try_from(number)?;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let job = JobFlags {
            name: Some(format!("bench-{client}-{number}")),
            tenant: Some("lab/nlp".to_owned()),
            gpus: Some("1".to_owned()),
            duration: Some("500ms".to_owned()),
            ..JobFlags::default()
        };
        let job = job.job()?;
        match connection.submit(&job, &format!("{client}-{number}")) {
            // From the moment it was due: an answer that is late makes the next one late too.
            Ok(_) => latencies.push(due.elapsed().as_secs_f64() * 1000.0),
            Err(_) => refused += 1,
        }
    }
    Ok((latencies, refused))
}

/// What writing a page and waiting for the disk costs, in milliseconds, while the load runs. Measured like the load,
/// from the moment it was due: a disk that stalls for a tenth of a second is slow for everyone who comes meanwhile.
fn probe(dir: &std::path::Path, done: &AtomicBool) -> anyhow::Result<Vec<f64>> {
    let mut file = File::create(dir.join("probe"))?;
    let page = [7; 4096];
    let mut times = Vec::new();
    let mut due = Instant::now();
    while !done.load(Ordering::Acquire) {
        due += PROBE_EVERY;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        file.write_all(&page)?;
        file.sync_data()?;
        times.push(due.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(times)
}
