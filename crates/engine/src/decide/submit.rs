//! Whether a job may wait, and as what.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Decision, Names, bookings};
use crate::model::dependency::{
    ARRAY_MAX, After, ArrayMember, ArrayRequest, DEPENDENCIES_MAX, Dependency, LINKS_MAX,
};
use crate::model::group::{GROUPS_MAX, Group};
use crate::model::job::{
    ALTERNATIVES_MAX, Alternative, Class, GPUS_PER_TASK_MAX, GpuAsk, Service, Shape, Spec, TASKS_MAX,
};
use crate::model::policy::{BytesMax, Policy, trust};
use crate::model::rejection::{GroupFault, Rejection, SpecFault};
use crate::model::submission::{GroupSelectors, Submission};
use crate::state::State;
use crate::state::event::Event;
use crate::state::jobs::KindKey;
use crate::state::jobs::event::JobsEvent;
use crate::units::{
    DeviceSetId, GpuUnits, JobId, LevelId, Millis, NodeSetId, Resources, TenantId, Timestamp, Uid,
};

/// When a full queue is worth another try.
const QUEUE_RETRY_MS: u64 = 5_000;

pub(super) fn submit(state: &State, submission: &Submission, now: Timestamp) -> Result<Decision, Rejection> {
    let (mut spec, mut events) = wanted(state, submission)?;
    if let Some(known) = known(state, submission, &mut spec)? {
        return Ok(Decision { events: alloc::vec![], job: Some(known) });
    }
    check_trust(state.tenants.policy(), submission)?;
    bookings::find(state, submission, &mut spec)?;
    spec.after = dependencies(state, &submission.after)?;
    let members = members(submission, &spec)?;
    // An array is meant by its name, as a job is.
    if submission.array.is_some() {
        check_name(state, spec.tenant, &spec.name)?;
    }
    for (uid, member) in &members {
        if let Some(job) = state.jobs.with_uid(*uid) {
            return Err(Rejection::UidInUse { job });
        }
        if state.jobs.ended_lately(*uid) {
            return Err(Rejection::UidEnded);
        }
        check_name(state, member.tenant, &member.name)?;
    }
    let limit = state.tenants.policy().queue_len_max;
    let waiting = u64::from(state.jobs.waiting_len()) + u64::from(state.jobs.held_back_len());
    if waiting + u64::try_from(members.len()).unwrap_or(u64::MAX) > u64::from(limit) {
        return Err(Rejection::QueueFull { limit, retry_after_ms: QUEUE_RETRY_MS });
    }
    check_bytes(state, submission, &members, 0)?;
    limit_and_fit(state, submission, &mut spec)?;
    let first = state.jobs.next();
    for (job, (uid, member)) in (first.0..).map(JobId).zip(members) {
        let spec = Spec { time_limit: spec.time_limit, ..member };
        events.push(Event::Jobs(JobsEvent::Queued { job, uid, spec, at: now, owned: false }));
    }
    Ok(Decision { events, job: Some(first) })
}

/// The spec of a job that somebody wants, and the events that name what is new in it.
pub(super) fn wanted(state: &State, submission: &Submission) -> Result<(Spec, Vec<Event>), Rejection> {
    check_spec(&submission.spec).map_err(Rejection::BadSpec)?;
    check_tenant(state, &submission.tenant)?;
    let mut names = Names::new(state);
    Ok((resolve(submission, &mut names)?, names.events))
}

/// Gives the job the time limit of its class, if it has none, and refuses what could not run.
fn limit_and_fit(state: &State, submission: &Submission, spec: &mut Spec) -> Result<(), Rejection> {
    let policy = state.tenants.policy();
    check_limit(policy, spec.class, spec.time_limit)?;
    spec.time_limit = spec.time_limit.or(policy.limits.default_of(spec.class));
    let (key, domain) = (KindKey::of(spec), domain(submission));
    if let Some(refused) = state.sharing_refused(&key, domain) {
        return Err(Rejection::SharingRefused(refused));
    }
    if let Some(shortfall) = state.never(&key, domain) {
        let group = shortfall.group.and_then(|at| Some(spec.groups.get(at)?.name.clone()));
        return Err(Rejection::Never { shortfall, group });
    }
    Ok(())
}

