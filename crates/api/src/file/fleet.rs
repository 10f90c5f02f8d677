//! Fleet files: the nodes of a simulated world.
//!
//! One entry describes one node or a row of equal ones (`names: n{1..32}`). The presets are such files too,
//! so that each of them is also an example. Positions are counted over the whole file: `levels: {leaf: {size:
//! 8}}` puts the first eight nodes of the file on leaf 0, whatever entries they come from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use wharf_controller::world::{NodeReport, Taint};
use wharf_engine::device::catalogue;
use wharf_engine::model::observed::{ObservedGpu, ObservedNode};
use wharf_engine::units::{GpuMask, Resources};

use super::field::{Field, Map, NAME_MAX};
use super::tree::Node;
use super::{Fault, FileError, document, nearest, read, text};

/// Fleets that are known by name.
const PRESETS: &[(&str, &str)] = &[
    ("lab", include_str!("../../fleets/lab.yaml")),
    ("mixed", include_str!("../../fleets/mixed.yaml")),
    ("pod", include_str!("../../fleets/pod.yaml")),
    ("giant", include_str!("../../fleets/giant.yaml")),
];
const KEYS: &[&str] = &[
    "name", "names", "gpus", "model", "cpu", "memory", "storage", "nics", "tasks", "islands", "labels",
    "taints", "levels", "others",
];
/// The most nodes of a fleet: eight times the largest preset, and still read in about a second.
const NODES_MAX: usize = 100_000;
/// The longest name of a node, as in Kubernetes.
const NODE_NAME_MAX: usize = 253;
/// How many tasks a node takes where nothing is said, so that it is never what binds.
const TASKS_DEFAULT: u32 = 1000;
const NICS_MAX: u32 = 64;
const NODES_EXAMPLE: &str = "nodes: [{names: n{1..4}, gpus: 8, model: h100, cpu: 128, memory: 2TiB}]";
/// The label that says which GPUs a node has.
const MODEL_LABEL: &str = "wharf.dev/model";

/// The nodes of a simulated world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// The preset's name, or the file's.
    pub name: String,
    /// One line: `4 nodes × 8 H100 (32 GPUs)`.
    pub description: String,
    /// In the order of the file.
    pub nodes: Vec<NodeReport>,
}

/// The names of the fleets that need no file.
pub fn presets() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

/// The file of a fleet that needs none, as an example to edit.
pub fn preset_text(name: &str) -> Option<&'static str> {
    PRESETS.iter().find(|(preset, _)| *preset == name).map(|(_, text)| *text)
}

/// A preset by its name, or a fleet file by its path.
pub fn load_fleet(name: &str) -> Result<Fleet, FileError> {
    if let Some((name, text)) = PRESETS.iter().find(|(preset, _)| *preset == name) {
        return parse_fleet(name, text);
    }
    let path = Path::new(name);
    if path.exists() {
        return parse_fleet(name, &read(path)?);
    }
    let names: Vec<&str> = presets().collect();
    let mut fault = Fault::new(None, "neither a file nor a known fleet");
    fault.near = nearest(name, &names).map(Box::from);
    Err(fault.allowed(format!("{}, or the path of a fleet file", names.join(", "))).in_file(name))
}

/// Reads a fleet from the text of a file.
pub fn parse_fleet(file: &str, text: &str) -> Result<Fleet, FileError> {
    let nodes = document(file, text, fleet)?;
    let sizes = nodes.iter().map(|report| (report.node.model.as_str(), report.node.gpus.len()));
    Ok(Fleet { name: file.to_owned(), description: describe(sizes), nodes })
}

fn fleet(root: &Node) -> Result<Vec<NodeReport>, Fault> {
    let keys = Map::root(root, &["nodes"])?;
    let field = keys.need("nodes", NODES_EXAMPLE)?;
    let mut row = Row::default();
    for item in field.list()? {
        row.append(&item)?;
    }
    if row.nodes.is_empty() {
        return Err(field.fault("is empty").allowed(NODES_EXAMPLE));
    }
    Ok(row.nodes)
}

/// The nodes so far.
#[derive(Default)]
struct Row {
    nodes: Vec<NodeReport>,
    names: BTreeSet<String>,
    islands: u32,
}

impl Row {
    fn append(&mut self, item: &Field<'_>) -> Result<(), Fault> {
        let keys = item.map(KEYS)?;
        let (names, named_by) = names(item, &keys)?;
        if self.nodes.len() + names.len() > NODES_MAX {
            return Err(named_by
                .fault("makes the fleet too large")
                .allowed(format!("at most {NODES_MAX} nodes")));
        }
        let like = template(&keys)?;
        for name in names {
            if !self.names.insert(name.clone()) {
                return Err(named_by
                    .fault(&format!("makes a second node {name:?}"))
                    .allowed("every name once"));
            }
            self.push(name, &like);
        }
        Ok(())
    }

