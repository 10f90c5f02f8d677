//! What earlier plans found out: kinds that were refused, and what would lift each refusal.
//!
//! Losing it costs time, never an answer: after every step the simulator plans once without it and asserts that
//! nothing was missed.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cell::RefCell;

use crate::model::policy::{Order, Policy};
use crate::plan::Plan;
use crate::plan::later::reserve::StartSearches;
use crate::plan::lines::Pass;
use crate::plan::order::Candidate;
use crate::plan::place::Ask;
use crate::plan::place::best::Worths;
use crate::quota::meters::Amounts;
use crate::state::State;
use crate::units::{KindId, PoolId, TenantId, Timestamp};

/// What stood in the way of a candidate, over all its asks.
#[derive(Default)]
pub(super) struct Obstacles {
    /// Tenants whose limit it would pass, or whose guarantee where it may not borrow.
    pub(super) tenants: Vec<TenantId>,
    /// Pools without room.
    pub(super) pools: Vec<PoolId>,
    /// What others do may lift it although nobody leaves: a job that starts could be moved or evicted.
    pub(super) others: bool,
}

impl Obstacles {
    /// There is no room for an ask that is in this pass, or it would pass that tenant's limit.
    pub(super) fn add(&mut self, ask: &Ask<'_>, pass: Pass, limit: Option<TenantId>) {
        self.tenants.extend(limit);
        self.pools.extend(ask.parts().map(Ask::pool));
        self.others |= pass != Pass::Surplus;
    }
}

/// A kind that did not fit, as far as the planner needs to remember it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Everything that could lift it, as it was.
    watches: Vec<(Watch, u64)>,
    /// When time alone may lift it.
    retry_at: Option<Timestamp>,
    /// The kind is tried in every plan; only the moment to wake the planner is kept.
    wakes_only: bool,
}

/// Something that may lift a refusal when it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watch {
    Policy,
    /// A new model may be to its liking.
    Models,
    Reservations,
    /// Booked windows and planned downtimes.
    Windows,
    /// The prices by which others are placed.
    Prices,
    /// Anything in the pool: a job that starts there may have to leave again.
    Pool(PoolId),
    /// The use of the tenant and of everyone below it.
    Use(TenantId),
    Share(TenantId),
    AllShares,
    /// The job that joined the kind last.
    Newest(KindId),
    /// How long the tenant's jobs take: one that waited for its next attempt may be over.
    Learned(TenantId),
}

/// A number for each watch that is another one when what is watched has changed.
pub(super) struct Stamps<'a> {
    state: &'a State,
    shares: &'a Amounts,
    all_shares: u64,
}

impl<'a> Stamps<'a> {
    pub(super) fn new(state: &'a State, shares: &'a Amounts) -> Self {
        Self { state, shares, all_shares: of_all(shares) }
    }

    fn of(&self, watch: Watch) -> u64 {
        let Self { state, shares, all_shares } = self;
        match watch {
            Watch::Policy => u64::from(state.tenants.version()),
            Watch::Models => u64::try_from(state.fleet.pools().len()).expect("a count of models fits"),
            Watch::Reservations => state.reservations.version(),
            // Both count up.
            Watch::Windows => state.bookings.version() + state.maintenance.version(),
            Watch::Prices => state.demand.version(),
            Watch::Pool(pool) => state.ledger.changed(pool),
            Watch::Use(tenant) => state.ledger.changed_of(tenant),
            Watch::Share(tenant) => shares.get(tenant.index()).map_or(0, |share| fingerprint(share)),
            Watch::AllShares => *all_shares,
            Watch::Newest(kind) => {
                let jobs = state.jobs.waiting().get(&kind).into_iter().flat_map(|kind| &kind.jobs);
                jobs.map(|&(_, job)| job.0).max().unwrap_or(u64::MAX)
            }
            Watch::Learned(tenant) => state.attained.learned(tenant),
        }
    }
}

impl Refusal {
    /// A candidate is refused until something changes that could lift it, or until then.
    pub(super) fn new(
        stamps: &Stamps<'_>,
        policy: &Policy,
        candidate: &Candidate<'_>,
        obstacles: Obstacles,
        retry_at: Option<Timestamp>,
    ) -> Self {
        let (state, tenant, class) = (stamps.state, candidate.key.tenant, candidate.key.class);
        let top = state.tenants.lineage(tenant).last().unwrap_or(tenant);
        let mut watches = alloc::vec![Watch::Policy, Watch::Models, Watch::Reservations, Watch::Windows];
        watches.push(Watch::Share(tenant));
        watches.extend([tenant, top].into_iter().chain(obstacles.tenants).map(Watch::Use));
        watches.extend(obstacles.pools.into_iter().map(Watch::Pool));
        if obstacles.others {
            // A tenant there may be above a line because of what starts in another pool.
            watches.extend(state.fleet.pool_ids().map(Watch::Pool));
            watches.extend([Watch::AllShares, Watch::Prices]);
        }
        if let Some(rules) = policy.orders.beyond_age(class) {
            // A job that comes later may stand before those that were refused.
            watches.extend(candidate.kind.map(Watch::Newest));
            watches.extend((rules.order == Order::Learned).then_some(Watch::Learned(tenant)));
        }
        let watches = watches.into_iter().map(|watch| (watch, stamps.of(watch))).collect();
        Self { watches, retry_at, wakes_only: false }
    }