/// What a job that exists would be if it were submitted now.
pub(super) fn judge(state: &State, submission: &Submission) -> Result<(Spec, Vec<Event>), Rejection> {
    let (mut spec, events) = wanted(state, submission)?;
    check_trust(state.tenants.policy(), submission)?;
    bookings::find(state, submission, &mut spec)?;
    // The job that it takes the place of no longer counts.
    let before = state.jobs.with_uid(submission.uid).and_then(|id| state.jobs.get(id));
    let before = before.map_or(0, |job| job.spec.bytes());
    check_bytes(state, submission, &[(submission.uid, spec.clone())], before)?;
    limit_and_fit(state, submission, &mut spec)?;
    Ok((spec, events))
}

pub(super) fn same_job(state: &State, submission: &Submission) -> Result<bool, Rejection> {
    check_spec(&submission.spec).map_err(Rejection::BadSpec)?;
    let mut spec = resolve(submission, &mut Names::new(state))?;
    Ok(matches!(known(state, submission, &mut spec), Ok(Some(_))))
}

/// Whether a name is that of a live job or array of the tenant: it would mean both.
fn check_name(state: &State, tenant: TenantId, name: &str) -> Result<(), Rejection> {
    if let Some(job) = state.jobs.named(tenant, name) {
        return Err(Rejection::NameInUse { job });
    }
    if state.jobs.array_named(tenant, name).is_some() {
        return Err(Rejection::ArrayNameInUse { name: String::from(name) });
    }
    Ok(())
}

/// The live job that the same request has made, if there is one; of an array its first member.
fn known(state: &State, submission: &Submission, spec: &mut Spec) -> Result<Option<JobId>, Rejection> {
    if submission.array.is_some() {
        return Ok(state.jobs.array(submission.uid).and_then(|array| array.members.first().copied()));
    }
    let Some(job) = state.jobs.with_uid(submission.uid) else { return Ok(None) };
    let same = state.jobs.get(job).is_some_and(|known| {
        // The policy may have given it a limit, which is not what was submitted.
        spec.time_limit = spec.time_limit.or(known.spec.time_limit);
        // A service was scaled since, perhaps.
        if spec.service.is_some() && spec.service == known.spec.service {
            spec.tasks = known.spec.tasks;
        }
        spec.booking = known.spec.booking;
        // The domain of a submission that names none may have been another one in an earlier version.
        if submission.trust.is_none() {
            spec.trust = known.spec.trust;
        }
        // What it waits for is over, perhaps.
        spec.after.clone_from(&known.spec.after);
        known.spec == *spec
    });
    if same { Ok(Some(job)) } else { Err(Rejection::UidInUse { job }) }
}

fn dependencies(state: &State, after: &[After]) -> Result<Vec<Dependency>, Rejection> {
    if after.len() > DEPENDENCIES_MAX {
        return Err(Rejection::TooManyDependencies { given: after.len(), max: DEPENDENCIES_MAX });
    }
    let dependency = |&After { uid, when }: &After| {
        let job = state.jobs.with_uid(uid).ok_or(Rejection::DependencyNotLive { uid })?;
        let spec = &state.jobs.get(job).expect("a job of that identity is live").spec;
        let name = alloc::format!("{}/{}", state.tenants.path(spec.tenant), spec.name);
        Ok(Dependency { job, name, when, failed: false })
    };
    after.iter().map(dependency).collect()
}

/// The jobs that a submission makes, with their identities: one, or the members of an array.
fn members(submission: &Submission, spec: &Spec) -> Result<Vec<(Uid, Spec)>, Rejection> {
    let Some(ArrayRequest { indexes, at_most }) = &submission.array else {
        return Ok(alloc::vec![(submission.uid, spec.clone())]);
    };
    let in_order = indexes.windows(2).all(|pair| pair[0] < pair[1]);
    if indexes.is_empty() || indexes.len() > ARRAY_MAX || *at_most == 0 || !in_order {
        return Err(Rejection::BadArray { given: indexes.len(), max: ARRAY_MAX });
    }
    let links = indexes.len().saturating_mul(spec.after.len());
    if links > LINKS_MAX {
        let (members, each) = (indexes.len(), spec.after.len());
        return Err(Rejection::TooManyLinks { members, each, max: LINKS_MAX });
    }
    let member = |&index: &u32| {
        let (id, name, at_most) = (submission.uid, spec.name.clone(), *at_most);
        let mut member = spec.clone();
        member.name = ArrayMember::member_name(&name, index);
        for (key, value) in [("array", name.clone()), ("array-index", alloc::format!("{index}"))] {
            if !member.labels.iter().any(|(known, _)| known == key) {
                member.labels.push((String::from(key), value));
            }
        }
        member.array = Some(ArrayMember { id, name, index, at_most });
        (ArrayMember::uid(id, index), member)
    };
    Ok(indexes.iter().map(member).collect())
}

