//! Job files: what somebody wants to run, in a few lines.
//!
//! The same text is the body of `POST /v1/jobs`. What the simulated world should do with the job
//! (`simulate`) travels as an opaque payload, because the planner must not know how long a job really runs.

mod asks;
mod chain;
mod flags;
mod foreign;
mod groups;
mod submission;
mod wire;
mod work;

use std::collections::BTreeMap;

use wharf_controller::selectors::NodeSelector;
use wharf_engine::model::dependency::ArrayRequest;
use wharf_engine::model::job::{Checkpoint, Class, GpuAsk, TASKS_MAX};
use wharf_engine::units::Millis;

use super::field::{Field, Map, NAME_MAX, not_yet};
use super::tree::{Entry, Node, Value};
use super::{Fault, FileError, document, read, text};
pub use asks::{Devices, Other, TaskFile};
pub use chain::AfterJob;
pub use flags::JobFlags;
pub use groups::GroupFile;
pub use work::{Saves, Simulate, Work};

/// Every key, in the order in which a file is best written.
const KEYS: &[&str] = &[
    "name",
    "tenant",
    "class",
    "priority",
    "tasks",
    "min",
    "service",
    "groups",
    "gpus",
    "slice",
    "gpu_memory",
    "time_slicing",
    "gpu",
    "any_of",
    "cpu",
    "memory",
    "storage",
    "nics",
    "nodes",
    "topology",
    "time",
    "checkpoint",
    "preemptible",
    "trust",
    "booking",
    "after",
    "array",
    "retries",
    "labels",
    "simulate",
    "payload",
];
/// Keys of the design that are still to come, with what does today.
const PLANNED: &[(&str, &str)] = &[(
    "prefer",
    "topology: {task: island} for the GPUs of a task, or topology: {gang: LEVEL} for the whole gang; both are required, \
     not preferred",
)];
const RETRIES_DEFAULT: u32 = 2;
const RETRIES_MAX: u32 = 100;
/// A job as its owner wrote it, checked and complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFile {
    /// Unique among the tenant's live jobs.
    pub name: String,
    /// Path of the tenant that pays.
    pub tenant: String,
    /// How it relates to latency.
    pub class: Class,
    /// Higher first, inside the tenant.
    pub priority: i32,
    /// Wanted tasks.
    pub tasks: u32,
    /// So many tasks or none.
    pub min: u32,
    /// The most replicas of a service, of which `tasks` are wanted at first; `None` for every other job.
    pub service_max: Option<u32>,
    /// Parts with a shape of their own; where there are any, `asks` says nothing.
    pub groups: Vec<GroupFile>,
    /// What each task asks for.
    pub asks: TaskFile,
    /// Nodes it may run on.
    pub nodes: NodeSelector,
    /// The GPUs of one task share an island.
    pub task_on_island: bool,
    /// Name of the level that holds the whole gang.
    pub gang_within: Option<String>,
    /// The longest it may run.
    pub time_limit: Option<Millis>,
    /// How long its owner thinks it runs.
    pub estimate: Option<Millis>,
    /// What it promises about saving its work.
    pub checkpoint: Option<Checkpoint>,
    /// Whether it may be evicted or moved.
    pub preemptible: bool,
    /// Its trust domain; the team of the tenant where absent.
    pub trust: Option<String>,
    /// Name of the booked window whose places it uses.
    pub booking: Option<String>,
    /// Jobs that have to be over before it may start.
    pub after: Vec<AfterJob>,
    /// As many jobs alike, of which so many run at a time.
    pub array: Option<ArrayRequest>,
    /// How many task failures it survives by starting again.
    pub retries: u32,
    /// Trace labels, carried to receipts.
    pub labels: BTreeMap<String, String>,
    /// What the world runs.
    pub work: Work,
}

pub(super) fn scalar(text: String) -> Node {
    Node { at: None, value: Value::Scalar(text) }
}

pub(super) fn map(entries: Vec<Entry>) -> Node {
    Node { at: None, value: Value::Map(entries) }
}

pub(super) fn entry(key: &str, node: Node) -> Entry {
    Entry { at: None, key: key.to_owned(), node }
}

