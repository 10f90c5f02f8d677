//! Runs a scenario: the real controller over a simulated disk and fleet, checked after every turn.

use std::collections::BTreeMap;

use wharf_controller::disk::{DiskFault, Standing};
use wharf_controller::memory::MemoryDisk;
use wharf_controller::turn::{Controller, Fault, Reply, Settings, recover};
use wharf_controller::world::World;
use wharf_engine::answer::verdict::Reason;
use wharf_engine::decide::input::{BookingRequest, DowntimeRequest, Input, Request};
use wharf_engine::model::action::Action;
use wharf_engine::model::actor::{Actor, Subject};
use wharf_engine::model::outcome::{Denial, Message};
use wharf_engine::model::policy::Policy;
use wharf_engine::model::submission::Submission;
use wharf_engine::state::State;
use wharf_engine::state::jobs::Phase;
use wharf_engine::units::{JobId, Millis, Timestamp, Uid};

use super::transcript::Transcript;
use super::{Act, Ask, Fate, Scenario, Step};
use crate::testing::pricing::Pricing;
use crate::world::direct::DirectWorld;
use crate::world::fleet::SimFleet;

/// When the story begins. Not at 0, which in places means "not known".
const START: Timestamp = Timestamp(3_600_000);

/// The most turns of one step: a controller that needs more does not come to rest.
const TURNS_MAX: u32 = 1000;

/// What came of it.
pub(super) struct Ran {
    /// Sentences by the line after which they belong.
    pub(super) told: BTreeMap<usize, Vec<String>>,
    /// What must not be.
    pub(super) findings: Vec<String>,
}

type Leader = Controller<MemoryDisk, DirectWorld>;

struct Run {
    disk: MemoryDisk,
    world: DirectWorld,
    leader: Leader,
    policy: Policy,
    asks: Vec<Ask>,
    pricing: Pricing,
    transcript: Transcript,
    findings: Vec<String>,
}

pub(super) fn run(scenario: &Scenario, pricing: Pricing) -> Ran {
    let mut ran = Ran { told: BTreeMap::new(), findings: Vec::new() };
    let mut run = match Run::begin(scenario, pricing) {
        Ok(run) => run,
        Err(fault) => {
            ran.findings.push(format!("check: the controller did not open: {fault}"));
            return ran;
        }
    };
    for placed in &scenario.steps {
        let result = match &placed.step {
            Step::Ask(ask) => {
                run.asks.push(ask.clone());
                continue;
            }
            Step::Node { name, fate } => {
                run.happens(name, *fate);
                continue;
            }
            Step::Own(uid, job) => {
                run.owns(*uid, job.as_deref());
                continue;
            }
            Step::Act(act) => run.act(*act),
        };
        if let Err(fault) = result {
            run.finding(&format!("the controller stopped: {fault}"));
        }
        run.ask_why_jobs_wait();
        ran.told.insert(placed.line, run.transcript.take_lines());
    }
    if !run.asks.is_empty() {
        run.findings.push("check: what the last lines ask for is never answered; add `plan`".to_owned());
    }
    ran.findings = run.findings;
    ran
}

impl Run {
    /// The fleet with what runs on it, adopted, and the first policy in force. Nothing of this is told.
    fn begin(scenario: &Scenario, pricing: Pricing) -> Result<Self, Fault> {
        let mut fleet = SimFleet::new(1, scenario.nodes.clone(), START);
        for running in &scenario.running {
            let (job, tasks) = (Box::new(running.job.clone()), running.tasks.clone());
            fleet.act(Standing::default(), &Action::Start { attempt: 1, job, tasks });
        }
        let (disk, world) = (MemoryDisk::new(), DirectWorld::new(fleet));
        let leader = Controller::open(disk.clone(), world.clone(), Settings::default())?;
        let (policy, transcript) = (scenario.policy.clone(), Transcript::new(START));
        let (asks, findings) = (Vec::new(), Vec::new());
        let mut run = Self { disk, world, leader, policy, asks, pricing, transcript, findings };
        run.asks.push(Ask::Quota(Box::new(run.policy.clone())));
        run.turn()?;
        run.transcript.take_lines();
        Ok(run)
    }

    fn happens(&mut self, node: &str, fate: Fate) {
        self.world.with(|fleet| match fate {
            Fate::Fails => fleet.fail_node(node, true),
            Fate::Unreachable => fleet.fail_node(node, false),
            Fate::Hangs => fleet.hang_node(node),
            Fate::RefusesStarts(span) => {
                let why = Denial::AdmissionDenied { message: Message::default() };
                fleet.refuse_starts(node, why, span.map(|span| fleet.now() + span));
            }
            Fate::RefusesStops(span) => {
                fleet.refuse_stops(node, Denial::DisruptionBudget, span.map(|span| fleet.now() + span));
            }
            Fate::Returns => fleet.heal_node(node),
            Fate::GpuError(gpu, error) => {
                fleet.gpu_error(node, gpu, error);
            }
            Fate::GpuReturns(gpu) => {
                fleet.heal_gpu(node, gpu);
            }
        });
    }

