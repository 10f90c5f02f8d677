//! The difference between what a world says and what is known.
//!
//! A change and a full list go the same way; a full list additionally tells what is gone. Work that a world
//! runs and we have never heard of is adopted when we meet that world for the first time; later it is an orphan,
//! because whatever we let go must not come back by a late message.

pub(super) mod restore;
mod sites;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem::take;

use super::conclude::{TaskNews, asked, conclude};
use super::live::LiveJob;
use super::{Decision, Names};
use crate::model::exit::{Exit, ExitCause, ExitDetail};
use crate::model::observed::{ObservedGpu, ObservedTask, Report, Scope, TaskRef, TaskStatus};
use crate::model::outcome::{ActionOutcome, ActionRef, Answer, Denial};
use crate::model::rejection::Rejection;
use crate::state::State;
use crate::state::event::Event;
use crate::state::fleet::FleetEvent;
use crate::state::holding::HeldTask;
use crate::state::ledger::event::LedgerEvent;
use crate::units::{JobId, NodeId, Timestamp, Uid};
use sites::{Sites, is_over, newest_attempt, orphan_seen, understood};

pub(super) fn observe(state: &State, report: &Report, now: Timestamp) -> Result<Decision, Rejection> {
    let met_before = in_order(state, report)?;
    let mut sites = Sites::after(state, report, now);
    let (gpus, lost, mut events) = (take(&mut sites.gpus), take(&mut sites.lost), take(&mut sites.events));
    if report.scope == Scope::Nodes {
        return Ok(events.into());
    }
    let mut tasks = TaskChanges::new(sites);
    tasks.compare(report, met_before);
    if report.since.is_none() {
        tasks.missing(report, &lost);
    }
    for answer in &report.answers {
        tasks.hear(answer);
    }
    tasks.lose_nodes(&lost);
    for (node, gpus) in gpus.into_iter().filter(|(node, _)| !lost.contains(node)) {
        tasks.lose_devices(node, gpus);
    }
    events.append(&mut tasks.orphans);
    for (job, learnt) in &tasks.learnt {
        events.extend(conclude(LiveJob::of(state, *job, now), learnt));
    }
    events.append(&mut tasks.left);
    events.extend(tasks.adopt());
    let mark = state.fleet.world();
    if mark.is_none_or(|mark| (mark.world, mark.generation) != (report.world, report.generation)) {
        events.push(world_seen(report));
    }
    Ok(events.into())
}

fn world_seen(report: &Report) -> Event {
    Event::Fleet(FleetEvent::WorldSeen { world: report.world, generation: report.generation })
}

/// Whether we know this world, if the report may be taken at all.
fn in_order(state: &State, report: &Report) -> Result<bool, Rejection> {
    let mark = state.fleet.world().filter(|mark| mark.world == report.world);
    match (report.since, mark.map(|mark| mark.generation)) {
        (None, None) => Ok(false),
        (Some(_), None) => Err(Rejection::Gap { known: 0 }),
        (None, Some(known)) if report.generation < known => Err(Rejection::Stale),
        (Some(_), Some(known)) if report.generation <= known => Err(Rejection::Stale),
        (Some(since), Some(known)) if since != known => Err(Rejection::Gap { known }),
        (_, Some(_)) => Ok(true),
    }
}

/// What is new of tasks.
struct TaskChanges<'a> {
    sites: Sites<'a>,
    learnt: BTreeMap<JobId, Vec<(u32, TaskNews)>>,
    orphans: Vec<Event>,
    /// Orphans that such an event is about, so that each has one.
    orphans_told: BTreeSet<TaskRef>,
    /// Tasks that are lost to their jobs and may still run; they are orphans after their jobs have let go of them.
    left: Vec<Event>,
    strangers: BTreeMap<Uid, Vec<&'a ObservedTask>>,
}

impl<'a> TaskChanges<'a> {
    fn new(sites: Sites<'a>) -> Self {
        Self {
            sites,
            learnt: BTreeMap::new(),
            orphans: Vec::new(),
            orphans_told: BTreeSet::new(),
            left: Vec::new(),
            strangers: BTreeMap::new(),
        }
    }