/// Reads a job from the text of a file or a request.
pub fn parse_job(file: &str, text: &str) -> Result<JobFile, FileError> {
    if let Some(fault) = foreign::script(text) {
        return Err(fault.in_file(file));
    }
    document(file, foreign::first_of_many(text).unwrap_or(text), job)
}

/// Reads a job from a file.
pub fn load_job(path: &std::path::Path) -> Result<JobFile, FileError> {
    parse_job(&path.display().to_string(), &read(path)?)
}

pub(super) fn job(root: &Node) -> Result<JobFile, Fault> {
    if let Some(fault) = foreign::document(root) {
        return Err(fault);
    }
    not_yet(root, PLANNED)?;
    let keys = Map::root(root, KEYS)?;
    let class = optional(&keys, "class", |field| field.one_of())?.unwrap_or(Class::Batch);
    let groups = groups::groups(&keys)?;
    let Count { tasks, min, max } = tasks(&keys, class)?;
    let gpus = asks::gpus(&keys)?;
    let mut asks: Vec<GpuAsk> = gpus.all().collect();
    if !groups.is_empty() {
        // Who has no GPU has none that could be apart.
        asks = groups.iter().flat_map(|group| group.asks.all_gpus()).collect();
        let any = asks.iter().any(|gpus| matches!(gpus, GpuAsk::Whole(1..)));
        asks.retain(|gpus| !any || *gpus != GpuAsk::Whole(0));
    }
    let (task_on_island, gang_within) = topology(&keys, &asks)?;
    let (time_limit, estimate) = times(&keys)?;
    let file = JobFile {
        name: keys.need("name", "name: my-job")?.name(NAME_MAX)?,
        tenant: keys.need("tenant", "tenant: lab/nlp")?.tenant()?,
        class,
        priority: optional(&keys, "priority", |field| field.priority())?.unwrap_or(0),
        tasks,
        min,
        service_max: max,
        groups,
        asks: asks::task(&keys, gpus)?,
        nodes: optional(&keys, "nodes", |field| asks::nodes(&field))?.unwrap_or_default(),
        task_on_island,
        gang_within,
        time_limit,
        estimate,
        checkpoint: optional(&keys, "checkpoint", |field| checkpoint(&field))?,
        preemptible: optional(&keys, "preemptible", |field| field.truth())?.unwrap_or(true),
        trust: optional(&keys, "trust", |field| field.tenant())?,
        booking: optional(&keys, "booking", |field| field.name(NAME_MAX))?,
        after: optional(&keys, "after", |field| chain::after(&field))?.unwrap_or_default(),
        array: optional(&keys, "array", |field| chain::array(&field))?,
        retries: optional(&keys, "retries", |field| field.whole(0..=RETRIES_MAX))?.unwrap_or(RETRIES_DEFAULT),
        labels: optional(&keys, "labels", |field| field.labels())?.unwrap_or_default(),
        work: work::work(&keys)?,
    };
    if let Some((field, array)) = keys.get("array")?.zip(file.array.as_ref()) {
        chain::check_member_names(&field, &file.name, array)?;
    }
    if file.asks.is_nothing() {
        let what = "the job asks for nothing: gpus, cpu, memory, storage and nics are all 0";
        return Err(Fault::new(keys.at(), what).allowed("at least one of them above 0"));
    }
    Ok(file)
}

/// How many tasks a job has.
struct Count {
    tasks: u32,
    min: u32,
    /// Of a service.
    max: Option<u32>,
}

