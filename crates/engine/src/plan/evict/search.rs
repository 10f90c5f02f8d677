//! Making room: who has to leave so that an ask can be met (rules 6 to 8).
//!
//! Worked example: 8 GPUs; `a` is guaranteed 4 and holds none, `b` borrows: it holds six jobs of one GPU and has
//! a fair share of 4. `a` asks for 2. Units of `b` are taken in order, newest first, until two more GPUs are free on
//! the draft; then, from the last back, each without whom the ask is still met is spared. If `b` held one job of six
//! GPUs instead, taking it would carry `b` below its line: it *straddles*, is passed over the first time, and is taken
//! alone only because nothing else will do.

mod accept;
mod allowed;
mod in_order;
mod node;
mod price;
mod strategies;

use crate::units::NodeId;
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
pub(crate) use price::{evictable_at, gain, is_evictable, price_changes_at};

use crate::units::{JobId, TenantId, Timestamp};

/// The most units that are each tried first when taking them in order did not do.
const SEEDS_MAX: usize = 64;
/// Up to so many units every set of them that makes room is tried at last,
const EXHAUSTIVE_MAX: usize = 14;
/// but no more of them than this: each costs about ten microseconds.
const SETS_MAX: usize = 2048;

/// So many victims at most are combined with moves: each is then judged by moving.
const MOVE_INTO_MAX: usize = 16;

/// By what right something is taken.
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
#[derive(Clone, Debug)]
pub(crate) struct TakenUnit {
    /// Which.
    pub unit: UnitRef,
    /// By which rule.
    pub why: EvictionRule,
    /// Whom it carries below its line.
    pub straddles: Option<Straddle>,
    right: Right,
}

/// Takes what has to leave so that the ask can be met, possibly by moving others then, and leaves it taken; or leaves
/// everything as it was.
pub(in crate::plan) fn make_room(
    draft: &mut Draft<'_>,
    victims: &mut Victims,
    ask: &Ask<'_>,
    claimant: Claimant,
    commitments: &Commitments,
    retry_at: &mut Option<Timestamp>,
) -> Option<Vec<TakenUnit>> {
    let tree = draft.tree;
    if !tree.roots().iter().any(|&root| victims.any_below(draft, root)) {
        return None;
    }
    let rights = rights(draft, ask, claimant);
    let mut search = VictimSearch::new(draft, victims, ask, claimant, commitments, rights);
    let found = search.run();
    *retry_at = earlier(*retry_at, search.retry_at);
    found.then_some(search.taken)
}

/// For whom room is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimant {
    /// Which job.
    pub job: JobId,
    /// The pass it is in.
    pub pass: Pass,
    /// It asks for more than its minimum: it takes what is beyond the minimum of others only.
    pub surplus: bool,
    /// How far it may take for its fair share, or by the order of its class, in this plan.
    pub fair_share: Allowance,
    /// From whom it may take by the order of its class.
    pub claim: Option<OrderClaim>,
    /// It runs, and lacks tasks.
    pub grows: bool,
}

/// How far a job may take for its fair share, or by the order of its class (rule 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Allowance {
    /// In the order of rule 8.
    InOrder,
    /// That left more idle than it started: only so that no more does.
    Sparingly,
    /// Not at all.
    Nothing,
}

/// By what rights the ask takes, in order. Who would end above its own line takes from its own first.
fn rights(draft: &Draft<'_>, ask: &Ask<'_>, claimant: Claimant) -> Vec<Right> {
    let tenant = ask.key.tenant;
    let mut above = Vec::new();
    if claimant.pass == Pass::WithinGuarantee {
        above.extend([Right::Above(Line::Entitled), Right::Above(Line::Guarantee)]);
    }
    if claimant.pass <= Pass::WithinFairShare && claimant.fair_share != Allowance::Nothing {
        above.push(Right::Above(Line::FairShare));
    }
    let within = match claimant.pass {
        Pass::WithinGuarantee => lines::stays_within(draft, tenant, ask, Line::Guarantee),
        Pass::WithinFairShare => lines::stays_within(draft, tenant, ask, Line::FairShare),
        Pass::Surplus => false,
    };
    if within {
        above.push(Right::Lower);
    } else {
        above.insert(0, Right::Lower);
    }
    if claimant.claim.is_some() && claimant.fair_share != Allowance::Nothing {
        above.push(Right::LongerServed);
    }
    above
}

/// What a search may do beside making others leave.
#[derive(Clone, Copy)]
struct Terms {
    /// A victim may carry its branch below its line, one in each branch.
    straddle: bool,
    /// Others may be moved into what was taken.
    moves: bool,
}

impl Terms {
    const STRICT: Self = Self { straddle: false, moves: false };
}

/// A way to find victims: with nothing taken before, and with what it found taken after it.
type Strategy<'s, 'd, 'k> = fn(&mut VictimSearch<'s, 'd, 'k>, Terms) -> bool;

