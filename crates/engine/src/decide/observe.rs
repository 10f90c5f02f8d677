//! The difference between what a world says and what is known.
//!
//! A change and a full list go the same way; a full list additionally tells what is gone. Work that a world
//! runs and we have never heard of is adopted when we meet that world for the first time; later it is an orphan,
//! because whatever we let go must not come back by a late message.

pub(super) mod restore;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use super::conclude::{TaskNews, conclude, repair_deadline};
use super::{Decision, Names, submit};
use crate::device::catalogue::{self, Mig};
use crate::device::geometry::{Layout, Slice, units_of};
use crate::model::exit::{Exit, ExitCause, ExitDetail};
use crate::model::job::Spec;
use crate::model::observed::{ObservedNode, ObservedTask, Report, Scope, TaskRef, TaskStatus};
use crate::model::outcome::{ActionOutcome, ActionRef, Answer, Denial};
use crate::model::placement::Placement;
use crate::model::rejection::Rejection;
use crate::state::State;
use crate::state::event::Event;
use crate::state::fleet::{Fleet, FleetEvent, NodeFacts};
use crate::state::holding::TaskPhase;
use crate::state::jobs::event::JobsEvent;
use crate::state::ledger::event::LedgerEvent;
use crate::units::{GpuMask, GpuUnits, JobId, LevelId, NodeId, PoolId, Resources, Timestamp, Uid};

pub(super) fn observe(state: &State, report: &Report, now: Timestamp) -> Result<Decision, Rejection> {
    let met_before = in_order(state, report)?;
    let mut nodes = NodeChanges::new(&state.fleet);
    nodes.compare(report);
    if report.scope == Scope::Nodes {
        return Ok(nodes.events.into());
    }
    let mut tasks = TaskChanges::default();
    tasks.compare(state, report, &nodes, met_before);
    for answer in &report.answers {
        tasks.hear(state, answer, now);
    }
    tasks.lose(state, &nodes, now);
    let mut events = nodes.events;
    events.extend(tasks.orphans);
    for (job, learnt) in &tasks.learnt {
        events.extend(conclude(state, *job, learnt, now));
    }
    events.extend(tasks.left);
    let mut sites = Sites { state, places: nodes.places, pools: nodes.pools, cut: tasks.cut };
    events.extend(adopt(&tasks.strangers, &mut sites, now));
    let mark = state.fleet.world();
    if mark.is_none_or(|mark| (mark.world, mark.generation) != (report.world, report.generation)) {
        let (world, generation) = (report.world, report.generation);
        events.push(Event::Fleet(FleetEvent::WorldSeen { world, generation }));
    }
    Ok(events.into())
}

/// Whether we know this world, if the report may be taken at all.
fn in_order(state: &State, report: &Report) -> Result<bool, Rejection> {
    let mark = state.fleet.world().filter(|mark| mark.world == report.world);
    let Some(mark) = mark else {
        return if report.since.is_none() { Ok(false) } else { Err(Rejection::Gap { known: 0 }) };
    };
    match report.since {
        None if report.generation < mark.generation => Err(Rejection::Stale),
        Some(_) if report.generation <= mark.generation => Err(Rejection::Stale),
        Some(since) if since != mark.generation => Err(Rejection::Gap { known: mark.generation }),
        None | Some(_) => Ok(true),
    }
}

/// What is new of nodes.
struct NodeChanges<'a> {
    fleet: &'a Fleet,
    pools: Vec<String>,
    levels: Vec<String>,
    next_node: NodeId,
    /// Where each reported or known name is after this report.
    places: BTreeMap<String, (NodeId, PoolId)>,
    /// What devices each reported node has.
    devices: BTreeMap<NodeId, Devices>,
    /// Nodes whose tasks are lost.
    lost: BTreeSet<NodeId>,
    events: Vec<Event>,
}

impl<'a> NodeChanges<'a> {
    fn new(fleet: &'a Fleet) -> Self {
        Self {
            fleet,
            pools: fleet.pools().to_vec(),
            levels: fleet.levels().to_vec(),
            next_node: fleet.next_node(),
            places: BTreeMap::new(),
            devices: BTreeMap::new(),
            lost: BTreeSet::new(),
            events: Vec::new(),
        }
    }

