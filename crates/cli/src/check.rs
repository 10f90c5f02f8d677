//! `wharf check`: is a data directory whole, and is the state it holds right?

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use wharf_controller::codec;
use wharf_controller::disk::{Disk, HistoryQuery};
use wharf_controller::sqlite::{Mode, SqliteDisk};
use wharf_controller::turn::recover;
use wharf_engine::check::Finding;

use crate::args::{CheckArgs, Format};

/// What was found.
#[derive(Debug, Serialize)]
struct Checked {
    schema: &'static str,
    data: String,
    /// Whether journal, snapshot and state are as they should be.
    ok: bool,
    /// Index of the newest snapshot.
    snapshot: Option<u64>,
    /// The next free index.
    index: u64,
    /// Live jobs.
    jobs: usize,
    /// Newest finished job or receipt, in world time.
    newest_history_ms: Option<u64>,
    /// Hash of the state; the same journal gives the same hash anywhere.
    state_hash: Option<String>,
    /// Broken invariants.
    findings: Vec<Finding>,
    /// Why the directory could not be read to its end.
    error: Option<String>,
}

/// Verifies a data directory without changing it. A server may have it open.
pub(crate) fn run(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let CheckArgs { data, output } = args;
    let mut checked = Checked {
        schema: "wharf.check.v1",
        data: data.display().to_string(),
        ok: false,
        snapshot: None,
        index: 0,
        jobs: 0,
        newest_history_ms: None,
        state_hash: None,
        findings: Vec::new(),
        error: None,
    };
    if let Err(error) = look(&data, &mut checked) {
        checked.error = Some(format!("{error:#}"));
    }
    checked.ok = checked.error.is_none() && checked.findings.is_empty();
    show(&checked, output)?;
    Ok(if checked.ok { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn look(data: &Path, checked: &mut Checked) -> anyhow::Result<()> {
    let mut disk = SqliteDisk::open(data, Mode::ReadOnly)?;
    checked.snapshot = disk.snapshot()?.map(|snapshot| snapshot.next);
    let (state, _) = recover(&mut disk)?;
    checked.index = state.index();
    checked.jobs = state.jobs.len();
    checked.state_hash = Some(codec::hex(&codec::state_hash(&state)));
    checked.findings = state.check_deep();
    let newest = disk.history(&HistoryQuery { limit: 1, ..HistoryQuery::default() })?;
    checked.newest_history_ms = newest.first().map(|row| row.at);
    Ok(())
}

fn show(checked: &Checked, format: Format) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if format == Format::Json {
        writeln!(out, "{}", serde_json::to_string(checked)?)?;
        return Ok(());
    }
    writeln!(out, "{}: {}", checked.data, if checked.ok { "in order" } else { "NOT in order" })?;
    let snapshot = checked.snapshot.map_or("none".to_owned(), |index| format!("at index {index}"));
    writeln!(out, "journal index {}, snapshot {snapshot}, {} live jobs", checked.index, checked.jobs)?;
    writeln!(out, "state {}", checked.state_hash.as_deref().unwrap_or("?"))?;
    for finding in &checked.findings {
        writeln!(out, "finding: {finding:?}")?;
    }
    if let Some(error) = &checked.error {
        writeln!(out, "error: {error}")?;
    }
    Ok(())
}
