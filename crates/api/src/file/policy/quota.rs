//! `tenants.yaml`: the tenant tree with its promises and limits.
//!
//! The tree is read first, with the place of every amount, into a [`Book`]. Whether all tenants count GPUs in one way
//! is known only when all of it is read; whether promises fit is judged in [`fit`](super::fit).

use std::collections::BTreeMap;

use wharf_engine::model::policy::{Amount, GpuQuota, Quota, Tenant};

use super::super::field::{Field, Map, TENANT_LEVELS_MAX};
use super::super::{At, Fault, text, tree};
use super::check_name;

const KEYS: &[&str] = &["guaranteed", "limit", "weight", "priority", "cpu", "memory", "children"];
const WEIGHT_MAX: u32 = 1_000_000;
/// The most tenants; the engine keeps a line per tenant and resource.
const TENANTS_MAX: usize = 10_000;
/// The most GPUs an amount may name, far above any fleet, so that sums stay exact.
const GPUS_MAX: u64 = 100_000_000;
/// The most bytes an amount may name.
const BYTES_MAX: u64 = 1 << 60;
const GPUS_ALLOWED: &str = "GPUs such as 16, 0.5 or \"1/3\", or unlimited";

/// An amount with the place of its key.
#[derive(Clone, Copy)]
pub(super) struct Placed {
    pub(super) amount: Amount,
    pub(super) at: Option<At>,
}

/// GPUs as written.
#[derive(Clone)]
enum Gpus {
    /// Over all pools.
    Any(Placed),
    /// By model.
    PerPool(Option<At>, BTreeMap<String, Placed>),
}

impl Gpus {
    fn at(&self) -> Option<At> {
        match self {
            Self::Any(placed) => placed.at,
            Self::PerPool(at, _) => *at,
        }
    }

    /// What it says for one model, or for all where `model` is `None`.
    fn of(&self, model: Option<&str>) -> Option<Placed> {
        match (self, model) {
            (Self::Any(placed), None) => Some(*placed),
            (Self::PerPool(_, pools), Some(model)) => pools.get(model).copied(),
            (Self::Any(_), Some(_)) | (Self::PerPool(..), None) => None,
        }
    }
}

/// A tenant as written.
pub(super) struct Line {
    pub(super) path: String,
    pub(super) parent: Option<usize>,
    pub(super) at: Option<At>,
    guaranteed: Option<Gpus>,
    limit: Option<Gpus>,
    pub(super) cpu: Option<Pair>,
    pub(super) memory: Option<Pair>,
    pub(super) weight: u32,
    pub(super) weight_at: Option<At>,
    priority: i32,
}

impl Line {
    /// GPUs of one model, or of all where `model` is `None`.
    pub(super) fn gpus(&self, model: Option<&str>) -> Pair {
        let of = |gpus: &Option<Gpus>| gpus.as_ref().and_then(|gpus| gpus.of(model));
        Pair { guaranteed: of(&self.guaranteed), limit: of(&self.limit) }
    }
}

/// `tenants.yaml` as written.
#[derive(Default)]
pub(super) struct Book {
    /// Every parent before its children.
    pub(super) lines: Vec<Line>,
    /// The models that are named, sorted; empty where GPUs are counted over all.
    pub(super) pools: Vec<String>,
}

impl Book {
    /// The tree for the engine.
    pub(super) fn tenants(&self) -> Vec<Tenant> {
        self.lines.iter().map(|line| tenant(line, &self.pools)).collect()
    }
}

/// Promise and limit of one resource.
#[derive(Clone, Copy, Default)]
pub(super) struct Pair {
    pub(super) guaranteed: Option<Placed>,
    pub(super) limit: Option<Placed>,
}

impl Pair {
    pub(super) fn quota(self) -> Quota {
        Quota {
            guaranteed: self.guaranteed.map_or(Quota::NONE.guaranteed, |placed| placed.amount),
            limit: self.limit.map_or(Quota::NONE.limit, |placed| placed.amount),
        }
    }
}

