//! Where work that a world runs is, and what becomes of it when nobody here placed it there: it is adopted, or an orphan.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::decide::conclude::repair_deadline;
use crate::decide::names::Names;
use crate::decide::submit;
use crate::device::catalogue::{self, Mig};
use crate::device::geometry::{Layout, units_of};
use crate::model::job::Spec;
use crate::model::observed::{ObservedTask, TaskRef, TaskStatus};
use crate::model::placement::Placement;
use crate::state::State;
use crate::state::event::Event;
use crate::state::jobs::event::JobsEvent;
use crate::state::ledger::event::LedgerEvent;
use crate::units::{GpuUnits, JobId, NodeId, PoolId, Resources, Timestamp};

/// What is cut out of GPUs by what a report tells of.
pub(super) type CutLayouts = BTreeMap<(NodeId, usize), Layout>;

/// Where things are after a report.
pub(super) struct Sites<'a> {
    pub(super) state: &'a State,
    /// Reported nodes.
    pub(super) places: BTreeMap<String, (NodeId, PoolId)>,
    pub(super) pools: Vec<String>,
    pub(super) cut: CutLayouts,
}

impl Sites<'_> {
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

    /// The places of tasks of one job, by number, with the moments since when they run.
    pub(super) fn places_of(&mut self, tasks: &[&ObservedTask]) -> Vec<(Placement, Option<Timestamp>)> {
        let place = |task: &&ObservedTask| Some((self.placement(task)?, running_since(task)));
        let mut placed: Vec<_> = tasks.iter().filter_map(place).collect();
        placed.sort_by_key(|(place, _)| place.task);
        placed
    }

    /// A job that the state does not know goes on as ours, with its places and its past.
    pub(super) fn adopt(
        &mut self,
        job: JobId,
        spec: &Spec,
        tasks: &[&ObservedTask],
        now: Timestamp,
    ) -> Vec<Event> {
        let at = tasks.iter().filter_map(|task| running_since(task)).min().unwrap_or(now);
        let (uid, spec_of) = (tasks[0].task.uid, spec.clone());
        let queued = JobsEvent::Queued { job, uid, spec: spec_of, at, owned: false };
        core::iter::once(Event::Jobs(queued)).chain(self.run(job, spec, tasks, now)).collect()
    }

    /// A job that holds nothing gets the places where its tasks are already.
    pub(super) fn run(
        &mut self,
        job: JobId,
        spec: &Spec,
        tasks: &[&ObservedTask],
        now: Timestamp,
    ) -> Vec<Event> {
        let attempt = tasks[0].task.attempt;
        let placed = self.places_of(tasks);
        let at = placed.iter().filter_map(|&(_, since)| since).min().unwrap_or(now);
        let tasks: Vec<Placement> = placed.iter().map(|&(place, _)| place).collect();
        let broken = spec.is_broken_with(tasks.iter().map(|place| place.task));
        let started = LedgerEvent::Started { job, attempt, tasks, policy: 0, at, chosen: None };
        let deadline = repair_deadline(self.state, now);
        let broken = broken.then_some(Event::Ledger(LedgerEvent::Broken { job, deadline, at: now }));
        core::iter::once(Event::Ledger(started)).chain(running(job, placed)).chain(broken).collect()
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

pub(super) fn running(
    job: JobId,
    placed: Vec<(Placement, Option<Timestamp>)>,
) -> impl Iterator<Item = Event> {
    let running = move |(place, since): (Placement, Option<Timestamp>)| {
        Some(Event::Ledger(LedgerEvent::Running { job, task: place.task, since: since? }))
    };
    placed.into_iter().filter_map(running)
}

/// The newest attempt among tasks of one job, and what is older.
pub(super) fn newest_attempt<'t>(
    tasks: impl Iterator<Item = &'t ObservedTask> + Clone,
) -> (Vec<&'t ObservedTask>, Vec<&'t ObservedTask>) {
    let newest = tasks.clone().map(|task| task.task.attempt).max();
    tasks.partition(|task| Some(task.task.attempt) == newest)
}

/// What a job asks for by the submission that came with its tasks, where that could have been submitted.
pub(super) fn understood(state: &State, tasks: &[&ObservedTask], names: &mut Names<'_>) -> Option<Spec> {
    let submission = tasks.iter().find_map(|task| task.job.as_ref())?;
    submit::check_spec(&submission.spec).ok()?;
    submit::resolve(state, submission, names).ok()
}

pub(super) fn is_over(task: &ObservedTask) -> bool {
    matches!(task.status, TaskStatus::Ended { .. })
}

fn running_since(task: &ObservedTask) -> Option<Timestamp> {
    task.since.filter(|_| !is_over(task))
}
