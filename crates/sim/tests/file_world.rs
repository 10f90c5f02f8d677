//! The fleet with a file: what it tells was saved first, whatever happens to the file, and its clock goes on whatever
//! happens to the wall's.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "shared/node.rs"]
mod node;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use rusqlite::Connection;
use wharf_controller::disk::Standing;
use wharf_controller::world::{Happening, World};
use wharf_engine::model::action::{Action, StartTask};
use wharf_engine::model::exit::Exit;
use wharf_engine::model::job::{GpuAsk, Shape, Spec};
use wharf_engine::model::observed::TaskStatus;
use wharf_engine::model::policy::Mode;
use wharf_engine::model::submission::Submission;
use wharf_engine::units::{GpuMask, GpuUnits, Resources, Timestamp, Uid};
use wharf_sim::world::file::clock::{Reading, Source};
use wharf_sim::world::file::{FileWorld, Founding};

use node::node;

const HOUR: u64 = 3_600_000;
const BEGIN: u64 = 1_800_000_000_000;

fn open(dir: &Path, source: Source) -> FileWorld {
    let founding = Founding { name: "test".into(), nodes: vec![node("n1", 8)] };
    FileWorld::open_by(&dir.join("fleet.sqlite"), founding, 1, source).unwrap()
}

/// Clocks that are moved by hand.
#[derive(Clone, Default)]
struct Machine {
    wall: Arc<AtomicU64>,
    steady: Arc<AtomicU64>,
    boot: Arc<AtomicU64>,
}

impl Machine {
    fn new() -> Self {
        let machine = Self::default();
        machine.wall.store(BEGIN, SeqCst);
        machine
    }

    fn source(&self) -> Source {
        let Self { wall, steady, boot } = self.clone();
        Box::new(move || Reading {
            wall_ms: wall.load(SeqCst),
            steady_ms: steady.load(SeqCst),
            boot: Some(boot.load(SeqCst).into()),
        })
    }

    fn pass(&self, millis: u64) {
        self.wall.fetch_add(millis, SeqCst);
        self.steady.fetch_add(millis, SeqCst);
    }
}

/// A job of one GPU that takes a minute.
fn start() -> Action {
    let shape = Shape::of(GpuAsk::Whole(1), Resources::default());
    let spec = Spec { payload: r#"{"duration_ms":60000}"#.into(), ..Spec::of("j".to_owned(), shape) };
    let mut gpus = GpuMask::default();
    gpus.insert(0);
    let task = StartTask {
        task: 0,
        node: "n1".into(),
        gpus,
        units_each: GpuUnits::WHOLE,
        enforced: Mode::Whole,
        slice: None,
        memory_mib: None,
    };
    let job = Box::new(Submission::of(Uid(1), "lab", spec));
    Action::Start { attempt: 1, job, tasks: vec![task] }
}

fn tasks(world: &mut FileWorld) -> usize {
    world.list().unwrap().report.tasks.len()
}

/// What a control plane would find that came now to what is on the disk.
fn tasks_on_disk(dir: &Path, machine: &Machine) -> usize {
    let copy = tempfile::tempdir().unwrap();
    for name in ["fleet.sqlite", "fleet.sqlite-wal"] {
        let _ = std::fs::copy(dir.join(name), copy.path().join(name));
    }
    tasks(&mut open(copy.path(), machine.source()))
}

/// After a save that failed the fleet in memory is ahead of its file, and what was not saved was never saved: only what
/// changed later was.
#[test]
fn what_could_not_be_saved_is_not_told_and_is_saved_later() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::new();
    let mut world = open(dir.path(), machine.source());
    world.list().unwrap();
    let by = Standing { term: 1, next: 1 };
    let locked = Connection::open(dir.path().join("fleet.sqlite")).unwrap();
    locked.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(world.act(by, &[start()]).is_err());
    machine.pass(1000);
    assert!(world.changes().is_err(), "it runs, and that is not told before it is saved");
    assert!(world.list().is_err());
    locked.execute_batch("ROLLBACK").unwrap();
    assert_eq!(tasks_on_disk(dir.path(), &machine), 0);
    world.act(by, &[start()]).unwrap();
    assert_eq!(tasks_on_disk(dir.path(), &machine), 1, "with everything that was not saved before");
    assert_eq!(tasks(&mut world), 1, "and it was started once");
}

