//! One cycle over the queue: a draft of the state, what each candidate is granted on it, and what has to leave for that.
//!
//! The steps are in [`super::run_cycle`]; here is what they work on. A *grant* is what one candidate was given for one ask; a
//! job's *allocation* is the sum of its grants in this cycle.

mod delta;
mod grant;
mod reservations;
mod serve;
mod window;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cell::RefCell;

use crate::model::placement::{ChosenPlace, Placement};
use crate::model::policy::Policy;
use crate::plan::draft::Draft;
use crate::plan::evict::moves::Move;
use crate::plan::evict::search::{Allowance, TakenUnit};
use crate::plan::evict::victims::{Unit, Victims};
use crate::plan::later::booked;
use crate::plan::later::reserve::{self, PlanContext, StartSearches};
use crate::plan::lines::{self, Pass};
use crate::plan::memory::Refusal;
use crate::plan::order::{Candidate, Queue, ServiceTurn};
use crate::plan::place::best::Worths;
use crate::plan::place::{Ask, PlacedTasks, groups, place};
use crate::plan::rank::{just_evicted, takes_landing_room};
use crate::quota::meters::Amounts;
use crate::quota::tree::Tree;
use crate::state::State;
use crate::state::ledger::Step;
use crate::state::ledger::event::{Eviction, EvictionRule};
use crate::state::reservations::Reservation;
use crate::units::{BookingId, GpuUnits, JobId, KindId, NodeId, Timestamp};
use reservations::CycleReservations;

/// What a plan is made of.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) state: &'a State,
    pub(super) policy: &'a Policy,
    pub(super) tree: &'a Tree,
    pub(super) shares: &'a Amounts,
    /// What earlier plans worked out of the worth of places.
    pub(super) worths: &'a RefCell<Worths>,
    /// For whom earlier plans looked for a start.
    pub(super) searches: &'a StartSearches,
    pub(super) now: Timestamp,
}

/// Jobs whose reclaim for a fair share, or by the order of their class, would leave more idle than it starts (rule 7), and how
/// far each of them may go in the next cycle.
#[derive(Default)]
pub(super) struct Restraint(BTreeMap<JobId, Allowance>);

impl Restraint {
    /// Nobody reclaims for a fair share.
    pub(super) fn of_everybody(state: &State) -> Self {
        Self(state.jobs.iter().map(|(job, _)| (job, Allowance::Nothing)).collect())
    }

    /// A job takes sparingly from now on; one that does so already takes nothing.
    pub(super) fn tighten(&mut self, job: JobId) {
        let next = match self.0.get(&job) {
            None | Some(Allowance::InOrder) => Allowance::Sparingly,
            Some(Allowance::Sparingly | Allowance::Nothing) => Allowance::Nothing,
        };
        self.0.insert(job, next);
    }

    fn binds(&self, job: JobId) -> bool {
        self.0.contains_key(&job)
    }

    fn allowance(&self, job: JobId) -> Allowance {
        self.0.get(&job).copied().unwrap_or(Allowance::InOrder)
    }
}

/// A draft on which every candidate has its turn.
pub(super) struct Cycle<'a> {
    inputs: Inputs<'a>,
    restraint: &'a Restraint,
    draft: Draft<'a>,
    queue: Queue<'a>,
    victims: Victims,
    allocations: Allocations,
    evictions: Vec<PlannedEviction>,
    /// Reclaims for a fair share or by order, to be judged when every candidate had its turn.
    reclaims: Vec<Reclaim>,
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
    /// So many of them start together.
    together: usize,
    /// Of the rest, so many at a time do; one by one where nothing is said.
    pieces: Vec<usize>,
    purpose: Purpose,
    /// Why the first of them goes where it does.
    chosen: Option<ChosenPlace>,
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

    /// A job that has to leave gets all of its new places.
    fn move_to(&mut self, job: JobId, tasks: Vec<Placement>, chosen: Option<ChosenPlace>) {
        let (together, pieces) = (tasks.len(), Vec::new());
        self.by_job.insert(job, Allocation { tasks, together, pieces, purpose: Purpose::Move, chosen });
        self.order.push(job);
    }

    /// A job gets what was asked for, beside what it was given before.
    fn add(
        &mut self,
        job: JobId,
        tasks: Vec<Placement>,
        purpose: Purpose,
        chosen: Option<ChosenPlace>,
        grouped: bool,
    ) {
        if !self.by_job.contains_key(&job) {
            self.order.push(job);
        }
        let together = tasks.len();
        let allocation = self.by_job.entry(job).or_insert_with(|| Allocation {
            tasks: Vec::new(),
            together,
            pieces: Vec::new(),
            purpose,
            chosen,
        });
        if grouped && !allocation.tasks.is_empty() {
            allocation.pieces.push(tasks.len());
        }
        allocation.tasks.extend(tasks);
    }
}

/// What has to leave, and for whom.
struct PlannedEviction {
    unit: Unit,
    receipt: Eviction,
}

struct Reclaim {
    job: JobId,
    started: u64,
    freed: Vec<Step>,
}

/// Jobs whose part in this plan is decided.
#[derive(Clone, Default)]
pub(super) struct Commitments {
    /// They were given places: they neither leave nor move.
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

    /// True when a job may be moved.
    pub(super) fn may_move(&self, job: JobId) -> bool {
        !self.given.contains(&job) && !self.leaving.contains(&job)
    }
}

/// What a candidate was given for one ask, and at whose expense.
struct Grant<'a> {
    ask: Ask<'a>,
    tasks: Vec<Placement>,
    chosen: Option<ChosenPlace>,
    taken: Vec<TakenUnit>,
    moved: Vec<Move>,
}

