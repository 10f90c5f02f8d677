//! GPU time from history alone: what the rows say was held, with what is held now, is what the journal gave and took
//! back, task by task; and what they say ran is what the ledger served. Lives with services, elastic jobs, failures,
//! jobs that run out of memory, nodes that go away, evictions and cancellations.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use wharf_controller::codec;
use wharf_controller::disk::{Disk, HistoryKind, HistoryQuery, HistoryRow};
use wharf_controller::history::{EndReason, FinishedJob, Segment, Usage, held_now};
use wharf_controller::memory::MemoryDisk;
use wharf_controller::turn::{Controller, Settings};
use wharf_controller::world::NodeReport;
use wharf_engine::event::{Event, LedgerEvent, Outcome, Placement};
use wharf_engine::input::{ExitCause, Input, ObservedGpu, ObservedNode, Submission};
use wharf_engine::job::{Checkpoint, Class, GpuAsk, Service, Shape, Spec};
use wharf_engine::policy::{GpuQuota, Policy, Quota, Tenant};
use wharf_engine::units::{GpuUnits, JobId, Millis, Resources, Timestamp, Uid};
use wharf_sim::direct::DirectWorld;
use wharf_sim::fleet::SimFleet;

const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];

fn node(name: &str) -> NodeReport {
    let gpu = ObservedGpu { healthy: true, ..ObservedGpu::default() };
    let capacity = Resources { cpu_milli: 64_000, memory: 1 << 40, pods: 100, ..Resources::default() };
    let node = ObservedNode {
        name: name.to_owned(),
        up: true,
        model: "h100".to_owned(),
        gpus: vec![gpu; 8],
        capacity,
        ..ObservedNode::default()
    };
    NodeReport { node, labels: BTreeMap::new(), taints: Vec::new() }
}

fn policy() -> Policy {
    let quota = Quota { limit: wharf_engine::policy::Amount::Unlimited, ..Quota::NONE };
    let tenant = |path: &str| Tenant { gpus: GpuQuota::Any(quota), ..Tenant::without_lines(path) };
    let mut policy = Policy { tenants: vec![tenant("a"), tenant("b")], ..Policy::default() };
    // The ledger counts what it served only where somebody wants to know.
    policy.estimates.learned = true;
    policy
}

fn shape(gpus: GpuAsk) -> Shape {
    Shape::of(gpus, Resources { cpu_milli: 1000, pods: 1, ..Resources::default() })
}

fn submit(number: u64, tenant: &str, spec: Spec) -> Input {
    Input::Submit(Box::new(Submission::of(Uid(u128::from(number) + 1), tenant, spec)))
}

