//! The plan: what changes now.
//!
//! [`plan`] makes it and [`run_cycle`] has its steps, numbered. Candidates are served in three passes, as in rule 3: within
//! guarantee, within fair share, surplus. In each, the next candidate is a kind of the tenant that is served first; its
//! first job gets what it asks for on a draft, all of it or nothing. A kind that does not fit is refused once for all jobs
//! alike, with what would lift the refusal, and is not tried again until then. The plan is the difference between the
//! state and the end of the draft.
//!
//! Three loops go over the same ground again, each for a reason that the one inside it cannot see:
//! - in [`run_cycle`] the passes begin again when somebody has to leave, because a departure may make room for
//!   candidates that were refused before, also in an earlier pass;
//! - in [`plan`] a cycle is run again when a departure may lift a refusal that is only remembered, or when a reclaim for
//!   a fair share turns out to be wasteful once every candidate had its turn (rule 7): it is then restrained;
//! - in the controller's turn a plan is made again on the state that it led to, because some facts become true by a
//!   commit alone: earmarks that are released, windows that begin.

mod cycle;
pub(crate) mod draft;
pub(crate) mod evict;
pub(crate) mod later;
pub(crate) mod lines;
pub(crate) mod memory;
pub(crate) mod order;
pub(crate) mod place;
pub(crate) mod rank;

use alloc::vec::Vec;

use crate::model::placement::{ChosenPlace, Placement};
use crate::model::policy::Policy;
use crate::plan::memory::{Stamps, all_kinds};
use crate::state::State;
use crate::state::earmarks::{Earmark, EarmarksEvent};
use crate::state::event::Event;
use crate::state::holding::TaskPhase;
use crate::state::jobs::event::{JobsEvent, Next, RequeueWhy};
use crate::state::ledger::event::{Asker, Eviction, EvictionRule, LedgerEvent};
use crate::state::reservations::{DropReason, Reservation, ReservationsEvent};
use crate::units::{JobId, KindId, Timestamp};

use cycle::{Cycle, Restraint};
use draft::Draft;
pub use later::reserve::StartSearches;
pub use later::reserve::Unreserved;
pub use lines::Pass;
pub use memory::{Memory, Refusal};
use order::ServiceTurn;
pub use rank::rank;

/// The most cycles of one plan: each but the last was run again because a reclaim left more idle than it started.
const CYCLES_MAX: usize = 64;

/// What changes now, made on the state after `basis` events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub basis: u64,
    /// Jobs that lose their earmark to a guarantee.
    pub released: Vec<JobId>,
    /// In the order in which it was decided.
    pub evictions: Vec<EvictedJob>,
    pub starts: Vec<Start>,
    /// Running jobs that get more tasks now.
    pub grown: Vec<Start>,
    /// Jobs that get their places when those who leave are gone.
    pub earmarks: Vec<Start>,
    /// Reservations that cannot be kept.
    pub dropped: Vec<(JobId, DropReason)>,
    pub reserved: Vec<Reservation>,
    /// Kinds that were tried and do not fit.
    pub refusals: Vec<(KindId, Refusal)>,
    pub start_searches: StartSearches,
}

/// A job that gets places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    pub job: JobId,
    pub tasks: Vec<Placement>,
    /// Why the first of them goes there, where places have prices.
    pub chosen: Option<ChosenPlace>,
}

/// Tasks of a job that have to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictedJob {
    pub job: JobId,
    pub tasks: Vec<u32>,
    pub receipt: Eviction,
}

/// What changes now. Kinds whose last refusal still holds are not tried again.
pub fn plan(state: &State, policy: &Policy, memory: &Memory, now: Timestamp) -> Plan {
    if memory.nothing_changed(state, now) {
        return Plan { basis: state.index(), ..Plan::default() };
    }
    let tree = state.tree(policy);
    let shares = state.fair_shares(&tree);
    let stamps = Stamps::new(state, &shares);
    let run = |kinds: &[KindId], restraint: &Restraint| {
        let draft = Draft::on(state, policy, &tree, &shares, now);
        run_cycle(Cycle::on(draft, &stamps, memory, restraint.clone()), kinds)
    };
    let mut kinds = memory.worth_trying(&stamps, now);
    let mut restraint = Restraint::default();
    for _ in 0..CYCLES_MAX {
        let cycle = run(&kinds, &restraint);
        // A departure may lift any refusal: then nothing that is remembered counts.
        if !cycle.evictions.is_empty() && kinds.len() < all_kinds(state).count() {
            kinds = all_kinds(state).collect();
            continue;
        }
        match cycle.wasteful() {
            None => return cycle.into_plan(),
            Some(job) => restraint.tighten(job),
        }
    }
    // So many reclaims would waste what they free that nobody reclaims for a fair share; the rest goes on.
    kinds = all_kinds(state).collect();
    run(&kinds, &Restraint::of_everybody(state)).into_plan()
}

