//! `wharf get jobs --watch`: a line for each job that changes, by the feed of changes.

use std::collections::BTreeSet;
use std::time::Duration;

use wharf_api::client::{Client, ClientError, JobFilter};
use wharf_api::v1::{ChangeKind, ChangeList, Code, JobList};

use super::jobs;
use crate::args::{GetArgs, ListFormat};
use crate::render::output::{self, Paint};
use crate::render::problem::Usage;
use crate::render::table::Look;
use crate::show::world_now;

/// How long one request waits for changes: well within what our client waits for an answer.
const WAIT_SECONDS: u64 = 20;
/// Changes are gathered for this long, so that a busy control plane is not asked for each of them.
const PAUSE: Duration = Duration::from_secs(1);

/// Lines can go on for ever, a document cannot.
pub(super) fn check(args: &GetArgs) -> Result<(), Usage> {
    if !args.watch || matches!(args.output, ListFormat::Table | ListFormat::Wide) {
        return Ok(());
    }
    Err(Usage {
        what: "--watch goes with a table only".to_owned(),
        next: "leave out -o, or read GET /v1/events, which is for programs".to_owned(),
    })
}

/// Goes on where a list ended, until somebody interrupts it.
pub(super) fn go_on(
    client: &Client,
    args: &GetArgs,
    filter: &JobFilter,
    listed: &JobList,
) -> anyhow::Result<()> {
    let mut since = listed.resume();
    let mut shown: BTreeSet<String> = listed.jobs.iter().map(|job| job.uid.clone()).collect();
    loop {
        let (changed, next) = match client.changes(Some(since), WAIT_SECONDS) {
            Ok(list) if list.changes.is_empty() => {
                since = list.resume();
                continue;
            }
            Ok(list) => (Some(told(&list, &mut shown)?), list.resume()),
            // It was away for too long, or is another one: everything is listed again.
            Err(ClientError::Problem(problem)) if problem.code == Code::Gone => (None, since),
            Err(ClientError::Unreachable { .. }) => {
                std::thread::sleep(PAUSE);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        since = next;
        if changed.as_ref().is_none_or(|changed| !changed.is_empty()) {
            let mut list = client.jobs(filter)?;
            list.jobs.retain(|job| changed.as_ref().is_none_or(|changed| changed.contains(&job.uid)));
            shown.extend(list.jobs.iter().map(|job| job.uid.clone()));
            if changed.is_none() {
                since = list.resume();
            }
            let look = Look { wide: args.output == ListFormat::Wide, headers: false, paint: Paint::stdout() };
            if !list.jobs.is_empty() {
                output::print(&jobs::table(&list.jobs, world_now(client)).aligned(look))?;
            }
        }
        std::thread::sleep(PAUSE);
    }
}

/// Says which of the jobs that were shown are over, and returns those that changed otherwise.
fn told(list: &ChangeList, shown: &mut BTreeSet<String>) -> anyhow::Result<BTreeSet<String>> {
    let mut changed = BTreeSet::new();
    for change in &list.changes {
        let (Some(uid), Some(tenant), Some(job)) = (&change.uid, &change.tenant, &change.job) else {
            continue;
        };
        if change.kind != ChangeKind::JobEnded {
            changed.insert(uid.clone());
            continue;
        }
        changed.remove(uid);
        if shown.remove(uid) {
            output::print(&format!("{tenant}/{job} is over; how: wharf explain job/{tenant}/{job}\n"))?;
        }
    }
    Ok(changed)
}
