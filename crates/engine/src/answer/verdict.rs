//! The one typed answer that every job has, as a function of state, policy and time.
//!
//! The *funnel* counts what is left of the fleet after each question a job puts to it; the reason is the first stage that
//! leaves less than the job's minimum. On the declared fleet, healthy and empty, it tells what can never run (rule 16).

mod answers;
mod beside;
mod together;

use crate::model::shortfall::{Beside, BesideGpus, Quantity, Shortfall, Stage};
use alloc::vec::Vec;

use crate::device::catalogue::Mig;
use crate::device::geometry::Layout;
use crate::model::need::{Need, PoolOption, SharingRefusal};
use crate::model::policy::Amount;
use crate::plan::draft::Draft;
use crate::plan::lines;
use crate::plan::place::asks::Asks;
use crate::plan::place::{Ask, FitByDomain, tasks_beside_gpus, tasks_on_islands, tasks_that_fit};
use crate::quota::meters::Amounts;
use crate::quota::tree::{Meter, Tree};
use crate::state::State;
use crate::state::fleet::Node;
use crate::state::jobs::KindKey;
use crate::state::jobs::event::HeldWhy;
use crate::state::rooms::{GpuRoom, Room};
use crate::state::ways::ways;
use crate::units::{BookingId, GpuUnits, JobId, NodeId, PoolId, TenantId, Timestamp};

pub use answers::Answers;

/// What is left after each stage, in the pool in which the job comes furthest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Funnel {
    pub need: Quantity,
    pub stages: Vec<(Stage, Quantity)>,
    /// Whose limit is the tightest, where one binds.
    pub tenant: Option<TenantId>,
    /// The group that comes least far, by its place in the list.
    pub group: Option<usize>,
    pub beside: Option<Beside>,
}

impl Funnel {
    fn new(need: Quantity, stages: Vec<(Stage, Quantity)>) -> Self {
        Self { need, stages, tenant: None, group: None, beside: None }
    }

    /// The first stage that leaves too little.
    pub fn shortfall(&self) -> Option<Shortfall> {
        let &(stage, have) = self.stages.iter().find(|(_, have)| *have < self.need)?;
        let tenant = self.tenant.filter(|_| stage == Stage::Quota);
        Some(Shortfall { stage, need: self.need, have, tenant, group: self.group, beside: self.beside })
    }

    /// How many stages it passes, and with how much left at the next.
    fn progress(&self) -> (usize, Quantity) {
        let passed = self.stages.iter().take_while(|(_, have)| *have >= self.need).count();
        (passed, self.stages.get(passed).map_or(self.need, |&(_, have)| have))
    }
}

/// Why a job is where it is: a closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// All of its tasks run.
    Running,
    /// It has its places and the world has not said that it runs.
    Starting,
    /// It runs, below its minimum, until it is repaired.
    Repairing,
    /// It is letting go.
    Leaving,
    /// Its places are set aside; it starts when its victims are gone.
    Earmarked,
    /// It may not be evicted in time, so it may not borrow: it waits for this tenant's guarantee.
    Fixed { tenant: TenantId },
    /// The policy lets its class lose less throughput than sharing a GPU would cost it.
    Sharing(SharingRefusal),
    /// What is free is reserved for another job, and it could not be gone by then.
    Reserved { job: JobId, start: Timestamp },
    /// It waits for the booked window whose places it uses: for its begin, or for room in it.
    Window { booking: BookingId, from: Timestamp },
    /// What is free is booked, and it could not be gone in time.
    Booked { booking: BookingId, from: Timestamp },
    /// What is free is on nodes that will be out of service, and it could not be gone in time.
    Downtime { from: Timestamp },
    /// It was evicted, and the last free GPUs, so many of them, are left to newcomers.
    LandingRoom { kept: u64 },
    /// It is not to be started until a person says so.
    Held { why: HeldWhy, since: Timestamp },
    /// It waits for the end of other jobs.
    Dependency,
    /// Its array runs as many members as it may.
    ArrayTurn { at_most: u32 },
    /// It may start with the next turn.
    Startable,
    /// Nodes refused to start it, so often in a row, this one last; it is tried again, elsewhere if it can be.
    StartRefused { tries: u32, node: NodeId, retry_at: Timestamp },
    /// A task of it failed; it waits a little before the next try.
    BackingOff { until: Timestamp },
    /// A stage of the funnel leaves too little.
    Short(Shortfall),
}

