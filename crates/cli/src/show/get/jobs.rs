//! Live jobs: the list and its table.
use wharf_api::client::{Client, JobFilter};
use wharf_api::v1::{EndedJobView, GroupView, JobState, JobView, VerdictWord};

use super::{List, ended, labels, mine, now_for_people, show, tenants, watch};
use crate::args::names::job_name;
use crate::args::{GetArgs, StateFilter};
use crate::render::numbers::{age, number};
use crate::render::output::Tone;
use crate::render::table::{Cell, Column, Table};

const COLUMNS: [Column; 14] = [
    Column::text("NAME", "name"),
    Column::text("TENANT", "tenant"),
    Column::text("CLASS", "class"),
    Column::text("STATE", "state"),
    Column::number("GPUS", "gpus"),
    Column::number("AGE", "submitted_at_ms"),
    Column::text("REASON", "reason"),
    Column::number("PRIORITY", "priority").wide(),
    Column::number("TASKS", "tasks").wide(),
    Column::number("ATTEMPTS", "attempts").wide(),
    Column::number("EVICTIONS", "evictions").wide(),
    Column::number("FAILURES", "failures").wide(),
    Column::text("NODES", "nodes").wide(),
    Column::text("UID", "uid").wide(),
];

/// Lists live jobs, or those that are over where the state asks for them.
pub(super) fn list(client: &Client, args: &GetArgs) -> anyhow::Result<()> {
    let state = match args.state {
        None => None,
        Some(StateFilter::Live(state)) => Some(state),
        Some(StateFilter::Ended(state)) => return ended::list(client, args, Some(state)),
        Some(StateFilter::All) => return ended::list(client, args, None),
    };
    let (submitted_by, labels) = (mine(args)?, labels(args));
    let filter = JobFilter { tenant: args.tenant.clone(), state, submitted_by, labels };
    let filtered = filter.tenant.is_some() || filter.state.is_some() || args.mine || filter.labels.is_some();
    let answer = client.jobs(&filter)?;
    if answer.jobs.is_empty() {
        tenants::known(client, args)?;
    }
    let empty = if filtered {
        "no live job is like that; all of them: wharf get jobs, also those that are over: wharf get jobs --state all"
    } else {
        "no live jobs; hand one in: wharf submit --name hello --tenant PATH --gpus 1 (paths: wharf get tenants)"
    };
    let names: Vec<String> = answer.jobs.iter().map(job_name).collect();
    let now = now_for_people(client, args, &names);
    let table = table(&answer.jobs, now);
    show(args, &List { answer: &answer, names, table, empty: empty.into() })?;
    if args.watch { watch::go_on(client, args, &filter, &answer) } else { Ok(()) }
}

/// One row per job.
pub(in crate::show) fn table(jobs: &[JobView], now: Option<u64>) -> Table {
    let mut table = Table::new(&COLUMNS);
    for job in jobs {
        table.row(row(job, now));
    }
    table
}

/// Live jobs first, then those that are over.
pub(in crate::show) fn all_table(live: &[JobView], ended: &[EndedJobView], now: Option<u64>) -> Table {
    let mut table = Table::new(&COLUMNS);
    for job in live {
        table.row(row(job, now));
    }
    for job in ended {
        table.row(row_of_ended(job, now));
    }
    table
}

fn row_of_ended(job: &EndedJobView, now: Option<u64>) -> Vec<Cell> {
    vec![
        Cell::new(job.name.clone()),
        Cell::new(job.tenant.clone()),
        Cell::new(job.class.clone()),
        Cell::new(job.outcome.into_str()).tone(crate::show::explain::ended_job::tone(job.outcome)),
        Cell::new(number(f64::from(job.tasks) * job.gpus_per_task)),
        Cell::new(age(job.submitted_at_ms, now)).plain(&job.submitted_at_ms),
        Cell::new(job.reason.clone().unwrap_or_default()),
        Cell::new(String::new()),
        Cell::new(job.tasks.to_string()),
        Cell::new(job.attempts.to_string()),
        Cell::new(job.evictions.to_string()),
        Cell::new(job.failures.to_string()),
        Cell::new(String::new()),
        Cell::new(job.uid.clone()),
    ]
}

