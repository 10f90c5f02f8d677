//! Slices, shares and whole GPUs through the real controller, on a fleet whose devices take time and fail now and
//! then: after every step the world holds what the engine believes, and nothing that hardware could not do.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "shared/node.rs"]
mod node;

use std::collections::{BTreeMap, BTreeSet};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use strum::VariantArray;
use wharf_controller::codec;
use wharf_controller::disk::Disk;
use wharf_controller::memory::MemoryDisk;
use wharf_controller::turn::{Controller, Settings};
use wharf_controller::world::NodeReport;
use wharf_engine::decide::input::Input;
use wharf_engine::device::catalogue;
use wharf_engine::device::catalogue::mig::ProfileName;
use wharf_engine::device::geometry::Slice;
use wharf_engine::model::exit::{Exit, Outcome};
use wharf_engine::model::job::{Class, GpuAsk, Shape, Spec};
use wharf_engine::model::observed::{ObservedTask, TaskStatus};
use wharf_engine::model::policy::{Mode, Policy, SharingRules, Tenant};
use wharf_engine::model::submission::Submission;
use wharf_engine::state::event::Event;
use wharf_engine::state::jobs::event::JobsEvent;
use wharf_engine::state::ledger::event::LedgerEvent;
use wharf_engine::units::{GpuUnits, Resources, Timestamp, Uid};
use wharf_sim::world::direct::DirectWorld;
use wharf_sim::world::fleet::{Device, SimFleet};

use node::node;

const TENANTS: [&str; 3] = ["a", "b", "c"];

fn of_a100(mut node: NodeReport) -> NodeReport {
    node.node.model = "a100".into();
    node
}

fn policy() -> Policy {
    let mut policy = Policy { tenants: TENANTS.map(Tenant::without_lines).into(), ..Policy::default() };
    let interactive = Class::ALL.iter().position(|&class| class == Class::Interactive).unwrap();
    policy.sharing.classes[interactive] = SharingRules { modes: vec![Mode::TimeSlicing], tax_max: 1000 };
    policy
}

