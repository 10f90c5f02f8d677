//! Arguments of `wharf sim` and `wharf trace`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use wharf_engine::units::Millis;
use wharf_sim::trace::philly::Estimates;
use wharf_sim::trace::replay::Contract;

use super::Format;

/// `wharf sim-fault`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Something goes wrong in the simulated fleet of a control plane, so that you can see what Wharf does about it. A GPU reports an
error of the driver by its number (XID): one of an application, such as 13 or 31, fails what runs there and costs no GPU;
one that asks for a reset, such as 95, costs the GPU for a minute; 79 costs it until its node was restarted. A node that refuses
starts is up and says no to every task that it is to start: wharf explain tells what becomes of such a job.

Examples:
  wharf sim-fault gpu/n1:3 --xid 79
  wharf sim-fault gpu/n1:3 --heal
  wharf sim-fault node/n1 --down
  wharf sim-fault node/n1 --refuse-starts --for 5m
  wharf sim-fault node/n1 --heal")]
#[command(group = ArgGroup::new("happening").required(true).args(["xid", "down", "refuse_starts", "heal"]))]
pub(crate) struct SimFaultArgs {
    /// gpu/NODE:INDEX or node/NODE
    #[arg(value_name = "TARGET")]
    pub(crate) target: String,
    /// The GPU reports this error
    #[arg(long, value_name = "NUMBER")]
    pub(crate) xid: Option<u16>,
    /// The node fails, with everything on it
    #[arg(long)]
    pub(crate) down: bool,
    /// The node refuses to start anything
    #[arg(long)]
    pub(crate) refuse_starts: bool,
    /// It refuses for this long, not until it is healed
    #[arg(long = "for", value_name = "SPAN", requires = "refuse_starts")]
    pub(crate) span: Option<String>,
    /// It can be used again
    #[arg(long)]
    pub(crate) heal: bool,
    /// How the answer is written
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

/// `wharf sim`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("work").required(true).args(["random", "cases", "trace"]), after_long_help = "\
Examples:
  wharf sim --cases cases.jsonl
  wharf sim --random 42 --steps 5000 --faults
  wharf sim --trace trace.csv.gz --fleet pod --jobs jobs.csv -o json
  wharf sim --trace philly_jobs.csv.gz --format philly --from 4062800 --to 9333140 --gpus 1840 --order all")]
pub(crate) struct SimArgs {
    /// Play at random from this seed
    #[arg(long, value_name = "SEED")]
    pub(crate) random: Option<u64>,
    /// Run the cases of a file; `-` is standard input
    #[arg(long, value_name = "FILE|-")]
    pub(crate) cases: Option<PathBuf>,
    /// Replay a trace of jobs; `-` is standard input
    #[arg(long, value_name = "FILE|-")]
    pub(crate) trace: Option<PathBuf>,
    /// Steps of a random play
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) steps: u64,
    /// Let nodes, GPUs, disk and messages fail
    #[arg(long)]
    pub(crate) faults: bool,
    /// How the trace is written
    #[arg(long, value_enum, default_value = "wharf")]
    pub(crate) format: TraceFormat,
    /// A built-in fleet or a fleet file
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) fleet: Option<String>,
    /// The directory of the policy [default: built in]
    #[arg(long, value_name = "DIR")]
    pub(crate) policy: Option<PathBuf>,
    /// What of the trace only `--format philly` knows
    #[command(flatten)]
    pub(crate) philly: PhillyArgs,
    /// Seed of everything that is drawn in a replay
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Write one row per job
    #[arg(long, value_name = "OUT.csv")]
    pub(crate) jobs: Option<PathBuf>,
    /// Write every event
    #[arg(long, value_name = "OUT.jsonl")]
    pub(crate) events: Option<PathBuf>,
    /// Keep the journal of a replay
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// How the result is written
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

