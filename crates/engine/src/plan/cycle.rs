//! One cycle over the queue: a draft of the state, what each candidate is granted on it, and what has to leave for that.
//!
//! The steps are in [`super::run_cycle`]; here is what they work on. A *grant* is what one candidate was given for one ask; a
//! job's *allocation* is the sum of its grants in this cycle.

mod delta;
mod grant;
mod reservations;
mod serve;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::model::placement::{ChosenPlace, Placement};
use crate::plan::draft::Draft;
use crate::plan::evict::moves::Move;
use crate::plan::evict::search::{Allowance, EvictedUnit};
use crate::plan::evict::victims::{Unit, Victims};
use crate::plan::later::booked;
use crate::plan::later::kept;
use crate::plan::later::reserve;
use crate::plan::lines::{self, Pass};
use crate::plan::memory::{Memory, Refusal, Stamps};
use crate::plan::order::{Candidate, Queue, ServiceTurn};
use crate::plan::place::{Ask, PlacedTasks, place};
use crate::plan::rank::{just_evicted, takes_landing_room};
use crate::state::State;
use crate::state::ledger::Step;
use crate::state::ledger::event::{Eviction, EvictionRule};
use crate::state::reservations::Reservation;
use crate::units::{BookingId, GpuUnits, JobId, KindId, NodeId, Timestamp};
use reservations::CycleReservations;

/// How far jobs may go in the next cycle whose reclaim for a fair share, or by the order of their class, would leave more
/// idle than it starts (rule 7).
#[derive(Clone, Default)]
pub(super) struct Restraint(BTreeMap<JobId, Allowance>);

impl Restraint {
    /// No job reclaims for a fair share.
    pub(super) fn of_everybody(state: &State) -> Self {
        Self(state.jobs.iter().map(|(job, _)| (job, Allowance::Nothing)).collect())
    }

    /// A job evicts sparingly from now on; one that does so already evicts nothing.
    pub(super) fn tighten(&mut self, job: JobId) {
        let next = match self.allowance(job) {
            Allowance::InOrder => Allowance::Sparingly,
            Allowance::Sparingly | Allowance::Nothing => Allowance::Nothing,
        };
        self.0.insert(job, next);
    }

    fn allowance(&self, job: JobId) -> Allowance {
        self.0.get(&job).copied().unwrap_or(Allowance::InOrder)
    }
}

/// A draft on which every candidate has its turn.
pub(super) struct Cycle<'a> {
    draft: Draft<'a>,
    stamps: &'a Stamps<'a>,
    memory: &'a Memory,
    restraint: Restraint,
    queue: Queue<'a>,
    victims: Victims,
    allocations: Allocations,
    pub(super) evictions: Vec<PlannedEviction>,
    /// Reclaims for a fair share or by order, to be judged when every candidate had its turn.
    judged_by_idle: Vec<JudgedByIdle>,
    commitments: Commitments,
    refusals: BTreeMap<KindId, Refusal>,
    /// When time alone may let the candidate that is being served be met.
    retry_at: Option<Timestamp>,
    reservations: CycleReservations<'a>,
    /// What windows that have begun keep for jobs that are not there.
    window_idle: BTreeMap<BookingId, GpuUnits>,
}

/// What jobs were given, in the order in which they were first given something.
#[derive(Default)]
struct Allocations {
    by_job: BTreeMap<JobId, Allocation>,
    order: Vec<JobId>,
}

/// What a job was given on the draft.
struct Allocation {
    tasks: Vec<Placement>,
    /// How many of them each grant gave it. Those of one grant start together, those of the first before any other.
    grants: Vec<usize>,
    purpose: Purpose,
    /// Why the first of them goes where it does.
    chosen: Option<ChosenPlace>,
}

impl Allocation {
    /// True when nobody has to leave the places of its first grant.
    fn starts_at_once(&self, draft: &Draft<'_>) -> bool {
        self.tasks[..self.grants[0]].iter().all(|place| draft.is_clear(place))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The job waited.
    Start,
    /// It runs and gets more.
    Growth,
    /// It has to leave its old places first.
    Move,
}

impl Allocations {
    fn get(&self, job: JobId) -> Option<&Allocation> {
        self.by_job.get(&job)
    }

    fn iter(&self) -> impl Iterator<Item = (JobId, &Allocation)> {
        self.order.iter().map(|&job| (job, &self.by_job[&job]))
    }