/// A search for those that have to leave for one ask.
struct VictimSearch<'s, 'd, 'k> {
    draft: &'s mut Draft<'d>,
    victims: &'s mut Victims,
    ask: &'s Ask<'k>,
    claimant: Claimant,
    rights: Vec<Right>,
    /// Whether it waits, in a class that has an order beyond age.
    ordered: bool,
    /// Meters that the ask is charged in.
    meters: Vec<usize>,
    fit: Fit,
    taken: Vec<TakenUnit>,
    /// Branches that a victim was allowed to carry below their line, and by which right.
    straddled: Vec<(TenantId, Right)>,
    start: Mark,
    /// Whose part in this plan is decided.
    commitments: &'s Commitments,
    /// How much was taken for a guarantee, and for a fair share.
    above: (usize, usize),
    /// When somebody who may not be taken yet may be.
    retry_at: Option<Timestamp>,
}

impl<'s, 'd, 'k> VictimSearch<'s, 'd, 'k> {
    fn new(
        draft: &'s mut Draft<'d>,
        victims: &'s mut Victims,
        ask: &'s Ask<'k>,
        claimant: Claimant,
        commitments: &'s Commitments,
        rights: Vec<Right>,
    ) -> Self {
        let fit = Fit::of(draft, ask);
        let ordered = !claimant.grows && draft.policy.orders.beyond_age(ask.key.class).is_some();
        let start = draft.mark();
        Self {
            draft,
            victims,
            ask,
            claimant,
            rights,
            ordered,
            meters: lines::meters_of(ask).collect(),
            fit,
            taken: Vec::new(),
            straddled: Vec::new(),
            start,
            commitments,
            above: (0, 0),
            retry_at: None,
        }
    }

