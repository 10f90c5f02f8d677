//! The one typed answer that every job has, as a function of state, policy and time.
//!
//! The *funnel* counts what is left of the fleet after each question a job puts to it; the reason is the first
//! stage that leaves less than the job's minimum. The same funnel on the declared fleet, healthy and empty,
//! tells what can never run (rule 16).

mod answers;
mod beside;
mod together;

use crate::model::shortfall::{Beside, BesideGpus, Quantity, Shortfall, Stage};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::device::catalogue::Mig;
use crate::device::geometry::Layout;
use crate::model::need::{Need, PoolOption, SharingRefusal};
use crate::model::policy::{Amount, Policy};
use crate::plan::draft::Draft;
use crate::plan::lines;
use crate::plan::place::{Ask, tasks_beside_gpus, tasks_that_fit, ways_of};
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
    /// What the minimum of the job takes.
    pub need: Quantity,
    /// In order.
    pub stages: Vec<(Stage, Quantity)>,
    /// Whose limit is the tightest, where one binds.
    pub tenant: Option<TenantId>,
    /// The group that comes least far, by its place in the list.
    pub group: Option<usize>,
    /// What it lacks beside GPUs, where that alone keeps it from enough.
    pub beside: Option<Beside>,
}

impl Funnel {
    /// The first stage that leaves too little.
    pub fn shortfall(&self) -> Option<Shortfall> {
        let &(stage, have) = self.stages.iter().find(|(_, have)| *have < self.need)?;
        let tenant = self.tenant.filter(|_| stage == Stage::Quota);
        Some(Shortfall { stage, need: self.need, have, tenant, group: self.group, beside: self.beside })
    }
}

/// Why a job is where it is: a closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It runs.
    Running,
    /// It has its places and the world has not said that it runs.
    Starting,
    /// It runs, below its minimum, until it is repaired.
    Repairing,
    /// It is letting go.
    Leaving,
    /// Its places are set aside; it starts when those who leave are gone.
    Earmarked,
    /// It may not be evicted in time, so it may not borrow: it waits for this tenant's guarantee.
    Fixed {
        /// Whose.
        tenant: TenantId,
    },
    /// The policy lets its class lose less throughput than sharing a GPU would cost it.
    Sharing(SharingRefusal),
    /// What is free is promised to another job, and it could not be gone by then.
    Reserved {
        /// To whom.
        job: JobId,
        /// By when that starts.
        start: Timestamp,
    },
    /// It waits for the booked window whose places it uses: for its begin, or for room in it.
    Window {
        /// Which.
        booking: BookingId,
        /// When it begins.
        from: Timestamp,
    },
    /// What is free is booked, and it could not be gone in time.
    Booked {
        /// Which window.
        booking: BookingId,
        /// When that begins.
        from: Timestamp,
    },
    /// What is free is on nodes that will be out of service, and it could not be gone in time.
    Downtime {
        /// When that begins.
        from: Timestamp,
    },
    /// It was evicted, and the last free GPUs are left to newcomers.
    LandingRoom {
        /// So many.
        kept: u64,
    },
    /// It is not to be started until somebody says so.
    Held {
        /// Why.
        why: HeldWhy,
        /// Since when.
        since: Timestamp,
    },
    /// It waits for the end of other jobs.
    Dependency,
    /// Its array runs as many members as it may.
    ArrayTurn {
        /// So many.
        at_most: u32,
    },
    /// It may start with the next turn.
    Startable,
    /// Nodes refused to start it; it is tried again, elsewhere if it can be.
    StartRefused {
        /// How often in a row.
        tries: u32,
        /// The node that refused it last.
        node: NodeId,
        /// When it is tried again at the earliest.
        retry_at: Timestamp,
    },
    /// A task of it failed; it waits a little before the next try.
    BackingOff {
        /// Until then.
        until: Timestamp,
    },
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
    /// Why it is where it is.
    pub reason: Reason,
    /// What is left after each question; empty for a job that has its places.
    pub funnel: Option<Funnel>,
    /// Waiting jobs of its tenant that are served before it.
    pub ahead: u32,
    /// The policy it was judged by.
    pub policy: u32,
    /// The journal index it was judged on.
    pub basis: u64,
}

impl State {
    /// Why the policy lets a kind share no GPU in any way, if that is what keeps it waiting.
    pub fn sharing_refused(&self, key: &KindKey, domain: &str, policy: &Policy) -> Option<SharingRefusal> {
        if !key.groups.is_empty() {
            return key.groups.iter().find_map(|group| self.sharing_refused(&group.key, domain, policy));
        }
        let mut refused = None;
        for way in ways(&self.fleet, policy, key.class, domain, &key.shape) {
            match way {
                Ok(_) => return None,
                Err(why) => refused = refused.or(Some(why)),
            }
        }
        refused
    }

