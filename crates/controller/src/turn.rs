//! The turn: inputs in, one durable commit, then replies and actions. Never the other way round.
//!
//! Events are applied to the state in memory as they are decided and written in one append at the end. When the
//! append fails the controller is done for: its state is ahead of the disk, so it must be dropped and opened
//! again. Replies and actions have not left by then. Woken by a request, by the world, by the clock or by a
//! restart, the code is the same.

mod committed;
mod figures;
mod hear;
mod open;
mod snapshot;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use wharf_engine::decide::Decision;
use wharf_engine::decide::input::{Input, Request, SetDefinition};
use wharf_engine::model::actor::{Actor, Source};
use wharf_engine::model::observed::Scope;
use wharf_engine::model::rejection::Rejection;
use wharf_engine::model::submission::Submission;
use wharf_engine::plan::{EvictedJob, Memory, Plan, plan};
use wharf_engine::state::State;
use wharf_engine::state::event::Event;
use wharf_engine::state::ledger::event::LedgerEvent;
use wharf_engine::units::{JobId, Millis, Timestamp, Uid};

use crate::codec;
use crate::disk::{Batch, Disk, DiskFault, RESTORE, Record, Term};
use crate::history::{Moment, Projection};
use crate::outage::{Outage, Reach};
use crate::reader::HistoryReader;
use crate::selectors::Strings;
use crate::sent::Sent;
use crate::telemetry::Telemetry;
use crate::world::{ClockSteps, Happened, Happening, Impossible, World, WorldFault, WorldReport};

pub use committed::Committed;
pub use figures::{Evictions, Figures};

use snapshot::Snapshots;

pub use open::{Recovered, recover};
pub use snapshot::SnapshotFault;

/// The most plans in a row. Two are mostly enough; what the last of them would still let fit comes with the next turn.
pub const PLANS_MAX: usize = 4;

/// A plan, or time that passed.
const ENGINE: Actor = Actor::of(Source::Engine);
/// What a world reports.
const WORLD: Actor = Actor::of(Source::World);

/// How a controller keeps house.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// A snapshot is taken after so many events, or twice as many as the last one holds.
    pub snapshot_after: u64,
    /// An action that the world has not answered is sent again after this long.
    pub resend_after: Millis,
}

impl Default for Settings {
    fn default() -> Self {
        Self { snapshot_after: 50_000, resend_after: Millis::from_secs(30) }
    }
}

/// Why a controller had to stop. Running jobs do not notice.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error(transparent)]
    Disk(#[from] DiskFault),
    #[error(transparent)]
    World(#[from] WorldFault),
    /// The world is older than what the journal has heard of it.
    #[error("the fleet is older than what the journal knows of it, as if an old copy had been put back")]
    WorldBehind,
    /// The fleet has obeyed a later journal than this one.
    #[error(
        "the journal is behind the fleet: it stands at index {journal} of term {term}, and the fleet has obeyed index {obeyed} of term {obeyed_term}, as if an old copy had been put back. Nothing was changed"
    )]
    JournalBehind { journal: u64, term: Term, obeyed: u64, obeyed_term: Term },
    /// A bug stopped the control plane.
    #[error("the control plane failed by a bug; running jobs go on")]
    Panicked,
    /// The snapshot rebuilds another state than the one it was taken of.
    #[error("the snapshot at index {index} does not rebuild the state it was taken of")]
    HashDiffers { index: u64 },
}

impl Fault {
    /// What to do about it, where that is known.
    pub fn next(&self) -> Option<&'static str> {
        match self {
            Self::Disk(fault) => fault.next(),
            Self::World(_) => None,
            Self::WorldBehind => Some(
                "put the right fleet back, or move the journal away and start with --restore: what runs is then adopted",
            ),
            Self::JournalBehind { .. } => Some(RESTORE),
            Self::Panicked | Self::HashDiffers { .. } => Some("keep the data directory and report it"),
        }
    }
}

/// One control plane over one disk and one world.
pub struct Controller<D, W> {
    state: State,
    memory: Memory,
    disk: D,
    world: W,
    term: Term,
    now: Timestamp,
    strings: Strings,
    sent: Sent,
    reach: Reach,
    settings: Settings,
    snapshots: Snapshots,
    records: Vec<Record>,
    history: Projection,
    figures: Figures,
    /// What the last turn wrote.
    committed: Committed,
}

/// The answer to one input: the job it is about, or why not.
pub type Reply = Result<Option<JobId>, Rejection>;

