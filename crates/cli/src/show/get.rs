//! `wharf get`: lists, for people and for programs.

pub(super) mod bookings;
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
use wharf_api::client::{Client, EndedFilter, EvictionFilter, HistoryFilter, JobFilter};
use wharf_api::v1::{Code, EndedJobView, EndedList, EndedState, JobView, TenantList, TenantView};

use super::models::ModelList;
use crate::args::names::{job_name, user, without_kind};
use crate::args::{GetArgs, ListFormat, Listed, StateFilter};
use crate::render::output::{self, Paint};
use crate::render::problem::Usage;
use crate::render::problem::missing;
use crate::render::table::{Look, Table};
use crate::show::world_now;

/// The most jobs that are over which are listed unless the user asks for another number.
const ENDED_MAX_DEFAULT: usize = 10_000;
/// How many of them are asked for at once: about a MiB.
const ENDED_PAGE: usize = 1_000;

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
        Listed::Jobs => list_jobs(client, args)?,
        Listed::Nodes => list_nodes(client, args)?,
        Listed::Gpus => list_gpus(client, args)?,
        Listed::Stranded => list_stranded(client, args)?,
        Listed::Reservations => list_reservations(client, args)?,
        Listed::Bookings => list_bookings(client, args)?,
        Listed::Maintenance => list_maintenance(client, args)?,
        Listed::Tenants => list_tenants(client, args)?,
        Listed::Evictions => list_evictions(client, args)?,
        Listed::Policy => list_policy(client, args)?,
        Listed::History => list_history(client, args)?,
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

fn list_ended(client: &Client, args: &GetArgs, state: Option<EndedState>) -> anyhow::Result<()> {
    let filter = EndedFilter {
        tenant: args.tenant.clone(),
        state,
        name: args.name.clone(),
        submitted_by: mine(args)?,
        labels: labels(args),
        limit: args.limit,
        before: None,
    };
    let ended = ended_pages(filter.limit, |limit, before| {
        Ok(client.ended(&EndedFilter { limit: Some(limit), before, ..filter.clone() })?)
    })?;
    if filter.limit.is_none() && ended.next.is_some() {
        output::remark(&cut_off(ended.jobs.len()));
    }
    let live = if state.is_some() {
        Vec::new()
    } else {
        let (submitted_by, labels) = (filter.submitted_by.clone(), filter.labels.clone());
        client.jobs(&JobFilter { tenant: args.tenant.clone(), state: None, submitted_by, labels })?.jobs
    };
    let live: Vec<JobView> =
        live.into_iter().filter(|job| args.name.as_ref().is_none_or(|name| job.name == *name)).collect();
    let now = if for_people(args.output) { world_now(client) } else { None };
    let table = jobs::all_table(&live, &ended.jobs, now);
    let name = |job: &EndedJobView| format!("job/{}/{}", job.tenant, job.name);
    let names = live.iter().map(job_name).chain(ended.jobs.iter().map(name)).collect();
    let empty = "no job is like that; what is kept how long is `keep` of history.yaml".into();
    if state.is_some() {
        return show(args, &List { answer: &ended, names, table, empty });
    }
    let answer = AllJobs { schema: "wharf.v1.all-jobs", live: &live, ended: &ended.jobs };
    show(args, &List { answer: &answer, names, table, empty })
}

/// Jobs that are over, page after page, until so many are found or there are no more.
fn ended_pages(
    limit: Option<u32>,
    page: impl Fn(u32, Option<u64>) -> anyhow::Result<EndedList>,
) -> anyhow::Result<EndedList> {
    let most = limit.map_or(ENDED_MAX_DEFAULT, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let fitting = |left: usize| u32::try_from(left.min(ENDED_PAGE)).unwrap_or(u32::MAX);
    let mut all = page(fitting(most), None)?;
    while all.next.is_some() && all.jobs.len() < most {
        let EndedList { schema: _, jobs, next } = page(fitting(most - all.jobs.len()), all.next)?;
        all.jobs.extend(jobs);
        all.next = next;
    }
    Ok(all)
}

/// A list that ends before its end says so.
fn cut_off(shown: usize) -> String {
    format!(
        "of the jobs that are over, the newest {shown} are listed; older ones: --limit N, or fewer with --tenant, --name or --mine"
    )
}

/// Live jobs, and those that are over.
#[derive(Serialize)]
struct AllJobs<'a> {
    schema: &'static str,
    live: &'a [JobView],
    ended: &'a [EndedJobView],
}

