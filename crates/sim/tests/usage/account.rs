//! GPU time from rows alone, with nothing of the state at hand: what history says that tenants held and borrowed in a
//! window is what the ledger held, to the millisecond. Lives with restarts, restores of older journals, rows that are
//! dropped for their age, policies that change, and everything that happens in the lives next door.

use std::collections::{BTreeMap, BTreeSet};

use wharf_controller::history::{Change, Grants, Promised};
use wharf_engine::model::job::Least;
use wharf_engine::model::policy::Amount;
use wharf_engine::state::State;
use wharf_engine::state::jobs::event::JobsEvent;

use super::*;

/// Tenant and model.
type Whose = (String, String);
/// What changes at a moment, in 1/3000 of a GPU.
type Steps = BTreeMap<Whose, Vec<(u64, i128)>>;

/// What is held and promised over time.
#[derive(Clone, Default)]
struct Ledger {
    held: Steps,
    /// What is promised from a moment on.
    promised: BTreeMap<Whose, Vec<(u64, u64)>>,
}

impl Ledger {
    fn hold(&mut self, whose: Whose, at: u64, more: i128) {
        self.held.entry(whose).or_default().push((at, more));
    }

    /// Milliseconds of 1/3000 of a GPU that were held in a window, and those beyond what was promised.
    fn sums(&self, window: Window) -> BTreeMap<Whose, (i128, i128)> {
        let Window { from_ms, to_ms } = window;
        let sum = |(whose, steps): (&Whose, &Vec<(u64, i128)>)| {
            let promised = self.promised.get(whose).map(Vec::as_slice).unwrap_or_default();
            let edges = steps.iter().map(|step| step.0).chain(promised.iter().map(|step| step.0));
            let mut edges: BTreeSet<u64> = edges.filter(|edge| (from_ms..to_ms).contains(edge)).collect();
            edges.extend([from_ms, to_ms]);
            let edges: Vec<u64> = edges.into_iter().collect();
            let (mut held, mut borrowed) = (0, 0);
            for span in edges.windows(2) {
                let millis = i128::from(span[1] - span[0]);
                let now: i128 = steps.iter().filter(|step| step.0 <= span[0]).map(|step| step.1).sum();
                assert!(now >= 0, "{whose:?} holds {now} at {}", span[0]);
                let line = promised.iter().rev().find(|step| step.0 <= span[0]).map_or(0, |step| step.1);
                held += now * millis;
                borrowed += (now - i128::from(line)).max(0) * millis;
            }
            (whose.clone(), (held, borrowed))
        };
        self.held.iter().map(sum).filter(|(_, sums)| *sums != (0, 0)).collect()
    }
}

/// What rows tell, oldest first. A stop has its whole span; what is started and not stopped is held on.
fn told(rows: &[HistoryRow]) -> Ledger {
    let mut ledger = Ledger::default();
    let mut open: BTreeMap<(String, u32, u32), (Whose, u64, i128)> = BTreeMap::new();
    for row in rows {
        let change: Change = serde_json::from_str(&row.body).unwrap();
        let each = |grants: &Grants| {
            let (uid, attempt) = (grants.uid.clone(), grants.attempt);
            let tasks = grants.gpus.iter().flat_map(move |grant| {
                let count = u64::try_from(grant.tasks.len()).unwrap();
                assert_eq!(grant.gpu_parts % count, 0, "tasks of these lives are alike");
                let (uid, parts) = (uid.clone(), i128::from(grant.gpu_parts / count));
                let whose = (row.tenant.clone(), grant.pool.clone());
                grant.tasks.iter().map(move |&task| {
                    ((uid.clone(), attempt, task), (whose.clone(), grant.from_ms, parts), grant.to_ms)
                })
            });
            tasks.collect::<Vec<_>>()
        };
        match &change {
            Change::Start(grants) | Change::Grow(grants) => {
                assert!(row.actor.is_some(), "{row:?}");
                open.extend(each(grants).into_iter().map(|(task, held, _)| (task, held)));
            }
            Change::Held(grants) => {
                for (task, held, _) in each(grants) {
                    let known = open.entry(task).or_insert_with(|| held.clone());
                    assert_eq!(*known, held, "what is carried is what was started");
                }
            }
            Change::Stop(grants) | Change::Shrink(grants) => {
                for (task, (whose, from, parts), to) in each(grants) {
                    open.remove(&task);
                    ledger.hold(whose.clone(), from, parts);
                    ledger.hold(whose, to.unwrap(), -parts);
                }
            }
            Change::Ask(_) | Change::Evict(_) | Change::Stay(_) => {}
            Change::Guarantee(guarantee) => {
                let Promised::PerPool(pools) = &guarantee.promised else { panic!("{guarantee:?}") };
                for (pool, parts) in pools {
                    let steps = ledger.promised.entry((row.tenant.clone(), pool.clone())).or_default();
                    steps.push((row.at, parts.unwrap_or(u64::MAX)));
                }
            }
        }
    }
    for (whose, from, parts) in open.into_values() {
        ledger.hold(whose, from, parts);
    }
    ledger
}

