//! GPU time from history alone: what the rows say was held, with what is held now, is what the journal gave and took
//! back, task by task; and what they say ran is what the ledger served. Lives with services, elastic jobs, failures,
//! jobs that run out of memory, nodes that go away, evictions and cancellations.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "usage/account.rs"]
mod account;
#[path = "shared/node.rs"]
mod node;

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use wharf_controller::codec;
use wharf_controller::disk::{Batch, Disk, HistoryKind, HistoryQuery, HistoryRow};
use wharf_controller::history::{
    EndReason, FinishedJob, Key, Segment, Statement, Sums, Usage, Whose, Window, held_now,
};
use wharf_controller::memory::MemoryDisk;
use wharf_controller::turn::{Controller, Settings};
use wharf_controller::world::NodeReport;
use wharf_engine::decide::input::{DrainRequest, Input, Request};
use wharf_engine::model::actor::{Actor, Source, Subject};
use wharf_engine::model::exit::{ExitCause, Outcome};
use wharf_engine::model::job::{Checkpoint, Class, GpuAsk, Service, Shape, Spec};
use wharf_engine::model::placement::Placement;
use wharf_engine::model::policy::{GpuQuota, Policy, Quota, Tenant};
use wharf_engine::model::submission::Submission;
use wharf_engine::state::event::Event;
use wharf_engine::state::fleet::Whom;
use wharf_engine::state::ledger::event::LedgerEvent;
use wharf_engine::units::{GpuUnits, JobId, Millis, Resources, Timestamp, Uid};
use wharf_sim::world::direct::DirectWorld;
use wharf_sim::world::fleet::SimFleet;

use node::node;

const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];

fn policy() -> Policy {
    let quota = Quota { limit: wharf_engine::model::policy::Amount::Unlimited, ..Quota::NONE };
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
    /// Parts of a GPU, from when and until when.
    spans: Vec<(u64, Timestamp, Timestamp)>,
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
        let parts = place.units_each.times(place.gpus.count()).parts();
        self.spans.push((parts, from, at));
        let parts = u128::from(parts);
        self.held_part_ms += parts * u128::from(at.0.saturating_sub(from.0));
        let ran = since.map_or(0, |since| at.0.saturating_sub(since.0));
        *self.ran_part_ms.entry(job).or_default() += parts * u128::from(ran);
    }
}

/// A snapshot is taken when it is asked for.
fn settings() -> Settings {
    Settings { snapshot_after: u64::MAX / 4, ..Settings::default() }
}

struct Life {
    leader: Controller<MemoryDisk, DirectWorld>,
    world: DirectWorld,
    disk: MemoryDisk,
}

impl Life {
    fn new(id: u64) -> Self {
        let mut life = Self::of(id, NODES.map(|name| node(name, 8)).into());
        life.leader.turn(&[Input::ApplyPolicy(policy())]).unwrap();
        life
    }

    /// Without a policy.
    fn of(id: u64, nodes: Vec<NodeReport>) -> Self {
        let world = DirectWorld::new(SimFleet::new(id, nodes, Timestamp(1_000_000)));
        let disk = MemoryDisk::new();
        let leader = Controller::open(disk.clone(), world.clone(), settings()).unwrap();
        Self { leader, world, disk }
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

    /// What the journal gave and took back until now.
    fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        self.events().iter().for_each(|event| tally.hear(event));
        for ((job, _), held) in std::mem::take(&mut tally.held) {
            tally.let_go(job, held, self.leader.now());
        }
        tally
    }

    /// What is held now, by job.
    fn held_now(&self) -> Vec<(JobId, Usage)> {
        let (state, now) = (self.leader.state(), self.leader.now());
        let samples = self.world.with(|fleet| fleet.samples());
        let held = |(id, _)| Some((id, held_now(state, id, &samples, now)?));
        state.jobs.iter().filter_map(held).collect()
    }

    /// All GPU time in a window.
    fn statement(&self, window: Window, keys: &[Key]) -> (Sums, Vec<Sums>) {
        let mut statement = Statement::new(window, keys.to_vec());
        for row in self.rows(HistoryKind::Usage) {
            let whose = Whose { tenant: &row.tenant, name: &row.name };
            statement.add(whose, &serde_json::from_str(&row.body).unwrap()).unwrap();
        }
        for (id, usage) in self.held_now() {
            let name = &self.leader.state().jobs.get(id).unwrap().spec.name;
            statement.add(Whose { tenant: "now", name }, &usage).unwrap();
        }
        let (total, groups) = statement.close();
        (total, groups.into_iter().map(|(_, sums)| sums).collect())
    }

    fn usage(&self) -> Vec<Usage> {
        self.rows(HistoryKind::Usage).iter().map(|row| serde_json::from_str(&row.body).unwrap()).collect()
    }
}

fn part_ms(segments: &[Segment]) -> u128 {
    segments.iter().map(|segment| segment.part_ms_within(0, u64::MAX)).sum()
}

