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
//! What the journal decided and the world cannot confirm is forgotten: earmarks are released and asks to leave
//! taken back. The ordinary rules make them again where they still hold. Places are given back before any are taken,
//! because a restored job may run where the journal has another one.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem::take;

use super::sites::{CutLayouts, Sites, is_over, newest_attempt, understood};
use super::{in_order, news_of, ours, world_seen};
use crate::decide::conclude::{TaskNews, asked, conclude};
use crate::decide::live::LiveJob;
use crate::decide::{Decision, Names};
use crate::device::geometry::Layout;
use crate::model::exit::{Exit, ExitDetail, Outcome};
use crate::model::job::Spec;
use crate::model::observed::{ObservedTask, Report, TaskStatus};
use crate::model::rejection::Rejection;
use crate::state::State;
use crate::state::event::Event;
use crate::state::fleet::Node;
use crate::state::holding::Holding;
use crate::state::jobs::event::{HeldWhy, JobsEvent, Next, RequeueWhy};
use crate::state::jobs::{Job, Phase};
use crate::state::ledger::event::LedgerEvent;
use crate::units::{JobId, Millis, NodeId, Timestamp, Uid};

type TasksByJob<'t> = BTreeMap<Uid, Vec<&'t ObservedTask>>;

pub(crate) fn restore(state: &State, report: &Report, now: Timestamp) -> Result<Decision, Rejection> {
    in_order(state, report)?;
    let mut sites = Sites::after(state, report, now);
    let mut events = take(&mut sites.events);
    sites.cut = cut_by_what_stays(state, report);
    let mut by_uid = TasksByJob::new();
    for task in &report.tasks {
        by_uid.entry(task.task.uid).or_default().push(task);
    }
    let live = |(job, _)| LiveJob::of(state, job, now);
    let closing = state.earmarks.iter().map(live).map(LiveJob::without_earmark).collect();
    let mut restore = Restore { sites, by_uid, closing, opening: Vec::new() };
    let mut names = Names::new(state);
    let strangers = restore.strangers(&mut names);
    let gave_way = restore.give_way(&strangers);
    for (id, job) in state.jobs.iter().filter(|(id, _)| !gave_way.contains(id)) {
        restore.job(LiveJob { state, id, job, now });
    }
    restore.adopt(strangers);
    restore.remember_ended();
    restore.orphans();
    events.append(&mut names.events);
    events.append(&mut restore.closing);
    events.append(&mut restore.opening);
    events.push(world_seen(report));
    Ok(events.into())
}

/// What a restore comes to, in the order in which it happens.
struct Restore<'a> {
    sites: Sites<'a>,
    by_uid: TasksByJob<'a>,
    /// What gives places back.
    closing: Vec<Event>,
    /// What takes them.
    opening: Vec<Event>,
}

/// Work that the journal does not know, with what can be understood of it.
type UnknownWork<'a> = (Option<Spec>, Vec<&'a ObservedTask>);

impl<'a> Restore<'a> {
    fn runs(&self, task: &ObservedTask) -> bool {
        !is_over(task) && self.sites.places.contains_key(&task.node)
    }