    /// Tries one strategy after the other; where none finds anybody, nothing is taken.
    fn run(&mut self) -> bool {
        if self.take_in_order() || self.take_and_move() {
            return true;
        }
        // Where so many do not do, it is not one small victim that was in the way of a useful one.
        let few = self.taken.len() <= SEEDS_MAX;
        // By the order of a class the widest leaves or nobody: a narrow one that waits makes room for one alone. Else,
        // where no line could be used up by the wrong ones, everybody who may be taken was, and it did not do.
        let in_vain = self.claimant.claim.is_some() || !self.is_met(Terms::STRICT);
        self.spare_all();
        if in_vain && !self.somebody_is_above() {
            return false;
        }
        // Only where no set leaves everybody at or above their line may somebody be carried below it.
        let found = [false, true].into_iter().any(|straddle| {
            let terms = Terms { straddle, ..Terms::STRICT };
            self.spare_all();
            // On a small fleet every set is looked at; on a large one too few would be.
            let small = self.seeds(terms).len() <= EXHAUSTIVE_MAX;
            let strategies: [(bool, Strategy<'s, 'd, 'k>); 3] =
                [(!small, Self::take_node_by_node), (few, Self::take_with_seed), (few, Self::take_any_set)];
            strategies.into_iter().filter(|&(worth_a_try, _)| worth_a_try).any(|(_, strategy)| {
                self.spare_all();
                strategy(self, terms)
            })
        });
        if !found {
            self.spare_all();
        }
        found
    }

    /// True when somebody else is above a line that the ask may take from.
    fn somebody_is_above(&mut self) -> bool {
        let above: Vec<Right> =
            self.rights.iter().copied().filter(|right| matches!(right, Right::Above(_))).collect();
        let mut tenants = self.draft.state.tenants.ids();
        tenants.any(|tenant| above.iter().any(|&right| self.might_give(tenant, right)))
    }

    fn might_give_any(&mut self, tenant: TenantId) -> bool {
        (0..self.rights.len()).any(|at| self.might_give(tenant, self.rights[at]))
    }

    fn fits(&mut self, terms: Terms, needed: &[TakenUnit]) -> bool {
        self.fit.is_enough(self.draft, self.ask) || (terms.moves && self.would_move(needed).is_some())
    }

    /// Who would be moved into what was taken so that the ask fits.
    fn would_move(&mut self, needed: &[TakenUnit]) -> Option<Vec<Unit>> {
        let mark = self.draft.mark();
        let taken = self.taken.iter().chain(needed).map(|taken| self.victims.get(taken.unit).job);
        let commitments = self.commitments.with_leaving(taken);
        let found = place_by_moving(self.draft, self.ask, self.claimant, &commitments, &mut self.retry_at);
        self.draft.roll_back(mark);
        found.map(|(_, moved)| moved.into_iter().map(|moved| moved.unit).collect())
    }

    /// True when a unit may be taken by some right; where nobody may be carried below their line, without doing so.
    fn might_take(&mut self, terms: Terms, unit: UnitRef) -> bool {
        if terms.straddle {
            return (0..self.rights.len()).any(|at| self.may_take(unit, self.rights[at]));
        }
        self.right_to(unit).is_some()
    }

    /// By what right the unit may be taken so that nobody ends below their line.
    fn right_to(&mut self, unit: UnitRef) -> Option<Right> {
        (0..self.rights.len()).find_map(|at| {
            let right = self.rights[at];
            (self.may_take(unit, right) && !self.would_straddle(unit, right)).then_some(right)
        })
    }

    /// By what right it may be taken if somebody may be carried below. Whom a guarantee takes from first is no line
    /// that anybody could fall below.
    fn right_to_straddle(&mut self, unit: UnitRef, branch: TenantId) -> Option<Right> {
        let mut rights = self.rights.clone();
        rights.retain(|&right| right != Right::Above(Line::Entitled));
        rights
            .into_iter()
            .find(|&right| self.may_take(unit, right) && self.own_branch_stays_within(branch, right))
    }

    /// True when the unit is where the ask could go, or counts towards a limit that is in its way.
    fn is_useful(&self, unit: UnitRef) -> bool {
        let in_the_way = lines::limit_exceeded(self.draft, self.ask)
            .is_some_and(|tenant| self.draft.tree.lineage(unit.tenant).any(|above| above == tenant));
        let unit = self.victims.get(unit);
        in_the_way || unit.steps.iter().any(|step| self.ask.goes_to(step.place.pool))
    }

    fn take_if_allowed(&mut self, terms: Terms, unit: UnitRef) -> bool {
        if self.victims.is_taken(unit) {
            return true;
        }
        if let Some(right) = self.right_to(unit) {
            self.take(unit, right);
            return true;
        }
        let Some(branch) = self.branch(unit.tenant).filter(|_| terms.straddle) else { return false };
        let Some(right) = self.right_to_straddle(unit, branch) else { return false };
        self.straddled.push((branch, right));
        self.take(unit, right);
        true
    }

    /// True when the ask fits, passes no limit, and its tenant stays within its line if others have to leave.
    fn is_met(&mut self, terms: Terms) -> bool {
        self.is_met_with(terms, &[])
    }

    /// The same, with these taken beside those in the list.
    fn is_met_with(&mut self, terms: Terms, needed: &[TakenUnit]) -> bool {
        lines::limit_exceeded(self.draft, self.ask).is_none()
            && self.is_entitled()
            && self.fits(terms, needed)
    }

    fn is_entitled(&self) -> bool {
        let within = |line| lines::stays_within(self.draft, self.ask.key.tenant, self.ask, line);
        let (guarantee, fair_share) = self.above;
        let may_straddle = |&(branch, right): &_| self.own_branch_stays_within(branch, right);
        (guarantee == 0 || within(Line::Guarantee))
            && (fair_share == 0 || within(Line::FairShare))
            && self.straddled.iter().all(may_straddle)
    }

    fn count_above(&mut self, right: Right, more: bool) {
        let count = match right {
            Right::Above(Line::FairShare) => &mut self.above.1,
            Right::Above(Line::Entitled | Line::Guarantee) => &mut self.above.0,
            Right::Lower | Right::LongerServed => return,
        };
        *count = if more { *count + 1 } else { *count - 1 };
    }

    fn take(&mut self, unit: UnitRef, right: Right) {
        let mut with_it = Vec::new();
        if !self.victims.get(unit).surplus {
            with_it = self.victims.surplus_of(unit);
        }
        with_it.push(unit);
        for unit in with_it {
            self.drain(unit);
            self.count_above(right, true);
            self.taken.push(TakenUnit { unit, why: right.why(), straddles: None, right });
        }
    }

    fn drain(&mut self, at: UnitRef) {
        self.victims.take(at);
        self.change(at, Draft::evict);
    }

    fn put_back(&mut self, at: UnitRef) {
        self.victims.spare(at);
        self.change(at, Draft::spare);
    }

    /// Changes what a unit holds on the draft, and how much of the ask fits with it.
    fn change(&mut self, at: UnitRef, change: fn(&mut Draft<'d>, &Unit)) {
        let unit = self.victims.get(at);
        let mut nodes: Vec<NodeId> = unit.steps.iter().map(|step| step.place.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        for &node in &nodes {
            self.fit.add(self.draft, self.ask, node, false);
        }
        change(self.draft, unit);
        for &node in &nodes {
            self.fit.add(self.draft, self.ask, node, true);
        }
    }

    fn spare_all(&mut self) {
        for taken in core::mem::take(&mut self.taken) {
            self.victims.spare(taken.unit);
        }
        self.above = (0, 0);
        self.straddled.clear();
        self.draft.roll_back(self.start);
        self.fit = Fit::of(self.draft, self.ask);
    }
}