/// Reads the tree as far as it can be read, and says what is wrong with the rest.
pub(super) fn read(text: &str) -> (Book, Vec<Fault>) {
    let mut reading = Reading::default();
    if let Err(fault) = tree::parse(text).and_then(|root| reading.root(&root)) {
        reading.faults.push(fault);
    }
    reading.check_one_way_of_counting();
    let pools = reading.pools();
    (Book { lines: reading.lines, pools }, reading.faults)
}

#[derive(Default)]
struct Reading {
    lines: Vec<Line>,
    faults: Vec<Fault>,
}

impl Reading {
    fn root(&mut self, root: &tree::Node) -> Result<(), Fault> {
        let keys = Map::root(root, &["tenants"])?;
        let field = keys.need("tenants", "tenants: {lab: {guaranteed: 8}}")?;
        self.children(&field, None);
        if self.lines.is_empty() && self.faults.is_empty() {
            self.faults.push(field.fault("is empty").allowed("at least one tenant"));
        }
        Ok(())
    }

    fn children(&mut self, field: &Field<'_>, parent: Option<usize>) {
        let named = match field.named() {
            Ok(named) => named,
            Err(fault) => return self.faults.push(fault),
        };
        for (name, field) in named {
            if let Err(fault) = self.child(name, &field, parent) {
                self.faults.push(fault);
            }
        }
    }

    fn child(&mut self, name: &str, field: &Field<'_>, parent: Option<usize>) -> Result<(), Fault> {
        check_name(name, field)?;
        let path = match parent {
            Some(parent) => format!("{}/{name}", self.lines[parent].path),
            None => name.to_owned(),
        };
        if path.split('/').count() > TENANT_LEVELS_MAX {
            return Err(field
                .fault("is too deep")
                .allowed(format!("at most {TENANT_LEVELS_MAX} levels of tenants")));
        }
        if self.lines.len() >= TENANTS_MAX {
            return Err(field
                .fault("is one tenant too many")
                .allowed(format!("at most {TENANTS_MAX} tenants")));
        }
        let keys = field.map(KEYS)?;
        let line = line(path, parent, field, &keys)?;
        self.lines.push(line);
        let this = self.lines.len() - 1;
        if let Some(children) = keys.get("children")? {
            self.children(&children, Some(this));
        }
        Ok(())
    }

    /// The models that the file names, sorted; empty where GPUs are counted over all.
    fn pools(&self) -> Vec<String> {
        let mut pools = Vec::new();
        for line in &self.lines {
            for gpus in [&line.guaranteed, &line.limit].into_iter().flatten() {
                if let Gpus::PerPool(_, amounts) = gpus {
                    pools.extend(amounts.keys().cloned());
                }
            }
        }
        pools.sort();
        pools.dedup();
        pools
    }

    fn check_one_way_of_counting(&mut self) {
        let written = || self.lines.iter().flat_map(|line| [&line.guaranteed, &line.limit]).flatten();
        let over_all = written().find(|gpus| matches!(gpus, Gpus::Any(_)));
        let per_pool = written().find(|gpus| matches!(gpus, Gpus::PerPool(..)));
        if let (Some(over_all), Some(per_pool)) = (over_all, per_pool) {
            let (number, map) = (place(over_all.at()), place(per_pool.at()));
            let what = format!("GPUs are counted over all models in {number} and per model in {map}");
            let later = if over_all.at().map(|at| at.line) > per_pool.at().map(|at| at.line) {
                over_all
            } else {
                per_pool
            };
            let allowed = "one way for all tenants: numbers, or maps such as {h100: 8}";
            self.faults.push(Fault::new(later.at(), what).allowed(allowed));
        }
    }
}

fn place(at: Option<At>) -> String {
    at.map_or_else(|| "an unknown line".to_owned(), |at| format!("line {}", at.line))
}

