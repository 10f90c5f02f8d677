//! `wharf bench placement`: how much of a cluster of shared GPUs is given out, pod by pod, on the openb traces.

mod files;
mod table;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use wharf_sim::trace::openb::{Decision, Outcome, Policy, Refused, Trace, run as play};

use crate::args::{Format, PlacementArgs};
use files::Columns;

/// One column of arrivals, played.
#[derive(Debug, Serialize)]
pub(super) struct Played {
    schema: &'static str,
    trace: String,
    column: String,
    policy: &'static str,
    arrivals: usize,
    alloc_pct: Alloc,
    refused: RefusedPods,
    refused_feasible: u64,
    first_refusal_pct: Option<f64>,
    latency_us: Micros,
    solve_ms: Option<Micros>,
    result_hash: String,
}

/// Percent of the GPUs given out when so many percent have been asked for.
#[derive(Clone, Copy, Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "a name cannot begin with a digit")]
struct Alloc {
    #[serde(rename = "90")]
    at_90: Option<f64>,
    #[serde(rename = "95")]
    at_95: Option<f64>,
    #[serde(rename = "100")]
    at_100: Option<f64>,
    #[serde(rename = "130")]
    at_130: Option<f64>,
}

/// Refused pods up to 100 % arrived, by what they asked for.
#[derive(Clone, Copy, Debug, Serialize)]
struct RefusedPods {
    cpu: u64,
    share: u64,
    #[serde(rename = "1")]
    one: u64,
    #[serde(rename = "2")]
    two: u64,
    #[serde(rename = "4")]
    four: u64,
    #[serde(rename = "8")]
    eight: u64,
}

/// A distribution; microseconds for decisions, milliseconds for solves.
#[derive(Clone, Copy, Debug, Serialize)]
struct Micros {
    p50: f64,
    p99: f64,
    max: f64,
}

pub(super) fn run(args: &PlacementArgs, format: Format) -> anyhow::Result<ExitCode> {
    let mut decisions = args.decisions.as_deref().map(Decisions::create).transpose()?;
    let mut all = Vec::new();
    for input in files::inputs(args)? {
        let trace = files::trace(&input)?;
        for (column, order) in Columns::read(&input.arrivals, &args.columns, trace.pods.len())?.0 {
            let order = &order[..order.len().min(args.first.unwrap_or(usize::MAX))];
            let tell = |decision: &Decision| {
                if let Some(decisions) = &mut decisions {
                    decisions.write(&trace, &input.name, &column, decision);
                }
            };
            let played = played(
                &input.name,
                &column,
                args.policy.into(),
                &play(&trace, order, args.policy.into(), tell),
            );
            if format == Format::Json {
                writeln!(std::io::stdout().lock(), "{}", serde_json::to_string(&played)?)?;
            }
            all.push(played);
        }
    }
    if let Some(decisions) = decisions {
        decisions.finish()?;
    }
    if format == Format::Text {
        write!(std::io::stdout().lock(), "{}", table::of(&all, &files::limits(args)))?;
    }
    let kept = all
        .iter()
        .all(|played| played.refused_feasible == 0 || args.policy != crate::args::PlacementPolicy::Wharf);
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn played(trace: &str, column: &str, policy: Policy, outcome: &Outcome) -> Played {
    let tally = &outcome.tally;
    let at = |percent| tally.alloc_at(percent).map(super::rounded);
    let Refused { cpu, share, one, two, four, eight } = tally.refused;
    Played {
        schema: "wharf.bench.placement.v1",
        trace: trace.to_owned(),
        column: column.to_owned(),
        policy: policy.into_str(),
        arrivals: outcome.latencies.len(),
        alloc_pct: Alloc { at_90: at(90), at_95: at(95), at_100: at(100), at_130: at(130) },
        refused: RefusedPods { cpu, share, one, two, four, eight },
        refused_feasible: tally.refused_feasible,
        first_refusal_pct: tally.first_refusal_pct.map(super::rounded),
        latency_us: spread(&outcome.latencies, 1e6),
        solve_ms: (!outcome.solves.is_empty()).then(|| spread(&outcome.solves, 1e3)),
        result_hash: outcome.hash.clone(),
    }
}

fn spread(times: &[Duration], per_second: f64) -> Micros {
    let mut sorted: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * per_second).collect();
    sorted.sort_by(f64::total_cmp);
    let at = |percent| super::rounded(super::percentile(&sorted, percent));
    Micros { p50: at(50), p99: at(99), max: at(100) }
}

/// Every decision, one a line, as it can be recomputed outside.
struct Decisions {
    out: BufWriter<File>,
    failed: Option<std::io::Error>,
}

#[derive(Serialize)]
struct Line<'a> {
    trace: &'a str,
    column: &'a str,
    seq: usize,
    pod_row: usize,
    node: Option<&'a str>,
    gpus: &'a [usize],
    gpu_milli: u64,
}

impl Decisions {
    fn create(path: &Path) -> anyhow::Result<Self> {
        let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { out: BufWriter::new(file), failed: None })
    }

    fn write(&mut self, trace: &Trace, name: &str, column: &str, decision: &Decision) {
        let place = decision.place.as_ref();
        let line = Line {
            trace: name,
            column,
            seq: decision.seq,
            pod_row: decision.pod,
            node: place.map(|place| trace.nodes[place.node].name.as_str()),
            gpus: place.map_or(&[], |place| place.gpus.as_slice()),
            gpu_milli: trace.pods[decision.pod].gpu_milli,
        };
        let text = serde_json::to_string(&line).expect("a line has no map with keys that are no strings");
        if let Err(error) = writeln!(self.out, "{text}") {
            self.failed.get_or_insert(error);
        }
    }

    fn finish(mut self) -> anyhow::Result<()> {
        self.out.flush()?;
        self.failed.map_or(Ok(()), |error| Err(error.into()))
    }
}