    fn owns(&mut self, uid: Uid, job: Option<&Submission>) {
        match job {
            Some(job) => {
                self.transcript.call(uid, &job.spec.name);
                self.world.with(|fleet| fleet.own(job.clone()));
            }
            None => self.world.with(|fleet| fleet.disown(uid)),
        }
    }

    fn act(&mut self, act: Act) -> Result<(), Fault> {
        match act {
            Act::Plan => self.turn(),
            Act::After(span) => self.after(span),
            Act::Restart(away) => self.restart(away),
            Act::LoseJournal => self.lose_journal(),
            Act::StaleLeader => self.stale_leader(),
        }
    }

    /// One turn, with everything that was asked for since the last.
    fn turn(&mut self) -> Result<(), Fault> {
        let asks = std::mem::take(&mut self.asks);
        let prices = self.pricing.due(self.leader.state());
        let before = usize::from(prices.is_some());
        let prices = prices.map(|input| Request { actor: Actor::embedded(), input });
        let requests: Vec<Request> = prices.into_iter().chain(self.requests(&asks)).collect();
        let replies = self.leader.turn_of(&requests)?;
        self.tell_refusals(&asks, &replies[before..]);
        for ask in asks {
            if let Ask::Quota(policy) = ask {
                self.policy = *policy;
            }
        }
        self.look()
    }

    /// Lets time pass, with a turn whenever there is something to do.
    fn after(&mut self, span: Millis) -> Result<(), Fault> {
        let until = self.world.now() + span;
        if !self.asks.is_empty() {
            self.turn()?;
        }
        for _ in 0..TURNS_MAX {
            let Some(wake) = self.leader.next_wake().filter(|&wake| wake <= until) else {
                self.world.with(|fleet| fleet.advance(until));
                return Ok(());
            };
            self.world.with(|fleet| fleet.advance(wake));
            self.turn()?;
        }
        self.finding(&format!("after {TURNS_MAX} turns the controller has not come to rest"));
        Ok(())
    }

    fn restart(&mut self, away: Millis) -> Result<(), Fault> {
        let (recovered, _) = recover(&mut self.disk.clone())?;
        if recovered.snapshot() != self.leader.state().snapshot() {
            self.finding("the journal rebuilds another state");
        }
        let back = self.world.now() + away;
        self.world.with(|fleet| fleet.advance(back));
        self.leader = Controller::open(self.disk.clone(), self.world.clone(), Settings::default())?;
        self.look()
    }

    /// A new disk on the old world. The policy is a file of its operator, who gives it again with the next turn.
    fn lose_journal(&mut self) -> Result<(), Fault> {
        let known: Vec<String> = live_names(self.leader.state());
        self.disk = MemoryDisk::new();
        self.leader = Controller::restore(self.disk.clone(), self.world.clone(), Settings::default())?;
        self.transcript.begin_journal();
        self.asks.insert(0, Ask::Quota(Box::new(self.policy.clone())));
        self.look()?;
        let live = live_names(self.leader.state());
        for name in known.into_iter().filter(|name| !live.contains(name)) {
            self.transcript.forgotten(&name);
        }
        Ok(())
    }

    /// Another process takes over, and the old leader, which has not noticed, tries to answer what is asked.
    fn stale_leader(&mut self) -> Result<(), Fault> {
        let next = Controller::open(self.disk.clone(), self.world.clone(), Settings::default())?;
        let mut old = std::mem::replace(&mut self.leader, next);
        let written = |disk: &MemoryDisk| recover(&mut disk.clone()).map(|(state, _)| state.index());
        let before = written(&self.disk)?;
        match old.turn_of(&self.requests(&self.asks)) {
            Err(Fault::Disk(DiskFault::Fenced { held, current })) => {
                self.transcript
                    .push(format!("stale leader fenced: term {held} is over, term {current} rules"));
            }
            Ok(_) if written(&self.disk)? == before => {
                self.transcript.push("stale leader had nothing to write".to_owned());
            }
            Ok(_) => self.finding("a stale leader wrote to the journal"),
            Err(fault) => self.finding(&format!("a stale leader was stopped by something else: {fault}")),
        }
        self.look()
    }

