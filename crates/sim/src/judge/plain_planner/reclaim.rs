//! Making room: who has to leave so that an ask can be met (rules 6 to 8).
//!
//! Victims are taken in order until the ask is met; then, from the last back, each without whom it still is met is
//! spared. Where that does not do, others may be moved into what was taken; then each unit is tried as the first, and
//! at last every set of a few. What was tried is only a list: the world without it is worked out again every time.

use std::cmp::Reverse;

use wharf_engine::model::job::Class;
use wharf_engine::model::placement::Placement;
use wharf_engine::model::policy::{Amount, Within};
use wharf_engine::state::ledger::event::{EvictionRule, Straddle};
use wharf_engine::units::{JobId, TenantId};

use super::idle_of;
use super::lines::{Allowance, Ask, Line, Pass, Ratio};
use super::moves::place_by_moving;
use super::place::place;
use super::units::{Unit, gain, is_ripe, units_of};
use super::world::{Facts, Meter, World};

/// The most units that are each tried first.
const SEEDS_MAX: usize = 64;
/// Up to so many units every set of them is tried.
const EXHAUSTIVE_MAX: usize = 14;
/// So many victims at most are combined with moves.
const MOVE_INTO_MAX: usize = 16;

/// By what right something is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Right {
    /// It is above its tenant's line.
    Above(Line),
    /// It gives way by class or priority.
    Lower,
}

impl Right {
    fn why(self) -> EvictionRule {
        match self {
            Self::Above(Line::Entitled | Line::Guarantee) => EvictionRule::Guarantee,
            Self::Above(Line::FairShare) => EvictionRule::FairShare,
            Self::Lower => EvictionRule::Preempt,
        }
    }
}

/// A unit that has to leave.
#[derive(Clone, Debug)]
pub(super) struct Taken<'a> {
    pub(super) unit: Unit<'a>,
    pub(super) why: EvictionRule,
    pub(super) straddles: Option<Straddle>,
    right: Right,
}

/// What was taken so far.
#[derive(Clone, Default)]
struct Tried<'a> {
    taken: Vec<Taken<'a>>,
    /// Branches that a victim was allowed to carry below their line, and by which right.
    straddled: Vec<(TenantId, Right)>,
}

impl Tried<'_> {
    fn is_straddled(&self, tenant: TenantId) -> bool {
        self.straddled.iter().any(|&(branch, _)| branch == tenant)
    }

    /// True when the job leaves as a whole: then no task of it stays.
    fn takes_gang(&self, job: JobId) -> bool {
        self.taken.iter().any(|taken| taken.unit.job == job && !taken.unit.surplus)
    }
}

/// Who has to leave so that the ask can be met, possibly by moving others then.
pub(super) fn make_room<'a>(world: &World<'a>, ask: &Ask<'a>) -> Option<Vec<Taken<'a>>> {
    let search = Search { facts: world.facts, before: world, ask, rights: rights(world, ask) };
    let (tried, found) = search.take_in_order(Tried::default());
    // Only where no set leaves everybody at or above their line may somebody be carried below it.
    let others = |straddle: bool| search.take_with_seed(straddle).or_else(|| search.take_any_set(straddle));
    let found = found.or_else(|| search.take_and_move(tried)).or_else(|| others(false));
    Some(found.or_else(|| others(true))?.taken)
}

