//! The plain planner: every rule in the plainest code, as the specification that the engine's planner is held to.
//!
//! The world is a list of tasks. Every question goes through that list, whatever is tried is tried on a copy, and after
//! each step everything is worked out again. It reads the first facts of a state (nodes, jobs, holdings, promises) and a
//! policy, and shares with the engine's planner nothing but the types of a plan. There is no index, no memory and no sum
//! that is kept, so it is of no use on a fleet of more than a few nodes; a test compares the two on thousands of those.
//! It does not know jobs with groups, and says so: they are tested by scenarios and by random runs.

mod lines;
mod moves;
mod order;
mod place;
mod reclaim;
mod shares;
mod units;
mod world;
mod worth;

use wharf_engine::model::exit::Exit;
use wharf_engine::model::placement::Placement;
use wharf_engine::model::policy::Policy;
use wharf_engine::plan::{EvictedJob, Plan, Start};
use wharf_engine::state::State;
use wharf_engine::state::ledger::event::{Eviction, EvictionRule, Straddle};
use wharf_engine::units::{JobId, NodeId, PoolId, Timestamp};

use lines::{Allowance, Ask, Pass};
use moves::{Moved, place_by_moving};
use order::{TURNS, Turn, Want};
use place::{best_score, place};
use reclaim::{Taken, make_room, world_without};
use units::{Unit, gain};
use world::{Facts, WHOLE, World};

/// What changes now. Refusals are not part of it.
pub fn plan(state: &State, policy: &Policy, now: Timestamp) -> Plan {
    let groups = state.jobs.iter().any(|(_, job)| job.spec.has_groups());
    assert!(!groups, "the plain planner does not know jobs with groups");
    let facts = Facts::of(state, policy, now);
    // Whoever would leave more idle by a reclaim than it starts takes sparingly, then nothing, and the plan is made again.
    let mut kept_back: Vec<JobId> = Vec::new();
    loop {
        let mut round = Round::new(&facts, kept_back.clone());
        round.serve_everybody();
        match round.wasteful() {
            Some(job) => kept_back.push(job),
            None => return round.plan(),
        }
    }
}

/// Every tenant's fair share, by meter: GPUs of any pool or of each, then CPU and memory.
pub fn fair_shares(state: &State, policy: &Policy) -> Vec<Vec<u64>> {
    Facts::of(state, policy, Timestamp(0)).shares
}

/// A draft on which everybody has their turn.
struct Round<'a> {
    facts: &'a Facts<'a>,
    world: World<'a>,
    /// Whose reclaim was found wasteful, each time.
    kept_back: Vec<JobId>,
    /// Wants that found no place in a pool.
    refused: Vec<(Want<'a>, PoolId)>,
    /// In the order in which they were first given something.
    begun: Vec<Begun<'a>>,
    /// In the order in which they were taken.
    evictions: Vec<(Unit<'a>, Eviction)>,
    reclaims: Vec<Reclaim>,
}

/// What a job was given.
struct Begun<'a> {
    job: JobId,
    tasks: Vec<Placement>,
    /// So many of them start together.
    together: usize,
    how: How,
    /// What it wants on top.
    more: Option<Want<'a>>,
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

/// A reclaim for a fair share, to be judged when everybody had their turn.
struct Reclaim {
    job: JobId,
    started: u64,
    freed: Vec<Placement>,
}

/// How an ask was met.
struct Met<'a> {
    ask: Ask<'a>,
    world: World<'a>,
    tasks: Vec<Placement>,
    taken: Vec<Taken<'a>>,
    moved: Vec<Moved<'a>>,
}

impl<'a> Round<'a> {
    fn new(facts: &'a Facts<'a>, kept_back: Vec<JobId>) -> Self {
        let (refused, begun, evictions, reclaims) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { facts, world: World::of(facts), kept_back, refused, begun, evictions, reclaims }
    }

