//! Refusals as problems: every [`Rejection`] has a code, a status and a next step.

use wharf_api::file::{FileError, nearest, span_text};
use wharf_api::v1::{Code, Problem};
use wharf_engine::model::job::GpuAsk;
use wharf_engine::model::policy::trust::team_of;
use wharf_engine::model::rejection::{GroupFault, Rejection, SpecFault};
use wharf_engine::state::State;

use crate::desk::Closed;
use crate::{booking, maintenance, text};

fn trust_not_allowed(tenant: &str, domain: &str, claims: &[String]) -> Problem {
    let what = format!(
        "{tenant} may not claim the trust domain {domain:?}: its jobs could share GPUs with strangers"
    );
    let others =
        if claims.is_empty() { String::new() } else { format!(", or name one of: {}", claims.join(", ")) };
    let team = team_of(tenant);
    Problem::new(Code::TrustNotAllowed, what).hint(format!(
        "leave `trust` out to share inside the team ({team}){others}; or have the tenant listed in domains.{domain}.tenants (trust.yaml)"
    ))
}

/// What the caller is told.
pub(crate) fn problem(state: &State, rejection: &Rejection) -> Problem {
    match rejection {
        Rejection::UnknownTenant { path } => unknown_tenant(state, path),
        Rejection::TenantHasChildren { path, children } => Problem::new(
            Code::TenantHasChildren,
            format!("{path} is divided further and takes no jobs itself"),
        )
        .hint(format!("submit to one of: {}", children.join(", "))),
        Rejection::NameInUse { .. }
        | Rejection::ArrayNameInUse { .. }
        | Rejection::UidInUse { .. }
        | Rejection::UidEnded => identity_problem(state, rejection),
        Rejection::SharingRefused(refused) => Problem::new(Code::SharingRefused, text::sharing(*refused))
            .hint("ask for a slice or a whole GPU, or have sharing.tax_max of the class raised (trust.yaml)"),
        Rejection::TrustNotAllowed { tenant, domain, claims } => trust_not_allowed(tenant, domain, claims),
        Rejection::BadSpec(fault) => Problem::new(Code::BadSpec, spec_fault(*fault)),
        Rejection::UnknownLevel { level, known } => {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            Problem::new(Code::UnknownLevel, format!("this fleet has no level {level:?}")).hint(suggestion(
                level,
                &known,
                "its levels are",
            ))
        }
        Rejection::UnknownSelector { source } => {
            Problem::new(Code::BadRequest, format!("the selector {source:?} cannot be read"))
        }
        Rejection::Never { shortfall, group } => Problem::new(
            Code::Never,
            format!(
                "it can never run, even on the whole fleet, healthy and empty: {}",
                text::short(state, *shortfall, group.as_deref())
            ),
        )
        .hint("ask for less, or for another model, or have the limit raised"),
        Rejection::QueueFull { .. } | Rejection::JobTooLarge { .. } | Rejection::BytesFull { .. } => {
            full_problem(rejection)
        }
        Rejection::DependencyNotLive { .. }
        | Rejection::TooManyDependencies { .. }
        | Rejection::TooManyLinks { .. }
        | Rejection::BadArray { .. } => chain_problem(rejection),
        Rejection::NoSuchJob
        | Rejection::NotRunning
        | Rejection::NotPreemptible
        | Rejection::LimitAboveMax { .. }
        | Rejection::NoTimeLimit
        | Rejection::LimitNotLonger { .. }
        | Rejection::NotAService
        | Rejection::NoneToSpare { .. }
        | Rejection::ReplicasOutOfRange { .. }
        | Rejection::Ending => life_problem(rejection),
        Rejection::BookingRefused { .. }
        | Rejection::BookingNameInUse { .. }
        | Rejection::NoSuchBooking { .. }
        | Rejection::NotOfBooking { .. } => booking::problem(state, rejection),
        Rejection::NoSuchNode { name } => no_such_node(state, name),
        Rejection::BadDowntime { .. }
        | Rejection::DowntimeNameInUse { .. }
        | Rejection::NoSuchDowntime { .. } => maintenance::problem(state, rejection),
        Rejection::NothingToDo => Problem::new(Code::NothingToDo, "everything is already as asked"),
        Rejection::BadPrices | Rejection::Gap { .. } | Rejection::Stale => internal(rejection),
    }
}