/// The world without what was taken.
pub(super) fn world_without<'a>(before: &World<'a>, taken: &[Taken<'a>]) -> World<'a> {
    let mut world = before.clone();
    for taken in taken {
        world.take_away(taken.unit.job, &taken.unit.tasks);
    }
    world
}

/// By what rights the ask takes, in order. Who would end above its own line takes from its own first.
fn rights(world: &World<'_>, ask: &Ask<'_>) -> Vec<Right> {
    let (own, mut others) = (vec![Right::Lower], Vec::new());
    if ask.pass == Pass::WithinGuarantee {
        others.extend([Right::Above(Line::Entitled), Right::Above(Line::Guarantee)]);
    }
    if ask.pass <= Pass::WithinFairShare && ask.fair_share != Allowance::Nothing {
        others.push(Right::Above(Line::FairShare));
    }
    let others_first = match ask.pass {
        Pass::WithinGuarantee => world.stays_within(ask.tenant(), ask, Line::Guarantee),
        Pass::WithinFairShare => world.stays_within(ask.tenant(), ask, Line::FairShare),
        Pass::Surplus => false,
    };
    if others_first { [others, own].concat() } else { [own, others].concat() }
}

struct Search<'s, 'a> {
    facts: &'a Facts<'a>,
    before: &'s World<'a>,
    ask: &'s Ask<'a>,
    rights: Vec<Right>,
}

impl<'a> Search<'_, 'a> {
    fn without(&self, tried: &Tried<'a>) -> World<'a> {
        world_without(self.before, &tried.taken)
    }

    /// Takes in order until the ask is met, then spares and judges. Also returns what was taken.
    fn take_in_order(&self, mut tried: Tried<'a>) -> (Tried<'a>, Option<Tried<'a>>) {
        for &right in &self.rights {
            while !self.is_met(&tried, false) {
                let Some(unit) = self.next_victim(&tried, right) else { break };
                self.take(&mut tried, unit, right);
            }
        }
        if !self.is_met(&tried, false) {
            return (tried, None);
        }
        let tried = self.spare(tried, false);
        let accepted = self.is_acceptable(&tried, false).then(|| tried.clone());
        (tried, accepted)
    }

    /// What was taken in order is enough, but in pieces: others may be moved into it.
    fn take_and_move(&self, tried: Tried<'a>) -> Option<Tried<'a>> {
        let few = !tried.taken.is_empty() && tried.taken.len() <= MOVE_INTO_MAX;
        if !few || self.ask.surplus || !self.is_met(&tried, true) {
            return None;
        }
        Some(self.spare(tried, true)).filter(|tried| self.is_acceptable(tried, true))
    }

    /// Each unit is tried first, at last two of different branches that straddle.
    fn take_with_seed(&self, straddle: bool) -> Option<Tried<'a>> {
        let mut seeds = self.seeds(straddle);
        if straddle {
            seeds.retain(|unit| self.right_to(&Tried::default(), unit).is_none());
        }
        if let Some(found) = seeds.iter().find_map(|seed| self.take_seeds(&[seed], straddle)) {
            return Some(found);
        }
        for (at, first) in seeds.iter().enumerate().filter(|_| straddle) {
            for second in &seeds[at + 1..] {
                if self.branch(first.tenant()) != self.branch(second.tenant()) {
                    let found = self.take_seeds(&[first, second], straddle);
                    if found.is_some() {
                        return found;
                    }
                }
            }
        }
        None
    }

    fn take_seeds(&self, seeds: &[&Unit<'a>], straddle: bool) -> Option<Tried<'a>> {
        let mut tried = Tried::default();
        let allowed = seeds.iter().all(|unit| self.take_if_allowed(&mut tried, unit, straddle));
        if allowed { self.take_in_order(tried).1 } else { None }
    }

    /// On a small fleet nothing that is allowed is missed: every set, counting up.
    fn take_any_set(&self, straddle: bool) -> Option<Tried<'a>> {
        let seeds = self.seeds(straddle);
        if seeds.len() > EXHAUSTIVE_MAX {
            return None;
        }
        (1..1u32 << seeds.len()).find_map(|set| {
            let chosen = seeds.iter().enumerate().filter(|(at, _)| set & (1 << at) != 0);
            let tried = self.take_all(chosen.map(|(_, unit)| unit).collect(), straddle)?;
            if !self.is_met(&tried, false) {
                return None;
            }
            Some(self.spare(tried, false)).filter(|tried| self.is_acceptable(tried, false))
        })
    }

    /// All of these, the smallest first and those that straddle last, if that is allowed.
    fn take_all(&self, mut units: Vec<&Unit<'a>>, straddle: bool) -> Option<Tried<'a>> {
        let mut tried = Tried::default();
        units.sort_by_key(|unit| leaves_with(self.before, unit));
        for straddle in [false, straddle] {
            let mut left = usize::MAX;
            while units.len() < left {
                left = units.len();
                units.retain(|unit| !self.take_if_allowed(&mut tried, unit, straddle));
            }
        }
        units.is_empty().then_some(tried)
    }

    /// Every unit that might be taken as things are, in the order of rule 8.
    fn seeds(&self, straddle: bool) -> Vec<Unit<'a>> {
        let nothing = Tried::default();
        let mut seeds: Vec<Unit<'a>> = Vec::new();
        for tenant in self.by_rank(self.facts.children(None)) {
            for unit in units_of(self.before, tenant) {
                let may_take = if straddle {
                    self.rights.iter().any(|&right| self.may_take(self.before, &nothing, &unit, right))
                } else {
                    self.right_to(&nothing, &unit).is_some()
                };
                if may_take && self.is_useful(&unit) {
                    seeds.push(unit);
                }
            }
        }
        seeds.truncate(SEEDS_MAX);
        seeds
    }

    /// Tenants with everybody below them, in the order of rule 8.
    fn by_rank(&self, mut siblings: Vec<TenantId>) -> Vec<TenantId> {
        siblings.sort_by_key(|&tenant| self.rank(self.before, tenant));
        let mut ranked = Vec::new();
        for tenant in siblings {
            ranked.push(tenant);
            ranked.extend(self.by_rank(self.facts.children(Some(tenant))));
        }
        ranked
    }

    /// By what right the unit may be taken so that nobody ends below their line.
    fn right_to(&self, tried: &Tried<'a>, unit: &Unit<'a>) -> Option<Right> {
        let world = self.without(tried);
        let allowed = |right: &Right| {
            self.may_take(&world, tried, unit, *right) && !self.would_straddle(&world, unit, *right)
        };
        self.rights.iter().copied().find(allowed)
    }

    /// By what right it may be taken if somebody may be carried below. Whom a guarantee takes from first is no line that
    /// anybody could fall below.
    fn right_to_straddle(&self, tried: &Tried<'a>, unit: &Unit<'a>, branch: TenantId) -> Option<Right> {
        let world = self.without(tried);
        let rights = self.rights.iter().copied().filter(|&right| right != Right::Above(Line::Entitled));
        let allowed = |right: &Right| {
            self.may_take(&world, tried, unit, *right) && self.own_branch_stays_within(&world, branch, *right)
        };
        rights.into_iter().find(allowed)
    }

    /// True when the unit is where the ask could go, or counts towards a limit that is in its way.
    fn is_useful(&self, unit: &Unit<'a>) -> bool {
        let limit = self.before.limit_exceeded(self.ask);
        let in_the_way = limit.is_some_and(|tenant| self.facts.is_below(unit.tenant(), tenant));
        in_the_way || unit.tasks.iter().any(|place| place.pool == self.ask.pool)
    }

    fn take_if_allowed(&self, tried: &mut Tried<'a>, unit: &Unit<'a>, straddle: bool) -> bool {
        if tried.taken.iter().any(|taken| taken.unit == *unit) {
            return true;
        }
        if let Some(right) = self.right_to(tried, unit) {
            self.take(tried, unit.clone(), right);
            return true;
        }
        let Some(branch) = self.branch(unit.tenant()).filter(|_| straddle) else { return false };
        let Some(right) = self.right_to_straddle(tried, unit, branch) else { return false };
        tried.straddled.push((branch, right));
        self.take(tried, unit.clone(), right);
        true
    }

    /// Takes a unit; who takes a gang takes its surplus tasks first.
    fn take(&self, tried: &mut Tried<'a>, unit: Unit<'a>, right: Right) {
        let mut units = surplus_of(&self.without(tried), &unit);
        units.push(unit);
        for unit in units {
            tried.taken.push(Taken { unit, why: right.why(), straddles: None, right });
        }
    }

    /// True when the ask fits, passes no limit, and its tenant stays within its line if others have to leave.
    fn is_met(&self, tried: &Tried<'a>, may_move: bool) -> bool {
        let world = self.without(tried);
        let entitled = tried.taken.iter().all(|taken| match taken.right {
            Right::Lower => true,
            Right::Above(Line::FairShare) => world.stays_within(self.ask.tenant(), self.ask, Line::FairShare),
            Right::Above(Line::Entitled | Line::Guarantee) => {
                world.stays_within(self.ask.tenant(), self.ask, Line::Guarantee)
            }
        });
        let fits =
            || place(&world, self.ask).is_some() || (may_move && place_by_moving(&world, self.ask).is_some());
        let may_straddle =
            |&(branch, right): &(TenantId, Right)| self.own_branch_stays_within(&world, branch, right);
        let entitled = entitled && tried.straddled.iter().all(may_straddle);
        world.limit_exceeded(self.ask).is_none() && entitled && fits()
    }

    /// From the last taken back, whoever is not needed is spared.
    fn spare(&self, mut tried: Tried<'a>, may_move: bool) -> Tried<'a> {
        for at in (0..tried.taken.len()).rev() {
            let unit = &tried.taken[at].unit;
            let with_its_gang = unit.surplus
                && tried.taken[at..].iter().any(|other| other.unit.job == unit.job && !other.unit.surplus);
            if with_its_gang {
                continue;
            }
            let mut without_it = tried.clone();
            without_it.taken.remove(at);
            if self.is_met(&without_it, may_move) {
                tried = without_it;
            }
        }
        let straddles: Vec<Option<Straddle>> =
            tried.taken.iter().map(|taken| self.straddles(&tried, taken)).collect();
        for (taken, straddles) in tried.taken.iter_mut().zip(straddles) {
            taken.straddles = straddles;
        }
        tried
    }

    /// True when nobody comes back at once, little stands idle where that is asked for, and it is worth it.
    fn is_acceptable(&self, tried: &Tried<'a>, may_move: bool) -> bool {
        self.all_stay_away(tried) && self.leaves_little_idle(tried) && self.is_worth_it(tried, may_move)
    }

    /// True when nobody who was taken for a fair share, or from another tenant by class or priority, could at once be
    /// reclaimed back, now that it is known who else leaves. Tasks beyond the minimum of a gang that leaves do not come
    /// back without it.
    fn all_stay_away(&self, tried: &Tried<'a>) -> bool {
        (0..tried.taken.len()).all(|at| {
            let taken = &tried.taken[at];
            let with_its_gang = taken.unit.surplus && tried.takes_gang(taken.unit.job);
            let lines: &[Line] = match taken.right {
                _ if with_its_gang => &[],
                Right::Above(Line::FairShare) => &[Line::Guarantee],
                Right::Lower if taken.unit.tenant() != self.ask.tenant() => {
                    &[Line::Guarantee, Line::FairShare]
                }
                Right::Above(_) | Right::Lower => &[],
            };
            let mut if_it_stayed = tried.clone();
            if_it_stayed.taken.remove(at);
            let world = self.without(&if_it_stayed);
            !lines.iter().any(|&line| self.comes_back(&world, &taken.unit, line))
        })
    }

    /// True when no more of what was taken for a fair share stands idle than starts.
    fn leaves_little_idle(&self, tried: &Tried<'a>) -> bool {
        if self.ask.fair_share != Allowance::Sparingly {
            return true;
        }
        let for_share = tried.taken.iter().filter(|taken| taken.why == EvictionRule::FairShare);
        let freed: Vec<Placement> = for_share.flat_map(|taken| taken.unit.tasks.clone()).collect();
        let started = self.ask.spec.shape.gpus.units().parts() * u64::from(self.ask.tasks);
        // Where others have to be moved too it is judged at the end.
        let placed = place(&self.without(tried), self.ask);
        placed.is_none_or(|(world, _)| idle_of(&world, &freed) <= started)
    }

    /// What binds everything but guarantees: the blast radius, and a gain above the cost. Who is moved on top costs too.
    fn is_worth_it(&self, tried: &Tried<'a>, may_move: bool) -> bool {
        let bound = tried.taken.iter().filter(|taken| taken.why != EvictionRule::Guarantee);
        let mut bound: Vec<&Unit<'a>> = bound.map(|taken| &taken.unit).collect();
        let mut jobs: Vec<JobId> = bound.iter().map(|unit| unit.job).collect();
        jobs.sort_unstable();
        jobs.dedup();
        let victims_max = self.facts.policy.preemption.victims_max;
        let few = u32::try_from(jobs.len()).is_ok_and(|count| count <= victims_max);
        let world = self.without(tried);
        let by_moving = may_move && place(&world, self.ask).is_none();
        let moved = by_moving.then(|| place_by_moving(&world, self.ask)).flatten();
        bound.extend(moved.iter().flat_map(|met| &met.moved).map(|moved| &moved.unit));
        let cost = bound.iter().map(|unit| unit.cost).fold(0, u64::saturating_add);
        few && (bound.is_empty() || gain(self.facts, self.ask, &bound) > cost)
    }

    /// Whom what was taken carried below its line on the way from this victim up, and by how much.
    fn straddles(&self, tried: &Tried<'a>, taken: &Taken<'a>) -> Option<Straddle> {
        let Right::Above(line) = taken.right else { return None };
        let after = self.without(tried);
        for tenant in self.path(taken.unit.tenant()) {
            for meter in self.ask.meters() {
                let Amount::Of(line) = self.facts.line(tenant, meter, line) else { continue };
                let (had, has) = (self.before.used(tenant, meter), after.used(tenant, meter));
                if had > line && has < line {
                    return Some(Straddle { tenant, short: self.told(meter, line - has) });
                }
            }
        }
        None
    }

    /// An amount of a meter as a receipt tells it: GPUs in 1/3000, whether normalised or not.
    fn told(&self, meter: usize, amount: u64) -> u64 {
        match self.facts.meters[meter] {
            Meter::AnyGpu => amount.div_ceil(1000),
            Meter::Gpu(_) | Meter::Cpu | Meter::Memory => amount,
        }
    }

    /// The next unit in the order of rule 8; who would straddle is passed over.
    fn next_victim(&self, tried: &Tried<'a>, right: Right) -> Option<Unit<'a>> {
        let world = self.without(tried);
        match right {
            Right::Above(_) => self.next_among(&world, tried, self.facts.children(None), right),
            Right::Lower => self.next_among(&world, tried, vec![self.scope()], right),
        }
    }

    /// How far lower class or priority makes a victim.
    fn scope(&self) -> TenantId {
        let lineage = self.facts.lineage(self.ask.tenant());
        match self.facts.policy.preemption.within {
            Within::Project => lineage[0],
            Within::Team => lineage.get(1).copied().unwrap_or(lineage[0]),
            Within::Org => lineage[lineage.len() - 1],
        }
    }

    fn next_among(
        &self,
        world: &World<'a>,
        tried: &Tried<'a>,
        mut siblings: Vec<TenantId>,
        right: Right,
    ) -> Option<Unit<'a>> {
        siblings.retain(|&tenant| self.is_open(world, tried, tenant, right));
        siblings.sort_by_key(|&tenant| self.rank(world, tenant));
        siblings.into_iter().find_map(|tenant| {
            let own = units_of(world, tenant).into_iter().find(|unit| {
                self.may_take(world, tried, unit, right) && !self.would_straddle(world, unit, right)
            });
            own.or_else(|| self.next_among(world, tried, self.facts.children(Some(tenant)), right))
        })
    }

    /// False when nothing of the tenant or of anybody below it may be taken.
    fn is_open(&self, world: &World<'a>, tried: &Tried<'a>, tenant: TenantId, right: Right) -> bool {
        let Right::Above(line) = right else { return true };
        let above = self.ask.meters().iter().any(|&meter| self.excess(world, tenant, meter, line) > 0);
        self.is_shared(tenant) || (!tried.is_straddled(tenant) && above)
    }

    /// Tenants of lowest priority first, then those furthest above their fair share, smaller lines, last paths.
    fn rank(&self, world: &World<'a>, tenant: TenantId) -> (i32, Reverse<Ratio>, u64, Reverse<&'a str>) {
        let above = world.neediness(tenant, &self.ask.charge, Line::FairShare);
        let path = self.facts.state.tenants.path(tenant);
        (self.facts.tenant_priority(tenant), Reverse(above), above.line, Reverse(path))
    }

    /// True when a tenant is the asker's or above it.
    fn is_shared(&self, tenant: TenantId) -> bool {
        self.facts.is_below(self.ask.tenant(), tenant)
    }

    /// Tenants from the victim's up to, and without, the first that it shares with the asker.
    fn path(&self, tenant: TenantId) -> Vec<TenantId> {
        self.facts.lineage(tenant).into_iter().take_while(|&tenant| !self.is_shared(tenant)).collect()
    }

    /// The uppermost tenant that a victim does not share with the asker.
    fn branch(&self, tenant: TenantId) -> Option<TenantId> {
        self.path(tenant).last().copied()
    }

    /// What a tenant has above its line.
    fn excess(&self, world: &World<'a>, tenant: TenantId, meter: usize, line: Line) -> u64 {
        match self.facts.line(tenant, meter, line) {
            Amount::Unlimited => 0,
            Amount::Of(line) => world.used(tenant, meter).saturating_sub(line),
        }
    }

    /// True when taking the unit would carry somebody who is above the line below it.
    fn would_straddle(&self, world: &World<'a>, unit: &Unit<'a>, right: Right) -> bool {
        let Right::Above(line) = right else { return false };
        let leaves = leaves_with(world, unit);
        self.path(unit.tenant()).into_iter().any(|tenant| {
            self.ask.meters().iter().any(|&meter| {
                let excess = self.excess(world, tenant, meter, line);
                excess > 0 && leaves[meter] > excess
            })
        })
    }

    /// One job per branch may, unless the asker's own branch would end above its line.
    fn own_branch_stays_within(&self, world: &World<'a>, victim: TenantId, right: Right) -> bool {
        let Right::Above(line) = right else { return true };
        let own = self.facts.lineage(self.ask.tenant());
        let own_branch = own.into_iter().take_while(|&tenant| !self.facts.is_below(victim, tenant)).last();
        own_branch.is_none_or(|branch| world.stays_within(branch, self.ask, line))
    }

    /// True when the unit may be taken by that right as things are.
    fn may_take(&self, world: &World<'a>, tried: &Tried<'a>, unit: &Unit<'a>, right: Right) -> bool {
        // Growth takes what is beyond the minimum of others only.
        if unit.job == self.ask.job || (self.ask.surplus && !unit.surplus) {
            return false;
        }
        let bound = right.why() != EvictionRule::Guarantee;
        // What was set aside for one is taken for another only by a guarantee.
        if bound && (unit.promised || !is_ripe(self.facts, unit, self.ask, right.why())) {
            return false;
        }
        let allowed = match right {
            Right::Lower => {
                let within = self.facts.is_below(unit.tenant(), self.scope());
                // By class or priority alone it would go to and fro between two tenants for ever.
                let comes_back = unit.tenant() != self.ask.tenant()
                    && (self.comes_back(world, unit, Line::Guarantee)
                        || self.comes_back(world, unit, Line::FairShare));
                within && self.facts.gives_way(unit.spec, self.ask.spec) && !comes_back
            }
            Right::Above(line) => self.is_borrowed(world, tried, unit, line),
        };
        let inference = unit.spec.class == Class::Inference;
        allowed && (!inference || world.inference_exceeds_guarantee(unit.tenant(), self.ask))
    }

    /// True when the tenant, and everyone above it below what it shares with the asker, is above the line in something
    /// that is asked for and held.
    fn is_borrowed(&self, world: &World<'a>, tried: &Tried<'a>, unit: &Unit<'a>, line: Line) -> bool {
        if unit.tenant() == self.ask.tenant() || self.is_kept(world, unit) {
            return false;
        }
        let above = |tenant: TenantId| {
            let mut meters = self.ask.meters().into_iter();
            meters.any(|meter| unit.amount[meter] > 0 && self.excess(world, tenant, meter, line) > 0)
        };
        let path = self.path(unit.tenant());
        let open = path.iter().all(|&tenant| !tried.is_straddled(tenant) && above(tenant));
        open && (line != Line::FairShare || !self.comes_back(world, unit, Line::Guarantee))
    }

    /// Work that needs longer to save than a guarantee waits is its tenant's own, as work that may not be evicted is;
    /// unless it has borrowed all the same, by a policy that was in force before.
    fn is_kept(&self, world: &World<'a>, unit: &Unit<'a>) -> bool {
        let may_borrow = self.facts.policy.preemption.fixed_may_borrow;
        let borrowed = !may_borrow && world.fixed_exceeds_guarantee(unit.tenant(), self.ask);
        self.facts.is_fixed(unit.spec) && !borrowed
    }

    /// True when the unit could at once be reclaimed back for its own tenant, which stays within that line with it.
    fn comes_back(&self, world: &World<'a>, unit: &Unit<'a>, line: Line) -> bool {
        if world.stays_within(self.ask.tenant(), self.ask, line) {
            return false;
        }
        let held = (0..unit.amount.len()).filter(|&meter| unit.amount[meter] > 0);
        held.into_iter().all(|meter| {
            let kept = world.used(unit.tenant(), meter) - world.gives_way_to(unit.spec, meter);
            match self.facts.line(unit.tenant(), meter, line) {
                Amount::Unlimited => true,
                Amount::Of(line) => kept <= line,
            }
        })
    }
}

/// Of a gang, its tasks beyond the minimum.
fn surplus_of<'a>(world: &World<'a>, unit: &Unit<'a>) -> Vec<Unit<'a>> {
    let mut units = if unit.surplus { Vec::new() } else { units_of(world, unit.tenant()) };
    units.retain(|other| other.job == unit.job && other.surplus);
    units
}

/// What leaves with a unit, by meter: of a gang, its surplus too.
fn leaves_with<'a>(world: &World<'a>, unit: &Unit<'a>) -> Vec<u64> {
    let mut leaves = unit.amount.clone();
    for beside in surplus_of(world, unit) {
        leaves.iter_mut().zip(&beside.amount).for_each(|(total, part)| *total += part);
    }
    leaves
}