    fn requests(&self, asks: &[Ask]) -> Vec<Request> {
        // A job that is not there any more is asked for by an id that nobody has.
        let id = |name: &String| {
            let mut live = self.leader.state().jobs.iter();
            live.find(|(_, job)| job.spec.name == *name).map_or(JobId(u64::MAX), |(id, _)| id)
        };
        let input = |ask: &Ask| match ask {
            Ask::Submit(submission) => Input::Submit(submission.clone()),
            Ask::Cancel { job } => Input::Cancel { job: id(job) },
            Ask::Release { job } => Input::Release { job: id(job) },
            Ask::Evict { job, .. } => Input::Evict { job: id(job) },
            Ask::Extend { job, to } => Input::Extend { job: id(job), to: *to },
            Ask::Scale { job, tasks } => Input::Scale { job: id(job), tasks: *tasks },
            Ask::Book(request) => {
                let from = START + Millis(request.from.0);
                Input::Book(Box::new(BookingRequest { from, ..(**request).clone() }))
            }
            Ask::Unbook { name } => Input::Unbook { name: name.clone() },
            Ask::Replace { job, how } => Input::Replace { job: id(job), how: *how },
            Ask::Cordon { node, on } => Input::Cordon { node: node.clone(), on: *on, reason: String::new() },
            Ask::Drain { node, how } => Input::Drain { nodes: vec![node.clone()], how: how.clone() },
            Ask::PlanDowntime(request) => {
                let from = START + Millis(request.from.0);
                Input::PlanDowntime(Box::new(DowntimeRequest { from, ..(**request).clone() }))
            }
            Ask::CallOff { name } => Input::CallOff { name: name.clone() },
            Ask::Quota(policy) => Input::ApplyPolicy((**policy).clone()),
        };
        asks.iter().map(|ask| Request { actor: actor(ask), input: input(ask) }).collect()
    }

    fn tell_refusals(&mut self, asks: &[Ask], replies: &[Reply]) {
        for (ask, reply) in asks.iter().zip(replies) {
            let Err(refused) = reply else { continue };
            let what = match ask {
                Ask::Submit(submission) => submission.spec.name.clone(),
                Ask::Cancel { job } => format!("cancel {job}"),
                Ask::Release { job } => format!("release {job}"),
                Ask::Evict { job, .. } => format!("evict {job}"),
                Ask::Extend { job, .. } => format!("extend {job}"),
                Ask::Scale { job, .. } => format!("scale {job}"),
                Ask::Book(request) => format!("booking {}", request.job.spec.name),
                Ask::Unbook { name } => format!("cancel booking {name}"),
                Ask::Replace { job, .. } => format!("replace {job}"),
                Ask::Cordon { node, on: true } => format!("cordon {node}"),
                Ask::Cordon { node, on: false } => format!("uncordon {node}"),
                Ask::Drain { node, how: Some(_) } => format!("drain {node}"),
                Ask::Drain { node, how: None } => format!("undrain {node}"),
                Ask::PlanDowntime(request) => format!("maintenance {}", request.name),
                Ask::CallOff { name } => format!("cancel maintenance {name}"),
                Ask::Quota(_) => "quota".to_owned(),
            };
            self.transcript
                .push(format!("{what} refused: {}", self.transcript.rejection(refused, self.leader.state())));
        }
    }

    /// What happened in the turn, and whether all is well.
    fn look(&mut self) -> Result<(), Fault> {
        self.transcript.read(&self.disk)?;
        let (state, now) = (self.leader.state(), self.leader.now());
        let mut findings: Vec<String> =
            state.check_deep().iter().map(|finding| format!("{finding:?}")).collect();
        for (id, job) in state.jobs.iter().filter(|(_, job)| job.phase == Phase::Waiting) {
            let verdict = state.verdict(id, now);
            if verdict.is_some_and(|verdict| verdict.reason == Reason::Startable) {
                findings.push(format!("{} could start and was not started", job.spec.name));
            }
        }
        if self.leader.figures().plan_panics > 0 {
            findings.push("a plan panicked".to_owned());
        }
        for finding in findings {
            self.finding(&finding);
        }
        Ok(())
    }

    fn ask_why_jobs_wait(&mut self) {
        let state = self.leader.state();
        let mut verdicts = Vec::new();
        for (id, job) in state.jobs.iter().filter(|(_, job)| job.phase == Phase::Waiting) {
            let verdict = state.verdict(id, self.world.now());
            let unpromised = state.unpromised(id, state.tenants.policy(), self.world.now());
            verdicts.extend(verdict.map(|verdict| (job.spec.name.clone(), verdict.reason, unpromised)));
        }
        self.transcript.waits(&verdicts, state);
    }

    fn finding(&mut self, what: &str) {
        let finding = format!("check: {what}");
        self.transcript.push(finding.clone());
        self.findings.push(finding);
    }
}

/// Who asks: whoever the story names, or the story itself.
fn actor(ask: &Ask) -> Actor {
    let own = Actor::embedded();
    if let Ask::Evict { by, .. } = ask { Actor { subject: Subject::Claimed(by.clone()), ..own } } else { own }
}

fn live_names(state: &State) -> Vec<String> {
    state.jobs.iter().map(|(_, job)| job.spec.name.clone()).collect()
}
