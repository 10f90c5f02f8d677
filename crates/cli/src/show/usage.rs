//! `wharf usage`: GPU-hours of a window, allocated beside really used and lost.

use std::process::ExitCode;

use wharf_api::client::{Client, UsageFilter};
use wharf_api::v1::{UsageReport, UsageSums};

use crate::args::{ReportFormat, UsageArgs};
use crate::render::numbers::{UNKNOWN, moment, moment_before, percent};
use crate::render::output::{self, Paint, Tone};
use crate::render::table::{Cell, Column, Look, Table};

const COLUMNS: [Column; 6] = [
    Column::number("JOBS", "jobs"),
    Column::number("ALLOCATED", "allocated_gpu_h"),
    Column::number("USED", "used_gpu_h"),
    Column::number("UNKNOWN", "unknown_gpu_h").wide(),
    Column::number("UTIL", "utilisation"),
    Column::number("LOST", "lost_gpu_h"),
];

/// Runs it.
pub(crate) fn run(client: &Client, args: &UsageArgs) -> anyhow::Result<ExitCode> {
    // What is a moment is read on the fleet's clock, which may run faster than ours.
    let filter = UsageFilter {
        since: Some(args.since.clone()),
        until: args.until.clone(),
        by: Some(args.by.clone()),
        tenant: args.tenant.clone(),
    };
    let report = client.usage(&filter)?;
    if let Some(kept) = report.kept_since_ms {
        let since = moment_before(kept, report.until_ms);
        output::remark(&format!(
            "history is kept since {since} (`keep` of history.yaml): what ended earlier may be missing"
        ));
    }
    match args.output {
        ReportFormat::Json => output::print_json(&report)?,
        ReportFormat::Yaml => output::print(&output::yaml(&report)?)?,
        ReportFormat::Csv => output::print(&groups(&report).csv(true))?,
        ReportFormat::Table | ReportFormat::Wide => {
            output::print(&text(&report, args.output == ReportFormat::Wide, Paint::stdout()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn text(report: &UsageReport, wide: bool, paint: Paint) -> String {
    let since = moment_before(report.since_ms, report.until_ms);
    let window = format!("GPU-hours from {since} to {}", moment(report.until_ms));
    if report.rows.is_empty() {
        return output::lines(&[window, "no tenant held a GPU".to_owned()]);
    }
    let mut table = groups(report);
    let names = (0..report.by.len()).map(|at| if at == 0 { "total" } else { "" });
    let strong = |cell: Cell| cell.tone(Tone::Strong);
    table.row(names.map(Cell::new).chain(cells(&report.total)).map(strong).collect());
    let look = Look { wide, headers: true, paint };
    let note = (report.total.unknown_gpu_h > 0.0).then(|| {
        let note = "≥ at least, ? unknown: how busy a GPU was is not known of all that ran; -o wide says of how much";
        format!("{}\n", paint.tone(Tone::Faint, note))
    });
    format!("{}\n{}{}", paint.tone(Tone::Faint, &window), table.aligned(look), note.unwrap_or_default())
}

fn groups(report: &UsageReport) -> Table {
    let mut table = Table::keyed(&report.by, &COLUMNS);
    for row in &report.rows {
        let key = |by: &String| row.key.get(by).cloned().flatten().unwrap_or_else(|| "-".to_owned());
        let keys = report.by.iter().map(key).map(Cell::new);
        table.row(keys.chain(cells(&row.sums)).collect());
    }
    table
}

fn cells(sums: &UsageSums) -> [Cell; 6] {
    let UsageSums { jobs, allocated_gpu_h, used_gpu_h, unknown_gpu_h, utilisation, lost_gpu_h } = sums;
    let hours = |hours: f64| format!("{hours:.2}");
    let of_a_part = if *unknown_gpu_h > 0.0 { "≥" } else { "" };
    let known =
        |text: Option<String>| text.map_or_else(|| UNKNOWN.to_owned(), |text| format!("{of_a_part}{text}"));
    [
        Cell::new(jobs.to_string()),
        Cell::new(hours(*allocated_gpu_h)).plain(allocated_gpu_h),
        Cell::new(known(used_gpu_h.map(hours))).plain_if_known(used_gpu_h.as_ref()),
        Cell::new(hours(*unknown_gpu_h)).plain(unknown_gpu_h),
        Cell::new(known(utilisation.map(percent))).plain_if_known(utilisation.as_ref()),
        Cell::new(hours(*lost_gpu_h)).plain(lost_gpu_h),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use wharf_api::v1::{UsageRow, schema_of};

    use super::*;

    fn sums(jobs: u64, allocated: f64, used: Option<f64>, unknown: f64) -> UsageSums {
        UsageSums {
            jobs,
            allocated_gpu_h: allocated,
            used_gpu_h: used,
            unknown_gpu_h: unknown,
            utilisation: used.map(|used| used / allocated),
            lost_gpu_h: 0.125,
        }
    }

    fn report() -> UsageReport {
        let row = |team: &str, label: Option<&str>, sums| UsageRow {
            key: BTreeMap::from([
                ("team".to_owned(), Some(team.to_owned())),
                ("label:project".to_owned(), label.map(str::to_owned)),
            ]),
            sums,
        };
        UsageReport {
            schema: schema_of::<UsageReport>(),
            since_ms: 1_763_250_301_000,
            until_ms: 1_763_336_701_000,
            by: vec!["team".to_owned(), "label:project".to_owned()],
            rows: vec![
                row("lab/nlp", Some("red, \"hot\""), sums(12, 160.5, Some(64.2), 0.0)),
                row("lab/vision", None, sums(3, 20.0, Some(4.0), 10.0)),
                row("lab/ops", None, sums(1, 0.25, None, 0.25)),
            ],
            total: sums(16, 180.75, Some(68.2), 10.25),
            kept_since_ms: None,
        }
    }

    #[test]
    fn what_was_handed_out_stands_beside_what_was_used() {
        let expected = "\
GPU-hours from 2025-11-15 23:45:01Z to 2025-11-16 23:45:01Z
TEAM        LABEL:PROJECT  JOBS  ALLOCATED    USED  UTIL  LOST
lab/nlp     red, \"hot\"       12     160.50   64.20   40%  0.12
lab/vision  -                 3      20.00   ≥4.00  ≥20%  0.12
lab/ops     -                 1       0.25       ?     ?  0.12
total                        16     180.75  ≥68.20  ≥38%  0.12
≥ at least, ? unknown: how busy a GPU was is not known of all that ran; -o wide says of how much
";
        assert_eq!(text(&report(), false, Paint::OFF), expected);
    }

    #[test]
    fn programs_get_a_column_for_every_key_and_number_and_no_total() {
        let expected = "\
team,label:project,jobs,allocated_gpu_h,used_gpu_h,unknown_gpu_h,utilisation,lost_gpu_h
lab/nlp,\"red, \"\"hot\"\"\",12,160.5,64.2,0,0.4,0.125
lab/vision,-,3,20,4,10,0.2,0.125
lab/ops,-,1,0.25,,0.25,,0.125
";
        assert_eq!(groups(&report()).csv(true), expected);
    }
}