fn list_jobs(client: &Client, args: &GetArgs) -> anyhow::Result<()> {
    let state = match args.state {
        None => None,
        Some(StateFilter::Live(state)) => Some(state),
        Some(StateFilter::Ended(state)) => return list_ended(client, args, Some(state)),
        Some(StateFilter::All) => return list_ended(client, args, None),
    };
    let (submitted_by, labels) = (mine(args)?, labels(args));
    let filter = JobFilter { tenant: args.tenant.clone(), state, submitted_by, labels };
    let filtered = filter.tenant.is_some() || filter.state.is_some() || args.mine || filter.labels.is_some();
    let answer = client.jobs(&filter)?;
    if answer.jobs.is_empty() {
        known_tenant(client, args)?;
    }
    let empty = if filtered {
        "no live job is like that; all of them: wharf get jobs, also those that are over: wharf get jobs --state all"
    } else {
        "no live jobs; hand one in: wharf submit --name hello --tenant PATH --gpus 1 (paths: wharf get tenants)"
    };
    // Ages need the world's clock, which only people are shown.
    let now = if for_people(args.output) && !answer.jobs.is_empty() { world_now(client) } else { None };
    let table = jobs::table(&answer.jobs, now);
    let names = answer.jobs.iter().map(job_name).collect();
    show(args, &List { answer: &answer, names, table, empty: empty.into() })?;
    if args.watch { watch::go_on(client, args, &filter, &answer) } else { Ok(()) }
}

fn list_nodes(client: &Client, args: &GetArgs) -> anyhow::Result<()> {
    let answer = client.nodes()?;
    let names = answer.nodes.iter().map(|node| format!("node/{}", node.name)).collect();
    let table = fleet::nodes_table(&answer.nodes);
    show(args, &List { answer: &answer, names, table, empty: "the fleet has no nodes yet".into() })
}

fn list_gpus(client: &Client, args: &GetArgs) -> anyhow::Result<()> {
    let mut answer = client.gpus()?;
    if let Some(node) = args.node.as_deref().map(|node| without_kind(node, "node")) {
        let known: Vec<String> = answer.gpus.iter().map(|gpu| gpu.node.clone()).collect();
        answer.gpus.retain(|gpu| gpu.node == node);
        if answer.gpus.is_empty() {
            let known = known.iter().map(String::as_str);
            return Err(missing(Code::NoSuchNode, ("node with GPUs", node), known, "nodes"));
        }
    }
    let names = answer.gpus.iter().map(|gpu| format!("gpu/{}:{}", gpu.node, gpu.index)).collect();
    let table = fleet::gpus_table(&answer.gpus);
    let empty = "the fleet has no GPUs; its nodes: wharf get nodes".into();
    show(args, &List { answer: &answer, names, table, empty })
}

fn list_stranded(client: &Client, args: &GetArgs) -> anyhow::Result<()> {
    let answer = client.stranded()?;
    let names = answer.pools.iter().map(|pool| format!("pool/{}", pool.model)).collect();
    let table = stranded::table(&answer.pools);
    let empty = "the fleet has no GPUs; its nodes: wharf get nodes".into();
    show(args, &List { answer: &answer, names, table, empty })
}

fn list_reservations(client: &Client, args: &GetArgs) -> anyhow::Result<()> {
    let answer = client.reservations()?;
    let name = |of: &wharf_api::v1::ReservationView| format!("job/{}/{}", of.tenant, of.job);
    let names = answer.reservations.iter().map(name).collect();
    let now = if for_people(args.output) { world_now(client) } else { None };
    let table = reservations::table(&answer.reservations, now);
    let empty = "no start is promised; why not, of a job that waits: wharf explain job/NAME".into();
    show(args, &List { answer: &answer, names, table, empty })
}