fn row(job: &JobView, now: Option<u64>) -> Vec<Cell> {
    let tone = match (job.state, job.verdict.verdict) {
        (_, VerdictWord::Never | VerdictWord::Denied) => Tone::Bad,
        (JobState::Running, _) if is_repaired(job) => Tone::Warn,
        (JobState::Running | JobState::Starting, _) => Tone::Good,
        (JobState::Waiting | JobState::Leaving, _) => Tone::Warn,
    };
    vec![
        Cell::new(job.name.clone()),
        Cell::new(job.tenant.clone()),
        Cell::new(job.class.into_str()),
        Cell::new(job.state.into_str()).tone(tone),
        Cell::new(number(wanted_gpus(job))),
        Cell::new(age(job.submitted_at_ms, now)).plain(&job.submitted_at_ms),
        Cell::new(reason(job)).plain_if_known(job.verdict.reason.as_ref()),
        Cell::new(job.priority.to_string()),
        Cell::new(format!("{}/{}", job.running_tasks, job.tasks)).plain(&job.tasks),
        Cell::new(job.attempts.to_string()),
        Cell::new(job.evictions.to_string()),
        Cell::new(job.failures.to_string()),
        Cell::new(nodes(job)),
        Cell::new(job.uid.clone()),
    ]
}

/// Below its minimum: it runs, but not for long unless it gets back what it lost.
fn is_repaired(job: &JobView) -> bool {
    job.verdict.reason.as_deref() == Some("Repairing")
}

/// The reason of a job that waits, or waits to be repaired. Of any other it would repeat the state.
fn reason(job: &JobView) -> String {
    match (job.state, &job.verdict.reason) {
        (JobState::Waiting, Some(reason)) => reason.clone(),
        (JobState::Starting | JobState::Running, Some(reason)) if is_repaired(job) => reason.clone(),
        (JobState::Waiting, None) => "?".to_owned(),
        (JobState::Starting | JobState::Running | JobState::Leaving, _) => String::new(),
    }
}

fn nodes(job: &JobView) -> String {
    let mut nodes: Vec<&str> = job.placements.iter().map(|place| place.node.as_str()).collect();
    nodes.dedup();
    nodes.join(",")
}

/// GPUs of all tasks that it wants.
fn wanted_gpus(job: &JobView) -> f64 {
    if job.groups.is_empty() {
        return f64::from(job.tasks) * job.gpus_per_task;
    }
    let of_group = |group: &GroupView| f64::from(group.tasks) * f64::from(group.copies) * group.gpus_per_task;
    job.groups.iter().map(of_group).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::output::Paint;
    use crate::render::samples::{running, verdict, waiting};
    use crate::render::table::Look;

    #[test]
    fn jobs_are_listed_with_their_reasons() {
        let verdict = verdict(VerdictWord::Running, "Repairing", "it lost tasks");
        let repaired = JobView { verdict, ..running() };
        let table = table(&[waiting(), running(), repaired], Some(1_180_000));
        let look = Look { wide: false, headers: true, paint: Paint::OFF };
        let expected = "\
NAME       TENANT   CLASS  STATE    GPUS  AGE  REASON
llama-70b  lab/nlp  batch  waiting    32   3m  WaitingForRoomTogether
llama-70b  lab/nlp  batch  running    32   3m
llama-70b  lab/nlp  batch  running    32   3m  Repairing
";
        assert_eq!(table.aligned(look), expected);
    }

    #[test]
    fn programs_get_times_as_numbers() {
        let csv = table(&[running()], None).csv(false);
        let uid = "00000000000000000000000000000abc";
        let expected =
            format!("llama-70b,lab/nlp,batch,running,32,1000000,Running,0,4,2,1,0,\"n0,n1,n2,n3\",{uid}\n");
        assert_eq!(csv, expected);
    }
}
