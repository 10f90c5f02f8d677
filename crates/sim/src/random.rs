//! Random runs: whatever the seed brings, with crashes between any two disk operations, lost nodes, a network
//! that delays, reorders and repeats, nodes that refuse what they are told, jobs that the world owns, and leaders that do not know
//! they are over. Every step is checked; then
//! faults stop, and everything that can run must run and nothing may flap.

mod make;
mod refusals;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use wharf_controller::codec;
use wharf_controller::disk::{Disk, DiskFault, HistoryKind, HistoryQuery};
use wharf_controller::memory::{CrashPoint, MemoryDisk};
use wharf_controller::turn::{Controller, Fault, Reply, Settings};
use wharf_engine::answer::verdict::Reason;
use wharf_engine::decide::input::{DowntimeRequest, DrainRequest, Extension, Input, Replacement};
use wharf_engine::device::catalogue::xid::XIDS;
use wharf_engine::model::dependency::{After, ArrayMember, ArrayRequest, Condition};
use wharf_engine::model::submission::Submission;
use wharf_engine::plan::{Memory, plan};
use wharf_engine::state::fleet::Whom;
use wharf_engine::state::jobs::Phase;
use wharf_engine::state::ledger::event::EvictionRule;
use wharf_engine::units::{BookingId, JobId, Millis, Timestamp, Uid};

