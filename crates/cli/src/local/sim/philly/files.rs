//! Reading the Philly trace and the sizes of its virtual clusters.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, bail};
use serde::Deserialize;
use wharf_engine::model::job::TASKS_MAX;
use wharf_sim::trace::philly::{LEFT_OUT, NODE_GPUS, Row};

use crate::input::files::{self, Given};
use crate::local::sim::trace::millis;
use crate::render::problem::Usage;

/// The file of the sizes, beside the trace.
pub(super) const SIZES: &str = "philly_vcs.csv";

/// One row of the trace. When it came within its virtual cluster is not needed.
#[derive(Debug, Deserialize)]
struct TraceRow {
    job_id: String,
    vc: String,
    submit_s: f64,
    #[serde(rename = "submit_vc_s")]
    _submit_vc_s: f64,
    num_gpu: u32,
    duration_s: f64,
}

/// One row of the sizes.
#[derive(Debug, Deserialize)]
struct SizeRow {
    vc: String,
    helios_nodes_8gpu: Option<f64>,
}

/// A file that cannot be read is a wrong argument.
pub(super) fn read(path: &Path) -> Result<Given, Usage> {
    files::read(path).map_err(|error| Usage {
        what: format!("{error:#}"),
        next: "the Philly trace is a CSV, also compressed as .gz".to_owned(),
    })
}

/// The jobs submitted within a window of seconds, without the virtual cluster that is left out.
pub(super) fn select(file: &str, text: &str, window: &Range<u64>) -> anyhow::Result<Vec<Row>> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let headers = reader.headers().with_context(|| format!("{file}:1: no header"))?.clone();
    let mut seen = BTreeSet::new();
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.with_context(|| format!("{file}: not CSV"))?;
        let line = record.position().map_or(0, csv::Position::line);
        let row: TraceRow = record.deserialize(Some(&headers)).with_context(|| {
            format!("{file}:{line}: columns are job_id,vc,submit_s,submit_vc_s,num_gpu,duration_s")
        })?;
        let row = checked(row).with_context(|| format!("{file}:{line}"))?;
        if row.vc == LEFT_OUT || !(window.start * 1000..window.end * 1000).contains(&row.submit.0) {
            continue;
        }
        if !seen.insert(row.id.clone()) {
            bail!("{file}:{line}: job_id {:?} stands twice", row.id);
        }
        rows.push(row);
    }
    if rows.is_empty() {
        bail!("{file}: no job was submitted from {} s to {} s", window.start, window.end);
    }
    Ok(rows)
}

fn checked(row: TraceRow) -> anyhow::Result<Row> {
    let TraceRow { job_id, vc, submit_s, _submit_vc_s, num_gpu, duration_s } = row;
    if num_gpu == 0 || num_gpu.div_ceil(NODE_GPUS) > TASKS_MAX {
        bail!("num_gpu {num_gpu} is not between 1 and {}", u64::from(TASKS_MAX) * u64::from(NODE_GPUS));
    }
    Ok(Row { id: job_id, vc, submit: millis(submit_s)?, gpus: num_gpu, duration: millis(duration_s)? })
}

/// The published sizes of the virtual clusters in nodes of eight, from the file beside the trace.
pub(super) fn published(trace: &Path) -> Result<Vec<(String, u32)>, Usage> {
    let path = trace.with_file_name(SIZES);
    let wrong = |what: String| Usage {
        what,
        next: format!(
            "{SIZES} with the columns vc and helios_nodes_8gpu lies beside the trace; or give --policy DIR"
        ),
    };
    let text = files::read(&path).map_err(|error| wrong(format!("{error:#}")))?.text;
    sizes(&text).map_err(|error| wrong(format!("{}: {error:#}", path.display())))
}

fn sizes(text: &str) -> anyhow::Result<Vec<(String, u32)>> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let mut sizes = Vec::new();
    for row in reader.deserialize() {
        let SizeRow { vc, helios_nodes_8gpu } = row?;
        // Whose size is not published is not promised anything.
        let Some(nodes) = helios_nodes_8gpu else { continue };
        let whole = format!("{nodes}").parse().ok();
        sizes.push((vc, whole.with_context(|| format!("{nodes} is not a number of nodes"))?));
    }
    Ok(sizes)
}
