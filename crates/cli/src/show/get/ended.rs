//! Jobs that are over, page after page, alone or after those that live.

use serde::Serialize;
use wharf_api::client::{Client, EndedFilter, JobFilter};
use wharf_api::v1::{EndedJobView, EndedList, EndedState, JobView};

use super::{List, jobs, labels, mine, now_for_people, show};
use crate::args::GetArgs;
use crate::args::names::job_name;
use crate::render::output;

/// The most jobs that are over which are listed unless the user asks for another number.
const ENDED_MAX_DEFAULT: usize = 10_000;
/// How many of them are asked for at once: about a MiB.
const ENDED_PAGE: usize = 1_000;

/// Lists them; live jobs too, where every state is asked for.
pub(super) fn list(client: &Client, args: &GetArgs, state: Option<EndedState>) -> anyhow::Result<()> {
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
    let name = |job: &EndedJobView| format!("job/{}/{}", job.tenant, job.name);
    let names: Vec<String> = live.iter().map(job_name).chain(ended.jobs.iter().map(name)).collect();
    let now = now_for_people(client, args, &names);
    let table = jobs::all_table(&live, &ended.jobs, now);
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
