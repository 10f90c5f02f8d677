//! Properties of promised starts (rule 5) over random lives of small fleets, judged from events and first facts alone:
//! no job starts later than it was promised except by a named event, backfill never delays a job that was promised a
//! start, and a promised start never delays work within a guarantee. `WHARF_SEEDS` asks for more lives.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "reservations/lean.rs"]
mod lean;

use std::collections::{BTreeMap, BTreeSet};

use lean::{Lean, nodes, spec, submit};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use wharf_engine::decide::input::{Extension, Input};
use wharf_engine::model::job::{Checkpoint, Class, GpuAsk};
use wharf_engine::model::policy::{Amount, GpuQuota, Policy, Quota, Tenant};
use wharf_engine::plan::{Memory, plan};
use wharf_engine::state::State;
use wharf_engine::state::event::Event;
use wharf_engine::state::holding::Holding;
use wharf_engine::state::jobs::Phase;
use wharf_engine::state::ledger::event::LedgerEvent;
use wharf_engine::state::reservations::{DropReason, Reservation, ReservationsEvent};
use wharf_engine::units::{GpuUnits, JobId, Millis, TenantId, Timestamp};

/// Lives of each property in the normal run.
const LIVES: u64 = 200;
/// More turns than a quiet stretch of any of these lives has: somebody goes to and fro.
const TURNS_MAX: u32 = 5000;
const TENANTS: [&str; 3] = ["a", "b", "c"];

