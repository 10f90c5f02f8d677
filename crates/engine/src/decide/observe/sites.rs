//! What a report changes of nodes, and where the work is that it names: work that nobody here placed there is adopted, or an
//! orphan.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use crate::decide::conclude::repair_deadline;
use crate::decide::names::{Names, position_of};
use crate::decide::submit;
use crate::device::catalogue::{self, Mig};
use crate::device::geometry::{Layout, units_of};
use crate::model::job::Spec;
use crate::model::observed::{ObservedGpu, ObservedNode, ObservedTask, Report, Scope, TaskRef, TaskStatus};
use crate::model::placement::Placement;
use crate::state::State;
use crate::state::event::Event;
use crate::state::fleet::{FleetEvent, NodeFacts};
use crate::state::jobs::event::JobsEvent;
use crate::state::ledger::event::LedgerEvent;
use crate::units::{GpuMask, GpuUnits, JobId, LevelId, NodeId, PoolId, Resources, Timestamp};

/// What is cut out of GPUs by what a report tells of.
pub(super) type CutLayouts = BTreeMap<(NodeId, usize), Layout>;

/// Where things are after a report, and what is new of nodes.
pub(super) struct Sites<'a> {
    pub(super) state: &'a State,
    pub(super) now: Timestamp,
    /// Models by pool.
    pools: Vec<String>,
    levels: Vec<String>,
    next_node: NodeId,
    pub(super) places: BTreeMap<String, (NodeId, PoolId)>,
    pub(super) gpus: BTreeMap<NodeId, &'a [ObservedGpu]>,
    /// Nodes whose tasks are lost.
    pub(super) lost: BTreeSet<NodeId>,
    pub(super) events: Vec<Event>,
    pub(super) cut: CutLayouts,
    next_job: JobId,
}

impl<'a> Sites<'a> {
    pub(super) fn after(state: &'a State, report: &'a Report, now: Timestamp) -> Self {
        let fleet = &state.fleet;
        let mut sites = Self {
            state,
            now,
            pools: fleet.pools().to_vec(),
            levels: fleet.levels().to_vec(),
            next_node: fleet.next_node(),
            places: BTreeMap::new(),
            gpus: BTreeMap::new(),
            lost: BTreeSet::new(),
            events: Vec::new(),
            cut: CutLayouts::new(),
            next_job: state.jobs.next(),
        };
        for observed in &report.nodes {
            sites.see(observed);
        }
        let gone = sites.gone(report);
        sites.events.extend(gone.iter().map(|&node| Event::Fleet(FleetEvent::NodeRemoved { node })));
        sites.lost.extend(gone);
        // Names come before the nodes that use them.
        sites.events.sort_by_key(|event| {
            !matches!(event, Event::Fleet(FleetEvent::PoolNamed { .. } | FleetEvent::LevelNamed { .. }))
        });
        sites
    }

    fn gone(&self, report: &Report) -> Vec<NodeId> {
        match (report.scope, report.since) {
            // The list that follows tells what is gone, and with it what became of the tasks there.
            (Scope::Nodes, _) => Vec::new(),
            (Scope::All, None) => {
                let gone =
                    self.state.fleet.nodes().filter(|(_, node)| !self.places.contains_key(&node.facts.name));
                gone.map(|(id, _)| id).collect()
            }
            (Scope::All, Some(_)) => {
                report.nodes_gone.iter().filter_map(|name| self.state.fleet.node_named(name)).collect()
            }
        }
    }

    fn see(&mut self, observed: &'a ObservedNode) {
        let Some(pool) = self.pool(&observed.model) else { return };
        let facts = self.facts(observed, pool);
        let known = self.state.fleet.node_named(&observed.name);
        let node = known.unwrap_or(self.next_node);
        self.next_node.0 += u32::from(known.is_none());
        self.places.insert(observed.name.clone(), (node, pool));
        self.gpus.insert(node, &observed.gpus);
        if !facts.up {
            self.lost.insert(node);
        }
        if self.state.fleet.node(node).is_none_or(|known| known.facts != facts) {
            self.events.push(Event::Fleet(FleetEvent::NodeSeen { node, facts }));
        }
    }

