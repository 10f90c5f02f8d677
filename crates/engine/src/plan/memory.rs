//! What earlier plans found out: kinds that were refused, and what would lift each refusal.
//!
//! Losing it costs time, never an answer: after every step the simulator plans once without it and asserts that
//! nothing was missed.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cell::RefCell;

use crate::model::policy::Order;
use crate::plan::Plan;
use crate::plan::later::reserve::StartSearches;
use crate::plan::lines::Pass;
use crate::plan::order::Candidate;
use crate::plan::place::best::Worths;
use crate::quota::meters::Amounts;
use crate::state::State;
use crate::units::{JobId, KindId, PoolId, TenantId, Timestamp};

/// What stood in the way, over all the pools that were tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Obstacles {
    /// Limits of these tenants, each in some pool.
    pub limits: Vec<TenantId>,
    /// Guarantees of these tenants, which work that may not borrow would pass.
    pub fixed: Vec<(PoolId, TenantId)>,
    /// Pools without room, with the pass the kind was in there.
    pub room: Vec<(PoolId, Pass)>,
    /// What others do may lift it although nobody leaves: who starts could be moved, or made to leave.
    pub others: bool,
}

impl Obstacles {
    /// What stood in the way in one pool.
    pub fn add(&mut self, pool: PoolId, pass: Pass, limit: Option<TenantId>) {
        self.limits.extend(limit);
        self.room.push((pool, pass));
        self.others |= pass != Pass::Surplus;
    }
}

/// Why a kind did not start, as far as the planner needs to remember.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What stood in the way.
    pub by: Obstacles,
    watches: Vec<Watch>,
    policy: u32,
    /// The promised starts that it was refused beside.
    reservations: u64,
    /// The booked windows and planned downtimes that it was refused beside.
    bookings: u64,
    /// How many models there were: a new one may be to its liking.
    pools: usize,
    /// The prices by which others were placed, where what others do matters.
    prices: Option<u64>,
    /// When time alone may lift it.
    retry_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watch {
    /// Anything in the pool: who starts there may have to leave again.
    Changed { pool: PoolId, stamp: u64 },
    /// The use of the tenant and of everyone below it.
    Use { tenant: TenantId, stamp: u64 },
    /// Everybody's fair share.
    Shares { fingerprint: u64 },
    /// The tenant's own.
    Share { tenant: TenantId, fingerprint: u64 },
    /// Who joined the kind last.
    Newest { kind: KindId, job: Option<JobId> },
    /// How long the tenant's jobs take: somebody who waited for its next attempt may be over.
    Learned { tenant: TenantId, stamp: u64 },
    /// It does not hold: it only wakes.
    Never,
}

impl Refusal {
    /// A refusal with the stamps of everything that could lift it.
    pub(super) fn new(
        state: &State,
        tenant: TenantId,
        by: Obstacles,
        shares: &Amounts,
        retry_at: Option<Timestamp>,
    ) -> Self {
        let top = state.tenants.lineage(tenant).last().unwrap_or(tenant);
        let on_use = |tenant| Watch::Use { tenant, stamp: state.ledger.changed_of(tenant) };
        let mut watches: Vec<Watch> =
            [tenant, top].into_iter().chain(by.limits.iter().copied()).map(on_use).collect();
        watches.extend(by.fixed.iter().map(|&(_, tenant)| on_use(tenant)));
        watches.push(Watch::Share { tenant, fingerprint: fingerprint(&shares[tenant.index()]) });
        let changed = |pool| Watch::Changed { pool, stamp: state.ledger.changed(pool) };
        watches.extend(by.room.iter().map(|&(pool, _)| changed(pool)));
        if by.others {
            // Who is above a line there may be so because of what starts in another pool.
            watches.extend(state.fleet.pool_ids().map(changed));
            watches.push(Watch::Shares { fingerprint: of_all(shares) });
        }
        let (policy, pools) = (state.tenants.version(), state.fleet.pools().len());
        let prices = by.others.then(|| state.demand.version());
        let reservations = state.reservations.version();
        let bookings = windows(state);
        Self { by, watches, policy, reservations, bookings, pools, prices, retry_at }
    }

    /// A refusal that does not hold, whatever was known before; the planner is woken at that moment all the same.
    pub(super) fn until(retry_at: Option<Timestamp>, known: Option<Self>) -> Self {
        let watches = alloc::vec![Watch::Never];
        let mut refusal = Self {
            by: Obstacles::default(),
            watches,
            policy: 0,
            reservations: 0,
            bookings: 0,
            pools: 0,
            prices: None,
            retry_at,
        };
        if let Some(known) = known {
            refusal.add(known);
        }
        refusal
    }