/// How each task ended, and when; `None` while it runs.
fn outcome(world: &mut FileWorld) -> Vec<Option<(Exit, Timestamp)>> {
    let ended = |status: TaskStatus| match status {
        TaskStatus::Ended { exit, at, .. } => Some((exit, at)),
        TaskStatus::Running | TaskStatus::Saved { .. } | TaskStatus::SaveFailed => None,
    };
    world.list().unwrap().report.tasks.iter().map(|task| ended(task.status)).collect()
}

#[test]
fn a_job_ends_in_its_time_whatever_the_wall_clock_is_set_to() {
    for step in [-i64::try_from(HOUR).unwrap(), i64::try_from(10 * 365 * 24 * HOUR).unwrap()] {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::new();
        let mut world = open(dir.path(), machine.source());
        world.act(Standing { term: 1, next: 1 }, &[start()]).unwrap();
        machine.pass(30_000);
        machine.wall.store(machine.wall.load(SeqCst).checked_add_signed(step).unwrap(), SeqCst);
        world.changes().unwrap();
        assert_eq!(world.clock_steps().count, 1, "{:?}", world.clock_steps());
        assert_eq!(outcome(&mut world), [None], "it runs");
        // The process dies, and the clock is put right.
        drop(world);
        machine.wall.store(machine.wall.load(SeqCst).checked_add_signed(-step).unwrap(), SeqCst);
        machine.pass(20_000);
        let mut world = open(dir.path(), machine.source());
        assert_eq!(world.now(), Timestamp(BEGIN + 50_000));
        machine.pass(10_000);
        let ended = Some((Exit::Succeeded, Timestamp(BEGIN + 60_000)));
        assert_eq!(outcome(&mut world), [ended]);
    }
}

#[test]
fn a_machine_that_starts_in_the_past_goes_on_from_where_the_fleet_stood() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::new();
    let mut world = open(dir.path(), machine.source());
    world.act(Standing { term: 1, next: 1 }, &[start()]).unwrap();
    // Nothing happens, and the file learns the time all the same.
    machine.pass(6_000);
    world.changes().unwrap();
    drop(world);
    machine.wall.store(0, SeqCst);
    machine.steady.store(0, SeqCst);
    machine.boot.fetch_add(1, SeqCst);
    let mut world = open(dir.path(), machine.source());
    assert_eq!((world.now(), world.clock_steps().count), (Timestamp(BEGIN + 6_000), 1));
    machine.pass(54_000);
    let ended = Some((Exit::Succeeded, Timestamp(BEGIN + 60_000)));
    assert_eq!(outcome(&mut world), [ended], "and it does not stand still");
}

#[test]
fn another_list_of_nodes_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::new();
    let mut world = open(dir.path(), machine.source());
    world.act(Standing { term: 1, next: 1 }, &[start()]).unwrap();
    world.happen(&Happening::GpuError { node: "n1".into(), gpu: 3, xid: 79 }).unwrap();
    let mut larger = node("n1", 8);
    larger.labels.insert("zone".into(), "b".into());
    let happened = world.happen(&Happening::Fleet(vec![larger.clone(), node("n2", 8)])).unwrap();
    assert_eq!((happened.joined, happened.changed), (vec!["n2".to_owned()], vec!["n1".to_owned()]));
    assert!(happened.left.is_empty() && happened.jobs.is_empty(), "nobody is disturbed");
    drop(world);
    let mut world = open(dir.path(), machine.source());
    let nodes = world.list().unwrap().nodes;
    assert_eq!(nodes.iter().map(|node| node.node.name.as_str()).collect::<Vec<_>>(), ["n1", "n2"]);
    assert_eq!(nodes[0].node.gpus[3].xid, Some(79), "what has failed stays so");
    let happened = world.happen(&Happening::Fleet(vec![node("n2", 8)])).unwrap();
    assert_eq!((happened.left, happened.jobs), (vec!["n1".to_owned()], vec!["lab/j".to_owned()]));
}
