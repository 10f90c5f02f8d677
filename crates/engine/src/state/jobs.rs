//! The jobs section: what was asked for and how far each job's life is. Places are the ledger's business.
//!
//! Jobs alike in everything the planner looks at form a *kind*; what waits is indexed by kind, oldest first.

pub(crate) mod check;
pub mod event;
mod kind;
mod linked;
mod live;
mod refused;

use crate::model::policy::Policy;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use crate::model::exit::{ExitCause, ExitDetail, Outcome};
use crate::model::job::{Shape, Spec};
use crate::state::event::Event;
use crate::state::index::list;
use crate::state::jobs::event::{Failure, HeldWhy, JobPast, JobsEvent, Next, RequeueWhy};
use crate::units::{JobId, KindId, Millis, TenantId, Timestamp, Uid};

pub use kind::{GroupKey, Kind, KindKey};
pub use live::{Array, Job, More, Phase, Rolling};
pub(crate) use refused::START_TRIES_MAX;

/// How long the identity of an ended job is kept: far longer than anybody repeats a request.
const ENDED_KEPT: Millis = Millis::from_secs(3600);

/// The live jobs.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    live: BTreeMap<JobId, Job>,
    by_uid: BTreeMap<Uid, JobId>,
    by_name: BTreeMap<(TenantId, String), JobId>,
    waiting: BTreeMap<KindId, Kind>,
    growing: BTreeMap<KindId, Kind>,
    kinds: BTreeMap<(KindKey, Option<More>), KindId>,
    next_kind: u32,
    waiting_len: u32,
    /// Bytes of text of the live jobs of each tenant.
    bytes: BTreeMap<TenantId, u64>,
    backing_off: BTreeSet<(Timestamp, JobId)>,
    services: BTreeSet<JobId>,
    refused: BTreeSet<JobId>,
    owned: BTreeSet<JobId>,
    booked: BTreeSet<JobId>,
    wrapping_up: BTreeSet<(Timestamp, JobId)>,
    /// Identities of jobs that ended a short while ago: a request that is repeated late is not run again.
    ended: BTreeMap<Uid, Timestamp>,
    ended_by_time: BTreeSet<(Timestamp, Uid)>,
    next: JobId,
    dependents: BTreeMap<JobId, BTreeSet<JobId>>,
    /// Jobs that waited for the success of one that did not succeed: they are about to be cancelled.
    broken: BTreeSet<JobId>,
    arrays: BTreeMap<Uid, Array>,
    /// Those arrays by name. Journals of earlier versions have several of one name.
    arrays_by_name: BTreeMap<(TenantId, String), BTreeSet<Uid>>,
    held_back_len: u32,
}

impl Jobs {
    /// A live job.
    pub fn get(&self, job: JobId) -> Option<&Job> {
        self.live.get(&job)
    }

    /// Every live job, in id order.
    pub fn iter(&self) -> impl Iterator<Item = (JobId, &Job)> {
        self.live.iter().map(|(&id, job)| (id, job))
    }

    /// How many live jobs there are.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// True when nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// The live job of that identity.
    pub fn with_uid(&self, uid: Uid) -> Option<JobId> {
        self.by_uid.get(&uid).copied()
    }

    pub(crate) fn ended_lately(&self, uid: Uid) -> bool {
        self.ended.contains_key(&uid)
    }

    /// The tenant's live job of that name.
    pub fn named(&self, tenant: TenantId, name: &str) -> Option<JobId> {
        self.by_name.get(&(tenant, String::from(name))).copied()
    }

    /// What waits, by kind.
    pub fn waiting(&self) -> &BTreeMap<KindId, Kind> {
        &self.waiting
    }

    /// The kind of waiting jobs that are just like one.
    pub fn kind_of(&self, job: &Job) -> Option<KindId> {
        self.kinds.get(&(job.key(), None)).copied()
    }

    /// What runs and lacks tasks, by kind.
    pub(crate) fn growing(&self) -> &BTreeMap<KindId, Kind> {
        &self.growing
    }

    /// How many tasks of each shape each tenant's own waiting jobs want. Those of a booking wait for places that are their
    /// own, not for a part of what is left.
    pub(super) fn demand(&self) -> BTreeMap<TenantId, BTreeMap<&Shape, u64>> {
        let mut demand: BTreeMap<_, BTreeMap<_, u64>> = BTreeMap::new();
        for kind in self.waiting.values().filter(|kind| kind.key.booking.is_none()) {
            let jobs = u64::try_from(kind.jobs.len()).unwrap_or(u64::MAX);
            let own = demand.entry(kind.key.tenant).or_default();
            for key in kind.key.alike() {
                *own.entry(&key.shape).or_default() += u64::from(key.tasks) * jobs;
            }
        }
        demand
    }

