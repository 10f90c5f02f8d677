//! The laboratory: random runs, behaviour cases and trace replay, on the engine that runs in production.

mod philly;
mod trace;

use std::io::Write;
use std::process::ExitCode;

use wharf_sim::testing::cases::deliberate::Deliberate;
use wharf_sim::testing::cases::{Case, CaseResult};
use wharf_sim::testing::random::RandomRun;

use crate::args::{Format, SimArgs};
use crate::input::files;

/// Runs what was asked for.
pub(crate) fn run(args: &SimArgs) -> anyhow::Result<ExitCode> {
    if let Some(seed) = args.random {
        return random(RandomRun { seed, steps: args.steps, faults: args.faults }, args.output);
    }
    if let Some(file) = &args.cases {
        return cases(&files::read(file)?.text);
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

/// How the cases of a file came out.
#[derive(Default)]
struct Tally {
    agree: usize,
    deliberate: Vec<&'static Deliberate>,
    differ: Vec<String>,
    open: usize,
    broken: usize,
}

/// One result a line on standard output; the sum on standard error.
fn cases(text: &str) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let mut tally = Tally::default();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match Case::parse(line).and_then(|case| case.run()) {
            Ok(result) => {
                writeln!(out, "{}", serde_json::to_string(&result)?)?;
                tally.count(result);
            }
            Err(error) => {
                eprintln!("line {}: {error}", number + 1);
                tally.broken += 1;
            }
        }
    }
    eprint!("{}", tally.text());
    Ok(if tally.is_clean() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

impl Tally {
    fn count(&mut self, result: CaseResult) {
        match (result.ok, Deliberate::of(&result)) {
            (Some(true), _) => self.agree += 1,
            (None, _) => self.open += 1,
            (Some(false), Some(known)) => self.deliberate.push(known),
            (Some(false), None) => self.differ.push(result.id),
        }
    }

    fn text(&self) -> String {
        let Self { agree, deliberate, differ, open, broken } = self;
        let mut lines = vec![format!(
            "{agree} agree, {} differ, {} deliberate, {open} without expectation, {broken} not readable",
            differ.len(),
            deliberate.len()
        )];
        lines.extend(deliberate.iter().map(|known| format!("deliberate: {}: {}", known.id, known.reason)));
        if !differ.is_empty() {
            lines.push(format!("differ: {}", differ.join(" ")));
        }
        crate::render::output::lines(&lines)
    }

    fn is_clean(&self) -> bool {
        self.differ.is_empty() && self.broken == 0
    }
}
