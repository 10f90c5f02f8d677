//! Making room: who has to leave so that an ask can be met (rules 6 to 8).
//!
//! Worked example: 8 GPUs; `a` is guaranteed 4 and holds none, `b` borrows: it holds six jobs of one GPU and has
//! a fair share of 4. `a` asks for 2. Units of `b` are taken in order, newest first, until two more GPUs are free on
//! the draft; then, from the last back, each without whom the ask is still met is spared. If `b` held one job of six
//! GPUs instead, taking it would carry `b` below its line: it *straddles*, is passed over the first time, and is taken
//! alone only because nothing else will do.

mod allowed;
mod in_order;
mod node;
mod price;

use crate::units::NodeId;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::model::policy::Amount;
use crate::plan::cycle::{Commitments, idle};
use crate::plan::draft::{Draft, Mark};
use crate::plan::evict::moves::place_by_moving;
use crate::plan::evict::victims::{Unit, UnitRef, Victims};
use crate::plan::lines::{self, Line, Pass};
use crate::plan::memory::earlier;
use crate::plan::place::{Ask, Fit, place};
use crate::plan::rank::Claim;
use crate::state::ledger::Step;
use crate::state::ledger::event::{Straddle, Why};
pub use price::{gain, is_ripe, price_changes_at, when_ripe};

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
    fn why(self) -> Why {
        match self {
            Self::Above(Line::Entitled | Line::Guarantee) => Why::Guarantee,
            Self::Above(Line::FairShare) => Why::FairShare,
            Self::Lower => Why::Preempt,
            Self::LongerServed => Why::Order,
        }
    }
}

/// A unit that has to leave.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Which.
    pub unit: UnitRef,
    /// By which rule.
    pub why: Why,
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
    asker: Asker,
    settled: &Commitments,
    ripens_at: &mut Option<Timestamp>,
) -> Option<Vec<Taken>> {
    let tree = draft.tree;
    if !tree.roots().iter().any(|&root| victims.any_below(draft, root)) {
        return None;
    }
    let rights = rights(draft, ask, asker);
    let mut search = Search::new(draft, victims, ask, asker, settled, rights);
    let found = search.run();
    *ripens_at = earlier(*ripens_at, search.ripens_at);
    found.then_some(search.taken)
}

/// For whom room is made.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// Which job.
    pub job: JobId,
    /// The pass it is in.
    pub pass: Pass,
    /// It asks for more than its minimum: it takes what is beyond the minimum of others only.
    pub surplus: bool,
    /// How far it may take for its fair share, or by the order of its class, in this plan.
    pub fair_share: Allowance,
    /// From whom it may take by the order of its class.
    pub claim: Option<Claim>,
    /// It runs, and lacks tasks.
    pub grows: bool,
}

/// How far a job may take for its fair share, or by the order of its class (rule 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Allowance {
    /// In the order of rule 8.
    InOrder,
    /// That left more idle than it started: only so that no more does.
    Sparingly,
    /// Not at all.
    Nothing,
}

/// By what rights the ask takes, in order. Who would end above its own line takes from its own first.
fn rights(draft: &Draft<'_>, ask: &Ask<'_>, asker: Asker) -> Vec<Right> {
    let tenant = ask.key.tenant;
    let mut above = Vec::new();
    if asker.pass == Pass::WithinGuarantee {
        above.extend([Right::Above(Line::Entitled), Right::Above(Line::Guarantee)]);
    }
    if asker.pass <= Pass::WithinFairShare && asker.fair_share != Allowance::Nothing {
        above.push(Right::Above(Line::FairShare));
    }
    let within = match asker.pass {
        Pass::WithinGuarantee => lines::stays_within(draft, tenant, ask, Line::Guarantee),
        Pass::WithinFairShare => lines::stays_within(draft, tenant, ask, Line::FairShare),
        Pass::Surplus => false,
    };
    if within {
        above.push(Right::Lower);
    } else {
        above.insert(0, Right::Lower);
    }
    if asker.claim.is_some() && asker.fair_share != Allowance::Nothing {
        above.push(Right::LongerServed);
    }
    above
}

