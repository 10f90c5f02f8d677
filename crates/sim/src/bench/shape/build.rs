//! From a shape to a state, through the engine's own door: a policy, a world that is met for the first time with
//! everything it runs, and submissions. Running work is adopted from one list, which costs what the list is long; of
//! waiting jobs alike only the first is decided.

use std::collections::{BTreeMap, BTreeSet};

use wharf_controller::selectors::{DeviceSelector, NodeSelector, Strings};
use wharf_controller::world::NodeReport;
use wharf_engine::decide::input::Input;
use wharf_engine::model::exit::{Exit, ExitDetail};
use wharf_engine::model::job::{Service, Shape as TaskShape, Spec};
use wharf_engine::model::observed::{
    ObservedGpu, ObservedNode, ObservedTask, Report, Scope, TaskRef, TaskStatus,
};
use wharf_engine::model::rejection::Rejection;
use wharf_engine::model::submission::Submission;
use wharf_engine::state::State;
use wharf_engine::state::event::Event;
use wharf_engine::state::holding::{HeldTask, TaskPhase};
use wharf_engine::state::jobs::event::JobsEvent;
use wharf_engine::units::{JobId, Millis, Timestamp, Uid};

use super::nodes::{Floor, Walk, units_each};
use super::{BadShape, JobGroup, Shape};

/// When the first running job of a shape began, in milliseconds; each further job is a millisecond younger.
const BEGIN: Timestamp = Timestamp(1_000_000_000);
/// How long the last of them has been running when the first waiting job is submitted: longer than any minimum
/// runtime.
const RUNNING_FOR: Millis = Millis::from_secs(24 * 3600);
/// Any two tasks may share a GPU, as in the behaviour cases.
pub(super) const TRUST: &str = "all";

/// A shape as a state.
#[derive(Clone, Debug)]
pub struct Built {
    /// The state.
    pub state: State,
    /// The time in it.
    pub now: Timestamp,
    uid: u128,
    /// How far the world was heard.
    generation: u64,
}

impl Shape {
    /// The state in which everything that runs runs, and everything that is pending waits.
    pub fn build(&self) -> Result<Built, BadShape> {
        self.judge()?;
        let mut built = Built { state: State::default(), now: BEGIN, uid: 0, generation: 1 };
        built.give("tenants", &Input::ApplyPolicy(self.policy()?))?;
        built.meet_world(self)?;
        built.now = built.now + RUNNING_FOR;
        built.submit("pending", &self.pending)?;
        Ok(built)
    }

    fn node_reports(&self) -> Vec<NodeReport> {
        let groups = self.nodes.iter().flat_map(|group| (0..group.count).map(move |_| group));
        let report = |(number, group): (u32, &super::NodeGroup)| {
            let gpu = ObservedGpu { island: number, healthy: true, ..ObservedGpu::default() };
            let model = if group.gpus == 0 { String::new() } else { group.model.clone() };
            let node = ObservedNode {
                name: node_name(number),
                up: true,
                model,
                gpus: (0..group.gpus).map(|_| gpu).collect(),
                capacity: group.resources(),
                ..ObservedNode::default()
            };
            NodeReport { node, labels: group.labels.clone(), taints: Vec::new() }
        };
        (1..).zip(groups).map(report).collect()
    }

    /// Every selector that a job of the shape has.
    fn selectors(&self) -> BTreeSet<String> {
        let groups = self.lists().into_iter().flat_map(|(_, groups)| groups);
        groups
            .flat_map(|group| [nodes_source(group), devices_source(group)])
            .filter(|text| !text.is_empty())
            .collect()
    }
}

impl Built {
    /// Submits jobs, each a millisecond after the one before it.
    pub fn submit(&mut self, list: &str, groups: &[JobGroup]) -> Result<(), BadShape> {
        for (at, group) in groups.iter().enumerate().filter(|(_, group)| group.count > 0) {
            self.submit_group(&format!("{list}[{at}]"), list, group)?;
        }
        Ok(())
    }

