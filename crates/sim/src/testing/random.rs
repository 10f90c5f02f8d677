//! Random runs: whatever the seed brings, with crashes between any two disk operations, lost nodes, a network that delays,
//! reorders and repeats, nodes that refuse what they are told, jobs that the world owns, and leaders that do not know they
//! are over. Every step is checked; then faults stop, and everything that can run must run and nothing may flap.

mod checks;
mod faults;
mod generate;
mod inputs;
mod refusals;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use wharf_controller::codec;
use wharf_controller::disk::{Disk, DiskFault};
use wharf_controller::memory::MemoryDisk;
use wharf_controller::turn::{Controller, Fault, Reply, Settings};
use wharf_engine::decide::input::{Extension, Input, Replacement};
use wharf_engine::units::{BookingId, Millis, Timestamp, Uid};

use crate::testing::pricing::Pricing;
use crate::world::fleet::SimFleet;
use crate::world::net::NetWorld;

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
        let nodes = generate::fleet(&mut rng);
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

    /// The process dies between two steps.
    fn kill(&mut self) {
        self.leader = None;
        self.report.crashes += 1;
    }
}
