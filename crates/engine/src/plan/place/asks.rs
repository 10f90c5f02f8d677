//! Asks of jobs, also of jobs with groups (rule 4): all groups of a job in one ask, which is met or not met as a whole.
//!
//! Tasks of one group are met in one pool and mode, tasks of different groups each in their own: a coordinator may be on a
//! node without GPUs beside workers on eight. An ask is one combination of such options. The largest tasks are placed first,
//! because they have the fewest places to go.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::model::group::{Lack, Lacks};
use crate::model::job::Spec;
use crate::model::need::{Need, PoolOption};
use crate::model::placement::Placement;
use crate::model::policy::Policy;
use crate::plan::place::Ask;
use crate::quota::tree::Tree;
use crate::state::State;
use crate::state::jobs::{GroupKey, KindKey, More};
use crate::state::ways::ways;
use crate::units::PoolId;

/// The most combinations of options that are tried: few fleets have more than a handful of models.
const COMBINATIONS_MAX: usize = 64;

/// The asks by which kinds can be met in one state, by one policy.
#[derive(Clone, Copy)]
pub(crate) struct Asks<'d> {
    pub state: &'d State,
    pub policy: &'d Policy,
    pub tree: &'d Tree,
    /// The trust domain by name, of a job that was not accepted yet.
    pub domain: Option<&'d str>,
}

struct GroupPiece {
    group: usize,
    numbers: Rc<[u32]>,
    /// How the group's other tasks are met, where it has any.
    given: Option<(PoolId, Need)>,
}

impl GroupPiece {
    fn new(spec: &Spec, lack: &Lack, held: &[Placement], next: u32) -> Self {
        let other = held.iter().find(|place| spec.group_of(place.task) == Some(lack.group));
        let given = other.map(|place| (place.pool, Need::held(place)));
        Self { group: lack.group, numbers: spec.numbers_for(&lack.slots, next).into(), given }
    }
}

impl<'d> Asks<'d> {
    pub(crate) fn new(state: &'d State, policy: &'d Policy, tree: &'d Tree) -> Self {
        Self { state, policy, tree, domain: None }
    }

    /// The pools and modes in which a kind can be met and that the policy allows, in order.
    pub(crate) fn options(self, key: &'d KindKey) -> impl Iterator<Item = PoolOption> + use<'d> {
        let domain = self.domain.unwrap_or_else(|| self.state.tenants.trust(key.trust));
        ways(&self.state.fleet, self.policy, key.class, domain, &key.shape).filter_map(Result::ok)
    }

    /// The minimum of a kind, in each way in which it could be met, in order.
    pub(crate) fn minimum(self, key: &KindKey) -> Vec<Ask<'_>> {
        if key.groups.is_empty() {
            return self.options(key).map(|option| Ask::new(self.tree, key, option, key.min)).collect();
        }
        let mut first = 0;
        let piece = |(at, group): (usize, &GroupKey)| {
            let numbers = group.first_slots().map(|slot| first + slot).collect();
            first += group.key.tasks;
            GroupPiece { group: at, numbers, given: None }
        };
        self.together(key, key.groups.iter().enumerate().map(piece).collect())
    }

    /// More tasks for a job without groups, in the one way in which its others are met.
    pub(crate) fn more(self, key: &KindKey, more: More) -> Vec<Ask<'_>> {
        let usable = self.options(key).filter(|option| (more.pool, more.need) == (option.pool, option.need));
        usable
            .map(|option| Ask { domain: more.domain, ..Ask::new(self.tree, key, option, more.tasks) })
            .collect()
    }

    /// What a job with groups lacks beside what it has, as alternatives in order: the rest of its minimum, or one more piece of
    /// one of its groups; and whether it is the rest of its minimum. Numbers that were not used in this attempt begin with `next`.
    pub(crate) fn lacking<'k>(
        self,
        key: &'k KindKey,
        spec: &Spec,
        alive: &[Placement],
        next: u32,
    ) -> (Vec<Ask<'k>>, bool) {
        let piece = |lack: &Lack| GroupPiece::new(spec, lack, alive, next);
        match spec.lacks(alive.iter().map(|place| place.task)) {
            Lacks::Repair(lacks) => (self.together(key, lacks.iter().map(piece).collect()), true),
            Lacks::Growth(lacks) => {
                let one = |lack: &Lack| self.together(key, alloc::vec![piece(lack)]);
                (lacks.iter().flat_map(one).collect(), false)
            }
        }
    }

    /// The ask for places that are known: as many tasks again, each group as its places say.
    pub(crate) fn of_places<'k>(
        self,
        key: &'k KindKey,
        spec: &Spec,
        places: &[Placement],
    ) -> Option<Ask<'k>> {
        if key.groups.is_empty() {
            let place = places.first()?;
            let need = Need::held(place);
            let option = self.options(key).find(|option| option.pool == place.pool && option.need == need)?;
            let tasks = u32::try_from(places.len()).expect("a gang has at most 16,384 tasks");
            return Some(Ask::new(self.tree, key, option, tasks));
        }
        let piece = |group: usize| {
            let own = places.iter().filter(|place| spec.group_of(place.task) == Some(group));
            let slots: Vec<u32> = own.map(|place| spec.slot_of(place.task)).collect();
            (!slots.is_empty()).then(|| GroupPiece::new(spec, &Lack { group, slots }, places, 0))
        };
        self.together(key, (0..key.groups.len()).filter_map(piece).collect()).into_iter().next()
    }

    /// All pieces in one ask, for each combination of options.
    fn together<'k>(self, key: &'k KindKey, mut pieces: Vec<GroupPiece>) -> Vec<Ask<'k>> {
        pieces.sort_by_key(|piece| {
            let shape = &key.groups[piece.group].key.shape;
            let size = (shape.gpus.units(), shape.resources.cpu_milli, shape.resources.memory);
            (Reverse(size), piece.group)
        });
        let mut combinations: Vec<Vec<Ask<'k>>> = alloc::vec![Vec::new()];
        for GroupPiece { group, numbers, given } in &pieces {
            let own = &key.groups[*group].key;
            let tasks = u32::try_from(numbers.len()).expect("a job has at most 16,384 tasks");
            let allowed = |option: &PoolOption| given.is_none_or(|given| given == (option.pool, option.need));
            let ask =
                |option| Ask { numbers: Some(Rc::clone(numbers)), ..Ask::new(self.tree, own, option, tasks) };
            let asks: Vec<Ask<'k>> = self.options(own).filter(allowed).map(ask).collect();
            let with = |known: &Vec<Ask<'k>>| -> Vec<Vec<Ask<'k>>> {
                asks.iter().map(|ask| known.iter().chain([ask]).cloned().collect()).collect()
            };
            combinations = combinations.iter().flat_map(with).take(COMBINATIONS_MAX).collect();
        }
        combinations.into_iter().filter_map(joined).collect()
    }
}

fn joined(parts: Vec<Ask<'_>>) -> Option<Ask<'_>> {
    let mut parts = parts.into_iter();
    let first = parts.next()?;
    let beside: Vec<Ask<'_>> = parts.collect();
    Some(Ask { beside: (!beside.is_empty()).then(|| beside.into()), ..first })
}