    fn compare(&mut self, report: &Report) {
        for observed in &report.nodes {
            self.see(observed);
        }
        let gone: Vec<NodeId> = if report.scope == Scope::Nodes {
            // What is gone is told by the list that also tells what became of the tasks there.
            Vec::new()
        } else if report.since.is_none() {
            let named: BTreeSet<&str> = report.nodes.iter().map(|node| node.name.as_str()).collect();
            let nodes = self.fleet.nodes();
            nodes.filter(|(_, node)| !named.contains(node.facts.name.as_str())).map(|(id, _)| id).collect()
        } else {
            report.nodes_gone.iter().filter_map(|name| self.fleet.node_named(name)).collect()
        };
        for node in gone {
            self.lost.insert(node);
            self.events.push(Event::Fleet(FleetEvent::NodeRemoved { node }));
        }
        // Names come before the nodes that use them.
        self.events.sort_by_key(|event| {
            !matches!(event, Event::Fleet(FleetEvent::PoolNamed { .. } | FleetEvent::LevelNamed { .. }))
        });
    }

    fn see(&mut self, observed: &ObservedNode) {
        // A fleet with more models than ids is beyond anything real: what is too much is not used.
        let Some(pool) = self.pool(&observed.model) else { return };
        let facts = self.facts(observed, pool);
        let known = self.fleet.node_named(&observed.name);
        let node = known.unwrap_or_else(|| {
            let node = self.next_node;
            self.next_node = NodeId(node.0 + 1);
            node
        });
        self.places.insert(observed.name.clone(), (node, facts.pool));
        self.devices.insert(node, Devices::of(&facts));
        if !facts.up {
            self.lost.insert(node);
        }
        let same = known.and_then(|node| self.fleet.node(node)).is_some_and(|known| known.facts == facts);
        if !same {
            self.events.push(Event::Fleet(FleetEvent::NodeSeen { node, facts }));
        }
    }

    fn facts(&mut self, observed: &ObservedNode, pool: PoolId) -> NodeFacts {
        let ObservedNode { name, up, model: _, gpus, capacity, others, others_gpus, domains } = observed;
        NodeFacts {
            name: name.clone(),
            up: *up,
            pool,
            gpus: gpus.iter().take(GpuMask::MAX).copied().collect(),
            capacity: *capacity,
            others: *others,
            others_gpus: *others_gpus,
            domains: domains
                .iter()
                .filter_map(|(level, domain)| Some((self.level(level)?, *domain)))
                .collect(),
        }
    }

    fn pool(&mut self, model: &str) -> Option<PoolId> {
        if let Some(at) = self.pools.iter().position(|known| known == model) {
            return u16::try_from(at).ok().map(PoolId);
        }
        let pool = u16::try_from(self.pools.len()).ok().filter(|&id| id < u16::MAX).map(PoolId)?;
        self.pools.push(String::from(model));
        self.events.push(Event::Fleet(FleetEvent::PoolNamed { pool, model: String::from(model) }));
        Some(pool)
    }

    fn level(&mut self, name: &str) -> Option<LevelId> {
        if let Some(at) = self.levels.iter().position(|known| known == name) {
            return u8::try_from(at).ok().map(LevelId);
        }
        let level = u8::try_from(self.levels.len()).ok().filter(|&id| id < u8::MAX).map(LevelId)?;
        self.levels.push(String::from(name));
        self.events.push(Event::Fleet(FleetEvent::LevelNamed { level, name: String::from(name) }));
        Some(level)
    }

    /// Where a name is, before or after this report.
    fn place(&self, name: &str) -> Option<(NodeId, PoolId)> {
        self.places.get(name).copied().or_else(|| {
            let node = self.fleet.node_named(name)?;
            Some((node, self.fleet.node(node)?.facts.pool))
        })
    }
}

/// The devices of a node.
struct Devices {
    count: usize,
    healthy: GpuMask,
}

