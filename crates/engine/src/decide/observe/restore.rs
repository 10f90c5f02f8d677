//! A journal that was put back from an older copy meets a world that has gone on without it.
//!
//! The world is right about what runs, and about what ended for as long as it remembers. The journal is right about what was
//! asked for up to the moment of the copy. Between the two:
//!
//! - What runs goes on. A job that the journal knows gets the attempt and the tasks that the world runs; one that it does not
//!   know is adopted with the submission that came with its tasks. Nothing is stopped, save an older attempt beside a
//!   newer one and work of a job that the journal itself saw cancelled.
//! - What ended, by the world's memory, has ended. It is not run again, and its identity is not used again.
//! - Whatever else the journal takes for waiting or running may have run, ended or been cancelled since. It is held until
//!   a person releases or cancels it.
//!
//! What the journal decided and the world cannot confirm is forgotten: promises are released and asks to leave
//! withdrawn. The ordinary rules make them again where they still hold. Places are given back before any are taken,
//! because a restored job may run where the journal has another one.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::super::conclude::{TaskNews, conclude};
use super::super::{Decision, Names, submit};
use super::{CutLayouts, NodeChanges, Sites, in_order, orphan_of, run, running_since, runs};
use crate::model::exit::{Exit, ExitDetail, Outcome};
use crate::model::job::Spec;
use crate::model::observed::{ObservedTask, Report, TaskStatus};
use crate::model::rejection::Rejection;
use crate::state::State;
use crate::state::earmarks::EarmarksEvent;
use crate::state::event::Event;
use crate::state::fleet::FleetEvent;
use crate::state::holding::{HeldTask, Holding, TaskPhase};
use crate::state::jobs::event::{HeldWhy, JobsEvent, Next, RequeueWhy};
use crate::state::jobs::{Job, Phase};
use crate::state::ledger::event::LedgerEvent;
use crate::units::{JobId, Millis, Timestamp, Uid};

pub(in crate::decide) fn restore(
    state: &State,
    report: &Report,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    in_order(state, report)?;
    let mut nodes = NodeChanges::new(&state.fleet);
    nodes.compare(report);
    let mut by_uid: BTreeMap<Uid, Vec<&ObservedTask>> = BTreeMap::new();
    for task in &report.tasks {
        by_uid.entry(task.task.uid).or_default().push(task);
    }
    let cut = cut_by_what_stays(state, &by_uid);
    let sites = Sites { state, places: nodes.places, pools: nodes.pools, cut };
    let mut restore = Restore {
        state,
        now,
        sites,
        names: Names::new(&state.tenants),
        closing: Vec::new(),
        opening: Vec::new(),
    };
    restore.release_earmarks();
    let strangers = restore.strangers(&by_uid);
    let over = restore.give_way(&strangers, &by_uid);
    for (id, job) in state.jobs.iter().filter(|(id, _)| !over.contains(id)) {
        let tasks = by_uid.get(&job.uid).map(Vec::as_slice).unwrap_or_default();
        restore.job(id, job, tasks);
    }
    restore.adopt(strangers);
    restore.remember(&by_uid);
    restore.orphans(&by_uid);
    let Restore { names, closing, opening, .. } = restore;
    let mut events = nodes.events;
    events.extend(names.events);
    events.extend(closing);
    events.extend(opening);
    let (world, generation) = (report.world, report.generation);
    events.push(Event::Fleet(FleetEvent::WorldSeen { world, generation }));
    Ok(events.into())
}

/// What a restore comes to, in the order in which it happens.
struct Restore<'a> {
    state: &'a State,
    now: Timestamp,
    sites: Sites<'a>,
    names: Names<'a>,
    /// What gives places back.
    closing: Vec<Event>,
    /// What takes them.
    opening: Vec<Event>,
}

/// Work that the journal does not know.
struct UnknownWork<'a> {
    tasks: Vec<&'a ObservedTask>,
    spec: Option<Spec>,
}

