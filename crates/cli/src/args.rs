//! What can be typed: commands, flags, their defaults and their help.
//!
//! Nothing is judged here beyond what one argument can say about itself; what the arguments mean together is read by
//! the command that takes them.

mod book;
mod get;
mod job;
mod local;
pub(crate) mod names;
mod nodes;
mod sim;
mod usage;

use clap::{Args, Parser, Subcommand, ValueEnum};
use wharf_api::client::SERVER_DEFAULT;

pub(crate) use book::{BookArgs, BookFlagArgs};
pub(crate) use get::{GetArgs, ListFormat, Listed, StateFilter};
pub(crate) use job::{JobArgs, JobFlagArgs, WaitArgs, WaitFor};
pub(crate) use local::{
    BenchArgs, BenchCommand, CheckArgs, EngineArgs, EngineCase, LintArgs, MigArgs, MigPolicy, PlacementArgs,
    PlacementPolicy, PolicyArgs, PolicyCommand, UpArgs, VictimsArgs,
};
pub(crate) use nodes::{CordonArgs, DrainArgs, MaintainArgs, NodeNames, NodesArgs};
pub(crate) use sim::{
    GenerateArgs, PhillyArgs, SimArgs, SimFaultArgs, TraceArgs, TraceCommand, TraceFormat, TraceKind,
    TraceOrder,
};
pub(crate) use usage::{ReportFormat, UsageArgs};

/// What `wharf` alone says. A test holds it to the list of commands.
pub(crate) const OVERVIEW: &str = "\
Wharf decides which GPU each job lands on, and when.

Usage: wharf <COMMAND> [OPTIONS]

Start here
  wharf up --demo                     a control plane, a simulated fleet and some work, in this terminal
  wharf top                           in a second one: the fleet, live
  wharf submit --name hello --tenant lab/nlp --gpus 1 --duration 5m
  wharf explain job/hello             where it is, and why

Jobs
  submit     Hand in a job
  plan       Ask what would happen to a job, without handing it in
  explain    Say why a job, tenant, node or GPU is as it is, why a job was evicted, or how a model is cut
  cancel     Take a job back, or give a booking up
  evict      Ask a job to save its work, leave and wait again
  release    Let a held job be started: after a restore, once you know that it did not run
  extend     Let a job run longer than its time limit
  wait       Wait until jobs run or are over
  scale      Want another number of replicas of a service
  book       Book places for a time: from then on they are a tenant's own
  replace    Replace every replica of a service by a fresh one

Fleet
  top        Watch the whole fleet on one screen
  get        List jobs, nodes, gpus, tenants, evictions, history, models, or show the policy
  usage      Add up GPU-hours: allocated, really used and lost, by tenant, user, label or day
  cordon     Keep new work off nodes
  uncordon   Let new work come to nodes again
  drain      Empty nodes: what is there saves its work and leaves in time
  undrain    Let nodes take work again that were drained
  maintain   Plan when nodes are out of service

Control plane
  up         Run everything in one process
  policy     Lint a policy directory: what is wrong, how to mend it, how soon each guarantee is back
  sim        Replay traces, run cases, or play at random with a simulated fleet
  trace      Write a synthetic stand-in for a published trace
  sim-fault  Let something go wrong in a simulated fleet: a GPU, a node
  check      Check the invariants of saved data
  bench      Measure what is promised

Shell
  completions  Print completions for bash, zsh or fish
  help         Print this, or the help of a command