    fn fixed_beyond(&self, policy: &Policy, tree: &Tree, ask: &Ask<'_>) -> Option<TenantId> {
        if !lines::is_fixed(&lines::work_group(ask.key), policy) {
            return None;
        }
        let none = Amounts::new();
        let mut draft = Draft::on(self, policy, tree, &none, Timestamp(0));
        lines::fixed_beyond(&mut draft, ask)
    }

    /// What is left of the fleet for a kind, question by question, as things are.
    pub fn funnel(&self, key: &KindKey, policy: &Policy) -> Funnel {
        if !key.groups.is_empty() {
            return self.funnel_of_groups(key, policy);
        }
        let tree = self.tree(policy);
        let used = tree.subtree_use(&self.own_planned_use(&tree));
        let all: Vec<PoolOption> = ways_of(self, policy, key).collect();
        let ask = |way| Ask::new(&tree, key, way, key.min);
        let open = all.iter().copied().filter(|&way| self.fixed_beyond(policy, &tree, &ask(way)).is_none());
        let open: Vec<PoolOption> = open.collect();
        let usable = if open.is_empty() { &all } else { &open };
        self.best_funnel(key, usable, &tree, &used, FleetScope::AsItIs)
    }

    /// The same on the declared fleet: every node healthy, uncordoned and empty, and nothing used (rule 16).
    /// The trust domain is given by name, because who submits the first job of one comes before its id.
    pub(crate) fn ideal_funnel(&self, key: &KindKey, domain: &str, policy: &Policy) -> Funnel {
        let tree = self.tree(policy);
        let used = tree.zero_each();
        let ways = ways(&self.fleet, policy, key.class, domain, &key.shape);
        let ways: Vec<PoolOption> = ways.filter_map(Result::ok).collect();
        self.best_funnel(key, &ways, &tree, &used, FleetScope::Declared)
    }

    /// What keeps a kind from ever running, even on the declared fleet, if anything does. Most often the first nodes
    /// tell that nothing does.
    pub fn never(&self, key: &KindKey, domain: &str, policy: &Policy) -> Option<Shortfall> {
        if !key.groups.is_empty() {
            return self.never_in_groups(key, domain, policy);
        }
        let tree = self.tree(policy);
        let used = tree.zero_each();
        let mut usable = ways(&self.fleet, policy, key.class, domain, &key.shape).filter_map(Result::ok);
        if usable.any(|way| self.could_run(key, way, &tree, &used)) {
            return None;
        }
        self.ideal_funnel(key, domain, policy).shortfall()
    }

    /// True when the minimum of a kind fits the declared fleet in this way, and its limits.
    fn could_run(&self, key: &KindKey, way: PoolOption, tree: &Tree, used: &Amounts) -> bool {
        let need = amount_of(way.need, u64::from(key.min));
        if under_limits(key, way, tree, used).amount < need {
            return false;
        }
        let mut together: BTreeMap<Option<u32>, u64> = BTreeMap::new();
        let here = self.fleet.nodes().filter(|(_, node)| node.facts.pool == way.pool);
        for (id, node) in here.filter(|&(id, _)| key.may_go_to(&self.fleet, id)) {
            let domain = key.topology.gang_within.map(|level| self.fleet.domain_of(id, level));
            if domain == Some(None) {
                continue;
            }
            let fitting = tasks_when_empty(key, way.need, self.fleet.mig(way.pool), node);
            let total = together.entry(domain.flatten()).or_default();
            *total += u64::from(fitting);
            if *total >= u64::from(key.min) {
                return true;
            }
        }
        false
    }

    fn best_funnel(
        &self,
        key: &KindKey,
        ways: &[PoolOption],
        tree: &Tree,
        used: &Amounts,
        fleet: FleetScope,
    ) -> Funnel {
        // Where no way is open, the job is counted by what it asks for first, in no pool.
        let nominal = (None, Need::nominal(key.shape.gpus));
        let mut needs: Vec<(Option<PoolId>, Need)> =
            ways.iter().map(|way| (Some(way.pool), way.need)).collect();
        if needs.is_empty() {
            needs.push(nominal);
        }
        let counts = self.count(key, &needs, fleet);
        let limits =
            |at: usize| ways.get(at).map(|&way| under_limits(key, way, tree, used)).unwrap_or_default();
        let funnels = needs.iter().zip(&counts).enumerate().map(|(at, (&(_, need), count))| {
            let limit = limits(at);
            let funnel = funnel(key, need, count, &limit);
            let by_limit = funnel.shortfall().is_some_and(|short| short.stage == Stage::Quota);
            Funnel { beside: limit.beside.filter(|_| by_limit), ..funnel }
        });
        // Furthest first, then with the most left; the first way where all is equal.
        let mut best: Option<Funnel> = None;
        for funnel in funnels {
            if best.as_ref().is_none_or(|best| progress(&funnel) > progress(best)) {
                best = Some(funnel);
            }
        }
        let best = best.expect("there is at least one need");
        let beside = best.beside.or_else(|| self.short_beside(key, &needs, fleet, &best));
        Funnel { beside, ..best }
    }

