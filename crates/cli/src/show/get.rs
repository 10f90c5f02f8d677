//! `wharf get`: lists, for people and for programs.

pub(crate) mod bookings;
mod ended;
pub(super) mod evictions;
pub(super) mod fleet;
pub(super) mod jobs;
pub(super) mod past;
pub(super) mod reservations;
mod stranded;
pub(super) mod tenants;
mod watch;

use std::process::ExitCode;

use serde::Serialize;
use wharf_api::client::Client;

use super::models::ModelList;
use crate::args::names::user;
use crate::args::{GetArgs, ListFormat, Listed, StateFilter};
use crate::render::output::{self, Paint};
use crate::render::problem::Usage;
use crate::render::table::{Look, Table};
use crate::show::world_now;

/// A list in every form it can be written in.
struct List<'a, A> {
    answer: &'a A,
    names: Vec<String>,
    table: Table,
    /// What is said when there is nothing to show.
    empty: String,
}

/// Runs it.
pub(crate) fn run(client: &Client, args: &GetArgs) -> anyhow::Result<ExitCode> {
    reject_what_does_not_apply(args)?;
    watch::check(args)?;
    match args.what {
        Listed::Jobs => jobs::list(client, args)?,
        Listed::Nodes => fleet::list_nodes(client, args)?,
        Listed::Gpus => fleet::list_gpus(client, args)?,
        Listed::Stranded => stranded::list(client, args)?,
        Listed::Reservations => reservations::list(client, args)?,
        Listed::Bookings => bookings::list(client, args)?,
        Listed::Maintenance => fleet::list_downtimes(client, args)?,
        Listed::Tenants => tenants::list(client, args)?,
        Listed::Evictions => evictions::list(client, args)?,
        Listed::Policy => past::list_policy(client, args)?,
        Listed::History => past::list_history(client, args)?,
        Listed::Models => list_models(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The models, for which no control plane is asked.
pub(crate) fn models(args: &GetArgs) -> anyhow::Result<ExitCode> {
    reject_what_does_not_apply(args)?;
    list_models(args)?;
    Ok(ExitCode::SUCCESS)
}

fn list_models(args: &GetArgs) -> anyhow::Result<()> {
    let answer = ModelList::known();
    let names = answer.models.iter().map(|model| format!("model/{}", model.name)).collect();
    let table = super::models::table(&answer.models);
    show(args, &List { answer: &answer, names, table, empty: String::new() })
}

/// A filter that would be ignored is an error: nobody should read a whole list as a filtered one.
fn reject_what_does_not_apply(args: &GetArgs) -> Result<(), Usage> {
    let (what, allowed): (&str, &[&str]) = match args.what {
        Listed::Jobs if looks_back(args) => {
            ("jobs", &["--tenant", "--state", "--name", "--limit", "--mine", "-l"])
        }
        Listed::Jobs => ("jobs", &["--tenant", "--state", "--mine", "-l", "--watch"]),
        Listed::Nodes => ("nodes", &[]),
        Listed::Gpus => ("gpus", &["NODE"]),
        Listed::Stranded => ("stranded", &[]),
        Listed::Reservations => ("reservations", &[]),
        Listed::Bookings => ("bookings", &["--tenant"]),
        Listed::Maintenance => ("maintenance", &[]),
        Listed::Tenants => ("tenants", &["--tenant"]),
        Listed::Evictions => ("evictions", &["--tenant", "--job", "--limit"]),
        Listed::Policy => ("policy", &[]),
        Listed::History => ("history", &["--tenant", "--kind", "--name", "--limit"]),
        Listed::Models => ("models", &[]),
    };
    let given = [
        ("--tenant", args.tenant.is_some()),
        ("--state", args.state.is_some()),
        ("--job", args.job.is_some()),
        ("--kind", args.kind.is_some()),
        ("--name", args.name.is_some()),
        ("--limit", args.limit.is_some()),
        ("--mine", args.mine),
        ("-l", !args.labels.is_empty()),
        ("NODE", args.node.is_some()),
        ("--watch", args.watch),
    ];
    match given.into_iter().find(|(flag, given)| *given && !allowed.contains(flag)) {
        None => Ok(()),
        Some((flag, _)) if allowed.is_empty() => Err(Usage {
            what: format!("{flag} does not apply to {what}"),
            next: format!("leave it out: wharf get {what}"),
        }),
        Some((flag, _)) => Err(Usage {
            what: format!("{flag} does not apply to {what}"),
            next: format!("these do: {}", allowed.join(", ")),
        }),
    }
}

/// The name by which the user submits, where only their own jobs are asked for.
fn mine(args: &GetArgs) -> Result<Option<String>, Usage> {
    if !args.mine {
        return Ok(None);
    }
    user().map(Some).ok_or_else(|| Usage {
        what: "--mine needs to know who you are, and neither WHARF_USER nor USER is set".to_owned(),
        next: "set WHARF_USER to the name that you submit with".to_owned(),
    })
}

fn labels(args: &GetArgs) -> Option<String> {
    (!args.labels.is_empty()).then(|| args.labels.join(","))
}

/// True when jobs that are over are asked for.
fn looks_back(args: &GetArgs) -> bool {
    matches!(args.state, Some(StateFilter::Ended(_) | StateFilter::All))
}

/// The world's clock, for the ages of what is listed; only people are shown those.
fn now_for_people(client: &Client, args: &GetArgs, names: &[String]) -> Option<u64> {
    let for_people = matches!(args.output, ListFormat::Table | ListFormat::Wide);
    if for_people && !names.is_empty() { world_now(client) } else { None }
}

fn show<A: Serialize>(args: &GetArgs, list: &List<'_, A>) -> anyhow::Result<()> {
    let List { answer, names, table, empty } = list;
    let look =
        Look { wide: args.output == ListFormat::Wide, headers: !args.no_headers, paint: Paint::stdout() };
    if names.is_empty() && !matches!(args.output, ListFormat::Json | ListFormat::Yaml) {
        output::remark(empty);
    }
    match args.output {
        ListFormat::Json => output::print_json(answer),
        ListFormat::Yaml => output::print(&output::yaml(answer)?),
        ListFormat::Csv => output::print(&table.csv(look.headers)),
        ListFormat::Name => output::print(&output::lines(names)),
        ListFormat::Table | ListFormat::Wide if names.is_empty() => Ok(()),
        ListFormat::Table | ListFormat::Wide => output::print(&table.aligned(look)),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn rejected(line: &str) -> Option<String> {
        let words = line.split_whitespace();
        let Some(Command::Get(args)) = Cli::try_parse_from(words).unwrap().command else { panic!("{line}") };
        reject_what_does_not_apply(&args).err().map(|usage| usage.to_string())
    }

    #[test]
    fn a_filter_that_would_be_ignored_is_an_error() {
        let text = rejected("wharf get nodes --tenant lab").unwrap();
        assert_eq!(text, "--tenant does not apply to nodes; leave it out: wharf get nodes");
        let text = rejected("wharf get jobs --limit 3").unwrap();
        assert_eq!(text, "--limit does not apply to jobs; these do: --tenant, --state, --mine, -l, --watch");
        assert_eq!(rejected("wharf get jobs --tenant lab --state waiting"), None);
        assert_eq!(rejected("wharf get jobs --state failed --name a --limit 3"), None);
        assert_eq!(rejected("wharf get history --kind eviction --limit 3"), None);
        assert_eq!(rejected("wharf get gpus n1"), None);
        let text = rejected("wharf get nodes n1").unwrap();
        assert_eq!(text, "NODE does not apply to nodes; leave it out: wharf get nodes");
        assert_eq!(rejected("wharf get evictions --tenant lab --job a --limit 3"), None);
        let text = rejected("wharf get history --job a").unwrap();
        assert!(text.contains("--job does not apply to history; these do: --tenant"), "{text}");
    }
}
