//! One controller over one simulated fleet, with a turn whenever there is something to do, and what must hold of
//! every turn's events.

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use wharf_controller::codec;
use wharf_controller::disk::{Disk, Index};
use wharf_controller::memory::MemoryDisk;
use wharf_controller::turn::{Controller, Settings};
use wharf_controller::world::NodeReport;
use wharf_engine::decide::input::Input;
use wharf_engine::model::job::{Class, Spec};
use wharf_engine::model::placement::Placement;
use wharf_engine::model::policy::{Amount, GpuQuota, Policy};
use wharf_engine::state::State;
use wharf_engine::state::earmarks::{Earmark, EarmarksEvent};
use wharf_engine::state::event::Event;
use wharf_engine::state::jobs::Job;
use wharf_engine::state::ledger::event::{Eviction, EvictionRule, LedgerEvent};
use wharf_engine::units::{JobId, TenantId, Timestamp};
use wharf_sim::testing::pricing::Pricing;
use wharf_sim::world::direct::DirectWorld;
use wharf_sim::world::fleet::SimFleet;

/// A run that checks itself.
pub(crate) struct Life {
    seed: u64,
    leader: Controller<MemoryDisk, DirectWorld>,
    world: DirectWorld,
    disk: MemoryDisk,
    /// The state before the events that were not looked at.
    before: State,
    next: Index,
    /// When each victim last left for each beneficiary, guarantees apart.
    left_for: BTreeMap<(JobId, JobId), Timestamp>,
    /// A second state, made of what each turn handed over.
    replica: State,
    /// Whether calls to the world are lost: then somebody may leave too late for a promise.
    flaky: bool,
    pricing: Pricing,
    /// Turns taken.
    pub(crate) turns: u64,
}

impl Life {
    pub(crate) fn new(seed: u64, nodes: Vec<NodeReport>, policy: Policy) -> Self {
        let world = DirectWorld::new(SimFleet::new(seed, nodes, Timestamp(1_000_000)));
        let disk = MemoryDisk::new();
        // No snapshot cuts the journal: it is what we look at.
        let settings = Settings { snapshot_after: u64::MAX, ..Settings::default() };
        let leader = Controller::open(disk.clone(), world.clone(), settings).unwrap();
        let (before, left_for) = (State::default(), BTreeMap::new());
        let replica = leader.state().clone();
        let (flaky, pricing) = (false, Pricing::by_seed(seed));
        let mut life =
            Self { seed, leader, world, disk, before, next: 0, left_for, replica, flaky, pricing, turns: 0 };
        life.give(&[Input::ApplyPolicy(policy)]);
        life
    }

    /// From now on calls to the world are lost, by seed.
    pub(crate) fn lose_calls(&mut self) {
        self.world.lose_calls(ChaCha8Rng::seed_from_u64(self.seed));
        self.flaky = true;
    }

    /// From now on they are not; how many were lost.
    pub(crate) fn repair(&mut self) -> u64 {
        self.world.repair()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.leader.now()
    }

    pub(crate) fn live_jobs(&self) -> impl Iterator<Item = (JobId, &Job)> {
        self.leader.state().jobs.iter()
    }

    /// One turn; a submission that can never run is refused, which is fine.
    pub(crate) fn give(&mut self, inputs: &[Input]) {
        let prices = self.pricing.due(self.leader.state());
        let inputs: Vec<Input> = prices.into_iter().chain(inputs.iter().cloned()).collect();
        self.leader.turn(&inputs).unwrap();
        self.turns += 1;
        self.follow();
        self.look();
    }

    /// Whoever follows the leader has the same state.
    fn follow(&mut self) {
        let (events, _) = self.leader.take_committed();
        self.replica.apply_all(&events);
        assert_eq!(self.replica.index(), self.leader.state().index(), "seed {}", self.seed);
        if self.turns.is_multiple_of(16) {
            let [replica, leader] = [&self.replica, self.leader.state()].map(codec::state_hash);
            assert_eq!(replica, leader, "seed {} after turn {}", self.seed, self.turns);
        }
    }

