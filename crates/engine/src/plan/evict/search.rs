//! Making room: which units have to leave so that an ask can be met (rules 6 to 8).
//!
//! Worked example: 8 GPUs; `a` is guaranteed 4 and holds none, `b` borrows: it holds six jobs of one GPU and has
//! a fair share of 4. `a` asks for 2. Units of `b` are evicted in order, newest first, until two more GPUs are free on
//! the draft; then, from the last back, each without which the ask is still met is spared. If `b` held one job of six
//! GPUs instead, evicting it would carry `b` below its line: it *straddles*, is passed over the first time, and is evicted
//! alone only because nothing else will do.

mod accept;
mod allowed;
mod price;
mod strategies;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::plan::cycle::Commitments;
use crate::plan::draft::{Draft, Mark};
use crate::plan::evict::moves::place_by_moving;
use crate::plan::evict::victims::{Unit, UnitRef, Victims};
use crate::plan::lines::{self, Line, Pass};
use crate::plan::memory::earlier;
use crate::plan::place::{Ask, Fit};
use crate::plan::rank::OrderClaim;
use crate::state::ledger::event::{EvictionRule, Straddle};
use crate::units::{JobId, TenantId, Timestamp};
pub(crate) use price::{check_evictable, check_worth, evictable_at, gain};

/// The most units that are each tried first when evicting them in order did not do.
const SEEDS_MAX: usize = 64;
/// Up to so many units every set of them that makes room is tried at last,
const EXHAUSTIVE_MAX: usize = 14;
/// but no more sets than this: each costs about ten microseconds.
const SETS_MAX: usize = 2048;
/// The most victims that are combined with moves: each is then judged by moving.
const MOVE_INTO_MAX: usize = 16;

/// By what right a unit is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    /// It is above its tenant's line.
    Above(Line),
    /// It gives way by class or priority.
    Lower,
    /// It was served for longer, in the own tenant.
    LongerServed,
}

impl Right {
    fn why(self) -> EvictionRule {
        match self {
            Self::Above(Line::Entitled | Line::Guarantee) => EvictionRule::Guarantee,
            Self::Above(Line::FairShare) => EvictionRule::FairShare,
            Self::Lower => EvictionRule::Preempt,
            Self::LongerServed => EvictionRule::Order,
        }
    }
}

/// A unit that has to leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EvictedUnit {
    pub unit: UnitRef,
    /// The tenant that it carries below its line.
    pub straddles: Option<Straddle>,
    right: Right,
}

impl EvictedUnit {
    pub(crate) fn why(&self) -> EvictionRule {
        self.right.why()
    }
}

/// Evicts what has to leave so that the ask can be met, possibly by moving others then; or leaves everything as it was.
pub(in crate::plan) fn make_room(
    draft: &mut Draft<'_>,
    victims: &mut Victims,
    ask: &Ask<'_>,
    claimant: Claimant,
    commitments: &Commitments,
    retry_at: &mut Option<Timestamp>,
) -> Option<Vec<EvictedUnit>> {
    if !draft.tree.roots.iter().any(|&root| victims.any_below(draft, root)) {
        return None;
    }
    let (rights, meters) = (rights(draft, ask, claimant), lines::meters_of(ask).collect::<Vec<_>>());
    let mut search = VictimSearch {
        rights: &rights,
        ordered: !claimant.grows && draft.policy.orders.beyond_age(ask.key.class).is_some(),
        meters: &meters,
        fit: Fit::of(draft, ask),
        evicted: VecDeque::new(),
        rules: BTreeMap::new(),
        straddled: Vec::new(),
        start: draft.mark(),
        draft,
        victims,
        ask,
        claimant,
        commitments,
        retry_at,
    };
    search.run().then(|| search.evicted.into())
}

/// The job that room is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimant {
    pub job: JobId,
    pub pass: Pass,
    /// It asks for more than its minimum: it evicts only what is beyond the minimum of others.
    pub surplus: bool,
    pub allowance: Allowance,
    /// What it may evict by the order of its class.
    pub order_claim: Option<OrderClaim>,
    /// It runs, and lacks tasks.
    pub grows: bool,
}

/// How far a job may evict for its fair share, or by the order of its class, in this plan (rule 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Allowance {
    /// In the order of rule 8.
    InOrder,
    /// That left more idle than it started: only so that no more does.
    Sparingly,
    /// Not at all.
    Nothing,
}

/// By what rights the ask evicts, in order. A tenant that would end above its own line evicts its own work first.
fn rights(draft: &Draft<'_>, ask: &Ask<'_>, claimant: Claimant) -> Vec<Right> {
    let within = |line| lines::stays_within(draft, ask.key.tenant, ask, line);
    let mut rights = Vec::new();
    if claimant.pass == Pass::WithinGuarantee {
        rights.extend([Right::Above(Line::Entitled), Right::Above(Line::Guarantee)]);
    }
    if claimant.pass <= Pass::WithinFairShare && claimant.allowance != Allowance::Nothing {
        rights.push(Right::Above(Line::FairShare));
    }
    let others_first = match claimant.pass {
        Pass::WithinGuarantee => within(Line::Guarantee),
        Pass::WithinFairShare => within(Line::FairShare),
        Pass::Surplus => false,
    };
    rights.insert(if others_first { rights.len() } else { 0 }, Right::Lower);
    if claimant.order_claim.is_some() && claimant.allowance != Allowance::Nothing {
        rights.push(Right::LongerServed);
    }
    rights
}

/// What a search may do beside evicting units in order.
#[derive(Clone, Copy)]
struct Terms {
    /// A victim may carry its branch below its line, one in each branch.
    straddle: bool,
    /// Others may be moved into what victims leave.
    moves: bool,
}

