//! Jobs in the words of other systems: Kubernetes manifests, Slurm scripts, and keys of container files.
//!
//! A newcomer hands in what they have. A list of the keys that Wharf knows tells them nothing; the same job in Wharf's
//! words does. What can be read off is filled in, what cannot is left to the reader. Nothing here is ever
//! submitted: the suggestion is for a person to read and complete.

mod kubernetes;
mod slurm;

use super::super::tree::{Entry, Node, Value};
use super::super::{At, Fault};

/// Keys that say what a container runs, in the files of other systems.
const CONTAINER_KEYS: [&str; 12] = [
    "image",
    "command",
    "cmd",
    "args",
    "entrypoint",
    "script",
    "run",
    "container",
    "containers",
    "env",
    "environment",
    "workdir",
];
/// Keys under which other systems say how much a job takes.
const RESOURCE_KEYS: [&str; 4] = ["resources", "limits", "requests", "gres"];

/// A text that is no YAML and that we know all the same.
pub(super) fn script(text: &str) -> Option<Fault> {
    let first = text.lines().next().unwrap_or_default();
    if let Some(fault) = slurm::script(text) {
        return Some(fault);
    }
    let shell = first.starts_with("#!");
    shell.then(|| {
        let what =
            "this is a script; Wharf takes a job file, which says what a job needs and not what it runs";
        Fault::new(Some(At { line: 1, column: 1 }), what).instead(Job::default().text())
    })
}

/// A document that somebody wrote for another system.
pub(super) fn document(root: &Node) -> Option<Fault> {
    let Value::Map(entries) = &root.value else { return None };
    kubernetes::manifest(entries).or_else(|| container_key(entries)).or_else(|| resource_key(entries))
}

/// A manifest of more than one document is not read further than to its second.
pub(super) fn first_of_many(text: &str) -> Option<&str> {
    let is_manifest = text.lines().any(|line| line.starts_with("apiVersion:"));
    let first = text.trim_start_matches("---").split("\n---").next()?;
    is_manifest.then_some(first)
}

fn container_key(entries: &[Entry]) -> Option<Fault> {
    let found = entries.iter().find(|entry| CONTAINER_KEYS.contains(&entry.key.as_str()))?;
    let what = format!(
        "{} says what a container runs; a Wharf job says what it needs, and this version runs no containers",
        found.key
    );
    let fault = Fault::new(found.at, what);
    Some(fault.instead(
        "simulate: {duration: 30m} for what a simulated fleet pretends, or payload: TEXT for text that the world is given",
    ))
}

fn resource_key(entries: &[Entry]) -> Option<Fault> {
    let found = entries.iter().find(|entry| RESOURCE_KEYS.contains(&entry.key.as_str()))?;
    let mut job = Job::default();
    kubernetes::resources(&found.node, &mut job);
    let what =
        format!("{} is no key of a job file: GPUs, cores and memory are keys of the job itself", found.key);
    Some(Fault::new(found.at, what).instead(job.resources()))
}

/// A job as far as it could be read off; values are in the words of a job file.
#[derive(Debug, Default)]
struct Job {
    name: Option<String>,
    tenant: Option<String>,
    tasks: Option<u64>,
    gpus: Option<u64>,
    model: Option<String>,
    cpu: Option<String>,
    memory: Option<String>,
    limit: Option<String>,
}

impl Job {
    /// The whole job on one line; what nobody knows is in capitals.
    fn text(&self) -> String {
        let name = self.name.as_deref().unwrap_or("NAME");
        let tenant = self.tenant.as_deref().unwrap_or("TENANT");
        let tasks = self.tasks.filter(|&tasks| tasks != 1).map(|tasks| format!("tasks: {tasks}"));
        let limit = self.limit.as_ref().map(|limit| format!("time: {{limit: {limit}}}"));
        let first = [Some(format!("name: {name}")), Some(format!("tenant: {tenant}")), tasks];
        let parts: Vec<String> = first.into_iter().flatten().chain([self.resources()]).chain(limit).collect();
        format!("{{{}}}", parts.join(", "))
    }

    /// What one task takes.
    fn resources(&self) -> String {
        let gpus = format!("gpus: {}", self.gpus.unwrap_or(1));
        let model = self.model.as_ref().map(|model| format!("gpu: {{model: {model}}}"));
        let cpu = self.cpu.as_ref().map(|cpu| format!("cpu: {cpu}"));
        let memory = self.memory.as_ref().map(|memory| format!("memory: {memory}"));
        [Some(gpus), model, cpu, memory].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// A word of another system as a name of ours, where it can be one.
fn name(text: &str) -> Option<String> {
    let lower: String =
        text.trim().to_lowercase().chars().map(|c| if matches!(c, '_' | ' ') { '-' } else { c }).collect();
    super::text::is_name(&lower, super::NAME_MAX).then_some(lower)
}

#[cfg(test)]
mod tests;