fn list_bookings(client: &Client, args: &GetArgs) -> anyhow::Result<()> {
    let mut answer = client.bookings()?;
    if let Some(path) = &args.tenant {
        let below = |tenant: &str| {
            tenant.strip_prefix(path.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        answer.bookings.retain(|booking| below(&booking.tenant));
    }
    if answer.bookings.is_empty() {
        known_tenant(client, args)?;
    }
    let names = answer.bookings.iter().map(|booking| format!("booking/{}", booking.name)).collect();
    let now = if for_people(args.output) { world_now(client) } else { None };
    let table = bookings::table(&answer.bookings, now);
    let whom = args.tenant.as_ref().map_or_else(String::new, |path| format!(" by {path} or below it"));
    let next = "book something: wharf book --tenant PATH --gpus 8 --from +2h --for 1h";
    show(args, &List { answer: &answer, names, table, empty: format!("nothing is booked{whom}; {next}") })
}

fn list_maintenance(client: &Client, args: &GetArgs) -> anyhow::Result<()> {
    let answer = client.downtimes()?;
    let names = answer.downtimes.iter().map(|downtime| format!("maintenance/{}", downtime.name)).collect();
    let now = if for_people(args.output) { world_now(client) } else { None };
    let table = fleet::downtimes_table(&answer.downtimes, now);
    let empty = "no maintenance is planned; plan some: wharf maintain NODE --from +2h --for 4h".into();
    show(args, &List { answer: &answer, names, table, empty })
}

fn list_tenants(client: &Client, args: &GetArgs) -> anyhow::Result<()> {
    let TenantList { schema, mut tenants, half_life_ms } = client.tenants()?;
    if let Some(path) = &args.tenant {
        reject_unknown(path, &tenants)?;
        tenants.retain(|tenant| is_under(tenant, path));
    }
    let names = tenants.iter().map(|tenant| format!("tenant/{}", tenant.path)).collect();
    let table = tenants::table(&tenants);
    let empty = "the policy names no tenants; they are in its tenants.yaml".into();
    show(args, &List { answer: &TenantList { schema, tenants, half_life_ms }, names, table, empty })
}

/// An empty list of a tenant that is not there would look as if it had nothing.
fn known_tenant(client: &Client, args: &GetArgs) -> anyhow::Result<()> {
    match &args.tenant {
        Some(path) => reject_unknown(path, &client.tenants()?.tenants),
        None => Ok(()),
    }
}

fn reject_unknown(path: &str, tenants: &[TenantView]) -> anyhow::Result<()> {
    if tenants.iter().any(|tenant| is_under(tenant, path)) {
        return Ok(());
    }
    let known = tenants.iter().map(|tenant| tenant.path.as_str());
    Err(missing(Code::UnknownTenant, ("tenant", path), known, "tenants"))
}

fn is_under(tenant: &TenantView, path: &str) -> bool {
    tenant.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn list_policy(client: &Client, args: &GetArgs) -> anyhow::Result<()> {
    let answer = client.policy()?;
    let names = vec![format!("policy/{}", answer.version)];
    let table = past::policy_table(&answer);
    show(args, &List { answer: &answer, names, table, empty: String::new() })
}

fn list_evictions(client: &Client, args: &GetArgs) -> anyhow::Result<()> {
    let job = args.job.as_deref().map(|job| without_kind(job, "job").to_owned());
    let filter = EvictionFilter { tenant: args.tenant.clone(), job, limit: args.limit };
    let filtered = filter.tenant.is_some() || filter.job.is_some();
    let answer = client.evictions(&filter)?;
    let now = if for_people(args.output) && !answer.evictions.is_empty() { world_now(client) } else { None };
    let table = evictions::table(&answer.evictions, now);
    let names = answer.evictions.iter().map(|eviction| format!("eviction/{}", eviction.id)).collect();
    let empty = if filtered {
        "no eviction is like that; all of them: wharf get evictions"
    } else {
        "nobody had to leave for another job; what else is over: wharf get history"
    };
    show(args, &List { answer: &answer, names, table, empty: empty.into() })
}

fn list_history(client: &Client, args: &GetArgs) -> anyhow::Result<()> {
    let filter = HistoryFilter {
        kind: args.kind,
        tenant: args.tenant.clone(),
        name: args.name.clone(),
        limit: args.limit,
    };
    let answer = client.history(&filter)?;
    let now = if for_people(args.output) && !answer.rows.is_empty() { world_now(client) } else { None };
    let table = past::history_table(&answer.rows, now);
    let names = answer.rows.iter().map(past::subject).collect();
    let empty = "nothing is over yet that is like that; live jobs: wharf get jobs".into();
    show(args, &List { answer: &answer, names, table, empty })
}

fn for_people(format: ListFormat) -> bool {
    matches!(format, ListFormat::Table | ListFormat::Wide)
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

    /// Page after page of jobs that end with the one of index 0, and how many pages were asked for.
    fn listed(limit: Option<u32>, there: u32) -> (usize, Option<u64>) {
        let all = ended_pages(limit, |limit, before| {
            let left = before.map_or(there, |before| u32::try_from(before).unwrap());
            let taken = left.min(limit);
            let jobs = vec![crate::render::samples::ended(); usize::try_from(taken).unwrap()];
            let next = (taken == limit).then(|| u64::from(left - taken));
            Ok(EndedList { schema: String::new(), jobs, next })
        });
        let all = all.unwrap();
        (all.jobs.len(), all.next)
    }

    #[test]
    fn jobs_that_are_over_are_listed_to_the_end_or_the_cut_is_known() {
        assert_eq!(listed(None, 2_500), (2_500, None));
        assert_eq!(listed(None, 12_000), (10_000, Some(2_000)));
        assert_eq!(listed(Some(1_700), 2_500), (1_700, Some(800)));
        assert_eq!(listed(Some(11_000), 12_000), (11_000, Some(1_000)));
    }

    #[test]
    fn a_tenant_is_under_itself_and_its_parents_only() {
        let tenant = |path: &str| TenantView {
            path: path.into(),
            lines: vec![],
            weight: 1,
            priority: 0,
            waiting: 0,
            running: 0,
        };
        assert!(is_under(&tenant("lab/nlp"), "lab"));
        assert!(is_under(&tenant("lab"), "lab"));
        assert!(!is_under(&tenant("labour"), "lab"));
        assert!(!is_under(&tenant("lab"), "lab/nlp"));
    }
}
