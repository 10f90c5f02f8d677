//! Serving one candidate: the sources of rule 6, tried in order.
//!
//! Free places come first, then places that others are moved away from, then places that others have to leave. Each source is a
//! function from the same inputs to a grant, and leaves the draft as it found it where it grants nothing. Meanwhile places that
//! are reserved for others are held on the draft, as far as they bind the candidate. Jobs of a booked window start in its
//! places alone, and work that fills those leaves for them.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{Cycle, Grant};
use crate::model::placement::Placement;
use crate::model::policy::Within;
use crate::plan::evict::moves::{enough_in_pieces, place_by_moving};
use crate::plan::evict::search::{Allowance, Claimant, check_worth, make_room};
use crate::plan::evict::victims::{Unit, whole_job};
use crate::plan::later::booked;
use crate::plan::later::kept::Withheld;
use crate::plan::lines::{self, Pass};
use crate::plan::memory::{Obstacles, Refusal, earlier};
use crate::plan::order::ServiceTurn;
use crate::plan::place::{Ask, place, place_where_best};
use crate::plan::rank::{order_claim, takes_landing_room};
use crate::state::bookings::Booking;
use crate::state::holding::Holding;
use crate::state::ledger::Step;
use crate::state::ledger::event::EvictionRule;
use crate::units::{BookingId, JobId};

/// What a candidate asks for in one pool, and the pass it is in there.
type OpenAsk<'a> = (Ask<'a>, Pass);

