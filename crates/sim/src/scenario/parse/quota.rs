//! `quota lab 16 { vision 8 limit 16 weight 2, nlp 8 }`

use wharf_engine::policy::{Amount, GpuQuota, Policy, Quota, Tenant};
use wharf_engine::units::GpuUnits;

use super::super::{Ask, Step};
use super::Reader;
use super::words::{Words, unknown};

const OPTIONS: [&str; 7] = ["limit N", "limit unlimited", "weight N", "priority N", "{", "}", ","];

impl Reader {
    /// A step once the story has begun; before that it is how things are.
    pub(super) fn quota(&mut self, words: &mut Words<'_>) -> Result<Option<Step>, String> {
        let mut tenants = Vec::new();
        siblings(words, "", &mut tenants)?;
        words.end()?;
        self.tenants = tenants.iter().map(|tenant| tenant.path.clone()).collect();
        let digest = format!("{tenants:?}");
        let policy = Policy { digest, tenants, ..Policy::default() };
        if self.scenario.steps.is_empty() {
            if !self.scenario.policy.tenants.is_empty() {
                return Err(
                    "a second `quota` changes the policy; put `plan` or another step before it".to_owned()
                );
            }
            self.scenario.policy = policy;
            return Ok(None);
        }
        Ok(Some(Step::Ask(Ask::Quota(policy))))
    }

    /// The path that a name stands for: the whole path, or its last part where that is clear.
    pub(super) fn tenant(&self, name: &str) -> Result<String, String> {
        let ends_so = |path: &&String| path.rsplit('/').next() == Some(name);
        let matching: Vec<&String> = match self.tenants.iter().find(|path| *path == name) {
            Some(exact) => vec![exact],
            None => self.tenants.iter().filter(ends_so).collect(),
        };
        let paths: Vec<&str> = self.tenants.iter().map(String::as_str).collect();
        match matching[..] {
            [path] => Ok(path.clone()),
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
    let guaranteed = amount(words, "how many GPUs it is guaranteed, or `unlimited`")?;
    let (mut limit, mut weight, mut priority) = (Amount::Unlimited, 1, 0);
    while let Some(word) = words.peek().filter(|word| !["{", "}", ","].contains(word)) {
        words.next();
        match word {
            "limit" => limit = amount(words, "how many GPUs it may have, or `unlimited`")?,
            "weight" => weight = words.number("a weight, like 2")?,
            "priority" => priority = words.number("a priority, like 1")?,
            other => return Err(unknown("a tenant has no", other, &OPTIONS)),
        }
    }
    let gpus = GpuQuota::Any(Quota { guaranteed, limit });
    let (cpu, memory) = (Quota::UNMETERED, Quota::UNMETERED);
    tenants.push(Tenant { path: path.clone(), gpus, cpu, memory, weight, priority });
    if words.take("{") {
        siblings(words, &path, tenants)?;
        words.expect("}")?;
    }
    Ok(())
}

fn amount(words: &mut Words<'_>, what: &str) -> Result<Amount, String> {
    if words.take("unlimited") {
        return Ok(Amount::Unlimited);
    }
    Ok(Amount::Of(GpuUnits::whole(words.number(what)?).parts()))
}
