//! Whether a job may wait, and as what.

use alloc::string::String;

use super::{Decision, Names, bookings};
use crate::event::{Event, JobsEvent};
use crate::input::{Rejection, SpecFault, Submission};
use crate::job::{ALTERNATIVES_MAX, Class, GPUS_PER_TASK_MAX, GpuAsk, Service, Spec, TASKS_MAX, Topology};
use crate::jobs::KindKey;
use crate::policy::Policy;
use crate::state::State;
use crate::units::{DeviceSetId, GpuUnits, JobId, LevelId, Millis, NodeSetId, Timestamp};

/// When a full queue is worth another try.
const QUEUE_RETRY_MS: u64 = 5_000;

pub(super) fn submit(state: &State, submission: &Submission, now: Timestamp) -> Result<Decision, Rejection> {
    check_spec(&submission.spec).map_err(Rejection::BadSpec)?;
    check_tenant(state, &submission.tenant)?;
    let mut names = Names::new(&state.tenants);
    let mut spec = resolve(state, submission, &mut names)?;
    if let Some(job) = state.jobs.with_uid(submission.uid) {
        let same = state.jobs.get(job).is_some_and(|known| {
            // The policy may have given it a limit, which is not what was submitted.
            spec.time_limit = spec.time_limit.or(known.spec.time_limit);
            // A service was scaled since, perhaps.
            if spec.service.is_some() && spec.service == known.spec.service {
                spec.tasks = known.spec.tasks;
            }
            spec.booking = known.spec.booking;
            known.spec == spec
        });
        return if same {
            Ok(Decision { events: alloc::vec![], job: Some(job) })
        } else {
            Err(Rejection::UidInUse { job })
        };
    }
    spec.booking = bookings::of_job(state, submission, &spec)?;
    if state.jobs.ended_lately(submission.uid) {
        return Err(Rejection::UidEnded);
    }
    if let Some(job) = state.jobs.named(spec.tenant, &spec.name) {
        return Err(Rejection::NameInUse { job });
    }
    let limit = state.tenants.policy().queue_len_max;
    if state.jobs.waiting_len() >= limit {
        return Err(Rejection::QueueFull { limit, retry_after_ms: QUEUE_RETRY_MS });
    }
    let policy = state.tenants.policy();
    check_limit(policy, spec.class, spec.time_limit)?;
    spec.time_limit = spec.time_limit.or(policy.limits.default_of(spec.class));
    let (key, domain) = (KindKey::of(&spec), domain(submission));
    if let Some(refused) = state.sharing_refused(&key, domain, policy) {
        return Err(Rejection::SharingRefused(refused));
    }
    if let Some(shortfall) = state.never(&key, domain, policy) {
        return Err(Rejection::Never(shortfall));
    }
    let job = state.jobs.next();
    let mut events = names.events;
    events.push(Event::Jobs(JobsEvent::Queued { job, uid: submission.uid, spec, at: now }));
    Ok(Decision { events, job: Some(job) })
}

/// Whether the policy lets a job of the class have that limit.
pub(super) fn check_limit(policy: &Policy, class: Class, given: Option<Millis>) -> Result<(), Rejection> {
    match (given, policy.limits.max_of(class)) {
        (Some(given), Some(max)) if given > max => Err(Rejection::LimitAboveMax { class, given, max }),
        (None | Some(_), None | Some(_)) => Ok(()),
    }
}