    fn learn(&mut self, job: JobId, task: u32, news: impl IntoIterator<Item = TaskNews>) {
        self.learnt.entry(job).or_default().extend(news.into_iter().map(|news| (task, news)));
    }

    fn learn_of(&mut self, task: TaskRef, news: TaskNews) {
        if let Some((job, _)) = ours(self.sites.state, task) {
            self.learn(job, task.task, [news]);
        }
    }

    fn compare(&mut self, report: &'a Report, met_before: bool) {
        for observed in &report.tasks {
            match ours(self.sites.state, observed.task) {
                Some((job, _)) => self.learn(job, observed.task.task, news_of(observed, self.sites.now)),
                None if !met_before && observed.job.is_some() => {
                    self.strangers.entry(observed.task.uid).or_default().push(observed);
                }
                None if is_over(observed) => self.orphan_gone(observed.task),
                None => self.orphan(observed),
            }
        }
    }

    /// An attempt that is not the one we hold.
    fn orphan(&mut self, observed: &ObservedTask) {
        let known = self.sites.state.ledger.orphans().contains_key(&observed.task);
        if !known && self.orphans_told.insert(observed.task) {
            self.orphans.extend(self.sites.orphan(observed, false));
        }
    }

    fn orphan_gone(&mut self, task: TaskRef) {
        if self.sites.state.ledger.orphans().contains_key(&task) && self.orphans_told.insert(task) {
            self.orphans.push(Event::Ledger(LedgerEvent::OrphanGone { task }));
        }
    }

    /// What the world told us of and a full list does not name is gone. A start that it never told us of stays due.
    fn missing(&mut self, report: &Report, lost_nodes: &BTreeSet<NodeId>) {
        let named: BTreeSet<TaskRef> = report.tasks.iter().map(|observed| observed.task).collect();
        for (job, holding) in self.sites.state.ledger.holdings() {
            let uid = self.sites.state.jobs.get(job).expect("what is held belongs to a live job").uid;
            for held in holding.tasks.iter().filter(|task| task.holds() && task.since.is_some()) {
                let (task, attempt) = (held.place.task, holding.attempt);
                if !named.contains(&TaskRef { uid, task, attempt }) {
                    let node_lost = lost_nodes.contains(&held.place.node);
                    let cause = if node_lost { ExitCause::NodeLost } else { ExitCause::Missing };
                    // It ended some time before; nobody can say when.
                    self.learn(job, task, [lost(cause, self.sites.now)]);
                }
            }
        }
        for &task in self.sites.state.ledger.orphans().keys().filter(|task| !named.contains(task)) {
            self.orphan_gone(task);
        }
    }

    /// What became of an action. That it was done tells nothing that a task does not tell itself.
    fn hear(&mut self, answer: &Answer) {
        let (state, at) = (self.sites.state, self.sites.now);
        let why = match &answer.outcome {
            // Where a former leader was refused, what this one sent is still on its way.
            ActionOutcome::Done | ActionOutcome::Refused { why: Denial::StaleTerm { .. } } => return,
            ActionOutcome::Refused { why } => Some(why.clone()),
            ActionOutcome::Gone => None,
        };
        match (answer.about, why) {
            (ActionRef::Start(task), Some(why)) => self.learn_of(task, TaskNews::StartRefused { why, at }),
            (ActionRef::Start(task), None) => self.learn_of(task, lost(ExitCause::Missing, at)),
            (ActionRef::Stop(task), Some(why)) => self.learn_of(task, TaskNews::LeaveRefused { why, at }),
            (ActionRef::Stop(task), None) => {
                self.orphan_gone(task);
                let (exit, detail) = (Exit::Stopped, ExitDetail::default());
                self.learn_of(task, TaskNews::Over { exit, at, detail });
            }
            (ActionRef::Ask { uid, attempt }, Some(why)) => {
                let holding = state.jobs.with_uid(uid).and_then(|job| state.ledger.holding(job));
                let holding = holding.filter(|holding| holding.attempt == attempt);
                for task in holding.map(asked).unwrap_or_default() {
                    let why = why.clone();
                    self.learn_of(TaskRef { uid, task, attempt }, TaskNews::LeaveRefused { why, at });
                }
            }
            // Tasks, or the stop that follows, tell what is gone; a world names its own jobs, or it does not.
            (ActionRef::Ask { .. }, None) | (ActionRef::Reject(_) | ActionRef::Close(_), _) => {}
        }
    }

