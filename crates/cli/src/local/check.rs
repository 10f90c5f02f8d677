//! `wharf check`: is a data directory whole, and is the state it holds right?

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use wharf_controller::codec;
use wharf_controller::disk::{Disk, DiskFault, HistoryQuery, Standing};
use wharf_controller::sqlite::{Mode, SqliteDisk, is_owned};
use wharf_controller::turn::{Fault, recover};
use wharf_engine::check::Finding;
use wharf_sim::world::file::{FileWorld, Inspected};

use crate::args::{CheckArgs, Format};
use crate::render::{output, problem};

/// What was found.
#[derive(Debug, Serialize)]
struct Checked {
    schema: &'static str,
    data: String,
    /// Whether journal, snapshot and state are as they should be.
    ok: bool,
    /// The simulated fleet beside the journal, where there is one.
    fleet: Option<String>,
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

/// Verifies a data directory without changing it: every page of every file, every record, and that nothing that was
/// acknowledged is missing. What `wharf up` would refuse is not in order. A server may have the directory open.
pub(crate) fn run(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let CheckArgs { data, restore, output } = args;
    let mut checked = Checked {
        schema: "wharf.check.v1",
        data: data.display().to_string(),
        ok: false,
        fleet: None,
        snapshot: None,
        index: 0,
        jobs: 0,
        newest_history_ms: None,
        state_hash: None,
        findings: Vec::new(),
        error: None,
    };
    if let Err(error) = look(&data, restore, &mut checked) {
        let next = problem::next(&error).map(|next| format!("; {next}")).unwrap_or_default();
        checked.error = Some(format!("{error:#}{next}"));
    }
    checked.ok = checked.error.is_none() && checked.findings.is_empty();
    show(&checked, output)?;
    Ok(if checked.ok { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn look(data: &Path, restore: bool, checked: &mut Checked) -> anyhow::Result<()> {
    // The fleet first: beside a running server it can only be behind the journal that is read after it.
    let fleet = data.join("fleet.sqlite");
    let obeyed = if fleet.exists() {
        let Inspected { name, obeyed } = FileWorld::inspect(&fleet, is_owned(data))?;
        checked.fleet = name;
        obeyed
    } else {
        Standing::default()
    };
    let mut disk = SqliteDisk::open(data, Mode::ReadOnly)?;
    if let Some(what) = disk.first_fault()? {
        return Err(
            DiskFault::Damaged { file: data.join("journal.sqlite").display().to_string(), what }.into()
        );
    }
    checked.snapshot = disk.snapshot()?.map(|snapshot| snapshot.next);
    let standing = disk.standing()?;
    let (state, _) = recover(&mut disk)?;
    checked.index = state.index();
    checked.jobs = state.jobs.len();
    checked.state_hash = Some(codec::hex(&codec::state_hash(&state)));
    checked.findings = state.check_deep();
    let newest = disk.history(&HistoryQuery { limit: 1, ..HistoryQuery::default() })?;
    checked.newest_history_ms = newest.first().map(|row| row.at);
    if restore { Ok(()) } else { whole(data, &disk, standing, obeyed) }
}

/// Nothing that was acknowledged, or that the fleet obeyed, is missing.
fn whole(data: &Path, disk: &SqliteDisk, standing: Standing, obeyed: Standing) -> anyhow::Result<()> {
    if let Some(what) = disk.lacks() {
        return Err(DiskFault::Behind { dir: data.display().to_string(), what: what.to_owned() }.into());
    }
    if obeyed > standing {
        let (Standing { term, next: journal }, Standing { term: obeyed_term, next: obeyed }) =
            (standing, obeyed);
        return Err(Fault::JournalBehind { journal, term, obeyed, obeyed_term }.into());
    }
    Ok(())
}

fn show(checked: &Checked, format: Format) -> anyhow::Result<()> {
    if format == Format::Json {
        return output::print(&(serde_json::to_string(checked)? + "\n"));
    }
    let snapshot = checked.snapshot.map_or("none".to_owned(), |index| format!("at index {index}"));
    let mut lines = vec![
        format!("{}: {}", checked.data, if checked.ok { "in order" } else { "NOT in order" }),
        format!("journal index {}, snapshot {snapshot}, {} live jobs", checked.index, checked.jobs),
        format!("fleet {}", checked.fleet.as_deref().unwrap_or("none")),
        format!("state {}", checked.state_hash.as_deref().unwrap_or("?")),
    ];
    lines.extend(checked.findings.iter().map(|finding| format!("finding: {finding:?}")));
    lines.extend(checked.error.iter().map(|error| format!("error: {error}")));
    output::print(&output::lines(&lines))
}