    fn serve_everybody(&mut self) {
        'again: loop {
            for turn in TURNS {
                let leaving = self.evictions.len();
                while let Some(want) = self.next(turn) {
                    match self.serve(&want, turn) {
                        Some(met) => self.record(&want, met),
                        None => self.refuse(&want, turn),
                    }
                }
                if self.evictions.len() > leaving {
                    // Who leaves may leave room for those who were refused before.
                    self.refused.clear();
                    continue 'again;
                }
            }
            break;
        }
        self.place_evicted_again();
    }

    /// Gives a want what it asks for, from the cheapest source that will do.
    fn serve(&self, want: &Want<'a>, turn: Turn) -> Option<Met<'a>> {
        let mut asks = self.asks(want, turn);
        asks.retain(|ask| !self.world.would_borrow_for_good(ask));
        let free = if worth::is_priced(&self.world) {
            self.by_worth(&asks)
        } else {
            asks.iter().find_map(|ask| self.by_what_is_free(ask))
        };
        let moving = || asks.iter().find_map(|ask| self.by_moving(ask));
        // Growth of what starts at once is not set aside with it: nobody leaves for it before the next plan.
        let taking = || {
            let mut open = asks.iter().filter(|_| !self.starts_at_once(want.job));
            open.find_map(|ask| self.by_taking(ask))
        };
        free.or_else(moving).or_else(taking)
    }

    /// True when a job was given places in this plan that nobody has to leave.
    fn starts_at_once(&self, job: JobId) -> bool {
        let begun = self.begun.iter().find(|begun| begun.job == job);
        begun
            .is_some_and(|begun| begun.tasks[..begun.together].iter().all(|place| self.world.is_clear(place)))
    }

    fn refuse(&mut self, want: &Want<'a>, turn: Turn) {
        let asks = self.asks(want, turn);
        self.refused.extend(asks.iter().map(|ask| (want.clone(), ask.pool)));
    }

    /// From what is free, in the pool where it is missed least among those in which it stands in the better pass.
    fn by_worth(&self, asks: &[Ask<'a>]) -> Option<Met<'a>> {
        [Pass::WithinGuarantee, Pass::WithinFairShare, Pass::Surplus].into_iter().find_map(|pass| {
            let open = asks.iter().filter(|ask| ask.pass == pass && self.world.limit_exceeded(ask).is_none());
            let alone = |ask: &&Ask<'a>| ask.tasks == 1 && ask.spec.topology.gang_within.is_none();
            let open: Vec<&Ask<'a>> = open.collect();
            let best = if open.iter().all(alone) {
                let scored = open.into_iter().filter_map(|ask| Some((best_score(&self.world, ask)?, ask)));
                scored.min_by_key(|&(score, _)| score).map(|(_, ask)| ask)
            } else {
                let placed = open.into_iter().filter_map(|ask| Some((place(&self.world, ask)?.1, ask)));
                let totals = placed.map(|(tasks, ask)| (worth::total(&self.world, ask, &tasks), ask));
                totals.min_by_key(|&(total, ask)| (total, ask.pool)).map(|(_, ask)| ask)
            };
            self.by_what_is_free(best?)
        })
    }

    fn by_what_is_free(&self, ask: &Ask<'a>) -> Option<Met<'a>> {
        if self.world.limit_exceeded(ask).is_some() {
            return None;
        }
        let (world, tasks) = place(&self.world, ask)?;
        Some(Met { ask: ask.clone(), world, tasks, taken: Vec::new(), moved: Vec::new() })
    }

    fn by_moving(&self, ask: &Ask<'a>) -> Option<Met<'a>> {
        if ask.surplus || self.world.limit_exceeded(ask).is_some() {
            return None;
        }
        let met = place_by_moving(&self.world, ask)?;
        let units: Vec<&Unit<'a>> = met.moved.iter().map(|moved| &moved.unit).collect();
        let cost = units.iter().map(|unit| unit.cost).fold(0, u64::saturating_add);
        if gain(self.facts, ask, &units) <= cost {
            return None;
        }
        Some(Met {
            ask: ask.clone(),
            world: met.world,
            tasks: met.tasks,
            taken: Vec::new(),
            moved: met.moved,
        })
    }

    fn by_taking(&self, ask: &Ask<'a>) -> Option<Met<'a>> {
        let taken = make_room(&self.world, ask)?;
        let without = world_without(&self.world, &taken);
        if let Some((world, tasks)) = place(&without, ask) {
            return Some(Met { ask: ask.clone(), world, tasks, taken, moved: Vec::new() });
        }
        let met = place_by_moving(&without, ask).expect("room was made for all that is asked for");
        Some(Met { ask: ask.clone(), world: met.world, tasks: met.tasks, taken, moved: met.moved })
    }

    /// The number of the first task that a want is given.
    fn first_task(&self, want: &Want<'a>) -> u32 {
        let begun = self.begun.iter().find(|begun| begun.job == want.job);
        if let Some(last) = begun.and_then(|begun| begun.tasks.last()) {
            return last.task + 1;
        }
        let holding = self.facts.state.ledger.holding(want.job).filter(|_| want.grows);
        holding.map_or(0, wharf_engine::state::holding::Holding::next_task)
    }

    /// Writes down what a want was given.
    fn record(&mut self, want: &Want<'a>, met: Met<'a>) {
        self.record_leaving(&met);
        let how = if want.grows { How::Grows } else { How::Starts };
        let first = met.tasks[0];
        self.world = met.world;
        if !self.begun.iter().any(|begun| begun.job == want.job) {
            let (job, together) = (want.job, met.tasks.len());
            self.begun.push(Begun { job, tasks: Vec::new(), together, how, more: None });
        }
        let holding = self.facts.state.ledger.holding(want.job).filter(|_| want.grows);
        let staying = holding.map_or(0, |holding| holding.tasks.iter().filter(|task| task.stays()).count());
        // A job of which tasks have finished is repaired, but not grown any more.
        let grows = holding.is_none_or(|holding| holding.exits(Exit::Succeeded) == 0);
        let begun = self.begun.iter_mut().find(|begun| begun.job == want.job).expect("it was just added");
        begun.tasks.extend(met.tasks);
        let has = u32::try_from(staying + begun.tasks.len()).expect("a count of tasks fits");
        let (pools, domain) = (vec![first.pool], self.facts.domain_of(want.spec, first.node));
        let surplus = want.spec.service.is_none();
        let more = Want { tasks: 1, surplus, grows: true, began: true, pools, domain, ..want.clone() };
        begun.more = (grows && has < want.spec.tasks).then_some(more);
    }

    fn record_leaving(&mut self, met: &Met<'a>) {
        let ask = &met.ask;
        let bound = met.taken.iter().filter(|taken| taken.why != EvictionRule::Guarantee);
        let bound: Vec<&Unit<'a>> = bound.map(|taken| &taken.unit).collect();
        let gained = gain(self.facts, ask, &bound);
        for taken in &met.taken {
            // A guarantee does not ask what it gains.
            let gain = (taken.why != EvictionRule::Guarantee).then_some(gained);
            self.leaves(&taken.unit, taken.why, ask.job, gain, taken.straddles);
        }
        let for_share = met.taken.iter().filter(|taken| taken.why == EvictionRule::FairShare);
        let freed: Vec<Placement> = for_share.flat_map(|taken| taken.unit.tasks.clone()).collect();
        if !freed.is_empty() {
            let started = ask.spec.shape.gpus.units().parts() * u64::from(ask.tasks);
            self.reclaims.push(Reclaim { job: ask.job, started, freed });
        }
        let moving: Vec<&Unit<'a>> = met.moved.iter().map(|moved| &moved.unit).collect();
        let gained = gain(self.facts, ask, &moving);
        for moved in &met.moved {
            self.leaves(&moved.unit, EvictionRule::Move, ask.job, Some(gained), None);
            self.moves(moved.unit.job, moved.tasks.clone());
        }
    }

    fn moves(&mut self, job: JobId, tasks: Vec<Placement>) {
        self.begun.push(Begun { job, together: tasks.len(), tasks, how: How::Moves, more: None });
    }

    fn leaves(
        &mut self,
        unit: &Unit<'a>,
        why: EvictionRule,
        beneficiary: JobId,
        gain: Option<u64>,
        straddles: Option<Straddle>,
    ) {
        let (whole, lost, cost) = (!unit.surplus, unit.lost, unit.cost);
        let policy = self.facts.state.tenants.version();
        let receipt = Eviction {
            why,
            beneficiary,
            whole,
            lost,
            cost,
            gain,
            straddles,
            policy,
            booking: None,
            node: None,
        };
        self.evictions.push((unit.clone(), receipt));
    }

    /// How far a job may take for its fair share.
    fn allowance(&self, job: JobId) -> Allowance {
        match self.kept_back.iter().filter(|&&kept| kept == job).count() {
            0 => Allowance::InOrder,
            1 => Allowance::Sparingly,
            _ => Allowance::Nothing,
        }
    }

    /// Who has to leave and finds room elsewhere is moved there.
    fn place_evicted_again(&mut self) {
        let evicted = self.evictions.iter();
        let whole = evicted
            .filter(|(unit, receipt)| !unit.surplus && !unit.promised && receipt.why != EvictionRule::Move);
        let whole: Vec<Unit<'a>> = whole.map(|(unit, _)| unit.clone()).collect();
        for unit in whole {
            let met = self.facts.pools(&unit.spec.shape).into_iter().find_map(|pool| {
                let ask = Ask::plain(self.facts, unit.job, unit.spec, pool, unit.spec.min);
                if self.world.would_borrow_for_good(&ask) { None } else { self.by_what_is_free(&ask) }
            });
            if let Some(met) = met {
                self.world = met.world;
                self.moves(unit.job, met.tasks);
            }
        }
    }

    /// Somebody whose reclaim for a fair share left more of what it freed idle than it started.
    fn wasteful(&self) -> Option<JobId> {
        let wasteful = |reclaim: &&Reclaim| idle_of(&self.world, &reclaim.freed) > reclaim.started;
        self.reclaims.iter().find(wasteful).map(|reclaim| reclaim.job)
    }

    /// True, and they are there, when tasks can start now: nobody who leaves is in the way, and no limit is passed
    /// while they are still there.
    fn starts_now(&self, there: &mut World<'a>, job: JobId, tasks: &[Placement]) -> bool {
        let spec = &self.facts.state.jobs.get(job).expect("who gets places is a live job").spec;
        let count = u32::try_from(tasks.len()).expect("a count of tasks fits");
        let ask = Ask::plain(self.facts, job, spec, tasks[0].pool, count);
        let now =
            tasks.iter().all(|place| self.world.is_clear(place)) && there.limit_exceeded(&ask).is_none();
        if now {
            for &place in tasks {
                there.add(job, spec, place, world::How::Holds);
            }
        }
        now
    }

    /// The difference between the state and the end of the draft.
    fn plan(&self) -> Plan {
        let mut plan = Plan { basis: self.facts.state.index(), ..Plan::default() };
        let mut there = World::as_it_stands(self.facts);
        for begun in &self.begun {
            let (job, how) = (begun.job, begun.how);
            let (first, rest) = begun.tasks.split_at(begun.together);
            if how != How::Moves && self.starts_now(&mut there, job, first) {
                // Tasks beyond the minimum that cannot start yet come with the next plan.
                let rest = rest.iter().filter(|place| self.starts_now(&mut there, job, &[**place]));
                let tasks = first.iter().chain(rest).copied().collect();
                let list = if how == How::Starts { &mut plan.starts } else { &mut plan.grown };
                list.push(Start { job, tasks, chosen: None });
            } else {
                plan.earmarks.push(Start { job, tasks: begun.tasks.clone(), chosen: None });
            }
        }
        for (unit, receipt) in &self.evictions {
            if unit.promised {
                plan.released.push(unit.job);
            } else {
                add_eviction(&mut plan.evictions, unit, receipt.clone());
            }
        }
        plan
    }
}

/// What stands idle of places that were freed.
fn idle_of(world: &World<'_>, freed: &[Placement]) -> u64 {
    let mut gpus: Vec<(NodeId, usize)> = Vec::new();
    for place in freed {
        gpus.extend(place.gpus.indexes().map(|gpu| (place.node, gpu)));
    }
    gpus.sort_unstable();
    gpus.dedup();
    let idle = gpus.into_iter().map(|(node, gpu)| {
        let on_it = freed.iter().filter(|place| place.node == node && place.gpus.contains(gpu));
        let freed: u64 = on_it.map(|place| place.units_each.parts()).sum();
        WHOLE.saturating_sub(world.held_of(node, gpu)).min(freed)
    });
    idle.sum()
}

/// One entry per job: its surplus tasks, or all of it.
fn add_eviction(evictions: &mut Vec<EvictedJob>, unit: &Unit<'_>, receipt: Eviction) {
    let tasks = unit.tasks.iter().map(|place| place.task);
    match evictions.iter_mut().find(|known| known.job == unit.job) {
        Some(known) => {
            known.tasks.extend(tasks);
            known.tasks.sort_unstable();
            let cost = known.receipt.cost + receipt.cost;
            let whole = known.receipt.whole || receipt.whole;
            known.receipt = Eviction { cost, whole, ..receipt };
        }
        None => evictions.push(EvictedJob { job: unit.job, tasks: tasks.collect(), receipt }),
    }
}