impl<D: Disk, W: World> Controller<D, W> {
    /// The state after the last commit.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The world's time as of the last turn; never goes back, also across leaders.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Our reign.
    pub fn term(&self) -> Term {
        self.term
    }

    /// Figures of its life.
    pub fn figures(&self) -> Figures {
        Figures { world_faults: self.reach.faults, ..self.figures }
    }

    /// What is wrong with the world, while it does not answer.
    pub fn outage(&self) -> Option<&Outage> {
        self.reach.outage.as_ref()
    }

    /// How often the wall clock was found to be set.
    pub fn clock_steps(&self) -> ClockSteps {
        self.world.clock_steps()
    }

    /// What selectors see of the nodes.
    pub fn strings(&self) -> &Strings {
        &self.strings
    }

    /// Why the last snapshot could not be written, while none has been since.
    pub fn snapshot_fault(&self) -> Option<&SnapshotFault> {
        self.snapshots.fault.as_ref()
    }

    /// Reads history beside this controller, from any thread.
    pub fn history_reader(&self) -> HistoryReader {
        self.disk.history_reader()
    }

    /// What devices and tasks really do, for any thread.
    pub fn telemetry(&self) -> Telemetry {
        self.world.telemetry()
    }

    /// How long by the wall until the next wake; `None` when nothing is to come by itself.
    pub fn sleep(&self) -> Option<Duration> {
        self.next_wake().map(|at| self.world.wall_until(at))
    }

    /// The earliest moment at which there is something to do without anybody asking.
    pub fn next_wake(&self) -> Option<Timestamp> {
        let of_world = match &self.reach.outage {
            Some(outage) => [Some(outage.retry_at), None],
            None => [self.world.next_change(), self.sent.next_resend(self.settings.resend_after)],
        };
        let due = [self.state.next_deadline(self.now), self.memory.wake()];
        due.into_iter().chain(of_world).flatten().min()
    }

    /// Lets something happen to a simulated world; the next turn learns of it like of anything else.
    pub fn happen(&mut self, what: &Happening) -> Result<Happened, Impossible> {
        self.world.happen(what)
    }

    /// One turn with inputs of this process itself: of a simulation, a benchmark or a test.
    pub fn turn(&mut self, inputs: &[Input]) -> Result<Vec<Reply>, Fault> {
        let actor = Actor::embedded();
        let replies = self.decide_turn(inputs.iter().map(|input| (&actor, input)))?;
        self.finish_turn()?;
        Ok(replies)
    }

    /// One turn with requests, each of somebody.
    pub fn turn_of(&mut self, requests: &[Request]) -> Result<Vec<Reply>, Fault> {
        let replies = self.commit_turn(requests)?;
        self.finish_turn()?;
        Ok(replies)
    }

    /// The part of a turn that callers wait for, up to its commit. The replies are in the order of the requests and may
    /// leave; [`Self::finish_turn`] has to follow before the next turn.
    pub fn commit_turn(&mut self, requests: &[Request]) -> Result<Vec<Reply>, Fault> {
        self.decide_turn(requests.iter().map(|Request { actor, input }| (actor, input)))
    }

    /// The rest of a turn, which no caller waits for: actions that are due go to the world, and a snapshot is written when
    /// it is time for one.
    pub fn finish_turn(&mut self) -> Result<(), Fault> {
        // Closed also when the world did not answer at the beginning of this turn.
        if self.reach.is_open(self.now) {
            self.act();
        }
        self.snapshot_if_due()
    }

