//! `groups`: parts of a job, each with its own number of tasks, its own minimum and its own shape.

use wharf_controller::selectors::NodeSelector;
use wharf_engine::model::group::{GROUPS_MAX, Group};
use wharf_engine::model::job::TASKS_MAX;
use wharf_engine::model::submission::GroupSelectors;

use super::super::Fault;
use super::super::field::{Field, Map, NAME_MAX};
use super::asks::{TaskFile, gpus, nodes, task};
use super::{least, optional};

/// Every key of a group, in the order in which it is best written.
const KEYS: &[&str] = &[
    "name",
    "tasks",
    "min",
    "copies",
    "min_copies",
    "gpus",
    "slice",
    "gpu_memory",
    "time_slicing",
    "gpu",
    "any_of",
    "cpu",
    "memory",
    "storage",
    "nics",
    "nodes",
];
/// Keys of a job that each group says for itself.
const OF_GROUPS: &[&str] = &[
    "tasks",
    "min",
    "service",
    "gpus",
    "slice",
    "gpu_memory",
    "time_slicing",
    "gpu",
    "any_of",
    "cpu",
    "memory",
    "storage",
    "nics",
];
const EXAMPLE: &str = "groups: [{name: head, gpus: 0}, {name: worker, tasks: 4, gpus: 8}]";

/// A part of a job, checked and complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupFile {
    /// Unique in the job.
    pub name: String,
    /// Wanted tasks of one copy.
    pub tasks: u32,
    /// So many tasks, or the copy has none.
    pub min: u32,
    /// Wanted copies.
    pub copies: u32,
    /// So many copies, or the job has none.
    pub min_copies: u32,
    /// What each task asks for.
    pub asks: TaskFile,
}

/// The groups of a job, in order; none where its tasks are alike.
pub(super) fn groups(keys: &Map<'_>) -> Result<Vec<GroupFile>, Fault> {
    let Some(field) = keys.get("groups")? else { return Ok(Vec::new()) };
    for &other in OF_GROUPS {
        if let Some(other) = keys.get(other)? {
            let what = "stands beside groups, which say that each for themselves";
            return Err(other.fault(what).allowed(EXAMPLE));
        }
    }
    let items = field.one_or_more()?;
    if items.len() > GROUPS_MAX {
        let allowed = format!("at most {GROUPS_MAX} groups; replicas that are alike are copies of one group");
        return Err(field.fault(&format!("has {} entries", items.len())).allowed(allowed));
    }
    let mut groups: Vec<GroupFile> = Vec::new();
    for item in &items {
        let group = group(item)?;
        if groups.iter().any(|other| other.name == group.name) {
            let what = format!("has two groups called {}", group.name);
            return Err(field.fault(&what).allowed("a name of its own for each group"));
        }
        groups.push(group);
    }
    let tasks =
        groups.iter().map(|group| group.tasks.saturating_mul(group.copies)).fold(0, u32::saturating_add);
    if tasks > TASKS_MAX {
        let what = format!("ask for {tasks} tasks in all");
        return Err(field.fault(&what).allowed(format!("at most {TASKS_MAX}")));
    }
    Ok(groups)
}

fn group(field: &Field<'_>) -> Result<GroupFile, Fault> {
    let keys = field.map(KEYS)?;
    let name = keys.need("name", "- {name: worker, tasks: 4, gpus: 8}")?.name(NAME_MAX)?;
    let tasks = optional(&keys, "tasks", |field| field.whole(1..=TASKS_MAX))?.unwrap_or(1);
    let min = optional(&keys, "min", |field| least(&field, "tasks", tasks))?.unwrap_or(tasks);
    let copies = optional(&keys, "copies", |field| field.whole(1..=TASKS_MAX))?.unwrap_or(1);
    let min_copies =
        optional(&keys, "min_copies", |field| least(&field, "copies", copies))?.unwrap_or(copies);
    let asks = task(&keys, gpus(&keys)?)?;
    let asks = TaskFile { nodes: optional(&keys, "nodes", |field| nodes(&field))?, ..asks };
    if asks.is_nothing() {
        let what = "asks for nothing: gpus, cpu, memory, storage and nics are all 0";
        return Err(field.fault(what).allowed("at least one of them above 0"));
    }
    Ok(GroupFile { name, tasks, min, copies, min_copies, asks })
}