/// The ledger of the state itself, looked at before and after every event.
#[derive(Clone, Default)]
struct Witness {
    state: State,
    ledger: Ledger,
    slices: usize,
    evictions: u32,
}

impl Witness {
    fn follow(&mut self, disk: &MemoryDisk) {
        let from = self.state.index();
        let read = disk.clone().read(from, &mut |_, record| {
            let event = codec::decode(&record, "a life")?;
            self.see(&event, record.at);
            Ok(())
        });
        read.unwrap();
    }

    fn see(&mut self, event: &Event, now: u64) {
        if let Event::Ledger(LedgerEvent::Started { tasks, .. }) = event {
            self.slices += tasks.iter().filter(|place| place.slice.is_some()).count();
        }
        self.evictions += u32::from(matches!(event, Event::Ledger(LedgerEvent::Evicted { .. })));
        let (before, at) = (self.used(), self.moment(event, now));
        self.state.apply(event);
        let after = self.used();
        for whose in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
            let of = |used: &BTreeMap<Whose, u64>| i128::from(used.get(whose).copied().unwrap_or(0));
            let more = of(&after) - of(&before);
            if more != 0 {
                let at = at.unwrap_or_else(|| panic!("{event:?} changes what {whose:?} holds"));
                self.ledger.hold(whose.clone(), at, more);
            }
        }
        if let Event::Tenants(wharf_engine::state::tenants::TenantsEvent::PolicyApplied { policy, .. }) =
            event
        {
            for tenant in &policy.tenants {
                let GpuQuota::PerPool(quotas) = &tenant.gpus else { panic!("{tenant:?}") };
                for (pool, quota) in quotas {
                    let Amount::Of(parts) = quota.guaranteed else { panic!("{quota:?}") };
                    let whose = (tenant.path.clone(), pool.clone());
                    self.ledger.promised.entry(whose).or_default().push((now, parts));
                }
            }
        }
    }

    fn used(&self) -> BTreeMap<Whose, u64> {
        let of_tenant = |tenant| {
            let used = self.state.ledger.used(tenant).into_iter().flat_map(|used| &used.gpus);
            used.map(move |(pool, units)| {
                let whose =
                    (self.state.tenants.path(tenant).to_owned(), self.state.fleet.model(*pool).to_owned());
                (whose, units.parts())
            })
        };
        self.state.tenants.ids().flat_map(of_tenant).collect()
    }

    /// When what an event says took effect: a task that is over lets go when it ended, which the world tells later, and
    /// not before it was given its place.
    fn moment(&self, event: &Event, now: u64) -> Option<u64> {
        match event {
            Event::Ledger(LedgerEvent::Started { at, .. } | LedgerEvent::Grown { at, .. }) => Some(at.0),
            Event::Ledger(
                LedgerEvent::Gone { job, task, at, .. } | LedgerEvent::Shed { job, task, at, .. },
            ) => {
                let holding = self.state.ledger.holding(*job)?;
                let held = holding.task(*task)?;
                let from = if held.bound_at.0 == 0 { holding.at } else { held.bound_at };
                Some(at.0.max(from.0))
            }
            Event::Jobs(JobsEvent::Ended { .. } | JobsEvent::Requeued { .. }) => Some(now),
            _ => None,
        }
    }
}

/// A life that somebody watches.
struct Watched {
    life: Life,
    witness: Witness,
    /// Rows of earlier turns may be gone.
    kept_since: u64,
    restores: u32,
}

