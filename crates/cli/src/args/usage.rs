//! What `wharf usage` takes.

use clap::{Args, ValueEnum};

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// An aligned table with a line for the total
    Table,
    /// The table with more columns
    Wide,
    /// For programs: one document with a `schema` field
    Json,
    /// What `json` has, as YAML
    Yaml,
    /// Comma-separated values with plain numbers, without the total
    Csv,
}

/// `wharf usage`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  wharf usage                                      the last seven days, by tenant
  wharf usage --since 24h --by team
  wharf usage --since 30d --by user,class --tenant lab
  wharf usage --since 2026-11-01T00:00Z --until 2026-12-01T00:00Z --by team,label:project -o csv
  wharf usage --since 7d --by day

All times are on the fleet's clock. ALLOCATED is what was handed out, in GPU-hours; USED what of it the hardware was
really busy (SM_ACTIVE); LOST the work since the last checkpoint that evictions, losses and failures threw away.
? is what is not known, ≥ what is known of a part only.")]
pub(crate) struct UsageArgs {
    /// From when: so long ago (7d, 12h), or a time with its zone (2026-11-01T00:00Z)
    #[arg(long, value_name = "WHEN", default_value = "7d", allow_hyphen_values = true)]
    pub(crate) since: String,
    /// Until when, in the same words [default: now]
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    pub(crate) until: Option<String>,
    /// What to tell apart: tenant, team (the first two levels), org (the first), class, user, job, day or label:KEY;
    /// several with commas
    #[arg(long, value_name = "KEYS", default_value = "tenant")]
    pub(crate) by: String,
    /// Only of this tenant and those below it
    #[arg(long, value_name = "PATH")]
    pub(crate) tenant: Option<String>,
    /// How it is written
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: ReportFormat,
}