impl Restore<'_> {
    fn runs(&self, task: &ObservedTask) -> bool {
        !matches!(task.status, TaskStatus::Ended { .. }) && self.sites.places.contains_key(&task.node)
    }

    /// Whether it runs by right, as far as anybody knows: an orphan of the journal's own stays one.
    fn is_alive(&self, task: &ObservedTask) -> bool {
        self.runs(task) && !self.state.ledger.orphans().contains_key(&task.task)
    }

    /// The newest attempt that runs, if one does.
    fn newest<'t>(&self, tasks: &[&'t ObservedTask]) -> Vec<&'t ObservedTask> {
        let alive = || tasks.iter().copied().filter(|task| self.is_alive(task));
        let attempt = alive().map(|task| task.task.attempt).max();
        alive().filter(|task| Some(task.task.attempt) == attempt).collect()
    }

    fn release_earmarks(&mut self) {
        for (job, _) in self.state.earmarks.iter() {
            self.closing.push(Event::Earmarks(EarmarksEvent::Released { job, at: self.now }));
        }
    }

    /// What runs of jobs that the journal does not know, with what can be understood of it.
    fn strangers<'t>(&mut self, by_uid: &BTreeMap<Uid, Vec<&'t ObservedTask>>) -> Vec<UnknownWork<'t>> {
        let mut strangers = Vec::new();
        for (&uid, tasks) in by_uid {
            let newest = self.newest(tasks);
            let known = self.state.jobs.with_uid(uid).is_some() || self.state.jobs.ended_lately(uid);
            if newest.is_empty() || known {
                continue;
            }
            let submission = newest.iter().find_map(|task| task.job.as_ref());
            let submission = submission.filter(|given| submit::check_spec(&given.spec).is_ok());
            let spec = submission.and_then(|given| submit::resolve(self.state, given, &mut self.names).ok());
            strangers.push(UnknownWork { tasks: newest, spec });
        }
        strangers
    }

    /// A name belongs to one live job of a tenant. Where a later job took it, the one that the journal knows is over.
    fn give_way(
        &mut self,
        strangers: &[UnknownWork<'_>],
        by_uid: &BTreeMap<Uid, Vec<&ObservedTask>>,
    ) -> BTreeSet<JobId> {
        let mut over = BTreeSet::new();
        for spec in strangers.iter().filter_map(|stranger| stranger.spec.as_ref()) {
            let Some(id) = self.state.jobs.named(spec.tenant, &spec.name) else { continue };
            let job = self.state.jobs.get(id).expect("a named job is live");
            let tasks = by_uid.get(&job.uid).map(Vec::as_slice).unwrap_or_default();
            if self.newest(tasks).is_empty() && over.insert(id) {
                self.lose_places(id);
                // Nobody can say how it ended where the world has forgotten it; its owner wanted the name again.
                let ended = ended(job, tasks, 0).unwrap_or((Outcome::Cancelled, self.now));
                let (outcome, at) = ended;
                self.closing.push(Event::Jobs(JobsEvent::Ended { job: id, outcome, at, by: None }));
            }
        }
        over
    }

    fn job(&mut self, id: JobId, job: &Job, tasks: &[&ObservedTask]) {
        if job.held.is_some() && self.newest(tasks).is_empty() {
            return;
        }
        let holding = self.state.ledger.holding(id);
        let newest = self.newest(tasks);
        let runs = newest.first().map(|task| task.task.attempt);
        let held = holding.map(|holding| holding.attempt);
        let ends = matches!(job.phase, Phase::Leaving(Next::End(_)));
        match (holding, runs) {
            (Some(holding), Some(attempt)) if held == Some(attempt) => {
                self.goes_on(id, job, holding, tasks, &newest);
            }
            (_, Some(attempt)) if !ends && held.is_none_or(|held| held < attempt) => {
                self.requeue(id, job);
                if job.held.is_some() {
                    self.closing.push(Event::Jobs(JobsEvent::Released { job: id, at: self.now }));
                }
                self.grow_service(id, job, newest.len());
                run(&mut self.sites, id, &job.spec, &newest, self.now, &mut self.opening);
            }
            (holding, _) => self.is_over(id, job, holding, tasks),
        }
    }

    /// The attempt that the journal knows runs. Some of its tasks may be over, and it may have grown.
    fn goes_on(
        &mut self,
        id: JobId,
        job: &Job,
        holding: &Holding,
        tasks: &[&ObservedTask],
        newest: &[&ObservedTask],
    ) {
        let learnt = learnt(holding, tasks, self.now);
        let nothing_over = !learnt.iter().any(|(_, learnt)| matches!(learnt, TaskNews::Over { .. }));
        self.closing.extend(conclude(self.state, id, &learnt, self.now));
        let is_held = |task: u32| holding.task(task).is_some_and(HeldTask::holds);
        let more: Vec<&ObservedTask> =
            newest.iter().copied().filter(|task| !is_held(task.task.task)).collect();
        if !more.is_empty() && nothing_over {
            self.grow_service(id, job, newest.len());
            let placed: Vec<_> =
                more.iter().map(|task| (self.sites.placement(task), running_since(task))).collect();
            let tasks = placed.iter().map(|&(place, _)| place).collect();
            self.opening.push(Event::Ledger(LedgerEvent::Grown { job: id, tasks, policy: 0, at: self.now }));
            self.opening.extend(placed.into_iter().filter_map(|(place, since)| runs(id, place.task, since)));
        }
        if nothing_over {
            self.withdraw(id, job, holding);
        }
        self.extend_overdue(id, job, holding);
    }

    /// Whether an ask to leave still stands nobody knows; what was asked long ago and still runs was let stay.
    fn withdraw(&mut self, id: JobId, job: &Job, holding: &Holding) {
        let asked = |phase: TaskPhase| matches!(phase, TaskPhase::Asked { .. });
        let held = || holding.tasks.iter().filter(|task| task.holds());
        let tasks: Vec<u32> = held().filter(|task| asked(task.phase)).map(|task| task.place.task).collect();
        if tasks.is_empty() {
            return;
        }
        let all = held().all(|task| task.stays() || asked(task.phase));
        match job.phase {
            Phase::Leaving(_) if !all => return,
            Phase::Leaving(_) => self.opening.push(Event::Jobs(JobsEvent::Stays { job: id, at: self.now })),
            Phase::Active | Phase::Waiting => {}
        }
        self.opening.push(Event::Ledger(LedgerEvent::Withdrawn { job: id, tasks, at: self.now }));
    }

    /// A job that runs past its limit was extended since the copy was made, by how much nobody knows: it gets its limit
    /// once more.
    fn extend_overdue(&mut self, id: JobId, job: &Job, holding: &Holding) {
        let (Some(due), Some(limit)) = (job.wrap_up_at, job.time_limit()) else { return };
        if due <= self.now {
            let ran = job.past.ran_ms.saturating_add(holding.ran(self.now));
            let limit = Millis(ran.saturating_add(limit.0));
            self.opening.push(Event::Jobs(JobsEvent::Extended { job: id, limit, at: self.now }));
        }
    }

    /// A service that runs more replicas than the journal wants was scaled since the copy was made.
    fn grow_service(&mut self, id: JobId, job: &Job, running: usize) {
        let Some(service) = job.spec.service else { return };
        let tasks = u32::try_from(running).unwrap_or(u32::MAX).min(service.max);
        if tasks > job.wanted() {
            self.closing.push(Event::Jobs(JobsEvent::Scaled { job: id, tasks, at: self.now }));
        }
    }

    /// Nothing of it runs. Either the world remembers how it ended, or a person has to say.
    fn is_over(&mut self, id: JobId, job: &Job, holding: Option<&Holding>, tasks: &[&ObservedTask]) {
        let known = holding.map_or(job.past.attempts, |holding| holding.attempt);
        let newer = tasks.iter().any(|task| task.task.attempt > known);
        let ends = matches!(job.phase, Phase::Leaving(Next::End(_)));
        let is_told = |holding: &&Holding| {
            ends || holding.holding_tasks().iter().all(|&task| named(tasks, holding, task).is_some())
        };
        if let Some(holding) = holding.filter(|_| !newer).filter(is_told) {
            let learnt = learnt(holding, tasks, self.now);
            let events = conclude(self.state, id, &learnt, self.now);
            let waits = events.iter().any(|event| matches!(event, Event::Jobs(JobsEvent::Requeued { .. })));
            self.closing.extend(events);
            if waits {
                self.hold(id);
            }
            return;
        }
        self.requeue(id, job);
        match ended(job, tasks, known) {
            Some((outcome, at)) => {
                self.closing.push(Event::Jobs(JobsEvent::Ended { job: id, outcome, at, by: None }));
            }
            None => self.hold(id),
        }
    }

    fn hold(&mut self, job: JobId) {
        self.closing.push(Event::Jobs(JobsEvent::Held { job, why: HeldWhy::Restored, at: self.now }));
    }

    /// It holds nothing of what the journal gave it.
    fn requeue(&mut self, id: JobId, job: &Job) {
        self.lose_places(id);
        match job.phase {
            Phase::Waiting => return,
            Phase::Active | Phase::Leaving(Next::End(_)) => {
                let next = Next::Requeue(RequeueWhy::NodeLost);
                self.closing.push(Event::Jobs(JobsEvent::Leaving { job: id, next, at: self.now, by: None }));
            }
            Phase::Leaving(Next::Requeue(_)) => {}
        }
        let not_before = Timestamp(0);
        self.closing.push(Event::Jobs(JobsEvent::Requeued { job: id, not_before, at: self.now }));
    }

    fn lose_places(&mut self, id: JobId) {
        let Some(holding) = self.state.ledger.holding(id) else { return };
        for held in holding.tasks.iter().filter(|task| task.holds()) {
            // Nobody can say how long it ran. That it did not run at all leaves it the most of its time limit.
            let (task, at) = (held.place.task, held.since.unwrap_or(holding.at));
            let (exit, detail) = (Exit::Lost, ExitDetail::default());
            self.closing.push(Event::Ledger(LedgerEvent::Gone { job: id, task, exit, at, detail }));
        }
    }

    fn adopt(&mut self, strangers: Vec<UnknownWork<'_>>) {
        let mut next = self.state.jobs.next();
        let mut taken = BTreeSet::new();
        for UnknownWork { tasks, spec } in strangers {
            let is_free = |spec: &Spec| {
                let named = self.state.jobs.named(spec.tenant, &spec.name);
                let over = |id| self.closing.iter().any(|event| ends(event, id));
                named.is_none_or(over) && !taken.contains(&(spec.tenant, spec.name.clone()))
            };
            if let Some(spec) = spec.filter(is_free) {
                taken.insert((spec.tenant, spec.name.clone()));
                super::adopt_one(&mut self.sites, next, &spec, &tasks, self.now, &mut self.opening);
                next = submit::after(next);
            } else {
                let kept = tasks.iter().map(|task| orphan_of(task, true, &mut self.sites));
                self.opening.extend(kept);
            }
        }
    }

    /// Identities of jobs that the journal never knew and that are over: a request that is repeated does not run again.
    fn remember(&mut self, by_uid: &BTreeMap<Uid, Vec<&ObservedTask>>) {
        let mut ended: Vec<(Timestamp, Uid)> = Vec::new();
        for (&uid, tasks) in by_uid {
            let known = self.state.jobs.with_uid(uid).is_some() || self.state.jobs.ended_lately(uid);
            if !known && !tasks.iter().any(|task| self.runs(task)) {
                let last = tasks.iter().filter_map(|task| over(task)).map(|(_, at)| at).max();
                ended.extend(last.map(|at| (at, uid)));
            }
        }
        ended.sort_unstable();
        let carried = ended.into_iter().map(|(at, uid)| Event::Jobs(JobsEvent::CarriedEnded { uid, at }));
        self.closing.extend(carried);
    }

    /// Older attempts beside a newer one, and what is left of jobs that the journal saw end, should not run. Orphans that the
    /// journal knows and the world does not are gone.
    fn orphans(&mut self, by_uid: &BTreeMap<Uid, Vec<&'_ ObservedTask>>) {
        let mut alive = BTreeSet::new();
        for (&uid, tasks) in by_uid {
            let over = self.state.jobs.ended_lately(uid);
            let newest = self.newest(tasks).first().map(|task| task.task.attempt);
            for task in tasks.iter().filter(|task| self.runs(task)).collect::<Vec<_>>() {
                alive.insert(task.task);
                let known = self.state.ledger.orphans().contains_key(&task.task);
                let stale = over || Some(task.task.attempt) != newest;
                if stale && !known && !self.is_ours(task) {
                    let orphan = orphan_of(task, false, &mut self.sites);
                    self.opening.push(orphan);
                }
            }
        }
        let gone = self.state.ledger.orphans().keys().filter(|task| !alive.contains(task));
        let gone: Vec<Event> = gone.map(|&task| Event::Ledger(LedgerEvent::OrphanGone { task })).collect();
        self.closing.extend(gone);
    }

    fn is_ours(&self, task: &ObservedTask) -> bool {
        super::ours(self.state, task.task).is_some()
    }
}