    /// The newest attempt that runs by right, as far as anybody knows, if one does: an orphan of the journal's own stays one.
    fn newest<'t>(&self, tasks: &[&'t ObservedTask]) -> Vec<&'t ObservedTask> {
        let orphans = self.sites.state.ledger.orphans();
        let is_alive = |task: &&ObservedTask| self.runs(task) && !orphans.contains_key(&task.task);
        newest_attempt(tasks.iter().copied().filter(is_alive)).0
    }

    fn is_known(&self, uid: Uid) -> bool {
        self.sites.state.jobs.with_uid(uid).is_some() || self.sites.state.jobs.ended_lately(uid)
    }

    fn strangers(&self, names: &mut Names<'_>) -> Vec<UnknownWork<'a>> {
        let unknown = self.by_uid.iter().filter(|&(&uid, _)| !self.is_known(uid));
        let running = unknown.map(|(_, tasks)| self.newest(tasks)).filter(|tasks| !tasks.is_empty());
        running.map(|tasks| (understood(&tasks, names), tasks)).collect()
    }

    /// A name belongs to one live job of a tenant. Where a later job took it, the one that the journal knows is over.
    fn give_way(&mut self, strangers: &[UnknownWork<'_>]) -> BTreeSet<JobId> {
        let mut over = BTreeSet::new();
        for spec in strangers.iter().filter_map(|(spec, _)| spec.as_ref()) {
            let Some(id) = self.sites.state.jobs.named(spec.tenant, &spec.name) else { continue };
            let live = LiveJob::of(self.sites.state, id, self.sites.now);
            let tasks = self.by_uid.get(&live.job.uid).cloned().unwrap_or_default();
            if self.newest(&tasks).is_empty() && over.insert(id) {
                self.lose_places(live);
                // Nobody can say how it ended where the world has forgotten it; its owner wanted the name again.
                let (outcome, at) = ended(live.job, &tasks, 0).unwrap_or((Outcome::Cancelled, live.now));
                self.closing.push(live.ended(outcome, at, None));
            }
        }
        over
    }

    fn job(&mut self, live: LiveJob<'_>) {
        let tasks = self.by_uid.get(&live.job.uid).cloned().unwrap_or_default();
        let newest = self.newest(&tasks);
        let ends = matches!(live.job.phase, Phase::Leaving(Next::End(_)));
        let known = live.holding().map(|holding| holding.attempt);
        match newest.first().map(|task| task.task.attempt) {
            None if live.job.held.is_some() => {}
            Some(attempt) if known == Some(attempt) => self.goes_on(live, &tasks),
            Some(attempt) if !ends && known.is_none_or(|known| known < attempt) => {
                self.requeue(live);
                self.closing.extend(live.job.held.is_some().then(|| live.released()));
                self.grow_service(live, newest.len());
                self.opening.extend(self.sites.run(live.id, &live.job.spec, &newest));
            }
            _ => self.is_over(live, &tasks),
        }
    }

    /// The attempt that the journal knows runs. Some of its tasks may be over, and it may have grown.
    fn goes_on(&mut self, live: LiveJob<'_>, tasks: &[&ObservedTask]) {
        let holding = live.holding().expect("an attempt that is known is held");
        let newest = self.newest(tasks);
        let learnt = learnt(holding, tasks, live.now);
        let nothing_over = !learnt.iter().any(|(_, news)| matches!(news, TaskNews::Over { .. }));
        self.closing.extend(conclude(live, &learnt));
        let is_more = |task: &&ObservedTask| ours(self.sites.state, task.task).is_none();
        let more: Vec<&ObservedTask> = newest.iter().copied().filter(is_more).collect();
        if nothing_over && !more.is_empty() {
            self.grow_service(live, newest.len());
            let (tasks, running) = self.sites.places_of(live.id, &more);
            let grown = LedgerEvent::Grown { job: live.id, tasks, policy: 0, at: live.now };
            self.opening.push(Event::Ledger(grown));
            self.opening.extend(running);
        }
        if nothing_over {
            self.forget_asks(live, holding);
        }
        self.extend_overdue(live, holding);
    }

    /// Whether an ask to leave still stands nobody knows; what was asked long ago and still runs was let stay.
    fn forget_asks(&mut self, live: LiveJob<'_>, holding: &Holding) {
        let (tasks, leaves) = (asked(holding), matches!(live.job.phase, Phase::Leaving(_)));
        let all_may_stay = tasks.len() + holding.staying().count() == holding.holding_tasks().len();
        if !tasks.is_empty() && (all_may_stay || !leaves) {
            self.opening.extend(leaves.then(|| live.stays()));
            self.opening.push(live.withdrawn(tasks));
        }
    }

    /// A job that runs past its limit was extended since, by how much nobody knows: it gets its limit once more.
    fn extend_overdue(&mut self, live: LiveJob<'_>, holding: &Holding) {
        let LiveJob { job, id, now, .. } = live;
        let (Some(due), Some(limit)) = (job.wrap_up_at, job.time_limit()) else { return };
        if due <= now {
            let ran = job.past.ran_ms.saturating_add(holding.ran(now));
            let limit = Millis(ran.saturating_add(limit.0));
            self.opening.push(Event::Jobs(JobsEvent::Extended { job: id, limit, at: now }));
        }
    }

    /// A service that runs more replicas than the journal wants was scaled since the copy was made.
    fn grow_service(&mut self, live: LiveJob<'_>, running: usize) {
        let Some(service) = live.job.spec.service else { return };
        let tasks = u32::try_from(running).unwrap_or(u32::MAX).min(service.max);
        if tasks > live.job.wanted() {
            self.closing.push(Event::Jobs(JobsEvent::Scaled { job: live.id, tasks, at: live.now }));
        }
    }

    /// Nothing of it runs. Either the world remembers how it ended, or a person has to say.
    fn is_over(&mut self, live: LiveJob<'_>, tasks: &[&ObservedTask]) {
        let holding = live.holding();
        let known = holding.map_or(live.job.past.attempts, |holding| holding.attempt);
        let newer = tasks.iter().any(|task| task.task.attempt > known);
        let ends = matches!(live.job.phase, Phase::Leaving(Next::End(_)));
        let is_told = |holding: &&Holding| {
            ends || holding.holding_tasks().iter().all(|&task| named(tasks, holding, task).is_some())
        };
        if let Some(holding) = holding.filter(|_| !newer).filter(is_told) {
            let events = conclude(live, &learnt(holding, tasks, live.now));
            let waits = events.iter().any(|event| matches!(event, Event::Jobs(JobsEvent::Requeued { .. })));
            self.closing.extend(events);
            self.closing.extend(waits.then(|| live.held(HeldWhy::Restored)));
            return;
        }
        self.requeue(live);
        self.closing.push(match ended(live.job, tasks, known) {
            Some((outcome, at)) => live.ended(outcome, at, None),
            None => live.held(HeldWhy::Restored),
        });
    }

    /// It holds nothing of what the journal gave it.
    fn requeue(&mut self, live: LiveJob<'_>) {
        self.lose_places(live);
        let leaving = live.leaving(Next::Requeue(RequeueWhy::NodeLost), None);
        let requeued = live.requeued(Timestamp(0));
        match live.job.phase {
            Phase::Waiting => {}
            Phase::Active | Phase::Leaving(Next::End(_)) => self.closing.extend([leaving, requeued]),
            Phase::Leaving(Next::Requeue(_)) => self.closing.push(requeued),
        }
    }

    fn lose_places(&mut self, live: LiveJob<'_>) {
        let Some(holding) = live.holding() else { return };
        for held in holding.tasks.iter().filter(|task| task.holds()) {
            // Nobody can say how long it ran. That it did not run at all leaves it the most of its time limit.
            let (task, at) = (held.place.task, held.since.unwrap_or(holding.at));
            let (exit, detail) = (Exit::Lost, ExitDetail::default());
            self.closing.push(Event::Ledger(LedgerEvent::Gone { job: live.id, task, exit, at, detail }));
        }
    }

    fn adopt(&mut self, strangers: Vec<UnknownWork<'_>>) {
        let mut taken = BTreeSet::new();
        for (spec, tasks) in strangers {
            let ends =
                |event: &Event, id| matches!(event, Event::Jobs(JobsEvent::Ended { job, .. }) if *job == id);
            let is_free = |spec: &Spec| {
                let named = self.sites.state.jobs.named(spec.tenant, &spec.name);
                named.is_none_or(|id| self.closing.iter().any(|event| ends(event, id)))
                    && taken.insert((spec.tenant, spec.name.clone()))
            };
            if let Some(spec) = spec.filter(is_free) {
                self.opening.extend(self.sites.adopt(spec, &tasks));
            } else {
                self.opening.extend(tasks.iter().filter_map(|task| self.sites.orphan(task, true)));
            }
        }
    }

    /// Identities of jobs that the journal never knew and that are over: a request that is repeated does not run again.
    fn remember_ended(&mut self) {
        let over = |(&uid, tasks): (&Uid, &Vec<&ObservedTask>)| {
            let is_over = !self.is_known(uid) && !tasks.iter().any(|task| self.runs(task));
            let last = tasks.iter().filter_map(|task| exit_of(task)).map(|(_, at)| at).max();
            Some((last.filter(|_| is_over)?, uid))
        };
        let ended: BTreeSet<(Timestamp, Uid)> = self.by_uid.iter().filter_map(over).collect();
        let carried = |(at, uid)| Event::Jobs(JobsEvent::CarriedEnded { uid, at });
        self.closing.extend(ended.into_iter().map(carried));
    }

    /// Older attempts and what is left of ended jobs should not run. Orphans that the world does not know are gone.
    fn orphans(&mut self) {
        let known = self.sites.state.ledger.orphans();
        let (mut alive, mut strays) = (BTreeSet::new(), Vec::new());
        for (&uid, tasks) in &self.by_uid {
            let over = self.sites.state.jobs.ended_lately(uid);
            let newest = self.newest(tasks).first().map(|task| task.task.attempt);
            for &observed in tasks.iter().filter(|task| self.runs(task)) {
                let task = observed.task;
                alive.insert(task);
                let stale = over || Some(task.attempt) != newest;
                if stale && !known.contains_key(&task) && ours(self.sites.state, task).is_none() {
                    strays.push(observed);
                }
            }
        }
        self.opening.extend(strays.into_iter().filter_map(|task| self.sites.orphan(task, false)));
        let gone = known.keys().filter(|task| !alive.contains(task));
        self.closing.extend(gone.map(|&task| Event::Ledger(LedgerEvent::OrphanGone { task })));
    }
}

fn exit_of(task: &ObservedTask) -> Option<(Exit, Timestamp)> {
    let TaskStatus::Ended { exit, at, .. } = task.status else { return None };
    Some((exit, at))
}

/// What the world says of the tasks that the journal holds. What it does not know any more is lost, also what it was
/// never seen to start. That work was saved answers an ask, and asks are forgotten.
fn learnt(holding: &Holding, tasks: &[&ObservedTask], now: Timestamp) -> Vec<(u32, TaskNews)> {
    let lost = TaskNews::Over { exit: Exit::Lost, at: now, detail: ExitDetail::default() };
    let counts = |news: &TaskNews| matches!(news, TaskNews::Runs { .. } | TaskNews::Over { .. });
    let news = |number: u32| match named(tasks, holding, number) {
        Some(task) => news_of(task, now).filter(counts).map(|news| (number, news)).collect(),
        None => alloc::vec![(number, lost.clone())],
    };
    holding.holding_tasks().into_iter().flat_map(news).collect()
}

fn named<'t>(tasks: &[&'t ObservedTask], holding: &Holding, task: u32) -> Option<&'t ObservedTask> {
    let is_it = |other: &&ObservedTask| other.task.attempt == holding.attempt && other.task.task == task;
    tasks.iter().copied().find(is_it)
}

