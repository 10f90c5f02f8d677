//! Serving one candidate: the sources of rule 6, tried in order.
//!
//! Free places come first, then places that others are moved away from, then places that others have to leave. Each source is a
//! function from the same inputs to a grant, and leaves the draft as it found it where it grants nothing. Places that are
//! reserved for others are held on the draft meanwhile, as far as they bind the candidate.

use alloc::vec::Vec;

use super::{Cycle, Grant};
use crate::model::policy::Within;
use crate::plan::draft::Mark;
use crate::plan::evict::moves::{enough_in_pieces, place_by_moving};
use crate::plan::evict::search::{Claimant, gain, make_room, price_changes_at};
use crate::plan::evict::victims::Unit;
use crate::plan::later::kept::Withheld;
use crate::plan::lines::{self, Pass};
use crate::plan::memory::{Obstacles, Refusal, earlier};
use crate::plan::order::ServiceTurn;
use crate::plan::place::{Ask, place, place_where_best};
use crate::plan::rank::{claim, takes_landing_room};
use crate::state::holding::Holding;

/// What a candidate asks for in one pool, and the pass it is in there.
type OpenAsk<'a> = (Ask<'a>, Pass);

/// A source of places for a candidate, by its number in the queue.
type GrantSource<'a> = fn(&mut Cycle<'a>, usize, &[OpenAsk<'a>]) -> Option<Grant<'a>>;

impl<'a> Cycle<'a> {
    /// Gives a candidate what it asks for, from the first source that has it; or names the asks that cannot be met.
    pub(super) fn serve(&mut self, at: usize, turn: ServiceTurn) -> Result<Grant<'a>, Vec<Ask<'a>>> {
        let mut asks = self.queue.get(at).asks(&mut self.draft, turn);
        let first_task = self.first_task(at);
        for (ask, _) in &mut asks {
            ask.first_task = first_task;
        }
        self.retry_at = None;
        if let Some(booking) = self.queue.get(at).key.booking {
            return self.serve_in_window(at, booking, asks);
        }
        let mut obstacles = Obstacles::default();
        let (open, barred) = self.admit(at, asks, &mut obstacles);
        if let Some(grant) = self.meet(at, &open) {
            self.draft.count(lines::work_group(grant.ask.key), grant.ask.total(), true);
            return Ok(grant);
        }
        for (ask, pass) in &open {
            let limit = lines::limit_exceeded(&self.draft, ask);
            for part in ask.parts() {
                obstacles.add(part.pool(), *pass, limit);
            }
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
            if takes_landing_room(&self.draft, &group, &ask, pass) {
                for part in ask.parts() {
                    obstacles.add(part.pool(), pass, None);
                }
                barred.push(ask);
            } else if let Some(tenant) = lines::fixed_beyond(&mut self.draft, &ask) {
                obstacles.fixed.push((ask.pool(), tenant));
                barred.push(ask);
            } else {
                open.push((ask, pass));
            }
        }
        (open, barred)
    }

    /// From what is free, by moving others, or by making others leave; beside what is reserved for others.
    fn meet(&mut self, at: usize, open: &[OpenAsk<'a>]) -> Option<Grant<'a>> {
        let mark = self.draft.mark();
        let grant = self.beside_reserved(at, open, Withheld::Overstayed, Self::take_free);
        if grant.as_ref().is_some_and(|grant| self.fills_later(at, open, &grant.tasks)) {
            self.draft.roll_back(mark);
            return self.beside_reserved(at, open, Withheld::All, Self::take_free);
        }
        if grant.is_some() {
            return grant;
        }
        // Mostly it cannot be met even without regard to what is reserved, and that costs far less to see.
        let mark = self.draft.mark();
        let grant = self.take_from_others(at, open)?;
        if !self.keeps_places() {
            return Some(grant);
        }
        self.take_back(mark, &grant);
        self.beside_reserved(at, open, Withheld::All, Self::take_from_others)
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
        !self.reservations.is_empty() || !state.bookings.is_empty() || !state.maintenance.is_empty()
    }

    fn take_back(&mut self, mark: Mark, grant: &Grant<'_>) {
        grant.taken.iter().for_each(|taken| self.victims.spare(taken.unit));
        self.draft.roll_back(mark);
    }

    fn take_from_others(&mut self, at: usize, open: &[OpenAsk<'a>]) -> Option<Grant<'a>> {
        let sources: [GrantSource<'a>; 2] = [Self::take_by_moving, Self::take_from_victims];
        sources.into_iter().find_map(|source| source(self, at, open))
    }

    /// Places that nobody holds: of the first ask that has them or, where places have prices, where they are missed least.
    fn take_free(&mut self, _at: usize, open: &[OpenAsk<'a>]) -> Option<Grant<'a>> {
        if self.draft.state.demand.tables().is_some() {
            return self.take_least_missed(open);
        }
        open.iter().find_map(|(ask, _)| {
            if lines::limit_exceeded(&self.draft, ask).is_some() {
                return None;
            }
            Some(Grant::free(ask, place(&mut self.draft, ask)?))
        })
    }

    /// Alternatives in order; of each the pools in the better pass first; among those, wherever the place is missed
    /// least.
    fn take_least_missed(&mut self, open: &[OpenAsk<'a>]) -> Option<Grant<'a>> {
        let passes = [Pass::WithinGuarantee, Pass::WithinFairShare, Pass::Surplus];
        open.chunk_by(|(one, _), (other, _)| one.differs_in_pool_alone(other)).find_map(|alike| {
            passes.into_iter().find_map(|pass| {
                let of_pass = alike.iter().filter(|(_, of)| *of == pass).map(|(ask, _)| ask);
                let of_pass: Vec<&Ask<'a>> =
                    of_pass.filter(|ask| lines::limit_exceeded(&self.draft, ask).is_none()).collect();
                let (ask, placed) = place_where_best(&mut self.draft, &of_pass)?;
                Some(Grant::free(ask, placed))
            })
        })
    }

    /// Places in one piece, because others are moved (rule 13).
    fn take_by_moving(&mut self, at: usize, open: &[OpenAsk<'a>]) -> Option<Grant<'a>> {
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
            let cost: u64 = units.iter().map(|unit| unit.cost).fold(0, u64::saturating_add);
            if gain(&self.draft, ask, &units) <= cost {
                self.retry_at = earlier(self.retry_at, price_changes_at(&self.draft, &units));
                self.draft.roll_back(mark);
                return None;
            }
            Some(Grant { ask: ask.clone(), tasks, chosen: None, taken: Vec::new(), moved })
        })
    }

    /// Places that others have to leave (rules 6 to 8), others moved into the gaps where that is needed.
    fn take_from_victims(&mut self, at: usize, open: &[OpenAsk<'a>]) -> Option<Grant<'a>> {
        // Growth of what starts at once is not set aside with it: nobody leaves for it before the next plan.
        if self.starts_at_once(self.queue.get(at).first.1) {
            return None;
        }
        open.iter().find_map(|(ask, pass)| {
            let claimant = self.claimant(at, *pass);
            let (draft, victims) = (&mut self.draft, &mut self.victims);
            let taken = make_room(draft, victims, ask, claimant, &self.commitments, &mut self.retry_at)?;
            if let Some(placed) = place(draft, ask) {
                return Some(Grant { taken, ..Grant::free(ask, placed) });
            }
            let leaving = taken.iter().map(|taken| victims.get(taken.unit).job);
            let commitments = self.commitments.with_leaving(leaving);
            let placed = place_by_moving(draft, ask, claimant, &commitments, &mut self.retry_at);
            let (tasks, moved) = placed.expect("room was made for all that is asked for");
            Some(Grant { ask: ask.clone(), tasks, chosen: None, taken, moved })
        })
    }

    fn claimant(&self, at: usize, pass: Pass) -> Claimant {
        let candidate = self.queue.get(at);
        let job = candidate.first.1;
        let grows = candidate.more.is_some();
        let claim = claim(self.draft.policy, candidate.key.class, &candidate.group).filter(|_| !grows);
        let fair_share = self.restraint.allowance(job);
        Claimant { job, pass, surplus: candidate.is_surplus(), fair_share, claim, grows }
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

    /// True when a job that starts later could be moved for the ask, or could make another free to be taken for it.
    fn others_matter(&mut self, at: usize, ask: &Ask<'_>) -> bool {
        let rules = &self.draft.policy.preemption;
        let may_move = rules.moves_max > 0 && !self.queue.get(at).is_surplus();
        let mut gives_way =
            || lines::below(&mut self.draft, &lines::work_group(ask.key)).iter().any(|&part| part > 0);
        rules.within != Within::Project || (may_move && (gives_way() || enough_in_pieces(&self.draft, ask)))
    }

    /// Remembers of a candidate's kind what stood in its way, and what would lift that.
    pub(super) fn refuse(&mut self, at: usize, obstacles: Obstacles) {
        let candidate = self.queue.get(at);
        let Some(kind) = candidate.kind else { return };
        let retry_at = earlier(self.retry_at, candidate.changes_at);
        let ordered = self.draft.policy.orders.beyond_age(candidate.key.class).is_some();
        // Whether its reclaim is wasteful depends on all that waits: whatever comes could lift that.
        if self.restraint.binds(candidate.first.1) {
            let known = self.refusals.remove(&kind);
            if ordered {
                self.refusals.insert(kind, Refusal::until(retry_at, known));
            }
            return;
        }
        let state = self.draft.state;
        let refusal = Refusal::new(state, candidate.key.tenant, obstacles, self.inputs.shares, retry_at);
        // A job that comes later may stand before those that were refused.
        let refusal = if ordered { refusal.while_in_order(state, kind, candidate) } else { refusal };
        match self.refusals.get_mut(&kind) {
            Some(known) => known.add(refusal),
            None => {
                self.refusals.insert(kind, refusal);
            }
        }
    }
}
