//! Serving the queue on a draft: the passes of rule 3, and what each candidate is given.

mod booked;
mod outcome;
mod record;
mod reserved;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cell::RefCell;

use crate::model::placement::{Chosen, Placement};
use crate::model::policy::{Policy, Within};
use crate::plan::draft::{Draft, Mark};
use crate::plan::evict::moves::{Moved, enough_in_pieces, place_by_moving};
use crate::plan::evict::reclaim::{Allowance, Asker, Taken, gain, make_room, price_changes_at};
use crate::plan::evict::victims::{Unit, Victims};
use crate::plan::later::reserve::{self, Horizon, Looked, Others, Reserved};
use crate::plan::lines::{self, Pass};
use crate::plan::memory::{Obstacles, Refusal, earlier};
use crate::plan::order::{Candidate, Queue, Turn};
use crate::plan::place::best::Worths;
use crate::plan::place::{Ask, Placed, groups, place, place_where_best};
use crate::plan::rank::{claim, just_evicted, takes_landing_room};
use crate::quota::meters::Amounts;
use crate::quota::tree::Tree;
use crate::state::State;
use crate::state::ledger::Step;
use crate::state::ledger::event::{Eviction, Why};
use crate::state::reservations::Reservation;
use crate::units::{BookingId, GpuUnits, JobId, KindId, NodeId, Timestamp};
use reserved::Held;

/// A draft on which everybody had their turn.
pub(super) struct Served<'a> {
    draft: Draft<'a>,
    victims: Victims,
    queue: Queue<'a>,
    begun: BTreeMap<JobId, Begun>,
    order: Vec<JobId>,
    evictions: Vec<Leaving>,
    reclaims: Vec<Reclaim>,
    refusals: BTreeMap<KindId, Refusal>,
    settled: Settled,
    kept_back: &'a BTreeMap<JobId, Allowance>,
    shares: &'a Amounts,
    /// When somebody who may not be taken yet may be.
    ripens_at: Option<Timestamp>,
    reserved: Reserved<'a>,
    /// Promised places on nodes that have room, until somebody has to leave.
    free_promised: Option<Vec<(usize, Vec<Step>)>>,
    made: Vec<(JobId, Reservation)>,
    /// What windows that have begun keep for jobs that are not there.
    idle: BTreeMap<BookingId, GpuUnits>,
    looked: Looked,
}

/// What a job was given on the draft.
struct Begun {
    tasks: Vec<Placement>,
    /// So many of them start together.
    together: usize,
    /// Of the rest, so many at a time do; one by one where nothing is said.
    pieces: Vec<usize>,
    how: How,
    /// Why the first of them goes where it does.
    chosen: Option<Chosen>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// It waited.
    Starts,
    /// It runs and gets more.
    Grows,
    /// It has to leave its old places first.
    Moves,
}

/// What has to leave, and for whom.
struct Leaving {
    unit: Unit,
    receipt: Eviction,
}

/// A reclaim for a fair share or by order, to be judged when everybody had their turn.
struct Reclaim {
    job: JobId,
    started: u64,
    freed: Vec<Step>,
}

/// Whose part in this plan is decided.
#[derive(Clone, Default)]
pub(super) struct Settled {
    /// They were given places: they neither leave nor move.
    pub(super) given: BTreeSet<JobId>,
    /// They have to leave, or to give up tasks: they do not move.
    pub(super) leaving: BTreeSet<JobId>,
}

impl Settled {
    /// The same with more who have to leave.
    pub(super) fn with_leaving(&self, more: impl Iterator<Item = JobId>) -> Self {
        let mut settled = self.clone();
        settled.leaving.extend(more);
        settled
    }

    /// True when a job may be moved.
    pub(super) fn may_move(&self, job: JobId) -> bool {
        !self.given.contains(&job) && !self.leaving.contains(&job)
    }
}

/// How an ask was met.
struct Met<'a> {
    ask: Ask<'a>,
    tasks: Vec<Placement>,
    chosen: Option<Chosen>,
    taken: Vec<Taken>,
    moved: Vec<Moved>,
}

