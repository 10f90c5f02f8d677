//! Every set of an instance, judged; and the planner's choice held against them.
//!
//! What competes on cost is what rule 8 leaves open: it names tenant, class, priority, and surplus before rest, before it
//! looks at cost. A set competes if rule 8, told to take the units of that set before their equals, ends with exactly
//! that set. Where rule 8 in order makes no room at all, because small victims use up what a tenant has above its line or
//! because somebody has to straddle, every allowed set competes that takes from no other tenant, class, priority and
//! kind (surplus or rest) than the choice it is compared with.

use std::collections::{BTreeMap, BTreeSet};

use wharf_engine::model::job::Class;

use super::facts::{Facts, Reclaim, Set};
use super::order::{Equals, take_and_spare};
use super::rules::{Refused, Ruled, Ruling, ruled};

/// All that the rules say about an instance.
#[derive(Clone, Debug)]
pub(super) struct Judgement<'a> {
    /// Of this.
    pub(super) facts: Facts<'a>,
    /// By what right others have to leave.
    pub(super) reclaim: Reclaim,
    /// Sets that may be taken, and of which nobody can be spared alone; cheapest first.
    pub(super) allowed: Vec<Set>,
    /// Whether they straddle: there is none that does not.
    pub(super) only_straddles: bool,
    /// Sets of which rule 7 says yes or no by where everybody finds room: they need not be found, but may be.
    pub(super) open: BTreeSet<Set>,
    /// What rule 8 comes to in order.
    pub(super) in_order: Option<Set>,
}

/// The cheapest set that competes with a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Optimum {
    /// Which.
    pub(super) set: Set,
    /// How many competed.
    pub(super) competing: usize,
}

impl<'a> Judgement<'a> {
    /// The judgement on an instance; `None` where the job has no right to what others hold.
    pub(super) fn of(facts: Facts<'a>) -> Option<Self> {
        let reclaim = facts.rights().first().copied()?;
        let sets = (1..1u32 << facts.units.len()).map(Set);
        let ruled: BTreeMap<Set, Ruled> = sets.filter_map(|set| Some((set, judged(&facts, set)?))).collect();
        let such = |ruling: Ruling, refused: Refused| -> BTreeSet<Set> {
            let wanted = |(set, ruled): (&Set, &Ruled)| (*ruled == Ruled { ruling, refused }).then_some(*set);
            ruled.iter().filter_map(wanted).collect()
        };
        let mut sure = such(Ruling::Allowed, Refused::No);
        let mut open = such(Ruling::Allowed, Refused::Perhaps);
        let only_straddles = sure.is_empty();
        if only_straddles {
            let straddling = such(Ruling::Straddles, Refused::No);
            // Rule 7 may refuse the only sets that do not straddle; rule 6 does not say whether one may straddle then.
            let doubtful = ruled.values().any(|ruled| ruled.ruling == Ruling::Allowed);
            if doubtful {
                open.extend(straddling);
            } else {
                sure = straddling;
            }
            open.extend(such(Ruling::Straddles, Refused::Perhaps));
        }
        let mut allowed: Vec<Set> = sure.into_iter().filter(|&set| sparable(&facts, set).is_none()).collect();
        allowed.sort_by_key(|&set| (facts.cost(set), set));
        let in_order = take_and_spare(&facts, reclaim, Equals::Cheapest).filter(|set| allowed.contains(set));
        Some(Self { facts, reclaim, allowed, only_straddles, open, in_order })
    }

    /// Whether a set may be taken at all, minimal or not.
    pub(super) fn allows(&self, set: Set) -> bool {
        let sure = match judged(&self.facts, set) {
            Some(Ruled { ruling, refused: Refused::No }) => ruling == Ruling::Allowed || self.only_straddles,
            Some(_) | None => false,
        };
        sure || self.open.contains(&set)
    }

    /// A unit without which the rest of a set would do.
    pub(super) fn sparable(&self, set: Set) -> Option<usize> {
        sparable(&self.facts, set)
    }

    /// Whether a set carries somebody below their line.
    pub(super) fn straddles(&self, set: Set) -> bool {
        judged(&self.facts, set).is_some_and(|ruled| ruled.ruling == Ruling::Straddles)
    }

    /// True for a set that rule 8 could not end with although it makes room in order.
    pub(super) fn is_out_of_order(&self, set: Set) -> bool {
        self.in_order.is_some_and(|in_order| set != in_order) && !self.is_reached(set)
    }

    /// True when rule 8 ends with that set if it is told to take the units of it before their equals.
    fn is_reached(&self, set: Set) -> bool {
        take_and_spare(&self.facts, self.reclaim, Equals::First(set)) == Some(set)
    }

    /// The cheapest of the allowed sets that compete with a choice, the choice among them.
    pub(super) fn optimum(&self, choice: Set) -> Optimum {
        let payers = self.payers(choice);
        let competes = |set: Set| match self.in_order {
            Some(_) => !self.is_out_of_order(set),
            None => self.payers(set).is_subset(&payers),
        };
        let competing: Vec<Set> = self.allowed.iter().copied().filter(|&set| competes(set)).collect();
        let set = competing.first().copied().unwrap_or(choice);
        Optimum { set, competing: competing.len() }
    }

    /// Who pays for a set: tenant, class, priority, and whether the rest of a job goes.
    fn payers(&self, set: Set) -> BTreeSet<(usize, Class, i32, bool)> {
        let payer = |unit: usize| {
            let (job, unit) = (self.facts.job(unit), &self.facts.units[unit]);
            (unit.tenant, job.class, job.priority, unit.task.is_none())
        };
        set.units().map(payer).collect()
    }
}

/// What the rules say to a set that makes room.
fn judged(facts: &Facts<'_>, set: Set) -> Option<Ruled> {
    (facts.is_closed(set) && facts.starts_without(set)).then(|| ruled(facts, set)).flatten()
}

fn sparable(facts: &Facts<'_>, set: Set) -> Option<usize> {
    let would_do = |set: Set| judged(facts, set).is_some_and(|ruled| ruled.refused == Refused::No);
    set.units().find(|&unit| would_do(set.without(unit)))
}
