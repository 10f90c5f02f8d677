//! Reasons as sentences. The engine gives enums with numbers; words are made here, once, for every reader.

use std::collections::BTreeSet;

use wharf_api::file::{size_text, span_text};
use wharf_controller::outage::Outage;
use wharf_engine::answer::verdict::Reason;
use wharf_engine::device::catalogue::{Recovery, Xid};
use wharf_engine::model::dependency::Condition;
use wharf_engine::model::exit::Outcome;
use wharf_engine::model::need::SharingRefusal;
use wharf_engine::model::shortfall::{BesideGpus, Quantity, Shortfall, Stage};
use wharf_engine::state::State;
use wharf_engine::state::jobs::event::{HeldWhy, Next};
use wharf_engine::state::jobs::{Job, KindKey, Phase};
use wharf_engine::units::{BookingId, GpuUnits, JobId, Millis, Timestamp};

use crate::leaving::in_the_way;
use crate::refused;

/// An error that a GPU reports: `XID 79 (GPU has fallen off the bus)`.
pub(crate) fn error(error: &Xid) -> String {
    format!("XID {} ({})", error.number, error.meaning)
}

/// An error that costs a GPU, and for how long.
pub(crate) fn failure(known: &Xid) -> String {
    let until = match known.recovery {
        Recovery::Nothing | Recovery::Job => return error(known),
        Recovery::Reset => "it is reset and returns by itself",
        Recovery::RestartNode => "it returns when its node has been restarted",
        Recovery::Service => "it returns when it has been serviced",
    };
    format!("{}: {until}", error(known))
}

/// One line that says what a fleet that does not answer means.
pub(crate) fn outage(outage: &Outage, now: Timestamp) -> String {
    let Outage { what, since, tries, retry_at } = outage;
    format!(
        "the fleet has not answered for {} ({what}); tried {}, next in {}. Requests are decided and kept; nothing is \
         started or stopped until it answers",
        passed(now - *since),
        if *tries == 1 { "once".to_owned() } else { format!("{tries} times") },
        passed(*retry_at - now),
    )
}

/// One sentence that says why.
pub(crate) fn sentence(state: &State, job: JobId, reason: Reason, now: Timestamp) -> String {
    match reason {
        Reason::Running => running(state, job, now),
        Reason::Starting => "it has its places and is being started".to_owned(),
        Reason::Repairing => repairing(state, job, reason, now),
        Reason::Earmarked => promised(state, job),
        Reason::Fixed { tenant } => format!(
            "it may not be evicted in time, so it may not borrow; the guarantee of {} leaves no room for it",
            state.tenants.path(tenant)
        ),
        Reason::LandingRoom { kept } => {
            let kept = amount(Quantity::Gpus(GpuUnits::whole(u32::try_from(kept).unwrap_or(u32::MAX))));
            format!("it was evicted before, and the last {kept} that would be free stay free for new work")
        }
        Reason::Sharing(refused) => sharing(refused),
        Reason::Dependency => dependencies(state, job),
        Reason::ArrayTurn { at_most } => {
            format!("its array runs at most {at_most} at a time, and it is not its turn yet")
        }
        Reason::Leaving => leaving(state, job, now),
        Reason::Held { why: HeldWhy::Restored, .. } => {
            "it is held: the journal was restored from an older copy, and the \
            fleet does not know the job; it may have run, ended or been cancelled meanwhile"
                .to_owned()
        }
        Reason::Held { why: HeldWhy::StartRefused, .. } => refused::held(state, job),
        Reason::StartRefused { tries: _, node, retry_at } => refused::start(state, job, node, retry_at, now),
        Reason::Startable => "it can start with the next decision".to_owned(),
        Reason::Reserved { job, start } => format!(
            "what is free is promised to {}, which starts within {}; it could not be gone by then",
            state.jobs.get(job).map_or("another job", |job| &job.spec.name),
            left(start, now)
        ),
        Reason::Window { booking, from } => window(state, booking, from, now),
        Reason::Booked { booking, from } => {
            let name = state.bookings.get(booking).map_or("?", |known| known.spec.name.as_str());
            if now < from {
                let begins = left(from, now);
                format!(
                    "what is free is in booking/{name}, which begins in {begins}; it could not be gone by then"
                )
            } else {
                format!("what is free is in booking/{name}, which has begun")
            }
        }
        Reason::Downtime { from } => format!(
            "what is free is on nodes whose maintenance begins in {}; it could not be gone by then",
            left(from, now)
        ),
        Reason::BackingOff { until } => {
            let failed = state.jobs.get(job).is_some_and(|job| job.past.failures > 0);
            let why = if failed { "a task of it failed" } else { "its last attempt did not come to run" };
            format!("{why}; it is tried again in {}", left(until, now))
        }
        Reason::Short(shortfall) => {
            let groups = state.jobs.get(job).map(|job| &job.spec.groups);
            let group = shortfall.group.and_then(|at| Some(groups?.get(at)?.name.as_str()));
            short(state, shortfall, group)
        }
    }
}