    /// How many jobs wait.
    pub fn waiting_len(&self) -> u32 {
        self.waiting_len
    }

    pub(crate) fn bytes_of(&self, tenant: TenantId) -> u64 {
        self.bytes.get(&tenant).copied().unwrap_or_default()
    }

    /// Bytes of text of all live jobs.
    pub fn bytes(&self) -> u64 {
        self.bytes.values().sum()
    }

    pub(crate) fn held_back_len(&self) -> u32 {
        self.held_back_len
    }

    /// The id that the next job gets.
    pub fn next(&self) -> JobId {
        self.next
    }

    /// The first moment after `now` at which a job that backs off may start, or one that was refused may grow again.
    pub(crate) fn next_start_allowed(&self, now: Timestamp) -> Option<Timestamp> {
        let later = (Timestamp(now.0.saturating_add(1)), JobId(0));
        let waits = self.backing_off.range(later..).next().map(|&(at, _)| at);
        let running = self.refused().filter(|(_, job)| job.phase == Phase::Active);
        waits.into_iter().chain(running.map(|(_, job)| job.not_before).filter(|&at| at > now)).min()
    }

    /// The earliest moment after `now` at which a time limit asks something of a job, a job that backs off may start, a
    /// node that refused a job is no longer avoided, or a rolling replacement gives up waiting for more room.
    pub(super) fn next_deadline(&self, policy: &Policy, now: Timestamp) -> Option<Timestamp> {
        let limit = self.wrapping_up.first().map(|&(at, _)| at);
        let services = self.services.iter().filter_map(|id| self.live.get(id));
        let replaced = services
            .filter(|job| job.replaces_with_less())
            .filter_map(|job| Some(job.rolling?.since + policy.gangs.repair_within));
        let refused =
            self.refused().flat_map(|(_, job)| job.past.refused.iter().map(|refusal| refusal.until));
        let start = [limit, self.next_start_allowed(now)].into_iter().flatten();
        start.chain(refused).chain(replaced).filter(|&at| at > now).min()
    }

    /// Jobs whose wanted number changes.
    pub fn services(&self) -> &BTreeSet<JobId> {
        &self.services
    }

    /// Jobs that use a booked window.
    pub fn booked(&self) -> &BTreeSet<JobId> {
        &self.booked
    }

    /// The live jobs that the world owns.
    pub fn owned(&self) -> impl Iterator<Item = (JobId, Uid)> {
        self.owned.iter().filter_map(|&id| Some((id, self.live.get(&id)?.uid)))
    }

    /// Jobs that run under a time limit, by the moment at which something is due because of it.
    pub(crate) fn wrapping_up(&self) -> &BTreeSet<(Timestamp, JobId)> {
        &self.wrapping_up
    }

    pub(crate) fn apply(&mut self, event: &JobsEvent) {
        match event {
            JobsEvent::Queued { job, uid, spec, at, owned } => self.queue(*job, *uid, spec, *at, *owned),
            JobsEvent::Leaving { job, next, at: _, by } => {
                let live = self.live_mut(*job);
                assert!(live.phase != Phase::Waiting, "a waiting job has nothing to leave");
                live.phase = Phase::Leaving(*next);
                live.cancelled_by.clone_from(by);
            }
            JobsEvent::Stays { job, at: _ } => self.live_mut(*job).phase = Phase::Active,
            JobsEvent::Requeued { job, not_before, at: _ } => self.requeue(*job, *not_before),
            JobsEvent::Extended { job, limit, at: _ } => self.live_mut(*job).past.extended = Some(*limit),
            JobsEvent::Scaled { job, tasks, at: _ } => {
                let live = self.live_mut(*job);
                let more = live.spec.tasks - live.wanted();
                live.spec.tasks = tasks.saturating_add(more);
                live.rolling = live.rolling.map(|rolling| Rolling { wanted: *tasks, ..rolling });
            }
            JobsEvent::Rolled { job, tasks, rolling, at: _ } => {
                let live = self.live_mut(*job);
                (live.spec.tasks, live.rolling) = (*tasks, *rolling);
            }
            JobsEvent::Held { job, why, at } => self.hold(*job, *why, *at),
            JobsEvent::Released { job, at: _ } => self.let_wait(*job),
            JobsEvent::StartRefused { job, tries, by, not_before, until, at } => {
                let live = self.live_mut(*job);
                assert!(live.phase != Phase::Waiting, "only what was told to start is refused");
                (live.past.refused_tries, live.not_before) = (*tries, *not_before);
                live.avoid(by, *at, *until);
                self.list(*job);
            }
            JobsEvent::Changed { job, spec, at: _ } => self.change_spec(*job, spec),
            JobsEvent::RefusalsForgotten { job, at } => self.forget_refusals(*job, *at),
            JobsEvent::ReplicaFailed { job, at: _ } => self.live_mut(*job).past.failures += 1,
            JobsEvent::Ended { job, outcome, at, by: _ } => self.end(*job, *outcome, *at),
            JobsEvent::CarriedEnded { uid, at } => self.note_ended(*uid, *at),
            JobsEvent::Carried { next_job } => self.next = *next_job,
            JobsEvent::CarriedJob { job, past, not_before } => {
                let carried = self.live_mut(*job);
                carried.past.clone_from(past);
                carried.not_before = *not_before;
                self.list(*job);
            }
        }
    }