/// Whether the text of new jobs and all live ones is within its bounds; they take the place of a job of `before` bytes.
fn check_bytes(
    state: &State,
    submission: &Submission,
    members: &[(Uid, Spec)],
    before: u64,
) -> Result<(), Rejection> {
    let BytesMax { job, tenant, all } = state.tenants.policy().bytes_max;
    let bytes = members.iter().map(|(_, spec)| spec.bytes()).fold(0, u64::saturating_add);
    let whole = submission.bytes();
    let payer = members.first().map(|(_, spec)| spec.tenant).unwrap_or_default();
    if whole > job {
        return Err(Rejection::JobTooLarge { bytes: whole, limit: job });
    }
    let of_tenant = (Some(submission.tenant.clone()), state.jobs.bytes_of(payer), tenant);
    for (tenant, used, limit) in [of_tenant, (None, state.jobs.bytes(), all)] {
        let used = used.saturating_sub(before);
        if used.saturating_add(bytes) > limit {
            return Err(Rejection::BytesFull { tenant, used, bytes, limit, retry_after_ms: QUEUE_RETRY_MS });
        }
    }
    Ok(())
}

pub(super) fn check_limit(policy: &Policy, class: Class, given: Option<Millis>) -> Result<(), Rejection> {
    let beyond = given.zip(policy.limits.max_of(class)).filter(|(given, max)| given > max);
    beyond.map_or(Ok(()), |(given, max)| Err(Rejection::LimitAboveMax { class, given, max }))
}

pub(super) fn check_spec(spec: &Spec) -> Result<(), SpecFault> {
    if spec.has_groups() {
        return check_groups(spec);
    }
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
    check_shape(&spec.shape, spec.topology.task_on_island, 1).map_err(|fault| match fault {
        GroupFault::Alternatives { given, max } => SpecFault::Alternatives { given, max },
        GroupFault::Gpus { given, max } => SpecFault::Gpus { given, max },
        GroupFault::Island => SpecFault::IslandNeedsGpus { topology: spec.topology },
        GroupFault::Name | GroupFault::Min { .. } | GroupFault::MinCopies { .. } | GroupFault::Empty => {
            SpecFault::Empty
        }
    })
}

/// What is said once for every job follows from the groups; they are what is looked at.
fn check_groups(spec: &Spec) -> Result<(), SpecFault> {
    if spec.groups.len() > GROUPS_MAX {
        return Err(SpecFault::Groups { given: spec.groups.len(), max: GROUPS_MAX });
    }
    if spec.service.is_some() {
        return Err(SpecFault::GroupsOfService);
    }
    for (at, group) in spec.groups.iter().enumerate() {
        let taken = spec.groups[..at].iter().any(|other| other.name == group.name);
        let named = if taken || group.name.is_empty() { Err(GroupFault::Name) } else { Ok(()) };
        let fault = named.and_then(|()| check_group(group, spec.topology.task_on_island));
        fault.map_err(|fault| SpecFault::Group { at, fault })?;
    }
    let tasks = spec.groups.iter().map(Group::tasks_in_all).fold(0, u32::saturating_add);
    if tasks > TASKS_MAX {
        return Err(SpecFault::Tasks { given: tasks, max: TASKS_MAX });
    }
    // The tasks of a coordinator without GPUs are nowhere; somebody's are to be on an island.
    let on_island = |group: &Group| matches!(group.shape.gpus, GpuAsk::Whole(1..));
    if spec.topology.task_on_island && !spec.groups.iter().any(on_island) {
        return Err(SpecFault::IslandNeedsGpus { topology: spec.topology });
    }
    Ok(())
}