fn random_job(rng: &mut ChaCha8Rng, number: u64) -> Input {
    let gpus =
        [GpuAsk::Whole(1), GpuAsk::Whole(4), GpuAsk::Whole(8), GpuAsk::Share(GpuUnits::from_parts(750))];
    let mut spec = Spec::of(format!("j{number}"), shape(gpus[rng.random_range(0..gpus.len())]));
    spec.tasks = rng.random_range(1..5);
    spec.min = rng.random_range(1..=spec.tasks);
    spec.retries = rng.random_range(0..3);
    spec.priority = rng.random_range(0..3);
    let checkpoint = Checkpoint { every: Millis(60_000), grace: Millis(20_000), on_request: false };
    spec.checkpoint = rng.random_bool(0.5).then_some(checkpoint);
    if rng.random_bool(0.3) {
        spec.class = Class::Inference;
        spec.service = Some(Service { max: 6, replicas: spec.tasks });
    }
    spec.payload = match rng.random_range(0..4) {
        0 => r#"{"duration_ms":900000,"fail_after_ms":200000}"#.to_owned(),
        1 => r#"{"duration_ms":600000,"memory_mib":200000}"#.to_owned(),
        _ => format!(r#"{{"duration_ms":{}}}"#, rng.random_range(60_000..3_000_000)),
    };
    submit(number, if rng.random_bool(0.5) { "a" } else { "b" }, spec)
}

/// What the journal gave and took back, task by task.
#[derive(Default)]
struct Tally {
    held: BTreeMap<(JobId, u32), (Placement, Timestamp, Option<Timestamp>)>,
    held_part_ms: u128,
    ran_part_ms: BTreeMap<JobId, u128>,
}

impl Tally {
    fn hear(&mut self, event: &Event) {
        match event {
            Event::Ledger(
                LedgerEvent::Started { job, tasks, at, .. } | LedgerEvent::Grown { job, tasks, at, .. },
            ) => {
                for place in tasks {
                    self.held.insert((*job, place.task), (*place, *at, None));
                }
            }
            Event::Ledger(LedgerEvent::Running { job, task, since }) => {
                self.held.get_mut(&(*job, *task)).unwrap().2 = Some(*since);
            }
            Event::Ledger(
                LedgerEvent::Gone { job, task, at, .. } | LedgerEvent::Shed { job, task, at, .. },
            ) => {
                let held = self.held.remove(&(*job, *task)).unwrap();
                self.let_go(*job, held, *at);
            }
            _ => {}
        }
    }

    fn let_go(&mut self, job: JobId, held: (Placement, Timestamp, Option<Timestamp>), at: Timestamp) {
        let (place, from, since) = held;
        let parts = u128::from(place.units_each.times(place.gpus.count()).parts());
        self.held_part_ms += parts * u128::from(at.0.saturating_sub(from.0));
        let ran = since.map_or(0, |since| at.0.saturating_sub(since.0));
        *self.ran_part_ms.entry(job).or_default() += parts * u128::from(ran);
    }
}

struct Life {
    leader: Controller<MemoryDisk, DirectWorld>,
    world: DirectWorld,
    disk: MemoryDisk,
}

impl Life {
    fn new(id: u64) -> Self {
        let world = DirectWorld::new(SimFleet::new(id, NODES.map(node).into(), Timestamp(1_000_000)));
        let disk = MemoryDisk::new();
        let settings = Settings { snapshot_after: u64::MAX, ..Settings::default() };
        let leader = Controller::open(disk.clone(), world.clone(), settings).unwrap();
        let mut life = Self { leader, world, disk };
        life.leader.turn(&[Input::ApplyPolicy(policy())]).unwrap();
        life
    }

    fn pass(&mut self, millis: u64) {
        let until = Timestamp(self.world.with(|fleet| fleet.now()).0 + millis);
        while let Some(wake) = self.leader.next_wake().filter(|&wake| wake <= until) {
            self.world.with(|fleet| fleet.advance(wake.max(fleet.now())));
            self.leader.turn(&[]).unwrap();
        }
        self.world.with(|fleet| fleet.advance(until));
        self.leader.turn(&[]).unwrap();
    }

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        let read = self.disk.clone().read(0, &mut |_, record| {
            events.push(codec::decode(&record, "a life")?);
            Ok(())
        });
        read.unwrap();
        events
    }

    fn rows(&self, kind: HistoryKind) -> Vec<HistoryRow> {
        let query = HistoryQuery { kind: Some(kind), limit: usize::MAX, ..HistoryQuery::default() };
        self.disk.clone().history(&query).unwrap()
    }

    fn usage(&self) -> Vec<Usage> {
        self.rows(HistoryKind::Usage).iter().map(|row| serde_json::from_str(&row.body).unwrap()).collect()
    }
}

fn part_ms(segments: &[Segment]) -> u128 {
    segments.iter().map(|segment| segment.part_ms_within(0, u64::MAX)).sum()
}