pub(super) fn check_spec(spec: &Spec) -> Result<(), SpecFault> {
    if spec.tasks == 0 || spec.tasks > TASKS_MAX {
        return Err(SpecFault::Tasks { given: spec.tasks, max: TASKS_MAX });
    }
    if spec.min == 0 || spec.min > spec.tasks {
        return Err(SpecFault::Min { given: spec.min, tasks: spec.tasks });
    }
    if let Some(Service { max, replicas: _ }) = spec.service {
        if spec.class != Class::Inference {
            return Err(SpecFault::ServiceClass);
        }
        if spec.tasks > max || max > TASKS_MAX {
            return Err(SpecFault::ServiceMax { replicas: spec.tasks, max: max.min(TASKS_MAX) });
        }
    }
    if spec.shape.any_of.len() > ALTERNATIVES_MAX {
        return Err(SpecFault::Alternatives { given: spec.shape.any_of.len(), max: ALTERNATIVES_MAX });
    }
    for alternative in spec.shape.alternatives() {
        check_ask(alternative.gpus, spec.topology)?;
    }
    let nothing =
        spec.shape.gpus == GpuAsk::Whole(0) && spec.shape.resources == crate::units::Resources::default();
    if nothing { Err(SpecFault::Empty) } else { Ok(()) }
}

fn check_ask(given: GpuAsk, topology: Topology) -> Result<(), SpecFault> {
    let fits = match given {
        GpuAsk::Whole(count) => count <= GPUS_PER_TASK_MAX,
        GpuAsk::Share(units) => units > GpuUnits::ZERO && units < GpuUnits::WHOLE,
        GpuAsk::Slice(_) => true,
        GpuAsk::AtLeast(least) => least.memory_mib > 0 || least.compute > 0,
    };
    if !fits {
        return Err(SpecFault::Gpus { given, max: GPUS_PER_TASK_MAX });
    }
    // A slice or a share has no link to another GPU.
    if topology.task_on_island && !matches!(given, GpuAsk::Whole(1..)) {
        return Err(SpecFault::IslandNeedsGpus { topology });
    }
    Ok(())
}

pub(super) fn check_tenant(state: &State, path: &str) -> Result<(), Rejection> {
    if state.tenants.in_policy(path).is_none() {
        return Err(Rejection::UnknownTenant { path: String::from(path) });
    }
    let children = state.tenants.children(path);
    if children.is_empty() {
        Ok(())
    } else {
        Err(Rejection::TenantHasChildren { path: String::from(path), children })
    }
}

/// The trust domain of a submission: its own, or the tenant at the top.
pub(super) fn domain(submission: &Submission) -> &str {
    let top = submission.tenant.split('/').next().unwrap_or_default();
    submission.trust.as_deref().unwrap_or(top)
}

/// The spec with ids where the submission has names.
pub(super) fn resolve(
    state: &State,
    submission: &Submission,
    names: &mut Names<'_>,
) -> Result<Spec, Rejection> {
    let mut spec = submission.spec.clone();
    // Known to whoever submits by its name; what is adopted goes on without.
    spec.booking = None;
    spec.tenant = names.tenant(&submission.tenant);
    spec.trust = names.trust(domain(submission));
    let unknown = |source: &str| Rejection::UnknownSelector { source: String::from(source) };
    spec.shape.nodes = match submission.nodes.as_str() {
        "" => NodeSetId(0),
        source => state.fleet.node_set(source).map(|(set, _)| set).ok_or_else(|| unknown(source))?,
    };
    let devices = |source: &str| match source {
        "" => Ok(DeviceSetId(0)),
        source => state.fleet.device_set(source).map(|(set, _)| set).ok_or_else(|| unknown(source)),
    };
    spec.shape.devices = devices(&submission.devices)?;
    for (alternative, source) in spec.shape.any_of.iter_mut().zip(&submission.any_of_devices) {
        alternative.devices = devices(source)?;
    }
    spec.topology.gang_within = match &submission.gang_within {
        None => None,
        Some(name) => Some(level(state, name)?),
    };
    Ok(spec)
}

fn level(state: &State, name: &str) -> Result<LevelId, Rejection> {
    let at = state.fleet.levels().iter().position(|level| level == name);
    let at = at.and_then(|at| u8::try_from(at).ok());
    at.map(LevelId).ok_or_else(|| Rejection::UnknownLevel {
        level: String::from(name),
        known: state.fleet.levels().to_vec(),
    })
}

/// The id after `job`.
pub(super) fn after(job: JobId) -> JobId {
    JobId(job.0 + 1)
}
