//! A simulated fleet: nodes that can fail and tasks that take their true time.
//!
//! The true duration of a job is known here alone, from the payload its submitter gave; the planner never sees
//! it. Time moves only by [`SimFleet::advance`], and what ends, ends at its own moment however late that is
//! noticed, so an outage of the control plane changes nobody's run time. What ended is kept until acknowledged.

mod answers;
mod device;
mod ended;
mod errors;
mod happening;
mod mirror;
mod nodes;
mod occupancy;
mod owned;
mod partition;
mod progress;
mod report;
mod sampling;
mod task;

use std::collections::{BTreeMap, BTreeSet};

use wharf_controller::disk::Standing;
use wharf_controller::world::NodeReport;
use wharf_engine::model::action::{Action, StartTask};
use wharf_engine::model::exit::{Exit, ExitCause, ExitDetail};
use wharf_engine::model::observed::{TaskRef, TaskStatus};
use wharf_engine::model::outcome::{ActionOutcome, ActionRef};
use wharf_engine::model::submission::Submission;
use wharf_engine::units::{GpuMask, GpuUnits, Millis, Timestamp, Uid};

use crate::world::behaviour::Behaviour;

use answers::{Answers, Refusing};
pub(crate) use ended::End;
use ended::Ended;
pub(crate) use mirror::Shown;
use occupancy::Occupancy;
use owned::OwnedJobs;
use partition::Partition;

pub use device::{Change, Device, Operation, Step, Want};
pub use task::{Progress, SimTask};

/// How long a refused attempt is remembered, so that a start that arrives late does not run. Longer than any
/// message takes.
const LATE_MS: u64 = 3_600_000;
/// Below so many, refused attempts are not worth looking through.
const OVER_LEN_MIN: usize = 4096;

/// A fleet that exists in memory.
#[derive(Clone, Debug)]
pub struct SimFleet {
    id: u64,
    generation: u64,
    obeyed: Standing,
    now: Timestamp,
    nodes: BTreeMap<String, NodeReport>,
    tasks: BTreeMap<TaskRef, SimTask>,
    progress: BTreeMap<Uid, Progress>,
    over: BTreeMap<(Uid, u32), (u32, Timestamp)>,
    timers: BTreeSet<(Timestamp, TaskRef)>,
    /// Tasks that ended and are kept until acknowledged.
    ended: BTreeSet<TaskRef>,
    /// `over` is pruned when it has grown to this.
    over_len_max: usize,
    /// Who is on each GPU, by node.
    occupied: BTreeMap<String, Vec<Occupancy>>,
    partition: Partition,
    /// How often each job ran out of memory.
    ooms: BTreeMap<Uid, u32>,
    /// Nodes that are up and start nothing.
    hung: BTreeSet<String>,
    /// When GPUs that are being reset return.
    resets: BTreeSet<(Timestamp, String, usize)>,
    remembered: Ended,
    answers: Answers,
    owned: OwnedJobs,
    refusing: Refusing,
    unreported: Changes,
    unsaved: Changes,
}

/// What changed since somebody last looked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    pub(crate) nodes: BTreeSet<String>,
    pub(crate) tasks: BTreeSet<TaskRef>,
    pub(crate) progress: BTreeSet<Uid>,
    /// Nodes whose devices changed; that alone is nothing to report.
    pub(crate) devices: BTreeSet<String>,
    /// Ends that were acknowledged, or forgotten since.
    pub(crate) remembered: BTreeSet<TaskRef>,
    /// Jobs of its own that appeared, changed or are gone.
    pub(crate) jobs: BTreeSet<Uid>,
}

impl Changes {
    fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.tasks.is_empty() && self.jobs.is_empty()
    }
}