fn line(path: String, parent: Option<usize>, field: &Field<'_>, keys: &Map<'_>) -> Result<Line, Fault> {
    let gpu_amounts = |key: &str| keys.get(key)?.map(|field| gpus(&field)).transpose();
    let pair = |key: &str, reader: fn(&Field<'_>) -> Result<Placed, Fault>| {
        keys.get(key)?.map(|field| pair(&field, reader)).transpose()
    };
    let weight = keys.get("weight")?;
    Ok(Line {
        path,
        parent,
        at: field.at(),
        guaranteed: gpu_amounts("guaranteed")?,
        limit: gpu_amounts("limit")?,
        cpu: pair("cpu", cores)?,
        memory: pair("memory", bytes)?,
        weight_at: weight.as_ref().and_then(Field::at),
        weight: weight.as_ref().map_or(Ok(1), |field| field.whole(0..=WEIGHT_MAX))?,
        priority: keys.get("priority")?.map_or(Ok(0), |field| field.priority())?,
    })
}

fn gpus(field: &Field<'_>) -> Result<Gpus, Fault> {
    if !field.is_map() {
        return Ok(Gpus::Any(gpu_amount(field)?));
    }
    let mut pools = BTreeMap::new();
    for (model, amount) in field.named()? {
        check_name(model, &amount)?;
        pools.insert(model.to_owned(), gpu_amount(&amount)?);
    }
    Ok(Gpus::PerPool(field.at(), pools))
}

fn pair(field: &Field<'_>, reader: fn(&Field<'_>) -> Result<Placed, Fault>) -> Result<Pair, Fault> {
    let keys = field.map(&["guaranteed", "limit"])?;
    let amount = |key: &str| keys.get(key)?.map(|field| reader(&field)).transpose();
    Ok(Pair { guaranteed: amount("guaranteed")?, limit: amount("limit")? })
}

fn gpu_amount(field: &Field<'_>) -> Result<Placed, Fault> {
    amount(field, GPUS_ALLOWED, |text| text::gpu_parts(text).filter(|parts| *parts <= GPUS_MAX * 3000))
}

fn cores(field: &Field<'_>) -> Result<Placed, Fault> {
    amount(field, "cores such as 64, 0.5 or 500m, or unlimited", |text| {
        text::cores(text).filter(|milli| *milli <= 1_000_000_000_000)
    })
}

fn bytes(field: &Field<'_>) -> Result<Placed, Fault> {
    amount(field, "a size such as 512GiB, or unlimited", |text| {
        text::size(text).filter(|bytes| *bytes <= BYTES_MAX)
    })
}

fn amount(field: &Field<'_>, allowed: &str, read: impl FnOnce(&str) -> Option<u64>) -> Result<Placed, Fault> {
    let written = if field.is_map() { None } else { field.text().ok() };
    let amount = match written {
        Some("unlimited") => Some(Amount::Unlimited),
        Some(text) => read(text).map(Amount::Of),
        None => None,
    };
    let amount = amount.ok_or_else(|| field.wrong(allowed))?;
    Ok(Placed { amount, at: field.at() })
}

fn tenant(line: &Line, pools: &[String]) -> Tenant {
    let gpus = if pools.is_empty() {
        GpuQuota::Any(line.gpus(None).quota())
    } else {
        let said = |pool: &&String| {
            let pair = line.gpus(Some(pool));
            pair.guaranteed.is_some() || pair.limit.is_some()
        };
        let quota = |pool: &String| (pool.clone(), line.gpus(Some(pool)).quota());
        GpuQuota::PerPool(pools.iter().filter(said).map(quota).collect())
    };
    Tenant {
        gpus,
        cpu: line.cpu.map_or(Quota::UNMETERED, Pair::quota),
        memory: line.memory.map_or(Quota::UNMETERED, Pair::quota),
        weight: line.weight,
        priority: line.priority,
        path: line.path.clone(),
    }
}
