//! Replays side by side.

use std::io::Write;

use wharf_sim::trace::replay::{ReplayReport, Waits};

use crate::args::Format;
use crate::local::sim::trace;

const COLUMNS: [&str; 14] = [
    "ORDER",
    "MEAN",
    "P50",
    "P90",
    "P99",
    "MAX",
    "1 GPU",
    "2-7",
    "8",
    "16+",
    "EVICTIONS",
    "MOVES",
    "LOST GPU-H",
    "OWED S (JOBS)",
];

/// One replay in full, several as a table; as JSON one object a line.
pub(super) fn show(reports: &[ReplayReport], format: Format) -> anyhow::Result<()> {
    if let [report] = reports {
        return trace::show(report, format);
    }
    let mut out = std::io::stdout().lock();
    if format == Format::Json {
        for report in reports {
            writeln!(out, "{}", serde_json::to_string(report)?)?;
        }
        return Ok(());
    }
    let mut lines = vec![COLUMNS.map(str::to_owned)];
    lines.extend(reports.iter().map(line));
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..COLUMNS.len()).map(width).collect();
    writeln!(out, "wait in seconds; by size its mean and p99")?;
    for line in &lines {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        writeln!(out, "{}", cells.join("  "))?;
    }
    for report in reports {
        let order = report.order;
        for (reason, count) in &report.refused {
            writeln!(out, "{order}: refused {count}: {reason}")?;
        }
        for finding in &report.findings {
            writeln!(out, "{order}: finding: {finding}")?;
        }
    }
    Ok(())
}

fn line(report: &ReplayReport) -> [String; COLUMNS.len()] {
    let waits = report.wait_s;
    let whole = |seconds: f64| format!("{seconds:.0}");
    let size = |name: &str| {
        let Waits { mean, p99, .. } = report.wait_s_by.size.get(name).copied().unwrap_or_default();
        format!("{mean:.0} / {p99:.0}")
    };
    let owed_max = report.guarantee_debt_s.values().map(|debt| debt.max).fold(0.0, f64::max);
    let owed_jobs: usize = report.guarantee_debt_s.values().map(|debt| debt.jobs).sum();
    // Who does not know guarantees owes nothing that could be counted.
    let owed = if report.events > 0 { format!("{owed_max:.0} ({owed_jobs})") } else { "-".to_owned() };
    [
        report.order.to_owned(),
        format!("{:.1}", waits.mean),
        whole(waits.p50),
        whole(waits.p90),
        whole(waits.p99),
        whole(waits.max),
        size("1"),
        size("2-7"),
        size("8"),
        size("16+"),
        report.evictions.to_string(),
        report.migrations.to_string(),
        whole(report.lost_gpu_h),
        owed,
    ]
}