    /// What ran on nodes that are gone is lost, unless the report itself says how it ended.
    fn lose_nodes(&mut self, lost_nodes: &BTreeSet<NodeId>) {
        for &node in lost_nodes {
            for (job, task) in self.sites.state.ledger.tasks_on(node) {
                self.learn(job, task, [lost(ExitCause::NodeLost, self.sites.now)]);
            }
            for task in self.sites.state.ledger.orphans_on(node) {
                self.orphan_gone(task);
            }
        }
    }

    /// Work on a device that is gone or failed is lost, by no fault of its job. What still runs there is stopped like any orphan.
    fn lose_devices(&mut self, node: NodeId, gpus: &[ObservedGpu]) {
        for (id, number) in self.sites.state.ledger.tasks_on(node) {
            let job = self.sites.state.jobs.get(id).expect("what is held belongs to a live job");
            let holding = self.sites.state.ledger.holding(id).expect("what is on a node is held");
            let held = holding.task(number).expect("what is on a node is held");
            let is_healthy = |at: usize| gpus.get(at).is_some_and(|gpu| gpu.healthy);
            if held.place.gpus.indexes().all(is_healthy) {
                continue;
            }
            let is_end = |(task, news): &_| *task == number && matches!(news, TaskNews::Over { .. });
            let is_over = self.learnt.get(&id).is_some_and(|learnt| learnt.iter().any(is_end));
            self.learn(id, number, [lost(ExitCause::DeviceLost, self.sites.now)]);
            if !is_over && held.since.is_some() && held.place.gpus.indexes().all(|at| at < gpus.len()) {
                let task = TaskRef { uid: job.uid, task: number, attempt: holding.attempt };
                self.left.push(orphan_seen(task, held.place, job.spec.resources_of(number), false));
            }
        }
    }

    /// Work of a world that we meet for the first time becomes ours. What cannot be understood, and older attempts, are orphans.
    fn adopt(mut self) -> Vec<Event> {
        let mut names = Names::new(self.sites.state);
        let mut adopted = Vec::new();
        for tasks in self.strangers.values() {
            let runs = |task: &&ObservedTask| {
                task.since.is_some() && !is_over(task) && self.sites.places.contains_key(&task.node)
            };
            let (newest, mut orphans) = newest_attempt(tasks.iter().copied().filter(runs));
            if let Some(spec) = understood(&newest, &mut names) {
                adopted.extend(self.sites.adopt(spec, &newest));
            } else {
                orphans.extend(newest);
            }
            adopted.extend(orphans.into_iter().filter_map(|task| self.sites.orphan(task, false)));
        }
        names.events.append(&mut adopted);
        names.events
    }
}

fn news_of(observed: &ObservedTask, now: Timestamp) -> impl Iterator<Item = TaskNews> + use<> {
    let runs = observed.since.map(|since| TaskNews::Runs { since });
    let status = match observed.status {
        TaskStatus::Running => None,
        TaskStatus::Saved { at } => Some(TaskNews::Saved { at }),
        TaskStatus::SaveFailed => Some(TaskNews::SaveFailed),
        TaskStatus::Ended { exit, at, detail } => {
            // A world that cannot say when it ended says 0.
            let at = if at == Timestamp(0) { now } else { at };
            Some(TaskNews::Over { exit, at, detail })
        }
    };
    runs.into_iter().chain(status)
}

fn lost(cause: ExitCause, at: Timestamp) -> TaskNews {
    TaskNews::Over { exit: Exit::Lost, at, detail: cause.into() }
}

/// The task of the present attempt of one of our jobs.
fn ours(state: &State, task: TaskRef) -> Option<(JobId, &HeldTask)> {
    let job = state.jobs.with_uid(task.uid)?;
    let holding = state.ledger.holding(job).filter(|holding| holding.attempt == task.attempt)?;
    Some((job, holding.task(task.task).filter(|task| task.holds())?))
}