impl Devices {
    fn of(facts: &NodeFacts) -> Self {
        let mut healthy = GpuMask::default();
        for (at, _) in facts.gpus.iter().enumerate().filter(|(_, gpu)| gpu.healthy) {
            healthy.insert(at);
        }
        Self { count: facts.gpus.len(), healthy }
    }
}

/// What is new of tasks.
#[derive(Default)]
struct TaskChanges {
    learnt: BTreeMap<JobId, Vec<(u32, TaskNews)>>,
    orphans: Vec<Event>,
    /// Tasks that are lost to their jobs and may still run; they are orphans after their jobs have let go of them.
    left: Vec<Event>,
    orphans_seen: BTreeSet<TaskRef>,
    orphans_gone: BTreeSet<TaskRef>,
    strangers: BTreeMap<Uid, Vec<ObservedTask>>,
    named: BTreeSet<TaskRef>,
    cut: CutLayouts,
}

impl TaskChanges {
    fn compare(&mut self, state: &State, report: &Report, nodes: &NodeChanges<'_>, met_before: bool) {
        for observed in &report.tasks {
            self.named.insert(observed.task);
            match ours(state, observed.task) {
                Some(job) => self.learn(job, observed),
                None if !met_before && observed.job.is_some() => {
                    self.strangers.entry(observed.task.uid).or_default().push(observed.clone());
                }
                None => self.orphan(state, observed, nodes),
            }
        }
        if report.since.is_none() {
            self.missing(state, report, nodes);
        }
    }

    fn learn(&mut self, job: JobId, observed: &ObservedTask) {
        let learnt = self.learnt.entry(job).or_default();
        if let Some(since) = observed.since {
            learnt.push((observed.task.task, TaskNews::Runs { since }));
        }
        let status = match observed.status {
            TaskStatus::Running => return,
            TaskStatus::Saved { at } => TaskNews::Saved { at },
            TaskStatus::SaveFailed => TaskNews::SaveFailed,
            TaskStatus::Ended { exit, at, detail } => TaskNews::Over { exit, at, detail },
        };
        learnt.push((observed.task.task, status));
    }

    /// An attempt that is not the one we hold.
    fn orphan(&mut self, state: &State, observed: &ObservedTask, nodes: &NodeChanges<'_>) {
        let task = observed.task;
        let known = state.ledger.orphans().contains_key(&task);
        match observed.status {
            TaskStatus::Ended { .. } => self.orphan_gone(state, task),
            TaskStatus::Running | TaskStatus::Saved { .. } | TaskStatus::SaveFailed if known => {}
            TaskStatus::Running | TaskStatus::Saved { .. } | TaskStatus::SaveFailed => {
                if !self.orphans_seen.insert(task) {
                    return;
                }
                let Some((node, pool)) = nodes.place(&observed.node) else { return };
                let mig = nodes.pools.get(pool.index()).and_then(|model| catalogue::mig(model));
                let place = placed(state, observed, (node, pool), mig, &mut self.cut);
                // A change does not carry the job; while it lives, we know what its tasks take.
                let live = state.jobs.with_uid(task.uid).and_then(|job| state.jobs.get(job));
                let spec = observed.job.as_ref().map(|job| &job.spec).or(live.map(|job| &job.spec));
                let resources = spec.map_or(Resources::default(), |spec| spec.resources_of(task.task));
                self.orphans.push(Event::Ledger(LedgerEvent::OrphanSeen {
                    task,
                    place,
                    resources,
                    kept: false,
                }));
            }
        }
    }

    fn orphan_gone(&mut self, state: &State, task: TaskRef) {
        if state.ledger.orphans().contains_key(&task) && self.orphans_gone.insert(task) {
            self.orphans.push(Event::Ledger(LedgerEvent::OrphanGone { task }));
        }
    }

