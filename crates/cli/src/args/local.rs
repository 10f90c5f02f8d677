//! Arguments of the commands that run here, without a control plane elsewhere: `up`, `policy`, `sim`, `check`,
//! `bench`.

use std::path::PathBuf;
use strum::IntoStaticStr;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use wharf_sim::bench::mig::GPUS_MAX;

use super::Format;

/// `wharf up`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  wharf up                            a small simulated fleet, kept in ./wharf-data
  wharf up --demo --speed 60          with work that comes and goes, a minute per second
  wharf up --fleet pod --policy ./policy --listen 0.0.0.0:8470 --allow-host gpus.example.org")]
pub(crate) struct UpArgs {
    /// A built-in fleet or a fleet file [default: lab]
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) fleet: Option<String>,
    /// Where journal and history are kept
    #[arg(long, value_name = "DIR", default_value = "./wharf-data")]
    pub(crate) data: PathBuf,
    /// Where the API listens
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8470")]
    pub(crate) listen: String,
    /// A name by which clients may call it, beside its addresses and localhost; may be repeated
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    pub(crate) allow_host: Vec<String>,
    /// The directory of the policy, read again when it changes [default: DATA/policy]
    #[arg(long, value_name = "DIR")]
    pub(crate) policy: Option<PathBuf>,
    /// Open a journal that is behind what was acknowledged: adopt what runs, stop nothing, hold what cannot be decided
    #[arg(long)]
    pub(crate) restore: bool,
    /// Submit work that tells a story
    #[arg(long)]
    pub(crate) demo: bool,
    /// Seconds of the simulated world per second
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) speed: u64,
}

fn host_name(text: &str) -> Result<String, String> {
    let part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_name = !text.is_empty() && text.bytes().all(part);
    let wrong = || "give a host name or an IPv4 address alone, without scheme and port".to_owned();
    is_name.then(|| text.to_owned()).ok_or_else(wrong)
}

/// `wharf policy`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  wharf policy lint ./policy
  wharf policy lint ./policy --fleet pod -o json")]
pub(crate) struct PolicyArgs {
    /// What to do with it.
    #[command(subcommand)]
    pub(crate) command: PolicyCommand,
}

/// What `wharf policy` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Say what is wrong or doubtful in a policy directory, and how soon each guarantee is back
    Lint(LintArgs),
}

/// `wharf policy lint`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
It reads the directory here and needs no control plane. Proven are: promises against limits, against the tenant above
and, with --fleet, against the GPUs, cores and memory that there are.

Examples:
  wharf policy lint ./policy
  wharf policy lint ./policy --fleet lab
  wharf policy lint ./policy --fleet fleet.yaml -o json

Exit codes: 0 no error (warnings and notes may be), 1 errors, 64 no such directory or fleet.")]
pub(crate) struct LintArgs {
    /// The directory of the policy
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// A built-in fleet or a fleet file that has to keep the promises
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) fleet: Option<String>,
    /// How the findings are written
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

/// `wharf check`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  wharf check
  wharf check --data /var/lib/wharf -o text")]
pub(crate) struct CheckArgs {
    /// Where journal and history are kept
    #[arg(long, value_name = "DIR", default_value = "./wharf-data")]
    pub(crate) data: PathBuf,
    /// Ask whether `wharf up --restore` would take it, as of a backup
    #[arg(long)]
    pub(crate) restore: bool,
    /// How the findings are written
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "json")]
    pub(crate) output: Format,
}

/// `wharf bench`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  wharf bench engine --case fill
  wharf bench victims --seed 1 --count 2000
  wharf bench mig --model h100 --mix mixed --load 1.05
  wharf bench submit --rate 200 --seconds 20
  wharf bench soak --fleet giant --speed 60 --minutes 10 -o json")]
pub(crate) struct BenchArgs {
    /// What to measure.
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
    /// How the result is written
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

/// What `wharf bench` can measure.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// One decision of the engine alone, in CPU time and bytes
    Engine(EngineArgs),
    /// The victims of the planner beside every possible choice, on small fleets
    Victims(VictimsArgs),
    /// What a pool of GPUs cut into slices has to refuse, by where the slices are cut
    Mig(MigArgs),
    /// How much of a cluster of shared GPUs is given out, on the openb traces
    Placement(PlacementArgs),
    /// From submission to decision, at a steady rate
    Submit {
        /// Submissions per second
        #[arg(long, value_name = "N", default_value_t = 200)]
        rate: u64,
        /// For so long
        #[arg(long, value_name = "N", default_value_t = 20)]
        seconds: u64,
    },
    /// From a journal on disk to a state in memory
    Recovery {
        /// Events in the journal
        #[arg(long, value_name = "N", default_value_t = 1_000_000)]
        events: u64,
    },
    /// From the first byte of the program to the first answer
    Start {
        /// How often
        #[arg(long, value_name = "N", default_value_t = 5)]
        runs: u64,
    },
    /// A large fleet under load, for a while
    Soak {
        /// A built-in fleet or a fleet file
        #[arg(long, value_name = "NAME|FILE", default_value = "giant")]
        fleet: String,
        /// Seconds of the simulated world per second
        #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=100_000))]
        speed: u64,
        /// For so long
        #[arg(long, value_name = "N", default_value_t = 10)]
        minutes: u64,
    },
}

