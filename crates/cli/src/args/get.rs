//! `wharf get`: what is listed, how, and which filters there are.

use clap::{Args, ValueEnum};
use strum::VariantArray;
use wharf_api::v1::{EndedState, HistoryKind, JobState};

/// How a list is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListFormat {
    /// An aligned table
    Table,
    /// The table with more columns
    Wide,
    /// For programs: one document with a `schema` field
    Json,
    /// One name per line, as other commands take it
    Name,
    /// Comma-separated values with plain numbers
    Csv,
    /// What `json` has, as YAML
    Yaml,
}

/// What `wharf get` can list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Listed {
    /// Live jobs; with --state done, failed, cancelled or all also those that are over
    #[value(alias = "job")]
    Jobs,
    /// Nodes, with what is handed out and what is really used
    #[value(alias = "node")]
    Nodes,
    /// GPUs, one by one
    #[value(alias = "gpu")]
    Gpus,
    /// Free capacity that fits no job that waits or usually comes, and why
    Stranded,
    /// Starts that are promised to jobs that wait, the earliest first
    #[value(alias = "reservation")]
    Reservations,
    /// Windows that are booked, the earliest first
    #[value(alias = "booking")]
    Bookings,
    /// Downtimes of nodes that are planned, the earliest first
    Maintenance,
    /// Tenants: what each is promised, may use and uses
    #[value(alias = "tenant")]
    Tenants,
    /// Jobs that had to leave for others, newest first
    #[value(alias = "eviction")]
    Evictions,
    /// The policy in force
    Policy,
    /// What is over, newest first
    History,
    /// GPU models that are known: memory, and how they can be cut. Needs no control plane
    #[value(alias = "model")]
    Models,
}

/// `wharf get`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  wharf get jobs --tenant lab/nlp --state waiting
  wharf get jobs --mine -l team=red
  wharf get jobs --state failed        jobs that are over, the newest first, with the reason
  wharf get nodes -o wide
  wharf get gpus n1                    how each GPU is divided, and what is left of it
  wharf get stranded                   what is free and of no use, and why
  wharf get reservations               starts that are promised to jobs that wait
  wharf get bookings                   windows that are booked
  wharf get maintenance                downtimes of nodes that are planned
  wharf get jobs -o name | xargs wharf cancel
  wharf get tenants -o wide            with what each has borrowed, of late too, and lent
  wharf get evictions --tenant lab/nlp --limit 20
  wharf get history --kind receipt --limit 20
  wharf get models -o wide

ALLOC is what is handed out, SM what the hardware really does with it; ? is what is not known.")]
pub(crate) struct GetArgs {
    /// What to list
    #[arg(value_enum, value_name = "WHAT")]
    pub(crate) what: Listed,
    /// Only of this node (gpus)
    #[arg(value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// How it is written
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: ListFormat,
    /// Only of this tenant and those below it (jobs, tenants, evictions, history)
    #[arg(long, value_name = "PATH")]
    pub(crate) tenant: Option<String>,
    /// Only in this state (jobs): waiting, starting, running or leaving; done, failed or cancelled for jobs that are
    /// over; all for every job, live or over
    #[arg(long, value_parser = state)]
    pub(crate) state: Option<StateFilter>,
    /// Only those that you submitted, as the environment says: `WHARF_USER`, else `USER` (jobs)
    #[arg(long)]
    pub(crate) mine: bool,
    /// Only with this label, KEY=VALUE or KEY; may be given several times (jobs)
    #[arg(short = 'l', long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// Only of this job, by NAME or TENANT/NAME (evictions)
    #[arg(long, value_name = "JOB")]
    pub(crate) job: Option<String>,
    /// Only rows of this kind: job, receipt, eviction, usage, audit, allocation, carried or guarantee; without it all
    /// but the last three (history)
    #[arg(long, value_parser = kind)]
    pub(crate) kind: Option<HistoryKind>,
    /// Only of jobs with this name (history)
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// At most so many rows, the newest; without it 10000 jobs that are over, 100 evictions, 100 rows of history
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) limit: Option<u32>,
    /// Leave the line of headers out
    #[arg(long)]
    pub(crate) no_headers: bool,
    /// Go on with a line for each job that changes, until it is interrupted (live jobs, as a table)
    #[arg(short, long)]
    pub(crate) watch: bool,
}

/// Which jobs are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateFilter {
    /// Live ones in this state.
    Live(JobState),
    /// Those that are over and ended like this.
    Ended(EndedState),
    /// Live ones, then those that are over.
    All,
}

fn state(word: &str) -> Result<StateFilter, String> {
    let live = JobState::VARIANTS.iter().map(|&state| (state.into_str(), StateFilter::Live(state)));
    let ended = EndedState::VARIANTS.iter().map(|&state| (state.into_str(), StateFilter::Ended(state)));
    let all: Vec<(&str, StateFilter)> = live.chain(ended).chain([("all", StateFilter::All)]).collect();
    let known = all.iter().find(|(known, _)| *known == word).map(|(_, state)| *state);
    let words: Vec<&str> = all.iter().map(|(word, _)| *word).collect();
    known.ok_or_else(|| format!("a state is one of: {}", words.join(", ")))
}

fn kind(word: &str) -> Result<HistoryKind, String> {
    let words: Vec<&str> = HistoryKind::VARIANTS.iter().map(|kind| kind.into_str()).collect();
    let known = words.iter().position(|known| *known == word).map(|at| HistoryKind::VARIANTS[at]);
    known.ok_or_else(|| format!("a kind is one of: {}", words.join(", ")))
}
