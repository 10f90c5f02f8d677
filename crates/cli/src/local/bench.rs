//! `wharf bench`: what is promised, measured on this machine, each figure beside its bar.

mod child;
mod engine;
mod mig;
mod placement;
mod recovery;
mod soak;
mod start;
mod submit;
mod victims;

use std::io::Write;
use std::process::ExitCode;

use serde::Serialize;

use crate::args::{BenchArgs, BenchCommand, Format};

/// A measurement that knows whether it keeps its promise.
trait Measured: Serialize {
    /// Whether it is within the bar.
    fn keeps_promise(&self) -> bool;
}

/// Measures what was asked for.
pub(crate) fn run(args: BenchArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        BenchCommand::Engine(engine) => show(&engine::run(&engine)?, args.output),
        BenchCommand::Victims(victims) => show(&victims::run(&victims)?, args.output),
        BenchCommand::Mig(mig) => mig::run(&mig, args.output),
        BenchCommand::Placement(placement) => placement::run(&placement, args.output),
        BenchCommand::Submit { rate, seconds } => show(&submit::run(rate, seconds)?, args.output),
        BenchCommand::Recovery { events } => show(&recovery::run(events)?, args.output),
        BenchCommand::Start { runs } => show(&start::run(runs)?, args.output),
        BenchCommand::Soak { fleet, speed, minutes } => {
            show(&soak::run(&fleet, speed, minutes)?, args.output)
        }
    }
}

fn show(measured: &impl Measured, format: Format) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let json = serde_json::to_value(measured)?;
    match format {
        Format::Json => writeln!(out, "{json}")?,
        Format::Text => {
            for (key, value) in json.as_object().into_iter().flatten() {
                writeln!(out, "{key:24} {value}")?;
            }
        }
    }
    Ok(if measured.keeps_promise() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The value that at least so many percent of sorted values do not exceed.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(rank).copied().unwrap_or(f64::NAN)
}

/// Three decimals are more than a noisy machine deserves.
fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}