Options
  --server <URL>   the control plane to talk to [env: WHARF_SERVER] [default: http://127.0.0.1:8470]
  -h, --help       print help; `wharf <COMMAND> --help` has examples
  -V, --version    print the version

Exit codes: 0 done or startable now, 1 would wait, 2 can never be placed, 3 refused, 4 not found, 5 conflict,
64 usage, 69 no answer.
";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = "wharf", version, about = "Decides which GPU each job lands on, and when", override_help = OVERVIEW)]
pub(crate) struct Cli {
    /// The control plane to talk to
    #[arg(long, global = true, value_name = "URL", env = "WHARF_SERVER", default_value = SERVER_DEFAULT, hide_env_values = true)]
    pub(crate) server: String,
    /// What to do; the overview where nothing is given.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// One command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run everything in one process: control plane, fleet and API
    Up(UpArgs),
    /// Hand in a job
    Submit(SubmitArgs),
    /// Ask what would happen to a job, without handing it in
    Plan(PlanArgs),
    /// Say why a job, tenant, node or GPU is as it is, why a job was evicted, or how a model is cut
    Explain(ExplainArgs),
    /// Take a job back, or give a booking up
    Cancel(CancelArgs),
    /// Ask a job to save its work, leave and wait again
    Evict(JobNameArgs),
    /// Let a held job be started: after a restore, once you know that it did not run
    Release(JobNameArgs),
    /// Wait until jobs run or are over
    Wait(WaitArgs),
    /// Let a job run longer than its time limit
    Extend(ExtendArgs),
    /// Want another number of replicas of a service
    Scale(ScaleArgs),
    /// Book places for a time: from then on they are a tenant's own
    Book(BookArgs),
    /// Replace every replica of a service by a fresh one
    Replace(ReplaceArgs),
    /// List jobs, nodes, gpus, tenants, evictions, history, models, or show the policy
    Get(GetArgs),
    /// Add up GPU-hours: allocated, really used and lost, by tenant, user, label or day
    Usage(UsageArgs),
    /// Watch the whole fleet on one screen
    Top(TopArgs),
    /// Keep new work off nodes
    Cordon(CordonArgs),
    /// Let new work come to nodes again
    Uncordon(NodesArgs),
    /// Empty nodes: what is there saves its work and leaves in time
    Drain(DrainArgs),
    /// Let nodes take work again that were drained
    Undrain(NodesArgs),
    /// Plan when nodes are out of service
    Maintain(MaintainArgs),
    /// Lint a policy directory
    Policy(PolicyArgs),
    /// Replay traces, run cases, or play at random with a simulated fleet
    Sim(SimArgs),
    /// Write a synthetic stand-in for a published trace
    Trace(TraceArgs),
    /// Let something go wrong in a simulated fleet
    SimFault(SimFaultArgs),
    /// Check the invariants of saved data
    Check(CheckArgs),
    /// Measure what is promised
    Bench(BenchArgs),
    /// Print completions for a shell
    Completions(CompletionArgs),
}

impl Command {
    /// How its answer is written, and how it says no.
    pub(crate) fn format(&self) -> Format {
        match self {
            Self::Submit(args) => args.output,
            Self::Plan(args) => args.output,
            Self::Explain(args) => args.output,
            Self::Cancel(args) => args.output,
            Self::Evict(args) | Self::Release(args) => args.output,
            Self::Wait(args) => args.output,
            Self::Extend(args) => args.output,
            Self::Scale(args) => args.output,
            Self::Book(args) => args.output,
            Self::Replace(args) => args.output,
            Self::Cordon(args) => args.nodes.output,
            Self::Uncordon(args) | Self::Undrain(args) => args.nodes.output,
            Self::Drain(args) => args.nodes.output,
            Self::Maintain(args) => args.nodes.output,
            Self::Get(args) if args.output == ListFormat::Json => Format::Json,
            Self::Usage(args) if args.output == ReportFormat::Json => Format::Json,
            Self::Up(_)
            | Self::Get(_)
            | Self::Usage(_)
            | Self::Top(_)
            | Self::Trace(_)
            | Self::Completions(_) => Format::Text,
            Self::Policy(PolicyArgs { command: PolicyCommand::Lint(args) }) => args.output,
            Self::Sim(args) => args.output,
            Self::SimFault(args) => args.output,
            Self::Check(args) => args.output,
            Self::Bench(args) => args.output,
        }
    }
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs: one document with a `schema` field
    Json,
}

/// `wharf submit`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  wharf submit job.yaml
  wharf submit --name hello --tenant lab/nlp --gpus 1 --duration 5m
  wharf submit --name sweep --tenant lab/nlp --gpus 1 --array 0-19%4     20 jobs, at most 4 at a time
  wharf submit --name train --tenant lab/nlp --gpus 8 --after prepare    starts when prepare has succeeded
  generate-job | wharf submit -

A job file is short YAML:
  name: llama-70b
  tenant: lab/nlp
  tasks: 4
  gpus: 8
  gpu: {model: h100}

A job that has to wait is accepted too: the exit code is 0.")]
pub(crate) struct SubmitArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// Makes a repeated submission the same submission [default: a new one each time]
    #[arg(long, value_name = "KEY", help_heading = None)]
    pub(crate) idempotency_key: Option<String>,
    /// How the answer is written
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text", help_heading = None)]
    pub(crate) output: Format,
}

/// `wharf plan`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  wharf plan job.yaml
  wharf plan --name big --tenant lab/nlp --tasks 4 --gpus 8
  wharf plan -f job.yaml && wharf submit job.yaml     submit only what starts at once

Exit codes: 0 would start right away, 1 would wait, also for others to leave, 2 can never be placed, 3 refused.")]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// How the answer is written
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text", help_heading = None)]
    pub(crate) output: Format,
}

/// `wharf explain`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  wharf explain job/llama-70b          by name, where only one tenant has such a job
  wharf explain job/lab/nlp/llama-70b  by tenant and name
  wharf explain tenant/lab/nlp
  wharf explain node/n1
  wharf explain gpu/n1:3               how it is divided, and what could still be cut out of it
  wharf explain booking/friday         where it is, what is missing, what is in its way
  wharf explain eviction/18234         which job left for which, by which rule, at what price
  wharf explain model/h100             its slots, its profiles, and every layout that is full")]