fn lives() -> u64 {
    std::env::var("WHARF_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(LIVES)
}

/// What may happen in a life.
#[derive(Clone, Copy, Default)]
struct Ways {
    /// Several tenants with guarantees, classes and priorities; else one tenant whose jobs are alike in those.
    many: bool,
    /// Nodes fail and return, estimates are wrong, limits are extended, jobs are cancelled.
    faults: bool,
    no_backfill: bool,
}

/// A life, and what was promised in it.
struct Life {
    seed: u64,
    ways: Ways,
    random: ChaCha8Rng,
    lean: Lean,
    number: u128,
    promised: BTreeMap<JobId, Timestamp>,
    first: Vec<(u128, Timestamp)>,
    started: BTreeMap<u128, Timestamp>,
    dropped: Vec<DropReason>,
    /// What was in the way of the last start that was given up.
    told: String,
    earlier: u64,
}

impl Life {
    fn new(seed: u64, ways: Ways) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let count = random.random_range(2..=5);
        let gpus: Vec<usize> = (0..count).map(|_| [1, 2, 4, 4][random.random_range(0..4)]).collect();
        let all = u64::try_from(gpus.iter().sum::<usize>()).unwrap();
        let lean = Lean::new(seed, nodes(gpus));
        let policy = policy(&mut random, ways, all);
        let mut life = Self {
            seed,
            ways,
            random,
            lean,
            number: 0,
            promised: BTreeMap::new(),
            first: Vec::new(),
            started: BTreeMap::new(),
            dropped: Vec::new(),
            told: String::new(),
            earlier: 0,
        };
        life.give(&[Input::ApplyPolicy(policy)]);
        life
    }

    /// Jobs come, time passes, and at last nothing more comes.
    fn live(&mut self) {
        for _ in 0..self.random.random_range(10..30) {
            let mut inputs: Vec<Input> = (0..self.random.random_range(1..4)).map(|_| self.job()).collect();
            if self.ways.faults {
                inputs.extend(self.mischief());
            }
            self.give(&inputs);
            let millis = self.random.random_range(1000..600_000);
            self.pass(millis);
        }
        self.pass(12 * 3_600_000);
    }

    fn job(&mut self) -> Input {
        self.number += 1;
        let random = &mut self.random;
        let limit = Millis::from_secs(60 * random.random_range(2..60));
        let mut spec = spec(self.number, Millis(random.random_range(30_000..=limit.0)));
        spec.shape.gpus = GpuAsk::Whole([1, 1, 1, 2, 4][random.random_range(0..5)]);
        if random.random_ratio(1, 8) {
            spec.shape.gpus = GpuAsk::Share(GpuUnits::from_parts(1500));
        }
        // A node has 128 cores: they run out too, also where a GPU is free.
        spec.shape.resources.cpu_milli = [0, 0, 0, 40_000, 90_000][random.random_range(0..5)];
        if random.random_ratio(1, 10) {
            spec.shape.gpus = GpuAsk::Whole(0);
        }
        spec.tasks = [1, 1, 1, 2, 3][random.random_range(0..5)];
        spec.min = spec.tasks;
        spec.time_limit = Some(limit);
        spec.preemptible = random.random_ratio(2, 3);
        spec.checkpoint = random.random_ratio(1, 2).then(|| Checkpoint {
            every: Millis::from_secs(600),
            grace: Millis::from_secs([5, 60, 200][random.random_range(0..3)]),
            on_request: false,
        });
        if self.ways.faults && random.random_ratio(1, 3) {
            (spec.time_limit, spec.estimate) = (None, random.random_bool(0.5).then_some(Millis(limit.0 / 2)));
        }
        let mut tenant = TENANTS[0];
        if self.ways.many {
            tenant = TENANTS[random.random_range(0..TENANTS.len())];
            spec.class = Class::ALL[random.random_range(0..3)];
            spec.priority = random.random_range(0..2);
        }
        submit(self.number, tenant, spec)
    }

    fn mischief(&mut self) -> Option<Input> {
        let names: Vec<String> =
            self.lean.state.fleet.nodes().map(|(_, node)| node.facts.name.clone()).collect();
        let node = names[self.random.random_range(0..names.len())].clone();
        let running: Vec<JobId> = self.lean.state.ledger.holdings().map(|(job, _)| job).collect();
        let job = running.get(self.random.random_range(0..running.len().max(1))).copied();
        match self.random.random_range(0..8) {
            0 => Some(Input::Cordon { node, on: true, reason: String::new() }),
            1 | 2 => Some(Input::Cordon { node, on: false, reason: String::new() }),
            3 => Some(Input::Extend { job: job?, to: Extension::By(Millis::from_secs(1800)) }),
            4 => Some(Input::Cancel { job: job? }),
            _ => None,
        }
    }

    fn pass(&mut self, millis: u64) {
        let until = self.lean.now() + Millis(millis);
        let mut turns = 0;
        while let Some(wake) = self.lean.next_wake().filter(|&wake| wake <= until) {
            self.lean.fleet.advance(wake.max(self.lean.now()));
            self.give(&[]);
            turns += 1;
            assert!(turns < TURNS_MAX, "seed {}: it does not come to rest", self.seed);
        }
        self.lean.fleet.advance(until);
        self.give(&[]);
    }

    fn give(&mut self, inputs: &[Input]) {
        if self.ways.many {
            self.guarantees_do_not_wait();
        }
        for event in self.lean.turn(inputs) {
            self.judge(&event);
        }
        let (seed, now) = (self.seed, self.lean.now());
        assert_eq!(self.lean.state.check(), [], "seed {seed}");
        for of in self.lean.state.reservations.iter() {
            let job = of.job;
            assert!(of.start > now, "seed {seed}: {job:?} was to start by now and its promise still stands");
            // On a shared GPU somebody may be beside what is promised.
            let whole = of.tasks.iter().all(|place| place.units_each == GpuUnits::WHOLE);
            let is_in = |filler: &&JobId| {
                let held = self.lean.state.ledger.holding(**filler).into_iter().flat_map(Holding::staying);
                held.map(|task| task.place).any(|held| {
                    of.tasks.iter().any(|place| place.node == held.node && place.gpus.overlaps(held.gpus))
                })
            };
            let filled = of.fillers.iter().find(is_in).filter(|_| whole && self.ways.no_backfill);
            assert!(filled.is_none(), "seed {seed}: {filled:?} fills what is promised to {job:?}");
        }
    }

    fn judge(&mut self, event: &Event) {
        let seed = self.seed;
        match event {
            Event::Reservations(ReservationsEvent::Reserved(Reservation { job, start, .. })) => {
                let before = self.promised.insert(*job, *start);
                assert!(
                    before.is_none_or(|before| *start < before),
                    "seed {seed}: the start of {job:?} moved later without a name for it"
                );
                self.earlier += u64::from(before.is_some());
                let uid = self.lean.state.jobs.get(*job).map(|job| job.uid.0);
                self.first.extend(uid.filter(|_| before.is_none()).map(|uid| (uid, *start)));
            }
            Event::Reservations(ReservationsEvent::Dropped { job, why, .. }) => {
                let start = self.promised.remove(job);
                assert!(start.is_some(), "seed {seed}: {job:?} had no promise");
                self.dropped.push(*why);
                self.told = format!("{job:?} was to start by {start:?}: {why:?} at {:?}", self.lean.now());
            }
            Event::Ledger(LedgerEvent::Started { job, at, .. }) => {
                let promised = self.promised.remove(job);
                let told =
                    |start: Timestamp| format!("seed {seed}: {job:?} was to start by {start:?}, not {at:?}");
                assert!(promised.is_none_or(|start| *at <= start), "{}", told(promised.unwrap()));
                if let Some(job) = self.lean.state.jobs.get(*job) {
                    self.started.entry(job.uid.0).or_insert(*at);
                }
            }
            _ => {}
        }
    }

    /// Whoever would get places within its guarantee if nobody were promised a start gets them all the same, unless its own
    /// tenant was promised one.
    fn guarantees_do_not_wait(&self) {
        let (state, now) = (&self.lean.state, self.lean.now());
        if state.reservations.is_empty() {
            return;
        }
        let mut without = state.clone();
        let promised: Vec<JobId> = state.reservations.iter().map(|of| of.job).collect();
        for &job in &promised {
            let event = ReservationsEvent::Dropped { job, why: DropReason::Policy, at: now };
            without.apply(&Event::Reservations(event));
        }
        let off = Policy { reservations_max: 0, ..state.tenants.policy().clone() };
        let without = plan(&without, &off, &Memory::default(), now);
        let with = plan(state, state.tenants.policy(), &Memory::default(), now);
        let given: BTreeSet<JobId> =
            with.starts.iter().chain(&with.earmarks).map(|start| start.job).collect();
        let tenant = |job: JobId| state.jobs.get(job).unwrap().spec.tenant;
        let bound: BTreeSet<TenantId> = promised.iter().map(|&job| tenant(job)).collect();
        // A tenant that keeps a promise to itself makes nobody leave for a job behind that, and what would be left over of it is
        // no part of anybody's guarantee.
        if without.evictions.iter().any(|left| bound.contains(&tenant(left.receipt.beneficiary))) {
            return;
        }
        let mut used: BTreeMap<TenantId, u64> = BTreeMap::new();
        for start in without.starts.iter().chain(&without.earmarks) {
            let spec = &state.jobs.get(start.job).unwrap().spec;
            // Who is moved for somebody else does not wait.
            if state.jobs.get(start.job).unwrap().phase != Phase::Waiting {
                continue;
            }
            let used = used.entry(spec.tenant).or_insert_with(|| held(state, spec.tenant));
            *used += spec.shape.gpus.units().times(spec.min).parts();
            if *used <= guaranteed(state, spec.tenant) && !bound.contains(&spec.tenant) {
                let (seed, job) = (self.seed, start.job);
                assert!(
                    given.contains(&job),
                    "seed {seed}: {job:?} waits within its guarantee for a promise"
                );
            }
        }
    }
}

