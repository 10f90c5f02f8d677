//! The laboratory: random runs, behaviour cases and trace replay, on the engine that runs in production.

pub(crate) mod input;
mod trace;

use std::io::Write;
use std::process::ExitCode;

use wharf_sim::cases::{Case, CaseResult};
use wharf_sim::random::RandomRun;

use crate::args::{Format, SimArgs};

/// Runs what was asked for.
pub(crate) fn run(args: &SimArgs) -> anyhow::Result<ExitCode> {
    if let Some(seed) = args.random {
        return random(RandomRun { seed, steps: args.steps, faults: args.faults }, args.output);
    }
    if let Some(file) = &args.cases {
        return cases(&input::read(file)?.text);
    }
    trace::run(args)
}

fn random(run: RandomRun, format: Format) -> anyhow::Result<ExitCode> {
    // A panic is a finding with a seed; its backtrace would only hide the report.
    std::panic::set_hook(Box::new(|_| {}));
    let report = run.run();
    let _ = std::panic::take_hook();
    let mut out = std::io::stdout().lock();
    match format {
        Format::Json => writeln!(out, "{}", serde_json::to_string(&report)?)?,
        Format::Text => {
            writeln!(out, "seed {}: {} steps, {} inputs", report.seed, report.steps, report.inputs)?;
            writeln!(out, "crashes {}, faults {}", report.crashes, report.faults)?;
            writeln!(out, "state {}", report.state_hash)?;
            for finding in &report.findings {
                writeln!(out, "finding: {finding}")?;
            }
        }
    }
    if report.findings.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let faults = if run.faults { " --faults" } else { "" };
    eprintln!("reproduce with: wharf sim --random {} --steps {}{faults}", run.seed, run.steps);
    Ok(ExitCode::from(1))
}

/// One result a line on standard output; the sum on standard error.
fn cases(text: &str) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let (mut agree, mut differ, mut open, mut broken) = (0, Vec::new(), 0, 0);
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match Case::parse(line).and_then(|case| case.run()) {
            Ok(result) => {
                writeln!(out, "{}", serde_json::to_string(&result)?)?;
                match result {
                    CaseResult { ok: Some(true), .. } => agree += 1,
                    CaseResult { ok: Some(false), id, .. } => differ.push(id),
                    CaseResult { ok: None, .. } => open += 1,
                }
            }
            Err(error) => {
                eprintln!("line {}: {error}", number + 1);
                broken += 1;
            }
        }
    }
    eprintln!("{agree} agree, {} differ, {open} without expectation, {broken} not readable", differ.len());
    if !differ.is_empty() {
        eprintln!("differ: {}", differ.join(" "));
    }
    let clean = differ.is_empty() && broken == 0;
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