    /// So many running jobs end, the oldest first.
    pub fn end(&mut self, count: u32) -> Result<(), BadShape> {
        let jobs = self.state.ledger.holdings().take(usize::try_from(count).unwrap_or(usize::MAX));
        let ended = jobs.flat_map(|(job, holding)| holding.tasks.iter().map(move |task| (job, task.clone())));
        let ended: Vec<(JobId, HeldTask)> = ended.collect();
        self.over("ends", &ended, Exit::Succeeded)
    }

    /// Everybody who was told to leave is gone, as late as it may be.
    pub fn leave(&mut self) -> Result<(), BadShape> {
        let leaves = |task: &&HeldTask| task.holds() && !task.stays();
        let all = self.state.ledger.holdings().flat_map(|(job, holding)| {
            holding.tasks.iter().filter(leaves).map(move |task| (job, task.clone()))
        });
        let leaving: Vec<(JobId, HeldTask)> = all.collect();
        let deadline = |(_, task): &(JobId, HeldTask)| match task.phase {
            TaskPhase::Asked { deadline, .. } | TaskPhase::Stopping { deadline } => Some(deadline),
            TaskPhase::Bound | TaskPhase::Running | TaskPhase::Acked { .. } | TaskPhase::Gone { .. } => None,
        };
        self.now = leaving.iter().filter_map(deadline).max().unwrap_or(self.now).max(self.now);
        self.over("leaving", &leaving, Exit::Stopped)
    }

    /// These tasks are over.
    fn over(&mut self, part: &str, tasks: &[(JobId, HeldTask)], exit: Exit) -> Result<(), BadShape> {
        let told = tasks.iter().map(|(job, task)| {
            let uid = self.state.jobs.get(*job).expect("what is held belongs to a live job").uid;
            let attempt = self.state.ledger.holding(*job).map_or(0, |holding| holding.attempt);
            (uid, attempt, task.clone())
        });
        let status = TaskStatus::Ended { exit, at: self.now, detail: ExitDetail::default() };
        let observed = |(uid, attempt, task): (Uid, u32, HeldTask)| ObservedTask {
            task: TaskRef { uid, task: task.place.task, attempt },
            node: self
                .state
                .fleet
                .node(task.place.node)
                .map_or_else(String::new, |node| node.facts.name.clone()),
            gpus: task.place.gpus,
            units_each: task.place.units_each,
            slice: task.place.slice,
            time_sliced: task.place.time_sliced,
            since: task.since,
            status,
            job: None,
        };
        let tasks = told.map(observed).collect();
        let (since, generation) = (Some(self.generation), self.generation + 1);
        self.generation += 1;
        let report = Report { world: 1, since, generation, tasks, ..Report::default() };
        self.give(part, &Input::Observe(report))
    }

    /// Time takes effect: what is set aside is given where everybody has left.
    pub fn tick(&mut self) -> Result<(), BadShape> {
        self.give("time", &Input::Tick)
    }

    /// Every service wants so many replicas.
    pub fn scale(&mut self, tasks: u32) -> Result<(), BadShape> {
        let services: Vec<JobId> = self.state.jobs.services().iter().copied().collect();
        services.into_iter().try_for_each(|job| self.give("scale", &Input::Scale { job, tasks }))
    }

    /// The first is decided. The others differ in name, identity and time only and get the same answer: to ask every
    /// node again whether they could ever run would take longer than all the rest, 10,000 jobs x 12,500 nodes.
    fn submit_group(&mut self, part: &str, list: &str, group: &JobGroup) -> Result<(), BadShape> {
        let first = self.submission(list, group)?;
        let job = self.state.jobs.next();
        self.give(part, &Input::Submit(Box::new(first)))?;
        let spec = self.state.jobs.get(job).expect("what was submitted waits").spec.clone();
        for _ in 1..group.count {
            let (uid, name) = self.next_job(list);
            let (job, spec) = (self.state.jobs.next(), Spec { name, ..spec.clone() });
            self.state.apply(&Event::Jobs(JobsEvent::Queued { job, uid, spec, at: self.now, owned: false }));
        }
        Ok(())
    }