    fn push(&mut self, name: String, like: &Template) {
        let position = u32::try_from(self.nodes.len()).expect("at most 100,000 nodes");
        let mut report = like.report.clone();
        report.node.name = name;
        report.node.gpus = gpus(like, self.islands);
        report.node.domains =
            like.levels.iter().map(|(name, level)| (name.clone(), level.of(position))).collect();
        self.islands += like.islands;
        self.nodes.push(report);
    }
}

/// What the nodes of one entry have in common.
struct Template {
    report: NodeReport,
    gpus: u32,
    islands: u32,
    levels: Vec<(String, Level)>,
}

/// How the domain of a node is found.
enum Level {
    Is(u32),
    /// So many neighbours share one.
    Size(u32),
}

impl Level {
    fn of(&self, position: u32) -> u32 {
        match self {
            Self::Is(domain) => *domain,
            Self::Size(size) => position / size,
        }
    }
}

fn names<'a>(item: &Field<'a>, keys: &Map<'a>) -> Result<(Vec<String>, Field<'a>), Fault> {
    match (keys.get("name")?, keys.get("names")?) {
        (Some(field), None) => Ok((vec![field.name(NODE_NAME_MAX)?], field)),
        (None, Some(field)) => Ok((range(&field)?, field)),
        (Some(_), Some(field)) => Err(field.fault("is given together with name").allowed("one of the two")),
        (None, None) => Err(item.fault("has no name").allowed("name: n1, or names: n{1..4} for several")),
    }
}

/// The names of `n{1..4}`; leading zeros give all numbers the same width.
fn range(field: &Field<'_>) -> Result<Vec<String>, Fault> {
    let allowed = "a pattern with one range such as n{1..32} or n{01..32}";
    let wrong = || field.wrong(allowed);
    let text = field.text()?;
    let (before, rest) = text.split_once('{').ok_or_else(wrong)?;
    let (inside, after) = rest.split_once('}').ok_or_else(wrong)?;
    let (first, last) = inside.split_once("..").ok_or_else(wrong)?;
    let (from, to) = (text::whole(first).ok_or_else(wrong)?, text::whole(last).ok_or_else(wrong)?);
    let count = to.checked_sub(from).and_then(|span| usize::try_from(span).ok()).ok_or_else(wrong)?;
    if count >= NODES_MAX {
        return Err(field.wrong(format!("at most {NODES_MAX} nodes")));
    }
    let width = if first.starts_with('0') { first.len() } else { 1 };
    let sample = format!("{before}{to:0width$}{after}");
    if width > NODE_NAME_MAX || !text::is_name(&sample, NODE_NAME_MAX) {
        return Err(wrong());
    }
    Ok((from..=to).map(|number| format!("{before}{number:0width$}{after}")).collect())
}

fn template(keys: &Map<'_>) -> Result<Template, Fault> {
    let whole = |key: &str, range, default| keys.get(key)?.map_or(Ok(default), |field| field.whole(range));
    let bytes = |key: &str| keys.get(key)?.map_or(Ok(0), |field| field.bytes());
    let gpus = whole("gpus", 0..=max_gpus(), 0)?;
    let model = model(keys, gpus)?;
    let capacity = Resources {
        cpu_milli: keys.need("cpu", "cpu: 128")?.cores()?,
        memory: keys.need("memory", "memory: 2TiB")?.bytes()?,
        storage: bytes("storage")?,
        pods: u64::from(whole("tasks", 1..=1_000_000, TASKS_DEFAULT)?),
        nics: u64::from(whole("nics", 0..=NICS_MAX, 0)?),
    };
    let mut labels = keys.get("labels")?.map_or(Ok(BTreeMap::new()), |field| field.labels())?;
    if gpus > 0 {
        labels.entry(MODEL_LABEL.to_owned()).or_insert_with(|| model.clone());
    }
    let (others, others_gpus) = others(keys, &capacity, gpus)?;
    let islands = islands(keys, gpus, &model)?;
    let node = ObservedNode { up: true, model, capacity, others, others_gpus, ..ObservedNode::default() };
    let report = NodeReport { node, labels, taints: taints(keys)? };
    Ok(Template { report, gpus, islands, levels: levels(keys)? })
}

fn max_gpus() -> u32 {
    u32::try_from(GpuMask::MAX).expect("16 fits")
}

fn model(keys: &Map<'_>, gpus: u32) -> Result<String, Fault> {
    if gpus > 0 {
        return keys.need("model", "model: h100")?.name(NAME_MAX);
    }
    match keys.get("model")? {
        Some(field) => Err(field
            .fault("is given, but the node has no GPUs")
            .allowed("model together with gpus: 1 to 16")),
        None => Ok(String::new()),
    }
}

/// How many islands a node has: one where GPUs of the model are joined in their usual form, else one per GPU.
fn islands(keys: &Map<'_>, gpus: u32, model: &str) -> Result<u32, Fault> {
    let Some(field) = keys.get("islands")? else {
        let joined = catalogue::model(model).is_some_and(|known| known.nvlink);
        return Ok(if joined { gpus.min(1) } else { gpus });
    };
    let islands = field.whole(1..=max_gpus())?;
    if gpus == 0 || !gpus.is_multiple_of(islands) {
        let what = format!("is {islands}, which does not divide {gpus} GPUs evenly");
        return Err(field.fault(&what).allowed("a divisor of gpus"));
    }
    Ok(islands)
}