fn ends(event: &Event, id: JobId) -> bool {
    matches!(event, Event::Jobs(JobsEvent::Ended { job, .. }) if *job == id)
}

fn over(task: &ObservedTask) -> Option<(Exit, Timestamp)> {
    match task.status {
        TaskStatus::Ended { exit, at, .. } => Some((exit, at)),
        TaskStatus::Running | TaskStatus::Saved { .. } | TaskStatus::SaveFailed => None,
    }
}

/// What the world says of the tasks that the journal holds. What it does not know any more is lost, also what it was
/// never seen to start.
fn learnt(holding: &Holding, tasks: &[&ObservedTask], now: Timestamp) -> Vec<(u32, TaskNews)> {
    let mut learnt = Vec::new();
    for held in holding.tasks.iter().filter(|task| task.holds()) {
        let number = held.place.task;
        let Some(task) = named(tasks, holding, number) else {
            let detail = ExitDetail::default();
            learnt.push((number, TaskNews::Over { exit: Exit::Lost, at: now, detail }));
            continue;
        };
        learnt.extend(task.since.map(|since| (number, TaskNews::Runs { since })));
        if let TaskStatus::Ended { exit, at, detail } = task.status {
            learnt.push((number, TaskNews::Over { exit, at, detail }));
        }
    }
    learnt
}