impl GroupFile {
    pub(super) fn group(&self) -> Group {
        let Self { name, tasks, min, copies, min_copies, asks } = self;
        let (tasks, min, copies, min_copies) = (*tasks, *min, *copies, *min_copies);
        Group { name: name.clone(), tasks, min, copies, min_copies, shape: asks.shape() }
    }

    pub(super) fn selectors(&self, of_job: &NodeSelector) -> GroupSelectors {
        GroupSelectors {
            nodes: self.asks.nodes.as_ref().unwrap_or(of_job).source(),
            devices: self.asks.devices.source(),
            any_of_devices: self.asks.any_of.iter().map(|other| other.devices.source()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use wharf_engine::units::Uid;

    use super::super::{JobFile, parse_job};
    use wharf_engine::model::job::GpuAsk;

    use super::super::asks::CPU_MILLI_DEFAULT;

    const RL: &str = "\
name: rl
tenant: lab
groups:
  - {name: head, gpus: 0, cpu: 8, memory: 32GiB, nodes: {labels: {role: head}}}
  - {name: worker, tasks: 4, min: 3, gpus: 8, gpu: {model: h100}, copies: 8, min_copies: 6}
nodes: {labels: {zone: east}}
topology: {task: island, gang: leaf}
";

    fn parsed(text: &str) -> JobFile {
        parse_job("job.yaml", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    fn error(rest: &str) -> String {
        match parse_job("job.yaml", &format!("name: a\ntenant: lab\n{rest}\n")) {
            Ok(job) => panic!("read as {job:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn groups_arrive_with_what_follows_from_them() {
        let submission = parsed(RL).submission(Uid(1));
        let spec = &submission.spec;
        assert_eq!((spec.tasks, spec.min), (33, 19), "1 and 8 times 4; 1 and 6 times 3");
        assert_eq!(spec.shape.gpus, GpuAsk::Whole(8));
        assert_eq!(spec.groups[0].shape.resources.cpu_milli, 8000);
        assert_eq!(spec.groups[1].shape.resources.cpu_milli, CPU_MILLI_DEFAULT);
        assert!(submission.groups[0].nodes.contains("head"), "{:?}", submission.groups);
        assert!(submission.groups[1].nodes.contains("east"), "those of the job: {:?}", submission.groups);
        assert!(submission.groups[1].devices.contains("h100"), "{:?}", submission.groups);
    }

    #[test]
    fn groups_survive_the_wire() {
        let job = parsed(RL);
        let written = serde_json::to_string(&job).unwrap();
        assert_eq!(parse_job("body", &written).unwrap(), job, "{written}");
    }

    #[test]
    fn what_groups_cannot_say_is_refused_with_what_they_can() {
        let starts = |rest: &str, start: &str| {
            let told = error(rest);
            assert!(told.starts_with(start), "{told}");
        };
        let one = "groups: [{name: w}]";
        starts(&format!("{one}\ngpus: 8"), "job.yaml:4: gpus stands beside groups");
        starts(&format!("{one}\nservice: {{max: 2}}"), "job.yaml:4: service stands beside groups");
        starts("groups: [{name: w}, {name: w}]", "job.yaml:3: groups has two groups called w");
        starts("groups: [{name: w, min: 2}]", "job.yaml:3: groups[0].min is 2, more than tasks, which is 1");
        starts(
            "groups: [{name: w, copies: 2, min_copies: 3}]",
            "job.yaml:3: groups[0].min_copies is 3, more than copies, which is 2",
        );
        starts("groups: [{name: w, gpus: 0, cpu: 0}]", "job.yaml:3: groups[0] asks for nothing");
        starts(
            "groups: [{name: w, copie: 2}]",
            "job.yaml:3: unknown key \"copie\" in groups[0]; did you mean \"copies\"?",
        );
        starts("groups: [{tasks: 2}]", "job.yaml:3: the key \"name\" is missing in groups[0]");
        starts(
            "groups: [{name: w, tasks: 9000, copies: 2}]",
            "job.yaml:3: groups ask for 18000 tasks in all",
        );
        starts(
            "groups: [{name: w, gpus: 0.5}]\ntopology: {task: island}",
            "job.yaml:4: topology.task is island",
        );
        starts(
            "groups: [{name: w, gpus: 0}]\ntopology: {task: island}",
            "job.yaml:4: topology.task is island",
        );
        starts("groups: []", "job.yaml:3: groups");
    }
}