    fn facts(&mut self, observed: &ObservedNode, pool: PoolId) -> NodeFacts {
        let ObservedNode { name, up, model: _, gpus, capacity, others, others_gpus, domains } = observed;
        let domains = domains.iter().filter_map(|(level, domain)| Some((self.level(level)?, *domain)));
        NodeFacts {
            name: name.clone(),
            up: *up,
            pool,
            gpus: gpus.iter().take(GpuMask::MAX).copied().collect(),
            capacity: *capacity,
            others: *others,
            others_gpus: *others_gpus,
            domains: domains.collect(),
        }
    }

    /// A fleet with more models than ids is beyond anything real: what is too much is not used.
    fn pool(&mut self, model: &str) -> Option<PoolId> {
        let (at, is_new) = position_of(&mut self.pools, model);
        let pool = u16::try_from(at).ok().filter(|&id| id < u16::MAX).map(PoolId)?;
        if is_new {
            self.events.push(Event::Fleet(FleetEvent::PoolNamed { pool, model: String::from(model) }));
        }
        Some(pool)
    }

    fn level(&mut self, name: &str) -> Option<LevelId> {
        let (at, is_new) = position_of(&mut self.levels, name);
        let level = u8::try_from(at).ok().filter(|&id| id < u8::MAX).map(LevelId)?;
        if is_new {
            self.events.push(Event::Fleet(FleetEvent::LevelNamed { level, name: String::from(name) }));
        }
        Some(level)
    }

    /// Where a task is, on a node that is reported or known.
    fn placement(&mut self, task: &ObservedTask) -> Option<Placement> {
        let fleet = &self.state.fleet;
        let (node, pool) = self.places.get(&task.node).copied().or_else(|| {
            let node = fleet.node_named(&task.node)?;
            Some((node, fleet.node(node)?.facts.pool))
        })?;
        let mig = self.pools.get(pool.index()).and_then(|model| catalogue::mig(model));
        let profile = task.slice.and_then(|slice| mig?.profile(slice.profile));
        let slice = task.slice.filter(|_| self.cut_out(task, node, mig));
        let units_each = match (task.slice, slice.and(mig).zip(profile)) {
            (None, _) => task.units_each,
            // A slice that is not believed: its task takes the whole GPU.
            (Some(_), None) => GpuUnits::WHOLE,
            (Some(_), Some((mig, profile))) => units_of(mig, profile),
        };
        let (gpus, time_sliced, task) = (task.gpus, task.time_sliced, task.task.task);
        Some(Placement { task, node, pool, gpus, units_each, slice, time_sliced, tax: 0 })
    }

    /// Whether the slice of a task could have been cut out beside the others, which it then is.
    fn cut_out(&mut self, task: &ObservedTask, node: NodeId, mig: Option<&Mig>) -> bool {
        let only = task.gpus.indexes().next().filter(|_| task.gpus.count() == 1);
        let (Some(at), Some(slice)) = (only, task.slice) else { return false };
        let known = self.state.ledger.rooms().get(node).and_then(|room| room.gpus.get(at));
        let layout = || known.map_or(Layout::default(), |gpu| gpu.layout);
        let layout = self.cut.entry((node, at)).or_insert_with(layout);
        let legal = mig.is_some_and(|mig| layout.allows(mig, slice));
        if legal {
            *layout = layout.with(slice);
        }
        legal
    }

