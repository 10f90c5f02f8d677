//! A job as a document: the body of `POST /v1/jobs`, which the server reads as it reads a file.

use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use wharf_engine::model::job::{Checkpoint, GpuAsk};
use wharf_engine::units::Millis;

use super::super::text;
use super::chain::{AfterJob, array_text};
use super::{Devices, GroupFile, JobFile, Other, Simulate, TaskFile, Work};

impl Serialize for JobFile {
    /// As a document that [`super::parse_job`] reads back as the same job.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut document = json!({
            "name": self.name,
            "tenant": self.tenant,
            "class": self.class.into_str(),
            "priority": self.priority,
            "nodes": self.nodes,
            "preemptible": self.preemptible,
            "retries": self.retries,
            "labels": self.labels,
        });
        let of_tasks = if self.groups.is_empty() { self.tasks_json() } else { self.groups_json() };
        for (key, value) in self.optional_json().into_iter().chain(of_tasks) {
            document[key] = value;
        }
        document.serialize(serializer)
    }
}

impl JobFile {
    /// The keys that are left out where they say nothing.
    fn optional_json(&self) -> Vec<(&'static str, Json)> {
        let span = |millis: Millis| Json::from(text::duration_text(millis.0));
        let island = self.task_on_island.then(|| json!("island"));
        let work = match &self.work {
            Work::Payload(text) => (!text.is_empty()).then(|| ("payload", json!(text))),
            Work::Simulate(wish) => Some(("simulate", simulate_json(wish))),
        };
        let maps = [
            ("topology", present([("task", island), ("gang", self.gang_within.clone().map(Json::from))])),
            ("time", present([("limit", self.time_limit.map(span)), ("estimate", self.estimate.map(span))])),
        ];
        let contract = |contract: Checkpoint| {
            let (every, grace) = (Some(span(contract.every)), Some(span(contract.grace)));
            let on_request = contract.on_request.then_some(Json::Bool(true));
            present([("every", every), ("grace", grace), ("on_request", on_request)])
        };
        let single = [
            self.checkpoint.and_then(|saves| Some(("checkpoint", contract(saves)?))),
            self.booking.clone().map(|booking| ("booking", Json::from(booking))),
            self.trust.clone().map(|trust| ("trust", Json::from(trust))),
            (!self.after.is_empty()).then(|| {
                let after: Vec<String> = self.after.iter().map(AfterJob::text).collect();
                ("after", json!(after))
            }),
            self.array.as_ref().map(|array| ("array", Json::from(array_text(array)))),
            work,
        ];
        let maps = maps.into_iter().filter_map(|(key, map)| Some((key, map?)));
        maps.chain(single.into_iter().flatten()).collect()
    }
}

impl JobFile {
    /// What a job says whose tasks are alike.
    fn tasks_json(&self) -> Vec<(&'static str, Json)> {
        let service =
            self.service_max.map(|max| json!({"min": self.min, "max": max, "replicas": self.tasks}));
        let plain = |count: u32| service.is_none().then(|| json!(count));
        let counts = [("tasks", plain(self.tasks)), ("min", plain(self.min)), ("service", service.clone())];
        let mut keys: Vec<(&'static str, Json)> =
            counts.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        keys.extend(task_json(&self.asks));
        keys
    }

    fn groups_json(&self) -> Vec<(&'static str, Json)> {
        let groups: Vec<Json> = self.groups.iter().map(group_json).collect();
        vec![("groups", json!(groups))]
    }
}

fn group_json(group: &GroupFile) -> Json {
    let GroupFile { name, tasks, min, copies, min_copies, asks } = group;
    let mut document =
        json!({"name": name, "tasks": tasks, "min": min, "copies": copies, "min_copies": min_copies});
    for (key, value) in task_json(asks) {
        document[key] = value;
    }
    document
}

/// What one task asks for.
fn task_json(asks: &TaskFile) -> Vec<(&'static str, Json)> {
    let TaskFile { gpus, devices, any_of, time_slicing, cpu_milli, memory, storage, nics, nodes } = asks;
    let any_of: Vec<Json> = any_of.iter().map(other_json).collect();
    let given = [
        Some(gpus_json(*gpus)),
        devices_json(devices).map(|devices| ("gpu", devices)),
        time_slicing.then_some(("time_slicing", Json::Bool(true))),
        (!any_of.is_empty()).then(|| ("any_of", json!(any_of))),
        Some(("cpu", json!(format!("{cpu_milli}m")))),
        Some(("memory", json!(memory))),
        Some(("storage", json!(storage))),
        Some(("nics", json!(nics))),
        nodes.as_ref().map(|nodes| ("nodes", json!(nodes))),
    ];
    given.into_iter().flatten().collect()
}

/// A map of what is there; `None` where nothing is.
fn present<const N: usize>(fields: [(&str, Option<Json>); N]) -> Option<Json> {
    let there = fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    let map: serde_json::Map<String, Json> = there.collect();
    (!map.is_empty()).then_some(Json::Object(map))
}

fn devices_json(devices: &Devices) -> Option<Json> {
    let models = (!devices.models.is_empty()).then(|| json!(devices.models));
    present([("model", models), ("memory", devices.memory.map(Json::from))])
}

fn gpus_json(gpus: GpuAsk) -> (&'static str, Json) {
    match gpus {
        GpuAsk::Whole(count) => ("gpus", json!(count)),
        GpuAsk::Share(units) => ("gpus", json!(text::gpu_text(units.parts()))),
        GpuAsk::Slice(name) => ("slice", json!(name.to_string())),
        GpuAsk::AtLeast(least) => {
            let memory = (least.memory_mib > 0).then(|| json!(u64::from(least.memory_mib) << 20));
            let compute =
                (least.compute > 0).then(|| json!(format!("{}/{}", least.compute, least.compute_of)));
            ("slice", present([("memory", memory), ("compute", compute)]).unwrap_or_default())
        }
    }
}

fn other_json(other: &Other) -> Json {
    let (key, gpus) = gpus_json(other.gpus);
    present([(key, Some(gpus)), ("gpu", devices_json(&other.devices))]).unwrap_or_default()
}

fn simulate_json(wish: &Simulate) -> Json {
    let Simulate { duration, sm_active_milli, fail_after, checkpoint, memory_mib } = wish;
    let span = |millis: &Millis| Json::from(text::duration_text(millis.0));
    let fields = [
        ("duration", duration.as_ref().map(span)),
        ("sm_active", sm_active_milli.map(|milli| json!(format!("{}.{:03}", milli / 1000, milli % 1000)))),
        ("fail_after", fail_after.as_ref().map(span)),
        ("checkpoint", checkpoint.map(|saves| json!(saves))),
        ("memory", memory_mib.map(|mib| json!(u64::from(mib) << 20))),
    ];
    present(fields).unwrap_or_else(|| json!({}))
}