#[test]
fn rows_add_up_to_what_was_held_and_served() {
    let (mut rows, mut failures) = (0, 0);
    for seed in 0..60 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut life = Life::new(seed);
        for number in 0..rng.random_range(8..24) {
            life.leader.turn(&[random_job(&mut rng, number)]).unwrap();
            life.pass(rng.random_range(0..300_000));
            let alive: Vec<JobId> = life.leader.state().jobs.iter().map(|(id, _)| id).collect();
            if alive.is_empty() {
                continue;
            }
            let job = alive[rng.random_range(0..alive.len())];
            let name = NODES[rng.random_range(0..NODES.len())];
            match rng.random_range(0..8) {
                0 => drop(life.leader.turn(&[Input::Cancel { job, by: None }]).unwrap()),
                1 => drop(life.leader.turn(&[Input::Evict { job, by: "somebody".to_owned() }]).unwrap()),
                2 => drop(life.leader.turn(&[Input::Scale { job, tasks: rng.random_range(1..7) }]).unwrap()),
                3 => life.world.with(|fleet| fleet.fail_node(name, true)),
                4 => life.world.with(|fleet| fleet.heal_node(name)),
                _ => {}
            }
        }
        life.pass(rng.random_range(0..2_000_000));
        let mut tally = Tally::default();
        life.events().iter().for_each(|event| tally.hear(event));
        let now = life.leader.now();
        for ((job, _), held) in std::mem::take(&mut tally.held) {
            tally.let_go(job, held, now);
        }
        let state = life.leader.state();
        let told = life.usage();
        let running: Vec<(JobId, Usage)> =
            state.jobs.iter().filter_map(|(id, _)| Some((id, held_now(state, id, now)?))).collect();
        let held: u128 = told.iter().map(|usage| part_ms(&usage.segments)).sum();
        let held_now: u128 = running.iter().map(|(_, usage)| part_ms(&usage.segments)).sum();
        assert_eq!(held + held_now, tally.held_part_ms, "seed {seed}");
        for (id, job) in state.jobs.iter() {
            let uid = format!("{:032x}", job.uid.0);
            let own =
                told.iter().chain(running.iter().map(|(_, usage)| usage)).filter(|usage| usage.uid == uid);
            let (count, ran) = own.fold((0, 0), |(count, ran), usage| (count + 1, ran + usage.ran_gpu_ms));
            let served = state.attained.gpu_ms(id, state.ledger.holding(id), now);
            // Each row is rounded down to a millisecond by itself.
            assert!(served.abs_diff(ran) <= count, "seed {seed}: {} {served} {ran}", job.spec.name);
            let exact = u64::try_from(tally.ran_part_ms.get(&id).copied().unwrap_or(0) / 3000).unwrap();
            assert!(exact.abs_diff(ran) <= count, "seed {seed}: {} {exact} {ran}", job.spec.name);
        }
        assert!(told.iter().all(|usage| usage.lost_gpu_ms <= usage.ran_gpu_ms), "seed {seed}");
        rows += told.len();
        failures +=
            life.rows(HistoryKind::Job).iter().filter(|row| row.body.contains("out_of_memory")).count();
    }
    assert!(
        rows > 500 && failures > 20,
        "{rows} rows and {failures} jobs that ran out of memory are too few"
    );
}

/// A job that was killed because it used more memory than it may ended as `failed … failures=0`, without a reason.
#[test]
fn a_job_that_runs_out_of_memory_says_so_in_history() {
    let mut life = Life::new(1);
    let spec = Spec {
        retries: 1,
        payload: r#"{"duration_ms":600000,"memory_mib":200000}"#.to_owned(),
        ..Spec::of("hungry", shape(GpuAsk::Whole(1)))
    };
    life.leader.turn(&[submit(1, "a", spec)]).unwrap();
    life.pass(3_600_000);
    let rows = life.rows(HistoryKind::Job);
    let job: FinishedJob = serde_json::from_str(&rows[0].body).unwrap();
    assert_eq!((job.outcome, job.failures, job.ooms), (Outcome::Failed, 2, 2));
    let cause = Some(ExitCause::OutOfMemory);
    assert_eq!(job.reason, Some(EndReason::TaskFailed { task: 0, node: "n1".to_owned(), cause }));
    assert!(job.memory_peak_mib.is_some_and(|peak| peak > 70_000 && peak < 90_000), "{job:?}");
    let lost: u64 = life.usage().iter().map(|usage| usage.lost_gpu_ms).sum();
    assert_eq!(lost, job.ran_ms, "without a checkpoint everything is lost");
}

#[test]
fn who_cancelled_a_job_stays_known_whether_it_waited_or_ran() {
    let mut life = Life::new(2);
    let forever = |name: &str| Spec {
        tasks: 4,
        min: 4,
        payload: r#"{"duration_ms":360000000}"#.to_owned(),
        ..Spec::of(name, shape(GpuAsk::Whole(8)))
    };
    life.leader.turn(&[submit(1, "a", forever("runs")), submit(2, "a", forever("waits"))]).unwrap();
    life.pass(60_000);
    let ids: Vec<JobId> = life.leader.state().jobs.iter().map(|(id, _)| id).collect();
    for job in ids {
        life.leader.turn(&[Input::Cancel { job, by: Some("ada".to_owned()) }]).unwrap();
    }
    life.pass(60_000);
    let rows = life.rows(HistoryKind::Job);
    assert_eq!(rows.len(), 2);
    for row in rows {
        let job: FinishedJob = serde_json::from_str(&row.body).unwrap();
        let by = Some(wharf_engine::event::Canceller::Person { who: "ada".to_owned() });
        assert_eq!(job.reason, Some(EndReason::Cancelled { by }), "{}", row.name);
    }
}