/// What the world says of a task of a holding.
fn named<'t>(tasks: &[&'t ObservedTask], holding: &Holding, task: u32) -> Option<&'t ObservedTask> {
    let is_it = |other: &&ObservedTask| other.task.attempt == holding.attempt && other.task.task == task;
    tasks.iter().copied().find(is_it)
}

/// How a job ended, where the world remembers enough of its last attempt after `known` to be sure.
fn ended(job: &Job, tasks: &[&ObservedTask], known: u32) -> Option<(Outcome, Timestamp)> {
    let last = tasks.iter().map(|task| task.task.attempt).max().filter(|&last| last > known)?;
    let exits: Vec<(u32, Exit, Timestamp)> = tasks
        .iter()
        .filter(|task| task.task.attempt == last)
        .filter_map(|task| over(task).map(|(exit, at)| (task.task.task, exit, at)))
        .collect();
    let at = exits.iter().map(|&(_, _, at)| at).max()?;
    let failed = exits.iter().any(|&(_, exit, _)| exit == Exit::Failed);
    let done = exits.iter().filter(|&&(_, exit, _)| exit == Exit::Succeeded).map(|&(task, _, _)| task);
    if failed {
        return (job.past.failures >= job.spec.retries).then_some((Outcome::Failed, at));
    }
    job.spec.is_met_by(done).then_some((Outcome::Succeeded, at))
}