impl Reason {
    /// The stable word.
    pub fn token(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Starting => "Starting",
            Self::Repairing => "Repairing",
            Self::Leaving => "Leaving",
            Self::Earmarked => "WaitingForVictims",
            Self::Fixed { .. } => "WaitingForGuarantee",
            Self::Sharing(_) => "SharingRefused",
            Self::Reserved { .. } => "WaitingForReservedPlaces",
            Self::LandingRoom { .. } => "WaitingForLandingRoom",
            Self::Window { .. } => "WaitingForBooking",
            Self::Booked { .. } => "WaitingForBookedPlaces",
            Self::Held { why: HeldWhy::Restored, .. } => "HeldAfterRestore",
            Self::Held { why: HeldWhy::StartRefused, .. } => "HeldAfterRefusals",
            Self::StartRefused { .. } => "StartRefused",
            Self::Dependency => "WaitingForDependency",
            Self::ArrayTurn { .. } => "WaitingForArrayTurn",
            Self::Downtime { .. } => "WaitingForMaintenance",
            Self::Startable => "Startable",
            Self::BackingOff { .. } => "BackingOff",
            Self::Short(shortfall) => match shortfall.stage {
                Stage::Fleet => "FleetTooSmall",
                Stage::Healthy => "WaitingForHealthyNodes",
                Stage::Model => "WaitingForModel",
                Stage::Allowed => "WaitingForAllowedNodes",
                Stage::Free => "WaitingForCapacity",
                Stage::Together => "WaitingForRoomTogether",
                Stage::Quota => "WaitingForQuota",
            },
        }
    }
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub reason: Reason,
    /// None for a job that has its places.
    pub funnel: Option<Funnel>,
    /// Waiting jobs of its tenant that are served before it.
    pub ahead: u32,
    pub policy: u32,
    pub basis: u64,
}

impl State {
    /// Why the policy lets a kind share no GPU in any way, if that is what keeps it waiting.
    pub fn sharing_refused(&self, key: &KindKey, domain: &str) -> Option<SharingRefusal> {
        if !key.groups.is_empty() {
            return key.groups.iter().find_map(|group| self.sharing_refused(&group.key, domain));
        }
        let ways = ways(&self.fleet, self.tenants.policy(), key.class, domain, &key.shape);
        let refused: Option<Vec<SharingRefusal>> = ways.map(Result::err).collect();
        refused?.first().copied()
    }

    /// Whose guarantee an ask for work that may not borrow would pass.
    fn fixed_beyond(&self, tree: &Tree, ask: &Ask<'_>) -> Option<TenantId> {
        let policy = self.tenants.policy();
        // Asked first, because a draft costs more.
        if !lines::is_fixed(&lines::work_group(ask.key), policy) {
            return None;
        }
        let none = Amounts::new();
        let mut draft = Draft::on(self, policy, tree, &none, Timestamp(0));
        lines::fixed_beyond(&mut draft, ask)
    }