    /// It is about to be of another kind, or its places are earmarked.
    pub(crate) fn leave_kind(&mut self, job: JobId) {
        if self.live[&job].waits_for_places() {
            self.stop_waiting(job);
        }
    }

    pub(crate) fn join_kind(&mut self, job: JobId) {
        if self.live[&job].waits_for_places() {
            self.start_waiting(job);
        }
    }

    /// What is held is no demand, and no plan looks at it.
    fn hold(&mut self, job: JobId, why: HeldWhy, at: Timestamp) {
        let live = &self.live[&job];
        assert!(live.phase == Phase::Waiting && live.held.is_none(), "a job that waits is held once");
        if live.waits_for_places() {
            self.stop_waiting(job);
            self.held_back_len += 1;
        }
        self.live_mut(job).held = Some((why, at));
    }

    fn let_wait(&mut self, job: JobId) {
        self.let_in(job, |live| {
            assert!(live.held.take().is_some(), "what is released was held");
            live.release_refused();
        });
        self.list(job);
    }

    /// The rules took it, other than for a guarantee, within a window of so long.
    pub(crate) fn evicted(&mut self, job: JobId, beneficiary: JobId, window: Millis, at: Timestamp) {
        let past = &mut self.live_mut(job).past;
        past.evicted.retain(|&(before, _)| at < before + window);
        past.evicted.push((at, beneficiary));
    }

    pub(crate) fn set_more(&mut self, id: JobId, more: Option<More>) {
        let job = &self.live[&id];
        if job.more == more {
            return;
        }
        if job.more.is_some() {
            self.leave(id, job.more);
        }
        if more.is_some() {
            self.join(id, more);
        }
        self.live_mut(id).more = more;
    }

    pub(crate) fn set_wrap_up(&mut self, id: JobId, at: Option<Timestamp>) {
        let before = core::mem::replace(&mut self.live_mut(id).wrap_up_at, at);
        if before != at {
            before.map(|before| self.wrapping_up.remove(&(before, id)));
            at.map(|at| self.wrapping_up.insert((at, id)));
        }
    }

    /// The ledger gave it places.
    pub(crate) fn started(&mut self, job: JobId, attempt: u32, at: Timestamp) {
        assert!(self.live[&job].phase == Phase::Waiting, "only a waiting job starts");
        self.resumed(job);
        let past = &mut self.live_mut(job).past;
        past.attempts = attempt;
        past.first_start.get_or_insert(at);
    }

    /// The ledger was rebuilt with its places.
    pub(crate) fn resumed(&mut self, job: JobId) {
        self.leave_queue(job);
        self.live_mut(job).phase = Phase::Active;
    }

    /// Its booked window is over, and it goes on without. Its kind is another: nobody lists it meanwhile.
    pub(crate) fn unbook(&mut self, job: JobId) {
        self.live_mut(job).spec.booking = None;
        self.list(job);
    }

    pub(crate) fn set_owned(&mut self, id: JobId, owned: bool) {
        self.live_mut(id).owned = owned;
        self.list(id);
    }