impl Terms {
    const STRICT: Self = Self { straddle: false, moves: false };
}

struct VictimSearch<'s, 'd, 'k> {
    draft: &'s mut Draft<'d>,
    victims: &'s mut Victims,
    ask: &'s Ask<'k>,
    claimant: Claimant,
    commitments: &'s Commitments,
    /// When time alone may let a unit be evicted that may not be yet.
    retry_at: &'s mut Option<Timestamp>,
    rights: &'s [Right],
    /// Whether the claimant waits, in a class that has an order beyond age.
    ordered: bool,
    meters: &'s [usize],
    fit: Fit,
    evicted: VecDeque<EvictedUnit>,
    /// By which rules, and how many: asked after each of thousands.
    rules: BTreeMap<EvictionRule, usize>,
    /// Branches that a victim was allowed to carry below their line, and by which right.
    straddled: Vec<(TenantId, Right)>,
    start: Mark,
}

impl VictimSearch<'_, '_, '_> {
    /// Tries one strategy after the other; where none finds victims, nothing is evicted.
    fn run(&mut self) -> bool {
        if self.evict_in_order() || self.evict_in_order_and_move() {
            return true;
        }
        // With more victims than that, no single small one was in the way of a useful one.
        let few = self.evicted.len() <= SEEDS_MAX;
        // All that may leave does not do, or it is for the order of a class, by which the widest job leaves or nobody: then
        // another choice helps only where the wrong units used up what a tenant has above its line.
        let exhausted = self.claimant.order_claim.is_some() || !self.is_met(Terms::STRICT);
        self.spare_all();
        if exhausted && !self.any_tenant_is_above() {
            return false;
        }
        // Only where no set leaves every tenant at or above its line may one be carried below it.
        let found = [false, true].into_iter().any(|straddle| {
            let terms = Terms { straddle, ..Terms::STRICT };
            self.spare_all();
            // On a small fleet every set is tried; on a large one too few would be.
            let small = self.evictable_units(terms, SEEDS_MAX).len() <= EXHAUSTIVE_MAX;
            let mut finds = |strategy: fn(&mut Self, Terms) -> bool| {
                self.spare_all();
                strategy(self, terms)
            };
            (!small && finds(Self::evict_node_by_node))
                || (few && (finds(Self::evict_with_seed) || finds(Self::evict_any_set)))
        });
        if !found {
            self.spare_all();
        }
        found
    }

    fn note_retry(&mut self, at: Option<Timestamp>) {
        *self.retry_at = earlier(*self.retry_at, at);
    }

    /// True when the ask fits, passes no limit, and its tenant stays within the line for which others have to leave.
    fn is_met(&mut self, terms: Terms) -> bool {
        lines::limit_exceeded(self.draft, self.ask).is_none()
            && self.is_entitled()
            && (self.fit.is_enough(self.draft, self.ask) || (terms.moves && self.would_move().is_some()))
    }

    fn is_entitled(&self) -> bool {
        let within = |line| lines::stays_within(self.draft, self.ask.key.tenant, self.ask, line);
        let evicts = |rule| self.rules.get(&rule).is_some_and(|&count| count > 0);
        let may_straddle = |&(branch, right): &_| self.own_branch_stays_within(branch, right);
        (within(Line::Guarantee) || !evicts(EvictionRule::Guarantee))
            && (within(Line::FairShare) || !evicts(EvictionRule::FairShare))
            && self.straddled.iter().all(may_straddle)
    }

    /// Units that would be moved into what was evicted so that the ask fits.
    fn would_move(&mut self) -> Option<Vec<Unit>> {
        let mark = self.draft.mark();
        let leaving = self.evicted.iter().map(|evicted| self.victims.get(evicted.unit).job);
        let commitments = self.commitments.with_leaving(leaving);
        let found = place_by_moving(self.draft, self.ask, self.claimant, &commitments, self.retry_at);
        self.draft.roll_back(mark);
        found.map(|(_, moved)| moved.into_iter().map(|moved| moved.unit).collect())
    }

    /// Evicts a unit by whatever right there is on these terms, unless it is evicted already.
    fn evict_if_allowed(&mut self, terms: Terms, unit: UnitRef) -> bool {
        if self.victims.is_evicted(unit) {
            return true;
        }
        if let Some(right) = self.right_to_evict(unit) {
            self.evict(unit, right);
            return true;
        }
        let Some(branch) = self.branch(unit.tenant).filter(|_| terms.straddle) else { return false };
        let Some(right) = self.right_to_straddle(unit, branch) else { return false };
        self.straddled.push((branch, right));
        self.evict(unit, right);
        true
    }

    /// Evicts a unit with all that leaves when it does.
    fn evict(&mut self, unit: UnitRef, right: Right) {
        let leaving: Vec<UnitRef> = self.victims.leaving_with(unit).collect();
        for unit in leaving {
            self.evict_unit(unit);
            *self.rules.entry(right.why()).or_default() += 1;
            self.evicted.push_back(EvictedUnit { unit, straddles: None, right });
        }
    }

    fn evict_unit(&mut self, at: UnitRef) {
        self.victims.evict(at);
        self.victims.get(at).change(self.draft, (self.ask, &mut self.fit), Draft::evict);
    }

    fn spare_unit(&mut self, at: UnitRef) {
        self.victims.spare(at);
        self.victims.get(at).change(self.draft, (self.ask, &mut self.fit), Draft::spare);
    }

    fn spare_all(&mut self) {
        for evicted in self.evicted.drain(..) {
            self.victims.spare(evicted.unit);
        }
        self.rules.clear();
        self.straddled.clear();
        self.draft.roll_back(self.start);
        self.fit = Fit::of(self.draft, self.ask);
    }
}