/// `it waits for the success of lab/nlp/prepare and the end of lab/nlp/clean`
fn dependencies(state: &State, job: JobId) -> String {
    const TOLD_MAX: usize = 4;
    let after = state.jobs.get(job).map(|job| job.spec.after.as_slice()).unwrap_or_default();
    let told = after.iter().take(TOLD_MAX).map(|on| match on.when {
        Condition::Ok => format!("the success of {}", on.name),
        Condition::Any => format!("the end of {}", on.name),
    });
    let told: Vec<String> = told.collect();
    let more = after.len().saturating_sub(TOLD_MAX);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("it waits for {}{rest}", told.join(" and "))
}

fn repairing(state: &State, id: JobId, reason: Reason, now: Timestamp) -> String {
    let (job, holding) = (state.jobs.get(id), state.ledger.holding(id));
    let stands = job.zip(holding).is_some_and(|(job, holding)| job.spec.is_met_by(holding.alive()));
    let within = until(state, id, reason).map(|until| left(until, now));
    // Of a job with groups one copy may be short while enough others stand.
    let (what, else_) = if stands {
        ("it runs; a copy of one of its groups lost tasks", "that copy lets go and the job goes on")
    } else {
        ("it lost tasks, is below its minimum", "it ends and waits whole")
    };
    let end = within.map(|span| format!("; unless it is within {span}, {else_}")).unwrap_or_default();
    format!("{what} and waits to be repaired{end}")
}

/// When a reason is over at the latest, where time alone ends it.
pub(crate) fn until(state: &State, job: JobId, reason: Reason) -> Option<Timestamp> {
    match reason {
        Reason::BackingOff { until } | Reason::StartRefused { retry_at: until, .. } => Some(until),
        Reason::Repairing => state.ledger.holding(job).and_then(|holding| holding.repair_by),
        Reason::Running
        | Reason::Starting
        | Reason::Leaving
        | Reason::Earmarked
        | Reason::Fixed { .. }
        | Reason::LandingRoom { .. }
        | Reason::Sharing(_)
        | Reason::Held { .. }
        | Reason::Dependency
        | Reason::ArrayTurn { .. }
        | Reason::Startable
        | Reason::Short(_) => None,
        Reason::Reserved { start, .. } => Some(start),
        Reason::Window { from, .. } | Reason::Booked { from, .. } | Reason::Downtime { from } => Some(from),
    }
}

/// What a job of a booked window waits for.
fn window(state: &State, booking: BookingId, from: Timestamp, now: Timestamp) -> String {
    let Some(known) = state.bookings.get(booking) else { return "its booked window is over".to_owned() };
    let name = &known.spec.name;
    let short = match known.short() {
        0 => String::new(),
        short => format!("; the window is short of {short} of its {} places", known.spec.tasks),
    };
    if now < from {
        return format!("it waits for booking/{name}, which begins in {}{short}", left(from, now));
    }
    format!("booking/{name} has begun and has no room for it, or ends too soon{short}")
}

/// Why a share may not share.
pub(crate) fn sharing(SharingRefusal { mode, tax, tax_max }: SharingRefusal) -> String {
    let percent = |milli: u16| format!("{}.{} %", milli / 10, milli % 10);
    format!(
        "sharing a GPU by {} is expected to cost it {} of its throughput; the policy lets its class lose {}",
        mode.into_str(),
        percent(tax),
        percent(tax_max)
    )
}

/// A span in words, as files have it.
pub(crate) fn span(span: Millis) -> String {
    wharf_api::file::duration_text(span.0)
}

fn running(state: &State, job: JobId, now: Timestamp) -> String {
    let rest = lacking(state, job, now).unwrap_or_default();
    match state.limit_at(job) {
        Some(at) => format!("it runs{rest}; its time limit is up in {}", left(at, now)),
        None => format!("it runs{rest}"),
    }
}

/// `; 2 of 6 tasks wait: …`: what keeps a job that runs from the next of the tasks that it wants. Groups say for themselves how many
/// of their copies stand.
fn lacking(state: &State, id: JobId, now: Timestamp) -> Option<String> {
    let (job, holding) = (state.jobs.get(id)?, state.ledger.holding(id)?);
    let has = u32::try_from(holding.alive().count()).unwrap_or(u32::MAX);
    let lacks = job.wanted().checked_sub(has).filter(|&lacks| lacks > 0 && !job.spec.has_groups())?;
    if let Some(refused) = refused::growth(state, job, now) {
        return Some(format!("; {lacks} of {} tasks wait: {refused}", job.wanted()));
    }
    let one = KindKey { tasks: 1, min: 1, ..job.key() };
    let shortfall = state.funnel(&one).shortfall()?;
    let short = short(state, shortfall, None);
    Some(format!("; {lacks} of {} tasks wait: for one more {short}", job.wanted()))
}