pub(crate) struct ExplainArgs {
    /// job/NAME, tenant/PATH, node/NAME, gpu/NODE:INDEX, booking/NAME, eviction/ID or model/NAME; a bare name is a job
    #[arg(value_name = "WHAT")]
    pub(crate) what: String,
    /// How the answer is written
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

/// `wharf cancel`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
A job is named by its name, by tenant and name, or by its uid; `job/` before it may be left out.

Examples:
  wharf cancel job/hello               ends it for good
  wharf cancel hello train             both; one that cannot be cancelled does not keep the others
  wharf cancel sweep                   all members of the array sweep
  wharf cancel maintenance/fans        its nodes stay in service
  wharf cancel booking/friday          its places are free for all again; its jobs go on as every other")]
pub(crate) struct CancelArgs {
    /// job/NAME, NAME, TENANT/NAME or uid; booking/NAME for a booking, maintenance/NAME for a downtime
    #[arg(value_name = "JOB", required = true)]
    pub(crate) names: Vec<String>,
    /// How the answer is written
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

/// `wharf evict` and `wharf release`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
A job is named by its name, by tenant and name, or by its uid; `job/` before it may be left out.

Examples:
  wharf evict lab/nlp/llama-70b        it saves its work, leaves, and waits again
  wharf release job/hello              it waits for its start like any other")]
pub(crate) struct JobNameArgs {
    /// job/NAME, NAME, TENANT/NAME or uid
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
    /// How the answer is written
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

/// `wharf extend`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
A limit counts all attempts of a job together. It can be extended while the job lives, up to what the policy allows
for its class (limit_max in queue.yaml).

Examples:
  wharf extend lab/nlp/llama-70b --limit 6h      six hours in all
  wharf extend job/hello --by 2h                 two hours more than now")]
pub(crate) struct ExtendArgs {
    /// job/NAME, NAME, TENANT/NAME or uid
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
    /// How long it may run in all
    #[arg(
        long,
        value_name = "SPAN",
        required_unless_present = "by",
        conflicts_with = "by",
        allow_hyphen_values = true
    )]
    pub(crate) limit: Option<String>,
    /// How much longer than now
    #[arg(long, value_name = "SPAN", allow_hyphen_values = true)]
    pub(crate) by: Option<String>,
    /// How the answer is written
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

/// `wharf replace`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
A fresh replica is asked for first; when it runs, an old one goes after its grace, until all are fresh. Where no room for one
more is found within repair_within of gangs.yaml, an old one goes first. Never fewer than min run by this.

Examples:
  wharf replace lab/serving/chat
  wharf replace lab/serving/chat --surge 2 --unavailable 0
  wharf replace lab/serving/chat --stop")]
pub(crate) struct ReplaceArgs {
    /// job/NAME, NAME, TENANT/NAME or uid
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
    /// How many more than are wanted may run for the time [default: 1]
    #[arg(long, visible_alias = "max-surge", value_name = "N", allow_negative_numbers = true)]
    pub(crate) surge: Option<u32>,
    /// How many fewer may run for the time, where there is no room for more [default: 1]
    #[arg(long, visible_alias = "max-unavailable", value_name = "N", allow_negative_numbers = true)]
    pub(crate) unavailable: Option<u32>,
    /// Replace no more of them; what is fresh by now stays
    #[arg(long, conflicts_with_all = ["surge", "unavailable"])]
    pub(crate) stop: bool,
    /// How the answer is written
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

/// `wharf scale`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
More replicas come as the rules give places; fewer are let go, the newest first, each after it had its grace. The number
stays between min and max of the service.

Examples:
  wharf scale lab/serving/chat 6")]
pub(crate) struct ScaleArgs {
    /// job/NAME, NAME, TENANT/NAME or uid
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
    /// How many replicas are wanted
    #[arg(value_name = "N", allow_negative_numbers = true)]
    pub(crate) replicas: u32,
    /// How the answer is written
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

/// `wharf top`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Keys: q or Esc quits; arrows, PageUp, PageDown, Home and End move through a list of jobs, Tab chooses the other list.

Examples:
  wharf top
  wharf top --once                     one frame as plain text, also when the output is not a terminal")]
pub(crate) struct TopArgs {
    /// Print one frame as plain text and end
    #[arg(long)]
    pub(crate) once: bool,
}

/// `wharf completions`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  wharf completions bash > /etc/bash_completion.d/wharf
  wharf completions zsh > ~/.zfunc/_wharf
  wharf completions fish > ~/.config/fish/completions/wharf.fish")]
pub(crate) struct CompletionArgs {
    /// Which shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// A shell that completions are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    /// Bash
    Bash,
    /// Zsh
    Zsh,
    /// Fish
    Fish,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_overview_names_every_command_and_every_command_has_examples() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let about = command.get_about().expect(name).to_string();
            assert!(
                OVERVIEW.lines().any(|line| line.trim_start().starts_with(&format!("{name} "))),
                "{name}"
            );
            let help = command.get_after_long_help().expect(name).to_string();
            assert!(help.contains("Examples:\n  ") && help.contains("wharf "), "{name}");
            assert!(!about.ends_with('.'), "{name}");
        }
        assert!(OVERVIEW.contains(SERVER_DEFAULT));
    }

    #[test]
    fn no_line_of_the_overview_is_wider_than_a_page() {
        assert_eq!(OVERVIEW.lines().find(|line| line.len() > 110), None);
    }
}