use crate::fleet::SimFleet;
use crate::net::NetWorld;
use crate::pricing::Pricing;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct RandomRun {
    /// Everything follows from it.
    pub seed: u64,
    /// How many inputs and other happenings.
    pub steps: u64,
    /// Whether things go wrong.
    pub faults: bool,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct RandomReport {
    /// `wharf.sim.random.v1`.
    pub schema: &'static str,
    /// The seed.
    pub seed: u64,
    /// Steps taken.
    pub steps: u64,
    /// Inputs given to a controller.
    pub inputs: u64,
    /// Times the control plane was killed.
    pub crashes: u64,
    /// Nodes lost, messages delayed or repeated, stale leaders.
    pub faults: u64,
    /// Booked windows that jobs of theirs were seen to use.
    pub windows: usize,
    /// Times that prices for places changed; none in every third run.
    pub prices: u64,
    /// What must not be, with the step at which it was.
    pub findings: Vec<String>,
    /// Hash of the last state.
    pub state_hash: String,
    /// The last events before a finding, one JSON object each; empty when nothing was found.
    pub last_events: Vec<String>,
}

/// Steps between two deep checks, which copy everything.
const DEEP_EVERY: u64 = 16;
/// World time given to the end of a run; the longest job takes a quarter of an hour a try.
const SETTLE_ROUNDS: u32 = 2_000;

/// How many events are told of with a finding.
const LAST_EVENTS: usize = 400;

type Leader = Controller<MemoryDisk, NetWorld>;

struct Run {
    rng: ChaCha8Rng,
    faults_on: bool,
    disk: MemoryDisk,
    world: NetWorld,
    leader: Option<Leader>,
    acknowledged: Vec<(Uid, String)>,
    next_job: u64,
    nodes_made: u32,
    editions: u32,
    windows: BTreeSet<BookingId>,
    pricing: Pricing,
    report: RandomReport,
}

impl RandomRun {
    /// Runs it. The same seed gives the same report on any machine.
    pub fn run(self) -> RandomReport {
        let mut run = Run::new(self);
        let ran = catch_unwind(AssertUnwindSafe(|| run.all(self.steps)));
        if let Err(panic) = ran {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
            let text = text.unwrap_or_else(|| "a panic without words".to_owned());
            run.report.findings.push(format!("step {}: panic: {text}", run.report.steps));
        }
        run.report.faults += run.world.faults();
        if !run.report.findings.is_empty() {
            run.report.last_events = run.last_events();
        }
        run.report
    }
}

impl Run {
    fn new(run: RandomRun) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(run.seed);
        let nodes = make::fleet(&mut rng);
        let fleet = SimFleet::new(run.seed, nodes, Timestamp(1_000_000));
        let net = ChaCha8Rng::seed_from_u64(rng.random());
        let report = RandomReport {
            schema: "wharf.sim.random.v1",
            seed: run.seed,
            steps: 0,
            inputs: 0,
            crashes: 0,
            faults: 0,
            windows: 0,
            prices: 0,
            findings: Vec::new(),
            state_hash: String::new(),
            last_events: Vec::new(),
        };
        Self {
            rng,
            faults_on: run.faults,
            disk: MemoryDisk::new(),
            world: NetWorld::new(fleet, net, run.faults),
            leader: None,
            acknowledged: Vec::new(),
            next_job: 0,
            nodes_made: 100,
            editions: 0,
            windows: BTreeSet::new(),
            pricing: Pricing::by_seed(run.seed),
            report,
        }
    }

    fn all(&mut self, steps: u64) {
        self.change_policy();
        for _ in 0..steps {
            self.report.steps += 1;
            self.step();
            self.check();
            if !self.report.findings.is_empty() {
                return;
            }
        }
        self.settle();
        self.check_acknowledged();
        let leader = self.leader();
        let hash = codec::hex(&codec::state_hash(leader.state()));
        self.report.state_hash = hash;
    }

    fn last_events(&mut self) -> Vec<String> {
        let mut events = std::collections::VecDeque::new();
        let mut keep = |_, record: wharf_controller::disk::Record| {
            events.push_back(String::from_utf8_lossy(&record.body).into_owned());
            if events.len() > LAST_EVENTS {
                events.pop_front();
            }
            Ok(())
        };
        // What a crash that was armed and not used up takes away is not missed.
        let _lost = self.disk.read(0, &mut keep).or_else(|_| self.disk.read(0, &mut keep));
        events.into()
    }

    fn find(&mut self, what: impl std::fmt::Display) {
        let step = self.report.steps;
        self.report.findings.push(format!("step {step}: {what}"));
    }

    fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..36 => self.submit(),
            36..40 => self.world_job(),
            66..69 => self.book(),
            69..70 => self.unbook(),
            70..76 => self.on_a_job(|job| Input::Cancel { job }),
            76..82 => self.on_a_job(|job| Input::Evict { job }),
            82..84 => {
                let by = Millis::from_secs(self.rng.random_range(1..300));
                self.on_a_job(|job| Input::Extend { job, to: Extension::By(by) });
            }
            84..86 => {
                let tasks = self.rng.random_range(1..7);
                self.on_a_job(|job| Input::Scale { job, tasks });
                let how = Replacement { surge: tasks % 3, unavailable: tasks % 2 };
                self.on_a_job(|job| Input::Replace { job, how: (tasks < 6).then_some(how) });
            }
            86..87 => self.cordon(),
            87..88 => self.drain_or_maintain(),
            88..90 => self.change_policy(),
            90..93 if self.faults_on => self.node_fault(),
            93..95 if self.faults_on => self.refuse(),
            95..97 if self.faults_on => self.arm_crash(),
            97..98 if self.faults_on => self.kill(),
            98..100 if self.faults_on => self.stale_leader(),
            // Time is what happens most, and instead of a fault when there are none.
            _ => self.pass_time(),
        }
    }

    /// The leader; after a crash a new one, which may crash while it opens.
    fn leader(&mut self) -> &mut Leader {
        while self.leader.is_none() {
            let settings = Settings { snapshot_after: 200, resend_after: Millis::from_secs(30) };
            match Controller::open(self.disk.clone(), self.world.clone(), settings) {
                Ok(leader) => self.leader = Some(leader),
                Err(Fault::Disk(DiskFault::Io { .. })) => self.report.crashes += 1,
                // The world did not answer; it is met before anything is served.
                Err(Fault::World(_)) => {}
                Err(fault) => panic!("a leader cannot open: {fault}"),
            }
        }
        self.leader.as_mut().expect("it was just opened")
    }

    /// One input; `None` when the control plane died of it.
    fn give(&mut self, input: Input) -> Option<Reply> {
        self.report.inputs += 1;
        self.leader();
        let leader = self.leader.as_mut().expect("it was just opened");
        let prices = self.pricing.due(leader.state());
        self.report.prices += u64::from(prices.is_some());
        let inputs: Vec<Input> = prices.into_iter().chain([input]).collect();
        match leader.turn(&inputs) {
            Ok(mut replies) => replies.pop(),
            Err(Fault::Disk(DiskFault::Io { .. })) => {
                self.kill();
                None
            }
            Err(fault) => panic!("the leader's turn failed: {fault}"),
        }
    }

    fn submit(&mut self) {
        let leaves = make::leaves(self.leader().state().tenants.policy());
        let tenant = leaves[self.rng.random_range(0..leaves.len())].clone();
        let mut job = make::job(&mut self.rng, tenant, self.next_job);
        self.next_job += 1;
        job.booking = self.window_of(&job.tenant);
        self.hold_back(&mut job);
        let (uid, name) = (job.uid, job.spec.name.clone());
        let indexes = job.array.as_ref().map(|array| array.indexes.clone());
        if let Some(Ok(_)) = self.give(Input::Submit(Box::new(job))) {
            match indexes {
                None => self.acknowledged.push((uid, name)),
                Some(indexes) => self.acknowledged.extend(
                    indexes
                        .into_iter()
                        .map(|index| (ArrayMember::uid(uid, index), ArrayMember::member_name(&name, index))),
                ),
            }
        }
    }

    /// Some jobs wait for others, and some come as an array.
    fn hold_back(&mut self, job: &mut Submission) {
        if self.rng.random_ratio(1, 8) {
            let live: Vec<Uid> = self.leader().state().jobs.iter().map(|(_, job)| job.uid).collect();
            let when = if self.rng.random() { Condition::Ok } else { Condition::Any };
            let uid = if live.is_empty() { None } else { Some(live[self.rng.random_range(0..live.len())]) };
            job.after.extend(uid.map(|uid| After { uid, when }));
        }
        if self.rng.random_ratio(1, 12) {
            let members = self.rng.random_range(1..6);
            let at_most = self.rng.random_range(1..=members);
            job.array = Some(ArrayRequest { indexes: (0..members).collect(), at_most });
        }
    }

    fn book(&mut self) {
        let leaves = make::leaves(self.leader().state().tenants.policy());
        let tenant = leaves[self.rng.random_range(0..leaves.len())].clone();
        let now = self.leader().now();
        let request = make::booking(&mut self.rng, tenant, self.next_job, now);
        self.next_job += 1;
        self.give(Input::Book(Box::new(request)));
    }

    fn unbook(&mut self) {
        let state = self.leader().state();
        let names: Vec<String> =
            state.bookings.iter().map(|(_, booking)| booking.spec.name.clone()).collect();
        if !names.is_empty() {
            let name = names[self.rng.random_range(0..names.len())].clone();
            self.give(Input::Unbook { name });
        }
    }

    /// Half of the jobs of a tenant that has booked something are for its first window.
    fn window_of(&mut self, tenant: &str) -> Option<String> {
        let state = self.leader().state();
        let own = |spec: &wharf_engine::model::job::Spec| state.tenants.path(spec.tenant) == tenant;
        let first = state.bookings.iter().find(|(_, booking)| own(&booking.spec));
        let name = first.map(|(_, booking)| booking.spec.name.clone())?;
        self.rng.random::<bool>().then_some(name)
    }

    fn pass_time(&mut self) {
        let ahead = self.rng.random_range(0..120_000);
        let to = Timestamp(self.world.with(|fleet| fleet.now()).0 + ahead);
        self.world.advance(to);
        self.give(Input::Tick);
    }

    fn on_a_job(&mut self, what: impl FnOnce(JobId) -> Input) {
        let jobs: Vec<JobId> = self.leader().state().jobs.iter().map(|(job, _)| job).collect();
        if !jobs.is_empty() {
            let job = jobs[self.rng.random_range(0..jobs.len())];
            self.give(what(job));
        }
    }

    fn some_node(&mut self) -> String {
        let names = self.world.with(|fleet| fleet.node_names().map(str::to_owned).collect::<Vec<_>>());
        names[self.rng.random_range(0..names.len())].clone()
    }

    fn cordon(&mut self) {
        let (node, on) = (self.some_node(), self.rng.random());
        self.give(Input::Cordon { node, on, reason: String::new() });
    }

    /// A node drains or drains no more; nodes are to be out of service, or that is called off.
    fn drain_or_maintain(&mut self) {
        let node = self.some_node();
        let whom = if self.rng.random_bool(0.3) { Whom::Everything } else { Whom::Preemptible };
        let within = Millis::from_secs(self.rng.random_range(0..600));
        let reason = String::new();
        let input = match self.rng.random_range(0..6) {
            0..2 => Input::Drain { nodes: vec![node], how: Some(DrainRequest { within, reason, whom }) },
            2..4 => Input::Drain { nodes: vec![node], how: None },
            4 => {
                let names = self.leader().state().maintenance.iter().map(|(name, _)| name.to_owned());
                let Some(name) = names.last() else { return };
                Input::CallOff { name }
            }
            _ => {
                let (name, nodes) = (format!("downtime-{}", self.next_job), vec![node, self.some_node()]);
                let from = self.leader().now() + within;
                let span = Millis::from_secs(self.rng.random_range(1..900));
                Input::PlanDowntime(Box::new(DowntimeRequest { name, nodes, from, span, reason, whom }))
            }
        };
        self.give(input);
    }

    fn change_policy(&mut self) {
        self.editions += 1;
        let policy = make::policy(&mut self.rng, self.editions);
        while self.give(Input::ApplyPolicy(policy.clone())).is_none() {}
    }

    fn node_fault(&mut self) {
        self.report.faults += 1;
        let node = self.some_node();
        let joining = make::node(&mut self.rng, self.nodes_made);
        let last = self.world.with(|fleet| fleet.node_names().count()) == 1;
        let gpus = self.world.with(|fleet| fleet.gpus_of(&node)).max(1);
        let (gpu, error) = (self.rng.random_range(0..gpus), &XIDS[self.rng.random_range(0..XIDS.len())]);
        self.world.with(|fleet| match self.rng.random_range(0..11) {
            0 => fleet.fail_node(&node, true),
            1 => fleet.fail_node(&node, false),
            2..4 => fleet.heal_node(&node),
            4 => fleet.change_node(&node, |known| {
                known.labels.insert("zone".into(), "north".into());
                known.taints.clear();
            }),
            5 => fleet.change_node(&node, |known| {
                known.node.gpus.iter_mut().take(1).for_each(|gpu| gpu.healthy = !gpu.healthy);
            }),
            6 => fleet.change_node(&node, |known| {
                known.node.gpus.pop();
            }),
            7 if !last => fleet.remove_node(&node),
            8..10 => {
                fleet.gpu_error(&node, gpu, error);
            }
            _ => {
                self.nodes_made += 1;
                fleet.add_node(joining);
            }
        });
        self.give(Input::Tick);
    }

    fn arm_crash(&mut self) {
        let point = if self.rng.random() { CrashPoint::Before } else { CrashPoint::After };
        self.disk.crash_after(self.rng.random_range(1..=4), point);
    }

    /// The process dies between two steps.
    fn kill(&mut self) {
        self.leader = None;
        self.report.crashes += 1;
    }

    /// A second leader takes over while the first still thinks that it leads.
    fn stale_leader(&mut self) {
        self.leader();
        let mut old = self.leader.take().expect("there is a leader");
        self.leader();
        self.report.faults += 1;
        let policy = old.state().tenants.policy().clone();
        let job = make::job(&mut self.rng, make::leaves(&policy)[0].clone(), self.next_job);
        self.next_job += 1;
        match old.turn(&[Input::Submit(Box::new(job))]) {
            Err(Fault::Disk(DiskFault::Fenced { .. } | DiskFault::Io { .. })) => {}
            Err(fault) => self.find(format!("a stale leader failed in another way: {fault}")),
            Ok(replies) if replies[0].is_err() => {}
            Ok(_) => self.find("a stale leader acknowledged a job"),
        }
    }

    fn check(&mut self) {
        let deep = self.report.steps.is_multiple_of(DEEP_EVERY);
        let used = self.leader().state().bookings.iter().filter(|(_, booking)| booking.used);
        let used: Vec<BookingId> = used.map(|(id, _)| id).collect();
        self.windows.extend(used);
        self.report.windows = self.windows.len();
        let state = self.leader().state();
        let findings = if deep { state.check_deep() } else { state.check() };
        let panics = self.leader().figures().plan_panics;
        for finding in findings {
            self.find(format!("{finding:?}"));
        }
        if panics > 0 {
            self.find("a plan panicked");
        }
        self.check_memory();
        self.check_world();
        self.check_avoided();
    }

    /// After a turn, a plan that remembers no refusal finds nothing that the turn's plan has missed.
    fn check_memory(&mut self) {
        let leader = self.leader();
        let (state, now) = (leader.state(), leader.now());
        let missed = plan(state, state.tenants.policy(), &Memory::default(), now);
        if let Some(start) = missed.starts.first() {
            let (evictions, promises) = (&missed.evictions, &missed.earmarks);
            let what = format!("a refusal was remembered too long; {evictions:?} {promises:?}");
            self.find(format!("{:?} could have started; {what}", start.job));
        } else if let Some(left) =
            missed.evictions.iter().find(|left| left.receipt.why == EvictionRule::Order)
        {
            let what = "could have been made to leave by order; a refusal was remembered too long";
            self.find(format!("{:?} {what}: {:?}", left.job, left.receipt));
        }
    }

    /// The world's own view: no device does more than one device can.
    fn check_world(&mut self) {
        let mut held = std::collections::BTreeMap::new();
        self.world.with(|fleet| {
            for (_, node, gpus, units) in fleet.running() {
                for gpu in gpus.indexes() {
                    *held.entry((node.to_owned(), gpu)).or_insert(0) += units.parts();
                }
            }
        });
        for ((node, gpu), parts) in held.into_iter().filter(|&(_, parts)| parts > 3000) {
            self.find(format!("the world runs {parts} parts on gpu {gpu} of {node}"));
        }
    }

    /// Faults off: everything that can run must run, and nothing flaps afterwards.
    fn settle(&mut self) {
        self.faults_on = false;
        self.world.repair();
        let nodes = self.world.with(|fleet| fleet.node_names().map(str::to_owned).collect::<Vec<_>>());
        for node in nodes {
            self.world.with(|fleet| {
                fleet.heal_node(&node);
                fleet.change_node(&node, |known| {
                    known.node.gpus.iter_mut().for_each(|gpu| (gpu.healthy, gpu.xid) = (true, None));
                });
            });
            self.give(Input::Cordon { node: node.clone(), on: false, reason: String::new() });
            self.give(Input::Drain { nodes: vec![node], how: None });
        }
        self.release_refused();
        // Services do not end by themselves.
        for job in self.leader().state().jobs.services().clone() {
            // A crash that was armed and not used up strikes here once.
            if self.give(Input::Cancel { job }).is_none() {
                self.give(Input::Cancel { job });
            }
        }
        for _ in 0..SETTLE_ROUNDS {
            let Some(wake) = self.leader().next_wake() else { break };
            self.world.advance(wake.max(self.world.with(|fleet| fleet.now())));
            self.give(Input::Tick);
            self.check();
            if !self.report.findings.is_empty() {
                return;
            }
        }
        self.check_owned();
        self.check_everything_ran();
        self.check_nothing_flaps();
    }

    /// Every job of a run but services, which were cancelled, ends by itself, so in the end nothing holds anything, and what still waits does not fit the
    /// empty fleet.
    fn check_everything_ran(&mut self) {
        let leader = self.leader();
        let (state, now) = (leader.state(), leader.now());
        let mut stuck: Vec<String> =
            state.ledger.holdings().map(|(job, _)| format!("{job:?} holds its places for ever")).collect();
        for (id, job) in state.jobs.iter() {
            let verdict = state.verdict(id, now).expect("a live job has a verdict");
            let moving = matches!(job.phase, Phase::Leaving(_)) || verdict.reason == Reason::Starting;
            if moving
                || matches!(
                    verdict.reason,
                    Reason::Startable | Reason::BackingOff { .. } | Reason::StartRefused { .. }
                )
            {
                let tenant = state.tenants.path(job.spec.tenant);
                stuck.push(format!("{tenant}: {:?} is {} for ever", job.spec, verdict.reason.token()));
            }
        }
        for what in stuck {
            self.find(what);
        }
    }

    fn check_nothing_flaps(&mut self) {
        let before = self.leader().state().index();
        for _ in 0..5 {
            self.give(Input::Tick);
        }
        let after = self.leader().state().index();
        if after != before {
            self.find(format!("{} events happened after everything had settled", after - before));
        }
    }

    /// What was acknowledged is live or has ended; it is never forgotten.
    fn check_acknowledged(&mut self) {
        for (uid, name) in std::mem::take(&mut self.acknowledged) {
            let live = self.leader().state().jobs.with_uid(uid).is_some();
            let query = HistoryQuery {
                kind: Some(HistoryKind::Job),
                name: Some(name.clone()),
                limit: 1,
                ..HistoryQuery::default()
            };
            // A crash that was armed and not used up strikes here once.
            let rows = self.disk.history(&query).or_else(|_| self.disk.history(&query));
            let ended = !rows.expect("memory fails only when it was told to").is_empty();
            if !live && !ended {
                self.find(format!("{name} was acknowledged and is nowhere"));
            }
        }
    }
}
