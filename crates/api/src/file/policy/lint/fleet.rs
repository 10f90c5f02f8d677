//! Whether a fleet can keep what a policy promises.
//!
//! Counted is what is declared, every node healthy, without what others use there: what the engine divides on a good
//! day. A promise that does not fit then never does.

use std::collections::BTreeMap;

use wharf_engine::model::observed::ObservedNode;
use wharf_engine::model::policy::{Amount, Policy};
use wharf_engine::units::{GpuMask, GpuUnits, Resources};

use wharf_controller::world::NodeReport;

use super::super::super::fleet::Fleet;
use super::super::super::{nearest, text};
use super::super::quota::{Line, Placed};
use super::{Finding, Meter, Owed, Page, Severity, Words};

/// How many of the largest promises a fix names.
const LARGEST_SHOWN_MAX: usize = 3;

/// What a fleet has for tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    name: String,
    /// By model, in 1/3000 of a GPU.
    gpus: BTreeMap<String, u64>,
    cpu_milli: u64,
    memory: u64,
    others_use_some: bool,
}

/// What one node has.
#[derive(Clone, Copy, Debug)]
pub struct Stock<'a> {
    /// Model of its GPUs.
    pub model: &'a str,
    /// How many GPUs it has.
    pub gpus: usize,
    /// GPUs that others use.
    pub others_gpus: GpuMask,
    /// What it has beside GPUs.
    pub capacity: Resources,
    /// What others use of that.
    pub others: Resources,
}

impl Inventory {
    /// What the nodes of a fleet have.
    pub fn of(fleet: &Fleet) -> Self {
        Self::of_nodes(&fleet.name, &fleet.nodes)
    }

    /// What nodes that are declared have, of a fleet of that name.
    pub fn of_nodes(name: &str, nodes: &[NodeReport]) -> Self {
        Self::new(name, nodes.iter().map(|report| stock(&report.node)))
    }

    /// What these nodes have, of a fleet of that name.
    pub fn new<'a>(name: &str, nodes: impl Iterator<Item = Stock<'a>>) -> Self {
        let mut inventory = Self { name: name.to_owned(), ..Self::default() };
        for Stock { model, gpus, others_gpus, capacity, others } in nodes {
            let usable = (0..gpus).filter(|index| !others_gpus.contains(*index)).count();
            if gpus > 0 {
                let usable = u64::try_from(usable).expect("a node has at most 16 GPUs");
                let parts = usable * GpuUnits::WHOLE.parts();
                // Nodes are many and models few: a name is copied once.
                match inventory.gpus.get_mut(model) {
                    Some(known) => *known += parts,
                    None => drop(inventory.gpus.insert(model.to_owned(), parts)),
                }
            }
            let left = capacity.saturating_sub(others);
            inventory.cpu_milli += left.cpu_milli;
            inventory.memory += left.memory;
            inventory.others_use_some |= usable < gpus || left != capacity;
        }
        inventory
    }

    /// How many GPUs it has, by what a policy says they are worth.
    pub fn whole_gpus(&self, policy: &Policy) -> u64 {
        self.has(Meter::Gpus(None), policy) / GpuUnits::WHOLE.parts()
    }

    fn has(&self, meter: Meter<'_>, policy: &Policy) -> u64 {
        match meter {
            Meter::Gpus(Some(model)) => self.gpus.get(model).copied().unwrap_or_default(),
            Meter::Gpus(None) => {
                let worth = |(model, parts): (&String, &u64)| parts * u64::from(policy.normal_of(model));
                self.gpus.iter().map(worth).sum::<u64>() / 1000
            }
            Meter::Cpu => self.cpu_milli,
            Meter::Memory => self.memory,
        }
    }

    /// How `has` comes about, where that is not plain.
    fn basis(&self, meter: Meter<'_>, policy: &Policy) -> String {
        let by_worth =
            meter == Meter::Gpus(None) && self.gpus.keys().any(|model| policy.normal_of(model) != 1000);
        let part = |(model, parts): (&String, &u64)| {
            let worth = text::gpu_text(u64::from(policy.normal_of(model)) * 3);
            format!("{} {model} at {worth}", text::gpu_text(*parts))
        };
        let parts: Vec<String> = self.gpus.iter().map(part).collect();
        let worth = format!("; by the worth in pools.yaml it has {}", parts.join(", "));
        let others = "; what others use of it is not counted".to_owned();
        let said = [by_worth.then_some(worth), self.others_use_some.then_some(others)];
        said.into_iter().flatten().collect()
    }
}

fn stock(node: &ObservedNode) -> Stock<'_> {
    let ObservedNode { model, gpus, others_gpus, capacity, others, .. } = node;
    Stock { model, gpus: gpus.len(), others_gpus: *others_gpus, capacity: *capacity, others: *others }
}

/// What there is to say about a policy on a fleet.
pub(super) fn findings(page: &Page<'_>, capacity: &Inventory, policy: &Policy) -> Vec<Finding> {
    let mut findings = Vec::new();
    for meter in Meter::all(page.book) {
        match meter {
            Meter::Gpus(Some(model)) if !capacity.gpus.contains_key(model) => {
                findings.extend(missing_model(page, model, capacity));
            }
            Meter::Gpus(_) | Meter::Cpu | Meter::Memory => {
                findings.extend(sum(page, meter, capacity, policy));
            }
        }
    }
    findings
}

