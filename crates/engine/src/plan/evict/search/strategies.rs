//! Ways to find victims: in the order of rule 8, in order with others moved into the gaps, with one unit or two taken first, and
//! on small fleets every set.

use super::{EXHAUSTIVE_MAX, MOVE_INTO_MAX, SEEDS_MAX, SETS_MAX, Terms, VictimSearch};
use crate::plan::evict::victims::UnitRef;
use crate::units::TenantId;
use alloc::vec::Vec;

impl VictimSearch<'_, '_, '_> {
    /// Takes in order until the ask is met, then spares.
    pub(super) fn take_in_order(&mut self) -> bool {
        for right in self.rights.clone() {
            while !self.is_met(Terms::STRICT) {
                let Some(unit) = self.next_victim(right) else { break };
                self.take(unit, right);
            }
        }
        self.is_met(Terms::STRICT) && self.spare_and_accept(Terms::STRICT)
    }

    /// What was taken in order is enough, but in pieces: others may be moved into it.
    pub(super) fn take_and_move(&mut self) -> bool {
        let few = self.taken.len() <= MOVE_INTO_MAX;
        if self.taken.is_empty() || !few || self.claimant.surplus {
            return false;
        }
        let terms = Terms { moves: true, ..Terms::STRICT };
        self.is_met(terms) && self.spare_and_accept(terms)
    }

    /// Small victims may use up what a tenant has above its line before the useful one comes: each is tried first, at
    /// last two of different branches that straddle.
    pub(super) fn take_with_seed(&mut self, terms: Terms) -> bool {
        let mut seeds = self.seeds(terms);
        if terms.straddle {
            seeds.retain(|&unit| self.right_to(unit).is_none());
        }
        seeds.iter().any(|&seed| self.take_seeds(terms, &[seed]))
            || (terms.straddle && self.take_two_seeds(terms, &seeds))
    }

    fn take_two_seeds(&mut self, terms: Terms, seeds: &[UnitRef]) -> bool {
        for (at, &first) in seeds.iter().enumerate() {
            for &second in &seeds[at + 1..] {
                let apart = self.branch(first.tenant) != self.branch(second.tenant);
                if apart && self.take_seeds(terms, &[first, second]) {
                    return true;
                }
            }
        }
        false
    }

    fn take_seeds(&mut self, terms: Terms, seeds: &[UnitRef]) -> bool {
        self.spare_all();
        seeds.iter().all(|&unit| self.take_if_allowed(terms, unit)) && self.take_in_order()
    }

    /// On a small fleet nothing that is allowed is missed.
    pub(super) fn take_any_set(&mut self, terms: Terms) -> bool {
        let units = self.seeds(terms);
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
            self.spare_all();
            let chosen = units.iter().enumerate().filter(|(at, _)| set & (1 << at) != 0);
            self.take_all(terms, chosen.map(|(_, &unit)| unit).collect())
                && self.is_met(terms)
                && self.spare_and_accept(terms)
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
    fn take_all(&mut self, terms: Terms, mut units: Vec<UnitRef>) -> bool {
        units.sort_by_cached_key(|&unit| self.leaves_with(unit));
        for straddle in [false, terms.straddle] {
            let mut left = usize::MAX;
            while units.len() < left {
                left = units.len();
                units.retain(|&unit| !self.take_if_allowed(Terms { straddle, ..terms }, unit));
            }
        }
        units.is_empty()
    }

    /// Every unit that might be taken as things are, in the order of rule 8.
    pub(super) fn seeds(&mut self, terms: Terms) -> Vec<UnitRef> {
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
                if self.might_take(terms, unit) && self.is_useful(unit) {
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
}