    /// The same, as long as nobody joins the kind and the order inside the tenant stays as it is.
    #[must_use]
    pub(super) fn while_in_order(mut self, state: &State, kind: KindId, by: &Candidate<'_>) -> Self {
        self.watches.push(Watch::Newest { kind, job: newest(state, kind) });
        let tenant = by.key.tenant;
        if state.tenants.policy().orders.of(by.key.class).order == Order::Learned {
            self.watches.push(Watch::Learned { tenant, stamp: state.attained.learned(tenant) });
        }
        self
    }

    /// It was refused in other pools too.
    pub(super) fn add(&mut self, other: Self) {
        self.by.limits.extend(other.by.limits);
        self.by.fixed.extend(other.by.fixed);
        self.by.room.extend(other.by.room);
        self.by.others |= other.by.others;
        self.prices = self.prices.or(other.prices);
        self.watches.extend(other.watches);
        self.retry_at = earlier(self.retry_at, other.retry_at);
    }

    /// True while nothing has changed that could lift it.
    fn holds(&self, state: &State, shares: &Amounts, all: u64, now: Timestamp) -> bool {
        let unchanged = |watch: &Watch| match *watch {
            Watch::Changed { pool, stamp } => state.ledger.changed(pool) == stamp,
            Watch::Use { tenant, stamp } => state.ledger.changed_of(tenant) == stamp,
            Watch::Shares { fingerprint } => all == fingerprint,
            Watch::Share { tenant, fingerprint: known } => {
                shares.get(tenant.index()).is_some_and(|share| fingerprint(share) == known)
            }
            Watch::Newest { kind, job } => newest(state, kind) == job,
            Watch::Learned { tenant, stamp } => state.attained.learned(tenant) == stamp,
            Watch::Never => false,
        };
        let same_prices = self.prices.is_none_or(|version| version == state.demand.version());
        let same_world =
            self.policy == state.tenants.version() && self.pools == state.fleet.pools().len() && same_prices;
        let same_promises =
            self.reservations == state.reservations.version() && self.bookings == windows(state);
        let in_time = self.retry_at.is_none_or(|at| now < at);
        same_world && same_promises && in_time && self.watches.iter().all(unchanged)
    }
}

/// Changes with everything that happens to booked windows and planned downtimes: both count up.
fn windows(state: &State) -> u64 {
    state.bookings.version() + state.maintenance.version()
}

/// Refusals that were given, by kind.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    refusals: BTreeMap<KindId, Refusal>,
    /// The state and the moment of the last plan.
    last: Option<(u64, Timestamp)>,
    /// What places are worth; a plan reads the state alone, but what it works out here on its way is kept.
    pub(super) worths: RefCell<Worths>,
    /// For whom a start was looked for.
    pub(super) searches: StartSearches,
}

impl Memory {
    /// Remembers what a plan found out, and forgets kinds that no longer wait.
    pub fn remember(&mut self, plan: &Plan, state: &State, now: Timestamp) {
        // Whose time had come was tried again.
        self.refusals.retain(|_, refusal| refusal.retry_at.is_none_or(|at| at > now));
        for (kind, refusal) in &plan.refusals {
            self.refusals.insert(*kind, refusal.clone());
        }
        let known = |kind: &KindId| {
            state.jobs.waiting().contains_key(kind) || state.jobs.growing().contains_key(kind)
        };
        let kinds = state.jobs.waiting().len() + state.jobs.growing().len();
        if self.refusals.len() > 2 * kinds + 64 {
            self.refusals.retain(|kind, _| known(kind));
        }
        self.searches.clone_from(&plan.searches);
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
    pub(super) fn worth_trying(&self, state: &State, shares: &Amounts, now: Timestamp) -> Vec<KindId> {
        let all = of_all(shares);
        let refused = |kind: &KindId| {
            self.refusals.get(kind).is_some_and(|refusal| refusal.holds(state, shares, all, now))
        };
        let promised: BTreeSet<KindId> =
            state.reservations.iter().filter_map(|of| state.jobs.kind_of(state.jobs.get(of.job)?)).collect();
        all_kinds(state).filter(|kind| promised.contains(kind) || !refused(kind)).collect()
    }
}

fn newest(state: &State, kind: KindId) -> Option<JobId> {
    state.jobs.waiting().get(&kind)?.jobs.iter().map(|&(_, job)| job).max()
}

/// Every kind of which somebody wants something.
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
    let all: Vec<u64> = shares.iter().map(|share| fingerprint(share)).collect();
    fingerprint(&all)
}