    /// The places of tasks of one job, by number, and the events that they run.
    pub(super) fn places_of(&mut self, job: JobId, tasks: &[&ObservedTask]) -> (Vec<Placement>, Vec<Event>) {
        let place = |task: &&ObservedTask| Some((self.placement(task)?, running_since(task)));
        let mut placed: Vec<_> = tasks.iter().filter_map(place).collect();
        placed.sort_by_key(|(place, _)| place.task);
        let running = placed.iter().filter_map(|&(Placement { task, .. }, since)| {
            Some(Event::Ledger(LedgerEvent::Running { job, task, since: since? }))
        });
        (placed.iter().map(|&(place, _)| place).collect(), running.collect())
    }

    /// A job that the state does not know goes on as ours, with its places and its past.
    pub(super) fn adopt(&mut self, spec: Spec, tasks: &[&ObservedTask]) -> Vec<Event> {
        let (job, uid) = (self.next_job, tasks[0].task.uid);
        self.next_job.0 += 1;
        let at = tasks.iter().filter_map(|task| running_since(task)).min().unwrap_or(self.now);
        let started = self.run(job, &spec, tasks);
        let queued = JobsEvent::Queued { job, uid, spec, at, owned: false };
        [Event::Jobs(queued)].into_iter().chain(started).collect()
    }

    /// A job that holds nothing gets the places where its tasks are already.
    pub(super) fn run(&mut self, job: JobId, spec: &Spec, tasks: &[&ObservedTask]) -> Vec<Event> {
        let (now, attempt) = (self.now, tasks[0].task.attempt);
        let at = tasks.iter().filter_map(|task| running_since(task)).min().unwrap_or(now);
        let (tasks, running) = self.places_of(job, tasks);
        let broken = spec.is_broken_with(tasks.iter().map(|place| place.task));
        let started = LedgerEvent::Started { job, attempt, tasks, policy: 0, at, chosen: None };
        let deadline = repair_deadline(self.state, now);
        let broken = broken.then_some(Event::Ledger(LedgerEvent::Broken { job, deadline, at: now }));
        [Event::Ledger(started)].into_iter().chain(running).chain(broken).collect()
    }

    /// The event that a task runs and should not; `kept` where it is left alone.
    pub(super) fn orphan(&mut self, observed: &ObservedTask, kept: bool) -> Option<Event> {
        let (task, jobs) = (observed.task, &self.state.jobs);
        // A change does not carry the job; while it lives, we know what its tasks take.
        let live = jobs.with_uid(task.uid).and_then(|job| jobs.get(job)).map(|job| &job.spec);
        let spec = observed.job.as_ref().map(|job| &job.spec).or(live);
        let resources = spec.map_or(Resources::default(), |spec| spec.resources_of(task.task));
        Some(orphan_seen(task, self.placement(observed)?, resources, kept))
    }
}

pub(super) fn orphan_seen(task: TaskRef, place: Placement, resources: Resources, kept: bool) -> Event {
    Event::Ledger(LedgerEvent::OrphanSeen { task, place, resources, kept })
}

/// The newest attempt among tasks of one job, and what is older.
pub(super) fn newest_attempt<'t>(
    tasks: impl Iterator<Item = &'t ObservedTask> + Clone,
) -> (Vec<&'t ObservedTask>, Vec<&'t ObservedTask>) {
    let newest = tasks.clone().map(|task| task.task.attempt).max();
    tasks.partition(|task| Some(task.task.attempt) == newest)
}

/// What a job asks for by the submission that came with its tasks, where that could have been submitted.
pub(super) fn understood(tasks: &[&ObservedTask], names: &mut Names<'_>) -> Option<Spec> {
    let submission = tasks.iter().find_map(|task| task.job.as_ref())?;
    submit::check_spec(&submission.spec).ok()?;
    submit::resolve(submission, names).ok()
}

pub(super) fn is_over(task: &ObservedTask) -> bool {
    matches!(task.status, TaskStatus::Ended { .. })
}

fn running_since(task: &ObservedTask) -> Option<Timestamp> {
    task.since.filter(|_| !is_over(task))
}