/// `tasks` and `min`, or `service` in their place.
fn tasks(keys: &Map<'_>, class: Class) -> Result<Count, Fault> {
    let Some(field) = keys.get("service")? else {
        let tasks = optional(keys, "tasks", |field| field.whole(1..=TASKS_MAX))?.unwrap_or(1);
        let min = optional(keys, "min", |field| least(&field, "tasks", tasks))?.unwrap_or(tasks);
        return Ok(Count { tasks, min, max: None });
    };
    for other in ["tasks", "min"] {
        if let Some(other) = keys.get(other)? {
            let what = "stands beside service, which says how many replicas there are";
            return Err(other.fault(what).allowed("service: {min: 2, max: 8, replicas: 4}"));
        }
    }
    if class != Class::Inference {
        let what = format!("is for jobs of class inference; this one is {}", class.into_str());
        return Err(field.fault(&what).allowed("class: inference, or tasks and min in place of service"));
    }
    let inner = field.shaped(&["min", "max", "replicas"], "service: {min: 1, max: {}}")?;
    let max = inner.need("max", "service: {min: 2, max: 8}")?.whole(1..=TASKS_MAX)?;
    let min = optional(&inner, "min", |field| field.whole(1..=max))?.unwrap_or(1);
    let tasks = optional(&inner, "replicas", |field| field.whole(min..=max))?.unwrap_or(min);
    Ok(Count { tasks, min, max: Some(max) })
}

fn optional<'a, T>(
    keys: &Map<'a>,
    key: &str,
    reader: impl FnOnce(Field<'a>) -> Result<T, Fault>,
) -> Result<Option<T>, Fault> {
    keys.get(key)?.map(reader).transpose()
}

/// A minimum of so many tasks or copies.
fn least(field: &Field<'_>, of: &str, count: u32) -> Result<u32, Fault> {
    let min = field.whole(1..=TASKS_MAX)?;
    if min > count {
        let what = format!("is {min}, more than {of}, which is {count}");
        return Err(field.fault(&what).allowed(format!("a whole number from 1 to {count}")));
    }
    Ok(min)
}

fn topology(keys: &Map<'_>, asks: &[GpuAsk]) -> Result<(bool, Option<String>), Fault> {
    let Some(field) = keys.get("topology")? else {
        return Ok((false, None));
    };
    field.not_yet(PLANNED)?;
    let inner = field.shaped(&["task", "gang"], topology_example(&field))?;
    let mut on_island = false;
    if let Some(task) = inner.get("task")? {
        task.word(&["island"])?;
        on_island = true;
        if !asks.iter().all(|gpus| matches!(gpus, GpuAsk::Whole(1..))) {
            let what = "is island, but the task has no whole GPU to be on one";
            return Err(task.fault(what).allowed("task: island together with gpus: 1 or more"));
        }
    }
    Ok((on_island, optional(&inner, "gang", |field| field.name(NAME_MAX))?))
}

/// An island is what a task may ask for; every other level is one of the gang.
fn topology_example(field: &Field<'_>) -> &'static str {
    if field.text().is_ok_and(|given| given == "island") {
        "topology: {task: {}}"
    } else {
        "topology: {gang: {}}"
    }
}

fn times(keys: &Map<'_>) -> Result<(Option<Millis>, Option<Millis>), Fault> {
    let Some(field) = keys.get("time")? else {
        return Ok((None, None));
    };
    let inner = field.shaped(&["limit", "estimate"], "time: {limit: {}}")?;
    let limit = optional(&inner, "limit", |field| field.duration(Millis::from_secs(1)))?;
    let Some(field) = inner.get("estimate")? else {
        return Ok((limit, None));
    };
    let estimate = field.duration(Millis::from_secs(1))?;
    if let Some(limit) = limit.filter(|limit| estimate > *limit) {
        let limit = text::duration_text(limit.0);
        return Err(field.fault("is longer than time.limit").allowed(format!("at most {limit}")));
    }
    Ok((limit, Some(estimate)))
}

fn checkpoint(field: &Field<'_>) -> Result<Checkpoint, Fault> {
    let keys = field.shaped(&["every", "grace", "on_request"], "checkpoint: {every: {}, grace: 5m}")?;
    let example = "checkpoint: {every: 30m, grace: 5m}";
    let every = keys.need("every", example)?.duration(Millis::from_secs(1))?;
    let grace = keys.need("grace", example)?.duration(Millis(0))?;
    let on_request = optional(&keys, "on_request", |field| field.truth())?.unwrap_or(false);
    Ok(Checkpoint { every, grace, on_request })
}

#[cfg(test)]
mod tests;