    /// A job gets these places beside what it was given before.
    fn add(&mut self, job: JobId, tasks: Vec<Placement>, purpose: Purpose, chosen: Option<ChosenPlace>) {
        let allocation = self.by_job.entry(job).or_insert_with(|| {
            self.order.push(job);
            Allocation { tasks: Vec::new(), grants: Vec::new(), purpose, chosen }
        });
        allocation.grants.push(tasks.len());
        allocation.tasks.extend(tasks);
    }
}

/// What has to leave, and for whom.
pub(super) struct PlannedEviction {
    unit: Unit,
    receipt: Eviction,
}

/// What left for a fair share or by order: judged once every candidate had its turn (rule 7).
struct JudgedByIdle {
    job: JobId,
    /// What it starts, in 1/3000 of a GPU.
    started: u64,
    freed: Vec<Step>,
}

/// Jobs whose part in this plan is decided.
#[derive(Clone, Default)]
pub(super) struct Commitments {
    /// They were given places, or have to leave for a reservation: nothing more is evicted or moved of them.
    pub(super) given: BTreeSet<JobId>,
    /// They have to leave, or to give up tasks: they do not move.
    pub(super) leaving: BTreeSet<JobId>,
}

impl Commitments {
    /// The same with more jobs that have to leave.
    pub(super) fn with_leaving(&self, more: impl Iterator<Item = JobId>) -> Self {
        let mut commitments = self.clone();
        commitments.leaving.extend(more);
        commitments
    }

    /// True while a reserved start is neither kept on the draft nor on its way.
    pub(super) fn awaits(&self, draft: &Draft<'_>, of: &Reservation) -> bool {
        !self.given.contains(&of.job) && draft.state.earmarks.of(of.job).is_none()
    }

    pub(super) fn may_move(&self, job: JobId) -> bool {
        !self.given.contains(&job) && !self.leaving.contains(&job)
    }
}

/// What a candidate was given for one ask, and at whose expense.
struct Grant<'a> {
    ask: Ask<'a>,
    tasks: Vec<Placement>,
    chosen: Option<ChosenPlace>,
    evicted: Vec<EvictedUnit>,
    moved: Vec<Move>,
}

impl<'a> Grant<'a> {
    /// Nobody leaves or moves for it.
    fn new(ask: &Ask<'a>, tasks: Vec<Placement>) -> Self {
        Self { ask: ask.clone(), tasks, chosen: None, evicted: Vec::new(), moved: Vec::new() }
    }

    fn of_placed(ask: &Ask<'a>, PlacedTasks { tasks, chosen, .. }: PlacedTasks) -> Self {
        Self { chosen, ..Self::new(ask, tasks) }
    }
}

impl<'a> Cycle<'a> {
    /// Nobody has had a turn yet. What windows keep for jobs that are not there counts as used.
    pub(super) fn on(
        mut draft: Draft<'a>,
        stamps: &'a Stamps<'a>,
        memory: &'a Memory,
        restraint: Restraint,
    ) -> Self {
        draft.worths = Some(&memory.worths);
        let window_idle = booked::count_idle(&mut draft);
        Self {
            queue: Queue::new(draft.state),
            draft,
            stamps,
            memory,
            restraint,
            victims: Victims::default(),
            allocations: Allocations::default(),
            evictions: Vec::new(),
            judged_by_idle: Vec::new(),
            commitments: Commitments::default(),
            refusals: BTreeMap::new(),
            retry_at: None,
            reservations: CycleReservations::default(),
            window_idle,
        }
    }

    /// Every job of these kinds that may start or grow now is a candidate.
    pub(super) fn gather_candidates(&mut self, kinds: &[KindId]) {
        let state = self.draft.state;
        for &kind in kinds {
            let known = state.jobs.waiting().get(&kind).or_else(|| state.jobs.growing().get(&kind));
            let candidates = known.map(|known| Candidate::all_of_kind(&self.draft, kind, known));
            for candidate in candidates.into_iter().flatten() {
                self.queue.add(state, candidate);
            }
        }
    }