fn check_group(group: &Group, task_on_island: bool) -> Result<(), GroupFault> {
    let Group { name: _, tasks, min, copies, min_copies, shape } = group;
    if *min == 0 || min > tasks {
        return Err(GroupFault::Min { given: *min, tasks: *tasks });
    }
    if *min_copies == 0 || min_copies > copies {
        return Err(GroupFault::MinCopies { given: *min_copies, copies: *copies });
    }
    check_shape(shape, task_on_island, 0)
}

/// A slice or a share has no link to another GPU: on an island are tasks with at least so many whole ones.
fn check_shape(shape: &Shape, task_on_island: bool, on_island_min: u32) -> Result<(), GroupFault> {
    if shape.any_of.len() > ALTERNATIVES_MAX {
        return Err(GroupFault::Alternatives { given: shape.any_of.len(), max: ALTERNATIVES_MAX });
    }
    for Alternative { gpus, devices: _ } in shape.alternatives() {
        if !is_possible(gpus) {
            return Err(GroupFault::Gpus { given: gpus, max: GPUS_PER_TASK_MAX });
        }
        if task_on_island && !matches!(gpus, GpuAsk::Whole(count) if count >= on_island_min) {
            return Err(GroupFault::Island);
        }
    }
    let asks_nothing = shape.gpus == GpuAsk::Whole(0) && shape.resources == Resources::default();
    if asks_nothing { Err(GroupFault::Empty) } else { Ok(()) }
}

fn is_possible(given: GpuAsk) -> bool {
    match given {
        GpuAsk::Whole(count) => count <= GPUS_PER_TASK_MAX,
        GpuAsk::Share(units) => units > GpuUnits::ZERO && units < GpuUnits::WHOLE,
        GpuAsk::Slice(_) => true,
        GpuAsk::AtLeast(least) => least.memory_mib > 0 || least.compute > 0,
    }
}

fn check_tenant(state: &State, path: &str) -> Result<(), Rejection> {
    if state.tenants.in_policy(path).is_none() {
        return Err(Rejection::UnknownTenant { path: String::from(path) });
    }
    let children = state.tenants.children(path);
    let path = String::from(path);
    if children.is_empty() { Ok(()) } else { Err(Rejection::TenantHasChildren { path, children }) }
}

/// The trust domain of a submission: the one it names, or its team.
pub(super) fn domain(submission: &Submission) -> &str {
    submission.trust.as_deref().unwrap_or_else(|| trust::team_of(&submission.tenant))
}

/// Whether the tenant may be in the domain that it names. What is adopted was judged when it was submitted, and stays.
pub(super) fn check_trust(policy: &Policy, submission: &Submission) -> Result<(), Rejection> {
    let (tenant, domain, claims) = (&submission.tenant, domain(submission), &policy.sharing.claims);
    if trust::may_claim(claims, tenant, domain) {
        return Ok(());
    }
    let claims = trust::claimed_by(claims, tenant).map(String::from).collect();
    Err(Rejection::TrustNotAllowed { tenant: tenant.clone(), domain: String::from(domain), claims })
}

/// The spec with ids where the submission has names.
pub(super) fn resolve(submission: &Submission, names: &mut Names<'_>) -> Result<Spec, Rejection> {
    let state = names.state;
    let mut spec = submission.spec.clone();
    // A submission names these, and `submit` finds them; what is adopted runs, and goes on without.
    spec.booking = None;
    spec.after = Vec::new();
    spec.tenant = names.tenant(&submission.tenant);
    spec.trust = names.trust(domain(submission));
    select(state, &mut spec.shape, &submission.nodes, &submission.devices, &submission.any_of_devices)?;
    for (group, selectors) in spec.groups.iter_mut().zip(&submission.groups) {
        let GroupSelectors { nodes, devices, any_of_devices } = selectors;
        select(state, &mut group.shape, nodes, devices, any_of_devices)?;
    }
    spec.derive_from_groups();
    spec.topology.gang_within = submission.gang_within.as_ref().map(|name| level(state, name)).transpose()?;
    Ok(spec)
}

