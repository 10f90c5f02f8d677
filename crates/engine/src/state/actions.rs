//! What the world must do now: always derived from state, so after a restart the same actions are due again.

use crate::device::catalogue;
use crate::model::action::{Action, Notice, StartTask};
use crate::model::job::Shape;
use crate::model::observed::TaskRef;
use crate::model::placement::Placement;
use crate::model::submission::{GroupSelectors, Submission};
use crate::state::State;
use crate::state::holding::{HeldTask, TaskPhase};
use crate::state::jobs::event::Next;
use crate::state::jobs::{Job, Phase};
use crate::units::{GpuUnits, LevelId, Timestamp};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

impl State {
    /// Everything the world must do now.
    pub fn actions_due(&self) -> Vec<Action> {
        let mut due = Vec::new();
        for &id in self.ledger.unsettled() {
            let job = self.jobs.get(id).expect("what is held belongs to a live job");
            let holding = self.ledger.holding(id).expect("an unsettled job holds something");
            self.add_start(job, holding.attempt, &holding.tasks, &mut due);
            if let Some(deadline) = holding.asked_until() {
                let asked = holding.tasks.iter().filter(|task| matches!(task.phase, TaskPhase::Asked { .. }));
                let tasks = asked.map(|task| task.place.task).collect();
                due.push(Action::AskCheckpoint { uid: job.uid, attempt: holding.attempt, tasks, deadline });
            }
            let stopping = holding.tasks.iter().filter_map(|task| match task.phase {
                TaskPhase::Stopping { deadline } => Some((deadline, task.place.task)),
                _ => None,
            });
            if let Some(deadline) = stopping.clone().map(|(deadline, _)| deadline).min() {
                let task_ref = |(_, task)| TaskRef { uid: job.uid, task, attempt: holding.attempt };
                due.push(Action::Stop { tasks: stopping.map(task_ref).collect(), deadline });
            }
        }
        for (&task, _) in self.ledger.orphans().iter().filter(|(_, orphan)| !orphan.kept) {
            due.push(Action::Stop { tasks: alloc::vec![task], deadline: Timestamp(0) });
        }
        self.add_notices(&mut due);
        if let Some(mark) = self.fleet.world() {
            due.push(Action::Acknowledge { generation: mark.generation });
        }
        due
    }

    fn add_notices(&self, due: &mut Vec<Action>) {
        for (uid, notice, _) in self.owned.notices() {
            due.push(match notice {
                Notice::Ended { outcome } => Action::Close { uid, outcome: *outcome },
                Notice::Rejected { .. } | Notice::ChangeRefused { .. } => {
                    Action::Reject { uid, notice: notice.clone() }
                }
            });
        }
        // Its owner must not replace the tasks that are about to go.
        for (id, uid) in self.jobs.owned() {
            let phase = self.jobs.get(id).map(|job| job.phase);
            if let Some(Phase::Leaving(Next::End(outcome))) = phase {
                due.push(Action::Close { uid, outcome });
            }
        }
    }

    fn add_start(&self, job: &Job, attempt: u32, tasks: &[HeldTask], due: &mut Vec<Action>) {
        let bound = tasks.iter().filter(|task| task.phase == TaskPhase::Bound);
        let start = bound.map(|task| StartTask {
            task: task.place.task,
            node: self.fleet.node(task.place.node).map_or_else(String::new, |node| node.facts.name.clone()),
            gpus: task.place.gpus,
            units_each: task.place.units_each,
            enforced: task.place.enforced(),
            slice: task.place.slice,
            memory_mib: self.memory_mib(&task.place),
        });
        let tasks: Vec<StartTask> = start.collect();
        if !tasks.is_empty() {
            due.push(Action::Start { attempt, job: Box::new(self.submission(job)), tasks });
        }
    }

    /// The most memory of each GPU that a task may use at its place, in MiB.
    pub fn memory_mib(&self, place: &Placement) -> Option<u32> {
        let model = catalogue::model(self.fleet.model(place.pool))?;
        // What the driver reports of the whole device, where somebody saw it; else what the vendor says.
        let whole = model.mig.and_then(|mig| mig.profiles.iter().find(|profile| profile.slots == mig.axis));
        let nominal = u64::from(model.memory_gb) * 1_000_000_000 / (1 << 20);
        let memory = whole.map_or(nominal, |profile| u64::from(profile.memory_mib));
        match place.slice {
            Some(slice) => Some(model.mig?.profile(slice.profile)?.memory_mib),
            None => u32::try_from(memory * place.units_each.parts() / GpuUnits::WHOLE.parts()).ok(),
        }
    }

    /// The job as it was submitted, with names where the state has ids.
    pub fn submission(&self, job: &Job) -> Submission {
        let spec = &job.spec;
        let devices = |set| self.fleet.device_set_source(set).to_string();
        let level = |level: LevelId| self.fleet.levels()[usize::from(level.0)].clone();
        let selectors = |shape: &Shape| GroupSelectors {
            nodes: self.fleet.node_set_source(shape.nodes).to_string(),
            devices: devices(shape.devices),
            any_of_devices: shape.any_of.iter().map(|other| devices(other.devices)).collect(),
        };
        let GroupSelectors { nodes, devices, any_of_devices } = selectors(&spec.shape);
        Submission {
            trust: Some(self.tenants.trust(spec.trust).to_string()),
            nodes,
            devices,
            any_of_devices,
            groups: spec.groups.iter().map(|group| selectors(&group.shape)).collect(),
            gang_within: spec.topology.gang_within.map(level),
            ..Submission::of(job.uid, self.tenants.path(spec.tenant), spec.clone())
        }
    }
}