/// GPUs of one node; two share a root complex, half of them a socket, and each has a rail of its own.
fn gpus(like: &Template, islands_before: u32) -> Vec<ObservedGpu> {
    let gpu = |index: u32| {
        let small = |number: u32| u8::try_from(number).expect("a node has at most 16 GPUs");
        ObservedGpu {
            island: islands_before + index / (like.gpus / like.islands),
            numa: small(index * 2 / like.gpus),
            pcie_root: small(index / 2),
            rail: small(index),
            healthy: true,
            ..ObservedGpu::default()
        }
    };
    (0..like.gpus).map(gpu).collect()
}

fn taints(keys: &Map<'_>) -> Result<Vec<Taint>, Fault> {
    let Some(field) = keys.get("taints")? else {
        return Ok(Vec::new());
    };
    let taint = |item: &Field<'_>| {
        let inner = item.map(&["key", "value"])?;
        let value = inner.get("value")?.map_or(Ok(String::new()), |field| field.label())?;
        Ok(Taint { key: inner.need("key", "{key: maintenance}")?.label()?, value })
    };
    field.one_or_more()?.iter().map(taint).collect()
}

/// Levels in the order of the file, which is from the nearest outwards.
fn levels(keys: &Map<'_>) -> Result<Vec<(String, Level)>, Fault> {
    const LEVELS_MAX: usize = 8;
    const DOMAINS_MAX: u32 = 1_000_000;
    let Some(field) = keys.get("levels")? else {
        return Ok(Vec::new());
    };
    let named = field.named()?;
    if named.len() > LEVELS_MAX {
        return Err(field.fault("has too many entries").allowed(format!("at most {LEVELS_MAX} levels")));
    }
    let level = |(name, field): (&str, Field<'_>)| {
        if !text::is_name(name, NAME_MAX) {
            return Err(field.fault("is no name").allowed("names such as rack, leaf or spine"));
        }
        if field.is_map() {
            let size = field.map(&["size"])?.need("size", "leaf: {size: 8}")?.whole(1..=DOMAINS_MAX)?;
            return Ok((name.to_owned(), Level::Size(size)));
        }
        Ok((name.to_owned(), Level::Is(field.whole(0..=DOMAINS_MAX)?)))
    };
    named.into_iter().map(level).collect()
}

fn others(keys: &Map<'_>, capacity: &Resources, gpus: u32) -> Result<(Resources, GpuMask), Fault> {
    let mut mask = GpuMask::default();
    let Some(field) = keys.get("others")? else {
        return Ok((Resources::default(), mask));
    };
    let inner = field.map(&["cpu", "memory", "gpus"])?;
    if let Some(list) = inner.get("gpus")? {
        for item in list.list()? {
            if gpus == 0 {
                return Err(item.fault("is used by others, but the node has no GPUs"));
            }
            mask.insert(usize::try_from(item.whole(0..=gpus - 1)?).expect("below 16"));
        }
    }
    let used = Resources {
        cpu_milli: inner.get("cpu")?.map_or(Ok(0), |field| field.cores())?,
        memory: inner.get("memory")?.map_or(Ok(0), |field| field.bytes())?,
        ..Resources::default()
    };
    if capacity.covers(&used) {
        return Ok((used, mask));
    }
    Err(field.fault("use more than the node has").allowed("cpu and memory of at most the node's own"))
}

/// Nodes in one line, by model and number of GPUs: `4 nodes × 8 H100 (32 GPUs)`.
pub fn describe<'a>(nodes: impl Iterator<Item = (&'a str, usize)>) -> String {
    const PARTS_MAX: usize = 4;
    let mut parts: Vec<(&str, usize, usize)> = Vec::new();
    let mut total = 0;
    for (model, gpus) in nodes {
        total += gpus;
        match parts.iter_mut().find(|part| (part.0, part.1) == (model, gpus)) {
            Some(part) => part.2 += 1,
            None => parts.push((model, gpus, 1)),
        }
    }
    let shown = |(index, (model, gpus, count)): (usize, &(&str, usize, usize))| {
        let noun = match (index, count) {
            (0, 1) => " node",
            (0, _) => " nodes",
            (_, _) => "",
        };
        if *gpus == 0 {
            format!("{count}{noun} without GPUs")
        } else {
            format!("{count}{noun} × {gpus} {}", model.to_uppercase())
        }
    };
    let mut texts: Vec<String> = parts.iter().take(PARTS_MAX).enumerate().map(shown).collect();
    if parts.len() > PARTS_MAX {
        texts.push("…".to_owned());
    }
    format!("{} ({total} GPU{})", texts.join(", "), if total == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