    /// The asks for a minimum that no guarantee stands against, or all of them where one stands against each.
    fn open_asks<'k>(&self, tree: &Tree, key: &'k KindKey) -> Vec<Ask<'k>> {
        let asks = Asks::new(self, self.tenants.policy(), tree).minimum(key);
        let is_open = |ask: &&Ask<'_>| self.fixed_beyond(tree, ask).is_none();
        let open: Vec<Ask<'k>> = asks.iter().filter(is_open).cloned().collect();
        if open.is_empty() { asks } else { open }
    }

    /// What is left of the fleet for a kind, question by question, as things are.
    pub fn funnel(&self, key: &KindKey) -> Funnel {
        if !key.groups.is_empty() {
            return self.funnel_of_groups(key);
        }
        let policy = self.tenants.policy();
        let tree = self.tree(policy);
        let used = tree.subtree_use(&self.own_use_after_leaving(&tree));
        let usable: Vec<PoolOption> = self.open_asks(&tree, key).iter().map(|ask| ask.way).collect();
        self.best_funnel(key, &usable, &tree, &used, FleetScope::AsItIs)
    }

    /// What keeps a kind from ever running on the declared fleet, if anything does (rule 16). The trust domain is given by name,
    /// because the first job of a domain is judged before the domain has an id.
    pub fn never(&self, key: &KindKey, domain: &str) -> Option<Shortfall> {
        if !key.groups.is_empty() {
            return self.never_in_groups(key, domain);
        }
        let policy = self.tenants.policy();
        let tree = self.tree(policy);
        let used = tree.zero_each();
        let asks = Asks { domain: Some(domain), ..Asks::new(self, policy, &tree) };
        let options: Vec<PoolOption> = asks.options(key).collect();
        // Most often the first nodes tell that nothing does.
        if options.iter().any(|&option| self.could_run(key, option, &tree, &used)) {
            return None;
        }
        self.best_funnel(key, &options, &tree, &used, FleetScope::Declared).shortfall()
    }

    /// True when the minimum of a kind fits the declared fleet in this way, and its limits.
    fn could_run(&self, key: &KindKey, option: PoolOption, tree: &Tree, used: &Amounts) -> bool {
        let need = amount_of(option.need, u64::from(key.min));
        if under_limits(key, option, tree, used).amount < need {
            return false;
        }
        let mut together = FitByDomain::default();
        let here = self.fleet.nodes().filter(|(_, node)| node.facts.pool == option.pool);
        here.filter(|&(id, _)| key.may_go_to(&self.fleet, id)).any(|(id, node)| {
            let fits = tasks_when_empty(key, option.need, self.fleet.mig(option.pool), node);
            let total = together.add(&self.fleet, key.topology.gang_within, id, fits);
            total.is_some_and(|total| total >= u64::from(key.min))
        })
    }

    fn best_funnel(
        &self,
        key: &KindKey,
        options: &[PoolOption],
        tree: &Tree,
        used: &Amounts,
        fleet: FleetScope,
    ) -> Funnel {
        let mut needs: Vec<(Option<PoolId>, Need)> =
            options.iter().map(|option| (Some(option.pool), option.need)).collect();
        if needs.is_empty() {
            // The job is counted by what it asks for first, in no pool.
            needs.push((None, Need::nominal(key.shape.gpus)));
        }
        let counts = self.count(key, &needs, fleet);
        let limits = options.iter().map(|&option| under_limits(key, option, tree, used));
        let limits = limits.chain(core::iter::once(UnderLimits::NONE));
        let funnels = needs.iter().zip(&counts).zip(limits);
        let funnels = funnels.map(|((&(_, need), count), limit)| funnel(key, need, count, &limit));
        // Furthest first, then with the most left; the first option where all is equal.
        let best = funnels.reduce(|best, next| if next.progress() > best.progress() { next } else { best });
        let best = best.expect("there is at least one need");
        let beside = best.beside.or_else(|| self.short_beside(key, &needs, fleet, &best));
        Funnel { beside, ..best }
    }

    /// One walk over the nodes for all options: every submission asks this of every node.
    fn count(&self, key: &KindKey, needs: &[(Option<PoolId>, Need)], fleet: FleetScope) -> Vec<FunnelCount> {
        let mut counts: Vec<FunnelCount> = needs.iter().map(|_| FunnelCount::default()).collect();
        for (id, node) in self.fleet.nodes() {
            for (&(pool, need), count) in needs.iter().zip(&mut counts) {
                let declared = declared_amount(key, need, node);
                count.fleet += declared;
                let healthy = match fleet {
                    FleetScope::AsItIs => healthy_amount(key, need, node),
                    FleetScope::Declared => declared,
                };
                count.healthy += healthy;
                if Some(node.facts.pool) != pool {
                    continue;
                }
                count.model += healthy;
                let open = fleet == FleetScope::Declared || node.is_open();
                if !open || !key.may_go_to(&self.fleet, id) {
                    continue;
                }
                count.allowed += healthy;
                let fits = if fleet == FleetScope::Declared {
                    count.free += declared;
                    tasks_when_empty(key, need, self.fleet.mig(node.facts.pool), node)
                } else {
                    let Some(room) = self.ledger.rooms().get(id) else { continue };
                    count.free += free_amount(key, need, room);
                    tasks_that_fit(room, need, key)
                };
                count.together.add(&self.fleet, key.topology.gang_within, id, fits);
            }
        }
        counts
    }
}

/// What is left of the fleet after each question, in the measure of a need; tasks that fit together, by domain.
#[derive(Default)]
struct FunnelCount {
    fleet: u64,
    healthy: u64,
    model: u64,
    allowed: u64,
    free: u64,
    together: FitByDomain,
}

/// What limits leave of an ask.
struct UnderLimits {
    /// So much, counted as the job counts.
    amount: u64,
    tenant: Option<TenantId>,
    beside: Option<Beside>,
}

impl UnderLimits {
    const NONE: Self = Self { amount: u64::MAX, tenant: None, beside: None };
}

fn funnel(key: &KindKey, need: Need, count: &FunnelCount, limit: &UnderLimits) -> Funnel {
    let fitting = count.together.most().saturating_mul(amount_of(need, 1));
    let stages = [
        (Stage::Fleet, count.fleet),
        (Stage::Healthy, count.healthy),
        (Stage::Model, count.model),
        (Stage::Allowed, count.allowed),
        (Stage::Free, count.free),
        (Stage::Together, fitting),
        (Stage::Quota, fitting.min(limit.amount)),
    ];
    let stages = stages.map(|(stage, left)| (stage, quantity(need, left))).into();
    let funnel = Funnel::new(quantity(need, amount_of(need, u64::from(key.min))), stages);
    let by_limit = funnel.shortfall().is_some_and(|short| short.stage == Stage::Quota);
    Funnel { tenant: limit.tenant, beside: limit.beside.filter(|_| by_limit), ..funnel }
}

