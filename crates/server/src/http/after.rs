//! The jobs that a submission waits for: names become identities where a job is live, and history answers for one that is
//! over.

use wharf_api::file::job::{AfterJob, JobFile};
use wharf_api::v1::{Code, EndedAs, EndedJobView, Problem};
use wharf_engine::model::dependency::{After, Condition};
use wharf_engine::model::exit::Outcome;
use wharf_engine::units::Uid;

use super::arrays::{self, Live};
use super::jobs::{Meant, meant};
use super::{Refused, Shared, ended as past};
use crate::ended;
use crate::rejection::closed;

/// The identities of the jobs to wait for; those that are over as they should be are left out.
pub(super) async fn resolve(shared: &Shared, job: &JobFile) -> Result<Vec<After>, Refused> {
    let mut found = Vec::new();
    for after in &job.after {
        let when = after.when;
        let waited_for = identities(shared, after, &job.tenant).await?;
        found.extend(waited_for.into_iter().map(|uid| After { uid, when }));
    }
    Ok(found)
}

async fn identities(shared: &Shared, after: &AfterJob, tenant: &str) -> Result<Vec<Uid>, Refused> {
    // A bare name is first of all one of the job's own tenant.
    let own = format!("{tenant}/{}", after.job);
    let references =
        if after.job.contains('/') { vec![after.job.clone()] } else { vec![own, after.job.clone()] };
    for reference in &references {
        if let Some(live) = live(shared, reference, after.when).await? {
            return Ok(live);
        }
        let over = over(shared, reference).await?;
        if !over.is_empty() {
            met(&over, after.when)?;
            return Ok(Vec::new());
        }
    }
    Err(Problem::new(Code::NoSuchJob, format!("there is no job {:?} to wait for, live or over", after.job))
        .hint("live jobs: wharf get jobs; those that are over: wharf get jobs --state all")
        .into())
}

/// What lives: a job, or an array of which no member ended otherwise than is asked.
async fn live(shared: &Shared, reference: &str, when: Condition) -> Result<Option<Vec<Uid>>, Refused> {
    enum Found {
        Job(Uid),
        Array(Live),
    }
    let reference = reference.to_owned();
    let asked = shared.desk.read(move |replica| {
        Ok::<_, Problem>(match meant(&replica.state, &reference)? {
            Some(Meant::Job(id)) => replica.state.jobs.get(id).map(|job| Found::Job(job.uid)),
            Some(Meant::Array(id)) => Live::of(replica, id).map(Found::Array),
            None => None,
        })
    });
    match asked.await.map_err(closed)?? {
        None => Ok(None),
        Some(Found::Job(uid)) => Ok(Some(vec![uid])),
        Some(Found::Array(array)) => {
            // However its members ended is as good, so nobody has to look back.
            if when != Condition::Any {
                let over = arrays::over_of(shared, &array).await?;
                met(&over.members.into_iter().map(|(_, _, job)| job).collect::<Vec<_>>(), when)?;
                if !over.complete {
                    return Err(too_far_back(&array).into());
                }
            }
            Ok(Some(array.members))
        }
    }
}

/// The members of the newest array of that name that are over, or the newest job where there is no such array.
async fn over(shared: &Shared, reference: &str) -> Result<Vec<EndedJobView>, Refused> {
    let array = arrays::newest(shared, reference).await?;
    if !array.members.is_empty() {
        return Ok(array.members.into_iter().map(|(_, _, job)| job).collect());
    }
    Ok(past::find(shared, reference).await?.as_ref().and_then(ended::view).into_iter().collect())
}

/// Whether all of them ended as is asked.
fn met(over: &[EndedJobView], when: Condition) -> Result<(), Problem> {
    let otherwise = over.iter().find(|job| !when.is_met_by(outcome(job.outcome)));
    otherwise.map_or(Ok(()), |job| Err(not_met(&format!("{}/{}", job.tenant, job.name), when)))
}

fn outcome(ended: EndedAs) -> Outcome {
    match ended {
        EndedAs::Succeeded => Outcome::Succeeded,
        EndedAs::Failed => Outcome::Failed,
        EndedAs::Cancelled => Outcome::Cancelled,
        EndedAs::TimeLimit => Outcome::TimedOut,
    }
}

fn too_far_back(array: &Live) -> Problem {
    let name = format!("{}/{}", array.tenant, array.name);
    let what = format!(
        "too many jobs ended since {name} was submitted to tell whether all of its members succeeded"
    );
    Problem::new(Code::Unavailable, what)
        .hint(format!("name the members to wait for, or start however they end: --after {name}:any"))
}

fn not_met(name: &str, when: Condition) -> Problem {
    let what =
        format!("{name} is over and did not succeed, so nothing can start after it ({})", when.into_str());
    Problem::new(Code::DependencyFailed, what)
        .hint(format!("why it ended: wharf explain job/{name}; to start after it anyway: --after {name}:any"))
}