/// What a plan is made on.
#[derive(Clone, Copy)]
pub(super) struct Grounds<'a> {
    pub(super) state: &'a State,
    pub(super) policy: &'a Policy,
    pub(super) tree: &'a Tree,
    pub(super) shares: &'a Amounts,
    pub(super) worths: &'a RefCell<Worths>,
    pub(super) looked: &'a Looked,
    pub(super) now: Timestamp,
}

/// Everybody has their turn on a draft.
pub(super) fn all<'a>(
    grounds: Grounds<'a>,
    kinds: &[KindId],
    kept_back: &'a BTreeMap<JobId, Allowance>,
) -> Served<'a> {
    let Grounds { state, policy, tree, shares, worths, looked, now } = grounds;
    let mut draft = Draft::on(state, policy, tree, shares, now).with_worths(worths);
    let idle = crate::plan::later::booked::count_idle(&mut draft);
    let mut horizon = Horizon::default();
    let reserved = reserve::review(&mut draft, &mut horizon);
    let candidates = kinds.iter().flat_map(|&kind| candidates(&draft, kind)).collect();
    let queue = Queue::new(state, candidates);
    let mut served = Served {
        draft,
        victims: Victims::default(),
        queue,
        begun: BTreeMap::new(),
        order: Vec::new(),
        evictions: Vec::new(),
        reclaims: Vec::new(),
        refusals: BTreeMap::new(),
        settled: Settled::default(),
        kept_back,
        shares,
        ripens_at: None,
        reserved,
        free_promised: None,
        made: Vec::new(),
        idle,
        looked: Looked::default(),
    };
    served.run();
    served.drop_late();
    served.promise(horizon, looked);
    served
}

fn candidates<'a>(draft: &Draft<'a>, kind: KindId) -> Vec<Candidate<'a>> {
    let jobs = &draft.state.jobs;
    let known = jobs.waiting().get(&kind).or_else(|| jobs.growing().get(&kind));
    known.map(|known| Candidate::all_of_kind(draft, kind, known)).unwrap_or_default()
}