    /// Time passes, with a turn whenever there is something to do.
    pub(crate) fn pass(&mut self, millis: u64) {
        let until = Timestamp(self.world.with(|fleet| fleet.now()).0 + millis);
        while let Some(wake) = self.leader.next_wake().filter(|&wake| wake <= until) {
            self.world.with(|fleet| fleet.advance(wake.max(fleet.now())));
            self.give(&[]);
        }
        self.world.with(|fleet| fleet.advance(until));
        self.give(&[]);
    }

    /// How many booked windows have begun and are not over.
    pub(crate) fn windows(&self) -> u64 {
        let begun = self.leader.state().bookings.iter().filter(|(_, booking)| booking.began);
        u64::try_from(begun.count()).unwrap()
    }

    /// Everything came to rest: five further plans change nothing, and nobody waits for what was promised.
    pub(crate) fn expect_rest(&mut self) {
        let index = self.leader.state().index();
        for _ in 0..5 {
            self.give(&[]);
        }
        assert_eq!(self.leader.state().index(), index, "seed {}: it does not come to rest", self.seed);
        assert_eq!(self.leader.state().earmarks.iter().count(), 0, "seed {}: promises are kept", self.seed);
    }

    /// Who holds what, for who reads a failure.
    pub(crate) fn told(&self) -> String {
        let state = &self.before;
        let line = |(id, job): (JobId, &Job)| {
            let spec = &job.spec;
            let held = state.ledger.holding(id).map_or(0, |holding| holding.staying().count());
            let promised = state.earmarks.of(id).map_or(0, |promise| promise.tasks.len());
            format!(
                "{id:?} {} {} p{} {:?} x{} min {} preemptible {} grace {:?}: {:?} holds {held} promised {promised}",
                state.tenants.path(spec.tenant),
                spec.class.into_str(),
                spec.priority,
                spec.shape.gpus,
                spec.tasks,
                spec.min,
                spec.preemptible,
                spec.checkpoint.map(|checkpoint| checkpoint.grace.0 / 1000),
                job.phase,
            )
        };
        let jobs: Vec<String> = state.jobs.iter().map(line).collect();
        let lines = state.tenants.policy().tenants.iter();
        let tenants: Vec<String> = lines
            .map(|tenant| {
                format!("{} {:?} w{} p{}", tenant.path, tenant.gpus, tenant.weight, tenant.priority)
            })
            .collect();
        format!("{}\n{}\n{:?}", tenants.join("\n"), jobs.join("\n"), state.tenants.policy().preemption)
    }

    fn look(&mut self) {
        let seed = self.seed;
        assert_eq!(self.leader.figures().plan_panics, 0, "seed {seed}: a plan panicked");
        assert_eq!(self.leader.state().check(), [], "seed {seed}");
        let mut events = Vec::new();
        self.next = self
            .disk
            .clone()
            .read(self.next, &mut |_, record| {
                events.push(codec::decode(&record, "a life")?);
                Ok(())
            })
            .unwrap();
        for (at, event) in events.iter().enumerate() {
            self.judge(event, &events[at + 1..]);
            self.before.apply(event);
        }
    }

    fn judge(&mut self, event: &Event, later: &[Event]) {
        let seed = self.seed;
        match event {
            // A booked window needs no job to have its places.
            Event::Ledger(LedgerEvent::Evicted { job, receipt, .. }) if receipt.beneficiary == *job => {
                assert_eq!(receipt.why, EvictionRule::Booking, "seed {seed}: {job:?} leaves for itself");
                self.judge_victim(*job, receipt, later);
            }
            Event::Ledger(LedgerEvent::Evicted { job, receipt, at, .. }) => {
                let beneficiary = receipt.beneficiary;
                let served = later.iter().any(|event| tasks_for(event, beneficiary) > 0);
                assert!(served, "seed {seed}: {job:?} leaves for {beneficiary:?}, which gets nothing");
                self.judge_victim(*job, receipt, later);
                if receipt.why != EvictionRule::Guarantee {
                    let window = self.before.tenants.policy().preemption.eviction_window;
                    let last = self.left_for.insert((*job, beneficiary), *at);
                    let again = last.is_some_and(|last| *at < last + window);
                    assert!(!again, "seed {seed}: {job:?} leaves twice for {beneficiary:?}");
                }
            }
            Event::Ledger(LedgerEvent::Started { job, tasks, .. }) => {
                let spec = &self.before.jobs.get(*job).unwrap().spec;
                let met = spec.is_met_by(tasks.iter().map(|place| place.task));
                assert!(met, "seed {seed}: a part of {job:?} starts");
            }
            Event::Earmarks(EarmarksEvent::Released { job, .. }) => {
                // Only a guarantee takes what was set aside for somebody else, and has it at once.
                let to_another = later.iter().any(|event| self.gives_to_another(event, *job));
                assert!(
                    to_another || self.flaky,
                    "seed {seed}: nothing went wrong, and the promise to {job:?} is broken"
                );
            }
            _ => {}
        }
    }