    /// It asks for something else. Nobody lists it meanwhile.
    fn change_spec(&mut self, id: JobId, spec: &Spec) {
        let job = self.live_mut(id);
        assert!(job.phase == Phase::Waiting, "a job changes while it waits");
        let before = core::mem::replace(&mut job.spec, spec.clone());
        assert!((before.tenant, &before.name) == (spec.tenant, &spec.name), "a changed job keeps its name");
        let bytes = self.bytes.get_mut(&spec.tenant).expect("a live job's tenant is counted");
        *bytes = *bytes + spec.bytes() - before.bytes();
        self.list(id);
    }

    pub(crate) fn note_exit(&mut self, job: JobId, detail: ExitDetail, failure: Option<Failure>) {
        let past = &mut self.live_mut(job).past;
        past.ooms += u32::from(detail.cause == Some(ExitCause::OutOfMemory));
        past.memory_peak_mib = past.memory_peak_mib.max(detail.memory_peak_mib);
        past.last_failure = failure.or(past.last_failure);
    }

    pub(crate) fn ran(&mut self, job: JobId, millis: u64) {
        self.live_mut(job).past.ran_ms += millis;
    }

    fn queue(&mut self, id: JobId, uid: Uid, spec: &Spec, at: Timestamp, owned: bool) {
        // A snapshot names live jobs only, so ids may be skipped but never come back.
        assert!(id >= self.next, "job ids count up in journal order");
        self.next = JobId(id.0 + 1);
        self.by_uid.insert(uid, id);
        self.by_name.insert((spec.tenant, spec.name.clone()), id);
        *self.bytes.entry(spec.tenant).or_default() += spec.bytes();
        for dependency in &spec.after {
            if dependency.failed {
                self.broken.insert(id);
            } else {
                list(&mut self.dependents, dependency.job, id);
            }
        }
        let throttled = spec.array.as_ref().is_some_and(|member| self.join_array(id, spec.tenant, member));
        let job = Job { uid, spec: spec.clone(), submitted_at: at, throttled, owned, ..Job::default() };
        self.live.insert(id, job);
        self.list(id);
        if self.live[&id].is_held_back() {
            self.held_back_len += 1;
        } else {
            self.start_waiting(id);
        }
    }

    fn leave_queue(&mut self, id: JobId) {
        let live = self.live_mut(id);
        if live.is_held_back() {
            // Work that is adopted runs, whatever it would have waited for.
            (live.throttled, live.held, live.spec.after) = (false, None, Vec::new());
            self.held_back_len -= 1;
        } else {
            self.stop_waiting(id);
        }
    }

    /// Something that held it back no longer does.
    fn let_in(&mut self, id: JobId, change: impl FnOnce(&mut Job)) {
        let live = self.live_mut(id);
        let before = live.is_held_back();
        change(live);
        if before && !live.is_held_back() {
            self.held_back_len -= 1;
            self.start_waiting(id);
        }
    }

    fn requeue(&mut self, id: JobId, not_before: Timestamp) {
        let job = self.live_mut(id);
        let Phase::Leaving(Next::Requeue(why)) = job.phase else {
            panic!("only a job that leaves in order to wait again is requeued")
        };
        job.past.failures += u32::from(why == RequeueWhy::TaskFailed);
        job.past.evictions += u32::from(why == RequeueWhy::Evicted);
        // All of its replicas will be fresh.
        job.spec.tasks = job.wanted();
        (job.phase, job.rolling, job.not_before) = (Phase::Waiting, None, not_before);
        self.start_waiting(id);
    }

    fn note_ended(&mut self, uid: Uid, at: Timestamp) {
        self.ended.insert(uid, at);
        self.ended_by_time.insert((at, uid));
        let kept_from = Timestamp(at.0.saturating_sub(ENDED_KEPT.0));
        while let Some(&(oldest, uid)) = self.ended_by_time.first().filter(|&&(oldest, _)| oldest < kept_from)
        {
            self.ended_by_time.remove(&(oldest, uid));
            self.ended.remove(&uid);
        }
    }

    fn end(&mut self, id: JobId, outcome: Outcome, at: Timestamp) {
        for dependency in &self.live[&id].spec.after {
            if let Some(others) = self.dependents.get_mut(&dependency.job) {
                others.remove(&id);
                if others.is_empty() {
                    self.dependents.remove(&dependency.job);
                }
            }
        }
        if self.live[&id].phase == Phase::Waiting {
            self.leave_queue(id);
        }
        let job = self.live.remove(&id).expect("a job ends once");
        self.broken.remove(&id);
        self.end_for_others(id, outcome);
        self.end_in_array(id, job.spec.array.as_ref());
        self.by_uid.remove(&job.uid);
        self.list(id);
        self.note_ended(job.uid, at);
        let bytes = self.bytes.get_mut(&job.spec.tenant).expect("a live job's tenant is counted");
        *bytes -= job.spec.bytes();
        if *bytes == 0 {
            self.bytes.remove(&job.spec.tenant);
        }
        self.by_name.remove(&(job.spec.tenant, job.spec.name));
    }