/// A job of any way to divide a GPU.
fn job(rng: &mut ChaCha8Rng, number: u64) -> Input {
    let slice = |name: &str| GpuAsk::Slice(ProfileName::parse(name).unwrap());
    let share = |parts: u64| GpuAsk::Share(GpuUnits::from_parts(parts));
    let (gpus, class) = match rng.random_range(0..8) {
        0 => (slice("1g.10gb"), Class::Batch),
        1 => (slice("2g.20gb"), Class::Batch),
        2 => (slice("3g.40gb"), Class::Inference),
        3 | 4 => (share(rng.random_range(1..10) * 300), Class::Batch),
        5 => (share(600), Class::Interactive),
        _ => (GpuAsk::Whole(rng.random_range(1..=2)), Class::Batch),
    };
    let resources = Resources { cpu_milli: 100, memory: 1 << 20, pods: 1, ..Resources::default() };
    let duration_ms = rng.random_range(1_000..120_000);
    let spec = Spec {
        class,
        payload: format!(r#"{{"duration_ms":{duration_ms}}}"#),
        ..Spec::of(
            format!("j{number}"),
            Shape { time_slicing: class == Class::Interactive, ..Shape::of(gpus, resources) },
        )
    };
    Input::Submit(Box::new(Submission::of(
        Uid(u128::from(number) + 1),
        TENANTS[rng.random_range(0..TENANTS.len())],
        spec,
    )))
}

struct Life {
    seed: u64,
    leader: Controller<MemoryDisk, DirectWorld>,
    world: DirectWorld,
    disk: MemoryDisk,
}

impl Life {
    fn new(seed: u64) -> Self {
        let nodes = vec![node("n1", 2), of_a100(node("n2", 2))];
        assert!(nodes.iter().all(|node| catalogue::mig(&node.node.model).is_some()));
        let fleet = SimFleet::new(seed, nodes, Timestamp(1_000_000)).with_devices(seed);
        let (world, disk) = (DirectWorld::new(fleet), MemoryDisk::new());
        let settings = Settings { snapshot_after: u64::MAX, ..Settings::default() };
        let leader = Controller::open(disk.clone(), world.clone(), settings).unwrap();
        let mut life = Self { seed, leader, world, disk };
        life.give(&[Input::ApplyPolicy(policy())]);
        life
    }

    fn give(&mut self, inputs: &[Input]) {
        self.leader.turn(inputs).unwrap();
        self.look();
    }

    fn pass(&mut self, millis: u64) {
        let until = Timestamp(self.world.with(|fleet| fleet.now()).0 + millis);
        while let Some(wake) = self.leader.next_wake().filter(|&wake| wake <= until) {
            self.world.with(|fleet| fleet.advance(wake.max(fleet.now())));
            self.give(&[]);
        }
        self.world.with(|fleet| fleet.advance(until));
        self.give(&[]);
    }

    fn look(&self) {
        let seed = self.seed;
        assert_eq!(self.leader.state().check(), [], "seed {seed}");
        let fleet = self.world.with(|fleet| fleet.clone());
        let live = fleet.clone().list().report.tasks;
        let live: Vec<_> =
            live.into_iter().filter(|task| !matches!(task.status, TaskStatus::Ended { .. })).collect();
        self.devices_are_legal(&fleet, &live);
        self.strangers_share_only_by_slices(&live);
        self.both_agree(&live);
    }

    /// What is cut out could be, and whoever runs has what it was given.
    fn devices_are_legal(&self, fleet: &SimFleet, live: &[ObservedTask]) {
        for (name, model) in [("n1", "h100"), ("n2", "a100")] {
            let mig = catalogue::mig(model).unwrap();
            for (gpu, device) in fleet.devices(name).iter().enumerate() {
                assert!(device.layout().is_legal(mig), "seed {}: {device:?}", self.seed);
                assert!(device.layout().is_empty() || device.mode() == Mode::Mig, "seed {}", self.seed);
                let there = live.iter().filter(|task| task.node == name && task.gpus.contains(gpu));
                for task in there.filter(|task| task.since.is_some()) {
                    assert_eq!(device.mode(), mode_of(task), "seed {}: {task:?}", self.seed);
                    let has = |slice: Slice| device.layout().slices().any(|known| known == slice);
                    assert!(task.slice.is_none_or(has), "seed {}: {task:?} {device:?}", self.seed);
                }
            }
        }
    }

    fn strangers_share_only_by_slices(&self, live: &[ObservedTask]) {
        let mut domains: BTreeMap<(&str, usize), BTreeSet<&str>> = BTreeMap::new();
        for task in live.iter().filter(|task| task.slice.is_none()) {
            let trust = task.job.as_ref().and_then(|job| job.trust.as_deref()).expect("it has a domain");
            for gpu in task.gpus.indexes() {
                domains.entry((&task.node, gpu)).or_default().insert(trust);
            }
        }
        assert!(domains.values().all(|domains| domains.len() == 1), "seed {}: {domains:?}", self.seed);
    }

    /// Whatever the world runs, the engine has at the same place.
    fn both_agree(&self, live: &[ObservedTask]) {
        let state = self.leader.state();
        for task in live {
            let job = state.jobs.with_uid(task.task.uid).expect("only what lives is run");
            let held = state.ledger.holding(job).and_then(|holding| holding.task(task.task.task));
            let held = held.unwrap_or_else(|| panic!("seed {}: {task:?} is not held", self.seed));
            assert_eq!((held.place.slice, held.place.gpus), (task.slice, task.gpus), "seed {}", self.seed);
            assert_eq!(held.place.enforced(), mode_of(task));
            let name = &state.fleet.node(held.place.node).unwrap().facts.name;
            assert_eq!(*name, task.node);
        }
    }

    /// How its jobs ended, and how many tasks were lost to a device on the way.
    fn told(&self) -> (Vec<Outcome>, usize) {
        let (mut outcomes, mut lost) = (Vec::new(), 0);
        let mut read = |_, record| {
            match codec::decode(&record, "a life")? {
                Event::Jobs(JobsEvent::Ended { outcome, .. }) => outcomes.push(outcome),
                Event::Ledger(LedgerEvent::Gone { exit: Exit::Lost, .. }) => lost += 1,
                _ => {}
            }
            Ok(())
        };
        self.disk.clone().read(0, &mut read).unwrap();
        (outcomes, lost)
    }
}

fn mode_of(task: &ObservedTask) -> Mode {
    match (task.slice, task.time_sliced) {
        (Some(_), _) => Mode::Mig,
        (None, true) => Mode::TimeSlicing,
        (None, false) if task.units_each < GpuUnits::WHOLE => Mode::Mps,
        (None, false) => Mode::Whole,
    }
}

#[test]
fn slices_and_shares_run_where_the_engine_put_them_and_all_of_them_end() {
    let mut modes = BTreeSet::new();
    for seed in 0..40 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut life = Life::new(seed);
        for number in 0..30 {
            life.give(&[job(&mut rng, number)]);
            life.pass(rng.random_range(0..20_000));
            let devices = ["n1", "n2"].map(|name| life.world.with(|fleet| fleet.devices(name).to_vec()));
            modes.extend(devices.concat().iter().map(Device::mode));
        }
        life.pass(4 * 3_600_000);
        assert_eq!(life.leader.state().jobs.len(), 0, "seed {seed}: everything that can run has run");
        let (outcomes, _) = life.told();
        assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Succeeded), "seed {seed}: {outcomes:?}");
    }
    assert_eq!(modes.into_iter().collect::<Vec<_>>(), Mode::VARIANTS, "every mode was used");
}

/// About one operation in 500 fails: the first life in which one does is looked at.
#[test]
fn a_device_that_fails_costs_time_and_no_retry() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let share = loop {
        let Input::Submit(job) = job(&mut rng, 0) else { unreachable!("a job is submitted") };
        if matches!(job.spec.shape.gpus, GpuAsk::Share(_)) {
            break Input::Submit(job);
        }
    };
    let life = (0..5_000).find_map(|seed| {
        let mut life = Life::new(seed);
        life.give(std::slice::from_ref(&share));
        life.pass(600_000);
        (life.told().1 > 0).then_some(life)
    });
    let life = life.expect("one in 5000 fails");
    assert_eq!(life.told(), (vec![Outcome::Succeeded], 1), "retries are 0");
}