impl<'a> Grant<'a> {
    /// Nobody leaves or moves for it.
    fn free(ask: &Ask<'a>, PlacedTasks { tasks, chosen, .. }: PlacedTasks) -> Self {
        Self { ask: ask.clone(), tasks, chosen, taken: Vec::new(), moved: Vec::new() }
    }
}

impl<'a> Cycle<'a> {
    /// Nobody has had a turn yet. What windows keep for jobs that are not there counts as used.
    pub(super) fn on(inputs: Inputs<'a>, restraint: &'a Restraint) -> Self {
        let Inputs { state, policy, tree, shares, worths, now, searches: _ } = inputs;
        let mut draft = Draft::on(state, policy, tree, shares, now).with_worths(worths);
        let window_idle = booked::count_idle(&mut draft);
        Self {
            inputs,
            restraint,
            draft,
            queue: Queue::new(state),
            victims: Victims::default(),
            allocations: Allocations::default(),
            evictions: Vec::new(),
            reclaims: Vec::new(),
            commitments: Commitments::default(),
            refusals: BTreeMap::new(),
            retry_at: None,
            reservations: CycleReservations::default(),
            window_idle,
        }
    }

    /// Every job of these kinds that may start or grow now is a candidate.
    pub(super) fn gather_candidates(&mut self, kinds: &[KindId]) {
        let state = self.inputs.state;
        for kind in kinds {
            let known = state.jobs.waiting().get(kind).or_else(|| state.jobs.growing().get(kind));
            for candidate in
                known.into_iter().flat_map(|known| Candidate::all_of_kind(&self.draft, *kind, known))
            {
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

    /// A departure may leave room for those that were refused before.
    pub(super) fn reopen_refused(&mut self) {
        self.queue.reopen_all();
        self.refusals.clear();
    }

    /// A job that has to leave and finds room elsewhere is moved there.
    pub(super) fn relocate_evicted(&mut self) {
        let whole: Vec<JobId> = self
            .evictions
            .iter()
            .filter(|eviction| eviction.receipt.whole && eviction.receipt.why != EvictionRule::Move)
            .filter(|eviction| !eviction.unit.earmarked)
            .map(|eviction| eviction.unit.job)
            .collect();
        if whole.is_empty() {
            return;
        }
        // Not in a place that is reserved: there it might have to leave again.
        let withheld = self.withhold_all();
        for job in whole {
            if let Some(PlacedTasks { tasks, chosen, .. }) = self.another_place(job) {
                self.allocations.move_to(job, tasks, chosen);
            }
        }
        self.draft.vacate_all(&withheld);
    }

    fn another_place(&mut self, id: JobId) -> Option<PlacedTasks> {
        let job = self.draft.state.jobs.get(id).expect("what has to leave is a live job");
        let key = Box::new(job.key());
        let group = just_evicted(self.draft.policy, &job.spec);
        groups::minimum(self.draft.desk(), &key).into_iter().find_map(|ask| {
            if takes_landing_room(&self.draft, &group, &ask, Pass::Surplus) {
                return None;
            }
            let gates =
                [lines::limit_exceeded(&self.draft, &ask), lines::fixed_beyond(&mut self.draft, &ask)];
            if gates.iter().any(Option::is_some) {
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
        // Nobody knows yet when a job begins whose places are only set aside.
        let starts = self.allocations.iter().filter(|&(job, _)| self.starts_at_once(job));
        let starts: Vec<(JobId, Vec<Placement>)> = starts.map(|(job, of)| (job, of.tasks.clone())).collect();
        for (job, tasks) in starts {
            self.reservations.horizon.starts(&self.draft, job, &tasks);
        }
        let Inputs { shares, searches, .. } = self.inputs;
        let others = PlanContext { commitments: &self.commitments, shares, searches };
        let CycleReservations { horizon, review, .. } = &mut self.reservations;
        (self.reservations.made, self.reservations.searches) =
            reserve::make(&mut self.draft, horizon, review, others);
    }

    /// True when a job was given places on the draft that nobody has to leave.
    fn starts_at_once(&self, job: JobId) -> bool {
        let clear = |place: &Placement| self.draft.room(place.node).is_some_and(|room| room.is_clear(place));
        let allocation = self.allocations.get(job);
        allocation.is_some_and(|given| given.tasks.iter().take(given.together).all(clear))
    }

    /// How often somebody has to leave or is moved, so far.
    pub(super) fn evicted(&self) -> usize {
        self.evictions.len()
    }

    /// A job whose reclaim for a fair share or by order left more of what it freed idle than it started.
    pub(super) fn wasteful(&self) -> Option<JobId> {
        let wasteful = |reclaim: &&Reclaim| idle(&self.draft, &reclaim.freed) > reclaim.started;
        self.reclaims.iter().find(wasteful).map(|reclaim| reclaim.job)
    }
}

/// So much of what was freed is held by nobody, in 1/3000 of a GPU.
pub(super) fn idle(draft: &Draft<'_>, freed: &[Step]) -> u64 {
    let mut gpus: BTreeMap<(NodeId, usize), u64> = BTreeMap::new();
    for step in freed {
        for gpu in step.place.gpus.indexes() {
            *gpus.entry((step.place.node, gpu)).or_default() += step.place.units_each.parts();
        }
    }
    let left = gpus.iter().map(|(&(node, gpu), &freed)| {
        let room = draft.room(node).and_then(|room| room.gpus.get(gpu));
        let free = room.map_or(0, |gpu| 3000u64.saturating_sub(gpu.held.parts()));
        free.min(freed)
    });
    left.sum()
}