/// A name or a key that is taken.
fn identity_problem(state: &State, rejection: &Rejection) -> Problem {
    let name = |job| {
        state.jobs.get(job).map_or("?", |known: &wharf_engine::state::jobs::Job| known.spec.name.as_str())
    };
    match rejection {
        Rejection::NameInUse { job } => {
            Problem::new(Code::NameInUse, format!("the tenant has a live job named {:?}", name(*job)))
                .hint("choose another name, or cancel that job first")
        }
        Rejection::ArrayNameInUse { name } => {
            Problem::new(Code::NameInUse, format!("the tenant has a live array named {name:?}"))
                .hint("choose another name, or cancel that array first")
        }
        Rejection::UidInUse { job } => Problem::new(
            Code::KeyInUse,
            format!("this key was used for the job {:?}, which is not the same", name(*job)),
        )
        .hint("use a new key for a new job"),
        Rejection::UidEnded => {
            Problem::new(Code::KeyInUse, "the job that was submitted with this key has ended")
                .hint("see: wharf get history; use a new key for a new job")
        }
        _ => Problem::new(Code::Internal, "a refusal of another kind"),
    }
}

/// Jobs that wait for others, and arrays.
fn chain_problem(rejection: &Rejection) -> Problem {
    match rejection {
        Rejection::DependencyNotLive { uid } => Problem::new(
            Code::NoSuchJob,
            format!("the job {:032x}, which it is to wait for, is not live", uid.0),
        )
        .hint("live jobs: wharf get jobs; those that are over: wharf get jobs --state all"),
        Rejection::TooManyDependencies { given, max } => Problem::new(
            Code::BadSpec,
            format!("it would wait for {given} jobs; one job waits for at most {max}"),
        ),
        Rejection::TooManyLinks { members, each, max } => Problem::new(
            Code::BadSpec,
            format!(
                "each of its {members} members would wait for {each} jobs, {} dependencies in all; the members of one array have at most {max} together",
                members.saturating_mul(*each)
            ),
        )
        .hint("let one job wait for the others, and the array for that job"),
        Rejection::BadArray { given, max } => Problem::new(
            Code::BadSpec,
            format!(
                "an array has 1 to {max} members of which at least one runs at a time; {given} were asked for"
            ),
        ),
        _ => Problem::new(Code::Internal, "a refusal of another kind"),
    }
}

/// What no caller can have asked for.
fn internal(rejection: &Rejection) -> Problem {
    let what = match rejection {
        Rejection::BadPrices => "prices beyond their bounds were worked out",
        _ => "a world's report was taken for a request",
    };
    Problem::new(Code::Internal, what)
}

/// More jobs, or more of their text, than there may be.
fn full_problem(rejection: &Rejection) -> Problem {
    let later = |problem: Problem, retry_after_ms: u64| {
        problem.retry_after_ms(retry_after_ms).hint(format!("try again in {}", span_text(retry_after_ms)))
    };
    match rejection {
        Rejection::QueueFull { limit, retry_after_ms } => {
            let what = format!("{limit} jobs wait already, which is the most");
            later(Problem::new(Code::QueueFull, what), *retry_after_ms)
        }
        Rejection::JobTooLarge { bytes, limit } => Problem::new(
            Code::TooLarge,
            format!(
                "the job has {bytes} bytes of payload, labels, selectors and names; a job has at most {limit}"
            ),
        )
        .hint("keep data elsewhere and name it in the job, or have bytes_max.job raised (queue.yaml)"),
        Rejection::BytesFull { tenant, used, bytes, limit, retry_after_ms } => {
            let whose = tenant.as_ref().map_or("all tenants".to_owned(), Clone::clone);
            let what = format!(
                "the live jobs of {whose} have {used} bytes of payload, labels and names; with {bytes} more they would pass the \
                 {limit} that they may have together"
            );
            later(Problem::new(Code::QueueBytesFull, what), *retry_after_ms)
        }
        _ => Problem::new(Code::Internal, "a refusal of another kind"),
    }
}