/// How a trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TraceFormat {
    /// Our own
    Wharf,
    /// The Philly trace: `job_id,vc,submit_s,submit_vc_s,num_gpu,duration_s`
    Philly,
}

/// What `wharf sim --format philly` takes beside the rest.
#[derive(Debug, Args)]
pub(crate) struct PhillyArgs {
    /// Only jobs submitted at this second of the trace or later
    #[arg(long, value_name = "SECOND")]
    pub(crate) from: Option<u64>,
    /// Only jobs submitted before this second of the trace
    #[arg(long, value_name = "SECOND")]
    pub(crate) to: Option<u64>,
    /// A fleet of so many GPUs on nodes of eight, instead of --fleet
    #[arg(long, value_name = "N", conflicts_with = "fleet", value_parser = gpus)]
    pub(crate) gpus: Option<u32>,
    /// Who decides [default: wharf]
    #[arg(long, value_enum, value_name = "ORDER")]
    pub(crate) order: Option<TraceOrder>,
    /// What is known of how long jobs run: none, learned, oracle or noisy:SIGMA [default: none]
    #[arg(long, value_name = "WORD", value_parser = estimates)]
    pub(crate) estimates: Option<Estimates>,
    /// How jobs save their work [default: every=30m,grace=60s,restart=60s,on-request]
    #[arg(long, value_name = "every=30m,grace=60s,restart=60s[,on-request]", value_parser = contract)]
    pub(crate) checkpoint: Option<Contract>,
    /// Move every submission by up to 30 s either way
    #[arg(long, value_name = "SEED")]
    pub(crate) jitter: Option<u64>,
}

impl PhillyArgs {
    /// The flags that were given.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        let Self { from, to, gpus, order, estimates, checkpoint, jitter } = self;
        let flags = [
            ("--from", from.is_some()),
            ("--to", to.is_some()),
            ("--gpus", gpus.is_some()),
            ("--order", order.is_some()),
            ("--estimates", estimates.is_some()),
            ("--checkpoint", checkpoint.is_some()),
            ("--jitter", jitter.is_some()),
        ];
        flags.into_iter().filter(|&(_, given)| given).map(|(flag, _)| flag).collect()
    }
}

/// Who decides in a replay of the Philly trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TraceOrder {
    /// The engine of this program
    Wharf,
    /// First come, first served; the head of the queue blocks
    Fifo,
    /// The oldest that fits
    FifoSkip,
    /// Each tenant has nodes of its own; of its jobs the oldest that fits
    Static,
    /// All of them, side by side
    All,
}

/// `wharf trace`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  wharf trace generate philly --out traces
  wharf trace generate openb --seed 7 --out traces")]
pub(crate) struct TraceArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: TraceCommand,
}

/// What `wharf trace` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Write a synthetic stand-in for a published trace
    Generate(GenerateArgs),
}

/// `wharf trace generate`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
The same seed gives the same bytes on every machine. Figures measured on a stand-in are not comparable with figures
measured on the published trace; docs/traces.md says where those are to be had, and under which licence.

Examples:
  wharf trace generate philly --out traces
  wharf sim --trace traces/philly_jobs.csv --format philly --gpus 1840 --order all
  wharf trace generate openb --out traces
  wharf bench placement --traces traces --columns all")]
pub(crate) struct GenerateArgs {
    /// Which one
    #[arg(value_enum, value_name = "TRACE")]
    pub(crate) kind: TraceKind,
    /// The directory that it is written to
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Seed of everything that is drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// A published trace that has a stand-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TraceKind {
    /// Two months of a training cluster: `philly_jobs.csv`, `philly_vcs.csv`
    Philly,
    /// Pods on a cluster of shared GPUs: `openb_nodes_gpu.csv`, `openb_pods/`, `fgd-arrival-orders/`
    Openb,
}