    /// What a full list does not name and the world had told us of is gone. What was never told of may still
    /// be on its way: its start stays due.
    fn missing(&mut self, state: &State, report: &Report, nodes: &NodeChanges<'_>) {
        for (job, holding) in state.ledger.holdings() {
            let uid = state.jobs.get(job).expect("what is held belongs to a live job").uid;
            for task in holding.tasks.iter().filter(|task| task.holds() && task.since.is_some()) {
                let task_ref = TaskRef { uid, task: task.place.task, attempt: holding.attempt };
                if !self.named.contains(&task_ref) {
                    let node_lost = nodes.lost.contains(&task.place.node);
                    let cause = if node_lost { ExitCause::NodeLost } else { ExitCause::Missing };
                    let lost = lost(cause, Timestamp(0));
                    self.learnt.entry(job).or_default().push((task.place.task, lost));
                }
            }
        }
        let missing = state.ledger.orphans().keys().filter(|task| !self.named.contains(task));
        for task in missing.copied().collect::<Vec<_>>() {
            self.orphan_gone(state, task);
        }
        debug_assert!(report.since.is_none(), "only a full list tells what is gone");
    }

    /// What ran on nodes that are gone is lost, unless the report itself says how it ended.
    fn lose(&mut self, state: &State, nodes: &NodeChanges<'_>, now: Timestamp) {
        for &node in &nodes.lost {
            for (job, task) in state.ledger.tasks_on(node) {
                self.learnt.entry(job).or_default().push((task, lost(ExitCause::NodeLost, now)));
            }
            for task in state.ledger.orphans_on(node).collect::<Vec<_>>() {
                self.orphan_gone(state, task);
            }
        }
        self.lose_on_devices(state, nodes, now);
        // A task that is only missing ended some time before now; nobody can say when.
        for (_, learnt) in self.learnt.values_mut().flatten() {
            if let TaskNews::Over { at, .. } = learnt {
                *at = if at.0 == 0 { now } else { *at };
            }
        }
    }
}

impl TaskChanges {
    /// What ran on a device that its node no longer has, or that has failed, is lost: it is not the job's own failure. A
    /// task that still runs on a failed device does nothing of use there and is stopped like any orphan.
    fn lose_on_devices(&mut self, state: &State, nodes: &NodeChanges<'_>, now: Timestamp) {
        for (&node, devices) in nodes.devices.iter().filter(|(node, _)| !nodes.lost.contains(node)) {
            for (id, number) in state.ledger.tasks_on(node) {
                let job = state.jobs.get(id).expect("what is held belongs to a live job");
                let holding = state.ledger.holding(id).expect("what is on a node is held");
                let held = holding.task(number).expect("what is on a node is held");
                let gpus = held.place.gpus;
                if gpus.indexes().all(|gpu| devices.healthy.contains(gpu)) {
                    continue;
                }
                let learnt = self.learnt.entry(id).or_default();
                let said_over =
                    |(task, what): &(u32, TaskNews)| *task == number && matches!(what, TaskNews::Over { .. });
                let is_over = learnt.iter().any(said_over);
                learnt.push((number, lost(ExitCause::DeviceLost, now)));
                let may_run = held.since.is_some() && gpus.indexes().all(|gpu| gpu < devices.count);
                if may_run && !is_over {
                    let task = TaskRef { uid: job.uid, task: number, attempt: holding.attempt };
                    let (place, resources) = (held.place, job.spec.resources_of(number));
                    self.left.push(Event::Ledger(LedgerEvent::OrphanSeen {
                        task,
                        place,
                        resources,
                        kept: false,
                    }));
                }
            }
        }
    }
}

impl TaskChanges {
    /// What became of an action. That it was done tells nothing that a task does not tell itself.
    fn hear(&mut self, state: &State, answer: &Answer, now: Timestamp) {
        let why = match &answer.outcome {
            // Where a former leader was refused, what this one sent is still on its way.
            ActionOutcome::Done | ActionOutcome::Refused { why: Denial::StaleTerm { .. } } => return,
            ActionOutcome::Refused { why } => Some(why.clone()),
            ActionOutcome::Gone => None,
        };
        match answer.about {
            ActionRef::Start(task) => {
                let gone = || lost(ExitCause::Missing, now);
                let learnt = why.map_or_else(gone, |why| TaskNews::Refused { why, at: now });
                self.learn_of(state, task, learnt);
            }
            ActionRef::Stop(task) => {
                if why.is_none() {
                    self.orphan_gone(state, task);
                }
                let stopped =
                    || TaskNews::Over { exit: Exit::Stopped, at: now, detail: ExitDetail::default() };
                let learnt = why.map_or_else(stopped, |why| TaskNews::LeaveRefused { why, at: now });
                self.learn_of(state, task, learnt);
            }
            // What the world does with its own jobs it tells by naming them, or not.
            ActionRef::Reject(_) | ActionRef::Close(_) => {}
            ActionRef::Ask { uid, attempt } => {
                // What is gone is told by its tasks, or by the stop that follows.
                let Some(why) = why else { return };
                for task in asked_of(state, uid, attempt) {
                    let learnt = TaskNews::LeaveRefused { why: why.clone(), at: now };
                    self.learn_of(state, TaskRef { uid, task, attempt }, learnt);
                }
            }
        }
    }

