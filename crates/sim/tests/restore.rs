//! An older journal is put back over a fleet that has gone on: what runs goes on, what ended does not run again, and
//! what nobody can decide is held.
//!
//! The story: with a journal restored from a backup a finished job ran a second time, and what had started since the backup
//! was taken for orphaned and stopped.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "shared/node.rs"]
mod node;

use std::collections::{BTreeMap, BTreeSet};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use wharf_controller::codec;
use wharf_controller::disk::{Disk, HistoryKind, HistoryQuery};
use wharf_controller::memory::MemoryDisk;
use wharf_controller::turn::{Controller, Fault, Settings};
use wharf_controller::world::World;
use wharf_engine::decide::input::Input;
use wharf_engine::model::job::{Checkpoint, Class, GpuAsk, Service, Shape, Spec};
use wharf_engine::model::observed::TaskRef;
use wharf_engine::model::policy::{Policy, Tenant};
use wharf_engine::model::rejection::Rejection;
use wharf_engine::model::submission::Submission;
use wharf_engine::state::event::Event;
use wharf_engine::state::jobs::Phase;
use wharf_engine::state::ledger::event::LedgerEvent;
use wharf_engine::units::{GpuUnits, JobId, Millis, Resources, Timestamp, Uid};
use wharf_sim::world::direct::DirectWorld;
use wharf_sim::world::fleet::SimFleet;

use node::node;

struct Life {
    leader: Controller<MemoryDisk, DirectWorld>,
    world: DirectWorld,
    disk: MemoryDisk,
}

fn spec(name: &str, gpus: u32, duration_s: u64) -> Spec {
    let resources = Resources { cpu_milli: 100, memory: 1 << 20, pods: 1, ..Resources::default() };
    Spec {
        payload: format!(r#"{{"duration_ms":{}}}"#, duration_s * 1000),
        ..Spec::of(name, Shape::of(GpuAsk::Whole(gpus), resources))
    }
}

fn job(uid: u128, spec: Spec) -> Input {
    Input::Submit(Box::new(Submission::of(Uid(uid), "lab", spec)))
}

/// Far longer than any of these lives.
const FOREVER: u64 = 1_000_000;

impl Life {
    fn new() -> Self {
        let fleet = SimFleet::new(7, vec![node("n1", 4), node("n2", 4)], Timestamp(1_000_000));
        let (world, disk) = (DirectWorld::new(fleet), MemoryDisk::new());
        let leader = Controller::open(disk.clone(), world.clone(), Settings::default()).unwrap();
        let mut life = Self { leader, world, disk };
        let tenants = vec![Tenant::without_lines("lab")];
        life.give(Input::ApplyPolicy(Policy { tenants, ..Policy::default() })).unwrap();
        life
    }

    fn give(&mut self, input: Input) -> Result<Option<JobId>, Rejection> {
        self.leader.turn(&[input]).unwrap().pop().unwrap()
    }

    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds.div_ceil(5) {
            self.world.with(|fleet| fleet.advance(Timestamp(fleet.now().0 + 5_000)));
            self.leader.turn(&[]).unwrap();
        }
    }

    /// Puts a copy in place of the journal. An ordinary start refuses it and changes nothing.
    fn restore(&mut self, copy: &MemoryDisk) {
        let before =
            codec::hex(&codec::state_hash(&wharf_controller::turn::recover(&mut copy.backup()).unwrap().0));
        let refused = Controller::open(copy.clone(), self.world.clone(), Settings::default());
        assert!(
            matches!(refused.err(), Some(Fault::JournalBehind { .. })),
            "a journal that is behind is refused"
        );
        let (kept, _) = wharf_controller::turn::recover(&mut copy.backup()).unwrap();
        assert_eq!(codec::hex(&codec::state_hash(&kept)), before);
        let running = self.running();
        self.disk = copy.clone();
        self.leader = Controller::restore(copy.clone(), self.world.clone(), Settings::default()).unwrap();
        assert_eq!(self.leader.state().check_deep(), []);
        assert_eq!(self.running(), running, "a restore stops nothing");
        self.leader.turn(&[]).unwrap();
        assert_eq!(self.leader.state().check_deep(), []);
    }

    fn running(&self) -> BTreeSet<TaskRef> {
        self.world.with(|fleet| fleet.running().map(|(task, ..)| task).collect())
    }

    /// Live jobs by name: whether they are active, waiting or held.
    fn jobs(&self) -> BTreeMap<String, &'static str> {
        let state = self.leader.state();
        let phase = |job: &wharf_engine::state::jobs::Job| match (job.phase, job.held) {
            (Phase::Waiting, Some(_)) => "held",
            (Phase::Waiting, None) => "waits",
            (Phase::Active, _) => "active",
            (Phase::Leaving(_), _) => "leaves",
        };
        state.jobs.iter().map(|(_, job)| (job.spec.name.clone(), phase(job))).collect()
    }

    fn id(&self, name: &str) -> JobId {
        self.leader.state().jobs.iter().find(|(_, job)| job.spec.name == name).unwrap().0
    }

    /// What history has of the ends of jobs of that name.
    fn outcome(&mut self, name: &str) -> Vec<String> {
        let query = HistoryQuery {
            kind: Some(HistoryKind::Job),
            name: Some(name.to_owned()),
            limit: 10,
            ..HistoryQuery::default()
        };
        self.disk.history(&query).unwrap().into_iter().map(|row| row.body).collect()
    }
}