    fn gives_to_another(&self, event: &Event, than: JobId) -> bool {
        self.before.jobs.iter().any(|(id, _)| id != than && tasks_for(event, id) > 0)
    }

    /// Nothing leaves that may not, and no inference within its tenant's guarantee.
    fn judge_victim(&self, id: JobId, receipt: &Eviction, later: &[Event]) {
        let (seed, state) = (self.seed, &self.before);
        let spec = &state.jobs.get(id).unwrap().spec;
        assert!(spec.preemptible, "seed {seed}: {id:?} may not be evicted");
        if spec.class == Class::Inference {
            let (mut held, promised) =
                (protected_of(state, spec.tenant, later), guaranteed(state, spec.tenant));
            if receipt.why != EvictionRule::Booking {
                // What a tenant has booked takes from its guarantee, whoever uses it.
                held += booked(state, spec.tenant);
            }
            assert!(
                held > promised,
                "seed {seed}: inference {id:?} leaves within the guarantee: {held} of {promised}, {receipt:?}\n{}",
                self.told()
            );
        }
    }
}

/// What windows of a tenant that have begun have, in 1/3000 of a GPU.
fn booked(state: &State, tenant: TenantId) -> u64 {
    let begun = state.bookings.iter().filter(|(_, known)| known.began && known.spec.tenant == tenant);
    begun.map(|(_, known)| known.spec.shape.gpus.units().times(known.spec.tasks).parts()).sum()
}

/// How many tasks of a job an event gives places to.
fn tasks_for(event: &Event, id: JobId) -> usize {
    places_for(event, id).len()
}

/// The places that an event gives to a job.
fn places_for(event: &Event, id: JobId) -> &[Placement] {
    match event {
        Event::Ledger(LedgerEvent::Started { job, tasks, .. } | LedgerEvent::Grown { job, tasks, .. })
        | Event::Earmarks(EarmarksEvent::Earmarked(Earmark { job, tasks, .. }))
            if *job == id =>
        {
            tasks
        }
        _ => &[],
    }
}

/// GPUs, in 1/3000, that inference and work that may not borrow of a tenant hold and were not told to leave, were
/// promised, or get in the same plan.
fn protected_of(state: &State, tenant: TenantId, later: &[Event]) -> u64 {
    let grace_max = state.tenants.policy().preemption.borrow_grace_max;
    let protected = |spec: &Spec| {
        let fixed = !spec.preemptible || spec.grace() > grace_max;
        spec.tenant == tenant && (fixed || spec.class == Class::Inference)
    };
    let of_tenant = state.jobs.iter().filter(|(_, job)| protected(&job.spec));
    let parts = of_tenant.map(|(id, job)| {
        let held =
            state.ledger.holding(id).into_iter().flat_map(wharf_engine::state::holding::Holding::staying);
        let held = held.map(|task| task.place.task);
        let promised = state.earmarks.of(id).into_iter().flat_map(|promise| &promise.tasks);
        let gets = later.iter().flat_map(|event| places_for(event, id));
        let tasks = held.chain(promised.chain(gets).map(|place| place.task));
        tasks.map(|task| job.spec.shape_of(task).gpus.units().parts()).sum::<u64>()
    });
    parts.sum()
}

fn guaranteed(state: &State, tenant: TenantId) -> u64 {
    let known = state.tenants.in_policy(state.tenants.path(tenant)).unwrap();
    match &known.gpus {
        GpuQuota::Any(quota) => match quota.guaranteed {
            Amount::Of(parts) => parts,
            Amount::Unlimited => u64::MAX,
        },
        GpuQuota::PerPool(_) => unreachable!("these lives count over all models"),
    }
}