    /// Nodes come first, so that selectors can be compiled before the work that uses them is adopted.
    fn meet_world(&mut self, shape: &Shape) -> Result<(), BadShape> {
        let reports = shape.node_reports();
        let nodes: Vec<ObservedNode> = reports.iter().map(|report| report.node.clone()).collect();
        let mut strings = Strings::default();
        for report in reports {
            strings.learn(report);
        }
        let first = Report { scope: Scope::Nodes, world: 1, generation: 1, nodes, ..Report::default() };
        self.give("nodes", &Input::Observe(first.clone()))?;
        let sets = shape.selectors().iter().filter_map(|source| strings.compile(source)).collect();
        self.give("labels and models", &Input::DefineSets(sets))?;
        let mut tasks = Vec::new();
        let mut floor = Floor::new(&shape.nodes);
        for (at, group) in shape.running.iter().enumerate() {
            self.lay(group, &mut floor, &mut tasks).map_err(|why| why.at("running", at))?;
        }
        self.give("running", &Input::Observe(Report { scope: Scope::All, tasks, ..first }))
    }

    fn lay(
        &mut self,
        group: &JobGroup,
        floor: &mut Floor<'_>,
        into: &mut Vec<ObservedTask>,
    ) -> Result<(), BadShape> {
        let ask = group.ask()?;
        let mut walk = Walk::new(group, ask);
        let units_each = units_each(ask);
        for number in 1..=group.count {
            let submission = self.submission("running", group)?;
            for task in 0..group.tasks {
                let (node, gpus) = walk.next(floor).ok_or_else(|| no_room(number, task))?;
                into.push(ObservedTask {
                    task: TaskRef { uid: submission.uid, task, attempt: 1 },
                    node: node_name(u32::try_from(node).expect("nodes are bounded") + 1),
                    gpus,
                    units_each,
                    slice: None,
                    time_sliced: false,
                    since: Some(self.now),
                    status: TaskStatus::Running,
                    job: Some(submission.clone()),
                });
            }
        }
        Ok(())
    }

    /// Identity and name of the next job, a millisecond after the one before it.
    fn next_job(&mut self, list: &str) -> (Uid, String) {
        self.uid += 1;
        self.now = self.now + Millis(1);
        (Uid(self.uid), format!("{list}-{}", self.uid))
    }

    fn submission(&mut self, list: &str, group: &JobGroup) -> Result<Submission, BadShape> {
        let (uid, name) = self.next_job(list);
        let spec = Spec {
            class: group.class,
            priority: group.priority,
            tasks: group.tasks,
            min: group.min(),
            preemptible: group.preemptible,
            time_limit: group.limit_s.map(Millis::from_secs),
            service: group.replicas_max.map(|max| Service { max, replicas: group.tasks }),
            ..Spec::of(name, TaskShape::of(group.ask()?, group.resources()))
        };
        Ok(Submission {
            trust: Some(TRUST.to_owned()),
            nodes: nodes_source(group),
            devices: devices_source(group),
            ..Submission::of(uid, group.tenant.clone(), spec)
        })
    }

    fn give(&mut self, part: &str, input: &Input) -> Result<(), BadShape> {
        let decision = self.state.decide(input, self.now).map_err(|rejection| {
            let why = match rejection {
                Rejection::Never { .. } => "it could never run on this fleet, healthy and empty".to_owned(),
                other => format!("the engine refuses it: {other:?}"),
            };
            BadShape::new(format!("{part}: {why}"), "ask for less, or add nodes")
        })?;
        self.state.apply_all(&decision.events);
        Ok(())
    }
}

fn no_room(number: u32, task: u32) -> BadShape {
    let what = format!("no node has room for task {task} of job {number}");
    BadShape::new(what, "what runs has to fit: add nodes, or run less")
}

fn node_name(number: u32) -> String {
    format!("n{number}")
}

fn nodes_source(group: &JobGroup) -> String {
    if group.labels.is_empty() {
        return String::new();
    }
    let labels: BTreeMap<String, Vec<String>> =
        group.labels.iter().map(|(key, value)| (key.clone(), vec![value.clone()])).collect();
    NodeSelector { labels, ..NodeSelector::default() }.source()
}

fn devices_source(group: &JobGroup) -> String {
    let Some(model) = &group.model else { return String::new() };
    DeviceSelector { models: vec![model.clone()], ..DeviceSelector::default() }.source()
}