    /// Serves every candidate of a turn, the neediest tenant's first.
    pub(super) fn serve_candidates(&mut self, turn: ServiceTurn) {
        self.queue.begin(&mut self.draft, turn);
        while let Some(at) = self.queue.next(&self.draft) {
            let candidate = self.queue.get(at);
            let mut touched = alloc::vec![candidate.key.tenant];
            if candidate.more.is_some() && self.commitments.leaving.contains(&candidate.first.1) {
                // A job that has to give up tasks in this plan gets none in it.
                self.queue.served(at);
            } else {
                match self.serve(at, turn) {
                    Ok(grant) => touched.extend(self.record(at, grant)),
                    Err(asks) => self.queue.refused(at, &asks),
                }
            }
            touched.sort_unstable();
            touched.dedup();
            for tenant in touched {
                self.queue.touch(&mut self.draft, tenant);
            }
        }
    }

    /// A departure may leave room for candidates that were refused before.
    pub(super) fn reopen_refused(&mut self) {
        self.queue.reopen_all();
        self.refusals.clear();
    }

    /// A job that has to leave and finds room elsewhere is moved there.
    pub(super) fn relocate_evicted(&mut self) {
        let leaving = self.evictions.iter().filter(|PlannedEviction { unit, receipt }| {
            receipt.whole && receipt.why != EvictionRule::Move && !unit.earmarked
        });
        let jobs: Vec<JobId> = leaving.map(|eviction| eviction.unit.job).collect();
        if jobs.is_empty() {
            return;
        }
        // Not in a place that is reserved: there it might have to leave again.
        let (draft, starts) = (&mut self.draft, &self.reservations.review.kept);
        let withheld = kept::withhold_all(draft, starts, &self.commitments);
        for job in jobs {
            if let Some(PlacedTasks { tasks, chosen, .. }) = self.relocate(job) {
                self.allocations.add(job, tasks, Purpose::Move, chosen);
            }
        }
        self.draft.vacate_all(&withheld);
    }

    fn relocate(&mut self, id: JobId) -> Option<PlacedTasks> {
        let job = self.draft.state.jobs.get(id).expect("a job that has to leave is live");
        let key = job.key();
        let group = just_evicted(self.draft.policy, &job.spec);
        self.draft.asks().minimum(&key).into_iter().find_map(|ask| {
            if takes_landing_room(&self.draft, &group, &ask, Pass::Surplus).is_some()
                || lines::barred_by(&mut self.draft, &ask).is_some()
            {
                return None;
            }
            let placed = place(&mut self.draft, &ask)?;
            self.draft.count(lines::work_group(&key), ask.total(), true);
            Some(placed)
        })
    }

    /// Blocked jobs are promised the earliest start that can be kept, beside what was granted in this cycle.
    pub(super) fn promise_starts(&mut self) {
        if self.draft.policy.reservations_max == 0 {
            return;
        }
        // Nobody knows yet when a job begins that only gets an earmark.
        let starts = self.allocations.iter().filter(|(_, given)| given.starts_at_once(&self.draft));
        for (job, given) in starts {
            self.reservations.horizon.starts(&self.draft, job, &given.tasks);
        }
        let CycleReservations { horizon, review, .. } = &mut self.reservations;
        let (commitments, earlier) = (&self.commitments, &self.memory.start_searches);
        (self.reservations.made, self.reservations.searches) =
            reserve::make(&mut self.draft, horizon, review, commitments, earlier);
    }

    /// A job whose reclaim for a fair share or by order left more of what it freed idle than it started.
    pub(super) fn wasteful(&self) -> Option<JobId> {
        let wasteful = |judged: &&JudgedByIdle| idle_of(&self.draft, &judged.freed) > judged.started;
        self.judged_by_idle.iter().find(wasteful).map(|judged| judged.job)
    }
}

/// How much of what was freed is held by nobody, in 1/3000 of a GPU.
pub(super) fn idle_of(draft: &Draft<'_>, freed: &[Step]) -> u64 {
    let mut gpus: BTreeMap<(NodeId, usize), u64> = BTreeMap::new();
    for Step { place, .. } in freed {
        for gpu in place.gpus.indexes() {
            *gpus.entry((place.node, gpu)).or_default() += place.units_each.parts();
        }
    }
    let idle = gpus.iter().map(|(&(node, gpu), &freed)| {
        let room = draft.room(node).and_then(|room| room.gpus.get(gpu));
        let free = room.map_or(0, |gpu| GpuUnits::WHOLE.parts().saturating_sub(gpu.held.parts()));
        free.min(freed)
    });
    idle.sum()
}