/// How long a job may run, or with how many replicas.
fn life_problem(rejection: &Rejection) -> Problem {
    match rejection {
        Rejection::NoSuchJob => {
            Problem::new(Code::NoSuchJob, "there is no such live job").hint("wharf get jobs")
        }
        Rejection::NotRunning => Problem::new(Code::NotRunning, "the job waits; it has nothing to give back"),
        Rejection::NotPreemptible => {
            Problem::new(Code::NotPreemptible, "the job was submitted with `preemptible: false`")
                .hint("cancel it instead, if it is yours")
        }
        Rejection::LimitAboveMax { class, given, max } => Problem::new(
            Code::LimitAboveMax,
            format!(
                "a limit of {} is longer than the {} that the policy lets {} jobs run",
                text::span(*given),
                text::span(*max),
                class.into_str()
            ),
        )
        .hint("ask for less, save the work and submit the rest as a job of its own, or have limit_max raised (queue.yaml)"),
        Rejection::NoTimeLimit => {
            Problem::new(Code::NoTimeLimit, "the job has no time limit; nothing ends it but itself")
                .hint("nothing is needed; a limit is given when a job is submitted (time.limit)")
        }
        Rejection::LimitNotLonger { given, limit } => Problem::new(
            Code::LimitNotLonger,
            format!("it may run {} already; {} is not longer", text::span(*limit), text::span(*given)),
        )
        .hint("give a longer limit, or --by how much longer; to end it sooner, cancel it"),
        Rejection::NotAService => {
            Problem::new(Code::NotAService, "the job is no service: its number of tasks does not change")
                .hint("submit it with service: {min: 2, max: 8}")
        }
        Rejection::NoneToSpare { min } => Problem::new(
            Code::NoneToSpare,
            format!("at least {min} replicas have to run, and none may run beside them meanwhile"),
        )
        .hint("give --surge 1, or scale the service up first and give --unavailable 1"),
        Rejection::ReplicasOutOfRange { given, min, max } => Problem::new(
            Code::ReplicasOutOfRange,
            format!("{given} replicas are not between the {min} and {max} that the service was submitted with"),
        )
        .hint(format!("ask for {min} to {max}; to end the service, cancel it")),
        Rejection::Ending => {
            Problem::new(Code::JobEnding, "the job is being stopped, or its places were given to others")
                .hint("submit it again; it resumes at what it saved")
        }
        _ => Problem::new(Code::Internal, "a refusal of another kind"),
    }
}

fn group_fault(fault: GroupFault) -> String {
    match fault {
        GroupFault::Name => "name: give each group a name of its own".to_owned(),
        GroupFault::Min { given, tasks } => {
            format!("min: {given} is not between 1 and its {tasks} tasks")
        }
        GroupFault::MinCopies { given, copies } => {
            format!("min_copies: {given} is not between 1 and its {copies} copies")
        }
        GroupFault::Gpus { given: GpuAsk::Whole(count), max } => {
            format!("gpus: {count} is more than {max}, the most on one node")
        }
        GroupFault::Gpus { given: _, max: _ } => {
            "gpus: a share is more than nothing and less than one GPU; a slice has memory or compute"
                .to_owned()
        }
        GroupFault::Alternatives { given, max } => format!("any_of: {given} is more than {max}"),
        GroupFault::Island => "gpus: topology.task: island needs whole GPUs, or none at all".to_owned(),
        GroupFault::Empty => "gpus: the group asks for nothing: give gpus, cpu or memory".to_owned(),
    }
}

fn spec_fault(fault: SpecFault) -> String {
    match fault {
        SpecFault::Tasks { given, max } => format!("tasks: {given} is not between 1 and {max}"),
        SpecFault::Min { given, tasks } => {
            format!("min: {given} is not between 1 and tasks, which is {tasks}")
        }
        SpecFault::Gpus { given: GpuAsk::Whole(count), max } => {
            format!("gpus: {count} is more than the {max} that one node can have")
        }
        SpecFault::Gpus { given: GpuAsk::Share(units), .. } => {
            format!("gpus: {units} is not a part of one GPU; a part lies between 0 and 1")
        }
        SpecFault::Gpus { given: GpuAsk::Slice(_) | GpuAsk::AtLeast(_), .. } => {
            "slice: it must ask for some memory or compute".to_owned()
        }
        SpecFault::Alternatives { given, max } => {
            format!("any_of: {given} alternatives are more than {max}")
        }
        SpecFault::IslandNeedsGpus { .. } => "topology.task: island needs whole GPUs".to_owned(),
        SpecFault::ServiceClass => "service: only jobs of class inference are services".to_owned(),
        SpecFault::ServiceMax { replicas, max } => {
            format!("service.replicas: {replicas} is more than the {max} that it may have")
        }
        SpecFault::Empty => "it asks for nothing: give gpus, cpu or memory".to_owned(),
        SpecFault::Groups { given, max } => format!("groups: {given} is more than {max}"),
        SpecFault::GroupsOfService => {
            "groups: the replicas of a service are all alike; leave out one of the two".to_owned()
        }
        SpecFault::Group { at, fault } => format!("groups[{at}].{}", group_fault(fault)),
    }
}

