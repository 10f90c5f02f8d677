//! Reading the traces: nodes, pods, orders of arrival, and what is known of their limits.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use wharf_sim::trace::openb::{Node, Pod, Trace};

use crate::args::PlacementArgs;
use crate::input::files::read;
use crate::render::problem::Usage;

/// Where the traces lie beside a checkout.
const TRACES: &str = "../shared/traces";

/// The files of one trace.
pub(super) struct Input {
    pub(super) name: String,
    nodes: PathBuf,
    pods: PathBuf,
    pub(super) arrivals: PathBuf,
}

/// What is known of a trace at 100 % arrived: the authors' mean for FGD, and what no policy can pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) fgd: f64,
    pub(super) ceiling: f64,
}

/// The traces that were asked for.
pub(super) fn inputs(args: &PlacementArgs) -> anyhow::Result<Vec<Input>> {
    let dir = args.traces.clone().unwrap_or_else(|| PathBuf::from(TRACES));
    let nodes = args.nodes.clone().unwrap_or_else(|| dir.join("openb_nodes_gpu.csv"));
    let (pods, arrivals) = (dir.join("openb_pods"), dir.join("fgd-arrival-orders"));
    let of_name = |name: &str| Input {
        name: name.to_owned(),
        nodes: nodes.clone(),
        pods: args.pods.clone().unwrap_or_else(|| compressed_or_not(&pods, name)),
        arrivals: args.arrivals.clone().unwrap_or_else(|| compressed_or_not(&arrivals, name)),
    };
    let inputs: Vec<Input> = match (&args.pods, args.trace.as_str()) {
        (Some(given), _) => vec![of_name(&stem(given))],
        (None, "all") => names(&pods).iter().map(|name| of_name(name)).collect(),
        (None, names) => names.split(',').map(of_name).collect(),
    };
    let there = |input: &Input| [&input.nodes, &input.pods, &input.arrivals].iter().all(|path| path.exists());
    if inputs.is_empty() || !inputs.iter().all(there) {
        let what = format!("the traces are not in {}", dir.display());
        let next = "docs/traces.md says where they are to be had; a stand-in: wharf trace generate openb --out DIR, then --traces DIR".to_owned();
        return Err(Usage { what, next }.into());
    }
    Ok(inputs)
}

/// `NAME.csv` where that is there, else `NAME.csv.gz`.
fn compressed_or_not(dir: &Path, name: &str) -> PathBuf {
    let plain = dir.join(format!("{name}.csv"));
    if plain.exists() { plain } else { dir.join(format!("{name}.csv.gz")) }
}

fn stem(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.split('.').next().unwrap_or_default().to_owned()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| stem(&entry.path())).collect();
    names.sort();
    names
}

/// The rows of a file with a header, as the values under these names; empty where a column is not there.
fn rows(path: &Path, names: &[&str]) -> anyhow::Result<Vec<Vec<String>>> {
    let text = read(path)?.text;
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let headers = reader.headers().with_context(|| format!("{} has no header", path.display()))?.clone();
    let at: Vec<Option<usize>> =
        names.iter().map(|name| headers.iter().position(|header| header == *name)).collect();
    let row = |record: Result<csv::StringRecord, csv::Error>| {
        let record = record.with_context(|| format!("cannot read {}", path.display()))?;
        let value = |at: &Option<usize>| at.and_then(|at| record.get(at)).unwrap_or_default().to_owned();
        Ok(at.iter().map(value).collect())
    };
    reader.records().map(row).collect()
}

fn number<T: std::str::FromStr>(path: &Path, text: &str) -> anyhow::Result<T> {
    let wrong = || anyhow::anyhow!("{}: {text:?} is no number", path.display());
    text.trim().parse().map_err(|_| wrong())
}

/// The cluster and the pods of a trace.
pub(super) fn trace(input: &Input) -> anyhow::Result<Trace> {
    let path = &input.nodes;
    let node = |row: Vec<String>| {
        Ok(Node {
            name: row[0].clone(),
            cpu_milli: number(path, &row[1])?,
            memory_mib: number(path, &row[2])?,
            gpus: number(path, &row[3])?,
            model: row[4].clone(),
        })
    };
    let columns = ["sn", "cpu_milli", "memory_mib", "gpu", "model"];
    let nodes = rows(path, &columns)?.into_iter().map(node).collect::<anyhow::Result<_>>()?;
    let path = &input.pods;
    let pod = |row: Vec<String>| {
        let mut models: Vec<String> =
            row[4].split('|').filter(|model| !model.is_empty()).map(str::to_owned).collect();
        models.sort();
        models.dedup();
        Ok(Pod {
            cpu_milli: number(path, &row[0])?,
            memory_mib: number(path, &row[1])?,
            gpus: number(path, &row[2])?,
            gpu_milli: number(path, &row[3])?,
            models,
        })
    };
    let columns = ["cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec"];
    let pods = rows(path, &columns)?.into_iter().map(pod).collect::<anyhow::Result<_>>()?;
    Ok(Trace { nodes, pods })
}

/// Orders of arrival, by column.
pub(super) struct Columns(pub(super) Vec<(String, Vec<usize>)>);

impl Columns {
    /// The columns of these names, separated by commas; every one for `all`.
    pub(super) fn read(path: &Path, wanted: &str, pods: usize) -> anyhow::Result<Self> {
        let text = read(path)?.text;
        let header = text.lines().next().unwrap_or_default();
        let names: Vec<&str> = match wanted {
            "all" => header.split(',').map(str::trim).collect(),
            wanted => wanted.split(',').collect(),
        };
        if let Some(unknown) =
            names.iter().find(|name| !header.split(',').any(|known| known.trim() == **name))
        {
            let what = format!("{} has no column {unknown:?}", path.display());
            return Err(Usage { what, next: format!("it has {header}") }.into());
        }
        let mut columns: Vec<(String, Vec<usize>)> =
            names.iter().map(|name| ((*name).to_owned(), Vec::new())).collect();
        for row in rows(path, &names)? {
            for (value, (_, order)) in row.iter().zip(&mut columns).filter(|(value, _)| !value.is_empty()) {
                let pod: usize = number(path, value)?;
                anyhow::ensure!(pod < pods, "{}: there is no pod in row {pod}", path.display());
                order.push(pod);
            }
        }
        Ok(Self(columns))
    }
}

/// What is known of the traces' limits, where the file is there.
pub(super) fn limits(args: &PlacementArgs) -> BTreeMap<String, Limits> {
    let dir = args.traces.clone().unwrap_or_else(|| PathBuf::from(TRACES));
    let columns = ["trace", "arrived_pct", "fgd_authors_mean_pct", "lp_upper_bound_pct"];
    let rows = rows(&dir.join("fgd-limits.csv"), &columns).unwrap_or_default();
    let at_100 = rows.into_iter().filter(|row| row[1] == "100");
    let limit = |row: Vec<String>| {
        Some((row[0].clone(), Limits { fgd: row[2].parse().ok()?, ceiling: row[3].parse().ok()? }))
    };
    at_100.filter_map(limit).collect()
}