fn select(
    state: &State,
    shape: &mut Shape,
    nodes: &str,
    devices: &str,
    any_of_devices: &[String],
) -> Result<(), Rejection> {
    let unknown = |source: &str| Rejection::UnknownSelector { source: String::from(source) };
    shape.nodes = match nodes {
        "" => NodeSetId(0),
        source => state.fleet.node_set(source).map(|(set, _)| set).ok_or_else(|| unknown(source))?,
    };
    let set = |source: &str| match source {
        "" => Ok(DeviceSetId(0)),
        source => state.fleet.device_set(source).map(|(set, _)| set).ok_or_else(|| unknown(source)),
    };
    shape.devices = set(devices)?;
    for (alternative, source) in shape.any_of.iter_mut().zip(any_of_devices) {
        alternative.devices = set(source)?;
    }
    Ok(())
}

fn level(state: &State, name: &str) -> Result<LevelId, Rejection> {
    let levels = state.fleet.levels();
    let at = levels.iter().position(|level| level == name).and_then(|at| u8::try_from(at).ok());
    let unknown = || Rejection::UnknownLevel { level: String::from(name), known: levels.to_vec() };
    at.map(LevelId).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn group(name: &str) -> Group {
        let resources = Resources { cpu_milli: 1000, ..Resources::default() };
        let shape = Shape::of(GpuAsk::Whole(8), resources);
        Group { name: name.into(), tasks: 4, min: 3, copies: 8, min_copies: 6, shape }
    }

    fn fault(change: impl FnOnce(&mut Spec)) -> Option<SpecFault> {
        let groups = vec![group("a"), group("b")];
        let nothing = Shape::of(GpuAsk::Whole(0), Resources::default());
        let mut spec = Spec { class: Class::Inference, tasks: 0, min: 0, groups, ..Spec::of("j", nothing) };
        change(&mut spec);
        check_spec(&spec).err()
    }

    #[test]
    fn groups_that_contradict_themselves_are_refused_each_for_its_reason() {
        let of_second = |fault| Some(SpecFault::Group { at: 1, fault });
        assert_eq!(fault(|_| {}), None);
        assert_eq!(fault(|spec| spec.groups[1].name = "a".into()), of_second(GroupFault::Name));
        assert_eq!(fault(|spec| spec.groups[1].min = 5), of_second(GroupFault::Min { given: 5, tasks: 4 }));
        let copies = GroupFault::MinCopies { given: 0, copies: 8 };
        assert_eq!(fault(|spec| spec.groups[1].min_copies = 0), of_second(copies));
        let gpus = GroupFault::Gpus { given: GpuAsk::Whole(17), max: 16 };
        assert_eq!(fault(|spec| spec.groups[1].shape.gpus = GpuAsk::Whole(17)), of_second(gpus));
        let nothing = Shape::of(GpuAsk::Whole(0), Resources::default());
        assert_eq!(fault(|spec| spec.groups[1].shape = nothing), of_second(GroupFault::Empty));
        let tasks = SpecFault::Tasks { given: 16_416, max: TASKS_MAX };
        assert_eq!(fault(|spec| spec.groups[1].copies = 4096), Some(tasks));
        let service = Some(Service { max: 2, replicas: 1 });
        assert_eq!(fault(|spec| spec.service = service), Some(SpecFault::GroupsOfService));
        let many = SpecFault::Groups { given: 17, max: GROUPS_MAX };
        assert_eq!(fault(|spec| spec.groups = vec![group("x"); 17]), Some(many));
    }

    #[test]
    fn an_island_is_for_groups_with_whole_gpus() {
        let with_gpus = |first, second| {
            fault(|spec| {
                spec.topology.task_on_island = true;
                (spec.groups[0].shape.gpus, spec.groups[1].shape.gpus) = (first, second);
            })
        };
        let (none, whole) = (GpuAsk::Whole(0), GpuAsk::Whole(8));
        assert_eq!(with_gpus(none, whole), None, "a head beside them");
        let part = with_gpus(GpuAsk::Share(GpuUnits::from_parts(1500)), whole);
        assert_eq!(part, Some(SpecFault::Group { at: 0, fault: GroupFault::Island }));
        let nobody = with_gpus(none, none);
        assert!(matches!(nobody, Some(SpecFault::IslandNeedsGpus { .. })));
    }
}