/// Everything that is saved of a fleet.
pub(crate) struct Saved {
    pub(crate) id: u64,
    pub(crate) generation: u64,
    pub(crate) obeyed: Standing,
    pub(crate) now: Timestamp,
    pub(crate) nodes: Vec<NodeReport>,
    pub(crate) tasks: BTreeMap<TaskRef, SimTask>,
    pub(crate) progress: BTreeMap<Uid, Progress>,
    pub(crate) devices: BTreeMap<String, Vec<Device>>,
    pub(crate) devices_seed: Option<u64>,
    pub(crate) remembered: BTreeMap<TaskRef, End>,
}

impl SimFleet {
    /// A fleet of idle nodes.
    pub fn new(id: u64, nodes: Vec<NodeReport>, now: Timestamp) -> Self {
        let empty = |node: &NodeReport| vec![Occupancy::default(); node.node.gpus.len()];
        let occupied = nodes.iter().map(|node| (node.node.name.clone(), empty(node))).collect();
        let nodes: BTreeMap<_, _> = nodes.into_iter().map(|node| (node.node.name.clone(), node)).collect();
        let names: BTreeSet<String> = nodes.keys().cloned().collect();
        Self {
            id,
            generation: 0,
            obeyed: Standing::default(),
            now,
            nodes,
            tasks: BTreeMap::new(),
            progress: BTreeMap::new(),
            over: BTreeMap::new(),
            timers: BTreeSet::new(),
            ended: BTreeSet::new(),
            over_len_max: OVER_LEN_MIN,
            occupied,
            partition: Partition::default(),
            ooms: BTreeMap::new(),
            hung: BTreeSet::new(),
            resets: BTreeSet::new(),
            remembered: Ended::default(),
            answers: Answers::default(),
            owned: OwnedJobs::default(),
            refusing: Refusing::default(),
            unreported: Changes { nodes: names.clone(), ..Changes::default() },
            unsaved: Changes { nodes: names, ..Changes::default() },
        }
    }

    /// A fleet as it was saved.
    pub(crate) fn restore(saved: Saved) -> Self {
        let Saved { id, generation, obeyed, now, nodes, tasks, progress, devices, devices_seed, remembered } =
            saved;
        let mut fleet = Self::new(id, nodes, now);
        (fleet.generation, fleet.obeyed, fleet.progress) = (generation, obeyed, progress);
        let ooms = fleet.progress.iter().filter(|(_, progress)| progress.ooms > 0);
        fleet.ooms = ooms.map(|(&uid, progress)| (uid, progress.ooms)).collect();
        (fleet.unsaved, fleet.unreported) = (Changes::default(), Changes::default());
        for (task, known) in tasks {
            if known.is_over() {
                fleet.note_over(task);
            } else {
                fleet.hold(&known, true);
            }
            fleet.tasks.insert(task, known);
            fleet.set_timer(task);
        }
        fleet.resume_resets();
        fleet.partition.devices = devices;
        fleet.remembered = Ended::of(remembered);
        match devices_seed {
            Some(seed) => fleet.with_devices(seed),
            None => fleet,
        }
    }

    /// What changed since it was last saved.
    pub(crate) fn take_unsaved(&mut self) -> Changes {
        std::mem::take(&mut self.unsaved)
    }

    /// What was taken could not be saved.
    pub(crate) fn keep_unsaved(&mut self, changes: Changes) {
        let Changes { nodes, tasks, progress, devices, remembered, jobs } = changes;
        self.unsaved.jobs.extend(jobs);
        self.unsaved.nodes.extend(nodes);
        self.unsaved.tasks.extend(tasks);
        self.unsaved.progress.extend(progress);
        self.unsaved.devices.extend(devices);
        self.unsaved.remembered.extend(remembered);
    }

    /// A node, for saving.
    pub(crate) fn node(&self, name: &str) -> Option<&NodeReport> {
        self.nodes.get(name)
    }

    /// A task, for saving.
    pub(crate) fn task(&self, task: TaskRef) -> Option<&SimTask> {
        self.tasks.get(&task)
    }

    /// Which fleet it is.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The generation of its last report.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Leaves out generations that may have been used by a process that did not live to save them.
    pub(crate) fn skip_generations(&mut self, count: u64) {
        self.generation = self.generation.saturating_add(count);
    }