/// A source of places for a candidate, by its number in the queue.
type GrantSource<'a> = fn(&mut Cycle<'a>, usize, &[OpenAsk<'a>]) -> Option<Grant<'a>>;

impl<'a> Cycle<'a> {
    /// Gives a candidate what it asks for, from the first source that has it; or names the asks that cannot be met.
    pub(super) fn serve(&mut self, at: usize, turn: ServiceTurn) -> Result<Grant<'a>, Vec<Ask<'a>>> {
        let first_task = self.first_task(at);
        let asks = self.queue.get(at).asks(&mut self.draft, turn.pass);
        let asks = asks.map(|(ask, pass)| (Ask { first_task, ..ask.clone() }, pass)).collect();
        self.retry_at = None;
        if let Some(booking) = self.queue.get(at).key.booking {
            return self.serve_in_window(at, booking, asks);
        }
        let mut obstacles = Obstacles::default();
        let (open, barred) = self.admit(at, asks, &mut obstacles);
        if let Some(grant) = self.grant(at, &open) {
            self.draft.count(lines::work_group(grant.ask.key), grant.ask.total(), true);
            return Ok(grant);
        }
        for (ask, pass) in &open {
            obstacles.add(ask, *pass, lines::limit_exceeded(&self.draft, ask));
            obstacles.others |= self.others_matter(at, ask);
        }
        self.refuse(at, obstacles);
        Err(open.into_iter().map(|(ask, _)| ask).chain(barred).collect())
    }

    /// Parts the asks that may be met at all from those that a gate bars, whatever is free.
    fn admit(
        &mut self,
        at: usize,
        asks: Vec<OpenAsk<'a>>,
        obstacles: &mut Obstacles,
    ) -> (Vec<OpenAsk<'a>>, Vec<Ask<'a>>) {
        let group = self.queue.get(at).group;
        let (mut open, mut barred) = (Vec::new(), Vec::new());
        for (ask, pass) in asks {
            if takes_landing_room(&self.draft, &group, &ask, pass).is_some() {
                obstacles.add(&ask, pass, None);
                barred.push(ask);
            } else if let Some(tenant) = lines::fixed_beyond(&mut self.draft, &ask) {
                obstacles.tenants.push(tenant);
                barred.push(ask);
            } else {
                open.push((ask, pass));
            }
        }
        (open, barred)
    }

    /// From what is free, by moving others, or by evicting them; beside what is reserved for others.
    fn grant(&mut self, at: usize, open: &[OpenAsk<'a>]) -> Option<Grant<'a>> {
        let mark = self.draft.mark();
        let grant = self.beside_reserved(at, open, Withheld::Overstayed, Self::grant_free);
        if grant.as_ref().is_some_and(|grant| self.fills_later(at, open, &grant.tasks)) {
            self.draft.roll_back(mark);
            return self.beside_reserved(at, open, Withheld::All, Self::grant_free);
        }
        if grant.is_some() {
            return grant;
        }
        // Mostly it cannot be met even without regard to what is reserved, and that costs far less to see.
        let mark = self.draft.mark();
        let grant = self.grant_from_others(at, open)?;
        if !self.keeps_places() {
            return Some(grant);
        }
        grant.evicted.iter().for_each(|evicted| self.victims.spare(evicted.unit));
        self.draft.roll_back(mark);
        self.beside_reserved(at, open, Withheld::All, Self::grant_from_others)
    }

    /// Tries a source while places that are reserved for others are held on the draft.
    fn beside_reserved(
        &mut self,
        at: usize,
        open: &[OpenAsk<'a>],
        which: Withheld,
        source: GrantSource<'a>,
    ) -> Option<Grant<'a>> {
        let withheld = self.withhold(at, open, which);
        let grant = source(self, at, open);
        self.draft.vacate_all(&withheld);
        grant
    }

    /// True when there are places that not every candidate may have.
    fn keeps_places(&self) -> bool {
        let state = self.draft.state;
        !self.reservations.review.kept.is_empty()
            || !state.bookings.is_empty()
            || !state.maintenance.is_empty()
    }

    fn grant_from_others(&mut self, at: usize, open: &[OpenAsk<'a>]) -> Option<Grant<'a>> {
        self.grant_by_moving(at, open).or_else(|| self.grant_by_evicting(at, open))
    }

    /// Places that nobody holds: of the first ask that has them or, where places have prices, where they are missed least.
    fn grant_free(&mut self, _at: usize, open: &[OpenAsk<'a>]) -> Option<Grant<'a>> {
        if self.draft.state.demand.tables().is_some() {
            return self.grant_least_missed(open);
        }
        open.iter().find_map(|(ask, _)| {
            let within = lines::limit_exceeded(&self.draft, ask).is_none();
            let placed = if within { place(&mut self.draft, ask) } else { None };
            placed.map(|placed| Grant::of_placed(ask, placed))
        })
    }

    /// Alternatives in order; of each the pools in the better pass first; among those, wherever the place is missed
    /// least.
    fn grant_least_missed(&mut self, open: &[OpenAsk<'a>]) -> Option<Grant<'a>> {
        let passes = [Pass::WithinGuarantee, Pass::WithinFairShare, Pass::Surplus];
        open.chunk_by(|(one, _), (other, _)| one.differs_in_pool_alone(other)).find_map(|alike| {
            passes.into_iter().find_map(|pass| {
                let of_pass = alike.iter().filter(|(_, of)| *of == pass).map(|(ask, _)| ask);
                let of_pass: Vec<&Ask<'a>> =
                    of_pass.filter(|ask| lines::limit_exceeded(&self.draft, ask).is_none()).collect();
                let (ask, placed) = place_where_best(&mut self.draft, &of_pass)?;
                Some(Grant::of_placed(ask, placed))
            })
        })
    }

    /// Places in one piece, because others are moved (rule 13).
    fn grant_by_moving(&mut self, at: usize, open: &[OpenAsk<'a>]) -> Option<Grant<'a>> {
        if self.queue.get(at).is_surplus() {
            return None;
        }
        open.iter().find_map(|(ask, pass)| {
            if lines::limit_exceeded(&self.draft, ask).is_some() {
                return None;
            }
            let claimant = self.claimant(at, *pass);
            let mark = self.draft.mark();
            let (draft, retry_at) = (&mut self.draft, &mut self.retry_at);
            let (tasks, moved) = place_by_moving(draft, ask, claimant, &self.commitments, retry_at)?;
            let units: Vec<&Unit> = moved.iter().map(|moved| &moved.unit).collect();
            if let Err(at) = check_worth(&self.draft, ask, &units) {
                self.retry_at = earlier(self.retry_at, at);
                self.draft.roll_back(mark);
                return None;
            }
            Some(Grant { moved, ..Grant::new(ask, tasks) })
        })
    }

    /// Places that others have to leave (rules 6 to 8), others moved into the gaps where that is needed.
    fn grant_by_evicting(&mut self, at: usize, open: &[OpenAsk<'a>]) -> Option<Grant<'a>> {
        // Growth of a job that starts at once is no part of its earmark: nobody leaves for it before the next plan.
        let given = self.allocations.get(self.queue.get(at).first.1);
        if given.is_some_and(|given| given.starts_at_once(&self.draft)) {
            return None;
        }
        open.iter().find_map(|(ask, pass)| {
            let claimant = self.claimant(at, *pass);
            let (draft, victims, retry_at) = (&mut self.draft, &mut self.victims, &mut self.retry_at);
            let evicted = make_room(draft, victims, ask, claimant, &self.commitments, retry_at)?;
            if let Some(placed) = place(draft, ask) {
                return Some(Grant { evicted, ..Grant::of_placed(ask, placed) });
            }
            let leaving = evicted.iter().map(|evicted| victims.get(evicted.unit).job);
            let commitments = self.commitments.with_leaving(leaving);
            let placed = place_by_moving(draft, ask, claimant, &commitments, retry_at);
            let (tasks, moved) = placed.expect("room was made for all that is asked for");
            Some(Grant { evicted, moved, ..Grant::new(ask, tasks) })
        })
    }

    fn claimant(&self, at: usize, pass: Pass) -> Claimant {
        let candidate = self.queue.get(at);
        let (job, grows) = (candidate.first.1, candidate.more.is_some());
        let claim = order_claim(self.draft.policy, candidate.key.class, &candidate.group);
        Claimant {
            job,
            pass,
            surplus: candidate.is_surplus(),
            allowance: self.restraint.allowance(job),
            order_claim: claim.filter(|_| !grows),
            grows,
        }
    }

    /// The number that the first task of a grant gets.
    fn first_task(&self, at: usize) -> u32 {
        let candidate = self.queue.get(at);
        let job = candidate.first.1;
        if let Some(last) = self.allocations.get(job).and_then(|given| given.tasks.last()) {
            return last.task + 1;
        }
        let holding = self.draft.state.ledger.holding(job).filter(|_| candidate.more.is_some());
        holding.map_or(0, Holding::next_task)
    }

    /// True when an ask may be met because another job starts: that could be moved for it, or free another for eviction.
    fn others_matter(&mut self, at: usize, ask: &Ask<'_>) -> bool {
        let rules = &self.draft.policy.preemption;
        let may_move = rules.moves_max > 0 && !self.queue.get(at).is_surplus();
        let mut lower_work = || lines::lower_work(&mut self.draft, &lines::work_group(ask.key));
        rules.within != Within::Project
            || (may_move && lower_work().iter().any(|&amount| amount > 0))
            || (may_move && enough_in_pieces(&self.draft, ask))
    }

    /// Remembers of a candidate's kind what stood in its way, and what would lift that.
    fn refuse(&mut self, at: usize, obstacles: Obstacles) {
        let candidate = self.queue.get(at);
        let Some(kind) = candidate.kind else { return };
        let retry_at = earlier(self.retry_at, candidate.changes_at);
        let known = self.refusals.remove(&kind);
        let refusal = if self.restraint.allowance(candidate.first.1) == Allowance::InOrder {
            let refusal = Refusal::new(self.stamps, self.draft.policy, candidate, obstacles, retry_at);
            known.into_iter().chain([refusal]).reduce(Refusal::and)
        } else {
            // Whether its reclaim is wasteful depends on all that waits: whatever comes could lift that.
            let ordered = self.draft.policy.orders.beyond_age(candidate.key.class).is_some();
            ordered.then(|| Refusal::waking_at(retry_at, known))
        };
        self.refusals.extend(refusal.map(|refusal| (kind, refusal)));
    }

    /// Gives a job of a window places of it, or names the ways that will not do.
    fn serve_in_window(
        &mut self,
        at: usize,
        id: BookingId,
        asks: Vec<OpenAsk<'a>>,
    ) -> Result<Grant<'a>, Vec<Ask<'a>>> {
        let state = self.draft.state;
        let booking = state.bookings.get(id).expect("a job names a window that is to come or lasts");
        let mut obstacles = Obstacles::default();
        let mut tried = Vec::new();
        for (ask, pass) in asks {
            if let Some(grant) = self.in_window(at, id, booking, &ask) {
                return Ok(grant);
            }
            obstacles.add(&ask, pass, lines::limit_exceeded(&self.draft, &ask));
            tried.push(ask);
        }
        self.refuse(at, obstacles);
        Err(tried)
    }

    fn in_window(&mut self, at: usize, id: BookingId, booking: &Booking, ask: &Ask<'a>) -> Option<Grant<'a>> {
        let mark = self.draft.mark();
        let counted = self.window_idle.get(&id).copied().unwrap_or_default();
        let left = booked::admit(&mut self.draft, booking, ask, counted)?;
        let Some((tasks, fillers)) = self.places_in(id, booking, ask) else {
            self.draft.roll_back(mark);
            return None;
        };
        self.window_idle.insert(id, left);
        let job = self.queue.get(at).first.1;
        for filler in fillers {
            self.evict_job(filler, EvictionRule::Booking, job);
        }
        let (resources, trust) = (ask.key.shape.resources, Some(ask.key.trust));
        for &place in &tasks {
            self.draft.occupy(Step { place, resources, trust });
        }
        self.draft.count(lines::work_group(ask.key), ask.total(), true);
        Some(Grant::new(ask, tasks))
    }

    /// Where all that is asked for goes, and which jobs have to leave for it. The draft stays as it is.
    fn places_in(
        &mut self,
        id: BookingId,
        booking: &Booking,
        ask: &Ask<'a>,
    ) -> Option<(Vec<Placement>, Vec<Unit>)> {
        if let Some(tasks) = booked::place_in(&self.draft, ask, booking) {
            return Some((tasks, Vec::new()));
        }
        let mark = self.draft.mark();
        let mut drained: Vec<Unit> = Vec::new();
        let tasks = self.fillers(id, booking).into_iter().find_map(|filler| {
            let unit = whole_job(&self.draft, filler)?;
            self.draft.evict(&unit);
            drained.push(unit);
            booked::place_in(&self.draft, ask, booking)
        });
        self.draft.roll_back(mark);
        let tasks = tasks?;
        let meets =
            |unit: &Unit| unit.steps.iter().any(|step| tasks.iter().any(|task| task.meets(&step.place)));
        drained.retain(meets);
        Some((tasks, drained))
    }

    /// Jobs that fill places of a window, the newest first.
    fn fillers(&self, id: BookingId, booking: &Booking) -> Vec<JobId> {
        let state = self.draft.state;
        let mut there: Vec<JobId> = state.strangers_in(id, &booking.places).into_iter().collect();
        there.retain(|&job| self.commitments.may_move(job));
        there.sort_by_key(|&job| (Reverse(state.ledger.holding(job).map(|holding| holding.at)), job));
        there
    }
}
