//! A job from command-line flags: the same keys as a file, read by the same code.

use super::{JobFile, entry, job, map, scalar};
use crate::file::tree::{Entry, Node, Value};
use crate::file::{Fault, FileError};

/// A small job from command-line flags; what is absent has the default of the file.
#[derive(Clone, Debug, Default)]
pub struct JobFlags {
    /// `--name`.
    pub name: Option<String>,
    /// `--tenant`.
    pub tenant: Option<String>,
    /// `--class`.
    pub class: Option<String>,
    /// `--priority`.
    pub priority: Option<String>,
    /// `--tasks`.
    pub tasks: Option<String>,
    /// `--min`.
    pub min: Option<String>,
    /// `--gpus`.
    pub gpus: Option<String>,
    /// `--slice`.
    pub slice: Option<String>,
    /// `--cpu`.
    pub cpu: Option<String>,
    /// `--memory`.
    pub memory: Option<String>,
    /// `--model`.
    pub model: Option<String>,
    /// `--booking`.
    pub booking: Option<String>,
    /// `--limit`.
    pub limit: Option<String>,
    /// `--estimate`.
    pub estimate: Option<String>,
    /// `--checkpoint`: `EVERY` or `EVERY,GRACE`.
    pub checkpoint: Option<String>,
    /// `--retries`.
    pub retries: Option<String>,
    /// `--label`, each `KEY=VALUE`.
    pub labels: Vec<String>,
    /// `--after`, each `JOB` or `JOB:ok|any`.
    pub after: Vec<String>,
    /// `--array`.
    pub array: Option<String>,
    /// `--duration`, for a simulated world.
    pub duration: Option<String>,
}

/// How long saving takes where only the interval is given.
const GRACE_DEFAULT: &str = "1m";

impl JobFlags {
    /// The flags that say something about the job.
    pub fn given(&self) -> Vec<&'static str> {
        let one = |flag: &'static str, value: &Option<String>| value.is_some().then_some(flag);
        let several = |flag: &'static str, values: &[String]| (!values.is_empty()).then_some(flag);
        let given = [
            one("--name", &self.name),
            one("--tenant", &self.tenant),
            one("--class", &self.class),
            one("--priority", &self.priority),
            one("--tasks", &self.tasks),
            one("--min", &self.min),
            one("--gpus", &self.gpus),
            one("--slice", &self.slice),
            one("--cpu", &self.cpu),
            one("--memory", &self.memory),
            one("--model", &self.model),
            one("--booking", &self.booking),
            one("--limit", &self.limit),
            one("--estimate", &self.estimate),
            one("--checkpoint", &self.checkpoint),
            one("--retries", &self.retries),
            several("--label", &self.labels),
            several("--after", &self.after),
            one("--array", &self.array),
            one("--duration", &self.duration),
        ];
        given.into_iter().flatten().collect()
    }

    /// The job, read by the same code as a file.
    pub fn job(self) -> Result<JobFile, FileError> {
        let nested = |pairs: Vec<(&str, Option<String>)>| {
            let entries: Vec<Entry> =
                pairs.into_iter().filter_map(|(key, value)| Some(entry(key, scalar(value?)))).collect();
            (!entries.is_empty()).then(|| map(entries))
        };
        let list = |items: Vec<String>| {
            let items: Vec<Node> = items.into_iter().map(scalar).collect();
            (!items.is_empty()).then_some(Node { at: None, value: Value::List(items) })
        };
        let checkpoint =
            self.checkpoint.as_deref().map(|text| text.split_once(',').unwrap_or((text, GRACE_DEFAULT)));
        let (every, grace) = checkpoint.unzip();
        let labels = labels(&self.labels).map_err(|fault| fault.in_file("command line"))?;
        let labels = labels.iter().map(|&(key, value)| (key, Some(value.to_owned()))).collect();
        let fields = [
            ("name", self.name.map(scalar)),
            ("tenant", self.tenant.map(scalar)),
            ("class", self.class.map(scalar)),
            ("priority", self.priority.map(scalar)),
            ("tasks", self.tasks.map(scalar)),
            ("min", self.min.map(scalar)),
            ("gpus", self.gpus.map(scalar)),
            ("slice", self.slice.map(scalar)),
            ("cpu", self.cpu.map(scalar)),
            ("memory", self.memory.map(scalar)),
            ("gpu", nested(vec![("model", self.model)])),
            ("booking", self.booking.map(scalar)),
            ("time", nested(vec![("limit", self.limit), ("estimate", self.estimate)])),
            (
                "checkpoint",
                nested(vec![("every", every.map(str::to_owned)), ("grace", grace.map(str::to_owned))]),
            ),
            ("retries", self.retries.map(scalar)),
            ("labels", nested(labels)),
            ("after", list(self.after)),
            ("array", self.array.map(scalar)),
            ("simulate", nested(vec![("duration", self.duration)])),
        ];
        let given = fields.into_iter().filter_map(|(key, node)| Some(entry(key, node?)));
        job(&map(given.collect())).map_err(|fault| fault.in_file("command line"))
    }
}

/// Labels as keys and values, each key once.
fn labels(written: &[String]) -> Result<Vec<(&str, &str)>, Fault> {
    let mut labels: Vec<(&str, &str)> = Vec::new();
    for label in written {
        let fault = |what: &str| Fault::new(None, format!("--label {label} {what}"));
        let (key, value) = label
            .split_once('=')
            .ok_or_else(|| fault("has no value").instead(format!("--label {label}=VALUE")))?;
        if key.is_empty() {
            return Err(fault("has no key").instead(format!("--label KEY={value}")));
        }
        if let Some((_, before)) = labels.iter().find(|(known, _)| *known == key) {
            let what = format!("cannot be given together with --label {key}={before}");
            return Err(fault(&what).allowed("one value of each key"));
        }
        labels.push((key, value));
    }
    Ok(labels)
}