impl<'a> Served<'a> {
    fn run(&mut self) {
        'again: loop {
            for turn in Turn::ALL {
                let leaving = self.evictions.len();
                // Guarantees are served first; everybody else after those whose promised time has come.
                if turn.pass == Pass::WithinFairShare {
                    self.keep_reserved();
                }
                self.take_turn(turn);
                if self.evictions.len() > leaving {
                    // Who leaves may leave room for those who were refused before.
                    self.queue.reopen_all();
                    self.refusals.clear();
                    continue 'again;
                }
            }
            break;
        }
        self.place_evicted_again();
    }

    /// Who is promised a start, beside what was given in this plan.
    fn promise(&mut self, mut horizon: Horizon, looked: &Looked) {
        if self.draft.policy.reservations_max == 0 {
            return;
        }
        // Of what is only set aside nobody knows yet when it begins.
        for job in self.order.iter().filter(|&&job| self.starts_at_once(job)) {
            horizon.starts(&self.draft, *job, &self.begun[job].tasks);
        }
        let others = Others { settled: &self.settled, shares: self.shares, looked };
        (self.made, self.looked) = reserve::make(&mut self.draft, &mut horizon, &self.reserved, others);
    }

    fn take_turn(&mut self, turn: Turn) {
        self.queue.begin(&mut self.draft, turn);
        while let Some(at) = self.queue.next(&self.draft) {
            let candidate = self.queue.get(at);
            let mut touched = alloc::vec![candidate.key.tenant];
            if candidate.more.is_some() && self.settled.leaving.contains(&candidate.first.1) {
                // Who has to give up tasks in this plan gets none in it.
                self.queue.served(at);
                self.queue.touch(&mut self.draft, touched[0]);
                continue;
            }
            match self.serve(at, turn) {
                Ok(met) => touched.extend(self.record(at, met)),
                Err(asks) => self.queue.refused(at, &asks),
            }
            touched.sort_unstable();
            touched.dedup();
            for tenant in touched {
                self.queue.touch(&mut self.draft, tenant);
            }
        }
    }

    /// Gives a candidate what it asks for, from the cheapest source that will do; or names the pools that will not.
    fn serve(&mut self, at: usize, turn: Turn) -> Result<Met<'a>, Vec<Ask<'a>>> {
        let mut asks = self.queue.get(at).asks(&mut self.draft, turn);
        let first_task = self.first_task(at);
        for (ask, _) in &mut asks {
            ask.first_task = first_task;
        }
        let mut obstacles = Obstacles::default();
        self.ripens_at = None;
        if let Some(booking) = self.queue.get(at).key.booking {
            return self.serve_in_window(at, booking, asks);
        }
        let (mut open, mut beyond) = (Vec::new(), Vec::new());
        let group = self.queue.get(at).group;
        for (ask, pass) in asks {
            if takes_landing_room(&self.draft, &group, &ask, pass) {
                for part in ask.parts() {
                    obstacles.add(part.pool(), pass, None);
                }
                beyond.push(ask);
                continue;
            }
            match lines::fixed_beyond(&mut self.draft, &ask) {
                Some(tenant) => {
                    obstacles.fixed.push((ask.pool(), tenant));
                    beyond.push(ask);
                }
                None => open.push((ask, pass)),
            }
        }
        if let Some(met) = self.meet(at, &open) {
            self.draft.count(lines::standing_of(met.ask.key), met.ask.total(), true);
            return Ok(met);
        }
        for (ask, pass) in &open {
            let limit = lines::limit_passed(&self.draft, ask);
            for part in ask.parts() {
                obstacles.add(part.pool(), *pass, limit);
            }
            obstacles.others |= self.others_matter(at, ask);
        }
        self.refuse(at, obstacles);
        Err(open.into_iter().map(|(ask, _)| ask).chain(beyond).collect())
    }

    /// From what is free, by moving others, or by making others leave; beside what was promised to somebody else.
    fn meet(&mut self, at: usize, open: &[(Ask<'a>, Pass)]) -> Option<Met<'a>> {
        let before = self.draft.mark();
        let unfit = self.hold_reserved(at, open, Held::Free);
        let met = self.by_what_is_free(open);
        self.let_go_of(unfit);
        let fills_later = met.as_ref().is_some_and(|met| self.fills_later(at, open, &met.tasks));
        if fills_later {
            self.draft.roll_back(before);
            let all = self.hold_reserved(at, open, Held::All);
            let met = self.by_what_is_free(open);
            self.let_go_of(all);
            return met;
        }
        if met.is_some() {
            return met;
        }
        let mark = self.draft.mark();
        let met = self.by_others(at, open);
        // Mostly it does not go even without regard to what is promised, and that costs far less to see.
        let Some(without_regard) = met.as_ref().filter(|_| self.keeps_places()) else {
            return met;
        };
        self.undo(mark, without_regard);
        let all = self.hold_reserved(at, open, Held::All);
        let met = self.by_others(at, open);
        self.let_go_of(all);
        met
    }

    /// True when there are places that not everybody may have.
    fn keeps_places(&self) -> bool {
        let state = self.draft.state;
        !self.reserved.kept.is_empty() || !state.bookings.is_empty() || !state.maintenance.is_empty()
    }

    fn by_others(&mut self, at: usize, open: &[(Ask<'a>, Pass)]) -> Option<Met<'a>> {
        self.by_moving(at, open).or_else(|| self.by_taking(at, open))
    }

    fn undo(&mut self, mark: Mark, met: &Met<'_>) {
        met.taken.iter().for_each(|taken| self.victims.spare(taken.unit));
        self.draft.roll_back(mark);
    }

    /// True when who starts later could be moved for the ask, or could make somebody else free to be taken for it.
    fn others_matter(&mut self, at: usize, ask: &Ask<'_>) -> bool {
        let rules = &self.draft.policy.preemption;
        let may_move = rules.moves_max > 0 && !self.queue.get(at).is_surplus();
        let mut gives_way =
            || lines::below(&mut self.draft, &lines::standing_of(ask.key)).iter().any(|&part| part > 0);
        rules.within != Within::Project || (may_move && (gives_way() || enough_in_pieces(&self.draft, ask)))
    }

    fn first_task(&self, at: usize) -> u32 {
        let candidate = self.queue.get(at);
        let job = candidate.first.1;
        let begun = self.begun.get(&job).and_then(|begun| begun.tasks.last());
        if let Some(last) = begun {
            return last.task + 1;
        }
        let holding = self.draft.state.ledger.holding(job).filter(|_| candidate.more.is_some());
        holding.map_or(0, crate::state::holding::Holding::next_task)
    }

    fn refuse(&mut self, at: usize, obstacles: Obstacles) {
        let candidate = self.queue.get(at);
        let Some(kind) = candidate.kind else { return };
        let retry_at = earlier(self.ripens_at, candidate.changes_at);
        let ordered = self.draft.policy.orders.beyond_age(candidate.key.class).is_some();
        // Whether its reclaim is wasteful depends on all that waits: whatever comes could lift that.
        if self.kept_back.contains_key(&candidate.first.1) {
            let known = self.refusals.remove(&kind);
            if ordered {
                self.refusals.insert(kind, Refusal::until(retry_at, known));
            }
            return;
        }
        let state = self.draft.state;
        let refusal = Refusal::new(state, candidate.key.tenant, obstacles, self.shares, retry_at);
        // Who comes later may stand before those who were refused.
        let refusal = if ordered { refusal.while_in_order(state, kind, candidate) } else { refusal };
        match self.refusals.get_mut(&kind) {
            Some(known) => known.add(refusal),
            None => {
                self.refusals.insert(kind, refusal);
            }
        }
    }

    fn by_what_is_free(&mut self, asks: &[(Ask<'a>, Pass)]) -> Option<Met<'a>> {
        if self.draft.state.demand.tables().is_some() {
            return self.by_worth(asks);
        }
        asks.iter().find_map(|(ask, _)| {
            if lines::limit_passed(&self.draft, ask).is_some() {
                return None;
            }
            let Placed { tasks, chosen, .. } = place(&mut self.draft, ask)?;
            Some(Met { ask: ask.clone(), tasks, chosen, taken: Vec::new(), moved: Vec::new() })
        })
    }

    /// Alternatives in order; of each the pools in the better pass first; among those, wherever the place is missed
    /// least.
    fn by_worth(&mut self, asks: &[(Ask<'a>, Pass)]) -> Option<Met<'a>> {
        let passes = [Pass::WithinGuarantee, Pass::WithinFairShare, Pass::Surplus];
        asks.chunk_by(|(one, _), (other, _)| one.differs_in_pool_alone(other)).find_map(|alike| {
            passes.into_iter().find_map(|pass| {
                let open = alike.iter().filter(|(_, of)| *of == pass).map(|(ask, _)| ask);
                let open: Vec<&Ask<'a>> =
                    open.filter(|ask| lines::limit_passed(&self.draft, ask).is_none()).collect();
                let (ask, Placed { tasks, chosen, .. }) = place_where_best(&mut self.draft, &open)?;
                Some(Met { ask: ask.clone(), tasks, chosen, taken: Vec::new(), moved: Vec::new() })
            })
        })
    }

    fn by_moving(&mut self, at: usize, asks: &[(Ask<'a>, Pass)]) -> Option<Met<'a>> {
        if self.queue.get(at).is_surplus() {
            return None;
        }
        asks.iter().find_map(|(ask, pass)| {
            if lines::limit_passed(&self.draft, ask).is_some() {
                return None;
            }
            let asker = self.asker(at, *pass);
            let mark = self.draft.mark();
            let (draft, ripens_at) = (&mut self.draft, &mut self.ripens_at);
            let (tasks, moved) = place_by_moving(draft, ask, asker, &self.settled, ripens_at)?;
            let units: Vec<&Unit> = moved.iter().map(|moved| &moved.unit).collect();
            let cost: u64 = units.iter().map(|unit| unit.cost).fold(0, u64::saturating_add);
            if gain(&self.draft, ask, &units) <= cost {
                self.ripens_at = earlier(self.ripens_at, price_changes_at(&self.draft, &units));
                self.draft.roll_back(mark);
                return None;
            }
            Some(Met { ask: ask.clone(), tasks, chosen: None, taken: Vec::new(), moved })
        })
    }

    fn by_taking(&mut self, at: usize, asks: &[(Ask<'a>, Pass)]) -> Option<Met<'a>> {
        // Growth of what starts at once is not set aside with it: nobody leaves for it before the next plan.
        if self.starts_at_once(self.queue.get(at).first.1) {
            return None;
        }
        asks.iter().find_map(|(ask, pass)| {
            let asker = self.asker(at, *pass);
            let (draft, victims) = (&mut self.draft, &mut self.victims);
            let taken = make_room(draft, victims, ask, asker, &self.settled, &mut self.ripens_at)?;
            if let Some(Placed { tasks, chosen, .. }) = place(draft, ask) {
                return Some(Met { ask: ask.clone(), tasks, chosen, taken, moved: Vec::new() });
            }
            let settled = self.settled.with_leaving(taken.iter().map(|taken| victims.get(taken.unit).job));
            let placed = place_by_moving(draft, ask, asker, &settled, &mut self.ripens_at);
            let (tasks, moved) = placed.expect("room was made for all that is asked for");
            Some(Met { ask: ask.clone(), tasks, chosen: None, taken, moved })
        })
    }

    /// True when a job was given places on the draft that nobody has to leave.
    fn starts_at_once(&self, job: JobId) -> bool {
        let clear = |place: &Placement| self.draft.room(place.node).is_some_and(|room| room.is_clear(place));
        let begun = self.begun.get(&job);
        begun.is_some_and(|begun| begun.tasks.iter().take(begun.together).all(clear))
    }

    fn asker(&self, at: usize, pass: Pass) -> Asker {
        let candidate = self.queue.get(at);
        let job = candidate.first.1;
        let fair_share = self.kept_back.get(&job).copied().unwrap_or(Allowance::InOrder);
        let claim = claim(self.draft.policy, candidate.key.class, &candidate.group);
        let claim = claim.filter(|_| candidate.more.is_none());
        let grows = candidate.more.is_some();
        Asker { job, pass, surplus: candidate.is_surplus(), fair_share, claim, grows }
    }

    /// Who has to leave and finds room elsewhere is moved there.
    fn place_evicted_again(&mut self) {
        let whole: Vec<JobId> = self
            .evictions
            .iter()
            .filter(|leaving| leaving.receipt.whole && leaving.receipt.why != Why::Move)
            .filter(|leaving| !leaving.unit.promised)
            .map(|leaving| leaving.unit.job)
            .collect();
        if whole.is_empty() {
            return;
        }
        // Not in a place that is promised: there it might have to leave again.
        let promised = self.hold_all_reserved();
        for job in whole {
            if let Some(Placed { tasks, chosen, .. }) = self.another_place(job) {
                let (together, pieces) = (tasks.len(), Vec::new());
                let begun = Begun { together, tasks, pieces, how: How::Moves, chosen };
                self.begun.insert(job, begun);
                self.order.push(job);
            }
        }
        self.let_go_of(promised);
    }

    fn another_place(&mut self, id: JobId) -> Option<Placed> {
        let job = self.draft.state.jobs.get(id).expect("who has to leave is a live job");
        let key = Box::new(job.key());
        let group = just_evicted(self.draft.policy, &job.spec);
        groups::minimum(self.draft.desk(), &key).into_iter().find_map(|ask| {
            if takes_landing_room(&self.draft, &group, &ask, Pass::Surplus) {
                return None;
            }
            let gates = [lines::limit_passed(&self.draft, &ask), lines::fixed_beyond(&mut self.draft, &ask)];
            if gates.iter().any(Option::is_some) {
                return None;
            }
            let placed = place(&mut self.draft, &ask)?;
            self.draft.count(lines::standing_of(&key), ask.total(), true);
            Some(placed)
        })
    }

    /// True when somebody has to leave or is moved.
    pub(super) fn lets_somebody_leave(&self) -> bool {
        !self.evictions.is_empty()
    }

    /// Somebody whose reclaim for a fair share or by order left more of what it freed idle than it started.
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