    /// The furthest standing of a journal whose orders it has obeyed.
    pub fn obeyed(&self) -> Standing {
        self.obeyed
    }

    /// Its time.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// How far a job's work is.
    pub fn progress(&self, uid: Uid) -> Progress {
        self.progress.get(&uid).copied().unwrap_or_default()
    }

    /// Names of its nodes.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// How many GPUs a node has.
    pub fn gpus_of(&self, node: &str) -> usize {
        self.nodes.get(node).map_or(0, |node| node.node.gpus.len())
    }

    /// When something next happens by itself.
    pub fn next_change(&self) -> Option<Timestamp> {
        if !self.unreported.is_empty() || self.answers.is_urgent() {
            return Some(self.now);
        }
        self.next_timer()
    }

    fn next_timer(&self) -> Option<Timestamp> {
        let of_tasks = self.timers.first().map(|&(at, _)| at);
        [of_tasks, self.next_device_timer(), self.next_reset()].into_iter().flatten().min()
    }

    /// Lets time pass: what is due happens at its own moment.
    pub fn advance(&mut self, to: Timestamp) {
        while let Some(at) = self.next_timer().filter(|&at| at <= to) {
            self.now = self.now.max(at);
            if self.next_reset().is_some_and(|of_reset| of_reset <= at) {
                self.reset_is_over();
            } else if self.next_device_timer().is_some_and(|of_device| of_device <= at) {
                self.device_timer();
            } else if let Some((at, task)) = self.timers.pop_first() {
                self.timer(task, at);
            }
        }
        self.now = self.now.max(to);
    }

    fn timer(&mut self, task: TaskRef, at: Timestamp) {
        // A timer may be left over from before the task was asked or stopped.
        let Some(known) = self.tasks.get_mut(&task).filter(|known| !known.is_over()) else { return };
        if let Some((ends, exit)) = known.ends.filter(|&(ends, _)| ends <= at) {
            self.end(task, exit, ends);
            return;
        }
        if let Some((saved, ok)) = known.answers.take_if(|&mut (saved, _)| saved <= at) {
            known.status = if ok { TaskStatus::Saved { at: saved } } else { TaskStatus::SaveFailed };
            if ok {
                self.save(task, saved);
            }
            self.changed(task);
        }
        self.set_timer(task);
    }

    fn set_timer(&mut self, task: TaskRef) {
        if let Some(at) = self.tasks.get(&task).and_then(SimTask::next_timer) {
            self.timers.insert((at, task));
        }
    }

    fn changed(&mut self, task: TaskRef) {
        self.unreported.tasks.insert(task);
        self.unsaved.tasks.insert(task);
    }

    /// Carries out an action of a leader; one of an older term is refused.
    pub fn act(&mut self, by: Standing, action: &Action) -> bool {
        if by.term < self.obeyed.term {
            return false;
        }
        // Orders of one leader may arrive out of order.
        self.obeyed = self.obeyed.max(by);
        match action {
            Action::Start { attempt, job, tasks } => {
                for task in tasks {
                    self.start(TaskRef { uid: job.uid, task: task.task, attempt: *attempt }, task, job);
                }
            }
            Action::AskCheckpoint { uid, attempt, tasks, deadline } => {
                self.ask(*uid, *attempt, tasks, *deadline);
            }
            Action::Stop { tasks, deadline } => {
                for &task in tasks {
                    self.stop(task, *deadline);
                }
            }
            Action::Reject { uid, notice } => self.reject(*uid, notice),
            Action::Close { uid, outcome } => self.close(*uid, *outcome),
            Action::Acknowledge { generation } => self.acknowledge(*generation),
        }
        true
    }