/// A life in which jobs come, are cancelled, evicted and scaled, and nodes go and return.
fn random_life(seed: u64) -> Life {
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
            0 => drop(life.leader.turn(&[Input::Cancel { job }]).unwrap()),
            1 => drop(life.leader.turn(&[Input::Evict { job }]).unwrap()),
            2 => drop(life.leader.turn(&[Input::Scale { job, tasks: rng.random_range(1..7) }]).unwrap()),
            3 => life.world.with(|fleet| fleet.fail_node(name, true)),
            4 => life.world.with(|fleet| fleet.heal_node(name)),
            _ => {}
        }
    }
    life.pass(rng.random_range(0..2_000_000));
    life
}

#[test]
fn windows_side_by_side_add_up_to_what_was_held() {
    let (mut used, mut lost, mut unknown) = (0, 0, 0);
    for seed in 0..30 {
        let life = random_life(seed);
        let (tally, end) = (life.tally(), life.leader.now().0 + 1);
        let (all, _) = life.statement(Window { from_ms: 0, to_ms: end }, &[]);
        assert_eq!(all.held_part_ms, tally.held_part_ms, "seed {seed}");
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut cuts: Vec<u64> = (0..rng.random_range(0..12)).map(|_| rng.random_range(0..end)).collect();
        cuts.extend([0, end]);
        cuts.sort_unstable();
        let mut parts = [0; 4];
        for cut in cuts.windows(2) {
            let window = Window { from_ms: cut[0], to_ms: cut[1] };
            let (total, groups) = life.statement(window, &[Key::Tenant, Key::Class, Key::Day]);
            let within = |&(parts, from, to): &(u64, Timestamp, Timestamp)| {
                let (from_ms, to_ms) = (from.0, to.0.max(from.0));
                Segment { from_ms, to_ms, gpu_parts: parts }.part_ms_within(cut[0], cut[1])
            };
            let held: u128 = tally.spans.iter().map(within).sum();
            assert_eq!(total.held_part_ms, held, "seed {seed}, {cut:?}");
            let sums = |of: fn(&Sums) -> u128| groups.iter().map(of).sum::<u128>();
            assert_eq!(sums(|sums| sums.held_part_ms), held, "seed {seed}, {cut:?}");
            assert_eq!(sums(|sums| sums.used_gpu_ms.into()), total.used_gpu_ms.into(), "seed {seed}");
            for (part, more) in parts.iter_mut().zip(amounts(&total)) {
                *part += more;
            }
        }
        assert_eq!(parts, amounts(&all), "seed {seed}");
        used += all.used_gpu_ms;
        lost += all.lost_gpu_ms;
        unknown += all.unknown_part_ms;
    }
    assert!(used > 0 && lost > 0 && unknown > 0, "{used} used, {lost} lost, {unknown} unknown");
}

fn amounts(sums: &Sums) -> [u128; 4] {
    [sums.held_part_ms, sums.unknown_part_ms, sums.used_gpu_ms.into(), sums.lost_gpu_ms.into()]
}

#[test]
fn what_was_used_is_known_of_whole_gpus_alone() {
    let mut life = Life::new(3);
    let spec = |name: &str, gpus| Spec {
        payload: r#"{"duration_ms":600000,"sm_active_milli":400}"#.to_owned(),
        ..Spec::of(name, shape(gpus))
    };
    let whole = spec("whole", GpuAsk::Whole(4));
    let share = spec("share", GpuAsk::Share(GpuUnits::from_parts(750)));
    life.leader.turn(&[submit(1, "a", whole), submit(2, "a", share)]).unwrap();
    life.pass(300_000);
    let about = |used: Option<u64>, expected: u64| used.unwrap().abs_diff(expected) < expected / 20;
    let so_far: BTreeMap<JobId, Usage> = life.held_now().into_iter().collect();
    assert!(about(so_far[&JobId(0)].used_gpu_ms, 4 * 300_000 * 4 / 10), "{so_far:?}");
    assert_eq!(so_far[&JobId(1)].used_gpu_ms, None);
    life.pass(600_000);
    for row in life.rows(HistoryKind::Usage) {
        let usage: Usage = serde_json::from_str(&row.body).unwrap();
        match row.name.as_str() {
            "whole" => assert!(about(usage.used_gpu_ms, 4 * 600_000 * 4 / 10), "{usage:?}"),
            _ => assert_eq!(usage.used_gpu_ms, None),
        }
    }
}

#[test]
fn rows_add_up_to_what_was_held_and_served() {
    let (mut rows, mut failures) = (0, 0);
    for seed in 0..60 {
        let life = random_life(seed);
        let tally = life.tally();
        let (state, now) = (life.leader.state(), life.leader.now());
        let (told, running) = (life.usage(), life.held_now());
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
        assert!(told.iter().all(|usage| usage.used_gpu_ms <= Some(usage.ran_gpu_ms)), "seed {seed}");
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
        let actor = Actor { subject: Subject::Claimed("ada".to_owned()), ..Actor::of(Source::Http) };
        life.leader.turn_of(&[Request { actor, input: Input::Cancel { job } }]).unwrap();
    }
    life.pass(60_000);
    let rows = life.rows(HistoryKind::Job);
    assert_eq!(rows.len(), 2);
    for row in rows {
        let job: FinishedJob = serde_json::from_str(&row.body).unwrap();
        let by = Some(wharf_engine::state::jobs::event::Canceller::Person { who: "ada".to_owned() });
        assert_eq!(job.reason, Some(EndReason::Cancelled { by }), "{}", row.name);
    }
}
