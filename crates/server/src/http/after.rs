//! The jobs that a submission waits for: names become identities where a job is live, and history answers for one that is
//! over.

use wharf_api::file::job::{AfterJob, JobFile};
use wharf_api::v1::{Code, EndedAs, Problem};
use wharf_controller::disk::{HistoryKind, HistoryQuery};
use wharf_controller::turn::Glance;
use wharf_engine::dependency::{After, Condition};
use wharf_engine::event::Outcome;
use wharf_engine::jobs::Array;
use wharf_engine::units::Uid;

use super::{Refused, Shared, jobs};
use crate::ended;
use crate::rejection::closed;

/// The identities of the jobs to wait for; those that are over as they should be are left out.
pub(super) async fn resolve(shared: &Shared, job: &JobFile) -> Result<Vec<After>, Refused> {
    if job.after.is_empty() {
        return Ok(Vec::new());
    }
    let (wanted, tenant) = (job.after.clone(), job.tenant.clone());
    let asked = shared.desk.ask(move |mut glance| {
        let mut found = Vec::new();
        for after in &wanted {
            found.extend(identities(&mut glance, after, &tenant)?);
        }
        Ok::<_, Problem>(found)
    });
    Ok(asked.await.map_err(closed)??)
}

fn identities(glance: &mut Glance<'_>, after: &AfterJob, tenant: &str) -> Result<Vec<After>, Problem> {
    // A bare name is first of all one of the job's own tenant.
    let own = format!("{tenant}/{}", after.job);
    let references =
        if after.job.contains('/') { vec![after.job.clone()] } else { vec![own, after.job.clone()] };
    for reference in &references {
        if let Ok(id) = jobs::find(glance, reference) {
            let uid = glance.state.jobs.get(id).map(|job| job.uid);
            return Ok(uid.into_iter().map(|uid| After { uid, when: after.when }).collect());
        }
        let members = members(glance, reference);
        if !members.is_empty() {
            return Ok(members.into_iter().map(|uid| After { uid, when: after.when }).collect());
        }
    }
    for reference in &references {
        if let Some((name, outcome)) = over(glance, reference)? {
            if after.when.is_met_by(outcome) {
                return Ok(Vec::new());
            }
            return Err(not_met(&name, after.when));
        }
    }
    Err(Problem::new(Code::NoSuchJob, format!("there is no job {:?} to wait for, live or over", after.job))
        .hint("live jobs: wharf get jobs; those that are over: wharf get jobs --state all"))
}

/// The live members of an array.
fn members(glance: &Glance<'_>, reference: &str) -> Vec<Uid> {
    let state = glance.state;
    let Some((tenant, name)) = reference.rsplit_once('/') else { return Vec::new() };
    let Some(tenant) = state.tenants.named(tenant) else { return Vec::new() };
    let mine = |array: &&Array| array.name == name && array.tenant == tenant;
    let array = state.jobs.arrays().map(|(_, array)| array).find(mine);
    let uid = |job| state.jobs.get(job).map(|job| job.uid);
    array.into_iter().flat_map(|array| array.members.iter().copied()).filter_map(uid).collect()
}

/// How the newest job of that name ended.
fn over(glance: &mut Glance<'_>, reference: &str) -> Result<Option<(String, Outcome)>, Problem> {
    let (tenant, name) = match reference.rsplit_once('/') {
        Some((tenant, name)) => (Some(tenant.to_owned()), name),
        None => (None, reference),
    };
    let (kind, name) = (Some(HistoryKind::Job), Some(name.to_owned()));
    let query = HistoryQuery { kind, tenant: tenant.clone(), name, limit: 64, ..HistoryQuery::default() };
    let rows =
        glance.disk.history(&query).map_err(|fault| Problem::new(Code::Internal, fault.to_string()))?;
    let row = rows.into_iter().find(|row| tenant.as_ref().is_none_or(|tenant| row.tenant == *tenant));
    let job = row.as_ref().and_then(ended::view);
    Ok(job.map(|job| {
        let outcome = match job.outcome {
            EndedAs::Succeeded => Outcome::Succeeded,
            EndedAs::Failed => Outcome::Failed,
            EndedAs::Cancelled => Outcome::Cancelled,
            EndedAs::TimeLimit => Outcome::TimedOut,
        };
        (format!("{}/{}", job.tenant, job.name), outcome)
    }))
}

fn not_met(name: &str, when: Condition) -> Problem {
    let what = format!("{name} is over and did not succeed, so nothing can start after it ({})", when.word());
    Problem::new(Code::DependencyFailed, what)
        .hint(format!("why it ended: wharf explain job/{name}; to start after it anyway: --after {name}:any"))
}
