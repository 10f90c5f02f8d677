//! From a journal on disk to a state in memory, from index 0 and without a snapshot.

use std::time::Instant;

use serde::Serialize;
use wharf_api::file::fleet::load_fleet;
use wharf_controller::codec;
use wharf_controller::sqlite::{Mode, SqliteDisk};
use wharf_controller::turn::recover;
use wharf_engine::model::job::{Class, GpuAsk};
use wharf_engine::model::policy::{Policy, Tenant};
use wharf_engine::units::Millis;
use wharf_sim::trace::replay::{Replay, TraceJob};

use super::{Measured, rounded};

/// Events that a job of this load leaves in the journal, at least.
const EVENTS_PER_JOB: u64 = 8;
/// The promise, for a million events.
const BAR_S: f64 = 5.0;

#[derive(Debug, Serialize)]
pub(super) struct Recovery {
    schema: &'static str,
    events: u64,
    write_s: f64,
    recover_s: f64,
    events_per_s: f64,
    state_hash: String,
    hash_equal: bool,
    bar_s: f64,
    ok: bool,
}

impl Measured for Recovery {
    fn keeps_promise(&self) -> bool {
        self.ok
    }
}

pub(super) fn run(events: u64) -> anyhow::Result<Recovery> {
    let dir = tempfile::tempdir()?;
    let begin = Instant::now();
    let jobs = (0..events / EVENTS_PER_JOB).map(job).collect();
    let tenants =
        ["lab", "lab/nlp", "lab/vision", "lab/eval"].into_iter().map(Tenant::without_lines).collect();
    let policy = Policy { digest: "bench".to_owned(), tenants, ..Policy::default() };
    let replay = Replay { jobs, nodes: load_fleet("pod")?.nodes, policy, seed: 1 };
    let (report, _) = replay.run(SqliteDisk::open(dir.path(), Mode::Bulk)?, &mut |_, _| {})?;
    let write_s = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    let mut disk = SqliteDisk::open(dir.path(), Mode::Own)?;
    let (state, _) = recover(&mut disk)?;
    let recover_s = begin.elapsed().as_secs_f64();
    let hash_equal = codec::hex(&codec::state_hash(&state)) == report.state_hash;
    let written = state.index();
    let per_s = f64::from(u32::try_from(written)?) / recover_s;
    let bar_s = BAR_S * f64::from(u32::try_from(written)?) / 1e6;
    Ok(Recovery {
        schema: "wharf.bench.recovery.v1",
        events: written,
        write_s: rounded(write_s),
        recover_s: rounded(recover_s),
        events_per_s: per_s.round(),
        state_hash: report.state_hash,
        hash_equal,
        bar_s: rounded(bar_s),
        ok: hash_equal && recover_s <= bar_s && written >= events,
    })
}

fn job(number: u64) -> TraceJob {
    let tenant = ["lab/nlp", "lab/vision", "lab/eval"][usize::try_from(number % 3).unwrap_or_default()];
    TraceJob {
        id: format!("job-{number}"),
        tenant: tenant.to_owned(),
        class: Class::ALL[usize::try_from(number / 3 % 3).unwrap_or_default()],
        priority: 0,
        tasks: 1,
        min: 1,
        gpus: GpuAsk::Whole([1, 1, 2, 4, 8][usize::try_from(number % 5).unwrap_or_default()]),
        model: String::new(),
        submit: Millis(number * 700),
        // Four fifths of the fleet: the queue stays short, as in a fleet that is run well.
        duration: Millis(20_000 + number % 49 * 1000),
        limit: None,
        estimate: None,
        contract: None,
    }
}
