//! Kubernetes manifests: which kind it is, and what its containers ask for.

use super::super::super::Fault;
use super::super::super::tree::{Entry, Node, Value};
use super::super::text;
use super::{Job, name};

/// How deep a manifest is searched; a pod template inside a custom resource has about ten levels.
const DEPTH_MAX: usize = 24;

/// A manifest, recognised by what every manifest begins with.
pub(super) fn manifest(entries: &[Entry]) -> Option<Fault> {
    let version = entry(entries, "apiVersion");
    let kind = entry(entries, "kind");
    let first = version.or(kind)?;
    let kind = kind.and_then(|entry| scalar(&entry.node)).map_or_else(String::new, |kind| format!("{kind} "));
    let mut job = Job::default();
    read(entries, &mut job, DEPTH_MAX);
    let what = format!("this is a Kubernetes {kind}manifest; Wharf takes a job file of its own");
    Some(Fault::new(first.at, what).instead(job.text()))
}

/// What a map of resources, limits or requests asks for.
pub(super) fn resources(node: &Node, job: &mut Job) {
    let Value::Map(entries) = &node.value else { return };
    read(entries, job, DEPTH_MAX);
}

fn read(entries: &[Entry], job: &mut Job, depth: usize) {
    for Entry { key, node, .. } in entries {
        let value = scalar(node);
        match (key.as_str(), value) {
            ("metadata", _) => read_metadata(node, job),
            ("replicas" | "parallelism", Some(count)) => job.tasks = job.tasks.or_else(|| text::whole(count)),
            ("activeDeadlineSeconds", Some(seconds)) => {
                let millis = text::whole(seconds).and_then(|seconds| seconds.checked_mul(1000));
                job.limit = millis.map(text::duration_text);
            }
            ("nvidia.com/gpu" | "gpu" | "gpus", Some(count)) => {
                job.gpus = job.gpus.or_else(|| text::whole(count));
            }
            ("cpu", Some(cores)) if text::cores(cores).is_some() => {
                job.cpu.get_or_insert_with(|| cores.to_owned());
            }
            ("memory", Some(size)) if text::size(size).is_some() => {
                job.memory.get_or_insert_with(|| size.to_owned());
            }
            (_, _) => below(node, job, depth),
        }
    }
}

fn below(node: &Node, job: &mut Job, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match &node.value {
        Value::Map(entries) => read(entries, job, depth),
        Value::List(items) => items.iter().for_each(|item| below(item, job, depth)),
        Value::Null | Value::Scalar(_) => {}
    }
}

fn read_metadata(node: &Node, job: &mut Job) {
    let Value::Map(entries) = &node.value else { return };
    let found = entry(entries, "name").and_then(|entry| scalar(&entry.node));
    if job.name.is_none() {
        job.name = found.and_then(name);
    }
}

fn entry<'a>(entries: &'a [Entry], key: &str) -> Option<&'a Entry> {
    entries.iter().find(|entry| entry.key == key)
}

fn scalar(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar(text) => Some(text),
        Value::Null | Value::List(_) | Value::Map(_) => None,
    }
}