/// One tenant that may call everything its own, or three that share it.
fn policy(random: &mut ChaCha8Rng, ways: Ways, all: u64) -> Policy {
    let line = |path: &str, gpus: u64| {
        let quota = Quota { guaranteed: Amount::Of(gpus * 3000), limit: Amount::Unlimited };
        Tenant { gpus: GpuQuota::Any(quota), ..Tenant::without_lines(path) }
    };
    let mut tenants = vec![line(TENANTS[0], all)];
    if ways.many {
        let first = random.random_range(0..=all);
        let second = random.random_range(0..=all - first);
        tenants = vec![line("a", first), line("b", second), line("c", (all - first - second) / 2)];
    }
    let reservations_max = random.random_range(1..5);
    let digest = format!("{reservations_max} {}", ways.no_backfill);
    Policy { digest, tenants, reservations_max, no_backfill: ways.no_backfill, ..Policy::default() }
}

/// GPUs, in 1/3000, that a tenant's jobs hold and were not told to leave, or were promised.
fn held(state: &State, tenant: TenantId) -> u64 {
    let own = state.jobs.iter().filter(|(_, job)| job.spec.tenant == tenant);
    let tasks = own.map(|(id, job)| {
        let held = state.ledger.holding(id).map_or(0, |holding| holding.staying().count());
        let promised = state.earmarks.of(id).map_or(0, |promise| promise.tasks.len());
        job.spec.shape.gpus.units().parts() * u64::try_from(held + promised).unwrap()
    });
    tasks.sum()
}