fn gpus(word: &str) -> Result<u32, String> {
    let number =
        word.parse::<u32>().ok().filter(|&gpus| gpus > 0 && gpus <= 800_000 && gpus.is_multiple_of(8));
    number.ok_or_else(|| "a fleet has nodes of eight GPUs: a multiple of 8, at most 800000".to_owned())
}

fn estimates(word: &str) -> Result<Estimates, String> {
    let wrong = || "none, learned, oracle or noisy:SIGMA with SIGMA from 0 to 10, as in noisy:1.5".to_owned();
    match word.split_once(':') {
        None if word == "none" => Ok(Estimates::None),
        None if word == "learned" => Ok(Estimates::Learned),
        None if word == "oracle" => Ok(Estimates::Oracle),
        Some(("noisy", sigma)) => {
            let sigma = sigma.parse().ok().filter(|sigma| (0.0..=10.0).contains(sigma));
            sigma.map(Estimates::Noisy).ok_or_else(wrong)
        }
        _ => Err(wrong()),
    }
}

/// How jobs save their work, as it is typed.
fn contract(word: &str) -> Result<Contract, String> {
    let mut contract = Contract { every: Millis(0), grace: Millis(0), restart: Millis(0), on_request: false };
    let mut missing = vec!["every", "grace", "restart"];
    for part in word.split(',') {
        if part == "on-request" && !contract.on_request {
            contract.on_request = true;
            continue;
        }
        let unknown =
            || format!("{part:?} is not one of every=SPAN, grace=SPAN, restart=SPAN, on-request, each once");
        let (key, value) = part.split_once('=').ok_or_else(unknown)?;
        let at = missing.iter().position(|&known| known == key).ok_or_else(unknown)?;
        missing.remove(at);
        let value = span(value)
            .ok_or_else(|| format!("{key}={value}: a span is written 90s, 30m or 2h, at most 7d"))?;
        match key {
            "every" if value.0 == 0 => return Err("every is more than nothing".to_owned()),
            "every" => contract.every = value,
            "grace" => contract.grace = value,
            _ => contract.restart = value,
        }
    }
    if missing.is_empty() { Ok(contract) } else { Err(format!("{} is missing", missing.join(" and "))) }
}

/// A whole number with its unit.
fn span(word: &str) -> Option<Millis> {
    let unit = word.chars().last()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 24 * 3600,
        _ => return None,
    };
    let number: u64 = word.strip_suffix(unit)?.parse().ok()?;
    let span = number.checked_mul(seconds)?;
    (span <= 7 * 24 * 3600).then_some(Millis::from_secs(span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contract_is_read_exactly() {
        let read = contract("every=30m,grace=60s,restart=1m,on-request").unwrap();
        let (every, minute) = (Millis::from_secs(1800), Millis::from_secs(60));
        assert_eq!(read, Contract { every, grace: minute, restart: minute, on_request: true });
        assert!(!contract("restart=0s,grace=0s,every=1d").unwrap().on_request);
        let wrong = [
            "",
            "every=30m",
            "every=30m,grace=60s",
            "every=30m,grace=60s,restart=60",
            "every=30m,grace=60s,restart=60s,on_request",
            "every=0s,grace=60s,restart=60s",
            "every=30m,every=30m,grace=60s,restart=60s",
            "every=8d,grace=60s,restart=60s",
            "every=-1m,grace=60s,restart=60s",
        ];
        for word in wrong {
            contract(word).expect_err(word);
        }
    }

    #[test]
    fn estimates_are_one_of_four() {
        assert_eq!(estimates("none"), Ok(Estimates::None));
        assert_eq!(estimates("learned"), Ok(Estimates::Learned));
        assert_eq!(estimates("oracle"), Ok(Estimates::Oracle));
        assert_eq!(estimates("noisy:0.5"), Ok(Estimates::Noisy(0.5)));
        for word in ["", "noisy", "noisy:", "noisy:x", "noisy:-1", "noisy:nan", "truth", "oracle:1"] {
            estimates(word).expect_err(word);
        }
    }
}
