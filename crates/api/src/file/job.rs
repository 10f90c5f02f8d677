//! Job files: what somebody wants to run, in a few lines.
//!
//! The same text is the body of `POST /v1/jobs`. What the simulated world should do with the job
//! (`simulate`) travels as an opaque payload, because the planner must not know how long a job really runs.

mod chain;
mod flags;
mod foreign;
mod groups;
mod wire;

use std::collections::BTreeMap;

use serde::Serialize;
use wharf_controller::selectors::{DeviceSelector, NodeSelector, Toleration};
use wharf_engine::device::catalogue::MODELS;
use wharf_engine::device::catalogue::mig::ProfileName;
use wharf_engine::model::dependency::ArrayRequest;
use wharf_engine::model::job::{
    ALTERNATIVES_MAX, Alternative, Checkpoint, Class, GPUS_PER_TASK_MAX, GpuAsk, Least, Service, Shape, Spec,
    TASKS_MAX, Topology,
};
use wharf_engine::model::submission::Submission;
use wharf_engine::units::{DeviceSetId, GpuUnits, Millis, Resources, TenantId, TrustId, Uid};

use super::field::{Field, Map, NAME_MAX, not_yet};
use super::tree::{Entry, Node, Value};
use super::{Fault, FileError, document, read, text};
pub use chain::AfterJob;
pub use flags::JobFlags;
pub use groups::{GroupFile, TaskFile};

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
const NICS_MAX: u32 = 64;
/// One core per task where nothing is said: work without any CPU does not exist.
const CPU_MILLI_DEFAULT: u64 = 1000;
const GPUS_ALLOWED: &str = "a whole number from 0 to 16, or less than one GPU with at most three decimals \
                            (0.25) or as a fraction that 3000 divides (\"1/3\")";

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
    /// Parts with a shape of their own; where there are any, what follows up to `nics` says nothing.
    pub groups: Vec<GroupFile>,
    /// GPUs of one task.
    pub gpus: GpuAsk,
    /// Devices it may run on.
    pub devices: Devices,
    /// What it takes where that does not fit, in order.
    pub any_of: Vec<Other>,
    /// Whether its share may be time-sliced.
    pub time_slicing: bool,
    /// Thousandths of a core of one task.
    pub cpu_milli: u64,
    /// Bytes of memory of one task.
    pub memory: u64,
    /// Bytes of node-local storage of one task.
    pub storage: u64,
    /// Network interfaces of one task.
    pub nics: u32,
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

/// Devices that a task may run on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    /// One of these models; any where empty.
    pub models: Vec<String>,
    /// The least memory of a whole GPU, in bytes.
    pub memory: Option<u64>,
}

/// What a task takes instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    /// GPUs of one task.
    pub gpus: GpuAsk,
    /// Devices it may run on.
    pub devices: Devices,
}

/// What the world runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Text for the world, perhaps none.
    Payload(String),
    /// What a simulated world should pretend.
    Simulate(Simulate),
}

/// What a simulated world should pretend; the planner never sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Simulate {
    /// How long the job really runs.
    #[serde(rename = "duration_ms", skip_serializing_if = "Option::is_none")]
    pub duration: Option<Millis>,
    /// How busy its GPUs are, in thousandths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_active_milli: Option<u32>,
    /// A task fails after so long.
    #[serde(rename = "fail_after_ms", skip_serializing_if = "Option::is_none")]
    pub fail_after: Option<Millis>,
    /// Whether it can save its work when asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Saves>,
    /// The memory of each GPU that it really uses, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u32>,
}