    fn learn_of(&mut self, state: &State, task: TaskRef, learnt: TaskNews) {
        if let Some(job) = ours(state, task) {
            self.learnt.entry(job).or_default().push((task.task, learnt));
        }
    }
}

/// The tasks of an attempt that were asked to save their work.
fn asked_of(state: &State, uid: Uid, attempt: u32) -> Vec<u32> {
    let holding = state.jobs.with_uid(uid).and_then(|job| state.ledger.holding(job));
    let tasks = holding.filter(|holding| holding.attempt == attempt).into_iter().flat_map(|of| &of.tasks);
    let asked = tasks.filter(|task| matches!(task.phase, TaskPhase::Asked { .. }));
    asked.map(|task| task.place.task).collect()
}

/// The task did not end by itself.
fn lost(cause: ExitCause, at: Timestamp) -> TaskNews {
    TaskNews::Over { exit: Exit::Lost, at, detail: cause.into() }
}

/// The job whose present attempt this is.
fn ours(state: &State, task: TaskRef) -> Option<JobId> {
    let job = state.jobs.with_uid(task.uid)?;
    let holding = state.ledger.holding(job).filter(|holding| holding.attempt == task.attempt)?;
    holding.task(task.task).filter(|task| task.holds()).map(|_| job)
}

/// Work of a world that we meet for the first time becomes ours, with its places and its past. What cannot be
/// understood, and older attempts beside a newer one, are orphans.
fn adopt(strangers: &BTreeMap<Uid, Vec<ObservedTask>>, sites: &mut Sites<'_>, now: Timestamp) -> Vec<Event> {
    let state = sites.state;
    let mut names = Names::new(&state.tenants);
    let mut adopted = Vec::new();
    let mut next = state.jobs.next();
    for tasks in strangers.values() {
        let running = tasks
            .iter()
            .filter(|task| running_since(task).is_some() && sites.places.contains_key(&task.node));
        let attempt = running.clone().map(|task| task.task.attempt).max().unwrap_or_default();
        let (newest, mut orphans): (Vec<_>, Vec<_>) = running.partition(|task| task.task.attempt == attempt);
        let submission = newest.iter().find_map(|task| task.job.as_ref());
        // What could not have been submitted is not understood either.
        let submission = submission.filter(|submission| submit::check_spec(&submission.spec).is_ok());
        match submission.map(|submission| submit::resolve(state, submission, &mut names)) {
            Some(Ok(spec)) => {
                adopt_one(sites, next, &spec, &newest, now, &mut adopted);
                next = submit::after(next);
            }
            Some(Err(_)) | None => orphans.extend(newest),
        }
        adopted.extend(orphans.into_iter().map(|task| orphan_of(task, false, sites)));
    }
    let mut events = names.events;
    events.extend(adopted);
    events
}

fn adopt_one(
    sites: &mut Sites<'_>,
    job: JobId,
    spec: &Spec,
    tasks: &[&ObservedTask],
    now: Timestamp,
    into: &mut Vec<Event>,
) {
    let at = tasks.iter().filter_map(|task| running_since(task)).min().unwrap_or(now);
    into.push(Event::Jobs(JobsEvent::Queued {
        job,
        uid: tasks[0].task.uid,
        spec: spec.clone(),
        at,
        owned: false,
    }));
    run(sites, job, spec, tasks, now, into);
}