fn leaving(state: &State, id: JobId, now: Timestamp) -> String {
    let kept = refused::leave(state, id, now).unwrap_or_default();
    let over = |job: &&Job| job.phase == Phase::Leaving(Next::End(Outcome::TimedOut));
    match state.jobs.get(id).filter(over).and_then(Job::time_limit) {
        Some(limit) => {
            format!("its time limit of {} is up: it saves what it can and ends{kept}", span(limit))
        }
        None => format!("it is letting go of its places{kept}"),
    }
}

/// A span that passes or has passed: nobody reads its milliseconds.
pub(crate) fn passed(time: Millis) -> String {
    span_text(time.0)
}

/// How long it is until then, in words.
fn left(until: Timestamp, now: Timestamp) -> String {
    passed(until - now)
}

fn promised(state: &State, job: JobId) -> String {
    match still_there(state, job) {
        None => "its places are set aside; it starts with one of the next decisions".to_owned(),
        Some(who) => {
            format!(
                "its places are earmarked; it starts when the jobs that still have to leave them are gone: {who}"
            )
        }
    }
}

/// How many still have to leave the places of a job, in words: `3 tasks of 2 jobs`.
pub(crate) fn still_there(state: &State, job: JobId) -> Option<String> {
    let in_the_way = in_the_way(state, job);
    let jobs: BTreeSet<JobId> = in_the_way.iter().map(|&(job, _)| job).collect();
    let counted = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    };
    let tasks = in_the_way.len();
    (tasks > 0).then(|| format!("{} of {}", counted(tasks, "task"), counted(jobs.len(), "job")))
}

/// What is missing, where, and for which group of the job.
pub(crate) fn short(state: &State, shortfall: Shortfall, group: Option<&str>) -> String {
    let Shortfall { stage, need, have, tenant, group: _, beside } = shortfall;
    let of = group.map(|name| format!(" for its group {name}")).unwrap_or_default();
    let is_none = matches!(have, Quantity::Gpus(GpuUnits::ZERO) | Quantity::Tasks(0));
    let are = if is_singular(have) { "is" } else { "are" };
    let (need, have) = (format!("{}{of}", amount(need)), amount(have));
    if let Some(beside) = beside {
        let (each, most) = (beside_amount(beside.what, beside.each), beside_amount(beside.what, beside.most));
        return match tenant {
            Some(tenant) => {
                format!(
                    "each task needs {each}{of}; the limit of {} leaves {most}",
                    state.tenants.path(tenant)
                )
            }
            None => format!("each task needs {each}{of}, and one node has at most {most} for it"),
        };
    }
    match stage {
        Stage::Fleet => format!("it needs {need}; the fleet has {have}"),
        Stage::Healthy => format!("it needs {need}; {have} {are} healthy"),
        Stage::Model => format!("it needs {need}; the fleet has {have} of a model it accepts"),
        Stage::Allowed => {
            format!(
                "it needs {need}; {have} {are} on nodes it may use (selector, taints, cordons, drains, maintenance)"
            )
        }
        Stage::Free => format!("it needs {need}; {have} {are} free"),
        Stage::Together => {
            let have = if is_none { "none".to_owned() } else { format!("only {have}") };
            format!(
                "it needs {need}; {have} can be had together, in its shape and with the CPU and memory it asks for"
            )
        }
        Stage::Quota => {
            let whose = tenant.map_or("its tenant", |tenant| state.tenants.path(tenant));
            format!("it needs {need}; the limit of {whose} leaves {have}")
        }
    }
}

fn amount(quantity: Quantity) -> String {
    match quantity {
        Quantity::Gpus(units) => gpus(units),
        Quantity::Tasks(1) => "room for 1 task".to_owned(),
        Quantity::Tasks(tasks) => format!("room for {tasks} tasks"),
    }
}

/// Whether one says `is` of it: `1 GPU is`, `room for 3 tasks is`, `0 GPUs are`.
fn is_singular(quantity: Quantity) -> bool {
    match quantity {
        Quantity::Gpus(units) => is_at_most_one(units),
        Quantity::Tasks(_) => true,
    }
}

fn is_at_most_one(units: GpuUnits) -> bool {
    units > GpuUnits::ZERO && units <= GpuUnits::WHOLE
}

/// `1 core`, `1.5 cores`, `64GiB of memory`.
fn beside_amount(what: BesideGpus, amount: u64) -> String {
    match what {
        BesideGpus::Cpu => cores(amount),
        BesideGpus::Memory => memory(amount),
        BesideGpus::Storage => format!("{} of local storage", size_text(amount)),
        BesideGpus::Nics => format!("{amount} network interfaces"),
    }
}

/// `1 core`, `1.5 cores`.
pub(crate) fn cores(milli: u64) -> String {
    if milli == 1000 { "1 core".to_owned() } else { format!("{} cores", wharf_api::v1::thousandths(milli)) }
}

/// `64GiB of memory`.
pub(crate) fn memory(bytes: u64) -> String {
    format!("{} of memory", size_text(bytes))
}

/// `1 GPU`, `0.125 GPU`, `8 GPUs`, `0 GPUs`.
pub(crate) fn gpus(units: GpuUnits) -> String {
    if is_at_most_one(units) { format!("{units} GPU") } else { format!("{units} GPUs") }
}