    /// Hears the world, decides and commits. A world that does not answer costs its own part of the turn only: see
    /// [`Self::outage`].
    fn decide_turn<'a>(
        &mut self,
        given: impl Iterator<Item = (&'a Actor, &'a Input)>,
    ) -> Result<Vec<Reply>, Fault> {
        self.now = self.now.max(self.world.now());
        self.figures.turns += 1;
        self.committed = Committed::default();
        self.hear();
        let replies = given.map(|(actor, input)| self.define_and_decide(actor, input)).collect();
        self.tick_plan_and_commit()?;
        Ok(replies)
    }

    /// Nodes first, so that the selectors of work that already runs can be compiled before it is adopted.
    fn meet_world(&mut self) -> Result<(), Fault> {
        let listed = self.world.list()?;
        self.meet_nodes(&listed)?;
        // Work that is adopted with a device that has failed is lost by a second look, like any other.
        let again = listed.has_failed_gpus().then(|| listed.clone());
        for listed in [Some(listed), again].into_iter().flatten() {
            self.take_report(listed).map_err(|_| Fault::WorldBehind)?;
        }
        Ok(())
    }

    fn meet_nodes(&mut self, listed: &WorldReport) -> Result<(), Fault> {
        let mut nodes = listed.clone();
        nodes.report.scope = Scope::Nodes;
        nodes.report.tasks.clear();
        self.take_report(nodes).map_err(|_| Fault::WorldBehind)?;
        for job in listed.report.tasks.iter().filter_map(|task| task.job.as_ref()) {
            let missing = missing_sets(&self.state, &self.strings, job);
            self.define_sets(&WORLD, missing);
        }
        Ok(())
    }

    /// Learns from a report. What it says of labels is learnt only when the report itself is taken: a late one must
    /// not bring back old labels. Stale reports are dropped; a gap is the caller's business.
    fn take_report(&mut self, mut said: WorldReport) -> Reply {
        said.report.nodes = said.observed_nodes();
        let names = said.report.nodes.iter().map(|node| node.name.clone());
        let listed: Option<BTreeSet<String>> = said.report.since.is_none().then(|| names.collect());
        let is_whole = said.report.scope == Scope::All;
        let (gone, answers) = (said.report.nodes_gone.clone(), said.report.answers.clone());
        let reply = self.decide_and_apply(&WORLD, &Input::Observe(said.report))?;
        let is_list = listed.is_some();
        self.sent.hear(&answers, is_list, self.now);
        let mut changed = false;
        for node in said.nodes {
            changed |= self.strings.learn(node);
        }
        for name in &gone {
            changed |= self.strings.forget(name);
        }
        if let Some(listed) = listed {
            changed |= self.strings.keep(&listed);
        }
        if changed {
            self.committed.strings_changed = true;
            let sources: Vec<&str> = self.state.fleet.set_sources().collect();
            let compiled = sources.into_iter().filter_map(|source| self.strings.compile(source)).collect();
            self.define_sets(&WORLD, compiled);
        }
        // After its selectors were compiled: a job may come with the only node that it may use.
        if is_whole {
            self.take_owned(&said.jobs, said.jobs_gone, is_list);
        }
        Ok(reply)
    }

    /// Jobs that the world owns, after everything else that it says of them: how tasks of theirs ended comes before that
    /// they are gone.
    fn take_owned(&mut self, jobs: &[Submission], gone: Vec<Uid>, is_list: bool) {
        let mut gone = gone;
        if is_list {
            let named: BTreeSet<Uid> = jobs.iter().map(|job| job.uid).collect();
            let live = self.state.jobs.owned().map(|(_, uid)| uid);
            let known = live.chain(self.state.owned.notices().map(|(uid, ..)| uid));
            gone.extend(known.filter(|uid| !named.contains(uid)));
        }
        for uid in gone {
            self.decide_and_apply(&WORLD, &Input::Disown { uid })
                .expect("that a job is gone is never refused");
        }
        for job in jobs {
            self.define_and_decide(&WORLD, &Input::Own(Box::new(job.clone())))
                .expect("a job of the world is never refused");
        }
    }

    /// Decides an input, after the selectors that it names and that nobody named before were compiled.
    fn define_and_decide(&mut self, actor: &Actor, input: &Input) -> Reply {
        let named = match input {
            Input::Submit(submission) | Input::Own(submission) => Some(&**submission),
            Input::Book(request) => Some(&request.job),
            _ => None,
        };
        if let Some(submission) = named {
            let missing = missing_sets(&self.state, &self.strings, submission);
            self.define_sets(actor, missing);
        }
        self.decide_and_apply(actor, input)
    }

    fn define_sets(&mut self, actor: &Actor, sets: Vec<SetDefinition>) {
        if !sets.is_empty() {
            self.decide_and_apply(actor, &Input::DefineSets(sets)).expect("defining a set is never refused");
        }
    }

    /// Decides and applies; what happened is written at the end of the turn.
    fn decide_and_apply(&mut self, actor: &Actor, input: &Input) -> Reply {
        let Decision { events, job } = self.state.decide_for(actor, input, self.now)?;
        for event in events {
            self.apply_and_record(actor, event);
        }
        Ok(job)
    }

    /// An event takes effect, and is kept for history, the journal and whoever follows.
    fn apply_and_record(&mut self, actor: &Actor, event: Event) {
        if let Event::Ledger(LedgerEvent::Evicted { receipt, .. }) = &event {
            self.figures.evictions.count(receipt.why);
        }
        let moment = Moment { index: self.state.index(), now: self.now, actor };
        self.history.hear(&self.state, &event, moment);
        self.state.apply(&event);
        self.records.push(codec::encode(actor, &event, self.now.0));
        self.committed.events.push(event);
    }

    fn tick_plan_and_commit(&mut self) -> Result<(), Fault> {
        let earmarked = self.state.earmarks.iter().count();
        self.decide_and_apply(&ENGINE, &Input::Tick).expect("time is never refused");
        self.memory.prepare(&self.state);
        let mut any_over = self.state.earmarks.iter().count() < earmarked;
        // What a plan gives, or takes back, may let another kind fit: once more, unless nothing changed.
        for _ in 0..PLANS_MAX {
            let before = self.state.index();
            any_over |= self.follow_plan();
            if self.state.index() == before {
                break;
            }
        }
        if any_over {
            // A job stays that was asked to leave for an earmark that could not be kept, if no other job needs its place; and
            // places may be free that were for a job that stays.
            let before = self.state.index();
            self.decide_and_apply(&ENGINE, &Input::Tick).expect("time is never refused");
            if self.state.index() > before {
                self.follow_plan();
            }
        }
        self.commit()
    }

    /// Makes a plan and what follows from it; true when somebody loses places that were set aside.
    fn follow_plan(&mut self) -> bool {
        let made = self.plan();
        let events = made.events(&self.state, self.now);
        self.memory.remember(&made, &self.state, self.now);
        for event in events {
            self.apply_and_record(&ENGINE, event);
        }
        !made.released.is_empty()
    }

    /// A panic while planning costs this plan, not the control plane: the journal up to here replays it.
    fn plan(&mut self) -> Plan {
        let policy = self.state.tenants.policy();
        let planned = catch_unwind(AssertUnwindSafe(|| plan(&self.state, policy, &self.memory, self.now)));
        planned.unwrap_or_else(|_| {
            self.figures.plan_panics += 1;
            Plan { basis: self.state.index(), ..Plan::default() }
        })
    }

    fn commit(&mut self) -> Result<(), Fault> {
        if self.records.is_empty() {
            return Ok(());
        }
        let count = u64::try_from(self.records.len()).expect("a count of events fits");
        let expected = self.state.index() - count;
        let history = self.history.take();
        let batch = Batch { term: self.term, expected, records: &self.records, history: &history };
        self.disk.append(batch)?;
        self.records.clear();
        Ok(())
    }
}