/// `wharf bench engine`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("state").required(true).args(["case", "shape"]), after_long_help = "\
A shape is one JSON object; unknown keys are errors. Only nodes and tenants, and the tenant of a job, have to be there:

  {\"nodes\":   [{\"count\": 500, \"gpus\": 8, \"model\": \"h100\", \"cpu_milli\": 128000, \"memory\": 2199023255552, \"labels\": {}}],
   \"tenants\": [{\"path\": \"lab/a\", \"guaranteed_gpus\": 4000, \"limit_gpus\": \"unlimited\", \"weight\": 1, \"priority\": 100}],
   \"running\": [{\"count\": 1, \"tenant\": \"lab/a\", \"class\": \"batch\", \"gpus\": 0.5, \"tasks\": 1, \"min\": 1}],
   \"pending\": [], \"late\": []}

running is laid on the nodes first-fit; late is submitted after the first plan and planned for by itself.
docs/reference/bench-shape.md has every key with its default.

Examples:
  wharf bench engine --case reclaim-gang -o json
  wharf bench engine --shape shape.json --runs 9")]
pub(crate) struct EngineArgs {
    /// A decision with a promise
    #[arg(long, value_enum, value_name = "NAME")]
    pub(crate) case: Option<EngineCase>,
    /// A fleet, tenants and jobs of a file; `-` is standard input
    #[arg(long, value_name = "FILE.json|-")]
    pub(crate) shape: Option<PathBuf>,
    /// How often the decision is made; the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
}

/// `wharf bench victims`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Makes small full fleets on which one job waits that is within its tenant's guarantee or fair share, asks the planner who
has to leave for it, and tries every other set of victims there is. docs/reference/bench-victims.md says what is allowed,
what competes on cost, and what stands in a dump.

Examples:
  wharf bench victims --seed 1 --count 20000 -o json
  wharf bench victims --seed 7 --count 100 --dump instances.jsonl")]
pub(crate) struct VictimsArgs {
    /// Everything follows from it
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// How many instances
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) count: u64,
    /// Write every instance, the planner's choice and the best one, one JSON object a line
    #[arg(long, value_name = "OUT.jsonl")]
    pub(crate) dump: Option<PathBuf>,
}

/// `wharf bench mig`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Slices arrive at random and stay for a random time; what fits nowhere is refused and gone. The same arrivals are played
to every policy. Load 1.0 offers as much as the pool has, where a slice counts as its part of memory or of compute,
whichever is more.

A mix is small, mixed, large, or a file with a line PROFILE,SHARE each:

  1g.10gb,30
  3g.40gb,10   # names as `wharf explain model/MODEL` prints them

Examples:
  wharf bench mig
  wharf bench mig --model A100-80GB --mix large --load 1.05 --seed 7 -o json
  wharf bench mig --model rtx-pro-6000 --gpus 64 --policy bestfit
  wharf bench mig --model a100 --mix mix.csv --decisions decisions.jsonl")]
pub(crate) struct MigArgs {
    /// A model by name or by the row of its profiles; `wharf get models` lists them
    #[arg(long, value_name = "MODEL", default_value = "a100")]
    pub(crate) model: String,
    /// GPUs in the pool
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=i64::from(GPUS_MAX)))]
    pub(crate) gpus: u32,
    /// small, mixed, large, or a file of PROFILE,SHARE lines; `-` is standard input
    #[arg(long, value_name = "MIX|FILE", default_value = "mixed")]
    pub(crate) mix: String,
    /// What arrives in a mean lifetime, of the pool: 0.01 to 10
    #[arg(long, value_name = "X", default_value = "1.0", value_parser = load)]
    pub(crate) load: u64,
    /// Everything follows from it
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Where slices are cut
    #[arg(long, value_enum, value_name = "POLICY", default_value = "wharf")]
    pub(crate) policy: MigPolicy,
    /// Arrivals that count, after the warm-up
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) arrivals: u64,
    /// Write every arrival and where it was cut, one JSON object a line
    #[arg(long, value_name = "OUT.jsonl")]
    pub(crate) decisions: Option<PathBuf>,
}

/// `wharf bench placement`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Pods arrive one at a time and stay; each is placed once or refused for good. docs/packing.md says what is measured and
docs/reference/cli.md what stands in the output.