/// How a job ended, where the world remembers enough of its last attempt after `known` to be sure.
fn ended(job: &Job, tasks: &[&ObservedTask], known: u32) -> Option<(Outcome, Timestamp)> {
    let last = tasks.iter().map(|task| task.task.attempt).max().filter(|&last| last > known)?;
    let of_last = tasks.iter().filter(|task| task.task.attempt == last);
    let exits: Vec<_> = of_last.filter_map(|task| Some((task.task.task, exit_of(task)?))).collect();
    let at = exits.iter().map(|&(_, (_, at))| at).max()?;
    if exits.iter().any(|&(_, (exit, _))| exit == Exit::Failed) {
        return (job.past.failures >= job.spec.retries).then_some((Outcome::Failed, at));
    }
    let done = exits.iter().filter(|(_, (exit, _))| *exit == Exit::Succeeded).map(|&(task, _)| task);
    job.spec.is_met_by(done).then_some((Outcome::Succeeded, at))
}

/// The slices of what stays where the journal has it. Everything else is about to be given back.
fn cut_by_what_stays(state: &State, report: &Report) -> CutLayouts {
    let gpus = |(id, node): (NodeId, &Node)| (0..node.facts.gpus.len()).map(move |gpu| (id, gpu));
    let mut cut: CutLayouts =
        state.fleet.nodes().flat_map(gpus).map(|gpu| (gpu, Layout::default())).collect();
    let place = |task| match ours(state, task) {
        Some((_, held)) => Some(held.place),
        None => state.ledger.orphans().get(&task).map(|orphan| orphan.place),
    };
    let alive = report.tasks.iter().filter(|task| !is_over(task));
    for place in alive.filter_map(|observed| place(observed.task)) {
        if let (Some(slice), Some(gpu)) = (place.slice, place.gpus.indexes().next()) {
            let layout = cut.entry((place.node, gpu)).or_default();
            *layout = layout.with(slice);
        }
    }
    cut
}