/// Which fleet a kind is counted on: as it is, or with every node healthy, open and empty.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FleetScope {
    AsItIs,
    Declared,
}

/// How many tasks of a kind the node could take as declared: healthy, open and empty, whatever others use of it now.
/// Every submission asks this of every node, so nothing is copied.
fn tasks_when_empty(key: &KindKey, need: Need, mig: Option<&Mig>, node: &Node) -> u32 {
    let gpus = &node.facts.gpus;
    let count = u32::try_from(gpus.len()).expect("a node has at most 16 GPUs");
    let by_gpu = match need {
        Need::Whole(0) => u32::MAX,
        Need::Whole(each) if key.topology.task_on_island => {
            tasks_on_islands(gpus.iter().map(|gpu| gpu.island), each)
        }
        Need::Whole(each) => count / each,
        Need::Slice { profile, .. } => {
            mig.map_or(0, |mig| count * Layout::default().copies_left(mig, profile))
        }
        Need::Share { units, .. } => {
            count * u32::try_from(GpuUnits::WHOLE.parts() / units.parts()).unwrap_or(u32::MAX)
        }
    };
    by_gpu.min(tasks_beside_gpus(node.facts.capacity, key.shape.resources))
}

fn asks_for_gpus(need: Need) -> bool {
    need != Need::Whole(0)
}

fn amount_of(need: Need, tasks: u64) -> u64 {
    if asks_for_gpus(need) { need.units().parts() * tasks } else { tasks }
}

fn quantity(need: Need, amount: u64) -> Quantity {
    if asks_for_gpus(need) { Quantity::Gpus(GpuUnits::from_parts(amount)) } else { Quantity::Tasks(amount) }
}

fn parts(gpus: usize) -> u64 {
    u64::try_from(gpus).expect("a count of GPUs fits") * GpuUnits::WHOLE.parts()
}

fn declared_amount(key: &KindKey, need: Need, node: &Node) -> u64 {
    if asks_for_gpus(need) {
        return parts(node.facts.gpus.len());
    }
    u64::from(tasks_when_empty(key, need, None, node))
}

fn healthy_amount(key: &KindKey, need: Need, node: &Node) -> u64 {
    if asks_for_gpus(need) {
        // A GPU that others use is healthy; it is not free.
        let healthy = node.facts.gpus.iter().filter(|gpu| node.facts.up && gpu.healthy);
        return parts(healthy.count());
    }
    if node.facts.up { u64::from(tasks_that_fit(&Room::of(node, None), need, key)) } else { 0 }
}

fn free_amount(key: &KindKey, need: Need, room: &Room) -> u64 {
    let left = |gpu: &GpuRoom| gpu.not_held().parts();
    match need {
        Need::Whole(0) => u64::from(tasks_that_fit(room, need, key)),
        Need::Whole(_) => parts(room.whole_free()),
        Need::Share { .. } => room.gpus.iter().map(|gpu| gpu.free_for(key.trust).parts()).sum(),
        Need::Slice { .. } => room.gpus.iter().filter(|gpu| gpu.open_layout().is_some()).map(left).sum(),
    }
}

/// How much the limits leave room for, and whose limit is the tightest.
fn under_limits(key: &KindKey, option: PoolOption, tree: &Tree, used: &Amounts) -> UnderLimits {
    let charge = tree.charge(option.need.units(), key.shape.resources, option.pool);
    let mut tightest = UnderLimits::NONE;
    for tenant in tree.lineage(key.tenant) {
        let quotas = &tree.lines[tenant.index()].quotas;
        for (meter, quota) in quotas.iter().enumerate().filter(|&(meter, _)| charge[meter] > 0) {
            let Amount::Of(limit) = quota.limit else { continue };
            let left = limit.saturating_sub(used[tenant.index()][meter]);
            let each = u128::from(amount_of(option.need, 1));
            let exact = match tree.meters[meter].per_gpu() {
                Some(_) => u128::from(left) * each / u128::from(charge[meter]),
                // Cores and memory are counted in tasks they suffice for: a part of one is no part of a GPU.
                None => u128::from(left / charge[meter]) * each,
            };
            let amount = u64::try_from(exact).unwrap_or(u64::MAX);
            if amount < tightest.amount {
                let what = match tree.meters[meter] {
                    Meter::Cpu => Some(BesideGpus::Cpu),
                    Meter::Memory => Some(BesideGpus::Memory),
                    Meter::AnyGpu | Meter::Gpu(_) => None,
                };
                let beside = what.map(|what| Beside { what, each: charge[meter], most: left });
                tightest = UnderLimits { amount, tenant: Some(tenant), beside };
            }
        }
    }
    tightest
}