fn expect(life: &Life, jobs: &[(&str, &'static str)]) {
    let expected: BTreeMap<String, &str> = jobs.iter().map(|&(name, how)| (name.to_owned(), how)).collect();
    assert_eq!(life.jobs(), expected);
}

#[test]
fn what_ended_ends_what_runs_goes_on_and_what_is_new_is_adopted() {
    let mut life = Life::new();
    life.give(job(1, spec("ends", 2, 100))).unwrap();
    life.give(job(2, spec("goes-on", 2, FOREVER))).unwrap();
    life.pass(10);
    let copy = life.disk.backup();
    life.give(job(3, spec("new", 2, FOREVER))).unwrap();
    life.give(job(4, spec("short", 1, 20))).unwrap();
    life.pass(120);
    life.restore(&copy);
    expect(&life, &[("goes-on", "active"), ("new", "active")]);
    let ended = life.outcome("ends");
    assert!(ended.len() == 1 && ended[0].contains("succeeded"), "{ended:?}");
    life.pass(60);
    assert_eq!(life.running().len(), 2, "nothing runs a second time");
    // Who repeats a request for a job that the journal never knew is told that it is over.
    assert_eq!(life.give(job(4, spec("short", 1, 20))), Err(Rejection::UidEnded));
}

#[test]
fn what_nobody_can_decide_is_held_until_somebody_does() {
    let mut life = Life::new();
    life.give(job(1, spec("fills", 4, FOREVER))).unwrap();
    life.give(job(2, spec("fills-too", 4, FOREVER))).unwrap();
    life.give(job(3, spec("waits", 4, 50))).unwrap();
    life.give(job(4, spec("waits-too", 4, 50))).unwrap();
    life.pass(10);
    let copy = life.disk.backup();
    let id = life.id("waits");
    life.give(Input::Cancel { job: id }).unwrap();
    // The fleet is a witness once it has been told something.
    life.give(job(5, spec("short", 0, 5))).unwrap();
    life.pass(10);
    life.restore(&copy);
    let held = [("fills", "active"), ("fills-too", "active"), ("waits", "held"), ("waits-too", "held")];
    expect(&life, &held);
    let fills = life.id("fills");
    life.give(Input::Cancel { job: fills }).unwrap();
    life.pass(30);
    expect(&life, &[("fills-too", "active"), ("waits", "held"), ("waits-too", "held")]);
    // A snapshot and a restart keep it so.
    life.leader.snapshot().unwrap();
    life.leader = Controller::open(life.disk.clone(), life.world.clone(), Settings::default()).unwrap();
    expect(&life, &[("fills-too", "active"), ("waits", "held"), ("waits-too", "held")]);
    let (waits, other) = (life.id("waits"), life.id("waits-too"));
    assert_eq!(life.give(Input::Release { job: fills }), Err(Rejection::NoSuchJob));
    life.give(Input::Cancel { job: waits }).unwrap();
    life.give(Input::Release { job: other }).unwrap();
    assert_eq!(life.give(Input::Release { job: other }), Err(Rejection::NothingToDo));
    life.pass(5);
    expect(&life, &[("fills-too", "active"), ("waits-too", "active")]);
}

#[test]
fn a_later_attempt_that_runs_is_taken_over() {
    let mut life = Life::new();
    life.give(job(1, spec("moved", 4, FOREVER))).unwrap();
    life.pass(10);
    let copy = life.disk.backup();
    let id = life.id("moved");
    life.give(Input::Evict { job: id }).unwrap();
    life.pass(60);
    assert_eq!(life.leader.state().ledger.holding(id).unwrap().attempt, 2);
    life.restore(&copy);
    expect(&life, &[("moved", "active")]);
    assert_eq!(life.leader.state().ledger.holding(life.id("moved")).unwrap().attempt, 2);
    life.pass(60);
    assert_eq!(life.running().len(), 1);
}

#[test]
fn a_job_that_waited_and_runs_by_now_is_not_started_again() {
    let mut life = Life::new();
    life.give(job(1, spec("first", 4, 60))).unwrap();
    life.give(job(2, spec("other", 4, FOREVER))).unwrap();
    life.give(job(3, spec("second", 4, FOREVER))).unwrap();
    life.give(job(4, spec("third", 4, 30))).unwrap();
    life.pass(10);
    let copy = life.disk.backup();
    life.pass(100);
    let before = life.running();
    life.restore(&copy);
    expect(&life, &[("other", "active"), ("second", "active"), ("third", "held")]);
    life.pass(100);
    assert_eq!(life.running(), before);
}

#[test]
fn a_name_that_a_later_job_took_is_the_later_jobs() {
    let mut life = Life::new();
    life.give(job(1, spec("nightly", 2, 30))).unwrap();
    life.pass(10);
    let copy = life.disk.backup();
    life.pass(60);
    life.give(job(2, spec("nightly", 2, FOREVER))).unwrap();
    life.pass(10);
    life.restore(&copy);
    expect(&life, &[("nightly", "active")]);
    assert_eq!(life.leader.state().jobs.get(life.id("nightly")).unwrap().uid, Uid(2));
    assert!(life.outcome("nightly")[0].contains("succeeded"));
}

#[test]
fn a_service_keeps_the_replicas_that_it_was_scaled_to() {
    let mut life = Life::new();
    let service = Spec {
        class: Class::Inference,
        tasks: 2,
        min: 1,
        service: Some(Service { max: 6, replicas: 2 }),
        ..spec("serves", 1, FOREVER)
    };
    life.give(job(1, service)).unwrap();
    life.pass(10);
    let copy = life.disk.backup();
    let id = life.id("serves");
    life.give(Input::Scale { job: id, tasks: 5 }).unwrap();
    life.pass(20);
    let before = life.running();
    assert_eq!(before.len(), 5);
    life.restore(&copy);
    life.pass(60);
    assert_eq!(life.running(), before);
}

#[test]
fn an_ask_to_leave_that_was_withdrawn_since_is_not_made_again() {
    let mut life = Life::new();
    let saves = Spec {
        checkpoint: Some(Checkpoint { every: Millis(600_000), grace: Millis(30_000), on_request: false }),
        payload: r#"{"duration_ms":1000000000,"checkpoint_ms":20000}"#.into(),
        ..spec("asked", 4, FOREVER)
    };
    life.give(job(1, saves)).unwrap();
    life.pass(10);
    let id = life.id("asked");
    life.give(Input::Evict { job: id }).unwrap();
    let copy = life.disk.backup();
    expect(&life, &[("asked", "leaves")]);
    // Something happens that the copy lacks, and nobody knows what became of the ask.
    life.give(job(2, spec("new", 1, FOREVER))).unwrap();
    life.restore(&copy);
    expect(&life, &[("asked", "active"), ("new", "active")]);
}

#[test]
fn a_lost_journal_adopts_everything_that_runs() {
    let mut life = Life::new();
    life.give(job(1, spec("runs", 2, FOREVER))).unwrap();
    life.give(job(2, spec("ended", 2, 10))).unwrap();
    life.pass(60);
    life.restore(&MemoryDisk::new());
    expect(&life, &[("runs", "active")]);
    let tenants = vec![Tenant::without_lines("lab")];
    life.give(Input::ApplyPolicy(Policy { tenants, ..Policy::default() })).unwrap();
    assert_eq!(life.give(job(2, spec("ended", 2, 10))), Err(Rejection::UidEnded));
}

#[test]
fn a_journal_that_is_not_behind_is_opened_as_always() {
    let mut life = Life::new();
    life.give(job(1, spec("fills", 4, FOREVER))).unwrap();
    life.give(job(2, spec("fills-too", 4, FOREVER))).unwrap();
    life.give(job(3, spec("waits", 4, 50))).unwrap();
    life.leader = Controller::restore(life.disk.clone(), life.world.clone(), Settings::default()).unwrap();
    life.pass(5);
    expect(&life, &[("fills", "active"), ("fills-too", "active"), ("waits", "waits")]);
}

/// Random lives, in each of which an older journal is put back at some moment: whatever happened in between, the books
/// are in order, nothing is stopped by the restore, and nothing that succeeded runs again.
#[test]
fn whatever_happened_since_the_backup_nothing_runs_twice() {
    for seed in 0..60 {
        random_life(seed);
    }
}

fn random_life(seed: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut life = Life::new();
    let mut number = 0;
    let mut copies = vec![life.disk.backup()];
    for step in 0..60 {
        random_step(&mut life, &mut rng, &mut number);
        if step % 7 == 0 {
            copies.push(life.disk.backup());
        }
    }
    let done = succeeded(&mut life);
    let obeyed = life.world.obeyed();
    copies.retain(|copy| copy.clone().standing().unwrap() < obeyed);
    let copy = copies[rng.random_range(0..copies.len())].clone();
    life.restore(&copy);
    let mut started: Vec<Uid> = Vec::new();
    for _ in 0..20 {
        let from = life.leader.state().index();
        random_step(&mut life, &mut rng, &mut number);
        assert_eq!(life.leader.state().check_deep(), [], "seed {seed}");
        started.extend(starts(&life, from));
    }
    for uid in started {
        assert!(!done.contains(&uid), "seed {seed}: {uid:?} had succeeded and was started again");
    }
}

fn random_step(life: &mut Life, rng: &mut ChaCha8Rng, number: &mut u128) {
    let some = |life: &Life, rng: &mut ChaCha8Rng| {
        let jobs: Vec<JobId> = life.leader.state().jobs.iter().map(|(id, _)| id).collect();
        (!jobs.is_empty()).then(|| jobs[rng.random_range(0..jobs.len())])
    };
    match rng.random_range(0..10) {
        0..5 => {
            *number += 1;
            let duration = if rng.random() { FOREVER } else { rng.random_range(5..200) };
            let mut made = spec(&format!("j{}", *number % 12), rng.random_range(1..=4), duration);
            match rng.random_range(0..9) {
                0..3 => made.shape.gpus = GpuAsk::Share(GpuUnits::from_parts(1500)),
                3..5 => (made.tasks, made.min) = (2, rng.random_range(1..=2)),
                _ => {}
            }
            let _ = life.give(job(*number, made));
        }
        5 => {
            if let Some(job) = some(life, rng) {
                let _ = life.give(Input::Cancel { job });
            }
        }
        6 => {
            if let Some(job) = some(life, rng) {
                let _ = life.give(Input::Evict { job });
            }
        }
        7 => {
            let name = if rng.random() { "n1" } else { "n2" };
            life.world.with(|fleet| {
                if rng.random() { fleet.fail_node(name, rng.random()) } else { fleet.heal_node(name) }
            });
            life.pass(5);
        }
        _ => life.pass(rng.random_range(5..60)),
    }
}

/// Identities of jobs whose history says that they succeeded.
fn succeeded(life: &mut Life) -> BTreeSet<Uid> {
    let query = HistoryQuery { kind: Some(HistoryKind::Job), limit: 1000, ..HistoryQuery::default() };
    let rows = life.disk.history(&query).unwrap();
    let uid = |body: &str| {
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        let done = body["outcome"] == "succeeded";
        done.then(|| Uid(u128::from_str_radix(body["uid"].as_str().unwrap(), 16).unwrap()))
    };
    rows.iter().filter_map(|row| uid(&row.body)).collect()
}

/// Identities of jobs that were started from there on.
fn starts(life: &Life, from: u64) -> Vec<Uid> {
    let mut started = Vec::new();
    let state = life.leader.state();
    life.disk
        .clone()
        .read(0, &mut |index, record| {
            let event = codec::decode(&record, "test")?;
            if let (true, Event::Ledger(LedgerEvent::Started { job, .. })) = (index >= from, event) {
                started.extend(state.jobs.get(job).map(|job| job.uid));
            }
            Ok(())
        })
        .unwrap();
    started
}