/// A job that holds nothing gets the places where its tasks are already.
fn run(
    sites: &mut Sites<'_>,
    job: JobId,
    spec: &Spec,
    tasks: &[&ObservedTask],
    now: Timestamp,
    into: &mut Vec<Event>,
) {
    let attempt = tasks[0].task.attempt;
    let mut placed: Vec<(Placement, Option<Timestamp>)> =
        tasks.iter().map(|task| (sites.placement(task), running_since(task))).collect();
    placed.sort_by_key(|(place, _)| place.task);
    let at = placed.iter().filter_map(|&(_, since)| since).min().unwrap_or(now);
    let held: Vec<Placement> = placed.iter().map(|&(place, _)| place).collect();
    let broken = spec.is_broken_with(held.iter().map(|place| place.task));
    into.push(Event::Ledger(LedgerEvent::Started { job, attempt, tasks: held, policy: 0, at, chosen: None }));
    into.extend(placed.into_iter().filter_map(|(place, since)| runs(job, place.task, since)));
    if broken {
        let deadline = repair_deadline(sites.state, now);
        into.push(Event::Ledger(LedgerEvent::Broken { job, deadline, at: now }));
    }
}

fn runs(job: JobId, task: u32, since: Option<Timestamp>) -> Option<Event> {
    since.map(|since| Event::Ledger(LedgerEvent::Running { job, task, since }))
}

fn orphan_of(task: &ObservedTask, kept: bool, sites: &mut Sites<'_>) -> Event {
    let spec = task.job.as_ref().map(|job| &job.spec);
    let resources = spec.map_or(Resources::default(), |spec| spec.resources_of(task.task.task));
    Event::Ledger(LedgerEvent::OrphanSeen { task: task.task, place: sites.placement(task), resources, kept })
}

fn running_since(task: &ObservedTask) -> Option<Timestamp> {
    match task.status {
        TaskStatus::Running | TaskStatus::Saved { .. } | TaskStatus::SaveFailed => task.since,
        TaskStatus::Ended { .. } => None,
    }
}

/// What is cut out of GPUs by what this report tells of.
type CutLayouts = BTreeMap<(NodeId, usize), Layout>;

/// Where things are after this report.
struct Sites<'a> {
    state: &'a State,
    places: BTreeMap<String, (NodeId, PoolId)>,
    pools: Vec<String>,
    cut: CutLayouts,
}

impl Sites<'_> {
    fn placement(&mut self, task: &ObservedTask) -> Placement {
        let at = self.places[&task.node];
        let mig = self.pools.get(at.1.index()).and_then(|model| catalogue::mig(model));
        placed(self.state, task, at, mig, &mut self.cut)
    }
}

fn slice_units(mig: Option<&Mig>, slice: Slice) -> Option<GpuUnits> {
    let mig = mig?;
    Some(units_of(mig, mig.profile(slice.profile)?))
}

/// Where a task is. A slice that could not have been cut out beside the others is not believed: its task takes the
/// whole GPU.
fn placed(
    state: &State,
    task: &ObservedTask,
    (node, pool): (NodeId, PoolId),
    mig: Option<&Mig>,
    cut: &mut CutLayouts,
) -> Placement {
    let (gpus, time_sliced) = (task.gpus, task.time_sliced);
    let legal = task.slice.filter(|&slice| {
        let Some(at) = gpus.indexes().next().filter(|_| gpus.count() == 1) else { return false };
        let known = state.ledger.rooms().get(node).and_then(|room| room.gpus.get(at));
        let layout =
            cut.entry((node, at)).or_insert_with(|| known.map_or(Layout::default(), |gpu| gpu.layout));
        let legal = mig.is_some_and(|mig| layout.allows(mig, slice));
        if legal {
            *layout = layout.with(slice);
        }
        legal
    });
    let units_each = match (task.slice, legal) {
        (None, _) => task.units_each,
        (Some(_), None) => GpuUnits::WHOLE,
        (Some(_), Some(slice)) => slice_units(mig, slice).unwrap_or(GpuUnits::WHOLE),
    };
    let task = task.task.task;
    Placement { task, node, pool, gpus, units_each, slice: legal, time_sliced, tax: 0 }
}
