//! `wharf book`.

use std::path::PathBuf;

use clap::Args;

use super::Format;

/// `wharf book`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  wharf book --tenant lab/nlp --gpus 8 --tasks 4 --from 2026-11-20T08:00Z --for 8h
  wharf book --tenant lab/nlp --gpus 8 --from +2h --for 30m --name demo
  wharf book --tenant lab/nlp --gpus 8 --from +2h --for 1h --by operator
  wharf book friday.yaml

Jobs that name the booking (wharf submit --booking demo) start in its places as soon as it begins, and may wait before.
A tenant books within its guarantee; an operator whatever the guarantees of others leave. What cannot be booked is
refused with the nearest time that can (exit code 3 or 5).

A booking file has the keys of a job file that say what is wanted, and when:
  tenant: lab/nlp
  tasks: 4
  gpus: 8
  from: 2026-11-20T08:00Z
  for: 8h")]
pub(crate) struct BookArgs {
    /// The booking file; `-` is standard input
    #[arg(value_name = "FILE", conflicts_with = "file_flag")]
    pub(crate) file: Option<PathBuf>,
    /// The same as FILE
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub(crate) file_flag: Option<PathBuf>,
    // The heading goes on behind them: what follows says that it has none.
    #[command(flatten, next_help_heading = "Instead of a file")]
    pub(crate) flags: BookFlagArgs,
    /// How the answer is written
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text", help_heading = None)]
    pub(crate) output: Format,
}

/// A booking as flags.
#[derive(Debug, Args)]
pub(crate) struct BookFlagArgs {
    /// Unique among bookings [default: made of tenant and begin]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Path of the tenant whose jobs it is for
    #[arg(long, value_name = "PATH")]
    pub(crate) tenant: Option<String>,
    /// Whole GPUs of one task
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) gpus: Option<String>,
    /// How many tasks
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) tasks: Option<String>,
    /// Model of the GPUs: h100
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Level that holds all of it: leaf
    #[arg(long, value_name = "LEVEL")]
    pub(crate) within: Option<String>,
    /// When it begins: 2026-11-20T08:00Z, or +2h from now
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) from: Option<String>,
    /// How long it lasts: 8h
    #[arg(long = "for", value_name = "SPAN", allow_hyphen_values = true)]
    pub(crate) lasts: Option<String>,
    /// tenant or operator
    #[arg(long, value_name = "WHO")]
    pub(crate) by: Option<String>,
}