    /// No refusal: the planner is woken at that moment all the same, and when it is for what was known before.
    pub(super) fn waking_at(retry_at: Option<Timestamp>, known: Option<Self>) -> Self {
        let retry_at = earlier(retry_at, known.and_then(|known| known.retry_at));
        Self { watches: Vec::new(), retry_at, wakes_only: true }
    }

    /// Another candidate of the kind was refused too.
    #[must_use]
    pub(super) fn and(mut self, other: Self) -> Self {
        for watch in other.watches {
            if !self.watches.contains(&watch) {
                self.watches.push(watch);
            }
        }
        self.retry_at = earlier(self.retry_at, other.retry_at);
        self.wakes_only |= other.wakes_only;
        self
    }

    /// True while nothing has changed that could lift it.
    fn holds(&self, stamps: &Stamps<'_>, now: Timestamp) -> bool {
        !self.wakes_only
            && self.retry_at.is_none_or(|at| now < at)
            && self.watches.iter().all(|&(watch, stamp)| stamps.of(watch) == stamp)
    }
}

/// Refusals that were given, by kind.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    refusals: BTreeMap<KindId, Refusal>,
    /// The state and the moment of the last plan.
    last: Option<(u64, Timestamp)>,
    /// What places are worth; a plan reads the state alone, but what it works out here on its way is kept.
    pub(super) worths: RefCell<Worths>,
    pub(super) start_searches: StartSearches,
}

impl Memory {
    /// Remembers what a plan found out, and forgets kinds that no longer wait.
    pub fn remember(&mut self, plan: &Plan, state: &State, now: Timestamp) {
        // A kind whose time had come was tried again.
        self.refusals.retain(|_, refusal| refusal.retry_at.is_none_or(|at| at > now));
        self.refusals.extend(plan.refusals.iter().cloned());
        let (waiting, growing) = (state.jobs.waiting(), state.jobs.growing());
        if self.refusals.len() > 2 * (waiting.len() + growing.len()) + 64 {
            self.refusals.retain(|kind, _| waiting.contains_key(kind) || growing.contains_key(kind));
        }
        self.start_searches.clone_from(&plan.start_searches);
        self.last = Some((plan.basis, now));
    }

    /// Prices may be others: what follows from them is worked out before somebody waits for it.
    pub fn prepare(&mut self, state: &State) {
        if let (Some(tables), Some(profiles)) = (state.demand.tables(), state.ledger.rooms().profiles()) {
            self.worths.get_mut().prepare(tables, state.demand.version(), profiles);
        }
    }

    /// True when neither the state nor the time says anything new since the last plan.
    pub(super) fn nothing_changed(&self, state: &State, now: Timestamp) -> bool {
        let Some((basis, planned_at)) = self.last else { return false };
        let backed_off = state.jobs.next_start_allowed(planned_at).is_some_and(|at| at <= now);
        let reserved = state.reservations.next_deadline(state, planned_at).is_some_and(|at| at <= now);
        basis == state.index() && !backed_off && !reserved && self.wake().is_none_or(|at| now < at)
    }

    /// When time alone may lift a refusal.
    pub fn wake(&self) -> Option<Timestamp> {
        self.refusals.values().filter_map(|refusal| refusal.retry_at).min()
    }

    /// Kinds that are not refused, or whose refusal may be lifted.
    pub(super) fn worth_trying(&self, stamps: &Stamps<'_>, now: Timestamp) -> Vec<KindId> {
        let state = stamps.state;
        let refused =
            |kind: &KindId| self.refusals.get(kind).is_some_and(|refusal| refusal.holds(stamps, now));
        let promised: BTreeSet<KindId> =
            state.reservations.iter().filter_map(|of| state.jobs.kind_of(state.jobs.get(of.job)?)).collect();
        all_kinds(state).filter(|kind| promised.contains(kind) || !refused(kind)).collect()
    }
}

/// Every kind with jobs that wait or grow.
pub(super) fn all_kinds(state: &State) -> impl Iterator<Item = KindId> {
    state.jobs.waiting().keys().chain(state.jobs.growing().keys()).copied()
}

/// The earlier of two moments, either of which may never come.
pub(super) fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    [a, b].into_iter().flatten().min()
}

/// A number that differs where amounts do, for all that matters here.
pub(super) fn fingerprint(amounts: &[u64]) -> u64 {
    let mixed = |hash: u64, amount: &u64| (hash ^ amount).wrapping_mul(0x0000_0100_0000_01b3);
    amounts.iter().fold(0xcbf2_9ce4_8422_2325, mixed)
}

pub(super) fn of_all(shares: &Amounts) -> u64 {
    fingerprint(&shares.iter().map(|share| fingerprint(share)).collect::<Vec<u64>>())
}