/// Promises in a model that the fleet does not have, and limits that therefore limit nobody.
fn missing_model(page: &Page<'_>, model: &str, capacity: &Inventory) -> Vec<Finding> {
    let meter = Meter::Gpus(Some(model));
    let models: Vec<&str> = capacity.gpus.keys().map(String::as_str).collect();
    let fix = |line: &Line, key: &str| match (nearest(model, &models), models.is_empty()) {
        (Some(near), _) => format!("write {near} for {model} in the {key} of {}", line.path),
        (None, true) => format!("take {model} out of the {key} of {}; the fleet has no GPUs", line.path),
        (None, false) => {
            format!("take {model} out of the {key} of {}; the fleet has {}", line.path, models.join(", "))
        }
    };
    let mut findings = Vec::new();
    for line in &page.book.lines {
        let pair = meter.pair(line);
        if let Some(Placed { amount: Amount::Of(promised @ 1..), at }) = pair.guaranteed {
            let what = format!(
                "{} is promised {}, the fleet {} has none",
                line.path,
                meter.amount(promised),
                capacity.name
            );
            let why =
                "a guarantee is always recoverable; one in a model that is not there never is".to_owned();
            let words = Words { what, why, fix: fix(line, "guarantee") };
            findings.push(page.finding(Severity::Error, at, words));
        }
        if let Some(Placed { amount: Amount::Of(_), at }) = pair.limit {
            let what = format!("{} has a limit in {model}, the fleet {} has none", line.path, capacity.name);
            let why = "a limit in a model that the fleet does not have has no effect".to_owned();
            findings.push(page.finding(Severity::Warning, at, Words { what, why, fix: fix(line, "limit") }));
        }
    }
    findings
}

/// Whether all promises of one resource fit together, and whether they leave anything.
fn sum(page: &Page<'_>, meter: Meter<'_>, capacity: &Inventory, policy: &Policy) -> Option<Finding> {
    let owed = Owed::of(page.book, meter);
    let has = capacity.has(meter, policy);
    let owners = top_promises(page, meter);
    let &(largest, _) = owners.iter().rev().max_by_key(|(_, own)| *own)?;
    let line = &page.book.lines[largest];
    let at = meter.pair(line).guaranteed.and_then(|placed| placed.at).or(line.at);
    if owed.total > has {
        let words = above_fleet(page, meter, &owners, (owed.total, has), capacity);
        let why = words.why + &capacity.basis(meter, policy);
        return Some(page.finding(Severity::Error, at, Words { why, ..words }));
    }
    let is_gpus = matches!(meter, Meter::Gpus(_));
    (is_gpus && owed.total == has && has > 0).then(|| {
        let what = format!("all {} of the fleet {} are promised", meter.amount(has), capacity.name);
        let why =
            "idle guarantees are lent, but while all tenants use theirs nothing is left to share by weight"
                .to_owned();
        let fix =
            "lower a guarantee if tenants should always share something; nothing to do if not".to_owned();
        page.finding(Severity::Note, at, Words { what, why, fix })
    })
}

/// Tenants with a promise of their own in a resource and nobody above who has one, with what they are promised.
fn top_promises(page: &Page<'_>, meter: Meter<'_>) -> Vec<(usize, u64)> {
    let mut covered = Vec::with_capacity(page.book.lines.len());
    let mut owners = Vec::new();
    for (index, line) in page.book.lines.iter().enumerate() {
        let is_below_one = line.parent.is_some_and(|parent| covered[parent]);
        let own = match meter.quota(line).guaranteed {
            Amount::Of(own) => Some(own),
            Amount::Unlimited => None,
        };
        owners.extend(own.filter(|own| *own > 0 && !is_below_one).map(|own| (index, own)));
        covered.push(is_below_one || own.is_some());
    }
    owners
}

fn above_fleet(
    page: &Page<'_>,
    meter: Meter<'_>,
    owners: &[(usize, u64)],
    (owed, has): (u64, u64),
    capacity: &Inventory,
) -> Words {
    let path = |index: usize| page.book.lines[index].path.as_str();
    let (promised, over) = (meter.amount(owed), owed - has);
    let (who, lower) = if let [(only, _)] = owners {
        let lower = format!("lower {}'s guarantee to {}", path(*only), meter.number(has));
        (format!("{} is promised {promised}", path(*only)), lower)
    } else {
        let mut by_size = owners.to_vec();
        by_size.sort_by_key(|&(_, own)| std::cmp::Reverse(own));
        let own = |&(index, own): &(usize, u64)| format!("{} {}", path(index), meter.number(own));
        let largest: Vec<String> = by_size.iter().take(LARGEST_SHOWN_MAX).map(own).collect();
        let (over, largest) = (meter.number(over), largest.join(", "));
        let lower = format!("lower guarantees by {over} together (the largest: {largest})");
        (format!("tenants are promised {promised} together"), lower)
    };
    Words {
        what: format!("{who}, the fleet {} has {}", capacity.name, meter.number(has)),
        why: "a guarantee is always recoverable; all of them at once have to fit the healthy fleet"
            .to_owned(),
        fix: format!("{lower}, or add {}", meter.amount(over)),
    }
}