impl Watched {
    fn new(seed: u64) -> Self {
        let mut watched = Self {
            life: Life::of(seed, two_pools()),
            witness: Witness::default(),
            kept_since: 0,
            restores: 0,
        };
        watched.turn(&[Input::ApplyPolicy(promising(seed))]);
        watched
    }

    fn turn(&mut self, inputs: &[Input]) {
        self.life.leader.turn(inputs).unwrap();
        self.witness.follow(&self.life.disk);
    }

    fn pass(&mut self, millis: u64) {
        self.life.pass(millis);
        self.witness.follow(&self.life.disk);
    }

    /// The journal is cut, and old rows are dropped.
    fn snapshot(&mut self) {
        self.life.leader.snapshot().unwrap();
        let keep = self.life.leader.state().tenants.policy().history_keep;
        self.kept_since = self.kept_since.max(self.life.leader.now().0.saturating_sub(keep.0));
    }

    fn restart(&mut self) {
        let (disk, world) = (self.life.disk.clone(), self.life.world.clone());
        self.life.leader = Controller::open(disk, world, settings()).unwrap();
        self.witness.follow(&self.life.disk);
    }

    /// An older copy is put back, and everything that was written since is forgotten.
    fn restore(&mut self, copy: (MemoryDisk, Witness, u64)) {
        (self.life.disk, self.witness, self.kept_since) = copy;
        let (disk, world) = (self.life.disk.clone(), self.life.world.clone());
        self.life.leader = Controller::restore(disk, world, settings()).unwrap();
        self.witness.follow(&self.life.disk);
        self.restores += 1;
    }

    fn rows(&self) -> Vec<HistoryRow> {
        let kinds = [HistoryKind::Allocation, HistoryKind::Carried, HistoryKind::Guarantee];
        let mut rows: Vec<HistoryRow> = kinds.into_iter().flat_map(|kind| self.life.rows(kind)).collect();
        rows.reverse();
        rows.sort_by_key(|row| row.index);
        rows
    }
}

fn two_pools() -> Vec<NodeReport> {
    let mut nodes = NODES.map(|name| node(name, 8));
    for report in &mut nodes[2..] {
        "a100-80g".clone_into(&mut report.node.model);
    }
    nodes.into()
}

/// Each tenant is promised some of each pool, and rows are kept for a quarter of an hour.
fn promising(seed: u64) -> Policy {
    let quota = |gpus: u64| Quota { guaranteed: Amount::Of(gpus * 3000), limit: Amount::Unlimited };
    let tenant = |path: &str, gpus: u64| {
        let pools = vec![("h100".to_owned(), quota(gpus)), ("a100-80g".to_owned(), quota(8 - gpus))];
        Tenant { gpus: GpuQuota::PerPool(pools), ..Tenant::without_lines(path) }
    };
    let tenants = vec![tenant("a", seed % 9), tenant("b", 8 - seed % 9)];
    Policy { tenants, digest: seed.to_string(), history_keep: Millis(900_000), ..Policy::default() }
}

/// As next door, and some on slices.
fn any_job(rng: &mut ChaCha8Rng, number: u64) -> Input {
    let mut input = random_job(rng, number);
    if let Input::Submit(job) = &mut input
        && rng.random_bool(0.2)
    {
        let least = Least { memory_mib: 1024, compute: rng.random_range(1..4), compute_of: 7 };
        job.spec.shape = shape(GpuAsk::AtLeast(least));
    }
    input
}