    fn start(&mut self, task: TaskRef, place: &StartTask, job: &Submission) {
        if let Some(known) = self.tasks.get(&task) {
            // Who asks again has not heard the answer; while devices are made ready there is no more to tell.
            if known.since.is_some() || known.is_over() {
                self.changed(task);
            }
            self.answer(ActionRef::Start(task), ActionOutcome::Done);
            return;
        }
        if self.hung.contains(&place.node) {
            return;
        }
        if let Some(outcome) = self.not_started(task, place) {
            self.never_start(task);
            self.answer(ActionRef::Start(task), outcome);
            return;
        }
        let started = SimTask {
            node: place.node.clone(),
            gpus: place.gpus,
            units_each: place.units_each,
            slice: place.slice,
            enforced: place.enforced,
            memory_mib: place.memory_mib,
            since: None,
            status: TaskStatus::Running,
            ends: None,
            answers: None,
            reported_in: 0,
            base_ms: 0,
            restart_ms: 0,
            runs_out: false,
            behaviour: Behaviour::of(job),
            job: Some(job.clone()),
        };
        self.hold(&started, true);
        let ready = self.prepare(task, &started);
        let (node, gpus) = (started.node.clone(), started.gpus);
        self.tasks.insert(task, started);
        self.answer(ActionRef::Start(task), ActionOutcome::Done);
        self.unsaved.tasks.insert(task);
        if ready {
            self.begin(task, self.now);
        } else {
            gpus.indexes().for_each(|gpu| self.work(&node, gpu, self.now));
        }
    }

    /// Its devices are ready: it runs.
    fn begin(&mut self, task: TaskRef, at: Timestamp) {
        let (base_ms, restart_ms) = (self.work_to_resume(task, at), self.time_to_restart(task));
        let known = self.tasks.get_mut(&task).expect("what begins was started");
        (known.base_ms, known.restart_ms) = (base_ms, restart_ms);
        known.since = Some(at);
        known.set_end(task, at);
        self.set_timer(task);
        self.changed(task);
    }

    fn hold(&mut self, task: &SimTask, more: bool) {
        let Some(gpus) = self.occupied.get_mut(&task.node) else { return };
        for gpu in task.gpus.indexes() {
            if more { gpus[gpu].come(task) } else { gpus[gpu].go(task) }
        }
    }

    fn ask(&mut self, uid: Uid, attempt: u32, tasks: &[u32], deadline: Timestamp) {
        let of_attempt = self.tasks.range(all_of(uid)).filter(|(task, _)| task.attempt == attempt);
        let running: Vec<TaskRef> =
            of_attempt.filter(|(_, known)| !known.is_over()).map(|(&task, _)| task).collect();
        let all = running.iter().all(|task| tasks.contains(&task.task));
        let asked = running.into_iter().filter(|task| tasks.contains(&task.task));
        let mut asked: Vec<TaskRef> = asked.collect();
        let refused = asked.iter().find_map(|task| self.keeps(&self.tasks[task].node));
        let outcome = match refused {
            _ if asked.is_empty() => ActionOutcome::Gone,
            Some(why) => ActionOutcome::Refused { why },
            None => ActionOutcome::Done,
        };
        let is_done = outcome == ActionOutcome::Done;
        self.answer(ActionRef::Ask { uid, attempt }, outcome);
        if !is_done {
            return;
        }
        asked.sort_by_key(|task| self.tasks[task].since.is_none());
        // The coordinator, which is the first task that runs, speaks for all ranks; a task that goes alone, for itself.
        for task in asked.into_iter().take(if all { 1 } else { usize::MAX }) {
            let known = self.tasks.get_mut(&task).expect("it was just found");
            if known.answers.is_some() {
                continue;
            }
            let behaviour = known.behaviour;
            let at = self.now + Millis(behaviour.checkpoint_ms);
            known.status = TaskStatus::Running;
            // Who needs longer than it has is stopped before it could answer.
            known.answers = (at <= deadline).then_some((at, !behaviour.checkpoint_fails));
            self.set_timer(task);
            self.unsaved.tasks.insert(task);
        }
    }