    fn start_waiting(&mut self, id: JobId) {
        self.join(id, None);
        self.waiting_len += 1;
        let not_before = self.live[&id].not_before;
        if not_before.0 > 0 {
            self.backing_off.insert((not_before, id));
        }
    }

    /// Lists a job with its kind: with those that wait, or with those that lack the same while they run.
    fn join(&mut self, id: JobId, more: Option<More>) {
        let job = &self.live[&id];
        let (known, entry) = ((job.key(), more), (job.submitted_at, id));
        let next = KindId(self.next_kind);
        let kind = *self.kinds.entry(known.clone()).or_insert(next);
        self.next_kind += u32::from(kind == next);
        let listed = if more.is_some() { &mut self.growing } else { &mut self.waiting };
        let new = || Kind { key: known.0, more, jobs: BTreeSet::new() };
        assert!(listed.entry(kind).or_insert_with(new).jobs.insert(entry), "a job is listed once");
    }

    fn leave(&mut self, id: JobId, more: Option<More>) {
        let job = &self.live[&id];
        let (known, entry) = ((job.key(), more), (job.submitted_at, id));
        let kind = self.kinds[&known];
        let listed = if more.is_some() { &mut self.growing } else { &mut self.waiting };
        let jobs = &mut listed.get_mut(&kind).expect("a kind with a name is listed").jobs;
        assert!(jobs.remove(&entry), "a job is listed with its kind");
        if jobs.is_empty() {
            listed.remove(&kind);
            self.kinds.remove(&known);
        }
    }

    fn stop_waiting(&mut self, id: JobId) {
        self.leave(id, None);
        self.waiting_len -= 1;
        self.backing_off.remove(&(self.live[&id].not_before, id));
    }

    /// Lists a job, or one that was live, with those that are looked at together.
    fn list(&mut self, id: JobId) {
        let is = |which: fn(&Job) -> bool| self.live.get(&id).is_some_and(which);
        let lists = [
            (is(|job| job.spec.service.is_some()), &mut self.services),
            (is(|job| job.spec.booking.is_some()), &mut self.booked),
            (is(|job| job.owned), &mut self.owned),
            (is(|job| !job.past.refused.is_empty()), &mut self.refused),
        ];
        for (is_in, list) in lists {
            if is_in {
                list.insert(id)
            } else {
                list.remove(&id)
            };
        }
    }

    fn live_mut(&mut self, job: JobId) -> &mut Job {
        self.live.get_mut(&job).expect("an event names a live job")
    }

    pub(crate) fn snapshot(&self, into: &mut Vec<Event>) {
        for (&job, live) in &self.live {
            let (uid, spec, at, owned) = (live.uid, live.spec.clone(), live.submitted_at, live.owned);
            into.push(Event::Jobs(JobsEvent::Queued { job, uid, spec, at, owned }));
            if live.past != JobPast::default() || live.not_before.0 > 0 {
                let (past, not_before) = (live.past.clone(), live.not_before);
                into.push(Event::Jobs(JobsEvent::CarriedJob { job, past, not_before }));
            }
            if let Some((why, at)) = live.held {
                into.push(Event::Jobs(JobsEvent::Held { job, why, at }));
            }
            if let Some(rolling) = live.rolling {
                let (tasks, at) = (live.spec.tasks, rolling.since);
                into.push(Event::Jobs(JobsEvent::Rolled { job, tasks, rolling: Some(rolling), at }));
            }
        }
        for &(at, uid) in &self.ended_by_time {
            into.push(Event::Jobs(JobsEvent::CarriedEnded { uid, at }));
        }
        into.push(Event::Jobs(JobsEvent::Carried { next_job: self.next }));
    }

    /// Who is on its way out; comes after the ledger in a snapshot.
    pub(crate) fn snapshot_leaving(&self, into: &mut Vec<Event>) {
        for (&job, live) in &self.live {
            if let Phase::Leaving(next) = live.phase {
                let (at, by) = (Timestamp(0), live.cancelled_by.clone());
                into.push(Event::Jobs(JobsEvent::Leaving { job, next, at, by }));
            }
        }
    }
}
