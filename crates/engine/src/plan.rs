//! The plan: what changes now.
//!
//! Three passes, as in rule 3: within guarantee, within fair share, surplus. In each, the next kind is the one
//! whose tenant is served first; its oldest job gets what it asks for on a draft, all of it or nothing: from what is
//! free, by moving others, or by making others leave. A kind that does not fit is refused once for all jobs alike, with
//! what would lift the refusal, and is not looked at again until then; only when somebody leaves on the draft itself is
//! it tried again in the same plan. The plan is the difference between the state and the end of the draft.

pub mod draft;
pub mod evict;
pub mod later;
pub mod lines;
pub mod memory;
pub mod order;
pub mod place;
pub mod rank;
mod serve;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::model::placement::{Chosen, Placement};
use crate::model::policy::Policy;
use crate::plan::memory::all_kinds;
use crate::state::State;
use crate::state::event::Event;
use crate::state::holding::TaskPhase;
use crate::state::jobs::event::{JobsEvent, Next, RequeueWhy};
use crate::state::ledger::event::{Asker, Eviction, LedgerEvent, Why};
use crate::state::promises::PromisesEvent;
use crate::state::reservations::{Dropped, Reservation, ReservationsEvent};
use crate::units::{JobId, KindId, Millis, Timestamp};

use evict::reclaim::Allowance;
use later::reserve::Looked;
pub use lines::Pass;
pub use memory::{Memory, Obstacles, Refusal};

/// The most times a plan is made again because a reclaim left more idle than it started.
const AGAIN_MAX: usize = 64;

/// What changes now, made on the state after `basis` events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The journal index it saw.
    pub basis: u64,
    /// Who was promised places that a guarantee takes instead.
    pub released: Vec<JobId>,
    /// Who has to leave, in the order in which they were taken.
    pub evictions: Vec<Evicted>,
    /// Jobs that get their places now.
    pub starts: Vec<Start>,
    /// Running jobs that get more tasks now.
    pub grown: Vec<Start>,
    /// Jobs that get their places when those who leave are gone.
    pub promises: Vec<Start>,
    /// Promised starts that cannot be kept.
    pub dropped: Vec<(JobId, Dropped)>,
    /// Jobs that wait and are promised a start.
    pub reserved: Vec<(JobId, Reservation)>,
    /// Kinds that were looked at and do not fit.
    pub refusals: Vec<(KindId, Refusal)>,
    /// For whom a start was looked for.
    pub looked: Looked,
}

/// A job that gets places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Which.
    pub job: JobId,
    /// Where each task goes.
    pub tasks: Vec<Placement>,
    /// Why the first of them goes there, where places have prices.
    pub chosen: Option<Chosen>,
}

/// Tasks that have to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// Of which job.
    pub job: JobId,
    /// Which.
    pub tasks: Vec<u32>,
    /// Why, for whom, and at what price.
    pub receipt: Eviction,
}

/// What changes now. Kinds whose last refusal still holds are not looked at again.
pub fn plan(state: &State, policy: &Policy, memory: &Memory, now: Timestamp) -> Plan {
    if memory.nothing_changed(state, now) {
        return Plan { basis: state.index(), ..Plan::default() };
    }
    let tree = state.tree(policy);
    let shares = state.fair_shares(&tree);
    let (worths, looked) = (&memory.worths, &memory.looked);
    let grounds = serve::Grounds { state, policy, tree: &tree, shares: &shares, worths, looked, now };
    let mut kinds = memory.worth_trying(state, &shares, now);
    let mut all = kinds.len() == all_kinds(state).count();
    // Whoever would leave more idle by a reclaim than it starts takes sparingly, then nothing, and the plan is made again.
    let mut kept_back: BTreeMap<JobId, Allowance> = BTreeMap::new();
    for _ in 0..AGAIN_MAX {
        let wasteful = {
            let served = serve::all(grounds, &kinds, &kept_back);
            match served.wasteful() {
                // Who leaves on the draft may lift any refusal: then nothing that is remembered counts.
                _ if !all && served.lets_somebody_leave() => None,
                None => return served.into_plan(),
                wasteful => wasteful,
            }
        };
        let Some(wasteful) = wasteful else {
            (kinds, all) = (all_kinds(state).collect(), true);
            continue;
        };
        let allowance = kept_back.entry(wasteful).or_insert(Allowance::InOrder);
        *allowance = match allowance {
            Allowance::InOrder => Allowance::Sparingly,
            Allowance::Sparingly | Allowance::Nothing => Allowance::Nothing,
        };
    }
    // So many reclaims would waste what they free that nobody reclaims for a fair share; the rest goes on.
    let nobody = state.jobs.iter().map(|(job, _)| (job, Allowance::Nothing)).collect();
    kinds = all_kinds(state).collect();
    serve::all(grounds, &kinds, &nobody).into_plan()
}