fn nearest_tenant(state: &State, path: &str) -> String {
    let policy = state.tenants.policy();
    let leaves: Vec<&str> = policy
        .tenants
        .iter()
        .map(|tenant| tenant.path.as_str())
        .filter(|path| state.tenants.children(path).is_empty())
        .collect();
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let related = leaves
        .iter()
        .find(|leaf| last(leaf) == last(path) || leaf.starts_with(path) || path.starts_with(**leaf));
    // Somebody who has the last name nearly right has often left the first one out.
    let lasts: Vec<String> = leaves.iter().map(|leaf| last(leaf)).collect();
    let lasts: Vec<&str> = lasts.iter().map(String::as_str).collect();
    let by_last = || {
        let near = nearest(&last(path), &lasts)?;
        leaves.get(lasts.iter().position(|last| *last == near)?)
    };
    match related.copied().or_else(|| nearest(path, &leaves)).or_else(|| by_last().copied()) {
        Some(near) => format!("did you mean {near}? Tenants that take jobs: {}", some_of(&leaves)),
        None => format!("tenants that take jobs: {}", some_of(&leaves)),
    }
}

/// No tenant of that path, with the one that was perhaps meant.
pub(crate) fn unknown_tenant(state: &State, path: &str) -> Problem {
    Problem::new(Code::UnknownTenant, format!("there is no tenant {path:?}"))
        .hint(nearest_tenant(state, path))
}

/// No node of that name, with the one that was perhaps meant.
pub(crate) fn no_such_node(state: &State, name: &str) -> Problem {
    let known: Vec<&str> = state.fleet.nodes().map(|(_, node)| node.facts.name.as_str()).collect();
    let hint = match nearest(name, &known) {
        Some(near) => format!("did you mean {near}? All of them: wharf get nodes"),
        None => "list them with: wharf get nodes".to_owned(),
    };
    Problem::new(Code::NoSuchNode, format!("there is no node {name:?}")).hint(hint)
}

/// `did you mean leaf? its levels are: leaf, rack`
fn suggestion(given: &str, known: &[&str], label: &str) -> String {
    let all = if known.is_empty() { "none".to_owned() } else { some_of(known) };
    match nearest(given, known) {
        Some(near) => format!("did you mean {near}? {label}: {all}"),
        None => format!("{label}: {all}"),
    }
}

fn some_of(names: &[&str]) -> String {
    let shown = names.iter().take(12).copied().collect::<Vec<_>>().join(", ");
    if names.len() > 12 { format!("{shown}, …") } else { shown }
}

/// A body that is no job.
pub(crate) fn bad_file(error: &FileError) -> Problem {
    Problem::new(Code::BadRequest, error.to_string())
}

/// A desk that does not answer. What is said to have taken no effect has taken none.
pub(crate) fn closed(closed: Closed) -> Problem {
    let problem = |code| Problem::new(code, closed.to_string());
    match closed {
        Closed::Busy => problem(Code::Unavailable).retry_after_ms(1000).hint("try again after Retry-After"),
        Closed::Slow => problem(Code::Unavailable).retry_after_ms(5000).hint("try again after Retry-After"),
        Closed::Stopped => problem(Code::Unavailable).hint("start it again: wharf up"),
        Closed::Withdrawn => {
            problem(Code::Withdrawn).retry_after_ms(5000).hint("try again after Retry-After")
        }
        Closed::Unknown => problem(Code::OutcomeUnknown).hint(
            "look before you repeat it; a submission with the same Idempotency-Key is never taken twice",
        ),
    }
}