struct Search<'s, 'd, 'k> {
    draft: &'s mut Draft<'d>,
    victims: &'s mut Victims,
    ask: &'s Ask<'k>,
    asker: Asker,
    rights: Vec<Right>,
    /// Whether it waits, in a class that has an order beyond age.
    ordered: bool,
    /// Meters that the ask is charged in.
    meters: Vec<usize>,
    fit: Fit,
    taken: Vec<Taken>,
    /// Branches that a victim was allowed to carry below their line, and by which right.
    straddled: Vec<(TenantId, Right)>,
    start: Mark,
    /// Whose part in this plan is decided.
    settled: &'s Commitments,
    /// How much was taken for a guarantee, and for a fair share.
    above: (usize, usize),
    /// Whether others may be moved into what was taken.
    may_move: bool,
    /// Whether a victim may carry its branch below its line.
    may_straddle: bool,
    /// When somebody who may not be taken yet may be.
    ripens_at: Option<Timestamp>,
}

impl<'s, 'd, 'k> Search<'s, 'd, 'k> {
    fn new(
        draft: &'s mut Draft<'d>,
        victims: &'s mut Victims,
        ask: &'s Ask<'k>,
        asker: Asker,
        settled: &'s Commitments,
        rights: Vec<Right>,
    ) -> Self {
        let fit = Fit::of(draft, ask);
        let ordered = !asker.grows && draft.policy.orders.beyond_age(ask.key.class).is_some();
        let start = draft.mark();
        Self {
            draft,
            victims,
            ask,
            asker,
            rights,
            ordered,
            meters: lines::asked(ask).collect(),
            fit,
            taken: Vec::new(),
            straddled: Vec::new(),
            start,
            settled,
            above: (0, 0),
            may_move: false,
            may_straddle: false,
            ripens_at: None,
        }
    }