/// How a simulated job answers when it is asked to save its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Saves {
    /// It does.
    Ok,
    /// It cannot.
    Fail,
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
    let gpus = ask(&keys)?.unwrap_or(GpuAsk::Whole(1));
    let devices = devices(&keys, gpus)?;
    let any_of = optional(&keys, "any_of", |field| others(&field))?.unwrap_or_default();
    let mut asks: Vec<GpuAsk> = any_of.iter().map(|other: &Other| other.gpus).chain([gpus]).collect();
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
        gpus,
        devices,
        any_of,
        time_slicing: time_slicing(&keys, gpus)?,
        cpu_milli: optional(&keys, "cpu", |field| field.cores())?.unwrap_or(CPU_MILLI_DEFAULT),
        memory: optional(&keys, "memory", |field| field.bytes())?.unwrap_or(0),
        storage: optional(&keys, "storage", |field| field.bytes())?.unwrap_or(0),
        nics: optional(&keys, "nics", |field| field.whole(0..=NICS_MAX))?.unwrap_or(0),
        nodes: optional(&keys, "nodes", |field| nodes(&field))?.unwrap_or_default(),
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
        work: work(&keys)?,
    };
    if let Some((field, array)) = keys.get("array")?.zip(file.array.as_ref()) {
        chain::check_member_names(&field, &file.name, array)?;
    }
    if file.asks_for_nothing() {
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
        let min = optional(keys, "min", |field| least(&field, tasks))?.unwrap_or(tasks);
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

/// What one task asks of GPUs: one of three keys.
fn ask(keys: &Map<'_>) -> Result<Option<GpuAsk>, Fault> {
    let asks = [
        optional(keys, "gpus", |field| Ok((gpus(&field)?, field)))?,
        optional(keys, "slice", |field| Ok((slice(&field)?, field)))?,
        optional(keys, "gpu_memory", |field| Ok((memory_of_slice(&field)?, field)))?,
    ];
    let mut given = asks.into_iter().flatten();
    let first = given.next();
    match given.next() {
        Some((_, second)) => {
            let what = "is given, but the job says already what it asks for";
            Err(second.fault(what).allowed("one of gpus, slice and gpu_memory"))
        }
        None => Ok(first.map(|(ask, _)| ask)),
    }
}

/// `slice: 1g.10gb`, or `slice: {memory: 20GiB, compute: 2/7}`.
fn slice(field: &Field<'_>) -> Result<GpuAsk, Fault> {
    if let Ok(text) = field.text() {
        let known = || MODELS.iter().filter_map(|model| model.mig).flat_map(|mig| mig.profiles);
        let name = ProfileName::parse(text).filter(|_| known().any(|profile| profile.name == text));
        return name.map(GpuAsk::Slice).ok_or_else(|| {
            field.wrong("a profile that `wharf explain model/h100` lists, like 1g.10gb, or {memory: 20GiB, compute: 2/7}")
        });
    }
    let keys = field.map(&["memory", "compute"])?;
    let memory_mib = optional(&keys, "memory", |field| mebibytes(&field))?.unwrap_or(0);
    let (compute, compute_of) = optional(&keys, "compute", |field| fraction(&field))?.unwrap_or((0, 0));
    if memory_mib == 0 && compute == 0 {
        return Err(field
            .fault("asks for nothing")
            .allowed("{memory: 20GiB, compute: 2/7}, or one of the two"));
    }
    Ok(GpuAsk::AtLeast(Least { memory_mib, compute, compute_of }))
}

fn memory_of_slice(field: &Field<'_>) -> Result<GpuAsk, Fault> {
    let memory_mib = mebibytes(field)?;
    if memory_mib == 0 {
        return Err(field.fault("is 0").allowed("the memory that a slice must have, like 20GiB"));
    }
    Ok(GpuAsk::AtLeast(Least { memory_mib, compute: 0, compute_of: 0 }))
}

fn mebibytes(field: &Field<'_>) -> Result<u32, Fault> {
    let bytes = field.bytes()?;
    u32::try_from(bytes.div_ceil(1 << 20)).map_err(|_| field.wrong("less memory than 4 PiB"))
}

fn fraction(field: &Field<'_>) -> Result<(u8, u8), Fault> {
    let parts = field.text()?.split_once('/');
    let read = |text: &str| text.trim().parse::<u8>().ok().filter(|&number| number > 0);
    let parts = parts.and_then(|(part, of)| Some((read(part)?, read(of)?))).filter(|(part, of)| part <= of);
    parts.ok_or_else(|| field.wrong("a part of the device's compute, like 2/7"))
}

/// Alternatives, in order.
fn others(field: &Field<'_>) -> Result<Vec<Other>, Fault> {
    let items = field.one_or_more()?;
    if items.len() > ALTERNATIVES_MAX {
        let allowed = format!("at most {ALTERNATIVES_MAX} alternatives");
        return Err(field.fault(&format!("has {} entries", items.len())).allowed(allowed));
    }
    items.iter().map(other).collect()
}

fn other(field: &Field<'_>) -> Result<Other, Fault> {
    let keys = field.map(&["gpus", "slice", "gpu_memory", "gpu"])?;
    let example = "- {slice: 3g.40gb}";
    let gpus = ask(&keys)?.ok_or_else(|| field.fault("asks for no GPU").allowed(example))?;
    Ok(Other { gpus, devices: devices(&keys, gpus)? })
}

fn time_slicing(keys: &Map<'_>, gpus: GpuAsk) -> Result<bool, Fault> {
    let Some(field) = keys.get("time_slicing")? else { return Ok(false) };
    let allowed = field.truth()?;
    if allowed && !matches!(gpus, GpuAsk::Share(_)) {
        let what = "is true, but the job asks for no share of a GPU";
        return Err(field.fault(what).allowed("time_slicing only together with a share (gpus: 0.25)"));
    }
    Ok(allowed)
}

fn gpus(field: &Field<'_>) -> Result<GpuAsk, Fault> {
    let given = field.text()?;
    let parts = text::gpu_parts(given).ok_or_else(|| match model_in(given) {
        Some((model, None)) => field.wrong(GPUS_ALLOWED).instead(format!("gpus: 1, gpu: {{model: {model}}}")),
        Some((model, Some(count))) => {
            field.fault(&format!("is {given:?}")).instead(format!("gpus: {count}, gpu: {{model: {model}}}"))
        }
        None => field.wrong(GPUS_ALLOWED),
    })?;
    let whole = GpuUnits::WHOLE.parts();
    if parts > 0 && parts < whole {
        return Ok(GpuAsk::Share(GpuUnits::from_parts(parts)));
    }
    match u32::try_from(parts / whole) {
        Ok(count) if parts.is_multiple_of(whole) && count <= GPUS_PER_TASK_MAX => Ok(GpuAsk::Whole(count)),
        Ok(_) | Err(_) => Err(field.wrong(GPUS_ALLOWED)),
    }
}

/// `h100` or `h100:8`: a model where a number belongs, and the number that stands beside it.
fn model_in(given: &str) -> Option<(&str, Option<u64>)> {
    let (word, count) = match given.split_once(':') {
        Some((word, count)) => (word, Some(text::whole(count)?)),
        None => (given, None),
    };
    let known = MODELS.iter().find(|model| model.name.eq_ignore_ascii_case(word))?;
    Some((known.name, count))
}

fn least(field: &Field<'_>, tasks: u32) -> Result<u32, Fault> {
    let min = field.whole(1..=TASKS_MAX)?;
    if min > tasks {
        let what = format!("is {min}, more than tasks, which is {tasks}");
        return Err(field.fault(&what).allowed(format!("a whole number from 1 to {tasks}")));
    }
    Ok(min)
}

fn devices(keys: &Map<'_>, gpus: GpuAsk) -> Result<Devices, Fault> {
    let Some(field) = keys.get("gpu")? else {
        return Ok(Devices::default());
    };
    if gpus == GpuAsk::Whole(0) {
        return Err(field.fault("is given, but gpus is 0").allowed("gpu only together with gpus"));
    }
    let inner = field.shaped(&["model", "memory"], device_example(&field))?;
    let models = optional(&inner, "model", |field| field.one_or_more())?.unwrap_or_default();
    let models = models.iter().map(|model| model.name(NAME_MAX)).collect::<Result<_, _>>()?;
    Ok(Devices { models, memory: optional(&inner, "memory", |field| field.bytes())? })
}

/// A number where a model belongs is a number of GPUs.
fn device_example(field: &Field<'_>) -> &'static str {
    let is_number = field.text().is_ok_and(|given| text::gpu_parts(given).is_some());
    if is_number { "gpus: {}" } else { "gpu: {model: {}}" }
}

fn nodes(field: &Field<'_>) -> Result<NodeSelector, Fault> {
    let keys = field.shaped(&["labels", "tolerations"], "nodes: {labels: {KEY: {}}}")?;
    let mut selector = NodeSelector::default();
    if let Some(labels) = keys.get("labels")? {
        for (key, values) in labels.label_fields()? {
            let values = values.one_or_more()?;
            let values = values.iter().map(Field::label).collect::<Result<_, _>>()?;
            selector.labels.insert(key, values);
        }
    }
    if let Some(tolerations) = keys.get("tolerations")? {
        let items = tolerations.one_or_more()?;
        selector.tolerations = items.iter().map(toleration).collect::<Result<_, _>>()?;
    }
    Ok(selector)
}

fn toleration(field: &Field<'_>) -> Result<Toleration, Fault> {
    let keys = field.map(&["key", "value"])?;
    let key = keys.need("key", "{key: maintenance}")?.label()?;
    Ok(Toleration { key, value: optional(&keys, "value", |field| field.label())? })
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

fn work(keys: &Map<'_>) -> Result<Work, Fault> {
    let payload = keys.get("payload")?;
    let Some(simulate) = keys.get("simulate")? else {
        let payload = payload.map(|field| field.text()).transpose()?;
        return Ok(Work::Payload(payload.unwrap_or_default().to_owned()));
    };
    if let Some(payload) = payload {
        return Err(payload.fault("is given together with simulate").allowed("one of the two"));
    }
    let inner = simulate.shaped(
        &["duration", "sm_active", "fail_after", "checkpoint", "memory"],
        "simulate: {duration: {}}",
    )?;
    let busy =
        |field: Field<'_>| field.thousandths(0..=1000, "a number from 0 to 1 with at most three decimals");
    let saves = |field: Field<'_>| Ok([Saves::Ok, Saves::Fail][field.word(&["ok", "fail"])?]);
    Ok(Work::Simulate(Simulate {
        duration: optional(&inner, "duration", |field| field.duration(Millis(0)))?,
        sm_active_milli: optional(&inner, "sm_active", busy)?,
        fail_after: optional(&inner, "fail_after", |field| field.duration(Millis(0)))?,
        checkpoint: optional(&inner, "checkpoint", saves)?,
        memory_mib: optional(&inner, "memory", |field| mebibytes(&field))?,
    }))
}

impl JobFile {
    fn asks_for_nothing(&self) -> bool {
        let beside = self.cpu_milli == 0 && self.memory == 0 && self.storage == 0 && self.nics == 0;
        self.gpus == GpuAsk::Whole(0) && beside
    }

    /// The job with its identity, as the engine takes it: names stand where `decide` fills in ids.
    pub fn submission(&self, uid: Uid) -> Submission {
        Submission {
            uid,
            tenant: self.tenant.clone(),
            trust: self.trust.clone(),
            nodes: self.nodes.source(),
            devices: self.devices.source(),
            any_of_devices: self.any_of.iter().map(|other| other.devices.source()).collect(),
            groups: self.groups.iter().map(|group| group.selectors(&self.nodes)).collect(),
            gang_within: self.gang_within.clone(),
            booking: self.booking.clone(),
            // Names become identities where jobs are known.
            after: Vec::new(),
            array: self.array.clone(),
            spec: self.spec(),
        }
    }

    fn spec(&self) -> Spec {
        let resources = Resources {
            cpu_milli: self.cpu_milli,
            memory: self.memory,
            storage: self.storage,
            pods: 1,
            nics: u64::from(self.nics),
        };
        let mut spec = Spec {
            name: self.name.clone(),
            tenant: TenantId::default(),
            class: self.class,
            priority: self.priority,
            tasks: self.tasks,
            min: self.min,
            shape: Shape {
                time_slicing: self.time_slicing,
                any_of: self.any_of.iter().map(Other::alternative).collect(),
                ..Shape::of(self.gpus, resources)
            },
            groups: self.groups.iter().map(GroupFile::group).collect(),
            topology: Topology { task_on_island: self.task_on_island, gang_within: None },
            preemptible: self.preemptible,
            trust: TrustId::default(),
            time_limit: self.time_limit,
            estimate: self.estimate,
            service: self.service_max.map(|max| Service { max, replicas: self.tasks }),
            checkpoint: self.checkpoint,
            booking: None,
            retries: self.retries,
            labels: self.labels.clone().into_iter().collect(),
            payload: match &self.work {
                Work::Payload(text) => text.clone(),
                Work::Simulate(wish) => {
                    serde_json::to_string(wish).expect("a struct of numbers and words always encodes")
                }
            },
            after: Vec::new(),
            array: None,
            submitted_by: String::new(),
        };
        spec.derive_from_groups();
        spec
    }
}

impl Devices {
    /// The canonical text of the selector; empty for every device.
    pub(crate) fn source(&self) -> String {
        if self.models.is_empty() && self.memory.is_none() {
            return String::new();
        }
        let gib = self.memory.map(|bytes| bytes.div_ceil(1 << 30));
        let memory_gb_min = gib.map(|gib| u32::try_from(gib).expect("at most 64 TiB were read"));
        DeviceSelector { models: self.models.clone(), memory_gb_min }.source()
    }
}

impl Other {
    pub(crate) fn alternative(&self) -> Alternative {
        Alternative { gpus: self.gpus, devices: DeviceSetId::default() }
    }
}

#[cfg(test)]
mod tests;
