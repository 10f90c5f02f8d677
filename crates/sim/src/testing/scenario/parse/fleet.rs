//! `fleet n1 n2: 8 h100, 2 islands, 64 cpu, 512GiB, leaf 0, label zone=a, taint key, others 2 gpus`

use wharf_controller::world::{NodeReport, Taint};
use wharf_engine::model::observed::{ObservedGpu, ObservedNode};
use wharf_engine::units::{GpuMask, Resources};

use super::super::measure::bytes;
use super::Reader;
use super::words::{Words, unknown};

/// A node of which nothing is said has plenty beside its GPUs, so that only what a scenario names can run out.
const PLENTY: Resources =
    Resources { cpu_milli: 256_000, memory: 2 << 40, storage: 8 << 40, pods: 110, nics: 8 };

/// Levels that a node may be in.
const LEVELS: [&str; 3] = ["rack", "leaf", "spine"];

const OPTIONS: [&str; 9] = [
    "one island each",
    "N islands",
    "N cpu",
    "NGiB",
    "rack|leaf|spine N",
    "label K=V",
    "taint KEY",
    "others N gpus|N cpu|NGiB",
    "no gpus",
];

/// What all nodes of one line have in common.
struct Sort {
    model: String,
    gpus: usize,
    islands: usize,
    report: NodeReport,
}

impl Reader {
    pub(super) fn fleet(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        self.before_the_story("fleet")?;
        let mut names = Vec::new();
        while !words.take(":") {
            let name = words.need("`:` after the names of the nodes")?;
            if self.node_names().any(|known| known == name) || names.contains(&name) {
                return Err(format!("there are two nodes called `{name}`"));
            }
            names.push(name);
        }
        let mut sort = gpus(words)?;
        while words.take(",") {
            option(words, &mut sort)?;
        }
        words.end()?;
        for name in names {
            let node = self.one_of(&sort, name);
            self.scenario.nodes.push(node);
        }
        Ok(())
    }

    fn one_of(&mut self, sort: &Sort, name: &str) -> NodeReport {
        let mut report = sort.report.clone();
        name.clone_into(&mut report.node.name);
        report.node.model.clone_from(&sort.model);
        let per_island = sort.gpus.div_ceil(sort.islands.max(1)).max(1);
        for gpu in 0..sort.gpus {
            self.islands += u32::from(gpu % per_island == 0);
            let gpu = ObservedGpu { island: self.islands, healthy: true, ..ObservedGpu::default() };
            report.node.gpus.push(gpu);
        }
        report
    }
}

fn gpus(words: &mut Words<'_>) -> Result<Sort, String> {
    let node = ObservedNode { up: true, capacity: PLENTY, ..ObservedNode::default() };
    let report = NodeReport { node, labels: std::collections::BTreeMap::new(), taints: Vec::new() };
    if words.take("no") {
        words.expect("gpus")?;
        return Ok(Sort { model: String::new(), gpus: 0, islands: 1, report });
    }
    let gpus = words.number("how many GPUs a node has, like `8 h100`, or `no gpus`")?;
    if !(1..=GpuMask::MAX).contains(&gpus) {
        return Err(format!("a node has 1 to {} GPUs, or `no gpus`", GpuMask::MAX));
    }
    let model = words.need("the model of the GPUs")?.to_owned();
    Ok(Sort { model, gpus, islands: 1, report })
}

fn option(words: &mut Words<'_>, sort: &mut Sort) -> Result<(), String> {
    let word = words.need("an option of the nodes")?;
    let node = &mut sort.report.node;
    match word {
        "one" => {
            words.expect_all(["island", "each"])?;
        }
        "label" => {
            let (key, value) = words.pair()?;
            sort.report.labels.insert(key, value);
        }
        "taint" => {
            let key = words.need("the key of the taint")?.to_owned();
            sort.report.taints.push(Taint { key, value: String::new() });
        }
        "others" => others(words, node)?,
        level if LEVELS.contains(&level) => {
            node.domains.push((level.to_owned(), words.number("which one, like `leaf 0`")?));
        }
        size if bytes(size).is_some() => node.capacity.memory = bytes(size).unwrap_or_default(),
        number => {
            let number: usize = number.parse().map_err(|_| unknown("nodes have no", word, &OPTIONS))?;
            match words.need("`islands` or `cpu`")? {
                "islands" => sort.islands = number,
                "cpu" => node.capacity.cpu_milli = cores(number)?,
                other => return Err(unknown("nodes have no", other, &["islands", "cpu"])),
            }
        }
    }
    Ok(())
}

fn others(words: &mut Words<'_>, node: &mut ObservedNode) -> Result<(), String> {
    let word = words.need("what others use, like `2 gpus`")?;
    if let Some(size) = bytes(word) {
        node.others.memory = size;
        return Ok(());
    }
    let number: usize =
        word.parse().map_err(|_| format!("others use `2 gpus`, `8 cpu` or `64GiB`, not `{word}`"))?;
    match words.need("`gpus` or `cpu`")? {
        "gpus" if number <= GpuMask::MAX => (0..number).for_each(|gpu| node.others_gpus.insert(gpu)),
        "gpus" => return Err(format!("a node has at most {} GPUs", GpuMask::MAX)),
        "cpu" => node.others.cpu_milli = cores(number)?,
        other => return Err(unknown("others use no", other, &["gpus", "cpu"])),
    }
    Ok(())
}

/// So many cores, in thousandths.
pub(super) fn cores(count: usize) -> Result<u64, String> {
    let count = u64::try_from(count).ok().and_then(|count| count.checked_mul(1000));
    count.ok_or_else(|| "that many cores no node has".to_owned())
}