/// One cycle over the queue, on a draft of the state.
fn run_cycle<'a>(mut cycle: Cycle<'a>, kinds: &[KindId]) -> Cycle<'a> {
    // 1. `Cycle::on` has drafted the state, with what booked windows keep.
    // 2. Review the reservations: those that cannot be kept are dropped.
    cycle.review_reservations();
    // 3. Gather the candidates; the queue keeps them in the order of rule 3.
    cycle.gather_candidates(kinds);
    // 4. Serve them pass by pass, each from what is free, by moves, or by reclaim and preemption.
    let mut turns = ServiceTurn::ALL.iter();
    while let Some(turn) = turns.next() {
        let evictions = cycle.evictions.len();
        // 5. Guarantees are served first; everybody else after the jobs whose reserved start has come.
        if turn.pass == Pass::WithinFairShare {
            cycle.keep_reservations();
        }
        cycle.serve_candidates(*turn);
        if cycle.evictions.len() > evictions {
            cycle.reopen_refused();
            turns = ServiceTurn::ALL.iter();
        }
    }
    // 6. Relocate evicted jobs to where there is room for them.
    cycle.relocate_evicted();
    // 7. Drop reservations whose time has come and that could not be kept; promise starts to blocked jobs.
    cycle.drop_late_reservations();
    cycle.promise_starts();
    // 8. The caller derives the delta: `Cycle::into_plan`.
    cycle
}

impl Plan {
    /// The events that make it so.
    pub fn events(&self, state: &State, now: Timestamp) -> Vec<Event> {
        assert!(self.basis == state.index(), "a plan is committed on the state it was made on");
        let mut events = Vec::new();
        let (at, policy) = (now, state.tenants.version());
        events.extend(self.released.iter().map(|&job| Event::Earmarks(EarmarksEvent::Released { job, at })));
        let dropped = self.dropped.iter().map(|&(job, why)| ReservationsEvent::Dropped { job, why, at });
        events.extend(dropped.map(Event::Reservations));
        for evicted in &self.evictions {
            evicted.add_events(state, now, &mut events);
        }
        events.extend(self.starts.iter().cloned().map(|Start { job, tasks, chosen }| {
            let attempt = state.jobs.get(job).expect("a plan starts live jobs").past.attempts + 1;
            Event::Ledger(LedgerEvent::Started { job, attempt, tasks, policy, at, chosen })
        }));
        events.extend(self.grown.iter().cloned().map(|Start { job, tasks, chosen: _ }| {
            Event::Ledger(LedgerEvent::Grown { job, tasks, policy, at })
        }));
        events.extend(self.earmarks.iter().cloned().map(|Start { job, tasks, chosen }| {
            Event::Earmarks(EarmarksEvent::Earmarked(Earmark { job, tasks, policy, at, chosen }))
        }));
        let reserved = self.reserved.iter().cloned().map(ReservationsEvent::Reserved);
        events.extend(reserved.map(Event::Reservations));
        events
    }
}

impl EvictedJob {
    /// The receipt, then the ask; without a checkpoint contract, or before it runs, the stop.
    fn add_events(&self, state: &State, now: Timestamp, events: &mut Vec<Event>) {
        let Self { job, tasks, receipt } = self.clone();
        let Eviction { why, beneficiary, whole, .. } = receipt;
        let holding = state.ledger.holding(job).expect("a job that has to leave holds something");
        let spec = &state.jobs.get(job).expect("a job that has to leave is live").spec;
        let runs = |task: &u32| holding.task(*task).is_some_and(|task| task.phase == TaskPhase::Running);
        let (asked, stopped): (Vec<u32>, Vec<u32>) =
            tasks.iter().partition(|task| spec.checkpoint.is_some() && runs(task));
        events.push(Event::Ledger(LedgerEvent::Evicted { job, tasks, receipt, at: now }));
        if whole {
            let next = Next::Requeue(RequeueWhy::Evicted);
            events.push(Event::Jobs(JobsEvent::Leaving { job, next, at: now, by: None }));
        }
        let policy = state.tenants.policy();
        if let Some(checkpoint) = spec.checkpoint.filter(|_| !asked.is_empty()) {
            // Work that was placed under another policy may have a longer grace than a guarantee waits for.
            let guaranteed = why == EvictionRule::Guarantee;
            let longest = if guaranteed { policy.preemption.borrow_grace_max } else { checkpoint.grace };
            let (by, deadline) = (Asker::Rules { why, beneficiary }, now + checkpoint.grace.min(longest));
            events.push(Event::Ledger(LedgerEvent::Asked { job, tasks: asked, by, deadline, at: now }));
        }
        // What has no contract, or does not run yet, has nothing to save.
        if !stopped.is_empty() {
            let deadline = now + policy.stop_grace;
            events.push(Event::Ledger(LedgerEvent::Stopping { job, tasks: stopped, deadline, at: now }));
        }
    }
}