/// The slices of what stays where the journal has it. Everything else is about to be given back.
fn cut_by_what_stays(state: &State, by_uid: &BTreeMap<Uid, Vec<&ObservedTask>>) -> CutLayouts {
    let mut cut = CutLayouts::new();
    for (id, node) in state.fleet.nodes() {
        for gpu in 0..node.facts.gpus.len() {
            cut.insert((id, gpu), crate::device::geometry::Layout::default());
        }
    }
    let runs = |task: &&&ObservedTask| !matches!(task.status, TaskStatus::Ended { .. });
    let alive: BTreeSet<_> = by_uid.values().flatten().filter(runs).map(|task| task.task).collect();
    let mut keep = |place: &crate::model::placement::Placement| {
        if let (Some(slice), Some(gpu)) = (place.slice, place.gpus.indexes().next()) {
            let layout = cut.entry((place.node, gpu)).or_default();
            *layout = layout.with(slice);
        }
    };
    for (job, holding) in state.ledger.holdings() {
        let uid = state.jobs.get(job).expect("what is held belongs to a live job").uid;
        for held in holding.tasks.iter().filter(|task| task.holds()) {
            let (task, attempt) = (held.place.task, holding.attempt);
            if alive.contains(&crate::model::observed::TaskRef { uid, task, attempt }) {
                keep(&held.place);
            }
        }
    }
    for (task, orphan) in state.ledger.orphans() {
        if alive.contains(task) {
            keep(&orphan.place);
        }
    }
    cut
}
