//! `8 gang x4 cpu 2 model h100`: what a line says of tasks that are alike, of a group or of a whole job.

use wharf_controller::selectors::{DeviceSelector, NodeSelector, Toleration};
use wharf_engine::device::catalogue::mig::ProfileName;
use wharf_engine::model::group::Group;
use wharf_engine::model::job::{Alternative, GpuAsk, Least, Shape};
use wharf_engine::units::{DeviceSetId, Resources};

use super::super::measure::{bytes, share};
use super::fleet::cores;
use super::words::Words;

/// What a line says of tasks that are alike: of a group, or of the whole job.
pub(super) struct Alike {
    pub(super) gpus: Option<GpuAsk>,
    pub(super) tasks: Option<u32>,
    pub(super) min: Option<u32>,
    pub(super) gang: bool,
    /// At least so many copies of so many.
    pub(super) copies: (u32, u32),
    pub(super) resources: Resources,
    pub(super) nodes: NodeSelector,
    pub(super) models: Vec<String>,
    pub(super) any_of: Vec<Alternative>,
    pub(super) time_slicing: bool,
}

impl Default for Alike {
    fn default() -> Self {
        Self {
            gpus: None,
            tasks: None,
            min: None,
            gang: false,
            copies: (1, 1),
            resources: Resources { pods: 1, ..Resources::default() },
            nodes: NodeSelector::default(),
            models: Vec::new(),
            any_of: Vec::new(),
            time_slicing: false,
        }
    }
}

impl Alike {
    pub(super) fn shape(&self) -> Result<Shape, String> {
        let gpus = self.gpus.ok_or("how many GPUs does a task need? write `8`, `0` or `share 0.5`")?;
        let (time_slicing, any_of) = (self.time_slicing, self.any_of.clone());
        Ok(Shape { time_slicing, any_of, ..Shape::of(gpus, self.resources) })
    }

    pub(super) fn min(&self, tasks: u32) -> u32 {
        self.min.unwrap_or(if self.gang { tasks } else { 1 })
    }

    pub(super) fn devices(&self) -> String {
        let devices = DeviceSelector { models: self.models.clone(), memory_gb_min: None };
        if self.models.is_empty() { String::new() } else { devices.source() }
    }

    pub(super) fn group(&self, name: &str) -> Result<Group, String> {
        let tasks = self.tasks.unwrap_or(1);
        let (min, (min_copies, copies)) = (self.min(tasks), self.copies);
        Ok(Group { name: name.to_owned(), tasks, min, copies, min_copies, shape: self.shape()? })
    }

    /// What is said of tasks that are alike; false where a word is about the whole job.
    pub(super) fn option(&mut self, word: &str, words: &mut Words<'_>) -> Result<bool, String> {
        match word {
            "gang" => self.gang = true,
            "tasks" => self.tasks = Some(words.number("how many tasks")?),
            "min" => self.min = Some(words.number("the least number of tasks")?),
            "copies" => {
                let least = words.number("how many copies of the group")?;
                let most = if words.take("of") { words.number("how many copies are wanted")? } else { least };
                self.copies = (least, most);
            }
            "share" => self.gpus = Some(GpuAsk::Share(share(words.need("a part of a GPU, like 0.5")?)?)),
            "slice" => {
                let what = "a profile, like 1g.10gb, or the memory it needs, like 20GiB";
                self.gpus = Some(slice(words.need(what)?)?);
            }
            "or" => self.any_of.push(alternative(words)?),
            "time-slicing" => self.time_slicing = true,
            "cpu" => self.resources.cpu_milli = cores(words.number("how many cores")?)?,
            "memory" => {
                let size = words.need("a size, like 10GiB")?;
                let read = bytes(size).ok_or_else(|| format!("`{size}` is no size; write it like 10GiB"));
                self.resources.memory = read?;
            }
            "model" => models(words, &mut self.models)?,
            "tolerates" => {
                let key = words.need("the key of a taint")?.to_owned();
                self.nodes.tolerations.push(Toleration { key, value: None });
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// `1g.10gb`, or the memory that a slice must have.
fn slice(word: &str) -> Result<GpuAsk, String> {
    if let Some(name) = ProfileName::parse(word) {
        return Ok(GpuAsk::Slice(name));
    }
    let memory = bytes(word).and_then(|bytes| u32::try_from(bytes >> 20).ok());
    let memory_mib =
        memory.ok_or_else(|| format!("`{word}` is neither a profile (1g.10gb) nor a size (20GiB)"))?;
    Ok(GpuAsk::AtLeast(Least { memory_mib, compute: 0, compute_of: 0 }))
}

/// `or 1`, `or share 0.5`, `or slice 3g.40gb`.
fn alternative(words: &mut Words<'_>) -> Result<Alternative, String> {
    let gpus = match words.need("what it takes instead: `1`, `share 0.5` or `slice 3g.40gb`")? {
        "share" => GpuAsk::Share(share(words.need("a part of a GPU, like 0.5")?)?),
        "slice" => slice(words.need("a profile, like 1g.10gb")?)?,
        count => GpuAsk::Whole(count.parse().map_err(|_| format!("`{count}` is no number of GPUs"))?),
    };
    Ok(Alternative { gpus, devices: DeviceSetId(0) })
}

fn models(words: &mut Words<'_>, models: &mut Vec<String>) -> Result<(), String> {
    loop {
        models.push(words.need("the name of a model, like h100")?.to_owned());
        if !words.take(",") {
            return Ok(());
        }
    }
}