fn guaranteed(state: &State, tenant: TenantId) -> u64 {
    match &state.tenants.in_policy(state.tenants.path(tenant)).unwrap().gpus {
        GpuQuota::Any(Quota { guaranteed: Amount::Of(parts), .. }) => *parts,
        other => unreachable!("these lives count over all models: {other:?}"),
    }
}

/// Where nobody is before anybody, nothing fails and every job keeps to its limit, no promised start is ever given up: nor
/// by work that fills its places, nor by one that is promised later. And some come earlier.
#[test]
fn where_nothing_happens_every_promise_is_kept() {
    let (mut promises, mut earlier) = (0, 0);
    for seed in 0..lives() {
        let mut life = Life::new(seed, Ways::default());
        life.live();
        assert_eq!(life.dropped, [], "seed {seed}: {}", life.told);
        promises += life.first.len();
        earlier += life.earlier;
    }
    assert!(lives() < LIVES || (promises > 500 && earlier > 20), "{promises} promises, {earlier} earlier");
}

/// Guarantees, classes and priorities come before a promised start, and are named; nothing else is.
#[test]
fn among_many_tenants_only_the_rules_move_a_promise() {
    let mut given_up: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in 0..lives() {
        let mut life = Life::new(seed, Ways { many: true, ..Ways::default() });
        life.live();
        for why in life.dropped {
            let rule = match why {
                DropReason::Guarantee
                | DropReason::Priority
                | DropReason::AboveShare
                | DropReason::WithinShare => true,
                DropReason::PlaceGone
                | DropReason::Policy
                | DropReason::Overrun
                | DropReason::Overtaken
                | DropReason::Extended
                | DropReason::Booked
                | DropReason::Earlier => false,
            };
            assert!(rule, "seed {seed}: a start was given up by {}\n{}", why.into_str(), life.told);
            *given_up.entry(why.into_str()).or_default() += 1;
        }
    }
    println!("{given_up:?}");
    assert!(lives() < LIVES || given_up.contains_key("guarantee"), "{given_up:?}");
}

/// Whatever fails, a start moves later only by a name, and no promise that is over stands.
#[test]
fn whatever_fails_no_promise_moves_without_a_name() {
    let mut given_up: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in 0..lives() {
        let mut life = Life::new(seed, Ways { many: seed % 2 == 0, faults: true, ..Ways::default() });
        life.live();
        life.dropped.iter().for_each(|why| *given_up.entry(why.into_str()).or_default() += 1);
    }
    println!("{given_up:?}");
    let seen = ["place_gone", "overrun", "extended"].iter().all(|why| given_up.contains_key(why));
    assert!(lives() < LIVES || seen, "{given_up:?}");
}

/// The same life with and without backfill: who is promised a start first is promised the same, and starts by then.
#[test]
fn backfill_never_delays_who_was_promised_a_start() {
    let mut compared = 0;
    for seed in 0..lives() {
        let mut with = Life::new(seed, Ways::default());
        let mut without = Life::new(seed, Ways { no_backfill: true, ..Ways::default() });
        with.live();
        without.live();
        // Until somebody fills a place the two are one life.
        let Some((job, promised)) = with.first.first() else { continue };
        assert_eq!(with.first.first(), without.first.first(), "seed {seed}");
        let (start, off) = (with.started[job], without.started[job]);
        assert!(
            start <= (*promised).max(off),
            "seed {seed}: {start:?} with backfill, {off:?} without, {promised:?}"
        );
        compared += 1;
    }
    assert!(lives() < LIVES || compared > 100, "only {compared} were promised anything");
}