fn watched_life(seed: u64) -> Watched {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut watched = Watched::new(seed);
    let mut copy = None;
    for number in 0..rng.random_range(8..24) {
        watched.turn(&[any_job(&mut rng, number)]);
        watched.pass(rng.random_range(0..300_000));
        let name = NODES[rng.random_range(0..NODES.len())];
        let alive: Vec<JobId> = watched.life.leader.state().jobs.iter().map(|(id, _)| id).collect();
        let job = (!alive.is_empty()).then(|| alive[rng.random_range(0..alive.len())]);
        match (rng.random_range(0..14), job) {
            (0, Some(job)) => watched.turn(&[Input::Cancel { job }]),
            (1, Some(job)) => watched.turn(&[Input::Evict { job }]),
            (2, Some(job)) => watched.turn(&[Input::Scale { job, tasks: rng.random_range(1..7) }]),
            (3, _) => watched.life.world.with(|fleet| fleet.fail_node(name, true)),
            (4, _) => watched.life.world.with(|fleet| fleet.heal_node(name)),
            (5, _) => watched.restart(),
            (6, _) => watched.snapshot(),
            (7, _) => watched.turn(&[Input::ApplyPolicy(promising(seed + number + 1))]),
            (8, _) => {
                let how = Some(DrainRequest {
                    within: Millis(60_000),
                    reason: String::new(),
                    whom: Whom::Everything,
                });
                watched.turn(&[Input::Drain { nodes: vec![name.to_owned()], how }]);
            }
            (9, _) => watched.turn(&[Input::Drain { nodes: vec![name.to_owned()], how: None }]),
            (10, _) => {
                copy = Some((watched.life.disk.backup(), watched.witness.clone(), watched.kept_since));
            }
            (11, _) => {
                if let Some(copy) = copy.take() {
                    watched.restore(copy);
                }
            }
            _ => {}
        }
    }
    watched.pass(rng.random_range(0..2_000_000));
    watched
}

#[test]
fn rows_alone_tell_every_gpu_millisecond_that_tenants_held_and_borrowed() {
    let (mut restores, mut cut, mut borrowed, mut slices, mut evictions) = (0, 0, 0, 0, 0);
    for seed in 0..80 {
        let watched = watched_life(seed);
        let told = told(&watched.rows());
        let end = watched.life.leader.now().0;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let begin = watched.kept_since.min(end - 1);
        let mut cuts: BTreeSet<u64> =
            (0..rng.random_range(0..12)).map(|_| rng.random_range(begin..end)).collect();
        cuts.extend([begin, end]);
        let cuts: Vec<u64> = cuts.into_iter().collect();
        let all = told.sums(Window { from_ms: begin, to_ms: end });
        let mut sum: BTreeMap<Whose, (i128, i128)> = BTreeMap::new();
        for pair in cuts.windows(2) {
            let window = Window { from_ms: pair[0], to_ms: pair[1] };
            let part = told.sums(window);
            assert_eq!(part, watched.witness.ledger.sums(window), "seed {seed}, {window:?}");
            for (whose, (held, beyond)) in part {
                let sum = sum.entry(whose).or_default();
                *sum = (sum.0 + held, sum.1 + beyond);
            }
        }
        assert_eq!(sum, all, "seed {seed}: windows side by side add up");
        restores += watched.restores;
        cut += u32::from(watched.kept_since > 1_000_000);
        borrowed += all.values().map(|sums| sums.1).sum::<i128>();
        slices += watched.witness.slices;
        evictions += watched.witness.evictions;
    }
    let seen = format!(
        "{restores} restores, {cut} cut, {borrowed} borrowed, {slices} slices, {evictions} evictions"
    );
    assert!(restores > 5 && cut > 5 && borrowed > 0 && slices > 20 && evictions > 20, "{seen}");
}

/// A program that kept no such rows was upgraded: what it had started is told of when the next one opens its disk.
#[test]
fn what_an_older_version_started_is_carried_when_its_disk_is_opened() {
    let mut watched = Watched::new(5);
    watched.turn(&[submit(1, "a", Spec::of("runs", shape(GpuAsk::Whole(4))))]);
    watched.pass(60_000);
    let forgotten = MemoryDisk::new();
    let term = forgotten.clone().take_term(0).unwrap();
    let mut records = Vec::new();
    let read = watched.life.disk.clone().read(0, &mut |_, record| {
        records.push(record);
        Ok(())
    });
    read.unwrap();
    let batch = Batch { term, expected: 0, records: &records, history: &[] };
    forgotten.clone().append(batch).unwrap();
    watched.life.disk = forgotten;
    watched.restart();
    let window = Window { from_ms: 0, to_ms: watched.life.leader.now().0 };
    let sums = told(&watched.rows()).sums(window);
    let held = |sums: &BTreeMap<Whose, (i128, i128)>| -> BTreeMap<Whose, i128> {
        sums.iter().map(|(whose, sums)| (whose.clone(), sums.0)).collect()
    };
    assert_eq!(held(&sums), held(&watched.witness.ledger.sums(window)));
    assert!(sums[&("a".to_owned(), "h100".to_owned())].0 > 0, "{sums:?}");
}
