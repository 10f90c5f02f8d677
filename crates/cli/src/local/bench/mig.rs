//! A pool of GPUs cut into slices under load: what is refused, by where the slices are cut.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::process::ExitCode;

use anyhow::Context;
use strum::VariantArray;
use wharf_api::file::FileError;
use wharf_engine::device::catalogue::Mig;
use wharf_sim::bench::mig::{Decision, Mix, MixName, Policy, Report, Run};

use super::{Measured, show};
use crate::args::{Format, MigArgs, MigPolicy};
use crate::render::output::{self, Paint};
use crate::render::problem::Usage;
use crate::render::table::{Cell, Column, Look, Table};
use crate::show::models;

/// The most bytes of a mix: a line for every profile there is, many times over.
const MIX_BYTES_MAX: u64 = 64 << 10;

impl Measured for Report {
    fn keeps_promise(&self) -> bool {
        self.ok
    }
}

pub(super) fn run(args: &MigArgs, format: Format) -> anyhow::Result<ExitCode> {
    let report = measure(args)?;
    match format {
        Format::Json => show(&report, format),
        Format::Text => {
            output::print(&text(&report, Paint::stdout()))?;
            Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::from(1) })
        }
    }
}

fn measure(args: &MigArgs) -> anyhow::Result<Report> {
    let model = models::find(&args.model)?;
    let Some(mig) = model.mig else {
        return Err(Usage {
            what: format!("{} cannot be cut into slices", model.name),
            next: "these can: wharf get models, those with an AXIS".into(),
        }
        .into());
    };
    let run = Run {
        model: model.name.into(),
        mig,
        gpus: args.gpus,
        mix: mix(&args.mix, mig)?,
        load_millionths: args.load,
        seed: args.seed,
        arrivals: args.arrivals,
    };
    let policy = match args.policy {
        MigPolicy::Wharf => Policy::Wharf,
        MigPolicy::Bestfit => Policy::BestFit,
        MigPolicy::Firstfit => Policy::FirstFit,
    };
    let Some(path) = &args.decisions else { return run.run(policy, |_| Ok(())) };
    let cannot = || format!("cannot write {}", path.display());
    let mut out = BufWriter::new(File::create(path).with_context(cannot)?);
    let mut write = |decision: &Decision| -> anyhow::Result<()> {
        writeln!(out, "{}", serde_json::to_string(decision)?).with_context(cannot)
    };
    let report = run.run(policy, &mut write)?;
    out.flush().with_context(cannot)?;
    Ok(report)
}

/// A mix by its name, or from a file.
fn mix(word: &str, mig: &Mig) -> anyhow::Result<Mix> {
    if let Some(name) = MixName::VARIANTS.iter().copied().find(|name| name.into_str() == word) {
        return Ok(Mix::named(name, mig));
    }
    let fault = |line: Option<usize>, what: String, allowed: Option<String>| FileError {
        file: word.into(),
        line: line.and_then(|line| u64::try_from(line).ok()),
        column: None,
        what: what.into(),
        near: None,
        allowed: allowed.map(Into::into),
        instead: None,
    };
    let names = || "small, mixed, large, or a file of PROFILE,SHARE lines".to_owned();
    let text = read(word).map_err(|error| fault(None, format!("cannot be read: {error}"), Some(names())))?;
    let mix = Mix::parse(word, &text, mig).map_err(|error| {
        let profiles = mig.profiles.iter().map(|profile| profile.name).collect::<Vec<_>>().join(", ");
        fault(error.line, error.what, error.profile.map(|_| profiles))
    })?;
    Ok(mix)
}

fn read(path: &str) -> std::io::Result<String> {
    let mut text = String::new();
    if path == "-" {
        std::io::stdin().take(MIX_BYTES_MAX).read_to_string(&mut text)?;
    } else {
        File::open(path)?.take(MIX_BYTES_MAX).read_to_string(&mut text)?;
    }
    Ok(text)
}

/// The table: what each policy refused, by profile.
fn text(report: &Report, paint: Paint) -> String {
    let columns = [
        Column::text("PROFILE", "profile"),
        Column::number("ARRIVED", "arrivals"),
        Column::number("WHARF", "wharf"),
        Column::number("BEST-FIT", "bestfit"),
        Column::number("FIRST-FIT", "firstfit"),
    ];
    let mut table = Table::new(&columns);
    let refused = |of: &dyn Fn(&wharf_sim::bench::mig::Reference) -> Option<f64>| {
        Policy::VARIANTS
            .iter()
            .map(|policy| {
                let pct = report.reference.get(policy.into_str()).and_then(of);
                Cell::new(pct.map_or_else(|| "-".to_owned(), |pct| format!("{pct:.2} %")))
            })
            .collect::<Vec<_>>()
    };
    for row in &report.profiles {
        let cells = refused(&|reference| reference.refused_pct.get(row.profile).copied());
        let head = [Cell::new(row.profile), Cell::new(row.arrivals.to_string())];
        table.row(head.into_iter().chain(cells).collect());
    }
    let all = refused(&|reference| Some(reference.refused_demand_pct));
    let head = [Cell::new("demand"), Cell::new(report.arrivals.to_string())];
    table.row(head.into_iter().chain(all).collect());
    let head = format!(
        "{} x {}, mix {}, load {}, seed {}, policy {}: {:.2} % of the demand refused{}\n\n",
        report.gpus,
        report.model,
        report.mix,
        report.load,
        report.seed,
        report.policy,
        report.refused_demand_pct,
        beside(report),
    );
    let verdict = match (report.ratio_bar, report.ok) {
        (None, _) => String::new(),
        (Some(_), true) => "\nwithin its bars\n".to_owned(),
        (Some(ratio), false) => {
            let most =
                report.refused_demand_bar_pct.map_or_else(String::new, |bar| format!(", at most {bar} %"));
            format!("\nBARS MISSED: at most {ratio} of best-fit{most}\n")
        }
    };
    let table = table.aligned(Look { wide: false, headers: true, paint });
    format!("{head}{table}{verdict}\nresult_hash {}\n", report.result_hash)
}

fn beside(report: &Report) -> String {
    let best = report.reference.get(Policy::BestFit.into_str()).and_then(|best| best.ratio);
    match best.filter(|_| report.policy != Policy::BestFit.into_str()) {
        Some(ratio) => format!(", {ratio:.2} of what best-fit refuses"),
        None => String::new(),
    }
}