impl Plan {
    /// The facts that make it so.
    pub fn events(&self, state: &State, now: Timestamp) -> Vec<Event> {
        assert!(self.basis == state.index(), "a plan is committed on the state it was made on");
        let released = |&job: &JobId| Event::Promises(PromisesEvent::Released { job, at: now });
        let mut events: Vec<Event> = self.released.iter().map(released).collect();
        let dropped = |&(job, why): &(JobId, Dropped)| {
            Event::Reservations(ReservationsEvent::Dropped { job, why, at: now })
        };
        events.extend(self.dropped.iter().map(dropped));
        for evicted in &self.evictions {
            evicted.events(state, now, &mut events);
        }
        let policy = state.tenants.version();
        for Start { job, tasks, chosen } in &self.starts {
            let attempt = state.jobs.get(*job).expect("a plan starts live jobs").past.attempts + 1;
            let (job, tasks, chosen) = (*job, tasks.clone(), *chosen);
            events.push(Event::Ledger(LedgerEvent::Started { job, attempt, tasks, policy, at: now, chosen }));
        }
        for Start { job, tasks, chosen: _ } in &self.grown {
            let (job, tasks) = (*job, tasks.clone());
            events.push(Event::Ledger(LedgerEvent::Grown { job, tasks, policy, at: now }));
        }
        for Start { job, tasks, chosen } in &self.promises {
            let (job, tasks, chosen) = (*job, tasks.clone(), *chosen);
            events.push(Event::Promises(PromisesEvent::Promised { job, tasks, policy, at: now, chosen }));
        }
        let reserved = self.reserved.iter().map(|(job, of)| Event::Reservations(of.event(*job)));
        events.extend(reserved);
        events
    }
}

impl Evicted {
    /// The receipt, then the ask; without a checkpoint contract, or before it runs, the stop.
    fn events(&self, state: &State, now: Timestamp, events: &mut Vec<Event>) {
        let Self { job, tasks, receipt } = self.clone();
        let Eviction { why, beneficiary, whole, .. } = receipt;
        let holding = state.ledger.holding(job).expect("who has to leave holds something");
        let spec = &state.jobs.get(job).expect("who has to leave is a live job").spec;
        let runs = |task: &u32| holding.task(*task).is_some_and(|task| task.phase == TaskPhase::Running);
        let (asked, stopped): (Vec<u32>, Vec<u32>) =
            tasks.iter().copied().partition(|task| spec.checkpoint.is_some() && runs(task));
        events.push(Event::Ledger(LedgerEvent::Evicted { job, tasks: tasks.clone(), receipt, at: now }));
        if whole {
            let next = Next::Requeue(RequeueWhy::Evicted);
            events.push(Event::Jobs(JobsEvent::Leaving { job, next, at: now, by: None }));
        }
        let policy = state.tenants.policy();
        if let Some(checkpoint) = spec.checkpoint.filter(|_| !asked.is_empty()) {
            // Work that was placed under another policy may have a longer grace than a guarantee waits for.
            let longest: Millis = policy.preemption.borrow_grace_max;
            let bound = if why == Why::Guarantee { longest } else { checkpoint.grace };
            let (by, deadline) = (Asker::Rules { why, beneficiary }, now + checkpoint.grace.min(bound));
            events.push(Event::Ledger(LedgerEvent::Asked { job, tasks: asked, by, deadline, at: now }));
        }
        // What has no contract, or does not run yet, has nothing to save.
        if !stopped.is_empty() {
            let deadline = now + policy.stop_grace;
            events.push(Event::Ledger(LedgerEvent::Stopping { job, tasks: stopped, deadline, at: now }));
        }
    }
}