Examples:
  wharf bench placement --columns all
  wharf bench placement --trace all --columns all -o json
  wharf bench placement --trace gpuspec33 --columns seed42 --policy fgd --decisions out.jsonl
  wharf bench placement --nodes nodes.csv --pods pods.csv.gz --arrivals orders.csv.gz --columns seed42")]
pub(crate) struct PlacementArgs {
    /// The directory of the traces [default: ../shared/traces]
    #[arg(long, value_name = "DIR")]
    pub(crate) traces: Option<PathBuf>,
    /// Which of them, separated by commas, or `all`
    #[arg(long, value_name = "NAMES", default_value = "default")]
    pub(crate) trace: String,
    /// The nodes, instead of those in the directory
    #[arg(long, value_name = "CSV")]
    pub(crate) nodes: Option<PathBuf>,
    /// The pods, instead of those in the directory
    #[arg(long, value_name = "CSV", requires = "arrivals")]
    pub(crate) pods: Option<PathBuf>,
    /// The orders of arrival, a column each: rows of the file of pods, from 0
    #[arg(long, value_name = "CSV", requires = "pods")]
    pub(crate) arrivals: Option<PathBuf>,
    /// Which orders, separated by commas, or `all`
    #[arg(long, value_name = "NAMES", default_value = "seed42")]
    pub(crate) columns: String,
    /// Who decides
    #[arg(long, value_enum, value_name = "NAME", default_value = "wharf")]
    pub(crate) policy: PlacementPolicy,
    /// Stop after so many arrivals
    #[arg(long, value_name = "N")]
    pub(crate) first: Option<usize>,
    /// Write every decision, one JSON object a line
    #[arg(long, value_name = "OUT.jsonl")]
    pub(crate) decisions: Option<PathBuf>,
}

/// Where slices are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MigPolicy {
    /// Where the least is lost of what others will ask for
    Wharf,
    /// The GPU with the fewest free slots, the lowest start
    Bestfit,
    /// The first GPU, the lowest start
    Firstfit,
}

/// A load in millionths.
fn load(word: &str) -> Result<u64, String> {
    let wrong = || "a load is a number from 0.01 to 10 with at most six decimals".to_owned();
    let (whole, part) = word.split_once('.').unwrap_or((word, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if part.len() > 6 || whole.len() > 2 || whole.is_empty() || !digits(whole) || !digits(part) {
        return Err(wrong());
    }
    let millionths: u64 = format!("{whole}{part:0<6}").parse().map_err(|_| wrong())?;
    if (10_000..=10_000_000).contains(&millionths) { Ok(millionths) } else { Err(wrong()) }
}

/// Who decides in `wharf bench placement`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlacementPolicy {
    /// The engine of this program
    Wharf,
    /// Fragmentation gradient descent, as published
    Fgd,
    /// The least that is left over
    #[value(name = "bestfit")]
    BestFit,
    /// The first node that fits
    #[value(name = "firstfit")]
    FirstFit,
    /// GPUs in use first, then nodes in use
    Packing,
}

impl From<PlacementPolicy> for wharf_sim::trace::openb::Policy {
    fn from(policy: PlacementPolicy) -> Self {
        match policy {
            PlacementPolicy::Wharf => Self::Wharf,
            PlacementPolicy::Fgd => Self::Fgd,
            PlacementPolicy::BestFit => Self::BestFit,
            PlacementPolicy::FirstFit => Self::FirstFit,
            PlacementPolicy::Packing => Self::Packing,
        }
    }
}

/// A decision with a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, IntoStaticStr)]
#[strum(const_into_str, serialize_all = "kebab-case")]
pub(crate) enum EngineCase {
    /// 4,000 one-GPU jobs on 500 empty nodes
    Fill,
    /// 4,000 one-GPU jobs that take 500 nodes back from 4,000 others
    ReclaimSmall,
    /// A gang of 500 nodes that takes them back from among 8,000 jobs
    ReclaimGang,
    /// A gang on full nodes from which nothing may be evicted
    Impossible,
    /// One job ends on 512 full nodes, 10,000 wait, 64 starts are promised
    Reservations,
    /// A service wants 50 more replicas on 1,000 full nodes
    Burst,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_read_exactly() {
        let loads = ["1.0", "1", "1.05", "0.01", "10", "0.123456"].map(|word| load(word).unwrap());
        assert_eq!(loads, [1_000_000, 1_000_000, 1_050_000, 10_000, 10_000_000, 123_456]);
        for wrong in ["", ".", ".5", "0", "0.001", "10.1", "1e1", "-1", "1.1234567", "1.0.0", "nan"] {
            load(wrong).expect_err(wrong);
        }
    }
}