    /// One walk over the nodes for all ways: every submission asks this of every node.
    fn count(&self, key: &KindKey, needs: &[(Option<PoolId>, Need)], fleet: FleetScope) -> Vec<FunnelCount> {
        let mut counts: Vec<FunnelCount> = Vec::new();
        counts.resize_with(needs.len(), FunnelCount::default);
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
                let (free, fitting) = match fleet {
                    FleetScope::AsItIs => {
                        let Some(room) = self.ledger.rooms().get(id) else { continue };
                        (free_amount(key, need, room), tasks_that_fit(room, need, key))
                    }
                    FleetScope::Declared => {
                        (declared, tasks_when_empty(key, need, self.fleet.mig(node.facts.pool), node))
                    }
                };
                count.free += free;
                let domain = key.topology.gang_within.map(|level| self.fleet.domain_of(id, level));
                if domain != Some(None) {
                    *count.together.entry(domain.flatten()).or_default() += u64::from(fitting);
                }
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
    together: BTreeMap<Option<u32>, u64>,
}

/// What limits leave of an ask.
struct UnderLimits {
    /// So much, counted as the job counts.
    amount: u64,
    /// Whose limit is the tightest.
    tenant: Option<TenantId>,
    /// What that is a limit of, where it is not GPUs.
    beside: Option<Beside>,
}

impl Default for UnderLimits {
    fn default() -> Self {
        Self { amount: u64::MAX, tenant: None, beside: None }
    }
}

fn funnel(key: &KindKey, need: Need, count: &FunnelCount, limit: &UnderLimits) -> Funnel {
    let fitting = count.together.values().copied().max().unwrap_or_default();
    let fitting = fitting.saturating_mul(amount_of(need, 1));
    let stages = [
        (Stage::Fleet, count.fleet),
        (Stage::Healthy, count.healthy),
        (Stage::Model, count.model),
        (Stage::Allowed, count.allowed),
        (Stage::Free, count.free),
        (Stage::Together, fitting),
        (Stage::Quota, fitting.min(limit.amount)),
    ];
    Funnel {
        need: quantity(need, amount_of(need, u64::from(key.min))),
        stages: stages.into_iter().map(|(stage, left)| (stage, quantity(need, left))).collect(),
        tenant: limit.tenant,
        group: None,
        beside: None,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FleetScope {
    AsItIs,
    Declared,
}

/// How far a funnel gets, and with how much left there.
fn progress(funnel: &Funnel) -> (usize, Quantity) {
    let passed = funnel.stages.iter().take_while(|(_, have)| *have >= funnel.need).count();
    let have = funnel.stages.get(passed).map_or(funnel.need, |&(_, have)| have);
    (passed, have)
}

/// How many tasks of a kind the node could take as declared: healthy, open and empty, whatever others use of it now.
/// Every submission asks this of every node, so nothing is copied.
fn tasks_when_empty(key: &KindKey, need: Need, mig: Option<&Mig>, node: &Node) -> u32 {
    let gpus = &node.facts.gpus;
    let count = u32::try_from(gpus.len()).expect("a node has at most 16 GPUs");
    let by_gpu = match need {
        Need::Whole(0) => u32::MAX,
        Need::Whole(each) if key.topology.task_on_island => {
            let first_of = |at: usize| gpus[..at].iter().all(|gpu| gpu.island != gpus[at].island);
            let size = |at: usize| gpus.iter().filter(|gpu| gpu.island == gpus[at].island).count();
            let islands = (0..gpus.len()).filter(|&at| first_of(at)).map(size);
            islands.map(|size| u32::try_from(size).expect("at most 16") / each).sum()
        }
        Need::Whole(each) => count / each,
        Need::Slice { profile, .. } => {
            let copies = |mig| Layout::default().copies_left(mig, profile);
            mig.map_or(0, |mig| count * copies(mig))
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
    let left = |gpu: &GpuRoom| GpuUnits::WHOLE.checked_sub(gpu.held).unwrap_or_default().parts();
    match need {
        Need::Whole(0) => u64::from(tasks_that_fit(room, need, key)),
        Need::Whole(_) => parts(room.whole_free()),
        Need::Share { .. } => room.gpus.iter().map(|gpu| gpu.free_for(key.trust).parts()).sum(),
        Need::Slice { .. } => room.gpus.iter().filter(|gpu| gpu.open_layout().is_some()).map(left).sum(),
    }
}

/// How much the limits leave room for, and whose limit is the tightest.
fn under_limits(key: &KindKey, way: PoolOption, tree: &Tree, used: &Amounts) -> UnderLimits {
    let charge = tree.charge(way.need.units(), key.shape.resources, way.pool);
    let mut tightest = UnderLimits::default();
    for tenant in tree.lineage(key.tenant) {
        let quotas = &tree.lines[tenant.index()].quotas;
        for (meter, quota) in quotas.iter().enumerate().filter(|&(meter, _)| charge[meter] > 0) {
            let Amount::Of(limit) = quota.limit else { continue };
            let left = limit.saturating_sub(used[tenant.index()][meter]);
            let each = u128::from(amount_of(way.need, 1));
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