    fn stop(&mut self, task: TaskRef, deadline: Timestamp) {
        let about = ActionRef::Stop(task);
        let Some(known) = self.tasks.get(&task) else {
            // A stop that overtakes its start: the start must not run when it arrives.
            self.never_start(task);
            self.answer(about, ActionOutcome::Gone);
            return;
        };
        if known.is_over() {
            self.changed(task);
        } else if let Some(why) = self.keeps(&known.node) {
            self.answer(about, ActionOutcome::Refused { why });
            return;
        }
        self.answer(about, ActionOutcome::Done);
        let Some(known) = self.tasks.get_mut(&task).filter(|known| !known.is_over()) else { return };
        // It is killed at the deadline.
        let takes = if known.since.is_some() { known.behaviour.stop_ms } else { 0 };
        let at = (self.now + Millis(takes)).min(deadline).max(self.now);
        if at == self.now {
            self.end(task, Exit::Stopped, at);
            return;
        }
        let sooner = known.ends.is_none_or(|(ends, _)| at < ends);
        if sooner {
            known.ends = Some((at, Exit::Stopped));
            self.set_timer(task);
            self.unsaved.tasks.insert(task);
        }
    }

    /// Whatever arrives later of this try does not run.
    fn never_start(&mut self, task: TaskRef) {
        let over = self.over.entry((task.uid, task.task)).or_insert((task.attempt, self.now));
        *over = (task.attempt.max(over.0), self.now);
    }

    fn end(&mut self, task: TaskRef, exit: Exit, at: Timestamp) {
        self.end_because(task, exit, None, at);
    }

    /// A task ends, for a reason of which it knows nothing itself.
    fn end_because(&mut self, task: TaskRef, exit: Exit, cause: Option<ExitCause>, at: Timestamp) {
        let mut known = self.tasks.remove(&task).expect("what ends was running");
        self.hold(&known, false);
        let cause = cause.or_else(|| known.cause_of(exit));
        let memory_peak_mib = known.since.and_then(|_| known.memory_used_mib(task));
        let sm_active_milli = known.sm_active_mean(task, at);
        let detail = ExitDetail { cause, memory_peak_mib, sm_active_milli };
        known.status = TaskStatus::Ended { exit, at, detail };
        if known.runs_out && exit == Exit::Failed {
            self.count_oom(task.uid);
        }
        self.release(task, &known, at);
        let ran = known.since.is_some();
        self.tasks.insert(task, known);
        if exit != Exit::Succeeded && ran {
            self.lose_unsaved(task, at);
        }
        self.note_over(task);
        self.changed(task);
    }

    fn note_over(&mut self, task: TaskRef) {
        self.ended.insert(task);
        self.never_start(task);
    }

    fn acknowledge(&mut self, generation: u64) {
        let told = |task: &&TaskRef| {
            let reported_in = self.tasks[task].reported_in;
            reported_in > 0 && reported_in <= generation && !self.unreported.tasks.contains(task)
        };
        let forgotten: Vec<TaskRef> = self.ended.iter().filter(told).copied().collect();
        for task in forgotten {
            self.remember(task);
            self.ended.remove(&task);
            self.tasks.remove(&task);
            self.unsaved.tasks.insert(task);
        }
        self.answers.acknowledge(generation);
        if self.over.len() > self.over_len_max {
            let recent = self.now.0.saturating_sub(LATE_MS);
            self.over.retain(|_, (_, at)| at.0 >= recent);
            self.over_len_max = OVER_LEN_MIN.max(2 * self.over.len());
        }
    }

    /// Tasks that run now.
    pub fn running(&self) -> impl Iterator<Item = (TaskRef, &str, GpuMask, GpuUnits)> {
        let running = self.tasks.iter().filter(|(_, task)| !task.is_over());
        running.map(|(id, task)| (*id, task.node.as_str(), task.gpus, task.units_each))
    }
}

fn all_of(uid: Uid) -> std::ops::RangeInclusive<TaskRef> {
    TaskRef { uid, task: 0, attempt: 0 }..=TaskRef { uid, task: u32::MAX, attempt: u32::MAX }
}
