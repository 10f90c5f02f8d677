//! `quota lab 16 { vision 8 limit 16 weight 2, nlp 8 }`

use wharf_engine::model::policy::{Amount, GpuQuota, Policy, Quota, Tenant};
use wharf_engine::units::GpuUnits;

use super::super::measure::bytes;
use super::super::{Ask, Step};
use super::Reader;
use super::fleet::cores;
use super::words::{Words, unknown};

const OPTIONS: [&str; 9] = [
    "limit N",
    "limit unlimited",
    "weight N",
    "priority N",
    "cpu [limit] N",
    "memory [limit] NGiB",
    "{",
    "}",
    ",",
];

impl Reader {
    pub(super) fn quota(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        let mut tenants = Vec::new();
        siblings(words, "", &mut tenants)?;
        words.end()?;
        if self.scenario.steps.is_empty() && !self.policy.tenants.is_empty() {
            return Err(
                "a second `quota` changes the policy; put `plan` or another step before it".to_owned()
            );
        }
        self.policy.tenants = tenants;
        Ok(())
    }

    /// A step once the story has begun; before that it is how things are.
    pub(super) fn policy_step(&mut self) -> Option<Step> {
        let Policy { tenants, gangs, preemption, sharing, orders, .. } = &self.policy;
        self.policy.digest = format!("{tenants:?} {gangs:?} {preemption:?} {sharing:?} {orders:?}");
        if self.scenario.steps.is_empty() {
            self.scenario.policy = self.policy.clone();
            return None;
        }
        Some(Step::Ask(Ask::Quota(Box::new(self.policy.clone()))))
    }

    /// The path that a name stands for: the whole path, or its last part where that is clear.
    pub(super) fn tenant(&self, name: &str) -> Result<String, String> {
        let ends_so = |path: &&str| path.rsplit('/').next() == Some(name);
        let paths: Vec<&str> = self.policy.tenants.iter().map(|tenant| tenant.path.as_str()).collect();
        let matching: Vec<&str> = match paths.iter().find(|path| **path == name) {
            Some(exact) => vec![exact],
            None => paths.iter().copied().filter(ends_so).collect(),
        };
        match matching[..] {
            [path] => Ok(path.to_owned()),
            [] => Err(unknown("no tenant is called", name, &paths)),
            _ => Err(format!("`{name}` may be {matching:?}; write the whole path")),
        }
    }
}

fn siblings(words: &mut Words<'_>, above: &str, tenants: &mut Vec<Tenant>) -> Result<(), String> {
    loop {
        one(words, above, tenants)?;
        if !words.take(",") {
            return Ok(());
        }
    }
}

fn one(words: &mut Words<'_>, above: &str, tenants: &mut Vec<Tenant>) -> Result<(), String> {
    let name = words.need("the name of a tenant")?;
    if name.chars().any(|c| !c.is_alphanumeric() && c != '-') || name.parse::<u32>().is_ok() {
        return Err(format!("`{name}` is no name of a tenant; write it like `lab 8 {{ vision 4, nlp 4 }}`"));
    }
    let path = if above.is_empty() { name.to_owned() } else { format!("{above}/{name}") };
    let mut tenant = Tenant::without_lines(&path);
    let guaranteed = amount(words, "how many GPUs it is guaranteed, or `unlimited`")?;
    let mut limit = Amount::Unlimited;
    while let Some(word) = words.peek().filter(|word| !["{", "}", ","].contains(word)) {
        words.next();
        match word {
            "limit" => limit = amount(words, "how many GPUs it may have, or `unlimited`")?,
            "weight" => tenant.weight = words.number("a weight, like 2")?,
            "priority" => tenant.priority = words.number("a priority, like 1")?,
            "cpu" => beside(words, &mut tenant.cpu, |word| cores(word.parse().ok()?).ok())?,
            "memory" => beside(words, &mut tenant.memory, bytes)?,
            other => return Err(unknown("a tenant has no", other, &OPTIONS)),
        }
    }
    tenant.gpus = GpuQuota::Any(Quota { guaranteed, limit });
    tenants.push(tenant);
    if words.take("{") {
        siblings(words, &path, tenants)?;
        words.expect("}")?;
    }
    Ok(())
}

/// `cpu 64`, `cpu limit 96`, `memory 512GiB`, `memory limit 1TiB`.
fn beside(
    words: &mut Words<'_>,
    quota: &mut Quota,
    read: impl Fn(&str) -> Option<u64>,
) -> Result<(), String> {
    let line = if words.take("limit") { &mut quota.limit } else { &mut quota.guaranteed };
    let word = words.need("an amount, like `cpu 64` or `memory 512GiB`")?;
    let amount =
        read(word).ok_or_else(|| format!("`{word}` is no amount; write `cpu 64` or `memory 512GiB`"))?;
    *line = Amount::Of(amount);
    Ok(())
}

fn amount(words: &mut Words<'_>, what: &str) -> Result<Amount, String> {
    if words.take("unlimited") {
        return Ok(Amount::Unlimited);
    }
    Ok(Amount::Of(GpuUnits::whole(words.number(what)?).parts()))
}