    fn run(&mut self) -> bool {
        if self.take_in_order() || self.take_and_move() {
            return true;
        }
        // Where so many do not do, it is not one small victim that was in the way of a useful one.
        let few = self.taken.len() <= SEEDS_MAX;
        // By the order of a class the widest leaves or nobody: a narrow one that waits makes room for one alone. Else,
        // where no line could be used up by the wrong ones, everybody who may be taken was, and it did not do.
        let in_vain = self.asker.claim.is_some() || !self.is_met();
        self.give_all_back();
        if in_vain && !self.somebody_is_above() {
            return false;
        }
        // Only where no set leaves everybody at or above their line may somebody be carried below it.
        for may_straddle in [false, true] {
            self.may_straddle = may_straddle;
            self.give_all_back();
            // On a small fleet every set is looked at; on a large one too few would be.
            let small = self.seeds().len() <= EXHAUSTIVE_MAX;
            if (!small && self.take_node_by_node()) || (few && (self.take_with_seed() || self.take_any_set()))
            {
                return true;
            }
        }
        self.give_all_back();
        false
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

    /// What was taken in order is enough, but in pieces: others may be moved into it.
    fn take_and_move(&mut self) -> bool {
        let few = self.taken.len() <= MOVE_INTO_MAX;
        if self.taken.is_empty() || !few || self.asker.surplus {
            return false;
        }
        self.may_move = true;
        let found = self.is_met() && self.spare_and_accept();
        self.may_move = found;
        found
    }

    fn fits(&mut self, needed: &[Taken]) -> bool {
        self.fit.is_enough(self.draft, self.ask) || (self.may_move && self.would_move(needed).is_some())
    }

    /// Who would be moved into what was taken so that the ask fits.
    fn would_move(&mut self, needed: &[Taken]) -> Option<Vec<Unit>> {
        let mark = self.draft.mark();
        let taken = self.taken.iter().chain(needed).map(|taken| self.victims.get(taken.unit).job);
        let settled = self.settled.with_leaving(taken);
        let found = place_by_moving(self.draft, self.ask, self.asker, &settled, &mut self.ripens_at);
        self.draft.roll_back(mark);
        found.map(|(_, moved)| moved.into_iter().map(|moved| moved.unit).collect())
    }

    /// Takes in order until the ask is met, then spares.
    fn take_in_order(&mut self) -> bool {
        for right in self.rights.clone() {
            while !self.is_met() {
                let Some(unit) = self.next_victim(right) else { break };
                self.take(unit, right);
            }
        }
        self.is_met() && self.spare_and_accept()
    }

    /// Small victims may use up what a tenant has above its line before the useful one comes: each is tried first, at
    /// last two of different branches that straddle.
    fn take_with_seed(&mut self) -> bool {
        self.give_all_back();
        let mut seeds = self.seeds();
        if self.may_straddle {
            seeds.retain(|&unit| self.right_to(unit).is_none());
        }
        seeds.iter().any(|&seed| self.take_seeds(&[seed]))
            || (self.may_straddle && self.take_two_seeds(&seeds))
    }

    fn take_two_seeds(&mut self, seeds: &[UnitRef]) -> bool {
        for (at, &first) in seeds.iter().enumerate() {
            for &second in &seeds[at + 1..] {
                let apart = self.branch(first.tenant) != self.branch(second.tenant);
                if apart && self.take_seeds(&[first, second]) {
                    return true;
                }
            }
        }
        false
    }

    fn take_seeds(&mut self, seeds: &[UnitRef]) -> bool {
        self.give_all_back();
        seeds.iter().all(|&unit| self.take_if_allowed(unit)) && self.take_in_order()
    }

    /// On a small fleet nothing that is allowed is missed.
    fn take_any_set(&mut self) -> bool {
        self.give_all_back();
        let units = self.seeds();
        if units.len() > EXHAUSTIVE_MAX {
            return false;
        }
        for &unit in &units {
            self.drain(unit);
        }
        let mut sets = Vec::new();
        self.add_sets(&units, units.len(), 0, &mut sets);
        for &unit in &units {
            self.victims.spare(unit);
        }
        sets.into_iter().any(|set| {
            self.give_all_back();
            let chosen = units.iter().enumerate().filter(|(at, _)| set & (1 << at) != 0);
            self.take_all(chosen.map(|(_, &unit)| unit).collect()) && self.is_met() && self.spare_and_accept()
        })
    }

    /// Adds the sets that make room, whether they may be taken or not: those of the first `open` units, which are all
    /// drained, beside what is in `set` already. Counting up, a unit comes into play when all sets of those before it
    /// were added.
    fn add_sets(&mut self, units: &[UnitRef], open: usize, set: u32, sets: &mut Vec<u32>) {
        if sets.len() == SETS_MAX || !self.fit.is_enough(self.draft, self.ask) {
            return;
        }
        let Some(last) = open.checked_sub(1) else { return sets.push(set) };
        let (mark, fit) = (self.draft.mark(), self.fit.clone());
        // With a gang, which stands after its surplus in the list, its surplus leaves anyway.
        let chosen = (open..units.len()).filter(|&at| set & (1 << at) != 0);
        if !chosen
            .map(|at| self.victims.get(units[at]).job)
            .any(|job| job == self.victims.get(units[last]).job)
        {
            self.put_back(units[last]);
        }
        self.add_sets(units, last, set, sets);
        self.draft.roll_back(mark);
        self.victims.take(units[last]);
        self.fit = fit;
        self.add_sets(units, last, set | 1 << last, sets);
    }

    /// Takes all of these, the smallest first and those that straddle last; false where that is not allowed.
    fn take_all(&mut self, mut units: Vec<UnitRef>) -> bool {
        units.sort_by_cached_key(|&unit| self.leaves_with(unit));
        let may_straddle = self.may_straddle;
        for straddling in [false, may_straddle] {
            self.may_straddle = straddling;
            let mut left = usize::MAX;
            while units.len() < left {
                left = units.len();
                units.retain(|&unit| !self.take_if_allowed(unit));
            }
        }
        units.is_empty()
    }

    /// Every unit that might be taken as things are, in the order of rule 8.
    fn seeds(&mut self) -> Vec<UnitRef> {
        let mut seeds = Vec::new();
        let tree = self.draft.tree;
        for tenant in self.by_rank(tree.roots()) {
            if !self.might_give_any(tenant) {
                continue;
            }
            let mut from = 0;
            while let Some(unit) = self.victims.next_untaken(self.draft, tenant, from) {
                if seeds.len() == SEEDS_MAX {
                    return seeds;
                }
                from = unit.at + 1;
                if self.might_take(unit) && self.is_useful(unit) {
                    seeds.push(unit);
                }
            }
        }
        seeds
    }

    /// Tenants that might have to give, in the order of rule 8.
    fn by_rank(&mut self, siblings: &[TenantId]) -> Vec<TenantId> {
        let mut ranked: Vec<TenantId> = siblings.to_vec();
        ranked.retain(|&tenant| self.victims.any_below(self.draft, tenant));
        ranked.sort_by_cached_key(|&tenant| self.rank(tenant));
        let tree = self.draft.tree;
        let with_below = |tenant: TenantId| {
            let mut all = alloc::vec![tenant];
            all.extend(self.by_rank(&tree.lines[tenant.index()].children));
            all
        };
        ranked.into_iter().flat_map(with_below).collect()
    }

    /// True when a unit may be taken by some right; where nobody may be carried below their line, without doing so.
    fn might_take(&mut self, unit: UnitRef) -> bool {
        if self.may_straddle {
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
        let in_the_way = lines::limit_passed(self.draft, self.ask)
            .is_some_and(|tenant| self.draft.tree.lineage(unit.tenant).any(|above| above == tenant));
        let unit = self.victims.get(unit);
        in_the_way || unit.steps.iter().any(|step| self.ask.goes_to(step.place.pool))
    }

    fn take_if_allowed(&mut self, unit: UnitRef) -> bool {
        if self.victims.is_taken(unit) {
            return true;
        }
        if let Some(right) = self.right_to(unit) {
            self.take(unit, right);
            return true;
        }
        let Some(branch) = self.branch(unit.tenant).filter(|_| self.may_straddle) else { return false };
        let Some(right) = self.right_to_straddle(unit, branch) else { return false };
        self.straddled.push((branch, right));
        self.take(unit, right);
        true
    }

    /// True when the ask fits, passes no limit, and its tenant stays within its line if others have to leave.
    fn is_met(&mut self) -> bool {
        self.is_met_with(&[])
    }

    /// The same, with these taken beside those in the list.
    fn is_met_with(&mut self, needed: &[Taken]) -> bool {
        lines::limit_passed(self.draft, self.ask).is_none() && self.is_entitled() && self.fits(needed)
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

    /// From the last taken back, whoever is not needed is spared; then the price is judged.
    fn spare_and_accept(&mut self) -> bool {
        // Of a gang that has to leave, no task stays.
        let mut gangs: BTreeSet<JobId> = BTreeSet::new();
        let mut needed = Vec::new();
        while let Some(taken) = self.taken.pop() {
            let unit = self.victims.get(taken.unit);
            let (job, surplus) = (unit.job, unit.surplus);
            if surplus && gangs.contains(&job) {
                needed.push(taken);
                continue;
            }
            self.put_back(taken.unit);
            self.count_above(taken.right, false);
            if self.is_met_with(&needed) {
                continue;
            }
            self.drain(taken.unit);
            self.count_above(taken.right, true);
            if !surplus {
                gangs.insert(job);
            }
            needed.push(taken);
        }
        needed.reverse();
        self.taken = needed;
        self.note_straddles();
        self.all_stay_away(&gangs) && self.leaves_little_idle() && self.is_worth_it()
    }

    /// True when nobody who was taken for a fair share, or from another tenant by class or priority, could at once be
    /// reclaimed back, now that it is known who else leaves. Tasks beyond the minimum of a gang that leaves do not come
    /// back without it.
    fn all_stay_away(&mut self, gangs: &BTreeSet<JobId>) -> bool {
        let own = self.ask.key.tenant;
        let judged: Vec<(UnitRef, &[Line])> = self
            .taken
            .iter()
            .filter_map(|taken| {
                let lines: &[Line] = match taken.right {
                    Right::Above(Line::FairShare) => &[Line::Guarantee],
                    Right::Lower if taken.unit.tenant != own => &[Line::Guarantee, Line::FairShare],
                    Right::Above(_) | Right::Lower | Right::LongerServed => return None,
                };
                Some((taken.unit, lines))
            })
            .collect();
        judged.into_iter().all(|(at, lines)| {
            let unit = self.victims.get(at);
            let (standing, amount) = (unit.standing, unit.amount.clone());
            if unit.surplus && gangs.contains(&unit.job) {
                return true;
            }
            self.draft.count(standing, amount.clone(), true);
            let comes_back = lines.iter().any(|&line| self.comes_back(at, line));
            self.draft.count(standing, amount, false);
            !comes_back
        })
    }

    /// True when no more of what was taken for a fair share or by order stands idle than starts, where that is asked for: whoever
    /// comes after can only use more of it.
    fn leaves_little_idle(&mut self) -> bool {
        if self.asker.fair_share != Allowance::Sparingly {
            return true;
        }
        let for_share = self.taken.iter().filter(|taken| taken.why.is_judged_by_idle());
        let freed: Vec<Step> =
            for_share.flat_map(|taken| &self.victims.get(taken.unit).steps).copied().collect();
        let started = self.ask.units().parts();
        let mark = self.draft.mark();
        let placed = place(self.draft, self.ask).is_some();
        let idle = idle(self.draft, &freed);
        self.draft.roll_back(mark);
        !placed || idle <= started
    }

    /// What binds everything but guarantees: the blast radius, and a gain above the cost. Who is moved on top costs too.
    fn is_worth_it(&mut self) -> bool {
        let rules = &self.draft.policy.preemption;
        let by_moving = self.may_move && !self.fit.is_enough(self.draft, self.ask);
        let moved = if by_moving { self.would_move(&[]).unwrap_or_default() } else { Vec::new() };
        let bound = self.taken.iter().filter(|taken| taken.why != Why::Guarantee);
        let mut bound: Vec<&Unit> = bound.map(|taken| self.victims.get(taken.unit)).collect();
        let mut jobs: Vec<JobId> = bound.iter().map(|unit| unit.job).collect();
        jobs.sort_unstable();
        jobs.dedup();
        let few = jobs.len() <= usize::try_from(rules.victims_max).unwrap_or(usize::MAX);
        bound.extend(&moved);
        let cost: u64 = bound.iter().map(|unit| unit.cost).fold(0, u64::saturating_add);
        if few && (bound.is_empty() || gain(self.draft, self.ask, &bound) > cost) {
            return true;
        }
        if few {
            self.ripens_at = earlier(self.ripens_at, price_changes_at(self.draft, &bound));
        }
        false
    }

    fn note_straddles(&mut self) {
        let mut known: Vec<(TenantId, Line, Option<Straddle>)> = Vec::new();
        for at in 0..self.taken.len() {
            let (tenant, Right::Above(line)) = (self.taken[at].unit.tenant, self.taken[at].right) else {
                continue;
            };
            let found = known.iter().find(|&&(other, other_line, _)| (other, other_line) == (tenant, line));
            let straddles = if let Some(&(.., straddles)) = found {
                straddles
            } else {
                let straddles = self.shortfall(tenant, line);
                known.push((tenant, line, straddles));
                straddles
            };
            self.taken[at].straddles = straddles;
        }
    }

    /// Whom what was taken leaves below its line, and by how much.
    fn shortfall(&self, tenant: TenantId, line: Line) -> Option<Straddle> {
        self.path(tenant).find_map(|tenant| {
            self.meters.iter().find_map(|&meter| match lines::line(self.draft, tenant, meter, line) {
                Amount::Unlimited => None,
                Amount::Of(line) => {
                    let short = line.saturating_sub(self.draft.used(tenant)[meter]);
                    let of_taken = self.taken.iter().any(|taken| {
                        let unit = self.victims.get(taken.unit);
                        unit.amount[meter] > 0
                            && self.draft.tree.lineage(taken.unit.tenant).any(|x| x == tenant)
                    });
                    let falls = short > 0 && of_taken && self.was_above(tenant, meter, line);
                    falls.then(|| Straddle { tenant, short: self.told(meter, short) })
                }
            })
        })
    }

    /// An amount of a meter as a receipt tells it: GPUs in 1/3000, whether normalised or not.
    fn told(&self, meter: usize, amount: u64) -> u64 {
        let per_gpu = self.draft.tree.meters[meter].per_gpu().unwrap_or(3000);
        amount.div_ceil(per_gpu / 3000)
    }

    /// True when the tenant was above its line before anything was taken for this ask.
    fn was_above(&self, tenant: TenantId, meter: usize, line: u64) -> bool {
        let of_tenant =
            |taken: &&Taken| self.draft.tree.lineage(taken.unit.tenant).any(|above| above == tenant);
        let gone =
            self.taken.iter().filter(of_tenant).map(|taken| self.victims.get(taken.unit).amount[meter]);
        self.draft.used(tenant)[meter] + gone.sum::<u64>() > line
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
            self.taken.push(Taken { unit, why: right.why(), straddles: None, right });
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
        nodes.iter().for_each(|&node| self.fit.add(self.draft, self.ask, node, false));
        change(self.draft, unit);
        nodes.iter().for_each(|&node| self.fit.add(self.draft, self.ask, node, true));
    }

    fn give_all_back(&mut self) {
        for taken in core::mem::take(&mut self.taken) {
            self.victims.spare(taken.unit);
        }
        self.above = (0, 0);
        self.straddled.clear();
        self.draft.roll_back(self.start);
        self.fit = Fit::of(self.draft, self.ask);
    }
}
