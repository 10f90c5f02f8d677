//! The plan: what changes now.
//!
//! Three passes, as in rule 3: within guarantee, within fair share, surplus. In each, the next kind is the one
//! whose tenant is served first; its oldest job starts on a draft with its minimum, or not at all. Tasks beyond the
//! minimum come last, from what nobody's minimum wants. A kind that does not fit
//! is refused once for all jobs alike, with what would lift the refusal, and is not looked at again until then.

pub mod draft;
pub mod order;
pub mod place;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::event::{Event, LedgerEvent, Placement};
use crate::jobs::{Kind, KindKey};
use crate::policy::Policy;
use crate::state::State;
use crate::tree::Tree;
use crate::units::{JobId, KindId, PoolId, TenantId, Timestamp};
use draft::Draft;
use order::Candidates;

/// What changes now, made on the state after `basis` events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The journal index it saw.
    pub basis: u64,
    /// Jobs that get their places.
    pub starts: Vec<Start>,
    /// Kinds that were looked at and do not fit.
    pub refusals: Vec<(KindId, Refusal)>,
}

/// A job that gets its places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Which.
    pub job: JobId,
    /// Where each task goes.
    pub tasks: Vec<Placement>,
}

/// Why a kind did not start, as far as the planner needs to remember.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What stood in the way.
    pub by: Obstacles,
    watches: Vec<Watch>,
    policy: u32,
    /// How many models there were: a new one may be to its liking.
    pools: usize,
}

/// What stood in the way, over all the pools that were tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Obstacles {
    /// Limits of these tenants, each in some pool.
    pub limits: Vec<TenantId>,
    /// No room.
    pub room: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watch {
    Pool { pool: PoolId, freed: u64 },
    Tenant { tenant: TenantId, freed: u64 },
}

impl Refusal {
    /// True while nothing has changed that could lift it.
    fn holds(&self, state: &State) -> bool {
        let unchanged = |watch: &Watch| match *watch {
            Watch::Pool { pool, freed } => state.ledger.freed(pool) == freed,
            Watch::Tenant { tenant, freed } => state.ledger.freed_of(tenant) == freed,
        };
        let same_world = self.policy == state.tenants.version() && self.pools == state.fleet.pools().len();
        same_world && self.watches.iter().all(unchanged)
    }
}

/// Refusals that were given, by kind. Losing them costs time, never an answer: after every step the simulator plans
/// once without them and asserts that nothing was missed.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    refusals: BTreeMap<KindId, Refusal>,
}

impl Memory {
    /// Remembers what a plan found out, and forgets kinds that no longer wait.
    pub fn remember(&mut self, plan: &Plan, state: &State) {
        for (kind, refusal) in &plan.refusals {
            self.refusals.insert(*kind, refusal.clone());
        }
        if self.refusals.len() > 2 * state.jobs.waiting().len() + 64 {
            self.refusals.retain(|kind, _| state.jobs.waiting().contains_key(kind));
        }
    }

    fn still_refused(&self, kind: KindId, state: &State) -> bool {
        self.refusals.get(&kind).is_some_and(|refusal| refusal.holds(state))
    }
}

/// What a job may take, by how entitled its tenant is to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The tenant stays within its guarantee.
    WithinGuarantee,
    /// The tenant stays within its fair share.
    WithinFairShare,
    /// Whatever is free.
    Surplus,
}

/// What changes now. Kinds whose last refusal still holds are not looked at again.
pub fn plan(state: &State, policy: &Policy, memory: &Memory, now: Timestamp) -> Plan {
    let mut made = Plan { basis: state.index(), starts: Vec::new(), refusals: Vec::new() };
    let waiting = state.jobs.waiting().iter();
    let worth_trying: Vec<(KindId, &Kind)> = waiting
        .filter(|(kind, _)| !memory.still_refused(**kind, state))
        .map(|(&kind, waiting)| (kind, waiting))
        .collect();
    if worth_trying.is_empty() {
        return made;
    }
    let tree = Tree::resolve(policy, state);
    let mut draft = Draft::on(state, &tree);
    let mut candidates = Candidates::new(state, worth_trying, now);
    for pass in [Pass::WithinGuarantee, Pass::WithinFairShare, Pass::Surplus] {
        while let Some((kind, job)) = candidates.next(&draft, pass) {
            let key = &state.jobs.waiting()[&kind].key;
            match place::start(&mut draft, key) {
                Ok(tasks) => {
                    made.starts.push(Start { job, tasks });
                    candidates.started(kind);
                }
                Err(obstacles) => {
                    made.refusals.push((kind, refusal(state, key, obstacles)));
                    candidates.refused(kind);
                }
            }
        }
    }
    for start in &mut made.starts {
        let job = state.jobs.get(start.job).expect("a plan starts live jobs");
        place::grow(&mut draft, &KindKey::of(&job.spec), &mut start.tasks);
    }
    made
}

/// The refusal with the versions of everything that could lift it, as they are in the state it was made on.
fn refusal(state: &State, key: &KindKey, by: Obstacles) -> Refusal {
    let pools = state.fleet.pool_ids().filter(|&pool| by.room && place::may_use(state, key, pool));
    let on_pools = pools.map(|pool| Watch::Pool { pool, freed: state.ledger.freed(pool) });
    let tenants = by.limits.iter();
    let on_tenants = tenants.map(|&tenant| Watch::Tenant { tenant, freed: state.ledger.freed_of(tenant) });
    let watches = on_pools.chain(on_tenants).collect();
    Refusal { watches, by, policy: state.tenants.version(), pools: state.fleet.pools().len() }
}

impl Plan {
    /// The facts that make it so.
    pub fn events(&self, state: &State, now: Timestamp) -> Vec<Event> {
        assert!(self.basis == state.index(), "a plan is committed on the state it was made on");
        let started = |start: &Start| {
            let job = state.jobs.get(start.job).expect("a plan starts live jobs");
            Event::Ledger(LedgerEvent::Started {
                job: start.job,
                attempt: job.past.attempts + 1,
                tasks: start.tasks.clone(),
                policy: state.tenants.version(),
                at: now,
            })
        };
        self.starts.iter().map(started).collect()
    }
}