/// The selectors of a submission that the state does not know yet.
fn missing_sets(state: &State, strings: &Strings, submission: &Submission) -> Vec<SetDefinition> {
    let of_groups = submission.groups.iter();
    let mut nodes: Vec<&String> =
        [&submission.nodes].into_iter().chain(of_groups.clone().map(|group| &group.nodes)).collect();
    let mut devices: Vec<&String> =
        [&submission.devices].into_iter().chain(&submission.any_of_devices).collect();
    devices.extend(of_groups.flat_map(|group| [&group.devices].into_iter().chain(&group.any_of_devices)));
    nodes.retain(|source| state.fleet.node_set(source).is_none());
    devices.retain(|source| state.fleet.device_set(source).is_none());
    for sources in [&mut nodes, &mut devices] {
        sources.sort_unstable();
        sources.dedup();
    }
    nodes.into_iter().chain(devices).filter_map(|source| strings.compile(source)).collect()
}

/// What a submission would lead to.
pub struct WhatIf {
    /// The state after it and the plan that follows.
    pub state: State,
    pub job: JobId,
    /// Who would have to leave for it.
    pub victims: Vec<EvictedJob>,
}

/// What a submission would lead to, by the same code, on a copy.
pub fn what_if(
    state: &State,
    strings: &Strings,
    submission: &Submission,
    now: Timestamp,
) -> Result<WhatIf, Rejection> {
    let mut copy = state.clone();
    let missing = missing_sets(state, strings, submission);
    let defined = copy.decide(&Input::DefineSets(missing), now)?;
    copy.apply_all(&defined.events);
    let decision = copy.decide(&Input::Submit(Box::new(submission.clone())), now)?;
    copy.apply_all(&decision.events);
    let mut made = plan(&copy, copy.tenants.policy(), &Memory::default(), now);
    let events = made.events(&copy, now);
    copy.apply_all(&events);
    let job = decision.job.expect("a submission is about a job");
    made.evictions.retain(|evicted| evicted.receipt.beneficiary == job);
    Ok(WhatIf { state: copy, job, victims: made.evictions })
}
