//! Jobs on the command line: described by flags, and waited for.

use std::path::PathBuf;

use clap::Args;

use super::Format;

/// A job as a file or as flags; one of the two.
#[derive(Debug, Default, Args)]
pub(crate) struct JobArgs {
    /// The job file; `-` is standard input
    #[arg(value_name = "FILE", conflicts_with = "file_flag")]
    pub(crate) file: Option<PathBuf>,
    /// The same as FILE
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub(crate) file_flag: Option<PathBuf>,
    // The heading goes on behind them: what follows says that it has none.
    #[command(flatten, next_help_heading = "Instead of a file")]
    pub(crate) flags: JobFlagArgs,
}

/// A small job as flags.
#[derive(Debug, Default, Args)]
pub(crate) struct JobFlagArgs {
    /// Unique among the tenant's live jobs
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Path of the tenant that pays, such as lab/nlp
    #[arg(long, value_name = "PATH")]
    pub(crate) tenant: Option<String>,
    /// GPUs of one task: 8, 0.25, 1/3
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) gpus: Option<String>,
    /// How many tasks; all start together
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) tasks: Option<String>,
    /// The least tasks it can do with; all where not given
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) min: Option<String>,
    /// A MIG slice in place of --gpus: 1g.10gb
    #[arg(long, value_name = "PROFILE")]
    pub(crate) slice: Option<String>,
    /// inference, interactive or batch
    #[arg(long)]
    pub(crate) class: Option<String>,
    /// Higher first, inside the tenant
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) priority: Option<String>,
    /// Cores of one task: 4, 500m
    #[arg(long, value_name = "CORES", allow_negative_numbers = true)]
    pub(crate) cpu: Option<String>,
    /// Memory of one task: 32GiB
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true)]
    pub(crate) memory: Option<String>,
    /// Model of the GPUs: h100
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Name of the booked window whose places it uses
    #[arg(long, value_name = "NAME")]
    pub(crate) booking: Option<String>,
    /// The longest it may run: 6h
    #[arg(long, value_name = "SPAN", allow_hyphen_values = true)]
    pub(crate) limit: Option<String>,
    /// How long it is expected to run: 4h
    #[arg(long, value_name = "SPAN", allow_hyphen_values = true)]
    pub(crate) estimate: Option<String>,
    /// How often it saves its work, and how long that takes when it is asked: 30m or 30m,2m
    #[arg(long, value_name = "EVERY[,GRACE]")]
    pub(crate) checkpoint: Option<String>,
    /// How many failures of a task it survives by starting again
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) retries: Option<String>,
    /// A label, KEY=VALUE; may be given several times
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub(crate) labels: Vec<String>,
    /// Start after this job: JOB or JOB:ok has to succeed, JOB:any has to be over; may be given several times
    #[arg(long, value_name = "JOB[:ok|any]")]
    pub(crate) after: Vec<String>,
    /// As many jobs alike as there are indexes, at most N at a time: 0-19%4
    #[arg(long, value_name = "INDEXES[%N]", allow_hyphen_values = true)]
    pub(crate) array: Option<String>,
    /// How long it runs in a simulated world: 30m
    #[arg(long, value_name = "SPAN", allow_hyphen_values = true)]
    pub(crate) duration: Option<String>,
}

/// `wharf wait`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  wharf wait job/hello                            until it is over; fails if it did not succeed
  wharf wait --for=running --timeout 5m job/hello
  wharf wait --for=done=3 job/hello               until it is over; fails unless its exit code was 3
  wharf wait sweep                                until all members of the array sweep are over

Exit codes: 0 all jobs are as asked, 1 one of them ended otherwise, 4 there is no such job, 124 the time is up.")]
pub(crate) struct WaitArgs {
    /// job/NAME, NAME, TENANT/NAME or uid; of an array, its name
    #[arg(value_name = "JOB", required = true)]
    pub(crate) jobs: Vec<String>,
    /// What to wait for: running, done, or done=CODE for an exit code other than 0
    #[arg(long = "for", value_name = "WHAT", default_value = "done", value_parser = wait_for)]
    pub(crate) what: WaitFor,
    /// How long at most, by the clock on the wall; for ever where not given
    #[arg(long, value_name = "SPAN", allow_hyphen_values = true)]
    pub(crate) timeout: Option<String>,
    /// How the answer is written
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

/// What a job is waited for to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitFor {
    /// All of its tasks run.
    Running,
    /// It is over, and succeeded.
    Done,
    /// It is over, with this exit code.
    DoneWith(i32),
}

fn wait_for(text: &str) -> Result<WaitFor, String> {
    match text.split_once('=') {
        None if text == "running" => Ok(WaitFor::Running),
        None if text == "done" => Ok(WaitFor::Done),
        Some(("done", code)) => match code.parse::<u8>() {
            Ok(0) => Ok(WaitFor::Done),
            Ok(code) => Ok(WaitFor::DoneWith(code.into())),
            Err(_) => Err(format!("{code:?} is no exit code: write a number from 0 to 255, such as done=3")),
        },
        None | Some(_) => Err("wait for running, done or done=CODE".to_owned()),
    }
}
