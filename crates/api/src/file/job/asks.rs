//! What one task asks for: GPUs in one of several ways, what does instead, and what it takes beside them.

use wharf_controller::selectors::{DeviceSelector, NodeSelector, Toleration};
use wharf_engine::device::catalogue::MODELS;
use wharf_engine::device::catalogue::mig::ProfileName;
use wharf_engine::model::job::{ALTERNATIVES_MAX, Alternative, GPUS_PER_TASK_MAX, GpuAsk, Least, Shape};
use wharf_engine::units::{DeviceSetId, GpuUnits, Resources};

use super::super::field::{Field, Map, NAME_MAX};
use super::super::{Fault, text};
use super::optional;

const NICS_MAX: u32 = 64;
/// One core per task where nothing is said: work without any CPU does not exist.
pub(super) const CPU_MILLI_DEFAULT: u64 = 1000;
const GPUS_ALLOWED: &str = "a whole number from 0 to 16, or less than one GPU with at most three decimals \
                            (0.25) or as a fraction that 3000 divides (\"1/3\")";

/// What one task asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFile {
    /// GPUs.
    pub gpus: GpuAsk,
    /// Devices it may run on.
    pub devices: Devices,
    /// What it takes where that does not fit, in order.
    pub any_of: Vec<Other>,
    /// Whether its share may be time-sliced.
    pub time_slicing: bool,
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of node-local storage.
    pub storage: u64,
    /// Network interfaces.
    pub nics: u32,
    /// Nodes it may run on; those of the job where nothing is said.
    pub nodes: Option<NodeSelector>,
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

/// What of GPUs a task asks for, first and instead.
pub(super) struct Gpus {
    first: Other,
    any_of: Vec<Other>,
}

impl Gpus {
    /// Every ask, first and alternative.
    pub(super) fn all(&self) -> impl Iterator<Item = GpuAsk> {
        self.any_of.iter().chain([&self.first]).map(|other| other.gpus)
    }
}

pub(super) fn gpus(keys: &Map<'_>) -> Result<Gpus, Fault> {
    let gpus = ask(keys)?.unwrap_or(GpuAsk::Whole(1));
    let first = Other { gpus, devices: devices(keys, gpus)? };
    let any_of = optional(keys, "any_of", |field| others(&field))?.unwrap_or_default();
    Ok(Gpus { first, any_of })
}

/// What a task asks for beside its GPUs. Its nodes are for the caller to read.
pub(super) fn task(keys: &Map<'_>, gpus: Gpus) -> Result<TaskFile, Fault> {
    let Gpus { first: Other { gpus, devices }, any_of } = gpus;
    Ok(TaskFile {
        gpus,
        devices,
        any_of,
        time_slicing: time_slicing(keys, gpus)?,
        cpu_milli: optional(keys, "cpu", |field| field.cores())?.unwrap_or(CPU_MILLI_DEFAULT),
        memory: optional(keys, "memory", |field| field.bytes())?.unwrap_or(0),
        storage: optional(keys, "storage", |field| field.bytes())?.unwrap_or(0),
        nics: optional(keys, "nics", |field| field.whole(0..=NICS_MAX))?.unwrap_or(0),
        nodes: None,
    })
}

/// What one task asks of GPUs: one of three keys.
fn ask(keys: &Map<'_>) -> Result<Option<GpuAsk>, Fault> {
    let asks = [
        optional(keys, "gpus", |field| Ok((count(&field)?, field)))?,
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

pub(super) fn mebibytes(field: &Field<'_>) -> Result<u32, Fault> {
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

fn count(field: &Field<'_>) -> Result<GpuAsk, Fault> {
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

pub(super) fn nodes(field: &Field<'_>) -> Result<NodeSelector, Fault> {
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

impl TaskFile {
    pub(super) fn is_nothing(&self) -> bool {
        let beside = self.cpu_milli == 0 && self.memory == 0 && self.storage == 0 && self.nics == 0;
        self.gpus == GpuAsk::Whole(0) && beside
    }

    /// Every ask of it, first and alternative.
    pub(super) fn all_gpus(&self) -> impl Iterator<Item = GpuAsk> {
        self.any_of.iter().map(|other| other.gpus).chain([self.gpus])
    }

    pub(super) fn shape(&self) -> Shape {
        let resources = Resources {
            cpu_milli: self.cpu_milli,
            memory: self.memory,
            storage: self.storage,
            pods: 1,
            nics: u64::from(self.nics),
        };
        let any_of = self.any_of.iter().map(Other::alternative).collect();
        Shape { time_slicing: self.time_slicing, any_of, ..Shape::of(self.gpus, resources) }
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
