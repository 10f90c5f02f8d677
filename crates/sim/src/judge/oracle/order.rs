//! Rule 8 to the letter: who is taken next, until the job starts, and who is spared then.

use std::cmp::{Ordering, Reverse};

use wharf_engine::model::job::Class;

use super::facts::{Facts, Reclaim, Set};
use super::rules::{could_come_back, line, protected_left};

/// What decides between units that rule 8 finds equal up to their cost: tenant, class, priority, surplus or rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Equals {
    /// The cheapest, then the newest: the rule itself.
    Cheapest,
    /// Those of a set first: another order of equals, to see whether the rule could have ended there.
    First(Set),
}

/// What is left of all that was taken in order when whoever is not needed is spared; `None` where taking in order, without
/// straddles, does not make room.
pub(super) fn take_and_spare(facts: &Facts<'_>, reclaim: Reclaim, equals: Equals) -> Option<Set> {
    let lines: &[Above] = match reclaim {
        Reclaim::Guarantee => &[Above::Entitled, Above::Line],
        Reclaim::FairShare => &[Above::Line],
    };
    let mut taken: Vec<usize> = Vec::new();
    let as_set = |taken: &[usize]| taken.iter().fold(Set::default(), |set, &unit| set.with(unit));
    for &above in lines {
        while !facts.starts_without(as_set(&taken)) {
            let step = Step { facts, reclaim, above, equals, taken: as_set(&taken) };
            let Some(unit) = step.next_among(None) else { break };
            taken.extend(step.with_surplus(unit).units().filter(|&other| other != unit));
            taken.push(unit);
        }
    }
    let mut set = as_set(&taken);
    if !facts.starts_without(set) {
        return None;
    }
    for &unit in taken.iter().rev() {
        let spared = set.without(unit);
        if facts.is_closed(spared) && facts.starts_without(spared) {
            set = spared;
        }
    }
    Some(set)
}

/// Above what somebody has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Above {
    /// Guarantee and fair share: whom a guarantee takes from first.
    Entitled,
    /// The line of the reclaim.
    Line,
}

/// One choice.
struct Step<'f, 'a> {
    facts: &'f Facts<'a>,
    reclaim: Reclaim,
    above: Above,
    equals: Equals,
    taken: Set,
}

/// Where a unit stands in its tenant, fields in the order in which they decide.
type Rank<'a> = (Reverse<Class>, i32, bool, bool, u64, u64, Reverse<usize>, Reverse<Option<usize>>);

impl<'a> Step<'_, 'a> {
    /// Tenants are compared level by level; the first that has something to take pays.
    fn next_among(&self, parent: Option<usize>) -> Option<usize> {
        let facts = self.facts;
        let used = facts.used_without(self.taken);
        let mut siblings: Vec<usize> =
            (0..facts.parents.len()).filter(|&tenant| facts.parents[tenant] == parent).collect();
        siblings.sort_by(|&a, &b| self.pays_first(&used, a, b));
        siblings.into_iter().find_map(|tenant| {
            let own = (0..facts.units.len()).filter(|&unit| facts.units[unit].tenant == tenant);
            let takeable = own.filter(|&unit| self.may_take(&used, unit));
            takeable.min_by_key(|&unit| self.rank(unit)).or_else(|| self.next_among(Some(tenant)))
        })
    }

    /// The lower tenant priority; further above its fair share; the smaller share; the later path.
    fn pays_first(&self, used: &[u64], a: usize, b: usize) -> Ordering {
        let (tenants, shares) = (&self.facts.instance.tenants, &self.facts.shares);
        let further_above = match (shares[a], shares[b]) {
            (0, 0) => used[b].cmp(&used[a]),
            (0, _) => Ordering::Less,
            (_, 0) => Ordering::Greater,
            _ => (used[b] * shares[a]).cmp(&(used[a] * shares[b])),
        };
        let by_priority = tenants[a].priority.cmp(&tenants[b].priority);
        by_priority.then(further_above).then(shares[a].cmp(&shares[b])).then(b.cmp(&a))
    }

    fn rank(&self, unit: usize) -> Rank<'a> {
        let (job, of) = (self.facts.job(unit), &self.facts.units[unit]);
        let later = match self.equals {
            Equals::Cheapest => false,
            Equals::First(set) => !set.has(unit),
        };
        let newest = (job.running_s, Reverse(of.job), Reverse(of.task));
        (Reverse(job.class), job.priority, of.task.is_none(), later, of.cost, newest.0, newest.1, newest.2)
    }

    /// The unit, and the tasks beyond the minimum that leave with the rest of their job.
    fn with_surplus(&self, unit: usize) -> Set {
        let units = &self.facts.units;
        let with_it = |&other: &usize| {
            units[unit].task.is_none() && units[other].job == units[unit].job && !self.taken.has(other)
        };
        (0..units.len()).filter(with_it).fold(Set::default().with(unit), Set::with)
    }

    /// True when everybody it belongs to is above, and stays there.
    fn may_take(&self, used: &[u64], unit: usize) -> bool {
        let facts = self.facts;
        if self.taken.has(unit) {
            return false;
        }
        let tenant = facts.units[unit].tenant;
        let leaves = self.with_surplus(unit);
        let gpus: u64 = leaves.units().map(|unit| facts.units[unit].gpus).sum();
        let above = |tenant: usize| used[tenant] >= gpus + self.line(tenant);
        let after = Set(self.taken.0 | leaves.0);
        let comes_back = self.reclaim == Reclaim::FairShare && could_come_back(facts, after, unit);
        let inference = facts.job(unit).class == Class::Inference;
        let guaranteed = facts.instance.tenants[tenant].guaranteed_gpus;
        let protected = inference && protected_left(facts, self.taken, tenant) <= guaranteed;
        facts.path(tenant).into_iter().all(above) && !comes_back && !protected
    }

    fn line(&self, tenant: usize) -> u64 {
        let line = line(self.facts, self.reclaim, tenant);
        match self.above {
            Above::Line => line,
            Above::Entitled => line.max(self.facts.shares[tenant]),
        }
    }
}
